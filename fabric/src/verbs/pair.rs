mod ends;
mod interface;

use super::cm::{Channel, Id};
use super::domain::{Domain, MessageSlot, Registration, SLOT_BYTES, Window};
use super::drain;
use super::keepalive::Keepalive;
use super::queue::{Chain, DEPTH, Done, GatherEntry, Queue, Side, Work};
use super::waiting::Waiting;
use super::wakeup::WakeUp;
use crate::clock::{self, Nanos};
use crate::fabric::{Access, Completion, Peer, PostError, Posted, Region, Remote, SteeringTag};
use crate::memory::Arena;
use crate::wake::WakeSet;
use std::collections::{HashMap, VecDeque};
use std::io;
use std::os::fd::AsFd;
use std::sync::Arc;

/// Number of receives that are posted even before the caller has made room, for what a peer sends at once.
const RECEIVES_MIN: u32 = 8;

/// The most slots for a write of bytes. A longer one is registered for that write.
const SLOTS_MAX: usize = 8;

/// The most events that can have been asked for: of sends, and of receives.
const EVENTS: usize = 2;

/// The most windows to keep for the next use.
const SPARE_MAX: usize = 32;

/// How long a bind or its end may take.
const BIND: Nanos = Nanos::from_secs(1);

/// A responder of iWARP must not speak before its peer (RFC 5044 section 7.1.1). This long after the accept, the peer
/// has processed the answer even if it is silent. An end that speaks first waits that long.
const SILENCE: Nanos = Nanos::from_millis(20);

/// A work request that the device has.
struct Flight {
    number: u64,
    what: What,
    kept: Kept,
}

enum What {
    /// A work request whose end is not reported.
    Quiet,
    Write(u64),
    Read(u64),
}

/// What must stay until the end of a work request.
#[expect(dead_code, reason = "only kept")]
enum Kept {
    Nothing,
    MessageSlot(MessageSlot),
    Registration(Arc<Registration>),
}

/// What a tag of this end names.
enum Held {
    Region(Arc<Registration>),
    /// Bound by the work request with this number.
    Window(Window, u64),
}

enum Event {
    Over(Completion),
    Came {
        slot: MessageSlot,
        bytes: u32,
        invalidated: Option<SteeringTag>,
    },
}

/// The terms of a connection.
pub struct Made {
    pub queue: Queue,
    pub id: Id,
    pub domain: Arc<Domain>,
    pub peer: Peer,
    pub private_data: Vec<u8>,
    /// The most RDMA Reads that this end may have under way.
    pub reads_max: u32,
    /// Whether the peer was offered RDMA Reads, so that the domain is one of those that may be read.
    pub reads: bool,
    /// Whether the peer asked for the connection.
    pub is_server: bool,
    /// Counts as a connection of its listener.
    pub place: Option<Arc<()>>,
}

/// One end of a connection. Its fields are dropped in this order: the queue pair first, then what the device used for
/// it.
pub struct Pair {
    queue: Queue,
    waiting: Waiting,
    chain: Chain,
    flights: VecDeque<Flight>,
    next: u64,
    /// Work requests whose end is reported.
    told: u32,
    reads: u32,
    reads_max: u32,
    /// Whether the peer may read what is exposed.
    exposes: bool,
    /// Whether a post has found no room since there was some.
    starved: bool,
    receives: VecDeque<MessageSlot>,
    next_receive: u64,
    /// Number of messages for which the caller has made room, less those that came.
    wanted: u32,
    events: VecDeque<Event>,
    message: Box<[u8; SLOT_BYTES]>,
    message_bytes: usize,
    table: HashMap<u32, Held>,
    /// Windows that are bound to nothing.
    spare: Vec<Window>,
    /// Windows whose end nobody saw.
    left: Vec<Kept>,
    /// Room for the completions of one look.
    over: Vec<Done>,
    looks: u32,
    silent_until: Option<Nanos>,
    wakeup: WakeUp,
    keepalive: Keepalive,
    closed: bool,
    is_server: bool,
    set: Option<Arc<WakeSet>>,
    peer: Peer,
    private_data: Vec<u8>,
    domain: Arc<Domain>,
    id: Id,
    channel: Arc<Channel>,
    _place: Option<Arc<()>>,
}

