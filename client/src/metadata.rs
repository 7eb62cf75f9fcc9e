//! What is known about a file, and what may be changed about it.

use crate::fs::{self, Attributes};
use odafs_common::wire::nfs3::{self, SetTime as OnWire};
use std::{ffi::OsString, time::SystemTime};

/// Kind of a file (ftype3, RFC 1813 section 2.6).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum FileKind {
    /// A regular file.
    Regular,
    /// A directory.
    Directory,
    /// A block device.
    BlockDevice,
    /// A character device.
    CharacterDevice,
    /// A symbolic link.
    Symlink,
    /// A socket.
    Socket,
    /// A named pipe.
    Pipe,
}

/// Attributes of a file (fattr3, RFC 1813 section 2.6).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Metadata {
    /// Kind of the file.
    pub kind: FileKind,
    /// Permission bits, set-id and sticky bits included.
    pub mode: u32,
    /// Number of hard links.
    pub links: u32,
    /// User id of the owner.
    pub uid: u32,
    /// Group id.
    pub gid: u32,
    /// Size in bytes.
    pub size: u64,
    /// Disk space that it takes, in bytes.
    pub used: u64,
    /// Major and minor number of a device file.
    pub device: (u32, u32),
    /// Number of the file system that holds it.
    pub filesystem_id: u64,
    /// Number of the file in that file system.
    pub file_id: u64,
    /// Last access.
    pub accessed: SystemTime,
    /// Last change of its data.
    pub modified: SystemTime,
    /// Last change of its attributes.
    pub changed: SystemTime,
}

impl Metadata {
    /// Whether it is a regular file.
    pub fn is_file(&self) -> bool {
        self.kind == FileKind::Regular
    }

    /// Whether it is a directory.
    pub fn is_dir(&self) -> bool {
        self.kind == FileKind::Directory
    }

    /// Whether it is a symbolic link.
    pub fn is_symlink(&self) -> bool {
        self.kind == FileKind::Symlink
    }
}

/// What to change about a file. A field that is `None` stays as it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Changes {
    /// Permission bits.
    pub mode: Option<u32>,
    /// User id of the owner.
    pub uid: Option<u32>,
    /// Group id.
    pub gid: Option<u32>,
    /// New size in bytes. The server fills a file that grows with zeros, and truncates one that shrinks.
    pub size: Option<u64>,
    /// Last access.
    pub accessed: Option<When>,
    /// Last change of its data.
    pub modified: Option<When>,
}

/// A time to set.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum When {
    /// The server's clock, now.
    Now,
    /// This time.
    At(SystemTime),
}

/// How [`Client::create_with`](crate::Client::create_with) makes a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CreateOptions {
    /// Permission bits of a new file.
    pub mode: u32,
    /// Fail if the file exists.
    pub exclusive: bool,
    /// Truncate an existing file to 0 bytes.
    pub truncate: bool,
}

impl Default for CreateOptions {
    fn default() -> Self {
        Self {
            mode: 0o644,
            exclusive: false,
            truncate: true,
        }
    }
}

/// One name in a directory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DirEntry {
    /// The name, without the directory.
    pub name: OsString,
    /// Number of the file in its file system.
    pub file_id: u64,
    /// Its attributes (a link's own, not its target's); `None` if it was removed meanwhile.
    pub metadata: Option<Metadata>,
}

/// Room on the file system behind an export (FSSTAT, RFC 1813 section 3.3.18).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Space {
    /// Size in bytes.
    pub total_bytes: u64,
    /// Free space in bytes.
    pub free_bytes: u64,
    /// Free space for this caller in bytes.
    pub available_bytes: u64,
    /// Number of files that it has room for.
    pub total_files: u64,
    /// Number of further files that it has room for.
    pub free_files: u64,
    /// Number of further files for this caller.
    pub available_files: u64,
}

impl From<Attributes> for Metadata {
    fn from(from: Attributes) -> Self {
        Self {
            kind: from.kind,
            mode: from.mode,
            links: from.nlink,
            uid: from.uid,
            gid: from.gid,
            size: from.size,
            used: from.used,
            device: from.rdev,
            filesystem_id: from.fsid,
            file_id: from.fileid,
            accessed: from.atime,
            modified: from.mtime,
            changed: from.ctime,
        }
    }
}

impl From<nfs3::Attributes> for Metadata {
    fn from(from: nfs3::Attributes) -> Self {
        Attributes::from(from).into()
    }
}

/// The protocol's seconds end in 2106, and begin in 1970.
pub fn on_wire(time: SystemTime) -> nfs3::Time {
    let since = time
        .duration_since(SystemTime::UNIX_EPOCH)
        .unwrap_or_default();
    nfs3::Time {
        seconds: u32::try_from(since.as_secs()).unwrap_or(u32::MAX),
        nanoseconds: since.subsec_nanos(),
    }
}

impl From<&Changes> for nfs3::SetAttributes {
    fn from(changes: &Changes) -> Self {
        Self {
            mode: changes.mode,
            uid: changes.uid,
            gid: changes.gid,
            size: changes.size,
            atime: changes.accessed.map_or(OnWire::Keep, OnWire::from),
            mtime: changes.modified.map_or(OnWire::Keep, OnWire::from),
        }
    }
}

impl From<When> for OnWire {
    fn from(when: When) -> Self {
        match when {
            When::Now => Self::ServerTime,
            When::At(time) => Self::To(on_wire(time)),
        }
    }
}

impl From<nfs3::FsStatOk> for Space {
    fn from(from: nfs3::FsStatOk) -> Self {
        Self {
            total_bytes: from.total_bytes,
            free_bytes: from.free_bytes,
            available_bytes: from.available_bytes,
            total_files: from.total_files,
            free_files: from.free_files,
            available_files: from.available_files,
        }
    }
}

impl From<fs::DirEntry> for DirEntry {
    fn from(entry: fs::DirEntry) -> Self {
        Self {
            name: entry.name,
            file_id: entry.fileid,
            metadata: entry.attributes.map(Metadata::from),
        }
    }
}
