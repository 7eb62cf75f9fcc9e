//! The header of RPC-over-RDMA version 1 (RFC 8166, section 4). It precedes an RPC message, and says which parts of the
//! message are in memory.
//!
//! RFC 8267, section 6.4.2 has every client keep to a read chunk at position zero and one elsewhere, one write chunk and one
//! reply chunk, of sixteen segments each, and every server take them. The lists here hold more, for a COMPOUND of several
//! READs or WRITEs: eight chunks elsewhere and eight write chunks. But no list is longer than two chunks of sixteen segments.

use std::fmt;

use super::xdr::{Decode, Encode, Gap, Reader, Writer, XdrError};

/// The version spoken here.
pub const VERSION: u32 = 1;
/// Most segments of one chunk.
pub const CHUNK_SEGMENTS_MAX: usize = 16;
/// Most segments of all chunks of a read list.
pub const READ_SEGMENTS_MAX: usize = 2 * CHUNK_SEGMENTS_MAX;
/// Most chunks of a read list, besides that at position zero.
pub const READ_CHUNKS_MAX: usize = 8;
/// Most segments of all chunks of a write list.
pub const WRITE_SEGMENTS_MAX: usize = 2 * CHUNK_SEGMENTS_MAX;
/// Most chunks of a write list.
pub const WRITE_CHUNKS_MAX: usize = 8;
/// What every header begins with: xid, version, credits, procedure.
pub const FIXED_BYTES: usize = 16;
/// A header with three empty lists.
pub const HEADER_BYTES_MIN: usize = FIXED_BYTES + 12;
/// One segment.
pub const SEGMENT_BYTES: usize = 16;
/// One segment of a read list, with its position and the word that announces it.
pub const READ_SEGMENT_BYTES: usize = 8 + SEGMENT_BYTES;

const MSG: u32 = 0;
const NOMSG: u32 = 1;
const DONE: u32 = 3;
const ERROR: u32 = 4;
const ERR_VERS: u32 = 1;
const ERR_CHUNK: u32 = 2;

record! {
    /// A range of registered memory (`xdr_rdma_segment`).
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
    pub struct Segment {
        /// Steering tag (rkey).
        pub handle: u32,
        /// Its length in bytes.
        pub length: u32,
        /// First byte under the tag.
        pub offset: u64,
    }
}

record! {
    /// A segment of a read chunk (`xdr_read_chunk`): segments with one position are one chunk.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
    pub struct ReadSegment {
        /// Where the chunk belongs in the XDR stream of the whole message, in bytes; 0: it is the message.
        pub position: u32,
        /// Where it lies.
        pub segment: Segment,
    }
}

/// Up to `N` items, in place.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Few<T, const N: usize> {
    items: [T; N],
    len: u8,
}

/// One chunk.
pub type Segments = Few<Segment, CHUNK_SEGMENTS_MAX>;
/// A read list.
pub type ReadList = Few<ReadSegment, READ_SEGMENTS_MAX>;
/// The payloads of a message that are in read chunks, in their order.
pub type Gaps = Few<Gap, READ_CHUNKS_MAX>;

/// A write list: chunks in their order. An empty one asks for its data inline.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WriteList {
    segments: Few<Segment, WRITE_SEGMENTS_MAX>,
    /// Where each chunk ends in `segments`.
    ends: Few<u8, WRITE_CHUNKS_MAX>,
}

impl<T: Copy + Default, const N: usize> Few<T, N> {
    /// The first `N` of `items` and whether that is all of them.
    pub fn new(items: &[T]) -> (Self, bool) {
        let mut few = Self::default();
        let all = items.iter().all(|item| few.push(*item));
        (few, all)
    }

    /// Just this one.
    pub fn one(item: T) -> Self {
        let mut few = Self::default();
        let _ = few.push(item);
        few
    }

    /// Appends an item; `false` if there is no room.
    #[must_use]
    pub fn push(&mut self, item: T) -> bool {
        let Some(place) = self.items.get_mut(usize::from(self.len)) else {
            return false;
        };
        *place = item;
        self.len += 1;
        true
    }

    /// Keeps the first `len` items, if there are more.
    pub fn truncate(&mut self, len: usize) {
        let kept = len.min(self.len());
        self.items[kept..].fill(T::default());
        self.len = kept as u8;
    }
}

impl<T: Copy + Default, const N: usize> Default for Few<T, N> {
    fn default() -> Self {
        Self {
            items: [T::default(); N],
            len: 0,
        }
    }
}

impl<T, const N: usize> std::ops::Deref for Few<T, N> {
    type Target = [T];

    fn deref(&self) -> &[T] {
        &self.items[..usize::from(self.len)]
    }
}

