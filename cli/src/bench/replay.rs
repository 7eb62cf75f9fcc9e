//! `odafs bench replay`.

use std::fs::File;
use std::io::BufReader;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context as _, Result};
use clap::Args;
use clap::builder::PossibleValuesParser;
use odafs::record::Trace;
use odafs_bench::process::Fabric;
use odafs_bench::replay::{self, Plan, ROUTES, Report, Row};
use odafs_bench::spread::Spread;
use odafs_bench::table::{Table, bytes, count, counted, time};

use super::rates::{ROW_WANTS, measured};
use crate::{Usage, output, units};

/// Replay a recorded trace by each route in turn
#[derive(Args)]
#[command(after_help = "Examples:
  odafs bench replay bench/traces/parquet.trace
  odafs bench replay mine.trace --fabric tcp --route rpc --route default
  odafs bench replay mine.trace --seconds 20 --json

The command creates the files that the trace needs in a scratch directory, and serves them from
memory. In each round, every route replays the trace with a new client that has one thread for
each recorded one. The routes rpc, guarded, one-sided and policy keep no pages; `default` is a
client with default options. `x rpc` is the mean time / that of RPC in the same round. `differs`
counts operations that failed but did not when they were recorded, or the reverse, or that read
another length. With --seconds, a pass ends where RPC gets in its share of the time.

With --speed as-recorded, a time is from when the operation was to begin: if the one before took
longer than when it was recorded, the time includes the wait for its end.

docs/TRACES.md in the sources describes the format; bench/traces has examples.")]
pub struct Arguments {
    /// The trace to replay
    #[arg(value_name = "TRACE")]
    trace: PathBuf,
    /// Replay only by this route [may be repeated]
    #[arg(long, value_name = "R", value_parser = PossibleValuesParser::new(ROUTES))]
    route: Vec<String>,
    /// The fabric between client and server
    #[arg(long, value_name = "F", default_value = "shm", value_parser = PossibleValuesParser::new(["shm", "tcp"]))]
    fabric: String,
    /// Start each operation when the one before has ended (full), or not before its recorded time (as-recorded)
    #[arg(long, value_name = "S", default_value = "full", value_parser = PossibleValuesParser::new(["full", "as-recorded"]))]
    speed: String,
    /// Size of the server's page cache [default: enough for all files]
    #[arg(long, value_name = "SIZE", value_parser = units::size)]
    cache: Option<u64>,
    /// The most memory that the trace's files and buffers may take
    #[arg(long, value_name = "SIZE", default_value = "1GiB", value_parser = units::size)]
    bytes_max: u64,
    /// Number of rounds; each replays the trace once by every route, 1 to 1000
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=1000))]
    rounds: u32,
    /// Replay the trace once with each client before the pass that counts
    #[arg(long)]
    warm: bool,
    /// Seconds for the whole run, approximately [default: as long as the trace takes]
    #[arg(long, value_name = "N", value_parser = units::duration)]
    seconds: Option<Duration>,
    /// Print JSON instead of a table
    #[arg(long)]
    json: bool,
}

/// Runs the command.
pub fn run(arguments: Arguments) -> Result<()> {
    Usage::unless_no_time("--seconds", arguments.seconds)?;
    let name = arguments.trace.display().to_string();
    let file = File::open(&arguments.trace).with_context(|| format!("cannot read {name}"))?;
    let trace = Trace::read(BufReader::new(file)).with_context(|| name.clone())?;
    let routes = ROUTES.iter().map(|route| (*route).to_owned());
    let keeps = |route: &String| arguments.route.is_empty() || arguments.route.contains(route);
    let plan = Plan {
        routes: routes.filter(keeps).collect(),
        fabric: match &*arguments.fabric {
            "tcp" => Fabric::Iwarp,
            _ => Fabric::Shm,
        },
        as_recorded: arguments.speed == "as-recorded",
        cache_bytes: arguments.cache,
        bytes_max: arguments.bytes_max,
        rounds: arguments.rounds,
        warm: arguments.warm,
        time: arguments.seconds,
    };
    if let Some(seconds) = plan.time {
        output::warn_if_short("--seconds", seconds, plan.routes.len() as u32, ROW_WANTS);
    }
    let program = super::this_program()?;
    let steps = plan.routes.len() as u64 * u64::from(plan.rounds);
    let report = measured(steps, |tick| {
        replay::run(&plan, program, (name, &trace), tick)
    })?;
    match arguments.json {
        true => output::report(&report, &report.machine),
        false => print(&report),
    }
}

fn print(report: &Report) -> Result<()> {
    let part = match report.operations < report.recorded {
        true => format!("the first {} of ", count(report.operations)),
        false => String::new(),
    };
    output::text(&format!(
        "{}\ncommit {}\n{}: {part}{} of {} on {}, files of {}, over {}{}{}; the median of {} in \
         turn\n\n",
        report.machine.sentence(),
        report.commit,
        report.trace,
        counted(report.recorded, "operation"),
        counted(report.threads, "thread"),
        counted(report.names, "name"),
        bytes(report.file_bytes),
        report.fabric,
        if report.as_recorded {
            ", at the recorded times"
        } else {
            ""
        },
        if report.warm {
            ", the second pass of each client"
        } else {
            ""
        },
        counted(report.rounds, "round"),
    ))?;
    output::figures(&table(&report.rows))?;
    output::text("\n")?;
    output::figures(&ends(&report.rows))
}

fn table(rows: &[Row]) -> Table {
    let mut table = Table::new([
        "<operation",
        "<route",
        "calls",
        "p50",
        "p99",
        "mean",
        "lowest",
        "highest",
        "x rpc",
        "lowest",
        "highest",
    ]);
    let mut rows: Vec<&Row> = rows.iter().collect();
    // Put the routes of an operation next to each other, in their order.
    rows.sort_by_key(|row| (row.operation != "all", row.operation));
    for row in rows {
        let ns = |value: f64| time(value as u64);
        let mut cells = vec![
            row.operation.to_owned(),
            row.route.clone(),
            count(row.calls),
            ns(row.p50_ns.median),
            ns(row.p99_ns.median),
        ];
        let mean = row.mean_ns;
        cells.extend([mean.median, mean.lowest, mean.highest].map(ns));
        let ratio = |of: fn(Spread) -> f64| {
            row.mean_to_rpc
                .map_or_else(String::new, |spread| format!("{:.2}", of(spread)))
        };
        cells.extend([
            ratio(|s| s.median),
            ratio(|s| s.lowest),
            ratio(|s| s.highest),
        ]);
        table.row(cells);
    }
    table
}

fn ends(rows: &[Row]) -> Table {
    let mut table = Table::new([
        "<reads by",
        "data cache",
        "direct",
        "rpc",
        "refused",
        "differs",
    ]);
    for row in rows {
        if let Some(ends) = row.ends {
            let figures = [
                ends.cache_hits,
                ends.direct_hits,
                ends.rpc_reads,
                ends.stale_hits,
                ends.differs,
            ];
            let cells = std::iter::once(row.route.clone()).chain(figures.map(count));
            table.row(cells.collect());
        }
    }
    table
}
