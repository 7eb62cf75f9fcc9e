//! Stateids: which state a stateid names, and whether it is the latest of that state (RFC 8881, sections 8.2 and 18.48).

use odafs_common::wire::nfs4::{StateId, Status};

use super::opens::Key;
use super::{Sender, State};

impl State {
    /// TEST_STATEID, for one stateid.
    pub fn test_state(&self, client: u64, stateid: &StateId) -> Status {
        let sender = Sender::Client(client);
        let found = self.key(sender, stateid).and_then(|key| {
            if self.delegations.has(key) {
                return self.delegation(sender, stateid, None).map(drop);
            }
            let entry = self.entries.get(&key).ok_or(Status::BadStateId)?;
            is_current(entry.sequence, sender, stateid)
        });
        found.err().unwrap_or(Status::Ok)
    }

    /// The key of the state that a stateid names, if it can be one of the sender's.
    pub(super) fn key(&self, sender: Sender, stateid: &StateId) -> Result<Key, Status> {
        let other = stateid.other;
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

    /// The stateid of a state with this sequence number.
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
    pub(super) fn is_delegation(&self, sender: Sender, stateid: &StateId) -> bool {
        self.key(sender, stateid)
            .is_ok_and(|key| self.delegations.has(key))
    }
}

/// The id of the client to which a stateid belongs, unless it is a special one.
pub fn client_named_by(stateid: &StateId) -> u64 {
    let [boot, client, _] = words(&stateid.other);
    u64::from(boot) << 32 | u64::from(client)
}

/// The key in a stateid of ours.
pub(super) fn key_of(stateid: &StateId) -> Key {
    let [_, client, number] = words(&stateid.other);
    (client, number)
}

/// The three numbers in a stateid: of the server's start, of the client, and of the state.
fn words(other: &[u8; 12]) -> [u32; 3] {
    let mut words = [0; 3];
    for (word, bytes) in words.iter_mut().zip(other.as_chunks().0) {
        *word = u32::from_be_bytes(*bytes);
    }
    words
}

/// Refuses a stateid that is not the latest of its state, which has this sequence number.
pub(super) fn is_current(latest: u32, sender: Sender, stateid: &StateId) -> Result<(), Status> {
    let any = matches!(sender, Sender::Client(_)) && stateid.sequence == 0;
    if any || stateid.sequence == latest {
        return Ok(());
    }
    // Sequence numbers wrap around.
    let ahead = stateid.sequence.wrapping_sub(latest) as i32;
    Err(if ahead > 0 {
        Status::BadStateId
    } else {
        Status::OldStateId
    })
}
