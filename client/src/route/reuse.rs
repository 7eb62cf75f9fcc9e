//! The chance that a page is read again while it would still be kept.
//!
//! The question is also about pages that are not kept, so a small cache of names stands for the data cache. It holds a
//! sample of the pages, picked by their names, and as many names as that share of the frames (the spatial sampling of
//! SHARDS, Waldspurger et al., FAST 2015). A hit there would have been a hit in the data cache.

use crate::cache::Shadow;
use odafs_fabric::sync::Mutex;

/// Number of names to keep. It is large enough that chance changes the answer by a few hundredths only.
const NAMES: usize = 256;
/// At most one page in this many is sampled, because a sampled read takes half as long again as a hit. A small cache has
/// fewer names than [`NAMES`] for this reason, and the chance of a hit is known less well.
const ONE_IN_MIN: usize = 16;
/// Number of reads of sampled pages that an answer needs.
const ENOUGH: u32 = 16;
/// Number of reads after which one has decayed to 1/e.
const HORIZON: f64 = 256.0;

/// A page of a version of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct PageName {
    /// Number of the file.
    pub file: u64,
    /// Generation of the file's pages.
    pub generation: u64,
    /// Index of the page.
    pub page: u64,
}

/// An estimate of future reads from past ones.
#[derive(Debug)]
pub struct Reuse {
    /// One page in this many is sampled.
    one_in: u64,
    picked: Mutex<Picked>,
}

#[derive(Debug)]
struct Picked {
    names: Shadow,
    chance: f64,
    seen: u32,
}

impl Reuse {
    /// For a cache of this many frames.
    pub fn new(frames: usize) -> Self {
        let one_in = (frames / NAMES).max(ONE_IN_MIN);
        Self {
            one_in: one_in as u64,
            picked: Mutex::new(Picked {
                names: Shadow::new(names(frames, one_in as u64)),
                chance: 0.0,
                seen: 0,
            }),
        }
    }

    /// A page is read, whether it is kept or not.
    #[inline]
    pub fn note(&self, name: PageName) {
        let mixed = (name.file.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ name.page)
            .wrapping_mul(0xd6e8_feb8_6659_fd93);
        // Scale the high half, which needs no division on the path of a read.
        if (mixed >> 32) * self.one_in < 1 << 32 {
            self.picked.lock().note(mixed, name.generation);
        }
    }

    /// The cache has this many frames from now on.
    pub fn set_frames(&self, frames: usize) {
        let names = names(frames, self.one_in);
        self.picked.lock().names.set_capacity(names);
    }

    /// The chance that a read would hit if all pages were kept, or `None` while too little is known.
    pub fn chance(&self) -> Option<f64> {
        let picked = self.picked.lock();
        (picked.seen >= ENOUGH).then_some(picked.chance)
    }
}

/// The number of names that stand for this many frames.
fn names(frames: usize, one_in: u64) -> u32 {
    u32::try_from(frames as u64 / one_in).map_or(u32::MAX, |names| names.max(1))
}

impl Picked {
    fn note(&mut self, page: u64, generation: u64) {
        let full = self.names.is_full();
        let name = page ^ (page >> 32) ^ generation.wrapping_mul(0xa076_1d64_78bd_642f);
        let hit = self.names.read(name.wrapping_mul(0xe703_7ed1_a0b4_28db));
        // As long as there was room for all pages, one that was never read before says nothing.
        if hit || full {
            self.seen = self.seen.saturating_add(1);
            let weight = 1.0 / f64::from(self.seen).min(HORIZON);
            self.chance += (f64::from(u8::from(hit)) - self.chance) * weight;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FRAMES: usize = 16384;

    fn chance_of(pages: impl Iterator<Item = u64>) -> Option<f64> {
        let reuse = Reuse::new(FRAMES);
        let name = |page| PageName {
            file: 7,
            generation: 0,
            page,
        };
        pages.for_each(|page| reuse.note(name(page)));
        reuse.chance()
    }

    /// Evenly from this many pages.
    fn uniform(pages: u64) -> impl Iterator<Item = u64> {
        let mut dice = 88_172_645_463_325_252u64;
        (0..400_000).map(move |_| {
            dice ^= dice << 13;
            dice ^= dice >> 7;
            dice ^= dice << 17;
            dice % pages
        })
    }

    #[test]
    fn what_fits_is_found_again() {
        let chance = chance_of(uniform(FRAMES as u64 / 2)).expect("known");
        assert!(chance > 0.99, "{chance}");
    }

    #[test]
    fn a_quarter_of_the_pages_is_a_quarter_of_the_hits() {
        let chance = chance_of(uniform(FRAMES as u64 * 4)).expect("known");
        assert!((0.15..0.35).contains(&chance), "{chance}");
    }

    #[test]
    fn a_scan_finds_nothing_again() {
        assert_eq!(chance_of(0..400_000), Some(0.0));
    }

    #[test]
    fn nothing_is_known_from_a_first_look() {
        assert_eq!(chance_of(0..FRAMES as u64 / 2), None);
    }

    #[test]
    fn a_changed_file_begins_anew() {
        let reuse = Reuse::new(256);
        for generation in 0..10 {
            for page in 0..128 {
                reuse.note(PageName {
                    file: 1,
                    generation,
                    page,
                });
            }
        }
        assert_eq!(reuse.chance(), Some(0.0));
    }
}
