//! The bytes that may be in use, and the connections that wait for some.

use std::collections::VecDeque;

use odafs_fabric::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use odafs_fabric::sync::{Arc, Mutex};

/// Bytes that may be in use.
pub struct Budget {
    used: AtomicUsize,
    max: usize,
    /// How often some were returned.
    returns: AtomicU64,
}

impl Budget {
    /// Room for `max` bytes.
    pub fn new(max: usize) -> Arc<Budget> {
        Arc::new(Budget {
            used: AtomicUsize::new(0),
            max,
            returns: AtomicU64::new(0),
        })
    }

    /// Bytes in use.
    pub fn used(&self) -> usize {
        self.used.load(Ordering::Relaxed)
    }

    /// A number that changes whenever some are returned.
    pub fn returns(&self) -> u64 {
        self.returns.load(Ordering::Relaxed)
    }

    /// Whether there is room for this many more bytes.
    pub fn has_room(&self, bytes: usize) -> bool {
        self.used().saturating_add(bytes) <= self.max
    }

    /// Takes this many bytes, if there is room.
    pub fn take(self: &Arc<Self>, bytes: usize) -> Option<Charge> {
        if self.used.fetch_add(bytes, Ordering::Relaxed) + bytes > self.max {
            self.used.fetch_sub(bytes, Ordering::Relaxed);
            return None;
        }
        Some(Charge {
            budget: Arc::clone(self),
            bytes,
        })
    }
}

/// Part of a budget, until it is dropped.
pub struct Charge {
    budget: Arc<Budget>,
    bytes: usize,
}

impl Drop for Charge {
    fn drop(&mut self) {
        self.budget.used.fetch_sub(self.bytes, Ordering::Relaxed);
        self.budget.returns.fetch_add(1, Ordering::Relaxed);
    }
}

/// What a connection waits for.
#[derive(Clone, Copy)]
pub enum Lack {
    /// Room for this many bytes in the budget of all connections.
    Room(usize),
    /// More memory that the system lets the process lock. Perhaps everything idle must go.
    Memory,
}

/// Connections that wait for memory of others, in the order in which they came: a later one waits behind them, so that
/// each has its turn. One thread uses it.
#[derive(Default)]
pub struct Queue {
    waiting: Mutex<VecDeque<(u64, Lack)>>,
    /// Number of waiting connections.
    length: AtomicUsize,
    numbers: AtomicU64,
}

/// A connection's place in the queue, whether it waits or not.
pub struct QueuePosition {
    queue: Arc<Queue>,
    number: u64,
}

impl QueuePosition {
    pub fn new(queue: &Arc<Queue>) -> QueuePosition {
        QueuePosition {
            queue: Arc::clone(queue),
            number: queue.numbers.fetch_add(1, Ordering::Relaxed),
        }
    }

    fn first(&self) -> Option<(u64, Lack)> {
        match self.queue.length.load(Ordering::Relaxed) {
            0 => None,
            _ => self.queue.waiting.lock().front().copied(),
        }
    }

    /// Whether nobody else comes first.
    pub fn is_first(&self) -> bool {
        self.first().is_none_or(|(number, _)| number == self.number)
    }

    /// What the first of all waits for, if that is another connection.
    pub fn others_lack(&self) -> Option<Lack> {
        let (number, lack) = self.first()?;
        (number != self.number).then_some(lack)
    }

    /// Waits for this, behind those that already wait.
    pub fn wait(&self, lack: Lack) {
        let mut waiting = self.queue.waiting.lock();
        match waiting
            .iter_mut()
            .find(|(number, _)| *number == self.number)
        {
            Some(mine) => mine.1 = lack,
            None => waiting.push_back((self.number, lack)),
        }
        self.queue.length.store(waiting.len(), Ordering::Relaxed);
    }

    /// Stops waiting.
    pub fn leave(&self) {
        if self.first().is_some() {
            let mut waiting = self.queue.waiting.lock();
            waiting.retain(|(number, _)| *number != self.number);
            self.queue.length.store(waiting.len(), Ordering::Relaxed);
        }
    }
}

impl Drop for QueuePosition {
    fn drop(&mut self) {
        self.leave();
    }
}
