//! The server's side: how a call is put together, and where each part of its reply goes.

use std::collections::VecDeque;
use std::ops::Range;
use std::time::Duration;

use super::assembly::{Assembly, Reduced};
use super::credit::GrantPolicy;
use super::private_data::Terms;
use super::reply::{Placements, Results, Source, Write, scatter};
use super::reverse::{Reverse, ReverseError, is_call, is_of, is_reply};
use crate::wire::rpcrdma::{
    Body, Chunks, HEADER_BYTES_MIN, Header, ReadList, ReadSegment, ReplyHeader, Segments,
    TransportError, WRITE_CHUNKS_MAX, WriteList, capacity,
};
use crate::wire::xdr::{Encode, Reader, Writer};

/// What a responder keeps to.
#[derive(Clone, Copy, Debug)]
pub struct ResponderConfig {
    /// What the connection's private data came to.
    pub terms: Terms,
    /// Credits that are granted.
    pub credits: GrantPolicy,
    /// Longest call taken, its chunks included, in bytes.
    pub message_max: u32,
    /// Limits of the Read-Read design; used if the terms have it.
    pub read_read: ReadRead,
    /// Calls in the reverse direction that may be under way, if the peer grants as many. 0: none.
    pub reverse_credits: u32,
}

/// Limits of the Read-Read design.
#[derive(Clone, Copy, Debug)]
pub struct ReadRead {
    /// Most replies that wait to be fetched.
    pub exposures_max: u32,
    /// How long a reply waits to be fetched.
    pub done_timeout: Duration,
}

impl Default for ReadRead {
    fn default() -> Self {
        Self {
            exposures_max: 64,
            done_timeout: Duration::from_secs(30),
        }
    }
}

/// A call that arrived.
#[derive(Debug)]
pub struct IncomingCall {
    /// How its message is put together.
    pub assembly: Assembly,
    /// To be handed back with the reply.
    pub ticket: Ticket,
}

/// What to remember about a call until it is answered.
#[derive(Debug)]
pub struct Ticket {
    xid: u32,
    requested: u32,
    writes: WriteList,
    reply: Option<Segments>,
    invalidate: Option<u32>,
    inline_max: u32,
}

impl Ticket {
    /// Of the call.
    pub fn xid(&self) -> u32 {
        self.xid
    }

    /// Where its results can be placed apart from the reply: in the chunks of the call's write list.
    pub fn placements(&self) -> Placements {
        Placements::of(&self.writes)
    }

    /// The longest reply that can be sent, without what is placed apart.
    pub fn reply_bytes_max(&self) -> u32 {
        let chunk = self.reply.as_ref().map_or(0, Segments::capacity);
        self.inline_max
            .max(u32::try_from(chunk).unwrap_or(u32::MAX))
    }
}

/// What a message means.
#[expect(
    clippy::large_enum_variant,
    reason = "calls are the rule, and nobody keeps a step"
)]
#[derive(Debug)]
pub enum Received {
    /// A call.
    Call(IncomingCall),
    /// The peer has fetched a reply. Release what was exposed for it.
    Done(ExposureId),
    /// Send this message.
    Respond(Vec<u8>),
    /// These bytes of the message are the RPC reply to a call in the reverse direction.
    Answered(Range<usize>),
    /// The call in the reverse direction with this xid has failed: the peer does not take it, or its reply is not one
    /// that it may have.
    Failed(u32),
    /// Do nothing.
    Ignore(Ignored),
}

/// Why to do nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ignored {
    /// Too short to answer to, or an error message itself.
    Unanswerable,
    /// `RDMA_DONE` for nothing that is exposed.
    Done,
    /// `RDMA_ERROR`
    Error,
    /// An RPC reply to no call.
    Reply,
}

/// How a call is answered: the writes in order, then one message of the header and the inline parts.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ReplyPlan {
    /// What goes ahead.
    pub writes: Vec<Write>,
    /// Whether the RPC message follows the header. Otherwise it is in memory altogether.
    pub inline: bool,
    /// Send With Invalidate of this steering tag.
    pub invalidate: Option<u32>,
    /// What was exposed, until [`Received::Done`] or [`Responder::expired`] gives it back.
    pub exposed: Option<ExposureId>,
    /// The reply had no room, so an error is sent instead. Release what [`Responder::reply_exposed`] had exposed.
    pub overrun: bool,
}

/// What to expose to the peer's RDMA Reads.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Expose {
    /// Whose memory it will be.
    pub id: ExposureId,
    /// What: data, or the message. The segments must contain exactly as many bytes.
    pub from: Source,
}

/// Names the memory that was exposed for a reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ExposureId(pub u64);

#[derive(Debug)]
struct Exposure {
    xid: u32,
    id: ExposureId,
    deadline: Duration,
}

