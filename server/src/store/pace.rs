//! A worker that computes for long yields the processor now and then, if other clients call. Otherwise, on a machine with
//! as many busy threads as processors, a thread that is woken for a short call may wait milliseconds for the scheduler's
//! next tick.

use std::cell::{Cell, RefCell};

use odafs_fabric::clock::{self, Nanos};
use odafs_fabric::sync::Arc;
use odafs_fabric::sync::atomic::{AtomicU64, Ordering};

/// How long a worker computes before it yields.
const SLICE: Nanos = Nanos::from_micros(100);
/// A worker does not yield for clients whose last call is longer ago.
const LATELY: Nanos = Nanos::from_millis(10);

/// Whether more than one connection has called lately.
#[derive(Debug, Default)]
pub struct Company {
    last: AtomicU64,
    /// The last time at which a call came from another connection than the call before it, in nanoseconds.
    changed: AtomicU64,
    /// How long workers have computed in slices that are over, together, in nanoseconds.
    computed: AtomicU64,
}

impl Company {
    /// Notes a call from this connection. If only one connection calls, this costs a load.
    pub fn came(&self, connection: u64) {
        if self.last.load(Ordering::Relaxed) != connection {
            self.last.store(connection, Ordering::Relaxed);
            self.changed.store(clock::now().0, Ordering::Relaxed);
        }
    }

    /// Whether others than this connection call. The last call is by another one while a long call of this one is served.
    fn is_mixed(&self, now: Nanos, connection: u64) -> bool {
        self.last.load(Ordering::Relaxed) != connection
            || now.since(Nanos(self.changed.load(Ordering::Relaxed))) < LATELY
    }
}

/// A slice of computing.
#[derive(Clone, Copy)]
struct TimeSlice {
    since: Nanos,
    length: Nanos,
}

impl TimeSlice {
    const fn new(since: Nanos) -> Self {
        Self {
            since,
            length: SLICE,
        }
    }

    /// Whether it is time to yield, in a call of this connection.
    fn is_over(&self, now: Nanos, company: &Company, connection: u64) -> bool {
        now.since(self.since) >= self.length && company.is_mixed(now, connection)
    }

    /// The slice is over, and the worker yields.
    fn end(self, now: Nanos, company: &Company) -> Yield {
        // Beyond its length something else had the processor, because a worker looks every few microseconds.
        let computed = now.since(self.since).0.min(self.length.0);
        let before = company.computed.fetch_add(computed, Ordering::Relaxed);
        Yield {
            since: now,
            computed: before + computed,
        }
    }
}

/// A yield that lasts.
#[derive(Clone, Copy)]
struct Yield {
    since: Nanos,
    /// [`Company::computed`] when it began.
    computed: u64,
}

impl Yield {
    /// The slice after it. It lasts at least as long as other programs and threads have computed meanwhile: who yields to them
    /// loses no more than half of a processor. Other workers do not count, because they yield as well: with three or more, each
    /// would have the sum of the slices of the others, and all would grow without end.
    fn end(self, now: Nanos, company: &Company) -> TimeSlice {
        let workers = company.computed.load(Ordering::Relaxed) - self.computed;
        let others = now.since(self.since).0.saturating_sub(workers);
        TimeSlice {
            since: now,
            length: Nanos(others.max(SLICE.0)),
        }
    }
}

thread_local! {
    static COMPANY: RefCell<Option<(Arc<Company>, u64)>> = const { RefCell::new(None) };
    static SLICE_HERE: Cell<TimeSlice> = const { Cell::new(TimeSlice::new(Nanos(0))) };
}

/// This thread has slept: its slice begins.
pub fn awake() {
    SLICE_HERE.set(TimeSlice::new(clock::now()));
}

/// Runs a worker's task for a connection, in which [`rest`] consults `company`. Rests before it, if it is time.
pub fn paced<T>(company: &Arc<Company>, connection: u64, task: impl FnOnce() -> T) -> T {
    COMPANY.set(Some((Arc::clone(company), connection)));
    let _alone = Alone;
    rest();
    task()
}

/// Ends [`paced`], even if its task panics.
struct Alone;

impl Drop for Alone {
    fn drop(&mut self) {
        COMPANY.set(None);
    }
}

/// Yields the processor if it is time. To be called every few microseconds of a long computation, with no lock held.
pub fn rest() {
    // There all threads share what belongs to one here, and no processor.
    if cfg!(shuttle) {
        return;
    }
    COMPANY.with_borrow(|company| {
        let Some((company, connection)) = company else {
            return;
        };
        let (now, slice) = (clock::now(), SLICE_HERE.get());
        if slice.is_over(now, company, *connection) {
            let ended = slice.end(now, company);
            std::thread::yield_now();
            SLICE_HERE.set(ended.end(clock::now(), company));
        }
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slice_ends_where_others_call() {
        let company = Arc::new(Company::default());
        let begins = clock::now() + LATELY;
        let after = |slices: u64| begins + Nanos(SLICE.0 * slices);
        let slice = TimeSlice::new(begins);
        // The test moves the clock.
        let changed = |at: Nanos| company.changed.store(at.0, Ordering::Relaxed);
        company.came(1);
        changed(Nanos(0));
        assert!(
            !slice.is_over(after(1), &company, 1),
            "nobody else has called"
        );
        company.came(1);
        assert!(
            !slice.is_over(after(2), &company, 1),
            "the same connection again"
        );
        company.came(2);
        changed(begins);
        assert!(slice.is_over(after(3), &company, 2));
        assert!(
            !slice.is_over(after(5) + LATELY, &company, 2),
            "that was long ago"
        );
        assert!(
            slice.is_over(after(5) + LATELY, &company, 1),
            "a call that began before the other's, and lasts"
        );
    }

    /// A company in which others call, as of now.
    fn mixed() -> Company {
        let company = Company::default();
        company.came(1);
        company.came(2);
        company
    }

    #[test]
    fn who_yields_has_half_of_the_time() {
        let company = mixed();
        for (others, length) in [(0, 1), (1, 1), (9, 9)] {
            let yielded = clock::now();
            let ended = TimeSlice::new(yielded).end(yielded, &company);
            let now = yielded + Nanos(SLICE.0 * others);
            company.changed.store(now.0, Ordering::Relaxed);
            let next = ended.end(now, &company);
            assert!(!next.is_over(now + Nanos(SLICE.0 * length - 1), &company, 2));
            assert!(next.is_over(now + Nanos(SLICE.0 * length), &company, 2));
        }
    }

    #[test]
    fn workers_that_yield_to_each_other_keep_short_slices() {
        let company = mixed();
        let mut now = clock::now();
        let mut workers = [TimeSlice::new(now).end(now, &company); 7];
        // Another program computes for a while, and only what it took is given back.
        now = now + Nanos(SLICE.0 * 40);
        let mut lengths = Vec::new();
        for _ in 0..20 {
            for worker in &mut workers {
                let slice = worker.end(now, &company);
                now = now + slice.length;
                *worker = slice.end(now, &company);
                lengths.push(slice.length.0 / SLICE.0);
            }
        }
        let (first, rest) = lengths.split_at(workers.len());
        assert_eq!(first, [40; 7]);
        assert!(rest.iter().all(|length| *length == 1), "{rest:?}");
    }
}
