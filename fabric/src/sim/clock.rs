//! Virtual time. It stands still while any task can run, except for a tick at each look (so that a loop that polls
//! until a deadline ends), and jumps to the next deadline when all tasks wait.

use crate::clock::Nanos;
use shuttle::scheduler::TaskId;
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};

/// Duration of a look at the clock, in nanoseconds.
const TICK: u64 = 50;

/// Number of turns that a sleeper gives the others before it moves the clock itself, under a scheduler that knows
/// nothing of sleepers.
const PATIENCE: u32 = 64;

#[derive(Default)]
pub(super) struct Time {
    now: u64,
    /// Deadlines of the tasks that sleep.
    sleepers: BTreeMap<TaskId, u64>,
}

thread_local! {
    // All tasks of an execution run on one thread.
    static TIME: RefCell<Time> = RefCell::default();
}

/// Resets time.
pub(super) fn reset() {
    TIME.with_borrow_mut(|time| *time = Time::default());
}

/// Whether a task sleeps.
pub(super) fn sleeps(task: TaskId) -> bool {
    TIME.with_borrow(|time| time.sleepers.contains_key(&task))
}

/// Moves the clock to the deadline of a sleeper.
pub(super) fn advance_to(task: TaskId) {
    TIME.with_borrow_mut(|time| {
        let deadline = time.sleepers.get(&task).copied().unwrap_or(0);
        time.now = time.now.max(deadline);
    });
}

/// The sleeper whose deadline is next.
pub(super) fn next_sleeper() -> Option<TaskId> {
    TIME.with_borrow(|time| {
        time.sleepers
            .iter()
            .min_by_key(|(_, deadline)| **deadline)
            .map(|(task, _)| *task)
    })
}

/// Virtual time since the start of the execution.
pub fn now() -> Nanos {
    TIME.with_borrow_mut(|time| {
        time.now += TICK;
        Nanos(time.now)
    })
}

/// Sleeps for `span` of virtual time.
pub fn sleep(span: Nanos) {
    rest(now() + span, &AtomicBool::new(false));
}

/// Sleeps until `deadline` or until woken. Returns `true` if the deadline has passed.
fn rest(deadline: Nanos, woken: &AtomicBool) -> bool {
    let me = shuttle::current::me();
    TIME.with_borrow_mut(|time| time.sleepers.insert(me, deadline.0));
    let mut turns = 0;
    let over = loop {
        if woken.load(Ordering::Relaxed) {
            break false;
        }
        if TIME.with_borrow(|time| time.now) >= deadline.0 {
            break true;
        }
        turns += 1;
        if turns > PATIENCE
            && let Some(next) = next_sleeper()
        {
            advance_to(next);
        }
        shuttle::thread::yield_now();
    };
    TIME.with_borrow_mut(|time| time.sleepers.remove(&me));
    over
}

struct Entry {
    task: TaskId,
    woken: Arc<AtomicBool>,
}

/// The tasks that wait for a condition with a deadline.
#[derive(Default)]
pub struct TimedWaiters(Mutex<Vec<Entry>>);

impl TimedWaiters {
    /// No tasks.
    pub const fn new() -> Self {
        Self(Mutex::new(Vec::new()))
    }

    /// Adds the current task, which still holds the condition's lock.
    pub fn enter(&self, timeout: Nanos) -> TimedWaiter<'_> {
        let woken = Arc::new(AtomicBool::new(false));
        let deadline = now() + timeout;
        self.entries().push(Entry {
            task: shuttle::current::me(),
            woken: Arc::clone(&woken),
        });
        TimedWaiter {
            waiters: self,
            woken,
            deadline,
        }
    }

    /// Wakes up to `count` tasks. Returns whether there were any.
    pub fn notify(&self, count: usize) -> bool {
        let mut entries = self.entries();
        let count = count.min(entries.len());
        for entry in entries.drain(..count) {
            entry.woken.store(true, Ordering::Relaxed);
            TIME.with_borrow_mut(|time| time.sleepers.remove(&entry.task));
        }
        count > 0
    }

    fn entries(&self) -> std::sync::MutexGuard<'_, Vec<Entry>> {
        self.0
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner)
    }
}

/// The wait of one task.
pub struct TimedWaiter<'a> {
    waiters: &'a TimedWaiters,
    woken: Arc<AtomicBool>,
    deadline: Nanos,
}

impl TimedWaiter<'_> {
    /// Sleeps until notified (`false`) or until the deadline has passed (`true`).
    pub fn wait(self) -> bool {
        let over = rest(self.deadline, &self.woken);
        self.waiters
            .entries()
            .retain(|entry| !Arc::ptr_eq(&entry.woken, &self.woken));
        over
    }
}