/// A receive more than is promised: an error in counting costs a client nothing.
pub const SPARE_RECEIVES: u32 = 1;

/// The server's side of a connection.
#[derive(Debug)]
pub struct Responder {
    config: ResponderConfig,
    /// Credits that the peer has: `posted + under_way` is never less when a reply leaves.
    granted: u32,
    posted: u32,
    under_way: u32,
    exposures: VecDeque<Exposure>,
    next_exposure: u64,
    dones: u64,
    reverse: Reverse,
}

impl Responder {
    /// A connection without calls. The peer has one credit (RFC 8166, section 3.3.1).
    pub fn new(config: ResponderConfig) -> Self {
        Self {
            config,
            granted: 1,
            posted: 0,
            under_way: 0,
            exposures: VecDeque::new(),
            next_exposure: 0,
            dones: 0,
            reverse: Reverse::new(config.reverse_credits),
        }
    }

    /// What the connection's private data came to.
    pub fn terms(&self) -> &Terms {
        &self.config.terms
    }

    /// Takes a message in.
    pub fn receive(&mut self, message: &[u8]) -> Received {
        self.posted = self.posted.saturating_sub(1);
        let mut r = Reader::new(message);
        let header = match Header::decode(&mut r) {
            Ok(header) => header,
            Err(error) => {
                return match error.answer(self.granted) {
                    Some(answer) => Received::Respond(answer),
                    None => Received::Ignore(Ignored::Unanswerable),
                };
            }
        };
        let inline = message.len() - r.rest().len()..message.len();
        match &header.body {
            Body::Done => self.done(header.xid),
            // The peer sends errors to those who call it.
            Body::Error(_) if self.reverse.end(header.xid) => Received::Failed(header.xid),
            Body::Error(_) => Received::Ignore(Ignored::Error),
            Body::Msg(chunks) if is_reply(r.rest()) => {
                match is_of(r.rest(), header.xid) && self.reverse.end(header.xid) {
                    true => self.replied(&header, chunks, inline),
                    false => Received::Ignore(Ignored::Reply),
                }
            }
            // Of another xid than its header (RFC 8166, section 4.5.2). If it has to be read first, the reader checks it.
            Body::Msg(_) if !is_of(r.rest(), header.xid) => {
                Received::Respond(refusal(header.xid, self.granted).to_bytes())
            }
            Body::Msg(chunks) => self.call(&header, chunks, &Reduced::Inline(inline)),
            Body::Nomsg(chunks) => self.call(&header, chunks, &Reduced::Chunk),
        }
    }

    fn call(&mut self, header: &Header, chunks: &Chunks, reduced: &Reduced) -> Received {
        match Assembly::new(reduced, &chunks.reads, self.config.message_max) {
            Ok(assembly) => {
                self.under_way += 1;
                let ticket = self.ticket(header, chunks);
                Received::Call(IncomingCall { assembly, ticket })
            }
            Err(_) => Received::Respond(refusal(header.xid, self.granted).to_bytes()),
        }
    }

    fn ticket(&self, header: &Header, chunks: &Chunks) -> Ticket {
        let invalidate = self.config.terms.remote_invalidate;
        let inline = self.config.terms.inline.send as usize;
        Ticket {
            xid: header.xid,
            requested: header.credits,
            writes: chunks.writes,
            reply: chunks.reply,
            invalidate: only_tag(chunks).filter(|_| invalidate),
            inline_max: inline.saturating_sub(chunks.answer_bytes()) as u32,
        }
    }

    /// A reply in the reverse direction. No chunk was offered for it, and it brings none to be read (RFC 8167, section 5).
    fn replied(&mut self, header: &Header, chunks: &Chunks, inline: Range<usize>) -> Received {
        if *chunks != Chunks::default() {
            return Received::Failed(header.xid);
        }
        self.reverse.grant(header.credits);
        Received::Answered(inline)
    }

    /// Prepares a call in the reverse direction: one message of the header, which replaces what `header` holds, and the RPC
    /// message. [`Received::Answered`] or [`Received::Failed`] ends it. Its reply needs a receive: see
    /// [`Responder::receives_due`]. `now` is the time since any fixed instant.
    ///
    /// # Errors
    /// See [`ReverseError`].
    pub fn call_back(
        &mut self,
        message: &[u8],
        now: Duration,
        header: &mut Vec<u8>,
    ) -> Result<(), ReverseError> {
        let xid = message.first_chunk().filter(|_| is_call(message));
        let xid = u32::from_be_bytes(*xid.ok_or(ReverseError::Unfit)?);
        if HEADER_BYTES_MIN + message.len() > self.config.terms.inline.send as usize {
            return Err(ReverseError::Unfit);
        }
        if !self.may_call_back() {
            return Err(ReverseError::NoCredit);
        }
        self.reverse.begin(xid, now);
        header.clear();
        let (credits, body) = (self.reverse.most(), Body::Msg(Chunks::default()));
        Header { xid, credits, body }.encode(&mut Writer::new(header));
        Ok(())
    }

