//! Memory that a thread uses again from batch to batch: a batch of reads that needs no call allocates nothing.

use crate::part::Part;
use std::{cell::Cell, ops::Range};

/// What a batch describes its parts in. A thread keeps one, of as many parts as one batch has.
#[derive(Default)]
pub struct BatchMemory {
    /// No parts.
    pub parts: Vec<Part<'static>>,
    /// No ranges.
    pub ranges: Vec<Range<usize>>,
}

thread_local! {
    static BATCH: Cell<BatchMemory> = Cell::default();
}

impl BatchMemory {
    /// That of this thread; a batch within a batch gets a fresh one.
    pub fn take() -> Self {
        // A thread that ends has none any more.
        BATCH.try_with(Cell::take).unwrap_or_default()
    }

    /// For the thread's next batch.
    pub fn give_back(mut self) {
        self.parts.clear();
        self.ranges.clear();
        let _ = BATCH.try_with(|batch| batch.set(self));
    }
}

/// The vector without its items, for items that borrow from elsewhere: `B` is `A` but for its lifetime. Collecting in place
/// keeps the allocation; the test of allocations tells if it no longer does.
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
