//! A connection that carries calls, with one message for each call and each reply.

use odafs_fabric::clock::Nanos;
use odafs_fabric::{Completion, QueuePair};

use super::outbox::{Outbox, QueuedReply};
use super::returns::{CallOrigin, Returned};
use super::{LineProgress, Now, Serves};
use crate::calls::{Caller, Notes, Outcome, Placements, Transport};

/// Bytes of a reply that are reserved for what is not data: attributes, and the most references that come with data.
const BESIDE_DATA: u32 = 2048;

/// A connection that carries calls, and its calls under way.
pub(super) struct RpcLine {
    out: Outbox,
    caller: Caller,
    /// Number of calls that the workers have.
    deferred: usize,
    /// Number of receives that were used and not posted again.
    owed: u32,
    /// Whether it accepts no message until something under way has ended.
    gated: bool,
    /// Whether only a message of the peer can give it something to do.
    resting: bool,
}

impl RpcLine {
    pub fn new(qp: Box<dyn QueuePair>, number: u64, transport: Transport, now: Nanos) -> RpcLine {
        let reply_bytes_max = u32::try_from(qp.max_message()).unwrap_or(u32::MAX);
        let caller = Caller {
            peer: qp.peer().clone(),
            local: None,
            connection: number,
            transport,
            reply_bytes_max,
            // The data belongs into the reply. What is in frames is gathered from there when the reply is sent.
            placements: Placements::one(reply_bytes_max.saturating_sub(BESIDE_DATA)),
            apart: None,
            back: None,
            notes: Notes::default(),
        };
        RpcLine {
            out: Outbox::new(qp, now),
            caller,
            deferred: 0,
            owed: 0,
            gated: false,
            resting: false,
        }
    }

    pub fn number(&self) -> u64 {
        self.caller.connection
    }

    /// Whether a cheap check finds nothing for its turn.
    #[inline]
    pub fn rests(&mut self) -> bool {
        self.resting && self.out.qp.is_quiet()
    }

    /// Serves the messages that are there, up to a batch, with one flush. `at` is this line's place.
    pub fn turn(&mut self, at: usize, reply: &mut Vec<u8>, now: &Now<'_>) -> LineProgress {
        let mut events = self.out.begin(now);
        self.repay(now);
        while events < now.config.batch && !self.out.dead {
            let next = match self.has_room(now) {
                true => self.out.qp.poll(),
                false => self.out.qp.poll_send_queue(),
            };
            let Some(completion) = next else { break };
            events += 1;
            match completion {
                Completion::Recv { .. } => self.call(at, reply, now),
                Completion::Write { id, result } => {
                    self.out.written(id, result.is_err());
                }
                Completion::Send { .. } | Completion::Read { .. } => {}
            }
        }
        self.repay(now);
        if events > 0 {
            self.out.qp.flush();
        }
        self.gated = !self.has_room(now);
        self.resting = !self.gated && !self.out.under_way();
        if self.out.dead || self.out.qp.is_closed() || self.out.is_overdue(now) {
            LineProgress::Dead
        } else if events > 0 {
            LineProgress::Busy
        } else if self.out.is_clear() && !self.gated {
            LineProgress::Idle
        } else {
            LineProgress::Blocked
        }
    }

    /// Pinned frames, waiting answers and the workers' calls are bounded. Beyond that, calls stay with the peer.
    fn has_room(&self, now: &Now<'_>) -> bool {
        !now.draining
            && self.out.has_room(now)
            && self.deferred < now.config.deferred_max
            && !now.holds_back(self.number())
    }

    fn call(&mut self, at: usize, reply: &mut Vec<u8>, now: &Now<'_>) {
        self.owed += 1;
        reply.clear();
        let message = self.out.qp.message();
        match now.serves.calls.call(&self.caller, message, reply) {
            Outcome::Deferred(job) => {
                let syncs = now.serves.calls.may_sync(message);
                self.deferred += 1;
                self.out.deferred(job.pins());
                let place = CallOrigin {
                    line: at,
                    number: self.number(),
                    call: 0,
                };
                now.defer(job, place, syncs);
            }
            outcome => self.answer(outcome, reply, now),
        }
    }

    /// A call comes back from the workers.
    pub fn returned(&mut self, mut returned: Returned, now: &Now<'_>) {
        self.deferred -= 1;
        self.out.returned(returned.pins);
        self.resting = false;
        self.out.rested_until(now.time);
        self.answer(returned.outcome, &mut returned.reply, now);
        self.out.qp.flush();
    }

    fn answer(&mut self, outcome: Outcome, reply: &mut Vec<u8>, now: &Now<'_>) {
        match outcome {
            Outcome::Replied => self.out.send_message(reply),
            Outcome::Write(writes) => {
                let mut answer = QueuedReply::of(std::mem::take(reply));
                answer.writes = writes.into();
                self.out.send(answer, now);
            }
            Outcome::Placed(placed) => self.out.send_gathered(reply, &placed, now.serves),
            Outcome::Dropped | Outcome::Deferred(_) => {}
        }
    }

    /// Posts used receives again, as long as the peer takes its answers. A turn begins with all of them, or takes no
    /// message.
    fn repay(&mut self, now: &Now<'_>) {
        if self.owed > 0 && self.has_room(now) {
            self.out.qp.post_receives(std::mem::take(&mut self.owed));
        }
    }

    pub fn has_deadline(&self) -> bool {
        self.out.is_leaving()
    }

    /// Asks to be woken, except by messages that it would not accept.
    pub fn arm(&mut self) -> bool {
        self.gated || self.out.qp.arm()
    }

    /// Whether the end of the connection would lose nothing.
    pub fn is_drained(&mut self) -> bool {
        self.deferred == 0 && self.out.is_drained()
    }

    /// The procedures hear of the end when nothing is pinned any more.
    pub fn close(self, serves: &Serves) {
        drop(self.out);
        self.caller.notes.close();
        serves.calls.closed(self.caller.connection);
    }
}
