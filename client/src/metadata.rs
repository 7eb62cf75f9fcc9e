//! What is known about a file, and what may be changed about it.

use crate::fs::{self, Attributes};
use odafs_common::wire::nfs3::{self, SetTime as OnWire};
use std::{ffi::OsString, time::SystemTime};

/// What a file is (ftype3, RFC 1813 section 2.6).
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

/// What is known about a file (fattr3, RFC 1813 section 2.6).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Metadata {
    /// What it is.
    pub kind: FileKind,
    /// Permission bits, set-id and sticky bits included.
    pub mode: u32,
    /// Hard links.
    pub links: u32,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Size in bytes.
    pub size: u64,
    /// Bytes of disk that it takes.
    pub used: u64,
    /// Major and minor number of a device file.
    pub device: (u32, u32),
    /// File system that holds it.
    pub filesystem_id: u64,
    /// Its number there.
    pub file_id: u64,
    /// Last access.
    pub accessed: SystemTime,
    /// Last change of its data.
    pub modified: SystemTime,
    /// Last change of its attributes.
    pub changed: SystemTime,
}

impl Metadata {
    /// Is it a regular file?
    pub fn is_file(&self) -> bool {
        self.kind == FileKind::Regular
    }

    /// Is it a directory?
    pub fn is_dir(&self) -> bool {
        self.kind == FileKind::Directory
    }

    /// Is it a symbolic link?
    pub fn is_symlink(&self) -> bool {
        self.kind == FileKind::Symlink
    }
}

/// What to change about a file; what is `None` stays.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Changes {
    /// Permission bits.
    pub mode: Option<u32>,
    /// Owner.
    pub uid: Option<u32>,
    /// Group.
    pub gid: Option<u32>,
    /// Size: longer is filled with zeros, shorter is cut.
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
    /// Fail if it exists.
    pub exclusive: bool,
    /// Cut an existing file to nothing.
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
    /// What is known about it (not of a link's target); `None` if it went away meanwhile.
    pub metadata: Option<Metadata>,
}

/// Room on the file system behind an export (FSSTAT, RFC 1813 section 3.3.18).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Space {
    /// Bytes in all.
    pub total_bytes: u64,
    /// Bytes free.
    pub free_bytes: u64,
    /// Bytes free to this caller.
    pub available_bytes: u64,
    /// Files in all.
    pub total_files: u64,
    /// Files free.
    pub free_files: u64,
    /// Files free to this caller.
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
