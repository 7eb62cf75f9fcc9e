//! What a file system is made of, in the words of no protocol: each protocol translates to its own.

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
    /// The name is there already.
    Exist,
    /// A hard link across file systems.
    XDev,
    /// No such device.
    NoDev,
    /// Not a directory.
    NotDir,
    /// A directory where none is taken.
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
    /// The file behind the handle is gone, or access to it has been revoked.
    Stale,
    /// Too many levels of remote in a path.
    Remote,
    /// The file handle is none of ours.
    BadHandle,
    /// The object has changed since what guards the change was learnt.
    NotSync,
    /// A position in a directory is stale.
    BadCookie,
    /// Operation not supported.
    NotSupp,
    /// The room for the answer is too small.
    TooSmall,
    /// A failure on the server that fits no other status.
    ServerFault,
    /// The server does not make objects of this type.
    BadType,
    /// Begun but not completed in time: the caller shall try again.
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

/// What an object is.
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

/// What bytes of a file are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Extent {
    /// They were written.
    Data,
    /// Zeros that nobody wrote, or that take no space.
    Hole,
}

/// Since 1970, UTC.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Time {
    /// Seconds; negative before.
    pub seconds: i64,
    /// Nanoseconds within the second.
    pub nanoseconds: u32,
}

impl Time {
    /// The change attribute of an object whose attributes last changed now: later times have greater ones.
    pub fn change(self) -> u64 {
        ((self.seconds as u64) << 30).wrapping_add(self.nanoseconds.into())
    }
}

/// The numbers of a device.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Device {
    /// Major.
    pub major: u32,
    /// Minor.
    pub minor: u32,
}

/// What is known of an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Attributes {
    /// Type.
    pub kind: FileType,
    /// Permissions, set-id and sticky bits: the lower twelve.
    pub mode: u32,
    /// Hard links.
    pub links: u32,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Bytes in the file.
    pub size: u64,
    /// Bytes of storage that it takes.
    pub used: u64,
    /// Of devices.
    pub device: Device,
    /// File system.
    pub fsid: u64,
    /// Number within it.
    pub fileid: u64,
    /// Last access.
    pub atime: Time,
    /// Last change of the data.
    pub mtime: Time,
    /// Last change of the attributes.
    pub ctime: Time,
}

impl Attributes {
    /// The change attribute: a greater one after each change of data or attributes, since every store is seen through
    /// `Advancing`.
    pub fn change(&self) -> u64 {
        self.ctime.change()
    }
}

/// What becomes of a time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SetTime {
    /// Nothing.
    #[default]
    Keep,
    /// It is set to the server's time.
    ServerTime,
    /// It is set to this.
    To(Time),
}

/// The attributes to set; what is `None` or [`SetTime::Keep`] stays.
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

/// Space and inodes (RFC 1813 section 3.3.18). Bytes and counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Space {
    /// Size of the file system, bytes.
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

/// Limits of an object's file system (RFC 1813 sections 3.3.19 and 3.3.20).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Most hard links to one object.
    pub link_max: u32,
    /// Longest name, bytes.
    pub name_max: u32,
    /// Largest file size, bytes.
    pub size_max: u64,
    /// Granularity of times, nanoseconds.
    pub time_delta_ns: u32,
    /// Longer names are refused, not cut.
    pub no_trunc: bool,
    /// Only a privileged user may give files away.
    pub chown_restricted: bool,
    /// Names that differ only in case are the same.
    pub case_insensitive: bool,
    /// Names keep their case.
    pub case_preserving: bool,
    /// Everything is refused with ROFS that would change something.
    pub read_only: bool,
}

/// Rights that are asked about: bits of a mask, the same in NFS versions 3 and 4.
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
