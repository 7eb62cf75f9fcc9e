//! RPC-over-RDMA version 1 (RFC 8166) over a queue pair.
//!
//! [`Requester`] is the protocol. This is the loop around it: it sends the messages, lends the memory to the server,
//! and assembles the replies.

mod memory;
mod pull;
#[cfg(all(test, not(shuttle)))]
mod tests;

use self::{
    memory::{Buffer, RegisteredMemory},
    pull::Pull,
};
use crate::{
    options::{Rdma, RdmaCredits, RdmaDesign, Registration, Wait},
    transport::{Broken, PlacedData, ReplyBuffer, RpcTransport},
    waiting::{Awaited, Patience, Waits},
};
use odafs_common::{
    rpcrdma::{
        AdaptiveRequests, Call, CallError, CallShape, Event, Failure, Need, NeedKind, PrivateData,
        Reply, RequestPolicy, Requester, RequesterConfig, Stream, Terms,
    },
    wire::{rpc, xdr::Writer},
};
use odafs_fabric::{
    Access, Completion, PostError, QueuePair, RemoteInvalidation, SteeringTag, clock::Nanos,
};
use std::collections::{HashMap, VecDeque};

/// The longest RPC message in either direction: 1 MiB of data and its header.
const MESSAGE_MAX: usize = (1 << 20) + (16 << 10);
/// The longest reply that is fetched in the Read-Read design, in which the server knows no limit of the client.
const FETCHED_MAX: u32 = MESSAGE_MAX as u32;
/// The most messages that a server may send on an idle connection.
const EVENTS_MAX: u32 = 4096;
/// Credits that adapt to the load ("Optimizing OpenSolaris NFS over RDMA", figure 10).
const ADAPTIVE: AdaptiveRequests = AdaptiveRequests {
    min: 16,
    max: 128,
    threshold: 4,
    factor_percent: 200,
};

/// The private data for the connection (RFC 8797), over a device whose peer can invalidate these tags.
pub fn private_data(rdma: Rdma, invalidation: RemoteInvalidation) -> PrivateData {
    PrivateData {
        // The server must not invalidate a tag of memory that stays lent.
        remote_invalidate: match rdma.registration {
            Registration::Cached => false,
            Registration::Pooled => invalidation != RemoteInvalidation::Never,
            Registration::PerOperation => invalidation == RemoteInvalidation::Any,
        },
        read_read: rdma.design == RdmaDesign::ReadRead,
        ..PrivateData::default()
    }
}

/// A connection that carries calls as RPC-over-RDMA.
pub struct RdmaTransport {
    pair: Box<dyn QueuePair>,
    waits: Waits,
    terms: Terms,
    requester: Requester,
    memory: RegisteredMemory,
    under_way: HashMap<u32, UnderWay>,
    pulls: VecDeque<Pull>,
    /// Replies that nobody has taken, in the order in which they came.
    ready: VecDeque<Received>,
    /// The reply that was taken last.
    current: Received,
    /// Header of the present message.
    header: Vec<u8>,
}

/// A call that has no reply yet.
#[derive(Default)]
struct UnderWay {
    /// The message with its header, to send it again.
    sent: Vec<u8>,
    buffers: Vec<(NeedKind, Buffer)>,
    /// Whether the server may still fetch the call's memory after the first answer.
    repeated: bool,
}

/// A reply.
#[derive(Default)]
struct Received {
    message: Vec<u8>,
    /// The data that the message lacks: this many bytes, here.
    apart: Option<(Buffer, u32)>,
}

/// The result of sending a call.
enum Sent {
    Yes,
    /// Replies must come first.
    NoCredit,
}

impl RdmaTransport {
    /// Over a new connection. `ours` is the private data that was sent on it.
    pub fn new(mut pair: Box<dyn QueuePair>, ours: &PrivateData, rdma: Rdma, wait: Wait) -> Self {
        let theirs = PrivateData::decode(pair.private_data());
        let terms = Terms::between(ours, theirs.as_ref());
        // One more reply may come than there are calls.
        let most = pair.receives_max().saturating_sub(1).clamp(1, 1024);
        let config = RequesterConfig {
            terms,
            credits: match rdma.credits {
                RdmaCredits::Fixed(credits) => RequestPolicy::Fixed(credits.clamp(1, most)),
                RdmaCredits::Adaptive => RequestPolicy::Adaptive(ADAPTIVE),
            },
        };
        pair.post_receives(config.receives());
        Self {
            pair,
            waits: Waits::new(wait),
            terms,
            requester: Requester::new(config),
            memory: RegisteredMemory::new(rdma.registration),
            under_way: HashMap::new(),
            pulls: VecDeque::new(),
            ready: VecDeque::new(),
            current: Received::default(),
            header: Vec::new(),
        }
    }

