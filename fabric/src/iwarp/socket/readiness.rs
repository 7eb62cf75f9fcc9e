//! Which of many connections have something to read, by one system call for all of them.
//!
//! A connection that was active recently is read directly. The others are only read after an event. A thread that waits
//! for all of them waits for this one descriptor.

use crate::wake::{Bell, EDGES, WakeSet};
use rustix::event::{Timespec, epoll};
use std::collections::HashMap;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak};

/// Number of empty looks at idle connections per system call, at least.
const LOOKS_MIN: u32 = 64;

/// Number of empty looks after which even the only active connection counts as idle.
const HOT_POLLS: u32 = 4096;

/// The most events of one system call.
const EVENTS: usize = 64;

#[derive(Default)]
struct Members {
    next: u64,
    flags: HashMap<u64, Arc<AtomicBool>>,
}

/// What the connections of a listener share.
pub struct Readiness {
    epoll: OwnedFd,
    members: Mutex<Members>,
    count: AtomicU32,
    /// Number of looks since the last system call.
    looks: AtomicU32,
    /// Number of members that are read directly.
    hot: AtomicU32,
    /// The set that waits for all of them.
    set: OnceLock<(Weak<WakeSet>, Bell)>,
}

impl Readiness {
    pub fn new() -> io::Result<Arc<Readiness>> {
        Ok(Arc::new(Readiness {
            epoll: epoll::create(epoll::CreateFlags::CLOEXEC)?,
            members: Mutex::default(),
            count: AtomicU32::new(0),
            looks: AtomicU32::new(0),
            hot: AtomicU32::new(0),
            set: OnceLock::new(),
        }))
    }

    fn members(&self) -> MutexGuard<'_, Members> {
        self.members.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Makes the socket wake `set`, together with all others of the listener. Returns `None` if they belong to another
    /// set.
    pub fn join(
        self: &Arc<Self>,
        socket: BorrowedFd<'_>,
        set: &Arc<WakeSet>,
    ) -> io::Result<Option<Member>> {
        if self.set.get().is_none() {
            // Edge-triggered: what active connections have read directly stays in this epoll, and would otherwise end
            // each wait at once.
            let bell = set.add_edges(self.epoll.as_fd())?;
            // Another thread may have been faster.
            let _ = self.set.set((Arc::downgrade(set), bell));
        }
        let same = self.set.get().and_then(|(known, _)| known.upgrade());
        if !same.is_some_and(|known| Arc::ptr_eq(&known, set)) {
            return Ok(None);
        }
        let flag = Arc::new(AtomicBool::new(true));
        let number = {
            let mut members = self.members();
            members.next += 1;
            let number = members.next;
            members.flags.insert(number, Arc::clone(&flag));
            number
        };
        let member = Member {
            readiness: Arc::clone(self),
            number,
            flag,
            polls_left: 0,
            waits: set.waits(),
            emptied: None,
        };
        self.count.fetch_add(1, Relaxed);
        epoll::add(
            &self.epoll,
            socket,
            epoll::EventData::new_u64(number),
            EDGES,
        )?;
        Ok(Some(member))
    }

    /// Looks at all of them, if it is time.
    fn look_sometimes(&self) {
        let looks = self.looks.fetch_add(1, Relaxed) + 1;
        let due = looks >= self.count.load(Relaxed).max(LOOKS_MIN);
        if due || self.set.get().is_some_and(|(_, bell)| bell.take()) {
            self.looks.store(0, Relaxed);
            self.look();
        }
    }

    fn look(&self) {
        let mut events = [epoll::Event {
            flags: epoll::EventFlags::empty(),
            data: epoll::EventData::new_u64(0),
        }; EVENTS];
        let now = Timespec {
            tv_sec: 0,
            tv_nsec: 0,
        };
        loop {
            let found = epoll::wait(&self.epoll, &mut events, Some(&now)).unwrap_or(0);
            let members = self.members();
            for event in &events[..found] {
                let number = event.data;
                if let Some(flag) = members.flags.get(&number.u64()) {
                    flag.store(true, Relaxed);
                }
            }
            if found < EVENTS {
                return;
            }
        }
    }
}

/// One connection.
pub struct Member {
    readiness: Arc<Readiness>,
    number: u64,
    flag: Arc<AtomicBool>,
    /// How many more times it is read directly without success.
    polls_left: u32,
    /// Number of waits of the set that have ended.
    waits: Arc<AtomicU64>,
    /// Number of waits that had ended when the socket had nothing, not even an end.
    emptied: Option<u64>,
}

impl Member {
    /// Whether to make a system call for this connection now.
    pub fn is_due(&mut self) -> bool {
        if self.polls_left == 0 {
            self.readiness.look_sometimes();
        }
        self.is_flagged()
    }

    /// As [`Member::is_due`], before a wait: events stay where they end the wait. An event of another connection that
    /// was taken here would be reported to a connection that has been armed already.
    ///
    /// Nor is a socket looked at again that had nothing after the last wait, and that nothing was read from since: what has
    /// come was told to both epolls. The set's gives it out in a wait alone, so in the next one, if ours still has it then.
    /// If not, because a look for others took it, it is in the flag.
    pub fn is_due_before_wait(&mut self) -> bool {
        if self.emptied == Some(self.waits.load(Relaxed)) && !self.flag.load(Relaxed) {
            return false;
        }
        self.is_flagged()
    }

    /// The socket had nothing, not even the end of the stream.
    pub fn emptied(&mut self) {
        self.emptied = Some(self.waits.load(Relaxed));
    }

    fn is_flagged(&mut self) -> bool {
        if self.polls_left > 0 {
            self.polls_left -= 1;
            if self.polls_left == 0 {
                self.readiness.hot.fetch_sub(1, Relaxed);
            }
            self.flag.store(false, Relaxed);
            return true;
        }
        self.flag.load(Relaxed) && self.flag.swap(false, Relaxed)
    }

    /// Something came, so the socket is read directly for a while. The more such sockets there are, the shorter that
    /// is.
    pub fn heat(&mut self) {
        if self.polls_left == 0 {
            self.readiness.hot.fetch_add(1, Relaxed);
        }
        let hot = self.readiness.hot.load(Relaxed).max(1);
        self.polls_left = (HOT_POLLS / hot / hot).max(1);
    }

    /// Ends the reports about this socket.
    pub fn leave(&self, socket: BorrowedFd<'_>) {
        // It may have left already.
        let _ = epoll::delete(&self.readiness.epoll, socket);
    }
}

impl Drop for Member {
    fn drop(&mut self) {
        self.readiness.members().flags.remove(&self.number);
        self.readiness.count.fetch_sub(1, Relaxed);
        if self.polls_left > 0 {
            self.readiness.hot.fetch_sub(1, Relaxed);
        }
    }
}
