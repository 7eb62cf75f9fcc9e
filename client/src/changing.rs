//! Changes after which other data of a file is cached, by path and by handle alike.

use crate::{
    handle::FileHandle,
    nfs::{NfsError, Removed},
    shared::Shared,
    types::{Attributes, Changes, Create, Entry},
};
use std::time::SystemTime;

impl Shared {
    /// CREATE. It may have truncated an existing file.
    pub fn create(
        &self,
        directory: &FileHandle,
        name: &[u8],
        how: &Create,
    ) -> Result<Entry, NfsError> {
        if let Create::Unchecked(_) = how {
            self.changes_names();
        }
        let made = self.nfs().create(directory, name, how)?;
        if let Some(known) = self.known_file(&made.handle) {
            known.drop_pages();
            self.directory.forget_range(&known.tree, 0, u64::MAX);
        }
        Ok(made)
    }

    /// REMOVE or RMDIR. No file loses a name by RMDIR.
    pub fn remove(
        &self,
        directory: &FileHandle,
        name: &[u8],
        what: Removed,
    ) -> Result<(), NfsError> {
        if what == Removed::File {
            self.changes_names();
        }
        self.nfs().remove(directory, name, what)
    }

    /// RENAME.
    pub fn rename(
        &self,
        from: (&FileHandle, &[u8]),
        to: (&FileHandle, &[u8]),
    ) -> Result<(), NfsError> {
        self.changes_names();
        self.nfs().rename(from, to)
    }

    /// LINK.
    pub fn link(
        &self,
        file: &FileHandle,
        directory: &FileHandle,
        name: &[u8],
    ) -> Result<(), NfsError> {
        self.changes_names();
        self.nfs().link(file, directory, name)
    }

    /// SETATTR, with a guard if a `ctime` is given. Returns the attributes after it.
    pub fn set_attributes(
        &self,
        file: &FileHandle,
        new: &Changes,
        guard: Option<SystemTime>,
    ) -> Result<Attributes, NfsError> {
        let state = self.file(*file);
        let _changing = self.changes(&state);
        state.mark_write();
        let changed = self.nfs().set_attributes(file, new, guard);
        state.mark_write();
        if new.size.is_some() || changed.is_err() {
            state.drop_pages();
            self.directory.forget_range(&state.tree, 0, u64::MAX);
        }
        let changed = changed?;
        state.wrote(&changed);
        changed
            .after
            .map_or_else(|| self.nfs().attributes(file), Ok)
    }
}
