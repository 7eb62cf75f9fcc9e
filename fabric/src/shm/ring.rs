//! A ring of messages, one way, in memory that the peer can scribble on.
//!
//! ```text
//!   0    asleep    the consumer sleeps: wake it          128  consumed  slots, counted from 0
//!   64   starved   the producer found no room: wake it   256  SLOTS slots of 256 bytes, then the data
//! ```
//! A slot is a header word and up to 248 bytes; longer messages lie in the data, in one piece,
//! at the place that the header names. Nobody reads an index of the peer's but `consumed`, and that
//! only when the ring looks full: what the peer has taken is told with each message that it sends.
//! So a small message costs the one to four cache lines that it fills. A sender with nothing under way uses
//! the fronts of the data's two halves in turn: the lines stay in the caches, and those of the next
//! message can be fetched for writing while the peer is at this one's.

use super::protocol::{self, Header, PLACE_BYTES};
use crate::fabric::{self, PostError, Source};
use crate::memory::mapping::Mapping;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

/// Longest message, in bytes.
pub const MESSAGE_MAX: usize = (64 + 4) << 10;

const SLOTS: u64 = 256;
const SLOT_BYTES: usize = 256;
const LINE_BYTES: usize = 64;
const INLINE_MAX: usize = SLOT_BYTES - 8;
const DATA_BYTES: u64 = 512 << 10;
/// More is not prepared for: it would drive out of the cache what is there.
const PREPARED_MAX: usize = 8 << 10;
const SLOTS_AT: usize = 256;
const DATA_AT: usize = SLOTS_AT + SLOTS as usize * SLOT_BYTES;

/// Bytes of a ring, a multiple of the page size.
pub const RING_BYTES: usize = (DATA_AT + DATA_BYTES as usize).next_multiple_of(4096);

// With no message left in the ring, the consumer has told of all but a quarter, the last and one that it held: the
// longest message still fits, wherever the ring's end is.
const _: () = assert!(DATA_BYTES / 4 + 4 * (MESSAGE_MAX as u64 + 64) <= DATA_BYTES);
const _: () = assert!(MESSAGE_MAX as u32 <= protocol::LENGTH_MAX);
const _: () = assert!(DATA_BYTES / PLACE_BYTES <= protocol::PLACE_MAX as u64 + 1);
// So many can be told of between two messages of the peer, and no more are under way.
const _: () = assert!(SLOTS < 1 << 16);

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
    (start, start + room(length))
}

/// Bytes of the data that a long message takes.
fn room(length: u32) -> u64 {
    u64::from(length).next_multiple_of(PLACE_BYTES)
}

