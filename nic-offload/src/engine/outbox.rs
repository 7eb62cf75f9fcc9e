//! What a connection for calls sends: RDMA Writes and the message to which they belong, in order, as far as there is
//! room.

use std::collections::VecDeque;

use odafs_fabric::clock::Nanos;
use odafs_fabric::{PostError, Posted, QueuePair, Source, SteeringTag};

use super::{Now, Serves};
use crate::calls::{ChunkSource, ChunkWrite, Placed};

/// Number of parts of a message that are gathered without an allocation.
const FEW: usize = 8;

/// A message with the RDMA Writes that go before it.
#[derive(Default)]
pub(super) struct QueuedReply {
    pub writes: VecDeque<ChunkWrite>,
    /// The transport's header, before the body.
    pub head: Vec<u8>,
    pub body: Vec<u8>,
    /// A tag of the peer that the message invalidates.
    pub invalidate: Option<SteeringTag>,
}

impl QueuedReply {
    pub fn of(body: Vec<u8>) -> QueuedReply {
        QueuedReply {
            body,
            ..QueuedReply::default()
        }
    }

    fn pins(&self) -> usize {
        self.writes.iter().filter(|write| is_pin(write)).count()
    }
}

/// A queue pair, and what waits to be sent on it or still reads from its frames.
pub(super) struct Outbox {
    /// Dropped first. That ends whatever still reads from frames, which are unpinned afterwards.
    pub qp: Box<dyn QueuePair>,
    /// Answers for which there was no room, in order.
    waiting: VecDeque<QueuedReply>,
    /// Since when the first of them has been the first.
    waiting_since: Nanos,
    /// Number of frames that they have pinned.
    waiting_pins: usize,
    /// Number of frames that are pinned by calls that wait for a worker or have one.
    deferred_pins: usize,
    /// RDMA Writes that still read from their frames.
    leaving: VecDeque<Leaving>,
    next_id: u64,
    /// Whether the connection is useless.
    pub dead: bool,
}

struct Leaving {
    id: u64,
    /// Keeps the frame pinned.
    _from: ChunkSource,
    since: Nanos,
}

fn is_pin(write: &ChunkWrite) -> bool {
    matches!(write.from, ChunkSource::Frame { .. })
}

impl Outbox {
    pub fn new(qp: Box<dyn QueuePair>, now: Nanos) -> Outbox {
        Outbox {
            qp,
            waiting: VecDeque::new(),
            waiting_since: now,
            waiting_pins: 0,
            deferred_pins: 0,
            leaving: VecDeque::new(),
            next_id: 0,
            dead: false,
        }
    }

    /// Whether nothing waits for room.
    pub fn is_clear(&self) -> bool {
        self.waiting.is_empty()
    }

    /// Whether something reads from its frames.
    pub fn is_leaving(&self) -> bool {
        !self.leaving.is_empty()
    }

    /// Whether the most answers wait.
    pub fn is_full(&self, now: &Now<'_>) -> bool {
        self.waiting.len() >= now.config.receives as usize
    }

    /// Whether waiting answers or pinned frames have reached their limit, so that nothing new should begin. What a worker pins
    /// before it has served its call is not known here, so calls that the workers have may come back with more. The number of
    /// these calls is bounded, and so is what one of them pins.
    pub fn has_room(&self, now: &Now<'_>) -> bool {
        let pins = self.waiting_pins + self.deferred_pins + self.leaving.len();
        !self.is_full(now) && pins < now.config.pins_max
    }

    /// A call goes to the workers. It has pinned this many frames, and keeps them.
    pub fn deferred(&mut self, pins: usize) {
        self.deferred_pins += pins;
    }

    /// A call comes back that had pinned this many frames when it went.
    pub fn returned(&mut self, pins: usize) {
        self.deferred_pins -= pins;
    }

    /// Begins a turn: tries again to send waiting answers. Returns how many were sent.
    pub fn begin(&mut self, now: &Now<'_>) -> u32 {
        let gone = self.retry(now);
        if gone > 0 || self.waiting.is_empty() {
            self.waiting_since = now.time;
        }
        gone
    }

    /// Records that nothing waited until `time`, if nothing waits.
    pub fn rested_until(&mut self, time: Nanos) {
        if self.waiting.is_empty() {
            self.waiting_since = time;
        }
    }

    /// Sends a message without writes. Takes its buffer only if the message must wait.
    pub fn send_message(&mut self, message: &mut Vec<u8>) {
        if !self.waiting.is_empty() || !self.try_message(&[message], None) {
            self.waiting
                .push_back(QueuedReply::of(std::mem::take(message)));
        }
    }

