//! A connection that carries calls as RPC-over-RDMA version 1 (RFC 8166). The data of a call's chunks is read from the
//! client's memory before the call is served, and the data of the reply is written there before the reply is sent.
//!
//! [`odafs_common::rpcrdma`] is the protocol. This is the loop around it.

use std::collections::{HashMap, VecDeque};
use std::time::Duration;

use odafs_common::rpcrdma::{
    Expose, ExposureId, INLINE_BYTES, Ignored, IncomingCall, PrivateData, ReadRead, Received,
    Responder, ResponderConfig, Results, Terms, Ticket,
};
use odafs_common::wire::rpcrdma::{Segment, Segments};
use odafs_fabric::sync::Arc;
use odafs_fabric::{Completion, QueuePair, SteeringTag};

use super::outbox::{Outbox, QueuedReply};
use super::returns::{CallOrigin, Returned};
use super::{LineProgress, Now, Serves};
use crate::calls::{Back, Caller, Job, Notes, Outcome, Placements, Transport};
use crate::registration::{Adapter, Lease, Registrar};

mod back;
mod config;
mod parked;
mod pieces;
mod pull;
mod start;

pub use config::{Credits, RdmaConfig, RdmaCounters};

use back::WayBack;
use config::{add, count};
use parked::Parked;
use pieces::{Pieces, cut, gather};
use pull::{Arrived, Pulling};

/// The private data for a new connection.
pub(super) fn private_data(config: &RdmaConfig) -> PrivateData {
    PrivateData {
        read_read: config.read_read,
        ..PrivateData::default()
    }
}

/// The longest call with chunks, with their data, that this thread tries to serve itself.
const SHORT: usize = 32 << 10;

/// The longest reply in the Read-Read design, without its data.
const EXPOSED_BYTES_MAX: u32 = 1 << 20;

/// A connection for RPC-over-RDMA, and its calls under way.
pub(super) struct RdmaLine {
    out: Outbox,
    caller: Caller,
    responder: Responder,
    registrar: Registrar,
    /// Calls for which there is no room yet, at most as many as receives were posted.
    parked: Parked,
    /// Calls whose data is being read.
    pulling: VecDeque<Pulling>,
    /// Calls that the workers have.
    running: HashMap<u64, Running>,
    /// Replies that the client fetches.
    exposed: HashMap<ExposureId, Vec<Lease>>,
    /// Calls to the client.
    back: Arc<WayBack>,
    next_call: u64,
    next_read: u64,
    /// Whether only a message of the peer or a call to it can give this line something to do.
    resting: bool,
}

/// A call that the workers have.
struct Running {
    ticket: Ticket,
    lease: Option<Lease>,
}

impl RdmaLine {
    /// `clients` is the number of RPC-over-RDMA connections, including this one.
    pub fn new(
        mut qp: Box<dyn QueuePair>,
        number: u64,
        transport: Transport,
        terms: Terms,
        clients: usize,
        now: &Now<'_>,
    ) -> RdmaLine {
        let config = &now.config.rdma;
        let credits = config.credits_on(&*qp);
        let reverse_credits = config.reverse_on(&*qp);
        let mut responder = Responder::new(ResponderConfig {
            terms,
            credits: credits.policy(clients),
            message_max: config.message_bytes_max,
            read_read: ReadRead {
                exposures_max: config.exposures_max,
                done_timeout: Duration::from_nanos(config.done_time_max.0),
            },
            reverse_credits,
        });
        let back = Arc::new(WayBack::new(Arc::clone(now.returns.waker())));
        let adapter = match transport {
            Transport::Verbs => Adapter::Device,
            _ => Adapter::Soft,
        };
        qp.post_receives(responder.receives_due());
        count(&now.serves.rdma.connections);
        RdmaLine {
            caller: Caller {
                peer: qp.peer().clone(),
                local: None,
                connection: number,
                transport,
                reply_bytes_max: terms.inline.send,
                placements: Placements::default(),
                apart: None,
                // Without a credit nothing would ever leave.
                back: (reverse_credits > 0).then(|| Arc::clone(&back) as Arc<dyn Back>),
                notes: Notes::default(),
            },
            out: Outbox::new(qp, now.time),
            responder,
            registrar: Registrar::new(config.registration, adapter, now.supply.clone()),
            parked: Parked::default(),
            pulling: VecDeque::new(),
            running: HashMap::new(),
            exposed: HashMap::new(),
            back,
            next_call: 0,
            next_read: 0,
            resting: false,
        }
    }

