//! The pool: a bounded number of threads for whatever may block.

mod turns;

use odafs_fabric::clock;
use odafs_fabric::sync::atomic::{AtomicBool, Ordering::Relaxed};
use odafs_fabric::sync::thread::{self, JoinHandle};
use odafs_fabric::sync::{Arc, Condvar, Mutex};
use odafs_nic::calls::{Errand, Workers};

use self::turns::{Shares, Turns};
use crate::vfs::pace;

type Task = Box<dyn FnOnce() + Send>;

/// Runs errands on its threads. Errands that may wait for stable storage have threads of their own, as many again, so that
/// no other errand waits behind a disk. For each kind, connections take turns of one task. A connection's tasks run in the
/// order in which they came, and no connection gets all the threads.
pub struct Pool {
    lanes: [Arc<Lane>; 2],
    threads: Mutex<Vec<JoinHandle<()>>>,
    threads_each: usize,
}

/// The names of the two kinds of threads.
const KINDS: [&str; 2] = ["io", "sync"];

/// How busy the threads of a kind are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PoolLoad {
    /// `io`, or `sync` for what may wait for stable storage.
    pub kind: &'static str,
    /// Threads.
    pub threads: usize,
    /// Calls that they are serving.
    pub running: usize,
    /// Calls that wait for one.
    pub waiting: usize,
}

/// The errands of one kind.
struct Lane {
    turns: Mutex<Turns<Task>>,
    work: Condvar,
    waiting_max: usize,
    /// A thread waits no longer than until it is time to look at tasks that are held. Changed under the lock of the turns.
    watched: AtomicBool,
}

#[cfg(not(shuttle))]
fn processors() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

/// Tasks sleep there for as long as the scheduler wants.
#[cfg(shuttle)]
fn processors() -> usize {
    usize::MAX
}

impl Pool {
    /// `threads` threads of each kind; at most `waiting_max` tasks wait for one.
    ///
    /// # Errors
    /// The system has no more threads.
    pub fn start(threads: usize, waiting_max: usize) -> std::io::Result<Self> {
        Self::with(threads.max(1), processors(), waiting_max)
    }

    fn with(threads: usize, processors: usize, waiting_max: usize) -> std::io::Result<Self> {
        let lane = || {
            Arc::new(Lane {
                turns: Mutex::new(Turns::new(Shares::of(threads, processors))),
                work: Condvar::new(),
                waiting_max,
                watched: AtomicBool::new(false),
            })
        };
        let pool = Self {
            lanes: [lane(), lane()],
            threads: Mutex::default(),
            threads_each: threads,
        };
        for (lane, kind) in pool.lanes.iter().zip(KINDS) {
            for number in 0..threads {
                let lane = Arc::clone(lane);
                let thread = thread::Builder::new()
                    .name(format!("odafs-{kind}-{number}"))
                    .spawn(move || lane.work())?;
                pool.threads.lock().push(thread);
            }
        }
        Ok(pool)
    }

    /// How busy it is: the threads for what may block, then those for what may wait for stable storage.
    pub fn load(&self) -> [PoolLoad; 2] {
        let load = |lane: &Lane, kind| {
            let turns = lane.turns.lock();
            PoolLoad {
                kind,
                threads: self.threads_each,
                running: turns.running(),
                waiting: turns.waiting(),
            }
        };
        let [io, sync] = &self.lanes;
        [load(io, KINDS[0]), load(sync, KINDS[1])]
    }

