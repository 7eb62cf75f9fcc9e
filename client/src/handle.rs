//! File handles, owned.

use odafs_common::wire::nfs3::{FileHandle, MAX_FILE_HANDLE};
use std::fmt;

/// A file handle (nfs_fh3, RFC 1813 section 2.3.3): at most [`Handle::MAX`] bytes that mean something to the server alone.
///
/// It names the same file for as long as that exists, whatever becomes of its names, and over a restart of the server. Two
/// names of one file (hard links) have the same handle. A program may keep its bytes and come back with them later; once
/// the file is gone, calls fail with `ESTALE`.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Handle {
    length: u8,
    bytes: [u8; MAX_FILE_HANDLE as usize],
}

impl Handle {
    /// The longest handle, in bytes.
    pub const MAX: usize = MAX_FILE_HANDLE as usize;

    /// A handle from bytes that a program kept. `None` if there are more than [`Handle::MAX`], which no server gives.
    /// The server decides whether the bytes are a handle.
    pub fn from_bytes(bytes: &[u8]) -> Option<Self> {
        (bytes.len() <= Self::MAX).then(|| Self::from(FileHandle(bytes)))
    }

    /// The bytes of the handle, for a program to keep.
    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes[..usize::from(self.length)]
    }

    /// As it is on the wire.
    pub(crate) fn wire(&self) -> FileHandle<'_> {
        FileHandle(self.as_bytes())
    }
}

impl From<FileHandle<'_>> for Handle {
    /// The decoder has seen to it that there are at most 64 bytes.
    fn from(handle: FileHandle<'_>) -> Self {
        let mut bytes = [0; MAX_FILE_HANDLE as usize];
        let length = handle.0.len().min(bytes.len());
        bytes[..length].copy_from_slice(&handle.0[..length]);
        Self {
            length: length as u8,
            bytes,
        }
    }
}

impl fmt::Debug for Handle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.as_bytes()
            .iter()
            .try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}
