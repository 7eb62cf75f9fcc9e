//! `odafs bench peers`: the same reads from servers of other projects and from ours, in turn. `bench/peers/run` installs
//! and starts the others.

mod libnfs;
mod memory;
pub(crate) mod nfs;
pub(crate) mod nfs4;
mod rows;
mod setting;
mod stream;

use std::collections::VecDeque;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use serde::Serialize;

use crate::clock;
use crate::cpu;
use crate::histogram::{Latencies, median};
use crate::machine::Machine;
use crate::random::Random;
use crate::spread::Spread;
use setting::{Candidate, Route, Setting};

/// The options of the bench.
#[derive(Clone, Debug)]
pub struct Plan {
    /// The program `odafs`, for servers of ours.
    pub program: PathBuf,
    /// The file to read. The servers serve its directory.
    pub file: PathBuf,
    /// Redis' Unix socket.
    pub redis: Option<PathBuf>,
    /// Memcached's Unix socket.
    pub memcached: Option<PathBuf>,
    /// NFS servers that serve the same file, by name and URL.
    pub nfs: Vec<(String, odafs::Url)>,
    /// Names of those that also serve NFS version 4.2, with the file under the same path.
    pub nfs4: bool,
    /// The reader by libnfs, as a program.
    pub libnfs: Option<PathBuf>,
    /// Process ids of the peers by name, for their CPU time.
    pub processes: Vec<(String, u32)>,
    /// Time for a row in a round.
    pub time: Duration,
    /// Number of rounds.
    pub rounds: u32,
}

/// The parameters of a row.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Spec {
    /// The name of the server.
    pub peer: String,
    /// What carries the reads.
    pub route: &'static str,
    /// How the client waits. The peers' servers always sleep; ours waits as the client does. `usual`: the client sleeps, and
    /// our server waits as it does without options.
    pub wait: &'static str,
    /// Size of a read in bytes.
    pub size_bytes: usize,
    /// Number of reads in flight.
    pub depth: usize,
    /// `random` or `sequential`.
    pub pattern: &'static str,
}

/// A row, with the medians of its rounds.
#[derive(Clone, Debug, Serialize)]
pub struct Row {
    /// The parameters of the row.
    #[serde(flatten)]
    pub spec: Spec,
    /// Number of reads in all rounds.
    pub reads: u64,
    /// Latency that half of the reads did not exceed.
    pub p50_ns: u64,
    /// The lowest of the rounds' medians.
    pub p50_lowest_ns: u64,
    /// The highest of them.
    pub p50_highest_ns: u64,
    /// Latency that 99 % of them did not exceed.
    pub p99_ns: u64,
    /// Latency that 99.9 % of them did not exceed.
    pub p999_ns: u64,
    /// Reads per second.
    pub reads_per_second: u64,
    /// MiB per second.
    pub mib_per_second: u64,
    /// CPU time of the client, per read.
    pub client_cpu_ns_per_read: u64,
    /// CPU time of the server per read. `None` if its process is not known.
    pub server_cpu_ns_per_read: Option<u64>,
    #[serde(skip)]
    rounds: Vec<Round>,
}

/// A peer's row over ours.
#[derive(Clone, Debug, Serialize)]
pub struct Ratio {
    /// The name of the ratio.
    pub name: String,
    /// The median of the rounds: the peer's time divided by ours.
    pub ratio: f64,
    /// The lowest round.
    pub lowest: f64,
    /// The highest round.
    pub highest: f64,
}

/// The result, as `odafs bench peers --json` prints it.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    /// The machine that it ran on.
    pub machine: Machine,
    /// The commit that the program was built from.
    pub commit: &'static str,
    /// `peers`.
    pub bench: &'static str,
    /// The rows.
    pub rows: Vec<Row>,
    /// Peers over ours.
    pub ratios: Vec<Ratio>,
}

#[derive(Clone, Debug)]
struct Round {
    reads: u64,
    p50_ns: u64,
    p99_ns: u64,
    p999_ns: u64,
    per_read_ns: u64,
    client_cpu: u64,
    server_cpu: Option<u64>,
}

/// A server that answers reads, in any order.
trait Asks {
    /// Sends a read with a number, which comes back with the answer.
    fn ask(&mut self, offset: u64, length: usize) -> Result<u64>;
    /// Waits for an answer, and returns the number of the read and its data.
    fn answer(&mut self) -> Result<(u64, &[u8])>;
}

