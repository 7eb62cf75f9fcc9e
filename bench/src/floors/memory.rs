//! The two pieces of memory that the floors need and that safe Rust has no
//! word for: a mapped file, and a buffer that two threads hand to each other.
#![allow(unsafe_code)]

use std::cell::UnsafeCell;
use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::ptr;
use std::sync::atomic::{AtomicU32, Ordering};

/// Bytes of a large page.
pub const LARGE_PAGE: u64 = 2 << 20;

/// The largest piece that a [`SharedSlot`] carries.
pub const SLOT_BYTES: usize = 64 << 10;

/// A file mapped for reading, at an address at which large pages fit.
pub struct Mapping {
    start: *const u8,
    length: usize,
}

// SAFETY: the mapping is only read, and nothing but dropping the value ends it.
unsafe impl Send for Mapping {}

// SAFETY: the mapping is only read, and nothing but dropping the value ends it.
unsafe impl Sync for Mapping {}

impl Mapping {
    /// Maps the whole file, which must not be cut or written while mapped.
    ///
    /// The kernel puts a large page behind a file only where address and
    /// offset agree modulo its size, so the place is chosen here.
    ///
    /// # Errors
    /// What `mmap` says; an empty file cannot be mapped.
    pub fn of(file: &File) -> io::Result<Self> {
        let length = file.metadata()?.len() as usize;
        let room = length + LARGE_PAGE as usize;
        let reserve = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
        // SAFETY: a fresh anonymous reservation touches no memory that anyone has.
        let base = unsafe { libc::mmap(ptr::null_mut(), room, libc::PROT_NONE, reserve, -1, 0) };
        if base == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let skip = base.align_offset(LARGE_PAGE as usize);
        let start = base.wrapping_byte_add(skip);
        let fixed = libc::MAP_SHARED | libc::MAP_FIXED;
        // SAFETY: the fixed range lies inside the reservation just made; the benches neither write nor cut a mapped file.
        let map = unsafe { libc::mmap(start, length, libc::PROT_READ, fixed, file.as_raw_fd(), 0) };
        let failed = (map == libc::MAP_FAILED).then(io::Error::last_os_error);
        let end = skip + length.next_multiple_of(4096);
        let (behind, rest) = (base.wrapping_byte_add(end), room.saturating_sub(end));
        // SAFETY: both ranges are what is left of the reservation, in front of and behind the file; nobody has them.
        unsafe {
            libc::munmap(base, if failed.is_some() { room } else { skip });
            libc::munmap(behind, if failed.is_some() { 0 } else { rest });
        }
        match failed {
            Some(error) => Err(error),
            None => Ok(Self {
                start: map.cast(),
                length,
            }),
        }
    }

    /// The file's bytes.
    pub fn bytes(&self) -> &[u8] {
        // SAFETY: the mapping is live for as long as `self` is, readable, and the benches do not write a mapped file.
        unsafe { std::slice::from_raw_parts(self.start, self.length) }
    }

    /// Asks the kernel to put large pages behind the mapping
    /// (`MADV_COLLAPSE`, Linux 6.1), and returns whether it did so everywhere.
    pub fn collapse(&self) -> bool {
        // SAFETY: the range is exactly the live mapping, and the advice changes no byte of it.
        let result = unsafe {
            libc::madvise(
                self.start.cast_mut().cast(),
                self.length,
                libc::MADV_COLLAPSE,
            )
        };
        result == 0
    }

    /// Touches every page, so that none is faulted in while reads are timed.
    pub fn touch(&self) {
        let sum = self
            .bytes()
            .iter()
            .step_by(4096)
            .fold(0u64, |sum, &byte| sum.wrapping_add(u64::from(byte)));
        std::hint::black_box(sum);
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: the range is exactly the mapping, which nobody borrows any more.
        unsafe { libc::munmap(self.start.cast_mut().cast(), self.length) };
    }
}

