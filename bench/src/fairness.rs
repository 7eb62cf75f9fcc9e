//! `odafs bench fairness`: the latencies of one client while another floods the server, and
//! while other files are synced.

mod flood;
mod peer;
mod setting;

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::{Builder, Scope, ScopedJoinHandle};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use odafs_common::wire::nfs3::{FileHandle, Procedure, ReadArgs, ReadDirArgs};
use odafs_common::wire::xdr::Encode as _;
use serde::Serialize;

use self::flood::{PROCEDURES, Targets};
use self::peer::{Arguments, FileHandleBytes, Peer, place};
use self::setting::Setting;
use crate::clock;
use crate::cpu::{self, Placement};
use crate::histogram::Latencies;
use crate::machine::{self, Machine};

/// What to measure.
#[derive(Clone, Debug)]
pub struct Plan {
    /// The program `odafs`, whose servers are measured.
    pub program: PathBuf,
    /// Time for all rows together.
    pub time: Duration,
    /// How long a sync takes in the last row.
    pub sync: Duration,
    /// The names of the floods, which are those of their rows. Empty: all.
    pub floods: Vec<String>,
}

/// The figures.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    /// Always `fairness`.
    pub bench: &'static str,
    /// The machine that it ran on.
    pub machine: Machine,
    /// The commit that the program was built from.
    pub commit: &'static str,
    /// The processors of the clients and of the servers, in words.
    pub placement: String,
    /// A row for each flood.
    pub rows: Vec<Row>,
}

/// One flood.
#[derive(Clone, Debug, Serialize)]
pub struct Row {
    /// What the other client does.
    pub flood: String,
    /// Calls of the flood that the measured server answered per second.
    pub flooded: f64,
    /// Calls of the flood that the other server answered per second.
    pub elsewhere: Option<f64>,
    /// The processor time that the measured server took during the flood, in processors. `None`: nothing floods it, or it is
    /// no process of its own.
    pub server_processors: Option<f64>,
    /// LOOKUP of a name whose object is in the server's memory.
    pub lookup: Pair,
    /// READ of 4 KiB that are in the server's memory.
    pub read: Pair,
    /// READDIR of a small directory, which a worker serves.
    pub readdir: Pair,
}

/// The latency of one procedure of the measured client, without the flood and during it.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Pair {
    /// 99th percentile without the flood, in nanoseconds.
    pub quiet_p99_ns: u64,
    /// 99th percentile during the flood, in nanoseconds.
    pub flooded_p99_ns: u64,
    /// 99th percentile while the flood goes to another server on this machine, in nanoseconds: the machine's share.
    pub elsewhere_p99_ns: Option<u64>,
    /// `flooded_p99_ns` divided by `quiet_p99_ns`.
    pub ratio: f64,
    /// `flooded_p99_ns` divided by `elsewhere_p99_ns`: the server's share.
    pub server_ratio: Option<f64>,
}

/// Calls of a flood in flight at a time.
const DEPTH: u64 = 32;
/// Rounds of a row. Each has a quiet slice, a flooded one, and one with the flood elsewhere. The server assigns
/// connections to its threads in turn, so in every other round the flood shares the thread of the measured client.
const ROUNDS: u32 = 4;
/// A flood begins ahead of what is measured beside it, by this part of a slice.
const AHEAD: u32 = 10;
/// The row whose flood makes no calls: a thread computes on the server's processor, and one on the clients'.
const COMPUTING: &str = "computing";
/// The row in which several clients change files, and syncs take long.
const SYNCS: &str = "syncs";

/// The names of the rows.
pub fn rows() -> Vec<&'static str> {
    let floods = PROCEDURES.map(|(name, _)| name);
    floods.into_iter().chain([COMPUTING, SYNCS]).collect()
}

impl Plan {
    fn has(&self, row: &str) -> bool {
        self.floods.is_empty() || self.floods.iter().any(|flood| flood == row)
    }

    /// Number of rows of this run.
    pub fn rows(&self) -> usize {
        rows().iter().filter(|row| self.has(row)).count()
    }
}

