//! Locks of ranges of bytes (RFC 8881, sections 18.10 to 18.12; RFC 7530, sections 16.10 to 16.12).

use odafs_common::wire::nfs4::{LockType, Locker, StateId, StateOwner, Status, share_access};
use odafs_fabric::clock::Nanos;

use super::opens::{Key, What};
use super::owners::Role;
use super::ranges::{Held, Ranges, Span, is_write};
use super::{Conflict, LockRange, LockRefused, Sender, State};
use crate::vfs::ObjectId;

/// A lock that is asked for.
struct Asked {
    file: ObjectId,
    span: Span,
    write: bool,
    reclaim: bool,
    /// The owner is told when it is free.
    waits: bool,
    /// The open under which.
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
        let span = Span::of(&range)?;
        let mut asked = Asked {
            file,
            span,
            write: is_write(range.kind),
            reclaim,
            waits: matches!(range.kind, LockType::ReadWait | LockType::WriteWait),
            open: (0, 0),
        };
        let new = match locker {
            Locker::Existing(existing) => {
                let key = self.state(now, sender, &existing.lock, file)?;
                let entry = self.entries.get(&key).ok_or(Status::BadStateId)?;
                let What::Locks { open } = entry.what else {
                    return Err(Status::BadStateId.into());
                };
                asked.open = open;
                return self.lock_as(now, entry.owner, &asked);
            }
            Locker::New(new) => new,
        };
        asked.open = self.confirmed_open(now, sender, &new.open, file)?;
        let client = asked.open.0;
        if sender == Sender::Named {
            let named = self.legacy_client(now, new.owner.client_id)?;
            if named != client {
                return Err(Status::BadStateId.into());
            }
        }
        let owner = self.owner(client, Role::Lock, new.owner.owner.0)?;
        if sender == Sender::Named && !self.is_next(owner, new.lock_sequence) {
            return Err(Status::BadSeqId.into());
        }
        let locked = self.lock_as(now, owner, &asked);
        let known = self
            .owners
            .get(&owner)
            .is_some_and(|o| !o.states.is_empty());
        if sender == Sender::Named && known {
            self.count(now, owner, new.lock_sequence);
        }
        self.release_owner(owner);
        locked
    }

    fn lock_as(&mut self, now: Nanos, owner: u64, asked: &Asked) -> Result<StateId, LockRefused> {
        let client = asked.open.0;
        let open = self.open_of(asked.open).ok_or(Status::BadStateId)?;
        let needed = if asked.write {
            share_access::WRITE
        } else {
            share_access::READ
        };
        if open.access & needed == 0 {
            return Err(Status::OpenMode.into());
        }
        self.may_take(now, client, asked.reclaim)?;
        self.wait_no_more(client, owner, asked.file);
        while let Some(held) = self.conflict(asked.file, asked.span, asked.write, Some(owner)) {
            if let Err(refused) = self.make_way(now, &held) {
                if asked.reclaim {
                    return Err(Status::ReclaimConflict.into());
                }
                if asked.waits {
                    self.wait_for(client, owner, asked.file, asked.span, asked.write);
                }
                return Err(refused);
            }
        }
        let known = self.clients.get(&client).ok_or(Status::Expired)?;
        // A lock may cut one in two.
        if known.ranges + 2 > self.limits.states {
            return Err(self.too_much(client).into());
        }
        let key = match self.held.get(&(owner, asked.file)) {
            Some(key) => *key,
            None => {
                let what = What::Locks { open: asked.open };
                let key = self.add_entry(client, owner, asked.file, what)?;
                if let Some(open) = self.open_of(asked.open) {
                    open.locks.push(key);
                }
                key
            }
        };
        let (span, write) = (asked.span, asked.write);
        self.change_ranges(client, owner, asked.file, |ranges| {
            ranges.lock(span, write, owner);
        });
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
        let span = Span::of(&range)?;
        let client = self.client_of(now, sender, owner)?;
        self.may_take(now, client, false)?;
        let owner = self.find_owner(client, Role::Lock, owner.owner.0);
        while let Some(held) = self.conflict(file, span, is_write(range.kind), owner) {
            self.make_way(now, &held)?;
        }
        Ok(())
    }

    /// LOCKU
    pub fn unlock(
        &mut self,
        now: Nanos,
        sender: Sender,
        state: &StateId,
        file: ObjectId,
        range: LockRange,
    ) -> Result<StateId, Status> {
        let span = Span::of(&range)?;
        let key = self.state(now, sender, state, file)?;
        let entry = self.entries.get(&key).ok_or(Status::BadStateId)?;
        if !matches!(entry.what, What::Locks { .. }) {
            return Err(Status::BadStateId);
        }
        let owner = entry.owner;
        let known = self.clients.get(&key.0).ok_or(Status::Expired)?;
        let ranges = self.files.get(&file).map(|file| &file.ranges);
        let splits = ranges.is_some_and(|ranges| ranges.would_split(span, owner));
        if splits && known.ranges >= self.limits.states {
            return Err(self.too_much(key.0));
        }
        self.change_ranges(key.0, owner, file, |ranges| ranges.unlock(span, owner));
        Ok(self.changed(key))
    }

    fn conflict(
        &self,
        file: ObjectId,
        span: Span,
        write: bool,
        owner: Option<u64>,
    ) -> Option<Held> {
        let file = self.files.get(&file)?;
        file.ranges.conflict(span, write, owner)
    }

    /// Expels the client of a lock if its lease is over.
    fn make_way(&mut self, now: Nanos, held: &Held) -> Result<(), LockRefused> {
        let owner = self.owners.get(&held.owner);
        let owner = owner.ok_or(Status::ServerFault)?;
        let client = owner.client;
        if !self.is_over(client, now) {
            return Err(LockRefused::Denied(Conflict {
                range: held.range(),
                client: self.id(client),
                owner: owner.name.clone(),
            }));
        }
        self.expel(client);
        Ok(())
    }

    /// Changes what an owner has locked in a file, and counts that.
    pub(super) fn change_ranges(
        &mut self,
        client: u32,
        owner: u64,
        file: ObjectId,
        change: impl FnOnce(&mut Ranges),
    ) {
        let Some(state) = self.files.get_mut(&file) else {
            return;
        };
        let before = state.ranges.count(owner);
        change(&mut state.ranges);
        let after = state.ranges.count(owner);
        let waits = !state.waiters.is_empty();
        if let Some(client) = self.clients.get_mut(&client) {
            client.ranges = client.ranges + after - before;
        }
        if waits {
            self.wake(file);
        }
    }
}
