//! Delegations: the server's promise that nobody changes a file without waiting for this client (docs/WIRE.md, section 4.7).
//! While it stands, what is kept of the file is the file, and a read from the data cache is as exact as one at the server.
//!
//! A delegation ends by itself, soon. The next read after that gives it back and asks for another with one call, which also
//! checks what is kept. If the server refuses, others want to change the file, and for a while reads go past the data cache.
//!
//! Reads look at nothing but the time up to which the delegation may be used, on a clock that goes on while the machine sleeps
//! ([`lease_clock`]), because the server does not wait for machines that sleep. This client's own changes give it back before
//! they begin and none is asked for until they end, so that no read shows the old data after somebody else has seen the new.

use odafs_fabric::{
    clock::{self, Nanos},
    sync::{
        Mutex,
        atomic::{AtomicU32, AtomicU64, Ordering::*},
    },
};

/// After a refusal, and after a change of its own, a client asks for no delegation of the file during this time.
const REST: Nanos = Nanos::from_secs(1);
/// After a call that got no answer it asks for none at all during this time.
const LONG_REST: Nanos = Nanos::from_secs(5);
/// The longest wait for delegations. What comes later can hardly be relied on any more.
const WAIT: Nanos = Nanos::from_secs(1);
/// So much of it must be left for another call: one that gets no answer meanwhile means that the server does not answer.
const WAIT_LEFT: Nanos = Nanos::from_millis(250);
/// The most delegations that are asked for together, each with a call. The other files are read past the data cache.
const ASKS_MAX: u32 = 16;

/// The delegation of one file.
#[derive(Debug, Default)]
pub struct Delegation {
    /// Reads may rely on it before this time of [`lease_clock`]; 0 without one.
    pub until: AtomicU64,
    /// None is asked for before this time.
    pub not_before: AtomicU64,
    /// Changes of this client under way. None begins without the lock.
    pub changes: AtomicU32,
    /// The last one that was given, if it was not given back. Locked by who asks or gives back.
    pub last: Mutex<Option<Given>>,
}

/// A delegation as the server knows it.
#[derive(Debug, Clone, Copy)]
pub struct Given {
    /// Its number.
    pub number: u64,
    /// It has ended at the server by then, by [`lease_clock`].
    pub ends: Nanos,
}

/// The time in which leases are counted, which is another than that of deadlines and rests.
#[inline]
pub fn lease_clock() -> Nanos {
    let now = clock::since_boot();
    #[cfg(all(test, not(shuttle)))]
    let now = now + tests::slept();
    now
}

/// The delegations of a client.
#[derive(Debug, Default)]
pub struct Delegations {
    /// The latest time up to which any may stand at the server, by [`lease_clock`].
    pub until: AtomicU64,
    /// None is asked for before this time.
    pub not_before: AtomicU64,
    /// Given.
    pub granted: AtomicU64,
    /// Not given again.
    pub recalled: AtomicU64,
}

impl Delegation {
    /// Whether reads may rely on it now.
    #[inline]
    pub fn stands(&self) -> bool {
        // The check comes before the look at the data: what is found then is no older.
        lease_clock().0 < self.until.load(Acquire)
    }

    /// Whether none is to be asked for now.
    pub fn rests(&self) -> bool {
        clock::now().0 < self.not_before.load(Relaxed)
    }

    /// None is asked for from now on for a while.
    pub fn rest(&self) {
        let until = clock::now() + REST;
        self.not_before.store(until.0, Relaxed);
    }
}

impl Delegations {
    /// Whether none is to be asked for now.
    pub fn rests(&self) -> bool {
        clock::now().0 < self.not_before.load(Relaxed)
    }

    /// The server did not answer: none is asked for from now on for a while.
    pub fn were_not_answered(&self) {
        let until = clock::now() + LONG_REST;
        self.not_before.store(until.0, Relaxed);
    }
}

/// What files that are read together may still ask.
#[derive(Debug, Default)]
pub struct Asking {
    asked: u32,
    deadline: Nanos,
}

impl Asking {
    /// The deadline of the next call. `None`: no more are to be made.
    pub fn next(&mut self) -> Option<Nanos> {
        let now = clock::now();
        if self.asked == 0 {
            self.deadline = now + WAIT;
        }
        let may = self.asked < ASKS_MAX && now + WAIT_LEFT < self.deadline;
        self.asked += u32::from(may);
        may.then_some(self.deadline)
    }
}

/// A change by this client is under way.
pub struct Changing<'a> {
    delegation: Option<&'a Delegation>,
    /// It gave a delegation back.
    pub gave_back: bool,
}

impl<'a> Changing<'a> {
    /// A change of what is never delegated.
    pub fn nothing() -> Self {
        Self {
            delegation: None,
            gave_back: false,
        }
    }

    /// A change begins. The caller holds the lock.
    pub fn begin(delegation: &'a Delegation) -> Self {
        delegation.changes.fetch_add(1, AcqRel);
        Self {
            delegation: Some(delegation),
            gave_back: false,
        }
    }
}

impl Drop for Changing<'_> {
    fn drop(&mut self) {
        if let Some(delegation) = self.delegation {
            // A file that this client reads and writes by turns would cost two calls each time.
            if self.gave_back {
                delegation.rest();
            }
            delegation.changes.fetch_sub(1, AcqRel);
        }
    }
}

#[cfg(all(test, not(shuttle)))]
mod tests {
    use std::cell::Cell;

    use super::*;

    thread_local!(static SLEPT: Cell<Nanos> = const { Cell::new(Nanos(0)) });

    /// For how long the machine of the calling thread has slept.
    pub(super) fn slept() -> Nanos {
        SLEPT.get()
    }

    #[test]
    fn nothing_is_trusted_after_a_sleep_of_the_machine() {
        let delegation = Delegation::default();
        let lease = Nanos::from_secs(3600);
        delegation.until.store((lease_clock() + lease).0, Release);
        assert!(delegation.stands());
        // No other clock goes on meanwhile.
        SLEPT.set(lease);
        assert!(!delegation.stands());
    }

    #[test]
    fn files_that_are_read_together_ask_a_few_times_within_one_deadline() {
        let mut asking = Asking::default();
        let first = asking.next().expect("the first may be asked for");
        let others: Vec<_> = std::iter::from_fn(|| asking.next()).collect();
        assert!(others.len() < ASKS_MAX as usize);
        assert!(others.iter().all(|deadline| *deadline == first));
    }

    #[test]
    fn after_a_change_that_gave_one_back_none_is_asked_for() {
        let delegation = Delegation::default();
        drop(Changing::begin(&delegation));
        assert!(!delegation.rests());
        let mut changing = Changing::begin(&delegation);
        changing.gave_back = true;
        drop(changing);
        assert!(delegation.rests());
    }
}
