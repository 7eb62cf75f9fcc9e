//! The configuration and the counters of RPC-over-RDMA connections.

use odafs_common::rpcrdma::{AdaptiveGrants, GrantPolicy, SPARE_RECEIVES};
use odafs_fabric::QueuePair;
use odafs_fabric::clock::Nanos;
use odafs_fabric::sync::Arc;
use odafs_fabric::sync::atomic::{AtomicU64, Ordering};

use crate::registration::{RegistrationConfig, RegistrationCounters};

/// How an engine serves RPC-over-RDMA.
#[derive(Clone, Copy, Debug)]
pub struct RdmaConfig {
    /// Credits of each connection.
    pub credits: Credits,
    /// The longest call, including the data that is read, in bytes.
    pub message_bytes_max: u32,
    /// The most calls of one connection whose data is being read at a time.
    pub pulls_max: usize,
    /// A call whose data has not come within this time ends its connection.
    pub pull_time_max: Nanos,
    /// A call that has waited this long for memory for its data ends its connection. The client then repeats its calls.
    pub memory_time_max: Nanos,
    /// Whether to use the Read-Read design with clients that ask for it.
    pub read_read: bool,
    /// The most replies of one connection that wait to be fetched in that design.
    pub exposures_max: u32,
    /// How long such replies wait.
    pub done_time_max: Nanos,
    /// The most calls to the client in flight on its connection, if it grants as many (RFC 8167).
    pub reverse_credits: u32,
    /// A call to the client that is not answered within this time closes the way back over its connection.
    pub back_time_max: Nanos,
    /// The memory for data that is read, and for replies that wait to be fetched.
    pub registration: RegistrationConfig,
}

impl RdmaConfig {
    /// The most receives that a connection may have posted at a time: those that its credits promise, one for each
    /// reply that waits to be fetched and for each call to the client, and a spare one.
    pub fn receives_max(&self) -> u32 {
        let beside = self.beside_calls() + self.reverse_credits;
        self.credits.max().saturating_add(beside)
    }

    /// Receives that are for no call of either direction.
    fn beside_calls(&self) -> u32 {
        let exposed = if self.read_read {
            self.exposures_max
        } else {
            0
        };
        exposed + SPARE_RECEIVES
    }

    /// Credits of a connection, at most as many as it has receives.
    pub(in crate::engine) fn credits_on(&self, qp: &dyn QueuePair) -> Credits {
        let beside = self.beside_calls();
        self.credits
            .at_most(qp.receives_max().saturating_sub(beside).max(1))
    }

    /// Calls to the client that a connection may have under way: where receives are few, the client's calls come first.
    pub(in crate::engine) fn reverse_on(&self, qp: &dyn QueuePair) -> u32 {
        let beside = self.beside_calls() + self.credits_on(qp).max();
        let room = qp.receives_max().saturating_sub(beside);
        self.reverse_credits.min(room)
    }
}

impl Default for RdmaConfig {
    fn default() -> Self {
        RdmaConfig {
            credits: Credits::default(),
            // 1 MiB of data and its headers.
            message_bytes_max: (1 << 20) + (64 << 10),
            pulls_max: 32,
            pull_time_max: Nanos::from_secs(30),
            memory_time_max: Nanos::from_secs(30),
            read_read: false,
            exposures_max: 64,
            done_time_max: Nanos::from_secs(30),
            // As many as Linux grants.
            reverse_credits: 16,
            // The lease of NFS version 4, unless another is asked for.
            back_time_max: Nanos::from_secs(90),
            registration: RegistrationConfig::default(),
        }
    }
}

/// The number of calls that a client may have under way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Credits {
    /// Always this many.
    Fixed(u32),
    /// By what clients ask for and how many clients there are ("Optimizing OpenSolaris NFS over RDMA", figure 11).
    Adaptive {
        /// The credits of all clients together.
        all: u32,
        /// The most credits of one client.
        max: u32,
    },
}

impl Default for Credits {
    fn default() -> Self {
        Credits::Fixed(128)
    }
}

impl Credits {
    /// The most that one client is ever granted.
    pub fn max(self) -> u32 {
        match self {
            Credits::Fixed(max) | Credits::Adaptive { max, .. } => max,
        }
    }

    /// The same, but at most this many for one client.
    fn at_most(self, most: u32) -> Credits {
        match self {
            Credits::Fixed(credits) => Credits::Fixed(credits.min(most)),
            Credits::Adaptive { all, max } => Credits::Adaptive {
                all,
                max: max.min(most),
            },
        }
    }

    /// The credits with this many clients.
    pub(in crate::engine) fn policy(self, clients: usize) -> GrantPolicy {
        match self {
            Credits::Fixed(credits) => GrantPolicy::Fixed(credits),
            Credits::Adaptive { all, max } => GrantPolicy::Adaptive(AdaptiveGrants {
                average: all / u32::try_from(clients.max(1)).unwrap_or(u32::MAX),
                max,
                factor_percent: 50,
            }),
        }
    }
}

/// The counters of the RPC-over-RDMA connections of an engine.
#[derive(Debug, Default)]
pub struct RdmaCounters {
    /// Connections at present.
    pub connections: AtomicU64,
    /// Calls.
    pub calls: AtomicU64,
    /// Segments read from clients.
    pub reads: AtomicU64,
    /// Bytes of those segments.
    pub read_bytes: AtomicU64,
    /// RDMA Writes to clients.
    pub writes: AtomicU64,
    /// Bytes of those writes.
    pub written_bytes: AtomicU64,
    /// Replies that a client fetches (Read-Read).
    pub exposed: AtomicU64,
    /// Bytes of those replies.
    pub exposed_bytes: AtomicU64,
    /// Number of `RDMA_DONE` messages.
    pub dones: AtomicU64,
    /// Replies that were not fetched in time.
    pub done_timeouts: AtomicU64,
    /// Messages without a valid header, which were answered by `RDMA_ERROR`.
    pub malformed: AtomicU64,
    /// Messages that were ignored.
    pub ignored: AtomicU64,
    /// Replies for which the client had provided no room.
    pub overruns: AtomicU64,
    /// RDMA Reads that failed.
    pub faults: AtomicU64,
    /// Registrations.
    pub registration: Arc<RegistrationCounters>,
}

pub(super) fn count(counter: &AtomicU64) {
    add(counter, 1);
}

pub(super) fn add(counter: &AtomicU64, more: u64) {
    counter.fetch_add(more, Ordering::Relaxed);
}
