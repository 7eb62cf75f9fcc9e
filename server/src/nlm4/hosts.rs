//! What the lock manager keeps about clients of NFS version 3: hosts, owners of locks, waiters and shares. This is a core
//! without IO: time comes in with each call, nothing waits, and the caller puts one lock around all of it.
//!
//! This protocol has no leases. A host keeps its locks until it gives them back, or says that it has restarted. So locks,
//! waiters and shares are bounded, for each address and in all.

use std::collections::{HashMap, HashSet};
use std::net::IpAddr;

use odafs_common::wire::nlm4::Status;
use odafs_fabric::clock::Nanos;
use odafs_fabric::sync::Arc;

use super::grants::{Grant, GrantCall, Waiter};
use super::limits::{Counts, FileLimits, OF_ADDRESS, OF_ALL, OF_FILE};
use super::share::Share;
use crate::vfs::ObjectId;
use crate::vfs::grace::GracePeriod;
use crate::vfs::locks::{Counted, Held, LockOwner as Holder, Locks, Side, Span};

/// How long the server remembers a host that holds nothing.
const IDLE: Nanos = Nanos::from_secs(60);

/// A host: the address of its calls, and the name that it gives itself. Several hosts may share an address.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct HostKey {
    pub address: String,
    pub name: Vec<u8>,
}

/// A caller.
#[derive(Clone, Debug)]
pub(super) struct Who {
    pub key: HostKey,
    /// The address at which the server can call it.
    pub address: Option<IpAddr>,
    /// The server's own address, as the caller used it.
    pub ours: Option<IpAddr>,
}

/// An owner of locks within its host.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct OwnerKey {
    pub process: u32,
    pub name: Vec<u8>,
}

#[derive(Debug)]
pub(super) struct Host {
    pub key: HostKey,
    pub address: Option<IpAddr>,
    /// The server's address, as the host last used it. Calls to it come from there.
    pub ours: Option<IpAddr>,
    pub owners: HashMap<OwnerKey, u64>,
    pub shares: usize,
    /// The number of its start, as it last said.
    pub state: u32,
    /// Whether stable storage lists it among the hosts to tell when this server restarts.
    recorded: bool,
    used: Nanos,
}

/// What an owner has locked of a file.
#[derive(Debug)]
pub(super) struct InFile {
    /// The number of ranges.
    pub ranges: usize,
    /// The number of its host's start, as the owner last said when it locked something there.
    pub state: u32,
    /// What it had locked when it said another number before. The next NOTIFY frees that.
    pub former: Vec<Span>,
}

impl InFile {
    /// The owner has locked a span anew, or has given it back.
    pub fn renewed(&mut self, span: Span) {
        if self.former.is_empty() {
            return;
        }
        let former = self.former.iter();
        self.former = former.flat_map(|known| known.without(span)).collect();
        // Renewed piece by piece, it would be cut into ever more spans. What is not freed early is freed late.
        if self.former.len() > 2 * self.ranges + 2 {
            self.former.clear();
        }
    }
}

#[derive(Debug)]
pub(super) struct HostOwner {
    pub host: u32,
    pub key: OwnerKey,
    pub files: HashMap<ObjectId, InFile>,
    /// The number of its host's start, as it last said.
    pub state: u32,
    /// The number of locks for which it waits, or of which a call under way tells it.
    pub waits: usize,
    /// The numbers of its grants that nobody has confirmed. Their spans do not overlap.
    pub told: Vec<u64>,
}

/// A lock that is asked for.
#[derive(Clone, Debug)]
pub(super) struct Asked<'a> {
    pub owner: OwnerKey,
    pub file: ObjectId,
    /// As the client named it, for the callback.
    pub handle: &'a [u8],
    pub offset: u64,
    pub length: u64,
    pub span: Span,
    pub write: bool,
    /// Whether the client waits if the lock is denied.
    pub block: bool,
    pub reclaim: bool,
    /// The number of the client's start. `None` if it does not tell when it restarts.
    pub state: Option<u32>,
}

