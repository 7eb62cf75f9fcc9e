//! Promises that a file stays as it is until they are given back. A protocol makes them to its clients. Every change, by
//! whichever protocol, asks for them before it begins, and the protocol then takes them back.
//!
//! A file may also be left to one client alone. The client then changes it where nobody sees that. So each look at such a file
//! asks for the promise too, and the server hands out no references to it. After a restart nobody looks at a file that was left
//! to a client until the client's unseen changes have come back, or are known to be lost.
//!
//! A change first notes that it is under way, and then looks for promises. A promise is first noted, and then looks for changes
//! under way. So at least one of the two sees the other (both steps are sequentially consistent), and no promise is made beside
//! a change. A change of names does not know at first which file it concerns, and counts for all files.

use std::cell::Cell;
use std::collections::{HashMap, HashSet};

use odafs_fabric::clock::{self, Nanos};
use odafs_fabric::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use odafs_fabric::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, Weak, thread_local};

use crate::store::{Credential, ObjectId, Status, StoreError};
use crate::vfs::export::Exports;
use crate::vfs::file::File;
use crate::vfs::read::{Effort, ReadFailed};

/// How long changes wait for a promise to be given back, from the first that asks for it.
const PATIENCE: Nanos = Nanos::from_secs(2);
/// The most threads that wait so.
const WAITING_MAX: usize = 4;

/// The bits of all keepers.
const EVERYONE: u8 = u8::MAX;

/// Which protocol made promises.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Keeper {
    /// NFS version 4.
    Nfs4,
    /// The ODAFS program.
    Odafs,
}

impl Keeper {
    const ALL: [Self; 2] = [Self::Nfs4, Self::Odafs];

    fn bit(self) -> u8 {
        1 << self as u8
    }
}

/// What keeps the promises that a protocol made. Called with no lock of [`Promises`] held; [`Holders::broken`] with the
/// file's gate closed.
pub trait Holders: Send + Sync {
    /// Asks for the promises of the object to be given back, except those made to `by`, which wants to change it. Returns true
    /// if there are no others.
    fn give_back(&self, object: ObjectId, by: Party) -> bool;

    /// The object was changed by someone whom nobody could ask.
    fn broken(&self, object: ObjectId);

    /// Whether `by` must not look at the object yet: before a restart it was left to a client that has not come back.
    fn is_awaited(&self, object: ObjectId, by: Party) -> bool {
        let _ = (object, by);
        false
    }

    /// When promises of the object that were asked for end by themselves, if they do.
    fn end_at(&self, object: ObjectId) -> Option<Nanos> {
        let _ = object;
        None
    }
}

/// The party that changes an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Party {
    /// Nobody to whom promises are made. Perhaps it takes a refusal for final, so it waits for a moment.
    Stranger,
    /// Someone who comes again by itself; and the client of the protocol, if that is known.
    Returning(Option<u64>),
}

thread_local!(static PARTY: Cell<Party> = const { Cell::new(Party::Stranger) });

/// Says for whom the calling thread makes changes, until what this gives is dropped.
pub fn changing_for(party: Party) -> Acting {
    Acting(PARTY.with(|here| here.replace(party)))
}

/// For whom the calling thread makes changes.
fn acting_for() -> Party {
    PARTY.with(Cell::get)
}

/// The thread makes changes for one party, and then again for this one.
pub struct Acting(Party);

impl Drop for Acting {
    fn drop(&mut self) {
        PARTY.with(|here| here.set(self.0));
    }
}

/// The promises made of an export's files.
pub struct Promises {
    holders: [OnceLock<Weak<dyn Holders>>; Keeper::ALL.len()],
    shards: [Shard; Promises::SHARDS],
    /// Promised files.
    promised: AtomicU64,
    /// Those of them that are left to one client alone.
    alone: AtomicU64,
    /// Changes of names under way.
    naming: AtomicU64,
    waiting: AtomicUsize,
    /// The most that do.
    waiting_max: AtomicUsize,
    /// Nothing is changed, since somebody may claim promises from before a restart.
    closed: AtomicBool,
    /// Nothing is changed before this time, in nanoseconds; 0 once it has passed.
    held_until: AtomicU64,
    /// Files that were left to one client alone before the restart. They count while `closed` does.
    before: OnceLock<HashSet<ObjectId>>,
}

