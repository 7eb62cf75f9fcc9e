//! Data types of NFS version 3 (RFC 1813, sections 2.3 to 2.6).

use std::fmt;

use crate::wire::xdr::{Decode, Encode, Reader, Writer, XdrError};

/// The longest file handle (`NFS3_FHSIZE`), in bytes.
pub const MAX_FILE_HANDLE: u32 = 64;
/// The longest name or path that decoders accept, in bytes. The store decides what it allows.
pub const MAX_NAME: u32 = 4096;
/// The most data that one READ or WRITE may carry here, in bytes.
pub const MAX_DATA: u32 = 4 << 20;

enumeration! {
    /// `nfsstat3` (RFC 1813, section 2.6)
    pub enum Status ("nfsstat3") {
        /// The call completed.
        Ok = 0,
        /// Not owner.
        Perm = 1,
        /// No such file or directory.
        NoEnt = 2,
        /// A hard error of the storage.
        Io = 5,
        /// No such device or address.
        Nxio = 6,
        /// Permission denied.
        Access = 13,
        /// The name is there already.
        Exist = 17,
        /// A hard link across file systems.
        XDev = 18,
        /// No such device.
        NoDev = 19,
        /// Not a directory.
        NotDir = 20,
        /// A directory, where none is allowed.
        IsDir = 21,
        /// An invalid or unsupported argument.
        Inval = 22,
        /// File too large.
        FBig = 27,
        /// No space left.
        NoSpc = 28,
        /// A read-only file system.
        RoFs = 30,
        /// Too many hard links.
        MLink = 31,
        /// Name too long.
        NameTooLong = 63,
        /// Directory not empty.
        NotEmpty = 66,
        /// Quota exceeded.
        DQuot = 69,
        /// The file behind the handle is gone, or access to it has been revoked.
        Stale = 70,
        /// Too many levels of remote in a path.
        Remote = 71,
        /// The file handle is not the server's.
        BadHandle = 10001,
        /// The file has changed since the `ctime` that guards a SETATTR.
        NotSync = 10002,
        /// A READDIR cookie is stale.
        BadCookie = 10003,
        /// Operation not supported.
        NotSupp = 10004,
        /// The buffer or request is too small.
        TooSmall = 10005,
        /// A failure on the server that fits no other status.
        ServerFault = 10006,
        /// The server does not make objects of this type.
        BadType = 10007,
        /// Begun but not completed in time: the client shall try again with a new xid.
        Jukebox = 10008,
    }
}

impl fmt::Display for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Ok => "ok",
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

/// A call that did not succeed: why, and what its result carries nevertheless.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Failed<F> {
    /// Never [`Status::Ok`].
    pub status: Status,
    /// `resfail` of the procedure.
    pub rest: F,
}

/// The RFC's `switch (nfsstat3 status)`.
impl<T: Encode, F: Encode> Encode for Result<T, Failed<F>> {
    fn encode(&self, w: &mut Writer<'_>) {
        match self {
            Ok(done) => {
                Status::Ok.encode(w);
                done.encode(w);
            }
            Err(failed) => {
                debug_assert_ne!(failed.status, Status::Ok);
                failed.status.encode(w);
                failed.rest.encode(w);
            }
        }
    }
}

impl<'a, T: Decode<'a>, F: Decode<'a>> Decode<'a> for Result<T, Failed<F>> {
    fn decode(r: &mut Reader<'a>) -> Result<Self, XdrError> {
        Ok(match Status::decode(r)? {
            Status::Ok => Ok(T::decode(r)?),
            status => Err(Failed {
                status,
                rest: F::decode(r)?,
            }),
        })
    }
}

opaque! {
    /// What the server calls a file (`nfs_fh3`), opaque to the client; at most 64 bytes.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
    pub struct FileHandle<'a>("file handle", MAX_FILE_HANDLE);
}

/// Data that a transport may place apart from the message (DDP-eligible, RFC 8267): data of reads and writes, and the
/// target of a symbolic link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Payload<'a>(pub &'a [u8]);

impl Encode for Payload<'_> {
    fn encode(&self, w: &mut Writer<'_>) {
        w.payload(self.0);
    }
}

