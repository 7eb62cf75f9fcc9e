//! Owners that wait for locks. Once nothing is in the way of one, the lock is taken for it, and its client is called
//! (GRANTED). A client that cannot be reached, or that does not want the lock any more, has it not; it may ask again.

use std::net::IpAddr;

use odafs_common::wire::nfs3::FileHandle;
use odafs_common::wire::nlm4::{Lock, LockResult, Name, Object, Status, TestArgs};
use odafs_common::wire::xdr::{Decode as _, Encode as _};

use super::hosts::{Asked, Hosts, OwnerKey, Who, holder};
use super::peers::Heard;
use crate::vfs::ObjectId;
use crate::vfs::locks::{Side, Span};

/// An owner that was denied a lock.
#[derive(Debug)]
pub(super) struct Waiter {
    pub owner: u64,
    span: Span,
    write: bool,
    /// As the client asked.
    handle: Vec<u8>,
    offset: u64,
    length: u64,
}

/// A lock that was taken for an owner, which does not know yet.
#[derive(Debug)]
pub(super) struct Grant {
    pub owner: u64,
    file: ObjectId,
    span: Span,
}

/// A call to a client: it has a lock.
#[derive(Debug)]
pub(super) struct GrantCall {
    /// For [`Hosts::heard`].
    pub number: u64,
    pub address: IpAddr,
    /// Of GRANTED.
    pub arguments: Vec<u8>,
}

impl Hosts {
    /// The owner was denied the lock, and waits for it.
    pub fn wait_for(&mut self, owner: u64, asked: &Asked<'_>) -> Status {
        let Some(known) = self.owners.get(&owner) else {
            return Status::Failed;
        };
        let host = known.host;
        let reachable = self.hosts.get(&host).is_some_and(|h| h.address.is_some());
        if !reachable {
            return Status::Denied;
        }
        if !self.has_room(host, |counts| &mut counts.waiters, 1) {
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
            handle: asked.handle.to_vec(),
            offset: asked.offset,
            length: asked.length,
        };
        self.waiters.entry(asked.file).or_default().push(waiter);
        self.locks.watch(asked.file, Side::Nlm);
        // Another protocol may have given it back meanwhile.
        self.wake(asked.file);
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
        let granted = self.tell_no_more(owner, file, |given| given == span);
        if granted > 0 {
            self.give_back(owner, file, span);
        }
        self.release_owner(owner);
        if waited + granted > 0 {
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

    /// What the owner was to be told of a file it knows by now. How many there were.
    pub fn tell_no_more(
        &mut self,
        owner: u64,
        file: ObjectId,
        which: impl Fn(Span) -> bool,
    ) -> usize {
        let known = self
            .grants
            .extract_if(|_, grant| grant.owner == owner && grant.file == file && which(grant.span));
        let gone = known.count();
        self.count_waits(owner, gone);
        gone
    }

    fn count_waits(&mut self, owner: u64, gone: usize) {
        if let Some(known) = self.owners.get_mut(&owner) {
            known.waits -= gone.min(known.waits);
            let host = known.host;
            self.count(host, |counts| &mut counts.waiters, 0, gone);
        }
    }

    /// Something was given back: takes for those who wait what is free.
    pub fn wake(&mut self, file: ObjectId) {
        let Some(waiters) = self.waiters.remove(&file) else {
            return;
        };
        let mut waiting = Vec::new();
        for waiter in waiters {
            let host = self.owners.get(&waiter.owner).map(|owner| owner.host);
            let room = |host| self.has_room(host, |counts| &mut counts.ranges, 2);
            let owner = holder(waiter.owner);
            let locked = host
                .filter(|host| room(*host))
                .and_then(|_| self.locks.lock(file, waiter.span, waiter.write, owner).ok());
            match locked {
                Some(counted) => {
                    self.count_ranges(waiter.owner, file, counted);
                    self.grant(file, waiter);
                }
                None => waiting.push(waiter),
            }
        }
        if !waiting.is_empty() {
            self.waiters.insert(file, waiting);
            self.locks.watch(file, Side::Nlm);
        }
    }

    fn grant(&mut self, file: ObjectId, waiter: Waiter) {
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
                arguments: arguments.to_bytes(),
            });
        }
        let grant = Grant {
            owner: waiter.owner,
            file,
            span: waiter.span,
        };
        self.grants.insert(number, grant);
    }

    /// What became of a [`GrantCall`].
    ///
    /// A client that may have heard has the lock: it must not be given to two. If it does not want it, it gives it back.
    pub fn heard(&mut self, number: u64, heard: &Heard) {
        let Some(grant) = self.grants.remove(&number) else {
            return;
        };
        self.count_waits(grant.owner, 1);
        let refused = match heard {
            Heard::Unreached => true,
            Heard::Silence => false,
            Heard::Answer(answer) => {
                LockResult::from_bytes(answer).is_ok_and(|result| result.status != Status::Granted)
            }
        };
        if refused {
            self.give_back(grant.owner, grant.file, grant.span);
        }
        self.release_owner(grant.owner);
    }

    /// Another protocol gave locks back.
    pub fn hear_of_locks(&mut self) {
        for file in self.locks.take_news(Side::Nlm) {
            self.wake(file);
        }
    }
}
