//! The directory of references: where pages lie in the server's memory, as far as the server has told this client.
//!
//! A reference takes 24 bytes. References are in chunks of 256 neighbouring pages, and a file finds its chunks through
//! a tree of arrays. A lookup is one load that may miss the processor's caches and a few that hardly do. Access keys
//! are kept apart, because one-sided reads do not need them. A chunk is a run if its pages lie in the server's memory
//! as they do in the file, all with the same epoch and with neighbouring handles. A run takes two words for 1 MiB, so a
//! one-sided read of a large file misses no cache because of the directory, and a guarded one misses only for its key.
//! Chunks are never freed, only given to other pages, and readers take no lock:
//!
//! - An entry's `valid` word (epoch and length) is stored last, and loaded both first and last. So a reader that loaded
//!   anything of another reference notices the change. The same holds for a run and its epoch.
//! - A chunk that goes to other pages is first taken out of its tree, then cleared. So a reader that loaded anything of
//!   the new owner finds the tree changed when it checks again.
//! - References are valid in one session. [`Directory::begin`] changes the session's number before it clears, and a
//!   reader checks the number last.
//!
//! When the directory has used up its memory, it takes chunks that hold no reference first. (Stale references are
//! forgotten, and their chunks become free at once.) Then come the chunks of closed files, as the hand meets them, and
//! then SIEVE chooses among the rest (Zhang et al., NSDI 2024): in the order in which they came, except for those that
//! were used since the hand last passed. A chunk takes many reads to fill, and one that is filled and evicted over and
//! over is useless. If more is read than fits, orders that evict the oldest (CLOCK, which the page caches of servers
//! resemble, and LRU) keep a tenth of what SIEVE keeps (docs/BENCHMARKS.md).

mod crowded;
mod sieve;
mod tree;

pub use self::tree::Tree;
use self::{
    crowded::Crowded,
    sieve::{ChunkOwner, Sieve},
    tree::{EVICTED, FANOUT, NONE, PAGES_MAX},
};
use odafs_common::{
    page::PageSize,
    reference::{AccessKey, Epoch, Handle, Reference},
};
use odafs_fabric::sync::{
    Arc, Mutex, OnceLock,
    atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering::*},
};
use std::ops::Range;

/// Number of pages of a chunk.
const CHUNK: usize = 256;
/// Number of chunks in an allocation. The first allocations have fewer, so that a client with few references stays
/// small.
const SEGMENT: usize = 16;
/// Number of allocations before those of a whole segment: of 1, 1, 2, 4 and 8 chunks.
const SMALL_SEGMENTS: usize = SEGMENT.ilog2() as usize + 1;

/// Bytes of a chunk, including what is kept beside it.
pub const CHUNK_BYTES: usize = size_of::<Chunk>() + size_of::<ChunkOwner>() + 4;

/// The references of all files of one client.
#[derive(Debug)]
pub struct Directory {
    segments: Box<[OnceLock<Box<[Chunk]>>]>,
    session: AtomicU64,
    crowded: Crowded,
    keeper: Mutex<ReferenceKeeper>,
}

/// The result of a lookup.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Lookup {
    /// A reference.
    Found(Reference),
    /// There is no reference, and there was none lately.
    Missing,
    /// There is no reference, but with more memory for the directory there might be one.
    Evicted,
}

#[derive(Debug)]
struct Chunk {
    entries: [Entry; CHUNK],
    keys: [AtomicU64; CHUNK],
    /// `valid` of all references of the chunk if they are a run: whole pages in neighbouring frames, with neighbouring
    /// handles. Otherwise 0.
    run_valid: AtomicU64,
    /// `place` of the first page of the run.
    run_place: AtomicU64,
    touched: AtomicBool,
    /// How often the chunk has changed owners. Without this, a chunk that went to other pages and came back would look
    /// unchanged.
    owned: AtomicU32,
}

/// Where a page lies: the part of a reference that a one-sided read needs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Location {
    /// Arena offset of the page.
    pub address: u64,
    /// Number of valid bytes.
    pub length: u32,
    /// Epoch of the reference.
    pub epoch: Epoch,
}

