//! A connection for direct reads: guarded requests, and one-sided reads where the fabric offers no loads.
//!
//! Data arrives in slots of a region that belongs to the connection, never in a caller's buffer. A slot whose read
//! timed out is not used again until its completion has come, however late. The region lives as long as the connection.

mod one_sided;

use crate::{
    calls::Calls,
    session::{NotAttached, Session},
    transport::Broken,
    waiting::Waits,
};
use odafs_common::{
    direct::{Completion, ExposedMemory, Feedback, Request},
    exception::Exception,
    mac::{MacAlgorithm, MacKey},
    page::Layout,
    reference::{Epoch, Reference},
};
use odafs_fabric::{
    Access, Completion as Event, MARKS_BYTES, PostError, QueuePair, Region, Remote, clock::Nanos,
    mark_step, sync::Arc,
};
use std::collections::VecDeque;

/// The most reads in flight on one connection.
pub const DEPTH: usize = 32;
/// Up to this many bytes come back in the completion itself.
const INLINE_MAX: u32 = 512;
/// The most RDMA Reads of one one-sided read: the data and the stamp.
pub const READS: u32 = 2;
/// Size of a cache line in bytes.
const LINE: usize = 64;
/// Bytes of a slot behind a page: the stamp that comes with it, then the marks of a guarded read, then the stamp that
/// comes alone. Nothing else may arrive where the marks do, so that nothing older is taken for one.
const TAIL: usize = LINE + MARKS_BYTES + LINE;
/// An RDMA Read of a page and its stamp begins at a multiple of this. Soft devices then copy the stamp by itself, after
/// the whole page ([`odafs_fabric::ReadOrder::Rising`]).
const UNIT: u32 = 4096;

/// A connection that is attached to a session.
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
    slots: [SinkSlot; DEPTH],
    waiting: usize,
    /// RDMA Reads that were posted and have not ended.
    reading: u32,
    /// Slots of RDMA Reads that had ended when they were posted.
    over_already: Vec<usize>,
    /// Slots whose stamp must be read as soon as there is room.
    due: VecDeque<usize>,
    /// Whether some of those were posted and not flushed.
    unflushed: bool,
    exposed: Option<ExposedMemory>,
    layout: Layout,
    waits: Waits,
    feedback: Feedback,
}

/// The use of a slot of the sink.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum SinkSlot {
    Free,
    /// Waits for the completion with this sequence number, for this part of the caller.
    Waiting {
        sequence: u64,
        part: usize,
        /// Where the data begins in the sink.
        at: usize,
    },
    /// The same, but nobody wants the data any more.
    Late {
        sequence: u64,
    },
    /// Waits for `left` RDMA Reads with this id, for this part of the caller if it still wants them, and then for that
    /// of the stamp if it has not been posted.
    Reading {
        id: u64,
        part: Option<usize>,
        left: u8,
        stamp: Option<Remote>,
        /// Where the wanted bytes and the stamp are in the sink.
        at: usize,
        stamp_at: usize,
        length: u32,
        epoch: Epoch,
    },
}

/// A completed read.
#[derive(Debug, Clone, Copy)]
pub struct FinishedRead {
    /// The number that the caller gave it.
    pub part: usize,
    /// Its length in bytes, or the exception.
    pub result: Result<u32, Exception>,
    place: Landing,
}

#[derive(Debug, Clone, Copy)]
enum Landing {
    Message,
    Sink(usize),
}

/// The result of a read that had the connection to itself.
#[derive(Debug)]
pub enum Alone {
    /// Its bytes are there.
    Read,
    /// The server refused it.
    Refused(Exception),
    /// The deadline has passed.
    TimedOut,
    /// The connection has no room for the read.
    Full,
}

/// The result of one look at a connection.
enum Look {
    /// A read has ended.
    Over(FinishedRead),
    /// Something that nobody waits for.
    Other,
    /// Nothing.
    Nothing,
}

/// Why a read was not posted.
#[derive(Debug)]
pub enum NotPosted {
    /// The most reads are in flight. Wait for one.
    Full,
    /// The connection is useless.
    Broken(Broken),
}

