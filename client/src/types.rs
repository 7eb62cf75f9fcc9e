//! The client's types for files, whatever the protocol: what a server says about them, and what it is asked to do.

use crate::handle::FileHandle;
use std::{
    ffi::OsString,
    ops::{BitAnd, BitOr},
    time::{Duration, SystemTime},
};

/// Kind of a file (ftype3, RFC 1813 section 2.6).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum FileKind {
    /// A regular file.
    Regular,
    /// A directory.
    Directory,
    /// A block device.
    BlockDevice,
    /// A character device.
    CharacterDevice,
    /// A symbolic link.
    Symlink,
    /// A socket.
    Socket,
    /// A named pipe.
    Pipe,
}

/// Attributes of a file (fattr3, RFC 1813 section 2.6).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Attributes {
    /// Type.
    pub kind: FileKind,
    /// Permission bits, set-id and sticky bits included: the lower twelve.
    pub mode: u32,
    /// Hard links.
    pub nlink: u32,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Size in bytes.
    pub size: u64,
    /// Bytes of storage that it takes.
    pub used: u64,
    /// Major and minor number of a device file.
    pub rdev: (u32, u32),
    /// File system that holds it.
    pub fsid: u64,
    /// Its number there (inode number).
    pub fileid: u64,
    /// Last access.
    pub atime: SystemTime,
    /// Last change of its data.
    pub mtime: SystemTime,
    /// Last change of its data or attributes.
    pub ctime: SystemTime,
    /// Another number after every change of data or attributes, as far as the server tells changes apart. NFS version 3 has
    /// none of its own: this is made of `ctime`, of which an ODAFS server tells another after each change that goes through
    /// it; other servers have that of their clock.
    pub change: u64,
}

impl Attributes {
    /// Which version of the file they are of.
    pub(crate) fn version(&self) -> VersionTag {
        VersionTag {
            size: self.size,
            mtime: self.mtime,
            ctime: self.ctime,
        }
    }
}

/// What tells two versions of a file apart (wcc_attr, RFC 1813 section 2.6). An ODAFS server tells another ctime after
/// each change.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct VersionTag {
    /// Size in bytes.
    pub size: u64,
    /// Last change of the data.
    pub mtime: SystemTime,
    /// Last change of data or attributes.
    pub ctime: SystemTime,
}

/// What a reply tells of the file that it changed (wcc_data, RFC 1813 section 2.6).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Changed {
    /// The version that was changed. `None` if the server cannot tell.
    pub before: Option<VersionTag>,
    /// The attributes after the change. `None` if the server does not say.
    pub after: Option<Attributes>,
}

/// What to change about a file. A field that is `None` stays as it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Changes {
    /// Permission bits.
    pub mode: Option<u32>,
    /// User id of the owner.
    pub uid: Option<u32>,
    /// Group id.
    pub gid: Option<u32>,
    /// New size in bytes. The server fills a file that grows with zeros, and truncates one that shrinks.
    pub size: Option<u64>,
    /// Last access.
    pub accessed: Option<When>,
    /// Last change of its data.
    pub modified: Option<When>,
}

/// A time to set.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum When {
    /// The server's clock, now.
    Now,
    /// This time.
    At(SystemTime),
}

/// A file that was found or created.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Entry {
    /// The server's handle.
    pub handle: FileHandle,
    /// Its attributes.
    pub attributes: Attributes,
}

/// One name in a directory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DirEntry {
    /// The name: bytes, in no encoding that anyone promises.
    pub name: OsString,
    /// Number of the file in its file system.
    pub fileid: u64,
    /// The cookie after this entry, where a listing may continue.
    pub cookie: Cookie,
    /// The server's handle. `None` from READDIR, and if the server does not say.
    pub handle: Option<FileHandle>,
    /// The attributes. `None` from READDIR, and if the server does not say, because the file may be gone.
    pub attributes: Option<Attributes>,
}

/// A place in the listing of a directory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Cookie {
    /// Only the server knows its meaning, except that 0 is the start.
    pub value: u64,
    /// The verifier that came with the cookie. From it, the server knows whether it still understands the cookie. Zeros
    /// at the start.
    pub verifier: [u8; 8],
}

impl Cookie {
    /// The start of the listing.
    pub const START: Self = Self {
        value: 0,
        verifier: [0; 8],
    };
}

/// Rights (ACCESS, RFC 1813 section 3.3.4).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Access(u32);

