//! Answers the kernel by FUSE over io_uring, where it has that: Linux 6.14 and later, with `enable_uring` of the module `fuse`.
//!
//! `fuser` mounts, and answers FUSE_INIT. If rings are there by then, the answer says so, and from then on requests come by
//! them. By /dev/fuse, where `fuser` goes on to read, come only those that need no answer (FORGET, INTERRUPT), and all of them
//! if the kernel refuses the rings. Notifications go to /dev/fuse too.
//!
//! # Queues and threads
//! The kernel has a queue for each possible processor. A request goes to the queue of the processor that the program runs on,
//! where one of the queue's entries takes it to the thread that registered the entry. It waits for that very thread, though
//! others may be idle. So each thread has one entry only, and a thread that waits for the server delays no other request. Each
//! queue begins with one thread, as the kernel demands. Whenever a request takes the last idle thread of a queue, another one
//! is started, up to [`Options::threads`](crate::Options::threads) for each queue. The kernel prefers the entry that
//! answered last, so the other threads sleep as long as calls do not overlap.
//!
//! The threads of a queue stay on its processor. The program sleeps while its request is carried out, and gives the processor
//! to the thread, which finds the request's memory in its caches. No other processor has to be woken, which costs more than
//! most reads do. For the same reason, no thread spins for requests: it would keep the program from running.
//!
//! # Why not a library
//! `fuser` 0.18 does not know the rings, and keeps its decoder of requests to itself. Of the crates that do,
//! `fuse-backend-rs` has them only since its last release, as an experiment that copies each request; `fractal-fuse` demands a
//! runtime of its own; `fuser-iouring` reads /dev/fuse by io_uring, and lacks operations. All of them would also have to
//! replace `fuser` where there are no rings.

mod answer;
mod entry;
mod wire;

use crate::{files::Files, inodes::locked, operations::WRITE_MAX};
use entry::{Entry, Ring};
use fuser::Errno;
use rustix::{
    io::Errno as System,
    thread::{CpuSet, sched_setaffinity},
};
use std::{
    fs, io,
    os::fd::{AsFd as _, BorrowedFd, OwnedFd},
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst},
    },
    thread::JoinHandle,
};

/// Says whether the kernel offers file systems its rings.
const ENABLED: &str = "/sys/module/fuse/parameters/enable_uring";
/// The processors that the kernel has queues for.
const PROCESSORS: &str = "/sys/devices/system/cpu/possible";

/// Rings for the queues of the kernel, made before the kernel is told that it may use them: after that, programs wait for them.
pub struct Rings {
    rings: Mutex<Vec<Ring>>,
    agreed: AtomicBool,
}

impl Rings {
    /// Makes a ring for each queue.
    ///
    /// # Errors
    /// There is none to be had. The text says why.
    pub fn new() -> Result<Self, String> {
        match fs::read_to_string(ENABLED) {
            Ok(text) if text.trim() == "Y" => {}
            Ok(_) => {
                return Err(format!(
                    "it is switched off (`echo Y >{ENABLED}` switches it on)"
                ));
            }
            Err(_) => return Err(format!("this kernel has none (no {ENABLED})")),
        }
        let text = fs::read_to_string(PROCESSORS).map_err(|why| format!("{PROCESSORS}: {why}"))?;
        let queues = processors(&text).ok_or_else(|| format!("{PROCESSORS}: {text}"))?;
        let rings: Result<_, _> = (0..queues).map(|_| Ring::new()).collect();
        Ok(Self {
            rings: Mutex::new(rings.map_err(|why| format!("io_uring_setup: {why}"))?),
            agreed: AtomicBool::new(false),
        })
    }

    /// Notes that the kernel is told of the rings.
    pub fn agree(&self) {
        self.agreed.store(true, SeqCst);
    }

    /// Whether the kernel was told of the rings.
    pub fn agreed(&self) -> bool {
        self.agreed.load(SeqCst)
    }

