//! What is told of files, and asked of them.

use super::Handle;
use crate::{
    metadata::{Changes, FileKind},
    nfs::Found,
};
use odafs_common::wire::nfs3::{self, CreateHow, Device, MakeNode, access, properties};
use std::{
    ffi::OsString,
    ops::{BitAnd, BitOr},
    time::{Duration, SystemTime},
};

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
    pub const READ: Self = Self(access::READ);
    /// Look up a name in a directory.
    pub const LOOKUP: Self = Self(access::LOOKUP);
    /// Rewrite existing data, or change entries of a directory.
    pub const MODIFY: Self = Self(access::MODIFY);
    /// Write new data, or add entries.
    pub const EXTEND: Self = Self(access::EXTEND);
    /// Delete an entry of a directory.
    pub const DELETE: Self = Self(access::DELETE);
    /// Execute a file.
    pub const EXECUTE: Self = Self(access::EXECUTE);
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
    /// by [`setattr`](super::FileSystem::setattr): until then the server may keep the verifier there.
    Exclusive([u8; 8]),
}

/// What [`mknod`](super::FileSystem::mknod) makes.
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

impl Node {
    pub(super) fn with(self, attributes: nfs3::SetAttributes) -> MakeNode {
        match self {
            Self::CharacterDevice(major, minor) => {
                MakeNode::Character(attributes, Device { major, minor })
            }
            Self::BlockDevice(major, minor) => MakeNode::Block(attributes, Device { major, minor }),
            Self::Socket => MakeNode::Socket(attributes),
            Self::Pipe => MakeNode::Fifo(attributes),
        }
    }
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
    /// [`pathconf`](super::FileSystem::pathconf) says the same of every file.
    pub homogeneous: bool,
    /// Times can be set.
    pub cansettime: bool,
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

impl From<nfs3::Attributes> for Attributes {
    fn from(from: nfs3::Attributes) -> Self {
        Self {
            kind: match from.kind {
                nfs3::FileType::Regular => FileKind::Regular,
                nfs3::FileType::Directory => FileKind::Directory,
                nfs3::FileType::Block => FileKind::BlockDevice,
                nfs3::FileType::Character => FileKind::CharacterDevice,
                nfs3::FileType::Symlink => FileKind::Symlink,
                nfs3::FileType::Socket => FileKind::Socket,
                nfs3::FileType::Fifo => FileKind::Pipe,
            },
            mode: from.mode,
            nlink: from.links,
            uid: from.uid,
            gid: from.gid,
            size: from.size,
            used: from.used,
            rdev: (from.device.major, from.device.minor),
            fsid: from.fsid,
            fileid: from.fileid,
            atime: time(from.atime),
            mtime: time(from.mtime),
            ctime: time(from.ctime),
            change: u64::from(from.ctime.seconds) << 32 | u64::from(from.ctime.nanoseconds),
        }
    }
}

fn time(from: nfs3::Time) -> SystemTime {
    SystemTime::UNIX_EPOCH + duration(from)
}

fn duration(from: nfs3::Time) -> Duration {
    Duration::new(from.seconds.into(), from.nanoseconds.min(999_999_999))
}

impl From<Found> for Entry {
    fn from(found: Found) -> Self {
        Self {
            handle: found.handle,
            attributes: found.attributes.into(),
        }
    }
}

impl From<&Create> for CreateHow {
    fn from(how: &Create) -> Self {
        match how {
            Create::Unchecked(attributes) => Self::Unchecked(attributes.into()),
            Create::Guarded(attributes) => Self::Guarded(attributes.into()),
            Create::Exclusive(verifier) => Self::Exclusive(*verifier),
        }
    }
}

impl From<nfs3::FsInfoOk> for FsInfo {
    fn from(from: nfs3::FsInfoOk) -> Self {
        let can = |property| from.properties & property != 0;
        Self {
            rtmax: from.read_max,
            rtpref: from.read_preferred,
            rtmult: from.read_multiple,
            wtmax: from.write_max,
            wtpref: from.write_preferred,
            wtmult: from.write_multiple,
            dtpref: from.directory_preferred,
            maxfilesize: from.file_max,
            time_delta: duration(from.time_delta),
            properties: Properties {
                link: can(properties::LINK),
                symlink: can(properties::SYMLINK),
                homogeneous: can(properties::HOMOGENEOUS),
                cansettime: can(properties::CAN_SET_TIME),
            },
        }
    }
}

impl From<nfs3::PathConfOk> for PathConf {
    fn from(from: nfs3::PathConfOk) -> Self {
        Self {
            linkmax: from.link_max,
            name_max: from.name_max,
            no_trunc: from.no_truncate,
            chown_restricted: from.chown_restricted,
            case_insensitive: from.case_insensitive,
            case_preserving: from.case_preserving,
        }
    }
}
