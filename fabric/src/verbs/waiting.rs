//! What a connection is waited for with: its completion channel and RDMA-CM's, behind one descriptor.

use super::queue::Side;
use crate::clock::Nanos;
use rustix::event::{Timespec, epoll};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

const COMPLETIONS: u64 = 0;
const CONNECTION: u64 = 1;

/// One descriptor for both.
pub struct Waiting {
    epoll: OwnedFd,
    /// Events that were asked for and have not come: of sends, of receives.
    asked: [bool; 2],
}

/// What has something to say.
#[derive(Default)]
pub struct Ready {
    pub completions: bool,
    pub connection: bool,
}

impl Waiting {
    pub fn new(completions: BorrowedFd<'_>, connection: BorrowedFd<'_>) -> io::Result<Waiting> {
        let both = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        for (fd, number) in [(completions, COMPLETIONS), (connection, CONNECTION)] {
            let data = epoll::EventData::new_u64(number);
            epoll::add(&both, fd, data, epoll::EventFlags::IN)?;
        }
        Ok(Waiting {
            epoll: both,
            asked: [false; 2],
        })
    }

    /// Whether an event is to be asked for: none is on its way.
    pub fn asks(&mut self, side: Side) -> bool {
        !std::mem::replace(&mut self.asked[side as usize], true)
    }

    /// An event that was asked for has come.
    pub fn came(&mut self, side: Side) {
        self.asked[side as usize] = false;
    }

    /// How many events were asked for and have not come.
    pub fn awaited(&self) -> usize {
        self.asked.iter().filter(|asked| **asked).count()
    }

    /// Which of the two are readable now.
    pub fn ready(&self) -> Ready {
        self.wait(Some(Nanos(0)))
    }

    /// Blocks until one of the two is readable, or the time is over. An interrupted wait is a spurious wake-up.
    pub fn wait(&self, timeout: Option<Nanos>) -> Ready {
        let mut events = [epoll::Event {
            flags: epoll::EventFlags::empty(),
            data: epoll::EventData::new_u64(0),
        }; 2];
        let timeout = timeout.map(|span| Timespec {
            tv_sec: (span.0 / 1_000_000_000) as i64,
            tv_nsec: (span.0 % 1_000_000_000) as _,
        });
        let found = epoll::wait(&self.epoll, &mut events, timeout.as_ref()).unwrap_or(0);
        let mut ready = Ready::default();
        for event in &events[..found] {
            let number = event.data;
            match number.u64() {
                COMPLETIONS => ready.completions = true,
                _ => ready.connection = true,
            }
        }
        ready
    }
}

impl AsFd for Waiting {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.epoll.as_fd()
    }
}
