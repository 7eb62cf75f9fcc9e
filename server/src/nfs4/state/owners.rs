//! Owners of opens and of locks, and the sequence numbers that minor version 0 counts their operations with (RFC 7530,
//! section 9.1.3 to 9.1.9).

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;

use odafs_common::wire::nfs4::{MAX_OPAQUE, StateId, StateOwner, Status};
use odafs_fabric::clock::Nanos;

use super::locks::holder;
use super::opens::{Key, What};
use super::{OwnerTurn, Sender, State, Turn};
use crate::vfs::ObjectId;

/// The names of owners have so many bytes at most, on the mean of as many owners as there may be.
const NAME_BYTES: usize = 64;

/// What an owner owns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum OwnerRole {
    Open,
    Lock,
}

/// An owner of opens or locks.
#[derive(Debug)]
pub(super) struct KnownOwner {
    pub client: u32,
    pub role: OwnerRole,
    pub name: Vec<u8>,
    /// The lower halves of the keys of its state.
    pub states: HashSet<u32>,
    /// Its first open was confirmed, or needs not be.
    pub confirmed: bool,
    turns: Turns,
}

/// The operations of an owner, one after the other (4.0).
#[derive(Debug, Default)]
struct Turns {
    /// Of the last operation, or of the one under way.
    sequence: u32,
    /// There was an operation.
    begun: bool,
    /// An operation is under way, with this number.
    busy: Option<u32>,
    /// The result of the last.
    kept: Option<Arc<[u8]>>,
    /// The open that the last one closed: a repetition names it.
    closed: Option<u32>,
    used: Nanos,
}

/// Whether an operation that ended so counts (RFC 7530, section 9.1.7).
fn counts(status: Status) -> bool {
    !matches!(
        status,
        Status::StaleClientId
            | Status::StaleStateId
            | Status::BadStateId
            | Status::BadSeqId
            | Status::BadXdr
            | Status::Resource
            | Status::NoFileHandle
            | Status::Moved
    )
}

impl State {
    /// Takes the turn of an open owner for OPEN. `None`: another operation of the owner has it.
    pub fn owner_turn(
        &mut self,
        now: Nanos,
        owner: &StateOwner<'_>,
        sequence: u32,
    ) -> Result<Option<Turn>, Status> {
        let client = self.legacy_client(now, owner.client_id)?;
        self.make_room_for_state(now, client);
        let number = self.owner(client, OwnerRole::Open, owner.owner.0);
        // There may be room once stable storage has forgotten the silent.
        let number = number.map_err(|status| match self.is_held_up() {
            true => Status::Delay,
            false => status,
        })?;
        let Some(found) = self.owners.get(&number) else {
            return Err(Status::ServerFault);
        };
        let turns = &found.turns;
        let restarts = turns.begun
            && !found.confirmed
            && turns.busy.is_none()
            && sequence != turns.sequence
            && sequence != turns.sequence.wrapping_add(1);
        if restarts {
            // It was never confirmed: a client that has forgotten it may begin anew.
            self.take_states(number);
            if let Some(found) = self.owners.get_mut(&number) {
                found.turns = Turns::default();
            }
        }
        self.turn(now, number, sequence)
    }

    /// The same of the owner of a state, for OPEN_CONFIRM, OPEN_DOWNGRADE, CLOSE, LOCK and LOCKU.
    pub fn state_turn(
        &mut self,
        now: Nanos,
        state: &StateId,
        sequence: u32,
    ) -> Result<Option<Turn>, Status> {
        let key = self.key(Sender::Named, state)?;
        let entry = self.entries.get(&key).ok_or(Status::BadStateId)?;
        let owner = entry.owner;
        self.legacy_client(now, self.id(key.0))?;
        self.turn(now, owner, sequence)
    }

