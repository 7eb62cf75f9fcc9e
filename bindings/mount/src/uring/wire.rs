//! What the kernel and a file system tell each other: the layouts of linux/fuse.h, in the machine's order of bytes.

use fuser::{Errno, FileAttr, FileType};
use rustix::fs::FileType as System;
use std::{
    ffi::OsStr,
    os::unix::ffi::OsStrExt as _,
    time::{Duration, SystemTime},
};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// Numbers of operations.
pub mod op {
    pub const LOOKUP: u32 = 1;
    pub const GETATTR: u32 = 3;
    pub const SETATTR: u32 = 4;
    pub const READLINK: u32 = 5;
    pub const SYMLINK: u32 = 6;
    pub const MKNOD: u32 = 8;
    pub const MKDIR: u32 = 9;
    pub const UNLINK: u32 = 10;
    pub const RMDIR: u32 = 11;
    pub const RENAME: u32 = 12;
    pub const LINK: u32 = 13;
    pub const OPEN: u32 = 14;
    pub const READ: u32 = 15;
    pub const WRITE: u32 = 16;
    pub const STATFS: u32 = 17;
    pub const RELEASE: u32 = 18;
    pub const FSYNC: u32 = 20;
    pub const GETXATTR: u32 = 22;
    pub const FLUSH: u32 = 25;
    pub const OPENDIR: u32 = 27;
    pub const READDIR: u32 = 28;
    pub const RELEASEDIR: u32 = 29;
    pub const FSYNCDIR: u32 = 30;
    pub const CREATE: u32 = 35;
    pub const READDIRPLUS: u32 = 44;
    pub const RENAME2: u32 = 45;
}

/// Commands of io_uring to the kernel's FUSE.
pub mod command {
    /// Registers an entry, which is then ready for a request.
    pub const REGISTER: u32 = 1;
    /// Answers the request of an entry, which is then ready for the next.
    pub const COMMIT_AND_FETCH: u32 = 2;
}

/// What a command says beside its number (`fuse_uring_cmd_req`).
#[derive(FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
pub struct Command {
    pub flags: u64,
    /// The commit id of the answered request.
    pub commit_id: u64,
    /// The number of the queue, which is that of a processor.
    pub queue: u16,
    pub padding: [u8; 6],
}

/// The headers of an entry (`fuse_uring_req_header`). The kernel fills them in with a request, and we with the answer.
#[derive(FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
pub struct Headers {
    /// [`RequestHeader`] or [`AnswerHeader`].
    pub in_out: [u8; 128],
    /// The first argument of the request, of a layout that goes with its operation.
    pub argument: [u8; 128],
    pub entry: EntryHeader,
}

/// What goes with the payload of an entry (`fuse_uring_ent_in_out`).
#[derive(FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
pub struct EntryHeader {
    pub flags: u64,
    pub commit_id: u64,
    /// Length of the payload, in bytes.
    pub payload: u32,
    pub padding: u32,
    pub reserved: u64,
}

/// `fuse_in_header`.
#[derive(FromBytes, KnownLayout, Immutable)]
#[repr(C)]
pub struct RequestHeader {
    pub length: u32,
    pub opcode: u32,
    pub unique: u64,
    /// The file or the directory.
    pub number: u64,
    pub uid: u32,
    pub gid: u32,
    pub pid: u32,
    pub extensions: u16,
    pub padding: u16,
}

/// `fuse_out_header`.
#[derive(IntoBytes, Immutable)]
#[repr(C)]
pub struct AnswerHeader {
    /// Length of this header and the payload, in bytes.
    pub length: u32,
    /// 0, or the negative number of an error.
    pub error: i32,
    pub unique: u64,
}

/// `fuse_setattr_in`. [`valid`](Self::valid) says which fields count.
#[derive(FromBytes, KnownLayout, Immutable)]
#[repr(C)]
pub struct SetAttr {
    pub valid: u32,
    pub padding: u32,
    pub open: u64,
    pub size: u64,
    pub lock_owner: u64,
    pub atime: i64,
    pub mtime: i64,
    pub ctime: i64,
    pub atime_ns: u32,
    pub mtime_ns: u32,
    pub ctime_ns: u32,
    pub mode: u32,
    pub unused_1: u32,
    pub uid: u32,
    pub gid: u32,
    pub unused_2: u32,
}

