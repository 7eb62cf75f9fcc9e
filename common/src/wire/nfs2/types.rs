//! Data types of NFS version 2 (RFC 1094, section 2.3).

use crate::wire::xdr::{Decode, Encode, Reader, Writer, XdrError};

/// A file handle (`FHSIZE`), in bytes: always so many.
pub const FILE_HANDLE_BYTES: usize = 32;
/// The most data that one READ or WRITE carries (`MAXDATA`), in bytes.
pub const MAX_DATA: u32 = 8192;
/// The longest path (`MAXPATHLEN`), in bytes.
pub const MAX_PATH: u32 = 1024;
/// The longest name (`MAXNAMLEN`), in bytes.
pub const MAX_NAME: u32 = 255;

enumeration! {
    /// `stat` (RFC 1094, section 2.3.1)
    pub enum Status ("stat") {
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
        /// No such device.
        NoDev = 19,
        /// Not a directory.
        NotDir = 20,
        /// A directory, where none is allowed.
        IsDir = 21,
        /// File too large.
        FBig = 27,
        /// No space left.
        NoSpc = 28,
        /// A read-only file system.
        RoFs = 30,
        /// Name too long.
        NameTooLong = 63,
        /// Directory not empty.
        NotEmpty = 66,
        /// Quota exceeded.
        DQuot = 69,
        /// The file behind the handle is gone, or access to it has been revoked.
        Stale = 70,
        /// The server's write cache was flushed to disk.
        WriteFlushed = 99,
    }
}

// The RFC's `union switch (stat status)`, whose default is void.
status_union!(Status);

/// What the server calls a file (`fhandle`), opaque to the client.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct FileHandle<'a>(pub &'a [u8; FILE_HANDLE_BYTES]);

impl Encode for FileHandle<'_> {
    fn encode(&self, w: &mut Writer<'_>) {
        w.opaque_fixed(self.0);
    }
}

impl<'a> Decode<'a> for FileHandle<'a> {
    fn decode(r: &mut Reader<'a>) -> Result<Self, XdrError> {
        r.opaque_fixed().map(Self)
    }
}

/// Data that a transport may place apart from the message (DDP-eligible, RFC 8267, section 3): data of reads and writes, and
/// the target of a symbolic link.
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
    /// `ftype`. Sockets are of no type, named pipes are character devices with the number [`Attributes::PIPE`]: the bits of
    /// the mode tell them.
    pub enum FileType ("ftype") {
        /// None of the others.
        None = 0,
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
    }
}

record! {
    /// `timeval`: since 1970, UTC.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
    pub struct Time {
        /// Seconds.
        pub seconds: u32,
        /// Microseconds within the second.
        pub microseconds: u32,
    }
}

/// The bits of a mode that say the type of a file (RFC 1094, section 2.3.5).
pub mod mode {
    /// All of them.
    pub const TYPE: u32 = 0o170_000;
    /// Named pipe. The RFC leaves it out; servers use it in CREATE.
    pub const PIPE: u32 = 0o010_000;
    /// Character device.
    pub const CHARACTER: u32 = 0o020_000;
    /// Directory.
    pub const DIRECTORY: u32 = 0o040_000;
    /// Block device.
    pub const BLOCK: u32 = 0o060_000;
    /// Regular file.
    pub const REGULAR: u32 = 0o100_000;
    /// Symbolic link.
    pub const SYMLINK: u32 = 0o120_000;
    /// Socket.
    pub const SOCKET: u32 = 0o140_000;
}

/// `fattr`: 68 bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Attributes {
    /// Type.
    pub kind: FileType,
    /// Permissions, set-id and sticky bits, and the type again ([`mode`]).
    pub mode: u32,
    /// Hard links.
    pub links: u32,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Bytes in the file.
    pub size: u32,
    /// Bytes of a block.
    pub block_bytes: u32,
    /// The number of a device.
    pub device: u32,
    /// Units of 512 bytes of storage that it takes.
    pub blocks: u32,
    /// File system.
    pub fsid: u32,
    /// Number within it.
    pub fileid: u32,
    /// Last access.
    pub atime: Time,
    /// Last change of the data.
    pub mtime: Time,
    /// Last change of the attributes.
    pub ctime: Time,
}

/// Words of an encoded [`Attributes`].
const ATTRIBUTES_WORDS: usize = ATTRIBUTES_BYTES / 4;
/// Bytes of an encoded [`Attributes`].
pub const ATTRIBUTES_BYTES: usize = 68;

