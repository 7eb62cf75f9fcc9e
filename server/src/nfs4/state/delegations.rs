//! Delegations (RFC 8881, sections 10.2, 10.4, 18.6 and 20.2). While a client has a delegation of a file, no other client changes
//! the file. The client opens and reads the file without asking, until the server recalls the delegation. With a write delegation
//! it also writes, and no other client has the file open. Only clients that receive callbacks get delegations.
//!
//! ```text
//!          grant              a change              DELEGRETURN
//! (none) --------> held ---------------> recalled ---------------> (none)
//!                                           | overdue                 ^
//!                                           v                         |
//!                                        revoked ---------------------+
//!                                                    FREE_STATEID
//! ```

mod cb_getattr;
mod recall_any;
mod restarts;

use std::collections::{HashMap, HashSet, VecDeque};

use odafs_common::wire::nfs4::{
    StateId, Status, WhyNone, sequence_status, share_access, share_deny,
};
use odafs_fabric::clock::Nanos;

use super::back_channel::Callback;
use super::opens::Key;
use super::stateids::{is_current, key_of};
use super::{OpenRequest, Origin, Sender, State};
use crate::vfs::ObjectId;
use crate::vfs::locks::Side;

pub use cb_getattr::{CbGetattrAnswer, Question};

/// How long a file is not delegated after a delegation of it was recalled.
const COOLING: Nanos = Nanos::from_secs(30);

/// A delegation.
#[derive(Debug)]
struct Delegation {
    file: ObjectId,
    kind: Delegated,
    standing: Standing,
    /// The compound whose reply brings it.
    origin: Option<Origin>,
    /// When its client first answered the recall.
    heard: Option<Nanos>,
    /// Its client answered the last recall that it does not know the delegation.
    unknown: bool,
    /// The change attribute of the file when the delegation was given, if it was noted.
    change: Option<u64>,
}

/// What a delegation is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Delegated {
    /// Reading.
    Read,
    /// Reading and writing.
    Write,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Standing {
    Held,
    /// Since then.
    Recalled(Nanos),
    Revoked,
}

/// The delegations of a client.
#[derive(Debug, Default)]
struct DelegationsOf {
    /// Their numbers within the client.
    states: HashSet<u32>,
    /// How many of them are revoked.
    revoked: usize,
    /// Those that are to be revoked once stable storage knows that the client may not reclaim delegations.
    revoking: HashSet<u32>,
    /// When the client was last asked to return some.
    asked: Option<Nanos>,
}

impl DelegationsOf {
    /// Whether the client may reclaim delegations after a restart.
    fn may_reclaim(&self) -> bool {
        self.revoked == 0 && self.revoking.is_empty()
    }
}

/// The delegations of all clients.
#[derive(Debug, Default)]
pub(super) struct Delegations {
    all: HashMap<Key, Delegation>,
    /// The delegations of each file that are not revoked.
    files: HashMap<ObjectId, Vec<Key>>,
    clients: HashMap<u32, DelegationsOf>,
    /// The number of write delegations.
    writers: usize,
    /// The number of revoked delegations of each file that their clients have not acknowledged.
    revoked: HashMap<ObjectId, usize>,
    /// Until when files are not delegated again.
    cooling: HashMap<ObjectId, Nanos>,
    /// The files of `cooling` in the order of their ends, each as often as it was recalled.
    cooled: VecDeque<(Nanos, ObjectId)>,
    /// Files that are no longer delegated, for [`State::take_undelegated`].
    ended: Vec<ObjectId>,
    /// When all clients were last asked to return some.
    asked: Option<Nanos>,
    /// The answers to questions (CB_GETATTR), by number. A thread waits for each.
    answers: HashMap<u64, CbGetattrAnswer>,
    counts: DelegationCounts,
}

/// Counters of delegations since the start, for metrics.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DelegationCounts {
    /// Those that clients have now.
    pub held: usize,
    /// Those that were given.
    pub granted: u64,
    /// Those that were recalled, because someone else wanted to change the file.
    pub recalled: u64,
    /// Those of the recalled that were taken away, because their clients did not return them.
    pub revoked: u64,
}

impl Delegations {
    /// Whether a delegation has this key.
    pub fn has(&self, key: Key) -> bool {
        self.all.contains_key(&key)
    }

