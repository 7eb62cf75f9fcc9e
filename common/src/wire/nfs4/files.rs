//! Operations on files and names (RFC 7530, section 16; RFC 8881, section 18).
//!
//! LOOKUP, REMOVE and LINK take a [`Name`] alone, VERIFY and NVERIFY a [`RawAttributes`], PUTFH a [`FileHandle`].

use super::types::{ChangeInfo, FileHandle, FileType, Name, RawAttributes, StateId, Verifier};
use super::{Bitmap, Device, Payload, Stable, Status};
use crate::wire::xdr::{Decode, Encode, Reader, Writer, XdrError, padding};

/// Bits of [`AccessArgs::access`] and [`AccessOk`] (RFC 7530, section 16.1; RFC 8276, section 8.6).
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
    /// Read extended attributes (4.2).
    pub const XATTR_READ: u32 = 0x40;
    /// Write extended attributes (4.2).
    pub const XATTR_WRITE: u32 = 0x80;
    /// List extended attributes (4.2).
    pub const XATTR_LIST: u32 = 0x100;
}

record! {
    /// ACCESS
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct AccessArgs {
        /// The rights asked about: bits of [`access`].
        pub access: u32,
    }
}

record! {
    /// What ACCESS grants.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct AccessOk {
        /// The rights that the server can tell.
        pub supported: u32,
        /// Those of them that are granted.
        pub access: u32,
    }
}

record! {
    /// COMMIT
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct CommitArgs {
        /// The first byte.
        pub offset: u64,
        /// The number of bytes. 0: all from there on.
        pub count: u32,
    }
}

record! {
    /// Data that is on stable storage now.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct CommitOk {
        /// Changes whenever unstable data may have been lost.
        pub verifier: Verifier,
    }
}

/// `createtype4`: what CREATE makes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CreateType<'a> {
    /// A symbolic link to this target.
    Symlink(Payload<'a>),
    /// A block device.
    Block(Device),
    /// A character device.
    Character(Device),
    /// A socket.
    Socket,
    /// A named pipe.
    Fifo,
    /// A directory.
    Directory,
    /// A type that CREATE does not make: [`Status::BadType`].
    Other(FileType),
}

impl Encode for CreateType<'_> {
    fn encode(&self, w: &mut Writer<'_>) {
        match self {
            Self::Symlink(target) => {
                FileType::Symlink.encode(w);
                target.encode(w);
            }
            Self::Block(device) => {
                FileType::Block.encode(w);
                device.encode(w);
            }
            Self::Character(device) => {
                FileType::Character.encode(w);
                device.encode(w);
            }
            Self::Socket => FileType::Socket.encode(w),
            Self::Fifo => FileType::Fifo.encode(w),
            Self::Directory => FileType::Directory.encode(w),
            Self::Other(kind) => kind.encode(w),
        }
    }
}

impl<'a> Decode<'a> for CreateType<'a> {
    fn decode(r: &mut Reader<'a>) -> Result<Self, XdrError> {
        Ok(match FileType::decode(r)? {
            FileType::Symlink => Self::Symlink(Payload::decode(r)?),
            FileType::Block => Self::Block(Device::decode(r)?),
            FileType::Character => Self::Character(Device::decode(r)?),
            FileType::Socket => Self::Socket,
            FileType::Fifo => Self::Fifo,
            FileType::Directory => Self::Directory,
            kind => Self::Other(kind),
        })
    }
}

record! {
    /// CREATE, of anything but a regular file. OPEN makes those.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct CreateArgs<'a> {
        /// The kind of object to make.
        pub kind: CreateType<'a>,
        /// The name to give it in the current directory.
        pub name: Name<'a>,
        /// The attributes to give it.
        pub attributes: RawAttributes<'a>,
    }
}

record! {
    /// An object that was made.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct CreateOk {
        /// The change attributes of the directory.
        pub directory: ChangeInfo,
        /// The attributes that were set.
        pub set: Bitmap,
    }
}

record! {
    /// GETATTR
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct GetAttributesArgs {
        /// The attributes asked for.
        pub asked: Bitmap,
    }
}

record! {
    /// OPENATTR
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct OpenAttributeDirectoryArgs {
        /// Whether to make the directory if it is not there.
        pub create: bool,
    }
}

record! {
    /// READ
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct ReadArgs {
        /// The open, lock or delegation, or a special stateid.
        pub state: StateId,
        /// The first byte.
        pub offset: u64,
        /// The number of bytes. The server may return fewer.
        pub count: u32,
    }
}

record! {
    /// Data that was read. A server writes it in place with [`ReadReply`].
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct ReadOk<'a> {
        /// Whether the file ends with the last byte, or before the offset.
        pub eof: bool,
        /// The data.
        pub data: Payload<'a>,
    }
}

