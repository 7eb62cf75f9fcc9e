//! A gate at which threads wait for each other once, to begin at the same time.
//!
//! `std::sync::Barrier` lets them go one after the other where there are more threads than processors. Each that wakes up
//! must take the barrier's lock. While it is taken they queue for it, and each that gets it wakes the next one, which then
//! needs a processor, for which it competes with all that have begun. At this gate, a thread that wakes up needs nothing
//! from the others.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering};

/// A gate that opens once.
pub struct Gate {
    missing: AtomicUsize,
    open: OnceLock<()>,
}

impl Gate {
    /// A gate that opens when so many threads, one or more, have arrived.
    pub fn new(threads: usize) -> Self {
        Self {
            missing: AtomicUsize::new(threads),
            open: OnceLock::new(),
        }
    }

    /// One more thread has arrived. It does not wait for the others here.
    pub fn arrive(&self) {
        if self.missing.fetch_sub(1, Ordering::AcqRel) == 1 {
            // It opens once, so nobody has set it before.
            let _ = self.open.set(());
        }
    }

    /// Waits until the gate is open.
    pub fn wait(&self) {
        self.open.wait();
    }

    /// One more thread has arrived, and waits for the others.
    pub fn pass(&self) {
        self.arrive();
        self.wait();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::File;
    use std::os::unix::fs::FileExt as _;

    /// How often the thread of this `/proc/thread-self/status` has gone to sleep.
    fn sleeps(status: &File) -> u64 {
        let mut text = [0; 4096];
        let length = status.read_at(&mut text, 0).unwrap();
        let text = std::str::from_utf8(&text[..length]).unwrap();
        let line = text
            .lines()
            .find_map(|line| line.strip_prefix("voluntary_ctxt_switches:"));
        line.unwrap().trim().parse().unwrap()
    }

    #[test]
    fn a_thread_sleeps_once_at_most_on_its_way_through() {
        const THREADS: usize = 64;
        let (ready, gate) = (Gate::new(THREADS), Gate::new(THREADS));
        let slept: Vec<u64> = std::thread::scope(|scope| {
            let through = || {
                let status = File::open("/proc/thread-self/status").unwrap();
                sleeps(&status);
                // From here on nobody starts threads, which may keep others from memory for a moment.
                ready.pass();
                let before = sleeps(&status);
                gate.pass();
                sleeps(&status) - before
            };
            let threads: Vec<_> = (0..THREADS).map(|_| scope.spawn(through)).collect();
            threads.into_iter().map(|t| t.join().unwrap()).collect()
        });
        assert!(slept.iter().all(|&times| times <= 1), "{slept:?}");
    }

    #[test]
    fn nobody_passes_before_the_last_has_arrived() {
        let (gate, arrived) = (Gate::new(8), AtomicUsize::new(0));
        std::thread::scope(|scope| {
            for _ in 0..7 {
                scope.spawn(|| {
                    arrived.fetch_add(1, Ordering::Relaxed);
                    gate.pass();
                    assert_eq!(arrived.load(Ordering::Relaxed), 8);
                });
            }
            arrived.fetch_add(1, Ordering::Relaxed);
            gate.arrive();
            gate.wait();
            assert_eq!(arrived.load(Ordering::Relaxed), 8);
        });
    }
}
