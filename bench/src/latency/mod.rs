//! `odafs bench latency`: random reads by every route, beside what the machine
//! itself can do (paper 004 section VI-B).
//!
//! Rows are measured in rounds. Each round measures each row once, in turn. A ratio compares the two sides of one
//! round, and the median of the rounds is printed. Each row and round has a new client, so that no engine polls
//! connections that are not measured.

mod measure;
mod plan;
mod ratios;
mod setting;

use anyhow::Result;
use serde::Serialize;

pub use measure::Round;
pub use plan::{Filter, Plan, Spec, WAITS};
pub use ratios::Ratio;
pub use setting::Setting;

use crate::histogram::median;

/// What `odafs bench latency --json` prints.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    /// The machine that it ran on.
    pub machine: crate::machine::Machine,
    /// The commit that the program was built from.
    pub commit: &'static str,
    /// Where client and server ran, as a sentence.
    pub placement: String,
    /// What reading the clock costs; subtracted from every latency.
    pub clock_ns: u64,
    /// The file of a server that ran already; none: ours.
    pub url: Option<String>,
    /// Bytes of the file.
    pub file_bytes: u64,
    /// How often each row was measured.
    pub rounds: u32,
    /// The rows.
    pub rows: Vec<Row>,
    /// Rows against each other.
    pub ratios: Vec<Ratio>,
    /// Rows that this machine could not measure, and ratios whose rows are of different page sizes, in words.
    pub left_out: Vec<String>,
}

/// One row: the medians of its rounds.
#[derive(Clone, Debug, Serialize)]
pub struct Row {
    /// What was measured.
    #[serde(flatten)]
    pub spec: Spec,
    /// Page size behind the memory that was read, in bytes; none if it is not known.
    pub backing_bytes: Option<u64>,
    /// Reads in all rounds together.
    pub reads: u64,
    /// Latency that half of the reads did not exceed.
    pub p50_ns: u64,
    /// The lowest of the rounds' medians.
    pub p50_lowest_ns: u64,
    /// The highest of the rounds' medians.
    pub p50_highest_ns: u64,
    /// Latency that 99 % of the reads did not exceed.
    pub p99_ns: u64,
    /// Latency that 99.9 % of the reads did not exceed.
    pub p999_ns: u64,
    /// Time per read, over all reads in flight together.
    pub per_read_ns: u64,
    /// CPU time of the client, per read.
    pub client_cpu_ns_per_read: u64,
    /// CPU time of the server, per read; none if it is not known.
    pub server_cpu_ns_per_read: Option<u64>,
    /// Reads that took another route than the row's.
    pub other_route: u64,
    /// The rounds' medians, for ratios.
    #[serde(skip)]
    rounds: Vec<Round>,
}

/// Measures. `tick` hears what is measured next.
///
/// # Errors
/// A file could not be made, a server not started or not reached, a read failed.
pub fn run(plan: &Plan, mut tick: impl FnMut(&str)) -> Result<Report> {
    let specs = plan.specs();
    // Looked at before anything is bound: afterwards there seems to be one processor.
    let machine = match &plan.url {
        Some(_) => crate::machine::Machine::here().unwatched(),
        None => crate::machine::Machine::here(),
    };
    let mut setting = Setting::new(plan, &specs, &mut tick)?;
    let mut rounds: Vec<Vec<Round>> = vec![Vec::new(); specs.len()];
    for number in 0..plan.rounds {
        for (spec, rounds) in specs.iter().zip(&mut rounds) {
            tick(&format!("round {}: {}", number + 1, spec.label()));
            if let Some(round) = measure::measure(spec, &mut setting)? {
                rounds.push(round);
            }
        }
    }
    let (measured, others): (Vec<_>, Vec<_>) = specs
        .into_iter()
        .zip(rounds)
        .partition(|(_, rounds)| !rounds.is_empty());
    let rows: Vec<Row> = measured
        .into_iter()
        .map(|(spec, rounds)| row(spec, rounds))
        .collect();
    let mut left_out: Vec<String> = others
        .iter()
        .map(|(spec, _)| format!("{}: no memory of such pages", spec.label()))
        .collect();
    let (ratios, without_pair) = ratios::of(&rows);
    left_out.extend(without_pair);
    Ok(Report {
        machine,
        commit: crate::machine::commit(),
        placement: setting.placement(),
        clock_ns: setting.clock_ns(),
        url: plan.url.as_ref().map(ToString::to_string),
        file_bytes: setting.file_bytes(),
        rounds: plan.rounds,
        ratios,
        left_out,
        rows,
    })
}

fn row(spec: Spec, rounds: Vec<Round>) -> Row {
    let middle = |value: fn(&Round) -> u64| median(rounds.iter().map(value));
    let known = rounds.iter().all(|r| r.server_cpu_ns_per_read.is_some());
    Row {
        backing_bytes: rounds[0].backing_bytes,
        reads: rounds.iter().map(|r| r.reads).sum(),
        p50_ns: middle(|r| r.p50_ns),
        p50_lowest_ns: rounds.iter().map(|r| r.p50_ns).min().unwrap_or(0),
        p50_highest_ns: rounds.iter().map(|r| r.p50_ns).max().unwrap_or(0),
        p99_ns: middle(|r| r.p99_ns),
        p999_ns: middle(|r| r.p999_ns),
        per_read_ns: middle(|r| r.per_read_ns),
        client_cpu_ns_per_read: middle(|r| r.client_cpu_ns_per_read),
        server_cpu_ns_per_read: known.then(|| middle(|r| r.server_cpu_ns_per_read.unwrap_or(0))),
        other_route: rounds.iter().map(|r| r.other_route).sum(),
        spec,
        rounds,
    }
}