    fn try_send(
        &mut self,
        message: &[u8],
        shape: &CallShape,
        place: Option<&ReplyBuffer>,
        deadline: Nanos,
    ) -> Result<Sent, Broken> {
        let Self {
            pair,
            memory,
            requester,
            header,
            ..
        } = self;
        let mut call = UnderWay::default();
        let mut no_memory = None;
        let mut lend = |need: &Need| {
            let access = match need.kind {
                NeedKind::Argument | NeedKind::Call => Access::READ,
                NeedKind::Result | NeedKind::Reply => Access::WRITE,
            };
            let (pair, bytes) = (&mut **pair, need.bytes as usize);
            let placed = match (need.kind, place) {
                (NeedKind::Result, Some(place)) => memory.lend_place(pair, bytes, place),
                _ => None,
            };
            let lent = placed.map_or_else(|| memory.lend(pair, bytes, access), Ok);
            let buffer = lent.map_err(|error| no_memory = Some(error)).ok()?;
            let segments = buffer.segments();
            let mut at = 0;
            for part in need.parts.iter() {
                // A buffer is as long as its parts together.
                let part = &message[part.range()];
                let _ = buffer.store(at, part);
                at += part.len();
            }
            call.buffers.push((need.kind, buffer));
            Some(segments)
        };
        let asked = Call {
            message,
            shape,
            health_check: false,
        };
        let outgoing = match requester.call(&asked, &mut lend, header) {
            Ok(outgoing) => outgoing,
            Err(error) => {
                self.release(call, None);
                return match error {
                    CallError::NoCredit => Ok(Sent::NoCredit),
                    CallError::Duplicate => self.send_again(message, deadline),
                    CallError::TooLong => Err(Broken::new("the call does not fit the transport")),
                    CallError::NoMemory => Err(match no_memory {
                        Some(error) => Broken::new(format!("cannot register memory: {error}")),
                        None => Broken::new("cannot register memory"),
                    }),
                };
            }
        };
        call.sent.extend_from_slice(header);
        for part in outgoing.inline.iter() {
            call.sent.extend_from_slice(&message[part.range()]);
        }
        let posted = self.post(&call.sent, deadline);
        self.under_way.insert(outgoing.xid, call);
        posted.map(|()| Sent::Yes)
    }

    /// The call to repeat is under way here. A server that is still at work on it may have dropped it.
    fn send_again(&mut self, message: &[u8], deadline: Nanos) -> Result<Sent, Broken> {
        let xid = message
            .first_chunk()
            .map_or(0, |xid| u32::from_be_bytes(*xid));
        let Some(call) = self.under_way.get_mut(&xid) else {
            return Ok(Sent::Yes);
        };
        // A reply by RDMA Write would come for each repetition, and the memory would be gone the second time.
        let written = |kind| matches!(kind, NeedKind::Result | NeedKind::Reply);
        let once = call.buffers.iter().any(|(kind, _)| written(*kind));
        if once || !self.requester.send_again(xid) {
            return Ok(Sent::Yes);
        }
        call.repeated = true;
        // The reply may come while there is no room.
        let sent = std::mem::take(&mut call.sent);
        let posted = self.post(&sent, deadline);
        if let Some(call) = self.under_way.get_mut(&xid) {
            call.sent = sent;
        }
        posted.map(|()| Sent::Yes)
    }

    /// Posts a message. Waits for room if there is none.
    fn post(&mut self, message: &[u8], deadline: Nanos) -> Result<(), Broken> {
        let mut patience = self.waits.begin(deadline);
        loop {
            match self.pair.post_send(0, &[message]) {
                Ok(_) => return Ok(()),
                Err(PostError::Full) => {
                    self.pair.flush();
                    if !self.step(&mut patience)? {
                        return Err(Broken::new("the server takes no more messages"));
                    }
                }
                Err(error) => return Err(Broken::posting(error)),
            }
        }
    }

