//! Whether to ask for references that would evict others.

use odafs_fabric::sync::atomic::{AtomicBool, AtomicU32, Ordering::Relaxed};

/// While there is no room, one of this many reads of evicted chunks asks for references. If more is read than fits,
/// hits depend on what is in the directory, hardly on how often it is exchanged, and each exchange costs half of a call
/// on one host.
const ASKS_ONE_IN: u32 = 8;

/// Whether the directory is full, and how many reads have not asked since the last one did.
#[derive(Debug, Default)]
pub struct Crowded {
    full: AtomicBool,
    declined: AtomicU32,
}

impl Crowded {
    /// Whether another chunk would take the place of one that others use.
    pub fn set_full(&self, full: bool) {
        if self.full.load(Relaxed) != full {
            self.full.store(full, Relaxed);
        }
    }

    /// Whether a read whose chunk was evicted shall ask for references.
    pub fn asks(&self) -> bool {
        !self.full.load(Relaxed)
            || self
                .declined
                .fetch_add(1, Relaxed)
                .is_multiple_of(ASKS_ONE_IN)
    }
}
