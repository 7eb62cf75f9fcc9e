//! `odafs bench soak`: many clients of every kind read and write for a long time, checks every byte that they read,
//! and records what both processes use, so that a leak or a slow-down shows.
//!
//! Every page names the write that it comes from (as in `odafs bench mixed`). A reader that keeps no pages may see
//! nothing older than what was acknowledged before its read began. One that keeps pages may see nothing older than what
//! was acknowledged when it opened the file.

mod files;
mod plan;
mod reader;
mod row;
mod run;
mod writer;

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::PathBuf;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};
use odafs::Options;
use serde::Serialize;

pub use plan::{Kind, Plan};
pub use row::{Growth, Row};

use crate::machine::{Machine, commit};
use crate::process::{Fabric, ServerPlan, ServerProcess};
use crate::scratch::Scratch;
use crate::served::Way;
use files::Files;
use reader::{Reader, visit};
use run::Run;
use writer::Writer;

/// What `odafs bench soak --json` prints.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    /// The machine that it ran on.
    pub machine: Machine,
    /// The commit that the program was built from.
    pub commit: &'static str,
    /// The name of the bench.
    pub bench: &'static str,
    /// How long it ran, in seconds.
    pub seconds: f64,
    /// Number of files.
    pub files: usize,
    /// Maximum size of a file in bytes.
    pub file_bytes: u64,
    /// The server's page cache, in bytes.
    pub cache_bytes: u64,
    /// Number of clients that read all the time.
    pub readers: usize,
    /// Number of clients that write all the time.
    pub writers: usize,
    /// Number of threads whose clients connect, read and disconnect.
    pub visitors: usize,
    /// Number of reads, each of which was checked.
    pub checked: u64,
    /// Bytes that the reads returned.
    pub checked_bytes: u64,
    /// Number of writes.
    pub writes: u64,
    /// Number of syncs, and of files truncated, removed and created.
    pub changes: u64,
    /// Number of clients that connected, read and disconnected.
    pub visits: u64,
    /// Number of reads and opens that returned wrong data.
    pub wrong: u64,
    /// Number of operations that failed without a reason.
    pub failed: u64,
    /// The first of the wrong results and failures, as sentences.
    pub faults: Vec<String>,
    /// How each figure of the rows grew.
    pub growth: Vec<Growth>,
    /// A row for each interval.
    pub rows: Vec<Row>,
}

/// Runs for this long. `tick` hears of each interval before it begins, with `round` first.
///
/// # Errors
/// The server could not be started or reached, or it ended. A read that returns wrong data is counted, and so is an
/// operation that fails.
pub fn run(
    plan: &Plan,
    time: Duration,
    program: PathBuf,
    tick: impl FnMut(&str),
) -> Result<Report> {
    let machine = Machine::here();
    let file_bytes = (plan.file_kib << 10) as u64;
    let cache_bytes = plan.cache_mib << 20;
    let directory = Scratch::for_bytes(plan.files as u64 * file_bytes);
    let directory = directory.context("cannot make a directory")?;
    // If root runs the server, callers over TCP act as nobody.
    fs::set_permissions(directory.path(), fs::Permissions::from_mode(0o777))?;
    let server = ServerProcess::start(&ServerPlan {
        program,
        directory: directory.path().to_owned(),
        read_only: false,
        cache_bytes,
        fabrics: vec![Fabric::Shm, Fabric::Iwarp],
        direct: Some("one-sided"),
        spin: None,
        nfs: true,
        cpus: None,
        arguments: Vec::new(),
    })?;
    let urls = [
        (Way::Shm, server.url(Fabric::Shm)?),
        (Way::Iwarp, server.url(Fabric::Iwarp)?),
        (Way::NfsTcp, server.nfs_url(b"/")?),
    ];
    let kinds = plan.kinds()?;
    let files = Files::new(plan.files, plan.pages());
    let run = Run::new(files, urls, kinds.len() + plan.visitors);
    let (rows, seconds) = work(&run, plan, &kinds, &server, time, tick)?;
    let counts = &run.counts;
    Ok(Report {
        machine,
        commit: commit(),
        bench: "soak",
        seconds,
        files: plan.files,
        file_bytes,
        cache_bytes,
        readers: kinds.len(),
        writers: plan.writers.len(),
        visitors: plan.visitors,
        checked: counts.reads.load(Relaxed),
        checked_bytes: counts.read_bytes.load(Relaxed),
        writes: counts.writes.load(Relaxed),
        changes: counts.changes.load(Relaxed),
        visits: counts.visits.load(Relaxed),
        wrong: counts.wrong.load(Relaxed),
        failed: counts.failed.load(Relaxed),
        faults: run.told(),
        growth: Growth::of_all(&rows),
        rows,
    })
}

/// Lets all clients work and samples the server. Returns the rows, and how long it took.
fn work(
    run: &Run,
    plan: &Plan,
    kinds: &[Kind],
    server: &ServerProcess,
    time: Duration,
    tick: impl FnMut(&str),
) -> Result<(Vec<Row>, f64)> {
    let ways = plan.ways()?;
    let mut writers = Vec::new();
    for (number, way) in ways.iter().enumerate() {
        let client = run.connect(*way, Options::default())?;
        let place = (number, ways.len());
        writers.push(Writer::new(run, way.name(), client, place));
    }
    let mut readers = Vec::new();
    for (slot, kind) in kinds.iter().enumerate() {
        let client = run.connect(kind.way, kind.options())?;
        readers.push(Reader::new(run, *kind, client, slot, slot as u64));
    }
    let begin = Instant::now();
    std::thread::scope(|scope| {
        let mut threads = Vec::new();
        for writer in writers {
            threads.push(scope.spawn(move || writer.until_the_end()));
        }
        for reader in readers {
            threads.push(scope.spawn(move || reader.until_the_end()));
        }
        for visitor in 0..plan.visitors {
            let slot = kinds.len() + visitor;
            threads.push(scope.spawn(move || visit(run, kinds, slot)));
        }
        let rows = watch(run, server, plan.sample(time), (begin, time), tick);
        run.stop.store(true, Relaxed);
        // All of them end before the first error is told.
        let ended: Vec<_> = threads.into_iter().map(|thread| thread.join()).collect();
        if ended.iter().any(|ended| ended.is_err()) {
            bail!("a client's thread panicked");
        }
        Ok((rows?, begin.elapsed().as_secs_f64()))
    })
}

/// A row for each interval.
fn watch(
    run: &Run,
    server: &ServerProcess,
    every: Duration,
    (begin, time): (Instant, Duration),
    mut tick: impl FnMut(&str),
) -> Result<Vec<Row>> {
    let mut rows = Vec::new();
    let mut reads = 0;
    let mut last = begin;
    while begin.elapsed() < time {
        let faults = run.counts.wrong.load(Relaxed) + run.counts.failed.load(Relaxed);
        tick(&format!("round {}: {faults} faults", rows.len() + 1));
        std::thread::sleep(every.min(time.saturating_sub(begin.elapsed())));
        let (now, all) = (Instant::now(), run.counts.reads.load(Relaxed));
        let mut row = Row {
            seconds: (now - begin).as_secs_f64(),
            reads_per_second: (all - reads) as f64 / (now - last).as_secs_f64(),
            read_p99_ns: run.take_latencies().at(0.99),
            ..Row::default()
        };
        row.look(Some(server.id()))
            .context("the server has ended")?;
        rows.push(row);
        (reads, last) = (all, now);
    }
    Ok(rows)
}
