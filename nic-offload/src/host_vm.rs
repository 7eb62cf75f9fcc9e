//! The host's VM module as the NIC sees it (paper 004, IV-A.1): five calls, and two ways to make them.
//!
//! [`SharedVm`] accesses the host's state with atomics. [`QueuedVm`] posts each call to a queue that a host thread
//! serves, as a NIC that cannot lock host memory must do. Their cost is the paper's `T2 = k x (Texc + TVM)`.

use odafs_common::exception::Exception;
use odafs_common::reference::{Epoch, Handle};
use odafs_fabric::memory::{Arena, FrameNumber, PinRefused, Pinned};
use odafs_fabric::sync::Arc;

use crate::tpt::TptEntry;

mod queued;

pub use queued::QueuedVm;

/// The NIC's calls to the host.
pub trait HostVm: Send + Sync {
    /// Called if the TPT has no usable entry. Returns the entry if what the handle covers is still resident and handed
    /// out. The entry has the export's epoch, taken with the page's lock held. Otherwise [`Exception::NotResident`].
    fn fault(&self, handle: Handle) -> Result<TptEntry, Exception>;

    /// Whether the NIC may keep what [`fault`](Self::fault) returns for the handle. It may not if no stamp tells when
    /// the entry ceases to be true; only the host enters and removes such entries. Answered at once, from the handle
    /// alone.
    fn may_keep(&self, handle: Handle) -> bool;

    /// Pins the entry's frame if its content is still that of both epochs, the client's and the entry's own. Otherwise
    /// [`Exception::Stale`], or [`Exception::Busy`] after a bounded number of tries.
    fn lock(&self, entry: &TptEntry, request: Epoch) -> Result<Pinned, Exception>;

    /// Ends a [`lock`](Self::lock). Dropping the pin does the same at once, and costs nothing.
    fn unlock(&self, pin: Pinned);

    /// The frame was read. Pageout uses this.
    fn reference(&self, frame: FrameNumber);

    /// The frame was written. (Direct writes are not offered; frames of stores without a cache use this.)
    fn dirty(&self, frame: FrameNumber);
}

/// What the VM module needs of the host's page cache.
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

/// Direct access to the host's state: atomics in the arena's frame table, and the page cache's own lookup on a fault.
pub struct SharedVm {
    arena: Arc<Arena>,
    pages: Arc<dyn PageCache>,
}

impl SharedVm {
    /// For this arena and this page cache.
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
