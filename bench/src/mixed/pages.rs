//! Pages that say which write they are of, so that every read can be checked.

use std::sync::atomic::{AtomicU64, Ordering};

/// Bytes of a page.
pub const PAGE: usize = 4096;

/// What has been written of each page, and what is being written. A page has one writer.
pub struct Pages(Vec<Page>);

#[derive(Default)]
struct Page {
    /// The last version whose write has begun.
    begun: AtomicU64,
    /// The last whose write the server has acknowledged.
    done: AtomicU64,
}

/// What may be read of a page from some time on.
#[derive(Clone, Copy, Debug)]
pub struct Since(u64);

impl Pages {
    /// Pages of version 0.
    pub fn new(number: usize) -> Self {
        Self((0..number).map(|_| Page::default()).collect())
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Fills a buffer with the next version of a page, whose write begins now.
    pub fn next(&self, page: usize, into: &mut [u8]) {
        let version = self.0[page].begun.load(Ordering::SeqCst) + 1;
        fill(page, version, into);
        self.0[page].begun.store(version, Ordering::SeqCst);
    }

    /// The write that began last was acknowledged.
    pub fn written(&self, page: usize) {
        let begun = self.0[page].begun.load(Ordering::SeqCst);
        self.0[page].done.store(begun, Ordering::SeqCst);
    }

    /// A read of the page begins.
    pub fn since(&self, page: usize) -> Since {
        Since(self.0[page].done.load(Ordering::SeqCst))
    }

    /// Whether a read that began then and is over now may have returned this: one version in all of the page, none older
    /// than what was acknowledged before it began, and none that nobody had begun to write.
    pub fn allows(&self, page: usize, since: Since, read: &[u8]) -> bool {
        let begun = self.0[page].begun.load(Ordering::SeqCst);
        let mut words = read.chunks_exact(8).map(|word| {
            let mut bytes = [0; 8];
            bytes.copy_from_slice(word);
            u64::from_le_bytes(bytes)
        });
        let Some(first) = words.next() else {
            return false;
        };
        let (of, version) = ((first >> 40) as usize, first & ((1 << 40) - 1));
        of == page && (since.0..=begun).contains(&version) && words.all(|word| word == first)
    }
}

/// Fills a page with its number and a version, in each word of it.
pub fn fill(page: usize, version: u64, into: &mut [u8]) {
    let word = ((page as u64) << 40 | version).to_le_bytes();
    into.chunks_exact_mut(8)
        .for_each(|chunk| chunk.copy_from_slice(&word));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_read_may_return() {
        let (pages, mut page) = (Pages::new(3), [0; PAGE]);
        let since = pages.since(2);
        fill(2, 0, &mut page);
        assert!(pages.allows(2, since, &page));
        assert!(!pages.allows(1, since, &page), "another page");
        pages.next(2, &mut page);
        assert!(pages.allows(2, since, &page), "written meanwhile");
        page[PAGE - 1] ^= 1;
        assert!(!pages.allows(2, since, &page), "torn");
        pages.written(2);
        let since = pages.since(2);
        fill(2, 0, &mut page);
        assert!(!pages.allows(2, since, &page), "older than acknowledged");
        fill(2, 2, &mut page);
        assert!(!pages.allows(2, since, &page), "nobody wrote that");
        fill(2, 1, &mut page);
        assert!(pages.allows(2, since, &page));
        assert!(!pages.allows(2, since, &[]));
        assert_eq!(pages.len(), 3);
    }
}