/// A buffer that belongs to one side at a time; the turn says to which.
pub struct SharedSlot {
    /// Whose turn it is: even the client's, odd the peer's. Also the futex.
    turn: Line,
    page: UnsafeCell<Aligned>,
}

#[repr(align(128))]
struct Line(AtomicU32);

#[repr(align(4096))]
struct Aligned([u8; SLOT_BYTES]);

// SAFETY: the page is only touched by the holder of `Turn`, and a turn is passed on by a release store that the other side acquires.
unsafe impl Sync for SharedSlot {}

impl Default for SharedSlot {
    fn default() -> Self {
        Self {
            turn: Line(AtomicU32::new(0)),
            page: UnsafeCell::new(Aligned([0; SLOT_BYTES])),
        }
    }
}

impl SharedSlot {
    /// The word that changes hands, to wait on.
    pub fn turn(&self) -> &AtomicU32 {
        &self.turn.0
    }

    /// Both ends of the slot: the one that asks and the one that answers.
    pub fn ends(&mut self) -> (End<'_>, End<'_>) {
        *self.turn.0.get_mut() = 0;
        (End { slot: self, odd: 0 }, End { slot: self, odd: 1 })
    }
}

/// One side's hold on a [`SharedSlot`].
pub struct End<'a> {
    slot: &'a SharedSlot,
    odd: u32,
}

impl End<'_> {
    /// The word that changes hands, to wait on.
    pub fn turn(&self) -> &AtomicU32 {
        self.slot.turn()
    }

    /// Whether it is this side's turn.
    pub fn mine(&self) -> bool {
        self.slot.turn.0.load(Ordering::Acquire) & 1 == self.odd
    }

    /// Puts `bytes` into the slot.
    ///
    /// # Panics
    /// If it is not this side's turn, or there are more than [`SLOT_BYTES`].
    pub fn put(&mut self, bytes: &[u8]) {
        assert!(self.mine() && bytes.len() <= SLOT_BYTES);
        // SAFETY: it is this side's turn, each side has one `End` and this call borrows it mutably, so nobody else touches the page.
        let page = unsafe { &mut *self.slot.page.get() };
        page.0[..bytes.len()].copy_from_slice(bytes);
    }

    /// Takes the slot's first bytes.
    ///
    /// # Panics
    /// If it is not this side's turn, or more than [`SLOT_BYTES`] are wanted.
    pub fn take(&mut self, bytes: &mut [u8]) {
        assert!(self.mine() && bytes.len() <= SLOT_BYTES);
        // SAFETY: it is this side's turn, each side has one `End` and this call borrows it mutably, so nobody else touches the page.
        let page = unsafe { &*self.slot.page.get() };
        bytes.copy_from_slice(&page.0[..bytes.len()]);
    }

    /// Gives the turn to the other side.
    pub fn pass(&mut self) {
        assert!(self.mine());
        self.slot.turn.0.fetch_add(1, Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slot_carries_bytes_there_and_back() {
        let mut slot = Box::<SharedSlot>::default();
        let (mut here, mut there) = slot.ends();
        std::thread::scope(|scope| {
            scope.spawn(move || {
                for _ in 0..100 {
                    while !there.mine() {
                        std::thread::yield_now();
                    }
                    let mut bytes = [0; 8];
                    there.take(&mut bytes);
                    there.put(&bytes.map(|b| b + 1));
                    there.pass();
                }
            });
            for i in 0..100 {
                here.put(&[i; 8]);
                here.pass();
                while !here.mine() {
                    std::thread::yield_now();
                }
                let mut bytes = [0; 8];
                here.take(&mut bytes);
                assert_eq!(bytes, [i + 1; 8]);
            }
        });
    }

    #[test]
    #[should_panic(expected = "mine")]
    fn the_slot_cannot_be_used_out_of_turn() {
        let mut slot = Box::<SharedSlot>::default();
        let (_, mut there) = slot.ends();
        there.put(&[1]);
    }
}