impl<'a> Decode<'a> for Payload<'a> {
    fn decode(r: &mut Reader<'a>) -> Result<Self, XdrError> {
        r.payload("data", MAX_DATA).map(Self)
    }
}

enumeration! {
    /// `ftype3`
    pub enum FileType ("ftype3") {
        /// Regular file.
        Regular = 1,
        /// Directory.
        Directory = 2,
        /// Block device.
        Block = 3,
        /// Character device.
        Character = 4,
        /// Symbolic link.
        Symlink = 5,
        /// Socket.
        Socket = 6,
        /// Named pipe.
        Fifo = 7,
    }
}

record! {
    /// `nfstime3`: since 1970, UTC.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
    pub struct Time {
        /// Seconds.
        pub seconds: u32,
        /// Nanoseconds within the second.
        pub nanoseconds: u32,
    }
}

record! {
    /// `specdata3`: the numbers of a device.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub struct Device {
        /// Major.
        pub major: u32,
        /// Minor.
        pub minor: u32,
    }
}

/// `fattr3`: 84 bytes.
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
/// Words of an encoded [`Attributes`].
const ATTRIBUTES_WORDS: usize = ATTRIBUTES_BYTES / 4;

/// All words at once: attributes are in every reply.
impl Encode for Attributes {
    fn encode(&self, w: &mut Writer<'_>) {
        let high = |value: u64| (value >> 32) as u32;
        let low = |value: u64| value as u32;
        let words: [u32; ATTRIBUTES_WORDS] = [
            self.kind.code(),
            self.mode,
            self.links,
            self.uid,
            self.gid,
            high(self.size),
            low(self.size),
            high(self.used),
            low(self.used),
            self.device.major,
            self.device.minor,
            high(self.fsid),
            low(self.fsid),
            high(self.fileid),
            low(self.fileid),
            self.atime.seconds,
            self.atime.nanoseconds,
            self.mtime.seconds,
            self.mtime.nanoseconds,
            self.ctime.seconds,
            self.ctime.nanoseconds,
        ];
        w.words(words);
    }
}

impl Decode<'_> for Attributes {
    fn decode(r: &mut Reader<'_>) -> Result<Self, XdrError> {
        let words: [u32; ATTRIBUTES_WORDS] = r.words()?;
        let wide = |at: usize| u64::from(words[at]) << 32 | u64::from(words[at + 1]);
        let time = |at: usize| Time {
            seconds: words[at],
            nanoseconds: words[at + 1],
        };
        Ok(Self {
            kind: FileType::from_code(words[0]).ok_or(XdrError::BadValue {
                what: "ftype3",
                value: words[0],
            })?,
            mode: words[1],
            links: words[2],
            uid: words[3],
            gid: words[4],
            size: wide(5),
            used: wide(7),
            device: Device {
                major: words[9],
                minor: words[10],
            },
            fsid: wide(11),
            fileid: wide(13),
            atime: time(15),
            mtime: time(17),
            ctime: time(19),
        })
    }
}

/// Bytes of an encoded [`Attributes`].
pub const ATTRIBUTES_BYTES: usize = 84;

union! {
    /// What a SETATTR or a CREATE does to a time.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub enum SetTime ("time_how") {
        /// Nothing.
        #[default]
        Keep = 0,
        /// Sets it to the server's time.
        ServerTime = 1,
        /// Sets it to this.
        To(time: Time) = 2,
    }
}

record! {
    /// `sattr3`: the attributes to set. Those that are `None` or [`SetTime::Keep`] stay.
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
    }
}

record! {
    /// `wcc_attr`: from before an operation, for weak cache consistency.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct WccAttributes {
        /// Bytes in the file.
        pub size: u64,
        /// Last change of the data.
        pub mtime: Time,
        /// Last change of the attributes.
        pub ctime: Time,
    }
}

impl From<&Attributes> for WccAttributes {
    fn from(all: &Attributes) -> Self {
        Self {
            size: all.size,
            mtime: all.mtime,
            ctime: all.ctime,
        }
    }
}

record! {
    /// `wcc_data`: attributes from before and after an operation, where the server knows them.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub struct WccData {
        /// Right before.
        pub before: Option<WccAttributes>,
        /// Right after.
        pub after: Option<Attributes>,
    }
}
