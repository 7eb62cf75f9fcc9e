//! `odafs bench cold`.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::Result;
use clap::Args;
use clap::builder::PossibleValuesParser;
use odafs_bench::cold::{self, Plan, Report, Row};
use odafs_bench::spread::Spread;
use odafs_bench::table::{Table, bytes, count, counted, time};

use super::Planned;
use super::rates::measured;
use crate::output;

/// The time that the two passes of a caller need.
const ROW_WANTS: Duration = Duration::from_millis(500);

/// Cold reads: of files that are in no cache, from the disk
#[derive(Args)]
#[command(after_help = "Examples:
  odafs bench cold                               the whole plan, two minutes
  odafs bench cold --dir /srv --fabric shm
  odafs bench cold --seconds 30 --json
  odafs bench cold --plan mine.toml              other lengths, page caches, routes

The bench writes a file to a disk. For each row of a round, it drops the file from the kernel's
page cache and starts a new server, and a new client reads the file twice: half of its pages in
random order, 4 KiB each, or all of it in records of 4 KiB, 64 KiB and 1 MiB.

`cache` is the size of the server's page cache / that of the file. With a cache twice the size of
the file, the second pass reads from memory. With one of an eighth, the file is dropped from the
kernel's page cache before the second pass too. `default` is a client with default options, which
has 64 MiB of its own. `local pread` makes system calls on the file, and `/ pread` is the mean
time / theirs in the same round. `from disk` is how much the kernel fetched from the disk for each
byte read, including read ahead. With --seconds, the file is shorter.

The built-in plan is bench/plans/cold.toml in the sources.")]
pub struct Arguments {
    /// Measure only `local` and clients over this fabric [may be repeated]
    #[arg(long, value_name = "F", value_parser = PossibleValuesParser::new(["shm", "tcp", "nfs"]))]
    fabric: Vec<String>,
    /// The directory for the file, on a disk [default: $TMPDIR or /tmp, or /var/tmp if that is in memory]
    #[arg(long, value_name = "DIR")]
    dir: Option<PathBuf>,
    #[command(flatten)]
    planned: Planned,
}

/// Runs the command.
pub fn run(arguments: Arguments) -> Result<()> {
    let mut plan = arguments.planned.plan(Plan::built_in, Plan::parse)?;
    plan.keep(&arguments.fabric);
    super::must_be_left("route", !plan.routes.is_empty())?;
    if let Some(seconds) = arguments.planned.seconds {
        output::warn_if_short("--seconds", seconds, plan.runs() as u32, ROW_WANTS);
        plan.fit(seconds);
    }
    let program = super::this_program()?;
    let steps = plan.runs() as u64 * u64::from(plan.rounds);
    let directory = arguments.dir.as_deref();
    let report = measured(steps, |tick| cold::run(&plan, directory, program, tick))?;
    if report.is_cold() == Some(false) {
        eprintln!(
            "odafs: the kernel kept the file in memory, so these are not reads from a disk (either another program reads \
             the file, or its file system ignores POSIX_FADV_DONTNEED; name a directory on another disk with --dir)"
        );
    }
    arguments.planned.show(&report, &report.machine, print)
}

fn print(report: &Report) -> Result<()> {
    output::text(&format!(
        "{}\ncommit {}\na file of {} below {}; {}; the median of {} in turn\n\n",
        report.machine.sentence(),
        report.commit,
        bytes(report.file_bytes),
        report.directory.display(),
        report.placement,
        counted(report.rounds, "round"),
    ))?;
    output::figures(&table(&report.rows))
}

fn table(rows: &[Row]) -> Table {
    let mut table = Table::new([
        "=cache",
        "<order",
        "=size",
        "<fabric",
        "<route",
        "<pass",
        "MiB/s",
        "lowest",
        "highest",
        "mean",
        "p50",
        "lowest",
        "highest",
        "p99",
        "/ pread",
        "lowest",
        "highest",
        "from disk",
        "in cache",
        "direct",
        "client CPU",
        "server CPU",
    ]);
    let ns = |value: f64| time(value as u64);
    let all = |spread: Spread| [spread.median, spread.lowest, spread.highest];
    let percent = |share: f64| format!("{share:.0} %");
    for row in rows {
        let spec = &row.spec;
        let mut cells = vec![
            spec.cache_to_file.to_string(),
            spec.pattern.name().to_owned(),
            bytes(spec.size_bytes),
            spec.fabric.to_owned(),
            spec.route.to_owned(),
            spec.pass.to_owned(),
        ];
        cells.extend(all(row.mib_per_second).map(|rate| match rate < 100.0 {
            true => format!("{rate:.1}"),
            false => count(rate as u64),
        }));
        cells.push(ns(row.mean_ns.median));
        cells.extend(all(row.p50_ns).map(ns));
        cells.push(ns(row.p99_ns.median));
        match row.mean_to_pread {
            Some(ratio) => cells.extend(all(ratio).map(|ratio| format!("{ratio:.2}"))),
            None => cells.extend([const { String::new() }; 3]),
        }
        let disk = row.from_disk.map(|part| format!("{:.2}", part.median));
        cells.push(disk.unwrap_or_default());
        cells.extend([row.cache_percent, row.direct_percent].map(percent));
        cells.extend([row.client_cpu_ns_per_read, row.server_cpu_ns_per_read].map(time));
        table.row(cells);
    }
    table
}
