//! A real directory.

use std::path::Path;
use std::time::Duration;

use odafs_common::wire::nfs3::{Attributes, SetAttributes};

use super::*;
use crate::state::StateDir;

/// How to serve a directory.
#[derive(Clone, Copy, Debug, Default)]
pub struct LocalOptions {
    /// Refuse every change with ROFS.
    pub read_only: bool,
}

/// Serves a directory of this machine.
pub struct LocalStore {}

impl LocalStore {
    /// Serves `directory`.
    pub fn open(
        _directory: &Path,
        _state: &StateDir,
        _options: LocalOptions,
    ) -> std::io::Result<Self> {
        todo!()
    }
}

impl Store for LocalStore {
    fn root(&self) -> ObjectId {
        todo!()
    }
    fn getattr(&self, _: ObjectId) -> Result<Attributes> {
        todo!()
    }
    fn access(&self, _: &Credential, _: ObjectId, _: u32) -> Result<u32> {
        todo!()
    }
    fn mode_decides(&self, _: ObjectId) -> Result<bool> {
        todo!()
    }
    fn lookup(&self, _: &Credential, _: ObjectId, _: &[u8]) -> Result<(ObjectId, Attributes)> {
        todo!()
    }
    fn readlink(&self, _: ObjectId) -> Result<Vec<u8>> {
        todo!()
    }
    fn read_at(&self, _: ObjectId, _: u64, _: &mut [u8]) -> Result<usize> {
        todo!()
    }
    fn write_at(&self, _: &Credential, _: ObjectId, _: u64, _: &[u8]) -> Result<usize> {
        todo!()
    }
    fn sync(&self, _: ObjectId, _: bool) -> Result<()> {
        todo!()
    }
    fn setattr(&self, _: &Credential, _: ObjectId, _: &SetAttributes) -> Result<Attributes> {
        todo!()
    }
    fn create(&self, _: &Credential, _: ObjectId, _: &[u8], _: CreateHow<'_>) -> Result<Created> {
        todo!()
    }
    fn mkdir(
        &self,
        _: &Credential,
        _: ObjectId,
        _: &[u8],
        _: &SetAttributes,
    ) -> Result<(ObjectId, Attributes)> {
        todo!()
    }
    fn symlink(
        &self,
        _: &Credential,
        _: ObjectId,
        _: &[u8],
        _: &[u8],
        _: &SetAttributes,
    ) -> Result<(ObjectId, Attributes)> {
        todo!()
    }
    fn mknod(
        &self,
        _: &Credential,
        _: ObjectId,
        _: &[u8],
        _: Special,
        _: &SetAttributes,
    ) -> Result<(ObjectId, Attributes)> {
        todo!()
    }
    fn link(&self, _: &Credential, _: ObjectId, _: ObjectId, _: &[u8]) -> Result<Attributes> {
        todo!()
    }
    fn rename(
        &self,
        _: &Credential,
        _: (ObjectId, &[u8]),
        _: (ObjectId, &[u8]),
    ) -> Result<Option<Unlinked>> {
        todo!()
    }
    fn remove(&self, _: &Credential, _: ObjectId, _: &[u8]) -> Result<Unlinked> {
        todo!()
    }
    fn rmdir(&self, _: &Credential, _: ObjectId, _: &[u8]) -> Result<ObjectId> {
        todo!()
    }
    fn readdir(&self, _: &Credential, _: ObjectId, _: ReaddirRange) -> Result<Listing> {
        todo!()
    }
    fn statfs(&self, _: ObjectId) -> Result<Space> {
        todo!()
    }
    fn pathconf(&self, _: ObjectId) -> Result<Limits> {
        todo!()
    }
    fn handle(&self, _: ObjectId) -> Result<HandleBytes> {
        todo!()
    }
    fn open_handle(&self, _: &[u8]) -> Result<ObjectId> {
        todo!()
    }
    fn watch(&self, _: ObjectId) -> bool {
        todo!()
    }
    fn unwatch(&self, _: ObjectId) {
        todo!()
    }
    fn wait_events(&self, _: Duration) -> Vec<OutsideEvent> {
        todo!()
    }
    fn interrupt(&self) {
        todo!()
    }
}
