//! Results of READDIR and READDIRPLUS (RFC 1813, sections 3.3.16 and 3.3.17).

use super::types::{Attributes, Failed, FileHandle, MAX_NAME, Status};
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
pub struct ReadDirOk<'a> {
    /// Attributes of the directory.
    pub attributes: Option<Attributes>,
    /// Goes with the cookies.
    pub verifier: [u8; 8],
    /// The entries.
    pub entries: Vec<Entry<'a>>,
    /// There are no more behind them.
    pub eof: bool,
}

impl Encode for ReadDirOk<'_> {
    fn encode(&self, w: &mut Writer<'_>) {
        self.attributes.encode(w);
        self.verifier.encode(w);
        w.chain(&self.entries);
        w.bool(self.eof);
    }
}

impl<'a> Decode<'a> for ReadDirOk<'a> {
    fn decode(r: &mut Reader<'a>) -> Result<Self, XdrError> {
        Ok(Self {
            attributes: Decode::decode(r)?,
            verifier: Decode::decode(r)?,
            entries: r.chain("directory entries", MAX_ENTRIES)?,
            eof: r.bool()?,
        })
    }
}

/// A part of a directory, with attributes and handles.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReadDirPlusOk<'a> {
    /// Attributes of the directory.
    pub attributes: Option<Attributes>,
    /// Goes with the cookies.
    pub verifier: [u8; 8],
    /// The entries.
    pub entries: Vec<EntryPlus<'a>>,
    /// There are no more behind them.
    pub eof: bool,
}

impl Encode for ReadDirPlusOk<'_> {
    fn encode(&self, w: &mut Writer<'_>) {
        self.attributes.encode(w);
        self.verifier.encode(w);
        w.chain(&self.entries);
        w.bool(self.eof);
    }
}

impl<'a> Decode<'a> for ReadDirPlusOk<'a> {
    fn decode(r: &mut Reader<'a>) -> Result<Self, XdrError> {
        Ok(Self {
            attributes: Decode::decode(r)?,
            verifier: Decode::decode(r)?,
            entries: r.chain("directory entries", MAX_ENTRIES)?,
            eof: r.bool()?,
        })
    }
}

/// How much a directory result may hold, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EntryBudget {
    /// The whole `resok`: READDIR's `count`, READDIRPLUS's `maxcount`.
    pub total: u32,
    /// File numbers, names and cookies alone: READDIRPLUS's `dircount`; `u32::MAX` for READDIR.
    pub directory: u32,
}

/// Not even one entry fits the budget: the result is [`Status::TooSmall`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("no entry fits the size that the client asked for")]
pub struct TooSmall;

/// Writes a successful READDIR or READDIRPLUS result entry by entry while they fit.
#[derive(Debug)]
pub struct EntryWriter<'w, 'v> {
    w: &'w mut Writer<'v>,
    start: usize,
    budget: EntryBudget,
    directory: usize,
    entries: u32,
    refused: bool,
}

impl<'w, 'v> EntryWriter<'w, 'v> {
    /// FALSE behind the last entry, and EOF.
    const TAIL: usize = 4 + 4;

    /// Writes the status and what stands before the entries.
    pub fn begin(
        w: &'w mut Writer<'v>,
        budget: EntryBudget,
        attributes: Option<&Attributes>,
        verifier: [u8; 8],
    ) -> Self {
        let start = w.position();
        Status::Ok.encode(w);
        attributes.encode(w);
        verifier.encode(w);
        Self {
            w,
            start,
            budget,
            directory: 0,
            entries: 0,
            refused: false,
        }
    }

    /// Adds an entry to a READDIR result. Returns `false` if it does not fit, and no further entry will.
    #[must_use]
    pub fn push(&mut self, entry: &Entry<'_>) -> bool {
        self.push_with(entry, |_| ())
    }

    /// Adds an entry to a READDIRPLUS result. Returns `false` if it does not fit, and no further entry will.
    #[must_use]
    pub fn push_plus(&mut self, plus: &EntryPlus<'_>) -> bool {
        self.push_with(&plus.entry, |w| {
            plus.attributes.encode(w);
            plus.file.encode(w);
        })
    }

    fn push_with(&mut self, entry: &Entry<'_>, rest: impl FnOnce(&mut Writer<'_>)) -> bool {
        if self.refused {
            return false;
        }
        let before = self.w.position();
        self.w.bool(true);
        let item = self.w.position();
        entry.encode(self.w);
        let directory = self.directory + (self.w.position() - item);
        rest(self.w);
        // A first entry is given to clients that ask for less than one: they would never get further.
        let crowded = self.entries > 0 && directory > self.budget.directory as usize;
        if crowded || !self.fits() {
            self.w.truncate(before);
            self.refused = true;
            return false;
        }
        self.directory = directory;
        self.entries += 1;
        true
    }

    fn fits(&self) -> bool {
        // The budget counts `resok`, so not the status.
        self.w.position() - self.start - 4 + Self::TAIL <= self.budget.total as usize
    }

    /// How many entries have been added.
    pub fn entries(&self) -> u32 {
        self.entries
    }

    /// Ends the list; `eof` where the directory has no more entries.
    ///
    /// # Errors
    /// [`TooSmall`] where there was an entry and it did not fit, or not even an empty list fits:
    /// everything is taken back, another result is written instead.
    pub fn finish(self, eof: bool) -> Result<u32, TooSmall> {
        if self.entries == 0 && (self.refused || !self.fits()) {
            self.w.truncate(self.start);
            return Err(TooSmall);
        }
        self.w.bool(false);
        self.w.bool(eof);
        Ok(self.entries)
    }

    /// Takes everything back: another result is written instead.
    pub fn cancel(self) {
        self.w.truncate(self.start);
    }
}