/// Everything that a one-sided read needs, in one cache line.
#[derive(Debug)]
#[repr(align(16))]
struct Entry {
    /// Frame number (32 bits) and handle (32 bits).
    place: AtomicU64,
    /// Epoch (48 bits) and length less one (16 bits). 0 for no reference.
    valid: AtomicU64,
}

#[derive(Debug)]
struct ReferenceKeeper {
    page: PageSize,
    limit: usize,
    owners: Vec<ChunkOwner>,
    free: Vec<u32>,
    order: Sieve,
    held: u64,
}

/// The references that no longer fit if there is room for those of these pages. Each chunk that the pages touch counts
/// as a whole.
pub fn room_of(pages: &Range<u64>) -> u64 {
    match pages.end.checked_sub(1).filter(|last| *last >= pages.start) {
        Some(last) => (last / CHUNK as u64 - pages.start / CHUNK as u64 + 1) * CHUNK as u64,
        None => 0,
    }
}

impl Directory {
    /// A directory that may use `bytes_max` bytes, now and later.
    pub fn new(bytes_max: u64) -> Self {
        let chunks = usize::try_from(bytes_max).unwrap_or(usize::MAX) / CHUNK_BYTES;
        let segments = chunks.div_ceil(SEGMENT).clamp(1, 1 << 20) - 1 + SMALL_SEGMENTS;
        Self {
            segments: (0..segments).map(|_| OnceLock::new()).collect(),
            session: AtomicU64::new(0),
            crowded: Crowded::default(),
            keeper: Mutex::new(ReferenceKeeper {
                page: PageSize::DEFAULT,
                limit: chunks.min(chunks_in(segments)),
                owners: Vec::new(),
                free: Vec::new(),
                order: Sieve::default(),
                held: 0,
            }),
        }
    }

    /// Drops everything. New references belong to this session, whose export has pages of this size.
    pub fn begin(&self, session: u64, page: PageSize) {
        let mut keeper = self.keeper.lock();
        self.session.store(session, SeqCst);
        keeper.page = page;
        for number in 0..keeper.owners.len() {
            if keeper.owners[number].held > 0 {
                self.release(&mut keeper, number, NONE);
            }
        }
    }

    /// The reference of a page, for a reader in `session`.
    pub fn lookup(&self, tree: &Tree, page: u64, session: u64, size: PageSize) -> Lookup {
        let Some(slot) = tree.slot(page) else {
            return Lookup::Missing;
        };
        let number = slot.load(Acquire);
        let Some(chunk) = self.chunk(number) else {
            return match number {
                EVICTED => Lookup::Evicted,
                _ => Lookup::Missing,
            };
        };
        let at = page as usize % CHUNK;
        let owned = chunk.owned.load(Acquire);
        let (place, valid, valid_word) = chunk.words(at);
        let key = chunk.keys[at].load(Acquire);
        let still = valid_word.load(Acquire) == valid
            && slot.load(Acquire) == number
            && chunk.owned.load(Acquire) == owned;
        if valid == 0 || !still || self.session.load(Acquire) != session {
            return Lookup::Missing;
        }
        chunk.touch();
        Lookup::Found(unpack(place, key, valid, size))
    }

    /// Where a page lies, for a one-sided reader in `session`.
    #[inline]
    pub fn locate(&self, tree: &Tree, page: u64, session: u64, size: PageSize) -> Option<Location> {
        let slot = tree.slot(page)?;
        let number = slot.load(Acquire);
        let chunk = self.chunk(number)?;
        let owned = chunk.owned.load(Acquire);
        let (place, valid, valid_word) = chunk.words(page as usize % CHUNK);
        if valid == 0 {
            return None;
        }
        let reference = unpack(place, 0, valid, size);
        let location = Location {
            address: reference.address,
            length: reference.length,
            epoch: reference.epoch,
        };
        let still = valid_word.load(Acquire) == valid
            && slot.load(Acquire) == number
            && chunk.owned.load(Acquire) == owned;
        if !still || self.session.load(Acquire) != session {
            return None;
        }
        chunk.touch();
        Some(location)
    }

    /// There is no reference of this page, but with more memory there might be one.
    pub fn is_evicted(&self, tree: &Tree, page: u64) -> bool {
        tree.slot(page)
            .is_some_and(|slot| slot.load(Relaxed) == EVICTED)
    }