    /// Whether a delegation is recalled, and neither returned nor revoked yet.
    pub fn is_recalled(&self, key: Key) -> bool {
        let known = self.all.get(&key);
        known.is_some_and(|known| matches!(known.standing, Standing::Recalled(_)))
    }

    /// Notes the client's answer to a recall: whether it knows the delegation.
    pub fn answered(&mut self, now: Nanos, key: Key, knows: bool) {
        if let Some(known) = self.all.get_mut(&key) {
            known.heard.get_or_insert(now);
            known.unknown = !knows;
        }
    }

    #[cfg(test)]
    pub fn is_empty(&self) -> bool {
        let maps = self.files.is_empty() && self.clients.is_empty() && self.cooling.is_empty();
        let lists = self.cooled.is_empty() && self.answers.is_empty();
        self.all.is_empty() && self.revoked.is_empty() && maps && lists
    }

    /// Files that somebody has a delegation of.
    #[cfg(test)]
    pub fn files(&self) -> HashSet<ObjectId> {
        self.files.keys().copied().collect()
    }

    /// A delegation of the file was recalled: the file is not delegated until then.
    fn cool(&mut self, file: ObjectId, until: Nanos, most: usize) {
        if self.cooled.len() >= most {
            self.warm_oldest();
        }
        self.cooling.insert(file, until);
        self.cooled.push_back((until, file));
    }

    fn warm_oldest(&mut self) {
        if let Some((until, file)) = self.cooled.pop_front()
            && self.cooling.get(&file) == Some(&until)
        {
            self.cooling.remove(&file);
        }
    }

    fn warm(&mut self, now: Nanos) {
        while self.cooled.front().is_some_and(|(until, _)| *until <= now) {
            self.warm_oldest();
        }
    }

    /// A delegation of the file was returned or revoked.
    fn leave_file(&mut self, key: Key, file: ObjectId) {
        let Some(keys) = self.files.get_mut(&file) else {
            return;
        };
        keys.retain(|known| *known != key);
        if keys.is_empty() {
            self.files.remove(&file);
            self.ended.push(file);
        }
    }
}

impl State {
    /// Whether a delegation of this kind may be given for an open, and to which client. Otherwise why not.
    pub fn may_delegate(
        &self,
        now: Nanos,
        sender: Sender,
        request: &OpenRequest,
        kind: Delegated,
    ) -> Result<u32, WhyNone> {
        let table = &self.delegations;
        let Sender::Client(id) = sender else {
            return Err(WhyNone::NotWanted);
        };
        let client = self.session_client(id);
        let client = client.map_err(|_| WhyNone::Resource(false))?;
        let file = &request.file;
        let is_shared = match kind {
            Delegated::Read => self.is_open_for(
                *file,
                share_access::WRITE,
                request.reclaim.then_some(client),
            ),
            Delegated::Write => self.is_open_for(*file, share_access::BOTH, Some(client)),
        };
        // A client with a delegation may lock ranges without telling the server, which version 3 would not see.
        if is_shared || self.locks.concern(*file, Side::Nlm) {
            return Err(WhyNone::Contention(false));
        }
        if request.reclaim {
            self.may_reclaim_delegations(client)
                .map_err(|_| WhyNone::Resource(false))?;
        }
        let keys = table.files.get(file).map_or(&[][..], Vec::as_slice);
        match kind {
            _ if keys.iter().any(|key| key.0 == client) => return Err(WhyNone::Resource(false)),
            // The client on whose behalf it is recalled comes first.
            _ if keys.iter().any(|key| table.is_recalled(*key)) => {
                return Err(WhyNone::Contention(false));
            }
            Delegated::Write if !keys.is_empty() => return Err(WhyNone::Contention(false)),
            // Stable storage has a name for each file with a write delegation.
            Delegated::Write if table.writers >= self.limits.all_delegations / 4 => {
                return Err(WhyNone::Resource(false));
            }
            _ if self.has_writer(*file) => return Err(WhyNone::Contention(false)),
            Delegated::Read | Delegated::Write => {}
        }
        let cools = |until: &Nanos| now < *until && !request.reclaim;
        if table.cooling.get(file).is_some_and(cools) {
            return Err(WhyNone::Contention(false));
        }
        // A client with a revoked delegation gets no other before it has acknowledged that.
        let of = table.clients.get(&client);
        let may = of.is_none_or(|of| of.states.len() < self.limits.delegations && of.may_reclaim());
        let hears = self.hears(client) || request.reclaim;
        if !may || !hears || table.all.len() >= self.limits.all_delegations {
            return Err(WhyNone::Resource(false));
        }
        let known = self.clients.get(&client);
        let states = self.entries.len() + table.all.len();
        let room = known.is_some_and(|known| known.states < self.limits.states)
            && states < self.limits.all_states;
        room.then_some(client).ok_or(WhyNone::Resource(false))
    }