impl SetAttr {
    pub const MODE: u32 = 1;
    pub const UID: u32 = 1 << 1;
    pub const GID: u32 = 1 << 2;
    pub const SIZE: u32 = 1 << 3;
    pub const ATIME: u32 = 1 << 4;
    pub const MTIME: u32 = 1 << 5;
    pub const ATIME_NOW: u32 = 1 << 7;
    pub const MTIME_NOW: u32 = 1 << 8;
}

/// `fuse_mknod_in`.
#[derive(FromBytes, KnownLayout, Immutable)]
#[repr(C)]
pub struct MkNod {
    pub mode: u32,
    pub device: u32,
    pub umask: u32,
    pub padding: u32,
}

/// `fuse_mkdir_in`.
#[derive(FromBytes, KnownLayout, Immutable)]
#[repr(C)]
pub struct MkDir {
    pub mode: u32,
    pub umask: u32,
}

/// `fuse_rename2_in`. Only the first field is there for RENAME.
#[derive(FromBytes, KnownLayout, Immutable)]
#[repr(C)]
pub struct Rename {
    pub new_parent: u64,
    pub flags: u32,
    pub padding: u32,
}

/// `fuse_open_in`.
#[derive(FromBytes, KnownLayout, Immutable)]
#[repr(C)]
pub struct Open {
    pub flags: i32,
    pub open_flags: u32,
}

/// `fuse_create_in`.
#[derive(FromBytes, KnownLayout, Immutable)]
#[repr(C)]
pub struct Create {
    pub flags: i32,
    pub mode: u32,
    pub umask: u32,
    pub open_flags: u32,
}

/// `fuse_read_in` and `fuse_write_in`, which differ only in names.
#[derive(FromBytes, KnownLayout, Immutable)]
#[repr(C)]
pub struct ReadWrite {
    pub open: u64,
    pub offset: u64,
    pub size: u32,
    /// Flags of this read or write.
    pub how: u32,
    pub lock_owner: u64,
    /// Flags of the open file.
    pub flags: i32,
    pub padding: u32,
}

impl ReadWrite {
    /// In [`how`](Self::how) of a read: the kernel names the reader.
    pub const LOCK_OWNER: u32 = 1 << 1;
}

/// The beginning of `fuse_flush_in`, `fuse_fsync_in` and `fuse_release_in`.
#[derive(FromBytes, KnownLayout, Immutable)]
#[repr(C)]
pub struct Opened {
    pub open: u64,
}

/// `fuse_attr`.
#[derive(IntoBytes, Immutable)]
#[repr(C)]
pub struct Attributes {
    number: u64,
    size: u64,
    blocks: u64,
    atime: i64,
    mtime: i64,
    ctime: i64,
    atime_ns: u32,
    mtime_ns: u32,
    ctime_ns: u32,
    mode: u32,
    nlink: u32,
    uid: u32,
    gid: u32,
    device: u32,
    block: u32,
    flags: u32,
}

/// `fuse_attr_out`.
#[derive(IntoBytes, Immutable)]
#[repr(C)]
pub struct KeptAttributes {
    seconds: u64,
    nanoseconds: u32,
    padding: u32,
    attributes: Attributes,
}

/// `fuse_entry_out`.
#[derive(IntoBytes, Immutable)]
#[repr(C)]
pub struct Entry {
    number: u64,
    generation: u64,
    name_seconds: u64,
    seconds: u64,
    name_nanoseconds: u32,
    nanoseconds: u32,
    attributes: Attributes,
}

/// `fuse_open_out`.
#[derive(IntoBytes, Immutable)]
#[repr(C)]
pub struct OpenedAs {
    pub open: u64,
    pub how: u32,
    pub backing: u32,
}

/// The answer to CREATE.
#[derive(IntoBytes, Immutable)]
#[repr(C)]
pub struct Created {
    pub entry: Entry,
    pub opened: OpenedAs,
}

/// `fuse_write_out` and `fuse_getxattr_out`: a length in bytes.
#[derive(IntoBytes, Immutable)]
#[repr(C)]
pub struct Length {
    pub length: u32,
    pub padding: u32,
}

/// `fuse_statfs_out`.
#[derive(IntoBytes, Immutable)]
#[repr(C)]
pub struct StatFs {
    pub blocks: u64,
    pub free: u64,
    pub available: u64,
    pub files: u64,
    pub free_files: u64,
    pub block: u32,
    pub name_max: u32,
    pub fragment: u32,
    pub padding: u32,
    pub spare: [u32; 6],
}

