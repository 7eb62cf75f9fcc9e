//! The fabric of one host: rings and regions in memory that the server makes, seals and passes
//! over a Unix socket.

use crate::clock::Nanos;
use crate::fabric::{Incoming, QueuePair};
use crate::wake::WakeSet;
use std::io;
use std::os::fd::BorrowedFd;
use std::path::Path;
use std::sync::Arc;

/// What the clients of a listener may use.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Connections of one uid.
    pub connections_per_uid: u32,
    /// Connections of all.
    pub connections: u32,
    /// Bytes of rings and regions of one uid.
    pub memory_per_uid: u64,
    /// Registered regions of one connection.
    pub regions_per_connection: u32,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            connections_per_uid: 256,
            connections: 4096,
            memory_per_uid: 1 << 30,
            regions_per_connection: 64,
        }
    }
}

/// How a client connects.
#[derive(Clone, Copy, Debug)]
pub struct ConnectOptions {
    /// How long the server may take to accept and to answer a registration.
    pub timeout: Nanos,
}

impl Default for ConnectOptions {
    fn default() -> Self {
        Self {
            timeout: Nanos::from_secs(5),
        }
    }
}

/// Takes connections on a Unix socket.
pub struct Listener {}

impl Listener {
    /// Listens at `path`. A socket that a dead server left there is replaced, a live one is an error.
    pub fn bind(path: &Path, limits: Limits) -> io::Result<Listener> {
        todo!("{path:?} {limits:?}")
    }
}

impl crate::fabric::Listener for Listener {
    fn poll_accept(&mut self) -> io::Result<Option<Box<dyn Incoming>>> {
        todo!()
    }

    fn wake_fd(&self) -> Option<BorrowedFd<'_>> {
        todo!()
    }

    fn watch(&mut self, _set: &Arc<WakeSet>) -> io::Result<()> {
        todo!()
    }

    fn name(&self) -> String {
        todo!()
    }
}

/// Connects to the server that listens at `path`.
pub fn connect(
    path: &Path,
    private_data: &[u8],
    options: &ConnectOptions,
) -> io::Result<Box<dyn QueuePair>> {
    todo!("{path:?} {private_data:?} {options:?}")
}