    /// Gives a delegation that [`State::may_delegate`] allows to a client. Returns its stateid, and whether the client is to
    /// return it at once.
    pub fn delegate(
        &mut self,
        now: Nanos,
        client: u32,
        (file, kind): (ObjectId, Delegated),
        origin: Option<Origin>,
    ) -> Option<(StateId, bool)> {
        let key = self.free_key(client)?;
        let known = self.clients.get_mut(&client)?;
        known.states += 1;
        let hears = self.hears(client);
        let table = &mut self.delegations;
        let delegation = Delegation {
            file,
            kind,
            standing: Standing::Held,
            origin,
            heard: None,
            unknown: false,
            change: None,
        };
        table.all.insert(key, delegation);
        table.files.entry(file).or_default().push(key);
        table
            .clients
            .entry(client)
            .or_default()
            .states
            .insert(key.1);
        table.counts.granted += 1;
        if kind == Delegated::Write {
            table.writers += 1;
            self.name_file(client, file);
        }
        self.has_reclaimed(client, file);
        self.record_delegations(client, true);
        self.ask_for_some(now, client);
        Some((self.state_id(key, 1), !hears))
    }

    /// Recalls the delegations of a file, except those of `by`, which wants to change it. Revokes those that are overdue.
    /// Returns true if there are no others any more.
    pub fn recall(&mut self, now: Nanos, file: ObjectId, by: Option<u32>) -> bool {
        for key in self.delegated_to_others(file, by) {
            if self.is_over(key.0, now) {
                self.expel(key.0);
            } else {
                self.recall_one(now, key);
            }
        }
        self.delegated_to_others(file, by).is_empty()
    }

    /// As [`State::recall`], by a client's id.
    pub fn recall_for(&mut self, now: Nanos, file: ObjectId, by: Option<u64>) -> bool {
        let by = by.and_then(|id| self.number(id));
        self.recall(now, file, by)
    }

    /// The delegations of a file that clients other than `by` have.
    pub(super) fn delegated_to_others(&self, file: ObjectId, by: Option<u32>) -> Vec<Key> {
        let keys = self.delegations.files.get(&file);
        let keys = keys.into_iter().flatten().copied();
        keys.filter(|key| Some(key.0) != by).collect()
    }

    /// Whether a delegation was recalled and has not been returned in time. Its client has a lease from when it answered the
    /// recall. Before that the recall may not have reached it. Then SEQUENCE tells it that callbacks do not arrive, and it needs
    /// time to bind another connection. But no client has longer than two leases, or than its own lease if that is over.
    fn is_overdue(&self, now: Nanos, key: Key) -> bool {
        let Some(known) = self.delegations.all.get(&key) else {
            return false;
        };
        let Standing::Recalled(since) = known.standing else {
            return false;
        };
        let (lease, waited) = (self.limits.lease, now.since(since));
        let had_time = known.heard.is_some_and(|heard| now.since(heard) > lease);
        had_time || waited > lease + lease || waited > lease && self.is_over(key.0, now)
    }

    fn recall_one(&mut self, now: Nanos, key: Key) {
        let stateid = self.state_id(key, 1);
        let overdue = self.is_overdue(now, key);
        let table = &mut self.delegations;
        let Some(known) = table.all.get_mut(&key) else {
            return;
        };
        let (file, origin) = (known.file, known.origin);
        match known.standing {
            Standing::Held => {
                known.standing = Standing::Recalled(now);
                table.counts.recalled += 1;
                table.cool(file, now + COOLING, self.limits.all_delegations);
                let recall = Callback::Recall {
                    stateid,
                    file,
                    origin,
                };
                self.say(key.0, recall);
            }
            // The client never got it.
            Standing::Recalled(_) if overdue && known.unknown => {
                self.drop_delegation(key);
                self.record_unrevoked(key.0);
            }
            Standing::Recalled(_) if overdue => {
                if let Some(of) = table.clients.get_mut(&key.0) {
                    of.revoking.insert(key.1);
                }
                if self.has_forgotten_delegations(key.0) {
                    self.revoke(key, file);
                }
            }
            Standing::Recalled(_) | Standing::Revoked => {}
        }
    }

