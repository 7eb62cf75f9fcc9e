//! `odafs bench policy`: compares a client with default options with the best fixed options.
//!
//! A case is a server, a pattern of reads and a working set. In each case, every configuration (a route, with and
//! without pages kept) gets a new client in this process. Each client makes its first reads and touches the working set
//! once. Then all take turns in short slices, so that other load of the machine affects all alike. The first slices let
//! caches fill and policies learn, and are reported separately together with the reads before them. A mean is the
//! median of the other slices' means; a ratio is the median of those of the rounds. Clients use the public crate;
//! servers are `odafs serve` in their own processes.

mod crowd;
pub mod load;
mod pattern;
mod plan;
mod player;
mod row;
mod setting;

use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::{Result, bail};
use serde::Serialize;

pub use plan::{Case, Filter, Plan, Shift, word};
pub use player::Routes;
pub use row::{Row, Worst};

use crate::machine::{Machine, commit};
use crowd::Crowd;
use pattern::Offsets;
use player::{Config, Player};
use setting::Setting;

/// What `odafs bench policy --json` prints.
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
    /// What reading the clock costs, which is subtracted from each time, in nanoseconds.
    pub clock_ns: u64,
    /// Bytes of the file.
    pub file_bytes: u64,
    /// How many slices each configuration had, and how long one was.
    pub rounds: u32,
    /// In nanoseconds.
    pub slice_ns: u64,
    /// A row for each configuration of each case.
    pub rows: Vec<Row>,
    /// Cases that could not be measured, and why.
    pub skipped: Vec<String>,
    /// The choice of a route: the worst ratio of `policy` to the best route without pages kept.
    pub choosing: Option<Worst>,
    /// The same for cases in which other clients are there for a while.
    pub shifting: Option<Worst>,
    /// The time to spin: the worst ratio of `default` to the best fixed spin.
    pub waiting: Option<Worst>,
    /// Without any options: the worst ratio of the median of `default` to that of a copy out of a mapped file.
    pub mapped: Option<Worst>,
    /// The worst ratio of `default` to the best fixed configuration, from the first read on.
    pub first: Option<Worst>,
    /// The same when caches are full and policies have learned.
    pub worst: Option<Worst>,
}

/// The times of the parts of a run.
#[derive(Clone, Copy, Debug)]
struct Times {
    rounds: u32,
    slice: Duration,
    warm_up: Duration,
    /// Number of slices before those that count.
    settling: u32,
    cold_reads: u64,
}

impl Times {
    /// Those of the plan, or what fits a case's share of `seconds`.
    fn of(plan: &Plan, seconds: Option<Duration>, cases: usize) -> Self {
        /// Maximum number of configurations of a case.
        const CONFIGS: u32 = 9;
        /// The clock would distort shorter slices.
        const LEAST: Duration = Duration::from_millis(2);
        let planned = Self {
            rounds: plan.rounds,
            slice: Duration::from_millis(plan.slice_ms),
            warm_up: Duration::from_millis(plan.warm_up_ms),
            settling: plan.settle_ms.div_ceil(plan.slice_ms) as u32,
            cold_reads: plan.cold_reads,
        };
        let Some(seconds) = seconds else {
            return planned;
        };
        // A tenth goes to connections.
        let share = seconds * 9 / 10 / cases.max(1) as u32 / CONFIGS;
        let warm_up = (share / 2).min(planned.warm_up);
        let slices = share.saturating_sub(warm_up);
        let fit = (slices.as_nanos() / LEAST.as_nanos()) as u32;
        // Half of the time for what counts, if there is too little.
        let rounds = (fit / 2).clamp(1, planned.rounds);
        let slice = (slices / (2 * rounds)).clamp(LEAST, planned.slice);
        let left = slices.saturating_sub(slice * rounds);
        Self {
            rounds,
            slice,
            warm_up,
            settling: ((left.as_nanos() / slice.as_nanos()) as u32).min(planned.settling),
            cold_reads: planned.cold_reads,
        }
    }
}

