//! Everything in memory.

use std::time::Duration;

use odafs_common::wire::nfs3::{Attributes, SetAttributes, Status};

use super::*;

/// A kind of call that can be made to fail.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Operation {
    /// [`Store::read_at`]
    Read,
    /// [`Store::write_at`]
    Write,
    /// [`Store::sync`]
    Sync,
    /// [`Store::setattr`]
    SetAttributes,
    /// Whatever changes a directory.
    Directory,
}

/// What someone else does to the files, behind the server's back.
#[derive(Clone, Debug)]
pub enum OutsideChange<'a> {
    /// Writes bytes into a file.
    Write {
        /// Where, bytes.
        offset: u64,
        /// What.
        data: &'a [u8],
    },
    /// Cuts or extends a file to that many bytes.
    Resize(u64),
    /// Changes the permission bits.
    Mode(u32),
    /// Gives it to another user.
    Owner(u32),
    /// Removes all of its names.
    Remove,
}

/// Holds files in memory; for tests and the simulator. Deterministic: the same seed and the same calls in the
/// same order lead to the same state.
pub struct MemoryStore {}

impl MemoryStore {
    /// An empty root directory that anyone may write to.
    pub fn new(_seed: u64) -> Self {
        todo!()
    }

    /// A store that refuses changes with ROFS (or does no longer).
    pub fn set_read_only(&self, _read_only: bool) {
        todo!()
    }

    /// Most bytes that all files may hold together: beyond it, NOSPC.
    pub fn set_capacity(&self, _bytes: u64) {
        todo!()
    }

    /// The next call of that kind fails with `status`, before it has any effect. Several add up.
    pub fn fail_next(&self, _operation: Operation, _status: Status) {
        todo!()
    }

    /// The machine loses power and comes back: of what was written and not synced, each page of each write may
    /// be there or not.
    pub fn crash(&self) {
        todo!()
    }

    /// A change from outside; it is reported if the object is watched.
    pub fn outside_change(&self, _object: ObjectId, _change: OutsideChange<'_>) -> Result<()> {
        todo!()
    }
}

impl Store for MemoryStore {
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
