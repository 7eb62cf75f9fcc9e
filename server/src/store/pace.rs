//! A worker that computes for long yields the processor now and then, if other clients call. Otherwise, on a machine with
//! as many busy threads as processors, a thread that is woken for a short call may wait milliseconds for the scheduler's
//! next tick.

use std::cell::RefCell;

use odafs_fabric::clock::{self, Nanos};
use odafs_fabric::sync::Arc;
use odafs_fabric::sync::atomic::{AtomicU64, Ordering};

/// How long a worker computes before it yields.
const SLICE: Nanos = Nanos::from_micros(200);
/// A worker does not yield for clients whose last call is longer ago.
const LATELY: Nanos = Nanos::from_millis(10);

/// Whether more than one connection has called lately.
#[derive(Debug, Default)]
pub struct Company {
    last: AtomicU64,
    /// The last time at which a call came from another connection than the call before it, in nanoseconds.
    changed: AtomicU64,
}

impl Company {
    /// Notes a call from this connection. If only one connection calls, this costs a load.
    pub fn came(&self, connection: u64) {
        if self.last.load(Ordering::Relaxed) != connection {
            self.last.store(connection, Ordering::Relaxed);
            self.changed.store(clock::now().0, Ordering::Relaxed);
        }
    }

    fn is_mixed(&self, now: Nanos) -> bool {
        now.since(Nanos(self.changed.load(Ordering::Relaxed))) < LATELY
    }
}

/// A slice of computing.
struct TimeSlice {
    company: Arc<Company>,
    since: Nanos,
}

impl TimeSlice {
    /// Whether it is time to yield. If so, the next slice begins.
    fn ends(&mut self, now: Nanos) -> bool {
        let ends = now.since(self.since) >= SLICE;
        if ends {
            self.since = now;
        }
        ends && self.company.is_mixed(now)
    }
}

thread_local! {
    static SLICE_HERE: RefCell<Option<TimeSlice>> = const { RefCell::new(None) };
}

/// Runs a worker's task, in which [`rest`] consults `company`.
pub fn paced<T>(company: &Arc<Company>, task: impl FnOnce() -> T) -> T {
    let slice = TimeSlice {
        company: Arc::clone(company),
        since: clock::now(),
    };
    SLICE_HERE.with_borrow_mut(|here| *here = Some(slice));
    let _ends = Ends;
    task()
}

/// Ends the slice of this thread, even if its task panics.
struct Ends;

impl Drop for Ends {
    fn drop(&mut self) {
        SLICE_HERE.with_borrow_mut(|here| *here = None);
    }
}

/// Yields the processor if it is time. To be called every few microseconds of a long computation, with no lock held.
pub fn rest() {
    let ends =
        |here: &mut Option<TimeSlice>| here.as_mut().is_some_and(|slice| slice.ends(clock::now()));
    if SLICE_HERE.with_borrow_mut(ends) {
        std::thread::yield_now();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slice_ends_where_others_call() {
        let company = Arc::new(Company::default());
        let begins = clock::now() + LATELY;
        let after = |slices: u64| begins + Nanos(SLICE.0 * slices);
        let mut slice = TimeSlice {
            company: Arc::clone(&company),
            since: begins,
        };
        assert!(!slice.ends(after(1)), "nobody else has called");
        // From here on the test moves the clock.
        let changed = |at: Nanos| company.changed.store(at.0, Ordering::Relaxed);
        company.came(1);
        changed(Nanos(0));
        company.came(1);
        assert!(!slice.ends(after(2)), "the same connection again");
        company.came(2);
        changed(begins);
        assert!(slice.ends(after(3)));
        assert!(!slice.ends(after(3)), "the next one has just begun");
        assert!(slice.ends(after(4)));
        assert!(!slice.ends(after(5) + LATELY), "that was long ago");
    }
}
