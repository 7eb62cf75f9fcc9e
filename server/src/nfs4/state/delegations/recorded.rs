//! Delegations and restarts: what stable storage says of them, who may reclaim them, and what waits for that (RFC 8881, sections
//! 8.4.2.1 and 10.2.1).

use std::collections::HashSet;

use odafs_common::wire::nfs4::Status;
use odafs_fabric::clock::Nanos;

use super::Delegated;
use crate::nfs4::state::{Sender, State};
use crate::vfs::ObjectId;

impl State {
    /// Whether somebody may still reclaim delegations. Nobody may any more once this is false, whatever the time.
    pub fn awaits_delegations(&self) -> bool {
        !self.grace.delegated.is_empty()
    }

    /// The files that somebody may have written under a delegation before the server started anew, as far as that has not been
    /// reclaimed.
    pub fn awaited_files(&self) -> HashSet<ObjectId> {
        self.grace.delegated.values().flatten().copied().collect()
    }

    /// Whether a client has to wait until such a file is reclaimed. Who may reclaim something itself does not: it could be too
    /// late for that afterwards.
    pub fn awaits(&self, file: ObjectId, by: Option<u64>) -> bool {
        let by = by.and_then(|id| self.clients.get(&self.number(id)?));
        let reclaims = by.is_some_and(|client| self.grace.waiting.contains(&client.identity));
        let mut delegated = self.grace.delegated.values();
        !reclaims && delegated.any(|files| files.contains(&file))
    }

    /// Whether a client may still reclaim delegations. Not so where stable storage did not say that it has any that stand, and
    /// where changes may have begun.
    pub(super) fn may_reclaim_delegations(&self, client: u32) -> Result<(), Status> {
        let known = self.clients.get(&client).ok_or(Status::Expired)?;
        match self.grace.delegated.contains_key(&known.identity) {
            true => Ok(()),
            false => Err(Status::ReclaimBad),
        }
    }

    /// The same, of the client of a session.
    pub fn may_reclaim_delegation(&self, sender: Sender) -> Result<(), Status> {
        match sender {
            Sender::Client(id) => self.may_reclaim_delegations(self.session_client(id)?),
            // Minor version 0 has none.
            Sender::Named => Ok(()),
        }
    }

    /// From now on the client may reclaim its delegations, too; or no more.
    pub(super) fn record_delegations(&mut self, number: u32, delegations: bool) {
        if let Some(client) = self.clients.get_mut(&number)
            && client.recorded_delegations != delegations
        {
            client.recorded_delegations = delegations;
            client.recorded = true;
            self.records.push(client.record());
        }
    }

    /// From now on the client may have written to the file under a delegation.
    pub(super) fn record_alone(&mut self, number: u32, file: ObjectId) {
        if let Some(client) = self.clients.get_mut(&number)
            && client.recorded_alone.insert(file)
        {
            self.records.push(client.record());
        }
    }

    /// The client has a delegation of the file anew: others who look at the file need not wait, but ask for it.
    pub(super) fn has_reclaimed(&mut self, client: u32, file: ObjectId) {
        let identity = self.clients.get(&client).map(|known| &known.identity);
        let files = identity.and_then(|identity| self.grace.delegated.get_mut(identity));
        if let Some(files) = files {
            files.remove(&file);
        }
    }

    /// Stable storage names no files any more whose write delegations were returned.
    fn forget_returned_files(&mut self) {
        let table = &self.delegations;
        for (number, client) in &mut self.clients {
            let before = self.grace.delegated.get(&client.identity);
            let has = |file: &ObjectId| {
                let keys = table.files.get(file).into_iter().flatten();
                let mut own = keys.filter(|key| key.0 == *number);
                own.any(|key| {
                    table
                        .all
                        .get(key)
                        .is_some_and(|d| d.kind == Delegated::Write)
                }) || before.is_some_and(|files| files.contains(file))
            };
            let known = client.recorded_alone.len();
            client.recorded_alone.retain(has);
            if client.recorded_alone.len() < known && client.recorded {
                self.records.push(client.record());
            }
        }
    }

    /// Who has returned all its delegations a lease ago needs no grace for them.
    pub(in crate::nfs4::state) fn forget_returned(&mut self, now: Nanos) {
        self.forget_returned_files();
        let mut returned = Vec::new();
        for (number, client) in &mut self.clients {
            if self.delegations.clients.contains_key(number) {
                client.delegated = now;
            } else if client.recorded_delegations && now.since(client.delegated) > self.limits.lease
            {
                returned.push(*number);
            }
        }
        for number in returned {
            self.record_delegations(number, false);
        }
    }
}
