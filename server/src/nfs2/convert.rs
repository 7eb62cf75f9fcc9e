//! Conversions between the types of the wire and the server's own. Numbers of 64 bits here have 32 bits there.

use odafs_common::wire::nfs2 as wire;
use wire::mode;

use super::Failed;
use crate::vfs::{Attributes, Device, FileType, SetAttributes, SetTime, Status, Time};

/// The largest file that clients read and write. Sizes have 32 bits, but clients take them for numbers with a sign.
pub(super) const SIZE_MAX: u64 = i32::MAX as u64;
/// The unit of [`wire::Attributes::blocks`].
const BLOCK_UNIT: u64 = 512;
/// The number of bytes that a client should read and write at once.
const BLOCK_BYTES: u32 = 4096;

/// The RFC has few statuses. An error without one becomes IO.
impl From<Status> for Failed {
    fn from(status: Status) -> Self {
        use wire::Status as S;
        Self::Status(match status {
            Status::Jukebox => return Self::Later,
            Status::Perm => S::Perm,
            Status::NoEnt => S::NoEnt,
            Status::Nxio => S::Nxio,
            // What lies on another file system is out of reach.
            Status::Access | Status::XDev => S::Access,
            Status::Exist => S::Exist,
            Status::NoDev => S::NoDev,
            Status::NotDir => S::NotDir,
            Status::IsDir => S::IsDir,
            Status::FBig => S::FBig,
            Status::NoSpc => S::NoSpc,
            Status::RoFs => S::RoFs,
            Status::NameTooLong => S::NameTooLong,
            Status::NotEmpty => S::NotEmpty,
            Status::DQuot => S::DQuot,
            Status::Stale | Status::BadHandle => S::Stale,
            Status::Io
            | Status::Inval
            | Status::MLink
            | Status::Remote
            | Status::NotSync
            | Status::BadCookie
            | Status::NotSupp
            | Status::TooSmall
            | Status::ServerFault
            | Status::BadType => S::Io,
        })
    }
}

/// Type and bits of the mode. A pipe is a character device without a number.
fn kind(kind: FileType) -> (wire::FileType, u32) {
    match kind {
        FileType::Regular => (wire::FileType::Regular, mode::REGULAR),
        FileType::Directory => (wire::FileType::Directory, mode::DIRECTORY),
        FileType::Block => (wire::FileType::Block, mode::BLOCK),
        FileType::Character | FileType::Fifo => (wire::FileType::Character, mode::CHARACTER),
        FileType::Symlink => (wire::FileType::Symlink, mode::SYMLINK),
        FileType::Socket => (wire::FileType::None, mode::SOCKET),
    }
}

/// The lower half of a number; the upper one, if there is nothing in the lower. No file has the number 0.
pub(super) fn fileid(fileid: u64) -> u32 {
    match fileid as u32 {
        0 => (fileid >> 32) as u32,
        lower => lower,
    }
}

/// A device's number of 32 bits, as Linux has it: 12 bits of the major number between 8 and 12 of the minor one.
fn number(Device { major, minor }: Device) -> u32 {
    (minor & 0xff) | (major & 0xfff) << 8 | (minor & 0xfff00) << 12
}

/// The reverse of [`number`].
pub(super) fn device(number: u32) -> Device {
    Device {
        major: number >> 8 & 0xfff,
        minor: (number & 0xff) | (number >> 12 & 0xfff00),
    }
}

/// The nearest time that 32 bits can express: 1970 to 2106.
fn time(time: Time) -> wire::Time {
    match u32::try_from(time.seconds) {
        Ok(seconds) => wire::Time {
            seconds,
            microseconds: time.nanoseconds / 1000,
        },
        Err(_) => wire::Time {
            seconds: if time.seconds < 0 { 0 } else { u32::MAX },
            microseconds: 0,
        },
    }
}

/// A size beyond `SIZE_MAX` becomes `SIZE_MAX`.
impl From<Attributes> for wire::Attributes {
    fn from(all: Attributes) -> Self {
        let (kind, bits) = kind(all.kind);
        Self {
            kind,
            mode: bits | all.mode & !mode::TYPE,
            links: all.links,
            uid: all.uid,
            gid: all.gid,
            size: all.size.min(SIZE_MAX) as u32,
            block_bytes: BLOCK_BYTES,
            device: match all.kind {
                FileType::Fifo => Self::PIPE,
                FileType::Block | FileType::Character => number(all.device),
                _ => 0,
            },
            blocks: all.used.div_ceil(BLOCK_UNIT).min(SIZE_MAX) as u32,
            fsid: (all.fsid ^ all.fsid >> 32) as u32,
            fileid: fileid(all.fileid),
            atime: time(all.atime),
            mtime: time(all.mtime),
            ctime: time(all.ctime),
        }
    }
}

fn set_time(time: wire::SetTime) -> Result<SetTime, wire::Status> {
    Ok(match time {
        wire::SetTime::Keep => SetTime::Keep,
        wire::SetTime::ServerTime => SetTime::ServerTime,
        wire::SetTime::To(time) if time.microseconds < 1_000_000 => SetTime::To(Time {
            seconds: time.seconds.into(),
            nanoseconds: time.microseconds * 1000,
        }),
        wire::SetTime::To(_) => return Err(wire::Status::Io),
    })
}

