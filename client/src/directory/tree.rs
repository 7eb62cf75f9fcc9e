//! The chunks of a file: a tree of arrays.

use super::CHUNK;
use odafs_fabric::sync::{OnceLock, atomic::AtomicU32};

/// Number of chunks in an array of a tree.
pub const FANOUT: usize = 256;
/// Pages from this one on have no references: 16 TiB of a file at 4 KiB.
pub const PAGES_MAX: u64 = 1 << 32;
/// Number of levels of arrays that reach [`PAGES_MAX`].
const LEVELS: usize = 17;

/// No chunk.
pub const NONE: u32 = 0;
/// No chunk any more: others took its memory.
pub const EVICTED: u32 = u32::MAX;

/// The chunks of one file. A slot holds a chunk's number plus one, [`NONE`], or [`EVICTED`].
#[derive(Debug, Default)]
pub struct Tree {
    levels: [OnceLock<Level>; LEVELS],
}

type Level = Box<[OnceLock<Slots>]>;
type Slots = Box<[AtomicU32]>;

impl Tree {
    /// Level `n` has `2^n` arrays of slots. So a small file has a small tree, and nothing is copied as a file grows.
    fn place(page: u64) -> Option<(usize, usize, usize)> {
        if page >= PAGES_MAX {
            return None;
        }
        let chunk = page as usize / CHUNK;
        let array = chunk / FANOUT + 1;
        let level = array.ilog2() as usize;
        Some((level, array - (1 << level), chunk % FANOUT))
    }

    /// The slot of the chunk with this page, if there is one.
    pub fn slot(&self, page: u64) -> Option<&AtomicU32> {
        let (level, array, slot) = Self::place(page)?;
        self.levels[level].get()?[array].get()?.get(slot)
    }

    /// The same. Makes it if there is none, unless the page is too far behind.
    pub fn make_slot(&self, page: u64) -> Option<&AtomicU32> {
        let (level, array, slot) = Self::place(page)?;
        let arrays =
            self.levels[level].get_or_init(|| (0..1 << level).map(|_| OnceLock::new()).collect());
        let slots =
            arrays[array].get_or_init(|| (0..FANOUT).map(|_| AtomicU32::new(NONE)).collect());
        slots.get(slot)
    }
}
