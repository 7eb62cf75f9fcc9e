//! How often the calling thread does what costs system calls, for tests.

use std::cell::Cell;

/// What is counted.
#[derive(Clone, Copy)]
pub(crate) enum Counted {
    /// A look where a directory lies.
    Look,
    /// An object opened by name.
    Open,
    /// A directory, or a new object, brought to stable storage.
    Sync,
}

thread_local!(static COUNTS: [Cell<u64>; 3] = const { [const { Cell::new(0) }; 3] });

pub(super) fn count(what: Counted) {
    COUNTS.with(|counts| counts[what as usize].set(counts[what as usize].get() + 1));
}

/// How often that happens while `act` runs.
pub(crate) fn count_of<T>(what: Counted, act: impl FnOnce() -> T) -> (T, u64) {
    let now = || COUNTS.with(|counts| counts[what as usize].get());
    let before = now();
    let done = act();
    (done, now() - before)
}
