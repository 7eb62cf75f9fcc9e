//! References, and queries for them.

use super::OdafsStatus;
use crate::reference::Reference;
use crate::wire::nfs3::{FileHandle, Status};
use crate::wire::xdr::{Decode, Encode, Reader, Writer, XdrError};

/// The most ranges that a GET_REFS asks about, and files that it answers about.
pub const MAX_RANGES: u32 = 64;
/// The most references that a GET_REFS brings for one range.
pub const MAX_RANGE_REFERENCES: u32 = 2048;

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
    /// 0 at first, then the value of the previous answer, with the same ranges. Only the server knows its meaning.
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
    /// The ranges that this answer has covered, in order. The next answer may continue the last one.
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
    /// Index of the range in the call.
    pub range: u32,
    /// Where it is not OK, what follows is zero and empty.
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
        w.u32(self.range);
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
            range: r.u32()?,
            status: Status::decode(r)?,
            change: r.u64()?,
            size: r.u64()?,
            counter: Decode::decode(r)?,
            references: r.array("references", MAX_RANGE_REFERENCES)?,
        })
    }
}
