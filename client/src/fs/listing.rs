//! Listing a directory.

use super::{Cookie, DirEntry, Handle, of};
use crate::{client::Client, error::PathError, nfs::ListedEntry};
use std::{ffi::OsString, os::unix::ffi::OsStringExt as _};

/// The entries of a directory; see [`FileSystem::readdir`](super::FileSystem::readdir).
#[derive(Debug)]
pub struct Entries {
    client: Client,
    directory: Handle,
    plus: bool,
    /// Listed, and not yet asked for.
    ahead: std::vec::IntoIter<ListedEntry>,
    /// Behind those.
    next: Cookie,
    done: bool,
}

impl Entries {
    pub(super) fn new(client: Client, directory: Handle, from: Cookie, plus: bool) -> Self {
        Self {
            client,
            directory,
            plus,
            ahead: Vec::new().into_iter(),
            next: from,
            done: false,
        }
    }

    /// Fetches the first entries, if none are at hand.
    pub(crate) fn fetch(&mut self) -> Result<(), PathError> {
        if self.done || !self.ahead.as_slice().is_empty() {
            return Ok(());
        }
        let Cookie { value, verifier } = self.next;
        let listing = self
            .client
            .nfs()
            .list(&self.directory, value, verifier, self.plus)
            .inspect_err(|_| self.done = true)
            .map_err(of("list", &self.directory))?;
        // A listing that has neither entries nor an end would be asked for for ever.
        self.done = listing.eof || listing.entries.is_empty();
        self.next.verifier = listing.verifier;
        if let Some(last) = listing.entries.last() {
            self.next.value = last.cookie;
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
        let entry = self.ahead.next()?;
        Some(Ok(DirEntry {
            name: OsString::from_vec(entry.name),
            fileid: entry.file_id,
            cookie: Cookie {
                value: entry.cookie,
                verifier: self.next.verifier,
            },
            handle: entry.handle,
            attributes: entry.attributes.map(Into::into),
        }))
    }
}
