//! One thread that waits for many queue pairs.

use crate::clock::Nanos;
use std::io;
#[cfg(not(shuttle))]
use std::os::fd::BorrowedFd;

/// Wakes a thread that serves many queue pairs, listeners and queues.
///
/// The order of a wait: [`WakeSet::prepare`], arm every queue pair and look at every queue once
/// more, [`WakeSet::wait`] only if all were empty. A wake-up since the last wait ends it at once.
pub struct WakeSet {
    inner: imp::Inner,
}

impl WakeSet {
    /// An empty set.
    pub fn new() -> io::Result<Self> {
        Ok(Self {
            inner: imp::Inner::new()?,
        })
    }

    /// Has every readable state of `fd` wake the set, until `fd`'s description is closed. A wait
    /// that `fd` ends rings the bell.
    #[cfg(not(shuttle))]
    pub fn add(&self, fd: BorrowedFd<'_>) -> io::Result<Bell> {
        self.inner.add(fd)
    }

    /// As [`WakeSet::add`], for every change of `fd` to readable, writable or closed: a wait is
    /// ended by what happens after, not by what is.
    #[cfg(not(shuttle))]
    pub fn add_edges(&self, fd: BorrowedFd<'_>) -> io::Result<Bell> {
        self.inner.add_edges(fd)
    }

    /// Takes `fd` out again.
    #[cfg(not(shuttle))]
    pub fn remove(&self, fd: BorrowedFd<'_>) {
        self.inner.remove(fd);
    }

    /// Ends the present or the next wait. Cheap while nobody is about to wait.
    pub fn wake(&self) {
        self.inner.wake();
    }

    /// Ends the next wait at `at` (of [`crate::clock::now`]) if nothing ends it sooner.
    pub fn wake_at(&self, at: Nanos) {
        self.inner.wake_at(at);
    }

    /// Says that a wait may follow: from now on [`WakeSet::wake`] interrupts it.
    pub fn prepare(&self) {
        self.inner.prepare();
    }

    /// Counts the waits that are over. What happens to an edge-triggered descriptor after the last of them ends the next.
    #[cfg(not(shuttle))]
    pub fn waits(&self) -> std::sync::Arc<std::sync::atomic::AtomicU64> {
        self.inner.waits()
    }

    /// Blocks until something wakes the set or `timeout` has passed.
    pub fn wait(&self, timeout: Option<Nanos>) {
        self.inner.wait(timeout);
    }
}

/// Tells one of a set's descriptors from the others.
#[cfg(not(shuttle))]
#[derive(Debug)]
pub struct Bell(std::sync::Arc<std::sync::atomic::AtomicBool>);

#[cfg(not(shuttle))]
impl Bell {
    /// Whether the descriptor was readable in a wait since the last time.
    pub fn take(&self) -> bool {
        use std::sync::atomic::Ordering::Relaxed;
        self.0.load(Relaxed) && self.0.swap(false, Relaxed)
    }
}

#[cfg(not(shuttle))]
pub(crate) use imp::EDGES;

#[cfg(not(shuttle))]
mod imp {
    use super::{Bell, BorrowedFd, Nanos, io};
    use crate::clock;
    use rustix::event::{EventfdFlags, Timespec, epoll, eventfd};
    use std::collections::HashMap;
    use std::os::fd::{AsFd, OwnedFd};
    use std::sync::atomic::{AtomicBool, AtomicU64, Ordering, fence};
    use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

    /// Every change.
    pub const EDGES: epoll::EventFlags = epoll::EventFlags::IN
        .union(epoll::EventFlags::OUT)
        .union(epoll::EventFlags::RDHUP)
        .union(epoll::EventFlags::ET);

    /// By the number that is the descriptor's event data. A bell without an owner is a closed descriptor's.
    #[derive(Default)]
    struct Bells {
        next: u64,
        live: HashMap<u64, Weak<AtomicBool>>,
    }

    pub struct Inner {
        epoll: OwnedFd,
        event: OwnedFd,
        bells: Mutex<Bells>,
        about_to_wait: AtomicBool,
        /// Woken since the last wait.
        woken: AtomicBool,
        deadline: AtomicU64,
        /// Rings when `event` has been written to.
        wakes: Bell,
        waits: Arc<AtomicU64>,
    }

    impl Inner {
        pub fn new() -> io::Result<Self> {
            let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
            let event = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
            let mut set = Self {
                epoll,
                event,
                bells: Mutex::default(),
                about_to_wait: AtomicBool::new(false),
                woken: AtomicBool::new(false),
                deadline: AtomicU64::new(u64::MAX),
                wakes: Bell(Arc::default()),
                waits: Arc::default(),
            };
            set.wakes = set.add(set.event.as_fd())?;
            Ok(set)
        }

        pub fn waits(&self) -> Arc<AtomicU64> {
            Arc::clone(&self.waits)
        }

        pub fn add(&self, fd: BorrowedFd<'_>) -> io::Result<Bell> {
            self.enter(fd, epoll::EventFlags::IN)
        }

        pub fn add_edges(&self, fd: BorrowedFd<'_>) -> io::Result<Bell> {
            self.enter(fd, EDGES)
        }

        fn enter(&self, fd: BorrowedFd<'_>, flags: epoll::EventFlags) -> io::Result<Bell> {
            let bell = Bell(Arc::new(AtomicBool::new(true)));
            let mut bells = self.bells();
            bells.live.retain(|_, bell| bell.strong_count() > 0);
            let number = bells.next;
            bells.next += 1;
            bells.live.insert(number, Arc::downgrade(&bell.0));
            epoll::add(&self.epoll, fd, epoll::EventData::new_u64(number), flags)?;
            Ok(bell)
        }

