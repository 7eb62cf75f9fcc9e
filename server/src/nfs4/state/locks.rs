//! Locks of ranges of bytes (RFC 8881, sections 18.10 to 18.12; RFC 7530, sections 16.10 to 16.12).

use std::collections::HashSet;

use odafs_common::wire::nfs4::{
    LockType, Locker, OpenToLockOwner, StateId, StateOwner, Status, share_access,
};
use odafs_fabric::clock::Nanos;

use super::opens::{Key, What};
use super::owners::{KnownOwner, OwnerRole};
use super::{Conflict, LockRange, LockRefused, Sender, State};
use crate::vfs::ObjectId;
use crate::vfs::locks::{Counted, Held, LockOwner, Side, Span};

/// An owner as the lock table of all protocols names it.
pub(super) fn holder(number: u64) -> LockOwner {
    LockOwner {
        side: Side::Nfs4,
        number,
    }
}

/// The bytes of a range. INVAL for a length of 0 and for a range beyond `u64::MAX` (RFC 8881, section 18.10.3).
fn span(range: &LockRange) -> Result<Span, Status> {
    let first = range.offset;
    let last = match range.length {
        0 => return Err(Status::Inval),
        u64::MAX => u64::MAX,
        length => first.checked_add(length - 1).ok_or(Status::Inval)?,
    };
    Ok(Span { first, last })
}

/// The range and the type of a lock.
fn range_of(held: &Held) -> LockRange {
    LockRange {
        kind: match held.write {
            true => LockType::Write,
            false => LockType::Read,
        },
        offset: held.span.first,
        length: match held.span.last {
            u64::MAX => u64::MAX,
            last => last - held.span.first + 1,
        },
    }
}

/// Whether a lock of this type excludes all others.
fn is_write(kind: LockType) -> bool {
    matches!(kind, LockType::Write | LockType::WriteWait)
}

/// A lock that is asked for.
struct Asked {
    file: ObjectId,
    span: Span,
    write: bool,
    reclaim: bool,
    /// Whether the owner wants to be told when the lock is free.
    waits: bool,
    /// The open under which it is taken.
    open: Key,
}

impl State {
    /// LOCK
    pub fn lock(
        &mut self,
        now: Nanos,
        sender: Sender,
        file: ObjectId,
        range: LockRange,
        locker: &Locker<'_>,
        reclaim: bool,
    ) -> Result<StateId, LockRefused> {
        let span = span(&range)?;
        let asked = |open| Asked {
            file,
            span,
            write: is_write(range.kind),
            reclaim,
            waits: matches!(range.kind, LockType::ReadWait | LockType::WriteWait),
            open,
        };
        match locker {
            Locker::Existing(existing) => {
                let key = self.current_key(now, sender, &existing.lock, file)?;
                let entry = self.entries.get(&key).ok_or(Status::BadStateId)?;
                let What::Locks { open } = entry.what else {
                    return Err(Status::BadStateId.into());
                };
                self.lock_as(now, entry.owner, &asked(open))
            }
            Locker::New(new) => {
                let open = self.confirmed_open(now, sender, &new.open, file)?;
                self.lock_as_new(now, sender, new, &asked(open))
            }
        }
    }

    /// LOCK by an owner that is new to the open.
    fn lock_as_new(
        &mut self,
        now: Nanos,
        sender: Sender,
        new: &OpenToLockOwner<'_>,
        asked: &Asked,
    ) -> Result<StateId, LockRefused> {
        let client = asked.open.0;
        if sender == Sender::Named {
            let named = self.legacy_client(now, new.owner.client_id)?;
            if named != client {
                return Err(Status::BadStateId.into());
            }
        }
        self.make_room_for_state(now, client);
        let owner = self.owner(client, OwnerRole::Lock, new.owner.owner.0)?;
        if sender == Sender::Named && !self.is_next(owner, new.lock_sequence) {
            return Err(Status::BadSeqId.into());
        }
        let locked = self.lock_as(now, owner, asked);
        self.release_owner(owner);
        locked
    }

