//! Open files: as many as the process may have, the least recently used closed first.

use std::collections::BTreeSet;
use std::num::NonZeroUsize;
use std::os::fd::{AsFd, AsRawFd as _, BorrowedFd, OwnedFd};

use lru::LruCache;
use odafs_common::wire::nfs3::{FileType, Status};
use odafs_fabric::sync::atomic::{AtomicBool, Ordering};
use odafs_fabric::sync::{Arc, Mutex};
use rustix::fs::fdatasync;
use rustix::io::{self, Errno};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use crate::store::{ObjectId, Result};

/// What a descriptor is good for. Each is good for what the ones before it are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Use {
    /// Naming the object (`O_PATH`).
    Path,
    /// Reading and syncing.
    Read,
    /// Writing.
    Write,
}

/// An open object.
pub(super) struct Descriptor {
    fd: OwnedFd,
    pub kind: FileType,
    pub good_for: Use,
    /// Bytes were written through it that no sync has covered.
    unsynced: AtomicBool,
    /// Held from a sync until its failure is known to whoever must know. The kernel tells it once.
    syncing: Mutex<()>,
}

impl Descriptor {
    pub fn new(fd: OwnedFd, kind: FileType, good_for: Use) -> Arc<Self> {
        Arc::new(Self {
            fd,
            kind,
            good_for,
            unsynced: AtomicBool::new(false),
            syncing: Mutex::new(()),
        })
    }

    /// A path that leads to the very object, whatever its names are by now.
    pub fn magic_path(&self) -> String {
        magic_path(self.fd.as_fd())
    }

    pub fn mark_unsynced(&self) {
        self.unsynced.store(true, Ordering::Relaxed);
    }

    /// Whether a sync is due; it is taken for done.
    fn take_unsynced(&self) -> bool {
        self.unsynced.swap(false, Ordering::Relaxed)
    }
}

impl AsFd for Descriptor {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

/// `/proc/self/fd/N`: opening it opens the descriptor's object anew.
pub(super) fn magic_path(fd: BorrowedFd<'_>) -> String {
    format!("/proc/self/fd/{}", fd.as_raw_fd())
}

/// The open objects of a store.
pub(super) struct Descriptors {
    open: Mutex<LruCache<ObjectId, Arc<Descriptor>>>,
    /// Objects of which a descriptor was closed with bytes that could not be synced. Their next sync must fail.
    lost: Mutex<BTreeSet<ObjectId>>,
}

impl Descriptors {
    pub fn new(capacity: usize) -> Self {
        let capacity = NonZeroUsize::new(capacity).unwrap_or(NonZeroUsize::MIN);
        Self {
            open: Mutex::new(LruCache::new(capacity)),
            lost: Mutex::new(BTreeSet::new()),
        }
    }

    pub fn find(&self, object: ObjectId, wanted: Use) -> Option<Arc<Descriptor>> {
        let mut open = self.open.lock();
        open.get(&object)
            .filter(|descriptor| descriptor.good_for >= wanted)
            .cloned()
    }

    /// Keeps a descriptor, unless one as good is there already.
    pub fn keep(&self, object: ObjectId, descriptor: &Arc<Descriptor>) {
        let mut open = self.open.lock();
        if open
            .peek(&object)
            .is_some_and(|known| known.good_for >= descriptor.good_for)
        {
            return;
        }
        let closed = open.push(object, descriptor.clone());
        drop(open);
        self.close(closed);
    }

    /// Closes the descriptor of an object that is gone; nothing needs to be synced.
    pub fn forget(&self, object: ObjectId) {
        let closed = self.open.lock().pop(&object);
        drop(closed);
    }

    /// Closes the descriptor of an object.
    pub fn release(&self, object: ObjectId) {
        let closed = self.open.lock().pop(&object);
        self.close(closed.map(|descriptor| (object, descriptor)));
    }

