//! Which frame holds which block: sets of sixteen frames, a cache line each, by tag.
//!
//! Small, so that it stays in the processor's caches while pages run through them. Anyone may look; one at a time changes.
//! What is found may hold another block: its label tells.

use odafs_fabric::{
    memory::prefetch,
    sync::atomic::{AtomicU32, Ordering::*},
};

/// Frames of one set.
const WAYS: usize = 16;
/// Frames of one set on average, when all are used: one block in 250 finds its set full then, were they spread by chance.
const LOAD: u32 = 10;

/// Frames by the hashes of what they hold.
#[derive(Debug)]
pub struct Index {
    sets: Box<[Set]>,
    /// Bits of an entry for a frame's number plus one, the low ones; the others are for the tag. 0 is no entry.
    frame_bits: u32,
}

#[derive(Debug, Default)]
#[repr(align(64))]
struct Set([AtomicU32; WAYS]);

/// What became of a frame that was to be entered.
pub enum Indexed {
    /// It is found from now on.
    Entered,
    /// It is not: the set is full of these.
    Crowded([u32; WAYS]),
}

impl Index {
    /// An index of so many frames, fewer than 2^31.
    pub fn new(frames: u32) -> Self {
        Self {
            sets: (0..=frames / LOAD).map(|_| Set::default()).collect(),
            frame_bits: u32::BITS - frames.leading_zeros(),
        }
    }

    /// Bytes that it takes for each frame.
    pub const BYTES: usize = size_of::<[u32; WAYS]>().div_ceil(LOAD as usize);

    /// The frames that may hold a block with this hash.
    #[inline]
    pub fn find(&self, hash: u64) -> impl Iterator<Item = u32> {
        let tag = self.tag(hash);
        let entries = self.set(hash).0.iter();
        entries.filter_map(move |entry| {
            // Of this tag and not empty: nothing is left but a number and one.
            let rest = entry.load(Acquire) ^ tag;
            (rest != 0 && rest >> self.frame_bits == 0).then(|| rest - 1)
        })
    }

    /// Enters a frame, if its set has room.
    pub fn insert(&self, hash: u64, frame: u32) -> Indexed {
        let entries = &self.set(hash).0;
        let empty = entries.iter().find(|entry| entry.load(Relaxed) == 0);
        let Some(entry) = empty else {
            let mask = (1 << self.frame_bits) - 1;
            let number = |entry: &AtomicU32| (entry.load(Relaxed) & mask) - 1;
            return Indexed::Crowded(entries.each_ref().map(number));
        };
        entry.store(self.tag(hash) | (frame + 1), Release);
        Indexed::Entered
    }

    /// Takes a frame out.
    pub fn remove(&self, hash: u64, frame: u32) {
        let wanted = self.tag(hash) | (frame + 1);
        let mut entries = self.set(hash).0.iter();
        if let Some(entry) = entries.find(|entry| entry.load(Relaxed) == wanted) {
            entry.store(0, Release);
        }
    }

    /// Fetches ahead what a block with this hash is entered in.
    pub fn prefetch(&self, hash: u64) {
        prefetch(self.set(hash));
    }

    #[inline]
    fn set(&self, hash: u64) -> &Set {
        let sets = self.sets.len() as u64;
        &self.sets[(((hash >> 32) * sets) >> 32) as usize]
    }

    /// The hash's tag, in its place in an entry.
    #[inline]
    fn tag(&self, hash: u64) -> u32 {
        (hash as u32) << self.frame_bits
    }
}
