//! Memory that others may read or write at any time.

use super::copy;
use odafs_common::page::PageSize;
use std::io;
use std::ptr::NonNull;
#[cfg(not(shuttle))]
use std::sync::atomic::AtomicU32;
use std::sync::atomic::{AtomicU64, Ordering::Acquire, fence};

/// Size of a huge page.
pub const HUGE_BYTES: usize = 2 << 20;

/// Bytes of a word.
const WORD: usize = size_of::<u64>();

/// A range of shared memory that lives as long as this value. Every access is checked against its bounds, and made by
/// assembly or relaxed atomics.
pub struct Mapping {
    base: NonNull<u8>,
    length: usize,
}

// SAFETY: the memory is reached through atomics and assembly only, from whatever thread.
unsafe impl Send for Mapping {}
// SAFETY: as above: no access needs `&mut`.
unsafe impl Sync for Mapping {}

impl Mapping {
    /// Length in bytes.
    pub fn len(&self) -> usize {
        self.length
    }

    /// Whether there are `length` bytes from `offset` on.
    #[inline]
    pub fn holds(&self, offset: usize, length: usize) -> bool {
        offset
            .checked_add(length)
            .is_some_and(|end| end <= self.length)
    }

    /// The memory as a slice.
    ///
    /// # Safety
    /// It must be writable memory of this process, and nobody writes to it while the slice lives.
    pub unsafe fn bytes(&self) -> &[u8] {
        // SAFETY: the mapping has `length` bytes and lives as long as `self`; the caller vouches for the rest.
        unsafe { std::slice::from_raw_parts(self.base.as_ptr(), self.length) }
    }

    /// The memory as a mutable slice.
    ///
    /// # Safety
    /// It must be writable memory of this process, and nobody else reads or writes it while the slice lives.
    pub unsafe fn bytes_mut(&mut self) -> &mut [u8] {
        // SAFETY: as above.
        unsafe { std::slice::from_raw_parts_mut(self.base.as_ptr(), self.length) }
    }

    /// Copies from the memory.
    ///
    /// # Panics
    /// If the range is out of bounds.
    #[inline]
    pub fn load(&self, offset: usize, into: &mut [u8]) {
        assert!(self.holds(offset, into.len()), "out of bounds");
        // SAFETY: the range was just checked and the memory lives as long as `self`.
        unsafe { copy::load(self.base.as_ptr().add(offset), into) };
    }

    /// Prefetches most of the page of 4 KiB from `offset` on. Does nothing out of bounds.
    #[inline]
    pub fn prefetch_page(&self, offset: usize) {
        if self.holds(offset, PageSize::MIN.bytes()) {
            super::ahead::prefetch(self.base.as_ptr().wrapping_add(offset));
        }
    }

    /// Copies from the memory for a peer: the last word after all others.
    ///
    /// # Panics
    /// If the range is out of bounds.
    #[inline]
    pub fn load_rising(&self, offset: usize, into: &mut [u8]) {
        let (front, word) = into.split_at_mut(into.len().saturating_sub(WORD));
        self.load(offset, front);
        fence(Acquire);
        self.load(offset + front.len(), word);
    }

    /// Copies into the memory, which must be writable.
    ///
    /// # Panics
    /// If the range is out of bounds.
    #[inline]
    pub fn store(&self, offset: usize, from: &[u8]) {
        assert!(self.holds(offset, from.len()), "out of bounds");
        // SAFETY: the range was just checked and the memory lives as long as `self`.
        unsafe { copy::store(self.base.as_ptr().add(offset), from) };
    }

    /// Zeroes a range of the memory, which must be writable.
    ///
    /// # Panics
    /// If the range is out of bounds.
    pub fn zero(&self, offset: usize, length: usize) {
        assert!(self.holds(offset, length), "out of bounds");
        // SAFETY: the range was just checked and the memory lives as long as `self`.
        unsafe { copy::zero(self.base.as_ptr().add(offset), length) };
    }

