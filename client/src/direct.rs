//! A connection for direct reads: guarded requests, and one-sided reads on fabrics that offer no loads.
//!
//! Data lands in slots of a region that belongs to the connection, never in a caller's buffer. A slot whose read timed
//! out is not used again until its completion has come, however late; the region lives as long as the connection.

use crate::{
    calls::Calls,
    options::Wait,
    session::{NoSession, Session},
    transport::{Broken, Patience},
};
use odafs_common::{
    direct::{self, Completion, ExposedMemory, Feedback, ReadOrder, Request},
    exception::Exception,
    mac::{MacAlgorithm, MacKey},
    page::Layout,
    reference::{Epoch, Reference},
};
use odafs_fabric::{
    Access, Completion as Event, Local, MARKS_BYTES, PostError, Posted, QueuePair, Region, Remote,
    Sink, SteeringTag, clock::Nanos, mark_step, sync::Arc,
};
use std::collections::VecDeque;

/// Reads in flight on one connection.
pub const DEPTH: usize = 32;
/// Up to so many bytes come back in the completion itself.
const INLINE_MAX: u32 = 512;
/// RDMA Reads that one one-sided read takes at most: the data and the stamp.
pub const READS: u32 = 2;
/// Bytes of a cache line.
const LINE: usize = 64;
/// Bytes of a slot behind a page: the stamp that comes with it, then the marks of a guarded read, then the stamp that comes
/// alone. Nothing else lands where marks do: what is there from before must never be taken for one.
const TAIL: usize = LINE + MARKS_BYTES + LINE;
/// What one RDMA Read of a page and its stamp begins at a multiple of. So soft devices copy the stamp by itself, after all of
/// the page ([`ReadOrder::Rising`]).
const UNIT: u32 = 4096;
/// Bytes that may be read without being wanted for the sake of a stamp behind them: where the stamp alone would take a round
/// trip, and where it would take an RDMA Read.
const SPARES_ROUND_TRIP: u32 = 16 << 10;
const SPARES_READ: u32 = 1 << 10;

/// A connection attached to a session.
pub struct DirectPair {
    pair: Box<dyn QueuePair>,
    session: u32,
    connection: u32,
    algorithm: MacAlgorithm,
    key: MacKey,
    generation: u32,
    sequence: u64,
    uncounted: u64,
    sink: Arc<Region>,
    slot_bytes: usize,
    slots: [Slot; DEPTH],
    waiting: usize,
    /// RDMA Reads that were posted and are not over.
    reading: u32,
    /// Slots of RDMA Reads that were over when they were posted.
    over_already: Vec<usize>,
    /// Slots whose stamp is to be read, as soon as there is room.
    due: VecDeque<usize>,
    /// Something of that was posted and not flushed.
    unflushed: bool,
    exposed: Option<ExposedMemory>,
    layout: Layout,
    wait: Wait,
    feedback: Feedback,
}

/// What a slot of the sink is used for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Slot {
    Free,
    /// Waits for the completion of this sequence number, wanted by this caller's part.
    Waiting {
        sequence: u64,
        part: usize,
        /// Where in the sink its data begins.
        at: usize,
    },
    /// The same, but nobody wants it any more.
    Late {
        sequence: u64,
    },
    /// Waits for `left` RDMA Reads with this id, wanted by this part if by any; and then for that of the stamp, if that
    /// has not been posted.
    Reading {
        id: u64,
        part: Option<usize>,
        left: u8,
        stamp: Option<Remote>,
        /// Where in the sink the wanted bytes are, and the stamp.
        at: usize,
        stamp_at: usize,
        length: u32,
        epoch: Epoch,
    },
}

/// A read that is over.
#[derive(Debug, Clone, Copy)]
pub struct Answer {
    /// What the caller named it at its post.
    pub part: usize,
    /// Bytes, or why none.
    pub result: Result<u32, Exception>,
    place: Place,
}

#[derive(Debug, Clone, Copy)]
enum Place {
    Message,
    Sink(usize),
}

/// How a read ended that had the connection to itself.
#[derive(Debug)]
pub enum Alone {
    /// Its bytes are there.
    Read,
    /// The server refused it.
    Refused(Exception),
    /// The deadline has passed.
    TimedOut,
    /// The connection has no room for it.
    Full,
}

/// What one look at a connection found.
enum Look {
    /// A read is over.
    Over(Answer),
    /// Something that nobody waits for.
    Other,
    /// Nothing.
    Nothing,
}

