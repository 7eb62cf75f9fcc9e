//! Live files: attributes as last seen, gate, change counter and pages.
//!
//! Locks, in the order in which they are taken. No thread waits for one while it holds a later one:
//!
//! 1. **The gate** of one file. Shared: reading, filling and referencing pages, writing within the size.
//!    Alone: whatever changes size, rights or existence, and changes from outside. While it is held alone
//!    no reference is issued and no fill published: the gate is closed.
//! 2. **Page locks**, in ascending order of the pages. A fill holds its page locks from the store's read to
//!    the publication, a write from the store's write to the acknowledgement. Pageout and the NIC's faults
//!    only ever try a page lock.
//! 3. **Recording**: one thread at a time asks the store for attributes and notes them, and writes in between.
//! 4. Leaves, held for a few instructions: the facts, the tree, frame owners, free lists, tables of files
//!    and sessions.
//!
//! None of them is held while the store syncs, or by who waits for that (`File::syncs`).
//!
//! Polling threads ([`Effort::ResidentOnly`]) only try the first three, and the turn to sync.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};

use odafs_fabric::clock::Nanos;
use odafs_fabric::memory::FrameNumber;
use odafs_fabric::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use odafs_fabric::sync::{Arc, Mutex, MutexGuard, RwLock, RwLockReadGuard, RwLockWriteGuard, Weak};
use odafs_nic::capability::ReaderClass;

use super::HandleBytes;
use crate::store::{Attributes, ObjectId};
use crate::vfs::classes::Class;
use crate::vfs::counters::Counter;
use crate::vfs::read::Effort;
use crate::vfs::reports::Reports;
use crate::vfs::syncs::Syncs;

/// A regular file that someone has read or written lately.
pub struct File {
    object: ObjectId,
    handle: HandleBytes,
    gate: RwLock<Standing>,
    facts: Mutex<Judged>,
    pub(crate) recording: Mutex<()>,
    syncs: Syncs,
    tree: RwLock<Tree>,
    counter: Counter,
    /// Whether outside changes are reported. Otherwise the server has to look for them.
    watched: AtomicBool,
    /// The time when the attributes were last compared with the store's.
    checked: AtomicU64,
    reports: Reports,
    sequence: Sequence,
}

/// The state that the gate guards.
#[derive(Debug, Default)]
pub(crate) struct Standing {
    /// Whether the file's last link has gone.
    pub gone: bool,
}

/// What is known of a file.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Facts {
    /// Attributes as recorded after the last change, by the server or from outside.
    pub attributes: Attributes,
    /// Whether owner, group and mode alone decide who may read.
    pub mode_decides: bool,
    /// The reader class for the NIC. `None` if the mode does not decide, or if classes have run out.
    pub class: Option<ReaderClass>,
}

/// Facts, and the hold on the class that they name.
#[derive(Clone, Debug)]
pub(crate) struct Judged {
    pub facts: Facts,
    pub hold: Option<Arc<Class>>,
}

impl File {
    pub(crate) fn new(
        object: ObjectId,
        handle: HandleBytes,
        facts: Judged,
        counter: Counter,
        watched: bool,
        now: Nanos,
    ) -> Self {
        Self {
            object,
            handle,
            gate: RwLock::new(Standing::default()),
            facts: Mutex::new(facts),
            recording: Mutex::new(()),
            syncs: Syncs::default(),
            tree: RwLock::default(),
            counter,
            watched: AtomicBool::new(watched),
            checked: AtomicU64::new(now.0),
            reports: Reports::default(),
            sequence: Sequence::default(),
        }
    }

    /// Which.
    pub fn object(&self) -> ObjectId {
        self.object
    }

    /// Its file handle.
    pub fn handle(&self) -> &HandleBytes {
        &self.handle
    }

    /// Attributes as last seen. Never blocks for long.
    pub fn attributes(&self) -> Attributes {
        self.facts.lock().facts.attributes
    }