    /// Sends a reply of which one result is `placed` apart from it, as one message. If it must wait, the data is copied, so
    /// that no pin outlasts this.
    pub fn send_gathered(&mut self, reply: &[u8], placed: &Placed, serves: &Serves) {
        let none = Source::Bytes(&[]);
        let count = placed.pieces.len() + 3;
        let (mut few, mut many) = ([none; FEW], Vec::new());
        let parts = match few.get_mut(..count) {
            Some(few) => few,
            None => {
                many.resize(count, none);
                &mut many[..]
            }
        };
        // There is one placement.
        let result = placed.results.first().copied().unwrap_or_default();
        let (head, tail) = reply.split_at(result.at as usize);
        let padding = &[0; 3][..result.bytes.wrapping_neg() as usize % 4];
        parts[0] = Source::Bytes(head);
        for (part, piece) in parts[1..].iter_mut().zip(&placed.pieces) {
            *part = piece.source(&serves.arena);
        }
        parts[count - 2] = Source::Bytes(padding);
        parts[count - 1] = Source::Bytes(tail);
        let posted = match self.waiting.is_empty() {
            true => self.qp.post_gather(0, parts),
            false => Err(PostError::Full),
        };
        if posted == Err(PostError::Full) {
            let body = odafs_fabric::gathered(parts);
            self.waiting.push_back(QueuedReply::of(body));
        } else if let Err(error) = posted {
            self.unsendable(error, parts.iter().map(Source::length).sum());
        }
    }

    /// Sends a message, or queues it.
    pub fn send(&mut self, answer: QueuedReply, now: &Now<'_>) {
        self.waiting_pins += answer.pins();
        self.waiting.push_back(answer);
        self.retry(now);
    }

    /// An RDMA Write has ended.
    pub fn written(&mut self, id: u64, failed: bool) {
        if let Some(at) = self.leaving.iter().position(|leaving| leaving.id == id) {
            self.leaving.remove(at);
        }
        self.dead |= failed;
    }

    /// Tries to send waiting answers, in order. Returns how many were sent.
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

    /// Posts the writes, then the message. Returns false if there was no room for all of them.
    fn try_answer(&mut self, answer: &mut QueuedReply, now: &Now<'_>) -> bool {
        while let Some(write) = answer.writes.pop_front() {
            let pins = usize::from(is_pin(&write));
            if let Some(write) = self.try_write(write, now) {
                answer.writes.push_front(write);
                return false;
            }
            self.waiting_pins -= pins;
            if self.dead {
                return false;
            }
        }
        self.try_message(&[&answer.head, &answer.body], answer.invalidate)
    }

    /// Posts a message. Returns false if there is no room.
    fn try_message(&mut self, parts: &[&[u8]], invalidate: Option<SteeringTag>) -> bool {
        let posted = match invalidate {
            Some(tag) => self.qp.post_send_invalidate(0, parts, tag),
            None => self.qp.post_send(0, parts),
        };
        match posted {
            Ok(_) => true,
            Err(PostError::Full) => false,
            Err(error) => {
                self.unsendable(error, parts.iter().map(|part| part.len()).sum());
                true
            }
        }
    }

    fn unsendable(&mut self, error: PostError, bytes: usize) {
        tracing::debug!(peer = %self.qp.peer(), %error, bytes, "a reply could not be sent");
        self.dead = true;
    }

    /// Posts a write. Returns it if there is no room.
    fn try_write(&mut self, write: ChunkWrite, now: &Now<'_>) -> Option<ChunkWrite> {
        let source = write.from.source(&now.serves.arena);
        let id = self.next_id;
        match self.qp.post_write(id, source, write.to) {
            Ok(Posted::Pending) if is_pin(&write) => self.leaving.push_back(Leaving {
                id,
                _from: write.from,
                since: now.time,
            }),
            Ok(_) => {}
            Err(PostError::Full) => return Some(write),
            Err(error) => {
                tracing::debug!(peer = %self.qp.peer(), %error, "a chunk could not be written");
                self.dead = true;
            }
        }
        self.next_id += 1;
        None
    }

    /// Whether something has waited or been pinned for too long.
    pub fn is_overdue(&self, now: &Now<'_>) -> bool {
        let leaving = self
            .leaving
            .front()
            .map_or(now.time, |leaving| leaving.since);
        now.time.since(leaving.min(self.waiting_since)) > now.config.pinned_time_max
    }

    pub fn under_way(&self) -> bool {
        !self.waiting.is_empty() || !self.leaving.is_empty()
    }

    /// Whether an end of the connection would lose nothing.
    pub fn is_drained(&mut self) -> bool {
        !self.under_way() && self.qp.is_settled()
    }
}