    /// Takes nothing more, and returns when everything that it has taken is done.
    pub fn stop(&self) {
        for lane in &self.lanes {
            lane.turns.lock().stop();
            lane.work.notify_all();
        }
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

/// A task that panics ends its call, but not its thread.
#[cfg(not(shuttle))]
fn run(task: Task) {
    if std::panic::catch_unwind(std::panic::AssertUnwindSafe(task)).is_err() {
        tracing::error!("a task on the pool panicked");
    }
}

impl Lane {
    /// What one thread does.
    fn work(&self) {
        while let Some((connection, task)) = self.next() {
            let before = clock::sleeps();
            run(task);
            let slept = clock::sleeps() != before;
            if slept {
                pace::awake();
            }
            self.turns.lock().done(connection, slept, clock::now());
        }
    }

    fn next(&self) -> Option<(u64, Task)> {
        let mut turns = self.turns.lock();
        loop {
            if let Some(next) = turns.take(clock::now()) {
                self.wake(&turns);
                return Some(next);
            }
            if turns.is_stopped() {
                return None;
            }
            turns = if turns.holds() && !self.watched.swap(true, Relaxed) {
                let (mut turns, _) = self.work.wait_timeout(turns, Turns::<Task>::STUCK);
                self.watched.store(false, Relaxed);
                turns.look(clock::now());
                turns
            } else {
                self.work.wait(turns)
            };
            pace::awake();
        }
    }

    /// Wakes a thread if there is something to do for it: a task, or tasks that may have to wait for those that sleep.
    fn wake(&self, turns: &Turns<Task>) {
        if turns.has_next() || (turns.holds() && !self.watched.load(Relaxed)) {
            self.work.notify_one();
        }
    }
}

impl Workers for Pool {
    fn submit(&self, errand: Errand) -> Result<(), Errand> {
        let lane = &self.lanes[usize::from(errand.syncs)];
        let mut turns = lane.turns.lock();
        if turns.is_stopped() || turns.waiting() >= lane.waiting_max {
            return Err(errand);
        }
        turns.put(errand.connection, errand.task);
        lane.wake(&turns);
        Ok(())
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        self.stop();
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::{self, Receiver, Sender};

    use super::*;

    struct Bench {
        pool: Pool,
        done: (Sender<&'static str>, Receiver<&'static str>),
    }

    impl Bench {
        fn new(threads: usize) -> Self {
            Self {
                pool: Pool::with(threads, 1, 100).expect("threads"),
                done: mpsc::channel(),
            }
        }

        fn submit(&self, connection: u64, syncs: bool, task: impl FnOnce() + Send + 'static) {
            let task = Box::new(task);
            let errand = Errand {
                connection,
                syncs,
                task,
            };
            assert!(self.pool.submit(errand).is_ok());
        }

        /// Tells its name when it is done.
        fn say(&self, connection: u64, syncs: bool, name: &'static str) {
            let done = self.done.0.clone();
            self.submit(connection, syncs, move || {
                let _ = done.send(name);
            });
        }

        /// Waits until the sender is dropped, but not before it has begun.
        fn hold(&self, connection: u64, syncs: bool) -> Sender<()> {
            let (release, wait) = mpsc::channel();
            let (begun, begins) = mpsc::channel();
            self.submit(connection, syncs, move || {
                let _ = begun.send(());
                let _ = wait.recv();
            });
            begins.recv().expect("it begins");
            release
        }

        fn heard(&self, count: usize) -> Vec<&'static str> {
            (0..count)
                .map(|_| self.done.1.recv().expect("done"))
                .collect()
        }
    }

    #[test]
    fn connections_have_their_turns() {
        let bench = Bench::new(1);
        let hold = bench.hold(9, false);
        for name in ["a1", "a2", "a3"] {
            bench.say(1, false, name);
        }
        for name in ["b1", "b2"] {
            bench.say(2, false, name);
        }
        bench.say(3, false, "c1");
        drop(hold);
        assert_eq!(bench.heard(6), ["a1", "b1", "c1", "a2", "b2", "a3"]);
    }

    #[test]
    fn no_connection_has_all_the_threads() {
        let bench = Bench::new(3);
        let holds = [bench.hold(1, false), bench.hold(1, false)];
        bench.say(1, false, "the first's third");
        bench.say(2, false, "another's");
        assert_eq!(bench.heard(1), ["another's"]);
        drop(holds);
        assert_eq!(bench.heard(1), ["the first's third"]);
    }

    #[test]
    fn a_task_may_wait_for_a_later_one_of_its_connection() {
        let bench = Bench::new(3);
        let hold = bench.hold(1, false);
        bench.submit(1, false, move || drop(hold));
        bench.say(1, false, "both are done");
        assert_eq!(bench.heard(1), ["both are done"]);
    }

    #[test]
    fn nobody_waits_behind_those_that_sync() {
        let bench = Bench::new(2);
        let holds = [bench.hold(1, true), bench.hold(2, true)];
        bench.say(3, true, "another sync");
        bench.say(3, false, "a look");
        assert_eq!(bench.heard(1), ["a look"]);
        drop(holds);
        assert_eq!(bench.heard(1), ["another sync"]);
    }

    #[test]
    fn what_was_taken_is_done_before_the_end_and_nothing_is_kept() {
        let bench = Bench::new(2);
        let hold = bench.hold(1, false);
        for _ in 0..10 {
            bench.say(1, false, "done");
        }
        bench.submit(1, false, || panic!("on purpose"));
        drop(hold);
        bench.pool.stop();
        assert_eq!(bench.heard(10), ["done"; 10]);
        for lane in &bench.pool.lanes {
            let turns = lane.turns.lock();
            assert_eq!((turns.running(), turns.waiting()), (0, 0));
            assert!(!turns.has_next() && !turns.holds());
        }
    }
}