    /// Whether a call for this page shall ask for references.
    pub fn wants(&self, tree: &Tree, page: u64) -> bool {
        !self.is_evicted(tree, page) || self.crowded.asks()
    }

    /// Adds references, each with the index of its page. Leaves out those of another session, and those older than what
    /// is there. Returns how many were added.
    pub fn learn(
        &self,
        tree: &Arc<Tree>,
        session: u64,
        references: impl IntoIterator<Item = (u64, Reference)>,
    ) -> u64 {
        let mut keeper = self.keeper.lock();
        if self.session.load(Relaxed) != session {
            return 0;
        }
        let mut taken = 0;
        let mut last = None;
        for (page, reference) in references {
            if let Some(before) = last.filter(|last| last / CHUNK as u64 != page / CHUNK as u64) {
                self.join(&keeper, tree, before);
            }
            last = Some(page);
            taken += u64::from(self.take(&mut keeper, tree, page, &reference));
        }
        if let Some(last) = last {
            self.join(&keeper, tree, last);
        }
        taken
    }

    /// Notes whether the chunk of this page is a run.
    fn join(&self, keeper: &ReferenceKeeper, tree: &Tree, page: u64) {
        let number = tree.slot(page).map_or(NONE, |slot| slot.load(Relaxed));
        let Some(chunk) = self.chunk(number) else {
            return;
        };
        let full = keeper.owners[number as usize - 1].held as usize == CHUNK;
        if !full || chunk.run_valid.load(Relaxed) != 0 {
            return;
        }
        let first = &chunk.entries[0];
        let valid = first.valid.load(Relaxed);
        let place = first.place.load(Relaxed);
        let joined = |(at, entry): (usize, &Entry)| {
            entry.valid.load(Relaxed) == valid
                && entry.place.load(Relaxed) == place_in_run(place, at)
        };
        let whole = (valid & 0xffff) + 1 == keeper.page.bytes() as u64;
        if whole && chunk.entries.iter().enumerate().all(joined) {
            chunk.run_place.store(place, Release);
            chunk.run_valid.store(valid, Release);
        }
    }

    fn take(
        &self,
        keeper: &mut ReferenceKeeper,
        tree: &Arc<Tree>,
        page: u64,
        reference: &Reference,
    ) -> bool {
        let Some((place, key, valid)) = pack(reference, keeper.page) else {
            return false;
        };
        let Some(slot) = tree.make_slot(page) else {
            return false;
        };
        if matches!(slot.load(Relaxed), NONE | EVICTED) {
            let Some(number) = self.obtain(keeper) else {
                return false;
            };
            let chunk = (page / CHUNK as u64) as u32;
            keeper.owners[number] = ChunkOwner::new(Arc::downgrade(tree), chunk);
            keeper.order.comes(&mut keeper.owners, number as u32);
            slot.store(number as u32 + 1, Release);
        }
        let number = slot.load(Relaxed);
        let Some(chunk) = self.chunk(number) else {
            return false;
        };
        let entry = &chunk.entries[page as usize % CHUNK];
        let before = entry.valid.load(Relaxed);
        if before >> 16 > valid >> 16 {
            return false;
        }
        let key_word = &chunk.keys[page as usize % CHUNK];
        if before != valid || entry.place.load(Relaxed) != place || key_word.load(Relaxed) != key {
            chunk.run_valid.store(0, Release);
        }
        entry.valid.store(0, Release);
        entry.place.store(place, Release);
        key_word.store(key, Release);
        entry.valid.store(valid, Release);
        if before == 0 {
            keeper.owners[number as usize - 1].held += 1;
            keeper.held += 1;
        }
        true
    }

    /// Drops the reference of a page, if it still has this epoch.
    pub fn forget(&self, tree: &Tree, page: u64, epoch: Epoch) {
        self.drop_entry(tree, page, |valid| valid >> 16 == epoch.0);
    }

    /// Drops the references of the pages from `first` to `last`.
    pub fn forget_range(&self, tree: &Tree, first: u64, last: u64) {
        let mut page = first;
        while page <= last.min(PAGES_MAX - 1) {
            match tree.slot(page).map(|slot| slot.load(Acquire)) {
                Some(NONE | EVICTED) => page = (page / CHUNK as u64 + 1) * CHUNK as u64,
                None => page = (page / (CHUNK * FANOUT) as u64 + 1) * (CHUNK * FANOUT) as u64,
                Some(_) => {
                    self.drop_entry(tree, page, |_| true);
                    page += 1;
                }
            }
        }
    }

