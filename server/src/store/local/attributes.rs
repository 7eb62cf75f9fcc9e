//! Rights and attributes.

use std::os::fd::{AsFd, BorrowedFd};

use rustix::fs::{
    Access, AtFlags, CWD, Gid, Mode, OFlags, SeekFrom, Timespec, Timestamps, UTIME_NOW, UTIME_OMIT,
    Uid, chmodat, chownat, fstat, fstatvfs, ftruncate, getxattr_query, openat, seek, utimensat,
};
use rustix::io::Errno;

use super::descriptors::{Descriptor, Use};
use super::identity::{Judge, OVERFLOW};
use super::{LocalStore, sys};
use crate::store::permission::{attributes_permit, check_set};
use crate::store::{
    Attributes, Credential, FileSystemLimits, FileType, ObjectId, Result, SetAttributes, SetTime,
    Space, Status, access,
};

/// Whether the object has no POSIX ACL. (With one, the group's bits of the mode show the ACL's mask.)
pub(super) fn mode_decides(object: &Descriptor) -> Result<bool> {
    if object.kind == FileType::Symlink {
        return Ok(true);
    }
    match getxattr_query(object.magic_path(), c"system.posix_acl_access") {
        Ok(length) => Ok(length == 0),
        Err(Errno::NODATA | Errno::OPNOTSUPP) => Ok(true),
        Err(errno) => Err(errno.into()),
    }
}

/// Whether the mode's owner and group are those that are seen. An id that a user namespace or a mount does not map shows as
/// [`OVERFLOW`], which is also that of a caller who is nobody. To the kernel these two are different.
fn has_known_owners(object: &Descriptor) -> rustix::io::Result<bool> {
    let seen = fstat(object)?;
    Ok(seen.st_uid != OVERFLOW && seen.st_gid != OVERFLOW)
}

impl LocalStore {
    pub(super) fn access_of(&self, who: &Credential, object: ObjectId, mask: u32) -> Result<u32> {
        let found = self.reach(object)?;
        let attributes = self.attributes(object, &*found)?;
        if found.kind == FileType::Symlink {
            return Ok(attributes_permit(&attributes, who, mask));
        }
        let granted = if self.is_told_by_mode(who, &found) {
            let granted = attributes_permit(&attributes, who, mask);
            // The kernel refuses some rights to everybody, whatever the mode: writing to an immutable file, for example.
            granted & permitted_by_kernel(&found, granted)
        } else {
            match &self.identity.judge(who)? {
                Judge::Kernel(_) => permitted_by_kernel(&found, mask),
                Judge::Ourselves => attributes_permit(&self.judged(&found, who)?, who, mask),
            }
        };
        let changes = access::MODIFY | access::EXTEND | access::DELETE;
        Ok(granted & mask & if self.limits.read_only { !changes } else { !0 })
    }

    /// Whether the kernel would judge the caller by the object's mode alone, so that a call that changes nothing need not take
    /// the caller's ids. To take them costs up to ten system calls, and the kernel frees the credentials that they leave behind in
    /// batches that hold the processor for milliseconds.
    pub(super) fn is_told_by_mode(&self, who: &Credential, object: &Descriptor) -> bool {
        // All of the file systems that are known to keep inodes in memory judge by modes and lists.
        self.in_memory
            && self.identity.is_above(who)
            && has_known_owners(object).unwrap_or(false)
            && (!self.has_acls || mode_decides(object).unwrap_or(false))
    }

    pub(super) fn set_attributes(
        &self,
        who: &Credential,
        object: ObjectId,
        new: &SetAttributes,
    ) -> Result<Attributes> {
        let path = self.reach(object)?;
        let before = self.attributes(object, &*path)?;
        let file = match new.size {
            Some(size) if size > i64::MAX as u64 => return Err(Status::FBig.into()),
            Some(size) => Some((self.file(object, Use::Write)?, size)),
            None => None,
        };
        let touch_as_ourselves = {
            let judge = self.judge_set(who, &path, &before, new)?;
            if path.kind == FileType::Symlink && new.mode.is_some() {
                return Err(Status::NotSupp.into());
            }
            // What may be refused comes first. The mode comes after what clears set-id bits.
            apply_ids(path.as_fd(), new)?;
            if let Some((file, size)) = &file {
                ftruncate(&**file, *size)?;
            }
            if let Some(mode) = new.mode {
                let mode = Mode::from_raw_mode(mode & 0o7777);
                chmodat(CWD, path.magic_path(), mode, AtFlags::empty())?;
            }
            let touch = matches!(judge, Judge::Kernel(Some(_))) && who.uid != before.uid;
            if !touch {
                apply_times(path.as_fd(), new)?;
            }
            touch
        };
        if touch_as_ourselves {
            // utimensat(2) lets a caller with the right to write set the server's time, but only for both times together.
            apply_times(path.as_fd(), new)?;
        }
        self.attributes(object, &*path)
    }

