//! Delegations across a restart: what stable storage keeps of them, which clients may reclaim them, and what waits until they
//! have (RFC 8881, sections 8.4.2.1 and 10.2.1).

use std::collections::HashSet;

use odafs_common::wire::nfs4::Status;
use odafs_fabric::clock::Nanos;

use super::{Delegated, DelegationsOf};
use crate::nfs4::state::clients::Kind;
use crate::nfs4::state::opens::Key;
use crate::nfs4::state::{NamedFiles, Sender, State};
use crate::vfs::ObjectId;

impl State {
    /// Whether some client may still reclaim delegations. Once this is false it stays false.
    pub fn awaits_delegations(&self) -> bool {
        !self.grace.delegated.is_empty()
    }

    /// The files that had a write delegation before the restart which has not been reclaimed yet. Their holders may have
    /// changed them.
    pub fn awaited_files(&self) -> HashSet<ObjectId> {
        self.grace.delegated.values().flatten().copied().collect()
    }

    /// Whether a client has to wait until such a file is reclaimed. A client that may itself reclaim does not wait, because it
    /// might then be too late to reclaim.
    pub fn awaits(&self, file: ObjectId, by: Option<u64>) -> bool {
        let by = by.and_then(|id| self.clients.get(&self.number(id)?));
        let reclaims = by.is_some_and(|client| self.grace.waiting.contains(&client.identity));
        let mut delegated = self.grace.delegated.values();
        !reclaims && delegated.any(|files| files.contains(&file))
    }

    /// Refuses with RECLAIM_BAD a client that may not reclaim delegations: stable storage did not have it as a holder of some
    /// that were not revoked, or changes may have begun since.
    pub(super) fn may_reclaim_delegations(&self, client: u32) -> Result<(), Status> {
        let known = self.clients.get(&client).ok_or(Status::Expired)?;
        match self.grace.delegated.contains_key(&known.identity) {
            true => Ok(()),
            false => Err(Status::ReclaimBad),
        }
    }

    /// The same for the client of a session.
    pub fn may_reclaim_delegation(&self, sender: Sender) -> Result<(), Status> {
        match sender {
            Sender::Client(id) => self.may_reclaim_delegations(self.session_client(id)?),
            // Minor version 0 has no delegations.
            Sender::Named => Ok(()),
        }
    }

    /// Records whether the client may also reclaim delegations from now on.
    pub(in crate::nfs4::state) fn record_delegations(&mut self, number: u32, delegations: bool) {
        if let Some(client) = self.clients.get_mut(&number)
            && client.recorded_delegations != delegations
        {
            client.recorded_delegations = delegations;
            let reclaims = matches!(
                client.kind,
                Kind::Sessions {
                    complete: false,
                    ..
                }
            );
            if reclaims && !self.grace.waiting.contains(&client.identity) {
                // It may reclaim nothing before it is done.
                return;
            }
            self.record_anew(number);
        }
    }

    /// Records that the client may reclaim the delegations that it has left, unless some are revoked, or are to be, that it has not
    /// acknowledged.
    pub(super) fn record_unrevoked(&mut self, number: u32) {
        let of = self.delegations.clients.get(&number);
        if of.is_some_and(DelegationsOf::may_reclaim) {
            self.record_delegations(number, true);
        }
    }

    /// With the files of which clients had write delegations when the server went down, as far as the clients may reclaim them.
    #[must_use]
    pub fn with_named_files(mut self, named: NamedFiles) -> Self {
        for (identity, files) in named {
            if let Some(awaited) = self.grace.delegated.get_mut(&identity) {
                awaited.extend(files.iter().copied());
                self.named_files.insert(identity, files);
            }
        }
        self
    }

    /// Names a file of which the client gets a write delegation.
    pub(super) fn name_file(&mut self, number: u32, file: ObjectId) {
        if let Some(client) = self.clients.get(&number) {
            let identity = client.identity.clone();
            let files = self.named_files.entry(identity).or_default();
            self.named_files_changed |= files.insert(file);
        }
    }

    /// The files of write delegations, if they have changed since this was last called. They go to stable storage before the
    /// reply that brings a delegation.
    pub fn take_named_files(&mut self) -> Option<NamedFiles> {
        std::mem::take(&mut self.named_files_changed).then(|| self.named_files.clone())
    }

    /// What was taken did not get to stable storage.
    pub fn put_named_files_back(&mut self) {
        self.named_files_changed = true;
    }

    /// The client has reclaimed a delegation of the file. Other clients that look at the file recall it from now on, and do not
    /// wait.
    pub(super) fn has_reclaimed(&mut self, client: u32, file: ObjectId) {
        let identity = self.clients.get(&client).map(|known| &known.identity);
        let files = identity.and_then(|identity| self.grace.delegated.get_mut(identity));
        if let Some(files) = files {
            files.remove(&file);
        }
    }

    /// Names the files no more whose write delegations were returned.
    fn forget_returned_files(&mut self) {
        let table = &self.delegations;
        self.named_files.retain(|identity, files| {
            let awaited = self.grace.delegated.get(identity);
            let client = self.identities.get(identity).and_then(|of| of.confirmed);
            let before = files.len();
            files.retain(|file| {
                let mut keys = table.files.get(file).into_iter().flatten();
                let has = |key: &Key| {
                    let known = table.all.get(key);
                    Some(key.0) == client && known.is_some_and(|it| it.kind == Delegated::Write)
                };
                keys.any(has) || awaited.is_some_and(|awaited| awaited.contains(file))
            });
            self.named_files_changed |= files.len() < before;
            !files.is_empty()
        });
    }

    /// Records of clients without delegations for a lease that they have none to reclaim.
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