    pub fn number(&self) -> u64 {
        self.caller.connection
    }

    /// Sets the number of clients.
    pub fn share_credits(&mut self, config: &RdmaConfig, clients: usize) {
        let credits = config.credits_on(&*self.out.qp);
        self.responder.set_credits(credits.policy(clients));
        self.resting = false;
    }

    /// Whether a cheap check finds nothing for its turn.
    #[inline]
    pub fn rests(&mut self) -> bool {
        self.resting && !self.has_call_back() && self.out.qp.is_quiet()
    }

    /// Serves the messages that are there, up to a batch, with one flush. `at` is this line's place.
    pub fn turn(&mut self, at: usize, reply: &mut Vec<u8>, now: &Now<'_>) -> LineProgress {
        let mut events = self.out.begin(now);
        while events < now.config.batch && !self.out.dead {
            let Some(completion) = self.out.qp.poll() else {
                break;
            };
            events += 1;
            match completion {
                Completion::Recv { .. } => self.receive(at, reply, now),
                Completion::Read { id, result } => self.pulled(id, result.is_err(), at, now),
                Completion::Write { id, result } => {
                    self.out.written(id, result.is_err());
                }
                Completion::Send { .. } => {}
            }
        }
        events += self.start_parked(at, reply, now);
        events += self.call_back(now);
        self.close_unanswered(now);
        self.post_reads(at, now);
        self.expire(now);
        self.post_receives();
        if events > 0 {
            self.out.qp.flush();
        }
        // Connections that wait for memory released here have their turn before the engine sleeps.
        events += u32::from(self.registrar.trim(&mut *self.out.qp, now.time));
        self.resting = !self.has_deadline() && self.out.is_clear() && self.parked.is_empty();
        if self.out.dead || self.out.qp.is_closed() || self.is_overdue(now) {
            LineProgress::Dead
        } else if events > 0 {
            LineProgress::Busy
        } else if self.out.is_clear() && (self.parked.is_empty() || self.awaits_event()) {
            LineProgress::Idle
        } else {
            LineProgress::Blocked
        }
    }

    /// Whether something of this connection is under way whose end will be reported.
    fn awaits_event(&self) -> bool {
        !self.running.is_empty() || !self.pulling.is_empty() || self.out.is_leaving()
    }

    /// Handles a message: a call, or one of the transport itself.
    fn receive(&mut self, at: usize, reply: &mut Vec<u8>, now: &Now<'_>) {
        if self.out.qp.message().len() > INLINE_BYTES as usize {
            // Not every fabric has receives of the announced length. The limit for parked calls is that of the
            // receives.
            count(&now.serves.rdma.malformed);
            tracing::debug!(peer = %self.caller.peer, "a message is longer than was agreed");
            self.out.dead = true;
            return;
        }
        match self.responder.receive(self.out.qp.message()) {
            Received::Call(incoming) => self.arrive(incoming, at, reply, now),
            Received::Done(id) => {
                count(&now.serves.rdma.dones);
                self.conceal(id, now);
            }
            Received::Respond(mut error) => {
                count(&now.serves.rdma.malformed);
                // A peer that sends garbage and takes no answers does not get answers for ever.
                self.out.dead |= self.out.is_full(now);
                self.post_receives();
                self.out.send_message(&mut error);
            }
            Received::Answered(message) => self.answered_back(message, reply, now),
            Received::Failed(xid) => self.fail_back(xid, now),
            Received::Ignore(Ignored::Done) => count(&now.serves.rdma.dones),
            Received::Ignore(why) => {
                count(&now.serves.rdma.ignored);
                tracing::debug!(peer = %self.caller.peer, ?why, "a message was ignored");
            }
        }
    }

