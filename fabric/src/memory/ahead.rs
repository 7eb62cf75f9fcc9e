//! Whether a page is prefetched before it is copied.
//!
//! A copy reads a page from its first line on. Where none of it is in the processor's caches, the copy mostly waits for
//! memory. If the last lines of the page are prefetched first, the last of all before the others, some processors have
//! more lines under way at once, and the copy takes a fifth less; others lose by prefetching (docs/FIGURES.md). Which of
//! the two holds cannot be told from the processor's name. So a process measures it once, before it first copies pages.
//! Reads of several pages gain nothing: each page is prefetched while the one before it is copied.

#[cfg(all(target_arch = "x86_64", not(any(miri, shuttle, loom))))]
pub use measured::{find_out, prefetch};

/// Does nothing: there is nothing to choose here.
#[cfg(not(all(target_arch = "x86_64", not(any(miri, shuttle, loom)))))]
pub fn find_out() {}

/// Does nothing.
#[cfg(not(all(target_arch = "x86_64", not(any(miri, shuttle, loom)))))]
pub fn prefetch(_from: *const u8, _length: usize) {}

#[cfg(all(target_arch = "x86_64", not(any(miri, shuttle, loom))))]
mod measured {
    use crate::memory::copy;
    use odafs_common::page::PageSize;
    use std::{
        arch::asm,
        sync::{
            Once,
            atomic::{AtomicBool, Ordering::Relaxed},
        },
        time::Instant,
    };

    /// Length in bytes of the copies that are prefetched.
    const PAGE: usize = PageSize::MIN.bytes();
    const LINE: usize = 64;
    /// Number of the last lines of a page that are prefetched. More of them gain a little more where the page is in
    /// memory, and lose a fifth where it is in the second level of cache.
    const LINES: usize = PAGE / LINE * 3 / 4;
    /// Number of copies of each kind that are measured.
    const ROUNDS: usize = 31;
    /// Number of pages that they copy from.
    const PAGES: usize = 16;

    static PAYS: AtomicBool = AtomicBool::new(false);

    /// Prefetches most of what is copied next, if that is a page and it pays on this machine.
    #[inline]
    pub fn prefetch(from: *const u8, length: usize) {
        if length == PAGE && PAYS.load(Relaxed) {
            from_the_end(from);
        }
    }

    /// Measures whether that pays, once in a process. It takes some 0.3 ms.
    pub fn find_out() {
        static FOUND: Once = Once::new();
        FOUND.call_once(|| {
            let [plain, ahead] = measure();
            PAYS.store(pays(plain, ahead), Relaxed);
        });
    }

    /// Whether copies that took so many nanoseconds `ahead` are faster than `plain` ones, by more than the clock's
    /// precision and than prefetching costs where the page is in the caches already.
    fn pays(mut plain: [u64; ROUNDS], mut ahead: [u64; ROUNDS]) -> bool {
        let median = |took: &mut [u64; ROUNDS]| *took.select_nth_unstable(ROUNDS / 2).1;
        median(&mut ahead) * 100 < median(&mut plain) * 94
    }

    /// The nanoseconds of copies out of memory: plain ones, and those with the page prefetched.
    fn measure() -> [[u64; ROUNDS]; 2] {
        let pages = vec![1; PAGES * PAGE];
        let mut into = vec![0; PAGE];
        let mut took = [[0; ROUNDS]; 2];
        for round in 0..ROUNDS {
            for (ahead, took) in took.iter_mut().enumerate() {
                let page = &pages[(2 * round + ahead) * 7 % PAGES * PAGE..][..PAGE];
                flush(page);
                let began = Instant::now();
                if ahead == 1 {
                    from_the_end(page.as_ptr());
                }
                // SAFETY: `page` and `into` are slices of a page each.
                unsafe { copy::plain(into.as_mut_ptr(), page.as_ptr(), PAGE) };
                took[round] = began.elapsed().as_nanos() as u64;
            }
        }
        std::hint::black_box(into);
        took
    }

    /// Takes a page out of all of the processor's caches.
    fn flush(page: &[u8]) {
        for line in page.chunks(LINE) {
            // SAFETY: the line is part of a slice, and flushing it changes no byte.
            unsafe { asm!("clflush [{}]", in(reg) line.as_ptr(), options(nostack)) };
        }
        // SAFETY: a fence touches no memory.
        unsafe { asm!("mfence", options(nostack)) };
    }

    #[inline]
    fn from_the_end(page: *const u8) {
        for line in 1..=LINES {
            let at = page.wrapping_add(PAGE - line * LINE);
            // SAFETY: a prefetch of any address is harmless.
            unsafe { asm!("prefetcht0 [{}]", in(reg) at, options(nostack, preserves_flags)) };
        }
    }

    #[cfg(test)]
    mod tests {
        use super::*;

        #[test]
        fn a_page_is_prefetched_where_that_is_faster_by_more_than_chance() {
            let copies = |ns| [ns; ROUNDS];
            assert!(pays(copies(400), copies(340)));
            assert!(!pays(copies(400), copies(380)));
            assert!(!pays(copies(400), copies(600)));
            let mut preempted = copies(340);
            preempted[..ROUNDS / 2].fill(8_000_000);
            assert!(pays(copies(400), preempted));
            assert!(!pays(copies(0), copies(0)));
        }
    }
}
