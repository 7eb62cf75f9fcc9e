//! Notices servers that die, so that what they exposed no longer counts.
//!
//! One thread of the process sleeps until a socket whose connection has a life word hangs up. The kernel closes a
//! server's sockets however it dies, so this needs no successor, and adds nothing to the path of a read.

use crate::memory::LifeView;
use rustix::event::epoll;
use std::collections::HashMap;
use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

/// The most hang-ups that one system call reports.
const BATCH: usize = 16;

struct Watch {
    epoll: OwnedFd,
    lives: Mutex<Lives>,
}

#[derive(Default)]
struct Lives {
    next: u64,
    watched: HashMap<u64, LifeView>,
}

/// A life word that is watched until this is dropped.
pub struct Watched(u64);

/// Ends `life`, for this process, when the peer of `socket` closes it.
pub fn watch(socket: BorrowedFd<'_>, life: LifeView) -> io::Result<Watched> {
    let watch = watch_of_process()?;
    let mut lives = watch.lives();
    lives.next += 1;
    let number = lives.next;
    let (data, flags) = (
        epoll::EventData::new_u64(number),
        epoll::EventFlags::RDHUP | epoll::EventFlags::ONESHOT,
    );
    epoll::add(&watch.epoll, socket, data, flags)?;
    lives.watched.insert(number, life);
    Ok(Watched(number))
}

impl Drop for Watched {
    fn drop(&mut self) {
        // The socket leaves the epoll set when it is closed.
        if let Ok(watch) = watch_of_process() {
            watch.lives().watched.remove(&self.0);
        }
    }
}

fn watch_of_process() -> io::Result<&'static Watch> {
    static WATCH: OnceLock<Result<Watch, io::ErrorKind>> = OnceLock::new();
    static THREAD: OnceLock<Result<(), io::ErrorKind>> = OnceLock::new();
    let made = WATCH.get_or_init(|| match epoll::create(epoll::CreateFlags::CLOEXEC) {
        Ok(epoll) => Ok(Watch {
            epoll,
            lives: Mutex::default(),
        }),
        Err(error) => Err(io::Error::from(error).kind()),
    });
    let watch = made.as_ref().map_err(|kind| io::Error::from(*kind))?;
    let started = THREAD.get_or_init(|| {
        let thread = std::thread::Builder::new().name("odafs-hangup".to_owned());
        let spawned = thread.spawn(|| watch.run());
        spawned.map(drop).map_err(|error| error.kind())
    });
    (*started).map_err(io::Error::from)?;
    Ok(watch)
}

impl Watch {
    fn lives(&self) -> MutexGuard<'_, Lives> {
        self.lives.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn run(&self) {
        let mut events = [epoll::Event {
            flags: epoll::EventFlags::empty(),
            data: epoll::EventData::new_u64(0),
        }; BATCH];
        loop {
            // The only possible failure here is an interruption.
            let found = epoll::wait(&self.epoll, &mut events, None).unwrap_or(0);
            for event in &events[..found] {
                if let Some(life) = self.lives().watched.remove(&event.data.u64()) {
                    life.end();
                }
            }
        }
    }
}
