//! How the data cache and the directory share one budget of memory: a little is moved, now and then, to the one whose
//! next byte would have saved more time.
//!
//! Both tell of misses that a little more memory would have made hits (ghosts). Sans-IO.

/// The split of one budget.
#[derive(Debug)]
pub struct Budget {
    total: u64,
    directory: u64,
    data_saved_ns: f64,
    directory_saved_ns: f64,
    events: u32,
}

/// Ghost hits between two looks at the split.
const PERIOD: u32 = 256;
/// A reference stands for a page of so many times its size.
const REFERENCE_BYTES: f64 = 24.2;

impl Budget {
    /// A budget of `total` bytes; without a data cache the directory has all of it, else an eighth at first.
    pub fn new(total: u64, data_cache: bool) -> Self {
        let directory = if data_cache { total / 8 } else { total };
        Self {
            total,
            directory,
            data_saved_ns: 0.0,
            directory_saved_ns: 0.0,
            events: 0,
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

    /// A page that was evicted from the data cache would have saved `saved_ns`. True when the split has moved.
    pub fn data_ghost(&mut self, saved_ns: f64, page_bytes: u32) -> bool {
        self.data_saved_ns += saved_ns / f64::from(page_bytes.max(1));
        self.look()
    }

    /// A reference that was evicted from the directory would have saved `saved_ns`. True when the split has moved.
    pub fn directory_ghost(&mut self, saved_ns: f64) -> bool {
        self.directory_saved_ns += saved_ns / REFERENCE_BYTES;
        self.look()
    }

    fn look(&mut self) -> bool {
        self.events += 1;
        if self.events < PERIOD {
            return false;
        }
        let step = self.total / 32;
        let before = self.directory;
        if self.directory_saved_ns > self.data_saved_ns * 1.5 {
            self.directory = (self.directory + step).min(self.total - self.total / 8);
        } else if self.data_saved_ns > self.directory_saved_ns * 1.5 {
            self.directory = self.directory.saturating_sub(step).max(self.total / 64);
        }
        (self.data_saved_ns, self.directory_saved_ns, self.events) = (0.0, 0.0, 0);
        self.directory != before
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_goes_where_it_saves_more() {
        let mut budget = Budget::new(64 << 20, true);
        let before = budget.directory_bytes();
        (0..100 * PERIOD).for_each(|_| _ = budget.directory_ghost(10_000.0));
        assert_eq!(budget.directory_bytes(), (64 << 20) - (8 << 20));
        (0..100 * PERIOD).for_each(|_| _ = budget.data_ghost(10_000.0, 4096));
        assert_eq!(budget.directory_bytes(), 1 << 20);
        assert!(before > 1 << 20);
        assert_eq!(
            budget.data_bytes(16 << 20),
            48 << 20,
            "what the directory holds on to counts"
        );
    }

    #[test]
    fn a_byte_of_references_stands_for_many_of_data() {
        let mut budget = Budget::new(64 << 20, true);
        let before = budget.directory_bytes();
        for _ in 0..PERIOD {
            budget.data_ghost(10_000.0, 4096);
            budget.directory_ghost(10_000.0);
        }
        assert!(budget.directory_bytes() > before);
    }
}
