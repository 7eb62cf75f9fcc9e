//! A one-way ring of messages, in memory that the peer can overwrite at any time.
//!
//! ```text
//!   0    asleep    the consumer sleeps: wake it          128  consumed  slots, counted from 0
//!   4    ended     the producer has gone                 256  SLOTS slots of 256 bytes, then the data
//!   64   starved   the producer found no room: wake it
//! ```
//! A slot is a header word and up to 248 bytes. Longer messages are in the data, in one piece, at the place that the
//! header names. Of the peer's indices only `consumed` is read, and that only when the ring looks full: each message of
//! the peer says what it has taken. So a small message costs the one to four cache lines that it fills. A sender with
//! nothing under way uses the fronts of the data's two halves in turn. The lines stay in the caches, and those of the
//! next message can be prefetched for writing while the peer is busy with this one's.

use super::protocol::{self, Header, PLACE_BYTES, Sleeper};
use crate::clock::Nanos;
use crate::fabric::{self, PostError, Source};
use crate::memory::mapping::Mapping;
use rustix::thread::futex::{self, Timespec};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

/// The longest message, in bytes.
pub const MESSAGE_MAX: usize = (64 + 4) << 10;

const SLOTS: u64 = 256;
const SLOT_BYTES: usize = 256;
const LINE_BYTES: usize = 64;
const INLINE_MAX: usize = SLOT_BYTES - 8;
const DATA_BYTES: u64 = 512 << 10;
/// The most bytes to prepare. More would evict useful lines from the cache.
const PREPARED_MAX: usize = 8 << 10;
const SLOTS_AT: usize = 256;
const DATA_AT: usize = SLOTS_AT + SLOTS as usize * SLOT_BYTES;

/// Size of a ring in bytes, a multiple of the page size.
pub const RING_BYTES: usize = (DATA_AT + DATA_BYTES as usize).next_multiple_of(4096);

// When the ring is empty, the consumer has reported all but a quarter, the last message and one that it kept. So the
// longest message still fits, wherever the ring ends.
const _: () = assert!(DATA_BYTES / 4 + 4 * (MESSAGE_MAX as u64 + 64) <= DATA_BYTES);
const _: () = assert!(MESSAGE_MAX as u32 <= protocol::LENGTH_MAX);
const _: () = assert!(DATA_BYTES / PLACE_BYTES <= protocol::PLACE_MAX as u64 + 1);
// At most this many can be reported between two messages of the peer, and no more are under way.
const _: () = assert!(SLOTS < 1 << 16);

