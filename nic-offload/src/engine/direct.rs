//! A direct connection: requests come in, data and completions go out.

use std::collections::VecDeque;

use odafs_common::connect::Nonce;
use odafs_common::direct::{ExposedMemory, RemoteAddress};
use odafs_common::exception::Exception;
use odafs_fabric::clock::Nanos;
use odafs_fabric::{Completion, PostError, Posted, QueuePair, Remote, Source};

use super::{LineProgress, Now, Serves};
use crate::connection::Connection;
use crate::nic::{AttachRequest, Authentic, DataTarget, Nic, Transfer, Verdict};

/// A direct connection and its transfers under way.
pub(super) struct DirectLine {
    /// Dropped first. That ends whatever still reads from frames, which are unpinned afterwards.
    qp: Box<dyn QueuePair>,
    connection: Connection,
    /// Answers for which there was no room, in order.
    waiting: VecDeque<Waiting>,
    /// Since when the first of them has been the first.
    waiting_since: Nanos,
    /// A read that was authenticated and not begun. Its data is prefetched while the next message is checked.
    next: Option<Authentic>,
    /// RDMA Writes that still read from their frames. They complete in order.
    leaving: VecDeque<Leaving>,
    next_id: u64,
    born: Nanos,
    /// Number of receives that were used and not posted again.
    owed: u32,
    /// Room for inline data between a frame and a message.
    scratch: Vec<u8>,
    /// Whether it accepts no message until something under way has ended.
    gated: bool,
    /// Whether only a message of the peer can give it something to do.
    resting: bool,
    dead: bool,
}

enum Waiting {
    /// Its data has not been posted, and the frame stays pinned.
    Transfer(Transfer),
    /// An answer.
    Message(Vec<u8>),
}

struct Leaving {
    id: u64,
    transfer: Transfer,
    since: Nanos,
}

/// Its form on the wire.
fn place(remote: Remote) -> RemoteAddress {
    RemoteAddress {
        tag: remote.tag.0,
        address: remote.offset,
    }
}

impl DirectLine {
    pub fn new(qp: Box<dyn QueuePair>, number: u64, nonce: Nonce, now: Nanos) -> DirectLine {
        DirectLine {
            qp,
            // This only distinguishes connections that exist at the same time: a wrapped number would need 2^32
            // connections in between.
            connection: Connection::new(number as u32, nonce),
            waiting: VecDeque::new(),
            waiting_since: now,
            next: None,
            leaving: VecDeque::new(),
            next_id: 0,
            born: now,
            owed: 0,
            scratch: Vec::new(),
            gated: false,
            resting: false,
            dead: false,
        }
    }

    /// Whether a cheap check finds nothing for its turn.
    #[inline]
    pub fn rests(&mut self) -> bool {
        self.resting && self.qp.is_quiet()
    }

    /// Answers the requests that are there, up to a batch, with one flush.
    pub fn turn(&mut self, now: &Now<'_>) -> LineProgress {
        let Some(nic) = &now.serves.nic else {
            return LineProgress::Dead;
        };
        let mut events = self.retry(nic, now.time);
        if events > 0 || self.waiting.is_empty() {
            self.waiting_since = now.time;
        }
        self.repay(now);
        while events < now.config.batch && !self.dead {
            let next = match self.has_room(now) {
                true => self.qp.poll(),
                false => self.qp.poll_send_queue(),
            };
            let Some(completion) = next else { break };
            events += 1;
            self.event(completion, nic, now);
        }
        self.begin(nic, now.time);
        self.repay(now);
        if events > 0 {
            self.qp.flush();
        }
        self.gated = !self.has_room(now);
        self.resting = !self.gated && !self.under_way() && self.connection.session().is_some();
        if self.dead || self.qp.is_closed() || self.overdue(now) {
            LineProgress::Dead
        } else if events > 0 {
            LineProgress::Busy
        } else if self.waiting.is_empty() {
            LineProgress::Idle
        } else {
            LineProgress::Blocked
        }
    }

    /// The number of waiting answers is bounded. Beyond that, requests stay with the peer.
    fn has_room(&self, now: &Now<'_>) -> bool {
        let kept = self.waiting.len() + usize::from(self.next.is_some());
        !now.draining && kept < now.config.receives as usize
    }

