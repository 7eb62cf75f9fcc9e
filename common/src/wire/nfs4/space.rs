//! Operations of minor version 2 on the bytes of files (RFC 7862, section 15): ALLOCATE, CLONE, COPY, COPY_NOTIFY,
//! DEALLOCATE, IO_ADVISE, OFFLOAD_CANCEL, OFFLOAD_STATUS, READ_PLUS, SEEK and WRITE_SAME.

use super::types::{AtMostOne, List, NetAddress, Opaque, StateId, Time, Verifier};
use super::{Bitmap, ReadArgs, Stable, Status};
use crate::wire::nfs3::MAX_DATA;
use crate::wire::xdr::{Decode, Encode, Reader, Writer, XdrError, padding};

/// The most servers that decoders take in one list.
pub const MAX_SERVERS: u32 = 64;
/// The most contents that decoders take in one READ_PLUS result.
pub const MAX_CONTENTS: u32 = 1 << 16;

record! {
    /// ALLOCATE, DEALLOCATE
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct RangeArgs {
        /// The open, lock or delegation, or a special stateid.
        pub state: StateId,
        /// The first byte.
        pub offset: u64,
        /// Length in bytes.
        pub length: u64,
    }
}

record! {
    /// CLONE, from the saved to the current file handle.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct CloneArgs {
        /// The stateid of the source.
        pub source: StateId,
        /// The stateid of the destination.
        pub destination: StateId,
        /// The first byte of the source.
        pub source_offset: u64,
        /// The first byte of the destination.
        pub destination_offset: u64,
        /// The number of bytes. 0: all from there on.
        pub count: u64,
    }
}

union! {
    /// `netloc4`: a server.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub enum NetLocation<'a> ("netloc_type4") {
        /// By name.
        Name(name: Opaque<'a>) = 1,
        /// By URL.
        Url(url: Opaque<'a>) = 2,
        /// By address.
        Address(address: NetAddress<'a>) = 3,
    }
}

record! {
    /// COPY, from the saved to the current file handle.
    #[derive(Clone, Debug, PartialEq, Eq)]
    pub struct CopyArgs<'a> {
        /// The stateid of the source.
        pub source: StateId,
        /// The stateid of the destination.
        pub destination: StateId,
        /// The first byte of the source.
        pub source_offset: u64,
        /// The first byte of the destination.
        pub destination_offset: u64,
        /// The number of bytes. 0: all from there on.
        pub count: u64,
        /// Whether the bytes are copied in order.
        pub consecutive: bool,
        /// Whether the copy is over with the reply.
        pub synchronous: bool,
        /// The addresses of the source's server. Empty: this server.
        pub source_servers: List<NetLocation<'a>, MAX_SERVERS>,
    }
}

record! {
    /// `write_response4`: what COPY or WRITE_SAME wrote.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct WriteResponse {
        /// The stateid of a copy that goes on. None: the copy is over.
        pub callback: AtMostOne<StateId>,
        /// Bytes written.
        pub count: u64,
        /// How stable they are.
        pub committed: Stable,
        /// Changes whenever unstable data may have been lost.
        pub verifier: Verifier,
    }
}

record! {
    /// `copy_requirements4`: how a copy is done.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct CopyRequirements {
        /// Whether the bytes are copied in order.
        pub consecutive: bool,
        /// Whether the copy is over with the reply.
        pub synchronous: bool,
    }
}

record! {
    /// A copy that is over, or has begun.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct CopyOk {
        /// What was written.
        pub response: WriteResponse,
        /// How it is done.
        pub requirements: CopyRequirements,
    }
}

failure! {
    /// Why COPY failed.
    pub enum CopyFailed {
        /// [`Status::OffloadNoReqs`], with what the server can do.
        Requirements(CopyRequirements) = OffloadNoReqs,
    }
}

record! {
    /// COPY_NOTIFY
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct CopyNotifyArgs<'a> {
        /// The stateid of the source.
        pub source: StateId,
        /// The server that will read it.
        pub destination: NetLocation<'a>,
    }
}

record! {
    /// What the destination needs to read the source.
    #[derive(Clone, Debug, PartialEq, Eq)]
    pub struct CopyNotifyOk<'a> {
        /// How long the destination may read.
        pub lease: Time,
        /// The stateid with which the destination reads.
        pub state: StateId,
        /// The addresses at which it reads.
        pub source_servers: List<NetLocation<'a>, MAX_SERVERS>,
    }
}

/// Bits of [`IoAdviseArgs::hints`], by number.
pub mod io_advice {
    /// Nothing in particular.
    pub const NORMAL: u32 = 0;
    /// From front to back.
    pub const SEQUENTIAL: u32 = 1;
    /// From back to front.
    pub const SEQUENTIAL_BACKWARDS: u32 = 2;
    /// In no order.
    pub const RANDOM: u32 = 3;
    /// Soon.
    pub const WILL_NEED: u32 = 4;
    /// Soon, if it costs nothing.
    pub const WILL_NEED_OPPORTUNISTIC: u32 = 5;
    /// Not soon.
    pub const DONT_NEED: u32 = 6;
    /// Once.
    pub const NO_REUSE: u32 = 7;
    /// To read.
    pub const READ: u32 = 8;
    /// To write.
    pub const WRITE: u32 = 9;
    /// Near other clients that do.
    pub const INIT_PROXIMITY: u32 = 10;
}