impl Pair {
    /// Posts receives from now on, before the connection is established.
    pub fn initialized(made: Made) -> io::Result<Pair> {
        let Made {
            mut queue,
            id,
            domain,
            peer,
            private_data,
            reads_max,
            reads,
            is_server,
            place,
        } = made;
        // An obstacle to all receives, such as a limit of locked memory, shows at once.
        drop(domain.slot()?);
        // A server must be able to ask whether its client is there, by an empty write. Memory has rights of its own.
        let access = match is_server {
            true => Access::LOCAL,
            false => Access::WRITE,
        };
        queue.initialize(&id, access)?;
        let iwarp = domain.context().is_iwarp();
        let channel = Arc::clone(id.channel());
        let mut pair = Pair {
            waiting: Waiting::new(queue.as_fd(), channel.as_fd())?,
            queue,
            chain: Chain::default(),
            flights: VecDeque::new(),
            next: 0,
            told: 0,
            reads: 0,
            reads_max,
            exposes: reads,
            starved: false,
            receives: VecDeque::new(),
            next_receive: 0,
            wanted: 0,
            events: VecDeque::new(),
            message: Box::new([0; SLOT_BYTES]),
            message_bytes: 0,
            table: HashMap::new(),
            spare: Vec::new(),
            left: Vec::new(),
            over: Vec::new(),
            looks: 0,
            silent_until: (is_server && iwarp).then(|| clock::now() + SILENCE),
            wakeup: WakeUp::new(!is_server && iwarp),
            keepalive: Keepalive::new(is_server, clock::now()),
            closed: false,
            is_server,
            set: None,
            peer,
            private_data,
            domain,
            id,
            channel,
            _place: place,
        };
        pair.fill_receives();
        match pair.closed {
            true => Err(io::ErrorKind::OutOfMemory.into()),
            false => Ok(pair),
        }
    }

    /// For the steps of the handshake.
    pub fn parts(&mut self) -> (&mut Queue, &Id) {
        (&mut self.queue, &self.id)
    }

    /// What the peer answered.
    pub fn answered(&mut self, private_data: Vec<u8>, reads_max: u32) {
        self.private_data = private_data;
        self.reads_max = reads_max;
    }

    /// Nobody is woken any more.
    pub fn unwatch(&mut self) {
        if let Some(set) = self.set.take() {
            set.remove(self.waiting.as_fd());
        }
    }

    /// Whether the device uses memory that belongs to the caller again when the connection is destroyed: a frame, a
    /// region.
    pub fn borrows(&self) -> bool {
        self.told > 0
    }

    fn open(&self) -> Result<(), PostError> {
        match self.closed {
            true => Err(PostError::Closed),
            false => Ok(()),
        }
    }

    fn fill_receives(&mut self) {
        let wanted = self.wanted.max(RECEIVES_MIN);
        let wanted = wanted.min(self.queue.receives_max()) as usize;
        while self.receives.len() < wanted && !self.closed {
            let slot = match self.domain.slot() {
                Ok(slot) => slot,
                // Without any receive, the pair would never learn about anything again.
                Err(error) if self.receives.is_empty() && self.events.is_empty() => {
                    return self.close_failed(&error);
                }
                Err(_) => return,
            };
            if let Err(error) = self.queue.receive(self.next_receive, &slot) {
                return self.close_failed(&error);
            }
            self.next_receive += 1;
            self.receives.push_back(slot);
        }
    }

    /// Room for this many work requests.
    fn room(&mut self, count: usize) -> Result<(), PostError> {
        self.open()?;
        if self.flights.len() + count > DEPTH {
            // Without a flush, nobody would empty the queue.
            self.ring();
            self.reap();
            self.open()?;
        }
        match self.flights.len() + count <= DEPTH {
            true => Ok(()),
            false => {
                self.starved = true;
                Err(PostError::Full)
            }
        }
    }

    /// Queues a work request, for which there is room.
    fn post(&mut self, work: &Work<'_>, piece: Option<GatherEntry>, what: What, kept: Kept) {
        let told = !matches!(what, What::Quiet);
        self.told += u32::from(told);
        self.chain.push(self.next, work, piece, told);
        self.flights.push_back(Flight {
            number: self.next,
            what,
            kept,
        });
        self.next += 1;
    }

    fn send(&mut self, parts: &[&[u8]], ends: Option<SteeringTag>) -> Result<Posted, PostError> {
        self.open()?;
        let length: usize = parts.iter().map(|part| part.len()).sum();
        if length > SLOT_BYTES {
            return Err(PostError::TooLong);
        }
        self.room(1)?;
        let slot = self.slot()?;
        let mut at = 0;
        for part in parts {
            slot.store(at, part);
            at += part.len();
        }
        let piece = piece(&slot, length);
        self.post(
            &Work::Send(ends),
            Some(piece),
            What::Quiet,
            Kept::MessageSlot(slot),
        );
        self.wakeup.sent();
        Ok(Posted::Done)
    }

