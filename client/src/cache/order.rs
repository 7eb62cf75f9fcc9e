//! The order of eviction: S3-FIFO (Yang et al., SOSP 2023), which here does not count uses of new pages.
//!
//! ```text
//!            new -> small --- not used --> gone, remembered for a while
//!                     |  used twice                 |  read again
//!                     v                             v
//!                    main <-------------------------+
//!                     |  used: once more round, one use less
//!                     +-- not used --> gone
//! ```
//!
//! Pages that are read once pass through a tenth of the memory and leave the rest alone. A page that is read again soon
//! after its eviction enters the main queue if that has room, or has a page that was not used since the last look at
//! it. A hit only counts a use, up to [`USES_MAX`], and only of a page that is no longer new ([`newness`]): several
//! small reads in one page are one use of it. The test `contest` compares the order with others, and docs/FIGURES.md
//! has its results.

use odafs_fabric::memory::prefetch;

/// The most uses of a page that are counted. In the small queue, this many take a page to the main one.
pub const USES_MAX: u64 = 2;
/// The small queue has one part in this many of the memory.
const SMALL: u32 = 10;
/// How many evicted pages are remembered, in tenths of the number of pages in memory.
const REMEMBERED: u32 = 9;
/// A page is new until this part of the memory's pages came after it.
const NEW: u32 = 64;
/// The part of the memory by which it would have to grow to keep a page. The return of such a page is reported.
const LATE: u32 = 8;
/// How many used pages of the main queue a returning page may pass before it counts as new.
const CHALLENGED: u32 = 3;
/// The most used pages that one eviction passes over, because it holds a lock.
const PASSED_MAX: u32 = 256;

/// What an order keeps: numbered places for pages.
pub trait Places {
    /// The counted uses of the page in a place.
    fn uses(&self, place: u32) -> u64;
    /// Sets the counted uses.
    fn set_uses(&self, place: u32, uses: u64);
    /// The hash of the page in a place.
    fn hash(&self, place: u32) -> u64;
}

/// The pages of a cache in the order of their eviction.
#[derive(Debug, Default)]
pub struct Order {
    links: Vec<Link>,
    small: Queue,
    main: Queue,
    gone: Gone,
}

/// The neighbours of a place in its queue, plus one. 0 for none.
#[derive(Debug, Default, Clone, Copy)]
struct Link {
    before: u32,
    behind: u32,
    in_main: bool,
}

/// The ends of a queue, plus one. Pages enter last and leave first.
#[derive(Debug, Default)]
struct Queue {
    first: u32,
    last: u32,
    length: u32,
}

/// In a cache for this many pages, a page is new until this many others came.
pub fn newness(capacity: u32) -> u64 {
    u64::from(capacity / NEW)
}

impl Order {
    /// A page came into an empty place, in a cache for this many. Returns true if it was evicted lately, so that an
    /// eighth more memory would have kept it.
    pub fn insert(&mut self, place: u32, hash: u64, places: &impl Places, capacity: u32) -> bool {
        let age = self.gone.take(hash);
        let returns = age.is_some_and(|age| age < capacity / 10 * REMEMBERED + 1);
        let in_main = returns && self.main_gives_way(places, capacity);
        self.push(place, in_main);
        age.is_some_and(|age| age <= capacity / LATE)
    }

    /// Whether the main queue has a page that gives way to a returning one. Pages that were used since the last look at
    /// them do not, but lose a use. Otherwise the pages of a loop slightly longer than the memory would all evict each
    /// other.
    fn main_gives_way(&mut self, places: &impl Places, capacity: u32) -> bool {
        if self.main.length < capacity - capacity / SMALL {
            return true;
        }
        for _ in 0..CHALLENGED {
            let Some(place) = self.main.first.checked_sub(1) else {
                return true;
            };
            let uses = places.uses(place);
            if uses == 0 {
                return true;
            }
            self.remove(place);
            places.set_uses(place, uses - 1);
            self.push(place, true);
        }
        false
    }

