//! Memory for RDMA on behalf of calls, by the registration strategies of "Designing NFS with RDMA for Security,
//! Performance and Scalability" (section 4.3).
//!
//! Registration is expensive because the device must be told each page, and the pages must be pinned. A fabric in
//! software needs neither, so there the strategies differ only in how they allocate memory. [`Costs`] models the price,
//! to compare them.
//!
//! | strategy | memory | when the price is paid |
//! |---|---|---|
//! | [`Strategy::PerOperation`] | registered for each call, and given back after it | pages and two operations a call |
//! | [`Strategy::Pooled`] | registered once; each use has a fresh tag | pages a call, one operation a batch of tags |
//! | [`Strategy::Cached`] | registered once and used again | at first use |
//! | [`Strategy::AllPhysical`] | unpublished frames of the arena | never |

use odafs_fabric::clock::{self, Nanos};
use odafs_fabric::memory::{Arena, FrameNumber};
use odafs_fabric::sync::atomic::{AtomicU64, Ordering};
use odafs_fabric::sync::{Arc, hint};

mod budget;
mod lease;
mod registrar;

pub use lease::{Contents, Lease};
pub use registrar::{NoLease, Registrar};

use budget::{Budget, Queue};

/// Where memory for RDMA comes from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Strategy {
    /// Memory is registered for each call.
    PerOperation,
    /// Fast registration: each use binds a fresh tag to registered memory. Tags that are no longer used are
    /// invalidated in batches, and are valid until then. On a device, memory to which the peer has no right needs no
    /// tag. If the device has no memory windows, what the peer may read is registered for each use.
    Pooled,
    /// Registered memory is kept, with its tag, for the next call.
    #[default]
    Cached,
    /// Frames of the arena that hold no page. The adapter knows the arena as a whole, so they need no registration.
    AllPhysical,
}

/// What must be told about registrations.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Adapter {
    /// Software, for which registrations cost nothing. [`Costs`] are charged instead.
    Soft,
    /// A device, with prices of its own.
    Device,
}

/// Modelled costs of registration, in nanoseconds that the engine spends. They are 0 by default.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Costs {
    /// Cost of telling the adapter of a registration, or of the end of a batch.
    pub operation: Nanos,
    /// Cost of pinning a page of 4 KiB.
    pub page: Nanos,
}

impl Costs {
    /// Spends it.
    fn charge(&self, operations: u64, bytes: usize) {
        let pages = bytes.div_ceil(4096) as u64;
        let cost = operations * self.operation.0 + pages * self.page.0;
        if cost > 0 {
            let until = clock::now() + Nanos(cost);
            while clock::now() < until {
                hint::spin_loop();
            }
        }
    }
}

/// How an engine gets memory for RDMA, and how much.
#[derive(Clone, Copy, Debug)]
pub struct RegistrationConfig {
    /// Where the memory comes from.
    pub strategy: Strategy,
    /// Modelled costs of registration.
    pub costs: Costs,
    /// Number of unused tags at which the batch is invalidated ([`Strategy::Pooled`]); 32 by default.
    pub dirty_watermark: usize,
    /// Most memory of one connection, in bytes; 32 MiB by default.
    pub connection_bytes_max: usize,
    /// Most memory of all connections together, in bytes; 256 MiB by default.
    pub bytes_max: usize,
}

impl Default for RegistrationConfig {
    fn default() -> Self {
        Self {
            strategy: Strategy::default(),
            costs: Costs::default(),
            dirty_watermark: 32,
            connection_bytes_max: 32 << 20,
            bytes_max: 256 << 20,
        }
    }
}

/// Frames of an arena that hold no page.
pub trait Frames: Send + Sync {
    /// An unpublished frame, if one can be had without waiting.
    fn take(&self) -> Option<FrameNumber>;

    /// Gives back a frame that is no longer used.
    fn give(&self, frame: FrameNumber);
}

/// Counters of the registrations of all connections.
#[derive(Debug, Default)]
pub struct RegistrationCounters {
    /// Regions registered.
    pub registered: AtomicU64,
    /// Fresh tags for memory that was registered already.
    pub bound: AtomicU64,
    /// Uses of memory that was there, under the tag that it had.
    pub reused: AtomicU64,
    /// Batches of tags invalidated.
    pub flushes: AtomicU64,
    /// Calls that found no memory and waited.
    pub waited: AtomicU64,
    /// Calls that wait for memory at present.
    pub waiting: AtomicU64,
    /// Connections that ended because one of their calls had waited for too long.
    pub timeouts: AtomicU64,
    /// Calls that failed because the system locked no memory for them.
    pub failed: AtomicU64,
    /// Nanoseconds that engines spent on registrations and fresh tags.
    pub registering_ns: AtomicU64,
    /// Nanoseconds that they spent on ending them.
    pub invalidating_ns: AtomicU64,
}

/// Adds the time that `work` takes.
fn timed<T>(counter: &AtomicU64, work: impl FnOnce() -> T) -> T {
    let began = clock::now();
    let done = work();
    counter.fetch_add(clock::now().since(began).0, Ordering::Relaxed);
    done
}

fn count(counter: &AtomicU64) {
    counter.fetch_add(1, Ordering::Relaxed);
}

/// The state that all registrars of an engine share.
#[derive(Clone)]
pub struct Supply {
    /// The source of frames. Without one, [`Strategy::AllPhysical`] is [`Strategy::Cached`].
    frames: Option<Arc<dyn Frames>>,
    /// Their arena.
    arena: Arc<Arena>,
    /// The most memory of all connections together, in bytes; 256 MiB by default.
    budget: Arc<Budget>,
    /// The connections that wait for some.
    queue: Arc<Queue>,
    counters: Arc<RegistrationCounters>,
}

impl Supply {
    /// At most `bytes_max` bytes for all connections, and frames of `arena` besides.
    pub fn new(
        frames: Option<Arc<dyn Frames>>,
        arena: Arc<Arena>,
        bytes_max: usize,
        counters: Arc<RegistrationCounters>,
    ) -> Supply {
        Supply {
            frames,
            arena,
            budget: Budget::new(bytes_max),
            queue: Arc::default(),
            counters,
        }
    }

    /// Bytes that connections have, in use or idle.
    pub fn used(&self) -> usize {
        self.budget.used()
    }
}

#[cfg(test)]
#[path = "registration_tests.rs"]
mod tests;
