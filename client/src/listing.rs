//! Listing a directory.

use crate::{
    error::PathError,
    handle::FileHandle,
    shared::Shared,
    types::{Cookie, DirEntry},
};
use odafs_fabric::sync::Arc;

/// The entries of a directory; see [`FileSystem::readdir`](crate::fs::FileSystem::readdir).
pub struct Entries {
    shared: Arc<Shared>,
    directory: FileHandle,
    plus: bool,
    /// Entries that were listed and not yet taken.
    ahead: std::vec::IntoIter<DirEntry>,
    /// The cookie behind those.
    next: Cookie,
    done: bool,
}

impl Entries {
    pub(crate) fn new(
        shared: Arc<Shared>,
        directory: FileHandle,
        from: Cookie,
        plus: bool,
    ) -> Self {
        Self {
            shared,
            directory,
            plus,
            ahead: Vec::new().into_iter(),
            next: from,
            done: false,
        }
    }

    /// Fetches the next entries, if none are left.
    pub(crate) fn fetch(&mut self) -> Result<(), PathError> {
        if self.done || !self.ahead.as_slice().is_empty() {
            return Ok(());
        }
        let listing = self
            .shared
            .nfs()
            .list(&self.directory, self.next, self.plus)
            .inspect_err(|_| self.done = true)
            .map_err(|error| error.at("list", &self.directory.shown()))?;
        // A listing with neither entries nor an end would be fetched for ever.
        self.done = listing.eof || listing.entries.is_empty();
        if let Some(last) = listing.entries.last() {
            self.next = last.cookie;
        }
        self.ahead = listing.entries.into_iter();
        Ok(())
    }
}

impl Iterator for Entries {
    type Item = Result<DirEntry, PathError>;

    fn next(&mut self) -> Option<Self::Item> {
        if let Err(error) = self.fetch() {
            return Some(Err(error));
        }
        self.ahead.next().map(Ok)
    }
}

impl std::fmt::Debug for Entries {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Entries({:?})", self.directory)
    }
}