    /// Takes the next event, or waits for it. Returns false if the deadline has passed.
    fn step(&mut self, patience: &mut Patience) -> Result<bool, Broken> {
        if self.advance()? {
            Ok(patience.goes_on())
        } else {
            patience.rest(&mut *self.pair)
        }
    }

    /// Takes the next event, if there is one. Returns false otherwise.
    fn advance(&mut self) -> Result<bool, Broken> {
        match self.pair.poll() {
            Some(Completion::Recv { invalidated, .. }) => {
                self.pair.post_receives(1);
                self.received(invalidated)?;
            }
            Some(Completion::Read { id, result }) => {
                result.map_err(Broken::by_peer)?;
                self.fetched(id as u32)?;
            }
            Some(Completion::Send { .. } | Completion::Write { .. }) => {}
            None if self.pair.is_closed() => {
                return Err(Broken::by_peer("the server closed the connection"));
            }
            None => return Ok(false),
        }
        Ok(true)
    }

    /// Handles a message.
    fn received(&mut self, invalidated: Option<SteeringTag>) -> Result<(), Broken> {
        match self.requester.receive(self.pair.message()) {
            Event::Reply(reply) => self.replied(&reply, invalidated),
            Event::Pull(pulled) => {
                self.release_call(pulled.xid, invalidated);
                let length = pulled.assembly.length as usize;
                let buffer = self.memory.lend(&mut *self.pair, length, Access::LOCAL);
                let buffer = buffer
                    .map_err(|error| Broken::new(format!("cannot register memory: {error}")))?;
                let pull = Pull::new(pulled, buffer, self.pair.message());
                self.pulls.push_back(pull);
                self.post_reads()
            }
            Event::Failed { xid, why } => {
                self.release_call(xid, invalidated);
                if why == Failure::Malformed {
                    return Err(Broken::new(why));
                }
                tracing::debug!(%why, "a call was refused by the transport");
                // For the caller, this server cannot serve the call.
                let mut message = Vec::new();
                rpc::system_err(&mut Writer::new(&mut message), xid);
                self.ready.push_back(Received {
                    message,
                    apart: None,
                });
                Ok(())
            }
            Event::Late { xid } => {
                self.release_call(xid, invalidated);
                Ok(())
            }
            Event::Unknown { .. } | Event::Ignored => Ok(()),
        }
    }

    fn replied(&mut self, reply: &Reply, invalidated: Option<SteeringTag>) -> Result<(), Broken> {
        let call = self.under_way.remove(&reply.xid).unwrap_or_default();
        let mut received = Received::default();
        if let Stream::Inline(range) = &reply.stream {
            let inline = self.pair.message().get(range.clone());
            received
                .message
                .extend_from_slice(inline.unwrap_or_default());
        }
        // Our calls have one DDP-eligible result at most.
        let result = reply.results.first();
        // From here on nobody else writes to it.
        for (_, buffer) in &call.buffers {
            self.memory.end_access(&mut *self.pair, buffer, invalidated);
        }
        let malformed = || Broken::new(Failure::Malformed);
        for (kind, buffer) in call.buffers {
            if let (NeedKind::Reply, Stream::Memory(bytes)) = (kind, &reply.stream) {
                received.message.resize(*bytes as usize, 0);
                if !buffer.load(0, &mut received.message) {
                    return Err(malformed());
                }
            }
            match (kind, result) {
                // If it was not used, there is no data: nothing else carries it (RFC 8166, section 6.1).
                (NeedKind::Result, bytes) if bytes.unwrap_or(0) as usize <= buffer.len() => {
                    received.apart = Some((buffer, bytes.unwrap_or(0)));
                }
                (NeedKind::Result, _) => return Err(malformed()),
                _ => self
                    .memory
                    .take_back(&mut *self.pair, buffer, call.repeated),
            }
        }
        if result.is_some() && received.apart.is_none() || received.message.is_empty() {
            return Err(malformed());
        }
        self.ready.push_back(received);
        Ok(())
    }

    fn release_call(&mut self, xid: u32, invalidated: Option<SteeringTag>) {
        let call = self.under_way.remove(&xid).unwrap_or_default();
        self.release(call, invalidated);
    }