/// A part of the files.
#[derive(Default)]
struct Shard {
    /// Changes under way.
    changes: AtomicU64,
    /// Files in `kept`.
    promised: AtomicU64,
    kept: Mutex<HashMap<ObjectId, Kept>>,
    given_back: Condvar,
}

/// A promised file, which stays live: so that what others do to it is noticed.
struct Kept {
    _file: Arc<File>,
    /// The bits of those that have promised it.
    keepers: u8,
    /// The client to which it is left alone.
    alone: Option<u64>,
    /// When its promises were first asked for.
    asked: Option<Nanos>,
}

impl Default for Promises {
    fn default() -> Self {
        Self {
            holders: std::array::from_fn(|_| OnceLock::new()),
            shards: std::array::from_fn(|_| Shard::default()),
            promised: AtomicU64::new(0),
            alone: AtomicU64::new(0),
            naming: AtomicU64::new(0),
            waiting: AtomicUsize::new(0),
            waiting_max: AtomicUsize::new(WAITING_MAX),
            closed: AtomicBool::new(false),
            held_until: AtomicU64::new(0),
            before: OnceLock::new(),
        }
    }
}

/// A change under way: no promise is made of its object.
pub(crate) struct Changing<'a>(&'a AtomicU64);

impl<'a> Changing<'a> {
    fn count(changes: &'a AtomicU64) -> Self {
        changes.fetch_add(1, Ordering::SeqCst);
        Self(changes)
    }
}

impl Drop for Changing<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

/// A thread that waits for a client.
pub(crate) struct Waiting<'a>(&'a AtomicUsize);

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

/// A change of names under way: no promise is made of any object.
pub(crate) struct Naming<'a> {
    _all: Changing<'a>,
    _objects: [Option<Changing<'a>>; 2],
}

impl Promises {
    const SHARDS: usize = 64;

    /// Sets what keeps the promises of a protocol. Only the first call counts.
    pub fn keep(&self, keeper: Keeper, holders: Weak<dyn Holders>) {
        let _ = self.holders[keeper as usize].set(holders);
    }

    /// Nothing is changed before this time: promises from before a restart, of which nothing else is known, may stand until
    /// then.
    pub fn hold(&self, until: Nanos) {
        self.held_until.fetch_max(until.0, Ordering::SeqCst);
    }

    /// How much longer nothing is changed.
    fn held(&self) -> Option<Nanos> {
        let until = self.held_until.load(Ordering::SeqCst);
        if until == 0 {
            return None;
        }
        let left = Nanos(until).since(clock::now());
        if left == Nanos(0) {
            self.held_until.store(0, Ordering::SeqCst);
        }
        Some(left).filter(|left| *left != Nanos(0))
    }

    /// Waits until promises from before a restart are over. [`Status::Jukebox`]: the caller is to come again.
    fn outlast(&self) -> Result<(), Status> {
        while let Some(left) = self.held() {
            let waiting = self.waiting().filter(|_| acting_for() == Party::Stranger);
            let _waiting = waiting.ok_or(Status::Jukebox)?;
            clock::sleep(left);
        }
        Ok(())
    }

    /// Refuses all changes until [`Promises::open`], because the promises of before a restart are not known yet. `alone` names
    /// the files that were left to one client; only the first call counts.
    pub fn close(&self, alone: HashSet<ObjectId>) {
        let _ = self.before.set(alone);
        self.closed.store(true, Ordering::SeqCst);
    }

    /// All promises from before are known: changes ask for them.
    pub fn open(&self) {
        self.closed.store(false, Ordering::SeqCst);
    }

    /// Whether nothing is changed.
    pub fn is_closed(&self) -> bool {
        self.closed.load(Ordering::SeqCst)
    }