    /// Closes half of all, the least recently used ones: someone needs descriptors.
    pub fn shrink(&self) {
        let count = self.open.lock().len().div_ceil(2);
        for _ in 0..count {
            let closed = self.open.lock().pop_lru();
            self.close(closed);
        }
    }

    /// The kernel reports a write that failed later on to the descriptors of the time. So one with unsynced
    /// bytes is synced before it is closed.
    fn close(&self, closed: Option<(ObjectId, Arc<Descriptor>)>) {
        if let Some((object, descriptor)) = closed
            && descriptor.take_unsynced()
        {
            // Kept for who will ask.
            let _ = self.sync_unasked(object, &descriptor, |file| fdatasync(file));
        }
    }

    /// Syncs bytes that nobody has asked about. A failure is kept for the next [`Self::sync`], even for one that is
    /// under way.
    pub fn sync_unasked(
        &self,
        object: ObjectId,
        descriptor: &Descriptor,
        how: impl FnOnce(BorrowedFd<'_>) -> io::Result<()>,
    ) -> io::Result<()> {
        let _one = descriptor.syncing.lock();
        how(descriptor.as_fd()).inspect_err(|_| {
            self.lost.lock().insert(object);
        })
    }

    /// Syncs what was written to an object, and fails as well if some of it was lost before; that is said once.
    pub fn sync(
        &self,
        object: ObjectId,
        descriptor: &Descriptor,
        how: impl FnOnce(BorrowedFd<'_>) -> io::Result<()>,
    ) -> io::Result<()> {
        let _one = descriptor.syncing.lock();
        descriptor.take_unsynced();
        let synced = how(descriptor.as_fd());
        let lost = self.lost.lock().remove(&object);
        synced.and(if lost { Err(Errno::IO) } else { Ok(()) })
    }

    /// Runs `open`, once more with half of the descriptors closed if there were none left.
    pub fn with_room<T>(&self, open: impl Fn() -> Result<T>) -> Result<T> {
        match open() {
            Err(refused) if refused.status == Status::Jukebox => {
                self.shrink();
                open()
            }
            result => result,
        }
    }
}

/// Allows this process as many open files as it may allow itself, and says how many a store should keep open:
/// half of them, since connections and the files of calls under way need some too.
pub(super) fn raise_open_file_limit() -> usize {
    let limit = getrlimit(Resource::Nofile);
    let raised = Rlimit {
        current: limit.maximum,
        maximum: limit.maximum,
    };
    let current = match setrlimit(Resource::Nofile, raised) {
        Ok(()) => limit.maximum,
        Err(_) => limit.current,
    };
    let half = current.map_or(u64::MAX, |files| files / 2);
    usize::try_from(half)
        .unwrap_or(usize::MAX)
        .clamp(16, 32_768)
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;
    use std::time::Duration;

    use super::*;

    const OBJECT: ObjectId = ObjectId {
        ino: 1,
        generation: 1,
    };

    #[test]
    fn a_sync_beside_one_that_fails_knows_of_it() {
        let file = tempfile::tempfile().expect("a file").into();
        let descriptor = Descriptor::new(file, FileType::Regular, Use::Write);
        let descriptors = &Descriptors::new(16);
        let descriptor = &descriptor;
        let (say, hear) = mpsc::channel();
        let asked = std::thread::scope(|scope| {
            let asked = scope.spawn(move || {
                hear.recv().expect("the other has begun");
                descriptors.sync(OBJECT, descriptor, |_| Ok(()))
            });
            let failed = descriptors.sync_unasked(OBJECT, descriptor, |_| {
                // The kernel has told us: it will tell nobody else.
                say.send(()).expect("the other waits");
                std::thread::sleep(Duration::from_millis(100));
                Err(Errno::IO)
            });
            assert_eq!(failed, Err(Errno::IO));
            asked.join().expect("no panic")
        });
        assert_eq!(asked, Err(Errno::IO));
        let again = descriptors.sync(OBJECT, descriptor, |_| Ok(()));
        assert_eq!(again, Ok(()), "said once");
    }
}
