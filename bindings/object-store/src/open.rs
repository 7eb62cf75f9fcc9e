//! Open objects and their versions.

use crate::fault::Fault;
use lru::LruCache;
use odafs::{File, Snapshot};
use std::{
    num::NonZeroUsize,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant, SystemTime},
};

const OPEN_MAX: NonZeroUsize = NonZeroUsize::new(1024).unwrap();
/// How long a location is taken to lead to the same file. The file's own change counter tells at once when it changes
/// or loses this name. Only the renaming of a directory above it shows as late as this.
const TRUSTED: Duration = Duration::from_secs(1);

/// A version of an object.
#[derive(Debug, Clone)]
pub struct Version {
    pub e_tag: String,
    pub size: u64,
    pub modified: SystemTime,
}

impl Version {
    pub fn of(attributes: &odafs::fs::Attributes) -> Self {
        let (number, change) = (attributes.fileid, attributes.change);
        Self {
            e_tag: format!("\"{number:x}-{change:x}-{:x}\"", attributes.size),
            size: attributes.size,
            modified: attributes.mtime,
        }
    }
}

/// A file, and its version when it was opened.
#[derive(Debug)]
pub struct Open {
    pub file: File,
    pub version: Version,
    pub snapshot: Snapshot,
    since: Instant,
}

impl Open {
    pub fn new(file: File, snapshot: Snapshot) -> Self {
        Self {
            version: Version::of(snapshot.attributes()),
            file,
            snapshot,
            since: Instant::now(),
        }
    }

    pub fn is_trusted(&self) -> bool {
        self.since.elapsed() < TRUSTED
    }

    /// Whether the object still is this version. A file that is gone is not.
    pub fn is_still(&self, location: &str) -> Result<bool, Fault> {
        match self.file.is_still(&self.snapshot) {
            Ok(still) => Ok(still),
            Err(error) => match Fault::path("get", location, error) {
                gone if gone.kind == crate::fault::Kind::Changed => Ok(false),
                fault => Err(fault),
            },
        }
    }
}

/// The objects that were used last.
pub struct OpenObjects(Mutex<LruCache<String, Arc<Open>>>);

impl OpenObjects {
    fn all(&self) -> MutexGuard<'_, LruCache<String, Arc<Open>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn get(&self, location: &str) -> Option<Arc<Open>> {
        let open = self.all().get(location).cloned()?;
        open.is_trusted().then_some(open)
    }

    pub fn put(&self, location: &str, open: Arc<Open>) {
        self.all().put(location.to_owned(), open);
    }

    pub fn forget(&self, location: &str) {
        self.all().pop(location);
    }
}

impl Default for OpenObjects {
    fn default() -> Self {
        Self(Mutex::new(LruCache::new(OPEN_MAX)))
    }
}
