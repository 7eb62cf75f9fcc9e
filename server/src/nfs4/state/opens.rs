//! Opens and their stateids (RFC 8881, sections 8.2, 9.7 to 9.11, 18.2, 18.16, 18.18, 18.38 and 18.48; RFC 7530, sections 16.2
//! and 16.16 to 16.19).

mod undo;

use std::collections::{BTreeSet, HashSet};

use odafs_common::wire::nfs4::{StateId, StateOwner, Status, share_access, share_deny};
use odafs_fabric::clock::Nanos;

use super::locks::holder;
use super::owners::OwnerRole;
use super::shares::Shares;
use super::stateids::is_current;
use super::waiters::Waiter;
use super::{Io, OpenRequest, Opened, Sender, State};
use crate::vfs::ObjectId;
use crate::vfs::advice::Pattern;

pub use undo::SharesBefore;

/// What names a state: the number of its client, and its own number within the client.
pub(super) type Key = (u32, u32);

/// An open, or the locks of an owner on a file. A stateid names it.
#[derive(Debug)]
pub(super) struct Entry {
    pub owner: u64,
    pub file: ObjectId,
    pub sequence: u32,
    pub what: What,
}

#[derive(Debug)]
pub(super) enum What {
    Open(Open),
    /// The locks of an owner, and the open under which it took them.
    Locks {
        open: Key,
    },
}

/// An open file.
#[derive(Debug, Default)]
pub(super) struct Open {
    /// Bits of `share_access`.
    pub access: u32,
    /// Bits of `share_deny`.
    deny: u32,
    /// A bit for each pair of access and deny that an OPEN had.
    pairs: u16,
    /// The locks that were taken under it.
    pub locks: BTreeSet<Key>,
    /// In which order its owner reads, as far as it has said that.
    pattern: Pattern,
    /// It was closed, and is kept only for a repetition of CLOSE (4.0).
    closed: bool,
}

#[cfg(test)]
impl Entry {
    /// Access and deny of an open that was not closed.
    pub fn shares(&self) -> Option<(u32, u32)> {
        match &self.what {
            What::Open(open) => (!open.closed).then_some((open.access, open.deny)),
            What::Locks { .. } => None,
        }
    }
}

/// The opens of a file and the owners that wait for locks of it.
#[derive(Debug, Default)]
pub(super) struct FileState {
    pub opens: Shares,
    pub waiters: Vec<Waiter>,
}

/// The bit of a pair of access and deny.
fn pair(access: u32, deny: u32) -> u16 {
    1 << (access & share_access::BOTH | (deny & share_deny::BOTH) << 2)
}

/// The access and deny of these pairs together.
fn union(pairs: u16) -> (u32, u32) {
    let each = (0..16u32).filter(|bit| pairs & 1 << bit != 0);
    each.fold((0, 0), |(access, deny), bit| {
        (access | bit & 3, deny | bit >> 2)
    })
}

impl State {
    /// Refuses OPEN to a client during the grace period, and reclaims outside of it.
    pub fn may_open(
        &mut self,
        now: Nanos,
        sender: Sender,
        owner: &StateOwner<'_>,
        reclaim: bool,
    ) -> Result<(), Status> {
        let client = self.client_of(now, sender, owner)?;
        self.may_take(now, client, reclaim)
    }

    /// OPEN of a file that was found or made. May expel clients whose leases are over.
    pub fn open(
        &mut self,
        now: Nanos,
        sender: Sender,
        owner: &StateOwner<'_>,
        request: &OpenRequest,
    ) -> Result<Opened, Status> {
        let client = self.client_of(now, sender, owner)?;
        self.may_take(now, client, request.reclaim)?;
        self.make_room_for_state(now, client);
        let number = self.owner(client, OwnerRole::Open, owner.owner.0)?;
        let opened = self.open_as(now, client, number, request);
        self.release_owner(number);
        opened
    }

    fn open_as(
        &mut self,
        now: Nanos,
        client: u32,
        owner: u64,
        request: &OpenRequest,
    ) -> Result<Opened, Status> {
        let refused = |status| match request.reclaim {
            true => Status::ReclaimConflict,
            false => status,
        };
        let others = self.share_conflicts(request);
        if (others.iter()).any(|other| *other == client || !self.is_over(*other, now)) {
            return Err(refused(Status::ShareDenied));
        }
        if !self.expel_all(&others) {
            return Err(refused(Self::HELD_UP));
        }
        if self.open_waits(now, client, request) {
            return Err(refused(Status::Delay));
        }
        let file = request.file;
        let (key, before) = match self.held.get(&(owner, file)) {
            Some(key) => (*key, self.shares_of(*key)),
            None => {
                let what = What::Open(Open::default());
                let key = self.add_entry(client, owner, file, what)?;
                self.opens += 1;
                (key, None)
            }
        };
        if let Some(entry) = self.entries.get_mut(&key)
            && let What::Open(open) = &mut entry.what
        {
            open.access |= request.access;
            open.deny |= request.deny;
            open.pairs |= pair(request.access, request.deny);
            let known = self.files.entry(file).or_default();
            known.opens.set(key, open.access, open.deny);
        }
        let stateid = self.changed(key);
        let notifies = self.hears(client);
        let legacy = self.clients.get(&client).is_some_and(|c| c.legacy());
        let Some(owner) = self.owners.get_mut(&owner) else {
            return Err(Status::ServerFault);
        };
        owner.confirmed |= request.reclaim;
        let confirm = !owner.confirmed;
        if legacy && !confirm {
            self.record(client);
        }
        Ok(Opened {
            stateid,
            confirm,
            notifies,
            before,
        })
    }