    /// Refuses what would fail halfway, and what utimensat(2) and ftruncate(2) would not refuse. The kernel judges the
    /// rest.
    fn judge_set(
        &self,
        who: &Credential,
        path: &Descriptor,
        before: &Attributes,
        new: &SetAttributes,
    ) -> Result<Judge<'_>> {
        let judge = self.identity.judge(who)?;
        match &judge {
            Judge::Kernel(None) => {}
            Judge::Kernel(Some(_)) => {
                let stranger = who.uid != 0 && who.uid != before.uid;
                let owners = new.mode.is_some() || new.uid.is_some() || new.gid.is_some();
                let to = |time| matches!(time, SetTime::To(_));
                if stranger && (owners || to(new.atime) || to(new.mtime)) {
                    return Err(Status::Perm.into());
                }
                let touches = [new.atime, new.mtime].contains(&SetTime::ServerTime);
                if stranger && (touches || new.size.is_some()) {
                    sys::access(path.as_fd(), Access::WRITE_OK)?;
                }
            }
            Judge::Ourselves => check_set(&self.judged(path, who)?, who, new)?,
        }
        Ok(judge)
    }

    pub(super) fn space(&self) -> Result<Space> {
        let found = fstatvfs(&self.whole)?;
        let bytes = |blocks: u64| blocks.saturating_mul(found.f_frsize);
        Ok(Space {
            total_bytes: bytes(found.f_blocks),
            free_bytes: bytes(found.f_bfree),
            available_bytes: bytes(found.f_bavail),
            total_files: found.f_files,
            free_files: found.f_ffree,
            available_files: found.f_favail,
        })
    }
}

/// The limits of the file system of a directory.
pub(super) fn limits(
    directory: BorrowedFd<'_>,
    read_only: bool,
) -> rustix::io::Result<FileSystemLimits> {
    // If nothing can be made there, a failure does not matter.
    let made = (!read_only).then(|| size_max(directory));
    Ok(FileSystemLimits {
        // No call tells it. The value of ext4 is the lowest of the common file systems.
        link_max: 65_000,
        name_max: fstatvfs(directory)?.f_namemax.min(255) as u32,
        size_max: made.flatten().unwrap_or(i64::MAX as u64),
        time_delta_ns: 1,
        no_trunc: true,
        chown_restricted: true,
        case_insensitive: false,
        case_preserving: true,
        read_only,
    })
}

/// The bits of `mask` that the kernel grants to the ids of this thread, as in [`attributes_permit`].
pub(super) fn permitted_by_kernel(object: &Descriptor, mask: u32) -> u32 {
    let directory = object.kind == FileType::Directory;
    let write = access::MODIFY | access::EXTEND | if directory { access::DELETE } else { 0 };
    let execute = if directory {
        access::LOOKUP
    } else {
        access::EXECUTE
    };
    let mut granted = 0;
    for (bits, wanted) in [
        (access::READ, Access::READ_OK),
        (write, Access::WRITE_OK),
        (execute, Access::EXEC_OK),
    ] {
        if mask & bits != 0 && sys::access(object.as_fd(), wanted).is_ok() {
            granted |= bits;
        }
    }
    granted
}

/// The largest size of a file. No call tells it, but lseek(2) refuses positions beyond it. `None` if the file system cannot
/// make a file without a name.
fn size_max(directory: BorrowedFd<'_>) -> Option<u64> {
    let flags = OFlags::TMPFILE | OFlags::RDWR | OFlags::CLOEXEC;
    let file = openat(directory, c".", flags, Mode::from_raw_mode(0o600)).ok()?;
    let reaches = |size| seek(&file, SeekFrom::Start(size)).is_ok();
    let (mut most, mut beyond) = (0, 1 << 63);
    while beyond - most > 1 {
        let middle = most + (beyond - most) / 2;
        match reaches(middle) {
            true => most = middle,
            false => beyond = middle,
        }
    }
    Some(most)
}

pub(super) fn apply_ids(object: BorrowedFd<'_>, new: &SetAttributes) -> Result<()> {
    if new.uid == Some(u32::MAX) || new.gid == Some(u32::MAX) {
        return Err(Status::Inval.into());
    }
    if new.uid.is_some() || new.gid.is_some() {
        let (uid, gid) = (new.uid.map(Uid::from_raw), new.gid.map(Gid::from_raw));
        chownat(object, c"", uid, gid, AtFlags::EMPTY_PATH)?;
    }
    Ok(())
}

pub(super) fn apply_times(object: BorrowedFd<'_>, new: &SetAttributes) -> Result<()> {
    if [new.atime, new.mtime] == [SetTime::Keep; 2] {
        return Ok(());
    }
    let time = |time| match time {
        SetTime::Keep => Ok(Timespec {
            tv_sec: 0,
            tv_nsec: UTIME_OMIT,
        }),
        SetTime::ServerTime => Ok(Timespec {
            tv_sec: 0,
            tv_nsec: UTIME_NOW,
        }),
        SetTime::To(time) if time.nanoseconds < 1_000_000_000 => Ok(Timespec {
            tv_sec: time.seconds,
            tv_nsec: time.nanoseconds.into(),
        }),
        SetTime::To(_) => Err(Status::Inval),
    };
    let times = Timestamps {
        last_access: time(new.atime)?,
        last_modification: time(new.mtime)?,
    };
    utimensat(object, c"", &times, AtFlags::EMPTY_PATH)?;
    Ok(())
}