    fn drop_entry(&self, tree: &Tree, page: u64, wanted: impl FnOnce(u64) -> bool) {
        let mut keeper = self.keeper.lock();
        let number = tree.slot(page).map_or(NONE, |slot| slot.load(Relaxed));
        let Some(chunk) = self.chunk(number) else {
            return;
        };
        let entry = &chunk.entries[page as usize % CHUNK];
        let valid = entry.valid.load(Relaxed);
        if valid == 0 || !wanted(valid) {
            return;
        }
        chunk.run_valid.store(0, Release);
        entry.valid.store(0, Release);
        let owner = number as usize - 1;
        keeper.held -= 1;
        keeper.owners[owner].held -= 1;
        if keeper.owners[owner].held == 0 {
            self.release(&mut keeper, owner, NONE);
        }
    }

    /// Number of references that there is room for.
    pub fn room(&self) -> u64 {
        (self.keeper.lock().limit * CHUNK) as u64
    }

    /// Number of references held.
    pub fn held(&self) -> u64 {
        self.keeper.lock().held
    }

    /// Bytes in use, without the trees of files.
    pub fn bytes(&self) -> u64 {
        let keeper = self.keeper.lock();
        ((keeper.owners.len() - keeper.free.len()) * CHUNK_BYTES) as u64
    }

    /// Bytes that stay allocated whatever the limit is.
    pub fn bytes_allocated(&self) -> u64 {
        (self.keeper.lock().owners.len() * CHUNK_BYTES) as u64
    }

    /// Sets how much memory the directory may use, at most what it was created for.
    pub fn set_limit(&self, bytes: u64) {
        let chunks = usize::try_from(bytes).unwrap_or(usize::MAX) / CHUNK_BYTES;
        let mut keeper = self.keeper.lock();
        keeper.limit = chunks.min(chunks_in(self.segments.len()));
        let used = keeper.owners.len() - keeper.free.len();
        self.crowded.set_full(used >= keeper.limit);
        while keeper.owners.len() - keeper.free.len() > keeper.limit {
            let Some(victim) = self.victim(&mut keeper) else {
                return;
            };
            self.release(&mut keeper, victim, EVICTED);
        }
    }

    /// A chunk without an owner: a free one, a new one, or another owner's.
    fn obtain(&self, keeper: &mut ReferenceKeeper) -> Option<usize> {
        let used = keeper.owners.len() - keeper.free.len();
        if used >= keeper.limit {
            let victim = self.victim(keeper)?;
            self.release(keeper, victim, EVICTED);
        }
        self.crowded.set_full(used + 1 >= keeper.limit);
        if let Some(number) = keeper.free.pop() {
            return Some(number as usize);
        }
        let number = keeper.owners.len();
        let (segment, _) = segment_of(number);
        let chunks = chunks_in(segment + 1) - chunks_in(segment);
        self.segments
            .get(segment)?
            .get_or_init(|| (0..chunks).map(|_| Chunk::new()).collect());
        keeper.owners.push(ChunkOwner::default());
        Some(number)
    }

    /// SIEVE: the next chunk that was not used since the hand passed, or whose file is closed. The hand goes round at
    /// most twice, because in the first round all may have been used.
    fn victim(&self, keeper: &mut ReferenceKeeper) -> Option<usize> {
        for _ in 0..2 * keeper.owners.len() {
            let number = keeper.order.look(&keeper.owners)?;
            let touched = self.chunk(number + 1)?.touched.swap(false, Relaxed);
            let number = number as usize;
            if !touched || keeper.owners[number].tree.strong_count() == 0 {
                return Some(number);
            }
        }
        None
    }

