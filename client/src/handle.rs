//! File handles, owned.

use std::fmt;

/// A file handle (nfs_fh3, RFC 1813 section 2.3.3): at most [`FileHandle::MAX`] bytes, which only the server can interpret.
///
/// It names the same file for as long as the file exists, under whatever names, and across restarts of the server. Two
/// names of one file (hard links) have the same file handle. A program may keep the bytes and use them later. Once the file
/// is gone, calls fail with `ESTALE`.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct FileHandle {
    length: u8,
    bytes: [u8; FileHandle::MAX],
}

impl FileHandle {
    /// The longest file handle, in bytes.
    pub const MAX: usize = 64;

    /// A file handle from bytes that a program kept, or `None` if there are more than [`FileHandle::MAX`]. Only the server
    /// can tell whether the bytes are a file handle.
    pub fn from_bytes(bytes: &[u8]) -> Option<Self> {
        let mut handle = Self::default();
        handle.bytes.get_mut(..bytes.len())?.copy_from_slice(bytes);
        handle.length = bytes.len() as u8;
        Some(handle)
    }

    /// A short form for messages.
    pub(crate) fn shown(&self) -> String {
        format!("file handle {self:?}")
    }

    /// The bytes of the file handle, for a program to keep.
    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes[..usize::from(self.length)]
    }
}

impl Default for FileHandle {
    /// No bytes.
    fn default() -> Self {
        Self {
            length: 0,
            bytes: [0; Self::MAX],
        }
    }
}

impl fmt::Debug for FileHandle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.as_bytes()
            .iter()
            .try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}
