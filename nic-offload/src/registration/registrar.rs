//! Provides memory for the calls of one connection.

use std::collections::VecDeque;
use std::io;

use odafs_fabric::clock::Nanos;
use odafs_fabric::sync::Arc;
use odafs_fabric::{Access, QueuePair, SteeringTag};

use super::budget::{Budget, Charge, Lack, QueuePosition};
use super::lease::{Buffer, FrameLease, Lease, LeasedMemory, Name};
use super::{Adapter, Costs, RegistrationConfig, Strategy, Supply, count, timed};

/// The smallest buffer.
const BUFFER_BYTES_MIN: usize = 4096;
/// A buffer that nobody has used for this long is returned.
const IDLE_MAX: Nanos = Nanos::from_secs(2);

/// A tag must have ended this long after its last use.
const STUCK_MAX: Nanos = Nanos::from_secs(10);

/// Why there is no memory for a call.
#[derive(Debug)]
pub enum NoLease {
    /// There may be some later. It is in use.
    Later,
    /// None is in use, and still there is not enough.
    Never(io::Error),
}

/// What there is too little of.
enum Shortage {
    /// Room for this connection.
    Own,
    /// Room for all connections.
    Room,
    /// Memory that the system lets the process lock, with the system's error if it was asked.
    Memory(Option<io::Error>),
}

/// Gets memory for the calls of one connection.
pub struct Registrar {
    config: RegistrationConfig,
    adapter: Adapter,
    /// Ranges cannot have tags, so memory that the peer may reach is registered for each use.
    never_binds: bool,
    supply: Supply,
    budget: Arc<Budget>,
    place: QueuePosition,
    /// The system refused at this count of [returns](Budget::returns), and is not asked again before another one.
    refused_at: Option<u64>,
    /// Buffers that are kept for the next call. The longest unused one is first.
    idle: VecDeque<Buffer>,
    /// Tags that are no longer used but valid until they are flushed, and their buffers.
    dirty: Vec<(SteeringTag, Buffer)>,
}

impl Registrar {
    /// Memory for a connection.
    pub fn new(mut config: RegistrationConfig, adapter: Adapter, supply: Supply) -> Registrar {
        if adapter == Adapter::Device {
            config.costs = Costs::default();
        }
        Registrar {
            budget: Budget::new(config.connection_bytes_max),
            place: QueuePosition::new(&supply.queue),
            config,
            adapter,
            never_binds: false,
            supply,
            refused_at: None,
            idle: VecDeque::new(),
            dirty: Vec::new(),
        }
    }

    /// Memory of `length` bytes to which the peer has no right. A caller that gets none may [wait](NoLease::Later) by
    /// asking again. Callers that come later then wait behind it, and return what they do not use.
    pub fn lease(&mut self, qp: &mut dyn QueuePair, length: usize) -> Result<Lease, NoLease> {
        let wanted = Lack::Room(self.bytes_of(length));
        if !self.place.is_first() {
            self.place.wait(wanted);
            return Err(NoLease::Later);
        }
        let shortage = match self.try_lease(qp, length, Access::LOCAL) {
            Ok(lease) => {
                self.place.leave();
                return Ok(lease);
            }
            Err(shortage) => shortage,
        };
        let (in_use, lack) = match &shortage {
            Shortage::Own => (self.budget.used(), None),
            Shortage::Room => (self.supply.used(), Some(wanted)),
            Shortage::Memory(_) => (self.supply.used(), Some(Lack::Memory)),
        };
        match lack.filter(|_| in_use > 0) {
            Some(lack) => self.place.wait(lack),
            None => self.place.leave(),
        }
        match (shortage, in_use) {
            (Shortage::Memory(Some(error)), 0) => Err(NoLease::Never(error)),
            // A job has returned it meanwhile.
            (Shortage::Room, 0) if self.supply.budget.has_room(self.bytes_of(length)) => {
                Err(NoLease::Later)
            }
            (_, 0) => {
                let why = "the call is longer than all memory for calls";
                Err(NoLease::Never(io::Error::new(
                    io::ErrorKind::OutOfMemory,
                    why,
                )))
            }
            _ => Err(NoLease::Later),
        }
    }

