//! Results of READDIR and READDIRPLUS (RFC 1813, sections 3.3.16 and 3.3.17).

use super::types::{Attributes, Failed, FileHandle, MAX_NAME, Status};
use crate::wire::entries::Entries;
pub use crate::wire::entries::{EntryBudget, TooSmall};
use crate::wire::xdr::{Decode, Encode, Reader, Writer, XdrError};

/// The most entries that a decoder takes in one result.
pub const MAX_ENTRIES: u32 = 1 << 16;

/// READDIR
pub type ReadDirResult<'a> = Result<ReadDirOk<'a>, Failed<Option<Attributes>>>;
/// READDIRPLUS
pub type ReadDirPlusResult<'a> = Result<ReadDirPlusOk<'a>, Failed<Option<Attributes>>>;

/// `entry3`
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry<'a> {
    /// Number of the file within its file system.
    pub fileid: u64,
    /// Its name in the directory, as bytes: no encoding is promised.
    pub name: &'a [u8],
    /// Where a further READDIR goes on.
    pub cookie: u64,
}

impl Encode for Entry<'_> {
    fn encode(&self, w: &mut Writer<'_>) {
        w.u64(self.fileid);
        w.opaque(self.name);
        w.u64(self.cookie);
    }
}

impl<'a> Decode<'a> for Entry<'a> {
    fn decode(r: &mut Reader<'a>) -> Result<Self, XdrError> {
        Ok(Self {
            fileid: r.u64()?,
            name: r.opaque("name", MAX_NAME)?,
            cookie: r.u64()?,
        })
    }
}

record! {
    /// `entryplus3`
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct EntryPlus<'a> {
        /// The same as in READDIR.
        pub entry: Entry<'a>,
        /// Attributes of the file.
        pub attributes: Option<Attributes>,
        /// The file.
        pub file: Option<FileHandle<'a>>,
    }
}

/// A part of a directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DirectoryPart<E> {
    /// Attributes of the directory.
    pub attributes: Option<Attributes>,
    /// Goes with the cookies.
    pub verifier: [u8; 8],
    /// The entries.
    pub entries: Vec<E>,
    /// There are no more behind them.
    pub eof: bool,
}

/// A part of a directory, of READDIR.
pub type ReadDirOk<'a> = DirectoryPart<Entry<'a>>;
/// A part of a directory, with attributes and handles, of READDIRPLUS.
pub type ReadDirPlusOk<'a> = DirectoryPart<EntryPlus<'a>>;

impl<E: Encode> Encode for DirectoryPart<E> {
    fn encode(&self, w: &mut Writer<'_>) {
        self.attributes.encode(w);
        self.verifier.encode(w);
        w.chain(&self.entries);
        w.bool(self.eof);
    }
}

impl<'a, E: Decode<'a>> Decode<'a> for DirectoryPart<E> {
    fn decode(r: &mut Reader<'a>) -> Result<Self, XdrError> {
        Ok(Self {
            attributes: Decode::decode(r)?,
            verifier: Decode::decode(r)?,
            entries: r.chain("directory entries", MAX_ENTRIES)?,
            eof: r.bool()?,
        })
    }
}

/// Writes a successful READDIR or READDIRPLUS result entry by entry while they fit.
pub type EntryWriter<'w, 'v> = Entries<'w, 'v, Attributes>;

impl<'w, 'v> EntryWriter<'w, 'v> {
    /// Writes the status and what stands before the entries.
    pub fn begin(
        w: &'w mut Writer<'v>,
        budget: EntryBudget,
        attributes: Option<&Attributes>,
        verifier: [u8; 8],
    ) -> Self {
        Self::begin_with(w, budget, |w| {
            Status::Ok.encode(w);
            attributes.encode(w);
            verifier.encode(w);
        })
    }

    /// Adds an entry to a READDIR result. Returns `false` if it does not fit, and no further entry will.
    #[must_use]
    pub fn push(&mut self, entry: &Entry<'_>) -> bool {
        self.push_with(|w| entry.encode(w), |_| ())
    }

    /// Adds an entry to a READDIRPLUS result. Returns `false` if it does not fit, and no further entry will.
    #[must_use]
    pub fn push_plus(&mut self, plus: &EntryPlus<'_>) -> bool {
        let rest = |w: &mut Writer<'_>| {
            plus.attributes.encode(w);
            plus.file.encode(w);
        };
        self.push_with(|w| plus.entry.encode(w), rest)
    }
}
