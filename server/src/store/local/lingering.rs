//! Files that are still open for writing though they are synced.
//!
//! The kernel lets nobody execute a file that is open for writing. But to close a file and to open it again costs more than a
//! small write, and each close is an event for whoever watches the file. So a file that nobody may execute stays open for a
//! moment, for the next write.

use std::num::NonZeroUsize;

use lru::LruCache;
use odafs_fabric::clock::Nanos;
use odafs_fabric::sync::Mutex;

use crate::store::ObjectId;

/// How long after its last sync a file is closed.
const MOMENT: Nanos = Nanos::from_secs(2);

/// The most files that stay open so at a time.
const FILES_MAX: NonZeroUsize = NonZeroUsize::new(1024).unwrap();

/// The objects that stay open, and when each was last synced.
pub(super) struct Lingering(Mutex<LruCache<ObjectId, Nanos>>);

impl Lingering {
    /// At most so many stay open at a time, and no more than 1,024.
    pub fn new(max: NonZeroUsize) -> Self {
        Self(Mutex::new(LruCache::new(max.min(FILES_MAX))))
    }

    /// Notes that an object was synced. Returns another one if that is to be closed instead.
    pub fn begin(&self, object: ObjectId, now: Nanos) -> Option<ObjectId> {
        let pushed_out = self.0.lock().push(object, now);
        pushed_out.map(|(out, _)| out).filter(|out| *out != object)
    }

    /// Forgets an object that is closed.
    pub fn end(&self, object: ObjectId) {
        self.0.lock().pop(&object);
    }

    /// Takes an object whose moment is over.
    pub fn take_due(&self, now: Nanos) -> Option<ObjectId> {
        let mut synced = self.0.lock();
        let (_, oldest) = synced.peek_lru()?;
        if now.since(*oldest) < MOMENT {
            return None;
        }
        synced.pop_lru().map(|(object, _)| object)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_is_closed_a_moment_after_its_last_sync_or_for_others() {
        let lingering = Lingering::new(NonZeroUsize::MIN.saturating_add(1));
        let object = |ino| ObjectId { ino, generation: 1 };
        let at = Nanos::from_secs;
        assert_eq!(lingering.begin(object(1), at(10)), None);
        assert_eq!(lingering.begin(object(2), at(11)), None);
        assert_eq!(lingering.begin(object(1), at(12)), None, "again");
        assert_eq!(lingering.take_due(at(12)), None);
        assert_eq!(lingering.take_due(at(13)), Some(object(2)));
        assert_eq!(lingering.take_due(at(13)), None);
        assert_eq!(lingering.begin(object(3), at(13)), None);
        assert_eq!(lingering.begin(object(4), at(13)), Some(object(1)));
        lingering.end(object(3));
        assert_eq!(lingering.take_due(at(20)), Some(object(4)));
        assert_eq!(lingering.take_due(at(20)), None);
    }
}
