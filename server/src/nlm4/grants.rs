//! Owners that wait for locks. When nothing is in the way of an owner any more, the server takes the lock for it and calls its
//! client (GRANTED). A client that cannot be reached, or that no longer wants the lock, does not get it. It may ask again.

#[cfg(test)]
mod tests;

use std::collections::HashSet;
use std::net::IpAddr;

use odafs_common::wire::nfs3::FileHandle;
use odafs_common::wire::nlm4::{Lock, LockResult, Name, Object, Status, TestArgs};
use odafs_common::wire::xdr::{Decode as _, Encode as _};

use super::hosts::{Asked, HostOwner, Hosts, OwnerKey, Who, holder};
use super::peers::Heard;
use crate::vfs::ObjectId;
use crate::vfs::locks::{Before, Held, Side, Span, Wanted};

/// An owner that was denied a lock.
#[derive(Debug)]
pub(super) struct Waiter {
    pub owner: u64,
    span: Span,
    write: bool,
    /// The number of its host's start.
    state: u32,
    /// The server's address, as the client used it to ask. It knows the server by that.
    ours: Option<IpAddr>,
    /// As the client asked.
    handle: Vec<u8>,
    offset: u64,
    length: u64,
}

impl Waiter {
    fn wanted(&self) -> Wanted {
        Wanted {
            span: self.span,
            write: self.write,
            owner: Some(holder(self.owner)),
        }
    }
}

/// A lock that the server took for an owner, before it is certain that the client knows of it.
#[derive(Debug)]
pub(super) struct Grant {
    pub owner: u64,
    pub file: ObjectId,
    span: Span,
    write: bool,
    /// What the owner has if the client does not want this lock.
    before: Before,
    /// Whether the client has left the call unanswered. It may have the lock, until it cancels that.
    unanswered: bool,
}

/// A call that tells a client of its lock.
#[derive(Debug)]
pub(super) struct GrantCall {
    /// The number to give to [`Hosts::heard`].
    pub number: u64,
    pub address: IpAddr,
    /// The server's address, as the client uses it.
    pub ours: Option<IpAddr>,
    /// The arguments of GRANTED.
    pub arguments: Vec<u8>,
}

impl Hosts {
    /// The owner was denied the lock, and waits for it.
    pub fn wait_for(&mut self, owner: u64, asked: &Asked<'_>, state: u32) -> Status {
        let Some(known) = self.owners.get(&owner) else {
            return Status::Failed;
        };
        let host = known.host;
        let Some(reachable) = self.hosts.get(&host).filter(|h| h.address.is_some()) else {
            return Status::Denied;
        };
        let ours = reachable.ours;
        let waiting = self.waiters.get(&asked.file).map_or(0, Vec::len);
        let has_room = self.has_room(host, |counts| &mut counts.waiters, 1);
        if !has_room || waiting >= self.of_file.waiters {
            return Status::DeniedNoLocks;
        }
        self.count(host, |counts| &mut counts.waiters, 1, 0);
        if let Some(known) = self.owners.get_mut(&owner) {
            known.waits += 1;
        }
        let waiter = Waiter {
            owner,
            span: asked.span,
            write: asked.write,
            state,
            ours,
            handle: asked.handle.to_vec(),
            offset: asked.offset,
            length: asked.length,
        };
        self.waiters.entry(asked.file).or_default().push(waiter);
        // Another protocol may have given it back meanwhile. If others wait already, that is news.
        if waiting == 0 {
            self.wake(asked.file);
        }
        Status::Blocked
    }

    /// CANCEL
    pub fn cancel(
        &mut self,
        who: &Who,
        owner: &OwnerKey,
        (file, span, write): (ObjectId, Span, bool),
    ) -> Status {
        let Some(owner) = self.known_owner(who, owner) else {
            return Status::Denied;
        };
        let waited = self.wait_no_more(owner, file, span, Some(write));
        // One of the other mode is a lock that the client may have: it asked for this one later.
        let granted = self.settle_all(owner, |grant| {
            grant.file == file && grant.span == span && grant.write == write
        });
        for grant in &granted {
            self.undo(grant);
        }
        self.release_owner(owner);
        if waited + granted.len() > 0 {
            Status::Granted
        } else {
            Status::Denied
        }
    }

    /// The owner does not wait for this lock. How many there were.
    pub fn wait_no_more(
        &mut self,
        owner: u64,
        file: ObjectId,
        span: Span,
        write: Option<bool>,
    ) -> usize {
        let Some(waiters) = self.waiters.get_mut(&file) else {
            return 0;
        };
        let before = waiters.len();
        waiters.retain(|waiter| {
            let same = waiter.owner == owner && waiter.span == span;
            !same || write.is_some_and(|write| write != waiter.write)
        });
        let gone = before - waiters.len();
        if waiters.is_empty() {
            self.waiters.remove(&file);
        }
        self.count_waits(owner, gone);
        gone
    }

