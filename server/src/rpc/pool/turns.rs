//! Whose task a thread of the pool runs next. Without threads or clocks of its own: times are passed in.
//!
//! Connections take turns of one task. How many threads a connection may have at a time depends on whether its tasks sleep. Those
//! that compute get as many as there are processors: more would take turns at them, and together leave little to the threads that
//! poll.

use std::collections::{HashMap, VecDeque};
use std::num::NonZeroUsize;

use lru::LruCache;
use odafs_fabric::clock::Nanos;

/// How many threads one connection may have at a time.
#[derive(Clone, Copy, Debug)]
pub struct Shares {
    /// If its tasks sleep.
    pub most: usize,
    /// If they compute.
    pub computing: usize,
}

impl Shares {
    /// Of so many threads, on so many processors.
    pub fn of(threads: usize, processors: usize) -> Self {
        let most = threads.saturating_sub(1).max(1);
        Self {
            most,
            computing: processors.clamp(1, most),
        }
    }
}

/// How often the tasks of a connection have slept lately.
#[derive(Clone, Copy, Debug, Default)]
struct Sleepiness {
    /// In 1024ths of the tasks.
    level: u32,
    /// When it became often.
    since: Option<Nanos>,
    /// In how many trials in a row fewer threads did not suffice.
    trials: u32,
}

impl Sleepiness {
    const OFTEN: u32 = 300;
    /// Tasks that compute wait for each other, too, and seem to sleep where many run. So fewer threads are tried after this time, and
    /// after twice as long each time that it was in vain.
    const TRUSTED: Nanos = Nanos::from_millis(100);
    const TRIALS_MAX: u32 = 5;

    fn is_often(&self) -> bool {
        self.level >= Self::OFTEN
    }

    /// A task has ended, or one is taken to sleep.
    fn learn(&mut self, level: u32, now: Nanos) {
        self.level = level;
        if !self.is_often() {
            if self.since.take().is_some() {
                self.trials = 0;
            }
            return;
        }
        let since = *self.since.get_or_insert(now);
        if now.since(since) > Nanos(Self::TRUSTED.0 << self.trials) {
            *self = Self {
                trials: (self.trials + 1).min(Self::TRIALS_MAX),
                ..Self::default()
            };
        }
    }

    fn ended(&mut self, slept: bool, now: Nanos) {
        self.learn((self.level * 7 + u32::from(slept) * 1024) / 8, now);
    }

    fn sleeps(&mut self, now: Nanos) {
        self.learn(1024, now);
    }
}

/// The tasks of all connections.
pub struct Turns<T> {
    shares: Shares,
    /// Connections with a task that may begin, in the order of their turns.
    next: VecDeque<u64>,
    /// The connections with any task.
    connections: HashMap<u64, Tasks<T>>,
    /// What was learned of connections that have none now.
    learned: LruCache<u64, Sleepiness>,
    waiting: usize,
    /// Connections with tasks that would run if those that run slept.
    held: usize,
    /// Not before then is it of use to look at these again.
    look_at: Nanos,
    stopped: bool,
}

/// The tasks of one connection.
struct Tasks<T> {
    waiting: VecDeque<T>,
    running: usize,
    has_turn: bool,
    held: bool,
    /// When one of them began or ended last.
    moved: Nanos,
    sleepiness: Sleepiness,
}

/// Connections without tasks of which something is remembered.
const LEARNED: NonZeroUsize = NonZeroUsize::new(1024).expect("it is not 0");

impl<T> Turns<T> {
    /// If none of a connection's tasks ends for so long, they sleep.
    pub const STUCK: Nanos = Nanos::from_millis(5);

    /// No tasks.
    pub fn new(shares: Shares) -> Self {
        Self {
            shares,
            next: VecDeque::new(),
            connections: HashMap::new(),
            learned: LruCache::new(LEARNED),
            waiting: 0,
            held: 0,
            look_at: Nanos(0),
            stopped: false,
        }
    }

    /// Tasks that wait.
    pub fn waiting(&self) -> usize {
        self.waiting
    }

    /// Tasks that run.
    pub fn running(&self) -> usize {
        self.connections.values().map(|tasks| tasks.running).sum()
    }

    /// Whether a task may begin.
    pub fn has_next(&self) -> bool {
        !self.next.is_empty()
    }

    /// Whether tasks wait only because those that run may compute: [`Turns::look`] is to be called.
    pub fn holds(&self) -> bool {
        self.held > 0
    }

    /// Whether [`Turns::stop`] was called.
    pub fn is_stopped(&self) -> bool {
        self.stopped
    }

    /// Whatever waits may begin, and nobody puts anything more.
    pub fn stop(&mut self) {
        self.stopped = true;
        self.release(|_| true, Nanos(0));
    }

    /// Another task of a connection.
    pub fn put(&mut self, connection: u64, task: T) {
        let learned = &mut self.learned;
        let tasks = self.connections.entry(connection).or_insert_with(|| Tasks {
            waiting: VecDeque::new(),
            running: 0,
            has_turn: false,
            held: false,
            moved: Nanos(0),
            sleepiness: learned.pop(&connection).unwrap_or_default(),
        });
        tasks.waiting.push_back(task);
        self.waiting += 1;
        self.give_turn(connection);
    }

    /// The next task, which begins now.
    pub fn take(&mut self, now: Nanos) -> Option<(u64, T)> {
        let connection = self.next.pop_front()?;
        let tasks = self.connections.get_mut(&connection)?;
        tasks.has_turn = false;
        let task = tasks.waiting.pop_front()?;
        tasks.running += 1;
        tasks.moved = now;
        self.waiting -= 1;
        self.give_turn(connection);
        Some((connection, task))
    }

