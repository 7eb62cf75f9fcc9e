//! The ODAFS program: sessions, reads that bring references with them, and queries for references.
//! docs/WIRE.md describes it in full.

use super::nfs3::{ATTRIBUTES_BYTES, Attributes, Failed, FileHandle, MAX_DATA, Payload, Status};
use super::xdr::{Decode, Encode, Reader, Writer, XdrError, padding};
use crate::direct::Feedback;
use crate::mac::{MacAlgorithm, TAG_BYTES, Tag};
use crate::reference::Reference;
use crate::session::{HANDSHAKE_BYTES_MAX, Pattern};

/// Program number, of those that RFC 5531 leaves to their users.
pub const PROGRAM: u32 = 0x200D_AF50;
/// The version described here.
pub const VERSION: u32 = 1;

/// The longest [`Parameters`], in bytes.
pub const MAX_PARAMETERS: u32 = 2048;
/// The longest handshake message, in bytes.
pub const MAX_HANDSHAKE: u32 = HANDSHAKE_BYTES_MAX as u32;
/// The longest name of an export, in bytes.
pub const MAX_EXPORT: u32 = 1024;
/// The longest name of a fabric, in bytes.
pub const MAX_FABRIC: u32 = 16;
/// The most references that a READ brings.
pub const MAX_READ_REFERENCES: u32 = 128;
/// The most ranges that a GET_REFS asks about, and files that it answers about.
pub const MAX_RANGES: u32 = 64;
/// The most references that a GET_REFS brings for one range.
pub const MAX_RANGE_REFERENCES: u32 = 2048;

enumeration! {
    /// The procedures.
    pub enum Procedure ("ODAFS procedure") {
        /// Does nothing.
        Null = 0,
        /// [`OpenSessionArgs`] to [`OpenSessionResult`].
        OpenSession = 1,
        /// [`ReadArgs`] to [`ReadResult`].
        Read = 2,
        /// [`GetRefsArgs`] to [`GetRefsResult`].
        GetRefs = 3,
        /// [`RekeyArgs`] to [`RekeyResult`].
        Rekey = 4,
        /// [`CloseSessionArgs`] to [`CloseSessionResult`].
        CloseSession = 5,
    }
}

enumeration! {
    /// How a call about sessions or references ended.
    pub enum OdafsStatus ("ODAFS status") {
        /// As asked.
        Ok = 0,
        /// The caller may not, or its tag does not hold.
        Denied = 1,
        /// There is no such session (any more).
        NoSession = 2,
        /// The handshake message does not verify.
        BadHandshake = 3,
        /// The server has no direct access, or none of what was offered.
        Unsupported = 4,
        /// A cap on sessions or on references was reached.
        TooMany = 5,
        /// The server cannot now.
        TryLater = 6,
        /// A failure on the server that fits no other status.
        ServerFault = 7,
    }
}

impl std::fmt::Display for OdafsStatus {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Ok => "ok",
            Self::Denied => "denied",
            Self::NoSession => "no such session",
            Self::BadHandshake => "the handshake does not verify",
            Self::Unsupported => "not supported",
            Self::TooMany => "too many",
            Self::TryLater => "server busy, try later",
            Self::ServerFault => "server fault",
        })
    }
}

/// `switch (odafs_status status)` with nothing behind a status other than OK.
impl<T: Encode> Encode for Result<T, OdafsStatus> {
    fn encode(&self, w: &mut Writer<'_>) {
        match self {
            Ok(done) => {
                OdafsStatus::Ok.encode(w);
                done.encode(w);
            }
            Err(status) => {
                debug_assert_ne!(*status, OdafsStatus::Ok);
                status.encode(w);
            }
        }
    }
}

impl<'a, T: Decode<'a>> Decode<'a> for Result<T, OdafsStatus> {
    fn decode(r: &mut Reader<'a>) -> Result<Self, XdrError> {
        Ok(match OdafsStatus::decode(r)? {
            OdafsStatus::Ok => Ok(T::decode(r)?),
            status => Err(status),
        })
    }
}

enumeration! {
    /// Who moves the data of a direct read.
    pub enum Mode ("direct mode") {
        /// The server's NIC, after it has checked the request.
        Guarded = 0,
        /// The client, which checks the stamp afterwards.
        OneSided = 1,
    }
}

impl Encode for Pattern {
    fn encode(&self, w: &mut Writer<'_>) {
        w.u32(self.code());
    }
}

impl Decode<'_> for Pattern {
    fn decode(r: &mut Reader<'_>) -> Result<Self, XdrError> {
        let value = r.u32()?;
        Self::from_code(value).ok_or(XdrError::BadValue {
            what: "handshake pattern",
            value,
        })
    }
}

impl Encode for MacAlgorithm {
    fn encode(&self, w: &mut Writer<'_>) {
        w.u32(self.code());
    }
}