/// Measures all cases that the filter leaves, within about `seconds` if they are given. `tick` hears of each case
/// before it begins.
///
/// # Errors
/// No case is left, or the file could not be created, or the server could not be started. A case that fails otherwise
/// is skipped.
pub fn run(
    plan: &Plan,
    filter: &Filter,
    seconds: Option<Duration>,
    program: PathBuf,
    mut tick: impl FnMut(&str),
) -> Result<Report> {
    let cases = plan.cases(filter);
    if cases.is_empty() {
        bail!("no case is left: no case has all that the options name; leave one of them out");
    }
    let (begin, machine) = (Instant::now(), Machine::here());
    tick("writing a file, starting and filling a server");
    let mut setting = Setting::new(plan, program)?;
    setting.prepare(&cases[0])?;
    // What is left when the other servers have been started too.
    let servers = cases.chunk_by(Case::shares_server).count() as u32;
    let left = seconds.map(|all| all.saturating_sub(begin.elapsed() * servers));
    let times = Times::of(plan, left, cases.len());
    let (mut rows, mut skipped) = (Vec::new(), Vec::new());
    for case in &cases {
        tick(&case.label());
        setting.prepare(case)?;
        match measure(case, &setting, times) {
            Ok(measured) => rows.extend(measured),
            Err(error) => skipped.push(format!("{}: {error:#}", case.label())),
        }
    }
    Ok(Report {
        machine,
        commit: commit(),
        bench: "policy",
        placement: setting.placement(),
        clock_ns: setting.clock_ns(),
        file_bytes: plan.file_mib << 20,
        rounds: times.rounds,
        slice_ns: times.slice.as_nanos() as u64,
        choosing: Worst::of(&rows, "policy", |row| {
            row.ratio_to_route.filter(|_| row.spec.shift.is_none())
        }),
        shifting: Worst::of(&rows, "policy", |row| {
            row.ratio_to_route.filter(|_| row.spec.shift.is_some())
        }),
        waiting: Worst::of(&rows, "default", |row| {
            row.ratio_to_best.filter(|_| !row.spec.is_bound())
        }),
        mapped: Worst::of(&rows, "default", |row| {
            row.p50_ratio_to_mmap
                .filter(|_| row.spec.served == plan::Mode::Default)
        }),
        first: Worst::of(&rows, "default", |row| {
            row.first_ratio_to_best.filter(|_| row.spec.shift.is_none())
        }),
        worst: Worst::of(&rows, "default", |row| {
            let steady = row.spec.is_bound() && row.spec.shift.is_none();
            row.ratio_to_best.filter(|_| steady)
        }),
        rows,
        skipped,
    })
}

fn measure(case: &Case, setting: &Setting, times: Times) -> Result<Vec<Row>> {
    let granted = setting.granted(case)?;
    let configs = Config::all(case, granted);
    let offsets = Offsets::of(case);
    let load = if case.load > 0 && case.shift.is_none() {
        setting.load_percent()
    } else {
        0.0
    };
    if !case.is_bound() {
        let mut crowds: Vec<Crowd> = configs.into_iter().map(Crowd::new).collect();
        // Long enough for all of them to connect.
        let slice = times.slice * 3;
        for _ in 0..times.rounds {
            for crowd in &mut crowds {
                crowd.slice(case, setting, &offsets, slice)?;
            }
        }
        return Ok(row::of_crowds(case, granted, &crowds));
    }
    let mut players = Vec::new();
    for config in configs {
        let mut player = Player::new(case, config, (setting, times.cold_reads), &offsets)?;
        player.warm_up(case, times.warm_up)?;
        players.push(player);
    }
    for _ in 0..times.settling {
        for player in &mut players {
            player.slice(times.slice, || 0)?;
        }
    }
    players.iter_mut().for_each(Player::begin);
    let thirds = if case.shift.is_some() { 3 } else { 1 };
    for third in 0..thirds {
        if thirds > 1 {
            setting.let_others(third == 1)?;
        }
        for _ in 0..times.rounds {
            for player in &mut players {
                player.slice(times.slice, || setting.server_cpu_ns())?;
            }
        }
    }
    Ok(row::of_players(case, (granted, load), &players))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_case_gets_its_share_of_the_seconds() {
        let plan = Plan::built_in().unwrap();
        let planned = Times::of(&plan, None, 10);
        assert_eq!(
            (planned.rounds, planned.slice),
            (plan.rounds, Duration::from_millis(plan.slice_ms))
        );
        let whole = |times: Times| times.warm_up + times.slice * (times.settling + times.rounds);
        for seconds in [1, 10, 100, 1000] {
            let seconds = Duration::from_secs(seconds);
            let times = Times::of(&plan, Some(seconds), 10);
            assert!(times.rounds >= 1 && times.slice >= Duration::from_millis(2));
            assert!(
                whole(times) * 90 <= seconds.max(Duration::from_secs(1)),
                "{times:?}"
            );
        }
    }
}
