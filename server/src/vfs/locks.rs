//! Locks of ranges of bytes, which the clients of all protocols share. They are advisory: no read or write asks for them.
//!
//! A protocol knows its owners, bounds what each may hold, and bounds how long they wait. This module knows what concerns both
//! protocols:
//!
//! - which ranges of a file are locked;
//! - whether clients of the other protocol may still reclaim what they held before the server restarted;
//! - when the other protocol gave something back for which a client waits;
//! - that a client wants what a client of the other protocol holds, whose lease is over.

mod ranges;

use std::collections::{BTreeSet, HashMap};

use odafs_fabric::clock::Nanos;
use odafs_fabric::sync::{Mutex, OnceLock};

use crate::vfs::ObjectId;

use ranges::Ranges;
pub use ranges::{Held, Span, Wanted};

/// A protocol that locks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Side {
    /// The lock manager of NFS version 3.
    Nlm,
    /// NFS version 4.
    Nfs4,
}

impl Side {
    fn other(self) -> Self {
        match self {
            Self::Nlm => Self::Nfs4,
            Self::Nfs4 => Self::Nlm,
        }
    }
}

/// An owner of locks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LockOwner {
    /// The protocol.
    pub side: Side,
    /// The owner's number in that protocol.
    pub number: u64,
}

/// How many ranges of a file an owner has locked, before and after a change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Counted {
    /// Before.
    pub before: usize,
    /// After.
    pub after: usize,
    /// Whether the change leaves others more room than before: it gave something back, or made a write lock a read lock.
    pub freed: bool,
}

/// What an owner had locked of a span before the server took all of it for the owner. The owner does not know of that yet.
#[derive(Clone, Debug)]
pub struct Before {
    owner: LockOwner,
    span: Span,
    ranges: Ranges,
    /// Whether the new lock is weaker than some of that. The stronger part stays until the owner knows.
    weakens: bool,
}

impl Before {
    /// What the owner asked for meanwhile, and knows that it has.
    pub fn locked(&mut self, span: Span, write: bool) {
        if let Some(common) = self.span.common(span) {
            self.ranges.lock(common, write, self.owner);
            self.weakens = false;
        }
    }

    /// What the owner gave back meanwhile.
    pub fn unlocked(&mut self, span: Span) {
        if self.span.overlaps(span) {
            self.ranges.unlock(span, self.owner);
            self.weakens = false;
        }
    }

    /// How many ranges it is.
    pub fn ranges(&self) -> usize {
        self.ranges.len()
    }
}

type Hook = Box<dyn Fn() + Send + Sync>;
type Expel = Box<dyn Fn(Nanos, &[u64]) + Send + Sync>;

#[cfg(test)]
type Meanwhile = Box<dyn FnOnce(&Locks) + Send>;

/// All locks of an export.
#[derive(Default)]
pub struct Locks {
    table: Mutex<Table>,
    hooks: [OnceLock<Hook>; 2],
    expel: [OnceLock<Expel>; 2],
    /// For tests: what another protocol does just after an owner was denied a lock.
    #[cfg(test)]
    pub after_denial: Mutex<Option<Meanwhile>>,
    /// For tests: how often all ranges of a file were gone through for those who wait, or to give back.
    #[cfg(test)]
    pub walks: std::sync::atomic::AtomicUsize,
}

#[derive(Debug, Default)]
struct Table {
    files: HashMap<ObjectId, Ranges>,
    /// The files of which a side wants to hear that the other has given something back.
    watched: [BTreeSet<ObjectId>; 2],
    /// Those of these files in which the other side gave something back.
    news: [BTreeSet<ObjectId>; 2],
    /// When the clients of a side may no longer reclaim.
    reclaiming: [Option<Nanos>; 2],
}

impl std::fmt::Debug for Locks {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.table.lock().fmt(f)
    }
}

impl Locks {
    /// A lock in the way of `owner`, the first in the file.
    pub fn conflict(
        &self,
        file: ObjectId,
        span: Span,
        write: bool,
        owner: Option<LockOwner>,
    ) -> Option<Held> {
        let table = self.table.lock();
        let held = table.files.get(&file)?.conflict(span, write, owner)?;
        drop(table);
        self.denied();
        Some(held)
    }

