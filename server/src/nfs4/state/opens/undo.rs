//! OPENs that are undone after they have changed the state.

use super::{Key, What};
use crate::nfs4::state::stateids::key_of;
use crate::nfs4::state::{Opened, State};

/// What an open was before an OPEN added to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SharesBefore {
    access: u32,
    deny: u32,
    pairs: u16,
    sequence: u32,
}

impl State {
    /// Forgets a new open that its client is not told of, because OPEN brings a delegation instead. False: the open was there
    /// before, or was changed since, and stays.
    pub fn take_back_open(&mut self, opened: &Opened) -> bool {
        let key = key_of(&opened.stateid);
        let Some(entry) = self.entries.get(&key) else {
            return false;
        };
        let new = opened.before.is_none() && entry.sequence == opened.stateid.sequence;
        if new {
            let owner = entry.owner;
            self.drop_open(key);
            self.release_owner(owner);
        }
        new
    }

    /// Undoes an OPEN that has failed after all: a stateid that was there before is as it was (RFC 7530, section 9.1.4; RFC 8881,
    /// section 8.2.2). If the open was changed since, it stays as it is.
    pub fn undo_open(&mut self, opened: &Opened) {
        let Some(before) = opened.before else {
            self.take_back_open(opened);
            return;
        };
        let key = key_of(&opened.stateid);
        let entry = self.entries.get_mut(&key);
        let Some(entry) = entry.filter(|entry| entry.sequence == opened.stateid.sequence) else {
            return;
        };
        let What::Open(open) = &mut entry.what else {
            return;
        };
        entry.sequence = before.sequence;
        (open.access, open.deny, open.pairs) = (before.access, before.deny, before.pairs);
        if let Some(file) = self.files.get_mut(&entry.file) {
            file.opens.set(key, before.access, before.deny);
        }
    }

    pub(super) fn shares_of(&self, key: Key) -> Option<SharesBefore> {
        let entry = self.entries.get(&key)?;
        let What::Open(open) = &entry.what else {
            return None;
        };
        Some(SharesBefore {
            access: open.access,
            deny: open.deny,
            pairs: open.pairs,
            sequence: entry.sequence,
        })
    }
}
