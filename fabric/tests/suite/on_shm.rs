use crate::{Subject, suite};
use odafs_fabric::shm::{self, ConnectOptions, Limits};
use odafs_fabric::{Listener, QueuePair};
use std::io;
use std::path::PathBuf;

struct Shm {
    directory: tempfile::TempDir,
}

impl Shm {
    fn new() -> Shm {
        Shm {
            directory: tempfile::tempdir().unwrap(),
        }
    }

    fn path(&self) -> PathBuf {
        self.directory.path().join("socket")
    }
}

impl Subject for Shm {
    fn listen(&self) -> Box<dyn Listener> {
        Box::new(shm::Listener::bind(&self.path(), Limits::default()).unwrap())
    }

    fn connect(&self, private_data: &[u8]) -> io::Result<Box<dyn QueuePair>> {
        shm::connect(&self.path(), private_data, &ConnectOptions::default())
    }

    fn has_loads(&self) -> bool {
        true
    }

    fn marks(&self) -> bool {
        true
    }
}

suite!(Shm::new());
