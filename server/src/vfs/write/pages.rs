//! The places of a write's pages, and how the data gets there.

use odafs_fabric::memory::{FrameNumber, Gather};

use super::Put;
use crate::vfs::cache::{Cache, Heat};
use crate::vfs::file::PageLock;
use crate::vfs::metrics::Reason;
use crate::vfs::read::Effort;

/// The bytes of a write for a page.
struct PagePart {
    /// Their first byte within the page.
    within: u32,
    /// Their place in the data.
    from: usize,
    length: u32,
}

/// The place of a page after a write.
pub(super) enum New<'a> {
    /// Not in memory.
    Nowhere,
    /// In another frame, filled and not yet visible.
    Fresh(Blank<'a>),
    /// In its old frame, which nobody else sees meanwhile.
    InPlace(FrameNumber),
}

/// A frame that holds no page yet.
pub(super) struct Blank<'a> {
    cache: &'a Cache,
    frame: FrameNumber,
    /// The use of the page in its old frame.
    heat: Option<Heat>,
}

impl<'a> Blank<'a> {
    fn allocate(cache: &'a Cache, effort: Effort) -> Option<Self> {
        let frame = cache.allocate_with(effort)?;
        let heat = None;
        Some(Self { cache, frame, heat })
    }

    /// Puts the page, which was nowhere, there.
    fn publish(self, lock: &mut PageLock<'_>) {
        self.cache.publish(lock, self.frame);
        if let Some(heat) = self.heat {
            self.cache.warm(self.frame, heat);
        }
        std::mem::forget(self);
    }
}

impl Drop for Blank<'_> {
    fn drop(&mut self) {
        self.cache.give_back(self.frame);
    }
}

impl<'a> Put<'a> {
    /// Decides where the new content of each page goes. `new_size` is the size of the file with all data.
    pub(super) fn prepare_all(
        &self,
        locks: &[PageLock<'_>],
        size: u64,
        new_size: u64,
    ) -> Vec<New<'a>> {
        locks
            .iter()
            .map(|lock| self.prepare(lock, size, new_size))
            .collect()
    }

    /// The data: from the frames as far as it was copied there, and the rest from its own place.
    pub(super) fn copied(&self, locks: &[PageLock<'_>], new: &[New<'a>]) -> Gather<'a> {
        let mut copied = Gather::new();
        for (lock, new) in locks.iter().zip(new) {
            let piece = self.piece(lock);
            match new {
                New::Fresh(Blank { cache, frame, .. }) => {
                    copied.push_frame(cache.arena(), *frame, piece.within, piece.length);
                }
                New::Nowhere | New::InPlace(_) => {
                    copied.push_part(self.data, piece.from, piece.length as usize);
                }
            }
        }
        copied
    }

    /// From the old content of the pages to the new, as the order of a write has it.
    pub(super) fn replace_pages(&self, locks: &mut [PageLock<'_>], mut new: Vec<New<'a>>) {
        let cache = self.export.cache();
        for (lock, new) in locks.iter_mut().zip(&mut new) {
            // A page that is often used stays so when it is written: pageout would take it for one that nobody reads.
            if let New::Fresh(blank) = new {
                blank.heat = lock.frame().map(|old| cache.take_heat(old));
            }
            if !matches!(new, New::InPlace(_)) {
                cache.retire(lock, Reason::Write);
            }
        }
        self.file.counter().bump();
        for (lock, new) in locks.iter_mut().zip(new) {
            match new {
                New::Nowhere => {}
                New::Fresh(blank) => blank.publish(lock),
                New::InPlace(frame) => {
                    self.overlay(lock, frame);
                    cache.arena().publish(frame);
                }
            }
        }
    }

    /// Decides where the new content of a page goes, and puts it there as far as nobody can see it.
    fn prepare(&self, lock: &PageLock<'_>, size: u64, new_size: u64) -> New<'a> {
        let cache = self.export.cache();
        let piece = self.piece(lock);
        let page_bytes = self.export.page().bytes() as u64;
        let start = self.export.page().start(lock.page());
        let valid = new_size.saturating_sub(start).min(page_bytes);
        let whole = piece.within == 0 && u64::from(piece.length) >= valid;
        let old = lock.frame();
        let kept = size.saturating_sub(start).min(page_bytes);
        // Between the old end and the data someone else may have appended something in this moment.
        if (old.is_none() && !whole) || kept < u64::from(piece.within) {
            return New::Nowhere;
        }
        // What is copied ahead of the store's write needs a frame of its own: the write may be refused.
        if self.data.is_fixed()
            && let Some(frame) = cache.unpublish_unshared(lock)
        {
            return New::InPlace(frame);
        }
        let Some(fresh) = Blank::allocate(cache, self.effort) else {
            return New::Nowhere;
        };
        let arena = cache.arena();
        if let Some(old) = old.filter(|_| !whole) {
            let mut content = Gather::new();
            content.push_frame(arena, old, 0, kept as u32);
            arena.gather_in(fresh.frame, 0, &content, 0, kept as usize);
            arena.zero(fresh.frame, kept as u32, page_bytes as u32);
        } else {
            arena.zero(fresh.frame, piece.length, page_bytes as u32);
        }
        self.overlay(lock, fresh.frame);
        New::Fresh(fresh)
    }

    fn overlay(&self, lock: &PageLock<'_>, frame: FrameNumber) {
        let piece = self.piece(lock);
        let arena = self.export.cache().arena();
        let length = piece.length as usize;
        arena.gather_in(frame, piece.within, self.data, piece.from, length);
    }

    /// The part of the data that falls into a page.
    fn piece(&self, lock: &PageLock<'_>) -> PagePart {
        let page = self.export.page();
        let start = page.start(lock.page());
        let from = (start.saturating_sub(self.offset) as usize).min(self.data.len());
        let within = page.within(self.offset.max(start));
        let length = (page.bytes() - within).min(self.data.len() - from);
        PagePart {
            within: within as u32,
            from,
            length: length as u32,
        }
    }
}
