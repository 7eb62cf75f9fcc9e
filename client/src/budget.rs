//! How the data cache and the directory share one budget of memory. Now and then a little of it moves to the one whose
//! next byte would have saved more time.
//!
//! Both report misses that more memory would have made hits (ghosts): an eighth more for the data cache, about twice as
//! much for the directory. A twentieth belongs to the directory in any case; the references of a file take a hundred
//! and seventieth of its size. The directory gives up what it has beyond that if data would have saved more than its
//! references do save, byte for byte. References that all fit have no ghosts, but still have a value. This does no IO.

/// The split of one budget.
#[derive(Debug)]
pub struct Budget {
    total: u64,
    directory: u64,
    data_saved_ns: f64,
    directory_saved_ns: f64,
    ghosts: u32,
    /// Number of successful lookups at the last look at the split.
    hits_seen: u64,
}

/// How the directory uses its memory.
#[derive(Debug, Clone, Copy)]
pub struct Held {
    /// Number of lookups that have found a reference so far.
    pub hits: u64,
    /// How much each of them saves, in nanoseconds.
    pub saved_ns: f64,
    /// Bytes in use.
    pub bytes: u64,
}

/// Number of ghost hits between two looks at the split.
const PERIOD: u32 = 256;
/// Ghosts of data are those of this much more memory, as a part of what the data cache has.
const DATA_GHOSTS: u64 = 8;
/// How much more the other must save before memory moves.
const MORE: f64 = 1.5;
/// The directory has at least this part of the budget.
const LEAST: u64 = 20;
/// The data cache has at least this part of the budget.
const DATA_LEAST: u64 = 8;
/// The part of the budget that moves at once.
const STEP: u64 = 32;

impl Budget {
    /// A budget of `total` bytes. Without a data cache, the directory has all of it.
    pub fn new(total: u64, data_cache: bool) -> Self {
        Self {
            total,
            directory: if data_cache { total / LEAST } else { total },
            data_saved_ns: 0.0,
            directory_saved_ns: 0.0,
            ghosts: 0,
            hits_seen: 0,
        }
    }

    /// Bytes for the directory.
    pub fn directory_bytes(&self) -> u64 {
        self.directory
    }

    /// Bytes for the data cache, given what the directory has allocated and cannot give back.
    pub fn data_bytes(&self, directory_allocated: u64) -> u64 {
        self.total
            .saturating_sub(self.directory.max(directory_allocated))
    }

    /// A page that was evicted from the data cache would have saved `saved_ns`. Returns true if the split has moved.
    pub fn data_ghost(&mut self, saved_ns: f64, held: impl FnOnce() -> Held) -> bool {
        self.data_saved_ns += saved_ns;
        self.look(held)
    }

    /// A reference that was evicted from the directory would have saved `saved_ns`. Returns true if the split has
    /// moved.
    pub fn directory_ghost(&mut self, saved_ns: f64, held: impl FnOnce() -> Held) -> bool {
        self.directory_saved_ns += saved_ns;
        self.look(held)
    }

    fn look(&mut self, held: impl FnOnce() -> Held) -> bool {
        self.ghosts += 1;
        if self.ghosts < PERIOD {
            return false;
        }
        let held = held();
        let hits = held.hits.saturating_sub(self.hits_seen);
        let a_byte = |saved_ns: f64, bytes: u64| saved_ns / bytes.max(1) as f64;
        let holds_ns = a_byte(hits as f64 * held.saved_ns, held.bytes);
        let directory_ns = a_byte(self.directory_saved_ns, self.directory);
        let data_ns = a_byte(self.data_saved_ns, self.data_bytes(0) / DATA_GHOSTS);
        let step = self.total / STEP;
        let before = self.directory;
        if directory_ns > data_ns * MORE {
            self.directory = (self.directory + step).min(self.total - self.total / DATA_LEAST);
        } else if data_ns > directory_ns * MORE {
            let lower = self.directory.saturating_sub(step).max(self.total / LEAST);
            // The directory gives away unused memory for nothing.
            if lower >= held.bytes || data_ns > holds_ns * MORE {
                self.directory = lower;
            }
        }
        (self.data_saved_ns, self.directory_saved_ns) = (0.0, 0.0);
        (self.ghosts, self.hits_seen) = (0, held.hits);
        self.directory != before
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TOTAL: u64 = 64 << 20;
    const NOTHING: Held = Held {
        hits: 0,
        saved_ns: 0.0,
        bytes: 0,
    };

    #[test]
    fn memory_goes_where_it_saves_more() {
        let mut budget = Budget::new(TOTAL, true);
        let before = budget.directory_bytes();
        (0..100 * PERIOD).for_each(|_| _ = budget.directory_ghost(10_000.0, || NOTHING));
        assert_eq!(budget.directory_bytes(), TOTAL - TOTAL / DATA_LEAST);
        (0..100 * PERIOD).for_each(|_| _ = budget.data_ghost(10_000.0, || NOTHING));
        assert_eq!(budget.directory_bytes(), TOTAL / LEAST);
        assert_eq!(before, TOTAL / LEAST);
        assert_eq!(
            budget.data_bytes(16 << 20),
            48 << 20,
            "what the directory holds on to counts"
        );
    }

    #[test]
    fn a_byte_of_references_stands_for_many_of_data() {
        let mut budget = Budget::new(TOTAL, true);
        let before = budget.directory_bytes();
        for _ in 0..PERIOD {
            budget.data_ghost(10_000.0, || NOTHING);
            budget.directory_ghost(10_000.0, || NOTHING);
        }
        assert!(budget.directory_bytes() > before);
    }

    /// All references fit, so they have no ghosts, and ghosts of data keep coming.
    #[test]
    fn references_that_are_used_are_not_given_away() {
        let mut budget = Budget::new(TOTAL, true);
        (0..10 * PERIOD).for_each(|_| _ = budget.directory_ghost(10_000.0, || NOTHING));
        let grown = budget.directory_bytes();
        let mut hits = 0;
        for _ in 0..100 * PERIOD {
            hits += 4;
            budget.data_ghost(1_000.0, || Held {
                hits,
                saved_ns: 1_000.0,
                bytes: grown,
            });
        }
        assert_eq!(budget.directory_bytes(), grown);
        for _ in 0..100 * PERIOD {
            budget.data_ghost(1_000.0, || Held {
                hits,
                saved_ns: 1_000.0,
                bytes: grown,
            });
        }
        assert_eq!(
            budget.directory_bytes(),
            TOTAL / LEAST,
            "nobody uses them any more"
        );
    }
}
