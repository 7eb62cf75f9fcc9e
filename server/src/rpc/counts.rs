//! What a service counts of all its calls.

use odafs_fabric::sync::atomic::{AtomicU64, Ordering};

use crate::vfs::metrics::counter;

/// What became of calls.
#[derive(Debug, Default)]
pub(super) struct Counts {
    pub deferred: AtomicU64,
    pub duplicates: AtomicU64,
    pub refused: AtomicU64,
}

impl Counts {
    /// The counts so far, of so many calls.
    pub fn of(&self, calls: u64) -> CallCounts {
        CallCounts {
            calls,
            deferred: self.deferred.load(Ordering::Relaxed),
            duplicates: self.duplicates.load(Ordering::Relaxed),
            refused: self.refused.load(Ordering::Relaxed),
        }
    }
}

/// Counts one more.
pub(super) fn count(counter: &AtomicU64) {
    counter.fetch_add(1, Ordering::Relaxed);
}

/// How many calls came since the start, and what became of them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CallCounts {
    /// In all.
    pub calls: u64,
    /// Calls that went to the pool.
    pub deferred: u64,
    /// Repetitions, answered from the duplicate request cache or dropped.
    pub duplicates: u64,
    /// Not served: malformed, unknown or not admitted.
    pub refused: u64,
}

impl CallCounts {
    /// Appends all counts but `calls` in the text format of Prometheus.
    pub(super) fn append_text(&self, out: &mut String) {
        let counts = [
            ("deferred", "Calls that went to the pool.", self.deferred),
            (
                "duplicates",
                "Repeated calls, answered from the duplicate request cache or dropped.",
                self.duplicates,
            ),
            (
                "refused_calls",
                "Calls malformed, unknown or not let in.",
                self.refused,
            ),
        ];
        for (name, help, count) in counts {
            counter(out, name, help, count);
        }
    }
}
