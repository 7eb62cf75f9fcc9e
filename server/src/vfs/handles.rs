//! File handles that were seen lately, so that a call costs no MAC and no look at the store.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};

use odafs_fabric::sync::{Arc, RwLock, Weak};

use crate::store::ObjectId;
use crate::vfs::file::File;

/// The meaning of a verified handle.
#[derive(Clone)]
pub(crate) enum Known {
    /// A live regular file.
    File(Weak<File>),
    /// Another object, or a file that is not live.
    Object(ObjectId),
}

/// A bounded table of verified handles.
pub(crate) struct Handles {
    shards: [RwLock<Generations>; Handles::SHARDS],
}

/// If there are too many young handles, the old ones are dropped and the young ones become old.
#[derive(Default)]
struct Generations {
    young: Table,
    old: Table,
}

/// Handles get in only after their MAC was checked. They end with the MAC, so no client can choose their place.
type Table = HashMap<Box<[u8]>, Known, BuildHasherDefault<Fold>>;

impl Handles {
    const SHARDS: usize = 16;
    /// The most young handles of a shard, which has at most as many old ones.
    const YOUNG_MAX: usize = 4096;

    pub(crate) fn new() -> Self {
        Self {
            shards: std::array::from_fn(|_| RwLock::default()),
        }
    }

    fn shard(&self, handle: &[u8]) -> &RwLock<Generations> {
        let mut fold = Fold::default();
        fold.write(handle);
        &self.shards[(fold.finish() >> 60) as usize % Self::SHARDS]
    }

    /// The meaning of a handle that was seen lately.
    pub(crate) fn get(&self, handle: &[u8]) -> Option<Known> {
        let shard = self.shard(handle);
        let generations = shard.read();
        if let Some(known) = generations.young.get(handle) {
            return Some(known.clone());
        }
        let known = generations.old.get(handle)?.clone();
        drop(generations);
        self.insert(handle, known.clone());
        Some(known)
    }

    /// The live file of a handle that was seen lately.
    pub(crate) fn file(&self, handle: &[u8]) -> Option<Arc<File>> {
        {
            let generations = self.shard(handle).read();
            if let Some(Known::File(file)) = generations.young.get(handle) {
                return file.upgrade();
            }
        }
        match self.get(handle)? {
            Known::File(file) => file.upgrade(),
            Known::Object(_) => None,
        }
    }

    /// Remembers a verified handle.
    pub(crate) fn insert(&self, handle: &[u8], known: Known) {
        let mut generations = self.shard(handle).write();
        if generations.young.len() >= Self::YOUNG_MAX {
            generations.old = std::mem::take(&mut generations.young);
        }
        generations.young.insert(handle.into(), known);
    }

    /// Forgets a handle.
    pub(crate) fn remove(&self, handle: &[u8]) {
        let mut generations = self.shard(handle).write();
        generations.young.remove(handle);
        generations.old.remove(handle);
    }
}

/// Takes the last words and folds them together by multiplication.
#[derive(Default)]
struct Fold(u64);

impl Hasher for Fold {
    fn write(&mut self, bytes: &[u8]) {
        let (_, words) = bytes.as_rchunks::<8>();
        for word in words.iter().rev().take(2) {
            let wide = u128::from(self.0 ^ u64::from_le_bytes(*word) ^ 0x243F_6A88_85A3_08D3)
                * 0x9E37_79B9_7F4A_7C15;
            self.0 = (wide >> 64) as u64 ^ wide as u64;
        }
    }

    /// All handles are about as long.
    fn write_usize(&mut self, _: usize) {}

    fn finish(&self) -> u64 {
        self.0
    }
}
