//! Calls for which the workers have had no room: they wait here, in the order of their coming.

use std::cell::RefCell;
use std::collections::VecDeque;

use crate::calls::Workers;

type Task = Box<dyn FnOnce() + Send>;

/// The calls of all connections that wait for the workers. A connection with a call here takes no more
/// ([`Now::holds_back`](super::Now)), so each has a bounded number of them.
#[derive(Default)]
pub(super) struct Backlog(RefCell<VecDeque<Held>>);

struct Held {
    task: Task,
    /// Of the connection.
    number: u64,
}

impl Backlog {
    /// Hands a task to the workers, or keeps it until they have room. Those that came before go first.
    pub fn submit(&self, task: Task, number: u64, workers: &dyn Workers) {
        let mut held = self.0.borrow_mut();
        let refused = match held.is_empty() {
            true => workers.submit(task).err(),
            false => Some(task),
        };
        held.extend(refused.map(|task| Held { task, number }));
    }

    /// Hands over as much as the workers take. Whether that was anything.
    pub fn retry(&self, workers: &dyn Workers) -> bool {
        let mut held = self.0.borrow_mut();
        let mut any = false;
        while let Some(Held { task, number }) = held.pop_front() {
            if let Err(task) = workers.submit(task) {
                held.push_front(Held { task, number });
                break;
            }
            any = true;
        }
        any
    }

    pub fn is_empty(&self) -> bool {
        self.0.borrow().is_empty()
    }

    /// Whether some of them are of this connection.
    pub fn holds(&self, number: u64) -> bool {
        self.0.borrow().iter().any(|held| held.number == number)
    }
}
