//! Peers that take connections and end them without an answer: they may be no NFS servers at all, and are not to be
//! asked in a busy loop.

use crate::link::Link;
use odafs_fabric::{
    clock::{self, Nanos},
    sync::atomic::{AtomicBool, AtomicU32, Ordering::Relaxed},
};
use std::io;

/// How long a server has been silent.
#[derive(Debug, Default)]
pub struct Silence {
    /// Connections in a row that were lost before anything was answered on them.
    lost: AtomicU32,
    /// Something was answered, ever.
    heard: AtomicBool,
}

impl Silence {
    /// A connection was lost before anything was answered on it.
    pub fn goes_on(&self) {
        self.lost.fetch_add(1, Relaxed);
    }

    /// The peer did something else than to end a connection.
    pub fn is_over(&self) {
        self.lost.store(0, Relaxed);
    }

    /// Something came on a connection; `answered`: whether anything had.
    #[inline]
    pub fn broken_on(&self, answered: &mut bool) {
        if !*answered {
            *answered = true;
            self.is_over();
            self.heard.store(true, Relaxed);
        }
    }

    /// Was the last connection ended without an answer?
    pub fn lasts(&self) -> bool {
        self.lost.load(Relaxed) > 0
    }

    /// To be called before a connection is made: waits for 1 ms, doubled up to a second, where those before it were
    /// ended without an answer.
    pub fn rest(&self, deadline: Nanos) -> io::Result<()> {
        let Some(doubled) = self.lost.load(Relaxed).checked_sub(1) else {
            return Ok(());
        };
        let pause = Nanos::from_millis(1 << doubled.min(10)).min(Nanos::from_secs(1));
        let left = deadline.since(clock::now());
        clock::sleep(pause.min(left));
        if left <= pause {
            // Whoever comes next tries, however little time it has: the server may be another by now.
            self.lost.store(1, Relaxed);
            return Err(io::ErrorKind::TimedOut.into());
        }
        Ok(())
    }

    /// What may be wrong.
    pub fn remedy(&self, link: &Link) -> &'static str {
        match link {
            _ if self.heard.load(Relaxed) => "its log may say why",
            Link::Tcp(_) => {
                "it may not speak NFS over TCP: is this its port? A port for RDMA wants odafs://"
            }
            Link::Fabric(..) => "it may not speak NFS: is this its port?",
        }
    }
}

#[cfg(all(test, not(shuttle)))]
mod tests {
    use super::*;

    #[test]
    fn who_comes_after_a_call_that_gave_up_tries_again() {
        let silence = Silence::default();
        (0..20).for_each(|_| silence.goes_on());
        let soon = || clock::now() + Nanos::from_millis(20);
        let given_up = silence.rest(soon()).map_err(|error| error.kind());
        assert_eq!(given_up, Err(io::ErrorKind::TimedOut));
        assert!(silence.lasts() && silence.rest(soon()).is_ok());
    }
}