/// A ring in a mapping.
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

    fn ended(&self) -> &AtomicU32 {
        self.memory.half_word(self.base + 4)
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

/// Where a long message begins in the data, as a count of all bytes ever: at `head`, or at the ring's next turn if it
/// does not fit before its end. Also where the next one may begin.
fn place(head: u64, length: u32) -> (u64, u64) {
    let left = DATA_BYTES - head % DATA_BYTES;
    let start = if left < u64::from(length) {
        head + left
    } else {
        head
    };
    (start, start + room(length))
}

/// Number of bytes that a long message takes in the data.
fn room(length: u32) -> u64 {
    u64::from(length).next_multiple_of(PLACE_BYTES)
}

/// The sending end.
pub struct Producer {
    ring: Ring,
    posted: u64,
    flushed: u64,
    head: u64,
    /// What the consumer has reported, as far as this end has looked.
    consumed: u64,
    /// What the consumer has reported with its messages. It is never more than true, because the reports come modulo
    /// 2^16 and in order.
    heard: u64,
    tail: u64,
    /// Length of the last long message for whose successor nothing was prepared.
    last_long: usize,
    /// The end of each slot's message in the data.
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

    /// Puts the concatenation of `parts` into the ring. `heard` is the number of messages taken from the other ring.
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

    /// As [`post`](Self::post), with parts that may be in an arena.
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

    /// Publishes the next message, whose bytes are in place.
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

    /// The header's line comes last: the consumer polls it, and must not take it away between two stores.
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

    /// Prefetches the place of the next long message, assuming that all earlier ones will have been taken and that it
    /// is as long as the last. There is time for it now, while the peer is busy with that one.
    #[inline]
    fn prepare(&mut self) {
        let length = std::mem::take(&mut self.last_long).min(PREPARED_MAX);
        if length > 0 {
            let start = self.head.next_multiple_of(DATA_BYTES / 2) % DATA_BYTES;
            let at = self.data(start);
            self.ring.memory.prefetch_to_write(at, length);
        }
    }

    /// The place of a long message in the data.
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

    /// The place in the memory of a place in the data.
    fn data(&self, start: u64) -> usize {
        self.ring.base + DATA_AT + start as usize
    }

    /// Finds room for another message with `length` bytes of data. If there is none, returns `Full`, and the consumer
    /// will wake this end when it has made some.
    #[inline]
    fn make_room(&mut self, length: u32) -> Result<(), PostError> {
        if self.has_room(length) {
            return Ok(());
        }
        self.learn_consumed()?;
        if self.has_room(length) {
            return Ok(());
        }
        protocol::doze(self.ring.starved(), Sleeper::Socket);
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

    /// The peer's word, limited to what was posted. It may be behind what the peer has reported with its messages
    /// since.
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

    /// Processes the report in the header of a message of the peer. Returns false if it is impossible.
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

    /// The consumer, if it sleeps although messages were posted since the last flush.
    #[inline]
    pub fn flush(&mut self) -> Option<Sleeper> {
        let news = std::mem::replace(&mut self.flushed, self.posted) != self.posted;
        let sleeper = match news {
            true => protocol::must_wake(self.ring.asleep()),
            false => None,
        };
        self.prepare();
        sleeper
    }

    /// Wakes a consumer that sleeps on the ring's word.
    pub fn wake(&self) {
        // Nothing can fail here: the word is mapped, whoever else may write it.
        let _ = futex::wake(self.ring.asleep(), futex::Flags::empty(), 1);
    }

    /// Says that nothing follows. A consumer that sleeps must then be woken ([`Producer::sleeper`]); any other sees it before
    /// it sleeps.
    pub fn end(&self) {
        protocol::end(self.ring.ended());
    }

    /// The consumer, if it sleeps. Whoever asks must wake it, because the word does not say so any more.
    pub fn sleeper(&self) -> Option<Sleeper> {
        protocol::must_wake(self.ring.asleep())
    }
}

/// The result of a look at the ring.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Taken {
    /// A message, whose bytes are in the buffer.
    Message { kind: u8, length: usize, heard: u16 },
    /// Nothing yet.
    Nothing,
    /// Something that no honest peer writes.
    Nonsense,
}

/// The receiving end.
pub struct Consumer {
    ring: Ring,
    taken: u64,
    told: u64,
    /// Number of bytes of the data that were taken since the last report.
    untold: u64,
    /// The last message, while it is in the ring: its place and its length.
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

    /// Number of messages taken, including the last one, which need not be in the ring any more.
    #[inline]
    pub fn release(&mut self) -> u64 {
        self.held = None;
        self.taken
    }

    /// Number of messages taken whose bytes may be overwritten.
    #[inline]
    fn taken(&self) -> u64 {
        self.taken - u64::from(self.held.is_some())
    }

    /// The next message's header, if it is there.
    #[inline]
    fn next(&self) -> Option<Header> {
        let header = Header::of(self.ring.header(self.taken), self.taken);
        if header.is_none() {
            // The header is stored last, so the lines after it are there already. Those of a call are fetched
            // meanwhile.
            let slot = self.ring.slot(self.taken);
            self.ring.memory.prefetch(slot + LINE_BYTES);
            self.ring.memory.prefetch(slot + 2 * LINE_BYTES);
        }
        header
    }

    /// Copies the first `front` bytes of the next message, if there is one, into `buffer`, which grows for them. If the
    /// message is longer, it stays in the ring until the next call.
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

    /// Copies from the last message, from `offset` on, while it is in the ring. Returns `false` if it is not, or is
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

    /// Reports the room that was made to the producer, when that is worthwhile. Returns `true` if the producer waits
    /// for it.
    #[inline]
    pub fn tell(&mut self) -> bool {
        let taken = self.taken();
        if taken - self.told < SLOTS / 4 && self.untold < DATA_BYTES / 4 {
            return false;
        }
        self.ring.consumed().store(taken, Ordering::Release);
        (self.told, self.untold) = (taken, 0);
        protocol::must_wake(self.ring.starved()).is_some()
    }

    /// Whether a message is there.
    #[inline]
    pub fn is_ready(&self) -> bool {
        self.next().is_some()
    }

    /// Asks to be woken. Returns `false` if that is unnecessary, because a message is there.
    pub fn arm(&self, sleeper: Sleeper) -> bool {
        protocol::doze(self.ring.asleep(), sleeper);
        let ready = self.is_ready();
        if ready {
            protocol::rise(self.ring.asleep());
        }
        !ready
    }

    /// After [`Consumer::arm`] as a [`Sleeper::Word`]: blocks until the producer wakes this end, at most for `time`. May
    /// return sooner.
    pub fn sleep(&self, time: Nanos) {
        let time = Timespec {
            tv_sec: (time.0 / 1_000_000_000) as i64,
            tv_nsec: (time.0 % 1_000_000_000) as _,
        };
        // The word has changed already, a signal came, or the time is over: the caller looks again in each case.
        let _ = futex::wait(
            self.ring.asleep(),
            futex::Flags::empty(),
            Sleeper::Word as u32,
            Some(&time),
        );
    }

    /// After [`Consumer::arm`]: whether the producer has said that nothing follows. That is only what the peer claims.
    pub fn is_ended(&self) -> bool {
        protocol::is_ended(self.ring.ended())
    }

    /// Cancels the wish to be woken.
    pub fn disarm(&self) {
        protocol::rise(self.ring.asleep());
    }
}
