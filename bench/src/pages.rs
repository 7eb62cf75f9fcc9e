//! Pages that say which write they are of, so that every read can be checked.
//!
//! What becomes of a page is numbered: odd versions are writes, even ones its absence (it lies behind the end of its
//! file, or in a hole). A write fills each word of the page with the page's number and the version. A page has one writer.

use std::sync::atomic::{AtomicU64, Ordering::SeqCst};

/// Bytes of a page.
pub const PAGE: usize = 4096;

/// What has become of something that is there or not, and what is becoming of it.
#[derive(Debug, Default)]
pub struct Register {
    /// The last version whose making has begun.
    begun: AtomicU64,
    /// The oldest that may be seen from now on: the last that was acknowledged.
    done: AtomicU64,
}

/// What may be seen of something from some time on.
#[derive(Clone, Copy, Debug)]
pub struct Since(u64);

impl Register {
    /// The next version begins, in which it is there or not. One that is gone stays the same when it goes again.
    pub fn begin(&self, is_there: bool) -> u64 {
        let begun = self.begun.load(SeqCst);
        let next = match (is_there, begun % 2) {
            (false, 0) => begun,
            (true, 1) => begun + 2,
            _ => begun + 1,
        };
        self.begun.store(next, SeqCst);
        next
    }

    /// What began last was acknowledged.
    pub fn done(&self) {
        self.done.store(self.begun.load(SeqCst), SeqCst);
    }

    /// Somebody begins to look.
    pub fn since(&self) -> Since {
        Since(self.done.load(SeqCst))
    }

    /// Whether a look that began then and is over now may have found this version.
    pub fn allows(&self, since: Since, version: u64) -> bool {
        version % 2 == 1 && (since.0..=self.begun.load(SeqCst)).contains(&version)
    }

    /// Whether it may have found nothing.
    pub fn allows_absence(&self, since: Since) -> bool {
        since.0.is_multiple_of(2) || self.has_changed(since)
    }

    /// Whether it may have found something.
    pub fn allows_presence(&self, since: Since) -> bool {
        since.0 % 2 == 1 || self.has_changed(since)
    }

    /// Whether another version has begun since.
    pub fn has_changed(&self, since: Since) -> bool {
        self.begun.load(SeqCst) > since.0
    }
}

/// Pages, at first absent.
#[derive(Debug)]
pub struct Pages(Vec<Register>);

impl Pages {
    /// So many.
    pub fn new(number: usize) -> Self {
        Self((0..number).map(|_| Register::default()).collect())
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// The history of one.
    pub fn of(&self, page: usize) -> &Register {
        &self.0[page]
    }

    /// Fills a buffer with the next version of a page, whose write begins now.
    pub fn next(&self, page: usize, into: &mut [u8]) {
        let word = word(page, self.0[page].begin(true)).to_le_bytes();
        into.chunks_exact_mut(8)
            .for_each(|chunk| chunk.copy_from_slice(&word));
    }

    /// The write that began last was acknowledged.
    pub fn written(&self, page: usize) {
        self.0[page].done();
    }

    /// A read of the page begins.
    pub fn since(&self, page: usize) -> Since {
        self.0[page].since()
    }

    /// Whether a read that began then and has just ended may have returned this, of one page and whole words of it. All
    /// of it must be one version, which is not older than what was acknowledged before the read began, and which
    /// somebody had begun to write. It may be zeros if the page may have been absent.
    pub fn allows(&self, page: usize, since: Since, read: &[u8]) -> bool {
        let mut words = read.chunks_exact(8).map(|word| {
            let mut bytes = [0; 8];
            bytes.copy_from_slice(word);
            u64::from_le_bytes(bytes)
        });
        let Some(first) = words.next() else {
            return false;
        };
        let is_possible = match first {
            0 => self.0[page].allows_absence(since),
            _ => {
                let version = first & VERSION;
                first == word(page, version) && self.0[page].allows(since, version)
            }
        };
        is_possible && words.all(|word| word == first)
    }
}

/// The bits of a word that have the version; the page's number is above them.
const VERSION: u64 = (1 << 40) - 1;

fn word(page: usize, version: u64) -> u64 {
    (page as u64) << 40 | version
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The next version of a page of its own, and what a read of it returns.
    fn write(pages: &Pages, page: usize) -> [u8; PAGE] {
        let mut data = [0; PAGE];
        pages.next(page, &mut data);
        data
    }

    #[test]
    fn what_a_read_may_return() {
        let pages = Pages::new(3);
        let first = write(&pages, 2);
        pages.written(2);
        let since = pages.since(2);
        assert!(pages.allows(2, since, &first));
        assert!(!pages.allows(1, pages.since(1), &first), "another page");
        let mut second = write(&pages, 2);
        assert!(pages.allows(2, since, &first) && pages.allows(2, since, &second[8..72]));
        second[PAGE - 1] ^= 1;
        assert!(!pages.allows(2, since, &second), "torn");
        second[PAGE - 1] ^= 1;
        pages.written(2);
        let since = pages.since(2);
        assert!(!pages.allows(2, since, &first), "older than acknowledged");
        assert!(pages.allows(2, since, &second));
        let other = Pages::new(3);
        for _ in 0..3 {
            write(&other, 2);
        }
        assert!(
            !pages.allows(2, since, &write(&other, 2)),
            "nobody wrote that"
        );
        assert!(!pages.allows(2, since, &[]));
        assert_eq!(pages.len(), 3);
    }

    #[test]
    fn what_is_absent_is_zeros_and_does_not_come_back() {
        let (pages, zeros) = (Pages::new(1), [0; PAGE]);
        assert!(pages.allows(0, pages.since(0), &zeros));
        let first = write(&pages, 0);
        pages.written(0);
        let since = pages.since(0);
        assert!(!pages.allows(0, since, &zeros), "it was written");
        assert!(!pages.of(0).allows_absence(since));
        pages.of(0).begin(false);
        assert!(pages.allows(0, since, &zeros) && pages.allows(0, since, &first));
        pages.of(0).done();
        let since = pages.since(0);
        assert!(pages.allows(0, since, &zeros) && !pages.allows(0, since, &first));
        assert!(!pages.of(0).allows_presence(since));
        pages.of(0).begin(false);
        assert!(!pages.of(0).has_changed(since), "it was gone already");
        let second = write(&pages, 0);
        let mut torn = second;
        torn[64..].fill(0);
        assert!(!pages.allows(0, since, &torn), "a part of it");
        assert!(pages.allows(0, since, &second) && pages.allows(0, since, &zeros));
    }
}