/// The sending end.
pub struct Producer {
    ring: Ring,
    posted: u64,
    flushed: u64,
    head: u64,
    /// What the consumer has told, as far as we have looked.
    consumed: u64,
    /// What it has told with its messages: never more than is true, for it is told modulo 2^16 and in order.
    heard: u64,
    tail: u64,
    /// Bytes of the last long message that nothing was prepared after.
    last_long: usize,
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
            heard: 0,
            tail: 0,
            last_long: 0,
            ends,
        }
    }

    /// Puts the concatenation of `parts` into the ring. `heard`: messages taken from the other one.
    #[inline]
    pub fn post(&mut self, kind: u8, heard: u64, parts: &[&[u8]]) -> Result<(), PostError> {
        let lengths = parts.iter().map(|part| part.len());
        let length = lengths.fold(0usize, usize::saturating_add);
        let mut place = 0;
        if length <= INLINE_MAX {
            self.make_room(0)?;
            self.post_inline(parts, length);
        } else {
            let start = self.take_place(length)?;
            let mut at = self.data(start);
            for part in parts {
                self.ring.memory.store(at, part);
                at += part.len();
            }
            place = (start / PLACE_BYTES) as u16;
        }
        self.publish(kind, heard, place, length);
        Ok(())
    }

    /// As [`post`](Self::post), with parts that may lie in an arena.
    pub fn post_gather(
        &mut self,
        kind: u8,
        heard: u64,
        parts: &[Source<'_>],
    ) -> Result<(), PostError> {
        let lengths = parts.iter().map(Source::length);
        let length = lengths.fold(0usize, usize::saturating_add);
        if length <= INLINE_MAX {
            return self.post(kind, heard, &[&fabric::gathered(parts)]);
        }
        let start = self.take_place(length)?;
        let mut at = self.data(start);
        for part in parts {
            match *part {
                Source::Bytes(bytes) => self.ring.memory.store(at, bytes),
                Source::Frame {
                    arena,
                    frame,
                    offset,
                    length,
                } => {
                    let from = arena.place(frame, offset, length as usize);
                    let copied = self
                        .ring
                        .memory
                        .try_copy(at, arena.data(), from, length as usize);
                    debug_assert!(copied, "a ring lies in no arena");
                }
            }
            at += part.length();
        }
        self.publish(kind, heard, (start / PLACE_BYTES) as u16, length);
        Ok(())
    }

    /// Makes the next message visible. Its bytes are there.
    #[inline]
    fn publish(&mut self, kind: u8, heard: u64, place: u16, length: usize) {
        let header = Header {
            heard: heard as u16,
            kind,
            place,
            length: length as u32,
        };
        self.ends[(self.posted % SLOTS) as usize] = self.head;
        header.publish(self.ring.header(self.posted), self.posted);
        self.posted += 1;
    }

    #[inline]
    fn post_inline(&self, parts: &[&[u8]], length: usize) {
        let at = self.ring.slot(self.posted) + 8;
        if let [whole] = parts {
            return self.store_inline(at, whole);
        }
        let mut gathered = [0; INLINE_MAX];
        let mut filled = 0;
        for part in parts {
            gathered[filled..filled + part.len()].copy_from_slice(part);
            filled += part.len();
        }
        self.store_inline(at, &gathered[..length]);
    }

    /// The header's line last: the consumer polls it, and shall not take it from us between two stores.
    #[inline]
    fn store_inline(&self, at: usize, whole: &[u8]) {
        const BESIDE_HEADER: usize = LINE_BYTES - 8;
        let (first, second) = whole.split_at(whole.len().min(BESIDE_HEADER));
        if !second.is_empty() {
            self.ring.memory.store(at + BESIDE_HEADER, second);
        }
        self.ring.memory.store(at, first);
    }

    /// With nothing under way, the next message goes to the front of the other half.
    #[inline]
    fn begin_again(&mut self) {
        if self.consumed == self.posted {
            self.head = self.head.next_multiple_of(DATA_BYTES / 2);
            self.tail = self.head;
        }
    }

    /// Fetches what the next long message will be written to, should all before it have been taken and should it be
    /// as long as the last: there is time for it now, while the peer is at that one.
    #[inline]
    fn prepare(&mut self) {
        let length = std::mem::take(&mut self.last_long).min(PREPARED_MAX);
        if length > 0 {
            let start = self.head.next_multiple_of(DATA_BYTES / 2) % DATA_BYTES;
            let at = self.data(start);
            self.ring.memory.prefetch_to_write(at, length);
        }
    }

    /// Where in the data a long message goes.
    #[inline]
    fn take_place(&mut self, length: usize) -> Result<u64, PostError> {
        if length > MESSAGE_MAX {
            return Err(PostError::TooLong);
        }
        self.begin_again();
        self.make_room(length as u32)?;
        let (start, end) = place(self.head, length as u32);
        self.head = end;
        self.last_long = length;
        Ok(start % DATA_BYTES)
    }

    /// Where in the memory a place in the data is.
    fn data(&self, start: u64) -> usize {
        self.ring.base + DATA_AT + start as usize
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

    /// The peer's word: not beyond what was posted. It may be behind what the peer has told with its messages since.
    fn learn_consumed(&mut self) -> Result<(), PostError> {
        let told = self.ring.consumed().load(Ordering::Acquire);
        if told > self.posted {
            return Err(PostError::Closed);
        }
        self.forget(told);
        Ok(())
    }

    /// All messages before `told` were taken.
    #[inline]
    fn forget(&mut self, told: u64) {
        if told > self.consumed {
            self.consumed = told;
            self.tail = self.ends[((told - 1) % SLOTS) as usize];
        }
    }

    /// What the header of a message of the peer's says, each in its turn. False: what it says cannot be.
    #[inline]
    pub fn hear(&mut self, heard: u16) -> bool {
        let more = heard.wrapping_sub(self.heard as u16);
        let told = self.heard + u64::from(more);
        if told > self.posted {
            return false;
        }
        self.heard = told;
        self.forget(told);
        true
    }

    /// Whether the consumer sleeps through messages that were posted since the last flush.
    #[inline]
    pub fn flush(&mut self) -> bool {
        let news = std::mem::replace(&mut self.flushed, self.posted) != self.posted;
        let must_wake = news && protocol::must_wake(self.ring.asleep());
        self.prepare();
        must_wake
    }
}

/// What the consumer found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Taken {
    /// A message, whose bytes are in the buffer.
    Message { kind: u8, length: usize, heard: u16 },
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
    /// Bytes of the data that were taken since that was told.
    untold: u64,
    /// The last message, while it lies in the ring: where it begins, and its bytes.
    held: Option<(usize, usize)>,
}

