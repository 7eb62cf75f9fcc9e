//! A connection that carries calls: one message a call, one a reply.

use std::collections::VecDeque;

use odafs_fabric::clock::Nanos;
use odafs_fabric::memory::FrameNumber;
use odafs_fabric::{Completion, PostError, Posted, QueuePair, Source};

use super::returns::Returned;
use super::{Now, Serves, Turn};
use crate::calls::{Caller, ChunkSource, ChunkWrite, Job, Outcome, Transport};

/// A connection that carries calls, and what is under way on it.
pub(super) struct RpcLine {
    qp: Box<dyn QueuePair>,
    caller: Caller,
    /// Answers that found no room, in order.
    waiting: VecDeque<Answer>,
    /// Since when the first of them has been the first.
    waiting_since: Nanos,
    /// RDMA Writes that still read from their frames.
    leaving: VecDeque<Leaving>,
    next_id: u64,
    /// Calls that are with the workers.
    deferred: usize,
    /// Receives that were used and not posted again.
    owed: u32,
    /// Takes nothing new until something under way has ended.
    gated: bool,
    dead: bool,
}

struct Answer {
    writes: VecDeque<ChunkWrite>,
    reply: Vec<u8>,
}

struct Leaving {
    id: u64,
    frame: FrameNumber,
    since: Nanos,
}

/// Unpins what an answer that nobody will get would have written.
pub(super) fn discard(outcome: Outcome, serves: &Serves) {
    if let Outcome::Write(writes) = outcome {
        writes
            .into_iter()
            .for_each(|write| release(&write.from, serves));
    }
}

fn release(from: &ChunkSource, serves: &Serves) {
    if let ChunkSource::Frame { frame, .. } = from {
        unpin(*frame, serves);
    }
}

fn unpin(frame: FrameNumber, serves: &Serves) {
    serves.arena.unpin(frame);
}

impl RpcLine {
    pub fn new(qp: Box<dyn QueuePair>, number: u64, transport: Transport, now: Nanos) -> RpcLine {
        let caller = Caller {
            peer: qp.peer().clone(),
            connection: number,
            transport,
            reply_bytes_max: u32::try_from(qp.max_message()).unwrap_or(u32::MAX),
        };
        RpcLine {
            qp,
            caller,
            waiting: VecDeque::new(),
            waiting_since: now,
            leaving: VecDeque::new(),
            next_id: 0,
            deferred: 0,
            owed: 0,
            gated: false,
            dead: false,
        }
    }

    pub fn number(&self) -> u64 {
        self.caller.connection
    }

    /// Serves what is there, up to a batch, with one flush. `at`: this line's place.
    pub fn turn(&mut self, at: usize, reply: &mut Vec<u8>, now: &Now<'_>) -> Turn {
        let mut events = self.retry(now);
        if events > 0 || self.waiting.is_empty() {
            self.waiting_since = now.time;
        }
        while events < now.config.batch && self.takes_more(now) {
            let Some(completion) = self.qp.poll() else {
                break;
            };
            events += 1;
            match completion {
                Completion::Recv { .. } => self.call(at, reply, now),
                Completion::Write { id, result } => {
                    self.left(id, now.serves);
                    self.dead |= result.is_err();
                }
                Completion::Send { .. } | Completion::Read { .. } => {}
            }
        }
        self.repay(now);
        if events > 0 {
            self.qp.flush();
        }
        self.gated = !self.takes_more(now);
        if self.dead || self.qp.is_closed() || self.overdue(now) {
            Turn::Dead
        } else if events > 0 {
            Turn::Busy
        } else if self.waiting.is_empty() && !self.gated {
            Turn::Idle
        } else {
            Turn::Blocked
        }
    }

    /// What waits, is pinned, or is with the workers is bounded: beyond that, calls stay with the peer.
    fn has_room(&self, now: &Now<'_>) -> bool {
        self.waiting.len() < now.config.receives as usize
            && self.leaving.len() < now.config.pins_max
            && self.deferred < now.config.deferred_max
    }

    fn takes_more(&self, now: &Now<'_>) -> bool {
        !self.dead && (!now.draining && self.has_room(now) || !self.leaving.is_empty())
    }

    fn call(&mut self, at: usize, reply: &mut Vec<u8>, now: &Now<'_>) {
        self.owed += 1;
        reply.clear();
        match now
            .serves
            .calls
            .call(&self.caller, self.qp.message(), reply)
        {
            Outcome::Deferred(job) => self.defer(job, at, now),
            outcome => self.answer(outcome, reply, now),
        }
    }

    fn defer(&mut self, job: Job, at: usize, now: &Now<'_>) {
        self.deferred += 1;
        let task = now.returns.task(job, at, self.number());
        if now.serves.workers.submit(task).is_err() {
            // The task was dropped, and has come back as one without a reply.
            tracing::debug!(peer = %self.caller.peer, "the workers are full: a call was dropped");
        }
    }

