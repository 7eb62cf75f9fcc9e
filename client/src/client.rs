//! The client: its connection to one export, and the operations on paths.

use crate::{
    error::{ConnectError, PathError},
    file::File,
    metadata::{Changes, CreateOptions, DirEntry, Metadata, Space},
    options::Options,
    statistics::Statistics,
    url::Url,
};
use odafs_fabric as _;
use std::{
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

/// A connection to one export of a server. Cheap to clone; all clones share caches and connections, and all may be
/// used from many threads at once.
///
/// An absolute path begins with the export's name, as in a URL; a relative one starts at the URL's path.
#[derive(Debug, Clone)]
pub struct Client {
    #[expect(dead_code)]
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {}

impl Client {
    /// Connects with the default [`Options`].
    ///
    /// # Errors
    /// The URL is malformed, nothing answers, or no export holds the URL's path.
    pub fn connect(url: &str) -> Result<Self, ConnectError> {
        Self::connect_with(&url.parse()?, Options::default())
    }

    /// Connects.
    ///
    /// # Errors
    /// As [`connect`](Self::connect), and when the server does not grant a route that the options insist on.
    pub fn connect_with(_url: &Url, _options: Options) -> Result<Self, ConnectError> {
        todo!()
    }

    /// The URL that it was connected with.
    pub fn url(&self) -> &Url {
        todo!()
    }

    /// What the server is and what it granted.
    pub fn server(&self) -> ServerFacts {
        todo!()
    }

    /// What was counted so far, by all clones.
    pub fn statistics(&self) -> Statistics {
        todo!()
    }

    /// Opens a file for reading and writing, and checks what is cached of it against the server.
    ///
    /// # Errors
    /// There is none, it is a directory, or the call failed.
    pub fn open(&self, _path: impl AsRef<Path>) -> Result<File, PathError> {
        todo!()
    }

    /// Makes a file, or cuts an existing one to nothing.
    ///
    /// # Errors
    /// As [`create_with`](Self::create_with).
    pub fn create(&self, path: impl AsRef<Path>) -> Result<File, PathError> {
        self.create_with(path, &CreateOptions::default())
    }

    /// Makes a file that does not exist yet.
    ///
    /// # Errors
    /// As [`create_with`](Self::create_with), and when it exists.
    pub fn create_new(&self, path: impl AsRef<Path>) -> Result<File, PathError> {
        self.create_with(
            path,
            &CreateOptions {
                exclusive: true,
                ..CreateOptions::default()
            },
        )
    }

    /// Makes a file.
    ///
    /// # Errors
    /// The server refused it (no such directory, no right, read-only, no space), or the call failed.
    pub fn create_with(
        &self,
        _path: impl AsRef<Path>,
        _options: &CreateOptions,
    ) -> Result<File, PathError> {
        todo!()
    }

    /// What is known about a file; symbolic links are followed.
    ///
    /// # Errors
    /// There is no such file, or the call failed.
    pub fn stat(&self, _path: impl AsRef<Path>) -> Result<Metadata, PathError> {
        todo!()
    }

    /// What is known about a file or about a symbolic link itself.
    ///
    /// # Errors
    /// As [`stat`](Self::stat).
    pub fn stat_link(&self, _path: impl AsRef<Path>) -> Result<Metadata, PathError> {
        todo!()
    }

    /// The entries of a directory, without `.` and `..`, fetched as they are asked for.
    ///
    /// # Errors
    /// There is no such directory, or the call failed.
    pub fn read_dir(&self, _path: impl AsRef<Path>) -> Result<ReadDir, PathError> {
        todo!()
    }

    /// Makes a directory (mode 0755).
    ///
    /// # Errors
    /// It exists, its parent does not, or the call failed.
    pub fn mkdir(&self, _path: impl AsRef<Path>) -> Result<(), PathError> {
        todo!()
    }

    /// Removes a file or a symbolic link.
    ///
    /// # Errors
    /// There is none, it is a directory, or the call failed.
    pub fn remove(&self, _path: impl AsRef<Path>) -> Result<(), PathError> {
        todo!()
    }

    /// Removes an empty directory.
    ///
    /// # Errors
    /// There is none, it is not empty, or the call failed.
    pub fn rmdir(&self, _path: impl AsRef<Path>) -> Result<(), PathError> {
        todo!()
    }

    /// Renames; what bears the new name is replaced.
    ///
    /// # Errors
    /// There is no such file, or the call failed.
    pub fn rename(&self, _from: impl AsRef<Path>, _to: impl AsRef<Path>) -> Result<(), PathError> {
        todo!()
    }

    /// Makes a symbolic link at `path` that points to `target`.
    ///
    /// # Errors
    /// The name exists, or the call failed.
    pub fn symlink(
        &self,
        _target: impl AsRef<Path>,
        _path: impl AsRef<Path>,
    ) -> Result<(), PathError> {
        todo!()
    }

    /// Where a symbolic link points.
    ///
    /// # Errors
    /// It is no link, or the call failed.
    pub fn readlink(&self, _path: impl AsRef<Path>) -> Result<PathBuf, PathError> {
        todo!()
    }

    /// Gives `existing` the further name `new`.
    ///
    /// # Errors
    /// The new name exists, the two lie apart, or the call failed.
    pub fn hard_link(
        &self,
        _existing: impl AsRef<Path>,
        _new: impl AsRef<Path>,
    ) -> Result<(), PathError> {
        todo!()
    }

    /// Changes mode, owner, size or times; what it was changed to comes back. Links are followed.
    ///
    /// # Errors
    /// There is no such file, no right to do so, or the call failed.
    pub fn set_attributes(
        &self,
        _path: impl AsRef<Path>,
        _changes: &Changes,
    ) -> Result<Metadata, PathError> {
        todo!()
    }

    /// Room on the export's file system.
    ///
    /// # Errors
    /// The call failed.
    pub fn space(&self) -> Result<Space, PathError> {
        todo!()
    }

    /// Asks the server for the references of whole files and keeps them in the directory.
    ///
    /// # Errors
    /// A file is missing, the server has no ODAFS program, or the call failed.
    pub fn refs<P: AsRef<Path>>(&self, _paths: &[P]) -> Result<Vec<FileReferences>, PathError> {
        todo!()
    }

    /// One call that does nothing (the paper's T_NullRPC), timed.
    ///
    /// # Errors
    /// The call failed.
    pub fn ping(&self) -> Result<Duration, PathError> {
        todo!()
    }
}

/// What the server is and what it granted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServerFacts {
    /// Name of the fabric: `shm`, `tcp`, `verbs`, `sim`, or `nfs` for RPC over TCP.
    pub fabric: &'static str,
    /// The export's name.
    pub export: String,
    /// It has the ODAFS program (else plain NFSv3 is spoken).
    pub odafs: bool,
    /// The direct mode granted, if any.
    pub granted: Option<Granted>,
    /// Bytes of a page of its page cache; 0 without a session.
    pub page_bytes: u32,
    /// Bytes of one READ at most.
    pub max_read: u32,
    /// Bytes of one WRITE at most.
    pub max_write: u32,
}

/// A direct mode that a server granted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Granted {
    /// The server's NIC checks and moves the data.
    Guarded {
        /// The MAC agreed on: `hmac-sha256` or `blake3`.
        mac: &'static str,
    },
    /// The client moves the data and checks; guarded reads are granted with it.
    OneSided {
        /// The MAC agreed on for guarded reads.
        mac: &'static str,
    },
}

/// The references of one file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FileReferences {
    /// The path asked for.
    pub path: PathBuf,
    /// The file's change counter.
    pub change: u64,
    /// Its size in bytes.
    pub size: u64,
    /// Bytes of a page.
    pub page_bytes: u32,
    /// Its change counter may be read directly.
    pub counter: bool,
    /// The resident pages that the server gave references for, in the order of the file.
    pub pages: Vec<PageReference>,
}

/// A reference to one page, without its access key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PageReference {
    /// Index of the page in the file.
    pub page: u64,
    /// Offset in the server's arena.
    pub address: u64,
    /// Valid bytes.
    pub length: u32,
    /// Handle in the TPT.
    pub handle: u32,
    /// The export's epoch when it was issued.
    pub epoch: u64,
}

/// The entries of a directory; see [`Client::read_dir`].
#[derive(Debug)]
pub struct ReadDir {
    client: Client,
}

impl Iterator for ReadDir {
    type Item = Result<DirEntry, PathError>;

    fn next(&mut self) -> Option<Self::Item> {
        let _ = &self.client;
        todo!()
    }
}
