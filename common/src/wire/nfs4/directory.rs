//! READDIR (RFC 7530, section 16.24; RFC 8881, section 18.23).

use super::types::{Name, RawAttributes, Verifier};
use super::{Attributes, Bitmap, Status};
use crate::wire::nfs3::{EntryBudget, TooSmall};
use crate::wire::xdr::{Decode, Encode, Reader, Writer, XdrError};

/// The most entries that a decoder takes in one result.
pub const MAX_ENTRIES: u32 = 1 << 16;

record! {
    /// READDIR
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct ReadDirArgs {
        /// The cookie of the entry after which to begin, or 0. No entry has the cookie 0, 1 or 2.
        pub cookie: u64,
        /// The verifier that came with the cookie, or zeros.
        pub verifier: Verifier,
        /// A hint: the most bytes of cookies and names. 0 is no hint.
        pub directory_count: u32,
        /// The most bytes of [`ReadDirOk`].
        pub max_count: u32,
        /// The attributes asked for.
        pub asked: Bitmap,
    }
}

impl ReadDirArgs {
    /// What an [`EntryWriter`] may write.
    pub fn budget(&self) -> EntryBudget {
        EntryBudget {
            total: self.max_count,
            directory: match self.directory_count {
                0 => u32::MAX,
                count => count,
            },
        }
    }
}

record! {
    /// `entry4` without the pointer to the next entry.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct Entry<'a> {
        /// The cookie with which another READDIR goes on after it.
        pub cookie: u64,
        /// Its name in the directory.
        pub name: Name<'a>,
        /// Its attributes.
        pub attributes: RawAttributes<'a>,
    }
}

/// A part of a directory. A server writes it with [`EntryWriter`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReadDirOk<'a> {
    /// The verifier of the cookies.
    pub verifier: Verifier,
    /// The entries.
    pub entries: Vec<Entry<'a>>,
    /// Whether they are the last.
    pub eof: bool,
}

impl Encode for ReadDirOk<'_> {
    fn encode(&self, w: &mut Writer<'_>) {
        self.verifier.encode(w);
        w.chain(&self.entries);
        w.bool(self.eof);
    }
}

impl<'a> Decode<'a> for ReadDirOk<'a> {
    fn decode(r: &mut Reader<'a>) -> Result<Self, XdrError> {
        Ok(Self {
            verifier: Decode::decode(r)?,
            entries: r.chain("directory entries", MAX_ENTRIES)?,
            eof: r.bool()?,
        })
    }
}

/// READDIR
pub type ReadDirResult<'a> = Result<ReadDirOk<'a>, Status>;

/// Writes a successful READDIR result entry by entry while they fit.
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
    /// The end of the list, and EOF.
    const TAIL: usize = 4 + 4;

    /// Writes the status and the verifier.
    pub fn begin(w: &'w mut Writer<'v>, budget: EntryBudget, verifier: Verifier) -> Self {
        let start = w.position();
        Status::Ok.encode(w);
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

    /// Adds an entry with those of its attributes that are asked for. `false`: it does not fit, and this adds no more entries.
    #[must_use]
    pub fn push(
        &mut self,
        cookie: u64,
        name: &[u8],
        attributes: &Attributes<'_>,
        asked: &Bitmap,
    ) -> bool {
        self.push_with(cookie, name, |w| attributes.encode_asked(asked, w))
    }

    /// As [`push`](Self::push), with encoded attributes.
    #[must_use]
    pub fn push_raw(&mut self, entry: &Entry<'_>) -> bool {
        self.push_with(entry.cookie, entry.name.0, |w| entry.attributes.encode(w))
    }

    fn push_with(
        &mut self,
        cookie: u64,
        name: &[u8],
        attributes: impl FnOnce(&mut Writer<'_>),
    ) -> bool {
        if self.refused {
            return false;
        }
        let before = self.w.position();
        self.w.bool(true);
        let item = self.w.position();
        self.w.u64(cookie);
        self.w.opaque(name);
        let directory = self.directory + (self.w.position() - item);
        attributes(self.w);
        // The hint does not keep the first entry out: a client with too small a hint would never get on.
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
        // The budget counts `READDIR4resok`, so not the status.
        self.w.position() - self.start - 4 + Self::TAIL <= self.budget.total as usize
    }

    /// How many entries have been added.
    pub fn entries(&self) -> u32 {
        self.entries
    }

    /// Ends the list. `eof`: whether the directory has no more entries.
    ///
    /// # Errors
    /// [`TooSmall`] ([`Status::TooSmall`]) if the first entry did not fit, or not even an empty list fits. Everything is taken
    /// back, so that another result can be written.
    pub fn finish(self, eof: bool) -> Result<u32, TooSmall> {
        if self.entries == 0 && (self.refused || !self.fits()) {
            self.w.truncate(self.start);
            return Err(TooSmall);
        }
        self.w.bool(false);
        self.w.bool(eof);
        Ok(self.entries)
    }
}