    /// For each of these locks of a file, whether nothing is in its way.
    pub fn are_free(&self, file: ObjectId, wanted: &[Wanted]) -> Vec<bool> {
        self.walks();
        let table = self.table.lock();
        let ranges = table.files.get(&file);
        let free = ranges.map_or_else(|| vec![true; wanted.len()], |it| it.are_free(wanted));
        drop(table);
        if free.contains(&false) {
            self.denied();
        }
        free
    }

    /// What these owners have locked of a file.
    pub fn held_by(&self, file: ObjectId, whose: impl Fn(LockOwner) -> bool) -> Vec<Held> {
        self.walks();
        let table = self.table.lock();
        let ranges = table.files.get(&file);
        ranges.map_or_else(Vec::new, |ranges| ranges.held_by(whose))
    }

    #[cfg(not(test))]
    fn walks(&self) {}

    #[cfg(test)]
    fn walks(&self) {
        self.walks
            .fetch_add(1, std::sync::atomic::Ordering::Relaxed);
    }

    #[cfg(not(test))]
    fn denied(&self) {}

    #[cfg(test)]
    fn denied(&self) {
        let then = self.after_denial.lock().take();
        if let Some(then) = then {
            then(self);
        }
    }

    /// Locks a span for an owner, which replaces what it had locked there.
    ///
    /// # Errors
    /// A lock in the way, the first in the file.
    pub fn lock(
        &self,
        file: ObjectId,
        span: Span,
        write: bool,
        owner: LockOwner,
    ) -> Result<Counted, Held> {
        let mut table = self.table.lock();
        let ranges = table.files.entry(file).or_default();
        if let Some(held) = ranges.conflict(span, write, Some(owner)) {
            drop(table);
            self.denied();
            return Err(held);
        }
        let counted = ranges.counting(owner, |ranges| ranges.lock(span, write, owner));
        if counted.freed {
            table.changed(file, owner.side);
        }
        Ok(counted)
    }

    /// As [`Locks::lock`], for an owner that does not know of it yet. [`Locks::accept`] or [`Locks::undo`] follows. What the
    /// owner had locked for writing stays so until then.
    ///
    /// # Errors
    /// A lock in the way, the first in the file.
    pub fn offer(
        &self,
        file: ObjectId,
        span: Span,
        write: bool,
        owner: LockOwner,
    ) -> Result<(Counted, Before), Held> {
        let mut table = self.table.lock();
        let ranges = table.files.entry(file).or_default();
        if let Some(held) = ranges.conflict(span, write, Some(owner)) {
            drop(table);
            self.denied();
            return Err(held);
        }
        let before = Before {
            owner,
            span,
            ranges: ranges.within(span, owner),
            weakens: !write,
        };
        let counted = ranges.counting(owner, |ranges| {
            ranges.lock(span, write, owner);
            ranges.lock_all(&before.ranges, |held| held.write);
            // What was stronger still is.
            false
        });
        Ok((counted, before))
    }

    /// Completes an offer that the owner wants.
    pub fn accept(&self, file: ObjectId, before: &Before) -> Option<Counted> {
        if !before.weakens {
            return None;
        }
        let mut table = self.table.lock();
        let ranges = table.files.get_mut(&file)?;
        let owner = before.owner;
        let counted = ranges.counting(owner, |ranges| ranges.lock(before.span, false, owner));
        table.changed(file, owner.side);
        Some(counted)
    }

    /// Takes an offer back. The owner has again what it had before.
    pub fn undo(&self, file: ObjectId, before: &Before) -> Counted {
        let mut table = self.table.lock();
        let owner = before.owner;
        let ranges = table.files.entry(file).or_default();
        let counted = ranges.counting(owner, |ranges| {
            ranges.unlock(before.span, owner);
            ranges.lock_all(&before.ranges, |_| true);
            true
        });
        if ranges.is_empty() {
            table.files.remove(&file);
        }
        table.changed(file, owner.side);
        counted
    }

