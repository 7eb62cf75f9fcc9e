//! `odafs bench distribution`.

use anyhow::Result;
use clap::Args;
use clap::builder::PossibleValuesParser;
use odafs_bench::distribution::{self, Plan, Report, Row};
use odafs_bench::spread::Spread;
use odafs_bench::table::{Table, bytes, count, counted, time};

use super::Planned;
use super::rates::{ROW_WANTS, measured};
use crate::{Usage, output};

/// Where reads end when a file outgrows the server's memory
#[derive(Args)]
#[command(after_help = "Examples:
  odafs bench distribution                             the whole plan, a minute
  odafs bench distribution --fabric tcp --pattern zipf
  odafs bench distribution --seconds 20 --json
  odafs bench distribution --plan mine.toml            other lengths, memories, routes

A server with a page cache of 64 MiB serves a file of 0.25 to 1.15 times that size. Clients start
with all references and have a fifth of the server's memory, as in figure 4 of \"The Optimistic
Direct Access File System\". Each read ends in the client's cache, with a direct read, or with a
call. `stale` counts direct reads that the server refused, after which the client made a call.
`expected` is the share of uniform reads that would be refused if every page were equally likely
to be in the server's memory. `x rpc` is the mean time / that of calls in the same round.

The built-in plan is bench/plans/distribution.toml in the sources.")]
pub struct Arguments {
    /// Measure only routes over this fabric [may be repeated; default: those of the plan]
    #[arg(long, value_name = "F", value_parser = PossibleValuesParser::new(["shm", "tcp"]))]
    fabric: Vec<String>,
    /// Measure only this pattern of reads [may be repeated]
    #[arg(long, value_name = "P", value_parser = PossibleValuesParser::new(["uniform", "zipf"]))]
    pattern: Vec<String>,
    #[command(flatten)]
    planned: Planned,
}

/// Runs the command.
pub fn run(arguments: Arguments) -> Result<()> {
    let mut plan = arguments.planned.plan(Plan::built_in, Plan::parse)?;
    plan.keep(&arguments.fabric, &arguments.pattern);
    Usage::unless_none("--pattern", plan.patterns.is_empty())?;
    if let Some(seconds) = arguments.planned.seconds {
        let rows = plan.files.len() * plan.patterns.len() * plan.routes.len();
        output::warn_if_short("--seconds", seconds, rows as u32, ROW_WANTS);
        plan.fit(seconds);
    }
    let program = super::this_program()?;
    let servers = (plan.files.len() * plan.patterns.len()) as u64;
    let steps = servers * u64::from(plan.rounds);
    let report = measured(steps, |tick| distribution::run(&plan, program, tick))?;
    arguments.planned.show(&report, &report.machine, print)
}

fn print(report: &Report) -> Result<()> {
    output::text(&format!(
        "{}\ncommit {}\n{} at random; a page cache of {} at the server, {} for pages and references at the client; {}; \
         the median of {}, {} a row in each\n\n",
        report.machine.sentence(),
        report.commit,
        bytes(report.size_bytes),
        bytes(report.cache_bytes),
        bytes(report.client_bytes),
        report.placement,
        counted(report.rounds, "round"),
        time(report.slice_ns),
    ))?;
    output::figures(&table(&report.rows))
}

fn table(rows: &[Row]) -> Table {
    let mut table = Table::new([
        "<pattern",
        "=file / cache",
        "<fabric",
        "<route",
        "in cache",
        "direct",
        "rpc",
        "stale",
        "lowest",
        "highest",
        "expected",
        "reads/s",
        "mean",
        "lowest",
        "highest",
        "p50",
        "p99",
        "x rpc",
        "lowest",
        "highest",
    ]);
    let percent = |share: f64| match share {
        share if share < 1.0 => format!("{share:.3} %"),
        share => format!("{share:.1} %"),
    };
    for row in rows {
        let ns = |value: f64| time(value as u64);
        let all = |spread: Spread| [spread.median, spread.lowest, spread.highest];
        let shares = [row.cache_percent, row.direct_percent, row.rpc_percent];
        let mut cells = vec![
            format!("{:?}", row.spec.pattern).to_lowercase(),
            format!("{:.2}", row.spec.file_to_cache),
            row.spec.fabric.to_owned(),
            row.spec.route.to_owned(),
        ];
        cells.extend(shares.map(|share| percent(share.median)));
        cells.extend(all(row.stale_percent).map(percent));
        cells.push(row.expected_stale_percent.map_or_else(String::new, percent));
        cells.push(count(row.reads_per_second.median as u64));
        cells.extend(all(row.mean_ns).map(ns));
        cells.extend([row.p50_ns, row.p99_ns].map(|spread| ns(spread.median)));
        match row.mean_to_rpc {
            Some(ratio) => cells.extend(all(ratio).map(|ratio| format!("{ratio:.2}"))),
            None => cells.extend([const { String::new() }; 3]),
        }
        table.row(cells);
    }
    table
}
