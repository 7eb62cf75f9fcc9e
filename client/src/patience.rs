//! The results of attempts at a call, and how long callers wait between them.

use odafs_fabric::clock::{self, Nanos};
use std::io;

/// Why there is no connection for a call.
#[derive(Debug)]
pub enum NoLine {
    /// All connections were in use until the deadline.
    TimedOut,
    /// Earlier connections ended without an answer, and the deadline passed before it was time for another.
    Silence,
    /// The connection could not be made.
    NotMade(io::Error),
}

/// The result of the last attempt at a call.
#[derive(Debug)]
pub enum LastAttempt {
    /// The peer accepted the connection and closed it without an answer.
    Silent,
    /// It failed, for this reason.
    Failed(String),
}

/// The pauses between attempts to connect: 1 ms, doubled up to a quarter of a second.
#[derive(Debug, Default)]
pub struct Pause(u64);

impl Pause {
    /// Sleeps. Returns false if the deadline would pass meanwhile.
    pub fn before_retry(&mut self, deadline: Nanos) -> bool {
        self.0 = (self.0 * 2).clamp(1_000_000, 250_000_000);
        let span = Nanos(self.0);
        if deadline.since(clock::now()) <= span {
            return false;
        }
        clock::sleep(span);
        true
    }
}

/// How long to wait for the answer to a repeated call before sending it again: 20 ms, doubled up to a second.
#[derive(Debug, Clone, Copy)]
pub struct ResendPause(Nanos);

impl Default for ResendPause {
    fn default() -> Self {
        Self(Nanos::from_millis(20))
    }
}

impl ResendPause {
    /// The end of the wait if it begins now.
    pub fn until(self, deadline: Nanos) -> Nanos {
        deadline.min(clock::now() + self.0)
    }

    /// Moves to the next, longer wait.
    #[must_use]
    pub fn longer(self) -> Self {
        Self(Nanos((self.0.0 * 2).min(Nanos::from_secs(1).0)))
    }
}
