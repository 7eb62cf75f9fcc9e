//! The data cache: pages kept in this process, in its own frames.
//!
//! A file is kept in blocks of 4 KiB, whatever the size of the server's pages. A hit takes no lock. The index names the
//! frame, and the frame's label says which block it holds. The frame's stamp moves before the frame gets other content,
//! so checking it after the copy shows that all bytes were of that block. A hit is a one-sided read of this process's
//! own memory.
//!
//! A block belongs to a generation of its file, which moves whenever the client finds the file changed. Blocks of older
//! generations are never hits, and are evicted first. To keep a page, a thread must check, with the lock held, that the
//! file has not changed since before the page was read. A thread that changes the file must say so before it removes
//! blocks.

mod index;
mod keeper;
mod order;
mod shadow;

pub use self::shadow::Shadow;
use self::{
    keeper::{Core, Found, FrameKeeper},
    order::{USES_MAX, newness},
};
use odafs_common::page::PageSize;
use odafs_fabric::clock;
use odafs_fabric::sync::{
    Mutex, OnceLock,
    atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering::Relaxed},
};

/// A range of a file to read, or a page to keep.
#[derive(Debug, Clone, Copy)]
pub struct Stretch {
    /// Number of the file.
    pub file: u64,
    /// Generation of the file's pages.
    pub generation: u64,
    /// First byte, as an offset in the file.
    pub offset: u64,
}

/// A block of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Block {
    file: u64,
    number: u64,
}

/// Number of frames with memory before and after some were lent.
struct Lent {
    before: u32,
    after: u32,
}

/// Size of a block in bytes.
const BLOCK: usize = PageSize::MIN.bytes();
/// Number of blocks of the largest page.
const BLOCKS_MAX: usize = PageSize::MAX.bytes() / BLOCK;
/// Blocks from this one on are not kept.
const NUMBER_MAX: u64 = 1 << 51;
/// The most frames of a cache: 8 TiB.
const FRAMES_MAX: u32 = (1 << 31) - 1;

/// Pages of files, for any number of threads.
pub struct DataCache {
    /// The memory, which is created with the first page, so that a client that keeps nothing has none. `None` if there
    /// is no memory.
    core: OnceLock<Option<Core>>,
    keeper: Mutex<FrameKeeper>,
    frames_max: u32,
    /// A block is new until this many others came.
    newness: AtomicU64,
    new_memory: NewMemory,
}

/// The time to give memory to frames. The first store to each makes the kernel find a page and clear it.
#[derive(Default)]
struct NewMemory {
    /// Whether another page finds no frame until more memory is allowed.
    starved: AtomicBool,
    /// Number of frames that got memory since the last question, and the nanoseconds that filling them took.
    frames: AtomicU32,
    ns: AtomicU64,
}

/// What happened to a page that was to be kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Put {
    /// The page is not kept: it is no longer the file's, or there is no frame for it.
    Not,
    /// The page is kept, and the cache has grown for it.
    InNewMemory,
    /// The page is kept in place of another.
    InPlace {
        /// Whether a little more memory would have kept the page since the last time.
        returns: bool,
    },
}

impl DataCache {
    /// An empty cache that may grow to `limit` bytes, and by [`DataCache::set_limit`] to `bytes_max`.
    pub fn new(bytes_max: u64, limit: u64) -> Self {
        let frames_now = frames(limit.min(bytes_max));
        Self {
            core: OnceLock::new(),
            keeper: Mutex::new(FrameKeeper::new(frames_now)),
            frames_max: frames(bytes_max),
            newness: AtomicU64::new(newness(frames_now)),
            new_memory: NewMemory::default(),
        }
    }

    /// Copies the kept bytes of the file from an offset on, up to its end. Returns `None` if some of them are not kept
    /// in this generation.
    ///
    /// The range must not be longer than the largest page. If it is a block and `far`, the block is prefetched before it is
    /// known to be the one.
    #[inline]
    pub fn get(&self, from: Stretch, far: bool, into: &mut [u8]) -> Option<usize> {
        let core = self.core.get()?.as_ref()?;
        debug_assert!(into.len() <= PageSize::MAX.bytes(), "more than a page");
        let within = from.offset as usize % BLOCK;
        if within + into.len() > BLOCK {
            return self.get_blocks(core, from, into);
        }
        let found = self.find(core, from, far && into.len() == BLOCK)?;
        let bytes = into.len().min(found.length.saturating_sub(within));
        core.frames.load(found.frame, within, &mut into[..bytes]);
        if !core.frames.is_still(found.frame, found.epoch) {
            return None;
        }
        self.note_use(core, &found);
        Some(bytes)
    }