    fn turn(&mut self, now: Nanos, number: u64, sequence: u32) -> Result<Option<Turn>, Status> {
        let Some(owner) = self.owners.get_mut(&number) else {
            return Err(Status::BadStateId);
        };
        let turns = &mut owner.turns;
        if turns.busy.is_some() {
            return Ok(None);
        }
        turns.used = now;
        if turns.begun {
            if sequence == turns.sequence
                && let Some(kept) = &turns.kept
            {
                return Ok(Some(Turn::Replay(Arc::clone(kept))));
            }
            if sequence != turns.sequence.wrapping_add(1) {
                return Err(Status::BadSeqId);
            }
        }
        turns.busy = Some(sequence);
        let closed = turns.closed.take();
        let client = owner.client;
        if let Some(closed) = closed {
            self.remove_entry((client, closed));
        }
        Ok(Some(Turn::Execute(OwnerTurn {
            client: self.id(client),
            owner: number,
        })))
    }

    /// Ends a turn: the result, from the status on.
    pub fn end_turn(&mut self, turn: OwnerTurn, status: Status, result: &[u8]) {
        let Some(owner) = self.owners.get_mut(&turn.owner) else {
            return;
        };
        let turns = &mut owner.turns;
        if let Some(sequence) = turns.busy.take()
            && counts(status)
        {
            turns.sequence = sequence;
            turns.begun = true;
            turns.kept = Some(Arc::from(result));
        }
    }

    /// The operation that is under way closes this open, which a repetition names.
    pub(super) fn remember_closed(&mut self, owner: u64, state: u32) {
        let Some(owner) = self.owners.get_mut(&owner) else {
            return;
        };
        let client = owner.client;
        if let Some(earlier) = owner.turns.closed.replace(state) {
            self.remove_entry((client, earlier));
        }
    }

    /// Whether an operation with this number may be the next of a lock owner that is named by its open (4.0).
    pub(super) fn is_next(&self, owner: u64, sequence: u32) -> bool {
        self.owners.get(&owner).is_some_and(|owner| {
            let turns = &owner.turns;
            let next = !turns.begun || sequence == turns.sequence.wrapping_add(1);
            next && turns.busy.is_none()
        })
    }

    /// Counts a LOCK that has ended so for a lock owner that was named by its open, however it ended (RFC 7530, section 9.1.7). An
    /// owner that is not known, because it has locked nothing yet, begins with any number.
    pub fn count_lock(
        &mut self,
        now: Nanos,
        owner: &StateOwner<'_>,
        sequence: u32,
        status: Status,
    ) {
        let client = self.number(owner.client_id);
        let number = client.and_then(|it| self.find_owner(it, OwnerRole::Lock, owner.owner.0));
        let Some(number) = number.filter(|it| counts(status) && self.is_next(*it, sequence)) else {
            return;
        };
        if let Some(owner) = self.owners.get_mut(&number) {
            owner.confirmed = true;
            owner.turns = Turns {
                sequence,
                begun: true,
                used: now,
                ..Turns::default()
            };
        }
    }

    /// RELEASE_LOCKOWNER
    pub fn release_lock_owner(&mut self, now: Nanos, owner: &StateOwner<'_>) -> Result<(), Status> {
        let client = self.legacy_client(now, owner.client_id)?;
        let Some(number) = self.find_owner(client, OwnerRole::Lock, owner.owner.0) else {
            return Ok(());
        };
        if self.holds_locks(number) {
            return Err(Status::LocksHeld);
        }
        self.remove_owner(number);
        Ok(())
    }

    fn holds_locks(&self, number: u64) -> bool {
        let Some(owner) = self.owners.get(&number) else {
            return false;
        };
        let mut entries = owner.states.iter();
        entries.any(|state| {
            let entry = self.entries.get(&(owner.client, *state));
            entry.is_some_and(|entry| self.locks.count(entry.file, holder(number)) > 0)
        })
    }

    pub(super) fn find_owner(&self, client: u32, role: OwnerRole, name: &[u8]) -> Option<u64> {
        let client = self.clients.get(&client)?;
        client.owners[role as usize].get(name).copied()
    }

