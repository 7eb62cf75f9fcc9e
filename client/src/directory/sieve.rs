//! Which chunk goes: SIEVE's list and hand.

use super::Tree;
use odafs_fabric::sync::Weak;

/// Whose a chunk is.
#[derive(Debug)]
pub struct Owner {
    /// Whose references it holds; gone where the file is closed.
    pub tree: Weak<Tree>,
    /// Which chunk of the file.
    pub chunk: u32,
    /// References in it.
    pub held: u32,
    older: u32,
    newer: u32,
}

/// Chunks in the order of their coming, by their owners' links, and where the hand is.
#[derive(Debug)]
pub struct Sieve {
    oldest: u32,
    newest: u32,
    /// What it looks at next; [`END`]: the oldest.
    hand: u32,
}

/// No chunk.
const END: u32 = u32::MAX;

impl Sieve {
    /// A chunk comes, as the newest.
    pub fn comes(&mut self, owners: &mut [Owner], number: u32) {
        let before = std::mem::replace(&mut self.newest, number);
        owners[number as usize].older = before;
        owners[number as usize].newer = END;
        match before {
            END => self.oldest = number,
            before => owners[before as usize].newer = number,
        }
    }

    /// A chunk goes.
    pub fn goes(&mut self, owners: &mut [Owner], number: u32) {
        let Owner { older, newer, .. } = owners[number as usize];
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
    pub fn look(&mut self, owners: &[Owner]) -> Option<u32> {
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

impl Owner {
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

impl Default for Owner {
    fn default() -> Self {
        Self::new(Weak::new(), 0)
    }
}
