//! The client's words for files, whatever the protocol: what a server tells of them, and what it is asked to do.

use crate::handle::Handle;
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
    /// The version that was changed; `None` where the server cannot tell.
    pub before: Option<VersionTag>,
    /// Its attributes after the change; `None` where the server does not tell.
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

/// A file that was found or made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Entry {
    /// What the server calls it.
    pub handle: Handle,
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
    /// Where a listing goes on behind it.
    pub cookie: Cookie,
    /// What the server calls the file; `None` from READDIR, and where the server does not say.
    pub handle: Option<Handle>,
    /// Its attributes; `None` from READDIR, and where the server does not say: it may have gone away meanwhile.
    pub attributes: Option<Attributes>,
}

/// A place in the listing of a directory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Cookie {
    /// Means something to the server alone, but for 0, which is the start.
    pub value: u64,
    /// Came with it: the server sees by it whether it still understands the value. Zeros at the start.
    pub verifier: [u8; 8],
}

impl Cookie {
    /// In front of the first entry.
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
    /// All of them.
    pub const ALL: Self = Self(0x3f);

    /// The rights of the protocol's bits; what is no right is left out.
    pub const fn from_bits(bits: u32) -> Self {
        Self(bits & Self::ALL.0)
    }

    /// The protocol's bits.
    pub const fn bits(self) -> u32 {
        self.0
    }

    /// Are all of these among them?
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
    /// A regular file that bears the name is taken, and of these attributes its size is set.
    Unchecked(Changes),
    /// What bears the name is an error.
    Guarded(Changes),
    /// What bears the name is an error, unless the same call made it: the verifier, eight bytes that nobody else uses, tells.
    /// So the call may be repeated when its answer was lost. The file's attributes, its mode and times at least, are to be set
    /// by [`setattr`](crate::fs::FileSystem::setattr): until then the server may keep the verifier there.
    Exclusive([u8; 8]),
}

/// What [`mknod`](crate::fs::FileSystem::mknod) makes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Node {
    /// A character device, of this major and minor number.
    CharacterDevice(u32, u32),
    /// A block device, of this major and minor number.
    BlockDevice(u32, u32),
    /// A socket.
    Socket,
    /// A named pipe.
    Pipe,
}

/// What a server can do, and likes best (FSINFO, RFC 1813 section 3.3.19). The reads and writes of this library are of any
/// length: it cuts them itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FsInfo {
    /// Bytes that one READ returns at most.
    pub rtmax: u32,
    /// Bytes that a READ better asks for.
    pub rtpref: u32,
    /// What that better is a multiple of, in bytes.
    pub rtmult: u32,
    /// Bytes that one WRITE takes at most.
    pub wtmax: u32,
    /// Bytes that a WRITE better brings.
    pub wtpref: u32,
    /// What that better is a multiple of, in bytes.
    pub wtmult: u32,
    /// Bytes that a READDIR better asks for.
    pub dtpref: u32,
    /// Bytes of the largest file.
    pub maxfilesize: u64,
    /// Resolution of the server's times.
    pub time_delta: Duration,
    /// What else it can do.
    pub properties: Properties,
}

/// What a file system can do.
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
    /// Hard links of one file at most.
    pub linkmax: u32,
    /// Bytes of a name at most.
    pub name_max: u32,
    /// Longer names are refused, not cut.
    pub no_trunc: bool,
    /// Only a privileged user changes owners.
    pub chown_restricted: bool,
    /// Names do not tell upper from lower case.
    pub case_insensitive: bool,
    /// Names keep the case in which they were made.
    pub case_preserving: bool,
}