    fn revoke(&mut self, key: Key, file: ObjectId) {
        let table = &mut self.delegations;
        if let Some(known) = table.all.get_mut(&key) {
            known.standing = Standing::Revoked;
            table.counts.revoked += 1;
            table.leave_file(key, file);
            *table.revoked.entry(file).or_default() += 1;
            if let Some(of) = table.clients.get_mut(&key.0) {
                of.revoked += 1;
                of.revoking.remove(&key.1);
            }
        }
    }

    /// Whether an open has to wait for delegations, which are then recalled. A client with a delegation need not ask to open
    /// the file. One that does so has two views of the file, and only the other view has the delegation.
    pub(super) fn open_waits(&mut self, now: Nanos, client: u32, request: &OpenRequest) -> bool {
        let file = request.file;
        let knows = request.reclaim || request.delegated;
        let writes = request.access & share_access::WRITE != 0;
        let has_writer = self.has_writer(file);
        // A client that reads under a delegation does not tell the server, which therefore cannot tell whether the deny
        // conflicts.
        let conflicts = writes || request.deny & share_deny::READ != 0 || has_writer;
        if conflicts && !self.recall(now, file, Some(client)) {
            return true;
        }
        if knows || !(writes || has_writer) {
            return false;
        }
        // The delegations of others are gone. Recall those of this client.
        for key in self.delegated_to_others(file, None) {
            self.recall_one(now, key);
        }
        // An open for writing need not wait for the client's own read delegation.
        self.has_writer(file)
    }

    /// Whether other clients may have locked something of the file under delegations, without telling the server, that
    /// conflicts with such a lock. Recalls these delegations (RFC 8881, section 10.4.2). Under a read delegation clients lock
    /// only for reading.
    pub(super) fn may_be_locked_unseen(
        &mut self,
        now: Nanos,
        client: u32,
        file: ObjectId,
        write: bool,
    ) -> bool {
        (write || self.has_writer(file)) && !self.recall(now, file, Some(client))
    }

    /// Whether a client has a write delegation of the file.
    fn has_writer(&self, file: ObjectId) -> bool {
        let table = &self.delegations;
        let keys = table.files.get(&file).into_iter().flatten();
        let mut known = keys.filter_map(|key| table.all.get(key));
        known.any(|known| known.kind == Delegated::Write)
    }

    /// Whether a client has a delegation of the file that is not revoked.
    pub fn is_delegated(&self, file: ObjectId) -> bool {
        self.delegations.files.contains_key(&file)
    }

    /// Whether a client has a delegation of the file, revoked or not.
    pub(super) fn has_delegation(&self, file: ObjectId) -> bool {
        self.is_delegated(file) || self.delegations.revoked.contains_key(&file)
    }

    /// DELEGRETURN
    pub fn delegation_return(
        &mut self,
        sender: Sender,
        stateid: &StateId,
        file: ObjectId,
    ) -> Result<(), Status> {
        let key = self.delegation(sender, stateid, Some(file))?;
        self.drop_delegation(key);
        self.record_unrevoked(key.0);
        Ok(())
    }

    /// Takes back a delegation that its client has not heard of.
    pub fn take_back_delegation(&mut self, given: &StateId) {
        let key = key_of(given);
        if self.delegations.has(key) {
            self.drop_delegation(key);
            self.delegations.counts.granted -= 1;
        }
    }

    /// Refuses to open a file by a delegation that does not allow this access (CLAIM_DELEGATE_CUR).
    pub fn may_claim(
        &self,
        sender: Sender,
        stateid: &StateId,
        file: ObjectId,
        access: u32,
    ) -> Result<(), Status> {
        let key = self.delegation(sender, stateid, Some(file))?;
        match access & share_access::WRITE {
            0 => Ok(()),
            _ => self.may_write_by(key),
        }
    }

