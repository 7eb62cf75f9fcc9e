//! Answers the kernel by FUSE over io_uring, where it has that: Linux 6.14 and later, with `enable_uring` of the module `fuse`.
//!
//! `fuser` mounts, and answers FUSE_INIT. If rings are there by then, the answer says so, and from then on requests come by
//! them. By /dev/fuse, where `fuser` goes on to read, come only those that need no answer (FORGET, INTERRUPT), and all of them
//! if the kernel refuses the rings. Notifications go to /dev/fuse too.
//!
//! # Queues and threads
//! The kernel has a queue for each possible processor. A request goes to the queue of the processor that the program runs on,
//! where one of the queue's entries takes it to the thread that registered the entry. It waits for that very thread, though
//! others may be idle. So each thread has one entry only, and a thread that waits for the server delays no other request, unless all
//! threads of the queue wait: then whoever runs on that processor waits too.
//!
//! A queue has [`Options::threads`](crate::Options::threads) threads from the beginning, or fewer on machines with many
//! processors ([`threads_of`]). Starting them when they are needed would not do: the kernel gives an entry that is registered
//! later none of the requests that wait already, until the queue's next answer. The kernel prefers the entry that answered
//! last, so all but one sleep as long as calls do not overlap.
//!
//! The threads may run on any processor. It looks better to keep each to the processor of its queue: the program sleeps while
//! its request is carried out, so the processor is free. But when the thread wakes the program, the scheduler finds this
//! processor busy, with that thread, and moves the program to an idle one. That one has to be woken, for each request anew, which
//! took 30 to 40 us at the median in a virtual machine instead of 12. No thread spins for requests either: it would take a processor from
//! programs.
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
use entry::{Entry, Registered, Ring};
use fuser::Errno;
use rustix::io::Errno as System;
use std::{
    convert::Infallible,
    fs, io,
    os::fd::{AsFd as _, BorrowedFd, OwnedFd},
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering::SeqCst},
        mpsc,
    },
    thread::JoinHandle,
};

/// Says whether the kernel offers file systems its rings.
const ENABLED: &str = "/sys/module/fuse/parameters/enable_uring";
/// The processors that the kernel has queues for.
const POSSIBLE: &str = "/sys/devices/system/cpu/possible";
/// Those of them that run programs now.
const ONLINE: &str = "/sys/devices/system/cpu/online";

/// What all threads together come to, in number, if that leaves each processor two. Each takes a file descriptor.
const THREADS_MAX: usize = 256;

/// Threads with rings for the queues of the kernel, made before the kernel is told that it may use them: after that, programs wait
/// for them. They wait for a device. Dropped, they end.
pub struct Rings {
    waiting: Mutex<Waiting>,
    agreed: AtomicBool,
}

#[derive(Default)]
struct Waiting {
    threads: Vec<JoinHandle<()>>,
    /// One for each thread.
    devices: Vec<mpsc::Sender<Arc<OwnedFd>>>,
    /// From each thread what the kernel says of its entry.
    told: Option<mpsc::Receiver<io::Result<Registered>>>,
}

/// The number of threads for each processor, where `asked` are asked for.
fn threads_of(processors: usize, asked: usize) -> usize {
    let most = THREADS_MAX / processors.max(1);
    asked.min(most).max(asked.min(2))
}

