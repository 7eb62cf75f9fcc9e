//! Tells reports of the server's own writes from those of others.
//!
//! A writer first sets a file's times and then copies its bytes, and the report comes after both. A reader in between
//! sees the new times and may read old bytes. So a report counts even if the times show nothing new. But the server's own
//! writes are reported, too.

use odafs_fabric::clock::Nanos;
use odafs_fabric::sync::atomic::{AtomicU32, AtomicU64, Ordering};

/// The state by which a file tells reports of the server's writes from others.
#[derive(Debug)]
pub(crate) struct Reports {
    /// How many of the next reports may be of the server's own writes.
    own: AtomicU32,
    /// The time of the last outside change that was seen, or [`NEVER`].
    foreign: AtomicU64,
}

const NEVER: u64 = u64::MAX;

/// How long after a change another writer is assumed to continue, if reports do not tell.
pub(crate) const AT_IT: Nanos = Nanos::from_secs(2);

impl Default for Reports {
    fn default() -> Self {
        Self {
            own: AtomicU32::new(0),
            foreign: AtomicU64::new(NEVER),
        }
    }
}

impl Reports {
    /// Reports come in batches. When one is handled, the server's own write may be in the next batch, or in the one after
    /// that if a table of stores passes batches on.
    const OWN: u32 = 3;

    /// To be called before and after a write of the server.
    pub(crate) fn expect_own(&self) {
        self.own.store(Self::OWN, Ordering::SeqCst);
    }

    /// Notes a report. Returns whether it may have been of a write of the server.
    pub(crate) fn is_own(&self) -> bool {
        let one_less = |own: u32| own.checked_sub(1);
        self.own
            .fetch_update(Ordering::SeqCst, Ordering::SeqCst, one_less)
            .is_ok()
    }

    /// Notes an outside change.
    pub(crate) fn note_foreign(&self, now: Nanos) {
        self.foreign.store(now.0, Ordering::SeqCst);
    }

    /// Whether someone else changed the file a moment ago, and may still do so.
    pub(crate) fn others_may_be_at_it(&self, now: Nanos) -> bool {
        let foreign = self.foreign.load(Ordering::SeqCst);
        foreign != NEVER && now.since(Nanos(foreign)) <= AT_IT
    }
}
