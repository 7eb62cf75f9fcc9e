//! Reads whose replies say where the data lies.

use super::PageReference;
use crate::direct::Feedback;
use crate::reference::Reference;
use crate::wire::nfs3::{
    ATTRIBUTES_BYTES, Attributes, Failed, FileHandle, MAX_DATA, Payload, Status,
};
use crate::wire::xdr::{Decode, Encode, Reader, Writer, XdrError, padding};

/// The most references that a READ brings.
pub const MAX_READ_REFERENCES: u32 = 128;

record! {
    /// Memory of the client's into which the server writes the data, on fabrics with RDMA.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct Chunk {
        /// Steering tag.
        pub tag: u32,
        /// First byte.
        pub offset: u64,
        /// Bytes that there are.
        pub length: u32,
    }
}

/// READ
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReadArgs<'a> {
    /// The file.
    pub file: FileHandle<'a>,
    /// First byte.
    pub offset: u64,
    /// Bytes; the server may return fewer.
    pub count: u32,
    /// Session for which references are wanted, or 0 for none.
    pub session: u32,
    /// References are wanted.
    pub want_references: bool,
    /// Where the data goes, if not into the reply.
    pub chunk: Option<Chunk>,
}

impl Encode for ReadArgs<'_> {
    fn encode(&self, w: &mut Writer<'_>) {
        self.file.encode(w);
        let (high, low) = ((self.offset >> 32) as u32, self.offset as u32);
        let wanted = self.want_references.into();
        w.words([high, low, self.count, self.session, wanted]);
        self.chunk.encode(w);
    }
}

impl<'a> Decode<'a> for ReadArgs<'a> {
    fn decode(r: &mut Reader<'a>) -> Result<Self, XdrError> {
        Ok(Self {
            file: Decode::decode(r)?,
            offset: r.u64()?,
            count: r.u32()?,
            session: r.u32()?,
            want_references: r.bool()?,
            chunk: Decode::decode(r)?,
        })
    }
}

/// READ; on failure the attributes of the file.
pub type ReadResult<'a> = Result<ReadOk<'a>, Failed<Option<Attributes>>>;

impl Encode for Feedback {
    fn encode(&self, w: &mut Writer<'_>) {
        w.u64(self.pack());
    }
}

impl Decode<'_> for Feedback {
    fn decode(r: &mut Reader<'_>) -> Result<Self, XdrError> {
        r.u64().map(Self::unpack)
    }
}

/// Data that was read, and where it lies. A server writes it in place with [`ReadReply`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReadOk<'a> {
    /// Attributes of the file after the read.
    pub attributes: Option<Attributes>,
    /// Change counter of the file from before the read.
    pub change: u64,
    /// The last byte read is the last of the file.
    pub eof: bool,
    /// Bytes read.
    pub count: u32,
    /// The bytes; empty where they went to the chunk.
    pub data: Payload<'a>,
    /// References of pages that were touched, and of neighbours: at most [`MAX_READ_REFERENCES`].
    pub references: Vec<PageReference>,
    /// Where the file's change counter lies.
    pub counter: Option<Reference>,
    /// The server's word on its cache.
    pub feedback: Feedback,
}

impl Encode for ReadOk<'_> {
    fn encode(&self, w: &mut Writer<'_>) {
        self.attributes.encode(w);
        w.u64(self.change);
        w.bool(self.eof);
        w.u32(self.count);
        self.data.encode(w);
        w.array(&self.references);
        self.counter.encode(w);
        self.feedback.encode(w);
    }
}

impl<'a> Decode<'a> for ReadOk<'a> {
    fn decode(r: &mut Reader<'a>) -> Result<Self, XdrError> {
        Ok(Self {
            attributes: Decode::decode(r)?,
            change: r.u64()?,
            eof: r.bool()?,
            count: r.u32()?,
            data: Payload::decode(r)?,
            references: r.array("references", MAX_READ_REFERENCES)?,
            counter: Decode::decode(r)?,
            feedback: Feedback::decode(r)?,
        })
    }
}