    /// Handles a call. A complete one is served from where it lies, if there is room.
    fn arrive(&mut self, incoming: IncomingCall, at: usize, reply: &mut Vec<u8>, now: &Now<'_>) {
        count(&now.serves.rdma.calls);
        let IncomingCall { assembly, ticket } = incoming;
        if let Some(whole) = assembly.as_inline()
            && self.parked.is_empty()
            && self.has_room(now)
        {
            reply.clear();
            self.prepare(&ticket);
            let message = &self.out.qp.message()[whole];
            let calls = &now.serves.calls;
            let outcome = calls.call(&self.caller, message, reply);
            let syncs = matches!(outcome, Outcome::Deferred(_)) && calls.may_sync(message);
            return self.served((outcome, syncs), ticket, reply, at, now);
        }
        // Beyond its credits a client has no calls.
        let many = self.parked.len() >= 2 * now.config.rdma.credits.max() as usize;
        match Arrived::new(ticket, &assembly, self.out.qp.message()) {
            Some(arrived) if !many => self.parked.push(arrived),
            _ => self.out.dead = true,
        }
    }

    /// Whether pinned frames, waiting answers or the workers' calls have reached their limit, so that calls wait.
    fn has_room(&self, now: &Now<'_>) -> bool {
        !now.draining
            && self.out.has_room(now)
            && self.running.len() < now.config.deferred_max
            && !now.holds_back(self.number())
    }

    /// Posts the reads of calls that wait for their data, and serves those that have it.
    fn post_reads(&mut self, at: usize, now: &Now<'_>) {
        let mut any = false;
        for pulling in &mut self.pulling {
            match pulling.post(&mut *self.out.qp, &mut self.next_read) {
                Ok((bytes, reads)) => {
                    any |= reads > 0;
                    add(&now.serves.rdma.reads, reads);
                    add(&now.serves.rdma.read_bytes, bytes);
                }
                Err(_) => self.out.dead = true,
            }
        }
        if any {
            self.out.qp.flush();
        }
        while let Some(over) = self.pulling.iter().position(Pulling::is_over) {
            self.pull_over(over, at, now);
            self.out.qp.flush();
        }
    }

    /// A read is over.
    fn pulled(&mut self, id: u64, failed: bool, at: usize, now: &Now<'_>) {
        if failed {
            count(&now.serves.rdma.faults);
        }
        let mine = self
            .pulling
            .iter_mut()
            .position(|pulling| pulling.completed(id, failed));
        if let Some(mine) = mine
            && self.pulling[mine].is_over()
        {
            self.pull_over(mine, at, now);
        }
    }

    /// All data of a call is here, or will never come.
    fn pull_over(&mut self, which: usize, at: usize, now: &Now<'_>) {
        let Some(pulling) = self.pulling.remove(which) else {
            return;
        };
        let failed = pulling.has_failed();
        let (ticket, message, lease) = pulling.into_parts();
        let contents = lease.contents();
        // A call whose xid differs from that of its header has no valid header (RFC 8166, section 4.5.2).
        if failed || message.xid(&contents) != Some(ticket.xid()) {
            drop(contents);
            self.registrar.release(&mut *self.out.qp, lease, now.time);
            return self.refuse(ticket, now);
        }
        if message.is_reply(&contents) {
            drop(contents);
            self.registrar.release(&mut *self.out.qp, lease, now.time);
            count(&now.serves.rdma.ignored);
            return self.responder.dropped(ticket);
        }
        self.prepare(&ticket);
        let mut caller = self.caller.clone();
        let calls = Arc::clone(&now.serves.calls);
        if lease.len() + message.without_data().len() <= SHORT {
            let (message, apart) = message.complete(&contents);
            caller.apart = apart;
            drop(contents);
            let mut reply = Vec::new();
            let outcome = calls.call(&caller, &message, &mut reply);
            if let Outcome::Deferred(job) = outcome {
                let syncs = calls.may_sync(&message);
                return self.defer((job, syncs), ticket, Some(lease), at, now);
            }
            drop(caller);
            self.registrar.release(&mut *self.out.qp, lease, now.time);
            return self.answer(outcome, ticket, &mut reply, now);
        }
        // A worker assembles the message, because it may be long. The lease is returned when the call has ended.
        let syncs = calls.may_sync(message.without_data());
        let job = Job::new(move |reply| {
            let (message, apart) = message.complete(&contents);
            caller.apart = apart;
            drop(contents);
            calls.call_owned(&caller, message, reply)
        });
        self.defer((job, syncs), ticket, Some(lease), at, now);
    }

