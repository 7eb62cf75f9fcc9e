//! Whose doing it was that the store reports written bytes of a file.
//!
//! A writer sets a file's times first, then copies its bytes, and is reported when that is over. Who looks in between
//! knows the new times and may read old bytes; so the report counts even if the times say nothing new. But our own
//! writes are reported too.

use odafs_fabric::clock::Nanos;
use odafs_fabric::sync::atomic::{AtomicU32, AtomicU64, Ordering};

/// What a file keeps to tell reports of its own writes from those of others.
#[derive(Debug)]
pub(crate) struct Reports {
    /// Reports that come may be of our own writes: so many more.
    own: AtomicU32,
    /// When an outside change was seen last; [`NEVER`] if there was none.
    foreign: AtomicU64,
}

const NEVER: u64 = u64::MAX;

/// Someone who has changed a file is taken to be at it for so long still, where reports do not tell.
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
    /// Reports come in lots. When one is dealt with, our own write may be in the next one, or, where a table of stores
    /// hands lots on, in the one after that.
    const OWN: u32 = 3;

    /// To be called before and after a write of our own.
    pub(crate) fn expect_own(&self) {
        self.own.store(Self::OWN, Ordering::SeqCst);
    }

    /// A report has come. Was it of a write of our own, as far as one can know?
    pub(crate) fn is_own(&self) -> bool {
        let one_less = |own: u32| own.checked_sub(1);
        self.own
            .fetch_update(Ordering::SeqCst, Ordering::SeqCst, one_less)
            .is_ok()
    }

    /// An outside change was seen.
    pub(crate) fn note_foreign(&self, now: Nanos) {
        self.foreign.store(now.0, Ordering::SeqCst);
    }

    /// Whether someone else was at the file a moment ago, and may still be.
    pub(crate) fn others_may_be_at_it(&self, now: Nanos) -> bool {
        let foreign = self.foreign.load(Ordering::SeqCst);
        foreign != NEVER && now.since(Nanos(foreign)) <= AT_IT
    }
}
