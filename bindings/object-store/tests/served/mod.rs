//! A served directory, and stores over it.
#![allow(dead_code)]

use odafs::{Client, fs::FileSystem};
use odafs_object_store::OdafsStore;
use std::{
    io::{BufRead as _, BufReader},
    path::PathBuf,
    process::{Child, Command, Stdio},
};

pub struct Served {
    server: Child,
    pub files: PathBuf,
    pub shm: String,
    pub tcp: String,
    _scratch: tempfile::TempDir,
}

impl Served {
    pub fn start() -> Self {
        Self::with(&[])
    }

    /// With further options of `odafs serve`.
    pub fn with(options: &[&str]) -> Self {
        let program = std::env::var_os("ODAFS");
        let program =
            program.expect("ODAFS: the program `odafs` (`cargo build -p odafs-cli` makes it)");
        let scratch = tempfile::tempdir().unwrap();
        let files = scratch.path().join("files");
        std::fs::create_dir(&files).unwrap();
        let socket = scratch.path().join("sock");
        let mut command = Command::new(program);
        command.arg("serve").arg(&files).args(options);
        command.args([
            "--nfs",
            "127.0.0.1:0",
            "--squash",
            "none",
            "--cache",
            "64MiB",
        ]);
        command.arg("--shm").arg(&socket);
        command.arg("--state").arg(scratch.path().join("state"));
        let mut server = command.stdout(Stdio::piped()).spawn().unwrap();
        let mut ready = String::new();
        let mut lines = BufReader::new(server.stdout.take().unwrap());
        lines.read_line(&mut ready).unwrap();
        let nfs = ready
            .split_whitespace()
            .find_map(|part| part.strip_prefix("nfs="));
        Self {
            tcp: format!("nfs://{}/", nfs.expect("ready nfs=...")),
            server,
            shm: format!("odafs+shm://{}?/", socket.display()),
            files,
            _scratch: scratch,
        }
    }

    pub async fn store(&self) -> OdafsStore {
        OdafsStore::connect(&self.shm).await.unwrap()
    }

    /// Another client, which changes files behind the store's back.
    pub fn other(&self) -> FileSystem {
        FileSystem::new(&Client::connect(&self.tcp).unwrap())
    }

    /// All names in the directory, ours too.
    pub fn names(&self) -> Vec<String> {
        let entries = std::fs::read_dir(&self.files).unwrap();
        let mut names: Vec<_> = entries
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        names.sort();
        names
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        let _ = self.server.kill();
        let _ = self.server.wait();
    }
}