/// `fuse_dirent`, without the name.
#[derive(IntoBytes, Immutable)]
#[repr(C)]
struct Named {
    number: u64,
    next: u64,
    name_length: u32,
    kind: u32,
}

const _: () = {
    assert!(size_of::<Command>() == 24);
    assert!(size_of::<Headers>() == 288);
    assert!(size_of::<RequestHeader>() == 40);
    assert!(size_of::<AnswerHeader>() == 16);
    assert!(size_of::<SetAttr>() == 88);
    assert!(size_of::<ReadWrite>() == 40);
    assert!(size_of::<Attributes>() == 88);
    assert!(size_of::<KeptAttributes>() == 104);
    assert!(size_of::<Entry>() == 128);
    assert!(size_of::<Created>() == 144);
    assert!(size_of::<StatFs>() == 80);
    assert!(size_of::<Named>() == 24);
};

/// The bits of a mode that say what kind of file it is.
fn kind_bits(kind: FileType) -> u32 {
    let kind = match kind {
        FileType::RegularFile => System::RegularFile,
        FileType::Directory => System::Directory,
        FileType::Symlink => System::Symlink,
        FileType::BlockDevice => System::BlockDevice,
        FileType::CharDevice => System::CharacterDevice,
        FileType::NamedPipe => System::Fifo,
        FileType::Socket => System::Socket,
    };
    kind.as_raw_mode()
}

/// Seconds since 1970, rounded down, and the nanoseconds that they lack.
fn seconds(time: SystemTime) -> (i64, u32) {
    match time.duration_since(SystemTime::UNIX_EPOCH) {
        Ok(after) => (after.as_secs() as i64, after.subsec_nanos()),
        Err(before) => {
            let before = before.duration();
            match before.subsec_nanos() {
                0 => (-(before.as_secs() as i64), 0),
                ns => (-(before.as_secs() as i64) - 1, 1_000_000_000 - ns),
            }
        }
    }
}

/// The time of [`seconds`].
///
/// # Errors
/// `EINVAL`: the system has no such time.
pub fn time(seconds: i64, ns: u32) -> Result<SystemTime, Errno> {
    let whole = Duration::from_secs(seconds.unsigned_abs());
    let time = match seconds {
        0.. => SystemTime::UNIX_EPOCH.checked_add(whole),
        _ => SystemTime::UNIX_EPOCH.checked_sub(whole),
    };
    let time = time.and_then(|time| time.checked_add(Duration::from_nanos(ns.into())));
    time.ok_or(Errno::EINVAL)
}

impl Attributes {
    fn of(shown: &FileAttr) -> Self {
        let [(atime, atime_ns), (mtime, mtime_ns), (ctime, ctime_ns)] =
            [shown.atime, shown.mtime, shown.ctime].map(seconds);
        Self {
            number: shown.ino.0,
            size: shown.size,
            blocks: shown.blocks,
            atime,
            mtime,
            ctime,
            atime_ns,
            mtime_ns,
            ctime_ns,
            mode: kind_bits(shown.kind) | u32::from(shown.perm),
            nlink: shown.nlink,
            uid: shown.uid,
            gid: shown.gid,
            device: shown.rdev,
            block: shown.blksize,
            flags: 0,
        }
    }
}

impl KeptAttributes {
    /// Attributes that are valid for a time.
    pub fn of(shown: &FileAttr, kept: Duration) -> Self {
        Self {
            seconds: kept.as_secs(),
            nanoseconds: kept.subsec_nanos(),
            padding: 0,
            attributes: Attributes::of(shown),
        }
    }
}

impl Entry {
    /// A name's file and attributes, which are valid for a time.
    pub fn of(shown: &FileAttr, kept: Duration) -> Self {
        Self {
            number: shown.ino.0,
            generation: 0,
            name_seconds: kept.as_secs(),
            seconds: kept.as_secs(),
            name_nanoseconds: kept.subsec_nanos(),
            nanoseconds: kept.subsec_nanos(),
            attributes: Attributes::of(shown),
        }
    }
}

/// A listing that is being written.
pub struct Listing<'a> {
    room: &'a mut [u8],
    used: usize,
}

impl<'a> Listing<'a> {
    /// A listing in at most `size` bytes.
    pub fn new(payload: &'a mut [u8], size: u32) -> Self {
        let most = payload.len().min(size as usize);
        Self {
            room: &mut payload[..most],
            used: 0,
        }
    }