    /// Tells the procedures how long this call's reply may be, and where its data may be placed.
    fn prepare(&mut self, ticket: &Ticket) {
        if self.responder.terms().read_read {
            self.caller.placements = Placements::one(u32::MAX);
            self.caller.reply_bytes_max = EXPOSED_BYTES_MAX;
        } else {
            self.caller.placements = ticket.placements();
            self.caller.reply_bytes_max = ticket.reply_bytes_max();
        }
    }

    /// Passes a call to the workers. They are told whether it may wait for stable storage.
    fn defer(
        &mut self,
        (job, syncs): (Job, bool),
        ticket: Ticket,
        lease: Option<Lease>,
        at: usize,
        now: &Now<'_>,
    ) {
        let call = self.next_call;
        self.next_call += 1;
        self.running.insert(call, Running { ticket, lease });
        self.out.deferred(job.pins());
        let place = CallOrigin {
            line: at,
            number: self.number(),
            call,
        };
        now.defer(job, place, syncs);
    }

    /// The result of a procedure, and whether it may sync if the workers get it.
    fn served(
        &mut self,
        (outcome, syncs): (Outcome, bool),
        ticket: Ticket,
        reply: &mut Vec<u8>,
        at: usize,
        now: &Now<'_>,
    ) {
        match outcome {
            Outcome::Deferred(job) => self.defer((job, syncs), ticket, None, at, now),
            outcome => self.answer(outcome, ticket, reply, now),
        }
    }

    /// A call comes back from the workers.
    pub fn returned(&mut self, mut returned: Returned, now: &Now<'_>) {
        let Some(Running { ticket, lease }) = self.running.remove(&returned.place.call) else {
            return;
        };
        self.resting = false;
        self.out.returned(returned.pins);
        self.out.rested_until(now.time);
        if let Some(lease) = lease {
            self.registrar.release(&mut *self.out.qp, lease, now.time);
        }
        // A reply is lost, so the connection must end (RFC 8166, section 4.5.4).
        self.out.dead |= !returned.served;
        self.answer(returned.outcome, ticket, &mut returned.reply, now);
        self.post_receives();
        self.out.qp.flush();
    }

    fn answer(&mut self, outcome: Outcome, ticket: Ticket, reply: &mut Vec<u8>, now: &Now<'_>) {
        let (mut ahead, mut results) = (Vec::new(), Results::whole(reply.len()));
        let mut pieces = Vec::new();
        match outcome {
            Outcome::Replied => {}
            Outcome::Placed(placed) => (results.apart, pieces) = (placed.results, placed.pieces),
            Outcome::Write(writes) => ahead = writes,
            Outcome::Dropped | Outcome::Deferred(_) => return self.responder.dropped(ticket),
        }
        let mut pieces = Pieces::new(pieces);
        let mut head = Vec::new();
        let answer = if self.responder.terms().read_read {
            self.expose(ticket, &results, &mut pieces, reply, &mut head, now)
        } else {
            self.responder.reply(ticket, &results, &mut head)
        };
        if answer.overrun {
            count(&now.serves.rdma.overruns);
            tracing::debug!(peer = %self.caller.peer, bytes = reply.len(), "no room for a reply");
        }
        let mut writes = VecDeque::from(ahead);
        for write in &answer.writes {
            cut(&write.from, write.to, &mut pieces, reply, now, &mut writes);
        }
        let placed = writes.iter().map(|write| u64::from(write.from.length()));
        add(&now.serves.rdma.writes, writes.len() as u64);
        add(&now.serves.rdma.written_bytes, placed.sum());
        let answer = QueuedReply {
            writes,
            head,
            body: match answer.inline {
                true => std::mem::take(reply),
                false => Vec::new(),
            },
            invalidate: answer.invalidate.map(SteeringTag),
        };
        self.post_receives();
        self.out.send(answer, now);
    }

