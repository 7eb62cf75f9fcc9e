use super::arena::Arena;
use super::life::{LifeView, LifeWord};
use super::mapping::Mapping;
use super::protocol;
use crate::sync::Arc;
use odafs_common::page::PageSize;
use odafs_common::reference::Epoch;
use std::io;
use std::sync::atomic::Ordering;

/// A client's read-only view of a server's arena.
#[derive(Clone)]
pub struct ArenaView {
    data: Arc<Mapping>,
    stamps: Arc<Mapping>,
    life: LifeView,
    page: PageSize,
}

impl ArenaView {
    /// `None` if there are fewer stamps than frames.
    #[cfg(not(shuttle))]
    pub(crate) fn new(
        data: Arc<Mapping>,
        stamps: Arc<Mapping>,
        life: LifeView,
        page: PageSize,
    ) -> Option<Self> {
        // The last one may be cut short.
        let frames = data.len().div_ceil(page.bytes());
        (frames <= stamps.len() / 8).then_some(Self {
            data,
            stamps,
            life,
            page,
        })
    }

    /// A view within the server's own process.
    pub fn of(arena: &Arena, life: &LifeWord) -> io::Result<Self> {
        let (data, stamps) = (Arc::clone(arena.data()), Arc::clone(arena.stamps()));
        Ok(Self {
            data,
            stamps,
            life: life.view()?,
            page: arena.page(),
        })
    }

    /// Copies the bytes at `address` and tells whether they are the page's that was referenced at
    /// `epoch`: the stamps of all frames touched are not above it and the server's life goes on.
    /// `false`: what is in `into` is garbage.
    #[must_use]
    #[inline]
    pub fn read(&self, address: u64, into: &mut [u8], epoch: Epoch) -> bool {
        let Some(last) = self.last_byte(address, into.len()) else {
            return false;
        };
        let shift = self.page.shift();
        let (first, last) = ((address >> shift) as usize, (last >> shift) as usize);
        // The stamp's line comes while the data does, not after it.
        self.stamps.prefetch(first * 8);
        self.data.load(address as usize, into);
        (first..=last).all(|frame| protocol::validates(self.stamps.word(frame * 8), epoch.0))
            && self.life.is_alive()
    }

    /// The aligned `u64` at `address`, if it counts (as in [`ArenaView::read`]).
    #[inline]
    pub fn read_word(&self, address: u64, epoch: Epoch) -> Option<u64> {
        self.last_byte(address, 8)
            .filter(|_| address.is_multiple_of(8))?;
        let value = self.data.word(address as usize).load(Ordering::Relaxed);
        let stamp = self
            .stamps
            .word((address >> self.page.shift()) as usize * 8);
        (protocol::validates(stamp, epoch.0) && self.life.is_alive()).then_some(value)
    }

    /// Fetches the stamp of the frame at `address` into the cache.
    #[inline]
    pub fn prefetch_stamp(&self, address: u64) {
        self.stamps
            .prefetch((address >> self.page.shift()) as usize * 8);
    }

    /// Fetches `lines` cache lines at `address` and their stamp, ahead of a read.
    #[inline]
    pub fn prefetch(&self, address: u64, lines: u32) {
        if address >= self.len() {
            return;
        }
        self.prefetch_stamp(address);
        for line in 0..lines as usize {
            self.data.prefetch(address as usize + line * 64);
        }
    }

    /// Bytes of the arena.
    pub fn len(&self) -> u64 {
        self.data.len() as u64
    }

    /// Whether it has no bytes at all.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Size of a frame.
    pub fn page(&self) -> PageSize {
        self.page
    }

    /// Whether the server's life goes on.
    pub fn is_alive(&self) -> bool {
        self.life.is_alive()
    }

    /// The last byte of a range that lies within the arena; of an empty one, its place.
    #[inline]
    fn last_byte(&self, address: u64, length: usize) -> Option<u64> {
        let last = address.checked_add((length as u64).saturating_sub(1))?;
        (last < self.len()).then_some(last)
    }
}

#[cfg(all(test, not(any(shuttle, loom, miri))))]
mod tests {
    use super::*;

    #[test]
    fn a_last_frame_that_is_cut_short_needs_a_stamp_too() {
        let life = LifeWord::in_memory(1).unwrap();
        let page = PageSize::DEFAULT;
        let view = |frames: usize| {
            let data = Arc::new(Mapping::new(2 * page.bytes() + 8).unwrap());
            let stamps = Arc::new(Mapping::new(frames * 8).unwrap());
            ArenaView::new(data, stamps, life.view().unwrap(), page)
        };
        assert!(view(2).is_none());
        let view = view(3).unwrap();
        let address = 2 * page.bytes() as u64;
        assert!(view.read(address, &mut [0; 8], Epoch(1)));
        assert!(!view.read(address, &mut [0; 9], Epoch(1)));
    }
}
