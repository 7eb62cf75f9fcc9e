//! `odafs bench load`.

use anyhow::Result;
use clap::Args;
use clap::builder::PossibleValuesParser;
use odafs_bench::load::{self, Plan, Report, Row};
use odafs_bench::spread::Spread;
use odafs_bench::table::{Table, bytes, count, counted, time};

use super::Planned;
use super::rates::{ROW_WANTS, measured};
use crate::output;

/// Latency of reads while other programs hold the server's processor
#[derive(Args)]
#[command(after_help = "Examples:
  odafs bench load                                   the whole plan
  odafs bench load --fabric shm --load 100           shared memory, at 0 and 100 % load
  odafs bench load --seconds 20 --json
  odafs bench load --plan mine.toml                  other routes, loads, sizes

The server is bound to one processor, the client to another. Four processes that only compute
take 0, 25, 50, 75 and 100 % of the server's processor. (At 100 %, a server that is always busy
gets a fifth.) One-sided reads over shared memory need no processor of the server; every other
route does. Clients poll for 50 us before they sleep, or sleep at once where answers take longer;
the caller of NFS is a minimal one that polls. Each round has a slice for every route at every
load. `x idle` is the ratio to the idle slice of the same round: the median over the rounds, the
lowest and the highest. `held` is the share of the processor that the other programs got.

The built-in plan is bench/plans/load.toml in the sources.")]
pub struct Arguments {
    /// Measure only routes over this fabric, and mmap [may be repeated]
    #[arg(long, value_name = "F", value_parser = PossibleValuesParser::new(["shm", "tcp", "nfs"]))]
    fabric: Vec<String>,
    /// Measure only this load in percent of the processor, beside 0 [may be repeated]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(0..=100))]
    load: Vec<u32>,
    #[command(flatten)]
    planned: Planned,
    /// Run as a process that takes a share of a processor
    #[arg(long, hide = true)]
    burn: bool,
}

/// Runs the command.
pub fn run(arguments: Arguments) -> Result<()> {
    if arguments.burn {
        return load::burn();
    }
    let mut plan = arguments.planned.plan(Plan::built_in, Plan::parse)?;
    plan.keep(&arguments.fabric, &arguments.load);
    super::must_be_left("route", plan.routes.iter().any(|name| name != "mmap"))?;
    if let Some(seconds) = arguments.planned.seconds {
        let rows = plan.routes.len() * plan.loads.len();
        output::warn_if_short("--seconds", seconds, rows as u32, ROW_WANTS);
        plan.fit(seconds);
    }
    let program = super::this_program()?;
    let steps = plan.loads.len() as u64 * u64::from(plan.rounds);
    let report = measured(steps, |tick| load::run(&plan, program, tick))?;
    arguments.planned.show(&report, &report.machine, print)
}

fn print(report: &Report) -> Result<()> {
    output::text(&format!(
        "{}\ncommit {}\n{} at random from a file of {} in the server's memory; {}; the median of {} in turn, {} \
         a row in each\n\n",
        report.machine.sentence(),
        report.commit,
        bytes(report.size_bytes),
        bytes(report.file_bytes),
        report.placement,
        counted(report.rounds, "round"),
        time(report.slice_ns),
    ))?;
    output::figures(&table(&report.rows))?;
    if let Some(ratio) = report.one_sided_p99_to_idle {
        output::text(&format!(
            "\none-sided over shared memory, 99th percentile at the highest load / idle: {:.2} ({:.2} to {:.2})\n",
            ratio.median, ratio.lowest, ratio.highest
        ))?;
    }
    Ok(())
}

fn table(rows: &[Row]) -> Table {
    let mut table = Table::new([
        "<fabric",
        "<route",
        "=load",
        "held",
        "p50",
        "mean",
        "lowest",
        "highest",
        "p99",
        "lowest",
        "highest",
        "p99.9",
        "reads/s",
        "client CPU",
        "server CPU",
        "mean x idle",
        "p99 x idle",
        "lowest",
        "highest",
    ]);
    for row in rows {
        let ns = |value: f64| time(value as u64);
        let mut cells = vec![
            row.fabric.to_owned(),
            row.route.to_owned(),
            format!("{} %", row.load_percent),
            format!("{} %", row.held_percent),
            ns(row.p50_ns.median),
        ];
        for spread in [row.mean_ns, row.p99_ns] {
            cells.extend([spread.median, spread.lowest, spread.highest].map(ns));
        }
        cells.push(ns(row.p999_ns.median));
        cells.push(count(row.reads_per_second.median as u64));
        cells.extend([row.client_cpu_ns_per_read, row.server_cpu_ns_per_read].map(time));
        let ratio = |spread: Option<Spread>, of: fn(Spread) -> f64| {
            spread.map_or_else(String::new, |spread| format!("{:.2}", of(spread)))
        };
        cells.push(ratio(row.mean_to_idle, |s| s.median));
        cells.push(ratio(row.p99_to_idle, |s| s.median));
        cells.push(ratio(row.p99_to_idle, |s| s.lowest));
        cells.push(ratio(row.p99_to_idle, |s| s.highest));
        table.row(cells);
    }
    table
}
