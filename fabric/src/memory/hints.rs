//! Hints about memory. They change how fast it is, never what it holds.

/// Asks for 2 MiB pages for as much of `items` as fills them, at once. With small pages, random lookups in a large
/// table spend more time on misses of the page tables than on the table's own. If the kernel refuses, nothing changes.
pub fn collapse<T>(items: &[T]) {
    #[cfg(not(any(shuttle, miri)))]
    {
        use super::mapping::HUGE_BYTES;

        let range = items.as_ptr_range();
        let start = (range.start as usize).next_multiple_of(HUGE_BYTES);
        let end = range.end as usize / HUGE_BYTES * HUGE_BYTES;
        if start < end {
            // SAFETY: the range lies within a slice that lives, and a collapse changes no byte of it.
            unsafe { libc::madvise(start as *mut _, end - start, libc::MADV_COLLAPSE) };
        }
    }
    #[cfg(any(shuttle, miri))]
    let _ = items;
}

/// Prefetches the cache line at which `item` begins.
#[inline]
pub fn prefetch<T>(item: &T) {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        // SAFETY: the address is that of something that lives (and a prefetch of any address is harmless).
        unsafe { _mm_prefetch::<_MM_HINT_T0>(std::ptr::from_ref(item).cast()) };
    }
    #[cfg(not(all(target_arch = "x86_64", not(miri))))]
    let _ = item;
}
