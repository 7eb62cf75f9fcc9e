//! Owners that wait for locks. The server tells an owner that was denied a lock when the lock is free (CB_NOTIFY_LOCK; RFC 8881,
//! section 20.11). That is a hint: the first owner to ask gets the lock, and clients ask from time to time anyway.

use std::collections::BTreeSet;

use odafs_fabric::clock::Nanos;

use super::State;
use super::back_channel::Callback;
use super::locks::holder;
use super::owners::OwnerRole;
use crate::vfs::ObjectId;
use crate::vfs::locks::{Held, Side, Span, Wanted};

/// The most locks for which a client can wait, together with the callbacks that wait for it.
const WAITERS_MAX: usize = 256;
/// Owners with longer names, in bytes, are not told.
const OWNER_BYTES_MAX: usize = 128;

/// An owner that was denied a lock.
#[derive(Debug)]
pub(super) struct Waiter {
    pub client: u32,
    owner: Vec<u8>,
    span: Span,
    write: bool,
}

impl State {
    /// The owner was denied a lock and wants to be told when it is free.
    pub(super) fn wait_for(
        &mut self,
        client: u32,
        owner: u64,
        file: ObjectId,
        span: Span,
        write: bool,
    ) {
        if !self.hears(client) {
            return;
        }
        self.wait_no_more(client, owner, file);
        let Some(owner) = self.owners.get(&owner) else {
            return;
        };
        let Some(known) = self.clients.get_mut(&client) else {
            return;
        };
        // It is only a hint, so the server keeps a bounded number.
        let many = known.waits.len() + known.callbacks.len() >= WAITERS_MAX;
        if many || owner.name.len() > OWNER_BYTES_MAX {
            return;
        }
        if let Some(state) = self.files.get_mut(&file)
            && state.waiters.len() < self.limits.file_waiters
        {
            known.waits.push(file);
            state.waiters.push(Waiter {
                client,
                owner: owner.name.clone(),
                span,
                write,
            });
            // Another protocol may have released the lock meanwhile.
            let last = state.waiters.len() - 1;
            self.wake_from(last, file, Span::ALL);
        }
    }

    /// Tells the owners that wait for locks which other protocols have released.
    pub fn hear_of_locks(&mut self) {
        self.locks.watch_only(Side::Nfs4, |file| {
            let state = self.files.get(file);
            state.is_some_and(|state| !state.waiters.is_empty())
        });
        for file in self.locks.take_news(Side::Nfs4) {
            self.wake(file, Span::ALL);
        }
    }

    /// Takes everything from clients whose leases are over and whose locks other clients wait for.
    pub(super) fn expel_for_waiters(&mut self, now: Nanos) {
        let mut silent = self.clients.iter();
        if !silent.any(|(number, client)| client.ranges > 0 && self.is_over(*number, now)) {
            return;
        }
        let waiting = self.clients.iter();
        let waiting = waiting.filter(|(number, _)| !self.is_over(**number, now));
        let wanted = waiting.flat_map(|(_, client)| &client.waits).copied();
        for file in BTreeSet::from_iter(wanted) {
            let waiters = self.files.get(&file).map(|state| &state.waiters[..]);
            let waits = |waiter: &&Waiter| !self.is_over(waiter.client, now);
            let waiters = Vec::from_iter(waiters.unwrap_or_default().iter().filter(waits));
            let silent = self.locks.held_by(file, |owner| {
                let owner = self.owner_of(owner);
                owner.is_some_and(|owner| self.is_over(owner.client, now))
            });
            let blocks = |held: &&Held| {
                let mut waiters = waiters.iter();
                waiters.any(|waiter| held.blocks(waiter.span, waiter.write))
            };
            let owners = silent.iter().filter(blocks).map(|held| held.owner.number);
            let owners = Vec::from_iter(owners);
            self.expel_owners(now, &owners);
        }
    }

    /// The owner waits for no lock of the file any more.
    pub(super) fn wait_no_more(&mut self, client: u32, owner: u64, file: ObjectId) {
        let (Some(state), Some(owner)) = (self.files.get_mut(&file), self.owners.get(&owner))
        else {
            return;
        };
        let before = state.waiters.len();
        let same = |waiter: &Waiter| waiter.client == client && waiter.owner == owner.name;
        state.waiters.retain(|waiter| !same(waiter));
        if state.waiters.len() < before {
            self.forget_wait(client, file);
        }
    }

    /// Locks in this part of the file were released: tells the owners whose locks are free now.
    pub(super) fn wake(&mut self, file: ObjectId, freed: Span) {
        self.wake_from(0, file, freed);
    }

    /// As [`wake`](Self::wake), for the waiters from this index on.
    fn wake_from(&mut self, first: usize, file: ObjectId, freed: Span) {
        let Some(state) = self.files.get(&file) else {
            return;
        };
        let waiters = state.waiters.iter().enumerate().skip(first);
        let (at, wanted): (Vec<usize>, Vec<Wanted>) = waiters
            .filter(|(_, waiter)| waiter.span.overlaps(freed))
            .map(|(at, waiter)| {
                let owner = self.find_owner(waiter.client, OwnerRole::Lock, &waiter.owner);
                let wanted = Wanted {
                    span: waiter.span,
                    write: waiter.write,
                    owner: owner.map(holder),
                };
                (at, wanted)
            })
            .unzip();
        if wanted.is_empty() {
            return;
        }
        // This comes first, so that a lock that is released after the look below makes news.
        self.locks.watch(file, Side::Nfs4);
        let free = self.locks.are_free(file, &wanted);
        let free = at.into_iter().zip(free).filter(|(_, free)| *free);
        let mut free = free.map(|(at, _)| at).peekable();
        let Some(state) = self.files.get_mut(&file) else {
            return;
        };
        let mut at = 0..state.waiters.len();
        let woken = state.waiters.extract_if(.., |_| {
            let at = at.next();
            free.next_if(|free| Some(*free) == at).is_some()
        });
        let woken: Vec<Waiter> = woken.collect();
        for waiter in woken {
            self.forget_wait(waiter.client, file);
            let owner = waiter.owner;
            self.say(waiter.client, Callback::NotifyLock { file, owner });
        }
    }

    /// The client waits for no lock any more.
    pub(super) fn wait_for_nothing(&mut self, client: u32) {
        let Some(known) = self.clients.get_mut(&client) else {
            return;
        };
        for file in std::mem::take(&mut known.waits) {
            if let Some(state) = self.files.get_mut(&file) {
                state.waiters.retain(|waiter| waiter.client != client);
            }
        }
    }

    pub(super) fn forget_wait(&mut self, client: u32, file: ObjectId) {
        if let Some(known) = self.clients.get_mut(&client)
            && let Some(at) = known.waits.iter().position(|wait| *wait == file)
        {
            known.waits.swap_remove(at);
        }
    }
}
