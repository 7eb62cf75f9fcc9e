use super::FrameNumber;
use super::gather::Gather;
use super::mapping::{HUGE_BYTES, Mapping};
use super::pinned::{Pinned, States};
use super::protocol::{self, PinRefused, State, UNPUBLISHED};
use super::stretch::Stretch;
use crate::sync::Arc;
use odafs_common::page::{Layout, PageSize};
use odafs_common::reference::Epoch;
use std::io;
use std::sync::atomic::{AtomicU64, Ordering};

/// Number of cache lines to prefetch of a page that is about to be read. More are no faster.
const FIRST_BYTES: usize = 512;

/// The parameters of an arena.
#[derive(Clone, Copy, Debug)]
pub struct ArenaConfig {
    /// Number of frames.
    pub frames: u32,
    /// Size of a frame, and the place of its stamp.
    pub layout: Layout,
    /// Whether to ask for 2 MiB pages, which costs about 2 s per GiB. [`Arena::backing_bytes`] tells the result.
    pub huge: bool,
    /// Whether to touch all memory now rather than at first use. `huge` implies it.
    pub populate: bool,
}

/// Read-only descriptors of an arena, which a client maps.
///
/// Sealed: nobody can map them writable, write to them, punch holes or change their size, not
/// even through another descriptor of the same memory.
#[cfg(not(shuttle))]
#[derive(Debug)]
pub struct SharedArena {
    /// The frames.
    pub data: std::os::fd::OwnedFd,
    /// The stamps. The same memory as the frames, if they are beside them.
    pub stamps: std::os::fd::OwnedFd,
}

/// The export's epoch, alone in its cache line: every request reads it.
#[repr(align(128))]
struct EpochLine(AtomicU64);

/// The page cache's memory. See the [module](super) for the rule of its stamps.
pub struct Arena {
    data: Arc<Mapping>,
    stamps: Arc<Mapping>,
    states: States,
    layout: Layout,
    backing_bytes: u32,
    epoch: EpochLine,
    #[cfg(not(shuttle))]
    shared: SharedArena,
}

impl Arena {
    /// Creates an arena whose frames are all unpublished and zero.
    pub fn create(config: &ArenaConfig) -> io::Result<Arena> {
        if config.frames == 0 {
            return Err(io::Error::new(
                io::ErrorKind::InvalidInput,
                "an arena of no frames",
            ));
        }
        let length = (config.frames as usize).checked_mul(config.layout.stride());
        let mut length = length.ok_or(io::ErrorKind::OutOfMemory)?;
        if config.layout.is_beside() {
            // Huge pages come whole, so there may be room for more frames, which nobody uses.
            let unit = if config.huge { HUGE_BYTES } else { 4096 };
            length = length.next_multiple_of(unit);
        }
        let stamps_length = (config.frames as usize * Layout::STAMP).next_multiple_of(4096);
        let arena = Self::map(config, length, stamps_length)?;
        let shift = config.layout.page().shift();
        let room = config.layout.addresses(length as u64) >> shift;
        for frame in 0..room {
            let stamp = config.layout.stamp(frame << shift);
            let stamp = arena.stamps.word(stamp as usize);
            stamp.store(UNPUBLISHED, Ordering::Relaxed);
        }
        Ok(arena)
    }

    #[cfg(not(shuttle))]
    fn map(config: &ArenaConfig, length: usize, stamps_length: usize) -> io::Result<Arena> {
        use super::mapping::Protection;
        use super::memfd;
        use std::os::fd::AsFd;

        let data_fd = memfd::create("odafs-arena", length as u64)?;
        let data = Arc::new(Mapping::of(data_fd.as_fd(), length, Protection::ReadWrite)?);
        let apart = if config.layout.is_beside() {
            None
        } else {
            let fd = memfd::create("odafs-stamps", stamps_length as u64)?;
            let stamps = Mapping::of(fd.as_fd(), stamps_length, Protection::ReadWrite)?;
            Some((fd, Arc::new(stamps)))
        };
        let mut backing_bytes = 4096;
        if config.huge {
            data.welcome_huge();
        }
        if config.huge || config.populate {
            data.populate()?;
        }
        if config.huge && data.collapse() {
            backing_bytes = HUGE_BYTES as u32;
            if let Some((_, stamps)) = &apart {
                stamps.collapse();
            }
        }
        let stamps_fd = apart.as_ref().map_or(&data_fd, |(fd, _)| fd);
        let shared = SharedArena {
            data: memfd::reopen_read_only(&data_fd)?,
            stamps: memfd::reopen_read_only(stamps_fd)?,
        };
        memfd::freeze(&data_fd)?;
        if let Some((fd, _)) = &apart {
            memfd::freeze(fd)?;
        }
        let states = States::new(config.frames);
        let epoch = EpochLine(AtomicU64::new(1));
        let stamps = apart.map_or_else(|| Arc::clone(&data), |(_, stamps)| stamps);
        Ok(Arena {
            data,
            stamps,
            states,
            layout: config.layout,
            backing_bytes,
            epoch,
            shared,
        })
    }