    /// A task has ended, and may have slept meanwhile.
    pub fn done(&mut self, connection: u64, slept: bool, now: Nanos) {
        if let Some(tasks) = self.connections.get_mut(&connection) {
            tasks.running -= 1;
            tasks.moved = now;
            tasks.sleepiness.ended(slept, now);
            if tasks.running == 0 && tasks.waiting.is_empty() {
                self.learned.put(connection, tasks.sleepiness);
                self.connections.remove(&connection);
            }
        }
        self.give_turn(connection);
        self.look(now);
    }

    /// Gives their turns to connections whose tasks have not moved for [`Turns::STUCK`]: they sleep.
    pub fn look(&mut self, now: Nanos) {
        if self.held > 0 && now >= self.look_at {
            self.look_at = now + Self::STUCK;
            self.release(|tasks| now.since(tasks.moved) >= Self::STUCK, now);
        }
    }

    fn release(&mut self, is_stuck: impl Fn(&Tasks<T>) -> bool, now: Nanos) {
        let mut stuck = Vec::new();
        for (connection, tasks) in &mut self.connections {
            if tasks.held && is_stuck(tasks) {
                tasks.sleepiness.sleeps(now);
                stuck.push(*connection);
            }
        }
        stuck
            .into_iter()
            .for_each(|connection| self.give_turn(connection));
    }

    /// Queues the connection behind all others, if it has a task that may begin.
    fn give_turn(&mut self, connection: u64) {
        let Some(tasks) = self.connections.get_mut(&connection) else {
            return;
        };
        let Shares { most, computing } = self.shares;
        let sleeps = self.stopped || tasks.sleepiness.is_often();
        let waits = !tasks.has_turn && !tasks.waiting.is_empty();
        let begins = waits && tasks.running < if sleeps { most } else { computing };
        if begins {
            tasks.has_turn = true;
            self.next.push_back(connection);
        }
        let held = waits && !begins && tasks.running < most;
        self.held += usize::from(held);
        self.held -= usize::from(std::mem::replace(&mut tasks.held, held));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SHARES: Shares = Shares {
        most: 7,
        computing: 2,
    };
    const BEGAN: Nanos = Nanos::from_secs(1);

    fn put(turns: &mut Turns<()>, connection: u64, count: usize) {
        (0..count).for_each(|_| turns.put(connection, ()));
    }

    /// How many begin.
    fn begin(turns: &mut Turns<()>, now: Nanos) -> usize {
        std::iter::from_fn(|| turns.take(now)).count()
    }

    /// Runs tasks one by one.
    fn after(turns: &mut Turns<()>, slept: impl IntoIterator<Item = bool>) {
        for slept in slept {
            put(turns, 1, 1);
            assert_eq!(begin(turns, BEGAN), 1);
            turns.done(1, slept, BEGAN);
        }
    }

    #[test]
    fn who_computes_has_no_more_threads_than_there_are_processors() {
        let cases: [(&[bool], &[bool], usize); 5] = [
            (&[], &[], 2),
            (&[true; 4], &[], 7),
            (&[false, false, true, false, false], &[], 2),
            (&[true; 9], &[false; 4], 7),
            (&[true; 9], &[false; 12], 2),
        ];
        for (first, then, expected) in cases {
            let mut turns = Turns::new(SHARES);
            // Between these the connection has no tasks, and is remembered.
            after(&mut turns, [first, then].concat());
            put(&mut turns, 1, 9);
            assert_eq!(begin(&mut turns, BEGAN), expected, "{first:?}, {then:?}");
            assert_eq!(turns.holds(), expected < 7);
        }
        for threads in [0, 1, 2] {
            let shares = Shares::of(threads, 2);
            assert_eq!((shares.most, shares.computing), (1, 1));
        }
    }

    #[test]
    fn a_connection_whose_tasks_do_not_move_is_taken_to_sleep_whatever_others_do() {
        let mut turns = Turns::new(SHARES);
        put(&mut turns, 1, 9);
        assert_eq!(begin(&mut turns, BEGAN), 2);
        let begun = (1..=20).map(|milli| {
            let now = BEGAN + Nanos::from_millis(milli);
            put(&mut turns, 2, 3);
            assert_eq!(begin(&mut turns, now), 2, "of the other, which computes");
            turns.done(2, false, now);
            let begun = begin(&mut turns, now);
            (0..2).for_each(|_| turns.done(2, false, now));
            begun - 1
        });
        let begun: Vec<usize> = begun.collect();
        let stuck = begun.iter().position(|begun| *begun > 0);
        assert!(stuck.is_some_and(|milli| (4..10).contains(&milli)));
        assert_eq!(begun.iter().sum::<usize>(), 5);
    }

    #[test]
    fn fewer_threads_are_tried_again_and_ever_more_rarely() {
        let mut sleepiness = Sleepiness::default();
        let mut trials = Vec::new();
        for milli in 0..1_000 {
            let was = sleepiness.is_often();
            sleepiness.ended(true, Nanos::from_millis(milli));
            if was && !sleepiness.is_often() {
                trials.push(milli);
            }
        }
        // With the third task it sleeps often.
        assert_eq!(trials, [103, 307, 711]);
        (0..50).for_each(|_| sleepiness.ended(false, Nanos::from_secs(9)));
        assert!(!sleepiness.is_often() && sleepiness.since.is_none());
    }

    #[test]
    fn what_waits_at_the_end_may_begin() {
        let mut turns = Turns::new(SHARES);
        put(&mut turns, 1, 5);
        assert_eq!(begin(&mut turns, BEGAN), 2);
        turns.stop();
        assert_eq!((begin(&mut turns, BEGAN), turns.holds()), (3, false));
    }
}