/// Measures all rows. It calls `tick` with the name of each before it measures it.
///
/// # Errors
/// A server could not be started or reached, or a read failed or returned other bytes than the file's.
pub fn run(plan: &Plan, mut tick: impl FnMut(&str)) -> Result<Report> {
    let processes = plan.processes.iter().map(|(_, process)| *process);
    let machine = Machine::here().with(processes.collect());
    let setting = Setting::new(plan, &mut tick)?;
    let candidates = setting.candidates(plan);
    let mut rounds: Vec<Vec<Round>> = vec![Vec::new(); candidates.len()];
    for number in 0..plan.rounds {
        for (candidate, rounds) in candidates.iter().zip(&mut rounds) {
            let spec = &candidate.spec;
            tick(&format!(
                "round {}: {} {} {}",
                number + 1,
                spec.peer,
                spec.route,
                spec.wait
            ));
            let label = || format!("{} {} ({})", spec.peer, spec.route, spec.wait);
            rounds.push(measure(candidate, &setting, plan.time).with_context(label)?);
        }
    }
    let rows: Vec<Row> = candidates
        .into_iter()
        .zip(rounds)
        .map(|(c, rounds)| row(c.spec, rounds))
        .collect();
    let ratios = ratios(&rows);
    Ok(Report {
        machine,
        commit: crate::machine::commit(),
        bench: "peers",
        rows,
        ratios,
    })
}

fn measure(candidate: &Candidate, setting: &Setting, time: Duration) -> Result<Round> {
    setting.settle();
    if let Some(mut reader) = setting.libnfs(candidate, time)? {
        let server = setting.cpu_ns(candidate);
        let figures = reader.read()?;
        let server = server.zip(setting.cpu_ns(candidate));
        let [p50_ns, p99_ns, p999_ns] = figures.latency_ns;
        return Ok(Round {
            reads: figures.reads,
            p50_ns,
            p99_ns,
            p999_ns,
            per_read_ns: (figures.elapsed_ns / figures.reads).max(1),
            client_cpu: figures.cpu_ns / figures.reads,
            server_cpu: server.map(|(before, after)| after.saturating_sub(before) / figures.reads),
        });
    }
    if let Some(rows) = setting.rows(candidate)? {
        return rows::measure(rows, candidate, setting, time);
    }
    let mut offsets = Offsets::new(&candidate.spec, setting.file_bytes());
    let mut asks = setting.connect(candidate)?;
    check(&mut *asks, &candidate.spec, setting, &mut offsets)?;
    let (client, server) = (cpu::own_ns(), setting.cpu_ns(candidate));
    let (latencies, elapsed) = drive(&mut *asks, &candidate.spec, &mut offsets, time)?;
    let reads = latencies.len().max(1);
    let spent = |before: u64, after: u64| after.saturating_sub(before) / reads;
    Ok(Round {
        reads,
        p50_ns: latencies.at(0.5),
        p99_ns: latencies.at(0.99),
        p999_ns: latencies.at(0.999),
        per_read_ns: (elapsed.as_nanos() as u64 / reads).max(1),
        client_cpu: spent(client, cpu::own_ns()),
        server_cpu: server
            .zip(setting.cpu_ns(candidate))
            .map(|(before, after)| spent(before, after)),
    })
}

/// Number of reads before the first that counts. Their bytes are compared with the file.
fn check(asks: &mut dyn Asks, spec: &Spec, setting: &Setting, offsets: &mut Offsets) -> Result<()> {
    for _ in 0..200 {
        let offset = offsets.next();
        let wanted = asks.ask(offset, spec.size_bytes)?;
        let (number, data) = asks.answer()?;
        let same = number == wanted && data == setting.expected(offset, spec.size_bytes);
        ensure!(same, "the read at {offset} did not return the file's bytes");
    }
    Ok(())
}

/// Keeps `depth` reads in flight for this long.
fn drive(
    asks: &mut dyn Asks,
    spec: &Spec,
    offsets: &mut Offsets,
    time: Duration,
) -> Result<(Latencies, Duration)> {
    let clock_ns = clock::overhead_ns();
    let mut latencies = Latencies::default();
    let mut pending: VecDeque<(u64, Instant)> = VecDeque::with_capacity(spec.depth);
    let begin = Instant::now();
    loop {
        let now = Instant::now();
        if now - begin >= time && pending.is_empty() {
            return Ok((latencies, now - begin));
        }
        while pending.len() < spec.depth && now - begin < time {
            let start = Instant::now();
            pending.push_back((asks.ask(offsets.next(), spec.size_bytes)?, start));
        }
        let (number, data) = asks.answer()?;
        ensure!(
            data.len() == spec.size_bytes,
            "{} of {} bytes came",
            data.len(),
            spec.size_bytes
        );
        let end = Instant::now();
        let found = pending
            .iter()
            .position(|(n, _)| *n == number)
            .context("an answer to no question")?;
        if let Some((_, start)) = pending.remove(found) {
            latencies.record(clock::nanos(start, end).saturating_sub(clock_ns));
        }
    }
}