impl Consumer {
    pub fn new(ring: Ring) -> Self {
        Self {
            ring,
            taken: 0,
            told: 0,
            untold: 0,
            held: None,
        }
    }

    /// Messages taken, the last among them: it need not lie in the ring any more.
    #[inline]
    pub fn release(&mut self) -> u64 {
        self.held = None;
        self.taken
    }

    /// Messages taken whose bytes may be written over.
    #[inline]
    fn taken(&self) -> u64 {
        self.taken - u64::from(self.held.is_some())
    }

    /// The next message's header, if it is there.
    #[inline]
    fn next(&self) -> Option<Header> {
        let header = Header::of(self.ring.header(self.taken), self.taken);
        if header.is_none() {
            // The header is stored last, so the lines behind it are there first: those of a call come meanwhile.
            let slot = self.ring.slot(self.taken);
            self.ring.memory.prefetch(slot + LINE_BYTES);
            self.ring.memory.prefetch(slot + 2 * LINE_BYTES);
        }
        header
    }

    /// Copies the first `front` bytes of the next message into `buffer`, which grows for them, if there is one. If it
    /// is longer, it stays in the ring until the next one is asked for.
    #[inline]
    pub fn take(&mut self, buffer: &mut Vec<u8>, front: usize) -> Taken {
        self.held = None;
        let Some(header) = self.next() else {
            return Taken::Nothing;
        };
        let length = header.length as usize;
        if length > MESSAGE_MAX {
            return Taken::Nonsense;
        }
        let at = if length <= INLINE_MAX {
            self.ring.slot(self.taken) + 8
        } else {
            let start = u64::from(header.place) * PLACE_BYTES;
            if start + u64::from(header.length) > DATA_BYTES {
                return Taken::Nonsense;
            }
            self.untold += room(header.length);
            self.ring.base + DATA_AT + start as usize
        };
        if length > front {
            self.held = Some((at, length));
        }
        let copied = length.min(front);
        if buffer.len() < copied {
            buffer.resize(copied, 0);
        }
        self.ring.memory.load(at, &mut buffer[..copied]);
        self.taken += 1;
        Taken::Message {
            kind: header.kind,
            length,
            heard: header.heard,
        }
    }

    /// Copies from `offset` on from the last message, while it lies in the ring. `false` if it does not, or if it is
    /// shorter.
    pub fn load(&self, offset: usize, into: &mut [u8]) -> bool {
        let Some((at, length)) = self.held else {
            return false;
        };
        let within = offset
            .checked_add(into.len())
            .is_some_and(|end| end <= length);
        if within {
            self.ring.memory.load(at + offset, into);
        }
        within
    }

    /// Tells the producer of the room that was made, when it is worth it. `true`: the producer waits for it.
    #[inline]
    pub fn tell(&mut self) -> bool {
        let taken = self.taken();
        if taken - self.told < SLOTS / 4 && self.untold < DATA_BYTES / 4 {
            return false;
        }
        self.ring.consumed().store(taken, Ordering::Release);
        (self.told, self.untold) = (taken, 0);
        protocol::must_wake(self.ring.starved())
    }

    /// Whether a message is there.
    #[inline]
    pub fn is_ready(&self) -> bool {
        self.next().is_some()
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