    /// A call comes back from the workers.
    pub fn returned(&mut self, mut returned: Returned, now: &Now<'_>) {
        self.deferred -= 1;
        self.answer(returned.outcome, &mut returned.reply, now);
        self.qp.flush();
    }

    fn answer(&mut self, outcome: Outcome, reply: &mut Vec<u8>, now: &Now<'_>) {
        let writes = match outcome {
            Outcome::Replied if self.waiting.is_empty() => match self.try_reply(reply) {
                true => return,
                false => VecDeque::new(),
            },
            Outcome::Replied => VecDeque::new(),
            Outcome::Write(writes) => writes.into(),
            Outcome::Dropped | Outcome::Deferred(_) => return,
        };
        self.waiting.push_back(Answer {
            writes,
            reply: std::mem::take(reply),
        });
        self.retry(now);
    }

    /// Sends the reply; false if there is no room.
    fn try_reply(&mut self, reply: &[u8]) -> bool {
        match self.qp.post_send(0, &[reply]) {
            Ok(_) => true,
            Err(PostError::Full) => false,
            Err(error) => {
                tracing::debug!(peer = %self.caller.peer, %error, bytes = reply.len(), "a reply could not be sent");
                self.dead = true;
                true
            }
        }
    }

    /// Tries what waits for room, in order. How much went.
    fn retry(&mut self, now: &Now<'_>) -> u32 {
        let mut gone = 0;
        while !self.dead
            && let Some(mut answer) = self.waiting.pop_front()
        {
            if !self.try_answer(&mut answer, now) {
                self.waiting.push_front(answer);
                break;
            }
            gone += 1;
        }
        gone
    }

    /// Posts the writes, then the reply; false if there was no room for all of it.
    fn try_answer(&mut self, answer: &mut Answer, now: &Now<'_>) -> bool {
        while let Some(write) = answer.writes.front() {
            if !self.try_write(write, now) {
                return false;
            }
            answer.writes.pop_front();
            if self.dead {
                return false;
            }
        }
        self.try_reply(&answer.reply)
    }

    /// Posts a write; false if there is no room.
    fn try_write(&mut self, write: &ChunkWrite, now: &Now<'_>) -> bool {
        let source = match &write.from {
            ChunkSource::Frame {
                frame,
                offset,
                length,
            } => Source::Frame {
                arena: &now.serves.arena,
                frame: *frame,
                offset: *offset,
                length: *length,
            },
            ChunkSource::Bytes(bytes) => Source::Bytes(bytes),
        };
        let id = self.next_id;
        match (self.qp.post_write(id, source, write.to), &write.from) {
            (Ok(Posted::Pending), ChunkSource::Frame { frame, .. }) => {
                self.leaving.push_back(Leaving {
                    id,
                    frame: *frame,
                    since: now.time,
                });
            }
            (Err(PostError::Full), _) => return false,
            (Err(error), from) => {
                tracing::debug!(peer = %self.caller.peer, %error, "a chunk could not be written");
                release(from, now.serves);
                self.dead = true;
            }
            (Ok(_), from) => release(from, now.serves),
        }
        self.next_id += 1;
        true
    }

    fn left(&mut self, id: u64, serves: &Serves) {
        if let Some(at) = self.leaving.iter().position(|leaving| leaving.id == id)
            && let Some(leaving) = self.leaving.remove(at)
        {
            unpin(leaving.frame, serves);
        }
    }

    /// Posts again the receives that were used, as long as the peer takes its answers.
    fn repay(&mut self, now: &Now<'_>) {
        if self.owed > 0 && self.has_room(now) {
            self.qp.post_receives(std::mem::take(&mut self.owed));
        }
    }

    fn overdue(&self, now: &Now<'_>) -> bool {
        let leaving = self
            .leaving
            .front()
            .map_or(now.time, |leaving| leaving.since);
        now.time.since(leaving.min(self.waiting_since)) > now.config.pinned_time_max
    }

    pub fn has_deadline(&self) -> bool {
        !self.leaving.is_empty()
    }

    /// Asks to be woken, unless by what it would not take.
    pub fn arm(&mut self) -> bool {
        self.gated || self.qp.arm()
    }

    pub fn under_way(&self) -> bool {
        !self.waiting.is_empty() || !self.leaving.is_empty() || self.deferred > 0
    }

    /// Releases every pin. Dropping the queue pair first ends whatever still read from the frames.
    pub fn close(self, serves: &Serves) {
        drop(self.qp);
        self.leaving
            .into_iter()
            .for_each(|leaving| unpin(leaving.frame, serves));
        let writes = self.waiting.into_iter().flat_map(|answer| answer.writes);
        writes.for_each(|write| release(&write.from, serves));
        serves.calls.closed(self.caller.connection);
    }
}
