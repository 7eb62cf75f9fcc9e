//! Listing a directory by its path.

use crate::{error::PathError, listing::Entries, metadata::DirEntry};
use std::path::{Path, PathBuf};

/// The entries of a directory; see [`Client::read_dir`](crate::Client::read_dir).
#[derive(Debug)]
pub struct ReadDir {
    path: PathBuf,
    entries: Entries,
}

impl ReadDir {
    /// The entries of the directory at `path`. Fetches the first ones.
    pub(crate) fn new(path: &Path, mut entries: Entries) -> Result<Self, PathError> {
        let path = path.to_owned();
        entries
            .fetch()
            .map_err(|error| error.about("list", &path))?;
        Ok(Self { path, entries })
    }
}

impl Iterator for ReadDir {
    type Item = Result<DirEntry, PathError>;

    fn next(&mut self) -> Option<Self::Item> {
        let entry = self
            .entries
            .find(|entry| !matches!(entry, Ok(entry) if entry.name == "." || entry.name == ".."))?;
        Some(match entry {
            Ok(entry) => Ok(entry.into()),
            Err(error) => Err(error.about("list", &self.path)),
        })
    }
}
