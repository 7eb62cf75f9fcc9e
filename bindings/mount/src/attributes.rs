//! Attributes and errors in the form that the kernel wants.

use fuser::{Errno, FileAttr, FileType, INodeNo};
use odafs::{CallError, FileKind, PathError, ReadError, WriteError, fs::Attributes};
use rustix::io::Errno as System;
use std::time::SystemTime;

/// The part of a file's attributes that distinguishes two versions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Version {
    size: u64,
    mtime: SystemTime,
    ctime: SystemTime,
    change: u64,
}

impl Version {
    /// The version with these attributes.
    pub fn of(attributes: &Attributes) -> Self {
        Self {
            size: attributes.size,
            mtime: attributes.mtime,
            ctime: attributes.ctime,
            change: attributes.change,
        }
    }
}

/// The attributes of the file that the kernel knows by `number`. A hidden name does not count as a name.
pub fn shown(number: u64, attributes: &Attributes, hidden: bool) -> FileAttr {
    let Attributes {
        mode, nlink, rdev, ..
    } = *attributes;
    FileAttr {
        ino: INodeNo(number),
        size: attributes.size,
        blocks: attributes.used.div_ceil(512),
        atime: attributes.atime,
        mtime: attributes.mtime,
        ctime: attributes.ctime,
        crtime: SystemTime::UNIX_EPOCH,
        kind: kind(attributes.kind),
        perm: (mode & 0o7777) as u16,
        nlink: nlink.saturating_sub(u32::from(hidden)),
        uid: attributes.uid,
        gid: attributes.gid,
        rdev: device(rdev),
        blksize: 1 << 16,
        flags: 0,
    }
}

/// The kernel's type for a kind of file.
pub fn kind(kind: FileKind) -> FileType {
    match kind {
        FileKind::Regular => FileType::RegularFile,
        FileKind::Directory => FileType::Directory,
        FileKind::BlockDevice => FileType::BlockDevice,
        FileKind::CharacterDevice => FileType::CharDevice,
        FileKind::Symlink => FileType::Symlink,
        FileKind::Socket => FileType::Socket,
        FileKind::Pipe => FileType::NamedPipe,
    }
}

/// The kernel's number of a device: twelve bits of the major number between eight and twelve of the minor one.
fn device((major, minor): (u32, u32)) -> u32 {
    (minor & 0xff) | ((major & 0xfff) << 8) | ((minor & 0xfff00) << 12)
}

/// Major and minor number in the kernel's number of a device.
pub fn major_minor(device: u32) -> (u32, u32) {
    (
        (device >> 8) & 0xfff,
        (device & 0xff) | ((device >> 12) & 0xfff00),
    )
}

/// The client's errors, one type for each kind of call. Each has a number of the system's.
pub trait Numbered {
    /// The `errno` for a program that contains the client. [`errno`] says which of them reach programs on the mount.
    fn number(&self) -> i32;
}

impl Numbered for PathError {
    fn number(&self) -> i32 {
        self.errno()
    }
}

impl Numbered for ReadError {
    fn number(&self) -> i32 {
        self.errno()
    }
}

impl Numbered for WriteError {
    fn number(&self) -> i32 {
        self.errno()
    }
}

/// The errno for a program on the mount. Local files give no errors of connections, and no EAGAIN for a server that
/// asks to try later until the deadline. Those become EIO.
pub fn errno(error: impl Numbered + std::fmt::Display) -> Errno {
    let number = error.number();
    let never_local = [
        System::AGAIN,
        System::TIMEDOUT,
        System::CONNABORTED,
        System::CONNRESET,
        System::CONNREFUSED,
        System::PROTO,
        System::REMOTEIO,
    ];
    if never_local
        .iter()
        .any(|known| known.raw_os_error() == number)
    {
        tracing::warn!("{error}");
        return Errno::EIO;
    }
    Errno::from_i32(number)
}

/// Whether an error says that there is no such file.
pub fn is_gone(error: Errno) -> bool {
    [Errno::ENOENT, Errno::ESTALE].contains(&error)
}

/// Whether a call that failed so may have been made all the same, or may be made later.
pub fn may_be_made(error: &PathError) -> bool {
    match error {
        PathError::Call { source, .. } => !matches!(
            source,
            CallError::Unavailable { .. } | CallError::Refused { .. }
        ),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Failed(System);

    impl Numbered for Failed {
        fn number(&self) -> i32 {
            self.0.raw_os_error()
        }
    }

    impl std::fmt::Display for Failed {
        fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
            self.0.fmt(f)
        }
    }

    #[test]
    fn programs_get_numbers_that_local_files_give() {
        for never_local in [System::AGAIN, System::TIMEDOUT, System::CONNRESET] {
            assert_eq!(errno(Failed(never_local)).code(), Errno::EIO.code());
        }
        for local in [System::NOENT, System::NOSPC, System::STALE] {
            assert_eq!(errno(Failed(local)).code(), local.raw_os_error());
        }
    }

    #[test]
    fn devices_are_those_of_the_kernel() {
        for device_of in [(8, 1), (0xfff, 0xfffff), (1, 0x12345), (0, 0)] {
            assert_eq!(major_minor(device(device_of)), device_of);
        }
        assert_eq!(device((8, 1)), 0x801);
        assert_eq!(device((8, 0x100)), 0x10_0800);
    }
}
