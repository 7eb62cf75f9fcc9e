//! Copies that go on after their COPY was answered (RFC 7862, sections 4.8, 15.8, 15.9 and 16.1): which there are, under which
//! stateids, and how far they are. A copy is known until its client has heard what became of it (CB_OFFLOAD), has cancelled it,
//! or is gone.

use std::collections::BTreeMap;

use odafs_common::wire::nfs4::{StateId, Status, Verifier};
use odafs_fabric::clock::Nanos;

use super::back::Callback;
use super::opens::Key;
use super::stateids::words;
use super::{Io, Origin, Sender, State};
use crate::vfs::ObjectId;

/// The most copies of a client.
const COPIES_MAX: usize = 8;
/// The most copies of all clients.
const ALL_COPIES_MAX: usize = 64;
/// A copy has one stateid, which never changes. Its number is not 0, which would stand for the latest of several (RFC 7862,
/// section 4.8).
const SEQUENCE: u32 = 1;

/// What a copy is of: the stateid and the file on either side, and the verifier from before.
#[derive(Clone, Copy, Debug)]
pub struct Copying {
    /// Where it reads.
    pub source: (StateId, ObjectId),
    /// Where it writes.
    pub target: (StateId, ObjectId),
    /// Write verifier from before the first byte.
    pub verifier: Verifier,
    /// The COPY, whose reply CB_OFFLOAD may overtake.
    pub origin: Option<Origin>,
}

/// What became of a copy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Copied {
    /// `Ok`: `count` bytes are there, fewer than asked for perhaps.
    pub status: Status,
    /// Bytes copied.
    pub count: u64,
    /// Write verifier from before the first byte.
    pub verifier: Verifier,
}

/// What is to be done for a copy next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CopyTurn {
    /// Copy a piece, and say so by [`State::copied`] or [`State::end_copy`].
    Copy,
    /// Its stateids allow no more of it.
    Refused(Status),
    /// Nobody wants it any more.
    Gone,
}

/// The copies of all clients.
#[derive(Debug, Default)]
pub(super) struct Copies(BTreeMap<Key, Known>);

#[derive(Debug)]
struct Known {
    of: Copying,
    copied: u64,
    /// A piece is being copied.
    busy: bool,
    cancelled: bool,
    /// It began under other rules of who may reach what.
    withdrawn: bool,
    /// It is over.
    result: Option<Status>,
}

impl Copies {
    /// Whether a copy has this number.
    pub fn has(&self, key: Key) -> bool {
        self.0.contains_key(&key)
    }

    fn of(&self, client: u32) -> impl Iterator<Item = Key> {
        self.0
            .range((client, 0)..=(client, u32::MAX))
            .map(|(key, _)| *key)
    }
}

fn key_of(state: &StateId) -> Key {
    let [_, client, number] = words(&state.other);
    (client, number)
}

/// The stateid whatever becomes of what it names.
fn latest(state: StateId) -> StateId {
    match state {
        StateId::READ_BYPASS => state,
        _ => StateId {
            sequence: 0,
            ..state
        },
    }
}

impl State {
    /// Whether a copy of this client may go on after its reply: the client hears what becomes of it, and there is room.
    pub fn may_copy_later(&self, sender: Sender) -> bool {
        let Sender::Client(id) = sender else {
            return false;
        };
        self.session_client(id).is_ok_and(|client| {
            self.hears_of_copies(client)
                && self.copies.of(client).count() < COPIES_MAX
                && self.copies.0.len() < ALL_COPIES_MAX
        })
    }

    /// A copy begins, which goes on after its reply: its stateid. `None`: it may not.
    pub fn begin_copy(&mut self, sender: Sender, copying: Copying) -> Option<StateId> {
        let Sender::Client(id) = sender else {
            return None;
        };
        if !self.may_copy_later(sender) {
            return None;
        }
        let client = self.session_client(id).ok()?;
        let key = self.free_key(client)?;
        let known = Known {
            of: Copying {
                source: (latest(copying.source.0), copying.source.1),
                target: (latest(copying.target.0), copying.target.1),
                ..copying
            },
            copied: 0,
            busy: false,
            cancelled: false,
            withdrawn: false,
            result: None,
        };
        self.copies.0.insert(key, known);
        Some(self.state_id(key, SEQUENCE))
    }