    /// The clients of opens that conflict with this one. An open of the same owner conflicts too (RFC 8881, section 9.7).
    fn share_conflicts(&self, request: &OpenRequest) -> HashSet<u32> {
        let file = self.files.get(&request.file);
        let opens = file.map(|file| file.opens.conflicts(request.access, request.deny));
        opens.into_iter().flatten().collect()
    }

    /// Whether a client has the file open with any of this access. The client `besides` does not count.
    pub(super) fn is_open_for(&self, file: ObjectId, access: u32, besides: Option<u32>) -> bool {
        let known = self.files.get(&file);
        known.is_some_and(|known| known.opens.is_open_for(access, besides))
    }

    /// OPEN_CONFIRM
    pub fn open_confirm(
        &mut self,
        now: Nanos,
        stateid: &StateId,
        file: ObjectId,
    ) -> Result<StateId, Status> {
        let key = self.current_key(now, Sender::Named, stateid, file)?;
        let entry = self.entries.get(&key).ok_or(Status::BadStateId)?;
        let is_open = matches!(entry.what, What::Open(_));
        let owner = self.owners.get_mut(&entry.owner);
        let owner = owner.ok_or(Status::BadStateId)?;
        if !is_open || owner.confirmed {
            return Err(Status::BadStateId);
        }
        owner.confirmed = true;
        self.record(key.0);
        Ok(self.changed(key))
    }

    /// OPEN_DOWNGRADE. The new access and deny must be those of some OPENs together.
    pub fn open_downgrade(
        &mut self,
        now: Nanos,
        sender: Sender,
        stateid: &StateId,
        file: ObjectId,
        access: u32,
        deny: u32,
    ) -> Result<StateId, Status> {
        let key = self.confirmed_open(now, sender, stateid, file)?;
        if access == 0 || access & !share_access::BOTH != 0 || deny & !share_deny::BOTH != 0 {
            return Err(Status::Inval);
        }
        let Some(open) = self.open_of(key) else {
            return Err(Status::BadStateId);
        };
        let within = (0..16u32)
            .filter(|bit| bit & 3 & !access == 0 && bit >> 2 & !deny == 0)
            .fold(0, |pairs, bit| pairs | 1 << bit);
        let pairs = open.pairs & within;
        if union(pairs) != (access, deny) {
            return Err(Status::Inval);
        }
        (open.access, open.deny, open.pairs) = (access, deny, pairs);
        if let Some(file) = self.files.get_mut(&file) {
            file.opens.set(key, access, deny);
        }
        Ok(self.changed(key))
    }

    /// CLOSE. The locks that were taken under the open are released.
    pub fn close(
        &mut self,
        now: Nanos,
        sender: Sender,
        stateid: &StateId,
        file: ObjectId,
    ) -> Result<StateId, Status> {
        let key = self.confirmed_open(now, sender, stateid, file)?;
        let last = self.changed(key);
        let owner = self.entries.get(&key).map(|entry| entry.owner);
        if sender == Sender::Named {
            self.end_open(key);
            if let (Some(open), Some(owner)) = (self.open_of(key), owner) {
                open.closed = true;
                self.remember_closed(owner, key.1);
            }
            return Ok(last);
        }
        self.drop_open(key);
        if let Some(owner) = owner {
            self.release_owner(owner);
        }
        Ok(StateId::INVALID)
    }

