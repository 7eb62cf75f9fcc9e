//! The machine alone: as many clients as in the other rows, served by one thread that does the least there is to do.
//!
//! What these rows lose from few clients to many is the scheduler's, the kernel's and the caches'. A server cannot lose
//! less on the same processors, unless its clients wait in another way. In memory a client writes where to read from, and
//! sets its bit. The thread copies a page next to it and passes the turn, and the client copies the page. Over TCP each
//! client has a connection of the loopback, a request is 64 bytes, and the answer is the page. As long as each thread
//! can have a processor of its own, all of them poll. Otherwise all sleep while they have nothing to do.

use std::io;
use std::net::TcpStream;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

use anyhow::{Context as _, Result, anyhow};
use rustix::event::epoll;
use rustix::thread::futex;

use super::crowd::{self, Reads, Slice};
use crate::cpu;
use crate::floors::local::LocalFile;
use crate::floors::memory::{End, SharedSlot};
use crate::floors::{Wait, shm, tcp};

/// How pages are handed over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Alone {
    /// Through shared memory.
    Memory,
    /// Through TCP.
    Tcp,
}

/// What is read, by how many, and for how long.
#[derive(Clone, Copy, Debug)]
pub struct Load {
    /// Number of clients.
    pub clients: usize,
    /// Number of their threads, at most.
    pub threads: usize,
    /// Bytes of a read.
    pub size: usize,
    /// Reads of each client before the time that counts.
    pub settle: usize,
    /// The time that counts.
    pub time: Duration,
}

/// CPU time is looked at once in so many requests.
const REQUESTS_A_LOOK: u64 = 64;

impl Alone {
    /// As it is named in plans and rows: as the fabric beside whose rows it stands.
    pub fn fabric(self) -> &'static str {
        match self {
            Self::Memory => "shm",
            Self::Tcp => "tcp",
        }
    }

    /// Lets that many clients read at random.
    ///
    /// # Errors
    /// There is no loopback, too few descriptors, or no thread.
    pub fn slice(self, set: &LocalFile, load: Load) -> Result<Slice> {
        let processors = std::thread::available_parallelism()?.get();
        let wait = match load.threads.min(load.clients) < processors {
            true => Wait::Spin,
            false => Wait::Block,
        };
        let mut slice = match self {
            Self::Memory => in_memory(set, load, wait),
            Self::Tcp => over_tcp(set, load, wait),
        }?;
        // Both are threads of this process.
        slice.client_cpu_ns = slice.client_cpu_ns.saturating_sub(slice.server_cpu_ns);
        Ok(slice)
    }
}

fn measure<R: Reads>(
    readers: &mut [R],
    set: &LocalFile,
    load: Load,
    cpu_ns: &AtomicU64,
) -> Result<Slice> {
    let reads = (set.bytes().len() as u64, load.size);
    let server_cpu_ns = || cpu_ns.load(Ordering::Relaxed);
    crowd::slice(
        readers,
        load.time,
        reads,
        (load.threads, load.settle),
        server_cpu_ns,
    )
}

/// Whose requests wait.
struct Desk {
    /// A bit for each client.
    ready: Vec<AtomicU64>,
    /// 1 while the thread that serves sleeps, or is about to. Also its futex.
    asleep: AtomicU32,
    stop: AtomicBool,
    cpu_ns: AtomicU64,
    wait: Wait,
}

/// A client in memory.
struct Asking<'a> {
    end: End<'a>,
    number: usize,
    desk: &'a Desk,
}

impl Reads for Asking<'_> {
    fn read(&mut self, into: &mut [u8], offset: u64) -> Result<usize> {
        self.end.put(&offset.to_le_bytes());
        self.end.pass();
        let bit = 1 << (self.number % 64);
        self.desk.ready[self.number / 64].fetch_or(bit, Ordering::SeqCst);
        self.desk.wake();
        shm::await_turn(&self.end, self.desk.wait);
        self.end.take(into);
        Ok(into.len())
    }
}