    /// Gives back all that these owners of a side have locked of a file, and counts it.
    pub fn unlock_all(&self, file: ObjectId, side: Side, whose: impl Fn(u64) -> bool) -> usize {
        self.walks();
        let mut table = self.table.lock();
        let Some(ranges) = table.files.get_mut(&file) else {
            return 0;
        };
        let given_back = ranges.unlock_all(|owner| owner.side == side && whose(owner.number));
        if ranges.is_empty() {
            table.files.remove(&file);
        }
        if given_back > 0 {
            table.changed(file, side);
        }
        given_back
    }

    /// Gives back what an owner has locked of a span.
    pub fn unlock(&self, file: ObjectId, span: Span, owner: LockOwner) -> Counted {
        self.walks();
        let mut table = self.table.lock();
        let Some(ranges) = table.files.get_mut(&file) else {
            return Counted {
                before: 0,
                after: 0,
                freed: false,
            };
        };
        let counted = ranges.counting(owner, |ranges| ranges.unlock(span, owner));
        if ranges.is_empty() {
            table.files.remove(&file);
        }
        if counted.freed {
            table.changed(file, owner.side);
        }
        counted
    }

    /// How many ranges of a file an owner has locked.
    pub fn count(&self, file: ObjectId, owner: LockOwner) -> usize {
        let table = self.table.lock();
        table
            .files
            .get(&file)
            .map_or(0, |ranges| ranges.count(owner))
    }

    /// How many ranges of a file a side has locked.
    pub fn ranges_of(&self, file: ObjectId, side: Side) -> usize {
        let table = self.table.lock();
        table.files.get(&file).map_or(0, |ranges| ranges.of(side))
    }

    /// Whether clients of this side have locked something of a file, or wait for a lock of it.
    pub fn concern(&self, file: ObjectId, side: Side) -> bool {
        let table = self.table.lock();
        let ranges = table.files.get(&file);
        ranges.is_some_and(|ranges| ranges.of(side) > 0)
            || table.watched[side as usize].contains(&file)
    }

    /// Whether an owner's lock would be cut in two without this span.
    pub fn would_split(&self, file: ObjectId, span: Span, owner: LockOwner) -> bool {
        let table = self.table.lock();
        let ranges = table.files.get(&file);
        ranges.is_some_and(|ranges| ranges.would_split(span, owner))
    }

    /// Notes that the side waits for a lock of the file, and wants to hear when the other side gives something back there. A
    /// side that calls this before it tries once more misses nothing.
    pub fn watch(&self, file: ObjectId, side: Side) {
        self.table.lock().watched[side as usize].insert(file);
    }

    /// Of the files that a side wanted to hear of, only these any more.
    pub fn watch_only(&self, side: Side, waits: impl Fn(&ObjectId) -> bool) {
        self.table.lock().watched[side as usize].retain(waits);
    }

    /// The files of this side in which the other gave something back. Each call returns only new ones.
    pub fn take_news(&self, side: Side) -> BTreeSet<ObjectId> {
        std::mem::take(&mut self.table.lock().news[side as usize])
    }

    /// Sets the function that [`Locks::tell`] calls for this side. Only the first call counts.
    pub fn on_news(&self, side: Side, hook: impl Fn() + Send + Sync + 'static) {
        let _ = self.hooks[side as usize].set(Box::new(hook));
    }

    /// Tells a side its news, if there are any. The hook locks the state of that side, so the caller must hold no such lock.
    pub fn tell(&self, side: Side) {
        let news = !self.table.lock().news[side as usize].is_empty();
        if let Some(hook) = self.hooks[side as usize].get().filter(|_| news) {
            hook();
        }
    }

    /// Sets the function that [`Locks::make_way`] calls with owners of this side. It takes away what owners hold whose leases
    /// are over. Only the first call counts.
    pub fn on_wanted(&self, side: Side, expel: impl Fn(Nanos, &[u64]) + Send + Sync + 'static) {
        let _ = self.expel[side as usize].set(Box::new(expel));
    }

    /// Makes way for a lock that a client of `side` wants: clients of the other side that are in the way lose what they hold if
    /// their leases are over. The caller must hold no lock of either side's state. May block.
    pub fn make_way(&self, side: Side, now: Nanos, file: ObjectId, span: Span, write: bool) {
        let other = side.other();
        let Some(expel) = self.expel[other as usize].get() else {
            return;
        };
        let owners = self.in_the_way(other, file, span, write);
        if !owners.is_empty() {
            expel(now, &owners);
        }
    }