impl<T, const N: usize> std::ops::DerefMut for Few<T, N> {
    fn deref_mut(&mut self) -> &mut [T] {
        &mut self.items[..usize::from(self.len)]
    }
}

impl<T: fmt::Debug, const N: usize> fmt::Debug for Few<T, N> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (**self).fmt(f)
    }
}

/// Bytes that a chunk holds.
pub fn capacity(chunk: &[Segment]) -> u64 {
    chunk.iter().map(|segment| u64::from(segment.length)).sum()
}

/// Sets the lengths of a chunk's segments to what lies in each when the first `length` bytes were written.
fn fill(chunk: &mut [Segment], length: u64) {
    let mut left = length;
    for segment in chunk {
        segment.length = left.min(u64::from(segment.length)) as u32;
        left -= u64::from(segment.length);
    }
}

impl Segments {
    /// Bytes that the chunk holds.
    pub fn capacity(&self) -> u64 {
        capacity(self)
    }

    /// The chunk as it is returned when its first `length` bytes were written: each segment with what lies in it.
    pub fn returned(&self, length: u64) -> Self {
        let mut chunk = *self;
        fill(&mut chunk, length);
        chunk
    }
}

impl WriteList {
    /// A list of this chunk alone.
    pub fn one(chunk: &Segments) -> Self {
        let mut list = Self::default();
        let _ = list.push(chunk);
        list
    }

    /// Appends a chunk; `false` if there is no room for it.
    #[must_use]
    pub fn push(&mut self, chunk: &[Segment]) -> bool {
        let before = self.segments;
        let all = chunk.len() <= CHUNK_SEGMENTS_MAX
            && chunk.iter().all(|segment| self.segments.push(*segment))
            && self.ends.push(self.segments.len);
        if !all {
            self.segments = before;
        }
        all
    }

    /// How many chunks.
    pub fn len(&self) -> usize {
        self.ends.len()
    }

    /// Whether there is no chunk.
    pub fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }

    /// The segments of the chunk at this place.
    pub fn chunk(&self, at: usize) -> Option<&[Segment]> {
        let range = self.range(at)?;
        self.segments.get(range)
    }

    /// The segments of each chunk.
    pub fn chunks(&self) -> impl Iterator<Item = &[Segment]> {
        (0..self.len()).filter_map(|at| self.chunk(at))
    }

    /// The segments of all chunks.
    pub fn segments(&self) -> &[Segment] {
        &self.segments
    }

    /// The list as it is returned when the first bytes of each chunk were written: so many, or none where `written` is shorter.
    #[must_use]
    pub fn returned(&self, written: &[u32]) -> Self {
        let mut list = *self;
        for at in 0..self.len() {
            let bytes = written.get(at).copied().unwrap_or(0);
            if let Some(range) = self.range(at) {
                fill(&mut list.segments[range], bytes.into());
            }
        }
        list
    }

    fn range(&self, at: usize) -> Option<std::ops::Range<usize>> {
        let end = *self.ends.get(at)?;
        let start = at.checked_sub(1).map_or(0, |before| self.ends[before]);
        Some(start.into()..end.into())
    }

    /// Bytes in a header, without the word that ends the list.
    fn bytes(&self) -> usize {
        self.len() * 8 + self.segments.len() * SEGMENT_BYTES
    }
}

impl Encode for WriteList {
    fn encode(&self, w: &mut Writer<'_>) {
        for chunk in self.chunks() {
            w.bool(true);
            w.array(chunk);
        }
        w.bool(false);
    }
}

impl WriteList {
    /// Reads chunks into an empty list.
    fn read(&mut self, r: &mut Reader<'_>) -> Result<(), XdrError> {
        while r.bool()? {
            for _ in 0..r.length("segments of a chunk", CHUNK_SEGMENTS_MAX as u32)? {
                if !self.segments.push(Segment::decode(r)?) {
                    return Err(too_long("segments of a write list", WRITE_SEGMENTS_MAX));
                }
            }
            if !self.ends.push(self.segments.len) {
                return Err(too_long("write list", WRITE_CHUNKS_MAX));
            }
        }
        Ok(())
    }
}

/// A list has an item more than is taken.
fn too_long(what: &'static str, max: usize) -> XdrError {
    let max = max as u32;
    let len = max + 1;
    XdrError::TooLong { what, len, max }
}

/// A write chunk or a reply chunk: a counted array of segments.
impl Encode for Segments {
    fn encode(&self, w: &mut Writer<'_>) {
        w.array(self);
    }
}

impl Decode<'_> for Segments {
    fn decode(r: &mut Reader<'_>) -> Result<Self, XdrError> {
        let mut chunk = Self::default();
        for _ in 0..r.length("segments of a chunk", CHUNK_SEGMENTS_MAX as u32)? {
            let _ = chunk.push(Segment::decode(r)?);
        }
        Ok(chunk)
    }
}