/// [`ReadOk`] before its data, for callers that copy the data themselves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReadFront {
    /// See [`ReadOk`].
    pub attributes: Option<Attributes>,
    /// See [`ReadOk`].
    pub change: u64,
    /// See [`ReadOk`].
    pub eof: bool,
    /// See [`ReadOk`].
    pub count: u32,
    /// Bytes of data that follow, and their padding.
    pub bytes: u32,
}

impl ReadFront {
    /// The longest result of READ up to its data, in bytes.
    pub const BYTES_MAX: usize = ReadReply::HEAD;
}

impl Decode<'_> for ReadFront {
    fn decode(r: &mut Reader<'_>) -> Result<Self, XdrError> {
        Ok(Self {
            attributes: Decode::decode(r)?,
            change: r.u64()?,
            eof: r.bool()?,
            count: r.u32()?,
            bytes: r.length("data", MAX_DATA)?,
        })
    }
}

/// [`ReadResult`] up to the data.
struct ReadHead<'a> {
    attributes: &'a Attributes,
    change: u64,
    eof: bool,
    count: u32,
}

impl Encode for ReadHead<'_> {
    fn encode(&self, w: &mut Writer<'_>) {
        Status::Ok.encode(w);
        Some(self.attributes).encode(w);
        w.u64(self.change);
        w.bool(self.eof);
        w.u32(self.count);
        w.u32(self.count);
    }
}

/// What [`ReadReply::finish`] writes around the data.
#[derive(Clone, Copy, Debug)]
pub struct ReadFacts<'a> {
    /// Bytes read.
    pub count: u32,
    /// The last of them is the last of the file.
    pub eof: bool,
    /// Attributes of the file after the read.
    pub attributes: &'a Attributes,
    /// Change counter of the file from before the read.
    pub change: u64,
    /// At most [`MAX_READ_REFERENCES`].
    pub references: &'a [PageReference],
    /// Where the file's change counter lies.
    pub counter: Option<Reference>,
    /// The server's word on its cache.
    pub feedback: Feedback,
}

impl<'a> ReadFacts<'a> {
    fn head(&self) -> ReadHead<'a> {
        ReadHead {
            attributes: self.attributes,
            change: self.change,
            eof: self.eof,
            count: self.count,
        }
    }

    fn encode_tail(&self, w: &mut Writer<'_>) {
        w.array(self.references);
        self.counter.encode(w);
        self.feedback.encode(w);
    }
}

/// A successful READ result, built in place: room for the most bytes that there can be, the data copied straight into
/// it, and then the facts about it.
#[derive(Debug)]
pub struct ReadReply<'w, 'v> {
    w: &'w mut Writer<'v>,
    start: usize,
}

impl<'w, 'v> ReadReply<'w, 'v> {
    const HEAD: usize = 4 + 4 + ATTRIBUTES_BYTES + 8 + 4 + 4 + 4;

    /// Makes room for `max` bytes of data.
    pub fn begin(w: &'w mut Writer<'v>, max: u32) -> Self {
        debug_assert!(max <= MAX_DATA);
        let start = w.position();
        w.zeros(Self::HEAD + max as usize);
        Self { w, start }
    }

    /// The room, zero at first.
    pub fn data(&mut self) -> &mut [u8] {
        self.w.written(self.start + Self::HEAD)
    }

    /// The first `facts.count` bytes of the room were read.
    ///
    /// # Panics
    /// Where that is more than there is room for.
    pub fn finish(self, facts: ReadFacts<'_>) {
        let Self { w, start } = self;
        let end = start + Self::HEAD + facts.count as usize;
        assert!(end <= w.position(), "more data than there is room for");
        w.truncate(end);
        w.zeros(padding(facts.count as usize));
        w.overwrite(start, &facts.head());
        facts.encode_tail(w);
    }

    /// Writes the result without its data, which goes another way (RFC 8166: into a write chunk). Where it would
    /// stand.
    pub fn placed(w: &mut Writer<'_>, facts: ReadFacts<'_>) -> usize {
        facts.head().encode(w);
        let at = w.position();
        facts.encode_tail(w);
        at
    }

    /// Takes the room back: another result is written instead.
    pub fn cancel(self) {
        self.w.truncate(self.start);
    }
}