/// Measures. Calls `tick` before each row. Binds the calling thread to the processor of the clients, where it runs before
/// others from then on if the user may have that.
///
/// # Errors
/// No server could be started, or it refused a call.
pub fn run(plan: &Plan, mut tick: impl FnMut(&str)) -> Result<Report> {
    let machine = Machine::here();
    let placement = Placement::at_start();
    if let Some(placement) = &placement {
        cpu::bind(&placement.client).context("cannot bind to a processor")?;
    }
    // A reply often comes when its client has just gone to sleep. If another program begins a slice then, the client that is
    // woken waits for the end of that: 3 ms, which would count as the server's.
    let first = cpu::before_others().is_ok();
    let servers = placement.as_ref().map(|placement| &*placement.server);
    let time = plan.time / plan.rows().max(1) as u32;
    let mut rows = Vec::new();
    let mut begins = |name: &str| {
        let has = plan.has(name);
        if has {
            tick(&format!("round 1: {name}"));
        }
        has
    };
    let bench = Bench::new(Setting::apart(&plan.program, servers)?, None)?;
    let other = Bench::new(Setting::apart(&plan.program, servers)?, None)?;
    for (name, procedure) in PROCEDURES {
        if begins(name) {
            rows.push(bench.row(name.to_owned(), time, &[procedure], Some(&other))?);
        }
    }
    if begins(COMPUTING) {
        rows.push(bench.row(COMPUTING.to_owned(), time, &[], None)?);
    }
    drop((bench, other));
    if begins(SYNCS) {
        let syncing = [
            Procedure::Commit,
            Procedure::SetAttributes,
            Procedure::Write,
            Procedure::Create,
        ];
        let name = format!("{SYNCS} of {:?}", plan.sync);
        rows.push(Bench::syncing(plan.sync, servers)?.row(name, time, &syncing, None)?);
    }
    Ok(Report {
        bench: "fairness",
        machine,
        commit: machine::commit(),
        placement: words(placement.as_ref(), first),
        rows,
    })
}

fn words(placement: Option<&Placement>, first: bool) -> String {
    let client = match first {
        true => "the client runs before other programs",
        false => "the client may wait for other programs: only root may put it first",
    };
    format!("{}; {client}", Placement::words(placement))
}

/// A server, what floods work on, and what we do.
struct Bench {
    setting: Setting,
    targets: Targets,
    ours: FileHandleBytes,
    file: FileHandleBytes,
    /// Syncs take no time just now.
    hurry: Option<Arc<AtomicBool>>,
}

/// What we have seen: LOOKUP, READ and READDIR.
type Seen = [Latencies; 3];

/// A flood while it lasts.
struct Flood<'a> {
    over: &'a AtomicBool,
    answered: &'a AtomicU64,
}

/// What floods were, from the first call until they were over. What was under way then does not count, nor does the time until
/// it was answered.
#[derive(Clone, Copy, Default)]
struct Flooding {
    answered: u64,
    took: Duration,
    /// Processor time of the flooded server.
    used: Duration,
}

impl Flooding {
    fn and(self, other: Self) -> Self {
        Self {
            answered: self.answered + other.answered,
            took: self.took + other.took,
            used: self.used + other.used,
        }
    }

    fn per_second(&self, what: f64) -> f64 {
        what / self.took.as_secs_f64().max(1e-9)
    }
}

/// The time of a slice, if this is left for these rounds, and a round has this many floods, which took `answering` in the round
/// before to answer what was under way when they were over. A round keeps a quarter of its time for slices, however long that is.
fn slice(left: Duration, rounds: u32, floods: u32, answering: Duration) -> Duration {
    let round = left / rounds.max(1);
    let slices = round.saturating_sub(answering).max(round / 4);
    slices * AHEAD / (AHEAD * (1 + floods) + floods)
}

impl Bench {
    fn new(setting: Setting, hurry: Option<Arc<AtomicBool>>) -> Result<Self> {
        let targets = setting.targets()?;
        let mut peer = setting.peer()?;
        let ours = peer.mkdir(setting.root(), "ours")?;
        let file = peer.file(&ours, "file", 4096)?;
        Ok(Self {
            setting,
            targets,
            ours,
            file,
            hurry,
        })
    }

    /// Beside floods each sync takes as long.
    fn syncing(sync: Duration, cpus: Option<&[usize]>) -> Result<Self> {
        let hurry = Arc::new(AtomicBool::new(true));
        let hurries = Arc::clone(&hurry);
        let setting = Setting::here(cpus, move |_| {
            let since = Instant::now();
            while !hurries.load(Ordering::Relaxed) && since.elapsed() < sync {
                std::thread::sleep(Duration::from_millis(1));
            }
        })?;
        Self::new(setting, Some(hurry))
    }