    fn event(&mut self, completion: Completion, nic: &Nic, now: &Now<'_>) {
        match completion {
            Completion::Recv { .. } => {
                self.owed += 1;
                let verdict = nic.authenticate(&mut self.connection, self.qp.message(), now.time);
                // In the order in which they came.
                self.begin(nic, now.time);
                match verdict {
                    Verdict::Read(read) => self.next = Some(read),
                    Verdict::Attach(request) => self.attach(request, nic, now.serves),
                    Verdict::Refused(answer) => self.answer(&answer),
                    Verdict::NotAttached(answer) => self.answer(&answer),
                }
            }
            Completion::Write { id, result } => {
                self.left(id, nic);
                self.dead |= result.is_err();
            }
            Completion::Send { .. } | Completion::Read { .. } => {}
        }
    }

    /// Begins the read that was authenticated, if there is one.
    #[inline]
    fn begin(&mut self, nic: &Nic, now: Nanos) {
        if let Some(read) = self.next.take() {
            self.connection.set_pins(self.pins());
            match nic.translate(&mut self.connection, read, now) {
                Ok(transfer) => self.send(transfer, nic, now),
                Err(refusal) => self.answer(&refusal),
            }
        }
    }

    /// Number of frames pinned for it.
    fn pins(&self) -> usize {
        let waiting = self.waiting.iter();
        let waiting = waiting.filter(|waiting| matches!(waiting, Waiting::Transfer(_)));
        self.leaving.len() + waiting.count()
    }

    /// Posts used receives again, as long as the peer takes its answers. A turn begins with all of them, or takes no
    /// message.
    fn repay(&mut self, now: &Now<'_>) {
        if self.owed > 0 && self.has_room(now) {
            self.qp.post_receives(std::mem::take(&mut self.owed));
        }
    }

    fn attach(&mut self, request: AttachRequest, nic: &Nic, serves: &Serves) {
        let exposed = match &serves.life {
            Some(life) if request.one_sided => match self.qp.expose(nic.arena(), life) {
                Ok(exposed) => Some(ExposedMemory {
                    arena: place(exposed.arena),
                    stamps: place(exposed.stamps),
                    order: self.qp.read_order(),
                    beside: nic.arena().layout().is_beside(),
                }),
                Err(error) => {
                    tracing::warn!(peer = %self.qp.peer(), %error, "one-sided access could not be given");
                    None
                }
            },
            _ => None,
        };
        let answer = nic.attached(&mut self.connection, request, exposed);
        self.answer(&answer);
    }

    /// Moves the data and answers, or queues the transfer.
    fn send(&mut self, transfer: Transfer, nic: &Nic, now: Nanos) {
        if !self.waiting.is_empty() {
            self.waiting.push_back(Waiting::Transfer(transfer));
        } else if let Some(transfer) = self.try_send(transfer, nic, now) {
            self.waiting.push_back(Waiting::Transfer(transfer));
        }
    }

    /// Moves the data and answers. Returns the transfer if there is no room.
    fn try_send(&mut self, transfer: Transfer, nic: &Nic, now: Nanos) -> Option<Transfer> {
        match transfer.answer {
            DataTarget::Inline => self.send_inline(transfer, nic),
            DataTarget::Sink(to) => self.send_to_sink(transfer, to, nic, now),
        }
    }

    fn send_inline(&mut self, transfer: Transfer, nic: &Nic) -> Option<Transfer> {
        let length = transfer.length as usize;
        if self.scratch.len() < length {
            self.scratch.resize(length, 0);
        }
        let data = &mut self.scratch[..length];
        nic.arena()
            .copy_out(transfer.frame.frame(), transfer.offset, data);
        match self.qp.post_send(0, &[&nic.complete(&transfer), data]) {
            Ok(_) => nic.finish(transfer),
            Err(PostError::Full) => return Some(transfer),
            Err(PostError::TooLong) => self.refuse(transfer, nic),
            Err(PostError::Closed | PostError::BadRange) => self.dead = true,
        }
        None
    }