    /// There are so many threads for what may block: one is left to those that give promises back.
    pub fn served_by(&self, threads: usize) {
        let most = WAITING_MAX.min(threads.saturating_sub(1));
        self.waiting_max.store(most, Ordering::SeqCst);
    }

    fn shard(&self, object: ObjectId) -> &Shard {
        let mixed = object.ino.wrapping_mul(0x9E37_79B9_7F4A_7C15);
        &self.shards[(mixed >> 58) as usize % Self::SHARDS]
    }

    /// The file is promised from now on, until [`Promises::end`]. False: it, or perhaps it, is being changed.
    pub fn make(&self, keeper: Keeper, file: &Arc<File>) -> bool {
        self.note(keeper, file, None)
    }

    /// The file is left to this client of NFS version 4 alone from now on, until [`Promises::end`]. False: it, or perhaps it,
    /// is being changed; or it is promised, or may have been before a restart.
    pub fn leave_to(&self, file: &Arc<File>, client: u64) -> bool {
        self.held().is_none() && self.note(Keeper::Nfs4, file, Some(client))
    }

    /// As [`Promises::leave_to`], for a client that had it before a restart: nobody else had a promise of the file then.
    pub fn leave_again_to(&self, file: &Arc<File>, client: u64) -> bool {
        self.note(Keeper::Nfs4, file, Some(client))
    }

    fn note(&self, keeper: Keeper, file: &Arc<File>, alone: Option<u64>) -> bool {
        let shard = self.shard(file.object());
        let mut kept = shard.kept.lock();
        shard.promised.fetch_add(1, Ordering::SeqCst);
        self.promised.fetch_add(1, Ordering::SeqCst);
        let changes =
            [&shard.changes, &self.naming].map(|under_way| under_way.load(Ordering::SeqCst));
        let known = kept.get_mut(&file.object());
        let fits = (known.as_ref()).is_none_or(|known| known.alone.is_none() && alone.is_none());
        let free = changes == [0; 2] && fits;
        match known {
            None if free => {
                let new = Kept {
                    _file: Arc::clone(file),
                    keepers: keeper.bit(),
                    alone,
                    asked: None,
                };
                kept.insert(file.object(), new);
                self.alone
                    .fetch_add(alone.is_some().into(), Ordering::SeqCst);
                return true;
            }
            Some(known) if free => known.keepers |= keeper.bit(),
            _ => {}
        }
        shard.promised.fetch_sub(1, Ordering::SeqCst);
        self.promised.fetch_sub(1, Ordering::SeqCst);
        free
    }

    /// Nobody has a promise of the object any more that this keeper made.
    pub fn end(&self, keeper: Keeper, object: ObjectId) {
        let shard = self.shard(object);
        let mut kept = shard.kept.lock();
        let over = kept.get_mut(&object).is_some_and(|known| {
            known.keepers &= !keeper.bit();
            known.keepers == 0
        });
        let ended = over.then(|| kept.remove(&object)).flatten();
        drop(kept);
        if let Some(ended) = ended {
            self.alone
                .fetch_sub(ended.alone.is_some().into(), Ordering::SeqCst);
            shard.promised.fetch_sub(1, Ordering::SeqCst);
            self.promised.fetch_sub(1, Ordering::SeqCst);
            shard.given_back.notify_all();
        }
    }

