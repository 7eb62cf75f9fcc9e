//! SIGTERM and SIGINT: who asks a command to end, and how often.

use std::io;
use std::time::Duration;

use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::time::Instant;

/// Signals within this time of the first are the same request: one Ctrl-C reaches a program by its process group, and
/// again by a parent that passes it on.
const ONE_REQUEST: Duration = Duration::from_secs(1);

/// The signals that ask this process to end.
pub struct Signals {
    term: Signal,
    int: Signal,
}

impl Signals {
    /// Takes the signals over: from now on none ends the process by itself. To be called within a tokio runtime.
    pub fn take_over() -> io::Result<Self> {
        Ok(Self {
            term: signal(SignalKind::terminate())?,
            int: signal(SignalKind::interrupt())?,
        })
    }

    /// Waits for the next one.
    pub async fn next(&mut self) -> SignalKind {
        tokio::select! {
            _ = self.term.recv() => SignalKind::terminate(),
            _ = self.int.recv() => SignalKind::interrupt(),
        }
    }

    /// Waits for a second request, one having come just now.
    pub async fn again(&mut self) {
        let until = Instant::now() + ONE_REQUEST;
        while Instant::now() < until {
            self.next().await;
        }
    }
}

/// The exit status of a process that a signal ended, as shells tell it.
pub fn exit_status(of: SignalKind) -> i32 {
    128 + of.as_raw_value()
}
