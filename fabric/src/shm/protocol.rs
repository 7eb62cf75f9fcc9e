//! The words of a ring that both ends touch, on bare atomics, as loom explores them.

use super::atomic::{AtomicU32, AtomicU64, Ordering, fence};

/// The first word of a slot. It becomes that of message number `n` (counted from 0) when the message is complete.
///
/// ```text
///   63..48  n + 1, modulo 2^16      47..32  heard      31..30  kind      29..17  place      16..0  length
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// Number of messages that its sender has taken from the ring of the other direction, modulo 2^16.
    pub heard: u16,
    /// At most [`KIND_MAX`].
    pub kind: u8,
    /// The place of a long message in the data, in units of [`PLACE_BYTES`], at most [`PLACE_MAX`].
    pub place: u16,
    /// Length in bytes, at most [`LENGTH_MAX`].
    pub length: u32,
}

/// The longest message that a header can describe.
pub const LENGTH_MAX: u32 = (1 << 17) - 1;
/// The largest place.
pub const PLACE_MAX: u16 = (1 << 13) - 1;
/// Long messages begin at multiples of this: a cache line.
pub const PLACE_BYTES: u64 = 64;
/// The largest kind.
pub const KIND_MAX: u8 = 3;

impl Header {
    /// Publishes message `n`, whose bytes are in place.
    #[inline]
    pub fn publish(self, word: &AtomicU64, n: u64) {
        debug_assert!(
            self.kind <= KIND_MAX && self.place <= PLACE_MAX && self.length <= LENGTH_MAX
        );
        let value = u64::from(sequence(n)) << 48
            | u64::from(self.heard) << 32
            | u64::from(self.kind) << 30
            | u64::from(self.place) << 17
            | u64::from(self.length);
        word.store(value, Ordering::Release);
    }

    /// Message `n`, if it is there. Its contents are only what the peer claims.
    #[inline]
    pub fn of(word: &AtomicU64, n: u64) -> Option<Header> {
        let value = word.load(Ordering::Acquire);
        let there = (value >> 48) as u16 == sequence(n);
        there.then_some(Header {
            heard: (value >> 32) as u16,
            kind: (value >> 30) as u8 & KIND_MAX,
            place: (value >> 17) as u16 & PLACE_MAX,
            length: value as u32 & LENGTH_MAX,
        })
    }
}

/// A slot's last message was one ring size ago, so 16 bits never confuse the two. Fresh memory is zero, which the first
/// turn of the ring does not use.
fn sequence(n: u64) -> u16 {
    (n as u16).wrapping_add(1)
}

/// Where one end sleeps, and so what wakes it. This is the value of a word while somebody sleeps; any other is taken for
/// [`Sleeper::Socket`], whose wake-up is never wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum Sleeper {
    /// It waits for a packet of the socket, perhaps among other descriptors.
    Socket = 1,
    /// It waits for a change of the word itself (`futex`), which takes half the time.
    Word = 2,
}

/// Before a sleep: announces it. The sleeper must then look once more.
pub fn doze(asleep: &AtomicU32, sleeper: Sleeper) {
    asleep.store(sleeper as u32, Ordering::SeqCst);
    fence(Ordering::SeqCst);
}

/// After the sleep, or instead of it.
pub fn rise(asleep: &AtomicU32) {
    asleep.store(0, Ordering::Relaxed);
}

/// After publishing something: the sleeper that must be woken for it, if any. One of the two fences comes first, so either
/// the sleeper sees what was published, or this end sees the sleeper.
pub fn must_wake(asleep: &AtomicU32) -> Option<Sleeper> {
    fence(Ordering::SeqCst);
    if asleep.load(Ordering::Relaxed) == 0 {
        return None;
    }
    match asleep.swap(0, Ordering::Relaxed) {
        0 => None,
        word if word == Sleeper::Word as u32 => Some(Sleeper::Word),
        _ => Some(Sleeper::Socket),
    }
}

/// Says that nothing follows. A sleeper must then be woken ([`must_wake`]).
pub fn end(ended: &AtomicU32) {
    ended.store(1, Ordering::Release);
}

/// After [`doze`], before the sleep: whether nothing follows. That is only what the peer claims.
pub fn is_ended(ended: &AtomicU32) -> bool {
    ended.load(Ordering::Acquire) != 0
}