    /// Refuses to read or write data of a file unless the stateid allows it: the open must have that access; with a special
    /// stateid, no share may deny it. Renews the lease in 4.0. Returns in which order the owner of the open reads.
    ///
    /// An open for writing also allows to read, because clients that write parts of pages read them (RFC 8881, section 9.1.2).
    pub fn io(
        &mut self,
        now: Nanos,
        sender: Sender,
        stateid: &StateId,
        file: ObjectId,
        io: Io,
    ) -> Result<Pattern, Status> {
        let unknown = Ok(Pattern::Normal);
        if *stateid == StateId::READ_BYPASS && io == Io::Read {
            return unknown;
        }
        if *stateid == StateId::ANONYMOUS || *stateid == StateId::READ_BYPASS {
            self.end_grace(now);
            let grace = match io {
                Io::Read => self.in_grace_for_reading(now),
                Io::Write => self.in_grace(now),
            };
            if grace {
                return Err(Status::Grace);
            }
            return match self.denies(now, file, io) {
                true => Err(Status::Locked),
                false => unknown,
            };
        }
        if self.is_delegation(sender, stateid) {
            let key = self.delegation(sender, stateid, Some(file))?;
            return match io {
                Io::Read => unknown,
                Io::Write => self.may_write_by(key).and(unknown),
            };
        }
        let key = self.open_named(now, sender, stateid, file)?;
        let open = self.open_of(key).ok_or(Status::BadStateId)?;
        match io {
            Io::Write if open.access & share_access::WRITE == 0 => Err(Status::OpenMode),
            Io::Read | Io::Write => Ok(open.pattern),
        }
    }

    /// The open that a stateid names, or under which the locks were taken that it names.
    fn open_named(
        &mut self,
        now: Nanos,
        sender: Sender,
        stateid: &StateId,
        file: ObjectId,
    ) -> Result<Key, Status> {
        let mut key = self.current_key(now, sender, stateid, file)?;
        if let Some(What::Locks { open }) = self.entries.get(&key).map(|entry| &entry.what) {
            key = *open;
        }
        match self.is_confirmed(key) {
            true => Ok(key),
            false => Err(Status::BadStateId),
        }
    }

    /// Notes in which order the owner of an open reads. False if the stateid names no open: then nobody could look it up.
    pub fn read_in_order(
        &mut self,
        now: Nanos,
        sender: Sender,
        stateid: &StateId,
        file: ObjectId,
        pattern: Pattern,
    ) -> bool {
        let special = [StateId::ANONYMOUS, StateId::READ_BYPASS].contains(stateid);
        if special || self.is_delegation(sender, stateid) {
            return false;
        }
        let named = self.open_named(now, sender, stateid, file);
        let open = named.ok().and_then(|key| self.open_of(key));
        open.map(|open| open.pattern = pattern).is_some()
    }

    /// Whether a share denies this to those without an open.
    pub(super) fn denies(&self, now: Nanos, file: ObjectId, io: Io) -> bool {
        let bit = match io {
            Io::Read => share_deny::READ,
            Io::Write => share_deny::WRITE,
        };
        self.files.get(&file).is_some_and(|file| {
            let mut clients = file.opens.denying(bit);
            clients.any(|client| !self.is_over(client, now))
        })
    }

    /// Whether a client has the file open, or a delegation of it, or has to acknowledge that one was revoked.
    pub fn is_held(&self, file: ObjectId) -> bool {
        self.files.contains_key(&file) || self.has_delegation(file)
    }

    /// Whether this client has the file open, or a delegation of it. False in minor version 0, where it is not known which client
    /// sends a file handle.
    pub fn is_held_by(&self, sender: Sender, file: ObjectId) -> bool {
        let Sender::Client(id) = sender else {
            return false;
        };
        let Some(client) = self.number(id) else {
            return false;
        };
        let opens = self.files.get(&file).map(|file| &file.opens);
        let mut delegated = self.delegated_to_others(file, None).into_iter();
        opens.is_some_and(|opens| opens.has(client)) || delegated.any(|key| key.0 == client)
    }

    /// FREE_STATEID
    pub fn free_state(&mut self, client: u64, stateid: &StateId) -> Result<(), Status> {
        let sender = Sender::Client(client);
        if self.is_delegation(sender, stateid) {
            return self.free_delegation(sender, stateid);
        }
        let key = self.key(sender, stateid)?;
        let entry = self.entries.get(&key).ok_or(Status::BadStateId)?;
        is_current(entry.sequence, sender, stateid)?;
        let ranges = self.locks.count(entry.file, holder(entry.owner));
        if matches!(entry.what, What::Open(_)) || ranges > 0 {
            return Err(Status::LocksHeld);
        }
        let owner = entry.owner;
        self.drop_locks(key);
        self.release_owner(owner);
        Ok(())
    }

    /// The key of the open or locks that a stateid names. The stateid must be the latest, and of this file. Renews the lease in
    /// 4.0.
    pub(super) fn current_key(
        &mut self,
        now: Nanos,
        sender: Sender,
        stateid: &StateId,
        file: ObjectId,
    ) -> Result<Key, Status> {
        let key = self.key(sender, stateid)?;
        let entry = self.entries.get(&key).ok_or(Status::BadStateId)?;
        let closed = matches!(&entry.what, What::Open(open) if open.closed);
        if closed || entry.file != file {
            return Err(Status::BadStateId);
        }
        is_current(entry.sequence, sender, stateid)?;
        if sender == Sender::Named
            && let Some(client) = self.clients.get_mut(&key.0)
        {
            client.renewed = now;
        }
        Ok(key)
    }

