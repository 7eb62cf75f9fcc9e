//! The directory of references: where pages lie in the server's memory, as far as this client was told.
//!
//! 24 bytes a reference, in chunks of 256 neighbouring pages; a file finds its chunks through a tree of arrays, so that
//! a lookup is one load that may miss the processor's caches and a few that hardly do. Access keys, which one-sided
//! reads have no use for, lie apart. A chunk whose pages lie in the server's memory as they do in the file, all referenced
//! at one epoch and numbered alike, says so in its run: two words for 1 MiB, so that a one-sided read of a large file misses
//! no cache for its directory, and a guarded one only that for its key. Chunks are never freed, only handed on to other
//! pages, and nothing is locked to read them:
//!
//! - An entry's `valid` word (epoch and length) is stored last, and loaded both first and last: a reader that loaded
//!   anything of another reference finds it changed. So with a run and its epoch.
//! - A chunk that goes to other pages is first taken out of its tree, then cleared. A reader that loaded anything of
//!   the new owner's therefore finds the tree changed when it looks again.
//! - References are good for one session. [`Directory::begin`] moves the session's number before it clears, and a
//!   reader looks at the number last.
//!
//! When its share of memory is used up, chunks without a reference left go first (what is stale is forgotten, and they are
//! free at once), then those of closed files as the hand meets them, then SIEVE over the rest (Zhang et al., NSDI 2024): in
//! the order of their coming, but for those that were looked into since the hand came by. A chunk takes many reads to fill, and
//! what fills and goes and fills again is of no use: orders that let the oldest go (CLOCK, which servers' page caches resemble,
//! and LRU) keep a tenth of what SIEVE keeps where more is read than fits (docs/BENCHMARKS.md).

mod crowded;
mod sieve;

use self::{
    crowded::Crowded,
    sieve::{Owner, Sieve},
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

/// Pages of one chunk.
const CHUNK: usize = 256;
/// Chunks of one allocation; of the first ones fewer, so that a client with few references is small.
const SEGMENT: usize = 16;
/// Allocations before those of a whole segment: of 1, 1, 2, 4 and 8 chunks.
const SMALL_SEGMENTS: usize = SEGMENT.ilog2() as usize + 1;
/// Chunks of one array of a tree.
const FANOUT: usize = 256;
/// Pages from here on are not kept: 16 TiB of a file at 4 KiB.
const PAGES_MAX: u64 = 1 << 32;
/// Levels of arrays that reach [`PAGES_MAX`].
const LEVELS: usize = 17;

/// Bytes of a chunk, with what is kept beside it.
pub const CHUNK_BYTES: usize = size_of::<Chunk>() + size_of::<Owner>() + 4;

/// The references of all files of one client.
#[derive(Debug)]
pub struct Directory {
    segments: Box<[OnceLock<Box<[Chunk]>>]>,
    session: AtomicU64,
    crowded: Crowded,
    keeper: Mutex<Keeper>,
}

/// Where one file's chunks are. A slot holds a chunk's number plus one, [`NONE`], or [`EVICTED`].
#[derive(Debug, Default)]
pub struct Tree {
    levels: [OnceLock<Level>; LEVELS],
}

type Level = Box<[OnceLock<Slots>]>;
type Slots = Box<[AtomicU32]>;

const NONE: u32 = 0;
const EVICTED: u32 = u32::MAX;

/// What a lookup found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Lookup {
    /// A reference.
    Found(Reference),
    /// None, and there was none of late.
    Missing,
    /// None, but there may have been one, had there been more memory for the directory.
    Evicted,
}

#[derive(Debug)]
struct Chunk {
    entries: [Entry; CHUNK],
    keys: [AtomicU64; CHUNK],
    /// `valid` of all references of the chunk, if they are a run: whole pages in neighbouring frames, with neighbouring
    /// handles; else 0.
    run_valid: AtomicU64,
    /// `place` of the first page of the run.
    run_place: AtomicU64,
    touched: AtomicBool,
    /// How often it has changed hands: who was elsewhere meanwhile, and is back, looks like one who was never gone.
    owned: AtomicU32,
}

/// Where a page lies: what a one-sided read wants of a reference.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Location {
    /// Arena offset of the page.
    pub address: u64,
    /// Valid bytes.
    pub length: u32,
    /// Epoch of the reference.
    pub epoch: Epoch,
}

/// All that a one-sided read wants, in one cache line.
#[derive(Debug)]
#[repr(align(16))]
struct Entry {
    /// Frame number (32 bits) and handle (32 bits).
    place: AtomicU64,
    /// Epoch (48 bits) and length less one (16 bits); 0 for no reference.
    valid: AtomicU64,
}

#[derive(Debug)]
struct Keeper {
    page: PageSize,
    limit: usize,
    owners: Vec<Owner>,
    free: Vec<u32>,
    order: Sieve,
    held: u64,
}

/// References that there is no room for any more when there is some for these pages: each chunk that they touch is taken
/// as a whole.
pub fn room_of(pages: &Range<u64>) -> u64 {
    match pages.end.checked_sub(1).filter(|last| *last >= pages.start) {
        Some(last) => (last / CHUNK as u64 - pages.start / CHUNK as u64 + 1) * CHUNK as u64,
        None => 0,
    }
}

