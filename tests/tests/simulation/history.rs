//! The history of a run: what clients did and saw, by page, and a trace in order.

use odafs_tests::linear::{self, Action, Operation};
use std::collections::BTreeMap;
use std::fmt::Write;
use std::sync::Mutex;

/// A page: number of the file and number of the page in it.
pub type PagePosition = (u8, u8);

/// The history of a run. All tasks of a run share one thread, so none waits for its lock.
#[derive(Default)]
pub struct History {
    inner: Mutex<Inner>,
}

#[derive(Default)]
struct Inner {
    clock: u64,
    value: u64,
    pages: BTreeMap<PagePosition, Vec<Operation>>,
    trace: String,
}

impl History {
    fn inner(&self) -> std::sync::MutexGuard<'_, Inner> {
        self.inner.lock().expect("a run panicked before")
    }

    /// Now: after all that was recorded before.
    pub fn now(&self) -> u64 {
        let mut inner = self.inner();
        inner.clock += 1;
        inner.clock
    }

    /// A value that nobody has written yet.
    pub fn fresh_value(&self) -> u64 {
        let mut inner = self.inner();
        inner.value += 1;
        inner.value
    }

    /// Records an operation on each of `places`, invoked at `invoked`, over now or (without reply) never.
    pub fn record(
        &self,
        who: &str,
        places: impl IntoIterator<Item = PagePosition>,
        invoked: u64,
        action: Action,
        answered: bool,
    ) {
        let returned = answered.then(|| self.now());
        let mut inner = self.inner();
        for place in places {
            let operation = Operation {
                invoked,
                returned,
                action,
            };
            let _ = writeln!(inner.trace, "{who} {place:?} {operation:?}");
            inner.pages.entry(place).or_default().push(operation);
        }
    }

    /// Records an operation late, with the times of its beginning and end.
    pub fn record_at(
        &self,
        who: &str,
        place: PagePosition,
        (invoked, returned): (u64, u64),
        action: Action,
    ) {
        let operation = Operation {
            invoked,
            returned: Some(returned),
            action,
        };
        let mut inner = self.inner();
        let _ = writeln!(inner.trace, "{who} {place:?} by itself {operation:?}");
        inner.pages.entry(place).or_default().push(operation);
    }

    /// A line of the trace that is no operation.
    pub fn say(&self, line: &str) {
        let now = self.now();
        let _ = writeln!(self.inner().trace, "{now} {line}");
    }

    /// Checks every page, and returns the trace.
    ///
    /// # Panics
    /// No order of the operations explains what clients saw of a page.
    pub fn check(&self) -> String {
        let inner = self.inner();
        for (place, operations) in &inner.pages {
            if let Err(violation) = linear::check(0, operations) {
                panic!(
                    "no order explains page {place:?}:\n{}\nin\n{}",
                    violation.history, inner.trace
                );
            }
        }
        inner.trace.clone()
    }
}
