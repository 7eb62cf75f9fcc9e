//! Pages that a process keeps for itself: the rule of stamps once more, in memory that nobody else sees.

use super::mapping::{HUGE_BYTES, Mapping};
use super::protocol;
use odafs_common::page::PageSize;
use odafs_common::reference::Epoch;
use std::io;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Size of a frame.
const FRAME: usize = PageSize::MIN.bytes();
/// What is known of a frame takes the cache line before it, so that both come together: its stamp, its label, its uses.
const LINE: usize = 64;
const STRIDE: usize = LINE + FRAME;
const STAMP: usize = 0;
const LABEL: usize = 8;
const USES: usize = 32;

/// Bytes of a frame that are fetched ahead of a fill.
const FETCHED: usize = 8 * LINE;
/// Bytes of a frame that are fetched ahead of a copy, which fetches the others itself.
const FETCHED_TO_LOAD: usize = FRAME / 2;

/// What a frame holds, in words of its owner's choice.
pub type Label = [u64; 3];

/// Frames of 4 KiB, each with a stamp and a label. Whoever fills, publishes and unpublishes a frame does so alone; anyone
/// may look at its label and copy from it meanwhile, without a lock.
///
/// Memory is taken by pages of 4 KiB as frames are filled, from the first on. A huge page at once would make one fill in 500
/// wait for as long as the kernel needs to find and clear it, which may be 10 ms. Where 2 MiB are in use the kernel's own
/// thread (khugepaged) may put a huge page there, off the way of fills.
pub struct Frames {
    memory: Mapping,
    epoch: AtomicU64,
    count: u32,
}

impl Frames {
    /// Addresses for so many frames, none of which has memory yet.
    ///
    /// # Errors
    /// There are not so many addresses.
    pub fn reserve(count: u32) -> io::Result<Frames> {
        let bytes = (count as usize).checked_mul(STRIDE);
        Ok(Frames {
            memory: Mapping::reserve(bytes.ok_or(io::ErrorKind::OutOfMemory)?)?,
            epoch: AtomicU64::new(0),
            count,
        })
    }

    /// Bytes of memory that a frame takes, with what is known of it.
    pub const BYTES: usize = STRIDE;

    /// Number of frames.
    pub fn count(&self) -> u32 {
        self.count
    }

    /// What a published frame holds, and the epoch with which to copy from it.
    #[inline]
    pub fn label(&self, frame: u32) -> Option<(Epoch, Label)> {
        let epoch = protocol::opened(self.word(frame, STAMP))?;
        let label = [0, 1, 2].map(|n| self.word(frame, LABEL + 8 * n).load(Relaxed));
        Some((Epoch(epoch), label))
    }

    /// Copies from a frame, which may be another page's by now: [`Frames::is_still`] tells.
    ///
    /// # Panics
    /// If the range is beyond the frame.
    #[inline]
    pub fn load(&self, frame: u32, within: usize, into: &mut [u8]) {
        self.memory
            .load(self.place(frame, within, into.len()), into);
    }

    /// Whether all that was seen and copied of the frame since [`Frames::label`] gave this epoch is of one page.
    #[must_use]
    #[inline]
    pub fn is_still(&self, frame: u32, epoch: Epoch) -> bool {
        protocol::is_still(self.word(frame, STAMP), epoch.0)
    }

    /// Closes a frame to readers, before its content may change.
    pub fn unpublish(&self, frame: u32) {
        protocol::close(self.word(frame, STAMP));
    }

    /// Copies into an unpublished frame, from its first byte on.
    ///
    /// # Panics
    /// If it is more than a frame holds.
    pub fn fill(&self, frame: u32, from: &[u8]) {
        self.memory.store(self.place(frame, 0, from.len()), from);
    }

    /// Fetches ahead what is known of a frame.
    pub fn prefetch_label(&self, frame: u32) {
        self.memory.prefetch(frame as usize * STRIDE);
    }

    /// Fetches ahead what is known of a frame and its first half.
    #[inline]
    pub fn prefetch_to_load(&self, frame: u32) {
        let at = frame as usize * STRIDE;
        for line in (0..LINE + FETCHED_TO_LOAD).step_by(LINE) {
            self.memory.prefetch(at + line);
        }
    }

    /// Fetches the first lines of a frame ahead that is to be filled; the processor follows by itself.
    pub fn prefetch_to_fill(&self, frame: u32) {
        self.memory
            .prefetch_to_write(self.place(frame, 0, FETCHED), FETCHED);
    }

    /// Opens a filled frame to readers.
    pub fn publish(&self, frame: u32, label: Label) {
        for (n, word) in label.into_iter().enumerate() {
            self.word(frame, LABEL + 8 * n).store(word, Relaxed);
        }
        self.word(frame, USES).store(0, Relaxed);
        protocol::publish(self.word(frame, STAMP), &self.epoch);
    }

