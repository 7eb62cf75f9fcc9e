//! Calls for which the workers have had no room: they wait here, in the order of their coming.

use std::cell::RefCell;
use std::collections::VecDeque;

use crate::calls::{Errand, Workers};

/// The calls of all connections that wait for the workers. A connection with a call here takes no more
/// ([`Now::holds_back`](super::Now)), so each has a bounded number of them.
#[derive(Default)]
pub(super) struct Backlog(RefCell<VecDeque<Errand>>);

impl Backlog {
    /// Hands an errand to the workers, or keeps it until they have room. Those of its kind that came before go first.
    pub fn submit(&self, errand: Errand, workers: &dyn Workers) {
        let mut held = self.0.borrow_mut();
        let refused = match held.iter().any(|held| held.syncs == errand.syncs) {
            false => workers.submit(errand).err(),
            true => Some(errand),
        };
        held.extend(refused);
    }

    /// Hands over as much as the workers take. Whether that was anything.
    pub fn retry(&self, workers: &dyn Workers) -> bool {
        let mut held = self.0.borrow_mut();
        let before = held.len();
        // Of one kind there may be room where there is none of the other.
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
