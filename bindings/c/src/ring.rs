//! Submissions and completions: reads and writes that are under way while the program does other work.
//!
//! The submitting thread does what needs no waiting. The ring's threads do the rest; each takes many short reads of one
//! client's files at once, which are then in flight together.

use crate::{
    error::{self, Error, at_border, handle, panicked},
    file::{data, memory, odafs_file},
    gather::array,
};
use odafs::{File, FileRequest, ReadError};
use rustix::{
    event::{EventfdFlags, eventfd},
    fd::{AsRawFd as _, OwnedFd},
};
use std::{
    collections::VecDeque,
    ffi::{c_int, c_void},
    mem,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError},
    thread::JoinHandle,
    time::{Duration, Instant},
};

/// Read `bytes` bytes at `offset` to `buffer`, as odafs_pread().
pub const ODAFS_OP_READ: u32 = 0;
/// Write `bytes` bytes at `offset` from `buffer`, as odafs_pwrite().
pub const ODAFS_OP_WRITE: u32 = 1;
/// Bring everything written before to stable storage, as odafs_fsync().
pub const ODAFS_OP_FSYNC: u32 = 2;

/// The most reads that one thread takes at once, and the most bytes of several reads. The other threads take the rest.
const TOGETHER: usize = 64;
const BYTES_TOGETHER: usize = 256 << 10;
/// The default number of threads of a ring.
const THREADS: u32 = 4;
const THREADS_MAX: u32 = 256;
const ENTRIES_MAX: u32 = 1 << 20;

/// A request.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct odafs_submission {
    /// ODAFS_OP_...
    pub op: u32,
    /// The file. It may be closed after the submission.
    pub file: *const odafs_file,
    /// The bytes. They belong to the ring until the submission has completed.
    pub buffer: *mut c_void,
    /// Length in bytes.
    pub bytes: usize,
    /// First byte, as an offset in the file.
    pub offset: u64,
    /// A value of the program's choice, which the completion contains again.
    pub user_data: u64,
}

/// The result of a submission.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct odafs_completion {
    /// The value of the submission.
    pub user_data: u64,
    /// Bytes read or written, 0 for ODAFS_OP_FSYNC; or -errno.
    pub result: i64,
}

/// A queue of submissions, a queue of completions, and threads between them. Any number of threads may use it at the
/// same time.
pub struct odafs_ring {
    shared: Arc<Shared>,
    threads: Vec<JoinHandle<()>>,
}

struct Shared {
    queues: Mutex<Queues>,
    /// Signalled when there is something to do, or the ring ends.
    submitted: Condvar,
    /// Signalled when something has completed.
    completed: Condvar,
    /// A descriptor that is readable while there are completions.
    event: OwnedFd,
    entries: usize,
}

#[derive(Default)]
struct Queues {
    submissions: VecDeque<Job>,
    completions: VecDeque<Done>,
    /// Number of submissions whose completions have not been fetched.
    held: usize,
    ending: bool,
}

struct Job {
    op: Op,
    file: File,
    file_id: u64,
    buffer: *mut c_void,
    bytes: usize,
    offset: u64,
    user_data: u64,
}

// SAFETY: the buffer is the ring's until the job has completed, whichever of its threads does it.
unsafe impl Send for Job {}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Op {
    Read,
    Write,
    Sync,
}

