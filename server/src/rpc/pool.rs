//! The pool: a bounded number of threads for whatever may block.

use std::collections::{HashMap, VecDeque};

use odafs_fabric::clock::{self, Nanos};
use odafs_fabric::sync::thread::{self, JoinHandle};
use odafs_fabric::sync::{Arc, Condvar, Mutex, MutexGuard};
use odafs_nic::calls::{Errand, Workers};

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
    turns: Mutex<Turns>,
    work: Condvar,
    waiting_max: usize,
    shares: Shares,
}

/// How many threads one connection may have at a time.
#[derive(Clone, Copy)]
struct Shares {
    /// If its tasks sleep.
    most: usize,
    /// If they compute. More than there are processors would take turns at them, and leave little to the threads that poll.
    computing: usize,
}

impl Shares {
    fn of(threads: usize, processors: usize) -> Self {
        let most = (threads - 1).max(1);
        Self {
            most,
            computing: processors.min(most),
        }
    }

    fn of_tasks(self, sleepiness: Sleepiness) -> usize {
        if sleepiness.is_often() {
            self.most
        } else {
            self.computing
        }
    }
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

/// How often tasks have slept lately.
#[derive(Clone, Copy, Default)]
struct Sleepiness {
    /// In 1024ths of the tasks.
    level: u32,
    /// When that became often.
    since: Option<Nanos>,
}

impl Sleepiness {
    const OFTEN: u32 = 300;
    /// Tasks that compute wait for each other, too, and seem to sleep where many run. So fewer are tried now and then.
    const LASTS: Nanos = Nanos::from_millis(100);

    /// Tasks that do not end for so long sleep.
    const STUCK: Nanos = Nanos::from_millis(5);

    fn stuck(now: Nanos) -> Self {
        Self {
            level: 1024,
            since: Some(now),
        }
    }

    fn is_often(&self) -> bool {
        self.level >= Self::OFTEN
    }

    /// Another task has ended.
    fn ended(&mut self, slept: bool, now: Nanos) {
        self.level = (self.level * 7 + u32::from(slept) * 1024) / 8;
        if !self.is_often() {
            self.since = None;
        } else if now.since(*self.since.get_or_insert(now)) > Self::LASTS {
            *self = Self::default();
        }
    }
}

#[derive(Default)]
struct Turns {
    /// Connections with a task that may begin, in the order of their turns.
    next: VecDeque<u64>,
    /// The connections with any task.
    connections: HashMap<u64, Tasks>,
    waiting: usize,
    /// Connections with tasks that wait only because they may compute.
    held: usize,
    /// A thread sees to it that these do not wait for tasks that sleep.
    watched: bool,
    /// Tasks that have ended.
    ended: u64,
    /// Of the tasks of all connections.
    sleepiness: Sleepiness,
    stopped: bool,
}

/// The tasks of one connection.
#[derive(Default)]
struct Tasks {
    waiting: VecDeque<Task>,
    running: usize,
    has_turn: bool,
    /// Another task could run if it slept.
    held: bool,
    sleepiness: Sleepiness,
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
                turns: Mutex::default(),
                work: Condvar::new(),
                waiting_max,
                shares: Shares::of(threads, processors),
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
            let before = clock::sleeps();
            run(task);
            let slept = clock::sleeps() != before;
            self.turns.lock().done(connection, self.shares, slept);
        }
    }

    fn next(&self) -> Option<(u64, Task)> {
        let mut turns = self.turns.lock();
        loop {
            if let Some(next) = turns.take(self.shares) {
                self.wake(&turns);
                return Some(next);
            }
            if turns.stopped {
                return None;
            }
            turns = if turns.held > 0 && !turns.watched {
                self.watch(turns)
            } else {
                self.work.wait(turns)
            };
            pace::awake();
        }
    }

    /// Wakes a thread if there is something to do for it.
    fn wake(&self, turns: &Turns) {
        if !turns.next.is_empty() || (turns.held > 0 && !turns.watched) {
            self.work.notify_one();
        }
    }

    /// Waits while connections are held. If no task ends meanwhile, those that run are taken to sleep.
    fn watch<'a>(&'a self, mut turns: MutexGuard<'a, Turns>) -> MutexGuard<'a, Turns> {
        turns.watched = true;
        let ended = turns.ended;
        let (mut turns, over) = self.work.wait_timeout(turns, Sleepiness::STUCK);
        turns.watched = false;
        if over && turns.ended == ended {
            turns.release(self.shares);
            self.work.notify_all();
        }
        turns
    }
}

