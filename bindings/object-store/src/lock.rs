//! Updates exclude each other by a lock file beside the object.
//!
//! ```text
//!              create (guarded)          unlink
//!   nobody's ------------------> held -----------> nobody's     the holder, within HELD_MAX
//!                                 |
//!                                 | the same file is there for DEAD
//!                                 v
//!                               dead ------------> nobody's     one that waits, and holds the breaker
//! ```
//!
//! NFS version 3 removes a name whatever file has it. So before a client removes the lock of a dead holder, it creates
//! another file, the breaker, and looks again. Between the look and the removal only the dead holder could remove the
//! lock, and while it is there nobody creates another.

use crate::{
    fault::{Fault, Kind},
    modes, names,
    objects::Objects,
};
use odafs::fs::{Create, FileHandle};
use std::{
    thread,
    time::{Duration, Instant},
};

/// A client that has held a lock for this long gives up its update.
const HELD_MAX: Duration = Duration::from_secs(15);
const PAUSE_MAX: Duration = Duration::from_millis(20);
const EEXIST: i32 = 17;

/// How long to wait for a lock.
#[derive(Debug, Clone, Copy)]
pub struct Patience {
    /// A holder of a lock for this long is taken for dead. That is longer than [`HELD_MAX`] plus the time that a call
    /// may take.
    pub dead: Duration,
    /// The longest wait in all.
    pub whole: Duration,
}

impl Patience {
    pub const USUAL: Self = Self {
        dead: Duration::from_secs(30),
        whole: Duration::from_secs(90),
    };
}

/// The right to update an object. Dropping it releases the lock.
pub struct Lock<'a> {
    objects: &'a Objects,
    directory: FileHandle,
    name: String,
    since: Instant,
}

impl<'a> Lock<'a> {
    /// Waits until nobody else holds the lock of this object in the directory, or as long as is usual.
    pub fn take(
        objects: &'a Objects,
        directory: &FileHandle,
        object: &str,
        location: &str,
    ) -> Result<Self, Fault> {
        let name = names::lock(object);
        Self::take_within(objects, directory, name, location, Patience::USUAL)
    }

    pub fn take_within(
        objects: &'a Objects,
        directory: &FileHandle,
        name: String,
        location: &str,
        patience: Patience,
    ) -> Result<Self, Fault> {
        let fs = &objects.fs;
        let mut pause = Duration::from_millis(1);
        let mut seen: Option<(FileHandle, Instant)> = None;
        let began = Instant::now();
        loop {
            let since = Instant::now();
            match fs.create(directory, &name, &how()) {
                Ok(_) => {
                    return Ok(Self {
                        objects,
                        directory: *directory,
                        name,
                        since,
                    });
                }
                Err(error) if error.errno() == EEXIST => {}
                Err(error) => return Err(Fault::path("put", location, error)),
            }
            if let Ok(other) = fs.lookup(directory, &name) {
                match seen {
                    Some((holder, first)) if holder == other.handle => {
                        if first.elapsed() > patience.dead {
                            remove(objects, directory, &name, holder);
                        }
                    }
                    _ => seen = Some((other.handle, Instant::now())),
                }
            }
            if began.elapsed() > patience.whole {
                let why = format!(
                    "other updates held it for {} s (try again; where none is under way, remove {name} and {} from its \
                     directory)",
                    patience.whole.as_secs(),
                    names::breaker(&name)
                );
                return Err(Fault::new(Kind::Other, location, why));
            }
            thread::sleep(pause);
            pause = (pause * 2).min(PAUSE_MAX);
        }
    }

    /// An error if the lock was held for so long that others may have taken it.
    pub fn check(&self, location: &str) -> Result<(), Fault> {
        if self.since.elapsed() < HELD_MAX {
            return Ok(());
        }
        let why = "the server was too slow to update it safely (try again)";
        Err(Fault::new(Kind::Other, location, why))
    }
}

/// How one client creates locks.
pub fn how() -> Create {
    Create::Guarded(modes::with(0o600))
}

/// Removes the lock of a dead holder, and no other. A process that is killed meanwhile leaves the breaker: updates of
/// the object then fail when their time is over, and say what to remove.
pub fn remove(objects: &Objects, directory: &FileHandle, name: &str, dead: FileHandle) {
    let (fs, breaker) = (&objects.fs, names::breaker(name));
    if fs.create(directory, &breaker, &how()).is_err() {
        return;
    }
    let now = fs.lookup(directory, name);
    if now.is_ok_and(|now| now.handle == dead) {
        let _ = fs.unlink(directory, name);
    }
    let _ = fs.unlink(directory, &breaker);
}

impl Drop for Lock<'_> {
    fn drop(&mut self) {
        // After that, the lock may be another's.
        if self.since.elapsed() < HELD_MAX {
            let _ = self.objects.fs.unlink(&self.directory, &self.name);
        }
    }
}
