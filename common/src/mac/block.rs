//! Keyed BLAKE3 of exactly one block, which every request is: one compression and nothing around it.
//!
//! The crate's own function keeps a state for messages of any length, and compresses with one row of the state in each
//! vector, where every step waits for the one before it. Plain registers hold four independent columns instead, which
//! takes half the time.

use super::{TAG_BYTES, Tag};
use blake3::platform::Platform;
use zeroize::Zeroize;

/// Bytes of a block.
pub(super) const BLOCK_BYTES: usize = blake3::BLOCK_LEN;

/// The flags of a message that is one block under a key (BLAKE3, table 3): it begins and ends a chunk, is the root, is keyed.
const FLAGS: u8 = 1 | 2 | 8 | 16;

/// A key as the compression takes it. Wiped from memory when dropped.
#[derive(Clone)]
pub(super) struct BlockKey([u32; 8]);

impl BlockKey {
    pub(super) fn new(key: &[u8; 32]) -> Self {
        Self(blake3::platform::words_from_le_bytes_32(key))
    }

    /// The first bytes of the keyed hash.
    #[inline]
    pub(super) fn tag(&self, block: &[u8; BLOCK_BYTES]) -> Tag {
        let mut words = self.0;
        Platform::Portable.compress_in_place(&mut words, block, BLOCK_BYTES as u8, 0, FLAGS);
        let mut tag = [0; TAG_BYTES];
        for (bytes, word) in tag.chunks_exact_mut(4).zip(words) {
            bytes.copy_from_slice(&word.to_le_bytes());
        }
        tag
    }
}

impl Drop for BlockKey {
    fn drop(&mut self) {
        self.0.zeroize();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn a_block_has_the_tag_that_the_crate_gives_it(key: [u8; 32], block: [u8; 64]) {
            let whole = blake3::keyed_hash(&key, &block);
            prop_assert_eq!(&BlockKey::new(&key).tag(&block)[..], &whole.as_bytes()[..TAG_BYTES]);
        }
    }
}