    /// As above, for more than one block. All stamps are checked again after the last copy, so that all blocks were
    /// valid at the same time.
    fn get_blocks(&self, core: &Core, mut from: Stretch, into: &mut [u8]) -> Option<usize> {
        let mut seen = [const { None }; BLOCKS_MAX];
        let mut rest = &mut *into;
        for seen in &mut seen {
            let within = from.offset as usize % BLOCK;
            let found = self.find(core, from, false)?;
            let bytes = rest.len().min(found.length.saturating_sub(within));
            let part = rest.split_off_mut(..bytes)?;
            core.frames.load(found.frame, within, part);
            from.offset += bytes as u64;
            let over = rest.is_empty() || found.length < BLOCK;
            *seen = Some(found);
            if over {
                break;
            }
        }
        for found in seen.iter().flatten() {
            if !core.frames.is_still(found.frame, found.epoch) {
                return None;
            }
            self.note_use(core, found);
        }
        let left = rest.len();
        Some(into.len() - left)
    }

    /// Prefetches a block, if it is kept, for a reader that needs it next.
    #[inline]
    pub fn fetch_ahead(&self, at: Stretch) {
        if let Some(Some(core)) = self.core.get() {
            core.prefetch(Block::at(at.file, at.offset));
        }
    }

    /// A hit counts, unless the block is new.
    #[inline]
    fn note_use(&self, core: &Core, found: &Found) {
        let uses = core.frames.uses(found.frame);
        if uses < USES_MAX && core.frames.age(found.epoch) >= self.newness.load(Relaxed) {
            core.frames.set_uses(found.frame, uses + 1);
        }
    }

    #[inline]
    fn find(&self, core: &Core, at: Stretch, far: bool) -> Option<Found> {
        let block = Block::at(at.file, at.offset);
        let found = match far {
            true => core.find_far(block)?,
            false => core.find(block)?,
        };
        if found.generation != at.generation {
            self.outlived(core, block, at.generation);
            return None;
        }
        Some(found)
    }

    /// Drops a block of an older generation.
    #[cold]
    fn outlived(&self, core: &Core, block: Block, generation: u64) {
        let mut keeper = self.keeper.lock();
        if core
            .find(block)
            .is_some_and(|found| found.generation < generation)
        {
            keeper.remove(core, block);
        }
    }

    /// Keeps `data`, the valid bytes of a page, if there is room and if `still` says that they are the file's. `still`
    /// is called while nobody else can remove pages.
    pub fn put(
        &self,
        page: Stretch,
        size: PageSize,
        data: &[u8],
        still: impl FnOnce() -> bool,
    ) -> Put {
        let Some(core) = self.core.get_or_init(|| self.core()) else {
            return Put::Not;
        };
        let first = Block::at(page.file, page.offset);
        // The last block of a page that is not full is not full either, and may be empty.
        let count = data.len() / BLOCK + usize::from(data.len() < size.bytes());
        let blocks = (0..count).map(|n| &data[n * BLOCK..data.len().min((n + 1) * BLOCK)]);
        let mut lent = [0; BLOCKS_MAX];
        let lent = &mut lent[..count];
        if first.number >= NUMBER_MAX {
            return Put::Not;
        }
        let Some(Lent { before, after }) = self.lend(core, lent) else {
            return Put::Not;
        };
        let grows = (after > before).then(clock::now);
        if grows.is_some() {
            core.frames.settle(before, after);
        }
        for (frame, block) in lent.iter().zip(blocks.clone()) {
            core.frames.fill(*frame, block);
        }
        if let Some(began) = grows {
            let ns = clock::now().since(began).0;
            self.new_memory.frames.fetch_add(after - before, Relaxed);
            self.new_memory.ns.fetch_add(ns, Relaxed);
        }
        let mut keeper = self.keeper.lock();
        if keeper.is_beyond_limit() || !still() {
            lent.iter().for_each(|frame| keeper.take_back(core, *frame));
            return Put::Not;
        }
        for number in first.number..first.number + (size.bytes() / BLOCK) as u64 {
            keeper.remove(core, Block { number, ..first });
        }
        let mut returns = false;
        for ((number, frame), data) in (first.number..).zip(lent).zip(blocks) {
            let block = Block { number, ..first };
            returns |= keeper.publish(core, *frame, block, page.generation, data.len());
        }
        keeper.prefetch(core);
        match grows {
            Some(_) => Put::InNewMemory,
            None => Put::InPlace { returns },
        }
    }

