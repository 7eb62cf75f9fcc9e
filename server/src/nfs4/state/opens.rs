//! Opens and stateids (RFC 8881, sections 8.2, 9.7 to 9.11, 18.2, 18.16, 18.18, 18.38 and 18.48; RFC 7530, sections 16.2
//! and 16.16 to 16.19).

use std::collections::BTreeSet;

use odafs_common::wire::nfs4::{StateId, StateOwner, Status, share_access, share_deny};
use odafs_fabric::clock::Nanos;

use super::locks::holder;
use super::owners::Role;
use super::shares::Shares;
use super::stateids::{is_current, words};
use super::waiters::Waiter;
use super::{Io, Opened, Sender, State, Wanted};
use crate::vfs::ObjectId;

/// Which state: of which client, and which of its.
pub(super) type Key = (u32, u32);

/// What a stateid stands for.
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
    /// The locks of an owner, which it took under an open.
    Locks {
        open: Key,
    },
}

/// An open file.
#[derive(Debug)]
pub(super) struct Open {
    /// Bits of `share_access`.
    pub access: u32,
    /// Bits of `share_deny`.
    deny: u32,
    /// A bit for each pair of access and deny that it was opened with.
    pairs: u16,
    /// Stateids of locks that were taken under it.
    pub locks: BTreeSet<Key>,
    /// It was closed, and is there for a repetition of that alone (4.0).
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

/// What is known of a file that somebody has open.
#[derive(Debug, Default)]
pub(super) struct FileState {
    pub opens: Shares,
    /// Those who were denied a lock.
    pub waiters: Vec<Waiter>,
}

fn pair(access: u32, deny: u32) -> u16 {
    1 << (access & share_access::BOTH | (deny & share_deny::BOTH) << 2)
}

/// Access and deny of some pairs together.
fn union(pairs: u16) -> (u32, u32) {
    let each = (0..16u32).filter(|bit| pairs & 1 << bit != 0);
    each.fold((0, 0), |(access, deny), bit| {
        (access | bit & 3, deny | bit >> 2)
    })
}

impl State {
    /// Whether an owner may open files now.
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

    /// OPEN, once the file is known. May expel clients whose leases are over.
    pub fn open(
        &mut self,
        now: Nanos,
        sender: Sender,
        owner: &StateOwner<'_>,
        wanted: &Wanted,
    ) -> Result<Opened, Status> {
        let client = self.client_of(now, sender, owner)?;
        self.may_take(now, client, wanted.reclaim)?;
        self.make_room_for_state(now, client);
        let number = self.owner(client, Role::Open, owner.owner.0)?;
        let opened = self.open_as(now, client, number, wanted);
        self.release_owner(number);
        opened
    }

    fn open_as(
        &mut self,
        now: Nanos,
        client: u32,
        owner: u64,
        wanted: &Wanted,
    ) -> Result<Opened, Status> {
        while let Some(theirs) = self.share_conflict(wanted) {
            if theirs == client || !self.is_over(theirs, now) {
                return Err(if wanted.reclaim {
                    Status::ReclaimConflict
                } else {
                    Status::ShareDenied
                });
            }
            self.expel(theirs);
        }
        if self.open_waits(now, client, wanted) {
            return Err(if wanted.reclaim {
                Status::ReclaimConflict
            } else {
                Status::Delay
            });
        }
        let file = wanted.file;
        let key = match self.held.get(&(owner, file)) {
            Some(key) => *key,
            None => {
                let what = What::Open(Open {
                    access: 0,
                    deny: 0,
                    pairs: 0,
                    locks: BTreeSet::new(),
                    closed: false,
                });
                let key = self.add_entry(client, owner, file, what)?;
                self.opens += 1;
                key
            }
        };
        if let Some(entry) = self.entries.get_mut(&key)
            && let What::Open(open) = &mut entry.what
        {
            open.access |= wanted.access;
            open.deny |= wanted.deny;
            open.pairs |= pair(wanted.access, wanted.deny);
            let known = self.files.entry(file).or_default();
            known.opens.set(key, open.access, open.deny);
        }
        let state = self.changed(key);
        let notifies = self.hears(client);
        let legacy = self.clients.get(&client).is_some_and(|c| c.legacy());
        let Some(owner) = self.owners.get_mut(&owner) else {
            return Err(Status::ServerFault);
        };
        owner.confirmed |= wanted.reclaim;
        let confirm = !owner.confirmed;
        if legacy && !confirm {
            self.record(client);
        }
        Ok(Opened {
            state,
            confirm,
            notifies,
        })
    }

    /// Forgets an open of which its client is told nothing, since its OPEN failed in the end, or brings a delegation instead. One that
    /// was there before stays: false.
    pub fn take_back_open(&mut self, opened: &StateId) -> bool {
        let [.., client, number] = words(&opened.other);
        let key = (client, number);
        let Some(entry) = self.entries.get(&key) else {
            return false;
        };
        let new = opened.sequence == 1 && entry.sequence == 1;
        if new {
            let owner = entry.owner;
            self.drop_open(key);
            self.release_owner(owner);
        }
        new
    }

    /// The client of an open that stands in the way. That of the same owner does too (RFC 8881, section 9.7).
    fn share_conflict(&self, wanted: &Wanted) -> Option<u32> {
        let file = self.files.get(&wanted.file)?;
        file.opens.conflict(wanted.access, wanted.deny)
    }

    /// Whether somebody has the file open for any of this access, besides perhaps one client.
    pub(super) fn is_open_for(&self, file: ObjectId, access: u32, besides: Option<u32>) -> bool {
        let known = self.files.get(&file);
        known.is_some_and(|known| known.opens.is_open_for(access, besides))
    }

