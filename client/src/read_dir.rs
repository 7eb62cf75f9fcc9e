//! Listing a directory.

use crate::{
    client::Client,
    error::PathError,
    handle::Handle,
    metadata::DirEntry,
    nfs::{ListedEntry, Listing},
};

/// The entries of a directory; see [`Client::read_dir`].
#[derive(Debug)]
pub struct ReadDir {
    client: Client,
    directory: Handle,
    path: String,
    listing: Ahead,
    failed: bool,
}

impl ReadDir {
    /// The entries of `directory`, of which `first` were listed.
    pub(crate) fn new(client: Client, directory: Handle, path: String, first: Listing) -> Self {
        Self {
            client,
            directory,
            path,
            listing: first.into(),
            failed: false,
        }
    }
}

/// What was listed and not yet asked for.
#[derive(Debug)]
struct Ahead {
    entries: std::vec::IntoIter<ListedEntry>,
    verifier: [u8; 8],
    cookie: u64,
    eof: bool,
}

impl From<Listing> for Ahead {
    fn from(listing: Listing) -> Self {
        let cookie = listing.entries.last().map_or(0, |entry| entry.cookie);
        // A listing that has neither entries nor an end would be asked for for ever.
        let eof = listing.eof || listing.entries.is_empty();
        Self {
            entries: listing.entries.into_iter(),
            verifier: listing.verifier,
            cookie,
            eof,
        }
    }
}

impl Iterator for ReadDir {
    type Item = Result<DirEntry, PathError>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            match self.listing.entries.next() {
                Some(entry) if entry.name == b"." || entry.name == b".." => {}
                Some(entry) => return Some(Ok(entry.into())),
                None if self.listing.eof || self.failed => return None,
                None => {
                    let (cookie, verifier) = (self.listing.cookie, self.listing.verifier);
                    match self.client.nfs().list(&self.directory, cookie, verifier) {
                        Ok(listing) => self.listing = listing.into(),
                        Err(error) => {
                            self.failed = true;
                            return Some(Err(error.at("list", &self.path)));
                        }
                    }
                }
            }
        }
    }
}
