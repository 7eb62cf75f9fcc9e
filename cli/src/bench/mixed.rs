//! `odafs bench mixed`.

use anyhow::{Result, bail};
use clap::Args;
use clap::builder::PossibleValuesParser;
use odafs_bench::mixed::{self, Kind, Plan, Report, Row};
use odafs_bench::table::{Table, bytes, count, counted, time};

use super::Planned;
use super::rates::{ROW_WANTS, measured};
use crate::output;

/// Check that direct readers beside writing clients of plain NFS are coherent, and measure both
#[derive(Args)]
#[command(after_help = "Examples:
  odafs bench mixed                              the whole plan
  odafs bench mixed --fabric tcp --seconds 20 --json
  odafs bench mixed --plan mine.toml             other shares, routes, writes

Eight clients use one file at the same time. 0 to 100 % of them read directly; the others make
plain calls of NFS version 3 over TCP. A tenth of the operations are writes of a page. Every page
names the write that it comes from, and every read is checked: it may return neither a page older
than one that was acknowledged before the read began, nor parts of two writes. If one does, the
command exits with 1.

The built-in plan is bench/plans/mixed.toml in the sources.")]
pub struct Arguments {
    /// Measure only direct readers over this fabric [may be repeated]
    #[arg(long, value_name = "F", value_parser = PossibleValuesParser::new(["shm", "tcp"]))]
    fabric: Vec<String>,
    #[command(flatten)]
    planned: Planned,
}

/// Runs the command.
pub fn run(arguments: Arguments) -> Result<()> {
    let mut plan = arguments.planned.plan(Plan::built_in, Plan::parse)?;
    plan.keep(&arguments.fabric);
    super::must_be_left("route", !plan.routes.is_empty())?;
    if let Some(seconds) = arguments.planned.seconds {
        let rows = plan.routes.len() * plan.direct.len();
        output::warn_if_short("--seconds", seconds, rows as u32, ROW_WANTS);
        plan.fit(seconds);
    }
    let program = super::this_program()?;
    let rows = (plan.routes.len() * plan.direct.len()) as u64;
    let report = measured(rows * u64::from(plan.rounds), |tick| {
        mixed::run(&plan, program, tick)
    })?;
    let printed = arguments.planned.show(&report, &report.machine, print);
    output::with_result(printed, verdict(&report))
}

fn verdict(report: &Report) -> Result<()> {
    match report.rows.iter().map(|row| row.incoherent).sum() {
        0u64 => Ok(()),
        wrong => bail!("{} returned stale or torn pages", counted(wrong, "read")),
    }
}

fn print(report: &Report) -> Result<()> {
    output::text(&format!(
        "{}\ncommit {}\n{}, 4 KiB at random in a file of {} in the server's memory, {} % writes; {}; the median \
         of {} in turn, {} a row in each\n\n",
        report.machine.sentence(),
        report.commit,
        counted(report.clients, "client"),
        bytes(report.file_bytes),
        report.writes_percent,
        report.placement,
        counted(report.rounds, "round"),
        time(report.slice_ns),
    ))?;
    output::figures(&table(&report.rows))
}

fn table(rows: &[Row]) -> Table {
    let mut table = Table::new([
        "<direct by",
        "=share",
        "operations/s",
        "lowest",
        "highest",
        "=<kind",
        "=clients",
        "reads/s",
        "read p50",
        "lowest",
        "highest",
        "p99",
        "lowest",
        "highest",
        "write p50",
        "p99",
        "checked",
        "incoherent",
    ]);
    for row in rows {
        let rate = row.operations_per_second;
        let mut head = vec![
            format!("{} {}", row.fabric, row.route),
            format!("{} %", row.direct_percent),
        ];
        head.extend([rate.median, rate.lowest, rate.highest].map(|rate| count(rate as u64)));
        let mut tail = vec![count(row.checked), count(row.incoherent)];
        let kinds = [("direct", row.direct), ("nfs", row.nfs)];
        for (name, kind) in kinds {
            let Some(kind) = kind else {
                continue;
            };
            // Cells that apply to both kinds are in the first row only.
            let head_now = std::mem::replace(&mut head, vec![String::new(); 5]);
            let tail_now = std::mem::replace(&mut tail, vec![String::new(); 2]);
            table.row([head_now, cells(name, kind), tail_now].concat());
        }
    }
    table
}

fn cells(name: &str, kind: Kind) -> Vec<String> {
    let ns = |value: f64| time(value as u64);
    let mut cells = vec![
        name.to_owned(),
        kind.clients.to_string(),
        count(kind.reads_per_second.median as u64),
    ];
    for spread in [kind.read_p50_ns, kind.read_p99_ns] {
        cells.extend([spread.median, spread.lowest, spread.highest].map(ns));
    }
    cells.extend([kind.write_p50_ns.median, kind.write_p99_ns.median].map(ns));
    cells
}
