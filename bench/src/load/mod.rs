//! `odafs bench load`: what reads cost while other processes use the server's processor.
//!
//! The server is bound to one processor, the client to another. Processes that only compute take a share of the
//! server's. Each round has every load once, and at each load every route has a slice of time. The clients were
//! connected before, so a route's ratio to its own idle slice compares slices of one round. Percentiles are of all
//! reads of a slice; a row is the median of its rounds.

mod burn;
mod plan;
mod reader;
mod row;

use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::Result;
use serde::Serialize;

pub use burn::run as burn;
pub use plan::{Path, Plan};
pub use row::{Row, Slice};

use crate::floors::local::LocalFile;
use crate::machine::{Machine, commit};
use crate::served::{Served, ServedPlan};
use crate::spread::Spread;
use burn::Others;
use reader::Reader;

/// What `odafs bench load --json` prints.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    /// The machine that it ran on.
    pub machine: Machine,
    /// The commit that the program was built from.
    pub commit: &'static str,
    /// The name of the bench.
    pub bench: &'static str,
    /// Where client, server and the others ran, in words.
    pub placement: String,
    /// Bytes of the file.
    pub file_bytes: u64,
    /// Bytes of a read.
    pub size_bytes: u64,
    /// How often each row was measured, and for how long.
    pub rounds: u32,
    /// In nanoseconds.
    pub slice_ns: u64,
    /// What reading the clock costs, which is subtracted from each time, in nanoseconds.
    pub clock_ns: u64,
    /// A row for each route at each load.
    #[serde(serialize_with = "crate::spread::flat")]
    pub rows: Vec<Row>,
    /// The 99th percentile of one-sided reads over shared memory at the highest load, divided by that of the idle
    /// server.
    pub one_sided_p99_to_idle: Option<Spread>,
}

/// Measures. `tick` hears of each load of each round before it begins, with `round` first.
///
/// # Errors
/// The server could not be started or reached, or a read failed.
pub fn run(plan: &Plan, program: PathBuf, mut tick: impl FnMut(&str)) -> Result<Report> {
    let machine = Machine::here();
    tick("starting and filling a server");
    let file_bytes = plan.file_mib << 20;
    let served = Served::start(&ServedPlan {
        program: program.clone(),
        file_bytes,
        cache_bytes: file_bytes * 2,
        direct: "one-sided",
        apart: true,
    })?;
    served.fill()?;
    let local = LocalFile::open(&served.path(), true)?;
    let others = Others::start(&program, plan.others, served.server_cpus())?;
    let paths = plan.paths()?;
    let mut readers = Vec::new();
    for &path in &paths {
        readers.push(Reader::new(path, &served, &local, plan.size)?);
    }
    let slice = Duration::from_millis(plan.slice_ms);
    let clock_ns = crate::clock::overhead_ns();
    let mut slices: Vec<Vec<Vec<Slice>>> = vec![vec![Vec::new(); plan.loads.len()]; paths.len()];
    for round in 1..=plan.rounds {
        for (at, &load) in plan.loads.iter().enumerate() {
            tick(&format!("round {round}: others take {load} %"));
            others.take(load)?;
            std::thread::sleep(Duration::from_millis(plan.settle_ms));
            for (reader, slices) in readers.iter_mut().zip(&mut slices) {
                let (begin, before) = (Instant::now(), others.cpu_ns());
                let mut done = reader.slice(slice, clock_ns, || served.process().cpu_ns())?;
                let took = others.cpu_ns().saturating_sub(before) as f64;
                done.held_percent = took * 100.0 / begin.elapsed().as_nanos() as f64;
                slices[at].push(done);
            }
        }
    }
    others.take(0)?;
    let idle = plan.loads.iter().position(|load| *load == 0);
    let mut rows = Vec::new();
    for (path, slices) in paths.iter().zip(&slices) {
        for (load, of_load) in plan.loads.iter().zip(slices) {
            rows.push(Row::of(
                *path,
                *load,
                of_load,
                idle.map(|at| &slices[at][..]),
            ));
        }
    }
    let highest = plan.loads.iter().max().copied();
    let one_sided = rows.iter().find(|row| {
        (row.fabric, row.route) == ("shm", "one-sided") && Some(row.load_percent) == highest
    });
    Ok(Report {
        machine,
        commit: commit(),
        bench: "load",
        placement: match served.server_cpus() {
            Some(_) => format!("{}, the others too", served.placement()),
            None => served.placement(),
        },
        file_bytes,
        size_bytes: plan.size as u64,
        rounds: plan.rounds,
        slice_ns: slice.as_nanos() as u64,
        clock_ns,
        one_sided_p99_to_idle: one_sided.and_then(|row| row.p99_to_idle),
        rows,
    })
}
