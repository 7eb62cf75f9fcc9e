//! The counters of a NIC.

use odafs_common::exception::Exception;
use odafs_fabric::sync::atomic::{AtomicU64, Ordering};

/// Counters of a NIC since its start.
#[derive(Debug, Default)]
pub struct NicCounters {
    reads: AtomicU64,
    bytes: AtomicU64,
    faults: AtomicU64,
    throttled: AtomicU64,
    attached: AtomicU64,
    refusals: [AtomicU64; Exception::ALL.len()],
}

/// The counters at one moment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Direct reads completed.
    pub reads: u64,
    /// Bytes that they moved.
    pub bytes: u64,
    /// TPT misses that the host had to answer.
    pub faults: u64,
    /// Messages refused unread, on connections that had been denied too often.
    pub throttled: u64,
    /// Connections attached to sessions.
    pub attached: u64,
    /// Reads refused, in the order of [`Exception::ALL`].
    pub refusals: [u64; Exception::ALL.len()],
}

impl Counts {
    /// Reads refused with this exception.
    pub fn refused(&self, exception: Exception) -> u64 {
        self.refusals[usize::from(exception.code()) - 1]
    }
}

impl NicCounters {
    /// Reads refused, with any exception.
    pub fn snapshot(&self) -> Counts {
        let load = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        Counts {
            reads: load(&self.reads),
            bytes: load(&self.bytes),
            faults: load(&self.faults),
            throttled: load(&self.throttled),
            attached: load(&self.attached),
            refusals: std::array::from_fn(|i| load(&self.refusals[i])),
        }
    }

    pub(crate) fn completed(&self, bytes: u32) {
        self.reads.fetch_add(1, Ordering::Relaxed);
        self.bytes.fetch_add(bytes.into(), Ordering::Relaxed);
    }

    pub(crate) fn fault(&self) {
        self.faults.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn throttled(&self) {
        self.throttled.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn attached(&self) {
        self.attached.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn refused(&self, exception: Exception) {
        self.refusals[usize::from(exception.code()) - 1].fetch_add(1, Ordering::Relaxed);
    }
}