    /// The change counter, which has another value after every change, in no order.
    pub fn change(&self) -> u64 {
        self.counter.value()
    }

    pub(crate) fn counter(&self) -> &Counter {
        &self.counter
    }

    pub(crate) fn facts(&self) -> Facts {
        self.facts.lock().facts
    }

    /// The caller has closed the gate, and has revoked the references if the class is another.
    pub(crate) fn set_facts(&self, judged: Judged) {
        let before = std::mem::replace(&mut *self.facts.lock(), judged);
        drop(before);
    }

    /// Sets new attributes, under which the same callers may read.
    pub(crate) fn set_attributes(&self, attributes: Attributes) {
        self.facts.lock().facts.attributes = attributes;
    }

    /// Gives the file a class, if it had none because none was left. Returns its class.
    pub(crate) fn set_class(&self, class: Arc<Class>) -> Option<ReaderClass> {
        let mut judged = self.facts.lock();
        if judged.facts.class.is_none() {
            judged.facts.class = Some(class.0);
            judged.hold = Some(class);
        }
        judged.facts.class
    }

    /// Shares the gate. `None` if it is closed and nothing may block.
    pub(crate) fn enter(&self, effort: Effort) -> Option<RwLockReadGuard<'_, Standing>> {
        match effort {
            Effort::ResidentOnly => self.gate.try_read(),
            Effort::MayBlock => Some(self.enter_blocking()),
        }
    }

    /// Shares the gate, and waits for it.
    pub(crate) fn enter_blocking(&self) -> RwLockReadGuard<'_, Standing> {
        self.gate.read()
    }

    /// Closes the gate until the guard is dropped. Waits for those inside.
    pub(crate) fn close(&self) -> RwLockWriteGuard<'_, Standing> {
        self.gate.write()
    }

    /// Syncs of its bytes and attributes.
    pub(crate) fn syncs(&self) -> &Syncs {
        &self.syncs
    }

    pub(crate) fn sequence(&self) -> &Sequence {
        &self.sequence
    }

    pub(crate) fn reports(&self) -> &Reports {
        &self.reports
    }

    pub(crate) fn is_watched(&self) -> bool {
        self.watched.load(Ordering::Relaxed)
    }

    /// Notes that outside changes are no longer reported.
    pub(crate) fn end_watch(&self) {
        self.watched.store(false, Ordering::Relaxed);
    }

    /// Time since the attributes were compared with the store's.
    pub(crate) fn unchecked_for(&self, now: Nanos) -> Nanos {
        now.since(Nanos(self.checked.load(Ordering::Relaxed)))
    }

    pub(crate) fn set_checked(&self, now: Nanos) {
        self.checked.store(now.0, Ordering::Relaxed);
    }

    /// The leaf of a page, if any page of it was ever filled.
    pub(crate) fn find_leaf(&self, page: u64) -> Option<Arc<Leaf>> {
        self.tree.read().get(&(page / LEAF_PAGES)).cloned()
    }

    /// The leaf of a page, which is made if need be.
    pub(crate) fn leaf(self: &Arc<Self>, page: u64) -> Arc<Leaf> {
        if let Some(leaf) = self.find_leaf(page) {
            return leaf;
        }
        let number = page / LEAF_PAGES;
        let new = || Arc::new(Leaf::new(number * LEAF_PAGES, Arc::downgrade(self)));
        Arc::clone(self.tree.write().entry(number).or_insert_with(new))
    }

    /// The leaves that hold page `first` and later ones, in ascending order.
    pub(crate) fn leaves_from(&self, first: u64) -> Vec<Arc<Leaf>> {
        let least = first / LEAF_PAGES;
        let tree = self.tree.read();
        let mut leaves: Vec<_> = tree
            .iter()
            .filter(|(number, _)| **number >= least)
            .map(|(_, leaf)| Arc::clone(leaf))
            .collect();
        drop(tree);
        leaves.sort_unstable_by_key(|leaf| leaf.first);
        leaves
    }

    /// The number of leaves.
    pub(crate) fn leaf_count(&self) -> usize {
        self.tree.read().len()
    }

    /// Frees an empty leaf, if nobody else uses it.
    pub(crate) fn prune(&self, leaf: &Arc<Leaf>) {
        if leaf.resident() > 0 {
            return;
        }
        let mut tree = self.tree.write();
        let number = leaf.first / LEAF_PAGES;
        let ours = tree
            .get(&number)
            .is_some_and(|found| Arc::ptr_eq(found, leaf));
        // The tree's and the caller's: nobody else can come by one while the tree is locked.
        if ours && leaf.resident() == 0 && Arc::strong_count(leaf) == 2 {
            tree.remove(&number);
        }
    }

    /// Whether no page is in memory or about to be.
    pub(crate) fn is_empty(&self) -> bool {
        self.tree.read().is_empty()
    }
}