/// Why nothing was posted.
#[derive(Debug)]
pub enum NotPosted {
    /// As many are in flight as can be: wait for one.
    Full,
    /// The connection is of no more use.
    Broken(Broken),
}

impl DirectPair {
    /// Attaches a connection to `session`.
    pub fn new(session: &Session, calls: &Calls, deadline: Nanos) -> Result<Self, NoSession> {
        let mut attached = session.attach(calls, deadline)?;
        let beside = attached.exposed.is_some_and(|exposed| exposed.beside);
        let (layout, slot_bytes) = match beside {
            // The stamp begins a page of memory.
            true => (
                Layout::beside(session.page),
                (session.page.bytes() + TAIL).next_multiple_of(UNIT as usize),
            ),
            false => (Layout::apart(session.page), session.page.bytes() + TAIL),
        };
        let sink = attached
            .pair
            .register(DEPTH * slot_bytes, Access::WRITE)
            .map_err(|error| NoSession::Refused(format!("cannot register memory: {error}")))?;
        attached.pair.post_receives(2 * DEPTH as u32);
        let (key, generation) = session.mac_key();
        Ok(Self {
            pair: attached.pair,
            session: session.id,
            connection: attached.connection,
            algorithm: session.algorithm,
            key,
            generation,
            sequence: 0,
            uncounted: 0,
            sink,
            slot_bytes,
            slots: [Slot::Free; DEPTH],
            waiting: 0,
            reading: 0,
            over_already: Vec::new(),
            due: VecDeque::new(),
            unflushed: false,
            exposed: attached.exposed,
            layout,
            wait: calls.wait(),
            feedback: Feedback::default(),
        })
    }

    /// Posts a guarded read of `length` bytes from `within` the page on.
    pub fn post(
        &mut self,
        session: &Session,
        reference: &Reference,
        within: u32,
        length: u32,
        part: usize,
    ) -> Result<(), NotPosted> {
        self.post_guarded(session, reference, within, length, part, false)
    }

    /// Reads from `within` the page on as much as `into` takes, guarded, with nothing else in flight: what has landed is
    /// taken while the rest is on its way.
    pub fn read_alone(
        &mut self,
        session: &Session,
        reference: &Reference,
        within: u32,
        into: &mut [u8],
        deadline: impl FnOnce() -> Nanos,
    ) -> Result<Alone, Broken> {
        let (length, step) = (into.len(), mark_step(into.len()));
        match self.post_guarded(session, reference, within, length as u32, 0, true) {
            Ok(()) => {}
            Err(NotPosted::Full) => return Ok(Alone::Full),
            Err(NotPosted::Broken(broken)) => return Err(broken),
        }
        self.flush();
        let at = self.guarded_at(self.sequence as usize % DEPTH, length, step < length);
        let mut taken = 0;
        let mut patience = Patience::new(self.wait, deadline());
        let answer = loop {
            match self.look()? {
                Look::Over(answer) => break answer,
                Look::Other => continue,
                Look::Nothing => {}
            }
            let mark = at + length + taken / step * 64;
            if taken + step < length && self.sink.marked(mark, self.sequence) {
                // Good only if the completion says so.
                if self.sink.load(at + taken, &mut into[taken..taken + step]) {
                    taken += step;
                }
            } else if !patience.rest(&mut *self.pair)? {
                self.give_up();
                return Ok(Alone::TimedOut);
            }
        };
        let rest = Answer {
            place: match answer.place {
                Place::Sink(at) => Place::Sink(at + taken),
                Place::Message => Place::Message,
            },
            ..answer
        };
        match answer.result {
            Ok(bytes) if bytes as usize != length => Ok(Alone::Refused(Exception::OutOfBounds)),
            Ok(_) if self.take(&rest, &mut into[taken..]) => Ok(Alone::Read),
            Ok(_) => Err(Broken("the server completed what was not asked".into())),
            Err(exception) => Ok(Alone::Refused(exception)),
        }
    }

    /// Reads from `within` the page on as much as `into` takes, one-sided, with nothing else in flight.
    pub fn read_one_sided_alone(
        &mut self,
        reference: &Reference,
        within: u32,
        into: &mut [u8],
        deadline: impl FnOnce() -> Nanos,
    ) -> Result<Alone, Broken> {
        match self.post_one_sided(reference, within, into.len() as u32, 0) {
            Ok(()) => {}
            Err(NotPosted::Full) => return Ok(Alone::Full),
            Err(NotPosted::Broken(broken)) => return Err(broken),
        }
        self.flush();
        let Some(answer) = self.next(deadline())? else {
            return Ok(Alone::TimedOut);
        };
        match answer.result {
            Ok(_) if self.take(&answer, into) => Ok(Alone::Read),
            Ok(_) => Ok(Alone::Refused(Exception::OutOfBounds)),
            Err(exception) => Ok(Alone::Refused(exception)),
        }
    }