    fn slot(&mut self) -> Result<MessageSlot, PostError> {
        let slot = self.domain.slot();
        slot.map_err(|error| self.without_memory(&error))
    }

    /// There may be memory when something under way has ended. If nothing is, the caller would try for ever.
    fn without_memory(&mut self, error: &io::Error) -> PostError {
        self.starved = true;
        self.ring();
        if !self.flights.is_empty() {
            return PostError::Full;
        }
        self.close_failed(error);
        PostError::Closed
    }

    fn write_bytes(&mut self, bytes: &[u8], to: Remote) -> Result<Posted, PostError> {
        if bytes.len() > SLOTS_MAX * SLOT_BYTES {
            return self.write_long(bytes, to);
        }
        self.room(bytes.len().div_ceil(SLOT_BYTES))?;
        let pieces = bytes.chunks(SLOT_BYTES);
        let slots: Vec<MessageSlot> = pieces
            .clone()
            .map(|_| self.slot())
            .collect::<Result<_, _>>()?;
        for (at, (slot, part)) in slots.into_iter().zip(pieces).enumerate() {
            slot.store(0, part);
            let to = to.ahead((at * SLOT_BYTES) as u64);
            let work = Work::Write {
                tag: to.tag,
                address: to.offset,
            };
            let piece = piece(&slot, part.len());
            self.post(&work, Some(piece), What::Quiet, Kept::MessageSlot(slot));
        }
        Ok(Posted::Done)
    }

    fn write_long(&mut self, bytes: &[u8], to: Remote) -> Result<Posted, PostError> {
        self.room(1)?;
        let registered = self.domain.region(bytes.len(), Access::LOCAL);
        let (registration, region) = registered.map_err(|error| {
            tracing::warn!(%error, "no memory for a write");
            self.without_memory(&error)
        })?;
        if !region.store(0, bytes) {
            return Err(PostError::BadRange);
        }
        let work = Work::Write {
            tag: to.tag,
            address: to.offset,
        };
        let piece = GatherEntry {
            address: registration.address(0, bytes.len()),
            length: u32::try_from(bytes.len()).map_err(|_| PostError::BadRange)?,
            key: registration.local_key(),
        };
        let kept = Kept::Registration(registration);
        self.post(&work, Some(piece), What::Quiet, kept);
        Ok(Posted::Done)
    }

    /// The registration of a region of this end.
    fn registered(&self, region: &Region) -> Option<&Arc<Registration>> {
        match self.table.get(&region.tag().0)? {
            Held::Region(registration) if registration.address(0, 0) == region.remote(0).offset => {
                Some(registration)
            }
            _ => None,
        }
    }

    /// A range of a region, registered once more.
    fn registered_for(
        &self,
        region: &Arc<Region>,
        offset: usize,
        length: usize,
        access: Access,
    ) -> io::Result<Arc<Registration>> {
        let memory = Arc::clone(region);
        self.domain.again(memory, offset, length, access)
    }

    fn arena(&mut self, arena: &Arc<Arena>) -> Result<Arc<Registration>, PostError> {
        self.domain.arena(arena).map_err(|error| {
            tracing::error!(%error, "the page cache cannot be registered");
            self.close_failed(&error);
            PostError::Closed
        })
    }

    fn ring(&mut self) {
        if self.closed || self.chain.is_empty() {
            return;
        }
        if self.silent_until.is_some() {
            self.gather();
        }
        if let Some(until) = self.silent_until.take() {
            clock::sleep(until.since(clock::now()));
        }
        if let Err(error) = self.queue.ring(&mut self.chain) {
            self.close_failed(&error);
        }
    }

    /// Call this while waiting for an answer. Returns the longest time to wait before the next call.
    fn wakeup(&mut self) -> Option<Nanos> {
        if self.closed || !self.wakeup.is_awaited() {
            return None;
        }
        let now = clock::now();
        let left = self.wakeup.left(now);
        if left.is_none() && self.room(1).is_ok() {
            tracing::debug!(peer = %self.peer, "no answer yet: sent an empty RDMA Write");
            self.write_nothing();
        }
        left.or_else(|| self.wakeup.left(now))
    }

    /// An RDMA Write of no bytes.
    fn write_nothing(&mut self) {
        let nothing = Work::Write {
            tag: SteeringTag(0),
            address: 0,
        };
        self.post(&nothing, None, What::Quiet, Kept::Nothing);
        self.ring();
    }