    /// How many frames were published since the one of this epoch.
    #[inline]
    pub fn age(&self, epoch: Epoch) -> u64 {
        self.epoch.load(Relaxed).saturating_sub(epoch.0)
    }

    /// Uses of what a frame holds, as its owner counts them.
    #[inline]
    pub fn uses(&self, frame: u32) -> u64 {
        self.word(frame, USES).load(Relaxed)
    }

    /// Makes it so many uses; two at once may count as one.
    #[inline]
    pub fn set_uses(&self, frame: u32, uses: u64) {
        self.word(frame, USES).store(uses, Relaxed);
    }

    /// The frames in use have become `after`, from `before`: the kernel may put huge pages behind what they fill.
    pub fn settle(&self, before: u32, after: u32) {
        #[cfg(not(shuttle))]
        {
            let whole = |frames: u32| frames as usize * STRIDE / HUGE_BYTES * HUGE_BYTES;
            let (from, to) = (whole(before), whole(after));
            if from < to {
                self.memory.let_collapse(from, to - from);
            }
        }
        #[cfg(shuttle)]
        let _ = (before, after, HUGE_BYTES);
    }

    /// Gives the memory of the frames from `first` to before `end` back, all of which are unpublished and nobody fills; what is
    /// copied from them meanwhile is zeros or what was there, and not of any page.
    pub fn give_back(&self, first: u32, end: u32) {
        #[cfg(not(shuttle))]
        {
            let from = (first as usize * STRIDE).next_multiple_of(4096);
            let to = end as usize * STRIDE / 4096 * 4096;
            if from < to {
                let huge = from / HUGE_BYTES * HUGE_BYTES;
                self.memory.keep_small(huge, to - huge);
                self.memory.give_back(from, to - from);
            }
        }
        #[cfg(shuttle)]
        let _ = (first, end);
    }

    #[inline]
    fn place(&self, frame: u32, within: usize, length: usize) -> usize {
        assert!(
            within <= FRAME && length <= FRAME - within,
            "beyond the frame"
        );
        frame as usize * STRIDE + LINE + within
    }

    #[inline]
    fn word(&self, frame: u32, at: usize) -> &AtomicU64 {
        self.memory.word(frame as usize * STRIDE + at)
    }
}

#[cfg(all(test, not(any(loom, miri))))]
mod tests {
    use super::*;

    fn read(frames: &Frames, frame: u32) -> Option<(Label, Vec<u8>)> {
        let (epoch, label) = frames.label(frame)?;
        let mut bytes = vec![0; FRAME];
        frames.load(frame, 0, &mut bytes);
        frames.is_still(frame, epoch).then_some((label, bytes))
    }

    #[test]
    fn a_frame_is_read_while_it_is_published() {
        let frames = Frames::reserve(1200).unwrap();
        for frame in [0, 503, 504, 1199] {
            assert_eq!(read(&frames, frame), None);
            frames.fill(frame, &[frame as u8; FRAME]);
            assert_eq!(read(&frames, frame), None);
            frames.publish(frame, [1, 2, u64::from(frame)]);
        }
        frames.settle(0, 1200);
        for frame in [0, 503, 504, 1199] {
            let page = vec![frame as u8; FRAME];
            assert_eq!(read(&frames, frame), Some(([1, 2, u64::from(frame)], page)));
        }
        let (before, _) = frames.label(504).unwrap();
        frames.unpublish(504);
        assert_eq!(read(&frames, 504), None);
        frames.publish(504, [0; 3]);
        assert!(
            !frames.is_still(504, before),
            "the same page, put there again"
        );
    }

    #[test]
    fn what_is_given_back_is_no_page() {
        let frames = Frames::reserve(1200).unwrap();
        (0..1200).for_each(|frame| frames.publish(frame, [7; 3]));
        let (before, _) = frames.label(1000).unwrap();
        (600..1200).for_each(|frame| frames.unpublish(frame));
        frames.give_back(600, 1200);
        assert!((600..1200).all(|frame| frames.label(frame).is_none()));
        assert!(!frames.is_still(1000, before));
        assert!((0..600).all(|frame| read(&frames, frame).is_some()));
    }

    #[test]
    fn uses_are_of_what_is_held_now() {
        let frames = Frames::reserve(2).unwrap();
        frames.publish(0, [0; 3]);
        frames.set_uses(0, 3);
        let (epoch, _) = frames.label(0).unwrap();
        frames.publish(1, [0; 3]);
        assert_eq!((frames.uses(0), frames.age(epoch)), (3, 1));
        frames.publish(0, [1; 3]);
        assert_eq!(frames.uses(0), 0);
    }
}