impl Desk {
    fn wake(&self) {
        if self.asleep.load(Ordering::SeqCst) != 0 && self.asleep.swap(0, Ordering::SeqCst) != 0 {
            let _ = futex::wake(&self.asleep, futex::Flags::PRIVATE, 1);
        }
    }

    fn is_idle(&self) -> bool {
        let mut words = self.ready.iter();
        words.all(|word| word.load(Ordering::SeqCst) == 0) && !self.stop.load(Ordering::SeqCst)
    }

    fn serve(&self, ends: &mut [End<'_>], set: &LocalFile, size: usize) {
        let mut served = 0u64;
        while !self.stop.load(Ordering::SeqCst) {
            for (at, word) in self.ready.iter().enumerate() {
                if word.load(Ordering::Relaxed) == 0 {
                    continue;
                }
                let mut bits = word.swap(0, Ordering::SeqCst);
                while bits != 0 {
                    let end = &mut ends[at * 64 + bits.trailing_zeros() as usize];
                    bits &= bits - 1;
                    let mut offset = [0; 8];
                    end.take(&mut offset);
                    let offset = u64::from_le_bytes(offset) as usize;
                    end.put(&set.bytes()[offset..offset + size]);
                    shm::pass(end, self.wait);
                    count(&mut served, &self.cpu_ns);
                }
            }
            if self.wait == Wait::Spin {
                std::hint::spin_loop();
                continue;
            }
            self.asleep.store(1, Ordering::SeqCst);
            if self.is_idle() {
                let _ = futex::wait(&self.asleep, futex::Flags::PRIVATE, 1, None);
            }
            self.asleep.store(0, Ordering::SeqCst);
        }
    }
}

fn count(served: &mut u64, cpu_ns: &AtomicU64) {
    *served += 1;
    if served.is_multiple_of(REQUESTS_A_LOOK) {
        cpu_ns.store(cpu::thread_ns(), Ordering::Relaxed);
    }
}

fn in_memory(set: &LocalFile, load: Load, wait: Wait) -> Result<Slice> {
    let mut slots: Vec<Box<SharedSlot>> = (0..load.clients).map(|_| Box::default()).collect();
    let desk = Desk {
        ready: (0..load.clients.div_ceil(64))
            .map(|_| AtomicU64::new(0))
            .collect(),
        asleep: AtomicU32::new(0),
        stop: AtomicBool::new(false),
        cpu_ns: AtomicU64::new(0),
        wait,
    };
    let (mut asking, mut ends) = (Vec::new(), Vec::new());
    for (number, slot) in slots.iter_mut().enumerate() {
        let (end, peer) = slot.ends();
        asking.push(Asking {
            end,
            number,
            desk: &desk,
        });
        ends.push(peer);
    }
    std::thread::scope(|scope| {
        scope.spawn(|| desk.serve(&mut ends, set, load.size));
        let slice = measure(&mut asking, set, load, &desk.cpu_ns);
        desk.stop.store(true, Ordering::SeqCst);
        desk.wake();
        slice
    })
}

impl Reads for tcp::Asking {
    fn read(&mut self, into: &mut [u8], offset: u64) -> Result<usize> {
        self.ask(offset, into)?;
        Ok(into.len())
    }
}

fn over_tcp(set: &LocalFile, load: Load, wait: Wait) -> Result<Slice> {
    let (mut asking, mut peers) = (Vec::new(), Vec::new());
    for _ in 0..load.clients {
        let (socket, peer) = tcp::connected().context("cannot connect")?;
        socket.set_nonblocking(wait == Wait::Spin)?;
        peer.set_nonblocking(true)?;
        asking.push(tcp::Asking::over(socket));
        peers.push(Some(peer));
    }
    let cpu_ns = AtomicU64::new(0);
    std::thread::scope(|scope| {
        let serving = scope.spawn(|| serve_tcp(peers, set, wait, &cpu_ns));
        let slice = measure(&mut asking, set, load, &cpu_ns);
        // Then the other thread has nobody left.
        drop(asking);
        serving.join().map_err(|_| anyhow!("a thread panicked"))??;
        slice
    })
}

/// Serves these connections until all of them have ended.
fn serve_tcp(
    mut peers: Vec<Option<TcpStream>>,
    set: &LocalFile,
    wait: Wait,
    cpu_ns: &AtomicU64,
) -> io::Result<()> {
    let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
    for (number, peer) in peers.iter().enumerate() {
        let data = epoll::EventData::new_u64(number as u64);
        epoll::add(
            &epoll,
            peer.as_ref().ok_or(io::ErrorKind::NotConnected)?,
            data,
            epoll::EventFlags::IN,
        )?;
    }
    let (mut left, mut served) = (peers.len(), 0);
    let nothing = epoll::Event {
        flags: epoll::EventFlags::empty(),
        data: epoll::EventData::new_u64(0),
    };
    let mut events = [nothing; 64];
    // Who polls looks at all of them.
    let mut ready: Vec<usize> = (0..peers.len()).collect();
    while left > 0 {
        if wait == Wait::Block {
            let found = epoll::wait(&epoll, &mut events, None).unwrap_or(0);
            let numbers = events[..found].iter().map(|event| {
                let number = event.data;
                number.u64() as usize
            });
            ready.clear();
            ready.extend(numbers);
        }
        for &number in &ready {
            let Some(peer) = &mut peers[number] else {
                continue;
            };
            match tcp::answer_one(peer, set) {
                Ok(true) => count(&mut served, cpu_ns),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Ok(false) | Err(_) => {
                    peers[number] = None;
                    left -= 1;
                }
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::floors::local::write_random;
    use crate::scratch::Scratch;

    #[test]
    fn one_polls_many_sleep_and_all_are_served() {
        let directory = Scratch::for_bytes(1 << 20).unwrap();
        let path = directory.path().join("file");
        write_random(&path, 1 << 20, |_| {}).unwrap();
        let set = LocalFile::open(&path, false).unwrap();
        for alone in [Alone::Memory, Alone::Tcp] {
            for clients in [1, 70] {
                let load = Load {
                    clients,
                    threads: 8,
                    size: 4096,
                    settle: 3,
                    time: Duration::from_millis(1),
                };
                let slice = alone.slice(&set, load).unwrap();
                assert_eq!(slice.clients, clients);
            }
        }
    }

    #[test]
    fn a_client_gets_the_page_that_it_asked_for() {
        let directory = Scratch::for_bytes(1 << 20).unwrap();
        let path = directory.path().join("file");
        write_random(&path, 1 << 20, |_| {}).unwrap();
        let set = LocalFile::open(&path, false).unwrap();
        let desk = Desk {
            ready: vec![AtomicU64::new(0), AtomicU64::new(0)],
            asleep: AtomicU32::new(0),
            stop: AtomicBool::new(false),
            cpu_ns: AtomicU64::new(0),
            wait: Wait::Block,
        };
        let mut slots: Vec<SharedSlot> = (0..65).map(|_| SharedSlot::default()).collect();
        let (mut here, mut there): (Vec<_>, Vec<_>) =
            slots.iter_mut().map(SharedSlot::ends).unzip();
        std::thread::scope(|scope| {
            scope.spawn(|| desk.serve(&mut there, &set, 4096));
            let mut asking = Asking {
                end: here.remove(64),
                number: 64,
                desk: &desk,
            };
            for page in [0, 7, 255] {
                let mut bytes = [0; 4096];
                asking.read(&mut bytes, page * 4096).unwrap();
                assert_eq!(bytes, set.bytes()[page as usize * 4096..][..4096]);
            }
            desk.stop.store(true, Ordering::SeqCst);
            desk.wake();
        });
    }
}