impl Encode for ReadList {
    fn encode(&self, w: &mut Writer<'_>) {
        w.chain(self);
    }
}

impl ReadList {
    /// Reads segments into an empty list.
    fn read(&mut self, r: &mut Reader<'_>) -> Result<(), XdrError> {
        while r.bool()? {
            if !self.push(ReadSegment::decode(r)?) {
                return Err(too_long("read list", READ_SEGMENTS_MAX));
            }
        }
        Ok(())
    }
}

/// The three lists of a message (`rpcrdma1_chunks` behind [`FIXED_BYTES`]).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Chunks {
    /// What the receiver has to fetch.
    pub reads: ReadList,
    /// Where the DDP-eligible results go, each to a chunk.
    pub writes: WriteList,
    /// Where a long reply goes.
    pub reply: Option<Segments>,
}

impl Chunks {
    /// Bytes of a header with these lists.
    pub fn header_bytes(&self) -> usize {
        self.reads.len() * READ_SEGMENT_BYTES + self.answer_bytes()
    }

    /// Bytes of the header of a reply, which returns these lists.
    pub fn answer_bytes(&self) -> usize {
        let reply = self.reply.as_ref();
        HEADER_BYTES_MIN
            + self.writes.bytes()
            + reply.map_or(0, |chunk| 4 + chunk.len() * SEGMENT_BYTES)
    }
}

impl Encode for Chunks {
    fn encode(&self, w: &mut Writer<'_>) {
        self.reads.encode(w);
        self.writes.encode(w);
        self.reply.encode(w);
    }
}

impl Decode<'_> for Chunks {
    fn decode(r: &mut Reader<'_>) -> Result<Self, XdrError> {
        // In place: the lists are long, and mostly empty.
        let mut chunks = Self::default();
        chunks.reads.read(r)?;
        chunks.writes.read(r)?;
        chunks.reply = Decode::decode(r)?;
        Ok(chunks)
    }
}

/// Why a peer could not take a message (`rpcrdma1_error`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TransportError {
    /// `ERR_VERS`: it speaks other versions.
    Version {
        /// The lowest.
        low: u32,
        /// The highest.
        high: u32,
    },
    /// `ERR_CHUNK`: the header is malformed or too complex for it, or the reply has no room.
    Chunk,
}

/// What kind of message it is (`rdma_body`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Body {
    /// `RDMA_MSG`: the RPC message follows, without the parts in the lists.
    Msg(Chunks),
    /// `RDMA_NOMSG`: the RPC message lies in memory altogether.
    Nomsg(Chunks),
    /// `RDMA_DONE`: the read chunks of a reply have been fetched (the Read-Read design).
    Done,
    /// `RDMA_ERROR`
    Error(TransportError),
}

/// A header (`rdma_msg`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// That of the RPC message.
    pub xid: u32,
    /// Credits asked for, or granted.
    pub credits: u32,
    /// Kind of message and its lists.
    pub body: Body,
}

/// Why bytes are no header that can be taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum HeaderError {
    /// Shorter than any header that carries a message. What stands in the place of an xid cannot be trusted, and there
    /// is nobody to answer.
    #[error("the message is shorter than any header")]
    Short,
    /// An error message that does not decode: an error is never answered with another.
    #[error("malformed error message")]
    Error,
    /// Another version: `ERR_VERS`.
    #[error("version {version} instead of 1")]
    Version {
        /// Of the message.
        xid: u32,
        /// The version it is of.
        version: u32,
    },
    /// A procedure that is not supported (`RDMA_MSGP`, or an unknown one): `ERR_CHUNK`.
    #[error("message of the unknown kind {procedure}")]
    Procedure {
        /// Of the message.
        xid: u32,
        /// What it claims to be.
        procedure: u32,
    },
    /// Lists that do not decode, or are longer than is taken: `ERR_CHUNK`.
    #[error("malformed header: {why}")]
    Chunks {
        /// Of the message.
        xid: u32,
        /// What is wrong.
        why: XdrError,
    },
}

impl HeaderError {
    /// The error message that answers it, if there is one. It has the version of the message that it answers (RFC 8166,
    /// section 4.5).
    pub fn answer(&self, credits: u32) -> Option<Vec<u8>> {
        let (low, high) = (VERSION, VERSION);
        let (xid, version, error) = match *self {
            Self::Short | Self::Error => return None,
            Self::Version { xid, version } => (xid, version, TransportError::Version { low, high }),
            Self::Procedure { xid, .. } | Self::Chunks { xid, .. } => {
                (xid, VERSION, TransportError::Chunk)
            }
        };
        let mut message = Vec::new();
        let mut w = Writer::new(&mut message);
        for word in [xid, version, credits, ERROR] {
            w.u32(word);
        }
        error.encode(&mut w);
        Some(message)
    }
}