    /// Copies from shared memory to shared memory, which must be writable.
    ///
    /// # Panics
    /// If a range is out of bounds, or they overlap.
    pub fn copy_across(&self, offset: usize, from: &Mapping, at: usize, length: usize) {
        assert!(
            self.holds(offset, length) && from.holds(at, length),
            "out of bounds"
        );
        assert!(
            self.base != from.base || offset.abs_diff(at) >= length,
            "the ranges overlap"
        );
        // SAFETY: both ranges were just checked, do not overlap, and live as long as the mappings.
        unsafe {
            copy::across(
                self.base.as_ptr().add(offset),
                from.base.as_ptr().add(at),
                length,
            )
        };
    }

    /// As [`Mapping::copy_across`], but returns `false`, and does nothing, where that would panic.
    #[must_use]
    pub fn try_copy(&self, offset: usize, from: &Mapping, at: usize, length: usize) -> bool {
        let holds = self.holds(offset, length) && from.holds(at, length) && self.base != from.base;
        if holds {
            self.copy_across(offset, from, at, length);
        }
        holds
    }

    /// Copies from other memory as an RDMA Read does: the last word after all others. Returns `false`, and does
    /// nothing, if a range is out of bounds, or both are in the same memory.
    #[must_use]
    pub fn try_read(&self, offset: usize, from: &Mapping, at: usize, length: usize) -> bool {
        let front = length.saturating_sub(WORD);
        let holds = self.holds(offset, length)
            && from.holds(at, length)
            && self.try_copy(offset, from, at, front);
        fence(Acquire);
        holds && self.try_copy(offset + front, from, at + front, length - front)
    }

    /// An aligned word. Store to it only if the memory is writable.
    ///
    /// # Panics
    /// If it is out of bounds or not aligned.
    #[inline]
    pub fn word(&self, offset: usize) -> &AtomicU64 {
        assert!(
            self.holds(offset, 8) && offset.is_multiple_of(8),
            "out of bounds"
        );
        // SAFETY: checked just now; the base is aligned to a page, or to 8 bytes under shuttle.
        unsafe { AtomicU64::from_ptr(self.base.as_ptr().add(offset).cast()) }
    }

    /// An aligned half word. Store to it only if the memory is writable.
    ///
    /// # Panics
    /// If it is out of bounds or not aligned.
    #[cfg(not(shuttle))]
    #[inline]
    pub fn half_word(&self, offset: usize) -> &AtomicU32 {
        assert!(
            self.holds(offset, 4) && offset.is_multiple_of(4),
            "out of bounds"
        );
        // SAFETY: checked just now; the base is aligned to a page, or to 8 bytes under shuttle.
        unsafe { AtomicU32::from_ptr(self.base.as_ptr().add(offset).cast()) }
    }

    /// The place of a range, for a system call that copies from it while the mapping lives.
    ///
    /// # Panics
    /// If the range is out of bounds.
    #[cfg(not(shuttle))]
    pub fn address(&self, offset: usize, length: usize) -> *const u8 {
        assert!(self.holds(offset, length), "out of bounds");
        self.base.as_ptr().wrapping_add(offset)
    }

    /// The place of a range, for a system call that copies into it while the mapping lives. The memory must be
    /// writable.
    ///
    /// # Panics
    /// If the range is out of bounds.
    #[cfg(not(shuttle))]
    pub fn address_mut(&self, offset: usize, length: usize) -> *mut u8 {
        assert!(self.holds(offset, length), "out of bounds");
        self.base.as_ptr().wrapping_add(offset)
    }

    /// Prefetches the cache lines of a range for writing, away from the processors that have read them. Does nothing
    /// out of bounds.
    #[inline]
    pub fn prefetch_to_write(&self, offset: usize, length: usize) {
        #[cfg(all(target_arch = "x86_64", not(miri), not(shuttle)))]
        if self.holds(offset, length) {
            for line in (offset..offset + length).step_by(64) {
                let at = self.base.as_ptr().wrapping_add(line);
                // SAFETY: a prefetch of any address is harmless; processors that do not know this one pass over it.
                unsafe {
                    std::arch::asm!("prefetchw [{}]", in(reg) at, options(nostack, preserves_flags));
                }
            }
        }
        #[cfg(not(all(target_arch = "x86_64", not(miri), not(shuttle))))]
        let _ = (offset, length);
    }