    /// The owner of this name, which is made if it is not there.
    pub(super) fn owner(
        &mut self,
        client: u32,
        role: OwnerRole,
        name: &[u8],
    ) -> Result<u64, Status> {
        if let Some(number) = self.find_owner(client, role, name) {
            return Ok(number);
        }
        let too_much = self.too_much(client);
        let number = self.serial();
        let Some(known) = self.clients.get_mut(&client) else {
            return Err(Status::Expired);
        };
        // In 4.0 there may be owners without state.
        let limits = &self.limits;
        let owners: usize = known.owners.iter().map(HashMap::len).sum();
        let many = owners >= limits.states || self.owners.len() >= limits.all_states;
        let bytes = name.len();
        let long = known.name_bytes + bytes > limits.states * NAME_BYTES
            || self.name_bytes + bytes > limits.all_states * NAME_BYTES;
        if many || long {
            return Err(too_much);
        }
        known.name_bytes += bytes;
        self.name_bytes += bytes;
        known.owners[role as usize].insert(name.to_vec(), number);
        let owner = KnownOwner {
            client,
            role,
            name: name.to_vec(),
            states: HashSet::new(),
            confirmed: !known.legacy(),
            turns: Turns::default(),
        };
        self.owners.insert(number, owner);
        Ok(number)
    }

    /// Forgets an owner that has no state. Minor version 0 keeps it for a while, for repetitions.
    pub(super) fn release_owner(&mut self, number: u64) {
        let Some(owner) = self.owners.get(&number) else {
            return;
        };
        let legacy = self.clients.get(&owner.client).is_some_and(|c| c.legacy());
        if owner.states.is_empty() && !(legacy && (owner.turns.begun || owner.turns.busy.is_some()))
        {
            self.remove_owner(number);
        }
    }

    /// Forgets the owners of minor version 0 that have no state and were not heard of for a lease.
    pub(super) fn sweep_owners(&mut self, now: Nanos) {
        let idle: Vec<u64> = self
            .owners
            .iter()
            .filter(|(_, owner)| {
                let turns = &owner.turns;
                let closed = usize::from(turns.closed.is_some());
                let held = owner.states.len().saturating_sub(closed);
                let idle = now.since(turns.used) > self.limits.lease;
                held == 0 && turns.busy.is_none() && idle
            })
            .map(|(number, _)| *number)
            .collect();
        for number in idle {
            self.remove_owner(number);
        }
    }

    /// Forgets an owner and its state.
    pub(super) fn remove_owner(&mut self, number: u64) {
        self.take_states(number);
        let Some(owner) = self.owners.remove(&number) else {
            return;
        };
        self.name_bytes -= owner.name.len();
        if let Some(client) = self.clients.get_mut(&owner.client) {
            client.name_bytes -= owner.name.len();
            client.owners[owner.role as usize].remove(&owner.name);
        }
    }

    /// Whether there may be another owner, whatever its name.
    pub(super) fn has_room_for_owner(&self) -> bool {
        let most = self.limits.all_states;
        self.owners.len() < most && self.name_bytes + MAX_OPAQUE as usize <= most * NAME_BYTES
    }

    /// Takes its state from an owner.
    fn take_states(&mut self, number: u64) {
        let Some(owner) = self.owners.get(&number) else {
            return;
        };
        let client = owner.client;
        for state in Vec::from_iter(owner.states.iter().copied()) {
            let key = (client, state);
            match self.entries.get(&key).map(|entry| &entry.what) {
                Some(What::Open(_)) => self.drop_open(key),
                Some(What::Locks { .. }) => self.drop_locks(key),
                None => {}
            }
        }
    }

    /// Takes its owners from a client, with all that they have.
    pub(super) fn take_all(&mut self, client: u32) {
        let Some(known) = self.clients.get(&client) else {
            return;
        };
        let owners = Vec::from_iter(known.owners.iter().flat_map(HashMap::values).copied());
        self.wait_for_nothing(client);
        self.drop_delegations(client);
        self.drop_copies(client);
        let mut locks: BTreeMap<ObjectId, Vec<Key>> = BTreeMap::new();
        for owner in &owners {
            let states = self.owners.get(owner).into_iter().flat_map(|o| &o.states);
            for key in states.map(|state| (client, *state)) {
                if let Some(entry) = self.entries.get(&key)
                    && matches!(entry.what, What::Locks { .. })
                {
                    locks.entry(entry.file).or_default().push(key);
                }
            }
        }
        for (file, locks) in locks {
            self.drop_all_locks(client, file, &locks);
        }
        for owner in owners {
            self.remove_owner(owner);
        }
    }
}
