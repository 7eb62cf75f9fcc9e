//! The index: which frame holds which block. It has sets of sixteen frames, a cache line each, searched by tag.
//!
//! The index is small, so that it stays in the processor's caches while pages run through them. Anyone may read it, and
//! one thread at a time changes it. A frame that is found may hold another block; its label tells.

use odafs_fabric::{
    memory::prefetch,
    sync::atomic::{AtomicU32, Ordering::*},
};

/// Number of frames in a set.
const WAYS: usize = 16;
/// Average number of frames in a set when all are used. With random hashes, one block in 250 then finds its set full.
const LOAD: u32 = 10;

/// Frames by the hashes of their blocks.
#[derive(Debug)]
pub struct Index {
    sets: Box<[Set]>,
    /// Number of low bits of an entry, for the number of a frame plus one. The other bits are the tag. 0 is no entry.
    frame_bits: u32,
}

#[derive(Debug, Default)]
#[repr(align(64))]
struct Set([AtomicU32; WAYS]);

/// The result of entering a frame.
pub enum Indexed {
    /// The frame can be found from now on.
    Entered,
    /// The frame was not entered, because its set is full of these.
    Crowded([u32; WAYS]),
}

impl Index {
    /// An index for this many frames, fewer than 2^31.
    pub fn new(frames: u32) -> Self {
        Self {
            sets: (0..=frames / LOAD).map(|_| Set::default()).collect(),
            frame_bits: u32::BITS - frames.leading_zeros(),
        }
    }

    /// Bytes of the index for each frame.
    pub const BYTES: usize = size_of::<[u32; WAYS]>().div_ceil(LOAD as usize);

    /// The frames that may hold a block with this hash.
    #[inline]
    pub fn find(&self, hash: u64) -> impl Iterator<Item = u32> {
        let tag = self.tag(hash);
        let entries = self.set(hash).0.iter();
        entries.filter_map(move |entry| {
            // The entry has the tag and is not empty, so what remains is the number plus one.
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

    /// Removes a frame.
    pub fn remove(&self, hash: u64, frame: u32) {
        let wanted = self.tag(hash) | (frame + 1);
        let mut entries = self.set(hash).0.iter();
        if let Some(entry) = entries.find(|entry| entry.load(Relaxed) == wanted) {
            entry.store(0, Release);
        }
    }

    /// Prefetches the set of a block with this hash.
    pub fn prefetch(&self, hash: u64) {
        prefetch(self.set(hash));
    }

    #[inline]
    fn set(&self, hash: u64) -> &Set {
        let sets = self.sets.len() as u64;
        &self.sets[(((hash >> 32) * sets) >> 32) as usize]
    }

    /// The tag of the hash, at its place in an entry.
    #[inline]
    fn tag(&self, hash: u64) -> u32 {
        (hash as u32) << self.frame_bits
    }
}