record! {
    /// IO_ADVISE
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct IoAdviseArgs {
        /// The open, lock or delegation, or a special stateid.
        pub state: StateId,
        /// The first byte.
        pub offset: u64,
        /// The number of bytes. 0: all from there on.
        pub count: u64,
        /// Numbers of [`io_advice`].
        pub hints: Bitmap,
    }
}

record! {
    /// How far a copy is.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct OffloadStatusOk {
        /// Bytes copied.
        pub count: u64,
        /// How the copy ended, if it has.
        pub complete: AtMostOne<Status>,
    }
}

enumeration! {
    /// `data_content4`
    pub enum ContentType ("data_content4") {
        /// Data.
        Data = 0,
        /// Hole.
        Hole = 1,
    }
}

record! {
    /// SEEK
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct SeekArgs {
        /// The open, lock or delegation, or a special stateid.
        pub state: StateId,
        /// The byte at which to begin.
        pub offset: u64,
        /// What to look for.
        pub what: ContentType,
    }
}

record! {
    /// What SEEK found.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct SeekOk {
        /// Whether nothing was found before the end of the file.
        pub eof: bool,
        /// The first byte of what was found.
        pub offset: u64,
    }
}

record! {
    /// `app_data_block4`: a pattern to repeat.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct DataBlock<'a> {
        /// First byte in the file.
        pub offset: u64,
        /// The length of a block in bytes.
        pub block_size: u64,
        /// The number of blocks.
        pub block_count: u64,
        /// The offset of a block's number in the block.
        pub number_offset: u64,
        /// The first block's number.
        pub number: u32,
        /// The offset of the pattern in a block.
        pub pattern_offset: u64,
        /// The pattern.
        pub pattern: Data<'a>,
    }
}

record! {
    /// WRITE_SAME
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct WriteSameArgs<'a> {
        /// The open, lock or delegation, or a special stateid.
        pub state: StateId,
        /// How stable the data have to be before the reply.
        pub stable: Stable,
        /// What to write.
        pub block: DataBlock<'a>,
    }
}

opaque! {
    /// Data that stay in their message.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct Data<'a>("data", MAX_DATA);
}

union! {
    /// `read_plus_content`, by [`ContentType`].
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub enum Content<'a> ("data_content4") {
        /// Data from this offset on.
        Data(offset: u64, data: Data<'a>) = 0,
        /// A hole from this offset on, of so many bytes.
        Hole(offset: u64, length: u64) = 1,
    }
}

record! {
    /// What READ_PLUS read. A server writes it in place with [`ReadPlusReply`].
    #[derive(Clone, Debug, PartialEq, Eq)]
    pub struct ReadPlusOk<'a> {
        /// Whether the file ends with the last byte, or before the offset.
        pub eof: bool,
        /// Data and holes, ascending.
        pub contents: List<Content<'a>, MAX_CONTENTS>,
    }
}

/// A successful READ_PLUS result made in place, content by content.
#[derive(Debug)]
pub struct ReadPlusReply<'w, 'v> {
    w: &'w mut Writer<'v>,
    start: usize,
    contents: u32,
}

impl<'w, 'v> ReadPlusReply<'w, 'v> {
    /// Starts with no content.
    pub fn begin(w: &'w mut Writer<'v>) -> Self {
        let start = w.position();
        w.words([Status::Ok.code(), 0, 0]);
        Self {
            w,
            start,
            contents: 0,
        }
    }

    /// Adds a hole.
    pub fn hole(&mut self, offset: u64, length: u64) {
        Content::Hole(offset, length).encode(self.w);
        self.contents += 1;
    }

    /// Adds data. `fill` gets room for `max` bytes and returns how many it has filled. If it fills none, nothing is added.
    ///
    /// # Errors
    /// That of `fill`. Nothing is added.
    ///
    /// # Panics
    /// `fill` returns more than `max`.
    pub fn data<E>(
        &mut self,
        offset: u64,
        max: u32,
        fill: impl FnOnce(&mut [u8]) -> Result<u32, E>,
    ) -> Result<u32, E> {
        let start = self.w.position();
        Content::Data(offset, Data(&[])).encode(self.w);
        let data = self.w.position();
        self.w.zeros(max as usize);
        let filled = fill(self.w.written(data));
        let count = *filled.as_ref().unwrap_or(&0);
        assert!(count <= max, "more data than there is room for");
        if count == 0 {
            self.w.truncate(start);
            return filled;
        }
        self.w.truncate(data + count as usize);
        self.w.zeros(padding(count as usize));
        self.w.patch_u32(data - 4, count);
        self.contents += 1;
        filled
    }

    /// Ends the list.
    pub fn finish(self, eof: bool) {
        self.w.patch_u32(self.start + 4, eof.into());
        self.w.patch_u32(self.start + 8, self.contents);
    }
}

/// READ_PLUS has the arguments of READ.
pub type ReadPlusArgs = ReadArgs;
/// COPY
pub type CopyResult = Result<CopyOk, CopyFailed>;
/// COPY_NOTIFY
pub type CopyNotifyResult<'a> = Result<CopyNotifyOk<'a>, Status>;
/// IO_ADVISE: the hints that the server takes.
pub type IoAdviseResult = Result<Bitmap, Status>;
/// OFFLOAD_STATUS
pub type OffloadStatusResult = Result<OffloadStatusOk, Status>;
/// READ_PLUS
pub type ReadPlusResult<'a> = Result<ReadPlusOk<'a>, Status>;
/// SEEK
pub type SeekResult = Result<SeekOk, Status>;
/// WRITE_SAME
pub type WriteSameResult = Result<WriteResponse, Status>;