    /// Refuses to write by a read delegation.
    pub(super) fn may_write_by(&self, key: Key) -> Result<(), Status> {
        match self.delegations.all.get(&key).map(|known| known.kind) {
            Some(Delegated::Write) => Ok(()),
            Some(Delegated::Read) | None => Err(Status::OpenMode),
        }
    }

    /// The key of the delegation that a stateid names. It must not be revoked, and be of `file` if that is given.
    pub(super) fn delegation(
        &self,
        sender: Sender,
        stateid: &StateId,
        file: Option<ObjectId>,
    ) -> Result<Key, Status> {
        let key = self.key(sender, stateid)?;
        let known = self.delegations.all.get(&key).ok_or(Status::BadStateId)?;
        is_current(1, sender, stateid)?;
        if file.is_some_and(|file| file != known.file) {
            return Err(Status::BadStateId);
        }
        match known.standing {
            Standing::Revoked => Err(Status::DelegRevoked),
            Standing::Held | Standing::Recalled(_) => Ok(key),
        }
    }

    /// FREE_STATEID of a delegation, by which the client acknowledges that it was revoked.
    pub(super) fn free_delegation(
        &mut self,
        sender: Sender,
        stateid: &StateId,
    ) -> Result<(), Status> {
        match self.delegation(sender, stateid, None) {
            Ok(_) => Err(Status::LocksHeld),
            Err(Status::DelegRevoked) => {
                let key = self.key(sender, stateid)?;
                self.drop_delegation(key);
                self.record_unrevoked(key.0);
                Ok(())
            }
            Err(other) => Err(other),
        }
    }

    /// The number of a client's revoked delegations.
    pub(super) fn revoked_of(&self, client: u32) -> usize {
        (self.delegations.clients.get(&client)).map_or(0, |of| of.revoked)
    }

    /// The status bits of SEQUENCE about a client's delegations.
    pub(super) fn delegation_status(&self, client: u32) -> u32 {
        match self.delegations.clients.get(&client) {
            Some(of) if of.revoked > 0 => sequence_status::RECALLABLE_STATE_REVOKED,
            _ => 0,
        }
    }

    fn drop_delegation(&mut self, key: Key) {
        let table = &mut self.delegations;
        let Some(known) = table.all.remove(&key) else {
            return;
        };
        if let Some(of) = table.clients.get_mut(&key.0) {
            of.states.remove(&key.1);
            of.revoking.remove(&key.1);
            of.revoked -= usize::from(known.standing == Standing::Revoked);
            if of.states.is_empty() {
                table.clients.remove(&key.0);
            }
        }
        table.writers -= usize::from(known.kind == Delegated::Write);
        table.leave_file(key, known.file);
        if known.standing == Standing::Revoked
            && let Some(revoked) = table.revoked.get_mut(&known.file)
        {
            *revoked -= 1;
            if *revoked == 0 {
                table.revoked.remove(&known.file);
            }
        }
        if let Some(client) = self.clients.get_mut(&key.0) {
            client.states -= 1;
        }
    }

    /// Takes its delegations from a client.
    pub(super) fn drop_delegations(&mut self, client: u32) {
        let Some(of) = self.delegations.clients.get(&client) else {
            return;
        };
        for state in Vec::from_iter(of.states.iter().copied()) {
            self.drop_delegation((client, state));
        }
    }

    /// To be called every second or so. Revokes the recalled delegations that are overdue.
    pub(super) fn tick_delegations(&mut self, now: Nanos) {
        self.delegations.warm(now);
        let all = self.delegations.all.iter();
        let recalled = all.filter(|(_, known)| matches!(known.standing, Standing::Recalled(_)));
        for key in Vec::from_iter(recalled.map(|(key, _)| *key)) {
            self.recall_one(now, key);
        }
    }

    /// The files that have ceased to be delegated since this was last called.
    pub fn take_undelegated(&mut self) -> Vec<ObjectId> {
        let mut ended = std::mem::take(&mut self.delegations.ended);
        ended.retain(|file| !self.delegations.files.contains_key(file));
        ended
    }

    /// Counters of delegations, for metrics.
    pub fn delegation_counts(&self) -> DelegationCounts {
        DelegationCounts {
            held: self.delegations.all.len() - self.delegations.revoked.values().sum::<usize>(),
            ..self.delegations.counts
        }
    }
}