        fn bells(&self) -> MutexGuard<'_, Bells> {
            self.bells.lock().unwrap_or_else(PoisonError::into_inner)
        }

        fn ring(&self, events: &[epoll::Event]) {
            if events.is_empty() {
                return;
            }
            let bells = self.bells();
            for event in events {
                let number = event.data;
                if let Some(bell) = bells.live.get(&number.u64()).and_then(Weak::upgrade) {
                    bell.store(true, Ordering::Relaxed);
                }
            }
        }

        pub fn remove(&self, fd: BorrowedFd<'_>) {
            // It may have left by itself, closed or never there.
            let _ = epoll::delete(&self.epoll, fd);
        }

        /// The waker's half of the handshake: what it made ready is written before; here comes
        /// the fence, then the look at whether anybody is about to wait.
        pub fn wake(&self) {
            self.woken.store(true, Ordering::SeqCst);
            fence(Ordering::SeqCst);
            if self.about_to_wait.swap(false, Ordering::SeqCst) {
                // A full counter is as good as one more.
                let _ = rustix::io::write(&self.event, &1u64.to_ne_bytes());
            }
        }

        pub fn wake_at(&self, at: Nanos) {
            self.deadline.fetch_min(at.0, Ordering::Relaxed);
        }

        pub fn prepare(&self) {
            self.deadline.store(u64::MAX, Ordering::Relaxed);
            self.about_to_wait.store(true, Ordering::SeqCst);
            fence(Ordering::SeqCst);
        }

        pub fn wait(&self, timeout: Option<Nanos>) {
            if self.woken.swap(false, Ordering::SeqCst) {
                self.about_to_wait.store(false, Ordering::SeqCst);
                return;
            }
            let due = self.deadline.swap(u64::MAX, Ordering::Relaxed);
            let mut span = timeout.unwrap_or(Nanos(u64::MAX));
            if due != u64::MAX {
                span = span.min(Nanos(due).since(clock::now()));
            }
            let until = (span.0 != u64::MAX).then_some(Timespec {
                tv_sec: (span.0 / 1_000_000_000) as i64,
                tv_nsec: (span.0 % 1_000_000_000) as _,
            });
            let mut events = [epoll::Event {
                flags: epoll::EventFlags::empty(),
                data: epoll::EventData::new_u64(0),
            }; 8];
            // An interrupted wait is a spurious wake-up.
            let found = epoll::wait(&self.epoll, &mut events, until.as_ref()).unwrap_or(0);
            self.ring(&events[..found]);
            self.about_to_wait.store(false, Ordering::SeqCst);
            // The caller looks at everything after this.
            self.woken.store(false, Ordering::SeqCst);
            self.waits.fetch_add(1, Ordering::Relaxed);
            // What is written after that look stays, and ends the next wait.
            if self.wakes.take() {
                let _ = rustix::io::read(&self.event, &mut [0; 8]);
            }
        }
    }
}

#[cfg(shuttle)]
mod imp {
    use super::{Nanos, io};
    use crate::clock;
    use crate::sync::{Condvar, Mutex};

    struct State {
        woken: bool,
        deadline: Nanos,
    }

    pub struct Inner {
        state: Mutex<State>,
        changed: Condvar,
    }

    impl Inner {
        pub fn new() -> io::Result<Self> {
            let state = State {
                woken: false,
                deadline: Nanos(u64::MAX),
            };
            Ok(Self {
                state: Mutex::new(state),
                changed: Condvar::new(),
            })
        }

        pub fn wake(&self) {
            self.state.lock().woken = true;
            self.changed.notify_all();
        }

        pub fn wake_at(&self, at: Nanos) {
            let mut state = self.state.lock();
            state.deadline = state.deadline.min(at);
        }

        pub fn prepare(&self) {
            self.state.lock().deadline = Nanos(u64::MAX);
        }

        pub fn wait(&self, timeout: Option<Nanos>) {
            let mut state = self.state.lock();
            let until = timeout.map_or(Nanos(u64::MAX), |span| clock::now() + span);
            let until = until.min(std::mem::replace(&mut state.deadline, Nanos(u64::MAX)));
            while !state.woken {
                if until.0 == u64::MAX {
                    state = self.changed.wait(state);
                    continue;
                }
                let left = until.since(clock::now());
                if left.0 == 0 {
                    break;
                }
                state = self.changed.wait_timeout(state, left).0;
            }
            state.woken = false;
        }
    }
}

#[cfg(all(test, not(any(shuttle, loom, miri))))]
mod tests {
    use super::*;
    use rustix::event::{EventfdFlags, eventfd};
    use std::os::fd::AsFd;

    #[test]
    fn a_wait_rings_the_bells_of_those_that_end_it() {
        let set = WakeSet::new().unwrap();
        let event = || eventfd(0, EventfdFlags::NONBLOCK).unwrap();
        let (ready, idle) = (event(), event());
        let bells = [
            set.add(ready.as_fd()).unwrap(),
            set.add(idle.as_fd()).unwrap(),
        ];
        // A new one is rung: nobody has looked at its descriptor yet.
        assert!(bells.iter().all(Bell::take));
        assert!(!bells.iter().any(Bell::take));
        for _ in 0..2 {
            rustix::io::write(&ready, &1u64.to_ne_bytes()).unwrap();
            set.prepare();
            set.wait(Some(Nanos::from_secs(5)));
            assert!(bells[0].take() && !bells[1].take());
            rustix::io::read(&ready, &mut [0; 8]).unwrap();
        }
    }
}
