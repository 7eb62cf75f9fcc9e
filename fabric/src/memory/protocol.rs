//! The protocol of epochs, stamps and pins on bare atomics, as loom explores it.
//!
//! ```text
//!   writer (holds the page's lock)            reader (one-sided)         pinner (the NIC)
//!   epoch += 1                                copy          (relaxed)    pins += 1
//!   stamp := epoch            (revoke)        fence         (acquire)    fence  (SeqCst)
//!   fence                     (SeqCst)        stamp <= my epoch?         stamp <= the epochs?
//!   pins = 0?  then change the content                                   no: pins -= 1
//!   fence, epoch += 1, stamp := epoch  (publish)
//! ```
//! Reader: whoever copied a changed byte has synchronised, fence to fence, with the revocation,
//! and so finds the stamp moved. Pinner: of two SeqCst fences one is first, so either the writer
//! finds the pin or the pinner finds the stamp.

use super::atomic::{AtomicU32, AtomicU64, Ordering, fence};
use super::schedule_point;

/// The stamp of a frame without valid content. It is above every epoch.
pub const UNPUBLISHED: u64 = u64::MAX;

const REFERENCED: u32 = 1;
const HANDED_OUT: u32 = 2;
const PIN: u32 = 1 << 2;

/// The most pins of one frame.
const PINS_MAX: u32 = 1 << 20;

/// The server's state of one frame: its pins and two flags.
pub struct State(AtomicU32);

impl State {
    pub fn new() -> Self {
        Self(AtomicU32::new(0))
    }

    pub fn is_pinned(&self) -> bool {
        schedule_point();
        self.holds_pin()
    }

    /// As [`State::is_pinned`], for callers that no other task can disturb.
    pub fn holds_pin(&self) -> bool {
        self.0.load(Ordering::Acquire) >= PIN
    }

    pub fn unpin(&self) {
        schedule_point();
        let before = self.0.fetch_sub(PIN, Ordering::Release);
        debug_assert!(before >= PIN, "a pin was given back twice");
    }

    pub fn set_referenced(&self) {
        self.set(REFERENCED);
    }

    pub fn take_referenced(&self) -> bool {
        self.0.load(Ordering::Relaxed) & REFERENCED != 0
            && self.0.fetch_and(!REFERENCED, Ordering::Relaxed) & REFERENCED != 0
    }

    pub fn set_handed_out(&self, handed_out: bool) {
        if handed_out {
            self.set(HANDED_OUT);
        } else {
            self.0.fetch_and(!HANDED_OUT, Ordering::Relaxed);
        }
    }

    pub fn is_handed_out(&self) -> bool {
        self.0.load(Ordering::Relaxed) & HANDED_OUT != 0
    }

    /// A flag that is already set is only read, so that the cache line stays shared.
    fn set(&self, flag: u32) {
        if self.0.load(Ordering::Relaxed) & flag == 0 {
            self.0.fetch_or(flag, Ordering::Relaxed);
        }
    }
}

/// Why a frame could not be pinned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PinRefused {
    /// The content has changed, or may have, since the reference was issued.
    Stale,
    /// There are too many pins.
    Busy,
}

/// Counts a pin, then checks whether it came in time: the stamp must not be above `limit`.
pub fn pin(stamp: &AtomicU64, state: &State, limit: u64) -> Result<(), PinRefused> {
    schedule_point();
    let before = state.0.fetch_add(PIN, Ordering::SeqCst);
    if before / PIN >= PINS_MAX {
        state.unpin();
        return Err(PinRefused::Busy);
    }
    fence(Ordering::SeqCst);
    if is_above(stamp, limit) {
        state.unpin();
        return Err(PinRefused::Stale);
    }
    Ok(())
}

/// Moves the stamp to a new epoch, or to [`UNPUBLISHED`]. Returns `true` if somebody holds a pin.
///
/// An unpublished frame leaves the counter alone: its stamp is above every epoch anyway.
pub fn revoke(stamp: &AtomicU64, state: &State, epoch: &AtomicU64, unpublish: bool) -> bool {
    schedule_point();
    let moved = if unpublish {
        UNPUBLISHED
    } else {
        epoch.fetch_add(1, Ordering::SeqCst) + 1
    };
    stamp.store(moved, Ordering::SeqCst);
    fence(Ordering::SeqCst);
    state.is_pinned()
}

/// Opens the content to readers. Returns its epoch.
pub fn publish(stamp: &AtomicU64, epoch: &AtomicU64) -> u64 {
    schedule_point();
    let opened = epoch.fetch_add(1, Ordering::SeqCst) + 1;
    stamp.store(opened, Ordering::Release);
    opened
}

/// The epoch of a frame's content, if that is open to readers. What is loaded from the frame after this belongs to no
/// later content, if [`is_still`] returns true.
#[inline]
pub fn opened(stamp: &AtomicU64) -> Option<u64> {
    schedule_point();
    let epoch = stamp.load(Ordering::Acquire);
    (epoch != 0 && epoch != UNPUBLISHED).then_some(epoch)
}

/// After the copy: whether the stamp has not moved since [`opened`]. A stamp of 0 counts as moved, because memory that
/// was given back reads as zeros.
#[inline]
pub fn is_still(stamp: &AtomicU64, epoch: u64) -> bool {
    schedule_point();
    fence(Ordering::Acquire);
    schedule_point();
    stamp.load(Ordering::Relaxed) == epoch
}

/// Closes a frame without pins, before its content changes.
pub fn close(stamp: &AtomicU64) {
    schedule_point();
    stamp.store(UNPUBLISHED, Ordering::Relaxed);
    // Whoever loads anything that is stored after this finds that the stamp has moved.
    fence(Ordering::Release);
}

/// After the copy: whether the stamp validates all of it. The fence belongs to the copies before it.
#[inline]
pub fn validates(stamp: &AtomicU64, limit: u64) -> bool {
    schedule_point();
    fence(Ordering::Acquire);
    !is_above(stamp, limit)
}

/// An epoch of `u64::MAX` is never issued. An unpublished frame is refused with it, too.
#[inline]
fn is_above(stamp: &AtomicU64, limit: u64) -> bool {
    schedule_point();
    let stamp = stamp.load(Ordering::Acquire);
    stamp > limit || stamp == UNPUBLISHED
}