impl std::fmt::Debug for File {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("File")
            .field("object", &self.object)
            .finish_non_exhaustive()
    }
}

/// Leaves by number. The size of the file bounds the numbers, so the hash need not resist a client that cannot fill the
/// file.
type Tree = HashMap<u64, Arc<Leaf>, BuildHasherDefault<Mix>>;

/// Multiplies and folds: enough to spread consecutive numbers.
#[derive(Default)]
struct Mix(u64);

impl Hasher for Mix {
    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.write_u64(u64::from(*byte));
        }
    }

    fn write_u64(&mut self, number: u64) {
        let wide = u128::from(self.0 ^ number ^ 0x243F_6A88_85A3_08D3) * 0x9E37_79B9_7F4A_7C15;
        self.0 = (wide >> 64) as u64 ^ wide as u64;
    }

    fn finish(&self) -> u64 {
        self.0
    }
}

/// Number of neighbouring pages in a leaf.
pub(crate) const LEAF_PAGES: u64 = 16;

/// Neighbouring pages of one file.
pub(crate) struct Leaf {
    first: u64,
    file: Weak<File>,
    resident: AtomicU32,
    pages: [Mutex<Option<FrameNumber>>; LEAF_PAGES as usize],
}

impl Leaf {
    fn new(first: u64, file: Weak<File>) -> Self {
        Self {
            first,
            file,
            resident: AtomicU32::new(0),
            pages: std::array::from_fn(|_| Mutex::new(None)),
        }
    }

    /// The file, while it is live.
    pub(crate) fn file(&self) -> Option<Arc<File>> {
        self.file.upgrade()
    }

    /// Pages in memory.
    pub(crate) fn resident(&self) -> u32 {
        self.resident.load(Ordering::Relaxed)
    }

    /// The first of the leaf's pages.
    pub(crate) fn first(&self) -> u64 {
        self.first
    }

    /// Number of leaves of the pages from `first` to `last`.
    pub(crate) fn count_in(first: u64, last: u64) -> u64 {
        last / LEAF_PAGES - first / LEAF_PAGES + 1
    }

    /// The last of the leaf's pages.
    pub(crate) fn last(&self) -> u64 {
        Self::last_of(self.first)
    }

    /// The first page of the leaf that `page` is in.
    pub(crate) fn first_of(page: u64) -> u64 {
        page - page % LEAF_PAGES
    }

    /// The last page of the leaf that `page` is in.
    pub(crate) fn last_of(page: u64) -> u64 {
        page | (LEAF_PAGES - 1)
    }

    /// Whether `page` is one of its pages.
    pub(crate) fn holds(&self, page: u64) -> bool {
        page / LEAF_PAGES * LEAF_PAGES == self.first
    }

    /// Where `page` is in its leaf.
    pub(crate) fn slot(page: u64) -> usize {
        (page % LEAF_PAGES) as usize
    }

