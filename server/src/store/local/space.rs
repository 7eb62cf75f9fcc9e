//! The space that bytes take.

use rustix::fs::{FallocateFlags, fallocate};
use rustix::io::Errno;

use super::LocalStore;
use super::descriptors::Use;
use crate::store::{Credential, ObjectId, Result, StoreError};

impl LocalStore {
    pub(super) fn set_aside(
        &self,
        who: &Credential,
        object: ObjectId,
        offset: u64,
        length: u64,
    ) -> Result<()> {
        self.fallocate(who, object, FallocateFlags::empty(), (offset, length))
    }

    pub(super) fn punch(
        &self,
        who: &Credential,
        object: ObjectId,
        offset: u64,
        length: u64,
    ) -> Result<()> {
        let how = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        self.fallocate(who, object, how, (offset, length))
    }

    fn fallocate(
        &self,
        who: &Credential,
        object: ObjectId,
        how: FallocateFlags,
        (offset, length): (u64, u64),
    ) -> Result<()> {
        let file = self.file(object, Use::Write)?;
        let _judge = self.judge_write(who, &file)?;
        let done = loop {
            match fallocate(&*file, how, offset, length) {
                Err(Errno::INTR) => {}
                done => break done.map_err(StoreError::from),
            }
        };
        if done.as_ref().err().is_none_or(StoreError::may_be_partial) {
            self.descriptors.unsynced().wrote(object, &file);
        }
        done
    }
}