    /// What is to be done for a copy. What its stateids stand for must still allow it, as for READ and WRITE.
    pub fn copy_turn(&mut self, now: Nanos, state: &StateId) -> CopyTurn {
        let key = key_of(state);
        let Some(known) = self.copies.0.get_mut(&key) else {
            return CopyTurn::Gone;
        };
        if known.result.is_some() {
            return CopyTurn::Gone;
        }
        known.busy = true;
        if known.withdrawn {
            return CopyTurn::Refused(Status::Access);
        }
        let of = known.of;
        let sender = Sender::Client(self.id(key.0));
        let may = self
            .io(now, sender, &of.source.0, of.source.1, Io::Read)
            .and_then(|()| self.io(now, sender, &of.target.0, of.target.1, Io::Write));
        match may {
            Ok(()) => CopyTurn::Copy,
            Err(status) => CopyTurn::Refused(status),
        }
    }

    /// So many bytes more were copied. False: nobody wants the rest.
    pub fn copied(&mut self, state: &StateId, bytes: u64) -> bool {
        let key = key_of(state);
        let Some(known) = self.copies.0.get_mut(&key) else {
            return false;
        };
        known.busy = false;
        known.copied += bytes;
        if known.cancelled {
            self.copies.0.remove(&key);
            return false;
        }
        true
    }

    /// A copy is over, and its client is told so. What was copied before a failure is a success: the client hears of the failure
    /// when it asks for the rest, as it does after a short WRITE.
    pub fn end_copy(&mut self, state: &StateId, status: Status) {
        let key = key_of(state);
        if !self.copied(state, 0) {
            return;
        }
        let Some(known) = self.copies.0.get_mut(&key) else {
            return;
        };
        let status = if known.copied > 0 { Status::Ok } else { status };
        known.result = Some(status);
        let told = Callback::Offload {
            state: *state,
            file: known.of.target.1,
            origin: known.of.origin,
            copied: Copied {
                status,
                count: known.copied,
                verifier: known.of.verifier,
            },
        };
        self.say(key.0, told);
    }

    /// OFFLOAD_STATUS: bytes copied so far, and what became of the copy if it is over.
    pub fn copy_status(
        &self,
        sender: Sender,
        state: &StateId,
        file: ObjectId,
    ) -> Result<(u64, Option<Status>), Status> {
        let known = self.copy(sender, state, file)?;
        Ok((known.copied, known.result))
    }

    /// OFFLOAD_CANCEL. No piece is begun any more. One may be under way still: see [`State::is_copying`].
    pub fn cancel_copy(
        &mut self,
        sender: Sender,
        state: &StateId,
        file: ObjectId,
    ) -> Result<(), Status> {
        self.copy(sender, state, file)?;
        self.forget_copy(state);
        Ok(())
    }

    /// Whether a piece of a copy that was cancelled is under way.
    pub fn is_copying(&self, state: &StateId) -> bool {
        self.copies.has(key_of(state))
    }

    /// The rules of who may reach what have changed: no copy goes on with the rights that it began with.
    pub fn withdraw_copies(&mut self) {
        for known in self.copies.0.values_mut() {
            known.withdrawn = true;
        }
    }

    /// How many there are: for metrics.
    pub fn copies(&self) -> usize {
        self.copies.0.len()
    }

    fn copy(&self, sender: Sender, state: &StateId, file: ObjectId) -> Result<&Known, Status> {
        let key = self.key(sender, state)?;
        let known = self.copies.0.get(&key);
        known
            .filter(|known| {
                state.sequence == SEQUENCE && known.of.target.1 == file && !known.cancelled
            })
            .ok_or(Status::BadStateId)
    }

    /// The copy goes on no more, and its client is not to hear of it again. While a piece is under way it is known as cancelled.
    pub fn forget_copy(&mut self, state: &StateId) {
        let key = key_of(state);
        let Some(known) = self.copies.0.get_mut(&key) else {
            return;
        };
        known.cancelled = true;
        if !known.busy {
            self.copies.0.remove(&key);
        }
    }

    /// Ends the copies of a client.
    pub(super) fn drop_copies(&mut self, client: u32) {
        for key in Vec::from_iter(self.copies.of(client)) {
            self.copies.0.remove(&key);
        }
    }
}
