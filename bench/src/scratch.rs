//! Directories that go with their owner, however that ends.

use std::fs::{self, File};
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::process::Child;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{FlockOperation, OFlags, flock};
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
use tempfile::TempDir;

/// Names begin with this.
const PREFIX: &str = "odafs-scratch-";

/// The directories of this process. `None`: they have been removed, and no more are made.
static MADE: Mutex<Option<Vec<Made>>> = Mutex::new(Some(Vec::new()));

/// A directory, and the process that works there, if it is not this one.
struct Made {
    path: PathBuf,
    user: Option<OwnedFd>,
}

/// A directory of this process, which is removed when dropped. If the process is killed, the next one that creates such
/// a directory in the same place removes it: a lock shows that nobody uses it.
#[derive(Debug)]
pub struct Scratch {
    directory: TempDir,
    /// Locked; released after the directory is gone.
    _lock: File,
}

impl Scratch {
    /// A new directory in `base`; those that killed processes of this user left there are removed first.
    ///
    /// # Errors
    /// No directory could be made or locked.
    pub fn within(base: &Path) -> io::Result<Self> {
        remove_left(base);
        let mut all = made();
        let Some(made) = &mut *all else {
            return Err(io::Error::other("this process ends"));
        };
        loop {
            let directory = tempfile::Builder::new().prefix(PREFIX).tempdir_in(base)?;
            // Before it is locked, somebody may take it for one that was left.
            let lock = match open(directory.path()) {
                Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
                opened => opened?,
            };
            flock(&lock, FlockOperation::LockExclusive)?;
            if is_at(&lock, directory.path()) {
                made.push(Made {
                    path: directory.path().to_owned(),
                    user: None,
                });
                return Ok(Self {
                    directory,
                    _lock: lock,
                });
            }
        }
    }

    /// A new directory for small files.
    ///
    /// # Errors
    /// As for [`Scratch::within`].
    pub fn new() -> io::Result<Self> {
        Self::within(&std::env::temp_dir())
    }

    /// A new directory for files of `bytes` in all: in memory if there is room, as otherwise the first touch of a
    /// page would time a disk.
    ///
    /// # Errors
    /// As for [`Scratch::within`], or there is no room on disk either.
    pub fn for_bytes(bytes: u64) -> io::Result<Self> {
        let memory = Path::new("/dev/shm");
        remove_left(memory);
        if room(memory).unwrap_or(0) > bytes.saturating_add(bytes / 4)
            && let Ok(scratch) = Self::within(memory)
        {
            return Ok(scratch);
        }
        let scratch = Self::new()?;
        match room(scratch.path()) {
            Some(room) if room < bytes => Err(io::Error::new(
                io::ErrorKind::StorageFull,
                format!(
                    "neither {} nor {} has room for files of {}",
                    memory.display(),
                    std::env::temp_dir().display(),
                    crate::table::bytes(bytes)
                ),
            )),
            _ => Ok(scratch),
        }
    }

    /// A process that works there, and ends when a signal ends this one.
    ///
    /// # Errors
    /// The kernel gives no descriptor for it.
    pub fn used_by(&self, child: &Child) -> io::Result<()> {
        let user = pidfd_open(Pid::from_child(child), PidfdFlags::empty())?;
        let mut all = made();
        let mut all = all.iter_mut().flatten();
        if let Some(made) = all.find(|made| made.path == self.path()) {
            made.user = Some(user);
        }
        Ok(())
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        self.directory.path()
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let mut made = made();
        if let Some(made) = &mut *made {
            made.retain(|made| made.path != self.path());
        }
        // Still locked, so that no signal comes in between. What cannot be removed stays.
        let _ = fs::remove_dir_all(self.path());
    }
}

fn made() -> MutexGuard<'static, Option<Vec<Made>>> {
    MADE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Removes all directories of this process, which ends, and makes no more. Other threads may still work there, but none of
