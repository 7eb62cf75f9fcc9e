//! Owners that wait for locks. When nothing is in the way of an owner any more, the server takes the lock for it and calls its
//! client (GRANTED). A client that cannot be reached, or that no longer wants the lock, does not get it. It may ask again.

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

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use odafs_fabric::clock::Nanos;
    use odafs_fabric::sync::Arc;
    use std::sync::atomic::Ordering;

    use super::super::hosts::HostKey;
    use super::super::limits::FileLimits;
    use super::*;
    use crate::vfs::locks::{LockOwner, Locks};

    const FILE: ObjectId = file(7);
    const FOUR: LockOwner = LockOwner {
        side: Side::Nfs4,
        number: 1,
    };
    const NOW: Nanos = Nanos::from_secs(1_000);

    const fn file(ino: u64) -> ObjectId {
        ObjectId { ino, generation: 1 }
    }

    fn span(first: u64, last: u64) -> Span {
        Span { first, last }
    }

    fn who(address: &str) -> Who {
        Who {
            key: HostKey {
                address: address.to_owned(),
                name: b"host".to_vec(),
            },
            address: Some(address.parse().expect("an address")),
            ours: None,
        }
    }

    fn owner() -> OwnerKey {
        OwnerKey {
            process: 1,
            name: b"owner".to_vec(),
        }
    }

    fn asked(file: ObjectId, span: Span, block: bool) -> Asked<'static> {
        Asked {
            owner: owner(),
            file,
            handle: &[],
            offset: span.first,
            length: 0,
            span,
            write: true,
            block,
            reclaim: false,
            state: Some(3),
        }
    }

    fn hosts() -> Hosts {
        Hosts::new(Arc::new(Locks::default()), HashSet::new(), NOW)
    }

    #[test]
    fn what_another_protocol_gives_back_just_after_a_denial_is_heard_of() {
        let mut hosts = hosts();
        let locks = Arc::clone(&hosts.locks);
        locks.lock(FILE, span(0, 9), true, FOUR).expect("free");
        let one = who("10.1.0.1");
        let blocked = hosts.lock(NOW, &one, &asked(FILE, span(0, 4), true));
        assert_eq!(blocked, Status::Blocked);
        locks.unlock(FILE, span(5, 9), FOUR);
        *locks.after_denial.lock() = Some(Box::new(|locks| {
            locks.unlock(FILE, Span::ALL, FOUR);
        }));
        hosts.hear_of_locks();
        assert!(locks.after_denial.lock().is_none() && hosts.calls.is_empty());
        hosts.hear_of_locks();
        assert_eq!(hosts.calls.len(), 1);
    }

    #[test]
    fn an_owner_without_room_has_its_turn_later() {
        let mut hosts = hosts();
        let (one, two) = (who("10.1.0.1"), who("10.1.0.2"));
        let whole = asked(FILE, Span::ALL, true);
        assert_eq!(hosts.lock(NOW, &two, &whole), Status::Granted);
        assert_eq!(hosts.lock(NOW, &one, &whole), Status::Blocked);
        let full = (1_000..).find(|ino| {
            let other = asked(file(*ino), Span::ALL, false);
            hosts.lock(NOW, &one, &other) == Status::DeniedNoLocks
        });
        hosts.unlock(&two, &owner(), FILE, Span::ALL);
        assert!(full.is_some() && hosts.calls.is_empty());
        hosts.tick(NOW);
        assert!(hosts.calls.is_empty());
        for ino in [1_000, 1_001] {
            hosts.unlock(&one, &owner(), file(ino), Span::ALL);
        }
        hosts.tick(NOW);
        assert_eq!(hosts.calls.len(), 1);
        hosts.tick(NOW);
        assert_eq!(hosts.calls.len(), 1);
    }

    #[test]
    fn what_all_have_in_a_file_is_bounded() {
        let mut hosts = hosts();
        hosts.of_file = FileLimits {
            ranges: 4,
            waiters: 2,
        };
        let whos = [1, 2, 3, 4, 5, 6].map(|n| who(&format!("10.1.0.{n}")));
        let one_byte = |byte| asked(FILE, span(byte, byte), false);
        for (byte, who) in [0, 2, 4].into_iter().zip(&whos) {
            assert_eq!(hosts.lock(NOW, who, &one_byte(byte)), Status::Granted);
        }
        let fourth = hosts.lock(NOW, &whos[3], &one_byte(6));
        assert_eq!(fourth, Status::DeniedNoLocks);
        let elsewhere = asked(file(8), Span::ALL, false);
        assert_eq!(hosts.lock(NOW, &whos[3], &elsewhere), Status::Granted);
        hosts.unlock(&whos[2], &owner(), FILE, Span::ALL);
        let statuses = [Status::Blocked, Status::Blocked, Status::DeniedNoLocks];
        for (who, status) in whos[3..].iter().zip(statuses) {
            let whole = asked(FILE, Span::ALL, true);
            assert_eq!(hosts.lock(NOW, who, &whole), status);
        }
    }

    #[test]
    fn who_waits_costs_a_walk_only_when_something_is_free() {
        let mut hosts = hosts();
        let walks = |hosts: &Hosts| hosts.locks.walks.load(Ordering::Relaxed);
        let (one, two) = (who("10.1.0.1"), who("10.1.0.2"));
        assert_eq!(
            hosts.lock(NOW, &one, &asked(FILE, span(0, 99), false)),
            Status::Granted
        );
        let before = walks(&hosts);
        for byte in 0..100 {
            let blocked = hosts.lock(NOW, &two, &asked(FILE, span(byte, byte), true));
            assert_eq!(blocked, Status::Blocked);
        }
        // The first looks once more, whether another protocol has given something back meanwhile.
        assert_eq!(walks(&hosts) - before, 1);
        let before = walks(&hosts);
        for _ in 0..10 {
            // Nothing is given back.
            let again = hosts.lock(NOW, &one, &asked(FILE, span(0, 99), false));
            assert_eq!(again, Status::Granted);
        }
        assert_eq!(walks(&hosts), before);
        let nothing = hosts.unlock(&one, &owner(), FILE, span(200, 300));
        assert_eq!((nothing, walks(&hosts) - before), (Status::Granted, 1));
        let before = walks(&hosts);
        hosts.unlock(&one, &owner(), FILE, span(99, 99));
        // To give it back, and for all who wait.
        assert_eq!((hosts.calls.len(), walks(&hosts) - before), (1, 2));
    }

    #[test]
    fn a_lock_of_the_other_mode_survives_a_cancelled_wait() {
        let mut hosts = hosts();
        let [one, two, three] = [1, 2, 3].map(|n| who(&format!("10.1.0.{n}")));
        let reads = |block| Asked {
            write: false,
            ..asked(FILE, span(0, 9), block)
        };
        let writes = |block| asked(FILE, span(0, 9), block);
        assert_eq!(hosts.lock(NOW, &three, &writes(false)), Status::Granted);
        assert_eq!(hosts.lock(NOW, &one, &reads(true)), Status::Blocked);
        hosts.unlock(&three, &owner(), FILE, Span::ALL);
        let number = hosts.calls.pop().expect("it is told").number;
        hosts.heard(number, &Heard::Silence);
        assert_eq!(hosts.lock(NOW, &two, &reads(false)), Status::Granted);
        assert_eq!(hosts.lock(NOW, &one, &writes(true)), Status::Blocked);
        let cancelled = hosts.cancel(&one, &owner(), (FILE, span(0, 9), true));
        assert_eq!(cancelled, Status::Granted);
        hosts.unlock(&two, &owner(), FILE, Span::ALL);
        assert_eq!(hosts.lock(NOW, &three, &writes(false)), Status::Denied);
        let cancelled = hosts.cancel(&one, &owner(), (FILE, span(0, 9), false));
        assert_eq!(cancelled, Status::Granted);
        assert_eq!(hosts.lock(NOW, &three, &writes(false)), Status::Granted);
    }

    #[test]
    fn what_a_reload_takes_goes_to_nobody_that_it_bars() {
        for _ in 0..16 {
            let mut hosts = hosts();
            let all = Vec::from_iter((1..9).map(|n| who(&format!("10.1.0.{n}"))));
            let whole = asked(FILE, span(0, 9), true);
            assert_eq!(hosts.lock(NOW, &all[0], &whole), Status::Granted);
            for who in &all[1..] {
                assert_eq!(hosts.lock(NOW, who, &whole), Status::Blocked);
            }
            assert_eq!(hosts.free_unreachable(|_, _| false), all.len());
            assert!(hosts.calls.is_empty() && hosts.grants.is_empty());
            assert_eq!(hosts.counts().hosts, 0);
        }
    }

    #[test]
    fn who_may_not_reach_a_file_any_more_loses_what_it_has_there() {
        let mut hosts = hosts();
        let (one, two) = (who("10.1.0.1"), who("10.1.0.2"));
        let (here, there) = (FILE, file(8));
        for file in [here, there] {
            assert_eq!(
                hosts.lock(NOW, &one, &asked(file, span(0, 9), false)),
                Status::Granted
            );
            assert_eq!(
                hosts.lock(NOW, &two, &asked(file, span(0, 4), true)),
                Status::Blocked
            );
            assert_eq!(
                hosts.lock(NOW, &two, &asked(file, span(20, 29), false)),
                Status::Granted
            );
        }
        let barred = one.address;
        let lost = hosts.free_unreachable(|address, file| Some(address) != barred || file != here);
        assert_eq!(lost, 1);
        assert_eq!((hosts.calls.len(), hosts.counts().ranges), (1, 4));
        assert_eq!(hosts.counts().waiters, 2);
        // The one who waits, and the one who is just being told.
        let barred = two.address;
        assert_eq!(
            hosts.free_unreachable(|address, _| Some(address) != barred),
            1
        );
        assert_eq!((hosts.counts().ranges, hosts.counts().waiters), (1, 0));
        assert_eq!((hosts.counts().hosts, hosts.grants.len()), (1, 0));
        let all = hosts.lock(NOW, &two, &asked(here, Span::ALL, false));
        assert_eq!(all, Status::Granted);
    }
}
