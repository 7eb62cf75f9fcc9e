//! The way back from the workers to the engine that deferred a call.

use odafs_fabric::sync::atomic::{AtomicBool, Ordering};
use odafs_fabric::sync::{Arc, Mutex};
use odafs_fabric::wake::WakeSet;

use std::collections::VecDeque;

use crate::calls::{Job, Outcome};

/// Where a call came from.
#[derive(Clone, Copy)]
pub(super) struct CallOrigin {
    /// The place of the connection.
    pub line: usize,
    /// The number of the connection, because the place may have been reused.
    pub number: u64,
    /// The connection's own name for the call.
    pub call: u64,
}

/// A call that a worker has served.
pub(super) struct Returned {
    pub place: CallOrigin,
    /// What to do. Never `Deferred`.
    pub outcome: Outcome,
    /// Whether that is the result of the work. Otherwise nobody did it, or it panicked.
    pub served: bool,
    /// The reply.
    pub reply: Vec<u8>,
    /// Number of frames that it had pinned when it was deferred.
    pub pins: usize,
}

/// The queue of the workers' results.
pub(super) struct Returns {
    queue: Mutex<VecDeque<Returned>>,
    /// Whether the queue has something. This saves the engine the lock in every round.
    there: AtomicBool,
    wake: Arc<WakeSet>,
}

impl Returns {
    pub fn new(wake: Arc<WakeSet>) -> Returns {
        Returns {
            queue: Mutex::new(VecDeque::new()),
            there: AtomicBool::new(false),
            wake,
        }
    }

    /// What wakes the engine.
    pub fn waker(&self) -> &Arc<WakeSet> {
        &self.wake
    }

    pub fn is_empty(&self) -> bool {
        !self.there.load(Ordering::Acquire)
    }

    pub fn take(&self) -> Option<Returned> {
        if self.is_empty() {
            return None;
        }
        let mut queue = self.queue.lock();
        let returned = queue.pop_front();
        self.there.store(!queue.is_empty(), Ordering::Release);
        returned
    }

    fn put(&self, returned: Returned) {
        let mut queue = self.queue.lock();
        queue.push_back(returned);
        self.there.store(true, Ordering::Release);
        drop(queue);
        self.wake.wake();
    }

    /// The job as a task for the workers. Even if the task panics or never runs, something comes back, so that no
    /// connection waits for ever.
    pub fn task(self: &Arc<Self>, job: Job, place: CallOrigin) -> Box<dyn FnOnce() + Send> {
        let mut ticket = Ticket {
            returns: Arc::clone(self),
            returned: Some(Returned {
                place,
                outcome: Outcome::Dropped,
                served: false,
                reply: Vec::new(),
                pins: job.pins(),
            }),
        };
        Box::new(move || {
            let mut reply = Vec::new();
            let mut outcome = job.run(&mut reply);
            while let Outcome::Deferred(next) = outcome {
                reply.clear();
                outcome = next.run(&mut reply);
            }
            if let Some(returned) = &mut ticket.returned {
                returned.outcome = outcome;
                returned.served = true;
                returned.reply = reply;
            }
        })
    }
}

struct Ticket {
    returns: Arc<Returns>,
    returned: Option<Returned>,
}

impl Drop for Ticket {
    fn drop(&mut self) {
        if let Some(returned) = self.returned.take() {
            self.returns.put(returned);
        }
    }
}
