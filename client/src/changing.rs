//! Changes after which other data of a file is cached, by path and by handle alike.

use crate::{
    handle::FileHandle,
    nfs::{NfsError, Removed},
    shared::Shared,
    types::{Attributes, Changes, Create, Entry},
};
use std::time::SystemTime;

impl Shared {
    /// CREATE, and SETATTR if that opened a file whose size is to be set. A CREATE that sets it would do that while
    /// earlier writes to the file are under way or sent again, because it names no handle to order them by.
    pub fn create(
        &self,
        directory: &FileHandle,
        name: &[u8],
        how: &Create,
    ) -> Result<Entry, NfsError> {
        let (how, size) = match *how {
            Create::Unchecked(attributes) => {
                self.changes_names();
                let sizeless = Changes {
                    size: None,
                    ..attributes
                };
                (Create::Unchecked(sizeless), attributes.size)
            }
            how => (how, None),
        };
        let mut made = self.nfs().create(directory, name, &how)?;
        let known = self.known_file(&made.handle);
        if let Some(known) = &known {
            known.drop_pages();
            self.directory.forget_range(&known.tree, 0, u64::MAX);
        }
        // A known file may have this size because the server has lost writes, which are not to be sent again.
        if size.is_some_and(|size| known.is_some() || made.attributes.size != size) {
            let cut = Changes {
                size,
                ..Changes::default()
            };
            made.attributes = self.set_attributes(&made.handle, &cut, None)?;
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
        // No earlier write is sent, or sent again, after the server has set the size, and none that is later is cut.
        let _alone = new
            .size
            .map(|_| (state.syncing.lock(), state.order.write()));
        let _changing = self.changes(&state);
        state.mark_write();
        let changed = self.nfs().set_attributes(file, new, guard);
        state.mark_write();
        if new.size.is_some() || changed.is_err() {
            state.drop_pages();
            self.directory.forget_range(&state.tree, 0, u64::MAX);
        }
        let changed = changed?;
        if let Some(size) = new.size {
            state.unstable.lock().cut(size);
        }
        state.wrote(&changed);
        changed
            .after
            .map_or_else(|| self.nfs().attributes(file), Ok)
    }
}