    /// When the oldest call in the reverse direction began that the peer has not answered.
    pub fn unanswered_since(&self) -> Option<Duration> {
        self.reverse.oldest()
    }

    /// Whether the peer has granted a credit for a further call in the reverse direction.
    pub fn may_call_back(&self) -> bool {
        self.reverse.may_call()
    }

    fn done(&mut self, xid: u32) -> Received {
        self.dones += 1;
        let exposure = self.exposures.iter().position(|it| it.xid == xid);
        match exposure.and_then(|at| self.exposures.remove(at)) {
            Some(exposure) => Received::Done(exposure.id),
            None => Received::Ignore(Ignored::Done),
        }
    }

    /// Answers a call. The header replaces what `header` holds.
    pub fn reply(&mut self, ticket: Ticket, results: &Results, header: &mut Vec<u8>) -> ReplyPlan {
        self.answered(&ticket);
        let (mut writes, mut placed) = (Vec::new(), [0; WRITE_CHUNKS_MAX]);
        for (result, range) in results.ranges() {
            let at = result.result as usize;
            let chunk = ticket.writes.chunk(at).unwrap_or_default();
            if u64::from(result.bytes) > capacity(chunk) {
                return self.overrun(&ticket, header);
            }
            scatter(&Source::Data(range), chunk, &mut writes);
            placed[at] = result.bytes;
        }
        let (bytes, invalidate) = (results.length, ticket.invalidate);
        if bytes <= ticket.inline_max as usize {
            self.write_reply_header(&ticket, &placed, 0, header);
            return ReplyPlan {
                writes,
                inline: true,
                invalidate,
                ..ReplyPlan::default()
            };
        }
        let Some(chunk) = ticket
            .reply
            .filter(|chunk| chunk.capacity() >= bytes as u64)
        else {
            return self.overrun(&ticket, header);
        };
        scatter(&Source::Message(0..bytes), &chunk, &mut writes);
        self.write_reply_header(&ticket, &placed, bytes as u32, header);
        ReplyPlan {
            writes,
            invalidate,
            ..ReplyPlan::default()
        }
    }

    /// Answers a call in the Read-Read design: what does not fit inline is exposed by `expose`, which answers with at
    /// most 16 segments of as many bytes, and the peer fetches it. `now` is the time since any fixed instant.
    pub fn reply_exposed(
        &mut self,
        ticket: Ticket,
        results: &Results,
        now: Duration,
        expose: &mut dyn FnMut(&Expose) -> Option<Segments>,
        header: &mut Vec<u8>,
    ) -> ReplyPlan {
        let whole = results.ranges().next().is_none();
        if whole && results.length <= ticket.inline_max as usize {
            return self.reply(ticket, results, header);
        }
        self.answered(&ticket);
        let Some((chunks, inline)) = self.expose(&ticket, results, expose) else {
            return self.overrun(&ticket, header);
        };
        let id = ExposureId(self.next_exposure);
        self.next_exposure += 1;
        self.exposures.push_back(Exposure {
            xid: ticket.xid,
            id,
            deadline: now.saturating_add(self.config.read_read.done_timeout),
        });
        let body = match inline {
            true => Body::Msg(chunks),
            false => Body::Nomsg(chunks),
        };
        self.write_header(ticket.xid, body, header);
        ReplyPlan {
            inline,
            invalidate: ticket.invalidate,
            exposed: Some(id),
            ..ReplyPlan::default()
        }
    }

    /// Exposes the data, and the rest too where that does not fit inline. The lists, and whether the rest goes inline.
    fn expose(
        &self,
        ticket: &Ticket,
        results: &Results,
        expose: &mut dyn FnMut(&Expose) -> Option<Segments>,
    ) -> Option<(Chunks, bool)> {
        let full = self.exposures.len() >= self.config.read_read.exposures_max as usize;
        if full || !self.config.terms.read_read {
            return None;
        }
        let mut chunks = Chunks {
            writes: ticket.writes.returned(&[]),
            reply: ticket.reply.map(|chunk| chunk.returned(0)),
            ..Chunks::default()
        };
        let id = ExposureId(self.next_exposure);
        let mut add = |position: u32, from: Source, reads: &mut ReadList| {
            let bytes = from.bytes();
            let segments = expose(&Expose { id, from })?;
            let fits = segments.capacity() == u64::from(bytes)
                && segments.iter().all(|segment| {
                    reads.push(ReadSegment {
                        position,
                        segment: *segment,
                    })
                });
            fits.then_some(())
        };
        let (mut data, mut missing) = (ReadList::default(), 0);
        for (result, range) in results.ranges() {
            add(result.at + missing, Source::Data(range), &mut data)?;
            missing += result.bytes.next_multiple_of(4);
        }
        chunks.reads = data;
        if chunks.header_bytes() + results.length <= self.config.terms.inline.send as usize {
            return Some((chunks, true));
        }
        // The chunk at position zero comes first: positions ascend.
        chunks.reads = ReadList::default();
        add(0, Source::Message(0..results.length), &mut chunks.reads)?;
        let all = data.iter().all(|read| chunks.reads.push(*read));
        let fits = chunks.header_bytes() <= self.config.terms.inline.send as usize;
        (all && fits).then_some((chunks, false))
    }

