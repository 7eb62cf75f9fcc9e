//! Pages that a process keeps for itself. They follow the rule of stamps, in memory that nobody else sees.

use super::ahead;
use super::mapping::{HUGE_BYTES, Mapping};
use super::protocol;
use odafs_common::page::PageSize;
use odafs_common::reference::Epoch;
use std::io;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Size of a frame. Each is one page of memory, so a copy misses the page tables once, and the processor's own
/// prefetching, which ends with a page, reaches all of it.
const FRAME: usize = PageSize::MIN.bytes();
/// A frame's stamp, label and uses are in a cache line of their own, apart from the frames.
const LINE: usize = 64;
const STAMP: usize = 0;
const LABEL: usize = 8;
const USES: usize = 32;

/// Number of bytes of a frame to prefetch before a fill.
const FETCHED: usize = 8 * LINE;
/// Number of bytes of a frame to prefetch before a copy, which fetches the others itself.
const FETCHED_TO_LOAD: usize = FRAME / 2;

/// The contents of a frame, in words that its owner chooses.
pub type Label = [u64; 3];

/// Frames of 4 KiB, each with a stamp and a label. Only one thread at a time may fill, publish or unpublish a frame.
/// Meanwhile anyone may look at its label and copy from it, without a lock.
///
/// Frames take memory by pages of 4 KiB as they are filled, from the first one on. If they took huge pages at once, one
/// fill in 500 would wait until the kernel has found and cleared one, which may take 10 ms. Once 2 MiB are in use, the
/// kernel's own thread (khugepaged) may put a huge page there in the background.
pub struct Frames {
    memory: Mapping,
    lines: Mapping,
    epoch: AtomicU64,
    count: u32,
}

impl Frames {
    /// Reserves addresses for this many frames, none of which has memory yet.
    ///
    /// # Errors
    /// There are not enough addresses.
    pub fn reserve(count: u32) -> io::Result<Frames> {
        ahead::find_out();
        let reserve = |each: usize| {
            let bytes = (count as usize).checked_mul(each);
            Mapping::reserve(bytes.ok_or(io::ErrorKind::OutOfMemory)?)
        };
        Ok(Frames {
            memory: reserve(FRAME)?,
            lines: reserve(LINE)?,
            epoch: AtomicU64::new(0),
            count,
        })
    }

    /// Bytes of memory for a frame, including its stamp, label and uses.
    pub const BYTES: usize = FRAME + LINE;

    /// Number of frames.
    pub fn count(&self) -> u32 {
        self.count
    }

    /// The label of a published frame, and the epoch to copy from it.
    #[inline]
    pub fn label(&self, frame: u32) -> Option<(Epoch, Label)> {
        let epoch = protocol::opened(self.word(frame, STAMP))?;
        let label = [0, 1, 2].map(|n| self.word(frame, LABEL + 8 * n).load(Relaxed));
        Some((Epoch(epoch), label))
    }

    /// Copies from a frame, which may hold another page by now: see [`Frames::is_still`].
    ///
    /// # Panics
    /// If the range is beyond the frame.
    #[inline]
    pub fn load(&self, frame: u32, within: usize, into: &mut [u8]) {
        self.memory
            .load(self.place(frame, within, into.len()), into);
    }

    /// Whether everything that was seen and copied of the frame since [`Frames::label`] returned this epoch belongs to
    /// one page.
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
    /// If `from` is longer than a frame.
    pub fn fill(&self, frame: u32, from: &[u8]) {
        self.memory.store(self.place(frame, 0, from.len()), from);
    }

    /// Prefetches the stamp and label of a frame.
    pub fn prefetch_label(&self, frame: u32) {
        self.lines.prefetch(frame as usize * LINE);
    }

    /// Prefetches the stamp, the label and the first half of a frame.
    #[inline]
    pub fn prefetch_to_load(&self, frame: u32) {
        self.prefetch_label(frame);
        let at = frame as usize * FRAME;
        for line in (0..FETCHED_TO_LOAD).step_by(LINE) {
            self.memory.prefetch(at + line);
        }
    }

    /// Prefetches most of a frame, for a copy of it by itself. That pays if the frame
    /// [is far away](super::prefetch_would_pay).
    #[inline]
    pub fn prefetch_whole(&self, frame: u32) {
        self.memory.prefetch_page(frame as usize * FRAME);
    }

    /// Prefetches the first lines of a frame for filling. The processor follows by itself.
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

    /// How many frames were published since the one with this epoch.
    #[inline]
    pub fn age(&self, epoch: Epoch) -> u64 {
        self.epoch.load(Relaxed).saturating_sub(epoch.0)
    }

    /// The uses of a frame, as its owner counts them.
    #[inline]
    pub fn uses(&self, frame: u32) -> u64 {
        self.word(frame, USES).load(Relaxed)
    }

    /// Sets the uses. Two calls at once may count as one.
    #[inline]
    pub fn set_uses(&self, frame: u32, uses: u64) {
        self.word(frame, USES).store(uses, Relaxed);
    }

    /// The number of frames in use has changed from `before` to `after`. The kernel may put huge pages behind full
    /// ranges.
    pub fn settle(&self, before: u32, after: u32) {
        #[cfg(not(shuttle))]
        {
            for (memory, each) in self.both() {
                let whole = |frames: u32| frames as usize * each / HUGE_BYTES * HUGE_BYTES;
                let (from, to) = (whole(before), whole(after));
                if from < to {
                    memory.let_collapse(from, to - from);
                }
            }
        }
        #[cfg(shuttle)]
        let _ = (before, after, HUGE_BYTES);
    }

    /// Gives back the memory of the frames from `first` up to `end`, which must all be unpublished and not being
    /// filled. A copy made meanwhile gets zeros or old bytes, and does not validate.
    pub fn give_back(&self, first: u32, end: u32) {
        #[cfg(not(shuttle))]
        {
            for (memory, each) in self.both() {
                let from = (first as usize * each).next_multiple_of(4096);
                let to = end as usize * each / 4096 * 4096;
                if from < to {
                    let huge = from / HUGE_BYTES * HUGE_BYTES;
                    memory.keep_small(huge, to - huge);
                    memory.give_back(from, to - from);
                }
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
        frame as usize * FRAME + within
    }

    /// The memory of the frames and of their lines, each with the bytes of one.
    #[cfg(not(shuttle))]
    fn both(&self) -> [(&Mapping, usize); 2] {
        [(&self.memory, FRAME), (&self.lines, LINE)]
    }

    #[inline]
    fn word(&self, frame: u32, at: usize) -> &AtomicU64 {
        self.lines.word(frame as usize * LINE + at)
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

    #[cfg(not(shuttle))]
    #[test]
    fn a_copy_stays_within_one_page_of_memory() {
        let frames = Frames::reserve(3).unwrap();
        for frame in 0..3 {
            let at = frames.memory.address(frames.place(frame, 0, FRAME), FRAME);
            assert_eq!(at.align_offset(4096), 0);
        }
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