struct Done {
    user_data: u64,
    result: Result<usize, Error>,
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Queues> {
        self.queues.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn complete(&self, done: impl IntoIterator<Item = Done>) {
        let mut queues = self.lock();
        let was_empty = queues.completions.is_empty();
        queues.completions.extend(done);
        if was_empty && !queues.completions.is_empty() {
            // The counter is 0 then, so it has room.
            let _ = rustix::io::write(&self.event, &1u64.to_ne_bytes());
        }
        drop(queues);
        self.completed.notify_all();
    }

    /// The work of one of the ring's threads.
    fn work(&self) {
        let mut queues = self.lock();
        loop {
            if queues.ending {
                return;
            }
            let Some(first) = queues.submissions.pop_front() else {
                queues = self
                    .submitted
                    .wait(queues)
                    .unwrap_or_else(PoisonError::into_inner);
                continue;
            };
            let mut bytes = first.bytes;
            let mut jobs = vec![first];
            let alike = |first: &Job, next: &Job| {
                (first.op, next.op) == (Op::Read, Op::Read)
                    && first.file.client().has_opened(&next.file)
            };
            while let Some(next) = queues.submissions.front()
                && fits(jobs.len(), bytes, next.bytes)
                && alike(&jobs[0], next)
            {
                bytes += next.bytes;
                jobs.extend(queues.submissions.pop_front());
            }
            drop(queues);
            // The client chooses a route for each row of reads of one file.
            jobs.sort_by_key(|job| job.file_id);
            self.run(&jobs);
            queues = self.lock();
        }
    }
}

/// Whether a thread that has taken this many `reads` of `bytes` in all takes another.
fn fits(reads: usize, bytes: usize, next: usize) -> bool {
    reads < TOGETHER && bytes.saturating_add(next) <= BYTES_TOGETHER
}

impl Shared {
    /// Does jobs: one of any kind, or reads of one client's files.
    fn run(&self, jobs: &[Job]) {
        if let [first, _, ..] = jobs {
            let mut requests: Vec<_> = jobs
                .iter()
                // SAFETY: checked when it was submitted; the ring's until it completes, and no two jobs share one.
                .map(|job| FileRequest::new(&job.file, job.offset, unsafe { job.memory() }))
                .collect();
            let client = first.file.client();
            let read = catch_unwind(AssertUnwindSafe(|| client.read_batch(&mut requests)));
            match read {
                Ok(Ok(())) => {
                    let bytes: Vec<_> = requests.iter().map(|request| request.bytes).collect();
                    let done = jobs.iter().zip(bytes);
                    return self.complete(done.map(|(job, bytes)| job.ended(Ok(bytes))));
                }
                // The server refused one read, so each is made alone to get its own result.
                Ok(Err(ReadError::Server { .. })) => {}
                // The failure has taken its time already, and each of them would take it again.
                Ok(Err(mut error)) => {
                    return self.complete(jobs.iter().map(|job| job.shares(&mut error)));
                }
                Err(panic) => {
                    let error = panicked(&*panic);
                    return self.complete(jobs.iter().map(|job| job.ended(Err(error.clone()))));
                }
            }
        }
        for job in jobs {
            let cancelled = self.lock().ending;
            self.complete([if cancelled {
                job.cancelled()
            } else {
                job.run()
            }]);
        }
    }
}

impl Job {
    /// # Safety
    /// Makes the job until it has completed, one read at a time.
    unsafe fn memory<'a>(&self) -> &'a mut [u8] {
        // SAFETY: the caller's word; NULL and wrong lengths were refused.
        unsafe { memory(self.buffer, self.bytes) }.unwrap_or_default()
    }

    fn run(&self) -> Done {
        let done = catch_unwind(AssertUnwindSafe(|| match self.op {
            // SAFETY: it has not completed, and this thread alone does it.
            Op::Read => Ok(self.file.read_at(unsafe { self.memory() }, self.offset)?),
            Op::Write => {
                // SAFETY: checked when it was submitted; nobody changes it until it completes.
                let data = unsafe { data(self.buffer, self.bytes)? };
                self.file.write_at(data, self.offset)?;
                Ok(self.bytes)
            }
            Op::Sync => {
                self.file.sync()?;
                Ok(0)
            }
        }));
        self.ended(done.unwrap_or_else(|panic| Err(panicked(&*panic))))
    }

    /// The end of a read that failed together with another, under its own name.
    fn shares(&self, error: &mut ReadError) -> Done {
        if let ReadError::Call { path, offset, .. } = error {
            self.file.path().clone_into(path);
            *offset = self.offset;
        }
        self.ended(Err(Error::new(error.errno(), error.to_string())))
    }

    fn ended(&self, result: Result<usize, Error>) -> Done {
        Done {
            user_data: self.user_data,
            result,
        }
    }

    fn cancelled(&self) -> Done {
        self.ended(Err(Error::new(
            libc::ECANCELED,
            "the ring was freed before this began",
        )))
    }
}

/// Creates a ring for at most `entries` submissions whose completions have not been fetched, with this many `threads`
/// (0: 4). Returns NULL on failure.
#[unsafe(no_mangle)]
pub extern "C" fn odafs_ring_new(entries: u32, threads: u32) -> *mut odafs_ring {
    at_border(|| {
        if !(1..=ENTRIES_MAX).contains(&entries) || threads > THREADS_MAX {
            return Err(Error::invalid(format!(
                "a ring of {entries} entries and {threads} threads: from 1 to {ENTRIES_MAX} entries and at most {THREADS_MAX} \
                 threads are possible"
            )));
        }
        let system = |what: &str, error: std::io::Error| {
            let errno = error.raw_os_error().unwrap_or(libc::EAGAIN);
            Error::new(errno, format!("a ring: {what}: {error}"))
        };
        let event = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)
            .map_err(|errno| system("eventfd", errno.into()))?;
        let shared = Arc::new(Shared {
            queues: Mutex::default(),
            submitted: Condvar::new(),
            completed: Condvar::new(),
            event,
            entries: entries as usize,
        });
        let mut ring = Box::new(odafs_ring {
            shared,
            threads: Vec::new(),
        });
        for _ in 0..if threads == 0 { THREADS } else { threads } {
            let shared = Arc::clone(&ring.shared);
            let thread = std::thread::Builder::new().name("odafs-ring".to_owned());
            let thread = thread.spawn(move || shared.work());
            ring.threads
                .push(thread.map_err(|error| system("a thread", error))?);
        }
        Ok(Box::into_raw(ring))
    })
}

