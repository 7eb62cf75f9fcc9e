//! The pool: a bounded number of threads for whatever may block.

use std::collections::{HashMap, VecDeque};

use odafs_fabric::sync::thread::{self, JoinHandle};
use odafs_fabric::sync::{Arc, Condvar, Mutex};
use odafs_nic::calls::{Errand, Workers};

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
    turns: Mutex<Turns>,
    work: Condvar,
    waiting_max: usize,
    /// Threads that one connection may have at a time.
    share: usize,
}

#[derive(Default)]
struct Turns {
    /// Connections with a task that may begin, in the order of their turns.
    next: VecDeque<u64>,
    /// The connections with any task.
    connections: HashMap<u64, Tasks>,
    waiting: usize,
    stopped: bool,
}

/// The tasks of one connection.
#[derive(Default)]
struct Tasks {
    waiting: VecDeque<Task>,
    running: usize,
    has_turn: bool,
}

impl Pool {
    /// `threads` threads of each kind; at most `waiting_max` tasks wait for one.
    ///
    /// # Errors
    /// The system has no more threads.
    pub fn start(threads: usize, waiting_max: usize) -> std::io::Result<Self> {
        let threads = threads.max(1);
        let lane = || {
            Arc::new(Lane {
                turns: Mutex::default(),
                work: Condvar::new(),
                waiting_max,
                share: (threads - 1).max(1),
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
                running: turns.connections.values().map(|tasks| tasks.running).sum(),
                waiting: turns.waiting,
            }
        };
        let [io, sync] = &self.lanes;
        [load(io, KINDS[0]), load(sync, KINDS[1])]
    }

    /// Takes nothing more, and returns when everything that it has taken is done.
    pub fn stop(&self) {
        for lane in &self.lanes {
            lane.turns.lock().stopped = true;
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
            run(task);
            self.turns.lock().done(connection, self.share);
        }
    }

    fn next(&self) -> Option<(u64, Task)> {
        let mut turns = self.turns.lock();
        loop {
            if let Some(next) = turns.take(self.share) {
                return Some(next);
            }
            if turns.stopped {
                return None;
            }
            turns = self.work.wait(turns);
        }
    }
}

impl Turns {
    fn put(&mut self, connection: u64, task: Task, share: usize) {
        let tasks = self.connections.entry(connection).or_default();
        tasks.waiting.push_back(task);
        self.waiting += 1;
        self.give_turn(connection, share);
    }

    fn take(&mut self, share: usize) -> Option<(u64, Task)> {
        let connection = self.next.pop_front()?;
        let tasks = self.connections.get_mut(&connection)?;
        tasks.has_turn = false;
        let task = tasks.waiting.pop_front()?;
        tasks.running += 1;
        self.waiting -= 1;
        self.give_turn(connection, share);
        Some((connection, task))
    }

    fn done(&mut self, connection: u64, share: usize) {
        if let Some(tasks) = self.connections.get_mut(&connection) {
            tasks.running -= 1;
            if tasks.running == 0 && tasks.waiting.is_empty() {
                self.connections.remove(&connection);
            }
        }
        self.give_turn(connection, share);
    }

    /// Queues the connection behind all others, if it has a task that may begin.
    fn give_turn(&mut self, connection: u64, share: usize) {
        if let Some(tasks) = self.connections.get_mut(&connection)
            && !tasks.has_turn
            && !tasks.waiting.is_empty()
            && tasks.running < share
        {
            tasks.has_turn = true;
            self.next.push_back(connection);
        }
    }
}

impl Workers for Pool {
    fn submit(&self, errand: Errand) -> Result<(), Errand> {
        let lane = &self.lanes[usize::from(errand.syncs)];
        let mut turns = lane.turns.lock();
        if turns.stopped || turns.waiting >= lane.waiting_max {
            return Err(errand);
        }
        turns.put(errand.connection, errand.task, lane.share);
        drop(turns);
        lane.work.notify_one();
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
                pool: Pool::start(threads, 100).expect("threads"),
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
            assert!(turns.connections.is_empty() && turns.next.is_empty() && turns.waiting == 0);
        }
    }
}