impl Access {
    /// Read the data of a file, or list a directory.
    pub const READ: Self = Self(0x01);
    /// Look up a name in a directory.
    pub const LOOKUP: Self = Self(0x02);
    /// Rewrite existing data, or change entries of a directory.
    pub const MODIFY: Self = Self(0x04);
    /// Write new data, or add entries.
    pub const EXTEND: Self = Self(0x08);
    /// Delete an entry of a directory.
    pub const DELETE: Self = Self(0x10);
    /// Execute a file.
    pub const EXECUTE: Self = Self(0x20);
    /// All rights.
    pub const ALL: Self = Self(0x3f);

    /// The rights in the protocol's bits. Unknown bits are left out.
    pub const fn from_bits(bits: u32) -> Self {
        Self(bits & Self::ALL.0)
    }

    /// The protocol's bits.
    pub const fn bits(self) -> u32 {
        self.0
    }

    /// Whether these include all of `others`.
    pub const fn contains(self, others: Self) -> bool {
        self.0 & others.0 == others.0
    }
}

impl BitOr for Access {
    type Output = Self;

    fn bitor(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }
}

impl BitAnd for Access {
    type Output = Self;

    fn bitand(self, other: Self) -> Self {
        Self(self.0 & other.0)
    }
}

/// How a file is made (createhow3, RFC 1813 section 3.3.8).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Create {
    /// An existing regular file is opened, and of these attributes only its size is set.
    Unchecked(Changes),
    /// Creation fails if the name exists.
    Guarded(Changes),
    /// Creation fails if the name exists, unless the same call created it. The verifier, eight bytes that nobody else
    /// uses, tells the difference, so the call may be repeated if its answer was lost. Set the attributes afterwards
    /// with [`setattr`](crate::fs::FileSystem::setattr), at least mode and times: until then the server may store the
    /// verifier there.
    Exclusive([u8; 8]),
}

/// What [`mknod`](crate::fs::FileSystem::mknod) creates.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Node {
    /// A character device with this major and minor number.
    CharacterDevice(u32, u32),
    /// A block device with this major and minor number.
    BlockDevice(u32, u32),
    /// A socket.
    Socket,
    /// A named pipe.
    Pipe,
}

/// The capabilities and preferences of a server (FSINFO, RFC 1813 section 3.3.19). Reads and writes of this library may
/// have any length, because it splits them itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FsInfo {
    /// The longest READ, in bytes.
    pub rtmax: u32,
    /// The preferred length of a READ, in bytes.
    pub rtpref: u32,
    /// The preferred length of a READ is a multiple of this, in bytes.
    pub rtmult: u32,
    /// The longest WRITE, in bytes.
    pub wtmax: u32,
    /// The preferred length of a WRITE, in bytes.
    pub wtpref: u32,
    /// The preferred length of a WRITE is a multiple of this, in bytes.
    pub wtmult: u32,
    /// The preferred length of a READDIR, in bytes.
    pub dtpref: u32,
    /// The size of the largest file, in bytes.
    pub maxfilesize: u64,
    /// The resolution of the server's times.
    pub time_delta: Duration,
    /// What else the server can do.
    pub properties: Properties,
}

/// The capabilities of a file system.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Properties {
    /// Hard links.
    pub link: bool,
    /// Symbolic links.
    pub symlink: bool,
    /// [`pathconf`](crate::fs::FileSystem::pathconf) says the same of every file.
    pub homogeneous: bool,
    /// Times can be set.
    pub cansettime: bool,
}

/// Room on the file system behind an export (FSSTAT, RFC 1813 section 3.3.18).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Space {
    /// Size in bytes.
    pub total_bytes: u64,
    /// Free space in bytes.
    pub free_bytes: u64,
    /// Free space for this caller in bytes.
    pub available_bytes: u64,
    /// Number of files that it has room for.
    pub total_files: u64,
    /// Number of further files that it has room for.
    pub free_files: u64,
    /// Number of further files for this caller.
    pub available_files: u64,
}

/// Limits of names and links (PATHCONF, RFC 1813 section 3.3.20).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PathConf {
    /// The most hard links of a file.
    pub linkmax: u32,
    /// The longest name, in bytes.
    pub name_max: u32,
    /// Whether longer names are refused, rather than cut.
    pub no_trunc: bool,
    /// Whether only a privileged user may change owners.
    pub chown_restricted: bool,
    /// Whether names are case-insensitive.
    pub case_insensitive: bool,
    /// Whether names keep their case.
    pub case_preserving: bool,
}
