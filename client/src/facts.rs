//! What a client tells about its server and about references.

use odafs_common::wire::odafs;
use std::path::PathBuf;

/// What the server is and what it granted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServerFacts {
    /// Name of the fabric: `shm`, `tcp`, `verbs`, `sim`, or `nfs` for RPC over TCP.
    pub fabric: &'static str,
    /// The export's name.
    pub export: String,
    /// Whether it has the ODAFS program. Without it, the client speaks plain NFS version 3.
    pub odafs: bool,
    /// The direct mode granted, if any.
    pub granted: Option<Granted>,
    /// Size of a page of its page cache in bytes; 0 without a session.
    pub page_bytes: u32,
    /// Longest READ, in bytes.
    pub max_read: u32,
    /// Longest WRITE, in bytes.
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
    /// The client moves the data and checks. This includes guarded reads.
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
    /// Value of the file's change counter.
    pub change: u64,
    /// Size of the file in bytes.
    pub size: u64,
    /// Size of a page in bytes.
    pub page_bytes: u32,
    /// Whether clients may read its change counter directly.
    pub counter: bool,
    /// The resident pages that the server gave references for, in the order of the file.
    pub pages: Vec<PageReference>,
}

/// A reference to one page, without its access key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PageReference {
    /// Index of the page in the file, from 0 on.
    pub page: u64,
    /// Offset in the server's arena, in bytes of frames.
    pub address: u64,
    /// Length of the valid data in bytes, from the page's start.
    pub length: u32,
    /// Handle in the TPT.
    pub handle: u32,
    /// The export's epoch when the reference was issued.
    pub epoch: u64,
}

impl From<&odafs::PageReference> for PageReference {
    fn from(page: &odafs::PageReference) -> Self {
        let reference = &page.reference;
        Self {
            page: page.page,
            address: reference.address,
            length: reference.length,
            handle: reference.handle.0,
            epoch: reference.epoch.0,
        }
    }
}