    /// Locks a page.
    pub(crate) fn lock(self: &Arc<Self>, slot: usize) -> PageLock<'_> {
        PageLock {
            leaf: self,
            slot,
            frame: self.pages[slot].lock(),
        }
    }

    /// Locks a page if nobody else has locked it.
    pub(crate) fn try_lock(self: &Arc<Self>, slot: usize) -> Option<PageLock<'_>> {
        Some(PageLock {
            leaf: self,
            slot,
            frame: self.pages[slot].try_lock()?,
        })
    }

    /// Waits as the effort allows.
    pub(crate) fn lock_with(self: &Arc<Self>, slot: usize, effort: Effort) -> Option<PageLock<'_>> {
        match effort {
            Effort::ResidentOnly => self.try_lock(slot),
            Effort::MayBlock => Some(self.lock(slot)),
        }
    }
}

/// A locked page.
pub(crate) struct PageLock<'a> {
    leaf: &'a Arc<Leaf>,
    slot: usize,
    frame: MutexGuard<'a, Option<FrameNumber>>,
}

impl PageLock<'_> {
    /// Index in the file.
    pub(crate) fn page(&self) -> u64 {
        self.leaf.first + self.slot as u64
    }

    /// Its leaf.
    pub(crate) fn leaf(&self) -> &Arc<Leaf> {
        self.leaf
    }

    /// Its frame, if it is in memory.
    pub(crate) fn frame(&self) -> Option<FrameNumber> {
        *self.frame
    }

    /// Its place in its leaf.
    pub(crate) fn slot(&self) -> usize {
        self.slot
    }

    /// Puts the page, which was nowhere, into `frame`.
    pub(crate) fn put(&mut self, frame: FrameNumber) {
        debug_assert!(self.frame.is_none());
        self.leaf.resident.fetch_add(1, Ordering::Relaxed);
        *self.frame = Some(frame);
    }

    /// Removes the page from its frame.
    pub(crate) fn take(&mut self) -> Option<FrameNumber> {
        let frame = self.frame.take()?;
        self.leaf.resident.fetch_sub(1, Ordering::Relaxed);
        Some(frame)
    }
}

/// Detects that a file is read from front to back. Racing readers only blur the result.
#[derive(Debug, Default)]
pub(crate) struct Sequence {
    /// The page after the last run that was filled.
    expected: AtomicU64,
    /// Number of pages of that run.
    run: AtomicU32,
}

impl Sequence {
    /// How many pages to fill from `page` on, when `wanted` are asked for and at most `limit` are allowed.
    /// Each run that begins where (or shortly after) the last one ended is twice as long.
    pub(crate) fn next_run(&self, page: u64, wanted: u32, limit: u32) -> u32 {
        let expected = self.expected.load(Ordering::Relaxed);
        let last = self.run.load(Ordering::Relaxed);
        // Requests of one reader may overtake each other.
        let near = page >= expected && page - expected <= u64::from(last);
        let run = if near && last > 0 {
            wanted.max(last.saturating_mul(2))
        } else if page == 0 {
            wanted.max(4)
        } else {
            wanted
        };
        run.clamp(1, limit.max(1))
    }

    /// Notes that a run of `run` pages from `page` on is filled.
    pub(crate) fn filled(&self, page: u64, run: u32) {
        self.expected
            .store(page + u64::from(run), Ordering::Relaxed);
        self.run.store(run, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_grow_while_a_reader_goes_on() {
        let sequence = Sequence::default();
        let mut page = 0;
        let mut runs = Vec::new();
        for _ in 0..6 {
            let run = sequence.next_run(page, 1, 32);
            sequence.filled(page, run);
            runs.push(run);
            page += u64::from(run);
        }
        assert_eq!(runs, [4, 8, 16, 32, 32, 32]);
    }

    #[test]
    fn random_reads_fill_what_they_ask_for() {
        let sequence = Sequence::default();
        let mut page: u64 = 77;
        for _ in 0..100 {
            page = page.wrapping_mul(6_364_136_223_846_793_005) % 1_000_003;
            assert_eq!(sequence.next_run(page + 100, 1, 32), 1);
            sequence.filled(page + 100, 1);
        }
    }
}
