//! Updates exclude each other by a file beside the object.

use crate::{
    fault::{Fault, Kind},
    names,
    objects::Objects,
};
use odafs::{
    Changes,
    fs::{Create, Handle},
};
use std::{
    thread,
    time::{Duration, Instant},
};

/// Whoever holds a lock for so long is taken for dead.
const DEAD: Duration = Duration::from_secs(30);
/// Whoever held one for so long gives up what he wanted to do with it.
const HELD_MAX: Duration = Duration::from_secs(15);
const PAUSE_MAX: Duration = Duration::from_millis(20);
const EEXIST: i32 = 17;

/// The right to update an object. Dropping it gives it back.
pub struct Lock<'a> {
    objects: &'a Objects,
    directory: Handle,
    name: String,
    since: Instant,
}

impl<'a> Lock<'a> {
    /// Waits until nobody else holds the lock of this name in the directory.
    pub fn take(
        objects: &'a Objects,
        directory: &Handle,
        object: &str,
        location: &str,
    ) -> Result<Self, Fault> {
        let fs = &objects.fs;
        let name = names::lock(object);
        let failed = |error| Fault::path("put", location, error);
        let how = Create::Guarded(Changes {
            mode: Some(0o600),
            ..Changes::default()
        });
        let mut pause = Duration::from_millis(1);
        let mut seen: Option<(Handle, Instant)> = None;
        loop {
            let since = Instant::now();
            match fs.create(directory, &name, &how) {
                Ok(_) => {
                    return Ok(Self {
                        objects,
                        directory: *directory,
                        name,
                        since,
                    });
                }
                Err(error) if error.errno() == EEXIST => {}
                Err(error) => return Err(failed(error)),
            }
            if let Ok(other) = fs.lookup(directory, &name) {
                match seen {
                    Some((holder, first)) if holder == other.handle => {
                        if first.elapsed() > DEAD {
                            remove(objects, directory, &name, holder);
                        }
                    }
                    _ => seen = Some((other.handle, Instant::now())),
                }
            }
            thread::sleep(pause);
            pause = (pause * 2).min(PAUSE_MAX);
        }
    }

    /// An error if it was held for so long that others may have taken it.
    pub fn check(&self, location: &str) -> Result<(), Fault> {
        if self.since.elapsed() < HELD_MAX {
            return Ok(());
        }
        let why = "the server was too slow to update it safely (try again)";
        Err(Fault::new(Kind::Other, location, why))
    }
}

/// Takes a dead holder's lock away. If somebody else did so just now, and this one is the next holder's, it is put back.
fn remove(objects: &Objects, directory: &Handle, name: &str, dead: Handle) {
    let (fs, aside) = (&objects.fs, names::temporary());
    if fs.rename(directory, name, directory, &aside).is_err() {
        return;
    }
    if let Ok(taken) = fs.lookup(directory, &aside)
        && taken.handle != dead
    {
        let _ = fs.link(&taken.handle, directory, name);
    }
    let _ = fs.unlink(directory, &aside);
}

impl Drop for Lock<'_> {
    fn drop(&mut self) {
        // Beyond that it may be another's.
        if self.since.elapsed() < HELD_MAX {
            let _ = self.objects.fs.unlink(&self.directory, &self.name);
        }
    }
}