    /// Starts a thread for each queue, and hands the kernel the first entries. `most` is the number of threads that a queue may
    /// come to.
    ///
    /// # Errors
    /// The system starts no threads. Then the file system has to be unmounted.
    pub fn start(
        &self,
        device: BorrowedFd<'_>,
        files: &Arc<Files>,
        most: usize,
    ) -> io::Result<Threads> {
        let threads = Threads::default();
        let device = Arc::new(device.try_clone_to_owned()?);
        for (number, ring) in locked(&self.rings).drain(..).enumerate() {
            let queue = Arc::new(Queue {
                number: number as u16,
                device: device.clone(),
                files: files.clone(),
                most,
                started: AtomicUsize::new(0),
                idle: AtomicUsize::new(0),
                threads: threads.clone(),
            });
            queue.start(ring)?;
        }
        Ok(threads)
    }
}

/// The number of processors in a list like `0-3,8`.
fn processors(list: &str) -> Option<u16> {
    list.trim().split(',').try_fold(0u16, |sum, range| {
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        let (first, last): (u16, u16) = (first.parse().ok()?, last.parse().ok()?);
        sum.checked_add(last.checked_sub(first)?.checked_add(1)?)
    })
}

/// The threads that answer by rings.
#[derive(Debug, Clone, Default)]
pub struct Threads(Arc<Mutex<Vec<JoinHandle<()>>>>);

impl Threads {
    /// Waits until they have ended, which they do when the kernel asks nothing any more.
    pub fn join(&self) {
        // The lock is not held meanwhile: threads that are about to end may have started others.
        while let Some(thread) = { locked(&self.0).pop() } {
            // A panic of the file system's was caught, and any other leaves nothing to do.
            let _ = thread.join();
        }
    }
}

/// A queue of the kernel.
struct Queue {
    /// The number of its processor.
    number: u16,
    device: Arc<OwnedFd>,
    files: Arc<Files>,
    /// The number of threads that it may come to.
    most: usize,
    /// The number of threads that were started.
    started: AtomicUsize,
    /// The number of threads that wait for requests.
    idle: AtomicUsize,
    threads: Threads,
}

impl Queue {
    fn start(self: Arc<Self>, ring: Ring) -> io::Result<()> {
        let number = self.started.fetch_add(1, SeqCst);
        let threads = self.threads.clone();
        let thread = std::thread::Builder::new()
            .name(format!("odafs-ring-{}-{number}", self.number))
            .spawn(move || self.run(ring))?;
        locked(&threads.0).push(thread);
        Ok(())
    }

    /// Starts one more thread, if there may be more. Requests wait longer without it, but they are answered.
    fn grow(self: &Arc<Self>) {
        if self.started.load(SeqCst) >= self.most {
            return;
        }
        if let Err(why) = Ring::new().and_then(|ring| self.clone().start(ring)) {
            tracing::debug!("no more threads for queue {}: {why}", self.number);
        }
    }

    /// Answers requests until the mount has ended.
    fn run(self: Arc<Self>, ring: Ring) {
        let mut processor = CpuSet::new();
        processor.set(self.number.into());
        // It is slower elsewhere, and this may not be a processor that this process may use.
        let _ = sched_setaffinity(None, &processor);
        let ended = [System::NOTCONN, System::CONNABORTED, System::CANCELED];
        match self.answer(ring) {
            Err(why) if System::from_io_error(&why).is_some_and(|why| ended.contains(&why)) => {}
            Err(why) => tracing::warn!("queue {} of FUSE over io_uring: {why}", self.number),
            Ok(never) => match never {},
        }
    }

    fn answer(self: &Arc<Self>, ring: Ring) -> io::Result<std::convert::Infallible> {
        let device = self.device.as_fd();
        let mut entry = Entry::register(ring, device, self.number, WRITE_MAX as usize)?;
        loop {
            self.idle.fetch_add(1, SeqCst);
            let came = entry.wait();
            if self.idle.fetch_sub(1, SeqCst) == 1 && came.is_ok() {
                self.grow();
            }
            came?;
            entry.answer(|request| {
                let answer = || answer::answer(&self.files, request);
                // Without this thread, programs on its processor might wait for ever.
                catch_unwind(AssertUnwindSafe(answer)).unwrap_or(Err(Errno::EIO))
            })?;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::processors;

    #[test]
    fn processors_are_counted() {
        for (list, number) in [("0\n", 1), ("0-1\n", 2), ("0-3,8-11,15", 9)] {
            assert_eq!(processors(list), Some(number), "{list}");
        }
        for wrong in ["", "x", "3-0", "0-65535", "0-1,"] {
            assert_eq!(processors(wrong), None, "{wrong}");
        }
    }
}