    /// Syncs take their time, or none.
    fn hurry(&self, hurry: bool) {
        if let Some(hurries) = &self.hurry {
            hurries.store(hurry, Ordering::Relaxed);
        }
    }

    /// Quiet, flooded, and with the flood at the other server in turn, for `time` together. Floods are of these procedures, a
    /// connection for each; of none, two threads compute.
    fn row(
        &self,
        flood: String,
        time: Duration,
        of: &[Procedure],
        other: Option<&Self>,
    ) -> Result<Row> {
        let began = Instant::now();
        let mut peer = self.setting.peer()?;
        let [mut quiet, mut flooded, mut elsewhere] = [(); 3].map(|()| Seen::default());
        let [mut here, mut there] = [Flooding::default(); 2];
        let floods = 1 + u32::from(other.is_some());
        let mut answering = Duration::ZERO;
        // Nothing is opened for the first time in what is measured.
        self.call_for(&mut peer, Duration::ZERO, &mut Seen::default())?;
        for round in 0..ROUNDS {
            let left = time.saturating_sub(began.elapsed());
            let slice = slice(left, ROUNDS - round, floods, answering);
            answering = Duration::ZERO;
            self.call_for(&mut peer, slice, &mut quiet)?;
            let mut beside = |flooded: &Self, seen: &mut Seen| {
                let since = Instant::now();
                let flooding =
                    flooded.flooded(of, slice / AHEAD, || self.call_for(&mut peer, slice, seen))?;
                answering += since.elapsed().saturating_sub(flooding.took);
                Ok::<_, anyhow::Error>(flooding)
            };
            here = here.and(beside(self, &mut flooded)?);
            if let Some(other) = other {
                there = there.and(beside(other, &mut elsewhere)?);
            }
        }
        let pair = |at: usize| {
            let p99 = |seen: &Seen| seen[at].at(0.99).max(1);
            let (quiet, flooded) = (p99(&quiet), p99(&flooded));
            let elsewhere = other.map(|_| p99(&elsewhere));
            Pair {
                quiet_p99_ns: quiet,
                flooded_p99_ns: flooded,
                elsewhere_p99_ns: elsewhere,
                ratio: flooded as f64 / quiet as f64,
                server_ratio: elsewhere.map(|elsewhere| flooded as f64 / elsewhere as f64),
            }
        };
        let rate = |flooding: Flooding| flooding.per_second(flooding.answered as f64);
        Ok(Row {
            flood,
            flooded: rate(here),
            elsewhere: other.map(|_| rate(there)),
            server_processors: other.map(|_| here.per_second(here.used.as_secs_f64())),
            lookup: pair(0),
            read: pair(1),
            readdir: pair(2),
        })
    }

    /// Runs `ours` while this server is flooded, for `ahead` already, and returns when the last call of the floods is answered.
    fn flooded(
        &self,
        of: &[Procedure],
        ahead: Duration,
        ours: impl FnOnce() -> Result<()>,
    ) -> Result<Flooding> {
        let (over, answered) = (AtomicBool::new(false), AtomicU64::new(0));
        let flood = &Flood {
            over: &over,
            answered: &answered,
        };
        self.hurry(false);
        std::thread::scope(|scope| {
            let (since, before) = (Instant::now(), self.setting.processor_time());
            let mut floods = Vec::new();
            for of in of {
                floods.push(named(scope, "flood", || self.flood(*of, flood))?);
            }
            if of.is_empty() {
                for place in [Computing::BesideServer, Computing::BesideClient] {
                    floods.push(named(scope, "compute", move || flood.compute(place))?);
                }
            }
            std::thread::sleep(ahead);
            let ours = ours();
            let flooding = Flooding {
                answered: answered.load(Ordering::Relaxed),
                took: since.elapsed(),
                used: self.setting.processor_time().saturating_sub(before),
            };
            over.store(true, Ordering::Relaxed);
            self.hurry(true);
            for flood in floods {
                flood.join().expect("a flood does not panic")?;
            }
            ours?;
            Ok(flooding)
        })
    }