    /// Memory of `length` bytes that the peer may read under the lease's tag, which is valid for this lease alone.
    /// `None` if there is none now.
    pub fn expose(&mut self, qp: &mut dyn QueuePair, length: usize) -> Option<Lease> {
        self.try_lease(qp, length, Access::READ).ok()
    }

    /// The connection has no call that waits for memory.
    pub fn waits_no_longer(&self) {
        self.place.leave();
    }

    fn try_lease(
        &mut self,
        qp: &mut dyn QueuePair,
        length: usize,
        access: Access,
    ) -> Result<Lease, Shortage> {
        let physical = self.config.strategy == Strategy::AllPhysical && access == Access::LOCAL;
        // A small page cache may never have this many frames to spare.
        match physical.then(|| self.lease_frames(length)).flatten() {
            Some(lease) => Ok(lease),
            None => self.lease_buffer(qp, length, access),
        }
    }

    fn lease_frames(&self, length: usize) -> Option<Lease> {
        let supply = self.supply.frames.as_ref()?;
        let page = self.supply.arena.page().bytes();
        let wanted = length.div_ceil(page).max(1);
        let mut lease = FrameLease {
            frames: Vec::with_capacity(wanted),
            supply: Arc::clone(supply),
            arena: Arc::clone(&self.supply.arena),
            _charges: self.charges(wanted * page).ok()?,
        };
        for _ in 0..wanted {
            lease.frames.push(supply.take()?);
        }
        Some(Lease {
            memory: LeasedMemory::Frames(Arc::new(lease)),
            length,
        })
    }

    /// Size of a buffer for this many bytes.
    fn bytes_of(&self, length: usize) -> usize {
        match self.config.strategy {
            Strategy::PerOperation => length.max(1),
            _ => length.next_power_of_two().max(BUFFER_BYTES_MIN),
        }
    }