    fn post_guarded(
        &mut self,
        session: &Session,
        reference: &Reference,
        within: u32,
        length: u32,
        part: usize,
        alone: bool,
    ) -> Result<(), NotPosted> {
        if self.generation != session.generation() {
            (self.key, self.generation) = session.mac_key();
        }
        let slot = self.next_slot()?;
        let marked = alone && mark_step(length as usize) < length as usize;
        let at = self.guarded_at(slot, length as usize, marked);
        let sink = self.sink.remote(at);
        let request = Request {
            mac: self.algorithm,
            inline: length <= INLINE_MAX,
            marked,
            odd_generation: self.generation % 2 == 1,
            session: self.session,
            connection: self.connection,
            sink_tag: sink.tag.0,
            sequence: self.sequence,
            address: reference.address + u64::from(within),
            key: reference.key,
            epoch: reference.epoch,
            sink_offset: sink.offset,
            handle: reference.handle,
            length,
        };
        match self
            .pair
            .post_send(self.sequence, &[&request.seal(&self.key)])
        {
            Ok(_) => {}
            Err(PostError::Full) => return Err(NotPosted::Full),
            Err(error) => return Err(NotPosted::Broken(Broken(error.to_string()))),
        }
        self.slots[slot] = Slot::Waiting {
            sequence: self.sequence,
            part,
            at,
        };
        self.waiting += 1;
        self.uncounted += 1;
        if self.uncounted >= 64 {
            session.count_requests(std::mem::take(&mut self.uncounted));
        }
        Ok(())
    }

    /// Where in the sink the data of a guarded read lands. Marks come right behind it, and so behind all pages.
    fn guarded_at(&self, slot: usize, length: usize, marked: bool) -> usize {
        let end = self.layout.page().bytes() + LINE;
        slot * self.slot_bytes + usize::from(marked) * end.saturating_sub(length)
    }

    /// Posts RDMA Reads of `length` bytes from `within` the page on and of the page's stamp, so that the stamp is from after
    /// the data: by one RDMA Read, if the stamp lies behind the page and both ends say that they see memory from front to
    /// back; else with a second one, at once if they see memory in the order of the posts, or when the data is there.
    pub fn post_one_sided(
        &mut self,
        reference: &Reference,
        within: u32,
        length: u32,
        part: usize,
    ) -> Result<(), NotPosted> {
        let Some(exposed) = self.exposed else {
            return Err(NotPosted::Broken(Broken(
                "the connection was granted no RDMA Reads".into(),
            )));
        };
        let order = exposed.order.min(self.pair.read_order());
        let together = self.read_with_stamp_from(order, within, length);
        let reads = if together.is_some() { 1 } else { READS };
        if self.reading + reads > self.pair.reads_max() {
            return Err(NotPosted::Full);
        }
        let place = |memory: direct::Place, offset: u64| Remote {
            tag: SteeringTag(memory.tag),
            offset: memory.address.wrapping_add(offset),
        };
        let layout = self.layout;
        let data = |within: u32| {
            let address = reference.address.wrapping_add(within.into());
            place(exposed.arena, layout.place(address))
        };
        let page = layout.page().bytes();
        let slot = self.next_slot()?;
        let first = slot * self.slot_bytes;
        let (from, into, bytes, stamp) = match together {
            Some(start) => {
                let bytes = page - start as usize + Layout::STAMP;
                (data(start), first + start as usize, bytes, None)
            }
            None => {
                let stamp = place(exposed.stamps, layout.stamp(reference.address));
                (data(within), first, length as usize, Some(stamp))
            }
        };
        let posted = match self.post_read(self.sequence, into, bytes, from) {
            Ok(posted) => posted,
            Err(PostError::Full) => return Err(NotPosted::Full),
            Err(error) => return Err(NotPosted::Broken(Broken(error.to_string()))),
        };
        self.slots[slot] = Slot::Reading {
            id: self.sequence,
            part: Some(part),
            left: u8::from(posted == Posted::Pending),
            stamp,
            at: together.map_or(first, |_| first + within as usize),
            stamp_at: first + page + stamp.map_or(0, |_| LINE + MARKS_BYTES),
            length,
            epoch: reference.epoch,
        };
        self.waiting += 1;
        match (stamp, posted) {
            (None, Posted::Done) => self.over_already.push(slot),
            (None, Posted::Pending) => {}
            (Some(_), posted) if posted == Posted::Done || order == ReadOrder::Ordered => {
                self.due.push_back(slot);
                self.post_stamps().map_err(NotPosted::Broken)?;
            }
            (Some(_), _) => {}
        }
        Ok(())
    }