/// Fails with FBIG for a size beyond [`SIZE_MAX`], and with IO for an impossible time.
pub(super) fn set_attributes(new: &wire::SetAttributes) -> Result<SetAttributes, wire::Status> {
    let size = new.size.map(u64::from);
    if size.is_some_and(|size| size > SIZE_MAX) {
        return Err(wire::Status::FBig);
    }
    // With the time of the data set to the server's, that of the access is set to it too.
    let atime = match (new.atime, new.mtime) {
        (wire::SetTime::To(_), wire::SetTime::ServerTime) => wire::SetTime::ServerTime,
        (atime, _) => atime,
    };
    Ok(SetAttributes {
        mode: new.mode.map(|bits| bits & 0o7777),
        uid: new.uid,
        gid: new.gid,
        size,
        atime: set_time(atime)?,
        mtime: set_time(new.mtime)?,
        umask: 0,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const FILE: Attributes = Attributes {
        kind: FileType::Regular,
        mode: 0o4755,
        links: 1,
        uid: 1000,
        gid: 100,
        size: 5,
        used: 513,
        device: Device { major: 0, minor: 0 },
        fsid: 0x1_0000_0002,
        fileid: 0x5_0000_0007,
        atime: Time {
            seconds: 1,
            nanoseconds: 2999,
        },
        mtime: Time {
            seconds: -1,
            nanoseconds: 5,
        },
        ctime: Time {
            seconds: 1 << 32,
            nanoseconds: 5,
        },
    };

    #[test]
    fn what_has_64_bits_is_cut_to_32() {
        let told = wire::Attributes::from(FILE);
        assert_eq!((told.mode, told.blocks), (0o104755, 2));
        assert_eq!((told.fsid, told.fileid), (3, 7));
        assert_eq!(fileid(0x9_0000_0000), 9);
        let times = [told.atime, told.mtime, told.ctime];
        let times = times.map(|time| (time.seconds, time.microseconds));
        assert_eq!(times, [(1, 2), (0, 0), (u32::MAX, 0)]);
        let sized = |size| wire::Attributes::from(Attributes { size, ..FILE }).size;
        assert_eq!(sized(SIZE_MAX), i32::MAX as u32);
        assert_eq!(sized(SIZE_MAX + 1), i32::MAX as u32);
        assert_eq!(sized(u64::MAX), i32::MAX as u32);
        let used = u64::MAX;
        let told = wire::Attributes::from(Attributes { used, ..FILE });
        assert_eq!(told.blocks, i32::MAX as u32);
    }

    #[test]
    fn types_are_in_the_mode_too() {
        use wire::FileType as T;
        let device = Device {
            major: 0x123,
            minor: 0x45678,
        };
        let told = |kind| {
            let told = wire::Attributes::from(Attributes {
                kind,
                device,
                mode: 0o644,
                ..FILE
            });
            (told.kind, told.mode, told.device)
        };
        let linux = 0x4561_2378;
        for (kind, expected) in [
            (FileType::Regular, (T::Regular, 0o100644, 0)),
            (FileType::Directory, (T::Directory, 0o040644, 0)),
            (FileType::Symlink, (T::Symlink, 0o120644, 0)),
            (FileType::Block, (T::Block, 0o060644, linux)),
            (FileType::Character, (T::Character, 0o020644, linux)),
            (FileType::Fifo, (T::Character, 0o020644, u32::MAX)),
            (FileType::Socket, (T::None, 0o140644, 0)),
        ] {
            assert_eq!(told(kind), expected, "{kind:?}");
        }
        assert_eq!(super::device(linux), device);
    }

    #[test]
    fn what_is_set_is_within_bounds() {
        use wire::SetTime as W;
        let set = |atime, mtime| {
            let new = wire::SetAttributes {
                atime,
                mtime,
                ..wire::SetAttributes::default()
            };
            set_attributes(&new).map(|set| (set.atime, set.mtime))
        };
        let at = |microseconds| {
            W::To(wire::Time {
                seconds: 7,
                microseconds,
            })
        };
        let seven = SetTime::To(Time {
            seconds: 7,
            nanoseconds: 999_999_000,
        });
        let now = SetTime::ServerTime;
        assert_eq!(set(W::Keep, W::Keep), Ok((SetTime::Keep, SetTime::Keep)));
        assert_eq!(set(at(999_999), W::Keep), Ok((seven, SetTime::Keep)));
        assert_eq!(set(W::ServerTime, at(999_999)), Ok((now, seven)));
        // As clients of SunOS say it.
        assert_eq!(set(at(0), W::ServerTime), Ok((now, now)));
        assert_eq!(set(W::Keep, W::ServerTime), Ok((SetTime::Keep, now)));
        assert_eq!(set(at(1_000_001), W::Keep), Err(wire::Status::Io));
        let sized = |size| {
            let new = wire::SetAttributes {
                size: Some(size),
                mode: Some(0o100644),
                ..wire::SetAttributes::default()
            };
            set_attributes(&new).map(|set| (set.size, set.mode))
        };
        assert_eq!(sized(0x7fff_ffff), Ok((Some(SIZE_MAX), Some(0o644))));
        assert_eq!(sized(0x8000_0000), Err(wire::Status::FBig));
    }
}