impl Decode<'_> for MacAlgorithm {
    fn decode(r: &mut Reader<'_>) -> Result<Self, XdrError> {
        let value = r.u32()?;
        Self::from_code(value).ok_or(XdrError::BadValue {
            what: "MAC algorithm",
            value,
        })
    }
}

/// What a client asks of a session, and offers. Its bytes are the prologue of the handshake.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Parameters<'a> {
    /// Version of the direct protocol: [`crate::direct::VERSION`].
    pub version: u32,
    /// Feature bits; none is defined yet, a server ignores those that it does not know.
    pub features: u64,
    /// MACs offered: a sum of [`MacAlgorithm::bit`].
    pub macs: u32,
    /// One-sided where that is wanted.
    pub mode: Mode,
    /// Whose static keys take part.
    pub pattern: Pattern,
    /// Name of the export, such as `/`.
    pub export: &'a [u8],
    /// Name of the fabric: `shm`, `tcp`, `verbs`, `sim`.
    pub fabric: &'a [u8],
}

impl Encode for Parameters<'_> {
    fn encode(&self, w: &mut Writer<'_>) {
        w.u32(self.version);
        w.u64(self.features);
        w.u32(self.macs);
        self.mode.encode(w);
        self.pattern.encode(w);
        w.opaque(self.export);
        w.opaque(self.fabric);
    }
}

impl<'a> Decode<'a> for Parameters<'a> {
    fn decode(r: &mut Reader<'a>) -> Result<Self, XdrError> {
        Ok(Self {
            version: r.u32()?,
            features: r.u64()?,
            macs: r.u32()?,
            mode: Mode::decode(r)?,
            pattern: Pattern::decode(r)?,
            export: r.opaque("export", MAX_EXPORT)?,
            fabric: r.opaque("fabric", MAX_FABRIC)?,
        })
    }
}

/// OPEN_SESSION
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OpenSessionArgs<'a> {
    /// [`Parameters`] as bytes, because the handshake covers them as they were sent.
    pub parameters: &'a [u8],
    /// First message of the handshake.
    pub handshake: &'a [u8],
}

impl Encode for OpenSessionArgs<'_> {
    fn encode(&self, w: &mut Writer<'_>) {
        w.opaque(self.parameters);
        w.opaque(self.handshake);
    }
}

impl<'a> Decode<'a> for OpenSessionArgs<'a> {
    fn decode(r: &mut Reader<'a>) -> Result<Self, XdrError> {
        Ok(Self {
            parameters: r.opaque("parameters", MAX_PARAMETERS)?,
            handshake: r.opaque("handshake", MAX_HANDSHAKE)?,
        })
    }
}

/// OPEN_SESSION
pub type OpenSessionResult<'a> = Result<Handshake<'a>, OdafsStatus>;

/// Second message of the handshake. Its payload is [`Accepted`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Handshake<'a>(pub &'a [u8]);

impl Encode for Handshake<'_> {
    fn encode(&self, w: &mut Writer<'_>) {
        w.opaque(self.0);
    }
}

impl<'a> Decode<'a> for Handshake<'a> {
    fn decode(r: &mut Reader<'a>) -> Result<Self, XdrError> {
        r.opaque("handshake", MAX_HANDSHAKE).map(Self)
    }
}

record! {
    /// What the server granted; it travels inside the handshake, encrypted.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct Accepted {
        /// Number of the session; never 0.
        pub session: u32,
        /// Feature bits: those of the client that the server has too.
        pub features: u64,
        /// The MAC that requests carry.
        pub mac: MacAlgorithm,
        /// What was granted.
        pub mode: Mode,
        /// Page size of the export, in bytes.
        pub page_bytes: u32,
        /// Life of the server: references of another life are worth nothing.
        pub life: u64,
        /// The client rekeys after so many requests.
        pub rekey_requests: u64,
        /// And after so many seconds.
        pub rekey_seconds: u32,
        /// The most bytes that one guarded read may ask for.
        pub max_read: u32,
    }
}

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
        /// Session for which references are wanted, 0 for none.
        pub session: u32,
        /// References are wanted.
        pub want_references: bool,
        /// Where the data goes, if not into the reply.
        pub chunk: Option<Chunk>,
    }
}

/// READ; on failure the attributes of the file.
pub type ReadResult<'a> = Result<ReadOk<'a>, Failed<Option<Attributes>>>;

impl Encode for Reference {
    fn encode(&self, w: &mut Writer<'_>) {
        w.opaque_fixed(&self.to_wire());
    }
}

impl Decode<'_> for Reference {
    fn decode(r: &mut Reader<'_>) -> Result<Self, XdrError> {
        r.opaque_fixed().map(Self::from_wire)
    }
}

record! {
    /// Where a page of a file lies: 40 bytes.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct PageReference {
        /// Index of the page in the file.
        pub page: u64,
        /// Where it lies.
        pub reference: Reference,
    }
}

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