    /// The key of the open that a stateid names. Its owner must be confirmed.
    pub(super) fn confirmed_open(
        &mut self,
        now: Nanos,
        sender: Sender,
        stateid: &StateId,
        file: ObjectId,
    ) -> Result<Key, Status> {
        let key = self.current_key(now, sender, stateid, file)?;
        if self.open_of(key).is_none() || !self.is_confirmed(key) {
            return Err(Status::BadStateId);
        }
        Ok(key)
    }

    fn is_confirmed(&self, key: Key) -> bool {
        let entry = self.entries.get(&key);
        let owner = entry.and_then(|entry| self.owners.get(&entry.owner));
        owner.is_some_and(|owner| owner.confirmed)
    }

    pub(super) fn open_of(&mut self, key: Key) -> Option<&mut Open> {
        match &mut self.entries.get_mut(&key)?.what {
            What::Open(open) => Some(open),
            What::Locks { .. } => None,
        }
    }

    /// Counts a change of an open or of locks. Returns the stateid from now on.
    pub(super) fn changed(&mut self, key: Key) -> StateId {
        let sequence = self.entries.get_mut(&key).map_or(0, |entry| {
            // 0 stands for the latest.
            entry.sequence = entry.sequence.checked_add(1).unwrap_or(1);
            entry.sequence
        });
        self.state_id(key, sequence)
    }

    /// Adds an entry. Its sequence number is 0 until [`State::changed`].
    pub(super) fn add_entry(
        &mut self,
        client: u32,
        owner: u64,
        file: ObjectId,
        what: What,
    ) -> Result<Key, Status> {
        let too_much = self.too_much(client);
        let key = self.free_key(client).ok_or(Status::Expired)?;
        let Some(known) = self.clients.get_mut(&client) else {
            return Err(Status::Expired);
        };
        if known.states >= self.limits.states || self.entries.len() >= self.limits.all_states {
            return Err(too_much);
        }
        known.states += 1;
        if let Some(owner) = self.owners.get_mut(&owner) {
            owner.states.insert(key.1);
        }
        self.held.insert((owner, file), key);
        let entry = Entry {
            owner,
            file,
            sequence: 0,
            what,
        };
        self.entries.insert(key, entry);
        Ok(key)
    }

    /// Forgets an entry, and nothing that belongs to it.
    pub(super) fn remove_entry(&mut self, key: Key) {
        let Some(entry) = self.entries.remove(&key) else {
            return;
        };
        if let Some(client) = self.clients.get_mut(&key.0) {
            client.states -= 1;
        }
        if let Some(owner) = self.owners.get_mut(&entry.owner) {
            owner.states.remove(&key.1);
        }
        if self.held.get(&(entry.owner, entry.file)) == Some(&key) {
            self.held.remove(&(entry.owner, entry.file));
        }
    }

    /// Ends an open, and the locks that were taken under it. The stateid of the open is still known.
    fn end_open(&mut self, key: Key) {
        let Some(entry) = self.entries.get_mut(&key) else {
            return;
        };
        let What::Open(open) = &mut entry.what else {
            return;
        };
        if open.closed {
            return;
        }
        let (owner, file) = (entry.owner, entry.file);
        open.deny = 0;
        let locks = Vec::from_iter(std::mem::take(&mut open.locks));
        let entries = locks.iter().filter_map(|lock| self.entries.get(lock));
        let lockers = Vec::from_iter(entries.map(|entry| entry.owner));
        if !locks.is_empty() {
            self.drop_all_locks(key.0, file, &locks);
        }
        for locker in lockers {
            self.release_owner(locker);
        }
        self.held.remove(&(owner, file));
        self.opens -= 1;
        if let Some(state) = self.files.get_mut(&file) {
            state.opens.remove(key);
        }
        self.release_file(file);
    }

    /// Forgets an open and the locks that were taken under it.
    pub(super) fn drop_open(&mut self, key: Key) {
        self.end_open(key);
        self.remove_entry(key);
    }

    /// Forgets the locks of an owner on a file.
    pub(super) fn drop_locks(&mut self, key: Key) {
        let Some(entry) = self.entries.get(&key) else {
            return;
        };
        self.drop_all_locks(key.0, entry.file, &[key]);
    }

    /// Forgets a file that nobody has open, and those who wait for locks of it.
    pub(super) fn release_file(&mut self, file: ObjectId) {
        let state = self.files.get(&file);
        if state.is_some_and(|state| state.opens.is_empty())
            && let Some(gone) = self.files.remove(&file)
        {
            for waiter in gone.waiters {
                self.forget_wait(waiter.client, file);
            }
        }
    }
}