impl Rings {
    /// Starts `threads` threads for each processor, as [`threads_of`] has it. A processor that is switched off has one, as the kernel
    /// demands.
    ///
    /// # Errors
    /// There are no rings to be had, or no threads or memory for them. The text says why.
    pub fn new(threads: usize, files: &Arc<Files>) -> Result<Self, String> {
        match fs::read_to_string(ENABLED) {
            Ok(text) if text.trim() == "Y" => {}
            Ok(_) => {
                return Err(format!(
                    "it is switched off (`echo Y >{ENABLED}` switches it on)"
                ));
            }
            Err(_) => return Err(format!("this kernel has none (no {ENABLED})")),
        }
        let (possible, online) = (processors(POSSIBLE)?, processors(ONLINE)?);
        let each = threads_of(online.len(), threads);
        let (tell, told) = mpsc::channel();
        let (ready, prepared) = mpsc::channel();
        let mut waiting = Waiting::default();
        for queue in 0..possible.len() as u16 {
            let number = if online.contains(&queue) { each } else { 1 };
            for _ in 0..number {
                let ring = Ring::new().map_err(|why| format!("io_uring_setup: {why}"))?;
                let (device, order) = mpsc::channel();
                let server = Server {
                    queue,
                    files: files.clone(),
                };
                let (ready, tell) = (ready.clone(), tell.clone());
                let thread = std::thread::Builder::new()
                    .name(format!("odafs-ring-{queue}"))
                    .spawn(move || server.run(ring, ready, &order, tell))
                    .map_err(|why| format!("a thread: {why}"))?;
                waiting.threads.push(thread);
                waiting.devices.push(device);
            }
        }
        drop(ready);
        for result in prepared {
            result.map_err(|why| format!("a ring: {why}"))?;
        }
        waiting.told = Some(told);
        Ok(Self {
            waiting: Mutex::new(waiting),
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

    /// Ends the threads: the mount is to go on without them.
    pub fn dismiss(&self) {
        *locked(&self.waiting) = Waiting::default();
    }

    /// Gives the threads the device of a mount, and waits until the kernel has their entries.
    ///
    /// # Errors
    /// The system has no memory. Then the file system has to be unmounted, because the kernel waits for entries.
    pub fn start(&self, device: BorrowedFd<'_>) -> io::Result<Threads> {
        let device = Arc::new(device.try_clone_to_owned()?);
        let waiting = std::mem::take(&mut *locked(&self.waiting));
        for thread in &waiting.devices {
            // One that has ended says nothing below.
            let _ = thread.send(device.clone());
        }
        let mut in_use = true;
        let mut told = waiting.told.into_iter().flatten();
        for _ in &waiting.devices {
            let ended = || io::Error::other("a thread of FUSE over io_uring has ended");
            if let Registered::Refused(why) = told.next().ok_or_else(ended)?? {
                tracing::debug!("no FUSE over io_uring: the kernel refuses an entry: {why}");
                in_use = false;
            }
        }
        let threads = waiting.threads;
        Ok(Threads { threads, in_use })
    }
}

/// The processors that a file of the kernel lists.
fn processors(path: &str) -> Result<Vec<u16>, String> {
    let text = fs::read_to_string(path).map_err(|why| format!("{path}: {why}"))?;
    numbers(&text).ok_or_else(|| format!("{path}: {text}"))
}

/// The numbers in a list like `0-3,8`.
fn numbers(list: &str) -> Option<Vec<u16>> {
    let mut all = Vec::new();
    for range in list.trim().split(',') {
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        let (first, last): (u16, u16) = (first.parse().ok()?, last.parse().ok()?);
        all.extend(first..=last);
    }
    Some(all)
}

/// The threads that answer by rings.
#[derive(Debug)]
pub struct Threads {
    threads: Vec<JoinHandle<()>>,
    /// Whether the kernel asks by rings. If it refuses an entry, it goes on to ask by /dev/fuse.
    pub in_use: bool,
}

impl Threads {
    /// Waits until they have ended, which they do when the kernel asks nothing any more.
    pub fn join(self) {
        for thread in self.threads {
            // A panic of the file system's was caught, and any other leaves nothing to do.
            let _ = thread.join();
        }
    }
}

/// What a thread needs to answer.
struct Server {
    /// The number of its queue, which is that of its processor.
    queue: u16,
    files: Arc<Files>,
}

impl Server {
    /// Makes an entry and says so to `ready`. Registers it when there is a device, says so to `tell`, and answers requests until the
    /// mount has ended.
    fn run(
        self,
        ring: Ring,
        ready: mpsc::Sender<io::Result<()>>,
        order: &mpsc::Receiver<Arc<OwnedFd>>,
        tell: mpsc::Sender<io::Result<Registered>>,
    ) {
        let entry = Entry::new(ring, self.queue, WRITE_MAX as usize);
        let (entry, made) = match entry {
            Ok(entry) => (Some(entry), Ok(())),
            Err(why) => (None, Err(why)),
        };
        // Nobody listens if another thread has failed.
        let _ = ready.send(made);
        drop(ready);
        // There is no device if nothing is mounted, or not by rings.
        let (Some(mut entry), Ok(device)) = (entry, order.recv()) else {
            return;
        };
        let registered = entry.register(device.as_fd());
        let is_registered = matches!(registered, Ok(Registered::Yes));
        // If nobody listens, the mount has failed, and ends.
        let _ = tell.send(registered);
        drop(tell);
        if !is_registered {
            return;
        }
        let ended = [System::NOTCONN, System::CONNABORTED, System::CANCELED];
        match self.answer(entry) {
            Err(why) if System::from_io_error(&why).is_some_and(|why| ended.contains(&why)) => {}
            Err(why) => tracing::error!(
                "queue {} of FUSE over io_uring: {why}. A program may wait for ever; `umount -f` of the mount ends that",
                self.queue
            ),
            Ok(never) => match never {},
        }
    }

    fn answer(&self, mut entry: Entry) -> io::Result<Infallible> {
        loop {
            entry.wait()?;
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
    use super::{numbers, threads_of};

    #[test]
    fn lists_of_processors_are_read() {
        for (list, wanted) in [
            ("0\n", Some(vec![0])),
            ("0-1\n", Some(vec![0, 1])),
            ("0-2,8-9,15", Some(vec![0, 1, 2, 8, 9, 15])),
            ("", None),
            ("x", None),
            ("0-65536", None),
            ("0-1,", None),
        ] {
            assert_eq!(numbers(list), wanted, "{list}");
        }
    }

    #[test]
    fn many_processors_have_few_threads_each() {
        for (processors, asked, each) in
            [(2, 8, 8), (64, 8, 4), (1024, 8, 2), (1024, 1, 1), (1, 1, 1)]
        {
            assert_eq!(threads_of(processors, asked), each, "{processors} {asked}");
        }
    }
}
