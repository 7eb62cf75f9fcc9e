//! Copies that go on after the reply of COPY (RFC 7862, sections 15.8 and 15.9). One thread makes all of them, a piece of each
//! in turn. [`super::state`] knows their clients, and says before each piece whether it is still wanted and allowed. CB_OFFLOAD
//! tells the client how a copy ended.

use std::collections::VecDeque;

use odafs_common::wire::nfs4::{AtMostOne, OffloadStatusOk, StateId, Status};
use odafs_fabric::clock::{self, Nanos};
use odafs_fabric::sync::thread::{self, JoinHandle};
use odafs_fabric::sync::{Arc, Condvar, Mutex};

use super::compound::{Compound, Done};
use super::convert;
use super::recalls::{Messenger, party};
use super::state::{NextPiece, Sender};
use crate::vfs::copies::{self, LongCopy};
use crate::vfs::promises;

/// Makes the copies that go on after their reply.
pub(super) struct Copier {
    shared: Arc<Shared>,
    thread: Mutex<Option<JoinHandle<()>>>,
    /// A copy of more bytes than this goes on after its reply.
    pub longer_than: u64,
    /// The longest piece, in bytes.
    pub piece: u64,
    /// Whether the first copy starts a thread. Tests make the pieces themselves.
    pub has_thread: bool,
}

struct Shared {
    messenger: Arc<Messenger>,
    queue: Mutex<Queue>,
    /// The queue has a job, or is stopped.
    work: Condvar,
    /// A piece has ended. Waiters hold the state's lock.
    done: Condvar,
}

#[derive(Default)]
struct Queue {
    jobs: VecDeque<Job>,
    /// Jobs that wait for a delegation to be returned.
    delayed: Vec<Job>,
    stopped: bool,
}

/// A copy.
pub(super) struct Job {
    /// Its stateid.
    pub stateid: StateId,
    /// The client that asked for it.
    pub sender: Sender,
    /// What is left of it.
    pub steps: LongCopy,
    /// When the store first said DELAY since the last piece.
    pub delayed_since: Option<Nanos>,
}

impl Job {
    /// Whether it has been delayed for longer than a delegation can take to be returned or revoked.
    fn is_delayed_too_long(&mut self, lease: Nanos) -> bool {
        let now = clock::awake();
        let since = *self.delayed_since.get_or_insert(now);
        now.since(since) > lease + lease + lease
    }
}

impl Copier {
    /// Without copies and without a thread.
    pub fn new(messenger: Arc<Messenger>) -> Self {
        Self {
            shared: Arc::new(Shared {
                messenger,
                queue: Mutex::default(),
                work: Condvar::new(),
                done: Condvar::new(),
            }),
            thread: Mutex::default(),
            longer_than: copies::MOST,
            piece: copies::PIECE,
            has_thread: true,
        }
    }

    /// Takes a copy. False: no thread can be started for it, or the server stops.
    pub fn take(&self, job: Job) -> bool {
        let mut thread = self.thread.lock();
        if self.shared.queue.lock().stopped {
            return false;
        }
        if thread.is_none() && self.has_thread {
            let shared = Arc::clone(&self.shared);
            let started = thread::Builder::new().name("odafs-copies".to_owned());
            match started.spawn(move || shared.work()) {
                Ok(started) => *thread = Some(started),
                Err(_) => return false,
            }
        }
        self.shared.queue.lock().jobs.push_back(job);
        drop(thread);
        self.shared.work.notify_one();
        true
    }

    /// Copies a piece of the next copy. False: there is none.
    #[cfg(test)]
    pub fn copy_piece(&self) -> bool {
        let job = self.shared.queue.lock().jobs.pop_front();
        job.map(|job| self.shared.copy_piece(job)).is_some()
    }

    /// Tries delayed copies again. To be called every second or so.
    pub fn tick(&self) {
        let mut queue = self.shared.queue.lock();
        let delayed = std::mem::take(&mut queue.delayed);
        if delayed.is_empty() {
            return;
        }
        queue.jobs.extend(delayed);
        drop(queue);
        self.shared.work.notify_one();
    }

