//! `odafs bench metadata`.

use std::time::Duration;

use anyhow::Result;
use clap::Args;
use clap::builder::PossibleValuesParser;
use odafs_bench::metadata::{self, Plan, Report, Row};
use odafs_bench::table::{Table, count, counted, time};

use super::Planned;
use super::rates::measured;
use crate::output;

/// The time that one mix needs, for a route and a number of clients.
const ROW_WANTS: Duration = Duration::from_secs(1);

/// Rates of operations on names and small files, with the mixes of fileop and PostMark
#[derive(Args)]
#[command(after_help = "Examples:
  odafs bench metadata                           the whole plan
  odafs bench metadata --fabric tcp --seconds 20 --json
  odafs bench metadata --fabric tcp --design read-read --design read-write
  odafs bench metadata --plan mine.toml          other numbers of clients, files, sizes

`fileop` repeatedly creates a tree of files, does each operation on all of them, and removes the
tree. A `transaction` of `postmark` creates or deletes a small file of a pool, and reads or
appends to another one. Each client has its own connections and directory. `local` makes system
calls on the directory that the server serves. Rates are those of all clients together. `/ local`
is the median time / that of `local` in the same round. CPU times are per operation of the whole
mix (fileop, reopen) or per transaction (postmark). In the design `read-read` each side fetches
what the other sends; in `read-write` the server moves all data (`odafs bench designs`).

The built-in plan is bench/plans/metadata.toml in the sources. bench/plans/delegations.toml opens,
reads and closes small files by NFS version 4.2, with delegations and without.")]
pub struct Arguments {
    /// Measure only `local` and clients over this fabric [may be repeated]
    #[arg(long, value_name = "F", value_parser = PossibleValuesParser::new(["shm", "tcp", "nfs"]))]
    fabric: Vec<String>,
    /// Measure clients over tcp by this design of RPC-over-RDMA [may be repeated; default: the
    /// client's, which is read-write]
    #[arg(long, value_name = "D", value_parser = PossibleValuesParser::new(["read-read", "read-write"]))]
    design: Vec<String>,
    #[command(flatten)]
    planned: Planned,
}

/// Runs the command.
pub fn run(arguments: Arguments) -> Result<()> {
    let mut plan = arguments.planned.plan(Plan::built_in, Plan::parse)?;
    plan.keep(&arguments.fabric);
    plan.by_designs(&arguments.design);
    super::must_be_left(
        "route over tcp",
        arguments.design.is_empty() || plan.has_rdma(),
    )?;
    super::must_be_left("route", !plan.routes.is_empty())?;
    if let Some(seconds) = arguments.planned.seconds {
        let rows = plan.slices() as u32;
        output::warn_if_short("--seconds", seconds, rows, ROW_WANTS);
        plan.fit(seconds);
    }
    let program = super::this_program()?;
    let steps = plan.slices() as u64 * u64::from(plan.rounds);
    let report = measured(steps, |tick| metadata::run(&plan, program, tick))?;
    arguments.planned.show(&report, &report.machine, print)
}

fn print(report: &Report) -> Result<()> {
    output::text(&format!(
        "{}\ncommit {}\ntrees of {}, pools of {}, below {}; {}; the median of {} in turn, {} a slice in \
         each\n\n",
        report.machine.sentence(),
        report.commit,
        counted(report.files, "file"),
        report.pool,
        report.directory.display(),
        report.placement,
        counted(report.rounds, "round"),
        time(report.slice_ns),
    ))?;
    output::figures(&table(&report.rows))
}

fn table(rows: &[Row]) -> Table {
    let mut table = Table::new([
        "<mix",
        "=clients",
        "<fabric",
        "<operation",
        "a second",
        "lowest",
        "highest",
        "p50",
        "lowest",
        "highest",
        "p99",
        "/ local",
        "lowest",
        "highest",
        "client CPU",
        "server CPU",
    ]);
    let ns = |value: f64| time(value as u64);
    for row in rows {
        let mut cells = vec![
            row.spec.mix.name().to_owned(),
            row.spec.clients.to_string(),
            row.spec.fabric.to_owned(),
            row.operation.name().to_owned(),
        ];
        let rate = row.operations_per_second;
        cells.extend([rate.median, rate.lowest, rate.highest].map(|rate| count(rate as u64)));
        let p50 = row.p50_ns;
        cells.extend([p50.median, p50.lowest, p50.highest].map(ns));
        cells.push(ns(row.p99_ns.median));
        let ratio = row.p50_to_local;
        let ratios = ratio.map(|r| [r.median, r.lowest, r.highest].map(|r| format!("{r:.1}")));
        cells.extend(ratios.unwrap_or_default());
        cells.extend([row.client_cpu_ns.median, row.server_cpu_ns.median].map(ns));
        table.row(cells);
    }
    table
}