    fn send_to_sink(
        &mut self,
        transfer: Transfer,
        to: Remote,
        nic: &Nic,
        now: Nanos,
    ) -> Option<Transfer> {
        let id = self.next_id;
        let from = Source::Frame {
            arena: nic.arena(),
            frame: transfer.frame.frame(),
            offset: transfer.offset,
            length: transfer.length,
        };
        let posted = match transfer.marked {
            true => self.qp.post_write_marked(id, from, to, transfer.sequence),
            false => self.qp.post_write(id, from, to),
        };
        match posted {
            Ok(posted) => {
                self.next_id += 1;
                // The answer goes first: unpinning waits for all earlier stores, which include those of the data.
                self.answer(&nic.complete(&transfer));
                match posted {
                    Posted::Done => nic.finish(transfer),
                    Posted::Pending => self.leaving.push_back(Leaving {
                        id,
                        transfer,
                        since: now,
                    }),
                }
            }
            Err(PostError::Full) => return Some(transfer),
            // The client named memory of its own that it does not have, although its request verified.
            Err(PostError::BadRange | PostError::TooLong) => self.refuse(transfer, nic),
            Err(PostError::Closed) => self.dead = true,
        }
        None
    }

    fn refuse(&mut self, transfer: Transfer, nic: &Nic) {
        let answer = nic.refuse_transfer(transfer, Exception::OutOfBounds);
        self.answer(&answer);
    }

    /// Sends an answer, or queues it.
    fn answer(&mut self, answer: &[u8]) {
        if !self.waiting.is_empty() || !self.try_answer(answer) {
            self.waiting.push_back(Waiting::Message(answer.to_vec()));
        }
    }

    fn try_answer(&mut self, answer: &[u8]) -> bool {
        match self.qp.post_send(0, &[answer]) {
            Ok(_) => true,
            Err(PostError::Full) => false,
            Err(_) => {
                self.dead = true;
                true
            }
        }
    }

    /// Tries to send waiting answers, in order. Returns how many were sent.
    fn retry(&mut self, nic: &Nic, now: Nanos) -> u32 {
        let mut gone = 0;
        while let Some(next) = self.waiting.pop_front() {
            let back = match next {
                Waiting::Message(answer) => {
                    (!self.try_answer(&answer)).then_some(Waiting::Message(answer))
                }
                Waiting::Transfer(transfer) => self.retry_transfer(transfer, nic, now),
            };
            if let Some(back) = back {
                self.waiting.push_front(back);
                break;
            }
            gone += 1;
        }
        gone
    }

    /// As [`send`](Self::send), but an answer for which there is no room goes to the head of the queue.
    fn retry_transfer(&mut self, transfer: Transfer, nic: &Nic, now: Nanos) -> Option<Waiting> {
        let others = std::mem::take(&mut self.waiting);
        let back = self.try_send(transfer, nic, now);
        let answer = std::mem::replace(&mut self.waiting, others).pop_front();
        back.map(Waiting::Transfer).or(answer)
    }

    fn left(&mut self, id: u64, nic: &Nic) {
        if let Some(at) = self.leaving.iter().position(|leaving| leaving.id == id)
            && let Some(leaving) = self.leaving.remove(at)
        {
            nic.finish(leaving.transfer);
        }
    }

    /// Whether the peer has kept frames pinned, or the connection unattached, for too long.
    fn overdue(&self, now: &Now<'_>) -> bool {
        let leaving = self
            .leaving
            .front()
            .map_or(now.time, |leaving| leaving.since);
        let pinned = leaving.min(self.waiting_since);
        now.time.since(pinned) > now.config.pinned_time_max
            || self.connection.session().is_none()
                && now.time.since(self.born) > now.config.attach_time_max
    }

    pub fn has_deadline(&self) -> bool {
        !self.leaving.is_empty() || self.connection.session().is_none()
    }

    /// Asks to be woken, except by messages that it would not accept.
    pub fn arm(&mut self) -> bool {
        self.gated || self.qp.arm()
    }

    fn under_way(&self) -> bool {
        !self.waiting.is_empty() || !self.leaving.is_empty()
    }

    /// Whether the end of the connection would lose nothing.
    pub fn is_drained(&mut self) -> bool {
        !self.under_way() && self.qp.is_settled()
    }
}
