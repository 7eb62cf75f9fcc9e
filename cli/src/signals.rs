//! SIGTERM, SIGINT and SIGHUP: the requests to end a command. (`odafs serve --config` takes SIGHUP for another request.)

use std::io;
use std::time::Duration;

use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::time::Instant;

/// Signals within this time of the first belong to the same request. One Ctrl-C may reach a program twice: through its
/// process group, and from a parent that passes it on.
const ONE_REQUEST: Duration = Duration::from_secs(1);

/// The signals that ask this process to end.
pub struct Signals {
    term: Signal,
    int: Signal,
    /// The terminal was closed, or a daemon is to reload. `None` if the signal is ignored, as under nohup.
    hangup: Option<Signal>,
}

impl Signals {
    /// Takes over the signals. From then on, none ends the process by itself. Must be called within a tokio runtime.
    pub fn take_over() -> io::Result<Self> {
        Ok(Self {
            term: signal(SignalKind::terminate())?,
            int: signal(SignalKind::interrupt())?,
            hangup: match is_ignored(SignalKind::hangup()) {
                true => None,
                false => Some(signal(SignalKind::hangup())?),
            },
        })
    }

    /// Waits for the next one.
    pub async fn next(&mut self) -> SignalKind {
        tokio::select! {
            _ = self.term.recv() => SignalKind::terminate(),
            _ = self.int.recv() => SignalKind::interrupt(),
            _ = next_of(&mut self.hangup) => SignalKind::hangup(),
        }
    }

    /// Waits for a second request. The first must have come just now.
    pub async fn again(&mut self) {
        let until = Instant::now() + ONE_REQUEST;
        while Instant::now() < until {
            self.next().await;
        }
    }
}

async fn next_of(signal: &mut Option<Signal>) {
    match signal {
        Some(signal) => drop(signal.recv().await),
        None => std::future::pending().await,
    }
}

/// Whether the kernel says that this process was started with a signal ignored.
fn is_ignored(which: SignalKind) -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status
        .lines()
        .find_map(|line| line.strip_prefix("SigIgn:"))
        .and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok());
    mask.is_some_and(|mask| mask & (1 << (which.as_raw_value() - 1)) != 0)
}

/// The exit status that shells report for a process that a signal ended.
pub fn exit_status(of: SignalKind) -> i32 {
    128 + of.as_raw_value()
}
