//! Copies that go on after the reply of COPY (RFC 7862, sections 4.8, 15.8, 15.9 and 16.1): their stateids, and how far they are.
//! A copy is known until its client has answered CB_OFFLOAD, has cancelled it, or is gone.

use std::collections::BTreeMap;

use odafs_common::wire::nfs4::{StateId, Status, Verifier};
use odafs_fabric::clock::Nanos;

use super::back_channel::Callback;
use super::opens::Key;
use super::stateids::key_of;
use super::{Io, Origin, Sender, State};
use crate::vfs::ObjectId;

/// The most copies of a client.
const COPIES_MAX: usize = 8;
/// The most copies of all clients.
const ALL_COPIES_MAX: usize = 64;
/// The sequence number of a copy's stateid, which never changes. 0 would stand for the latest of several (RFC 7862, section 4.8).
const SEQUENCE: u32 = 1;

/// A copy that begins.
#[derive(Clone, Copy, Debug)]
pub struct Copying {
    /// The stateid and the file that it reads.
    pub source: (StateId, ObjectId),
    /// The stateid and the file that it writes.
    pub target: (StateId, ObjectId),
    /// The write verifier before the first byte was copied.
    pub verifier: Verifier,
    /// The compound of COPY, whose reply CB_OFFLOAD may overtake.
    pub origin: Option<Origin>,
}

/// How a copy ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Copied {
    /// `Ok`: `count` bytes were copied, perhaps fewer than asked for.
    pub status: Status,
    /// Bytes copied.
    pub count: u64,
    /// The write verifier before the first byte was copied.
    pub verifier: Verifier,
}

/// Whether the next piece of a copy may be copied.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NextPiece {
    /// Yes. [`State::end_piece`] or [`State::end_copy`] says when it has ended.
    Copy,
    /// No: the copy ends with this status.
    Refused(Status),
    /// No: nobody wants the copy any more.
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
    /// The rules of who may reach what have changed since it began.
    withdrawn: bool,
    /// How it ended, if it has.
    result: Option<Status>,
}

impl Copies {
    /// Whether a copy has this key.
    pub fn has(&self, key: Key) -> bool {
        self.0.contains_key(&key)
    }

    fn of(&self, client: u32) -> impl Iterator<Item = Key> {
        self.0
            .range((client, 0)..=(client, u32::MAX))
            .map(|(key, _)| *key)
    }
}

/// The stateid that stands for the latest of the same state.
fn latest(stateid: StateId) -> StateId {
    match stateid {
        StateId::READ_BYPASS => stateid,
        _ => StateId {
            sequence: 0,
            ..stateid
        },
    }
}

impl State {
    /// Whether a copy of this client may go on after its reply: it receives CB_OFFLOAD, and there are not too many copies.
    pub fn may_copy_later(&self, sender: Sender) -> bool {
        self.client_that_may_copy(sender).is_some()
    }

    fn client_that_may_copy(&self, sender: Sender) -> Option<u32> {
        let Sender::Client(id) = sender else {
            return None;
        };
        let client = self.session_client(id).ok()?;
        let few = self.copies.of(client).count() < COPIES_MAX;
        let may = few && self.copies.0.len() < ALL_COPIES_MAX && self.hears_of_copies(client);
        may.then_some(client)
    }

    /// Begins a copy that goes on after its reply, and returns its stateid. `None`: the copy may not go on.
    pub fn begin_copy(&mut self, sender: Sender, copying: Copying) -> Option<StateId> {
        let client = self.client_that_may_copy(sender)?;
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

    /// Begins the next piece of a copy, if its stateids still allow it, as for READ and WRITE.
    pub fn next_piece(&mut self, now: Nanos, stateid: &StateId) -> NextPiece {
        let key = key_of(stateid);
        let known = self.copies.0.get_mut(&key);
        let Some(known) = known.filter(|known| known.result.is_none()) else {
            return NextPiece::Gone;
        };
        known.busy = true;
        if known.withdrawn {
            return NextPiece::Refused(Status::Access);
        }
        let of = known.of;
        let sender = Sender::Client(self.id(key.0));
        let may = self
            .io(now, sender, &of.source.0, of.source.1, Io::Read)
            .and_then(|_| self.io(now, sender, &of.target.0, of.target.1, Io::Write));
        match may {
            Ok(_) => NextPiece::Copy,
            Err(status) => NextPiece::Refused(status),
        }
    }

    /// Ends a piece of so many bytes. False: nobody wants the rest.
    pub fn end_piece(&mut self, stateid: &StateId, bytes: u64) -> bool {
        let key = key_of(stateid);
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

    /// Ends a copy, and tells its client. If anything was copied before a failure, that is a success: the client meets the
    /// failure when it asks for the rest, as after a short WRITE.
    pub fn end_copy(&mut self, stateid: &StateId, status: Status) {
        let key = key_of(stateid);
        if !self.end_piece(stateid, 0) {
            return;
        }
        let Some(known) = self.copies.0.get_mut(&key) else {
            return;
        };
        let status = if known.copied > 0 { Status::Ok } else { status };
        known.result = Some(status);
        let callback = Callback::Offload {
            stateid: *stateid,
            file: known.of.target.1,
            origin: known.of.origin,
            copied: Copied {
                status,
                count: known.copied,
                verifier: known.of.verifier,
            },
        };
        self.say(key.0, callback);
    }

    /// OFFLOAD_STATUS: bytes copied so far, and how the copy ended if it has.
    pub fn copy_status(
        &self,
        sender: Sender,
        stateid: &StateId,
        file: ObjectId,
    ) -> Result<(u64, Option<Status>), Status> {
        let known = self.copy(sender, stateid, file)?;
        Ok((known.copied, known.result))
    }

    /// OFFLOAD_CANCEL. No other piece begins. One may still be under way: see [`State::is_copying`].
    pub fn cancel_copy(
        &mut self,
        sender: Sender,
        stateid: &StateId,
        file: ObjectId,
    ) -> Result<(), Status> {
        self.copy(sender, stateid, file)?;
        self.forget_copy(stateid);
        Ok(())
    }

    /// Whether a piece of a copy that was cancelled is still under way.
    pub fn is_copying(&self, stateid: &StateId) -> bool {
        self.copies.has(key_of(stateid))
    }

    /// The rules of who may reach what have changed. No copy goes on with the rights with which it began.
    pub fn withdraw_copies(&mut self) {
        for known in self.copies.0.values_mut() {
            known.withdrawn = true;
        }
    }

    /// The number of copies, for metrics.
    pub fn copies(&self) -> usize {
        self.copies.0.len()
    }

    fn copy(&self, sender: Sender, stateid: &StateId, file: ObjectId) -> Result<&Known, Status> {
        let known = self.copies.0.get(&self.key(sender, stateid)?);
        let known = known.filter(|known| known.of.target.1 == file && !known.cancelled);
        let known = known.filter(|_| stateid.sequence == SEQUENCE);
        known.ok_or(Status::BadStateId)
    }

    /// Forgets a copy, whose client is told nothing more. While a piece is under way the copy is known as cancelled.
    pub fn forget_copy(&mut self, stateid: &StateId) {
        let key = key_of(stateid);
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
