//! Peers that take connections and end them without an answer: they may be no NFS servers at all, and are not to be
//! asked in a busy loop.

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
    /// Rounds in a row in which connections were lost before anything was answered on them.
    rounds: Mutex<u32>,
    /// There are none any more.
    over: Condvar,
    /// Something was answered, ever.
    heard: AtomicBool,
}

impl Silence {
    /// The round in which a connection is made now. Those that are made side by side are of one round.
    pub fn round(&self) -> u32 {
        *self.rounds.lock()
    }

    /// A connection of this round was lost before anything was answered on it.
    pub fn goes_on(&self, round: u32) {
        let mut rounds = self.rounds.lock();
        if *rounds == round {
            *rounds += 1;
        }
    }

    /// The peer did something else than to end a connection: who rests tries at once.
    pub fn is_over(&self) {
        *self.rounds.lock() = 0;
        self.over.notify_all();
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

    /// To be called before a connection is made: waits for 1 ms, doubled up to a second, where those before it were
    /// ended without an answer; no longer than until another thread's is answered. False: until the deadline.
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
                // Whoever comes next tries, however little time it has: the server may be another by now.
                *rounds = 1;
                return false;
            }
            rounds = self
                .over
                .wait_timeout(rounds, until.min(deadline).since(now))
                .0;
        }
    }

    /// What may be wrong.
    pub fn remedy(&self, link: &Link) -> &'static str {
        match link {
            _ if self.heard.load(Relaxed) => "its log may say why",
            Link::NfsTcp(_) => {
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