    fn answered(&mut self, ticket: &Ticket) {
        self.under_way = self.under_way.saturating_sub(1);
        self.granted = self.config.credits.grant(ticket.requested, self.granted);
    }

    fn overrun(&self, ticket: &Ticket, header: &mut Vec<u8>) -> ReplyPlan {
        self.write_header(ticket.xid, Body::Error(TransportError::Chunk), header);
        ReplyPlan {
            overrun: true,
            ..ReplyPlan::default()
        }
    }

    fn write_reply_header(
        &self,
        ticket: &Ticket,
        written: &[u32],
        long: u32,
        header: &mut Vec<u8>,
    ) {
        header.clear();
        let reply = ReplyHeader {
            xid: ticket.xid,
            credits: self.granted,
            writes: &ticket.writes,
            written,
            reply: ticket.reply.as_ref(),
            long,
        };
        reply.encode(&mut Writer::new(header));
    }

    fn write_header(&self, xid: u32, body: Body, header: &mut Vec<u8>) {
        header.clear();
        let credits = self.granted;
        Header { xid, credits, body }.encode(&mut Writer::new(header));
    }

    /// Answers a call with an error, because its data cannot be had. The message replaces the contents of `message`.
    pub fn refuse(&mut self, ticket: Ticket, message: &mut Vec<u8>) {
        self.answered(&ticket);
        self.overrun(&ticket, message);
    }

    /// The call will not be answered.
    pub fn dropped(&mut self, ticket: Ticket) {
        let Ticket { .. } = ticket;
        self.under_way = self.under_way.saturating_sub(1);
    }

    /// Something whose time is over, to be released. Call this again until there is nothing.
    pub fn expired(&mut self, now: Duration) -> Option<ExposureId> {
        let due = self.deadline().is_some_and(|deadline| deadline <= now);
        let exposure = self.exposures.pop_front_if(|_| due)?;
        Some(exposure.id)
    }

    /// When [`Responder::expired`] will have something.
    pub fn deadline(&self) -> Option<Duration> {
        self.exposures.front().map(|exposure| exposure.deadline)
    }

    /// Receives to post now, to be asked for when the connection is made, after each message taken and before each
    /// reply or call in the reverse direction is sent: it keeps the promise that the credits are. A reply that waits to be
    /// fetched needs one more, for its `RDMA_DONE`, and so does a call in the reverse direction, for its reply.
    pub fn receives_due(&mut self) -> u32 {
        let beside = self.exposures.len() as u32 + self.reverse.under_way() + SPARE_RECEIVES;
        let wanted = self.granted.saturating_add(beside);
        let due = wanted.saturating_sub(self.posted + self.under_way);
        self.posted += due;
        due
    }

    /// Another policy for grants from now on: the number of clients has changed.
    pub fn set_credits(&mut self, credits: GrantPolicy) {
        self.config.credits = credits;
    }

    /// Credits that the peer was granted last.
    pub fn granted(&self) -> u32 {
        self.granted
    }

    /// Calls that are not answered yet.
    pub fn under_way(&self) -> u32 {
        self.under_way
    }

    /// Calls in the reverse direction that are not answered yet.
    pub fn called_back(&self) -> u32 {
        self.reverse.under_way()
    }

    /// Replies that wait to be fetched.
    pub fn exposed(&self) -> usize {
        self.exposures.len()
    }

    /// `RDMA_DONE` messages taken.
    pub fn dones(&self) -> u64 {
        self.dones
    }
}

fn refusal(xid: u32, credits: u32) -> Header {
    let body = Body::Error(TransportError::Chunk);
    Header { xid, credits, body }
}

/// The steering tag of all chunks, if there is exactly one.
fn only_tag(chunks: &Chunks) -> Option<u32> {
    let read = chunks.reads.iter().map(|read| &read.segment);
    let written =
        (chunks.writes.segments().iter()).chain(chunks.reply.iter().flat_map(|it| it.iter()));
    let mut tags = read.chain(written).map(|segment| segment.handle);
    let first = tags.next()?;
    tags.all(|tag| tag == first).then_some(first)
}