/// its servers.
pub fn remove_all() {
    /// How often to remove what somebody makes meanwhile.
    const TRIES: u32 = 20;
    /// How long a killed process may take to end.
    const ENDS: Timespec = Timespec {
        tv_sec: 1,
        tv_nsec: 0,
    };
    for Made { path, user } in made().take().into_iter().flatten() {
        if let Some(user) = user {
            // It may have ended already.
            let _ = pidfd_send_signal(&user, Signal::KILL);
            let _ = poll(&mut [PollFd::new(&user, PollFlags::IN)], Some(&ENDS));
        }
        for _ in 0..TRIES {
            match fs::remove_dir_all(&path) {
                Err(error) if error.kind() == io::ErrorKind::DirectoryNotEmpty => {
                    std::thread::sleep(Duration::from_millis(10));
                }
                _ => break,
            }
        }
    }
}

/// Bytes that the file system at a path has room for; `None`: it does not say, as those in memory without a bound.
fn room(path: &Path) -> Option<u64> {
    let status = rustix::fs::statvfs(path).ok()?;
    (status.f_blocks > 0).then(|| status.f_bavail.saturating_mul(status.f_frsize))
}

fn open(directory: &Path) -> io::Result<File> {
    let flags = OFlags::DIRECTORY | OFlags::NOFOLLOW;
    fs::OpenOptions::new()
        .read(true)
        .custom_flags(flags.bits() as i32)
        .open(directory)
}

fn is_at(directory: &File, path: &Path) -> bool {
    let id = |status: fs::Metadata| (status.dev(), status.ino());
    let here = directory.metadata().map(id);
    here.is_ok_and(|here| fs::symlink_metadata(path).is_ok_and(|there| id(there) == here))
}

/// Removes directories of this user that nobody uses any more. What cannot be removed stays.
fn remove_left(base: &Path) {
    let Ok(entries) = fs::read_dir(base) else {
        return;
    };
    for path in entries.flatten().map(|entry| entry.path()) {
        if is_ours(&path)
            && let Ok(directory) = open(&path)
            && flock(&directory, FlockOperation::NonBlockingLockExclusive).is_ok()
            && is_at(&directory, &path)
        {
            let _ = fs::remove_dir_all(&path);
        }
    }
}

fn is_ours(path: &PathBuf) -> bool {
    let named = path
        .file_name()
        .is_some_and(|name| name.as_encoded_bytes().starts_with(PREFIX.as_bytes()));
    let us = rustix::process::geteuid().as_raw();
    named && fs::symlink_metadata(path).is_ok_and(|status| status.is_dir() && status.uid() == us)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_killed_owner_left_is_removed_and_nothing_else() {
        let base = tempfile::tempdir().unwrap();
        let held = Scratch::within(base.path()).unwrap();
        fs::write(held.path().join("file"), b"x").unwrap();
        let left = base.path().join("odafs-scratch-left");
        fs::create_dir_all(left.join("deep")).unwrap();
        fs::write(left.join("deep/file"), b"x").unwrap();
        let others = base.path().join("others");
        fs::create_dir(&others).unwrap();
        let link = base.path().join("odafs-scratch-link");
        std::os::unix::fs::symlink(&others, &link).unwrap();

        let second = Scratch::within(base.path()).unwrap();
        assert!(!left.exists());
        assert!(others.exists() && fs::symlink_metadata(&link).is_ok());
        assert!(held.path().join("file").exists() && second.path().exists());
        let gone = second.path().to_owned();
        drop(second);
        assert!(!gone.exists());
    }

    #[test]
    fn files_that_fit_nowhere_are_refused() {
        let error = Scratch::for_bytes(1 << 60).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::StorageFull);
        assert!(Scratch::for_bytes(1).is_ok());
    }

    #[test]
    fn many_make_theirs_at_once() {
        let base = tempfile::tempdir().unwrap();
        std::thread::scope(|scope| {
            for _ in 0..8 {
                scope.spawn(|| {
                    for _ in 0..200 {
                        let mine = Scratch::within(base.path()).unwrap();
                        fs::write(mine.path().join("file"), b"x").unwrap();
                        assert!(mine.path().join("file").exists());
                    }
                });
            }
        });
    }
}