    /// Takes a chunk out of its tree, clears it and puts it on the free list.
    fn release(&self, keeper: &mut ReferenceKeeper, number: usize, mark: u32) {
        keeper.order.goes(&mut keeper.owners, number as u32);
        let owner = std::mem::take(&mut keeper.owners[number]);
        if let Some(tree) = owner.tree.upgrade()
            && let Some(slot) = tree.slot(u64::from(owner.chunk) * CHUNK as u64)
        {
            slot.store(mark, Release);
        }
        if let Some(chunk) = self.chunk(number as u32 + 1) {
            chunk.owned.fetch_add(1, Release);
            chunk.run_valid.store(0, Release);
            chunk.touched.store(false, Relaxed);
            chunk
                .entries
                .iter()
                .for_each(|entry| entry.valid.store(0, Release));
        }
        keeper.held -= u64::from(owner.held);
        keeper.free.push(number as u32);
        self.crowded.set_full(false);
    }

    fn chunk(&self, slot: u32) -> Option<&Chunk> {
        let number = slot.wrapping_sub(1) as usize;
        let (segment, at) = segment_of(number);
        self.segments.get(segment)?.get()?.get(at)
    }
}

/// The segment of a chunk, and its index there.
#[inline]
fn segment_of(number: usize) -> (usize, usize) {
    if number >= SEGMENT {
        return (number / SEGMENT - 1 + SMALL_SEGMENTS, number % SEGMENT);
    }
    match number.checked_ilog2() {
        None => (0, 0),
        Some(level) => (level as usize + 1, number - (1 << level)),
    }
}

/// Number of chunks in the first `segments` segments.
fn chunks_in(segments: usize) -> usize {
    match segments {
        0 => 0,
        1..=SMALL_SEGMENTS => 1 << (segments - 1),
        _ => (segments - SMALL_SEGMENTS + 1) * SEGMENT,
    }
}

impl Chunk {
    fn new() -> Self {
        let entry = |_| Entry {
            place: AtomicU64::new(0),
            valid: AtomicU64::new(0),
        };
        Self {
            entries: std::array::from_fn(entry),
            keys: std::array::from_fn(|_| AtomicU64::new(0)),
            run_valid: AtomicU64::new(0),
            run_place: AtomicU64::new(0),
            touched: AtomicBool::new(false),
            owned: AtomicU32::new(0),
        }
    }

    /// The chunk was used. This writes the word once, until the hand passes.
    #[inline]
    fn touch(&self) {
        if !self.touched.load(Relaxed) {
            self.touched.store(true, Relaxed);
        }
    }

    /// Loads `place` and `valid` of a reference, and the word that still equals `valid` if both belong together.
    /// Whatever else of the reference is loaded must be loaded before that word is checked again.
    #[inline]
    fn words(&self, at: usize) -> (u64, u64, &AtomicU64) {
        let run = self.run_valid.load(Acquire);
        if run != 0 {
            let place = place_in_run(self.run_place.load(Acquire), at);
            return (place, run, &self.run_valid);
        }
        let entry = &self.entries[at];
        let valid = entry.valid.load(Acquire);
        (entry.place.load(Acquire), valid, &entry.valid)
    }
}

/// `place` of a run's page, computed from that of its first page.
#[inline]
fn place_in_run(first: u64, at: usize) -> u64 {
    first.wrapping_add((1 << 32 | 1) * at as u64)
}

/// The three words of a reference, if it fits: its page lies on a page boundary below 2^32 pages, and its epoch is
/// below 2^48.
fn pack(reference: &Reference, page: PageSize) -> Option<(u64, u64, u64)> {
    let frame = reference.address >> page.shift();
    let fits = frame << page.shift() == reference.address
        && frame <= u64::from(u32::MAX)
        && (1..=page.bytes() as u64).contains(&u64::from(reference.length))
        && (1..1 << 48).contains(&reference.epoch.0);
    let place = frame << 32 | u64::from(reference.handle.0);
    let valid = reference.epoch.0 << 16 | u64::from(reference.length.wrapping_sub(1));
    fits.then_some((place, reference.key.0, valid))
}

fn unpack(place: u64, key: u64, valid: u64, page: PageSize) -> Reference {
    Reference {
        address: (place >> 32) << page.shift(),
        length: (valid & 0xffff) as u32 + 1,
        handle: Handle(place as u32),
        key: AccessKey(key),
        epoch: Epoch(valid >> 16),
    }
}

#[cfg(test)]
#[path = "directory_tests.rs"]
mod tests;

#[cfg(test)]
#[path = "directory_contest.rs"]
mod contest;
