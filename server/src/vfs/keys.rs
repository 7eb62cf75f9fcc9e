//! Access keys: random numbers, which come from the system in batches.

use odafs_common::reference::AccessKey;
use odafs_fabric::entropy;
use odafs_fabric::sync::Mutex;

/// Makes access keys.
#[derive(Default)]
pub(crate) struct Keys {
    drawn: Mutex<Vec<u8>>,
}

impl Keys {
    const LOT_BYTES: usize = 2048;
    const KEY_BYTES: usize = 8;

    /// A fresh key.
    pub(crate) fn next(&self) -> AccessKey {
        let mut drawn = self.drawn.lock();
        if drawn.len() < Self::KEY_BYTES {
            drawn.resize(Self::LOT_BYTES, 0);
            entropy::fill(&mut drawn);
        }
        let at = drawn.len() - Self::KEY_BYTES;
        let key = u64::from_le_bytes(std::array::from_fn(|i| drawn[at + i]));
        drawn.truncate(at);
        AccessKey(key)
    }
}