    /// Whether a page that came now would be kept. If not, more memory must be allowed first.
    #[inline]
    pub fn has_room(&self) -> bool {
        !self.new_memory.starved.load(Relaxed)
    }

    /// Number of frames that got memory since the last question, and the nanoseconds that filling them took.
    pub fn take_growth(&self) -> (u32, u64) {
        match self.new_memory.frames.load(Relaxed) {
            0 => (0, 0),
            _ => (
                self.new_memory.frames.swap(0, Relaxed),
                self.new_memory.ns.swap(0, Relaxed),
            ),
        }
    }

    /// Allows memory for this many more frames. A cache for which this is never called takes what it needs, up to its
    /// limit.
    pub fn allow_growth(&self, frames: u32) {
        let mut keeper = self.keeper.lock();
        keeper.allow(Some(frames));
        let starved = keeper.is_starved(keeper.refused().max(1));
        self.new_memory.starved.store(starved, Relaxed);
    }

    /// Borrows frames to fill. Returns `None`, and borrows none, if there are too few.
    fn lend(&self, core: &Core, frames: &mut [u32]) -> Option<Lent> {
        let mut keeper = self.keeper.lock();
        let before = keeper.with_memory();
        if keeper.is_starved(frames.len()) {
            keeper.refuse(frames.len());
            self.new_memory.starved.store(true, Relaxed);
            return None;
        }
        for at in 0..frames.len() {
            let Some(frame) = keeper.lend(core) else {
                frames[..at]
                    .iter()
                    .for_each(|frame| keeper.take_back(core, *frame));
                return None;
            };
            frames[at] = frame;
        }
        let after = keeper.with_memory();
        Some(Lent { before, after })
    }

    /// Drops the kept blocks of the pages from `first` to `last`.
    pub fn remove(&self, file: u64, size: PageSize, first: u64, last: u64) {
        let Some(Some(core)) = self.core.get() else {
            return;
        };
        let mut keeper = self.keeper.lock();
        let each = (size.bytes() / BLOCK) as u64;
        for number in first * each..(last + 1) * each {
            keeper.remove(core, Block { file, number });
        }
    }

    /// Sets the limit of the memory.
    pub fn set_limit(&self, bytes: u64) {
        let mut keeper = self.keeper.lock();
        let limit = frames(bytes).min(self.frames_max);
        self.newness.store(newness(limit), Relaxed);
        keeper.set_limit(limit);
        if let Some(Some(core)) = self.core.get() {
            keeper.trim(core);
        }
    }

    /// Bytes in use.
    pub fn bytes(&self) -> u64 {
        u64::from(self.keeper.lock().held()) * Core::BYTES as u64
    }

    #[cold]
    fn core(&self) -> Option<Core> {
        let made = Core::new(self.frames_max);
        if let Err(error) = &made {
            tracing::warn!(%error, "no pages are kept: there is no memory for the data cache");
        }
        made.ok()
    }
}

/// Number of frames for which this many bytes suffice.
fn frames(bytes: u64) -> u32 {
    u32::try_from(bytes / Core::BYTES as u64)
        .unwrap_or(u32::MAX)
        .min(FRAMES_MAX)
}

impl Block {
    fn at(file: u64, offset: u64) -> Self {
        Self {
            file,
            number: offset / BLOCK as u64,
        }
    }

    /// Neighbours differ much in the upper half, and in the lower one too.
    #[inline]
    fn hash(self) -> u64 {
        let file = self.file.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ 0xa076_1d64_78bd_642f;
        let product = u128::from(file | 1) * u128::from(self.number ^ 0xe703_7ed1_a0b4_28db);
        (product >> 64) as u64 ^ product as u64
    }
}

#[cfg(test)]
mod contest;
#[cfg(all(test, not(shuttle)))]
mod growing;
#[cfg(all(test, not(shuttle)))]
mod many;
#[cfg(all(test, not(shuttle)))]
mod speed;
#[cfg(test)]
mod tests;