    /// The owners of a side that have a lock in the way of this one, each once.
    pub fn in_the_way(&self, side: Side, file: ObjectId, span: Span, write: bool) -> Vec<u64> {
        let table = self.table.lock();
        let ranges = table.files.get(&file);
        ranges.map_or_else(Vec::new, |ranges| ranges.in_the_way(side, span, write))
    }

    /// Lets clients of a side reclaim, until this time, what they held before the server restarted. Nobody may take anything
    /// else meanwhile.
    pub fn reclaims_until(&self, side: Side, until: Nanos) {
        self.table.lock().reclaiming[side as usize] = Some(until);
    }

    /// Ends the grace period of a side whose clients have reclaimed what they wanted.
    pub fn has_reclaimed(&self, side: Side) {
        self.table.lock().reclaiming[side as usize] = None;
    }

    /// Whether clients of a side may reclaim.
    pub fn is_reclaiming(&self, side: Side, now: Nanos) -> bool {
        let until = self.table.lock().reclaiming[side as usize];
        until.is_some_and(|until| now < until)
    }

    /// Ranges that are locked.
    pub fn ranges(&self, side: Side) -> usize {
        let table = self.table.lock();
        table.files.values().map(|ranges| ranges.of(side)).sum()
    }
}

impl Table {
    fn changed(&mut self, file: ObjectId, by: Side) {
        let other = by.other() as usize;
        if self.watched[other].remove(&file) {
            self.news[other].insert(file);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FILE: ObjectId = ObjectId {
        ino: 7,
        generation: 1,
    };
    const THREE: LockOwner = LockOwner {
        side: Side::Nlm,
        number: 1,
    };
    /// The same number, and another owner.
    const FOUR: LockOwner = LockOwner {
        side: Side::Nfs4,
        number: 1,
    };

    fn span(first: u64, last: u64) -> Span {
        Span { first, last }
    }

    #[test]
    fn the_protocols_exclude_each_other_and_hear_of_each_other() {
        let locks = Locks::default();
        let file = FILE;
        locks.lock(file, span(0, 9), true, THREE).expect("free");
        let held = locks
            .lock(file, span(5, 5), false, FOUR)
            .expect_err("locked");
        assert_eq!((held.owner, held.span), (THREE, span(0, 9)));
        locks.watch(file, Side::Nfs4);
        let counted = locks.unlock(file, span(3, 4), THREE);
        assert_eq!((counted.before, counted.after), (1, 2));
        assert_eq!(locks.ranges(Side::Nlm), 2);
        assert!(locks.take_news(Side::Nlm).is_empty());
        assert_eq!(Vec::from_iter(locks.take_news(Side::Nfs4)), [file]);
        // A side hears once for each time that it asks.
        locks.unlock(file, span(0, u64::MAX), THREE);
        assert!(locks.take_news(Side::Nfs4).is_empty());
        locks.lock(file, span(5, 5), false, FOUR).expect("free");
        locks.watch(file, Side::Nlm);
        locks.watch_only(Side::Nfs4, |_| false);
        locks.watch_only(Side::Nlm, |watched| *watched == file);
        assert_eq!(locks.table.lock().watched[Side::Nlm as usize].len(), 1);
        locks.watch_only(Side::Nlm, |_| false);
        assert!(locks.table.lock().watched[Side::Nlm as usize].is_empty());
        locks
            .lock(file, span(0, 9), false, THREE)
            .expect("both read");
        assert!(
            locks
                .conflict(file, span(9, 20), true, Some(FOUR))
                .is_some()
        );
        assert!(locks.conflict(file, span(10, 20), true, None).is_none());
    }

    #[test]
    fn nothing_is_left_of_what_is_given_back() {
        let locks = Locks::default();
        let file = FILE;
        locks.lock(file, span(0, 9), true, THREE).expect("free");
        locks.unlock(file, span(0, 9), THREE);
        locks.unlock(file, span(0, 9), FOUR);
        assert!(locks.table.lock().files.is_empty());
    }
}