    /// OPEN_CONFIRM
    pub fn open_confirm(
        &mut self,
        now: Nanos,
        state: &StateId,
        file: ObjectId,
    ) -> Result<StateId, Status> {
        let key = self.state(now, Sender::Named, state, file)?;
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

    /// OPEN_DOWNGRADE: to what some of the opens were for, together.
    pub fn open_downgrade(
        &mut self,
        now: Nanos,
        sender: Sender,
        state: &StateId,
        file: ObjectId,
        access: u32,
        deny: u32,
    ) -> Result<StateId, Status> {
        let key = self.confirmed_open(now, sender, state, file)?;
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

    /// CLOSE; locks of the open go with it.
    pub fn close(
        &mut self,
        now: Nanos,
        sender: Sender,
        state: &StateId,
        file: ObjectId,
    ) -> Result<StateId, Status> {
        let key = self.confirmed_open(now, sender, state, file)?;
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

    /// Whether data of the file may be read or written under this stateid, a special one perhaps: the open must have the
    /// access, and without an open nobody's share may deny it. Renews the lease in 4.0.
    ///
    /// An open for writing permits reading too, because clients that write parts of pages read them (RFC 8881, section 9.1.2).
    pub fn io(
        &mut self,
        now: Nanos,
        sender: Sender,
        state: &StateId,
        file: ObjectId,
        io: Io,
    ) -> Result<(), Status> {
        if *state == StateId::READ_BYPASS && io == Io::Read {
            return Ok(());
        }
        if *state == StateId::ANONYMOUS || *state == StateId::READ_BYPASS {
            self.end_grace(now);
            return match () {
                () if self.in_grace(now) => Err(Status::Grace),
                () if self.denies(now, file, io) => Err(Status::Locked),
                () => Ok(()),
            };
        }
        if self.is_delegation(sender, state) {
            let key = self.delegation(sender, state, Some(file))?;
            return match io {
                Io::Read => Ok(()),
                Io::Write => self.may_write_by(key),
            };
        }
        let mut key = self.state(now, sender, state, file)?;
        if let Some(What::Locks { open }) = self.entries.get(&key).map(|entry| &entry.what) {
            key = *open;
        }
        if !self.is_confirmed(key) {
            return Err(Status::BadStateId);
        }
        let open = self.open_of(key).ok_or(Status::BadStateId)?;
        match io {
            Io::Write if open.access & share_access::WRITE == 0 => Err(Status::OpenMode),
            Io::Read | Io::Write => Ok(()),
        }
    }

    /// Whether somebody's share denies this to a client without an open.
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

    /// Whether somebody has the file open, or a delegation of it, or is to take note that it was revoked.
    pub fn is_held(&self, file: ObjectId) -> bool {
        self.files.contains_key(&file) || self.has_delegation(file)
    }

    /// Whether this client has the file open, or a delegation of it. In minor version 0, where a file handle is not sent on behalf
    /// of a client, nobody has.
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
    pub fn free_state(&mut self, _now: Nanos, client: u64, state: &StateId) -> Result<(), Status> {
        let sender = Sender::Client(client);
        if self.is_delegation(sender, state) {
            return self.free_delegation(sender, state);
        }
        let key = self.key(sender, state)?;
        let entry = self.entries.get(&key).ok_or(Status::BadStateId)?;
        is_current(entry.sequence, sender, state)?;
        let ranges = self.locks.count(entry.file, holder(entry.owner));
        if matches!(entry.what, What::Open(_)) || ranges > 0 {
            return Err(Status::LocksHeld);
        }
        let owner = entry.owner;
        self.drop_locks(key);
        self.release_owner(owner);
        Ok(())
    }

    /// The state that a stateid names, which must be of this file and the latest. Renews the lease in 4.0.
    pub(super) fn state(
        &mut self,
        now: Nanos,
        sender: Sender,
        state: &StateId,
        file: ObjectId,
    ) -> Result<Key, Status> {
        let key = self.key(sender, state)?;
        let entry = self.entries.get(&key).ok_or(Status::BadStateId)?;
        let closed = matches!(&entry.what, What::Open(open) if open.closed);
        if closed || entry.file != file {
            return Err(Status::BadStateId);
        }
        is_current(entry.sequence, sender, state)?;
        if sender == Sender::Named
            && let Some(client) = self.clients.get_mut(&key.0)
        {
            client.renewed = now;
        }
        Ok(key)
    }

    /// The open that a stateid names, which needs no confirmation any more.
    pub(super) fn confirmed_open(
        &mut self,
        now: Nanos,
        sender: Sender,
        state: &StateId,
        file: ObjectId,
    ) -> Result<Key, Status> {
        let key = self.state(now, sender, state, file)?;
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

    /// Counts a change of a state: its stateid from now on.
    pub(super) fn changed(&mut self, key: Key) -> StateId {
        let sequence = self.entries.get_mut(&key).map_or(0, |entry| {
            // 0 stands for the latest.
            entry.sequence = entry.sequence.checked_add(1).unwrap_or(1);
            entry.sequence
        });
        self.state_id(key, sequence)
    }

    /// A new state, of sequence 0 until it has changed.
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

    /// Forgets a stateid alone.
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

    /// The file is open no more, nor locked. The stateid is still known.
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

    /// Forgets an open and the locks under it.
    pub(super) fn drop_open(&mut self, key: Key) {
        self.end_open(key);
        self.remove_entry(key);
    }

    /// Forgets an owner's locks of a file.
    pub(super) fn drop_locks(&mut self, key: Key) {
        let Some(entry) = self.entries.get(&key) else {
            return;
        };
        self.drop_all_locks(key.0, entry.file, &[key]);
    }

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
