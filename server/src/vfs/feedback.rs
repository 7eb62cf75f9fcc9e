//! The server's feedback on its cache for the clients' policies: how much is being paged out, how often reads find their
//! pages, and for how long there has been no pressure.

use odafs_common::direct::Feedback;
use odafs_fabric::clock::Nanos;
use odafs_fabric::sync::Mutex;
use odafs_fabric::sync::atomic::{AtomicU64, Ordering};

use crate::vfs::metrics::Metrics;

/// Measures the cache.
pub(crate) struct Pulse {
    last: Mutex<Last>,
    word: AtomicU64,
}

/// The counters at the last look.
#[derive(Clone, Copy, Default)]
struct Last {
    time: Nanos,
    evictions: u64,
    hits: u64,
    misses: u64,
    /// Hits per thousand, decayed.
    permille: u64,
    /// The last time at which evictions were frequent.
    unsettled: Nanos,
}

impl Pulse {
    /// Fewer evictions per second than this are no pressure.
    const FREQUENT: u64 = 10;

    pub(crate) fn new(now: Nanos) -> Self {
        let last = Last {
            time: now,
            unsettled: now,
            ..Last::default()
        };
        Self {
            last: Mutex::new(last),
            word: AtomicU64::new(0),
        }
    }

    pub(crate) fn feedback(&self) -> Feedback {
        Feedback::unpack(self.word.load(Ordering::Relaxed))
    }

    pub(crate) fn take(&self, now: Nanos, metrics: &Metrics) {
        let mut last = self.last.lock();
        let span = now.since(last.time).0.max(1);
        let (evictions, hits, misses) = (
            metrics.evictions.get(),
            metrics.page_hits.get(),
            metrics.page_misses.get(),
        );
        let evicted = u128::from(evictions - last.evictions) * 1_000_000_000;
        let per_second = u64::try_from(evicted / u128::from(span)).unwrap_or(u64::MAX);
        let (hit, missed) = (hits - last.hits, misses - last.misses);
        if let Some(fresh) = (hit * 1000).checked_div(hit + missed) {
            last.permille = (last.permille + fresh) / 2;
        }
        if per_second >= Self::FREQUENT {
            last.unsettled = now;
        }
        (last.time, last.evictions, last.hits, last.misses) = (now, evictions, hits, misses);
        let settled = now.since(last.unsettled).0 / 1_000_000_000;
        let feedback = Feedback {
            evictions_per_second: u32::try_from(per_second).unwrap_or(u32::MAX),
            hit_permille: last.permille as u16,
            settled_seconds: u16::try_from(settled).unwrap_or(u16::MAX),
        };
        self.word.store(feedback.pack(), Ordering::Relaxed);
    }
}
