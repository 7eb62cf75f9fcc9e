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

use std::collections::VecDeque;
use std::io;

use odafs_fabric::clock::{self, Nanos};
use odafs_fabric::memory::{Arena, FrameNumber, Region};
use odafs_fabric::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use odafs_fabric::sync::{Arc, hint};
use odafs_fabric::{Access, Local, QueuePair, Remote, Sink, SteeringTag};

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

/// Who is told of registrations.
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
    /// Times that there was no memory: the call waited.
    pub refused: AtomicU64,
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

/// Bytes that may be in use.
#[derive(Debug)]
pub struct Budget {
    used: AtomicUsize,
    max: usize,
}

impl Budget {
    /// Room for `max` bytes.
    pub fn new(max: usize) -> Arc<Budget> {
        Arc::new(Budget {
            used: AtomicUsize::new(0),
            max,
        })
    }

    /// Bytes in use.
    pub fn used(&self) -> usize {
        self.used.load(Ordering::Relaxed)
    }

    fn take(self: &Arc<Self>, bytes: usize) -> Option<Charge> {
        let used = self.used.fetch_add(bytes, Ordering::Relaxed);
        // Given back by the drop if it is too much.
        let charge = Charge {
            budget: Arc::clone(self),
            bytes,
        };
        (used + bytes <= self.max).then_some(charge)
    }
}

/// Part of a budget, until it is dropped.
struct Charge {
    budget: Arc<Budget>,
    bytes: usize,
}

