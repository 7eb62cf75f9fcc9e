//! The translation and protection table: what the NIC knows about the pages that were handed out (paper 004, IV-A.2).
//!
//! A set-associative cache of bounded size. Readers take no lock; writers lock the stripe of the set. A miss is never
//! wrong, only slower, because the host's VM module has the last word. A stale entry does no harm either: the frame's
//! stamp has moved past its epoch.

mod slot;

use odafs_common::reference::{AccessKey, Epoch, Handle};
use odafs_fabric::memory::{FrameNumber, collapse, prefetch};
use odafs_fabric::sync::Mutex;

use crate::capability::ReaderClass;
use slot::{Found, Slot, WORDS};

/// The table's entry for a handle.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TptEntry {
    /// The frame that contains it.
    pub frame: FrameNumber,
    /// Arena offset of the first byte covered.
    pub address: u64,
    /// Number of valid bytes from there, never beyond the frame's end.
    pub length: u32,
    /// Access key.
    pub key: AccessKey,
    /// Epoch at which, with the page's lock held, frame and content were seen to belong together.
    pub epoch: Epoch,
    /// The readers.
    pub class: ReaderClass,
}

impl TptEntry {
    fn to_words(self) -> [u64; WORDS] {
        [
            u64::from(self.frame.0) << 32 | u64::from(self.length),
            self.key.0,
            self.epoch.0,
            self.address,
            u64::from(self.class.0),
        ]
    }

    fn from_words(words: [u64; WORDS]) -> TptEntry {
        TptEntry {
            frame: FrameNumber((words[0] >> 32) as u32),
            length: words[0] as u32,
            key: AccessKey(words[1]),
            epoch: Epoch(words[2]),
            address: words[3],
            class: ReaderClass(words[4] as u32),
        }
    }
}

/// The table.
pub struct Tpt {
    ways: usize,
    set_mask: usize,
    set_shift: u32,
    slots: Box<[Slot]>,
    /// The writers' locks of the sets `n % STRIPES`. Each contains the CLOCK hand.
    stripes: Box<[Mutex<usize>]>,
}

impl Tpt {
    const STRIPES: usize = 64;

    /// A table of `entries` slots (rounded up to a power of two) in sets of `ways` (likewise).
    pub fn new(entries: usize, ways: usize) -> Tpt {
        let ways = ways.max(1).next_power_of_two();
        let entries = entries.max(ways).next_power_of_two();
        let sets = entries / ways;
        let slots: Box<[Slot]> = (0..entries).map(|_| Slot::empty()).collect();
        collapse(&slots);
        Tpt {
            ways,
            set_mask: sets - 1,
            set_shift: sets.trailing_zeros(),
            slots,
            stripes: (0..Self::STRIPES.min(sets))
                .map(|_| Mutex::new(0))
                .collect(),
        }
    }

    /// Number of slots.
    pub fn capacity(&self) -> usize {
        self.slots.len()
    }

    /// Tag 0 means empty, so a handle's tag is one more.
    fn tag(handle: Handle) -> u64 {
        u64::from(handle.0) + 1
    }

    /// First slot of the handle's set, and the way to look at first. Handles are dense numbers, so plain bits spread
    /// them evenly over sets and ways, and a table with room for all finds each at its first look.
    fn place(&self, handle: Handle) -> (usize, usize) {
        let handle = handle.0 as usize;
        (
            (handle & self.set_mask) * self.ways,
            (handle >> self.set_shift) & (self.ways - 1),
        )
    }

    fn stripe(&self, base: usize) -> &Mutex<usize> {
        &self.stripes[(base / self.ways) & (self.stripes.len() - 1)]
    }

    /// The slots of a set, beginning with the handle's own.
    fn set(&self, (base, first): (usize, usize)) -> impl Iterator<Item = usize> + use<> {
        let mask = self.ways - 1;
        (0..self.ways).map(move |i| base + ((first + i) & mask))
    }

    /// Prefetches the line that most likely has the entry of `handle`.
    #[inline]
    pub fn prefetch(&self, handle: Handle) {
        let (base, first) = self.place(handle);
        prefetch(&self.slots[base + first]);
    }

    /// The entry of `handle`.
    pub fn lookup(&self, handle: Handle) -> Option<TptEntry> {
        let tag = Self::tag(handle);
        for at in self.set(self.place(handle)) {
            match self.slots[at].read(tag) {
                Found::Entry(words) => return Some(TptEntry::from_words(words)),
                Found::Other => {}
                Found::Unsettled => return None,
            }
        }
        None
    }

    /// `tpt_enter`: adds the entry, or replaces the handle's older one. If the set is full, evicts one that was not
    /// used lately. A younger entry of the handle stays, because it has overtaken the caller.
    pub fn enter(&self, handle: Handle, entry: TptEntry) {
        let (base, first) = self.place(handle);
        let tag = Self::tag(handle);
        let mut hand = self.stripe(base).lock();
        let held = self
            .set((base, first))
            .find(|&at| self.slots[at].tag() == tag);
        if held.is_some_and(|at| TptEntry::from_words(self.slots[at].words()).epoch > entry.epoch) {
            return;
        }
        let at = held
            .or_else(|| {
                self.set((base, first))
                    .find(|&at| self.slots[at].tag() == 0)
            })
            .unwrap_or_else(|| self.victim(base, &mut hand));
        // A newcomer comes unmarked, so that a scan of pages read once does not drive out those read often.
        self.slots[at].write(tag, entry.to_words());
    }