/// A lock in the way.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Conflict {
    pub held: Held,
    /// Of other protocols nothing is known.
    pub owner: Option<(u32, Vec<u8>)>,
}

/// A change of the list of hosts to tell when this server restarts, for stable storage.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Record {
    /// With the server's address, as the host uses it.
    Keep(HostKey, Option<IpAddr>),
    Forget(HostKey),
}

/// All hosts, and what they hold.
#[derive(Debug)]
pub(super) struct Hosts {
    pub locks: Arc<Locks>,
    pub hosts: HashMap<u32, Host>,
    pub names: HashMap<HostKey, u32>,
    addresses: HashMap<String, Counts>,
    total: Counts,
    pub owners: HashMap<u64, HostOwner>,
    /// Waiters by file, in the order in which they came.
    pub waiters: HashMap<ObjectId, Vec<Waiter>>,
    /// Files in which a waiter did not get what is free, because its host had no room.
    pub passed_over: HashSet<ObjectId>,
    /// Grants that nobody has confirmed, by number.
    pub grants: HashMap<u64, Grant>,
    /// What all may have in one file.
    pub of_file: FileLimits,
    /// What is to be told.
    pub calls: Vec<GrantCall>,
    pub shares: HashMap<ObjectId, Vec<Share>>,
    records: Vec<Record>,
    /// Hosts that had locks when the server went down.
    reclaiming: HashSet<HostKey>,
    grace: GracePeriod,
    last: u64,
    last_host: u32,
}

pub(super) fn holder(number: u64) -> Holder {
    Holder {
        side: Side::Nlm,
        number,
    }
}

impl Hosts {
    /// Empty. The hosts of `reclaiming` may reclaim during the grace period, which begins.
    pub fn new(locks: Arc<Locks>, reclaiming: HashSet<HostKey>, grace: GracePeriod) -> Self {
        if !reclaiming.is_empty() {
            locks.reclaims_until(Side::Nlm, grace.until());
        }
        Self {
            locks,
            hosts: HashMap::new(),
            names: HashMap::new(),
            addresses: HashMap::new(),
            total: Counts::default(),
            owners: HashMap::new(),
            waiters: HashMap::new(),
            passed_over: HashSet::new(),
            grants: HashMap::new(),
            of_file: OF_FILE,
            calls: Vec::new(),
            shares: HashMap::new(),
            records: Vec::new(),
            reclaiming,
            grace,
            last: 0,
            last_host: 0,
        }
    }

    /// The counts of all that is kept.
    pub fn counts(&self) -> Counts {
        self.total
    }

    /// Whether clients may still reclaim what they held before the server restarted. Nobody may take anything else
    /// meanwhile.
    pub fn in_grace(&self, now: Nanos) -> bool {
        self.locks.is_reclaiming(Side::Nlm, now) || self.locks.is_reclaiming(Side::Nfs4, now)
    }

    /// Whether a host may take locks or shares now. While one reclaims, the grace period lasts.
    pub fn may_take(&mut self, now: Nanos, key: &HostKey, reclaim: bool) -> Result<(), Status> {
        let may = match reclaim {
            true => self.locks.is_reclaiming(Side::Nlm, now) && self.reclaiming.contains(key),
            false => !self.in_grace(now),
        };
        if reclaim && may && self.grace.prolong(now) {
            self.locks.reclaims_until(Side::Nlm, self.grace.until());
        }
        may.then_some(()).ok_or(Status::DeniedGracePeriod)
    }

    /// LOCK
    pub fn lock(&mut self, now: Nanos, who: &Who, asked: &Asked<'_>) -> Status {
        if let Err(status) = self.may_take(now, &who.key, asked.reclaim) {
            return status;
        }
        let owner = match self.owner(now, who, &asked.owner) {
            Ok(owner) => owner,
            Err(status) => return status,
        };
        let status = self.lock_as(now, owner, asked);
        self.release_owner(owner);
        status
    }

