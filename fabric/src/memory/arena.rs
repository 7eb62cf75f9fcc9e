use super::FrameNumber;
use odafs_common::page::PageSize;
use odafs_common::reference::Epoch;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::atomic::AtomicU64;

/// What an arena is made of.
#[derive(Clone, Copy, Debug)]
pub struct ArenaConfig {
    /// Number of frames.
    pub frames: u32,
    /// Size of a frame.
    pub page: PageSize,
    /// Whether to ask for 2 MiB pages. Costs about 2 s a GiB; [`Arena::backing_bytes`] tells what came of it.
    pub huge: bool,
    /// Whether to touch all memory now rather than at first use. `huge` implies it.
    pub populate: bool,
}

/// Why a frame could not be pinned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PinRefused {
    /// Its content has changed (or may have) since the reference was issued.
    Stale,
    /// Too many pins.
    Busy,
}

/// Read-only descriptors of an arena, for a client to map.
#[derive(Debug)]
pub struct SharedArena {
    /// The frames.
    pub data: OwnedFd,
    /// The stamps.
    pub stamps: OwnedFd,
}

/// The page cache's memory. See the [module](super) for the rule of its stamps.
pub struct Arena {}

impl Arena {
    /// Creates an arena whose frames are all unpublished and zero.
    pub fn create(config: &ArenaConfig) -> io::Result<Arena> {
        todo!("{config:?}")
    }

    /// Number of frames.
    pub fn frames(&self) -> u32 {
        todo!()
    }

    /// Size of a frame.
    pub fn page(&self) -> PageSize {
        todo!()
    }

    /// Size of the pages behind the memory: 2 MiB if the kernel gave them, else 4 KiB.
    pub fn backing_bytes(&self) -> u32 {
        todo!()
    }

    /// Where a frame begins: a reference's address.
    pub fn address(&self, frame: FrameNumber) -> u64 {
        todo!("{frame:?}")
    }

    /// The frame that holds the byte at `address`, if there is one.
    pub fn frame_at(&self, address: u64) -> Option<FrameNumber> {
        todo!("{address}")
    }

    /// The epoch to issue references with. Load it under the page's lock.
    pub fn current_epoch(&self) -> Epoch {
        todo!()
    }

    /// Makes every reference to the frame stale, before its content may change. `true`: somebody
    /// holds a pin and may still read what is there.
    pub fn revoke(&self, frame: FrameNumber) -> bool {
        todo!("{frame:?}")
    }

    /// As [`Arena::revoke`], and nothing validates nor pins until [`Arena::publish`].
    pub fn unpublish(&self, frame: FrameNumber) -> bool {
        todo!("{frame:?}")
    }

    /// Opens a filled frame to readers. References with the epoch that is returned, or a later one, read it.
    pub fn publish(&self, frame: FrameNumber) -> Epoch {
        todo!("{frame:?}")
    }

    /// Keeps the frame's content as it is until [`Arena::unpin`], if its stamp is above neither
    /// the `request`'s epoch nor the TPT `entry`'s.
    pub fn pin(&self, frame: FrameNumber, request: Epoch, entry: Epoch) -> Result<(), PinRefused> {
        todo!("{frame:?} {request:?} {entry:?}")
    }

    /// Ends one [`Arena::pin`].
    pub fn unpin(&self, frame: FrameNumber) {
        todo!("{frame:?}")
    }

    /// Whether anybody holds a pin.
    pub fn is_pinned(&self, frame: FrameNumber) -> bool {
        todo!("{frame:?}")
    }

    /// Says that the frame was used.
    pub fn set_referenced(&self, frame: FrameNumber) {
        todo!("{frame:?}")
    }

    /// Whether the frame was used since the last time; clears it.
    pub fn take_referenced(&self, frame: FrameNumber) -> bool {
        todo!("{frame:?}")
    }

    /// Says that a reference to the frame has been handed out (or no longer counts).
    pub fn set_handed_out(&self, frame: FrameNumber, handed_out: bool) {
        todo!("{frame:?} {handed_out}")
    }

    /// Whether a reference to the frame has been handed out.
    pub fn is_handed_out(&self, frame: FrameNumber) -> bool {
        todo!("{frame:?}")
    }

    /// Copies from a frame. The frame should be pinned or its page locked.
    ///
    /// # Panics
    /// If the range is beyond the frame.
    pub fn copy_out(&self, frame: FrameNumber, offset: u32, into: &mut [u8]) {
        todo!("{frame:?} {offset} {into:?}")
    }

    /// Copies into a frame, which is unpublished or revoked and not pinned.
    ///
    /// # Panics
    /// If the range is beyond the frame.
    pub fn copy_in(&self, frame: FrameNumber, offset: u32, from: &[u8]) {
        todo!("{frame:?} {offset} {from:?}")
    }

    /// Zeroes the bytes `from..to` of a frame, which is unpublished or revoked and not pinned.
    ///
    /// # Panics
    /// If the range is beyond the frame.
    pub fn zero(&self, frame: FrameNumber, from: u32, to: u32) {
        todo!("{frame:?} {from} {to}")
    }

    /// An aligned word of a frame, shared with the clients: a change counter.
    ///
    /// # Panics
    /// If `offset` is not a multiple of 8 or beyond the frame.
    pub fn word(&self, frame: FrameNumber, offset: u32) -> &AtomicU64 {
        todo!("{frame:?} {offset}")
    }

    /// Read-only descriptors of frames and stamps.
    pub fn share(&self) -> io::Result<SharedArena> {
        todo!()
    }
}