    /// CLOCK over the set: passes over what is marked, once.
    fn victim(&self, base: usize, hand: &mut usize) -> usize {
        for _ in 0..2 * self.ways {
            let at = base + (*hand & (self.ways - 1));
            *hand = hand.wrapping_add(1);
            if !self.slots[at].unmark() {
                return at;
            }
        }
        base + (*hand & (self.ways - 1))
    }

    /// `tpt_remove`: forgets the handle.
    pub fn remove(&self, handle: Handle) {
        let place = self.place(handle);
        let _stripe = self.stripe(place.0).lock();
        let tag = Self::tag(handle);
        if let Some(at) = self.set(place).find(|&at| self.slots[at].tag() == tag) {
            self.slots[at].write(0, [0; WORDS]);
        }
    }

    /// `tpt_protect`: changes who may read what the handle covers.
    pub fn protect(&self, handle: Handle, class: ReaderClass) {
        let place = self.place(handle);
        let _stripe = self.stripe(place.0).lock();
        let tag = Self::tag(handle);
        if let Some(at) = self.set(place).find(|&at| self.slots[at].tag() == tag) {
            let entry = TptEntry {
                class,
                ..TptEntry::from_words(self.slots[at].words())
            };
            self.slots[at].write(tag, entry.to_words());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(n: u32, epoch: u64) -> TptEntry {
        TptEntry {
            frame: FrameNumber(n),
            address: u64::from(n) << 12,
            length: 4096,
            key: AccessKey(u64::from(n) * 7),
            epoch: Epoch(epoch),
            class: ReaderClass(n % 5),
        }
    }

    #[test]
    fn enter_lookup_protect_remove() {
        let tpt = Tpt::new(64, 4);
        for n in 0..64 {
            tpt.enter(Handle(n), entry(n, 1));
        }
        for n in 0..64 {
            assert_eq!(
                tpt.lookup(Handle(n)),
                Some(entry(n, 1)),
                "dense handles fill every slot"
            );
        }
        tpt.protect(Handle(9), ReaderClass(77));
        assert_eq!(
            tpt.lookup(Handle(9)),
            Some(TptEntry {
                class: ReaderClass(77),
                ..entry(9, 1)
            })
        );
        tpt.remove(Handle(9));
        assert_eq!(tpt.lookup(Handle(9)), None);
        tpt.remove(Handle(9));
        tpt.protect(Handle(9), ReaderClass(1));
        assert_eq!(tpt.lookup(Handle(9)), None);
        assert_eq!(tpt.lookup(Handle(u32::MAX)), None);
        tpt.enter(Handle(u32::MAX), entry(3, 1));
        assert_eq!(tpt.lookup(Handle(u32::MAX)), Some(entry(3, 1)));
    }

    #[test]
    fn an_older_entry_never_replaces_a_younger_one() {
        let tpt = Tpt::new(8, 4);
        tpt.enter(Handle(1), entry(1, 5));
        tpt.enter(Handle(1), entry(2, 4));
        assert_eq!(tpt.lookup(Handle(1)), Some(entry(1, 5)));
        tpt.enter(Handle(1), entry(3, 5));
        assert_eq!(tpt.lookup(Handle(1)), Some(entry(3, 5)));
    }

    #[test]
    fn a_full_set_gives_up_what_was_not_used() {
        let tpt = Tpt::new(4, 4);
        for n in 0..4 {
            tpt.enter(Handle(n), entry(n, 1));
        }
        tpt.enter(Handle(4), entry(4, 1));
        let gone: Vec<u32> = (0..4)
            .filter(|&n| tpt.lookup(Handle(n)).is_none())
            .collect();
        assert_eq!(gone.len(), 1, "one made room");
        tpt.enter(Handle(5), entry(5, 1));
        assert_eq!(
            (0..6).filter(|&n| tpt.lookup(Handle(n)).is_some()).count(),
            4,
            "the size is bounded"
        );
        assert!(tpt.lookup(Handle(5)).is_some());
    }

    #[test]
    fn used_entries_outlive_unused_ones() {
        let tpt = Tpt::new(4, 4);
        for n in 0..4 {
            tpt.enter(Handle(n), entry(n, 1));
        }
        for n in 4..100 {
            assert!(
                tpt.lookup(Handle(3)).is_some(),
                "used, and kept while {n} entered"
            );
            tpt.enter(Handle(n), entry(n, 1));
        }
        assert!(tpt.lookup(Handle(1)).is_none(), "not used, and gone");
    }

    #[test]
    fn sizes_are_rounded() {
        assert_eq!(Tpt::new(0, 0).capacity(), 1);
        assert_eq!(Tpt::new(5, 3).capacity(), 8);
    }
}