    #[cfg(shuttle)]
    fn map(config: &ArenaConfig, length: usize, stamps_length: usize) -> io::Result<Arena> {
        let backing_bytes = if config.huge { HUGE_BYTES as u32 } else { 4096 };
        let data = Arc::new(Mapping::new(length)?);
        let stamps = match config.layout.is_beside() {
            true => Arc::clone(&data),
            false => Arc::new(Mapping::new(stamps_length)?),
        };
        let states = States::new(config.frames);
        let epoch = EpochLine(AtomicU64::new(1));
        Ok(Arena {
            data,
            stamps,
            states,
            layout: config.layout,
            backing_bytes,
            epoch,
        })
    }

    /// Number of frames.
    pub fn frames(&self) -> u32 {
        self.states.count()
    }

    /// Size of a frame.
    pub fn page(&self) -> PageSize {
        self.layout.page()
    }

    /// Where frames and stamps lie.
    pub fn layout(&self) -> Layout {
        self.layout
    }

    /// Size of the pages behind the memory: 2 MiB if the kernel gave them, else 4 KiB.
    pub fn backing_bytes(&self) -> u32 {
        self.backing_bytes
    }

    /// The address of a frame, as references contain it.
    pub fn address(&self, frame: FrameNumber) -> u64 {
        u64::from(frame.0) << self.page().shift()
    }

    /// The frame that holds the byte at `address`, if there is one.
    pub fn frame_at(&self, address: u64) -> Option<FrameNumber> {
        let frame = u32::try_from(address >> self.page().shift()).ok()?;
        (frame < self.frames()).then_some(FrameNumber(frame))
    }

    /// The epoch for new references. Load it with the page's lock held.
    pub fn current_epoch(&self) -> Epoch {
        Epoch(self.epoch.0.load(Ordering::SeqCst))
    }

    /// Makes every reference to the frame stale, before its content may change. Returns `true` if somebody holds a pin
    /// and may still read the old content.
    pub fn revoke(&self, frame: FrameNumber) -> bool {
        protocol::revoke(self.stamp(frame), self.state(frame), &self.epoch.0, false)
    }

    /// As [`Arena::revoke`]. In addition, nothing validates or pins until [`Arena::publish`].
    pub fn unpublish(&self, frame: FrameNumber) -> bool {
        protocol::revoke(self.stamp(frame), self.state(frame), &self.epoch.0, true)
    }

    /// Opens a filled frame to readers with references of the returned epoch or a later one.
    pub fn publish(&self, frame: FrameNumber) -> Epoch {
        Epoch(protocol::publish(self.stamp(frame), &self.epoch.0))
    }

    /// Pins the frame, whose content then does not change, if its stamp is above neither the `request`'s epoch nor the
    /// TPT `entry`'s.
    pub fn pin(
        &self,
        frame: FrameNumber,
        request: Epoch,
        entry: Epoch,
    ) -> Result<Pinned, PinRefused> {
        let state = self.state(frame);
        protocol::pin(self.stamp(frame), state, request.0.min(entry.0))?;
        Ok(Pinned::counted(state, frame))
    }

    /// Prefetches what [`Arena::pin`] looks at for the frame that contains `address`, and the first lines of a copy of
    /// `length` bytes from there. The processor prefetches the others itself.
    #[inline]
    pub fn prefetch(&self, address: u64, length: u32) {
        if let Some(frame) = self.frame_at(address) {
            self.stamps.prefetch(self.layout.stamp(address) as usize);
            super::prefetch(self.state(frame));
            let (at, length) = (self.layout.place(address) as usize, length as usize);
            for line in (0..length.min(FIRST_BYTES)).step_by(64) {
                self.data.prefetch(at + line);
            }
        }
    }

    /// Whether anybody holds a pin.
    pub fn is_pinned(&self, frame: FrameNumber) -> bool {
        self.state(frame).is_pinned()
    }

