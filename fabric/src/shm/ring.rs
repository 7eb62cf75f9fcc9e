//! A ring of messages, one way, in memory that the peer can scribble on.
//!
//! ```text
//!   0    asleep    the consumer sleeps: wake it          128  consumed  slots, counted from 0
//!   64   starved   the producer found no room: wake it   256  SLOTS slots of 128 bytes, then the data
//! ```
//! A slot is a header word and up to 120 bytes; longer messages lie in the data, in one piece,
//! at a place that both ends work out for themselves. Nobody reads an index of the peer's but
//! `consumed`, and that only when the ring looks full. So a small message costs the one or two
//! cache lines that it fills.

use super::protocol::{self, Header};
use crate::fabric::PostError;
use crate::memory::mapping::Mapping;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

/// Longest message, in bytes.
pub const MESSAGE_MAX: usize = (64 + 4) << 10;

const SLOTS: u64 = 256;
const SLOT_BYTES: usize = 128;
const INLINE_MAX: usize = SLOT_BYTES - 8;
const DATA_BYTES: u64 = 512 << 10;
const SLOTS_AT: usize = 256;
const DATA_AT: usize = SLOTS_AT + SLOTS as usize * SLOT_BYTES;

/// Bytes of a ring, a multiple of the page size.
pub const RING_BYTES: usize = (DATA_AT + DATA_BYTES as usize).next_multiple_of(4096);

// With no message left in the ring, the consumer has told of all but a quarter: the longest
// message still fits, wherever the ring's end is.
const _: () = assert!(DATA_BYTES / 4 + 2 * MESSAGE_MAX as u64 + 128 <= DATA_BYTES);
const _: () = assert!(MESSAGE_MAX as u32 <= protocol::LENGTH_MAX);

/// One ring within a mapping.
#[derive(Clone)]
pub struct Ring {
    memory: Arc<Mapping>,
    base: usize,
}

impl Ring {
    /// The ring at `base`, a multiple of 128.
    pub fn new(memory: Arc<Mapping>, base: usize) -> Self {
        assert!(
            memory.holds(base, RING_BYTES) && base.is_multiple_of(128),
            "out of bounds"
        );
        Self { memory, base }
    }

    fn asleep(&self) -> &AtomicU32 {
        self.memory.half_word(self.base)
    }

    fn starved(&self) -> &AtomicU32 {
        self.memory.half_word(self.base + 64)
    }

    fn consumed(&self) -> &AtomicU64 {
        self.memory.word(self.base + 128)
    }

    #[inline]
    fn slot(&self, n: u64) -> usize {
        self.base + SLOTS_AT + (n % SLOTS) as usize * SLOT_BYTES
    }

    #[inline]
    fn header(&self, n: u64) -> &AtomicU64 {
        self.memory.word(self.slot(n))
    }
}

/// Where in the data a long message begins, as a count of all bytes ever: at `head`, or at the
/// ring's next turn if it does not fit before its end. And where the next one may begin.
fn place(head: u64, length: u32) -> (u64, u64) {
    let left = DATA_BYTES - head % DATA_BYTES;
    let start = if left < u64::from(length) {
        head + left
    } else {
        head
    };
    (start, start + u64::from(length).next_multiple_of(64))
}

/// The sending end.
pub struct Producer {
    ring: Ring,
    posted: u64,
    flushed: u64,
    head: u64,
    /// What the consumer has told, as far as we have looked.
    consumed: u64,
    tail: u64,
    /// Where in the data each slot's message ends.
    ends: Box<[u64]>,
}

impl Producer {
    pub fn new(ring: Ring) -> Self {
        let ends = vec![0; SLOTS as usize].into_boxed_slice();
        Self {
            ring,
            posted: 0,
            flushed: 0,
            head: 0,
            consumed: 0,
            tail: 0,
            ends,
        }
    }

    /// Puts the concatenation of `parts` into the ring.
    #[inline]
    pub fn post(&mut self, kind: u8, parts: &[&[u8]]) -> Result<(), PostError> {
        let length = parts
            .iter()
            .fold(0usize, |sum, part| sum.saturating_add(part.len()));
        if length > MESSAGE_MAX {
            return Err(PostError::TooLong);
        }
        if length <= INLINE_MAX {
            self.make_room(0)?;
            self.post_inline(parts, length);
        } else {
            self.make_room(length as u32)?;
            self.post_data(parts, length);
        }
        let header = Header {
            kind,
            length: length as u32,
        };
        self.ends[(self.posted % SLOTS) as usize] = self.head;
        header.publish(self.ring.header(self.posted), self.posted);
        self.posted += 1;
        Ok(())
    }

