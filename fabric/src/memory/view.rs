use super::arena::Arena;
use super::life::{LifeView, LifeWord};
use super::mapping::Mapping;
use super::protocol;
use crate::sync::Arc;
use odafs_common::page::{Layout, PageSize};
use odafs_common::reference::Epoch;
use std::io;
use std::sync::atomic::{AtomicU64, Ordering};

/// A client's read-only view of a server's arena.
#[derive(Clone)]
pub struct ArenaView {
    data: Arc<Mapping>,
    stamps: Arc<Mapping>,
    life: LifeView,
    layout: Layout,
    /// Size of the address range.
    length: u64,
}

impl ArenaView {
    /// `None` if there are fewer stamps than frames.
    #[cfg(not(shuttle))]
    pub(crate) fn new(
        data: Arc<Mapping>,
        stamps: Arc<Mapping>,
        life: LifeView,
        layout: Layout,
    ) -> Option<Self> {
        let length = layout.addresses(data.len() as u64);
        // The last frame may be short.
        let last = usize::try_from(layout.stamp(length.checked_sub(1)?)).ok()?;
        super::ahead::find_out();
        stamps.holds(last, Layout::STAMP).then_some(Self {
            data,
            stamps,
            life,
            layout,
            length,
        })
    }

    /// A view within the server's own process.
    pub fn of(arena: &Arena, life: &LifeWord) -> io::Result<Self> {
        let (data, stamps) = (Arc::clone(arena.data()), Arc::clone(arena.stamps()));
        let layout = arena.layout();
        Ok(Self {
            length: layout.addresses(data.len() as u64),
            data,
            stamps,
            life: life.view()?,
            layout,
        })
    }

    /// Copies the bytes at `address`. Returns whether they belong to the page that was referenced at `epoch`: the
    /// stamps of all frames touched are not above it, and the server lives. If it returns `false`, `into` contains
    /// garbage.
    #[must_use]
    #[inline]
    pub fn read(&self, address: u64, into: &mut [u8], epoch: Epoch) -> bool {
        let Some(last) = self.last_byte(address, into.len()) else {
            return false;
        };
        let shift = self.layout.page().shift();
        let (first, last) = (address >> shift, last >> shift);
        // Prefetch the stamp's line, so that it comes together with the data.
        self.prefetch_stamp(address);
        if first == last || !self.layout.is_beside() {
            self.data.load(self.layout.place(address) as usize, into);
        } else {
            self.load_frames(address, into);
        }
        (first..=last).all(|frame| protocol::validates(self.stamp(frame << shift), epoch.0))
            && self.life.is_alive()
    }

    /// Copies from more than one frame, with something between them.
    #[inline(never)]
    fn load_frames(&self, mut address: u64, mut into: &mut [u8]) {
        let page = self.layout.page();
        while !into.is_empty() {
            let bytes = (page.bytes() - page.within(address)).min(into.len());
            let (part, rest) = into.split_at_mut(bytes);
            self.data.load(self.layout.place(address) as usize, part);
            address += bytes as u64;
            into = rest;
        }
    }

    /// The aligned `u64` at `address`, if it is valid (as in [`ArenaView::read`]).
    #[inline]
    pub fn read_word(&self, address: u64, epoch: Epoch) -> Option<u64> {
        self.last_byte(address, 8)
            .filter(|_| address.is_multiple_of(8))?;
        let word = self.data.word(self.layout.place(address) as usize);
        let value = word.load(Ordering::Relaxed);
        (protocol::validates(self.stamp(address), epoch.0) && self.life.is_alive()).then_some(value)
    }

    /// Prefetches most of the page of 4 KiB at `address`, for a read of it by itself. That pays if the page
    /// [is far away](super::prefetch_would_pay).
    #[inline]
    pub fn prefetch_page(&self, address: u64) {
        if address < self.len() {
            let at = self.layout.place(address) as usize;
            self.data.prefetch_page(at);
        }
    }

    /// Prefetches the stamp of the frame at `address`.
    #[inline]
    pub fn prefetch_stamp(&self, address: u64) {
        self.stamps.prefetch(self.layout.stamp(address) as usize);
    }

    /// Prefetches `lines` cache lines at `address` and their stamp, before a read.
    #[inline]
    pub fn prefetch(&self, address: u64, lines: u32) {
        if address >= self.len() {
            return;
        }
        self.prefetch_stamp(address);
        let at = self.layout.place(address) as usize;
        for line in 0..lines as usize {
            self.data.prefetch(at + line * 64);
        }
    }

    /// Size of all frames in bytes.
    pub fn len(&self) -> u64 {
        self.length
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Size of a frame.
    pub fn page(&self) -> PageSize {
        self.layout.page()
    }

    /// The stamp of the frame at `address`, which must be in the arena.
    #[inline]
    fn stamp(&self, address: u64) -> &AtomicU64 {
        self.stamps.word(self.layout.stamp(address) as usize)
    }

    /// Whether the server still lives.
    pub fn is_alive(&self) -> bool {
        self.life.is_alive()
    }

    /// The last byte of a range in the arena. For an empty range, its place.
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
    fn stamps_beside_frames_are_looked_for_where_they_are() {
        let life = LifeWord::in_memory(1).unwrap();
        let layout = Layout::beside(PageSize::DEFAULT);
        let view = |data: usize, stamps: usize| {
            let [data, stamps] =
                [data, stamps].map(|length| Arc::new(Mapping::new(length).unwrap()));
            ArenaView::new(data, stamps, life.view().unwrap(), layout)
        };
        let two = 2 * layout.stride();
        assert!(view(layout.stride() - 1, two).is_none(), "no frame");
        assert!(view(two, two - 57).is_none(), "no second stamp");
        let view = view(two + 4096, two - 56).unwrap();
        assert_eq!(view.len(), 8192);
        assert!(view.read(0, &mut [0; 8192], Epoch(1)));
        assert!(!view.read(0, &mut [0; 8193], Epoch(1)));
    }

    #[test]
    fn a_last_frame_that_is_cut_short_needs_a_stamp_too() {
        let life = LifeWord::in_memory(1).unwrap();
        let page = PageSize::DEFAULT;
        let view = |frames: usize| {
            let data = Arc::new(Mapping::new(2 * page.bytes() + 8).unwrap());
            let stamps = Arc::new(Mapping::new(frames * 8).unwrap());
            ArenaView::new(data, stamps, life.view().unwrap(), Layout::apart(page))
        };
        assert!(view(2).is_none());
        let view = view(3).unwrap();
        let address = 2 * page.bytes() as u64;
        assert!(view.read(address, &mut [0; 8], Epoch(1)));
        assert!(!view.read(address, &mut [0; 9], Epoch(1)));
    }
}
