//! Memory that a thread reuses from batch to batch, so that a batch of reads without a call allocates nothing.

use crate::part::{FileReading, Part};
use std::{cell::Cell, ops::Range};

/// The memory for the parts of a batch. Each thread keeps one, for as many parts as a batch has.
#[derive(Default)]
pub struct BatchMemory {
    /// An empty vector of parts.
    pub parts: Vec<Part<'static>>,
    /// An empty vector of ranges.
    pub ranges: Vec<Range<usize>>,
    /// An empty vector of files.
    pub files: Vec<FileReading<'static>>,
}

thread_local! {
    static BATCH: Cell<BatchMemory> = Cell::default();
}

impl BatchMemory {
    /// The memory of this thread. A batch within a batch gets a new one.
    pub fn take() -> Self {
        // A thread that is ending has none any more.
        BATCH.try_with(Cell::take).unwrap_or_default()
    }

    /// Gives it back for the thread's next batch.
    pub fn give_back(mut self) {
        self.parts.clear();
        self.ranges.clear();
        self.files.clear();
        let _ = BATCH.try_with(|batch| batch.set(self));
    }
}

/// The vector without its items, for items that borrow from elsewhere: `B` is `A` with another lifetime. Collecting in
/// place keeps the allocation; the test of allocations fails if it no longer does.
pub fn emptied<A, B>(mut used: Vec<A>) -> Vec<B> {
    used.clear();
    used.into_iter().map(|_| unreachable!()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_emptied_vector_keeps_its_allocation() {
        let mut text = "here".to_owned();
        let mut used: Vec<&mut str> = Vec::with_capacity(100);
        used.push(&mut text);
        let at = used.as_ptr().cast::<u8>();
        let again: Vec<&'static mut str> = emptied(used);
        assert_eq!((again.len(), again.capacity()), (0, 100));
        assert_eq!(again.as_ptr().cast::<u8>(), at);
    }
}