    fn lock_as(&mut self, now: Nanos, owner: u64, asked: &Asked<'_>) -> Status {
        let Some(host) = self.owners.get(&owner).map(|owner| owner.host) else {
            return Status::Failed;
        };
        let known = self.hosts.get(&host).map_or(0, |host| host.state);
        let state = asked.state.unwrap_or(known);
        if let Some(owner) = self.owners.get_mut(&owner) {
            owner.state = state;
        }
        // The owner asks again, so it no longer waits for a grant.
        self.wait_no_more(owner, asked.file, asked.span, Some(asked.write));
        // A lock may cut another in two.
        if !self.has_room_in(asked.file, host, 2) {
            return Status::DeniedNoLocks;
        }
        let locked = self
            .locks
            .lock(asked.file, asked.span, asked.write, holder(owner));
        match locked {
            Ok(counted) => {
                self.count_ranges(owner, asked.file, counted);
                self.note_state(owner, asked, state);
                let settled = self.changed_itself(owner, asked.file, asked.span, Some(asked.write));
                self.record_state(now, host, asked.state);
                // It may have been a stronger one, and a grant that was under way may have been in its own way.
                if counted.freed || settled {
                    self.wake(asked.file);
                }
                Status::Granted
            }
            Err(_) if asked.block && !asked.reclaim => {
                self.record_state(now, host, asked.state);
                self.wait_for(owner, asked, state)
            }
            Err(_) => Status::Denied,
        }
    }

    /// TEST
    pub fn test(&self, now: Nanos, who: &Who, asked: &Asked<'_>) -> Result<Status, Conflict> {
        if self.in_grace(now) {
            return Ok(Status::DeniedGracePeriod);
        }
        let owner = self.find_owner(&who.key, &asked.owner).map(holder);
        let held = self
            .locks
            .conflict(asked.file, asked.span, asked.write, owner);
        let Some(held) = held else {
            return Ok(Status::Granted);
        };
        let owner = self.owners.get(&held.owner.number);
        let owner = owner.filter(|_| held.owner.side == Side::Nlm);
        Err(Conflict {
            held,
            owner: owner.map(|owner| (owner.key.process, owner.key.name.clone())),
        })
    }

    /// UNLOCK
    pub fn unlock(&mut self, who: &Who, owner: &OwnerKey, file: ObjectId, span: Span) -> Status {
        let Some(owner) = self.find_owner(&who.key, owner) else {
            return Status::Granted;
        };
        let Some(host) = self.owners.get(&owner).map(|owner| owner.host) else {
            return Status::Failed;
        };
        let splits = self.locks.would_split(file, span, holder(owner));
        if splits && !self.has_room_in(file, host, 1) {
            return Status::DeniedNoLocks;
        }
        let settled = self.changed_itself(owner, file, span, None);
        if self.give_back(owner, file, span) || settled {
            self.wake(file);
        }
        self.release_owner(owner);
        Status::Granted
    }

    /// Gives back what an owner has locked of a span. Returns whether that was anything. The caller wakes those who wait.
    pub fn give_back(&mut self, owner: u64, file: ObjectId, span: Span) -> bool {
        let counted = self.locks.unlock(file, span, holder(owner));
        self.count_ranges(owner, file, counted);
        let known = self.owners.get_mut(&owner);
        if let Some(held) = known.and_then(|known| known.files.get_mut(&file)) {
            held.renewed(span);
        }
        counted.freed
    }

    pub fn count_ranges(&mut self, owner: u64, file: ObjectId, counted: Counted) {
        let Some(known) = self.owners.get_mut(&owner) else {
            return;
        };
        let state = known.state;
        match counted.after {
            0 => drop(known.files.remove(&file)),
            ranges => {
                let held = known.files.entry(file).or_insert_with(|| InFile {
                    ranges,
                    state,
                    former: Vec::new(),
                });
                held.ranges = ranges;
            }
        }
        let host = known.host;
        self.count(
            host,
            |counts| &mut counts.ranges,
            counted.after,
            counted.before,
        );
    }

