//! Delegations and restarts: what stable storage keeps of them, which clients may reclaim them, and what waits for that (RFC
//! 8881, sections 8.4.2.1 and 10.2.1).

use std::collections::HashSet;

use odafs_common::wire::nfs4::Status;
use odafs_fabric::clock::Nanos;

use super::Delegated;
use crate::nfs4::state::opens::Key;
use crate::nfs4::state::{NamedFiles, Reclaiming, Record, Sender, State};
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

    /// Whether a client has to wait until such a file is reclaimed. A client that may reclaim something itself does not wait,
    /// because it could be too late for that afterwards.
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
            self.records.push(Record::Keep(Reclaiming {
                identity: client.identity.clone(),
                delegations,
            }));
        }
    }

    /// With the files that clients had write delegations of when the server went down, as far as they may reclaim these.
    #[must_use]
    pub fn with_named(mut self, named: NamedFiles) -> Self {
        for (identity, files) in named {
            if let Some(awaited) = self.grace.delegated.get_mut(&identity) {
                awaited.extend(files.iter().copied());
                self.named.insert(identity, files);
            }
        }
        self
    }

    /// From now on the client may have written to the file under a delegation.
    pub(super) fn name_file(&mut self, number: u32, file: ObjectId) {
        if let Some(client) = self.clients.get(&number) {
            let files = self.named.entry(client.identity.clone()).or_default();
            self.naming |= files.insert(file);
        }
    }

    /// The files of write delegations, if there are others since this was last asked. They go to stable storage before the
    /// reply that brings one.
    pub fn take_named(&mut self) -> Option<NamedFiles> {
        std::mem::take(&mut self.naming).then(|| self.named.clone())
    }

    /// Stable storage does not have them.
    pub fn put_named_back(&mut self) {
        self.naming = true;
    }

    /// The client has a delegation of the file anew: others who look at the file need not wait, but ask for it.
    pub(super) fn has_reclaimed(&mut self, client: u32, file: ObjectId) {
        let identity = self.clients.get(&client).map(|known| &known.identity);
        let files = identity.and_then(|identity| self.grace.delegated.get_mut(identity));
        if let Some(files) = files {
            files.remove(&file);
        }
    }

    /// Names no files any more whose write delegations were returned.
    fn forget_returned_files(&mut self) {
        let table = &self.delegations;
        self.named.retain(|identity, files| {
            let awaited = self.grace.delegated.get(identity);
            let client = self.names.get(identity).and_then(|named| named.confirmed);
            let before = files.len();
            files.retain(|file| {
                let mut keys = table.files.get(file).into_iter().flatten();
                let has = |key: &Key| {
                    let known = table.all.get(key);
                    Some(key.0) == client && known.is_some_and(|it| it.kind == Delegated::Write)
                };
                keys.any(has) || awaited.is_some_and(|awaited| awaited.contains(file))
            });
            self.naming |= files.len() < before;
            !files.is_empty()
        });
    }

    /// Forgets clients that returned all their delegations a lease ago: they need no grace for them.
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