    /// The call cannot be served, because its data cannot be read.
    fn refuse(&mut self, ticket: Ticket, now: &Now<'_>) {
        let mut message = Vec::new();
        self.responder.refuse(ticket, &mut message);
        self.post_receives();
        self.out.send(QueuedReply::of(message), now);
    }

    /// Answers in the Read-Read design: what does not fit inline is copied to memory where the client fetches it.
    fn expose(
        &mut self,
        ticket: Ticket,
        results: &Results,
        pieces: &mut Pieces,
        reply: &[u8],
        head: &mut Vec<u8>,
        now: &Now<'_>,
    ) -> odafs_common::rpcrdma::ReplyPlan {
        let (qp, registrar) = (&mut *self.out.qp, &mut self.registrar);
        let mut leases = Vec::new();
        let mut expose = |expose: &Expose| {
            let bytes = gather(expose, pieces, reply, now);
            let lease = registrar.expose(qp, bytes.len())?;
            let remote = lease.remote()?;
            let segment = Segment {
                handle: remote.tag.0,
                length: expose.from.bytes(),
                offset: remote.offset,
            };
            let stored = lease.store(0, &bytes);
            leases.push(lease);
            stored.then_some(Segments::one(segment))
        };
        let time = Duration::from_nanos(now.time.0);
        let answer = self
            .responder
            .reply_exposed(ticket, results, time, &mut expose, head);
        match answer.exposed {
            Some(id) => {
                let bytes = leases.iter().map(|lease| lease.len() as u64);
                count(&now.serves.rdma.exposed);
                add(&now.serves.rdma.exposed_bytes, bytes.sum());
                self.exposed.insert(id, leases);
            }
            None => leases
                .into_iter()
                .for_each(|lease| self.registrar.release(&mut *self.out.qp, lease, now.time)),
        }
        answer
    }

    /// The client has fetched a reply, or its time is over.
    fn conceal(&mut self, id: ExposureId, now: &Now<'_>) {
        for lease in self.exposed.remove(&id).unwrap_or_default() {
            self.registrar.release(&mut *self.out.qp, lease, now.time);
        }
    }

    fn expire(&mut self, now: &Now<'_>) {
        while let Some(id) = self.responder.expired(Duration::from_nanos(now.time.0)) {
            count(&now.serves.rdma.done_timeouts);
            self.conceal(id, now);
        }
    }

    /// Posts the receives that the credits promise.
    fn post_receives(&mut self) {
        let due = self.responder.receives_due();
        if due > 0 {
            self.out.qp.post_receives(due);
        }
    }

    fn is_overdue(&mut self, now: &Now<'_>) -> bool {
        let since = self
            .pulling
            .front()
            .map_or(now.time, |pulling| pulling.since);
        now.time.since(since) > now.config.rdma.pull_time_max
            || self.parked.is_overdue(&self.caller.peer, now)
            || self.registrar.is_stuck(now.time)
            || self.out.is_overdue(now)
    }

    pub fn has_deadline(&self) -> bool {
        self.out.is_leaving()
            || !self.pulling.is_empty()
            || !self.exposed.is_empty()
            || self.awaits_answer()
            || self.parked.has_deadline()
            || self.registrar.keeps_memory()
    }

    /// Asks to be woken.
    pub fn arm(&mut self) -> bool {
        !self.has_call_back() && self.out.qp.arm()
    }

    /// Whether its end would lose nothing.
    pub fn is_drained(&mut self) -> bool {
        self.running.is_empty() && self.pulling.is_empty() && self.out.is_drained()
    }

    /// The procedures hear of the end when nothing is pinned any more.
    pub fn close(mut self, serves: &Serves) {
        self.parked.clear(serves);
        self.back.close();
        drop(self.out);
        serves
            .rdma
            .connections
            .fetch_sub(1, odafs_fabric::sync::atomic::Ordering::Relaxed);
        self.caller.notes.close();
        serves.calls.closed(self.caller.connection);
    }
}