/// A successful READ result made in place: room for the most bytes that there can be, the data copied
/// straight into it, and then what is to be said about it.
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

    /// The first `facts.count` bytes of the room are what was read.
    ///
    /// # Panics
    /// Where that is more than there is room for.
    pub fn finish(self, facts: ReadFacts<'_>) {
        let Self { w, start } = self;
        let end = start + Self::HEAD + facts.count as usize;
        assert!(end <= w.position(), "more data than there is room for");
        w.truncate(end);
        w.zeros(padding(facts.count as usize));
        let head = ReadHead {
            attributes: facts.attributes,
            change: facts.change,
            eof: facts.eof,
            count: facts.count,
        };
        w.overwrite(start, &head);
        w.array(facts.references);
        facts.counter.encode(w);
        facts.feedback.encode(w);
    }

    /// Takes the room back: another result is written instead.
    pub fn cancel(self) {
        self.w.truncate(self.start);
    }
}

record! {
    /// A part of a file.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct Range<'a> {
        /// The file.
        pub file: FileHandle<'a>,
        /// First byte.
        pub offset: u64,
        /// Bytes; beyond the end of the file there is nothing.
        pub length: u64,
    }
}

/// GET_REFS
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GetRefsArgs<'a> {
    /// Session for which references are wanted.
    pub session: u32,
    /// What of: at most [`MAX_RANGES`].
    pub ranges: Vec<Range<'a>>,
    /// 0 at first, then what the answer before says, with the same ranges.
    pub resume: u64,
}

impl Encode for GetRefsArgs<'_> {
    fn encode(&self, w: &mut Writer<'_>) {
        w.u32(self.session);
        w.array(&self.ranges);
        w.u64(self.resume);
    }
}

impl<'a> Decode<'a> for GetRefsArgs<'a> {
    fn decode(r: &mut Reader<'a>) -> Result<Self, XdrError> {
        Ok(Self {
            session: r.u32()?,
            ranges: r.array("ranges", MAX_RANGES)?,
            resume: r.u64()?,
        })
    }
}

/// GET_REFS
pub type GetRefsResult = Result<GetRefsOk, OdafsStatus>;

/// References of ranges of files.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GetRefsOk {
    /// One for each range asked about that this answer has come to, in order.
    pub files: Vec<FileReferences>,
    /// Goes into the next call; 0 where everything has been answered.
    pub resume: u64,
}

impl Encode for GetRefsOk {
    fn encode(&self, w: &mut Writer<'_>) {
        w.array(&self.files);
        w.u64(self.resume);
    }
}

impl Decode<'_> for GetRefsOk {
    fn decode(r: &mut Reader<'_>) -> Result<Self, XdrError> {
        Ok(Self {
            files: r.array("files", MAX_RANGES)?,
            resume: r.u64()?,
        })
    }
}

/// References of the pages of one range that are in the server's memory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileReferences {
    /// Where it is not OK, the rest is zero and empty.
    pub status: Status,
    /// Change counter of the file from before the references were issued.
    pub change: u64,
    /// Bytes in the file.
    pub size: u64,
    /// Where the change counter lies.
    pub counter: Option<Reference>,
    /// At most [`MAX_RANGE_REFERENCES`].
    pub references: Vec<PageReference>,
}

impl Encode for FileReferences {
    fn encode(&self, w: &mut Writer<'_>) {
        self.status.encode(w);
        w.u64(self.change);
        w.u64(self.size);
        self.counter.encode(w);
        w.array(&self.references);
    }
}

impl Decode<'_> for FileReferences {
    fn decode(r: &mut Reader<'_>) -> Result<Self, XdrError> {
        Ok(Self {
            status: Status::decode(r)?,
            change: r.u64()?,
            size: r.u64()?,
            counter: Decode::decode(r)?,
            references: r.array("references", MAX_RANGE_REFERENCES)?,
        })
    }
}

const _: () = assert!(TAG_BYTES == 16, "a tag is four words, without padding");

record! {
    /// REKEY
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct RekeyArgs {
        /// The session.
        pub session: u32,
        /// The new generation of its request key.
        pub generation: u32,
        /// [`crate::session::Control::Rekey`]
        pub tag: Tag,
    }
}

/// REKEY
pub type RekeyResult = Result<Rekeyed, OdafsStatus>;

record! {
    /// The server takes requests of the new generation.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct Rekeyed {
        /// The new generation.
        pub generation: u32,
        /// [`crate::session::Control::Rekeyed`]
        pub tag: Tag,
    }
}

record! {
    /// CLOSE_SESSION
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct CloseSessionArgs {
        /// The session.
        pub session: u32,
        /// [`crate::session::Control::Close`]
        pub tag: Tag,
    }
}

/// CLOSE_SESSION
pub type CloseSessionResult = Result<(), OdafsStatus>;

#[cfg(test)]
mod tests;
