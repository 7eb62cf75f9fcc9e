//! The words of a ring that both ends touch, on bare atomics, as loom explores them.

use super::atomic::{AtomicU32, AtomicU64, Ordering, fence};

/// The first word of a slot: it becomes that of message number `n` (counted from 0) when the
/// message is complete.
///
/// ```text
///   63..32  n + 1, modulo 2^32      31..24  kind      23..0  length
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    pub kind: u8,
    pub length: u32,
}

/// Longest message that a header can tell of.
pub const LENGTH_MAX: u32 = (1 << 24) - 1;

impl Header {
    /// Makes message `n`, whose bytes are there, visible.
    #[inline]
    pub fn publish(self, word: &AtomicU64, n: u64) {
        let value =
            u64::from(sequence(n)) << 32 | u64::from(self.kind) << 24 | u64::from(self.length);
        word.store(value, Ordering::Release);
    }

    /// Message `n`, if it is there. Kind and length are the peer's word, and no more.
    #[inline]
    pub fn of(word: &AtomicU64, n: u64) -> Option<Header> {
        let value = word.load(Ordering::Acquire);
        let there = (value >> 32) as u32 == sequence(n);
        there.then_some(Header {
            kind: (value >> 24) as u8,
            length: value as u32 & LENGTH_MAX,
        })
    }
}

/// A slot's last message was some ring sizes ago, so 32 bits never confuse the two. Fresh
/// memory is zero, which the first turn of the ring does not use.
fn sequence(n: u64) -> u32 {
    (n as u32).wrapping_add(1)
}

/// Before a sleep: says so, then the sleeper has to look once more.
pub fn doze(asleep: &AtomicU32) {
    asleep.store(1, Ordering::SeqCst);
    fence(Ordering::SeqCst);
}

/// After the sleep, or instead of it.
pub fn rise(asleep: &AtomicU32) {
    asleep.store(0, Ordering::Relaxed);
}

/// After something was made visible: whether a sleeper has to be woken for it. Of the two
/// fences one is first: either the sleeper sees what was made visible, or we see the sleeper.
pub fn must_wake(asleep: &AtomicU32) -> bool {
    fence(Ordering::SeqCst);
    asleep.load(Ordering::Relaxed) != 0 && asleep.swap(0, Ordering::Relaxed) != 0
}