    /// The host of a caller. Makes it if it is unknown.
    pub fn host(&mut self, now: Nanos, who: &Who) -> Result<u32, Status> {
        if let Some(number) = self.names.get(&who.key) {
            if let Some(host) = self.hosts.get_mut(number) {
                host.used = now;
                let other = who.ours.filter(|ours| host.ours != Some(*ours));
                if let Some(ours) = other {
                    let first = host.ours.replace(ours).is_none();
                    // Stable storage has the first one. A host that uses two in turn costs it nothing.
                    if host.recorded && first {
                        let record = Record::Keep(host.key.clone(), host.ours);
                        self.records.push(record);
                    }
                }
            }
            return Ok(*number);
        }
        let known = self.addresses.get(&who.key.address);
        let there = known.map_or(0, |counts| counts.hosts);
        if there >= OF_ADDRESS.hosts || self.total.hosts >= OF_ALL.hosts {
            return Err(Status::DeniedNoLocks);
        }
        while self.hosts.contains_key(&self.last_host) {
            self.last_host = self.last_host.wrapping_add(1);
        }
        let number = self.last_host;
        let recorded = self.reclaiming.contains(&who.key);
        if recorded && who.ours.is_some() {
            self.records.push(Record::Keep(who.key.clone(), who.ours));
        }
        let host = Host {
            key: who.key.clone(),
            address: who.address,
            ours: who.ours,
            owners: HashMap::new(),
            shares: 0,
            state: 0,
            recorded,
            used: now,
        };
        self.hosts.insert(number, host);
        self.names.insert(who.key.clone(), number);
        self.count(number, |counts| &mut counts.hosts, 1, 0);
        Ok(number)
    }

    fn find_owner(&self, key: &HostKey, owner: &OwnerKey) -> Option<u64> {
        let host = self.hosts.get(self.names.get(key)?)?;
        host.owners.get(owner).copied()
    }

    fn owner(&mut self, now: Nanos, who: &Who, key: &OwnerKey) -> Result<u64, Status> {
        let host = self.host(now, who)?;
        if let Some(owner) = self.find_owner(&who.key, key) {
            return Ok(owner);
        }
        if !self.has_room(host, |counts| &mut counts.owners, 1) {
            return Err(Status::DeniedNoLocks);
        }
        let number = self.serial();
        self.count(host, |counts| &mut counts.owners, 1, 0);
        if let Some(host) = self.hosts.get_mut(&host) {
            host.owners.insert(key.clone(), number);
        }
        let owner = HostOwner {
            host,
            key: key.clone(),
            files: HashMap::new(),
            state: 0,
            waits: 0,
            told: Vec::new(),
        };
        self.owners.insert(number, owner);
        Ok(number)
    }

    /// As [`Hosts::find_owner`], for CANCEL.
    pub fn known_owner(&self, who: &Who, owner: &OwnerKey) -> Option<u64> {
        self.find_owner(&who.key, owner)
    }

    /// Forgets an owner that has nothing.
    pub fn release_owner(&mut self, number: u64) {
        let idle = |owner: &HostOwner| owner.files.is_empty() && owner.waits == 0;
        if !self.owners.get(&number).is_some_and(idle) {
            return;
        }
        let Some(owner) = self.owners.remove(&number) else {
            return;
        };
        self.count(owner.host, |counts| &mut counts.owners, 0, 1);
        if let Some(host) = self.hosts.get_mut(&owner.host) {
            host.owners.remove(&owner.key);
        }
    }

    /// Notes in which state of its host an owner has just locked something of a file.
    fn note_state(&mut self, owner: u64, asked: &Asked<'_>, state: u32) {
        let known = self.owners.get_mut(&owner);
        let Some(held) = known.and_then(|known| known.files.get_mut(&asked.file)) else {
            return;
        };
        if held.state != state {
            held.state = state;
            let all = self.locks.held_by(asked.file, |of| of == holder(owner));
            held.former = all.iter().map(|held| held.span).collect();
        }
        held.renewed(asked.span);
    }

