//! Allocation, and the holes in files.

use rustix::fs::{FallocateFlags, SeekFrom, fallocate, fstat, seek};
use rustix::io::Errno;

use super::LocalStore;
use super::data::OFFSET_MAX;
use super::descriptors::Use;
use crate::store::{Credential, Extent, ObjectId, Result, Status, StoreError};

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

    /// Where the file system does not know of holes, all is data. Most report that themselves; one cannot be asked.
    pub(super) fn find_extent(
        &self,
        object: ObjectId,
        offset: u64,
        what: Extent,
    ) -> Result<Option<u64>> {
        let file = self.file(object, Use::Read)?;
        // Some file systems take an offset that looks negative for the beginning.
        if offset > OFFSET_MAX {
            return Err(Status::Nxio.into());
        }
        let from = match what {
            Extent::Data => SeekFrom::Data(offset),
            Extent::Hole => SeekFrom::Hole(offset),
        };
        // Nothing uses the descriptor's own position.
        let found = seek(&*file, from);
        let size = || fstat(&*file).map(|stat| stat.st_size.cast_unsigned());
        match (found, what) {
            (Ok(at), _) => Ok(Some(at)),
            (Err(Errno::NXIO), Extent::Data) if offset < size()? => Ok(None),
            (Err(Errno::INVAL), _) if offset < size()? => match what {
                Extent::Data => Ok(Some(offset)),
                Extent::Hole => Ok(Some(size()?)),
            },
            (Err(Errno::INVAL), _) => Err(Status::Nxio.into()),
            (Err(errno), _) => Err(errno.into()),
        }
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
