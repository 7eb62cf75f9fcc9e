//! Peers that accept connections and close them without an answer. They may be no NFS servers at all, and the client must
//! not call them in a busy loop.

use crate::error::NO_RDMA;
use crate::link::Link;
use odafs_fabric::{
    clock::{self, Nanos},
    sync::{
        Condvar, Mutex,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
};

/// How long a server has been silent.
#[derive(Debug, Default)]
pub struct Silence {
    /// Consecutive rounds in which connections were lost before they carried an answer.
    rounds: Mutex<u32>,
    /// Signalled when `rounds` becomes 0.
    over: Condvar,
    /// Whether the server has ever answered.
    heard: AtomicBool,
}

impl Silence {
    /// The round of a connection that is made now. Connections that are made at the same time share a round.
    pub fn round(&self) -> u32 {
        *self.rounds.lock()
    }

    /// Records that a connection of this round was lost before it carried an answer.
    pub fn goes_on(&self, round: u32) {
        let mut rounds = self.rounds.lock();
        if *rounds == round {
            *rounds += 1;
        }
    }

    /// Records that the peer did more than close a connection. Threads in [`rest`](Self::rest) try at once.
    pub fn is_over(&self) {
        *self.rounds.lock() = 0;
        self.over.notify_all();
    }

    /// Records that something came on a connection. `answered` says whether anything had before.
    #[inline]
    pub fn broken_on(&self, answered: &mut bool) {
        if !*answered {
            *answered = true;
            self.is_over();
            self.heard.store(true, Relaxed);
        }
    }

    /// Waits before a new connection if the ones before it were closed without an answer: for 1 ms at first, doubled for
    /// each round up to a second. The wait ends when another thread's connection is answered. Returns false if the
    /// deadline came first.
    pub fn rest(&self, deadline: Nanos) -> bool {
        let mut rounds = self.rounds.lock();
        let Some(doubled) = rounds.checked_sub(1) else {
            return true;
        };
        let pause = Nanos::from_millis(1 << doubled.min(10)).min(Nanos::from_secs(1));
        let until = clock::now() + pause;
        loop {
            let now = clock::now();
            if *rounds == 0 || (now >= until && now < deadline) {
                return true;
            }
            if now >= deadline {
                // The next caller tries at once, however little time it has: another server may be there by now.
                *rounds = 1;
                return false;
            }
            rounds = self
                .over
                .wait_timeout(rounds, until.min(deadline).since(now))
                .0;
        }
    }

    /// What may be wrong, for the error message.
    pub fn remedy(&self, link: &Link) -> &'static str {
        match link {
            _ if self.heard.load(Relaxed) => "its log may say why",
            Link::NfsTcp(_) => {
                "it may not speak NFS over TCP, or have as many connections as it allows: check the port, and use odafs:// for a \
                 server's RDMA port"
            }
            Link::Fabric(..) => NO_RDMA,
        }
    }
}

#[cfg(all(test, not(shuttle)))]
mod tests {
    use super::*;

    #[test]
    fn who_comes_after_a_call_that_gave_up_tries_again() {
        let silence = Silence::default();
        (0..20).for_each(|round| silence.goes_on(round));
        assert!(!silence.rest(clock::now() + Nanos::from_millis(20)));
        assert_eq!(silence.round(), 1);
        assert!(silence.rest(clock::now() + Nanos::from_secs(100)));
    }

    #[test]
    fn connections_that_are_lost_side_by_side_are_one_round() {
        let silence = Silence::default();
        (0..4).for_each(|_| silence.goes_on(0));
        assert_eq!(silence.round(), 1);
        (0..4).for_each(|_| silence.goes_on(1));
        assert_eq!(silence.round(), 2);
        silence.is_over();
        assert_eq!(silence.round(), 0);
    }
}
