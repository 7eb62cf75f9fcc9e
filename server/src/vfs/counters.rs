//! Change counters: one `u64` for each live file, in frames of the arena that are reserved for them, so that clients can
//! read them directly.
//!
//! All values come from one clock that only grows, over all lives of the server. So no value occurs twice, even if a slot
//! has passed from one file to another.

use std::collections::HashMap;
// Not the simulator's atomics, because other processes map the arena's words.
use std::sync::atomic::{AtomicU64, Ordering};

use odafs_common::exception::Exception;
use odafs_common::page::PageSize;
use odafs_common::reference::{Handle, Reference};
use odafs_fabric::memory::{Arena, FrameNumber};
use odafs_fabric::sync::{Arc, Mutex};
use odafs_nic::capability::ReaderClass;
use odafs_nic::tpt::TptEntry;

use crate::vfs::keys::Keys;

/// A word of shared memory, which is never one of the simulator's atomics.
type Word = std::sync::atomic::AtomicU64;

/// Handles from here on are of change counters, and those below are of pages.
pub(crate) const COUNTER_HANDLES: u32 = 1 << 31;
/// Size of a counter in bytes.
const COUNTER_BYTES: u32 = 8;

/// All change counters of an export.
pub(crate) struct ChangeCounters {
    arena: Arc<Arena>,
    page: PageSize,
    /// The first frames of the arena hold the counters.
    frames: u32,
    clock: AtomicU64,
    slots: Mutex<Slots>,
    granted: Mutex<HashMap<u32, TptEntry>>,
}

#[derive(Debug, Default)]
struct Slots {
    unused_from: u32,
    returned: Vec<u32>,
}

impl ChangeCounters {
    /// Takes the first `frames` frames of the arena. Values begin above `base`.
    pub(crate) fn new(arena: Arc<Arena>, page: PageSize, frames: u32, base: u64) -> Self {
        for frame in (0..frames).map(FrameNumber) {
            arena.zero(frame, 0, page.bytes() as u32);
            arena.publish(frame);
        }
        Self {
            arena,
            page,
            frames,
            clock: AtomicU64::new(base),
            slots: Mutex::default(),
            granted: Mutex::default(),
        }
    }

    /// Number of files whose counters clients can read.
    pub(crate) fn capacity(&self) -> u32 {
        self.frames * self.per_frame()
    }

    fn per_frame(&self) -> u32 {
        self.page.bytes() as u32 / COUNTER_BYTES
    }

    fn place(&self, slot: u32) -> (FrameNumber, u32) {
        (
            FrameNumber(slot / self.per_frame()),
            slot % self.per_frame() * COUNTER_BYTES,
        )
    }

    fn word(&self, slot: u32) -> &Word {
        let (frame, offset) = self.place(slot);
        self.arena.word(frame, offset)
    }

    fn next(&self) -> u64 {
        self.clock.fetch_add(1, Ordering::Relaxed) + 1
    }

    /// A counter for a new file. If all slots are taken, clients cannot read it.
    pub(crate) fn new_counter(self: &Arc<Self>) -> Counter {
        let mut slots = self.slots.lock();
        let slot = slots.returned.pop().or_else(|| {
            let slot = slots.unused_from;
            (slot < self.capacity()).then(|| {
                slots.unused_from += 1;
                slot
            })
        });
        drop(slots);
        let counter = Counter {
            counters: Arc::clone(self),
            slot,
            private: Word::new(0),
        };
        counter.bump();
        counter
    }

    /// The entry of a counter's handle for the NIC, which has lost its own.
    pub(crate) fn fault(&self, handle: Handle) -> Result<TptEntry, Exception> {
        let granted = self.granted.try_lock().ok_or(Exception::Busy)?;
        let slot = handle.0.wrapping_sub(COUNTER_HANDLES);
        granted.get(&slot).copied().ok_or(Exception::Stale)
    }
}

/// The change counter of a file. Dropping it frees its slot.
pub(crate) struct Counter {
    counters: Arc<ChangeCounters>,
    slot: Option<u32>,
    /// The value if there was no slot.
    private: Word,
}

impl Counter {
    fn word(&self) -> &Word {
        match self.slot {
            Some(slot) => self.counters.word(slot),
            None => &self.private,
        }
    }

    /// The present value. Each change of the file changes it.
    pub(crate) fn value(&self) -> u64 {
        self.word().load(Ordering::Acquire)
    }

    /// Gives it a value that no counter ever had. Of two changes at the same time, the lower value may stay, since it
    /// differs from all earlier ones, too.
    pub(crate) fn bump(&self) {
        self.word().store(self.counters.next(), Ordering::SeqCst);
    }

    /// A reference for readers of `class`. `None` without a slot. `enter` tells the NIC of a new one.
    pub(crate) fn reference(
        &self,
        class: ReaderClass,
        keys: &Keys,
        enter: impl FnOnce(Handle, TptEntry),
    ) -> Option<Reference> {
        let slot = self.slot?;
        let handle = Handle(COUNTER_HANDLES + slot);
        let (frame, offset) = self.counters.place(slot);
        let mut granted = self.counters.granted.lock();
        let entry = granted.entry(slot).or_insert_with(|| {
            let entry = TptEntry {
                frame,
                address: self.counters.page.start(frame.0.into()) + u64::from(offset),
                length: COUNTER_BYTES,
                key: keys.next(),
                epoch: self.counters.arena.current_epoch(),
                class,
            };
            enter(handle, entry);
            entry
        });
        Some(Reference {
            address: entry.address,
            length: entry.length,
            handle,
            key: entry.key,
            epoch: entry.epoch,
        })
    }

    /// Makes references to it worthless. `forget` tells the NIC, since no stamp protects counters. The NIC's entries of
    /// counters therefore change only under this lock.
    pub(crate) fn revoke(&self, forget: impl FnOnce(Handle)) {
        let Some(slot) = self.slot else { return };
        let mut granted = self.counters.granted.lock();
        if granted.remove(&slot).is_some() {
            forget(Handle(COUNTER_HANDLES + slot));
        }
    }
}

impl Drop for Counter {
    fn drop(&mut self) {
        // A client that still reads the slot sees a change.
        self.bump();
        if let Some(slot) = self.slot {
            // It was revoked when the file was let go, so the NIC has no entry of it.
            self.counters.granted.lock().remove(&slot);
            self.counters.slots.lock().returned.push(slot);
        }
    }
}
