//! What attempts at a call come to, and how long callers wait between them.

use odafs_fabric::clock::{self, Nanos};
use std::io;

/// Why there is no connection for a call.
#[derive(Debug)]
pub enum NoLine {
    /// All were in use until the deadline.
    TimedOut,
    /// Those before it ended without an answer, and the deadline passed before it was time for another.
    Silence,
    /// It could not be made.
    NotMade(io::Error),
}

/// What the last attempt to make a call came to.
#[derive(Debug)]
pub enum LastAttempt {
    /// The peer took the connection and ended it without an answer.
    Silent,
    /// It failed, for this reason.
    Failed(String),
}

/// Pauses between attempts to connect: 1 ms, doubled up to a quarter of a second.
#[derive(Debug, Default)]
pub struct Pause(u64);

impl Pause {
    /// Sleeps. False when the deadline would pass meanwhile.
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

/// How long a repeated call is waited for before it is sent once more: 20 ms, doubled up to a second.
#[derive(Debug, Clone, Copy)]
pub struct Patience(Nanos);

impl Default for Patience {
    fn default() -> Self {
        Self(Nanos::from_millis(20))
    }
}

impl Patience {
    /// Until when, if it begins now.
    pub fn until(self, deadline: Nanos) -> Nanos {
        deadline.min(clock::now() + self.0)
    }

    /// The next time.
    #[must_use]
    pub fn longer(self) -> Self {
        Self(Nanos((self.0.0 * 2).min(Nanos::from_secs(1).0)))
    }
}
