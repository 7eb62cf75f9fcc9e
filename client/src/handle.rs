//! What the server calls a file, owned.

use odafs_common::wire::nfs3::{FileHandle, MAX_FILE_HANDLE};
use std::fmt;

/// A file handle (nfs_fh3, RFC 1813 section 2.3.3): at most 64 bytes that mean something to the server alone.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Handle {
    length: u8,
    bytes: [u8; MAX_FILE_HANDLE as usize],
}

impl Handle {
    /// As it is on the wire.
    pub fn wire(&self) -> FileHandle<'_> {
        FileHandle(&self.bytes[..usize::from(self.length)])
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
        self.wire()
            .0
            .iter()
            .try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}