impl Attributes {
    /// The device number of a named pipe.
    pub const PIPE: u32 = u32::MAX;
}

impl Encode for Attributes {
    fn encode(&self, w: &mut Writer<'_>) {
        let words: [u32; ATTRIBUTES_WORDS] = [
            self.kind.code(),
            self.mode,
            self.links,
            self.uid,
            self.gid,
            self.size,
            self.block_bytes,
            self.device,
            self.blocks,
            self.fsid,
            self.fileid,
            self.atime.seconds,
            self.atime.microseconds,
            self.mtime.seconds,
            self.mtime.microseconds,
            self.ctime.seconds,
            self.ctime.microseconds,
        ];
        w.words(words);
    }
}

impl Decode<'_> for Attributes {
    fn decode(r: &mut Reader<'_>) -> Result<Self, XdrError> {
        let words: [u32; ATTRIBUTES_WORDS] = r.words()?;
        let time = |at: usize| Time {
            seconds: words[at],
            microseconds: words[at + 1],
        };
        Ok(Self {
            kind: FileType::from_code(words[0]).ok_or(XdrError::BadValue {
                what: "ftype",
                value: words[0],
            })?,
            mode: words[1],
            links: words[2],
            uid: words[3],
            gid: words[4],
            size: words[5],
            block_bytes: words[6],
            device: words[7],
            blocks: words[8],
            fsid: words[9],
            fileid: words[10],
            atime: time(11),
            mtime: time(13),
            ctime: time(15),
        })
    }
}

/// The word that stands for an attribute that stays.
const KEEP: u32 = u32::MAX;

/// What a SETATTR or a CREATE does to a time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SetTime {
    /// Nothing.
    #[default]
    Keep,
    /// Sets it to the server's time. The RFC has no word for it: clients say it by [`SetTime::SERVER_TIME`].
    ServerTime,
    /// Sets it to this.
    To(Time),
}

impl SetTime {
    /// So many microseconds, which no second has, stand for the server's time.
    pub const SERVER_TIME: u32 = 1_000_000;
}

impl Encode for SetTime {
    fn encode(&self, w: &mut Writer<'_>) {
        w.words(match self {
            Self::Keep => [KEEP, KEEP],
            Self::ServerTime => [0, Self::SERVER_TIME],
            Self::To(time) => [time.seconds, time.microseconds],
        });
    }
}

impl Decode<'_> for SetTime {
    fn decode(r: &mut Reader<'_>) -> Result<Self, XdrError> {
        Ok(match r.words()? {
            [KEEP, _] | [_, KEEP] => Self::Keep,
            [_, Self::SERVER_TIME] => Self::ServerTime,
            [seconds, microseconds] => Self::To(Time {
                seconds,
                microseconds,
            }),
        })
    }
}

/// `sattr`: the attributes to set. Those that are `None` or [`SetTime::Keep`] stay; on the wire they are -1.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SetAttributes {
    /// Permissions; in a CREATE the type too.
    pub mode: Option<u32>,
    /// Owner.
    pub uid: Option<u32>,
    /// Group.
    pub gid: Option<u32>,
    /// Bytes in the file; in a CREATE of a device its number.
    pub size: Option<u32>,
    /// Last access.
    pub atime: SetTime,
    /// Last change of the data.
    pub mtime: SetTime,
}

impl Encode for SetAttributes {
    fn encode(&self, w: &mut Writer<'_>) {
        let word = |value: Option<u32>| value.unwrap_or(KEEP);
        w.words([self.mode, self.uid, self.gid, self.size].map(word));
        self.atime.encode(w);
        self.mtime.encode(w);
    }
}

impl Decode<'_> for SetAttributes {
    fn decode(r: &mut Reader<'_>) -> Result<Self, XdrError> {
        /// What some clients of 16 bits mean by -1.
        const KEEP_MODE: u32 = 0xFFFF;
        let [mode, uid, gid, size] = r.words()?;
        let set = |word: u32| (word != KEEP).then_some(word);
        Ok(Self {
            mode: set(mode).filter(|mode| *mode != KEEP_MODE),
            uid: set(uid),
            gid: set(gid),
            size: set(size),
            atime: Decode::decode(r)?,
            mtime: Decode::decode(r)?,
        })
    }
}
