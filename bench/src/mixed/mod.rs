//! `odafs bench mixed`: clients who read directly beside those of plain NFS, on one server and one file, who all write
//! too.
//!
//! Every page names the write that it comes from, so every read is checked: it may return neither a page older than one
//! that was acknowledged before it began, nor parts of two writes. Each page is written by one client alone. Direct
//! clients keep no pages, because with a cache reads would be close-to-open, as those of NFS clients are. The NFS
//! clients are minimal callers, which keep nothing either.

mod plan;
mod row;

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Result, anyhow};
use odafs::{Cache, File, Options};
use serde::Serialize;

pub use plan::Plan;
pub use row::{Kind, Row};

use crate::clock;
use crate::gate::Gate;
use crate::machine::{Machine, commit};
use crate::pages::{PAGE, Pages};
use crate::peers::nfs::NfsFile;
use crate::random::Random;
use crate::served::{Served, ServedPlan, Way, by_rpc};
use row::{Done, Slice};

/// What `odafs bench mixed --json` prints.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    /// The machine that it ran on.
    pub machine: Machine,
    /// The commit that the program was built from.
    pub commit: &'static str,
    /// The name of the bench.
    pub bench: &'static str,
    /// Where client and server ran, as a sentence.
    pub placement: String,
    /// Bytes of the file.
    pub file_bytes: u64,
    /// Clients at once.
    pub clients: usize,
    /// Percentage of writes among the operations.
    pub writes_percent: u64,
    /// How often each row was measured, and for how long.
    pub rounds: u32,
    /// In nanoseconds.
    pub slice_ns: u64,
    /// A row for each route and share of direct clients.
    #[serde(serialize_with = "crate::spread::flat")]
    pub rows: Vec<Row>,
}

/// One client.
enum Caller {
    Direct(File),
    NfsTcp(NfsFile),
}

impl Caller {
    /// The bytes that it found.
    fn read(&mut self, page: usize, into: &mut [u8]) -> Result<usize> {
        let offset = (page * PAGE) as u64;
        match self {
            Self::Direct(file) => Ok(file.read_at(into, offset)?),
            Self::NfsTcp(file) => file.read_at(into, offset),
        }
    }

    fn write(&mut self, page: usize, data: &[u8]) -> Result<()> {
        let offset = (page * PAGE) as u64;
        match self {
            Self::Direct(file) => Ok(file.write_at(data, offset)?),
            Self::NfsTcp(file) => file.write_at(data, offset),
        }
    }
}

/// Measures. `tick` hears of each row of each round before it begins, with `round` first.
///
/// # Errors
/// The server could not be started or reached, or a call failed. A read that returns wrong data is counted in its row.
pub fn run(plan: &Plan, program: PathBuf, mut tick: impl FnMut(&str)) -> Result<Report> {
    let machine = Machine::here();
    let file_bytes = plan.file_mib << 20;
    tick("starting and filling a server");
    let served = Served::start(&ServedPlan {
        program,
        file_bytes,
        cache_bytes: file_bytes * 2,
        direct: "one-sided",
        apart: false,
    })?;
    let pages = Pages::new(file_bytes as usize / PAGE);
    write_all(&served, &pages)?;
    let ways = plan.ways()?;
    let mut nfs = Vec::new();
    for _ in 0..plan.clients {
        nfs.push(Caller::NfsTcp(NfsFile::open(&served.nfs_file()?, false)?));
    }
    let mut direct = Vec::new();
    for &(way, route) in &ways {
        let options = Options {
            route,
            cache: Cache::Off,
            lanes: 1,
            ..Options::default()
        };
        let mut callers = Vec::new();
        for _ in 0..plan.clients {
            callers.push(Caller::Direct(served.open(way, options.clone())?));
        }
        direct.push(callers);
    }
    let time = Duration::from_millis(plan.slice_ms);
    let mut slices: Vec<Vec<Vec<Slice>>> = vec![vec![Vec::new(); plan.direct.len()]; ways.len()];
    let mut turn = 0;
    for round in 1..=plan.rounds {
        for (place, (direct, slices)) in direct.iter_mut().zip(&mut slices).enumerate() {
            for (&percent, slices) in plan.direct.iter().zip(slices) {
                tick(&format!(
                    "round {round}: {}, {percent} %",
                    plan.routes[place]
                ));
                turn += 1;
                let number = plan.direct_clients(percent);
                let mut callers: Vec<&mut Caller> = direct
                    .iter_mut()
                    .take(number)
                    .chain(nfs.iter_mut().skip(number))
                    .collect();
                slices.push(slice(&mut callers, &pages, plan.writes, (time, turn))?);
            }
        }
    }
    let mut rows = Vec::new();
    for (way, slices) in ways.iter().zip(&slices) {
        for (&percent, slices) in plan.direct.iter().zip(slices) {
            let number = plan.direct_clients(percent);
            let clients = (number, plan.clients - number);
            rows.push(Row::of(*way, percent, clients, slices));
        }
    }
    Ok(Report {
        machine,
        commit: commit(),
        bench: "mixed",
        placement: served.placement(),
        file_bytes,
        clients: plan.clients,
        writes_percent: plan.writes,
        rounds: plan.rounds,
        slice_ns: time.as_nanos() as u64,
        rows,
    })
}

