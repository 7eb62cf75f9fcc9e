//! Stateids: which state one names, and whether it is the latest (RFC 8881, sections 8.2 and 18.48).

use odafs_common::wire::nfs4::{StateId, Status};
use odafs_fabric::clock::Nanos;

use super::opens::Key;
use super::{Sender, State};

impl State {
    /// TEST_STATEID, for one.
    pub fn test_state(&self, _now: Nanos, client: u64, state: &StateId) -> Status {
        let sender = Sender::Client(client);
        let found = self.key(sender, state).and_then(|key| {
            if self.delegations.has(key) {
                return self.delegation(sender, state, None).map(drop);
            }
            let entry = self.entries.get(&key).ok_or(Status::BadStateId)?;
            is_current(entry.sequence, sender, state)
        });
        found.err().unwrap_or(Status::Ok)
    }

    /// Which state a stateid names, if it can be one of the sender's.
    pub(super) fn key(&self, sender: Sender, state: &StateId) -> Result<Key, Status> {
        let other = state.other;
        if other == [0; 12] || other == [0xff; 12] {
            return Err(Status::BadStateId);
        }
        let [boot, client, number] = words(&other);
        match sender {
            Sender::Client(id) if self.number(id) == Some(client) && boot == self.boot => {}
            Sender::Client(_) => return Err(Status::BadStateId),
            Sender::Named if boot != self.boot => return Err(Status::StaleStateId),
            Sender::Named => match self.clients.get(&client) {
                Some(known) if known.expelled => return Err(Status::Expired),
                Some(known) if known.legacy() => {}
                Some(_) => return Err(Status::BadStateId),
                None => return Err(Status::Expired),
            },
        }
        Ok((client, number))
    }

    /// The stateid of a state with this number.
    pub(super) fn state_id(&self, key: Key, sequence: u32) -> StateId {
        let mut other = [0; 12];
        for (part, value) in other.chunks_exact_mut(4).zip([self.boot, key.0, key.1]) {
            part.copy_from_slice(&value.to_be_bytes());
        }
        StateId { sequence, other }
    }

    /// A key for a new state of a client.
    pub(super) fn free_key(&mut self, client: u32) -> Option<Key> {
        let known = self.clients.get_mut(&client)?;
        loop {
            known.last_state = known.last_state.wrapping_add(1);
            let key = (client, known.last_state);
            let known = self.entries.contains_key(&key)
                || self.delegations.has(key)
                || self.copies.has(key);
            if !known {
                return Some(key);
            }
        }
    }

    /// Whether a stateid names a delegation of the sender's.
    pub(super) fn is_delegation(&self, sender: Sender, state: &StateId) -> bool {
        self.key(sender, state)
            .is_ok_and(|key| self.delegations.has(key))
    }
}

/// The id of the client to which a stateid belongs, if it is none of the special ones.
pub fn client_named_by(state: &StateId) -> u64 {
    let [boot, client, _] = words(&state.other);
    u64::from(boot) << 32 | u64::from(client)
}

/// What a stateid is put together from: the boot, the client and the number of the state.
pub(super) fn words(other: &[u8; 12]) -> [u32; 3] {
    let mut words = [0; 3];
    for (word, bytes) in words.iter_mut().zip(other.as_chunks().0) {
        *word = u32::from_be_bytes(*bytes);
    }
    words
}

/// Whether a stateid is the latest of its state, which has this number.
pub(super) fn is_current(latest: u32, sender: Sender, state: &StateId) -> Result<(), Status> {
    let unsaid = matches!(sender, Sender::Client(_)) && state.sequence == 0;
    if unsaid || state.sequence == latest {
        return Ok(());
    }
    // The numbers wrap around.
    let ahead = state.sequence.wrapping_sub(latest) as i32;
    Err(if ahead > 0 {
        Status::BadStateId
    } else {
        Status::OldStateId
    })
}
