//! Results of the NFS version 2 procedures (RFC 1094, section 2.2).

use super::ATTRIBUTES_BYTES;
use super::types::{Attributes, FileHandle, MAX_NAME, Payload, Status};
use crate::wire::xdr::{Decode, Encode, Reader, Writer, XdrError, padding};

/// GETATTR, SETATTR and WRITE (`attrstat`)
pub type AttributesResult = Result<Attributes, Status>;
/// LOOKUP, CREATE and MKDIR (`diropres`)
pub type ObjectResult<'a> = Result<ObjectOk<'a>, Status>;
/// READLINK (`readlinkres`): the target
pub type ReadLinkResult<'a> = Result<Payload<'a>, Status>;
/// READ (`readres`)
pub type ReadResult<'a> = Result<ReadOk<'a>, Status>;
/// REMOVE, RENAME, LINK, SYMLINK and RMDIR (`stat`)
pub type ChangeResult = Result<(), Status>;
/// READDIR (`readdirres`)
pub type ReadDirResult<'a> = Result<ReadDirOk<'a>, Status>;
/// STATFS (`statfsres`)
pub type StatFsResult = Result<StatFsOk, Status>;

/// The most entries that a decoder takes in one result: more than a READDIR's count has room for.
const MAX_ENTRIES: u32 = 1 << 12;

record! {
    /// What LOOKUP found, or what CREATE or MKDIR made.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct ObjectOk<'a> {
        /// Handle of the object.
        pub file: FileHandle<'a>,
        /// Its attributes.
        pub attributes: Attributes,
    }
}

record! {
    /// Data that was read. A server writes it in place with [`ReadReply`].
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct ReadOk<'a> {
        /// Attributes of the file after the read: it has ended where the data reaches its size.
        pub attributes: Attributes,
        /// The data read.
        pub data: Payload<'a>,
    }
}

/// `entry`
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry<'a> {
    /// Number of the file within its file system.
    pub fileid: u32,
    /// Its name in the directory, as bytes: no encoding is promised.
    pub name: &'a [u8],
    /// Where a further READDIR goes on.
    pub cookie: u32,
}

impl Entry<'_> {
    /// Bytes of an entry with a name of so many bytes, the TRUE before it included.
    pub const fn bytes(name: usize) -> usize {
        4 + 4 + 4 + name + padding(name) + 4
    }
}

impl Encode for Entry<'_> {
    fn encode(&self, w: &mut Writer<'_>) {
        w.u32(self.fileid);
        w.opaque(self.name);
        w.u32(self.cookie);
    }
}

impl<'a> Decode<'a> for Entry<'a> {
    fn decode(r: &mut Reader<'a>) -> Result<Self, XdrError> {
        Ok(Self {
            fileid: r.u32()?,
            name: r.opaque("name", MAX_NAME)?,
            cookie: r.u32()?,
        })
    }
}

/// A part of a directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReadDirOk<'a> {
    /// The entries.
    pub entries: Vec<Entry<'a>>,
    /// There are no more behind them.
    pub eof: bool,
}

impl ReadDirOk<'_> {
    /// Bytes of one without entries.
    pub const EMPTY_BYTES: usize = 4 + 4;
}

impl Encode for ReadDirOk<'_> {
    fn encode(&self, w: &mut Writer<'_>) {
        w.chain(&self.entries);
        w.bool(self.eof);
    }
}

impl<'a> Decode<'a> for ReadDirOk<'a> {
    fn decode(r: &mut Reader<'a>) -> Result<Self, XdrError> {
        Ok(Self {
            entries: r.chain("directory entries", MAX_ENTRIES)?,
            eof: r.bool()?,
        })
    }
}

record! {
    /// Room in the file system.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct StatFsOk {
        /// What a READ or WRITE better carries, in bytes.
        pub transfer_bytes: u32,
        /// Bytes of a block.
        pub block_bytes: u32,
        /// Blocks in all.
        pub blocks: u32,
        /// Blocks free.
        pub free_blocks: u32,
        /// Blocks free for users without privilege.
        pub available_blocks: u32,
    }
}

/// A successful READ result made in place: room for the most bytes that there can be, the data copied straight into it, and
/// then how many there were.
#[derive(Debug)]
pub struct ReadReply<'w, 'v> {
    w: &'w mut Writer<'v>,
    start: usize,
}

impl<'w, 'v> ReadReply<'w, 'v> {
    /// Status, attributes and the length of the data.
    const HEAD: usize = 4 + ATTRIBUTES_BYTES + 4;

    /// Makes room for `max` bytes of data.
    pub fn begin(w: &'w mut Writer<'v>, max: u32) -> Self {
        let start = w.position();
        w.zeros(Self::HEAD + max as usize);
        Self { w, start }
    }

    /// The room, zero at first.
    pub fn data(&mut self) -> &mut [u8] {
        self.w.written(self.start + Self::HEAD)
    }

    /// The first `count` bytes of the room were read.
    ///
    /// # Panics
    /// Where `count` is above the room.
    pub fn finish(self, count: u32, attributes: &Attributes) {
        let Self { w, start } = self;
        let end = start + Self::HEAD + count as usize;
        assert!(end <= w.position(), "more data than there is room for");
        w.truncate(end);
        w.zeros(padding(count as usize));
        w.overwrite(start, &Self::head(attributes));
        w.patch_u32(start + Self::HEAD - 4, count);
    }

    /// Writes the result without its data, `count` bytes that go another way (RFC 8166: into a write chunk). Where they
    /// would stand.
    pub fn placed(w: &mut Writer<'_>, count: u32, attributes: &Attributes) -> usize {
        Self::head(attributes).encode(w);
        let at = w.position();
        w.patch_u32(at - 4, count);
        at
    }

    /// Takes the room back: another result is written instead.
    pub fn cancel(self) {
        self.w.truncate(self.start);
    }

    fn head(attributes: &Attributes) -> ReadResult<'static> {
        Ok(ReadOk {
            attributes: *attributes,
            data: Payload(&[]),
        })
    }
}
