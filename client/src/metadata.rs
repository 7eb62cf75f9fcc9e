//! What operations on paths return about files, and what they take to create them.

use crate::types::{self, Attributes, FileKind};
use std::{ffi::OsString, time::SystemTime};

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

impl From<types::DirEntry> for DirEntry {
    fn from(entry: types::DirEntry) -> Self {
        Self {
            name: entry.name,
            file_id: entry.fileid,
            metadata: entry.attributes.map(Metadata::from),
        }
    }
}