impl Drop for Charge {
    fn drop(&mut self) {
        self.budget.used.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

/// What all registrars of an engine share.
#[derive(Clone)]
pub struct Supply {
    /// Where frames come from. Where it has none, [`Strategy::AllPhysical`] is [`Strategy::Cached`].
    pub frames: Option<Arc<dyn Frames>>,
    /// Their arena.
    pub arena: Arc<Arena>,
    /// Bytes of all connections.
    pub budget: Arc<Budget>,
    /// What is counted.
    pub counters: Arc<RegistrationCounters>,
}

/// A registered region and what it is charged for.
struct Buffer {
    region: Arc<Region>,
    _charges: [Charge; 2],
}

/// Frames, given back when the last who looks at them is gone.
struct FrameLease {
    frames: Vec<FrameNumber>,
    supply: Arc<dyn Frames>,
    arena: Arc<Arena>,
    _charges: [Charge; 2],
}

impl Drop for FrameLease {
    fn drop(&mut self) {
        self.frames
            .drain(..)
            .for_each(|frame| self.supply.give(frame));
    }
}

/// Memory in use for a call. To be given back to the [`Registrar`] that leased it.
pub struct Lease {
    memory: Memory,
    length: usize,
}

enum Memory {
    Buffer { buffer: Buffer, name: Name },
    Frames(Arc<FrameLease>),
}

/// The tag of a lease.
#[derive(Clone, Copy)]
enum Name {
    /// The region's own, and the peer has no right to it.
    Local,
    /// The region's own.
    Own(Remote),
    /// A fresh one.
    Bound(Remote),
}

/// The bytes of a [`Lease`], for whoever copies them: they stay what they are for as long.
#[derive(Clone)]
pub struct Contents(Held);

#[derive(Clone)]
enum Held {
    Region(Arc<Region>),
    Frames(Arc<FrameLease>),
}

impl Contents {
    /// Copies from `offset` on. `false` (and nothing useful done) if the range is beyond the lease.
    #[must_use]
    pub fn load(&self, offset: usize, into: &mut [u8]) -> bool {
        match &self.0 {
            Held::Region(region) => region.load(offset, into),
            Held::Frames(lease) => lease.load(offset, into),
        }
    }
}

impl FrameLease {
    fn load(&self, mut offset: usize, mut into: &mut [u8]) -> bool {
        let page = self.arena.page().bytes();
        while !into.is_empty() {
            let Some(frame) = self.frames.get(offset / page) else {
                return false;
            };
            let within = offset % page;
            let (part, rest) = into.split_at_mut(into.len().min(page - within));
            self.arena.copy_out(*frame, within as u32, part);
            offset += part.len();
            into = rest;
        }
        true
    }
}

impl Lease {
    /// Bytes.
    pub fn len(&self) -> usize {
        self.length
    }

    /// Whether it has none.
    pub fn is_empty(&self) -> bool {
        self.length == 0
    }

    /// Where the peer finds its first byte, if it does.
    pub fn remote(&self) -> Option<Remote> {
        match &self.memory {
            Memory::Buffer {
                name: Name::Own(remote) | Name::Bound(remote),
                ..
            } => Some(*remote),
            Memory::Buffer { .. } | Memory::Frames(_) => None,
        }
    }

    /// Its bytes.
    pub fn contents(&self) -> Contents {
        Contents(match &self.memory {
            Memory::Buffer { buffer, .. } => Held::Region(Arc::clone(&buffer.region)),
            Memory::Frames(lease) => Held::Frames(Arc::clone(lease)),
        })
    }

    /// Copies into it. `false` if the range is beyond it.
    #[must_use]
    pub fn store(&self, offset: usize, from: &[u8]) -> bool {
        match &self.memory {
            Memory::Buffer { buffer, .. } => buffer.region.store(offset, from),
            Memory::Frames(_) => false,
        }
    }

    /// The longest range from `offset` on that one RDMA Read can fill, up to `length` bytes.
    pub fn sink(&self, offset: usize, length: usize) -> (Sink<'_>, usize) {
        match &self.memory {
            Memory::Buffer { buffer, .. } => (
                Sink::Region(Local {
                    region: &buffer.region,
                    offset,
                    length,
                }),
                length,
            ),
            Memory::Frames(lease) => {
                let page = lease.arena.page().bytes();
                let within = offset % page;
                let length = length.min(page - within);
                let sink = Sink::Frame {
                    arena: &lease.arena,
                    frame: lease.frames[offset / page],
                    offset: within as u32,
                    length: length as u32,
                };
                (sink, length)
            }
        }
    }
}

/// The smallest buffer.
const BUFFER_BYTES_MIN: usize = 4096;
/// Buffers that nobody used for so long are given back.
const IDLE_MAX: Nanos = Nanos::from_secs(2);

/// Gets memory for the calls of one connection.
pub struct Registrar {
    config: RegistrationConfig,
    adapter: Adapter,
    /// There are no tags for ranges: what the peer may reach is registered for each use.
    never_binds: bool,
    supply: Supply,
    budget: Arc<Budget>,
    /// Buffers that are kept for the next call; the longest unused in front.
    idle: VecDeque<Buffer>,
    /// Tags that are of no use, but good until they are flushed, and their buffers.
    dirty: Vec<(SteeringTag, Buffer)>,
    used_last: Nanos,
}

impl Registrar {
    /// Memory for a connection.
    pub fn new(mut config: RegistrationConfig, adapter: Adapter, supply: Supply) -> Registrar {
        if adapter == Adapter::Device {
            config.costs = Costs::default();
        }
        Registrar {
            budget: Budget::new(config.connection_bytes_max),
            config,
            adapter,
            never_binds: false,
            supply,
            idle: VecDeque::new(),
            dirty: Vec::new(),
            used_last: Nanos(0),
        }
    }

    /// Memory of `length` bytes. With [`Access::READ`] the peer may read it under the lease's tag, which is good for
    /// this lease alone. `None`: there is none now.
    pub fn lease(
        &mut self,
        qp: &mut dyn QueuePair,
        length: usize,
        access: Access,
    ) -> Option<Lease> {
        self.used_last = clock::now();
        let physical = self.config.strategy == Strategy::AllPhysical && access == Access::LOCAL;
        // A small page cache may never have as many frames to spare.
        let leased = match physical.then(|| self.lease_frames(length)).flatten() {
            Some(lease) => Some(lease),
            None => self.lease_buffer(qp, length, access),
        };
        if leased.is_none() {
            count(&self.supply.counters.refused);
        }
        leased
    }

    fn lease_frames(&self, length: usize) -> Option<Lease> {
        let supply = self.supply.frames.as_ref()?;
        let page = self.supply.arena.page().bytes();
        let wanted = length.div_ceil(page).max(1);
        let mut lease = FrameLease {
            frames: Vec::with_capacity(wanted),
            supply: Arc::clone(supply),
            arena: Arc::clone(&self.supply.arena),
            _charges: self.charges(wanted * page)?,
        };
        for _ in 0..wanted {
            lease.frames.push(supply.take()?);
        }
        Some(Lease {
            memory: Memory::Frames(Arc::new(lease)),
            length,
        })
    }

    fn lease_buffer(
        &mut self,
        qp: &mut dyn QueuePair,
        length: usize,
        access: Access,
    ) -> Option<Lease> {
        let strategy = self.config.strategy;
        if strategy == Strategy::PerOperation || self.never_binds && access != Access::LOCAL {
            let buffer = self.register(qp, length.max(1), access).ok()??;
            let name = Name::Own(buffer.region.remote(0));
            return Some(Lease::of(buffer, name, length));
        }
        let bytes = length.next_power_of_two().max(BUFFER_BYTES_MIN);
        let buffer = match self.take_idle(bytes) {
            Some(buffer) => buffer,
            None => self.make_room_for(qp, bytes)?,
        };
        // What the peer may reach has a tag of its own, and what is pooled always has, where tags are but numbers.
        let bare = strategy != Strategy::Pooled || self.adapter == Adapter::Device;
        if access == Access::LOCAL && bare {
            return Some(Lease::of(buffer, Name::Local, length));
        }
        let counters = Arc::clone(&self.supply.counters);
        let bound = timed(&counters.registering_ns, || {
            let bound = qp.bind(&buffer.region, 0, length.max(1), access);
            self.config.costs.charge(0, length);
            bound
        });
        match bound {
            Ok(remote) => {
                count(&counters.bound);
                Some(Lease::of(buffer, Name::Bound(remote), length))
            }
            Err(error) if error.kind() == io::ErrorKind::Unsupported => {
                self.never_binds = true;
                self.deregister(qp, buffer);
                self.lease_buffer(qp, length, access)
            }
            Err(_) => {
                // There may be room for a tag later.
                self.idle.push_back(buffer);
                None
            }
        }
    }

    fn take_idle(&mut self, bytes: usize) -> Option<Buffer> {
        let at = self
            .idle
            .iter()
            .rposition(|buffer| buffer.region.len() == bytes)?;
        count(&self.supply.counters.reused);
        self.idle.remove(at)
    }

    /// A buffer, after others have been given back if that is what it takes.
    fn make_room_for(&mut self, qp: &mut dyn QueuePair, bytes: usize) -> Option<Buffer> {
        loop {
            if let Some(buffer) = self.register(qp, bytes, Access::LOCAL).ok()? {
                return Some(buffer);
            }
            if !self.dirty.is_empty() {
                self.flush(qp);
            }
            let oldest = self.idle.pop_front()?;
            self.deregister(qp, oldest);
        }
    }

    /// `Ok(None)`: it would be too much memory.
    fn register(
        &self,
        qp: &mut dyn QueuePair,
        bytes: usize,
        access: Access,
    ) -> io::Result<Option<Buffer>> {
        let Some(charges) = self.charges(bytes) else {
            return Ok(None);
        };
        let region = timed(&self.supply.counters.registering_ns, || {
            self.config.costs.charge(1, bytes);
            qp.register(bytes, access)
        })?;
        count(&self.supply.counters.registered);
        Ok(Some(Buffer {
            region,
            _charges: charges,
        }))
    }

    fn charges(&self, bytes: usize) -> Option<[Charge; 2]> {
        Some([self.budget.take(bytes)?, self.supply.budget.take(bytes)?])
    }

    fn deregister(&self, qp: &mut dyn QueuePair, buffer: Buffer) {
        timed(&self.supply.counters.invalidating_ns, || {
            qp.invalidate(buffer.region.tag());
            self.config.costs.charge(1, 0);
            // A device lets go of the memory here.
            drop(buffer);
        });
    }

    /// Takes memory back. Nothing may be reading into it any more.
    pub fn release(&mut self, qp: &mut dyn QueuePair, lease: Lease) {
        let Memory::Buffer { buffer, name } = lease.memory else {
            return;
        };
        match name {
            Name::Own(_) => self.deregister(qp, buffer),
            Name::Local => self.idle.push_back(buffer),
            Name::Bound(remote) if self.config.strategy == Strategy::Pooled => {
                self.dirty.push((remote.tag, buffer));
                if self.dirty.len() >= self.config.dirty_watermark {
                    self.flush(qp);
                }
            }
            Name::Bound(remote) => {
                timed(&self.supply.counters.invalidating_ns, || {
                    qp.invalidate(remote.tag);
                    self.config.costs.charge(1, 0);
                });
                self.idle.push_back(buffer);
            }
        }
    }

    /// Invalidates the tags that are of no use.
    fn flush(&mut self, qp: &mut dyn QueuePair) {
        let counters = Arc::clone(&self.supply.counters);
        count(&counters.flushes);
        timed(&counters.invalidating_ns, || {
            self.config.costs.charge(1, 0);
            for (tag, buffer) in self.dirty.drain(..) {
                qp.invalidate(tag);
                self.idle.push_back(buffer);
            }
        });
    }

    /// Gives back what nobody has used for a while.
    pub fn trim(&mut self, qp: &mut dyn QueuePair, now: Nanos) {
        if self.keeps_memory() && now.since(self.used_last) > IDLE_MAX {
            self.flush(qp);
            while let Some(buffer) = self.idle.pop_front() {
                self.deregister(qp, buffer);
            }
        }
    }

    /// There is something that [`Registrar::trim`] will give back some time.
    pub fn keeps_memory(&self) -> bool {
        !self.idle.is_empty() || !self.dirty.is_empty()
    }
}

impl Lease {
    fn of(buffer: Buffer, name: Name, length: usize) -> Lease {
        Lease {
            memory: Memory::Buffer { buffer, name },
            length,
        }
    }
}

#[cfg(test)]
#[path = "registration_tests.rs"]
mod tests;