    fn lock_as(&mut self, now: Nanos, owner: u64, asked: &Asked) -> Result<StateId, LockRefused> {
        let client = asked.open.0;
        let open = self.open_of(asked.open).ok_or(Status::BadStateId)?;
        let needed = match asked.write {
            true => share_access::WRITE,
            false => share_access::READ,
        };
        if open.access & needed == 0 {
            return Err(Status::OpenMode.into());
        }
        self.may_take(now, client, asked.reclaim)?;
        self.wait_no_more(client, owner, asked.file);
        while let Some(held) = self.conflict(asked.file, asked.span, asked.write, Some(owner)) {
            if let Err(refused) = self.make_way(now, asked.file, asked.span, asked.write, &held) {
                if asked.reclaim {
                    return Err(Status::ReclaimConflict.into());
                }
                if asked.waits && refused != Self::HELD_UP.into() {
                    self.wait_for(client, owner, asked.file, asked.span, asked.write);
                }
                return Err(refused);
            }
        }
        self.make_room_for_state(now, client);
        // A lock may split another one.
        self.check_room(now, client, asked.file, 2)?;
        let key = match self.held.get(&(owner, asked.file)) {
            Some(key) => *key,
            None => {
                let what = What::Locks { open: asked.open };
                let key = self.add_entry(client, owner, asked.file, what)?;
                if let Some(open) = self.open_of(asked.open) {
                    open.locks.insert(key);
                }
                key
            }
        };
        let locked = self
            .locks
            .lock(asked.file, asked.span, asked.write, holder(owner));
        match locked {
            Ok(counted) => {
                self.count_ranges(client, counted);
                // The owner may have had a stronger lock, for which others wait.
                if !asked.write && counted.before > 0 {
                    self.wake(asked.file, asked.span);
                }
            }
            // Another protocol has locked the range meanwhile.
            Err(held) => {
                if self.entries.get(&key).is_some_and(|e| e.sequence == 0) {
                    self.drop_locks(key);
                }
                return Err(LockRefused::Denied(self.conflict_with(&held)));
            }
        }
        Ok(self.changed(key))
    }

    /// LOCKT
    pub fn lock_test(
        &mut self,
        now: Nanos,
        sender: Sender,
        file: ObjectId,
        range: LockRange,
        owner: &StateOwner<'_>,
    ) -> Result<(), LockRefused> {
        let span = span(&range)?;
        let client = self.client_of(now, sender, owner)?;
        self.may_take(now, client, false)?;
        let owner = self.find_owner(client, OwnerRole::Lock, owner.owner.0);
        let write = is_write(range.kind);
        while let Some(held) = self.conflict(file, span, write, owner) {
            self.make_way(now, file, span, write, &held)?;
        }
        match self.may_be_locked_unseen(now, client, file, write) {
            true => Err(Status::Delay.into()),
            false => Ok(()),
        }
    }

    /// LOCKU
    pub fn unlock(
        &mut self,
        now: Nanos,
        sender: Sender,
        stateid: &StateId,
        file: ObjectId,
        range: LockRange,
    ) -> Result<StateId, Status> {
        let span = span(&range)?;
        let key = self.current_key(now, sender, stateid, file)?;
        let entry = self.entries.get(&key).ok_or(Status::BadStateId)?;
        if !matches!(entry.what, What::Locks { .. }) {
            return Err(Status::BadStateId);
        }
        let owner = entry.owner;
        if self.locks.would_split(file, span, holder(owner)) {
            self.check_room(now, key.0, file, 1)?;
        }
        self.give_back(key.0, owner, file, span);
        Ok(self.changed(key))
    }

    /// Refuses a client that would have too many ranges, in all or in this file, with `more` of them.
    fn check_room(
        &mut self,
        now: Nanos,
        client: u32,
        file: ObjectId,
        more: usize,
    ) -> Result<(), Status> {
        let known = self.clients.get(&client).ok_or(Status::Expired)?;
        let may = known.ranges + more <= self.limits.states
            && self.ranges + more <= self.limits.all_states
            && self.has_room_in(now, client, file);
        match may {
            true => Ok(()),
            false => Err(self.too_much(client)),
        }
    }

    /// Whether a client may lock more ranges of a file. Clients whose leases are over make room.
    fn has_room_in(&mut self, now: Nanos, client: u32, file: ObjectId) -> bool {
        if self.locks.ranges_of(file, Side::Nfs4) + 2 <= self.limits.ranges {
            return true;
        }
        let own = self.locks.held_by(file, |owner| {
            let owner = self.owner_of(owner);
            owner.is_some_and(|owner| owner.client == client)
        });
        if own.len() + 2 > self.limits.ranges {
            return false;
        }
        if !self.is_full(file) {
            return true;
        }
        let owners = self.locks.in_the_way(Side::Nfs4, file, Span::ALL, true);
        let owners = owners.iter().filter_map(|owner| self.owners.get(owner));
        let clients: HashSet<u32> = owners.map(|owner| owner.client).collect();
        let hold = |number, _: &_| clients.contains(&number);
        self.expel_silent(now, client, hold, |state| !state.is_full(file));
        !self.is_full(file)
    }

