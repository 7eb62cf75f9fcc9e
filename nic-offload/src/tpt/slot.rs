//! One slot of the TPT: a cache line under a sequence lock.
//!
//! ```text
//! writer (alone: the set's lock is held)      reader (no lock)
//!   sequence := odd                             before := sequence   (acquire; odd: a writer is at it)
//!   release fence                               copy the words       (relaxed)
//!   words := ...          (relaxed)             acquire fence
//!   sequence := even      (release)             sequence = before: the copy is of one piece
//! ```

#[cfg(loom)]
use loom::sync::atomic::{AtomicU64, Ordering, fence};
#[cfg(not(loom))]
use odafs_fabric::sync::atomic::{AtomicU64, Ordering, fence};

/// Words of payload in a slot.
pub(super) const WORDS: usize = if cfg!(loom) { 2 } else { 5 };

/// What a slot was found to hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Found {
    /// The entry with the tag that was asked for.
    Entry([u64; WORDS]),
    /// Another entry, or none.
    Other,
    /// A writer was at work, each time that it was tried.
    Unsettled,
}

/// A tag and a payload that change together. Tag 0: empty.
#[repr(align(64))]
pub(super) struct Slot {
    sequence: AtomicU64,
    tag: AtomicU64,
    words: [AtomicU64; WORDS],
    /// Used since the CLOCK hand last passed. Not under the sequence lock.
    mark: AtomicU64,
}

impl Slot {
    /// Tries before a reader gives up. A writer needs a few nanoseconds; one that was descheduled may need long, and
    /// the reader has the slow path to take meanwhile.
    const TRIES: usize = 16;

    pub(super) fn empty() -> Slot {
        Slot {
            sequence: AtomicU64::new(0),
            tag: AtomicU64::new(0),
            words: std::array::from_fn(|_| AtomicU64::new(0)),
            mark: AtomicU64::new(0),
        }
    }

    /// Marks the slot as used. A mark that is there is only read: the line stays shared among the readers.
    pub(super) fn mark(&self) {
        if self.mark.load(Ordering::Relaxed) == 0 {
            self.mark.store(1, Ordering::Relaxed);
        }
    }

    /// Takes the mark away; was there one?
    #[cfg(not(loom))]
    pub(super) fn unmark(&self) -> bool {
        self.mark.swap(0, Ordering::Relaxed) != 0
    }

    /// The payload, if the slot holds `tag`.
    pub(super) fn read(&self, tag: u64) -> Found {
        for _ in 0..Self::TRIES {
            let before = self.sequence.load(Ordering::Acquire);
            if before & 1 != 0 {
                #[cfg(loom)]
                loom::thread::yield_now();
                continue;
            }
            if self.tag.load(Ordering::Relaxed) != tag {
                // Perhaps torn, then it is a miss: always safe, and cheaper than looking twice.
                return Found::Other;
            }
            let words = std::array::from_fn(|i| self.words[i].load(Ordering::Relaxed));
            fence(Ordering::Acquire);
            if self.sequence.load(Ordering::Relaxed) == before {
                self.mark();
                return Found::Entry(words);
            }
        }
        Found::Unsettled
    }

    /// The tag. The caller holds the lock of the set.
    #[cfg(not(loom))]
    pub(super) fn tag(&self) -> u64 {
        self.tag.load(Ordering::Relaxed)
    }

    /// The payload. The caller holds the lock of the set.
    #[cfg(not(loom))]
    pub(super) fn words(&self) -> [u64; WORDS] {
        std::array::from_fn(|i| self.words[i].load(Ordering::Relaxed))
    }

    /// Replaces tag and payload. The caller holds the lock of the set.
    pub(super) fn write(&self, tag: u64, words: [u64; WORDS]) {
        let sequence = self.sequence.load(Ordering::Relaxed);
        self.sequence
            .store(sequence.wrapping_add(1), Ordering::Relaxed);
        fence(Ordering::Release);
        self.tag.store(tag, Ordering::Relaxed);
        for (word, value) in self.words.iter().zip(words) {
            word.store(value, Ordering::Relaxed);
        }
        self.sequence
            .store(sequence.wrapping_add(2), Ordering::Release);
    }
}

#[cfg(all(test, loom))]
mod tests {
    use super::*;
    use loom::sync::Arc;
    use loom::thread;

    fn payload(n: u64) -> [u64; WORDS] {
        std::array::from_fn(|i| n * 10 + i as u64)
    }

    #[test]
    fn a_reader_never_sees_a_mixture() {
        loom::model(|| {
            let slot = Arc::new(Slot::empty());
            slot.write(1, payload(1));
            let writer = {
                let slot = Arc::clone(&slot);
                thread::spawn(move || slot.write(1, payload(2)))
            };
            match slot.read(1) {
                Found::Entry(words) => assert!(words == payload(1) || words == payload(2)),
                Found::Other => panic!("both have the tag"),
                Found::Unsettled => {}
            }
            writer.join().unwrap();
            assert_eq!(slot.read(1), Found::Entry(payload(2)));
        });
    }

    #[test]
    fn a_replaced_entry_is_never_found_under_the_old_tag_with_the_new_words() {
        loom::model(|| {
            let slot = Arc::new(Slot::empty());
            slot.write(1, payload(1));
            let writer = {
                let slot = Arc::clone(&slot);
                thread::spawn(move || slot.write(2, payload(2)))
            };
            if let Found::Entry(words) = slot.read(1) {
                assert_eq!(words, payload(1));
            }
            if let Found::Entry(words) = slot.read(2) {
                assert_eq!(words, payload(2));
            }
            writer.join().unwrap();
            assert_eq!(slot.read(1), Found::Other);
        });
    }

    #[test]
    fn what_was_published_is_found() {
        loom::model(|| {
            let slot = Arc::new(Slot::empty());
            let flag = Arc::new(AtomicU64::new(0));
            let writer = {
                let (slot, flag) = (Arc::clone(&slot), Arc::clone(&flag));
                thread::spawn(move || {
                    slot.write(3, payload(3));
                    flag.store(1, Ordering::Release);
                })
            };
            if flag.load(Ordering::Acquire) == 1 {
                assert_eq!(slot.read(3), Found::Entry(payload(3)));
            }
            writer.join().unwrap();
        });
    }
}