    fn lease_buffer(
        &mut self,
        qp: &mut dyn QueuePair,
        length: usize,
        access: Access,
    ) -> Result<Lease, Shortage> {
        let strategy = self.config.strategy;
        if strategy == Strategy::PerOperation || self.never_binds && access != Access::LOCAL {
            let buffer = self.make_room_for(qp, length.max(1), access)?;
            let name = Name::Own(buffer.region.remote(0));
            return Ok(Lease::of(buffer, name, length));
        }
        let bytes = self.bytes_of(length);
        let buffer = match self.take_idle(bytes) {
            Some(buffer) => buffer,
            None => self.make_room_for(qp, bytes, Access::LOCAL)?,
        };
        // Memory that the peer may reach has its own tag. Pooled memory always does where tags are mere numbers.
        let numbers = self.adapter == Adapter::Soft && !self.never_binds;
        let bare = strategy != Strategy::Pooled || !numbers;
        if access == Access::LOCAL && bare {
            return Ok(Lease::of(buffer, Name::Local, length));
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
                Ok(Lease::of(buffer, Name::Bound(remote), length))
            }
            Err(error) if error.kind() == io::ErrorKind::Unsupported => {
                self.never_binds = true;
                self.deregister(qp, buffer);
                self.lease_buffer(qp, length, access)
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                // There is room for a tag when the queue has moved on.
                self.idle.push_back(buffer);
                Err(Shortage::Own)
            }
            Err(error) => {
                self.deregister(qp, buffer);
                self.give_all_back(qp);
                Err(Shortage::Memory(Some(error)))
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

    /// A buffer. If necessary, others of this connection are returned first.
    fn make_room_for(
        &mut self,
        qp: &mut dyn QueuePair,
        bytes: usize,
        access: Access,
    ) -> Result<Buffer, Shortage> {
        loop {
            let shortage = match self.register(qp, bytes, access) {
                Ok(buffer) => return Ok(buffer),
                Err(shortage) => shortage,
            };
            if !self.give_one_back(qp) {
                return Err(shortage);
            }
        }
    }

    fn register(
        &mut self,
        qp: &mut dyn QueuePair,
        bytes: usize,
        access: Access,
    ) -> Result<Buffer, Shortage> {
        let returns = self.supply.budget.returns();
        if self.refused_at == Some(returns) && self.supply.used() > 0 {
            return Err(Shortage::Memory(None));
        }
        let charges = self.charges(bytes)?;
        let region = timed(&self.supply.counters.registering_ns, || {
            self.config.costs.charge(1, bytes);
            qp.register(bytes, access)
        });
        match region {
            Ok(region) => {
                count(&self.supply.counters.registered);
                Ok(Buffer {
                    region,
                    idle_since: Nanos(0),
                    charges: Arc::new(charges),
                })
            }
            Err(error) => {
                drop(charges);
                self.refused_at = Some(self.supply.budget.returns());
                Err(Shortage::Memory(Some(error)))
            }
        }
    }

    fn charges(&self, bytes: usize) -> Result<[Charge; 2], Shortage> {
        let own = self.budget.take(bytes).ok_or(Shortage::Own)?;
        let all = self.supply.budget.take(bytes).ok_or(Shortage::Room)?;
        Ok([own, all])
    }

    fn deregister(&self, qp: &mut dyn QueuePair, buffer: Buffer) {
        timed(&self.supply.counters.invalidating_ns, || {
            qp.invalidate(buffer.region.tag());
            self.config.costs.charge(1, 0);
            // A device releases the memory here.
            drop(buffer);
        });
    }

    /// Takes memory back. Nothing may be reading into it any more.
    pub fn release(&mut self, qp: &mut dyn QueuePair, lease: Lease, now: Nanos) {
        let LeasedMemory::Buffer { mut buffer, name } = lease.memory else {
            return;
        };
        buffer.idle_since = now;
        let pooled = self.config.strategy == Strategy::Pooled;
        match name {
            Name::Own(_) => self.deregister(qp, buffer),
            Name::Local => self.idle.push_back(buffer),
            Name::Bound(remote) if pooled || !qp.ends_at_once(remote.tag) => {
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

    /// Invalidates unused tags, except those that would have to be waited for.
    pub(super) fn flush(&mut self, qp: &mut dyn QueuePair) {
        if self.dirty.is_empty() {
            return;
        }
        let counters = Arc::clone(&self.supply.counters);
        count(&counters.flushes);
        timed(&counters.invalidating_ns, || {
            self.config.costs.charge(1, 0);
            for (tag, buffer) in std::mem::take(&mut self.dirty) {
                if qp.ends_at_once(tag) {
                    qp.invalidate(tag);
                    self.idle.push_back(buffer);
                } else {
                    self.dirty.push((tag, buffer));
                }
            }
        });
    }

    /// Returns memory that another connection waits for, and memory that nobody has used for a while. Returns whether
    /// that made room for another.
    pub fn trim(&mut self, qp: &mut dyn QueuePair, now: Nanos) -> bool {
        let mut made_room = false;
        while let Some(lack) = self.place.others_lack()
            && !matches!(lack, Lack::Room(bytes) if self.supply.budget.has_room(bytes))
            && self.give_one_back(qp)
        {
            made_room = true;
        }
        let is_old = |buffer: &Buffer| now.since(buffer.idle_since) > IDLE_MAX;
        if self.dirty.first().is_some_and(|(_, buffer)| is_old(buffer)) {
            self.flush(qp);
        }
        while let Some(buffer) = self.idle.pop_front_if(|buffer| is_old(buffer)) {
            self.deregister(qp, buffer);
        }
        made_room
    }

    /// Returns the longest unused buffer. False if there is none.
    fn give_one_back(&mut self, qp: &mut dyn QueuePair) -> bool {
        if self.idle.is_empty() {
            self.flush(qp);
        }
        let oldest = self.idle.pop_front();
        let any = oldest.is_some();
        oldest
            .into_iter()
            .for_each(|buffer| self.deregister(qp, buffer));
        any
    }

    fn give_all_back(&mut self, qp: &mut dyn QueuePair) {
        while self.give_one_back(qp) {}
    }

    /// Whether an unused tag has not ended for long, because what was sent before it was bound does not leave.
    pub fn is_stuck(&self, now: Nanos) -> bool {
        let first = self.dirty.first();
        first.is_some_and(|(_, buffer)| now.since(buffer.idle_since) > STUCK_MAX)
    }

    /// Whether [`Registrar::trim`] will have something to return at some time.
    pub fn keeps_memory(&self) -> bool {
        !self.idle.is_empty() || !self.dirty.is_empty()
    }
}
