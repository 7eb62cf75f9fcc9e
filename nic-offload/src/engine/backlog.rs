//! Calls for which the workers have had no room. They wait here, in the order in which they came.

use std::cell::RefCell;
use std::collections::VecDeque;

use crate::calls::{Errand, Workers};

/// The waiting calls of all connections. A connection with a call here accepts no more
/// ([`Now::holds_back`](super::Now)), so each has a bounded number of them.
#[derive(Default)]
pub(super) struct Backlog(RefCell<VecDeque<Errand>>);

impl Backlog {
    /// Passes an errand to the workers, or keeps it until they have room. Earlier ones of its kind go first.
    pub fn submit(&self, errand: Errand, workers: &dyn Workers) {
        let mut held = self.0.borrow_mut();
        let refused = match held.iter().any(|held| held.syncs == errand.syncs) {
            false => workers.submit(errand).err(),
            true => Some(errand),
        };
        held.extend(refused);
    }

    /// Passes as many errands as the workers take. Returns whether there were any.
    pub fn retry(&self, workers: &dyn Workers) -> bool {
        let mut held = self.0.borrow_mut();
        let before = held.len();
        // There may be room for one kind and none for the other.
        let mut full = [false; 2];
        for _ in 0..before {
            let Some(errand) = held.pop_front() else {
                break;
            };
            let full = &mut full[usize::from(errand.syncs)];
            let refused = match *full {
                false => workers.submit(errand).err(),
                true => Some(errand),
            };
            *full |= refused.is_some();
            held.extend(refused);
        }
        held.len() < before
    }

    pub fn is_empty(&self) -> bool {
        self.0.borrow().is_empty()
    }

    /// Whether some of them are of this connection.
    pub fn holds(&self, number: u64) -> bool {
        self.0.borrow().iter().any(|held| held.connection == number)
    }
}
