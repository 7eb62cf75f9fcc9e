//! Changes after which something else is cached of a file, by path and by handle alike.

use crate::{
    handle::Handle,
    nfs::{Found, NfsError},
    shared::Shared,
};
use odafs_common::wire::nfs3::{Attributes, CreateHow, SetAttributes, Time};

impl Shared {
    /// CREATE: what was there may have been cut.
    pub fn create(
        &self,
        directory: &Handle,
        name: &[u8],
        how: CreateHow,
    ) -> Result<Found, NfsError> {
        let made = self.nfs().create(directory, name, how)?;
        if let Some(known) = self.known_file(&made.handle) {
            known.drop_pages();
            self.directory.forget_range(&known.tree, 0, u64::MAX);
        }
        Ok(made)
    }

    /// SETATTR, with a guard only if the `ctime` is that; what the attributes are then.
    pub fn set_attributes(
        &self,
        file: &Handle,
        new: SetAttributes,
        guard: Option<Time>,
    ) -> Result<Attributes, NfsError> {
        let state = self.file(*file);
        state.mark_write();
        let wcc = self.nfs().set_attributes(file, new, guard);
        state.mark_write();
        if new.size.is_some() || wcc.is_err() {
            state.drop_pages();
            self.directory.forget_range(&state.tree, 0, u64::MAX);
        }
        let wcc = wcc?;
        state.wrote(&wcc);
        wcc.after.map_or_else(|| self.nfs().attributes(file), Ok)
    }
}
