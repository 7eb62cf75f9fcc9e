//! Reading, writing and syncing bytes.

use std::io::ErrorKind;
use std::os::fd::AsFd as _;

use odafs_fabric::memory::Gather;
use odafs_fabric::sync::Arc;
use rustix::fs::{Access, fdatasync, fstat, fsync, readlinkat, syncfs};
use rustix::io::{Errno, IoSliceMut, ReadWriteFlags, pread, preadv2};

use super::descriptors::{Descriptor, Use};
use super::identity::Judge;
use super::unsynced::Asked;
use super::{LocalStore, objects, sys};
use crate::store::permission::may_write;
use crate::store::{Attributes, Credential, FileType, ObjectId, Result, Status};

/// The kernel's offsets are signed.
pub(super) const OFFSET_MAX: u64 = i64::MAX as u64;

impl LocalStore {
    pub(super) fn link_target(&self, object: ObjectId) -> Result<Vec<u8>> {
        let link = self.reach(object)?;
        if link.kind != FileType::Symlink {
            return Err(Status::Inval.into());
        }
        self.attributes(object, &*link)?;
        Ok(readlinkat(&*link, c"", Vec::new())?.into_bytes())
    }

    pub(super) fn read(&self, object: ObjectId, offset: u64, data: &mut [u8]) -> Result<usize> {
        let file = self.file(object, Use::Read)?;
        let mut count = 0;
        while count < data.len() {
            let at = offset.saturating_add(count as u64);
            if at > OFFSET_MAX {
                break;
            }
            match pread(&*file, &mut data[count..], at) {
                Ok(0) => break,
                Ok(read) => count += read,
                Err(Errno::INTR) => {}
                Err(errno) => return Err(errno.into()),
            }
        }
        Ok(count)
    }

    /// Reads from an open file what the kernel's page cache has. False if that is not all of it.
    pub(super) fn read_cached(&self, object: ObjectId, offset: u64, data: &mut [u8]) -> bool {
        let wanted = data.len();
        let inside = offset.saturating_add(wanted as u64) <= OFFSET_MAX;
        let file = self.descriptors.find(object, Use::Read);
        let Some(file) = file.filter(|file| inside && file.kind == FileType::Regular) else {
            return false;
        };
        let read = preadv2(
            &*file,
            &mut [IoSliceMut::new(data)],
            offset,
            ReadWriteFlags::NOWAIT,
        );
        read == Ok(wanted)
    }

    pub(super) fn write(
        &self,
        who: &Credential,
        object: ObjectId,
        offset: u64,
        data: &Gather<'_>,
    ) -> Result<usize> {
        // Without data, no file is opened for writing.
        let wanted = if data.is_empty() {
            Use::Path
        } else {
            Use::Write
        };
        let file = self.file(object, wanted)?;
        if offset.saturating_add(data.len() as u64) > OFFSET_MAX {
            return Err(Status::FBig.into());
        }
        // As the caller, so that the kernel applies quotas and clears set-user-id.
        let _judge = self.judge_write(who, &file)?;
        let mut count = 0;
        while count < data.len() {
            match data.write_to(file.as_fd(), count, offset + count as u64) {
                Ok(0) => break,
                Ok(written) => {
                    self.descriptors.unsynced().wrote(object, &file);
                    count += written;
                }
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(_) if count > 0 => break,
                Err(error) => return Err(error.into()),
            }
        }
        Ok(count)
    }

    /// Refuses anything but a regular file: directories with ISDIR, others with INVAL.
    pub(super) fn file(&self, object: ObjectId, wanted: Use) -> Result<Arc<Descriptor>> {
        if let Some(found) = self.descriptors.find(object, wanted)
            && found.kind == FileType::Regular
        {
            return Ok(found);
        }
        match self.reach(object)?.kind {
            FileType::Regular => self.descriptor(object, wanted),
            FileType::Directory => Err(Status::IsDir.into()),
            _ => Err(Status::Inval.into()),
        }
    }

    /// Checks the right to write: by mode and ACL, and for the owner always (RFC 1813, section 4.4).
    pub(super) fn judge_write(&self, who: &Credential, file: &Descriptor) -> Result<Judge<'_>> {
        let judge = self.identity.judge(who)?;
        match &judge {
            Judge::Kernel(None) => {}
            Judge::Kernel(Some(_)) => {
                if fstat(file)?.st_uid != who.uid {
                    sys::access(file.as_fd(), Access::WRITE_OK)?;
                }
            }
            Judge::Ourselves => {
                if !may_write(&self.judged(file, who)?, who) {
                    return Err(Status::Access.into());
                }
            }
        }
        Ok(judge)
    }

    pub(super) fn sync_object(&self, object: ObjectId, data_only: bool) -> Result<()> {
        if self.has_no_device {
            // There is nothing to do, so this neither fails nor takes turns with other syncs.
            self.descriptors.unsynced().forget(object);
        } else {
            let path = self.reach(object)?;
            if path.kind != FileType::Regular {
                return self.sync_attributes(object, &path);
            }
            self.sync_file(object, Asked::Yes, data_only)?;
        }
        if let Some(file) = self.descriptors.find(object, Use::Write) {
            self.close_synced(object, fstat(&*file)?.st_mode);
        }
        Ok(())
    }

    /// Closes a file that was synced and has this mode: at once if anyone may execute it, because the kernel lets nobody
    /// execute a file that is open for writing. Any other file stays open for a moment.
    pub(super) fn close_synced(&self, object: ObjectId, mode: u32) {
        // Unless the server runs as root, the owner's right to write regardless of the mode ends with the descriptor.
        let can_write_again = self.identity.own().uid == 0 || mode & 0o200 != 0;
        match mode & 0o111 {
            _ if !can_write_again => {}
            0 => self.descriptors.release_later(object),
            _ => self.descriptors.release(object),
        }
    }

    /// Ends the moment for which a file stays open after its sync, if anyone may execute it now: somebody else may have changed
    /// its mode. Bytes that were written and not synced still keep it open.
    pub(super) fn close_if_executable(&self, object: ObjectId, now: &Attributes) {
        if now.kind == FileType::Regular && now.mode & 0o111 != 0 {
            self.close_synced(object, now.mode);
        }
    }

    fn sync_file(&self, object: ObjectId, asked: Asked, data_only: bool) -> Result<()> {
        let sync = |file: &Descriptor| match data_only {
            true => fdatasync(file),
            false => fsync(file),
        };
        self.descriptors.unsynced().sync(object, asked, |written| {
            let synced = match written {
                Some(file) => sync(file),
                None => match self.descriptor(object, Use::Read) {
                    Ok(file) => sync(&file),
                    // Its owner may have set attributes of a file that this process may not open.
                    Err(_) => syncfs(&self.whole),
                },
            };
            Ok(synced?)
        })
    }

    /// Brings the attributes of an object, or the names in a directory, to stable storage. If the object cannot be
    /// opened, this syncs the whole file system. In a file system without a device there is nothing to do.
    pub(super) fn sync_attributes(&self, object: ObjectId, path: &Descriptor) -> Result<()> {
        if path.kind == FileType::Regular {
            return self.sync_file(object, Asked::No, false);
        }
        if self.has_no_device {
            return Ok(());
        }
        #[cfg(test)]
        super::counted::count(super::counted::Counted::Sync);
        let synced = match objects::reopen(path, Use::Read) {
            Ok(directory) => fsync(&*directory),
            Err(_) => syncfs(&self.whole),
        };
        Ok(synced?)
    }
}