    fn release(&mut self, call: UnderWay, invalidated: Option<SteeringTag>) {
        for (_, buffer) in call.buffers {
            let pair = &mut *self.pair;
            self.memory.end_access(pair, &buffer, invalidated);
            self.memory.take_back(pair, buffer, call.repeated);
        }
    }

    /// Posts the RDMA Reads of pending replies, as many as the server accepts, and completes those that have ended.
    fn post_reads(&mut self) -> Result<(), Broken> {
        let mut any = false;
        for pull in &mut self.pulls {
            any |= pull.post(&mut *self.pair)?;
        }
        while let Some(at) = self.pulls.iter().position(Pull::is_over) {
            if let Some(pull) = self.pulls.remove(at) {
                self.done(pull)?;
                any = true;
            }
        }
        if any {
            self.pair.flush();
        }
        Ok(())
    }

    /// An RDMA Read of this call has ended.
    fn fetched(&mut self, xid: u32) -> Result<(), Broken> {
        if let Some(pull) = self.pulls.iter_mut().find(|pull| pull.xid() == xid) {
            pull.read_over();
        }
        self.post_reads()
    }

    /// A reply has been fetched, so the server may have its memory back.
    fn done(&mut self, pull: Pull) -> Result<(), Broken> {
        let xid = pull.xid();
        let (message, buffer) = pull.finish();
        self.memory.end_access(&mut *self.pair, &buffer, None);
        self.memory.take_back(&mut *self.pair, buffer, false);
        self.ready.push_back(Received {
            message,
            apart: None,
        });
        if self.requester.done(xid, &mut self.header) {
            match self.pair.post_send(0, &[&self.header]) {
                // If there is no room, the server takes the memory back after a time.
                Ok(_) | Err(PostError::Full) => {}
                Err(error) => return Err(Broken::new(error)),
            }
        }
        Ok(())
    }
}

impl RpcTransport for RdmaTransport {
    fn send(
        &mut self,
        message: &[u8],
        shape: &CallShape,
        place: Option<&ReplyBuffer>,
        deadline: Nanos,
    ) -> Result<(), Broken> {
        let fetched;
        let shape = match self.terms.read_read {
            true => {
                let reply_max = shape.reply_max.max(FETCHED_MAX);
                fetched = CallShape {
                    reply_max,
                    ..shape.clone()
                };
                &fetched
            }
            false => shape,
        };
        let mut patience = self.waits.begin(deadline);
        loop {
            match self.try_send(message, shape, place, deadline)? {
                Sent::Yes => return Ok(()),
                Sent::NoCredit => {
                    self.pair.flush();
                    if !self.step(&mut patience)? {
                        return Err(Broken::new("the server answers none of many calls"));
                    }
                }
            }
        }
    }

    fn expect(&mut self, awaited: Awaited) {
        self.waits.expect(awaited);
    }

    fn flush(&mut self, _: Nanos) -> Result<(), Broken> {
        self.pair.flush();
        Ok(())
    }

    fn receive(&mut self, deadline: Nanos) -> Result<bool, Broken> {
        let mut patience = self.waits.begin(deadline);
        loop {
            if let Some(next) = self.ready.pop_front() {
                self.waits.ended(&patience);
                self.let_go();
                self.current = next;
                return Ok(true);
            }
            if !self.step(&mut patience)? {
                return Ok(false);
            }
        }
    }

    fn message(&self) -> &[u8] {
        &self.current.message
    }

    fn placed(&self) -> Option<PlacedData<'_>> {
        let (buffer, bytes) = self.current.apart.as_ref()?;
        Some(PlacedData {
            region: buffer.region(),
            offset: buffer.start(),
            bytes: *bytes,
        })
    }

    fn let_go(&mut self) {
        if let Some((buffer, _)) = self.current.apart.take() {
            self.memory.take_back(&mut *self.pair, buffer, false);
        }
    }

    fn message_max(&self) -> usize {
        MESSAGE_MAX
    }

    fn queue_pair(&mut self) -> Option<&mut dyn QueuePair> {
        Some(&mut *self.pair)
    }

    fn is_over(&mut self) -> bool {
        for _ in 0..EVENTS_MAX {
            match self.advance() {
                Ok(true) => {}
                Ok(false) => return false,
                Err(_) => return true,
            }
        }
        true
    }
}