impl Drop for odafs_ring {
    /// Submissions that have begun are done first: their buffers belong to the program again. The others never begin.
    fn drop(&mut self) {
        self.shared.lock().ending = true;
        self.shared.submitted.notify_all();
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
    }
}

/// Waits until all submissions that have begun are done, cancels the others (ECANCELED: they are not done, and nobody
/// is told), drops completions that nobody has fetched, and frees the ring. To have all of them done, fetch the
/// completions first. If `ring` is NULL, does nothing.
///
/// # Safety
/// `ring` is NULL, or came from odafs_ring_new() and is not used again.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn odafs_ring_free(ring: *mut odafs_ring) {
    // SAFETY: the caller's word.
    unsafe { crate::file::free(ring) };
}

/// A file descriptor that is readable while there are completions, for poll(2) and epoll(7). It belongs to the ring:
/// neither read from it nor close it.
///
/// # Safety
/// `ring` is NULL or a ring.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn odafs_ring_fd(ring: *const odafs_ring) -> c_int {
    // SAFETY: the caller's word.
    at_border(|| Ok(unsafe { handle(ring, "ring")? }.shared.event.as_raw_fd()))
}

/// Submits requests. The calling thread does reads that need no waiting at once; the ring's threads do all others, in
/// any order. Up to 64 reads of 256 KiB in all that are submitted together, of any files of one client, are in flight
/// together, on one of the threads. Returns how many were accepted, from the first on. That is fewer than `count` if the
/// ring is full (fetch completions, then submit the rest) or if a later one is invalid. Returns -1 if the first is invalid
/// or has no room (EAGAIN); then none was accepted.
///
/// # Safety
/// `ring` is NULL or a ring; `submissions` points to `count` submissions, whose files are NULL or open and whose
/// buffers have room for their bytes. Until a submission has completed, nobody uses its buffer (for writes: nobody
/// changes it).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn odafs_ring_submit(
    ring: *const odafs_ring,
    submissions: *const odafs_submission,
    count: usize,
) -> libc::ssize_t {
    at_border(|| {
        // SAFETY: the caller's word.
        let (ring, submissions) = unsafe {
            (
                handle(ring, "ring")?,
                array(submissions, count, "submissions")?,
            )
        };
        let shared = &ring.shared;
        let room = {
            let mut queues = shared.lock();
            let room = (shared.entries - queues.held).min(submissions.len());
            queues.held += room;
            room
        };
        if room == 0 && !submissions.is_empty() {
            return Err(Error::new(
                libc::EAGAIN,
                "the ring is full: fetch completions with odafs_ring_wait first",
            ));
        }
        let mut batch = Submitting {
            shared,
            room,
            done: Vec::new(),
            jobs: Vec::new(),
        };
        let mut wrong = None;
        for submission in &submissions[..room] {
            // SAFETY: the caller's word.
            match unsafe { submission.job() } {
                Ok(job) => match job.at_once() {
                    Some(ended) => batch.done.push(ended),
                    None => batch.jobs.push(job),
                },
                Err(error) => {
                    wrong = Some(error);
                    break;
                }
            }
        }
        let taken = batch.done.len() + batch.jobs.len();
        drop(batch);
        match wrong {
            Some(error) if taken == 0 => Err(error),
            _ => Ok(taken as libc::ssize_t),
        }
    })
}

/// The accepted submissions of a call. They enter the queues however the call ends, even by a panic.
struct Submitting<'r> {
    shared: &'r Shared,
    /// Submissions that are counted as held.
    room: usize,
    done: Vec<Done>,
    jobs: Vec<Job>,
}

impl Drop for Submitting<'_> {
    fn drop(&mut self) {
        let (done, jobs) = (mem::take(&mut self.done), mem::take(&mut self.jobs));
        let queued = jobs.len();
        {
            let mut queues = self.shared.lock();
            queues.held -= self.room - done.len() - queued;
            queues.submissions.extend(jobs);
        }
        match queued {
            0 => {}
            1 => self.shared.submitted.notify_one(),
            _ => self.shared.submitted.notify_all(),
        }
        self.shared.complete(done);
    }
}