    /// Ends the thread. Copies under way end where they are.
    pub fn stop(&self) {
        let mut thread = self.thread.lock();
        let mut queue = self.shared.queue.lock();
        queue.stopped = true;
        queue.jobs.clear();
        queue.delayed.clear();
        drop(queue);
        self.shared.work.notify_all();
        if thread.take().is_some_and(|thread| thread.join().is_err()) {
            tracing::error!("a thread of the server panicked");
        }
    }
}

impl Drop for Copier {
    fn drop(&mut self) {
        self.stop();
    }
}

/// A piece under way. If it panics, it ends its copy, which would be under way for ever otherwise.
struct UnderWay<'a> {
    shared: &'a Shared,
    stateid: StateId,
    ended: bool,
}

impl Drop for UnderWay<'_> {
    fn drop(&mut self) {
        if !self.ended {
            let mut state = self.shared.messenger.state.lock();
            state.end_copy(&self.stateid, Status::ServerFault);
            drop(state);
            self.shared.done.notify_all();
        }
    }
}

impl Shared {
    /// What the thread does.
    fn work(&self) {
        while let Some(job) = self.next() {
            self.run(job);
        }
    }

    fn next(&self) -> Option<Job> {
        let mut queue = self.queue.lock();
        loop {
            if queue.stopped {
                return None;
            }
            if let Some(job) = queue.jobs.pop_front() {
                return Some(job);
            }
            queue = self.work.wait(queue);
        }
    }

    /// In the simulator a panic ends the run.
    #[cfg(shuttle)]
    fn run(&self, job: Job) {
        self.copy_piece(job);
    }

    /// A piece that panics ends its own copy only.
    #[cfg(not(shuttle))]
    fn run(&self, job: Job) {
        let piece = std::panic::AssertUnwindSafe(|| self.copy_piece(job));
        if std::panic::catch_unwind(piece).is_err() {
            tracing::error!("a copy panicked");
        }
    }

    /// Copies a piece of a copy, if it is still wanted.
    fn copy_piece(&self, mut job: Job) {
        let stateid = job.stateid;
        let mut state = self.messenger.state.lock();
        let next = state.next_piece(clock::awake(), &stateid);
        drop(state);
        let mut under_way = UnderWay {
            shared: self,
            stateid,
            ended: false,
        };
        let copied = match next {
            NextPiece::Copy => {
                let _acting = promises::changing_for(party(job.sender));
                let copied = job.steps.step(&self.messenger.export);
                copied.map_err(|error| convert::status(error.status))
            }
            NextPiece::Refused(status) => Err(status),
            NextPiece::Gone => {
                under_way.ended = true;
                return;
            }
        };
        under_way.ended = true;
        let mut state = self.messenger.state.lock();
        let goes_on = match copied {
            Ok(bytes) => {
                let wanted = state.end_piece(&stateid, bytes);
                let more = bytes > 0 && job.steps.left() > 0;
                job.delayed_since = None;
                if wanted && !more {
                    state.end_copy(&stateid, Status::Ok);
                }
                wanted && more
            }
            // A delegation has to be returned first. It is revoked after two leases at most.
            Err(Status::Delay) if !job.is_delayed_too_long(state.lease()) => {
                state.end_piece(&stateid, 0)
            }
            Err(status) => {
                state.end_copy(&stateid, status);
                false
            }
        };
        drop(state);
        self.done.notify_all();
        if goes_on {
            let mut queue = self.queue.lock();
            match copied {
                _ if queue.stopped => {}
                Ok(_) => queue.jobs.push_back(job),
                Err(_) => queue.delayed.push(job),
            }
        } else {
            self.messenger.call_back();
        }
    }
}

/// OFFLOAD_STATUS
pub(super) fn status(c: &Compound<'_>, stateid: StateId) -> Done<OffloadStatusOk> {
    c.may_block()?;
    let file = c.real()?;
    let state = c.server.state.lock();
    let (count, complete) = state.copy_status(c.sender, &stateid, file)?;
    Ok(OffloadStatusOk {
        count,
        complete: AtMostOne(complete),
    })
}

/// OFFLOAD_CANCEL. When it returns, nothing more is copied.
pub(super) fn cancel(c: &Compound<'_>, stateid: StateId) -> Done<()> {
    c.may_block()?;
    let file = c.real()?;
    let mut state = c.server.state.lock();
    state.cancel_copy(c.sender, &stateid, file)?;
    while state.is_copying(&stateid) {
        state = c.server.copier.shared.done.wait(state);
    }
    Ok(())
}
