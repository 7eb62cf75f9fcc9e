//! Copies that go on after their COPY was answered (RFC 7862, sections 15.8 and 15.9): one thread makes them all, a piece of
//! each in turn. [`super::state`] knows whose they are, and says before each piece whether it is still wanted and allowed; what
//! became of a copy is told by CB_OFFLOAD.

use std::collections::VecDeque;

use odafs_common::wire::nfs4::{AtMostOne, OffloadStatusOk, StateId, Status};
use odafs_fabric::clock::{self, Nanos};
use odafs_fabric::sync::thread::{self, JoinHandle};
use odafs_fabric::sync::{Arc, Condvar, Mutex};

use super::compound::{Compound, Done};
use super::convert;
use super::recalls::{Messenger, party};
use super::state::{CopyTurn, Sender};
use crate::vfs::copies::{self, Steps};
use crate::vfs::promises;

/// Makes the copies.
pub(super) struct Copier {
    shared: Arc<Shared>,
    thread: Mutex<Option<JoinHandle<()>>>,
    /// A copy of more bytes goes on after its reply.
    pub longer_than: u64,
    /// The most bytes of a piece.
    pub piece: u64,
    /// It has a thread, from the first copy on. Tests make the pieces themselves.
    pub has_thread: bool,
}

struct Shared {
    messenger: Arc<Messenger>,
    queue: Mutex<Queue>,
    /// There is something in the queue, or nothing more is to be done.
    work: Condvar,
    /// A piece is done. Waiters hold the state's lock.
    done: Condvar,
}

#[derive(Default)]
struct Queue {
    jobs: VecDeque<Job>,
    /// Those that wait for a delegation to be returned.
    later: Vec<Job>,
    stopped: bool,
}

/// A copy.
pub(super) struct Job {
    /// Its stateid.
    pub state: StateId,
    /// For whom.
    pub sender: Sender,
    /// What is left of it.
    pub steps: Steps,
    /// When it was first told to come again, since the last piece.
    pub waits: Option<Nanos>,
}

impl Job {
    /// It was told to come again for longer than what it may wait for can take.
    fn waits_too_long(&mut self, lease: Nanos) -> bool {
        let now = clock::now();
        let since = *self.waits.get_or_insert(now);
        now.since(since) > lease + lease
    }
}

impl Copier {
    /// Nothing to do yet.
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

    /// Takes a copy. False: there is no thread to be had for it.
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
    pub fn step(&self) -> bool {
        let job = self.shared.queue.lock().jobs.pop_front();
        job.map(|job| self.shared.step(job)).is_some()
    }

    /// Those that wait for others are tried again.
    pub fn tick(&self) {
        let mut queue = self.shared.queue.lock();
        let later = std::mem::take(&mut queue.later);
        if later.is_empty() {
            return;
        }
        queue.jobs.extend(later);
        drop(queue);
        self.shared.work.notify_one();
    }

    /// Copies nothing any more. What is under way is left as it is.
    pub fn stop(&self) {
        let mut thread = self.thread.lock();
        let mut queue = self.shared.queue.lock();
        queue.stopped = true;
        queue.jobs.clear();
        queue.later.clear();
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

/// Ends a copy that a panic would leave under way for ever.
struct UnderWay<'a> {
    shared: &'a Shared,
    state: StateId,
    ended: bool,
}

impl Drop for UnderWay<'_> {
    fn drop(&mut self) {
        if !self.ended {
            let mut state = self.shared.messenger.state.lock();
            state.end_copy(&self.state, Status::ServerFault);
            drop(state);
            self.shared.done.notify_all();
        }
    }
}

impl Shared {
    /// The thread.
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
        self.step(job);
    }

    /// A piece that panics takes its copy with it, not the others.
    #[cfg(not(shuttle))]
    fn run(&self, job: Job) {
        let step = std::panic::AssertUnwindSafe(|| self.step(job));
        if std::panic::catch_unwind(step).is_err() {
            tracing::error!("a copy panicked");
        }
    }

    /// Copies a piece, if it is still wanted.
    fn step(&self, mut job: Job) {
        let state = job.state;
        let turn = self.messenger.state.lock().copy_turn(clock::now(), &state);
        let mut under_way = UnderWay {
            shared: self,
            state,
            ended: false,
        };
        let copied = match turn {
            CopyTurn::Copy => {
                let _acting = promises::changing_for(party(job.sender));
                let copied = job.steps.step(&self.messenger.export);
                copied.map_err(|error| convert::status(error.status))
            }
            CopyTurn::Refused(status) => Err(status),
            CopyTurn::Gone => {
                under_way.ended = true;
                return;
            }
        };
        under_way.ended = true;
        let mut machine = self.messenger.state.lock();
        let goes_on = match copied {
            Ok(bytes) => {
                let wanted = machine.copied(&state, bytes);
                let more = bytes > 0 && job.steps.left() > 0;
                job.waits = None;
                if wanted && !more {
                    machine.end_copy(&state, Status::Ok);
                }
                wanted && more
            }
            // A delegation is to be returned first, which takes a lease at most.
            Err(Status::Delay) if !job.waits_too_long(machine.lease()) => machine.copied(&state, 0),
            Err(status) => {
                machine.end_copy(&state, status);
                false
            }
        };
        drop(machine);
        self.done.notify_all();
        if goes_on {
            let mut queue = self.queue.lock();
            match copied {
                _ if queue.stopped => {}
                Ok(_) => queue.jobs.push_back(job),
                Err(_) => queue.later.push(job),
            }
        } else {
            self.messenger.call_back();
        }
    }
}

/// OFFLOAD_STATUS
pub(super) fn status(c: &Compound<'_>, state: StateId) -> Done<OffloadStatusOk> {
    let file = c.real()?;
    let machine = c.server.state.lock();
    let (count, complete) = machine.copy_status(c.sender, &state, file)?;
    Ok(OffloadStatusOk {
        count,
        complete: AtMostOne(complete),
    })
}

/// OFFLOAD_CANCEL. Nothing is copied any more once it is answered.
pub(super) fn cancel(c: &Compound<'_>, state: StateId) -> Done<()> {
    c.may_block()?;
    let file = c.real()?;
    let mut machine = c.server.state.lock();
    machine.cancel_copy(c.sender, &state, file)?;
    while machine.is_copying(&state) {
        machine = c.server.copier.shared.done.wait(machine);
    }
    Ok(())
}