    /// Drops the waiters of these owners for which `goes` says so, by the file and by the number of their host's start. Returns
    /// the owner of each. The caller counts them.
    pub fn drop_waiters(
        &mut self,
        owners: &HashSet<u64>,
        goes: impl Fn(ObjectId, u32) -> bool,
    ) -> Vec<u64> {
        let mut gone = Vec::new();
        self.waiters.retain(|file, waiters| {
            waiters.retain(|waiter| {
                let goes = owners.contains(&waiter.owner) && goes(*file, waiter.state);
                if goes {
                    gone.push(waiter.owner);
                }
                !goes
            });
            !waiters.is_empty()
        });
        gone
    }

    /// Drops these grants: nobody asks any more what becomes of them.
    pub fn settle_all(&mut self, owner: u64, which: impl Fn(&Grant) -> bool) -> Vec<Grant> {
        let told = self.owners.get(&owner).map_or(&[][..], |known| &known.told);
        let chosen = told
            .iter()
            .filter(|number| self.grants.get(number).is_some_and(&which));
        let chosen = Vec::from_iter(chosen.copied());
        let gone = chosen.into_iter().map(|number| self.settled(number));
        gone.flatten().collect()
    }

    /// Removes a grant.
    fn settled(&mut self, number: u64) -> Option<Grant> {
        let grant = self.grants.remove(&number)?;
        self.calls.retain(|call| call.number != number);
        if let Some(known) = self.owners.get_mut(&grant.owner) {
            known.told.retain(|told| *told != number);
            let host = known.host;
            let ranges = grant.before.ranges();
            self.count(host, |counts| &mut counts.ranges, 0, ranges);
        }
        self.count_waits(grant.owner, 1);
        Some(grant)
    }

    /// Takes back the lock of a grant.
    fn undo(&mut self, grant: &Grant) {
        let counted = self.locks.undo(grant.file, &grant.before);
        self.count_ranges(grant.owner, grant.file, counted);
        self.wake(grant.file);
    }

    /// Notes that the owner has locked a span by itself, or given it back (`None`). It keeps that, whatever becomes of its
    /// grants under way. If it gives back a part of a grant, it knows of that. Returns whether a grant was settled.
    pub fn changed_itself(
        &mut self,
        owner: u64,
        file: ObjectId,
        span: Span,
        lock: Option<bool>,
    ) -> bool {
        let settled = self.settle_all(owner, |grant| {
            let knows = grant.unanswered && lock.is_none() && span.overlaps(grant.span);
            grant.file == file && (span.covers(grant.span) || knows)
        });
        let settled = !settled.is_empty();
        let Some(known) = self.owners.get(&owner) else {
            return settled;
        };
        let (mut more, mut fewer) = (0, 0);
        for number in &known.told {
            if let Some(grant) = self.grants.get_mut(number).filter(|g| g.file == file) {
                fewer += grant.before.ranges();
                match lock {
                    Some(write) => grant.before.locked(span, write),
                    None => grant.before.unlocked(span),
                }
                more += grant.before.ranges();
            }
        }
        let host = known.host;
        self.count(host, |counts| &mut counts.ranges, more, fewer);
        settled
    }

    /// Whether a grant is under way there. What the owner has depends on its answer.
    fn is_being_told(&self, owner: &HostOwner, file: ObjectId, span: Span) -> bool {
        let mut told = owner.told.iter().filter_map(|n| self.grants.get(n));
        told.any(|grant| !grant.unanswered && grant.file == file && grant.span.overlaps(span))
    }

    pub fn count_waits(&mut self, owner: u64, gone: usize) {
        if let Some(known) = self.owners.get_mut(&owner) {
            known.waits -= gone.min(known.waits);
            let host = known.host;
            self.count(host, |counts| &mut counts.waiters, 0, gone);
        }
    }