    #[inline]
    fn post_inline(&self, parts: &[&[u8]], length: usize) {
        let at = self.ring.slot(self.posted) + 8;
        if let [whole] = parts {
            return self.ring.memory.store(at, whole);
        }
        let mut gathered = [0; INLINE_MAX];
        let mut filled = 0;
        for part in parts {
            gathered[filled..filled + part.len()].copy_from_slice(part);
            filled += part.len();
        }
        self.ring.memory.store(at, &gathered[..length]);
    }

    fn post_data(&mut self, parts: &[&[u8]], length: usize) {
        let (start, end) = place(self.head, length as u32);
        let mut at = self.ring.base + DATA_AT + (start % DATA_BYTES) as usize;
        for part in parts {
            self.ring.memory.store(at, part);
            at += part.len();
        }
        self.head = end;
    }

    /// Room for one more message with `length` bytes of data, or `Full`: then the consumer will
    /// wake us when it has made some.
    #[inline]
    fn make_room(&mut self, length: u32) -> Result<(), PostError> {
        if self.has_room(length) {
            return Ok(());
        }
        self.learn_consumed()?;
        if self.has_room(length) {
            return Ok(());
        }
        protocol::doze(self.ring.starved());
        self.learn_consumed()?;
        if self.has_room(length) {
            protocol::rise(self.ring.starved());
            return Ok(());
        }
        Err(PostError::Full)
    }

    #[inline]
    fn has_room(&self, length: u32) -> bool {
        let end = if length == 0 {
            self.head
        } else {
            place(self.head, length).1
        };
        self.posted - self.consumed < SLOTS && end - self.tail <= DATA_BYTES
    }

    /// The peer's word: taken only if it moves forward and not beyond what was posted.
    fn learn_consumed(&mut self) -> Result<(), PostError> {
        let told = self.ring.consumed().load(Ordering::Acquire);
        if told < self.consumed || told > self.posted {
            return Err(PostError::Closed);
        }
        if told > self.consumed {
            self.consumed = told;
            self.tail = self.ends[((told - 1) % SLOTS) as usize];
        }
        Ok(())
    }

    /// Whether the consumer sleeps through messages that were posted since the last flush.
    #[inline]
    pub fn flush(&mut self) -> bool {
        let news = std::mem::replace(&mut self.flushed, self.posted) != self.posted;
        news && protocol::must_wake(self.ring.asleep())
    }
}

/// What the consumer found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Taken {
    /// A message, whose bytes are in the buffer.
    Message { kind: u8, length: usize },
    /// Nothing yet.
    Nothing,
    /// What no honest peer writes.
    Nonsense,
}

/// The receiving end.
pub struct Consumer {
    ring: Ring,
    taken: u64,
    told: u64,
    head: u64,
    head_told: u64,
}

impl Consumer {
    pub fn new(ring: Ring) -> Self {
        Self {
            ring,
            taken: 0,
            told: 0,
            head: 0,
            head_told: 0,
        }
    }

    /// Copies the next message into `buffer`, which grows for it, if there is one.
    #[inline]
    pub fn take(&mut self, buffer: &mut Vec<u8>) -> Taken {
        let Some(header) = Header::of(self.ring.header(self.taken), self.taken) else {
            // The header is stored last, so the line behind it is there first: it comes meanwhile.
            self.ring
                .memory
                .prefetch(self.ring.slot(self.taken) + SLOT_BYTES / 2);
            return Taken::Nothing;
        };
        let length = header.length as usize;
        if length > MESSAGE_MAX {
            return Taken::Nonsense;
        }
        let at = if length <= INLINE_MAX {
            self.ring.slot(self.taken) + 8
        } else {
            let (start, end) = place(self.head, header.length);
            self.head = end;
            self.ring.base + DATA_AT + (start % DATA_BYTES) as usize
        };
        if buffer.len() < length {
            buffer.resize(length, 0);
        }
        self.ring.memory.load(at, &mut buffer[..length]);
        self.taken += 1;
        Taken::Message {
            kind: header.kind,
            length,
        }
    }

    /// Tells the producer of the room that was made, when it is worth it. `true`: the producer waits for it.
    #[inline]
    pub fn tell(&mut self) -> bool {
        if self.taken - self.told < SLOTS / 4 && self.head - self.head_told < DATA_BYTES / 4 {
            return false;
        }
        self.ring.consumed().store(self.taken, Ordering::Release);
        (self.told, self.head_told) = (self.taken, self.head);
        protocol::must_wake(self.ring.starved())
    }

    /// Whether a message is there.
    pub fn is_ready(&self) -> bool {
        Header::of(self.ring.header(self.taken), self.taken).is_some()
    }

    /// Asks to be woken. `false`: no need, a message is there.
    pub fn arm(&self) -> bool {
        protocol::doze(self.ring.asleep());
        let ready = self.is_ready();
        if ready {
            protocol::rise(self.ring.asleep());
        }
        !ready
    }

    /// Needs no waking any more.
    pub fn disarm(&self) {
        protocol::rise(self.ring.asleep());
    }
}
