//! Arguments of the NFS version 3 procedures (RFC 1813, section 3.3). GETATTR, READLINK, FSSTAT, FSINFO
//! and PATHCONF take a [`FileHandle`] alone.

use super::types::{Device, FileHandle, FileType, MAX_NAME, Payload, SetAttributes, Time};
use crate::wire::xdr::{Decode, Encode, Reader, Writer, XdrError};

/// A name in a directory (`diropargs3`): LOOKUP, REMOVE, RMDIR and a part of others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DirectoryName<'a> {
    /// The directory.
    pub directory: FileHandle<'a>,
    /// The name: any bytes, not checked here.
    pub name: &'a [u8],
}

impl Encode for DirectoryName<'_> {
    fn encode(&self, w: &mut Writer<'_>) {
        self.directory.encode(w);
        w.opaque(self.name);
    }
}

impl<'a> Decode<'a> for DirectoryName<'a> {
    fn decode(r: &mut Reader<'a>) -> Result<Self, XdrError> {
        Ok(Self {
            directory: FileHandle::decode(r)?,
            name: r.opaque("name", MAX_NAME)?,
        })
    }
}

record! {
    /// SETATTR
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct SetAttributesArgs<'a> {
        /// What to change.
        pub file: FileHandle<'a>,
        /// What to set.
        pub attributes: SetAttributes,
        /// Only if the `ctime` is this; else NFS3ERR_NOT_SYNC.
        pub guard: Option<Time>,
    }
}

/// Bits of [`AccessArgs::access`] (RFC 1813, section 3.3.4).
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

record! {
    /// ACCESS
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct AccessArgs<'a> {
        /// The file or directory.
        pub file: FileHandle<'a>,
        /// The rights asked about: bits of [`access`].
        pub access: u32,
    }
}

record! {
    /// READ
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct ReadArgs<'a> {
        /// The file.
        pub file: FileHandle<'a>,
        /// First byte.
        pub offset: u64,
        /// Bytes; the server may return fewer.
        pub count: u32,
    }
}

enumeration! {
    /// `stable_how`
    pub enum Stable ("stable_how") {
        /// The data may be lost until a COMMIT.
        Unstable = 0,
        /// The data, and the metadata needed to read it again, are on stable storage.
        DataSync = 1,
        /// The data and all attributes are on stable storage.
        FileSync = 2,
    }
}

record! {
    /// WRITE. A `count` other than the length of `data` is an error that the server answers.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct WriteArgs<'a> {
        /// The file.
        pub file: FileHandle<'a>,
        /// First byte.
        pub offset: u64,
        /// How many bytes are to be written.
        pub count: u32,
        /// How far it shall get before the reply.
        pub stable: Stable,
        /// The data to write, `count` bytes.
        pub data: Payload<'a>,
    }
}

union! {
    /// `createhow3`
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub enum CreateHow ("createmode3") {
        /// A file that is there already is taken.
        Unchecked(attributes: SetAttributes) = 0,
        /// A file that is there already is an error.
        Guarded(attributes: SetAttributes) = 1,
        /// A file that the same call created before is accepted, and any other is an error. The verifier tells.
        Exclusive(verifier: [u8; 8]) = 2,
    }
}

record! {
    /// CREATE
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct CreateArgs<'a> {
        /// Where.
        pub place: DirectoryName<'a>,
        /// What to do about a file that is there, and the attributes of a new one.
        pub how: CreateHow,
    }
}

record! {
    /// MKDIR
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct MakeDirectoryArgs<'a> {
        /// Where.
        pub place: DirectoryName<'a>,
        /// Its attributes.
        pub attributes: SetAttributes,
    }
}

record! {
    /// SYMLINK
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct SymlinkArgs<'a> {
        /// Where.
        pub place: DirectoryName<'a>,
        /// Its attributes.
        pub attributes: SetAttributes,
        /// The target.
        pub target: Payload<'a>,
    }
}

/// `mknoddata3`: what MKNOD makes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MakeNode {
    /// A character device.
    Character(SetAttributes, Device),
    /// A block device.
    Block(SetAttributes, Device),
    /// A socket.
    Socket(SetAttributes),
    /// A named pipe.
    Fifo(SetAttributes),
    /// A type that has a call of its own: NFS3ERR_BADTYPE.
    Other(FileType),
}

impl Encode for MakeNode {
    fn encode(&self, w: &mut Writer<'_>) {
        let (kind, attributes, device) = match self {
            Self::Character(attributes, device) => {
                (FileType::Character, Some(attributes), Some(device))
            }
            Self::Block(attributes, device) => (FileType::Block, Some(attributes), Some(device)),
            Self::Socket(attributes) => (FileType::Socket, Some(attributes), None),
            Self::Fifo(attributes) => (FileType::Fifo, Some(attributes), None),
            Self::Other(kind) => (*kind, None, None),
        };
        kind.encode(w);
        if let Some(attributes) = attributes {
            attributes.encode(w);
        }
        if let Some(device) = device {
            device.encode(w);
        }
    }
}

impl Decode<'_> for MakeNode {
    fn decode(r: &mut Reader<'_>) -> Result<Self, XdrError> {
        Ok(match FileType::decode(r)? {
            FileType::Character => Self::Character(SetAttributes::decode(r)?, Device::decode(r)?),
            FileType::Block => Self::Block(SetAttributes::decode(r)?, Device::decode(r)?),
            FileType::Socket => Self::Socket(SetAttributes::decode(r)?),
            FileType::Fifo => Self::Fifo(SetAttributes::decode(r)?),
            kind => Self::Other(kind),
        })
    }
}

record! {
    /// MKNOD
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct MakeNodeArgs<'a> {
        /// Where.
        pub place: DirectoryName<'a>,
        /// What.
        pub what: MakeNode,
    }
}

record! {
    /// RENAME
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct RenameArgs<'a> {
        /// The old name.
        pub from: DirectoryName<'a>,
        /// The new name.
        pub to: DirectoryName<'a>,
    }
}

record! {
    /// LINK
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct LinkArgs<'a> {
        /// The file.
        pub file: FileHandle<'a>,
        /// Its further name.
        pub place: DirectoryName<'a>,
    }
}

record! {
    /// READDIR
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct ReadDirArgs<'a> {
        /// The directory.
        pub directory: FileHandle<'a>,
        /// Entries after the one with this cookie; 0 for the first.
        pub cookie: u64,
        /// The verifier that came with the cookie, else zeros.
        pub verifier: [u8; 8],
        /// The most bytes of [`super::ReadDirOk`].
        pub count: u32,
    }
}

record! {
    /// READDIRPLUS
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct ReadDirPlusArgs<'a> {
        /// The directory.
        pub directory: FileHandle<'a>,
        /// Entries after the one with this cookie; 0 for the first.
        pub cookie: u64,
        /// The verifier that came with the cookie, else zeros.
        pub verifier: [u8; 8],
        /// The most bytes of entries, attributes and handles apart.
        pub directory_count: u32,
        /// The most bytes of [`super::ReadDirPlusOk`].
        pub max_count: u32,
    }
}

record! {
    /// COMMIT
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct CommitArgs<'a> {
        /// The file.
        pub file: FileHandle<'a>,
        /// First byte.
        pub offset: u64,
        /// Bytes; 0 for everything from there on.
        pub count: u32,
    }
}
