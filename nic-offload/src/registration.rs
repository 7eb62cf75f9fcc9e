//! Memory for RDMA on behalf of calls, by the registration strategies of "Designing NFS with RDMA for Security,
//! Performance and Scalability" (section 4.3).
//!
//! What makes registration dear is a device: it must be told of each page, and the pages must be pinned. A fabric in
//! software needs neither, so that there the strategies differ only in how memory is allocated. [`Costs`] puts the price
//! back, for whoever wants to compare them.
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
    /// Registered for each call.
    PerOperation,
    /// Fast registration: each use binds a fresh tag to memory that is there. Tags that are of no use any more are
    /// invalidated in batches: until then they are good. On a device, memory that the peer has no right to needs no tag,
    /// and where it has no memory windows, what the peer may read is registered for each use.
    Pooled,
    /// Registered memory is kept for the next call.
    #[default]
    Cached,
    /// Frames of the arena that hold no page: what is known to the adapter as a whole needs no registration.
    AllPhysical,
}

/// Is told of registrations.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Adapter {
    /// Software, for which they cost nothing: [`Costs`] are charged instead.
    Soft,
    /// A device, with prices of its own.
    Device,
}

/// What registration costs, in time that the engine spends. Nothing by default.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Costs {
    /// Telling the adapter of a registration, or of the end of some.
    pub operation: Nanos,
    /// Pinning a page of 4 KiB.
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

/// How memory for RDMA is got, and how much.
#[derive(Clone, Copy, Debug)]
pub struct RegistrationConfig {
    /// Where it comes from.
    pub strategy: Strategy,
    /// What that costs.
    pub costs: Costs,
    /// Tags that wait to be invalidated ([`Strategy::Pooled`]): with so many they are.
    pub dirty_watermark: usize,
    /// Bytes of one connection.
    pub connection_bytes_max: usize,
    /// Bytes of all connections.
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

    /// It is of no use any more.
    fn give(&self, frame: FrameNumber);
}

/// What the registrations of all connections came to.
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
    /// Those of them that wait at present.
    pub waiting: AtomicU64,
    /// Connections that ended because one of their calls had waited for too long.
    pub timeouts: AtomicU64,
    /// Calls that failed: the system locks no memory for them.
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

/// What all registrars of an engine share.
#[derive(Clone)]
pub struct Supply {
    /// Where frames come from. Where it has none, [`Strategy::AllPhysical`] is [`Strategy::Cached`].
    frames: Option<Arc<dyn Frames>>,
    /// Their arena.
    arena: Arc<Arena>,
    /// Bytes of all connections.
    budget: Arc<Budget>,
    /// Who waits for some of them.
    queue: Arc<Queue>,
    counters: Arc<RegistrationCounters>,
}

impl Supply {
    /// At most `bytes_max` for all connections, and frames of `arena` beside them.
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

    /// Bytes that connections have: in use, or idle.
    pub fn used(&self) -> usize {
        self.budget.used()
    }
}

#[cfg(test)]
#[path = "registration_tests.rs"]
mod tests;
