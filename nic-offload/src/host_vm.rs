//! The host's VM module as the NIC sees it (paper 004, IV-A.1): five calls, two ways to make them.
//!
//! [`SharedVm`] touches the host's state with atomics; [`QueuedVm`] posts each call to a queue that a host thread
//! serves, as a NIC that cannot lock host memory must. What both cost is the paper's `T2 = k x (Texc + TVM)`.

use odafs_common::exception::Exception;
use odafs_common::reference::{Epoch, Handle};
use odafs_fabric::memory::{Arena, FrameNumber, PinRefused, Pinned};
use odafs_fabric::sync::Arc;

use crate::tpt::TptEntry;

mod queued;

pub use queued::QueuedVm;

/// What the NIC asks of the host.
pub trait HostVm: Send + Sync {
    /// The TPT has no (usable) entry: is what the handle covers still resident and handed out? The entry carries the
    /// export's epoch, taken under the page's lock. [`Exception::NotResident`] otherwise.
    fn fault(&self, handle: Handle) -> Result<TptEntry, Exception>;

    /// May the NIC keep what [`fault`](Self::fault) says of the handle? Not where no stamp tells it when that ceases to
    /// be true: such entries the host alone enters and removes. Answered at once, from the handle alone.
    fn may_keep(&self, handle: Handle) -> bool;

    /// Pins the entry's frame if its content is still that of both epochs: the client's and the entry's own.
    /// [`Exception::Stale`] if not; [`Exception::Busy`] after a bounded number of tries.
    fn lock(&self, entry: &TptEntry, request: Epoch) -> Result<Pinned, Exception>;

    /// Ends a [`lock`](Self::lock). To drop the pin does the same, at once and for nothing.
    fn unlock(&self, pin: Pinned);

    /// The frame was read: pageout shall know.
    fn reference(&self, frame: FrameNumber);

    /// The frame was written. (Direct writes are not offered; frames of stores without a cache use it.)
    fn dirty(&self, frame: FrameNumber);
}

/// The host's page cache, as its VM module needs it.
pub trait PageCache: Send + Sync {
    /// See [`HostVm::fault`].
    fn fault(&self, handle: Handle) -> Result<TptEntry, Exception>;

    /// See [`HostVm::may_keep`].
    fn may_keep(&self, handle: Handle) -> bool {
        let _ = handle;
        true
    }

    /// See [`HostVm::dirty`].
    fn dirty(&self, frame: FrameNumber) {
        let _ = frame;
    }
}

impl<F> PageCache for F
where
    F: Fn(Handle) -> Result<TptEntry, Exception> + Send + Sync,
{
    fn fault(&self, handle: Handle) -> Result<TptEntry, Exception> {
        self(handle)
    }
}

/// The host's state reached directly: atomics in the arena's frame table, and the page cache's own lookup on a fault.
pub struct SharedVm {
    arena: Arc<Arena>,
    pages: Arc<dyn PageCache>,
}

impl SharedVm {
    /// Over this arena and this page cache.
    pub fn new(arena: Arc<Arena>, pages: Arc<dyn PageCache>) -> SharedVm {
        SharedVm { arena, pages }
    }
}

impl HostVm for SharedVm {
    fn fault(&self, handle: Handle) -> Result<TptEntry, Exception> {
        self.pages.fault(handle)
    }

    fn may_keep(&self, handle: Handle) -> bool {
        self.pages.may_keep(handle)
    }

    fn lock(&self, entry: &TptEntry, request: Epoch) -> Result<Pinned, Exception> {
        self.arena
            .pin(entry.frame, request, entry.epoch)
            .map_err(|refused| match refused {
                PinRefused::Stale => Exception::Stale,
                PinRefused::Busy => Exception::Busy,
            })
    }

    fn unlock(&self, pin: Pinned) {
        drop(pin);
    }

    fn reference(&self, frame: FrameNumber) {
        self.arena.set_referenced(frame);
    }

    fn dirty(&self, frame: FrameNumber) {
        self.pages.dirty(frame);
    }
}

#[cfg(test)]
#[path = "host_vm_tests.rs"]
mod tests;