impl DirectPair {
    /// Attaches a connection to `session`.
    pub fn new(session: &Session, calls: &Calls, deadline: Nanos) -> Result<Self, NotAttached> {
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
            .map_err(|error| NotAttached::NotMade(format!("cannot register memory: {error}")))?;
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
            slots: [SinkSlot::Free; DEPTH],
            waiting: 0,
            reading: 0,
            over_already: Vec::new(),
            due: VecDeque::new(),
            unflushed: false,
            exposed: attached.exposed,
            layout,
            waits: Waits::new(calls.wait()),
            feedback: Feedback::default(),
        })
    }

    /// Posts a guarded read of `length` bytes of the page, from `within` on.
    pub fn post(
        &mut self,
        session: &Session,
        reference: &Reference,
        within: u32,
        length: u32,
        part: usize,
    ) -> Result<(), NotPosted> {
        self.post_guarded(session, reference, within, length, part, false)
            .map(|_| ())
    }

    /// Reads the page from `within` on into `into`, guarded, with nothing else in flight. Copies the data that has
    /// arrived while the rest is still under way.
    pub fn read_alone(
        &mut self,
        session: &Session,
        reference: &Reference,
        within: u32,
        into: &mut [u8],
        deadline: impl FnOnce() -> Nanos,
    ) -> Result<Alone, Broken> {
        let (length, step) = (into.len(), mark_step(into.len()));
        let at = match self.post_guarded(session, reference, within, length as u32, 0, true) {
            Ok(at) => at,
            Err(NotPosted::Full) => return Ok(Alone::Full),
            Err(NotPosted::Broken(broken)) => return Err(broken),
        };
        self.flush();
        let mut taken = 0;
        let mut patience = self.waits.begin(deadline());
        let answer = loop {
            match self.look()? {
                Look::Over(answer) => break answer,
                Look::Other => continue,
                Look::Nothing => {}
            }
            let mark = at + length + taken / step * 64;
            if taken + step < length && self.sink.marked(mark, self.sequence) {
                // The bytes are valid only if the completion says so.
                if self.sink.load(at + taken, &mut into[taken..taken + step]) {
                    taken += step;
                }
            } else if !patience.rest(&mut *self.pair)? {
                self.give_up();
                return Ok(Alone::TimedOut);
            }
        };
        self.waits.ended(&patience);
        let rest = FinishedRead {
            place: match answer.place {
                Landing::Sink(at) => Landing::Sink(at + taken),
                Landing::Message => Landing::Message,
            },
            ..answer
        };
        match answer.result {
            Ok(bytes) if bytes as usize != length => Ok(Alone::Refused(Exception::OutOfBounds)),
            Ok(_) if self.take(&rest, &mut into[taken..]) => Ok(Alone::Read),
            Ok(_) => Err(Broken::new("the server completed what was not asked")),
            Err(exception) => Ok(Alone::Refused(exception)),
        }
    }

    /// Posts the read. Returns where the data will be in the sink.
    fn post_guarded(
        &mut self,
        session: &Session,
        reference: &Reference,
        within: u32,
        length: u32,
        part: usize,
        alone: bool,
    ) -> Result<usize, NotPosted> {
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
            Err(error) => return Err(NotPosted::Broken(Broken::new(error))),
        }
        self.slots[slot] = SinkSlot::Waiting {
            sequence: self.sequence,
            part,
            at,
        };
        self.waiting += 1;
        self.uncounted += 1;
        if self.uncounted >= 64 {
            session.count_requests(std::mem::take(&mut self.uncounted));
        }
        Ok(at)
    }

    /// Where the data of a guarded read arrives in the sink. Marks come right behind it, and so behind all pages.
    fn guarded_at(&self, slot: usize, length: usize, marked: bool) -> usize {
        let end = self.layout.page().bytes() + LINE;
        slot * self.slot_bytes + usize::from(marked) * end.saturating_sub(length)
    }

    /// The next sequence number whose slot is free. The slot is `sequence % DEPTH`, so some numbers are left out. With
    /// nothing in flight, two slots take turns: both sides still have their lines in their caches, and the server can
    /// prepare those of the next read while this one is copied out.
    fn next_slot(&mut self) -> Result<usize, NotPosted> {
        if self.waiting == 0 {
            self.sequence |= DEPTH as u64 / 2 - 1;
        }
        for _ in 0..DEPTH {
            self.sequence += 1;
            let slot = self.sequence as usize % DEPTH;
            if self.slots[slot] == SinkSlot::Free {
                return Ok(slot);
            }
        }
        if self.waiting > 0 {
            return Err(NotPosted::Full);
        }
        Err(NotPosted::Broken(Broken::new(
            "no completion came for any of the reads that timed out",
        )))
    }

    /// Sends what was posted.
    pub fn flush(&mut self) {
        self.unflushed = false;
        self.pair.flush();
    }

    /// Waits for the next of the reads in flight. Returns `None` if the deadline has passed; those in flight are given
    /// up.
    pub fn next(&mut self, deadline: Nanos) -> Result<Option<FinishedRead>, Broken> {
        let mut patience = self.waits.begin(deadline);
        loop {
            match self.look()? {
                Look::Over(answer) => {
                    self.waits.ended(&patience);
                    return Ok(Some(answer));
                }
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

    /// Looks once whether a read has ended.
    fn look(&mut self) -> Result<Look, Broken> {
        self.post_stamps()?;
        let over = if let Some(slot) = self.over_already.pop() {
            self.read_over(slot)
        } else {
            match self.pair.poll() {
                Some(Event::Read { id, result }) => {
                    self.reading = self.reading.saturating_sub(1);
                    if let Err(fault) = result {
                        return Err(Broken::new(fault));
                    }
                    self.read_done(id)
                }
                Some(Event::Recv { .. }) => {
                    self.pair.post_receives(1);
                    self.completed()?
                }
                Some(_) => None,
                None if self.pair.is_closed() => {
                    return Err(Broken::by_peer("the server closed the connection"));
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

    fn completed(&mut self) -> Result<Option<FinishedRead>, Broken> {
        let Some((completion, _)) = Completion::parse(self.pair.message()) else {
            return Err(Broken::new("the server sent no completion"));
        };
        self.feedback = Feedback::unpack(completion.feedback);
        let slot = completion.sequence as usize % DEPTH;
        match self.slots[slot] {
            SinkSlot::Waiting { sequence, part, at } if sequence == completion.sequence => {
                self.slots[slot] = SinkSlot::Free;
                self.waiting -= 1;
                let place = if completion.inline {
                    Landing::Message
                } else {
                    Landing::Sink(at)
                };
                let result = completion.result;
                if result.is_ok_and(|bytes| bytes as usize > self.slot_bytes) {
                    return Err(Broken::new(
                        "the server claims more bytes than were asked for",
                    ));
                }
                Ok(Some(FinishedRead {
                    part,
                    result,
                    place,
                }))
            }
            SinkSlot::Late { sequence } if sequence == completion.sequence => {
                self.slots[slot] = SinkSlot::Free;
                Ok(None)
            }
            _ => Err(Broken::new("the server completed what was not asked")),
        }
    }

    /// Copies the bytes of an answer out of the sink. Must be called before anything else. Returns false if the answer
    /// had fewer.
    #[must_use]
    pub fn take(&self, answer: &FinishedRead, into: &mut [u8]) -> bool {
        match answer.place {
            Landing::Sink(offset) => self.sink.load(offset, into),
            Landing::Message => {
                let data = self.pair.message().get(Completion::BYTES..);
                let data = data.and_then(|data| data.get(..into.len()));
                data.is_some_and(|data| {
                    into.copy_from_slice(data);
                    true
                })
            }
        }
    }

    /// Gives up all reads in flight.
    fn give_up(&mut self) {
        for slot in &mut self.slots {
            match slot {
                SinkSlot::Waiting { sequence, .. } => {
                    *slot = SinkSlot::Late {
                        sequence: *sequence,
                    }
                }
                SinkSlot::Reading { part, .. } => *part = None,
                SinkSlot::Free | SinkSlot::Late { .. } => {}
            }
        }
        self.waiting = 0;
    }

    /// Number of reads in flight.
    pub fn in_flight(&self) -> usize {
        self.waiting
    }

    /// The server's last report about its cache.
    pub fn feedback(&self) -> Feedback {
        self.feedback
    }
}

impl std::fmt::Debug for DirectPair {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "DirectPair({})", self.connection)
    }
}
