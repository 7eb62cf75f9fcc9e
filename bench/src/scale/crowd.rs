//! Many clients in this process, each with its own connections and session.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, anyhow, ensure};
use odafs::{Cache, Eager, File, Options, Route};

use crate::clock;
use crate::cpu;
use crate::gate::Gate;
use crate::random::Random;
use crate::served::{Served, Way};

/// Clients that have the file open.
pub struct Crowd {
    way: Way,
    route: Route,
    files: Vec<File>,
}

/// The figures of a slice of time.
#[derive(Clone, Copy, Debug, Default)]
pub struct Slice {
    /// Reads of all clients together.
    pub reads: u64,
    /// How long that took.
    pub elapsed_ns: u64,
    /// Reads of the client that made the fewest.
    pub fewest: u64,
    /// Number of clients.
    pub clients: usize,
    /// CPU time of the server.
    pub server_cpu_ns: u64,
    /// CPU time of this process.
    pub client_cpu_ns: u64,
}

impl Slice {
    /// Reads per second.
    pub fn rate(&self) -> f64 {
        self.reads as f64 * 1e9 / self.elapsed_ns.max(1) as f64
    }

    /// Reads of the slowest client, divided by the mean of all clients.
    pub fn slowest_share(&self) -> f64 {
        self.fewest as f64 * self.clients as f64 / self.reads.max(1) as f64
    }
}

impl Crowd {
    /// A crowd without clients.
    pub fn new(way: Way, route: Route) -> Self {
        Self {
            way,
            route,
            files: Vec::new(),
        }
    }

    /// Connects clients until there are this many. Each has references of the whole file, if its route uses them, and
    /// has made a few reads.
    ///
    /// # Errors
    /// The server refused one.
    pub fn grow(&mut self, served: &Served, clients: usize) -> Result<()> {
        let options = Options {
            route: self.route,
            cache: Cache::Off,
            lanes: 1,
            eager: match self.route {
                Route::Rpc => Eager::Lazy,
                _ => Eager::OnOpen,
            },
            ..Options::default()
        };
        let mut page = [0; 4096];
        while self.files.len() < clients {
            let number = self.files.len() + 1;
            let file = served
                .open(self.way, options.clone())
                .with_context(|| format!("client {number} of {clients}"))?;
            for place in 0..3 {
                file.read_at(&mut page, place * 4096)?;
            }
            self.files.push(file);
        }
        Ok(())
    }

    /// Lets all clients read at random for this long, as [`slice`] says.
    ///
    /// # Errors
    /// A read failed.
    pub fn slice(
        &mut self,
        time: Duration,
        reads: (u64, usize),
        threads: (usize, usize),
        server_cpu_ns: impl Fn() -> u64,
    ) -> Result<Slice> {
        slice(&mut self.files, time, reads, threads, server_cpu_ns)
    }
}

/// A client.
pub trait Reads: Send {
    /// Reads at `offset`. Returns the number of bytes.
    ///
    /// # Errors
    /// The read failed.
    fn read(&mut self, into: &mut [u8], offset: u64) -> Result<usize>;
}

impl Reads for File {
    fn read(&mut self, into: &mut [u8], offset: u64) -> Result<usize> {
        Ok(self.read_at(into, offset)?)
    }
}

/// Lets all clients read at random for this long. With fewer threads than clients, those of a thread take turns.
/// Each client makes `settle` reads before that: its connection learns how long to poll for an answer, and polling
/// in vain would take time from others.
///
/// # Errors
/// A read failed.
pub fn slice<R: Reads>(
    readers: &mut [R],
    time: Duration,
    (file_bytes, size): (u64, usize),
    (threads, settle): (usize, usize),
    server_cpu_ns: impl Fn() -> u64,
) -> Result<Slice> {
    let clients = readers.len();
    let threads = threads.clamp(1, clients.max(1));
    let mut of_threads: Vec<Vec<&mut R>> = (0..threads).map(|_| Vec::new()).collect();
    for (number, reader) in readers.iter_mut().enumerate() {
        of_threads[number % threads].push(reader);
    }
    let (settled, start, stop) = (Gate::new(threads), Gate::new(1), AtomicBool::new(false));
    let (mut begin, mut server, mut client) = (Instant::now(), 0, 0);
    let (counts, end) = std::thread::scope(|scope| {
        let readers: Vec<_> = of_threads
            .into_iter()
            .enumerate()
            .map(|(number, mut files)| {
                let (settled, start, stop) = (&settled, &start, &stop);
                scope.spawn(move || {
                    let mut random = Random::new(number as u64);
                    let turns = (0..files.len()).cycle();
                    let settling = turns.clone().take(files.len() * settle);
                    let result = read(&mut files, (file_bytes, size), &mut random, settling);
                    settled.arrive();
                    start.wait();
                    result?;
                    let going = turns.take_while(|_| !stop.load(Ordering::Relaxed));
                    read(&mut files, (file_bytes, size), &mut random, going)
                })
            })
            .collect();
        settled.wait();
        // Now they have settled. The time begins before they go on: to wake up may take this thread longer than them.
        (server, client) = (server_cpu_ns(), cpu::own_ns());
        begin = Instant::now();
        start.arrive();
        std::thread::sleep(time);
        stop.store(true, Ordering::Relaxed);
        let end = Instant::now();
        let joined = readers.into_iter().map(|reader| reader.join());
        (joined.collect::<Vec<_>>(), end)
    });
    let mut slice = Slice {
        elapsed_ns: clock::nanos(begin, end),
        fewest: u64::MAX,
        clients,
        server_cpu_ns: server_cpu_ns().saturating_sub(server),
        client_cpu_ns: cpu::own_ns().saturating_sub(client),
        ..Slice::default()
    };
    for of_thread in counts {
        for reads in of_thread.map_err(|_| anyhow!("a client's thread panicked"))?? {
            slice.reads += reads;
            slice.fewest = slice.fewest.min(reads);
        }
    }
    Ok(slice)
}

/// These take turns, each time one of these: how often each has read.
fn read<R: Reads>(
    files: &mut [&mut R],
    (file_bytes, size): (u64, usize),
    random: &mut Random,
    turns: impl Iterator<Item = usize>,
) -> Result<Vec<u64>> {
    let (mut data, mut counts) = (vec![0; size], vec![0; files.len()]);
    for turn in turns {
        let offset = random.below(file_bytes / size as u64) * size as u64;
        ensure!(
            files[turn].read(&mut data, offset)? == size,
            "the file is shorter than it was made"
        );
        counts[turn] += 1;
    }
    Ok(counts)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_and_shares() {
        let slice = Slice {
            reads: 100,
            elapsed_ns: 500_000_000,
            fewest: 20,
            clients: 4,
            ..Slice::default()
        };
        assert_eq!((slice.rate(), slice.slowest_share()), (200.0, 0.8));
        assert_eq!(Slice::default().slowest_share(), 0.0);
    }
}
