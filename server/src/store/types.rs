//! The types of a file system, independent of any protocol. Each protocol translates them to its own.

use std::fmt;

/// Why a call was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Status {
    /// Not owner.
    Perm,
    /// No such file or directory.
    NoEnt,
    /// A hard error of the storage.
    Io,
    /// No such device or address.
    Nxio,
    /// Permission denied.
    Access,
    /// The name exists already.
    Exist,
    /// A hard link across file systems.
    XDev,
    /// No such device.
    NoDev,
    /// Not a directory.
    NotDir,
    /// A directory where none is accepted.
    IsDir,
    /// An invalid or unsupported argument.
    Inval,
    /// File too large.
    FBig,
    /// No space left.
    NoSpc,
    /// A read-only file system.
    RoFs,
    /// Too many hard links.
    MLink,
    /// Name too long.
    NameTooLong,
    /// Directory not empty.
    NotEmpty,
    /// Quota exceeded.
    DQuot,
    /// The object of the file handle is gone, or access to it has been revoked.
    Stale,
    /// Too many levels of remote in a path.
    Remote,
    /// The server has never issued this file handle.
    BadHandle,
    /// The object has changed since the client learnt the time that guards the change.
    NotSync,
    /// A position in a directory is stale.
    BadCookie,
    /// Operation not supported.
    NotSupp,
    /// The answer does not fit in the room for it.
    TooSmall,
    /// A failure of the server that fits no other status.
    ServerFault,
    /// The server cannot make objects of this type.
    BadType,
    /// The call was begun but not completed in time. The caller is to try again.
    Jukebox,
}

impl fmt::Display for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Perm => "not owner",
            Self::NoEnt => "no such file or directory",
            Self::Io => "input/output error",
            Self::Nxio => "no such device or address",
            Self::Access => "permission denied",
            Self::Exist => "file exists",
            Self::XDev => "link across file systems",
            Self::NoDev => "no such device",
            Self::NotDir => "not a directory",
            Self::IsDir => "is a directory",
            Self::Inval => "invalid argument",
            Self::FBig => "file too large",
            Self::NoSpc => "no space left",
            Self::RoFs => "read-only file system",
            Self::MLink => "too many links",
            Self::NameTooLong => "name too long",
            Self::NotEmpty => "directory not empty",
            Self::DQuot => "quota exceeded",
            Self::Stale => "stale file handle",
            Self::Remote => "too many levels of remote in path",
            Self::BadHandle => "invalid file handle",
            Self::NotSync => "file changed meanwhile",
            Self::BadCookie => "stale directory cookie",
            Self::NotSupp => "not supported",
            Self::TooSmall => "buffer too small",
            Self::ServerFault => "server fault",
            Self::BadType => "type not supported",
            Self::Jukebox => "server busy, try later",
        })
    }
}

/// The type of an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum FileType {
    /// Regular file.
    Regular,
    /// Directory.
    Directory,
    /// Block device.
    Block,
    /// Character device.
    Character,
    /// Symbolic link.
    Symlink,
    /// Socket.
    Socket,
    /// Named pipe.
    Fifo,
}

/// Whether bytes of a file are data or a hole.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Extent {
    /// Bytes that were written.
    Data,
    /// Zeros that nobody wrote or that take no space.
    Hole,
}

/// A time since 1970, in UTC.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Time {
    /// Seconds, negative before 1970.
    pub seconds: i64,
    /// Nanoseconds within the second.
    pub nanoseconds: u32,
}

impl Time {
    /// The change attribute of an object whose attributes last changed at this time. It grows with the time.
    pub fn change(self) -> u64 {
        ((self.seconds as u64) << 30).wrapping_add(self.nanoseconds.into())
    }
}

/// The numbers of a device file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Device {
    /// Major.
    pub major: u32,
    /// Minor.
    pub minor: u32,
}

/// The attributes of an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Attributes {
    /// Type.
    pub kind: FileType,
    /// Permissions, set-id and sticky bits: the lower twelve bits.
    pub mode: u32,
    /// Number of hard links.
    pub links: u32,
    /// User id of the owner.
    pub uid: u32,
    /// Group id.
    pub gid: u32,
    /// Size in bytes.
    pub size: u64,
    /// Storage that it takes, in bytes.
    pub used: u64,
    /// Device numbers. 0 for other types.
    pub device: Device,
    /// Number of the file system.
    pub fsid: u64,
    /// Number of the object within the file system.
    pub fileid: u64,
    /// Time of the last access.
    pub atime: Time,
    /// Time of the last change of the data.
    pub mtime: Time,
    /// Time of the last change of the attributes.
    pub ctime: Time,
}

impl Attributes {
    /// The change attribute. It grows with each change of data or attributes, because every store is seen through
    /// `Advancing`.
    pub fn change(&self) -> u64 {
        self.ctime.change()
    }
}

/// How to set a time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SetTime {
    /// Leave it.
    #[default]
    Keep,
    /// Set it to the server's time.
    ServerTime,
    /// Set it to this time.
    To(Time),
}

/// The attributes to set. Those that are `None` or [`SetTime::Keep`] stay.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SetAttributes {
    /// Permissions.
    pub mode: Option<u32>,
    /// Owner.
    pub uid: Option<u32>,
    /// Group.
    pub gid: Option<u32>,
    /// Bytes in the file.
    pub size: Option<u64>,
    /// Last access.
    pub atime: SetTime,
    /// Last change of the data.
    pub mtime: SetTime,
    /// Bits that the mode of a new object goes without, unless the directory has a default list in their place (RFC 8275,
    /// section 4). It changes no object that is there.
    pub umask: u32,
}

/// Space in bytes, and numbers of inodes (RFC 1813, section 3.3.18).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Space {
    /// Size of the file system in bytes.
    pub total_bytes: u64,
    /// Free bytes.
    pub free_bytes: u64,
    /// Free bytes for users without privilege.
    pub available_bytes: u64,
    /// Inodes in all.
    pub total_files: u64,
    /// Free inodes.
    pub free_files: u64,
    /// Free inodes for users without privilege.
    pub available_files: u64,
}

/// Limits of an object's file system (RFC 1813, sections 3.3.19 and 3.3.20).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FileSystemLimits {
    /// The most hard links to one object.
    pub link_max: u32,
    /// The longest name, in bytes.
    pub name_max: u32,
    /// The largest size of a file, in bytes.
    pub size_max: u64,
    /// Granularity of times in nanoseconds.
    pub time_delta_ns: u32,
    /// Whether longer names are refused instead of cut.
    pub no_trunc: bool,
    /// Whether only a privileged user may give files away.
    pub chown_restricted: bool,
    /// Whether names that differ only in case are the same.
    pub case_insensitive: bool,
    /// Whether names keep their case.
    pub case_preserving: bool,
    /// Whether every change is refused with ROFS.
    pub read_only: bool,
}

/// The rights of ACCESS, as bits of a mask. They are the same in NFS versions 3 and 4.
pub mod access {
    /// Read the data of a file, or a directory.
    pub const READ: u32 = 0x01;
    /// Look up a name in a directory.
    pub const LOOKUP: u32 = 0x02;
    /// Rewrite existing data, or change entries of a directory.
    pub const MODIFY: u32 = 0x04;
    /// Write new data or add entries.
    pub const EXTEND: u32 = 0x08;
    /// Delete an entry of a directory.
    pub const DELETE: u32 = 0x10;
    /// Execute a file.
    pub const EXECUTE: u32 = 0x20;
}