impl Directory {
    /// A directory that can grow to `bytes_max`, and may grow to as much at first.
    pub fn new(bytes_max: u64) -> Self {
        let chunks = usize::try_from(bytes_max).unwrap_or(usize::MAX) / CHUNK_BYTES;
        let segments = chunks.div_ceil(SEGMENT).clamp(1, 1 << 20) - 1 + SMALL_SEGMENTS;
        Self {
            segments: (0..segments).map(|_| OnceLock::new()).collect(),
            session: AtomicU64::new(0),
            crowded: Crowded::default(),
            keeper: Mutex::new(Keeper {
                page: PageSize::DEFAULT,
                limit: chunks.min(chunks_in(segments)),
                owners: Vec::new(),
                free: Vec::new(),
                order: Sieve::default(),
                held: 0,
            }),
        }
    }

    /// Drops everything; what comes now belongs to this session, whose export has pages of this size.
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

    /// The reference of a page, for a reader that works in `session`.
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

    /// Where a page lies by its reference, for a one-sided reader that works in `session`.
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

    /// There is no reference of this page, but there may have been one, had there been more memory.
    pub fn is_evicted(&self, tree: &Tree, page: u64) -> bool {
        tree.slot(page)
            .is_some_and(|slot| slot.load(Relaxed) == EVICTED)
    }

    /// Is a call for this page to ask for references?
    pub fn wants(&self, tree: &Tree, page: u64) -> bool {
        !self.is_evicted(tree, page) || self.crowded.asks()
    }

    /// Takes references in, each with the index of its page; those of another session, and those older than what is
    /// there, are left out. Returns how many were taken.
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

    /// Notes that the chunk of this page is a run, if it is.
    fn join(&self, keeper: &Keeper, tree: &Tree, page: u64) {
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
        keeper: &mut Keeper,
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
            keeper.owners[number] = Owner::new(Arc::downgrade(tree), chunk);
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

    /// Drops the reference of a page, if it is still the one of this epoch.
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

    /// References that there is room for.
    pub fn room(&self) -> u64 {
        (self.keeper.lock().limit * CHUNK) as u64
    }

    /// References held.
    pub fn held(&self) -> u64 {
        self.keeper.lock().held
    }

    /// Bytes in use, trees of files apart.
    pub fn bytes(&self) -> u64 {
        let keeper = self.keeper.lock();
        ((keeper.owners.len() - keeper.free.len()) * CHUNK_BYTES) as u64
    }

    /// Bytes that stay allocated whatever the limit.
    pub fn bytes_allocated(&self) -> u64 {
        (self.keeper.lock().owners.len() * CHUNK_BYTES) as u64
    }

    /// Grows or shrinks what it may use; never above what it was made for.
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

    /// A chunk that nobody owns: a free one, a new one, or another's.
    fn obtain(&self, keeper: &mut Keeper) -> Option<usize> {
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
        keeper.owners.push(Owner::default());
        Some(number)
    }

    /// SIEVE: the next chunk that was not looked into since the hand came by, or whose file is closed. Twice round at
    /// most: the first time may find that all were.
    fn victim(&self, keeper: &mut Keeper) -> Option<usize> {
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
    fn release(&self, keeper: &mut Keeper, number: usize, mark: u32) {
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

/// The segment of a chunk, and its place there.
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

/// Chunks in the first `segments` of them.
fn chunks_in(segments: usize) -> usize {
    match segments {
        0 => 0,
        1..=SMALL_SEGMENTS => 1 << (segments - 1),
        _ => (segments - SMALL_SEGMENTS + 1) * SEGMENT,
    }
}

impl Tree {
    /// Level `n` has `2^n` arrays of slots: a small file has a small tree, and no file is copied as it grows.
    fn place(page: u64) -> Option<(usize, usize, usize)> {
        if page >= PAGES_MAX {
            return None;
        }
        let chunk = page as usize / CHUNK;
        let array = chunk / FANOUT + 1;
        let level = array.ilog2() as usize;
        Some((level, array - (1 << level), chunk % FANOUT))
    }

    fn slot(&self, page: u64) -> Option<&AtomicU32> {
        let (level, array, slot) = Self::place(page)?;
        self.levels[level].get()?[array].get()?.get(slot)
    }

    fn make_slot(&self, page: u64) -> Option<&AtomicU32> {
        let (level, array, slot) = Self::place(page)?;
        let arrays =
            self.levels[level].get_or_init(|| (0..1 << level).map(|_| OnceLock::new()).collect());
        let slots =
            arrays[array].get_or_init(|| (0..FANOUT).map(|_| AtomicU32::new(NONE)).collect());
        slots.get(slot)
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

    /// It was of use. The word is written once, until a hand comes by.
    #[inline]
    fn touch(&self) {
        if !self.touched.load(Relaxed) {
            self.touched.store(true, Relaxed);
        }
    }

    /// `place` and `valid` of one reference, and the word that is still `valid` if both were of one piece, and whatever
    /// else of the reference is loaded before that word is looked at again.
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

/// `place` of a run's page, from that of its first.
#[inline]
fn place_in_run(first: u64, at: usize) -> u64 {
    first.wrapping_add((1 << 32 | 1) * at as u64)
}

/// Three words, if the reference fits: its page lies on a page boundary below 2^32 pages, its epoch is below 2^48.
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
