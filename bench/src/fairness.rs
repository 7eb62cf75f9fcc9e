//! `odafs bench fairness`: what a client is left with while another floods the server, and while other files are synced.

mod flood;
mod peer;
mod setting;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use odafs_common::wire::nfs3::{FileHandle, Procedure, ReadArgs, ReadDirArgs};
use odafs_common::wire::xdr::Encode as _;
use serde::Serialize;

use self::flood::{PROCEDURES, Targets};
use self::peer::{Arguments, Handle, Peer, place};
use self::setting::Setting;
use crate::clock;
use crate::histogram::Latencies;
use crate::machine::{self, Machine};

/// What is measured.
#[derive(Clone, Copy, Debug)]
pub struct Plan {
    /// For the rows, in all.
    pub time: Duration,
    /// What a sync takes in the last row.
    pub sync: Duration,
}

/// The figures.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    /// Always `fairness`.
    pub bench: &'static str,
    /// Where.
    pub machine: Machine,
    /// Of the sources.
    pub commit: &'static str,
    /// A row for each flood.
    pub rows: Vec<Row>,
}

/// One flood.
#[derive(Clone, Debug, Serialize)]
pub struct Row {
    /// What the other client does.
    pub flood: String,
    /// Calls of it that were answered.
    pub flooded: u64,
    /// LOOKUP of a name whose object is in memory.
    pub lookup: Pair,
    /// READ of 4 KiB that are in memory.
    pub read: Pair,
    /// READDIR of a small directory, which a worker serves.
    pub readdir: Pair,
}

/// One procedure of ours, without the flood and beside it.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Pair {
    /// 99th percentile, ns.
    pub quiet_p99_ns: u64,
    /// 99th percentile, ns.
    pub flooded_p99_ns: u64,
    /// The latter by the former.
    pub ratio: f64,
}

/// Calls of a flood under way.
const DEPTH: u64 = 32;
/// Slices of a row: quiet and flooded in turn.
const SLICES: u32 = 4;

/// Rows of a run.
pub fn rows() -> usize {
    PROCEDURES.len() + 1
}

/// Measures; `tick` is told each row.
///
/// # Errors
/// No server could be started, or it refused a call.
pub fn run(plan: &Plan, mut tick: impl FnMut(&str)) -> Result<Report> {
    let machine = Machine::here();
    let slice = plan.time / (rows() as u32 * SLICES);
    let mut rows = Vec::new();
    let bench = Bench::new(Duration::ZERO)?;
    for procedure in PROCEDURES {
        let name = format!("{procedure:?}");
        tick(&format!("round 1: {name}"));
        rows.push(bench.row(name, slice, &[procedure])?);
    }
    drop(bench);
    let name = format!("syncs of {:?}", plan.sync);
    tick(&format!("round 1: {name}"));
    let syncing = [
        Procedure::Commit,
        Procedure::SetAttributes,
        Procedure::Write,
        Procedure::Create,
    ];
    rows.push(Bench::new(plan.sync)?.row(name, slice, &syncing)?);
    Ok(Report {
        bench: "fairness",
        machine,
        commit: machine::commit(),
        rows,
    })
}

/// A server, what floods work on, and what we do.
struct Bench {
    setting: Setting,
    targets: Targets,
    ours: Handle,
    file: Handle,
    /// Syncs take no time just now.
    hurry: Arc<AtomicBool>,
}

/// What we have seen: LOOKUP, READ and READDIR.
type Seen = [Latencies; 3];

impl Bench {
    /// Beside floods each sync takes as long.
    fn new(sync: Duration) -> Result<Self> {
        let hurry = Arc::new(AtomicBool::new(true));
        let hurries = Arc::clone(&hurry);
        let setting = Setting::new(move |_| {
            let since = Instant::now();
            while !hurries.load(Ordering::Relaxed) && since.elapsed() < sync {
                std::thread::sleep(Duration::from_millis(1));
            }
        })?;
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

    /// Quiet and flooded in turn, by floods of these procedures, a connection for each.
    fn row(&self, flood: String, slice: Duration, of: &[Procedure]) -> Result<Row> {
        let mut peer = self.setting.peer()?;
        let (mut quiet, mut flooded) = (Seen::default(), Seen::default());
        let answered = AtomicU64::new(0);
        // Nothing is opened for the first time in what is measured.
        self.call_for(&mut peer, Duration::ZERO, &mut Seen::default())?;
        for number in 0..SLICES {
            if number % 2 == 0 {
                self.call_for(&mut peer, slice, &mut quiet)?;
                continue;
            }
            let over = AtomicBool::new(false);
            self.hurry.store(false, Ordering::Relaxed);
            std::thread::scope(|scope| {
                let floods: Vec<_> = of
                    .iter()
                    .map(|of| scope.spawn(|| self.flood(*of, &over, &answered)))
                    .collect();
                // They have begun.
                std::thread::sleep(slice / 10);
                let ours = self.call_for(&mut peer, slice, &mut flooded);
                over.store(true, Ordering::Relaxed);
                self.hurry.store(true, Ordering::Relaxed);
                for flood in floods {
                    flood.join().expect("a flood does not panic")?;
                }
                ours
            })?;
        }
        let pair = |at: usize| {
            let [quiet, flooded] = [&quiet[at], &flooded[at]].map(|seen| seen.at(0.99).max(1));
            Pair {
                quiet_p99_ns: quiet,
                flooded_p99_ns: flooded,
                ratio: flooded as f64 / quiet as f64,
            }
        };
        Ok(Row {
            flood,
            flooded: answered.into_inner(),
            lookup: pair(0),
            read: pair(1),
            readdir: pair(2),
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
    fn flood(&self, of: Procedure, over: &AtomicBool, answered: &AtomicU64) -> Result<()> {
        // Elsewhere its client would be another machine.
        let _ = rustix::process::setpriority_process(None, 19);
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
            if !over.load(Ordering::Relaxed) {
                answered.fetch_add(1, Ordering::Relaxed);
                send(&mut peer, sent)?;
                sent += 1;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_flood_has_a_row() {
        let plan = Plan {
            time: Duration::from_secs(1),
            sync: Duration::from_millis(50),
        };
        let mut told = 0;
        let report = run(&plan, |_| told += 1).expect("measured");
        assert_eq!((report.rows.len(), told), (rows(), rows()));
        for row in &report.rows {
            for pair in [row.lookup, row.read, row.readdir] {
                assert!(pair.quiet_p99_ns > 0 && pair.flooded_p99_ns > 0, "{row:?}");
            }
        }
    }
}
