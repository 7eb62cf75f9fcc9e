//! An export: one store and the page cache in front of it.

use std::sync::Arc;

use odafs_common::page::PageSize;
use odafs_common::wire::nfs3::Status;

use crate::file::File;
use crate::read::{Effort, ReadFailed};
use crate::store::{ObjectId, Store};

/// Whether clients may read pages directly.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Direct {
    /// No: sessions are refused.
    Off,
    /// Through the NIC, which checks every request.
    #[default]
    Guarded,
    /// Trusted clients from the memory itself; the others guarded.
    OneSided,
}

/// What an export is made of.
#[derive(Clone, Debug)]
pub struct ExportConfig {
    /// Name, such as `/`.
    pub name: String,
    /// Page size.
    pub page: PageSize,
    /// Direct reads.
    pub direct: Direct,
    /// The most bytes that one fill reads from the store; rounded down to whole pages, at least one.
    pub read_ahead_bytes: u32,
    /// Change counters begin here: above all of earlier server lives.
    pub change_base: u64,
}

impl Default for ExportConfig {
    fn default() -> Self {
        Self {
            name: "/".to_owned(),
            page: PageSize::DEFAULT,
            direct: Direct::Guarded,
            read_ahead_bytes: 128 << 10,
            change_base: 1,
        }
    }
}

/// One exported store, its page cache and its NIC.
pub struct Export {
    config: ExportConfig,
    store: Arc<dyn Store>,
}

impl Export {
    /// What it was made of.
    pub fn config(&self) -> &ExportConfig {
        &self.config
    }

    /// What holds the files.
    pub fn store(&self) -> &Arc<dyn Store> {
        &self.store
    }

    /// What a handle stands for. Remembered: a handle seen before costs no MAC. BADHANDLE, STALE, or
    /// [`ReadFailed::NotResident`] if it was not seen before and nothing may block.
    pub fn resolve(&self, _handle: &[u8], _effort: Effort) -> Result<ObjectId, ReadFailed> {
        todo!()
    }

    /// The live file of a handle: like [`Self::resolve`], and INVAL or ISDIR for what is no regular file.
    pub fn file_of_handle(&self, _handle: &[u8], _effort: Effort) -> Result<Arc<File>, ReadFailed> {
        todo!()
    }

    /// The live file of an object; made if need be. May block.
    pub fn file(&self, _object: ObjectId) -> Result<Arc<File>, Status> {
        todo!()
    }

    /// The write verifier.
    pub fn verifier(&self) -> [u8; 8] {
        todo!()
    }
}
