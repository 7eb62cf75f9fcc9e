//! SIEVE's list and hand, which choose the chunk to evict.

use super::Tree;
use odafs_fabric::sync::Weak;

/// The owner of a chunk.
#[derive(Debug)]
pub struct ChunkOwner {
    /// The owner of the references. Gone if the file is closed.
    pub tree: Weak<Tree>,
    /// Index of the chunk in the file.
    pub chunk: u32,
    /// Number of references in the chunk.
    pub held: u32,
    older: u32,
    newer: u32,
}

/// The chunks in the order in which they came, linked through their owners, and the position of the hand.
#[derive(Debug)]
pub struct Sieve {
    oldest: u32,
    newest: u32,
    /// The chunk that the hand looks at next. [`END`]: the oldest.
    hand: u32,
}

/// No chunk.
const END: u32 = u32::MAX;

impl Sieve {
    /// Adds a chunk as the newest.
    pub fn comes(&mut self, owners: &mut [ChunkOwner], number: u32) {
        let before = std::mem::replace(&mut self.newest, number);
        owners[number as usize].older = before;
        owners[number as usize].newer = END;
        match before {
            END => self.oldest = number,
            before => owners[before as usize].newer = number,
        }
    }

    /// Removes a chunk.
    pub fn goes(&mut self, owners: &mut [ChunkOwner], number: u32) {
        let ChunkOwner { older, newer, .. } = owners[number as usize];
        match older {
            END => self.oldest = newer,
            older => owners[older as usize].newer = newer,
        }
        match newer {
            END => self.newest = older,
            newer => owners[newer as usize].older = older,
        }
        if self.hand == number {
            self.hand = newer;
        }
    }

    /// The chunk under the hand, which moves on to a newer one.
    pub fn look(&mut self, owners: &[ChunkOwner]) -> Option<u32> {
        let at = if self.hand == END {
            self.oldest
        } else {
            self.hand
        };
        self.hand = owners.get(at as usize)?.newer;
        Some(at)
    }
}

impl Default for Sieve {
    fn default() -> Self {
        Self {
            oldest: END,
            newest: END,
            hand: END,
        }
    }
}

impl ChunkOwner {
    /// A chunk of a file, without references yet.
    pub fn new(tree: Weak<Tree>, chunk: u32) -> Self {
        Self {
            tree,
            chunk,
            held: 0,
            older: END,
            newer: END,
        }
    }
}

impl Default for ChunkOwner {
    fn default() -> Self {
        Self::new(Weak::new(), 0)
    }
}