    /// Takes what is free for the waiters, after something was given back. However many they are, this goes through the ranges
    /// of the file once, and once more for each lock that it takes.
    pub fn wake(&mut self, file: ObjectId) {
        let Some(waiters) = self.waiters.remove(&file) else {
            return;
        };
        // Before it tries, so that it hears of what is given back after a waiter was denied.
        self.locks.watch(file, Side::Nlm);
        let wanted = waiters.iter().map(Waiter::wanted);
        let free = self.locks.are_free(file, &Vec::from_iter(wanted));
        let mut waiting = Vec::new();
        let mut taken: Vec<Held> = Vec::new();
        for (waiter, free) in waiters.into_iter().zip(free) {
            let owner = holder(waiter.owner);
            let in_the_way =
                |held: &Held| held.owner != owner && held.blocks(waiter.span, waiter.write);
            let known = self.owners.get(&waiter.owner);
            let known = known.filter(|known| !self.is_being_told(known, file, waiter.span));
            let (Some(known), true, false) = (known, free, taken.iter().any(in_the_way)) else {
                waiting.push(waiter);
                continue;
            };
            if !self.has_room_in(file, known.host, 2) {
                self.passed_over.insert(file);
                waiting.push(waiter);
                continue;
            }
            match self.locks.offer(file, waiter.span, waiter.write, owner) {
                Ok((counted, before)) => {
                    taken.push(Held {
                        span: waiter.span,
                        write: waiter.write,
                        owner,
                    });
                    self.count_ranges(waiter.owner, file, counted);
                    self.grant(file, waiter, before);
                }
                // Another protocol was faster.
                Err(_) => waiting.push(waiter),
            }
        }
        if !waiting.is_empty() {
            self.waiters.insert(file, waiting);
        }
    }

    fn grant(&mut self, file: ObjectId, waiter: Waiter, before: Before) {
        // The client asked for this one after it left the others unanswered.
        self.settle_all(waiter.owner, |grant| {
            grant.file == file && grant.span.overlaps(waiter.span)
        });
        let number = self.serial();
        let Some(owner) = self.owners.get(&waiter.owner) else {
            return;
        };
        let host = self.hosts.get(&owner.host);
        if let Some(host) = host
            && let Some(address) = host.address
        {
            let arguments = TestArgs {
                cookie: Object(&number.to_be_bytes()),
                exclusive: waiter.write,
                lock: Lock {
                    caller: Name(&host.key.name),
                    file: FileHandle(&waiter.handle),
                    owner: Object(&owner.key.name),
                    process: owner.key.process,
                    offset: waiter.offset,
                    length: waiter.length,
                },
            };
            self.calls.push(GrantCall {
                number,
                address,
                ours: waiter.ours,
                arguments: arguments.to_bytes(),
            });
        }
        let grant = Grant {
            owner: waiter.owner,
            file,
            span: waiter.span,
            write: waiter.write,
            before,
            unanswered: false,
        };
        let (host, ranges) = (owner.host, grant.before.ranges());
        self.count(host, |counts| &mut counts.ranges, ranges, 0);
        if let Some(owner) = self.owners.get_mut(&grant.owner) {
            owner.told.push(number);
        }
        self.grants.insert(number, grant);
    }

    /// Takes the outcome of a [`GrantCall`].
    ///
    /// A client that may have heard of the lock has it, because no lock may go to two. If the client does not want it, it gives
    /// it back, or cancels what it asked for.
    pub fn heard(&mut self, number: u64, heard: &Heard) {
        let answer = match heard {
            Heard::Answer(answer) => LockResult::from_bytes(answer).ok(),
            Heard::Unreached | Heard::Silence => None,
        };
        if answer.is_none() && *heard != Heard::Unreached {
            // A client that may not have heard of the grant keeps the stronger lock.
            if let Some(grant) = self.grants.get_mut(&number) {
                grant.unanswered = true;
                let (owner, file, span) = (grant.owner, grant.file, grant.span);
                self.renewed(owner, file, span);
                self.wake(file);
            }
            return;
        }
        let Some(grant) = self.settled(number) else {
            return;
        };
        if answer.is_some_and(|result| result.status == Status::Granted) {
            if let Some(counted) = self.locks.accept(grant.file, &grant.before) {
                self.count_ranges(grant.owner, grant.file, counted);
            }
            self.renewed(grant.owner, grant.file, grant.span);
            self.wake(grant.file);
        } else {
            self.undo(&grant);
        }
        self.release_owner(grant.owner);
    }

    /// The owner has got a lock of this span since its host's last start.
    fn renewed(&mut self, owner: u64, file: ObjectId, span: Span) {
        let known = self.owners.get_mut(&owner);
        if let Some(held) = known.and_then(|known| known.files.get_mut(&file)) {
            held.renewed(span);
        }
    }

    /// Tries once more for the waiters whose hosts had no room. They may have some by now.
    pub fn wake_passed_over(&mut self) {
        for file in std::mem::take(&mut self.passed_over) {
            self.wake(file);
        }
    }

    /// The locks for which owners wait: file, span, and whether for writing.
    pub fn wanted(&self) -> Vec<(ObjectId, Span, bool)> {
        let waiting = self.waiters.iter().flat_map(|(file, waiters)| {
            let waiters = waiters.iter();
            waiters.map(|waiter| (*file, waiter.span, waiter.write))
        });
        waiting.collect()
    }

    /// Handles the news that another protocol gave locks back.
    pub fn hear_of_locks(&mut self) {
        for file in self.locks.take_news(Side::Nlm) {
            self.wake(file);
        }
    }
}