/// The first version of every page.
fn write_all(served: &Served, pages: &Pages) -> Result<()> {
    let file = served.open(Way::Shm, by_rpc())?;
    let mut data = vec![0; 256 * PAGE];
    for first in (0..pages.len()).step_by(256) {
        let number = (pages.len() - first).min(256);
        for (number, page) in data.chunks_exact_mut(PAGE).take(number).enumerate() {
            pages.next(first + number, page);
        }
        file.write_at(&data[..number * PAGE], (first * PAGE) as u64)?;
        (first..first + number).for_each(|page| pages.written(page));
    }
    Ok(())
}

/// All callers read and write for this long.
fn slice(
    callers: &mut [&mut Caller],
    pages: &Pages,
    writes: u64,
    (time, turn): (Duration, u64),
) -> Result<Slice> {
    let all = callers.len();
    let (ready, start, stop) = (Gate::new(all), Gate::new(1), AtomicBool::new(false));
    let (done, elapsed_ns) = std::thread::scope(|scope| {
        let threads: Vec<_> = callers
            .iter_mut()
            .enumerate()
            .map(|(number, caller)| {
                let (ready, start, stop) = (&ready, &start, &stop);
                let random = Random::new(turn << 16 | number as u64);
                scope.spawn(move || {
                    let is_direct = matches!(caller, Caller::Direct(_));
                    ready.arrive();
                    start.wait();
                    let done = call(caller, pages, writes, (number, all), random, stop);
                    anyhow::Ok((is_direct, done?))
                })
            })
            .collect();
        ready.wait();
        // The time begins before they do: to wake up may take this thread longer than them.
        let begin = Instant::now();
        start.arrive();
        std::thread::sleep(time);
        stop.store(true, Ordering::Relaxed);
        let elapsed_ns = clock::nanos(begin, Instant::now());
        let joined = threads.into_iter().map(|thread| thread.join());
        (joined.collect::<Vec<_>>(), elapsed_ns)
    });
    let mut slice = Slice {
        elapsed_ns,
        ..Slice::default()
    };
    for done in done {
        let (is_direct, done) = done.map_err(|_| anyhow!("a client's thread panicked"))??;
        match is_direct {
            true => slice.direct.add(&done),
            false => slice.nfs.add(&done),
        }
    }
    Ok(slice)
}

/// One of the clients. It reads any page, and writes its own ones.
fn call(
    caller: &mut Caller,
    pages: &Pages,
    writes: u64,
    (number, all): (usize, usize),
    mut random: Random,
    stop: &AtomicBool,
) -> Result<Done> {
    let (mut done, mut buffer) = (Done::default(), vec![0; PAGE]);
    while !stop.load(Ordering::Relaxed) {
        let page = random.below(pages.len() as u64) as usize;
        if random.below(100) < writes {
            let own = page - page % all + number;
            if own < pages.len() {
                pages.next(own, &mut buffer);
                let begin = Instant::now();
                caller.write(own, &buffer)?;
                done.writes.record(clock::nanos(begin, Instant::now()));
                pages.written(own);
            }
            continue;
        }
        let since = pages.since(page);
        let begin = Instant::now();
        let read = caller.read(page, &mut buffer)?;
        done.reads.record(clock::nanos(begin, Instant::now()));
        // A short read is incoherent too: the file keeps its length.
        let is_coherent = read == PAGE && pages.allows(page, since, &buffer);
        done.incoherent += u64::from(!is_coherent);
    }
    Ok(done)
}
