//! File handles, owned.

use std::fmt;

/// A file handle (nfs_fh3, RFC 1813 section 2.3.3): at most [`Handle::MAX`] bytes that mean something to the server alone.
///
/// It names the same file for as long as that exists, whatever becomes of its names, and over a restart of the server. Two
/// names of one file (hard links) have the same handle. A program may keep its bytes and come back with them later; once
/// the file is gone, calls fail with `ESTALE`.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Handle {
    length: u8,
    bytes: [u8; Handle::MAX],
}

impl Handle {
    /// The longest handle, in bytes.
    pub const MAX: usize = 64;

    /// A handle from bytes that a program kept. `None` if there are more than [`Handle::MAX`], which no server gives.
    /// The server decides whether the bytes are a handle.
    pub fn from_bytes(bytes: &[u8]) -> Option<Self> {
        let mut handle = Self::default();
        handle.bytes.get_mut(..bytes.len())?.copy_from_slice(bytes);
        handle.length = bytes.len() as u8;
        Some(handle)
    }

    /// A short form for messages.
    pub(crate) fn shown(&self) -> String {
        format!("handle {self:?}")
    }

    /// The bytes of the handle, for a program to keep.
    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes[..usize::from(self.length)]
    }
}

impl Default for Handle {
    /// No bytes.
    fn default() -> Self {
        Self {
            length: 0,
            bytes: [0; Self::MAX],
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
