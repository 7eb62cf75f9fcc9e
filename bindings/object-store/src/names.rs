//! From locations to names, and the names that belong to no objects.

use crate::fault::{Fault, Kind};
use std::{
    collections::hash_map::RandomState,
    hash::{BuildHasher as _, Hasher as _},
    sync::atomic::{AtomicU64, Ordering::Relaxed},
};

const HIDDEN: &str = ".odafs-";

/// The directory and the name of an object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Place {
    /// The whole location.
    pub location: String,
    /// Length in bytes of the part that names the directory, 0 for the top.
    directory: usize,
}

impl Place {
    pub fn of(location: &str) -> Result<Self, Fault> {
        let invalid = |why| Err(Fault::new(Kind::NotSupported, location, why));
        let (directory, name) = location.rsplit_once('/').unwrap_or(("", location));
        if name.is_empty() {
            return invalid("an empty location names no object");
        }
        if is_hidden(name) {
            return invalid("names of the form .odafs-*.tmp are those of unfinished objects");
        }
        Ok(Self {
            location: location.to_owned(),
            directory: directory.len(),
        })
    }

    pub fn name(&self) -> &str {
        let start = self.directory + usize::from(self.directory > 0);
        &self.location[start..]
    }

    /// Its path for the client.
    pub fn directory(&self) -> &str {
        directory(&self.location[..self.directory])
    }
}

/// The path of a directory for the client.
pub fn directory(location: &str) -> &str {
    if location.is_empty() { "." } else { location }
}

/// Whether it is one of this crate's hidden names.
pub fn is_hidden(name: &str) -> bool {
    name.starts_with(HIDDEN) && (name.ends_with(".tmp") || name.ends_with(".lock"))
}

/// A unique name.
pub fn temporary() -> String {
    format!("{HIDDEN}{:016x}.tmp", random())
}

/// The name of the lock by which updates of an object exclude each other. Two objects of a directory may share it.
pub fn lock(name: &str) -> String {
    // FNV-1a: the same in all builds of this crate.
    let hash = name.bytes().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    });
    format!("{HIDDEN}{hash:016x}.lock")
}

/// The name by which clients that remove the lock of a dead holder exclude each other.
pub fn breaker(lock: &str) -> String {
    let stem = lock.strip_suffix(".lock").unwrap_or(lock);
    format!("{stem}.dead.lock")
}

fn random() -> u64 {
    static COUNT: AtomicU64 = AtomicU64::new(0);
    // Keyed by the system's randomness.
    let mut hasher = RandomState::new().build_hasher();
    hasher.write_u64(COUNT.fetch_add(1, Relaxed));
    hasher.write_u32(std::process::id());
    hasher.finish()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_location_is_a_directory_and_a_name() {
        let parts = |location| {
            let place = Place::of(location).unwrap();
            (place.directory().to_owned(), place.name().to_owned())
        };
        assert_eq!(parts("a"), (".".into(), "a".into()));
        assert_eq!(parts("a/b/c.d"), ("a/b".into(), "c.d".into()));
        assert!(Place::of("").is_err() && Place::of("a/").is_err());
        for name in [temporary(), lock("x"), breaker(&lock("x"))] {
            assert!(is_hidden(&name) && Place::of(&format!("a/{name}")).is_err());
        }
        assert_ne!(temporary(), temporary());
        assert!(!is_hidden(".odafs-notes"));
    }
}
