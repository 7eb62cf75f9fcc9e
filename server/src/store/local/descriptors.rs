//! Open files. The store keeps as many as it may, and closes the least recently used first. A file with unsynced bytes
//! stays open until it is synced (see [`super::unsynced`]), so that a mere lookup never waits for a disk.

use std::num::NonZeroUsize;
use std::os::fd::{AsFd, AsRawFd as _, BorrowedFd, OwnedFd};

use lru::LruCache;
use odafs_fabric::clock;
use odafs_fabric::sync::thread::{self, JoinHandle};
use odafs_fabric::sync::{Arc, Mutex};
use rustix::fs::fdatasync;
use rustix::path::DecInt;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use super::lingering::Lingering;
use super::unsynced::{Asked, Unsynced};
use crate::store::{FileType, ObjectId, Result, Status};

/// Where the kernel shows the open files of this process.
pub(super) const OPEN_FILES: &str = "/proc/self/fd";

/// What a descriptor can be used for. Each kind includes those before it.
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
}

impl Descriptor {
    pub fn new(fd: OwnedFd, kind: FileType, good_for: Use) -> Arc<Self> {
        Arc::new(Self { fd, kind, good_for })
    }

    /// A path to this very object, whatever its names are by now.
    pub fn magic_path(&self) -> String {
        magic_path(self.fd.as_fd())
    }
}

impl AsFd for Descriptor {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

/// `/proc/self/fd/N`, which opens the descriptor's object again.
pub(super) fn magic_path(fd: BorrowedFd<'_>) -> String {
    format!("{OPEN_FILES}/{}", fd.as_raw_fd())
}

/// What of [`magic_path`] is below [`OPEN_FILES`].
pub(super) fn number(fd: BorrowedFd<'_>) -> DecInt {
    DecInt::from_fd(fd)
}

/// The open objects of a store.
pub(super) struct Descriptors {
    open: Mutex<LruCache<ObjectId, Arc<Descriptor>>>,
    lingering: Lingering,
    unsynced: Arc<Unsynced>,
    /// The thread that syncs what has waited too long.
    syncer: Option<JoinHandle<()>>,
}

impl Descriptors {
    /// Keeps at most `capacity` files open. At most a quarter of them stay open only because they are not synced.
    ///
    /// # Errors
    /// The system can give no more threads.
    pub fn new(capacity: usize) -> std::io::Result<Self> {
        let quarter = capacity / 4;
        let unsynced = Arc::new(Unsynced::new(quarter));
        let open = NonZeroUsize::new(capacity - quarter).unwrap_or(NonZeroUsize::MIN);
        let syncer = thread::Builder::new().name("odafs-syncer".to_owned());
        let surplus = Arc::clone(&unsynced);
        let syncer = syncer.spawn(move || {
            while let Some(object) = surplus.surplus() {
                // If it was synced meanwhile, there is nothing to do. A failure is kept for whoever syncs next.
                let _ = surplus.sync(object, Asked::No, |written| match written {
                    Some(file) => Ok(fdatasync(file)?),
                    None => Ok(()),
                });
            }
        })?;
        Ok(Self {
            open: Mutex::new(LruCache::new(open)),
            lingering: Lingering::new(open),
            unsynced,
            syncer: Some(syncer),
        })
    }

    /// The objects with unsynced bytes.
    pub fn unsynced(&self) -> &Unsynced {
        &self.unsynced
    }

    pub fn find(&self, object: ObjectId, wanted: Use) -> Option<Arc<Descriptor>> {
        let mut open = self.open.lock();
        let found = open
            .get(&object)
            .filter(|descriptor| descriptor.good_for >= wanted)
            .cloned();
        drop(open);
        found.or_else(|| self.unsynced.find(object))
    }

    /// Keeps a descriptor, unless there is one of the same kind or better.
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
        drop(closed);
    }

    /// Closes the descriptors of an object that is gone, of which nothing needs a sync.
    pub fn forget(&self, object: ObjectId) {
        self.release(object);
        self.unsynced.forget(object);
    }

    /// Closes the descriptor of an object.
    pub fn release(&self, object: ObjectId) {
        self.lingering.end(object);
        let closed = self.open.lock().pop(&object);
        drop(closed);
    }

    /// Closes the descriptor of an object that was synced a moment after its last sync ([`Descriptors::close_due`]), or at once
    /// when others have been synced since that may stay open instead.
    pub fn release_later(&self, object: ObjectId) {
        if let Some(other) = self.lingering.begin(object, clock::now()) {
            self.release(other);
        }
    }

    /// Closes the descriptors whose moment is over. To be called twice a second or so.
    pub fn close_due(&self) {
        let now = clock::now();
        while let Some(object) = self.lingering.take_due(now) {
            self.release(object);
        }
    }

    /// Closes the less recently used half, because the process has run out of descriptors.
    pub fn shrink(&self) {
        let count = self.open.lock().len().div_ceil(2);
        for _ in 0..count {
            let closed = self.open.lock().pop_lru();
            drop(closed);
        }
    }

    /// Runs `open`. If there were no descriptors left, it closes half of them and runs `open` again.
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

impl Drop for Descriptors {
    fn drop(&mut self) {
        self.unsynced.stop();
        if let Some(syncer) = self.syncer.take() {
            let _ = syncer.join();
        }
    }
}

/// Raises the limit on open files of this process as far as allowed. Returns how many each of so many stores should keep
/// open: together half of them, because connections and calls under way need some too.
pub(super) fn raise_open_file_limit(stores: usize) -> usize {
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
    let half = usize::try_from(half).unwrap_or(usize::MAX).min(32_768);
    (half / stores.max(1)).max(16)
}