    /// Before the object is changed: promises of it are given back when this returns, and none is made until what it gives
    /// is dropped. [`Status::Jukebox`]: that takes longer. May wait, with no lock of the file held.
    pub(crate) fn ask(&self, object: ObjectId) -> Result<Changing<'_>, Status> {
        if self.is_closed() {
            return Err(Status::Jukebox);
        }
        self.outlast()?;
        self.ask_of(object, EVERYONE)
    }

    /// As [`Promises::ask`], before a lock of another protocol: clients of NFS version 4, which lock under their delegations without
    /// telling, give these back. A lock from `before` a restart stood beside the promises of then.
    pub(crate) fn ask_to_lock(
        &self,
        object: ObjectId,
        before: bool,
    ) -> Result<Changing<'_>, Status> {
        if self.is_closed() && !before {
            return Err(Status::Jukebox);
        }
        self.ask_of(object, Keeper::Nfs4.bit())
    }

    fn ask_of(&self, object: ObjectId, keepers: u8) -> Result<Changing<'_>, Status> {
        let shard = self.shard(object);
        let changing = Changing::count(&shard.changes);
        self.ask_back(shard, object, keepers)?;
        Ok(changing)
    }

    /// Before the object is looked at or read: nobody else changes it unseen when this returns. [`Status::Jukebox`]: that takes
    /// longer. May wait, with no lock of the file held.
    pub(crate) fn ask_to_look(&self, object: ObjectId) -> Result<(), Status> {
        match self.is_hidden(object) {
            true if self.is_awaited(object, acting_for()) => Err(Status::Jukebox),
            true => self.ask_back(self.shard(object), object, EVERYONE),
            false => Ok(()),
        }
    }

    /// As [`Promises::ask_to_look`], with whatever effort is allowed.
    pub(crate) fn look(&self, object: ObjectId, effort: Effort) -> Result<(), ReadFailed> {
        match effort {
            Effort::ResidentOnly if self.is_hidden(object) => Err(ReadFailed::NotResident),
            Effort::ResidentOnly => Ok(()),
            Effort::MayBlock => Ok(self.ask_to_look(object)?),
        }
    }

    /// Whether somebody else than the caller may change the object unseen.
    pub(crate) fn is_hidden(&self, object: ObjectId) -> bool {
        let party = acting_for();
        let left = self.alone_for(object);
        left.is_some_and(|client| party != Party::Returning(Some(client)))
            || self.is_awaited(object, party)
    }

    /// Whether somebody may change the object unseen, or may have before a restart.
    pub(crate) fn is_left(&self, object: ObjectId) -> bool {
        self.alone_for(object).is_some() || self.is_awaited(object, Party::Stranger)
    }

    /// Whether a caller that takes a refusal for final would have to wait for someone who has not come back after a restart.
    pub(crate) fn is_withheld(&self, object: ObjectId) -> bool {
        acting_for() == Party::Stranger && self.is_awaited(object, Party::Stranger)
    }

    fn is_awaited(&self, object: ObjectId, by: Party) -> bool {
        let before = self.before.get().filter(|_| self.is_closed());
        if !before.is_some_and(|before| before.contains(&object)) {
            return false;
        }
        let holders = self.holders[Keeper::Nfs4 as usize].get();
        let holders = holders.and_then(Weak::upgrade);
        holders.is_some_and(|holders| holders.is_awaited(object, by))
    }

    /// The client to which the object is left alone, if it is to one.
    pub fn alone_for(&self, object: ObjectId) -> Option<u64> {
        if self.alone.load(Ordering::SeqCst) == 0 {
            return None;
        }
        self.shard(object).kept.lock().get(&object)?.alone
    }

    /// As [`Promises::ask`], for a write into a file. A caller that may not write is refused first, so that it takes no promise
    /// from anybody.
    pub(crate) fn ask_to_write(
        &self,
        export: &Exports,
        who: &Credential,
        object: ObjectId,
    ) -> Result<Changing<'_>, StoreError> {
        self.ask_judged(object, || may_write(export, who, object))
    }

    /// As [`Promises::ask`], for a change that `judge` refuses to callers without the right to make it.
    pub(crate) fn ask_judged(
        &self,
        object: ObjectId,
        judge: impl FnOnce() -> Result<(), StoreError>,
    ) -> Result<Changing<'_>, StoreError> {
        if self.is_promised(object) {
            judge()?;
        }
        Ok(self.ask(object)?)
    }

    fn is_promised(&self, object: ObjectId) -> bool {
        self.keepers_of(object) != 0
    }

    /// The bits of those that have promised the object.
    fn keepers_of(&self, object: ObjectId) -> u8 {
        let shard = self.shard(object);
        if shard.promised.load(Ordering::SeqCst) == 0 {
            return 0;
        }
        let kept = shard.kept.lock();
        kept.get(&object).map_or(0, |kept| kept.keepers)
    }

    fn ask_back(&self, shard: &Shard, object: ObjectId, of: u8) -> Result<(), Status> {
        let party = acting_for();
        loop {
            let holders = self.holders_of(object, of);
            // Each is asked, whether the others have given theirs back or not.
            let asked = holders.iter().flatten();
            let kept: Vec<_> = asked.filter(|all| !all.give_back(object, party)).collect();
            if kept.is_empty() {
                return Ok(());
            }
            let end = kept.iter().filter_map(|all| all.end_at(object)).min();
            if party != Party::Stranger || !self.wait(shard, object, end) {
                return Err(Status::Jukebox);
            }
        }
    }

    /// What keeps the promises of the object, by protocol, for those of these bits.
    fn holders_of(
        &self,
        object: ObjectId,
        of: u8,
    ) -> [Option<Arc<dyn Holders>>; Keeper::ALL.len()] {
        let keepers = self.keepers_of(object) & of;
        Keeper::ALL.map(|keeper| {
            let keeps = keepers & keeper.bit() != 0;
            let holders = self.holders[keeper as usize].get().filter(|_| keeps);
            holders.and_then(Weak::upgrade)
        })
    }

    /// Waits for the promises of the object to be given back, or until some of them end by themselves. False: not any longer.
    fn wait(&self, shard: &Shard, object: ObjectId, end: Option<Nanos>) -> bool {
        let waiting = self.waiting();
        waiting.is_some_and(|_waiting| self.wait_for(shard, shard.kept.lock(), object, end))
    }

    /// The calling thread may wait for a client until what this gives is dropped. `None`: as many do as may.
    pub(crate) fn waiting(&self) -> Option<Waiting<'_>> {
        let most = self.waiting_max.load(Ordering::SeqCst);
        let waiting = self.waiting.fetch_add(1, Ordering::SeqCst);
        let place = Waiting(&self.waiting);
        (waiting < most).then_some(place)
    }

    fn wait_for(
        &self,
        shard: &Shard,
        mut kept: MutexGuard<'_, HashMap<ObjectId, Kept>>,
        object: ObjectId,
        end: Option<Nanos>,
    ) -> bool {
        while let Some(promised) = kept.get_mut(&object) {
            let now = clock::now();
            let waited = now.since(*promised.asked.get_or_insert(now));
            if end.is_some_and(|end| end <= now) {
                return true;
            }
            if waited >= PATIENCE {
                return false;
            }
            let left = PATIENCE.since(waited);
            let left = end.map_or(left, |end| end.since(now).min(left));
            (kept, _) = shard.given_back.wait_timeout(kept, left);
        }
        true
    }

    /// The object was changed from outside.
    pub(crate) fn broken(&self, object: ObjectId) {
        for holders in self.holders_of(object, EVERYONE).iter().flatten() {
            holders.broken(object);
        }
    }

    /// As [`Promises::ask`], before names are taken from what is there under them: each a directory and a name in it.
    pub(crate) fn ask_named<'a>(
        &'a self,
        export: &Exports,
        who: &Credential,
        names: [Option<(ObjectId, &[u8])>; 2],
    ) -> Result<Naming<'a>, Status> {
        let mut naming = Naming {
            _all: Changing::count(&self.naming),
            _objects: [None, None],
        };
        let none = self.promised.load(Ordering::SeqCst) == 0;
        if none && !self.is_closed() && self.held().is_none() {
            return Ok(naming);
        }
        for (place, changing) in names.iter().zip(&mut naming._objects) {
            let Some((directory, name)) = place else {
                continue;
            };
            // What is not there is the change's own finding.
            if let Ok((object, _)) = export.store().lookup(who, *directory, name) {
                if self.is_promised(object) {
                    may_take(export, who, *directory, object)?;
                }
                *changing = Some(self.ask(object)?);
            }
        }
        Ok(naming)
    }
}

mod at_hand;
mod rights;

use rights::may_take;
pub(crate) use rights::{may_change, may_write};

#[cfg(test)]
#[path = "promises_tests.rs"]
mod tests;
