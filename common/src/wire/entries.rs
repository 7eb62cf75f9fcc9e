//! Results of READDIR and READDIRPLUS, written entry by entry (NFS versions 3 and 4).

use std::marker::PhantomData;

use super::xdr::Writer;

/// How much a directory result may hold, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EntryBudget {
    /// The whole `resok`: READDIR's `count`, READDIRPLUS's `maxcount`.
    pub total: u32,
    /// File numbers, names and cookies alone: `dircount`. `u32::MAX` for READDIR of version 3.
    pub directory: u32,
}

/// Not even one entry fits the budget: the result is TOOSMALL.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("no entry fits the size that the client asked for")]
pub struct TooSmall;

/// Writes a successful result entry by entry while they fit. `A` tells the versions apart: the attributes of an entry.
#[derive(Debug)]
pub struct Entries<'w, 'v, A> {
    w: &'w mut Writer<'v>,
    start: usize,
    budget: EntryBudget,
    directory: usize,
    entries: u32,
    refused: bool,
    of: PhantomData<A>,
}

impl<'w, 'v, A> Entries<'w, 'v, A> {
    /// The end of the list, and EOF.
    const TAIL: usize = 4 + 4;

    /// Writes `head`: the status and what else stands before the entries.
    pub(super) fn begin_with(
        w: &'w mut Writer<'v>,
        budget: EntryBudget,
        head: impl FnOnce(&mut Writer<'_>),
    ) -> Self {
        let start = w.position();
        head(w);
        Self {
            w,
            start,
            budget,
            directory: 0,
            entries: 0,
            refused: false,
            of: PhantomData,
        }
    }

    /// Adds an entry: what counts for `directory` of the budget, and the rest. Returns `false` if it does not fit, and no
    /// further entry will.
    pub(super) fn push_with(
        &mut self,
        name: impl FnOnce(&mut Writer<'_>),
        rest: impl FnOnce(&mut Writer<'_>),
    ) -> bool {
        if self.refused {
            return false;
        }
        let before = self.w.position();
        self.w.bool(true);
        let item = self.w.position();
        name(self.w);
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

    /// Ends the list. `eof`: whether the directory has no more entries.
    ///
    /// # Errors
    /// [`TooSmall`] if the first entry did not fit, or not even an empty list fits. Everything is taken back, so that another
    /// result can be written.
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
