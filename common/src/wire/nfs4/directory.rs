//! READDIR (RFC 7530, section 16.24; RFC 8881, section 18.23).

use super::types::{Name, RawAttributes, Verifier};
use super::{Attributes, Bitmap, Status};
use crate::wire::entries::{Entries, EntryBudget};
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
pub type EntryWriter<'w, 'v> = Entries<'w, 'v, RawAttributes<'static>>;

impl<'w, 'v> EntryWriter<'w, 'v> {
    /// Writes the status and the verifier.
    pub fn begin(w: &'w mut Writer<'v>, budget: EntryBudget, verifier: Verifier) -> Self {
        Self::begin_with(w, budget, |w| {
            Status::Ok.encode(w);
            verifier.encode(w);
        })
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
        let encode = |w: &mut Writer<'_>| attributes.encode_asked(asked, w);
        self.push_named(cookie, name, encode)
    }

    /// As [`push`](Self::push), with encoded attributes.
    #[must_use]
    pub fn push_raw(&mut self, entry: &Entry<'_>) -> bool {
        let encode = |w: &mut Writer<'_>| entry.attributes.encode(w);
        self.push_named(entry.cookie, entry.name.0, encode)
    }

    fn push_named(
        &mut self,
        cookie: u64,
        name: &[u8],
        attributes: impl FnOnce(&mut Writer<'_>),
    ) -> bool {
        let named = |w: &mut Writer<'_>| {
            w.u64(cookie);
            w.opaque(name);
        };
        self.push_with(named, attributes)
    }
}