    /// Prefetches the cache line of a byte. Does nothing out of bounds.
    #[inline]
    pub fn prefetch(&self, offset: usize) {
        #[cfg(all(target_arch = "x86_64", not(miri), not(shuttle)))]
        if offset < self.length {
            use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
            // SAFETY: the byte is in bounds (and a prefetch of any address is harmless).
            unsafe {
                _mm_prefetch::<_MM_HINT_T0>(self.base.as_ptr().add(offset).cast_const().cast())
            };
        }
        #[cfg(not(all(target_arch = "x86_64", not(miri), not(shuttle))))]
        let _ = offset;
    }
}

#[cfg(shuttle)]
mod heap {
    use super::{Mapping, NonNull, io};

    impl Mapping {
        /// Zeroed memory of this process.
        pub fn new(length: usize) -> io::Result<Mapping> {
            // The allocator knows that plain words are zero, so what is not touched costs nothing.
            let words = vec![0u64; length.div_ceil(8)].into_boxed_slice();
            let base = NonNull::from(Box::leak(words)).cast();
            Ok(Mapping { base, length })
        }

        /// The same.
        pub fn reserve(length: usize) -> io::Result<Mapping> {
            Self::new(length)
        }
    }

    impl Drop for Mapping {
        fn drop(&mut self) {
            let words = std::ptr::slice_from_raw_parts_mut(
                self.base.as_ptr().cast::<u64>(),
                self.length.div_ceil(8),
            );
            // SAFETY: `new` leaked a box of exactly these words, and nobody borrows from a value that is dropped.
            drop(unsafe { Box::from_raw(words) });
        }
    }
}

#[cfg(not(shuttle))]
mod mapped {
    use super::{HUGE_BYTES, Mapping, NonNull, io};
    use rustix::mm::{MapFlags, MprotectFlags, ProtFlags, mmap, mmap_anonymous, mprotect, munmap};
    use std::os::fd::BorrowedFd;
    use std::ptr;

    /// Whether a mapping may be written through.
    #[derive(Clone, Copy, PartialEq, Eq)]
    pub enum Protection {
        ReadOnly,
        ReadWrite,
        /// Read-only, of a file that need not be shared memory.
        Private,
    }

    impl Mapping {
        /// Maps the first `length` bytes of a descriptor that cannot shrink below them.
        pub fn of(fd: BorrowedFd<'_>, length: usize, access: Protection) -> io::Result<Mapping> {
            if length == 0 {
                return Err(io::Error::new(
                    io::ErrorKind::InvalidInput,
                    "an empty mapping",
                ));
            }
            let (protection, kind) = match access {
                Protection::ReadOnly => (ProtFlags::READ, MapFlags::SHARED),
                Protection::ReadWrite => (ProtFlags::READ | ProtFlags::WRITE, MapFlags::SHARED),
                Protection::Private => (ProtFlags::READ, MapFlags::PRIVATE),
            };
            let align = if length >= HUGE_BYTES {
                HUGE_BYTES
            } else {
                4096
            };
            let hole = reserve(length, align)?;
            // SAFETY: the pages that are replaced are those of the hole just reserved, which nobody else knows.
            let mapped = unsafe {
                mmap(
                    hole.cast(),
                    length,
                    protection,
                    kind | MapFlags::FIXED,
                    fd,
                    0,
                )
            };
            // Leave the hole as it is: a mapping that fails late (a seal) may have removed it already, and another
            // thread may have mapped something there.
            mapped?;
            let base = NonNull::new(hole).ok_or(io::ErrorKind::OutOfMemory)?;
            Ok(Mapping { base, length })
        }

        /// Zeroed memory of this process.
        pub fn new(length: usize) -> io::Result<Mapping> {
            let (protection, flags) = (ProtFlags::READ | ProtFlags::WRITE, MapFlags::PRIVATE);
            // SAFETY: an anonymous mapping where the kernel likes touches nothing that exists.
            let base = unsafe { mmap_anonymous(ptr::null_mut(), length, protection, flags)? };
            let base = NonNull::new(base.cast()).ok_or(io::ErrorKind::OutOfMemory)?;
            Ok(Mapping { base, length })
        }

