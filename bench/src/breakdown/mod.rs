//! `odafs bench breakdown`: the terms that a read's time is made of, each
//! alone (paper 004, Table II).
//!
//! Terms within one process are timed in batches, because a single one is shorter than the resolution of the clock. The
//! figure is the mean of a batch, and the median over the batches. Terms between client and server are timed one by
//! one.

mod inside;
mod outside;

use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::Result;
use serde::Serialize;

use crate::machine::Machine;
use crate::spread::{self, Spread};

/// What to measure, and for how long.
#[derive(Clone, Debug)]
pub struct Plan {
    /// The program `odafs`, for servers in processes of their own.
    pub program: PathBuf,
    /// Bytes of memory that the terms work over at random.
    pub set_bytes: u64,
    /// Time for a term in a round.
    pub time: Duration,
    /// How often every term is measured.
    pub rounds: u32,
}

/// One term.
#[derive(Clone, Debug, Serialize)]
pub struct Row {
    /// The paper's name for it.
    pub term: &'static str,
    /// What was done.
    pub what: String,
    /// How a waiting side waits; empty where none does.
    pub wait: &'static str,
    /// Bytes that it was done to or for.
    pub size_bytes: usize,
    /// How often it was done, in all rounds together.
    pub times: u64,
    /// Nanoseconds for one: the median of the rounds.
    pub ns: f64,
    /// The lowest round.
    pub lowest_ns: f64,
    /// The highest round.
    pub highest_ns: f64,
}

/// What `odafs bench breakdown --json` prints.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    /// The machine that it ran on.
    pub machine: Machine,
    /// The commit that the program was built from.
    pub commit: &'static str,
    /// `breakdown`.
    pub bench: &'static str,
    /// Bytes of memory worked over at random.
    pub set_bytes: u64,
    /// Page size behind that memory.
    pub backing_bytes: u64,
    /// The terms.
    pub rows: Vec<Row>,
}

/// Something to time.
struct Term<'a> {
    name: &'static str,
    what: String,
    wait: &'static str,
    size: usize,
    /// Does it for about so long; how often, and nanoseconds for one.
    measure: Box<dyn FnMut(Duration) -> Result<(u64, f64)> + 'a>,
}

/// Measures. `tick` hears what is measured next.
///
/// # Errors
/// There is not enough memory, or a server cannot be started or reached.
pub fn run(plan: &Plan, mut tick: impl FnMut(&str)) -> Result<Report> {
    let machine = Machine::here();
    tick("preparing");
    let placement = crate::cpu::Placement::apart();
    if let Some(placement) = &placement {
        crate::cpu::bind(&placement.client)?;
    }
    let inside = inside::Inside::new(plan.set_bytes)?;
    let outside = outside::Outside::new(plan, placement.as_ref())?;
    let mut terms = inside.terms();
    terms.extend(outside.terms());
    let mut rounds: Vec<Vec<(u64, f64)>> = vec![Vec::new(); terms.len()];
    for number in 0..plan.rounds {
        for (term, rounds) in terms.iter_mut().zip(&mut rounds) {
            tick(&format!(
                "round {}: {} {}",
                number + 1,
                term.name,
                term.what
            ));
            rounds.push((term.measure)(plan.time)?);
        }
    }
    let rows = terms
        .iter()
        .zip(rounds)
        .map(|(term, rounds)| row(term, rounds))
        .collect();
    Ok(Report {
        machine,
        commit: crate::machine::commit(),
        bench: "breakdown",
        set_bytes: plan.set_bytes,
        backing_bytes: inside.backing_bytes(),
        rows,
    })
}

fn row(term: &Term<'_>, rounds: Vec<(u64, f64)>) -> Row {
    let each = Spread::exact(rounds.iter().map(|(_, ns)| *ns)).unwrap_or_default();
    Row {
        term: term.name,
        what: term.what.clone(),
        wait: term.wait,
        size_bytes: term.size,
        times: rounds.iter().map(|(times, _)| times).sum(),
        ns: each.median,
        lowest_ns: each.lowest,
        highest_ns: each.highest,
    }
}

/// Times `act` on batches of what `prepare` makes: how often, and the median
/// over the batches of the mean of a batch.
fn batches<T>(
    time: Duration,
    mut prepare: impl FnMut() -> Vec<T>,
    mut act: impl FnMut(T),
) -> (u64, f64) {
    let mut means = Vec::new();
    let mut times = 0;
    let begin = Instant::now();
    while begin.elapsed() < time || means.is_empty() {
        let batch = prepare();
        let length = batch.len().max(1);
        let start = Instant::now();
        batch.into_iter().for_each(&mut act);
        means.push(start.elapsed().as_nanos() as f64 / length as f64);
        times += length as u64;
    }
    (times, spread::median(&mut means).unwrap_or(0.0))
}