impl Encode for Header {
    fn encode(&self, w: &mut Writer<'_>) {
        let procedure = match &self.body {
            Body::Msg(_) => MSG,
            Body::Nomsg(_) => NOMSG,
            Body::Done => DONE,
            Body::Error(_) => ERROR,
        };
        for word in [self.xid, VERSION, self.credits, procedure] {
            w.u32(word);
        }
        match &self.body {
            Body::Msg(chunks) | Body::Nomsg(chunks) => chunks.encode(w),
            Body::Done => {}
            Body::Error(error) => error.encode(w),
        }
    }
}

/// The header of a reply that returns the chunks of its call, each with what was written to it.
#[derive(Clone, Copy, Debug)]
pub struct ReplyHeader<'a> {
    /// That of the RPC message.
    pub xid: u32,
    /// Credits granted.
    pub credits: u32,
    /// The write list of the call.
    pub writes: &'a WriteList,
    /// Bytes written to each of its chunks; none where it is shorter.
    pub written: &'a [u32],
    /// The reply chunk of the call.
    pub reply: Option<&'a Segments>,
    /// Bytes written to that, which are the RPC message. 0: the message follows.
    pub long: u32,
}

impl Encode for ReplyHeader<'_> {
    fn encode(&self, w: &mut Writer<'_>) {
        let procedure = if self.long > 0 { NOMSG } else { MSG };
        w.words([self.xid, VERSION, self.credits, procedure]);
        // Nothing to fetch.
        w.bool(false);
        let written = self.written.iter().chain(std::iter::repeat(&0));
        for (chunk, bytes) in self.writes.chunks().zip(written) {
            w.bool(true);
            encode_filled(chunk, *bytes, w);
        }
        w.bool(false);
        w.bool(self.reply.is_some());
        if let Some(chunk) = self.reply {
            encode_filled(chunk, self.long, w);
        }
    }
}

/// A chunk whose first bytes were written.
fn encode_filled(chunk: &[Segment], bytes: u32, w: &mut Writer<'_>) {
    w.length(chunk.len());
    let mut left = bytes;
    for segment in chunk {
        let length = left.min(segment.length);
        left -= length;
        Segment { length, ..*segment }.encode(w);
    }
}

impl Header {
    /// Decodes the header at the front of a message. The rest of the reader follows it. `ERR_VERS` is accepted in any
    /// version, because it looks the same in all.
    ///
    /// # Errors
    /// See [`HeaderError`].
    pub fn decode(r: &mut Reader<'_>) -> Result<Self, HeaderError> {
        let mut word = || r.u32().map_err(|_| HeaderError::Short);
        let (xid, version, credits, procedure) = (word()?, word()?, word()?, word()?);
        let done = version == VERSION && procedure == DONE;
        if r.rest().len() < HEADER_BYTES_MIN - FIXED_BYTES && !done && procedure != ERROR {
            return Err(HeaderError::Short);
        }
        if procedure == ERROR {
            let error = TransportError::decode(r).map_err(|_| HeaderError::Error)?;
            if version != VERSION && error == TransportError::Chunk {
                return Err(HeaderError::Error);
            }
            let body = Body::Error(error);
            return Ok(Self { xid, credits, body });
        }
        if version != VERSION {
            return Err(HeaderError::Version { xid, version });
        }
        let malformed = |why| HeaderError::Chunks { xid, why };
        let body = match procedure {
            MSG => Body::Msg(Chunks::decode(r).map_err(malformed)?),
            NOMSG => Body::Nomsg(Chunks::decode(r).map_err(malformed)?),
            DONE => Body::Done,
            _ => return Err(HeaderError::Procedure { xid, procedure }),
        };
        Ok(Self { xid, credits, body })
    }
}

impl Encode for TransportError {
    fn encode(&self, w: &mut Writer<'_>) {
        match *self {
            Self::Version { low, high } => {
                for word in [ERR_VERS, low, high] {
                    w.u32(word);
                }
            }
            Self::Chunk => w.u32(ERR_CHUNK),
        }
    }
}

impl Decode<'_> for TransportError {
    fn decode(r: &mut Reader<'_>) -> Result<Self, XdrError> {
        match r.u32()? {
            ERR_VERS => Ok(Self::Version {
                low: r.u32()?,
                high: r.u32()?,
            }),
            ERR_CHUNK => Ok(Self::Chunk),
            value => Err(XdrError::BadValue {
                what: "rpcrdma1_errcode",
                value,
            }),
        }
    }
}