    /// From where in a page on it is read with its stamp by one RDMA Read, if that can be done and pays.
    fn read_with_stamp_from(&self, order: ReadOrder, within: u32, length: u32) -> Option<u32> {
        let unwanted_max = match order {
            ReadOrder::Fence => return None,
            ReadOrder::Rising => SPARES_ROUND_TRIP,
            ReadOrder::Ordered => SPARES_READ,
        };
        let start = within / UNIT * UNIT;
        let bytes = (self.layout.page().bytes() as u32).checked_sub(start)?;
        let pays = bytes.checked_sub(length)? <= unwanted_max;
        (self.layout.is_beside() && pays).then_some(start)
    }

    /// Posts the RDMA Reads of stamps, as many as there is room for.
    fn post_stamps(&mut self) -> Result<(), Broken> {
        while let Some(&slot) = self.due.front() {
            let Slot::Reading {
                id,
                stamp: Some(from),
                stamp_at,
                ..
            } = self.slots[slot]
            else {
                self.due.pop_front();
                continue;
            };
            let posted = match self.post_read(id, stamp_at, Layout::STAMP, from) {
                Ok(posted) => posted,
                Err(PostError::Full) => return Ok(()),
                Err(error) => return Err(Broken(error.to_string())),
            };
            self.due.pop_front();
            self.unflushed = true;
            if let Slot::Reading { left, stamp, .. } = &mut self.slots[slot] {
                *stamp = None;
                *left += u8::from(posted == Posted::Pending);
                if *left == 0 {
                    self.over_already.push(slot);
                }
            }
        }
        Ok(())
    }

    fn post_read(
        &mut self,
        id: u64,
        offset: usize,
        length: usize,
        from: Remote,
    ) -> Result<Posted, PostError> {
        let into = Sink::Region(Local {
            region: &self.sink,
            offset,
            length,
        });
        let posted = self.pair.post_read(id, into, from)?;
        self.reading += u32::from(posted == Posted::Pending);
        Ok(posted)
    }

    /// The next sequence number whose slot is free; that is `sequence % DEPTH`, so some are left out. With nothing in
    /// flight it is one of two slots in turn: both sides still have their lines in their caches, and the server can have
    /// those of the next read's at hand while this one's are copied out.
    fn next_slot(&mut self) -> Result<usize, NotPosted> {
        if self.waiting == 0 {
            self.sequence |= DEPTH as u64 / 2 - 1;
        }
        for _ in 0..DEPTH {
            self.sequence += 1;
            let slot = self.sequence as usize % DEPTH;
            if self.slots[slot] == Slot::Free {
                return Ok(slot);
            }
        }
        if self.waiting > 0 {
            return Err(NotPosted::Full);
        }
        Err(NotPosted::Broken(Broken(
            "no completion came for any of the reads that timed out".into(),
        )))
    }

    /// Sees off what was posted.
    pub fn flush(&mut self) {
        self.unflushed = false;
        self.pair.flush();
    }

    /// Waits for the next of the reads in flight. `None` when the deadline has passed: those in flight are given up.
    pub fn next(&mut self, deadline: Nanos) -> Result<Option<Answer>, Broken> {
        let mut patience = Patience::new(self.wait, deadline);
        loop {
            match self.look()? {
                Look::Over(answer) => return Ok(Some(answer)),
                Look::Other => {}
                Look::Nothing => {
                    if !patience.rest(&mut *self.pair)? {
                        self.give_up();
                        return Ok(None);
                    }
                }
            }
        }
    }

