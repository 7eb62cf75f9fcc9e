//! `odafs bench soak`.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Result, bail};
use clap::Args;
use clap::builder::PossibleValuesParser;
use odafs_bench::soak::{self, Growth, Plan, Report, Row};
use odafs_bench::table::{Table, bytes, count, counted, time};

use super::rates::measured;
use crate::{Usage, output, units};

/// The default duration.
const TIME: Duration = Duration::from_secs(60);

/// In a shorter run, memory still grows because caches fill.
const WANTED: Duration = Duration::from_secs(30);

/// The most lines of the table of samples. `--json` has all of them.
const LINES: usize = 20;

/// Run many clients for a long time, and check that every byte is right and that nothing grows
#[derive(Args)]
#[command(after_help = "Examples:
  odafs bench soak                               a minute
  odafs bench soak --seconds 7200 --json         two hours
  odafs bench soak --fabric nfs --seconds 600
  odafs bench soak --plan mine.toml              other clients, files, page cache

Clients of every route, and clients that come and go, read files that others write, truncate,
remove and create again. The page cache does not hold all files. Every page names the write that
it comes from, and every read is checked: it may return neither a page older than one that was
acknowledged before the read began, nor parts of two writes. A client with default options keeps
pages, which may be as old as its last open. If a byte is wrong, or a call fails without a reason,
the command exits with 1.

During the run, it samples the rate, the 99th percentile of reads, and memory, open files and
threads of both processes. The last lines compare the last quarter of the run with the first.

The built-in plan is bench/plans/soak.toml in the sources.")]
pub struct Arguments {
    /// Run only clients over this fabric [may be repeated]
    #[arg(long, value_name = "F", value_parser = PossibleValuesParser::new(["shm", "tcp", "nfs"]))]
    fabric: Vec<String>,
    /// Follow the plan in this file [default: the built-in plan]
    #[arg(long, value_name = "FILE.toml")]
    plan: Option<PathBuf>,
    /// How long to run, in seconds [default: 60]
    #[arg(long, value_name = "N", value_parser = units::duration)]
    seconds: Option<Duration>,
    /// Print JSON instead of a table
    #[arg(long)]
    json: bool,
}

/// Runs the command.
pub fn run(arguments: Arguments) -> Result<()> {
    Usage::unless_no_time("--seconds", arguments.seconds)?;
    let mut plan = super::plan(arguments.plan.as_deref(), Plan::built_in, Plan::parse)?;
    plan.keep(&arguments.fabric);
    super::must_be_left("reader", !plan.readers.is_empty())?;
    super::must_be_left("writer", !plan.writers.is_empty())?;
    let seconds = arguments.seconds.unwrap_or(TIME);
    output::warn_if_short("--seconds", seconds, 1, WANTED);
    let program = super::this_program()?;
    let steps = seconds.as_nanos().div_ceil(plan.sample(seconds).as_nanos()) as u64;
    let report = measured(steps, |tick| soak::run(&plan, seconds, program, tick))?;
    let printed = match arguments.json {
        true => output::report(&report, &report.machine),
        false => print(&report),
    };
    output::with_result(printed, verdict(&report))
}

fn verdict(report: &Report) -> Result<()> {
    if report.wrong + report.failed == 0 {
        return Ok(());
    }
    for fault in &report.faults {
        eprintln!("odafs: {fault}");
    }
    bail!(
        "reads or opens that returned wrong data: {}; operations that failed: {} (the first of each are listed above)",
        report.wrong,
        report.failed
    )
}

fn print(report: &Report) -> Result<()> {
    output::text(&format!(
        "{}\ncommit {}\n{} of up to {}, a page cache of {}; {}, {}, and {} at a time coming and going\n\
         {:.0} s: {} checked ({}), {} wrong; {}; syncs, files cut, removed and made: {}; {} came and went; failed: {}\n\n",
        report.machine.sentence(),
        report.commit,
        counted(report.files, "file"),
        bytes(report.file_bytes),
        bytes(report.cache_bytes),
        counted(report.readers, "reader"),
        counted(report.writers, "writer"),
        counted(report.visitors, "client"),
        report.seconds,
        counted(report.checked, "read"),
        bytes(report.checked_bytes),
        count(report.wrong),
        counted(report.writes, "write"),
        count(report.changes),
        counted(report.visits, "client"),
        counted(report.failed, "operation"),
    ))?;
    output::figures(&looks(&report.rows))?;
    output::text("\n")?;
    report.growth.iter().try_for_each(sentence)
}

fn looks(rows: &[Row]) -> Table {
    let mut table = Table::new([
        "=after",
        "reads/s",
        "read p99",
        "server memory",
        "page cache",
        "open",
        "threads",
        "client memory",
        "open",
        "threads",
    ]);
    for row in rows.iter().step_by(rows.len().div_ceil(LINES).max(1)) {
        table.row(vec![
            format!("{:.1} s", row.seconds),
            count(row.reads_per_second as u64),
            time(row.read_p99_ns),
            bytes(row.server_bytes),
            bytes(row.server_shared_bytes),
            count(row.server_descriptors),
            count(row.server_threads),
            bytes(row.client_bytes),
            count(row.client_descriptors),
            count(row.client_threads),
        ]);
    }
    table
}

fn sentence(growth: &Growth) -> Result<()> {
    let figure = growth.figure.replace('_', " ");
    let value = |value: f64| match growth.figure {
        name if name.ends_with("_bytes") => bytes(value as u64),
        name if name.ends_with("_ns") => time(value as u64),
        _ => count(value.round() as u64),
    };
    let by = match growth.percent {
        Some(percent) if percent < 0.0 => format!("shrank by {:.1} %", -percent),
        Some(percent) => format!("grew by {percent:.1} %"),
        None => "was zero at first".to_owned(),
    };
    output::text(&format!(
        "{figure} {by} from the first quarter to the last ({} to {})\n",
        value(growth.first),
        value(growth.last)
    ))
}
