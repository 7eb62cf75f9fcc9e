//! From the mount point to the end.

use crate::{MountError, operations::Device, uring::Threads};
use fuser::Session;
use rustix::{
    fs::{AtFlags, CWD, StatxFlags, statx},
    io::Errno,
    mount::{UnmountFlags, unmount},
};
use std::{
    io,
    path::{Path, PathBuf},
    process::Command,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::SeqCst},
    },
    thread::JoinHandle,
};

/// The full path of a directory that can be mounted on.
pub(crate) fn checked(dir: &Path) -> Result<PathBuf, MountError> {
    let shown = || dir.display().to_string();
    let full = dir.canonicalize().and_then(|full| {
        let found = std::fs::metadata(&full)?;
        match found.is_dir() {
            true => Ok(full),
            false => Err(Errno::NOTDIR.into()),
        }
    });
    full.map_err(|why| match Errno::from_io_error(&why) {
        Some(Errno::NOTCONN) => MountError::Stale { dir: shown() },
        _ => MountError::NoDirectory { dir: shown(), why },
    })
}

/// A mount that this process answers. If it is dropped, the directory is detached as by [`Unmounter::detach`].
#[derive(Debug)]
pub struct Mounted {
    unmounter: Unmounter,
    uses_io_uring: bool,
    thread: Option<JoinHandle<io::Result<()>>>,
}

/// Unmounts, from any thread.
#[derive(Debug, Clone)]
pub struct Unmounter {
    dir: PathBuf,
    /// The number of the mounted file system's device. No other has it as long as anything of ours is open.
    device: (u32, u32),
    ended: Arc<AtomicBool>,
}

/// The number of the device that is at a directory. The file system there is not asked: it may be ours, or one that hangs.
fn device_at(dir: &Path) -> io::Result<(u32, u32)> {
    let found = statx(
        CWD,
        dir,
        AtFlags::STATX_DONT_SYNC | AtFlags::NO_AUTOMOUNT,
        StatxFlags::empty(),
    )?;
    Ok((found.stx_dev_major, found.stx_dev_minor))
}

/// Whether a device is mounted anywhere.
fn is_mounted((major, minor): (u32, u32)) -> io::Result<bool> {
    let ours = format!("{major}:{minor}");
    let mounts = std::fs::read("/proc/self/mountinfo")?;
    let mut lines = mounts.split(|&byte| byte == b'\n');
    Ok(lines.any(|line| line.split(|&byte| byte == b' ').nth(2) == Some(ours.as_bytes())))
}

impl Mounted {
    pub(crate) fn start(
        session: Session<Device>,
        rings: Option<Threads>,
        dir: PathBuf,
    ) -> io::Result<Self> {
        let uses_io_uring = rings.as_ref().is_some_and(|rings| rings.in_use);
        let ended = Arc::new(AtomicBool::new(false));
        let unmounter = Unmounter {
            device: device_at(&dir)?,
            dir,
            ended: ended.clone(),
        };
        let mut running = session.spawn()?;
        let guard = std::mem::replace(&mut running.guard, std::thread::spawn(|| Ok(())));
        // It would unmount whatever is at the directory by the time that it is dropped.
        std::mem::forget(running);
        let thread = std::thread::Builder::new()
            .name("odafs-mount".to_owned())
            .spawn(move || {
                let result = match guard.join() {
                    // A thread had just taken a request when the file system went: the kernel says it so, and is not asked again.
                    Ok(Err(error)) if error.kind() == io::ErrorKind::ConnectionAborted => Ok(()),
                    Ok(result) => result,
                    Err(_) => Err(io::Error::other("a thread of the mount panicked")),
                };
                // Otherwise the kernel may still use the rings.
                if result.is_ok()
                    && let Some(rings) = rings
                {
                    rings.join();
                }
                ended.store(true, SeqCst);
                result
            })?;
        Ok(Self {
            unmounter,
            uses_io_uring,
            thread: Some(thread),
        })
    }

    /// Whether the kernel is answered by FUSE over io_uring.
    pub fn uses_io_uring(&self) -> bool {
        self.uses_io_uring
    }

    /// What unmounts it, while [`wait`](Self::wait) waits.
    pub fn unmounter(&self) -> Unmounter {
        self.unmounter.clone()
    }

    /// Waits until it is unmounted, by whomever, and all that was open is closed.
    ///
    /// # Errors
    /// The kernel's device failed.
    pub fn wait(mut self) -> io::Result<()> {
        self.join()
    }

    /// Unmounts it, and waits until that is done.
    ///
    /// # Errors
    /// `EBUSY`: a program has a file open there, or works in it. Then the directory is detached: those programs go on, and
    /// nobody else finds it.
    pub fn unmount(mut self) -> io::Result<()> {
        self.unmounter.unmount()?;
        self.join()
    }

    fn join(&mut self) -> io::Result<()> {
        match self.thread.take().map(JoinHandle::join) {
            Some(Ok(result)) => result,
            Some(Err(_)) => Err(io::Error::other("a thread of the mount panicked")),
            None => Ok(()),
        }
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        if self.thread.is_some() {
            // There is nobody to tell.
            let _ = self.unmounter.detach();
        }
    }
}

impl Unmounter {
    /// Unmounts.
    ///
    /// # Errors
    /// `EBUSY`: a program has a file open there, or works in it, or another mount covers it.
    pub fn unmount(&self) -> io::Result<()> {
        self.end(UnmountFlags::empty(), &[])
    }

    /// Takes the directory out of sight. Programs that have a file open there go on until they close it.
    ///
    /// # Errors
    /// The system refused it; `EBUSY`: another mount covers it.
    pub fn detach(&self) -> io::Result<()> {
        self.end(UnmountFlags::DETACH, &["-z"])
    }

    fn end(&self, flags: UnmountFlags, arguments: &[&str]) -> io::Result<()> {
        if self.ended.load(SeqCst) {
            return Ok(());
        }
        // Another mount may be there by now: ours was detached, or is below.
        if device_at(&self.dir)? != self.device {
            return match is_mounted(self.device)? {
                true => Err(Errno::BUSY.into()),
                false => Ok(()),
            };
        }
        match unmount(&self.dir, flags) {
            Err(Errno::PERM) => self.by_program(arguments),
            // Somebody else was faster.
            Err(Errno::INVAL) => Ok(()),
            result => result.map_err(io::Error::from),
        }
    }

    /// Users other than root unmount by a program with more rights.
    fn by_program(&self, arguments: &[&str]) -> io::Result<()> {
        let mut command = Command::new("fusermount3");
        command
            .args(["-u", "-q"])
            .args(arguments)
            .arg("--")
            .arg(&self.dir);
        match command.status()?.success() {
            true => Ok(()),
            false => Err(Errno::BUSY.into()),
        }
    }
}