    /// Asks a peer that has been silent for a while whether it is still there. Work requests under way ask as well.
    fn keep_alive(&mut self) {
        if !self.closed && self.keepalive.is_due(clock::now()) {
            self.reap();
            if !self.closed && self.flights.is_empty() {
                self.write_nothing();
            }
        }
    }

    /// Asks to be woken. Returns false if there is something already.
    fn ask_to_be_woken(&mut self) -> bool {
        if self.closed || !self.events.is_empty() {
            return false;
        }
        let starved = self.starved;
        // No look may take the event that is asked for here.
        self.looks = 0;
        self.look();
        self.keep_alive();
        self.ask();
        self.look();
        if !self.closed && self.told == 0 {
            // Memory that nobody waits for is released.
            self.reap();
        }
        // Room in the queue is an event too.
        let room = starved && !self.starved;
        !self.closed && self.events.is_empty() && !room
    }

    /// Asks for an event at the next completion that the caller waits for.
    fn ask(&mut self) {
        let sends = self.told > 0 || self.starved;
        for (side, wanted) in [(Side::Receives, true), (Side::Sends, sends)] {
            if wanted && self.waiting.asks(side) {
                self.queue.notify(side);
            }
        }
    }

    /// Waits until the work request with this number has ended. Returns whether it has.
    fn settle(&mut self, number: u64, span: Nanos) -> bool {
        self.ring();
        let until = clock::now() + span;
        loop {
            if self.is_over(number) || self.closed {
                return true;
            }
            if clock::now() >= until {
                return false;
            }
            if self.waiting.asks(Side::Sends) {
                self.queue.notify(Side::Sends);
            } else {
                let ready = self.waiting.wait(Some(Nanos::from_millis(5)));
                self.heed(ready, 1);
            }
        }
    }

    fn arrived(
        &mut self,
        slot: &MessageSlot,
        bytes: u32,
        ended: Option<SteeringTag>,
    ) -> Completion {
        self.message_bytes = bytes as usize;
        self.wakeup.heard();
        self.keepalive.heard();
        slot.load(&mut self.message[..bytes as usize]);
        self.wanted = self.wanted.saturating_sub(1);
        let invalidated = ended.filter(|tag| match self.table.remove(&tag.0) {
            None => false,
            Some(Held::Region(_)) => true,
            Some(Held::Window(window, bound)) => {
                self.spare(window);
                self.let_go(bound);
                true
            }
        });
        Completion::Recv { bytes, invalidated }
    }

    /// When a peer has ended the tag, nothing of a caller's memory may be held. The work request that used it was
    /// bound, although the device may report that later.
    fn let_go(&mut self, bound: u64) {
        let flight = (self.flights.iter_mut()).find(|flight| flight.number == bound);
        if let Some(flight) = flight {
            flight.kept = Kept::Nothing;
        }
    }

    /// Keeps a window, whose tag has ended, for the next use.
    fn spare(&mut self, mut window: Window) {
        window.ended();
        if self.spare.len() < SPARE_MAX {
            self.spare.push(window);
        }
    }

    /// Whether the work request with this number is over.
    fn is_over(&mut self, number: u64) -> bool {
        self.reap();
        let first = self.flights.front();
        first.is_none_or(|flight| flight.number > number)
    }

    /// Ends a window's tag, bound by the work request with this number.
    fn end_window(&mut self, mut window: Window, bound: u64) {
        // The device must not find that a window to bind has gone.
        if !self.settle(bound, BIND) {
            return self.close(&"the peer lets no tag be bound");
        }
        // After posts that wait for the peer, its end would wait too. So it is destroyed at once.
        if self.closed || !self.flights.is_empty() {
            if !window.end() {
                self.close_failed(&"the peer could go on using memory");
            }
            return;
        }
        let number = self.next;
        let end = Work::End(window.tag());
        self.post(&end, None, What::Quiet, Kept::Nothing);
        match self.settle(number, BIND) && !self.closed {
            true => self.spare(window),
            false => self.close_failed(&"a tag does not end"),
        }
    }
}

fn piece(slot: &MessageSlot, length: usize) -> GatherEntry {
    GatherEntry {
        address: slot.address(),
        length: length as u32,
        key: slot.local_key(),
    }
}

impl Drop for Pair {
    fn drop(&mut self) {
        // The end of a server's has been waited for, if at all.
        if !self.closed && !self.is_server {
            self.settle(u64::MAX, drain::PATIENCE);
        }
        if !self.closed {
            self.id.disconnect();
        }
        // Soft RoCE keeps a queue pair as long as a window is bound by it.
        self.table.retain(|_, held| matches!(held, Held::Region(_)));
    }
}