impl Turns {
    fn put(&mut self, connection: u64, task: Task, shares: Shares) {
        let tasks = (self.connections.entry(connection)).or_insert_with(|| Tasks {
            sleepiness: self.sleepiness,
            ..Tasks::default()
        });
        tasks.waiting.push_back(task);
        self.waiting += 1;
        self.give_turn(connection, shares);
    }

    fn take(&mut self, shares: Shares) -> Option<(u64, Task)> {
        let connection = self.next.pop_front()?;
        let tasks = self.connections.get_mut(&connection)?;
        tasks.has_turn = false;
        let task = tasks.waiting.pop_front()?;
        tasks.running += 1;
        self.waiting -= 1;
        self.give_turn(connection, shares);
        Some((connection, task))
    }

    fn done(&mut self, connection: u64, shares: Shares, slept: bool) {
        let now = clock::now();
        self.ended += 1;
        self.sleepiness.ended(slept, now);
        if let Some(tasks) = self.connections.get_mut(&connection) {
            tasks.running -= 1;
            tasks.sleepiness.ended(slept, now);
            if tasks.running == 0 && tasks.waiting.is_empty() {
                self.connections.remove(&connection);
            }
        }
        self.give_turn(connection, shares);
    }

    /// Queues the connection behind all others, if it has a task that may begin.
    fn give_turn(&mut self, connection: u64, shares: Shares) {
        let Some(tasks) = self.connections.get_mut(&connection) else {
            return;
        };
        let waits = !tasks.has_turn && !tasks.waiting.is_empty();
        let begins = waits && tasks.running < shares.of_tasks(tasks.sleepiness);
        if begins {
            tasks.has_turn = true;
            self.next.push_back(connection);
        }
        let held = waits && !begins && tasks.running < shares.most;
        self.held += usize::from(held);
        self.held -= usize::from(std::mem::replace(&mut tasks.held, held));
    }

    /// Connections that are held have their turns: what runs sleeps.
    fn release(&mut self, shares: Shares) {
        self.sleepiness = Sleepiness::stuck(clock::now());
        let held = (self.connections.iter_mut()).filter(|(_, tasks)| tasks.held);
        let held: Vec<u64> = held
            .map(|(connection, tasks)| {
                tasks.sleepiness = self.sleepiness;
                *connection
            })
            .collect();
        for connection in held {
            self.give_turn(connection, shares);
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
        turns.put(errand.connection, errand.task, lane.shares);
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

    /// A connection whose tasks are as many as one may run, after some that slept or did not.
    fn running(shares: Shares, earlier: impl IntoIterator<Item = bool>) -> usize {
        let mut turns = Turns::default();
        let put = |turns: &mut Turns| turns.put(1, Box::new(|| ()), shares);
        for slept in earlier {
            put(&mut turns);
            assert!(turns.take(shares).is_some());
            turns.done(1, shares, slept);
        }
        (0..9).for_each(|_| put(&mut turns));
        let running = std::iter::from_fn(|| turns.take(shares)).count();
        assert_eq!(turns.held, usize::from(running < shares.most));
        turns.release(shares);
        let released = std::iter::from_fn(|| turns.take(shares)).count();
        assert_eq!((running + released, turns.held), (shares.most, 0));
        running
    }

    #[test]
    fn who_computes_has_no_more_threads_than_there_are_processors() {
        let shares = Shares::of(8, 2);
        assert_eq!(running(shares, []), 2);
        assert_eq!(running(shares, [true; 4]), 7);
        assert_eq!(running(shares, [false, false, true, false, false]), 2);
        assert_eq!(
            running(shares, [[true; 9].as_slice(), &[false; 4]].concat()),
            7
        );
        assert_eq!(
            running(shares, [[true; 9].as_slice(), &[false; 12]].concat()),
            2
        );
        assert_eq!(running(Shares::of(1, 2), []), 1);
    }

    #[test]
    fn tasks_that_seem_to_sleep_for_long_are_tried_in_fewer_threads_again() {
        let (mut sleepiness, mut now) = (Sleepiness::default(), clock::now());
        for _ in 0..9 {
            sleepiness.ended(true, now);
        }
        now = now + Sleepiness::LASTS;
        sleepiness.ended(true, now);
        assert!(sleepiness.is_often());
        sleepiness.ended(true, now + Nanos(1));
        assert!(!sleepiness.is_often());
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
            assert!(turns.connections.is_empty() && turns.next.is_empty() && turns.waiting == 0);
        }
    }
}
