//! The pool: a bounded number of threads for whatever may block.

use std::collections::VecDeque;

use odafs_fabric::sync::thread::{self, JoinHandle};
use odafs_fabric::sync::{Arc, Condvar, Mutex};
use odafs_nic::calls::Workers;

type Task = Box<dyn FnOnce() + Send>;

/// Runs tasks on its threads, first come, first served.
pub struct Pool {
    queue: Arc<Queue>,
    threads: Mutex<Vec<JoinHandle<()>>>,
}

struct Queue {
    state: Mutex<State>,
    work: Condvar,
    waiting_max: usize,
}

#[derive(Default)]
struct State {
    waiting: VecDeque<Task>,
    stopped: bool,
}

impl Pool {
    /// `threads` threads; at most `waiting_max` tasks wait for one.
    ///
    /// # Errors
    /// The system has no more threads.
    pub fn start(threads: usize, waiting_max: usize) -> std::io::Result<Self> {
        let queue = Arc::new(Queue {
            state: Mutex::default(),
            work: Condvar::new(),
            waiting_max,
        });
        let pool = Self {
            queue: Arc::clone(&queue),
            threads: Mutex::default(),
        };
        for number in 0..threads.max(1) {
            let queue = Arc::clone(&queue);
            let thread = thread::Builder::new()
                .name(format!("odafs-io-{number}"))
                .spawn(move || {
                    while let Some(task) = queue.next() {
                        run(task);
                    }
                })?;
            pool.threads.lock().push(thread);
        }
        Ok(pool)
    }

    /// Takes nothing more; returns when everything that was taken is done.
    pub fn stop(&self) {
        self.queue.state.lock().stopped = true;
        self.queue.work.notify_all();
        let threads = std::mem::take(&mut *self.threads.lock());
        for thread in threads {
            let _ = thread.join();
        }
    }
}

/// In the simulator a panic ends the run.
#[cfg(shuttle)]
fn run(task: Task) {
    task();
}

/// A task that panics takes its call with it, not its thread.
#[cfg(not(shuttle))]
fn run(task: Task) {
    if std::panic::catch_unwind(std::panic::AssertUnwindSafe(task)).is_err() {
        tracing::error!("a task on the pool panicked");
    }
}

impl Queue {
    fn next(&self) -> Option<Task> {
        let mut state = self.state.lock();
        loop {
            if let Some(task) = state.waiting.pop_front() {
                return Some(task);
            }
            if state.stopped {
                return None;
            }
            state = self.work.wait(state);
        }
    }
}

impl Workers for Pool {
    fn submit(&self, task: Task) -> Result<(), Task> {
        let mut state = self.queue.state.lock();
        if state.stopped || state.waiting.len() >= self.queue.waiting_max {
            return Err(task);
        }
        state.waiting.push_back(task);
        drop(state);
        self.queue.work.notify_one();
        Ok(())
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        self.stop();
    }
}
