//! Conversions between the types of the wire and the server's own.

use odafs_common::wire::nfs4 as wire;

use super::compound::Stop;
use crate::vfs::around::{Around, Change};
use crate::vfs::export::Exports;
use crate::vfs::read::ReadFailed;
use crate::vfs::write::{Refused, Stable};
use crate::vfs::{Device, FileType, ObjectId, SetTime, Status, StoreError, Time};

/// The status of version 4 that is nearest to one of the server's.
pub(super) fn status(status: Status) -> wire::Status {
    use wire::Status as S;
    match status {
        Status::Perm => S::Perm,
        Status::NoEnt => S::NoEnt,
        Status::Io => S::Io,
        Status::Nxio | Status::NoDev => S::Nxio,
        Status::Access => S::Access,
        Status::Exist => S::Exist,
        Status::XDev => S::XDev,
        Status::NotDir => S::NotDir,
        Status::IsDir => S::IsDir,
        Status::Inval => S::Inval,
        Status::FBig => S::FBig,
        Status::NoSpc => S::NoSpc,
        Status::RoFs => S::RoFs,
        Status::MLink => S::MLink,
        Status::NameTooLong => S::NameTooLong,
        Status::NotEmpty => S::NotEmpty,
        Status::DQuot => S::DQuot,
        Status::Stale => S::Stale,
        Status::BadHandle => S::BadHandle,
        Status::BadCookie => S::BadCookie,
        Status::NotSupp => S::NotSupp,
        Status::TooSmall => S::TooSmall,
        Status::Remote | Status::NotSync | Status::ServerFault => S::ServerFault,
        Status::BadType => S::BadType,
        Status::Jukebox => S::Delay,
    }
}

impl From<Status> for Stop {
    fn from(error: Status) -> Self {
        Self::Status(status(error))
    }
}

impl From<StoreError> for Stop {
    fn from(error: StoreError) -> Self {
        error.status.into()
    }
}

impl From<Refused> for Stop {
    fn from(refused: Refused) -> Self {
        refused.error.into()
    }
}

impl From<ReadFailed> for Stop {
    fn from(failed: ReadFailed) -> Self {
        match failed {
            ReadFailed::NotResident => Self::Blocks,
            ReadFailed::Status(status) => status.into(),
        }
    }
}

pub(super) fn kind(kind: FileType) -> wire::FileType {
    match kind {
        FileType::Regular => wire::FileType::Regular,
        FileType::Directory => wire::FileType::Directory,
        FileType::Block => wire::FileType::Block,
        FileType::Character => wire::FileType::Character,
        FileType::Symlink => wire::FileType::Symlink,
        FileType::Socket => wire::FileType::Socket,
        FileType::Fifo => wire::FileType::Fifo,
    }
}

pub(super) fn time(time: Time) -> wire::Time {
    wire::Time {
        seconds: time.seconds,
        nanoseconds: time.nanoseconds,
    }
}

pub(super) fn set_time(time: Option<wire::SetTime>) -> SetTime {
    match time {
        None => SetTime::Keep,
        Some(wire::SetTime::ServerTime) => SetTime::ServerTime,
        Some(wire::SetTime::To(time)) => SetTime::To(Time {
            seconds: time.seconds,
            nanoseconds: time.nanoseconds,
        }),
    }
}

pub(super) fn device(device: Device) -> wire::Device {
    wire::Device {
        major: device.major,
        minor: device.minor,
    }
}

/// How stable a client asks written data to be.
pub(super) fn wanted(stable: wire::Stable) -> Stable {
    match stable {
        wire::Stable::Unstable => Stable::Unstable,
        wire::Stable::DataSync => Stable::DataSync,
        wire::Stable::FileSync => Stable::FileSync,
    }
}

/// How stable written data is.
pub(super) fn committed(stable: Stable) -> wire::Stable {
    match stable {
        Stable::Unstable => wire::Stable::Unstable,
        Stable::DataSync => wire::Stable::DataSync,
        Stable::FileSync => wire::Stable::FileSync,
    }
}

/// Changes a directory. Returns what `change` returned, and the directory's change attributes before and after it.
pub(super) fn change<T>(
    export: &Exports,
    directory: ObjectId,
    change: impl FnOnce() -> T,
) -> (T, wire::ChangeInfo) {
    let begun = Change::begin(export, directory);
    let outcome = change();
    (outcome, change_info(&begun.end()))
}

/// The change attributes of a directory before and after a change.
pub(super) fn change_info(around: &Around) -> wire::ChangeInfo {
    let after = around.after.map(|after| after.change());
    match (around.before, after) {
        (Some(before), Some(after)) => wire::ChangeInfo {
            atomic: true,
            before: before.ctime.change(),
            after,
        },
        (_, after) => wire::ChangeInfo {
            atomic: false,
            before: 0,
            after: after.unwrap_or(0),
        },
    }
}