        /// Zeroed memory of this process, which it takes by pages of 4 KiB as it is touched, until [huge pages are
        /// allowed](Mapping::let_collapse). Memory that is never touched does not count.
        pub fn reserve(length: usize) -> io::Result<Mapping> {
            let hole = reserve(length, HUGE_BYTES)?;
            let base = NonNull::new(hole).ok_or(io::ErrorKind::OutOfMemory)?;
            let mapping = Mapping { base, length };
            let access = MprotectFlags::READ | MprotectFlags::WRITE;
            // SAFETY: the pages are those of the hole just reserved, which nobody else knows.
            unsafe { mprotect(hole.cast(), length.next_multiple_of(4096), access)? };
            // A kernel without huge pages refuses, and needs no such hint.
            let _ = mapping.advise(0, length, libc::MADV_NOHUGEPAGE);
            Ok(mapping)
        }

        /// Touches all pages for writing.
        pub fn populate(&self) -> io::Result<()> {
            self.advise(0, self.length, libc::MADV_POPULATE_WRITE)
        }

        /// Asks for huge pages for all whole 2 MiB ranges of the (populated) memory. Returns whether all came.
        pub fn collapse(&self) -> bool {
            let whole = self.length / HUGE_BYTES * HUGE_BYTES;
            let mut all = whole == self.length;
            for offset in (0..whole).step_by(64 * HUGE_BYTES) {
                let length = (whole - offset).min(64 * HUGE_BYTES);
                all &= self.advise(offset, length, libc::MADV_COLLAPSE).is_ok();
            }
            all
        }

        /// Tells the kernel, before the memory is touched, that huge pages are welcome.
        pub fn welcome_huge(&self) {
            // This fails if huge pages are switched off, and then `collapse` decides.
            let _ = self.advise(0, self.length, libc::MADV_HUGEPAGE);
        }

        /// Allows the kernel's own thread to put huge pages behind a range of whole ones that is in use.
        pub fn let_collapse(&self, offset: usize, length: usize) {
            let _ = self.advise(offset, length, libc::MADV_HUGEPAGE);
        }

        /// From now on, what is touched in a range takes pages of 4 KiB.
        pub fn keep_small(&self, offset: usize, length: usize) {
            let _ = self.advise(offset, length, libc::MADV_NOHUGEPAGE);
        }

        /// Gives back a range of whole pages of a reserved mapping. They read as zeros, and are taken again when
        /// touched.
        pub fn give_back(&self, offset: usize, length: usize) {
            // If the kernel refuses, the pages stay, and may be used again.
            let _ = self.advise(offset, length, libc::MADV_DONTNEED);
        }

        fn advise(&self, offset: usize, length: usize, advice: libc::c_int) -> io::Result<()> {
            assert!(self.holds(offset, length), "out of bounds");
            // SAFETY: the range is ours, and what it holds stays, or becomes zeros in memory of which no slice is made.
            let result =
                unsafe { libc::madvise(self.base.as_ptr().add(offset).cast(), length, advice) };
            if result == 0 {
                Ok(())
            } else {
                Err(io::Error::last_os_error())
            }
        }
    }

    /// Reserves `length` bytes of address space at a multiple of `align`.
    fn reserve(length: usize, align: usize) -> io::Result<*mut u8> {
        let length = length.next_multiple_of(4096);
        let total = length
            .checked_add(align)
            .ok_or(io::ErrorKind::OutOfMemory)?;
        let flags = MapFlags::PRIVATE | MapFlags::NORESERVE;
        // SAFETY: an anonymous mapping where the kernel likes touches nothing that exists.
        let start = unsafe { mmap_anonymous(ptr::null_mut(), total, ProtFlags::empty(), flags)? }
            .cast::<u8>();
        let before = start.align_offset(align);
        let base = start.wrapping_add(before);
        if before > 0 {
            // SAFETY: the slack before the hole is ours and nothing refers to it.
            unsafe { munmap(start.cast(), before)? };
        }
        // SAFETY: the slack behind the hole is ours and nothing refers to it.
        unsafe { munmap(base.wrapping_add(length).cast(), align - before)? };
        Ok(base)
    }

    impl Drop for Mapping {
        fn drop(&mut self) {
            let length = self.length.next_multiple_of(4096);
            // SAFETY: the range was mapped by `of` or `new`, and nobody borrows from a value that is dropped.
            let _ = unsafe { munmap(self.base.as_ptr().cast(), length) };
        }
    }
}

#[cfg(not(shuttle))]
pub use mapped::Protection;