    /// Lists the host among those to tell when this server restarts, if it has said the number of its own start.
    fn record_state(&mut self, now: Nanos, number: u32, state: Option<u32>) {
        let (Some(host), Some(state)) = (self.hosts.get_mut(&number), state) else {
            return;
        };
        host.used = now;
        host.state = state;
        self.record(number);
    }

    /// Lists the host among those to tell when this server restarts.
    pub fn record(&mut self, number: u32) {
        let host = self.hosts.get_mut(&number);
        if let Some(host) = host.filter(|host| !host.recorded) {
            host.recorded = true;
            self.records.push(Record::Keep(host.key.clone(), host.ours));
        }
    }

    /// Changes of the list of hosts to tell, since the last call of this. They go to stable storage before the reply.
    pub fn take_records(&mut self) -> Vec<Record> {
        std::mem::take(&mut self.records)
    }

    /// Whether there are any.
    pub fn has_records(&self) -> bool {
        !self.records.is_empty()
    }

    pub fn remove_host(&mut self, number: u32) {
        self.count(number, |counts| &mut counts.hosts, 0, 1);
        let Some(host) = self.hosts.remove(&number) else {
            return;
        };
        self.names.remove(&host.key);
        let counts = self.addresses.get(&host.key.address);
        if counts.is_some_and(|counts| *counts == Counts::default()) {
            self.addresses.remove(&host.key.address);
        }
        // Until the grace period is over it may come back.
        if host.recorded && !self.reclaiming.contains(&host.key) {
            self.records.push(Record::Forget(host.key));
        }
    }

    /// Forgets hosts that hold nothing, and those that have not reclaimed in time. The caller calls this about every second.
    pub fn tick(&mut self, now: Nanos) {
        if !self.reclaiming.is_empty() && !self.locks.is_reclaiming(Side::Nlm, now) {
            self.locks.has_reclaimed(Side::Nlm);
            for key in std::mem::take(&mut self.reclaiming) {
                if !self.names.contains_key(&key) {
                    self.records.push(Record::Forget(key));
                }
            }
        }
        self.locks
            .watch_only(Side::Nlm, |file| self.waiters.contains_key(file));
        let idle = self.hosts.iter().filter(|(_, host)| {
            let nothing = host.owners.is_empty() && host.shares == 0;
            nothing && now.since(host.used) > IDLE
        });
        for number in Vec::from_iter(idle.map(|(number, _)| *number)) {
            self.remove_host(number);
        }
        self.wake_passed_over();
    }

    /// A number that was not used before.
    pub fn serial(&mut self) -> u64 {
        self.last += 1;
        self.last
    }

    /// Whether a host may have so many more of something.
    pub fn has_room(
        &self,
        host: u32,
        what: impl Fn(&mut Counts) -> &mut usize,
        more: usize,
    ) -> bool {
        let address = self.hosts.get(&host).map(|host| &host.key.address);
        let known = address.and_then(|address| self.addresses.get(address));
        let (mut here, mut all) = (known.copied().unwrap_or_default(), self.total);
        *what(&mut here) + more <= *what(&mut OF_ADDRESS.counts())
            && *what(&mut all) + more <= *what(&mut OF_ALL.counts())
    }

    /// Whether a host may have so many more ranges of a file.
    pub fn has_room_in(&self, file: ObjectId, host: u32, more: usize) -> bool {
        self.has_room(host, |counts| &mut counts.ranges, more)
            && self.locks.ranges_of(file, Side::Nlm) + more <= self.of_file.ranges
    }

    /// Counts what a host has.
    pub fn count(
        &mut self,
        host: u32,
        what: impl Fn(&mut Counts) -> &mut usize,
        more: usize,
        fewer: usize,
    ) {
        let Some(host) = self.hosts.get(&host) else {
            return;
        };
        let here = match self.addresses.get_mut(&host.key.address) {
            Some(here) => here,
            None => self.addresses.entry(host.key.address.clone()).or_default(),
        };
        for counts in [here, &mut self.total] {
            let counted = what(counts);
            *counted = (*counted + more).saturating_sub(fewer);
        }
    }
}
