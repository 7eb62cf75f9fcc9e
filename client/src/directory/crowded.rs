//! Whether references are worth asking for while others would have to go for them.

use odafs_fabric::sync::atomic::{AtomicBool, AtomicU32, Ordering::Relaxed};

/// Of so many reads of chunks that went one asks for references, while there is no room. Where more is read than fits, hits
/// depend on what is there, hardly on how often it is exchanged, and each exchange costs half of a call on one host.
const ASKS_ONE_IN: u32 = 8;

/// Is the directory full, and how many reads have not asked since one did?
#[derive(Debug, Default)]
pub struct Crowded {
    full: AtomicBool,
    declined: AtomicU32,
}

impl Crowded {
    /// Whether another chunk would take one from others.
    pub fn set_full(&self, full: bool) {
        if self.full.load(Relaxed) != full {
            self.full.store(full, Relaxed);
        }
    }

    /// Is a read to ask for references, whose chunk was evicted?
    pub fn asks(&self) -> bool {
        !self.full.load(Relaxed)
            || self
                .declined
                .fetch_add(1, Relaxed)
                .is_multiple_of(ASKS_ONE_IN)
    }
}
