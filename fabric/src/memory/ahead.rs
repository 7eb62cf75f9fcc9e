//! Whether a page is prefetched before it is copied.
//!
//! A copy reads a page from its first line on. Where none of it is in the processor's caches, the copy mostly waits for
//! memory. If the last lines of the page are prefetched first, the last of all before the others, some processors have
//! more lines under way at once, and the copy takes a fifth less; others lose by prefetching (docs/FIGURES.md). Which of
//! the two holds cannot be told from the processor's name. So a process measures it once, before it first copies pages.
//!
//! Pages that are in the caches already, or read in order, lose by it. So it is for a page that is read by itself, if a
//! page like it was far away a short while ago. Reads of several pages prefetch each page while the one before it is copied.

#[cfg(all(target_arch = "x86_64", not(any(miri, shuttle, loom))))]
pub use measured::{find_out, prefetch, would_pay};

/// Does nothing: there is nothing to choose here.
#[cfg(not(all(target_arch = "x86_64", not(any(miri, shuttle, loom)))))]
pub fn find_out() {}

/// Does nothing.
#[cfg(not(all(target_arch = "x86_64", not(any(miri, shuttle, loom)))))]
pub fn prefetch(_page: *const u8) {}

/// Never.
#[cfg(not(all(target_arch = "x86_64", not(any(miri, shuttle, loom)))))]
pub fn would_pay(_ns: u64) -> bool {
    false
}

#[cfg(all(target_arch = "x86_64", not(any(miri, shuttle, loom))))]
mod measured {
    use crate::memory::copy;
    use odafs_common::page::PageSize;
    use std::{
        arch::asm,
        sync::{
            Once,
            atomic::{AtomicU64, Ordering::Relaxed},
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

    /// A read of a page that takes so many nanoseconds had to wait for memory. [`u64::MAX`] if prefetching does not pay.
    static WAITED_NS: AtomicU64 = AtomicU64::new(u64::MAX);

    /// Whether a read of a page of 4 KiB that took so many nanoseconds would have been faster with the page prefetched.
    #[inline]
    pub fn would_pay(ns: u64) -> bool {
        ns >= WAITED_NS.load(Relaxed)
    }

    /// Measures what reads take on this machine, once in a process. It takes some 0.3 ms.
    pub fn find_out() {
        static FOUND: Once = Once::new();
        FOUND.call_once(|| {
            let [plain, ahead] = measure();
            WAITED_NS.store(waited_ns(plain, ahead), Relaxed);
        });
    }

    /// The time from which on a read must have waited for memory, where copies out of memory took so many nanoseconds
    /// `plain` and with the page prefetched `ahead`. [`u64::MAX`] if the latter are not faster by more than the clock's
    /// precision.
    fn waited_ns(mut plain: [u64; ROUNDS], mut ahead: [u64; ROUNDS]) -> u64 {
        let median = |took: &mut [u64; ROUNDS]| *took.select_nth_unstable(ROUNDS / 2).1;
        let (plain, ahead) = (median(&mut plain), median(&mut ahead));
        match ahead * 100 < plain * 94 {
            true => ahead * 3 / 4,
            false => u64::MAX,
        }
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
                    prefetch(page.as_ptr());
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

    /// Prefetches most of the page of 4 KiB at this address.
    #[inline]
    pub fn prefetch(page: *const u8) {
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
        fn a_page_is_prefetched_where_that_is_faster_and_the_page_is_far() {
            let copies = |ns| [ns; ROUNDS];
            assert_eq!(waited_ns(copies(400), copies(340)), 255);
            assert_eq!(waited_ns(copies(400), copies(380)), u64::MAX);
            assert_eq!(waited_ns(copies(400), copies(600)), u64::MAX);
            let mut preempted = copies(340);
            preempted[..ROUNDS / 2].fill(8_000_000);
            assert_eq!(waited_ns(copies(400), preempted), 255);
            assert_eq!(waited_ns(copies(0), copies(0)), u64::MAX);
        }
    }
}
