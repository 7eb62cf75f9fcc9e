//! Copies within the file system, whose bytes need not pass through the server, and clones, which share storage with the
//! source.

use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};

use rustix::fs::{Mode, OFlags, copy_file_range, fstatvfs, openat};
use rustix::io::{Errno, pwrite};

use super::data::OFFSET_MAX;
use super::descriptors::Use;
use super::{LocalStore, sys};
use crate::store::{Credential, ObjectId, Result, Status, StoreError, by_hand};

/// The longest block of a file system, in bytes. A larger value means something else.
const BLOCK_BYTES_MAX: u32 = 64 << 10;

impl LocalStore {
    pub(super) fn copy_bytes(
        &self,
        who: &Credential,
        from: (ObjectId, u64),
        to: (ObjectId, u64),
        count: u64,
    ) -> Result<u64> {
        let (source, target) = (self.file(from.0, Use::Read)?, self.file(to.0, Use::Write)?);
        let most = [from.1, to.1].map(|offset| offset.saturating_add(count));
        if most.iter().any(|end| *end > OFFSET_MAX) {
            return Err(Status::FBig.into());
        }
        let judge = self.judge_write(who, &target)?;
        let wanted = usize::try_from(count).unwrap_or(usize::MAX);
        let (mut read, mut write) = (from.1, to.1);
        let copied = loop {
            let copied = copy_file_range(
                &*source,
                Some(&mut read),
                &*target,
                Some(&mut write),
                wanted,
            );
            if copied != Err(Errno::INTR) {
                break copied;
            }
        };
        match copied {
            Ok(copied) if copied > 0 => {
                self.descriptors.unsynced().wrote(to.0, &target);
                Ok(copied as u64)
            }
            // Either the source ends there, or the file system cannot copy. Some report that as no bytes.
            Ok(_) | Err(Errno::XDEV | Errno::OPNOTSUPP | Errno::NOSYS | Errno::INVAL) => {
                drop(judge);
                by_hand::copy(self, who, from, to, count)
            }
            Err(errno) => Err(errno.into()),
        }
    }

    pub(super) fn share_bytes(
        &self,
        who: &Credential,
        from: (ObjectId, u64),
        to: (ObjectId, u64),
        count: u64,
    ) -> Result<()> {
        let (source, target) = (self.file(from.0, Use::Read)?, self.file(to.0, Use::Write)?);
        let _judge = self.judge_write(who, &target)?;
        let (read, write) = ((source.as_fd(), from.1), (target.as_fd(), to.1));
        let shared = loop {
            match sys::clone_range(read, write, count) {
                Err(Errno::INTR) => {}
                shared => break shared.map_err(StoreError::from),
            }
        };
        if shared.as_ref().err().is_none_or(StoreError::may_be_partial) {
            self.descriptors.unsynced().wrote(to.0, &target);
        }
        shared
    }
}

/// The block size of clones, in bytes. No call tells whether the file system can clone, so this tries it.
pub(super) fn clone_block(directory: BorrowedFd<'_>) -> Option<u32> {
    let block = u32::try_from(fstatvfs(directory).ok()?.f_bsize).ok()?;
    if !(512..=BLOCK_BYTES_MAX).contains(&block) {
        return None;
    }
    let unnamed = || -> Option<OwnedFd> {
        let flags = OFlags::TMPFILE | OFlags::RDWR | OFlags::CLOEXEC;
        openat(directory, c".", flags, Mode::from_raw_mode(0o600)).ok()
    };
    let (from, to) = (unnamed()?, unnamed()?);
    let data = vec![1; block as usize];
    pwrite(&from, &data, 0)
        .ok()
        .filter(|count| *count == data.len())?;
    sys::clone_range((from.as_fd(), 0), (to.as_fd(), 0), block.into()).ok()?;
    Some(block)
}