record! {
    /// A symbolic link.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct ReadLinkOk<'a> {
        /// Its target.
        pub target: Payload<'a>,
    }
}

record! {
    /// RENAME
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct RenameArgs<'a> {
        /// The old name, in the directory of the saved file handle.
        pub from: Name<'a>,
        /// The new name, in the directory of the current file handle.
        pub to: Name<'a>,
    }
}

record! {
    /// The change attributes of the directories of RENAME.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct RenameOk {
        /// The directory of the old name.
        pub from: ChangeInfo,
        /// The directory of the new name.
        pub to: ChangeInfo,
    }
}

record! {
    /// SETATTR
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct SetAttributesArgs<'a> {
        /// Used only if the size is set.
        pub state: StateId,
        /// The attributes to set.
        pub attributes: RawAttributes<'a>,
    }
}

record! {
    /// The result of SETATTR. It has a body even if SETATTR fails.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct SetAttributesResult {
        /// If it is not [`Status::Ok`], perhaps not all attributes were set.
        pub status: Status,
        /// The attributes that were set.
        pub set: Bitmap,
    }
}

record! {
    /// WRITE
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct WriteArgs<'a> {
        /// The open, lock or delegation, or a special stateid.
        pub state: StateId,
        /// The first byte.
        pub offset: u64,
        /// How stable the data have to be before the reply.
        pub stable: Stable,
        /// The data.
        pub data: Payload<'a>,
    }
}

record! {
    /// Data that was written.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct WriteOk {
        /// The number of bytes that were written.
        pub count: u32,
        /// How stable they are.
        pub committed: Stable,
        /// Changes whenever unstable data may have been lost.
        pub verifier: Verifier,
    }
}

/// ACCESS
pub type AccessResult = Result<AccessOk, Status>;
/// COMMIT
pub type CommitResult = Result<CommitOk, Status>;
/// CREATE
pub type CreateResult = Result<CreateOk, Status>;
/// GETATTR; a server writes it from [`super::Attributes`] with [`encode_get_attributes`].
pub type GetAttributesResult<'a> = Result<RawAttributes<'a>, Status>;
/// GETFH
pub type GetFileHandleResult<'a> = Result<FileHandle<'a>, Status>;
/// LINK, REMOVE, SETXATTR, REMOVEXATTR
pub type ChangeResult = Result<ChangeInfo, Status>;
/// READ
pub type ReadResult<'a> = Result<ReadOk<'a>, Status>;
/// READLINK
pub type ReadLinkResult<'a> = Result<ReadLinkOk<'a>, Status>;
/// RENAME
pub type RenameResult = Result<RenameOk, Status>;
/// WRITE
pub type WriteResult = Result<WriteOk, Status>;

/// Writes a successful GETATTR result, with those of the attributes that are asked for.
pub fn encode_get_attributes(
    attributes: &super::Attributes<'_>,
    asked: &Bitmap,
    w: &mut Writer<'_>,
) {
    Status::Ok.encode(w);
    attributes.encode_asked(asked, w);
}

/// Writes a successful READ result in place: makes room for the most bytes that there can be, has the data copied into it, and
/// then cuts it to those that there are.
#[derive(Debug)]
pub struct ReadReply<'w, 'v> {
    w: &'w mut Writer<'v>,
    start: usize,
}

impl<'w, 'v> ReadReply<'w, 'v> {
    /// Status, EOF and the length of the data.
    const HEAD: usize = 4 + 4 + 4;

    /// Makes room for `max` bytes of data.
    pub fn begin(w: &'w mut Writer<'v>, max: u32) -> Self {
        let start = w.position();
        w.zeros(Self::HEAD + max as usize);
        Self { w, start }
    }

    /// The room for data, filled with zeros.
    pub fn data(&mut self) -> &mut [u8] {
        self.w.written(self.start + Self::HEAD)
    }

    /// The first `count` bytes of the room are what was read.
    ///
    /// # Panics
    /// If `count` is more than there is room for.
    pub fn finish(self, count: u32, eof: bool) {
        let Self { w, start } = self;
        let end = start + Self::HEAD + count as usize;
        assert!(end <= w.position(), "more data than there is room for");
        w.truncate(end);
        w.zeros(padding(count as usize));
        w.patch_u32(start, Status::Ok.code());
        w.patch_u32(start + 4, eof.into());
        w.patch_u32(start + 8, count);
    }

    /// Writes the result without its data: `count` bytes, which go into a write chunk (RFC 8166). Returns their position in the
    /// reply.
    pub fn placed(w: &mut Writer<'_>, count: u32, eof: bool) -> usize {
        w.words([Status::Ok.code(), eof.into(), count]);
        w.position()
    }
}