struct Offsets {
    random: Option<Random>,
    next: u64,
    pieces: u64,
    size: u64,
}

impl Offsets {
    fn new(spec: &Spec, bytes: u64) -> Self {
        let size = spec.size_bytes as u64;
        let random = (spec.pattern == "random").then(|| Random::new(1));
        Self {
            random,
            next: 0,
            pieces: (bytes / size).max(1),
            size,
        }
    }

    fn next(&mut self) -> u64 {
        self.next = match &mut self.random {
            Some(random) => random.below(self.pieces),
            None => (self.next + 1) % self.pieces,
        };
        self.next * self.size
    }
}

fn row(spec: Spec, rounds: Vec<Round>) -> Row {
    let middle = |value: fn(&Round) -> u64| median(rounds.iter().map(value));
    let per_second = 1_000_000_000 / middle(|r| r.per_read_ns).max(1);
    let known = rounds.iter().all(|r| r.server_cpu.is_some());
    Row {
        reads: rounds.iter().map(|r| r.reads).sum(),
        p50_ns: middle(|r| r.p50_ns),
        p50_lowest_ns: rounds.iter().map(|r| r.p50_ns).min().unwrap_or(0),
        p50_highest_ns: rounds.iter().map(|r| r.p50_ns).max().unwrap_or(0),
        p99_ns: middle(|r| r.p99_ns),
        p999_ns: middle(|r| r.p999_ns),
        reads_per_second: per_second,
        mib_per_second: (per_second * spec.size_bytes as u64) >> 20,
        client_cpu_ns_per_read: middle(|r| r.client_cpu),
        server_cpu_ns_per_read: known.then(|| middle(|r| r.server_cpu.unwrap_or(0))),
        spec,
        rounds,
    }
}

/// The ratios of every peer's row to ours of the same size, depth and pattern. NFS is compared with our NFS by the same
/// reader, and with RDMA if that is measured. The key-value stores are compared with each of our routes over shared memory
/// that waits in the same way.
fn ratios(rows: &[Row]) -> Vec<Ratio> {
    let (ours, peers): (Vec<&Row>, Vec<&Row>) =
        rows.iter().partition(|r| r.spec.peer == setting::OURS);
    let mut ratios = versions(&ours);
    for peer in peers {
        for our in &ours {
            let (p, o) = (&peer.spec, &our.spec);
            let alike = (p.size_bytes, p.depth, p.pattern) == (o.size_bytes, o.depth, o.pattern)
                && (p.wait == o.wait || (p.wait, o.wait) == ("block", setting::USUAL));
            let (p, o) = (p.route, o.route);
            let comparable = match p {
                Route::NFS4 => o == p,
                Route::LIBNFS | Route::NFS => o == p || o == Route::RDMA,
                _ => !matches!(o, Route::LIBNFS | Route::NFS | Route::NFS4 | Route::RDMA),
            };
            if alike && comparable {
                ratios.extend(ratio(peer, our));
            }
        }
    }
    ratios
}

/// The ratios of our version 4.2 to our version 3.
fn versions(ours: &[&Row]) -> Vec<Ratio> {
    let of = |route| ours.iter().filter(move |row| row.spec.route == route);
    let pairs = of(Route::NFS4).filter_map(|four| {
        let alike = |three: &&&Row| {
            let (a, b) = (&three.spec, &four.spec);
            (a.size_bytes, a.depth, a.pattern, a.wait) == (b.size_bytes, b.depth, b.pattern, b.wait)
        };
        ratio(four, of(Route::NFS).find(alike)?)
    });
    pairs.collect()
}

fn ratio(peer: &Row, our: &Row) -> Option<Ratio> {
    // Sequential reads are about throughput.
    let by_latency = peer.spec.depth == 1 && peer.spec.pattern == "random";
    let figure = if by_latency {
        |r: &Round| r.p50_ns
    } else {
        |r: &Round| r.per_read_ns
    };
    let rounds = peer.rounds.iter().zip(&our.rounds);
    let each = Spread::exact(rounds.map(|(p, o)| figure(p) as f64 / figure(o).max(1) as f64))?;
    let what = if by_latency { "p50" } else { "time a read" };
    let (p, o) = (&peer.spec, &our.spec);
    Some(Ratio {
        name: format!(
            "{} {} / ours, {} ({}, {} at depth {}, {what})",
            p.peer,
            p.route,
            o.route,
            o.wait,
            crate::table::bytes(p.size_bytes as u64),
            p.depth,
        ),
        ratio: each.median,
        lowest: each.lowest,
        highest: each.highest,
    })
}