impl odafs_submission {
    /// # Safety
    /// As odafs_ring_submit().
    unsafe fn job(&self) -> Result<Job, Error> {
        // SAFETY: the caller's word.
        let file = unsafe { handle(self.file, "file")? };
        let file_id = file.id;
        let (op, file) = match self.op {
            ODAFS_OP_READ => (Op::Read, file.to_read()?),
            ODAFS_OP_WRITE => (Op::Write, file.to_write()?),
            ODAFS_OP_FSYNC => (Op::Sync, &file.file),
            other => return Err(Error::invalid(format!("{other} is no ODAFS_OP"))),
        };
        // SAFETY: they are there, and nobody else uses them.
        unsafe {
            match op {
                Op::Read => drop(memory(self.buffer, self.bytes)?),
                Op::Write => drop(data(self.buffer, self.bytes)?),
                Op::Sync => {}
            }
        }
        Ok(Job {
            op,
            file: file.clone(),
            file_id,
            buffer: self.buffer,
            bytes: self.bytes,
            offset: self.offset,
            user_data: self.user_data,
        })
    }
}

impl Job {
    fn at_once(&self) -> Option<Done> {
        if self.op != Op::Read {
            return None;
        }
        // SAFETY: it is this thread's until it is queued.
        let bytes = self
            .file
            .try_read_at(unsafe { self.memory() }, self.offset)?;
        Some(self.ended(Ok(bytes)))
    }
}

/// Fetches completions: waits until `min` are there or `timeout_ms` has passed (-1: for ever), then returns up to
/// `max`. Returns how many, or 0 if none came in time. If one of them failed, odafs_last_error() describes the last one
/// that did.
///
/// # Safety
/// `ring` is NULL or a ring; `completions` has room for `max`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn odafs_ring_wait(
    ring: *const odafs_ring,
    completions: *mut odafs_completion,
    max: usize,
    min: usize,
    timeout_ms: c_int,
) -> libc::ssize_t {
    at_border(|| {
        // SAFETY: the caller's word.
        let ring = unsafe { handle(ring, "ring")? };
        if completions.is_null() && max > 0 || min > max || min > ring.shared.entries {
            return Err(Error::invalid(format!(
                "odafs_ring_wait: from {min} to {max} completions at {completions:p}, of a ring of {} entries",
                ring.shared.entries
            )));
        }
        let deadline = u64::try_from(timeout_ms)
            .ok()
            .map(|ms| Instant::now() + Duration::from_millis(ms));
        let shared = &ring.shared;
        let mut queues = shared.lock();
        while queues.completions.len() < min {
            queues = match deadline.map(|deadline| deadline.checked_duration_since(Instant::now()))
            {
                None => shared
                    .completed
                    .wait(queues)
                    .unwrap_or_else(PoisonError::into_inner),
                Some(None) => break,
                Some(Some(left)) => {
                    shared
                        .completed
                        .wait_timeout(queues, left)
                        .unwrap_or_else(PoisonError::into_inner)
                        .0
                }
            };
        }
        let count = queues.completions.len().min(max);
        let fetched: Vec<_> = queues.completions.drain(..count).collect();
        queues.held -= count;
        if count > 0 && queues.completions.is_empty() {
            let _ = rustix::io::read(&shared.event, &mut [0u8; 8]);
        }
        drop(queues);
        for (at, done) in fetched.iter().enumerate() {
            let result = match &done.result {
                Ok(bytes) => *bytes as i64,
                Err(failed) => {
                    error::remember(failed);
                    -i64::from(failed.errno)
                }
            };
            let user_data = done.user_data;
            // SAFETY: there is room for `max`, and `at` is less.
            unsafe {
                completions
                    .add(at)
                    .write(odafs_completion { user_data, result });
            }
        }
        Ok(count as libc::ssize_t)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// How many reads of this length one thread takes.
    fn taken(length: usize) -> usize {
        let next = |reads: &usize| fits(*reads, reads * length, length);
        (1..).take_while(next).count() + 1
    }

    #[test]
    fn a_thread_takes_many_short_reads_or_few_long_ones() {
        assert_eq!(taken(0), TOGETHER);
        assert_eq!(taken(4096), TOGETHER);
        assert_eq!(taken(64 << 10), 4);
        assert_eq!(taken(1 << 20), 1);
        assert!(!fits(1, 4096, usize::MAX));
    }
}