    /// Whether there are as many locked ranges in a file as there may be.
    fn is_full(&self, file: ObjectId) -> bool {
        self.locks.ranges_of(file, Side::Nfs4) + 2 > self.limits.file_ranges
    }

    fn conflict(
        &self,
        file: ObjectId,
        span: Span,
        write: bool,
        owner: Option<u64>,
    ) -> Option<Held> {
        self.locks.conflict(file, span, write, owner.map(holder))
    }

    /// The owner of a lock, unless it is one of another protocol.
    pub(super) fn owner_of(&self, owner: LockOwner) -> Option<&KnownOwner> {
        let known = self.owners.get(&owner.number);
        known.filter(|_| owner.side == Side::Nfs4)
    }

    /// Makes way for a lock past one that is in the way (`held`), if the lease of its client is over. Then all such clients with
    /// locks in the way are expelled. Other protocols have no leases.
    fn make_way(
        &mut self,
        now: Nanos,
        file: ObjectId,
        span: Span,
        write: bool,
        held: &Held,
    ) -> Result<(), LockRefused> {
        let owner = self.owner_of(held.owner);
        if !owner.is_some_and(|owner| self.is_over(owner.client, now)) {
            return Err(LockRefused::Denied(self.conflict_with(held)));
        }
        let owners = self.locks.in_the_way(Side::Nfs4, file, span, write);
        match self.expel_owners(now, &owners) {
            true => Ok(()),
            false => Err(Self::HELD_UP.into()),
        }
    }

    /// A lock as a lock in the way. Those of other protocols have no client and no owner here.
    fn conflict_with(&self, held: &Held) -> Conflict {
        let owner = self.owner_of(held.owner);
        Conflict {
            range: range_of(held),
            client: owner.map_or(0, |owner| self.id(owner.client)),
            owner: owner.map_or_else(Vec::new, |owner| owner.name.clone()),
        }
    }

    /// Unlocks what an owner has locked of a span.
    pub(super) fn give_back(&mut self, client: u32, owner: u64, file: ObjectId, span: Span) {
        let counted = self.locks.unlock(file, span, holder(owner));
        self.count_ranges(client, counted);
        if counted.freed {
            self.wake(file, span);
        }
    }

    /// Unlocks all that some owners of a client have locked of a file, and forgets their stateids (`keys`). However many they
    /// are, this goes through the ranges of the file once, and once more if owners wait.
    pub(super) fn drop_all_locks(&mut self, client: u32, file: ObjectId, keys: &[Key]) {
        let entries = keys.iter().filter_map(|key| self.entries.get(key));
        let owners: HashSet<u64> = entries.map(|entry| entry.owner).collect();
        let given_back = self
            .locks
            .unlock_all(file, Side::Nfs4, |owner| owners.contains(&owner));
        let counted = Counted {
            before: given_back,
            after: 0,
            freed: given_back > 0,
        };
        self.count_ranges(client, counted);
        for key in keys {
            let entry = self.entries.get(key).map(|entry| &entry.what);
            if let Some(What::Locks { open }) = entry
                && let Some(open) = self.open_of(*open)
            {
                open.locks.remove(key);
            }
            self.remove_entry(*key);
        }
        if given_back > 0 {
            self.wake(file, Span::ALL);
        }
        self.release_file(file);
    }

    /// Counts a change in the number of ranges that a client has locked.
    fn count_ranges(&mut self, client: u32, counted: Counted) {
        if let Some(client) = self.clients.get_mut(&client) {
            client.ranges = client.ranges + counted.after - counted.before;
            self.ranges = self.ranges + counted.after - counted.before;
        }
    }

    /// Others want what these owners have locked. Takes everything from their clients if their leases are over. False: that is
    /// held up.
    pub fn expel_owners(&mut self, now: Nanos, owners: &[u64]) -> bool {
        let owners = owners.iter().filter_map(|owner| self.owners.get(owner));
        let clients = owners.map(|owner| owner.client);
        let over = clients.filter(|client| self.is_over(*client, now));
        self.expel_all(&over.collect())
    }
}