    /// Looks once whether a read is over.
    fn look(&mut self) -> Result<Look, Broken> {
        self.post_stamps()?;
        let over = if let Some(slot) = self.over_already.pop() {
            self.read_over(slot)
        } else {
            match self.pair.poll() {
                Some(Event::Read { id, result }) => {
                    self.reading = self.reading.saturating_sub(1);
                    if let Err(fault) = result {
                        return Err(Broken(fault.to_string()));
                    }
                    self.read_done(id)
                }
                Some(Event::Recv { .. }) => {
                    self.pair.post_receives(1);
                    self.completed()?
                }
                Some(_) => None,
                None if self.pair.is_closed() => {
                    return Err(Broken("the server closed the connection".into()));
                }
                None => {
                    if self.unflushed {
                        self.flush();
                    }
                    return Ok(Look::Nothing);
                }
            }
        };
        Ok(over.map_or(Look::Other, Look::Over))
    }

    /// One of the RDMA Reads with this id is over.
    fn read_done(&mut self, id: u64) -> Option<Answer> {
        let slot = id as usize % DEPTH;
        let Slot::Reading {
            id: waiting,
            part,
            left,
            stamp,
            ..
        } = &mut self.slots[slot]
        else {
            return None;
        };
        if *waiting != id {
            return None;
        }
        *left = left.saturating_sub(1);
        match (*left, part, stamp) {
            (0, Some(_), Some(_)) => {
                // It may be due already, having found no room.
                if !self.due.contains(&slot) {
                    self.due.push_back(slot);
                }
                None
            }
            (0, ..) => self.read_over(slot),
            _ => None,
        }
    }

    /// Data and stamp are there: does the stamp say that the data is the page's?
    fn read_over(&mut self, slot: usize) -> Option<Answer> {
        let Slot::Reading {
            part,
            at,
            stamp_at,
            length,
            epoch,
            ..
        } = self.slots[slot]
        else {
            return None;
        };
        self.slots[slot] = Slot::Free;
        if !self.due.is_empty() {
            // Of a read that nobody wants any more.
            self.due.retain(|due| *due != slot);
        }
        let part = part?;
        self.waiting -= 1;
        let mut stamp = [0; Layout::STAMP];
        let loaded = self.sink.load(stamp_at, &mut stamp);
        let holds = loaded && u64::from_le_bytes(stamp) <= epoch.0;
        let result = if holds {
            Ok(length)
        } else {
            Err(Exception::Stale)
        };
        Some(Answer {
            part,
            result,
            place: Place::Sink(at),
        })
    }

    fn completed(&mut self) -> Result<Option<Answer>, Broken> {
        let Some((completion, _)) = Completion::parse(self.pair.message()) else {
            return Err(Broken("the server sent no completion".into()));
        };
        self.feedback = Feedback::unpack(completion.feedback);
        let slot = completion.sequence as usize % DEPTH;
        match self.slots[slot] {
            Slot::Waiting { sequence, part, at } if sequence == completion.sequence => {
                self.slots[slot] = Slot::Free;
                self.waiting -= 1;
                let place = if completion.inline {
                    Place::Message
                } else {
                    Place::Sink(at)
                };
                let result = completion.result;
                if result.is_ok_and(|bytes| bytes as usize > self.slot_bytes) {
                    return Err(Broken(
                        "the server claims more bytes than were asked for".into(),
                    ));
                }
                Ok(Some(Answer {
                    part,
                    result,
                    place,
                }))
            }
            Slot::Late { sequence } if sequence == completion.sequence => {
                self.slots[slot] = Slot::Free;
                Ok(None)
            }
            _ => Err(Broken("the server completed what was not asked".into())),
        }
    }

    /// Copies out what an answer brought, to be called before anything else is. False when it brought less.
    #[must_use]
    pub fn take(&self, answer: &Answer, into: &mut [u8]) -> bool {
        match answer.place {
            Place::Sink(offset) => self.sink.load(offset, into),
            Place::Message => {
                let data = self.pair.message().get(Completion::BYTES..);
                let data = data.and_then(|data| data.get(..into.len()));
                data.is_some_and(|data| {
                    into.copy_from_slice(data);
                    true
                })
            }
        }
    }

    /// Nobody waits any more for what is in flight.
    fn give_up(&mut self) {
        for slot in &mut self.slots {
            match slot {
                Slot::Waiting { sequence, .. } => {
                    *slot = Slot::Late {
                        sequence: *sequence,
                    }
                }
                Slot::Reading { part, .. } => *part = None,
                Slot::Free | Slot::Late { .. } => {}
            }
        }
        self.waiting = 0;
    }

    /// Reads in flight.
    pub fn in_flight(&self) -> usize {
        self.waiting
    }

    /// The server's last word on its cache.
    pub fn feedback(&self) -> Feedback {
        self.feedback
    }
}

impl std::fmt::Debug for DirectPair {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "DirectPair({})", self.connection)
    }
}