    /// A page is removed from its place.
    pub fn remove(&mut self, place: u32) {
        let Link {
            before,
            behind,
            in_main,
        } = self.links[place as usize];
        let queue = if in_main {
            &mut self.main
        } else {
            &mut self.small
        };
        match before {
            0 => queue.first = behind,
            _ => self.links[before as usize - 1].behind = behind,
        }
        match behind {
            0 => queue.last = before,
            _ => self.links[behind as usize - 1].before = before,
        }
        queue.length -= 1;
    }

    /// Chooses the next page to evict, in a cache for this many, and removes it. The page is remembered if it was never
    /// used.
    pub fn evict(&mut self, places: &impl Places, capacity: u32) -> Option<u32> {
        for passed in 0.. {
            let from_small = self.evicts_from_small(capacity);
            let queue = if from_small { &self.small } else { &self.main };
            let place = queue.first.checked_sub(1)?;
            self.remove(place);
            let uses = places.uses(place);
            let stays = passed < PASSED_MAX;
            match from_small {
                true if uses >= USES_MAX && stays => {
                    places.set_uses(place, 0);
                    self.push(place, true);
                }
                false if uses > 0 && stays => {
                    places.set_uses(place, uses - 1);
                    self.push(place, true);
                }
                _ => {
                    if from_small {
                        self.gone.note(places.hash(place), capacity);
                    }
                    return Some(place);
                }
            }
        }
        None
    }

    /// The two pages that the next eviction looks at first, in a cache for this many.
    pub fn next(&self, capacity: u32) -> [Option<u32>; 2] {
        let queue = match self.evicts_from_small(capacity) {
            true => &self.small,
            false => &self.main,
        };
        let first = queue.first.checked_sub(1);
        [
            first,
            first.and_then(|place| self.links[place as usize].behind.checked_sub(1)),
        ]
    }

    /// Prefetches what is remembered of a page that may be evicted or added.
    pub fn prefetch(&self, hash: u64) {
        if let Some(set) = self.gone.sets.get(self.gone.at(hash)) {
            prefetch(set);
        }
    }

    fn evicts_from_small(&self, capacity: u32) -> bool {
        self.small.length >= (capacity / SMALL).max(1) || self.main.length == 0
    }

    fn push(&mut self, place: u32, in_main: bool) {
        let at = place as usize;
        if self.links.len() <= at {
            self.links.resize(at + 1, Link::default());
        }
        let queue = if in_main {
            &mut self.main
        } else {
            &mut self.small
        };
        self.links[at] = Link {
            before: queue.last,
            behind: 0,
            in_main,
        };
        match queue.last {
            0 => queue.first = place + 1,
            last => self.links[last as usize - 1].behind = place + 1,
        }
        queue.last = place + 1;
        queue.length += 1;
    }
}

/// Evicted pages, by tag and time of eviction: sets of four, whose oldest page gives way.
#[derive(Debug, Default)]
struct Gone {
    sets: Vec<[(u32, u32); 4]>,
    now: u32,
}

impl Gone {
    fn note(&mut self, hash: u64, capacity: u32) {
        let sets = capacity as usize / 4 + 1;
        if self.sets.len() < sets {
            // Forgets all evicted pages. This happens once in the life of a cache and when its limit grows.
            self.sets = vec![[(0, 0); 4]; sets];
        }
        self.now = self.now.wrapping_add(1);
        let now = self.now;
        if let Some(oldest) = self
            .set(hash)
            .iter_mut()
            .max_by_key(|(_, then)| now.wrapping_sub(*then))
        {
            *oldest = (hash as u32, now);
        }
    }

    /// How many others were evicted since this page was, if that is known. The page is forgotten.
    fn take(&mut self, hash: u64) -> Option<u32> {
        let now = self.now;
        let mut set = self.set(hash).iter_mut();
        let (tag, then) = set.find(|(tag, _)| *tag == hash as u32 && *tag != 0)?;
        *tag = 0;
        Some(now.wrapping_sub(*then))
    }

    fn set(&mut self, hash: u64) -> &mut [(u32, u32)] {
        let at = self.at(hash);
        self.sets.get_mut(at).map_or(&mut [], |set| set)
    }

    fn at(&self, hash: u64) -> usize {
        (((hash >> 32) * self.sets.len() as u64) >> 32) as usize
    }
}