    /// Length of what was written, in bytes.
    pub fn used(&self) -> usize {
        self.used
    }

    /// Adds a name. Returns true if there is no room for it.
    pub fn add(&mut self, number: u64, next: u64, kind: FileType, name: &OsStr) -> bool {
        self.put(&[], number, next, kind, name)
    }

    /// Adds a name with the file's attributes, as READDIRPLUS wants it. Returns true if there is no room for it.
    pub fn add_entry(&mut self, shown: &FileAttr, kept: Duration, next: u64, name: &OsStr) -> bool {
        let entry = Entry::of(shown, kept);
        self.put(entry.as_bytes(), shown.ino.0, next, shown.kind, name)
    }

    fn put(&mut self, before: &[u8], number: u64, next: u64, kind: FileType, name: &OsStr) -> bool {
        let name = name.as_bytes();
        let named = Named {
            number,
            next,
            name_length: name.len() as u32,
            kind: kind_bits(kind) >> 12,
        };
        let parts = [before, named.as_bytes(), name];
        let length: usize = parts.iter().map(|part| part.len()).sum();
        let Some(mut room) = self
            .room
            .get_mut(self.used..)
            .and_then(|room| room.get_mut(..length.next_multiple_of(8)))
        else {
            return true;
        };
        self.used += room.len();
        for part in parts {
            let (here, rest) = room.split_at_mut(part.len());
            here.copy_from_slice(part);
            room = rest;
        }
        room.fill(0);
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use fuser::INodeNo;

    #[test]
    fn times_before_1970_are_rounded_down() {
        let before = SystemTime::UNIX_EPOCH - Duration::new(1, 200_000_000);
        assert_eq!(seconds(before), (-2, 800_000_000));
        for at in [(-2, 800_000_000), (-1, 0), (0, 5), (1 << 40, 999_999_999)] {
            assert_eq!(time(at.0, at.1).map(seconds), Ok(at));
        }
        assert_eq!(time(i64::MAX, u32::MAX).map(|_| ()), Err(Errno::EINVAL));
    }

    #[test]
    fn a_listing_ends_where_the_room_does() {
        let mut payload = [0xff; 256];
        // Each takes 24 bytes, and the name in steps of eight.
        let mut listing = Listing::new(&mut payload, 64);
        assert!(!listing.add(7, 1, FileType::Directory, OsStr::new("a")));
        assert!(!listing.add(8, 2, FileType::RegularFile, OsStr::new("12345678")));
        assert_eq!(listing.used(), 64);
        assert!(listing.add(9, 3, FileType::RegularFile, OsStr::new("b")));
        assert_eq!(listing.used(), 64);
        let words = |at: usize| u64::from_ne_bytes(payload[at..at + 8].try_into().unwrap());
        assert_eq!((words(0), words(8)), (7, 1));
        assert_eq!(
            payload[16..24],
            [1u32.to_ne_bytes(), 4u32.to_ne_bytes()].concat()
        );
        assert_eq!(&payload[24..32], b"a\0\0\0\0\0\0\0");
        assert_eq!(&payload[56..64], b"12345678");
        assert_eq!(payload[64], 0xff);
    }

    #[test]
    fn an_entry_has_its_name_behind_its_attributes() {
        let never = SystemTime::UNIX_EPOCH;
        let shown = FileAttr {
            ino: INodeNo(5),
            size: 6,
            blocks: 1,
            atime: never,
            mtime: never,
            ctime: never,
            crtime: never,
            kind: FileType::Symlink,
            perm: 0o777,
            nlink: 1,
            uid: 0,
            gid: 0,
            rdev: 0,
            blksize: 4096,
            flags: 0,
        };
        let mut payload = [0xff; 160];
        let mut listing = Listing::new(&mut payload, u32::MAX);
        let kept = Duration::from_millis(1500);
        assert!(!listing.add_entry(&shown, kept, 3, OsStr::new("link")));
        assert_eq!(listing.used(), 160);
        assert_eq!(payload[..8], 5u64.to_ne_bytes());
        assert_eq!(payload[16..24], 1u64.to_ne_bytes());
        assert_eq!(payload[36..40], 500_000_000u32.to_ne_bytes());
        // The mode: 40 bytes of the entry and 60 of its attributes are before it.
        assert_eq!(payload[100..104], 0o120_777u32.to_ne_bytes());
        assert_eq!(&payload[152..], b"link\0\0\0\0");
    }
}