    /// Marks the frame as used.
    pub fn set_referenced(&self, frame: FrameNumber) {
        self.state(frame).set_referenced();
    }

    /// Whether the frame was used since the last call. Clears the mark.
    pub fn take_referenced(&self, frame: FrameNumber) -> bool {
        self.state(frame).take_referenced()
    }

    /// Marks whether a reference to the frame has been handed out and still counts.
    pub fn set_handed_out(&self, frame: FrameNumber, handed_out: bool) {
        self.state(frame).set_handed_out(handed_out);
    }

    /// Whether a reference to the frame has been handed out.
    pub fn is_handed_out(&self, frame: FrameNumber) -> bool {
        self.state(frame).is_handed_out()
    }

    /// Copies from a frame. The frame should be pinned or its page locked.
    ///
    /// # Panics
    /// If the range is beyond the frame.
    #[inline]
    pub fn copy_out(&self, frame: FrameNumber, offset: u32, into: &mut [u8]) {
        self.data.load(self.place(frame, offset, into.len()), into);
    }

    /// Copies into a frame, which is unpublished or revoked and not pinned.
    ///
    /// # Panics
    /// If the range is beyond the frame.
    pub fn copy_in(&self, frame: FrameNumber, offset: u32, from: &[u8]) {
        self.data.store(self.place(frame, offset, from.len()), from);
    }

    /// Copies `length` bytes of others, from `at` on, into a frame, which is unpublished or revoked and not pinned, and none
    /// of which is among them.
    ///
    /// # Panics
    /// If a range is out of bounds.
    pub fn gather_in(
        &self,
        frame: FrameNumber,
        offset: u32,
        from: &Gather<'_>,
        at: usize,
        length: usize,
    ) {
        let mut place = self.place(frame, offset, length);
        for stretch in from.parts(at, length) {
            match stretch {
                Stretch::Bytes(bytes) => self.data.store(place, bytes),
                Stretch::Memory { memory, at, length } => {
                    self.data.copy_across(place, memory, at, length);
                }
            }
            place += stretch.len();
        }
    }

    /// Zeroes the bytes `from..to` of a frame, which is unpublished or revoked and not pinned.
    ///
    /// # Panics
    /// If the range is beyond the frame.
    pub fn zero(&self, frame: FrameNumber, from: u32, to: u32) {
        let length = to.saturating_sub(from) as usize;
        self.data.zero(self.place(frame, from, length), length);
    }

    /// An aligned word of a frame, shared with the clients: a change counter.
    ///
    /// # Panics
    /// If `offset` is not a multiple of 8 or beyond the frame.
    pub fn word(&self, frame: FrameNumber, offset: u32) -> &AtomicU64 {
        self.data.word(self.place(frame, offset, 8))
    }

    /// Read-only descriptors of frames and stamps.
    #[cfg(not(shuttle))]
    pub fn share(&self) -> io::Result<SharedArena> {
        Ok(SharedArena {
            data: self.shared.data.try_clone()?,
            stamps: self.shared.stamps.try_clone()?,
        })
    }

    /// The descriptors themselves, to pass on without making more.
    #[cfg(not(shuttle))]
    pub(crate) fn shared(&self) -> &SharedArena {
        &self.shared
    }

    /// The memory of the frames.
    pub(crate) fn data(&self) -> &Arc<Mapping> {
        &self.data
    }

    /// The memory of the stamps, or that of the frames if they are beside each other.
    pub(crate) fn stamps(&self) -> &Arc<Mapping> {
        &self.stamps
    }

    /// The place of a frame's range in the data.
    ///
    /// # Panics
    /// If the range is beyond the frame.
    #[inline]
    pub(crate) fn place(&self, frame: FrameNumber, offset: u32, length: usize) -> usize {
        let page = self.page().bytes();
        assert!(frame.0 < self.frames(), "no such frame");
        assert!(
            offset as usize <= page && length <= page - offset as usize,
            "beyond the frame"
        );
        (frame.0 as usize) * self.layout.stride() + offset as usize
    }

    #[inline]
    fn stamp(&self, frame: FrameNumber) -> &AtomicU64 {
        let at = self.layout.stamp(self.address(frame));
        self.stamps.word(at as usize)
    }

    #[inline]
    fn state(&self, frame: FrameNumber) -> &'static State {
        self.states.get(frame)
    }
}

#[cfg(test)]
mod tests;