    /// Our calls, one after the other, once at least.
    fn call_for(&self, peer: &mut Peer, time: Duration, seen: &mut Seen) -> Result<()> {
        let name = place(&self.ours, "file");
        let read = ReadArgs {
            file: FileHandle(&self.file),
            offset: 0,
            count: 4096,
        };
        let list = ReadDirArgs {
            directory: FileHandle(&self.ours),
            cookie: 0,
            verifier: [0; 8],
            count: 4096,
        };
        let calls: [(Procedure, &Arguments<'_>); 3] = [
            (Procedure::Lookup, &|w| name.encode(w)),
            (Procedure::Read, &|w| read.encode(w)),
            (Procedure::ReadDir, &|w| list.encode(w)),
        ];
        let began = Instant::now();
        loop {
            for ((procedure, arguments), seen) in calls.iter().zip(&mut *seen) {
                let start = Instant::now();
                peer.send(*procedure, arguments)?;
                let results = peer.receive()?;
                seen.record(clock::nanos(start, Instant::now()));
                ensure!(results.starts_with(&[0; 4]), "{procedure:?} was refused");
            }
            if began.elapsed() >= time {
                return Ok(());
            }
        }
    }

    /// Calls of one procedure until it is over, many under way; then until all are answered.
    fn flood(&self, of: Procedure, flood: &Flood<'_>) -> Result<()> {
        // On a network its client would be another machine, and take no time from anybody here.
        cpu::only_when_idle().context("cannot lower a thread's priority")?;
        let mut peer = self.setting.peer()?;
        let send = |peer: &mut Peer, number| {
            let (procedure, arguments) = self.targets.call(of, number);
            peer.send(procedure, &*arguments)
        };
        for number in 0..DEPTH {
            send(&mut peer, number)?;
        }
        let mut sent = DEPTH;
        for received in 0.. {
            if received == sent {
                return Ok(());
            }
            peer.receive()?;
            if !flood.over.load(Ordering::Relaxed) {
                flood.answered.fetch_add(1, Ordering::Relaxed);
                send(&mut peer, sent)?;
                sent += 1;
            }
        }
        Ok(())
    }
}

/// Where a thread computes.
#[derive(Clone, Copy)]
enum Computing {
    /// On the server's processor, as another program there would.
    BesideServer,
    /// On the clients' processor, whenever it is idle: as a flood's client does.
    BesideClient,
}

impl Flood<'_> {
    fn compute(&self, place: Computing) -> Result<()> {
        match place {
            Computing::BesideServer => {
                let placement = Placement::at_start();
                placement.map_or(Ok(()), |placement| cpu::bind(&placement.server))?;
            }
            Computing::BesideClient => cpu::only_when_idle()?,
        }
        let mut sum = 0_u64;
        while !self.over.load(Ordering::Relaxed) {
            sum = std::hint::black_box(sum.wrapping_add(1));
        }
        Ok(())
    }
}

/// A thread with a name, for whoever looks from outside.
fn named<'scope>(
    scope: &'scope Scope<'scope, '_>,
    name: &str,
    run: impl FnOnce() -> Result<()> + Send + 'scope,
) -> Result<ScopedJoinHandle<'scope, Result<()>>> {
    Ok(Builder::new()
        .name(name.to_owned())
        .spawn_scoped(scope, run)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_under_way_at_the_end_is_answered_within_the_time_of_a_row() {
        let ms = Duration::from_millis;
        // A quiet slice, two beside floods, and twice a tenth ahead of them.
        assert_eq!(slice(ms(1280), 4, 2, Duration::ZERO), ms(100));
        assert_eq!(slice(ms(840), 4, 1, Duration::ZERO), ms(100));
        // What the last round took beyond its slices, this one takes too.
        assert_eq!(slice(ms(960 + 900), 3, 2, ms(300)), ms(100));
        // But slices do not vanish.
        assert_eq!(slice(ms(1280), 1, 2, ms(5000)), ms(100));
        assert_eq!(slice(Duration::ZERO, 1, 2, ms(5000)), Duration::ZERO);
    }

    #[test]
    fn calls_that_were_under_way_at_the_end_count_neither_as_answered_nor_as_time() -> Result<()> {
        // Every sync takes until the flood is over.
        let bench = Bench::syncing(Duration::from_secs(60), None)?;
        let flooding = bench.flooded(&[Procedure::Commit], Duration::ZERO, || {
            std::thread::sleep(Duration::from_millis(50));
            Ok(())
        })?;
        assert_eq!(flooding.answered, 0);
        Ok(())
    }
}
