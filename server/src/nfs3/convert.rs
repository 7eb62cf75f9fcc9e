//! Conversions between the types of the wire and those of the server.

use odafs_common::wire::nfs3 as wire;

use crate::vfs::around::{Around, Before};
use crate::vfs::read::ReadFailed;
use crate::vfs::write::Stable;
use crate::vfs::{Attributes, Device, FileType, SetAttributes, SetTime, Status, StoreError, Time};

impl From<Status> for wire::Status {
    fn from(status: Status) -> Self {
        match status {
            Status::Perm => Self::Perm,
            Status::NoEnt => Self::NoEnt,
            Status::Io => Self::Io,
            Status::Nxio => Self::Nxio,
            Status::Access => Self::Access,
            Status::Exist => Self::Exist,
            Status::XDev => Self::XDev,
            Status::NoDev => Self::NoDev,
            Status::NotDir => Self::NotDir,
            Status::IsDir => Self::IsDir,
            Status::Inval => Self::Inval,
            Status::FBig => Self::FBig,
            Status::NoSpc => Self::NoSpc,
            Status::RoFs => Self::RoFs,
            Status::MLink => Self::MLink,
            Status::NameTooLong => Self::NameTooLong,
            Status::NotEmpty => Self::NotEmpty,
            Status::DQuot => Self::DQuot,
            Status::Stale => Self::Stale,
            Status::Remote => Self::Remote,
            Status::BadHandle => Self::BadHandle,
            Status::NotSync => Self::NotSync,
            Status::BadCookie => Self::BadCookie,
            Status::NotSupp => Self::NotSupp,
            Status::TooSmall => Self::TooSmall,
            Status::ServerFault => Self::ServerFault,
            Status::BadType => Self::BadType,
            Status::Jukebox => Self::Jukebox,
        }
    }
}

impl From<StoreError> for wire::Status {
    fn from(error: StoreError) -> Self {
        error.status.into()
    }
}

/// [`ReadFailed::NotResident`] has no status on the wire. It occurs only with
/// [`crate::vfs::read::Effort::ResidentOnly`].
impl From<ReadFailed> for wire::Status {
    fn from(failed: ReadFailed) -> Self {
        match failed {
            ReadFailed::Status(status) => status.into(),
            ReadFailed::NotResident => Self::Jukebox,
        }
    }
}

impl From<FileType> for wire::FileType {
    fn from(kind: FileType) -> Self {
        match kind {
            FileType::Regular => Self::Regular,
            FileType::Directory => Self::Directory,
            FileType::Block => Self::Block,
            FileType::Character => Self::Character,
            FileType::Symlink => Self::Symlink,
            FileType::Socket => Self::Socket,
            FileType::Fifo => Self::Fifo,
        }
    }
}

/// The nearest time that NFS version 3 can express. It covers 1970 to 2106.
impl From<Time> for wire::Time {
    fn from(time: Time) -> Self {
        match u32::try_from(time.seconds) {
            Ok(seconds) => Self {
                seconds,
                nanoseconds: time.nanoseconds,
            },
            Err(_) => Self {
                seconds: if time.seconds < 0 { 0 } else { u32::MAX },
                nanoseconds: 0,
            },
        }
    }
}

impl From<wire::Time> for Time {
    fn from(time: wire::Time) -> Self {
        Self {
            seconds: time.seconds.into(),
            nanoseconds: time.nanoseconds,
        }
    }
}

impl From<Device> for wire::Device {
    fn from(Device { major, minor }: Device) -> Self {
        Self { major, minor }
    }
}

/// NFS version 3 has no change attribute. Its clients use the change time.
impl From<Attributes> for wire::Attributes {
    fn from(all: Attributes) -> Self {
        Self {
            kind: all.kind.into(),
            mode: all.mode,
            links: all.links,
            uid: all.uid,
            gid: all.gid,
            size: all.size,
            used: all.used,
            device: all.device.into(),
            fsid: all.fsid,
            fileid: all.fileid,
            atime: all.atime.into(),
            mtime: all.mtime.into(),
            ctime: all.ctime.into(),
        }
    }
}

impl From<Before> for wire::WccAttributes {
    fn from(before: Before) -> Self {
        Self {
            size: before.size,
            mtime: before.mtime.into(),
            ctime: before.ctime.into(),
        }
    }
}

impl From<Around> for wire::WccData {
    fn from(around: Around) -> Self {
        Self {
            before: around.before.map(Into::into),
            after: around.after.map(Into::into),
        }
    }
}

impl From<wire::SetTime> for SetTime {
    fn from(time: wire::SetTime) -> Self {
        match time {
            wire::SetTime::Keep => Self::Keep,
            wire::SetTime::ServerTime => Self::ServerTime,
            wire::SetTime::To(time) => Self::To(time.into()),
        }
    }
}

impl From<wire::SetAttributes> for SetAttributes {
    fn from(new: wire::SetAttributes) -> Self {
        Self {
            mode: new.mode,
            uid: new.uid,
            gid: new.gid,
            size: new.size,
            atime: new.atime.into(),
            mtime: new.mtime.into(),
            umask: 0,
        }
    }
}

impl From<wire::Stable> for Stable {
    fn from(stable: wire::Stable) -> Self {
        match stable {
            wire::Stable::Unstable => Self::Unstable,
            wire::Stable::DataSync => Self::DataSync,
            wire::Stable::FileSync => Self::FileSync,
        }
    }
}

impl From<Stable> for wire::Stable {
    fn from(stable: Stable) -> Self {
        match stable {
            Stable::Unstable => Self::Unstable,
            Stable::DataSync => Self::DataSync,
            Stable::FileSync => Self::FileSync,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_that_version_3_cannot_tell_are_the_nearest_that_it_can() {
        let shown = |seconds| {
            let time = wire::Time::from(Time {
                seconds,
                nanoseconds: 7,
            });
            (time.seconds, time.nanoseconds)
        };
        let last = u32::MAX;
        assert_eq!([shown(-1), shown(0)], [(0, 0), (0, 7)]);
        assert_eq!(
            [shown(last.into()), shown(i64::from(last) + 1)],
            [(last, 7), (last, 0)]
        );
    }
}
