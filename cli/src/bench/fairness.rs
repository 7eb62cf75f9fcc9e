//! `odafs bench fairness`.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context as _, Result};
use clap::Args;
use clap::builder::PossibleValuesParser;
use odafs_bench::fairness::{self, Plan, Report};
use odafs_bench::table::{Table, count, time};

use super::rates::{ROW_WANTS, measured};
use crate::{Usage, output, units};

/// What a client is left with while another floods the server with calls
#[derive(Args)]
#[command(after_help = "Example:
  odafs bench fairness --seconds 60

A client of NFS over TCP makes one call after the other: LOOKUP and READ of what the server has
in memory, and READDIR, which takes a worker. Beside it, another client keeps 32 calls of one
procedure under way, of 1 MiB where the procedure has data. The figures are 99th percentiles,
taken in turn: quiet; flooded; and elsewhere, with the same flood at another server on this
machine. x quiet is flooded by quiet; x there is flooded by elsewhere, which leaves out what the
machine itself makes of as much work. Servers have processes of their own; the flood is nice.
computing: two threads that compute in place of a flood, one of them nice. syncs: four clients
write, set, make and commit where each sync takes --sync.")]
pub struct Arguments {
    /// Time for the rows
    #[arg(long, value_name = "N", value_parser = units::duration, default_value = "30")]
    seconds: Duration,
    /// How long a sync takes in the last row
    #[arg(long, value_name = "TIME", value_parser = units::duration, default_value = "1s")]
    sync: Duration,
    /// Only this flood, by the name of its row [may be repeated]
    #[arg(long, value_name = "NAME", value_parser = PossibleValuesParser::new(fairness::rows()))]
    flood: Vec<String>,
    /// The program whose servers are measured, rather than this one
    #[arg(long, hide = true)]
    program: Option<PathBuf>,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// Measures.
pub fn run(arguments: Arguments) -> Result<()> {
    Usage::unless_no_time("--seconds", Some(arguments.seconds))?;
    let here = || std::env::current_exe().context("cannot find this program");
    let plan = Plan {
        program: arguments.program.map_or_else(here, Ok)?,
        time: arguments.seconds,
        sync: arguments.sync,
        floods: arguments.flood,
    };
    output::warn_if_short("--seconds", plan.time, plan.rows() as u32, ROW_WANTS);
    let report = measured(plan.rows() as u64, |tick| fairness::run(&plan, tick))?;
    if arguments.json {
        return output::report(&report, &report.machine);
    }
    output::text(&format!(
        "{}\ncommit {}\n\n",
        report.machine.sentence(),
        report.commit
    ))?;
    output::table(&table(&report))
}

fn table(report: &Report) -> Table {
    let mut table = Table::new([
        "<flood",
        "calls/s",
        "elsewhere",
        "<call",
        "quiet",
        "flooded",
        "elsewhere",
        "x quiet",
        "x there",
    ]);
    let or_none = |cell: Option<String>| cell.unwrap_or_else(|| "-".to_owned());
    let rate = |rate: f64| count(rate as u64);
    for row in &report.rows {
        let ours = [
            ("LOOKUP", &row.lookup),
            ("READ", &row.read),
            ("READDIR", &row.readdir),
        ];
        for (number, (call, pair)) in ours.into_iter().enumerate() {
            let mut cells = match number {
                0 => vec![
                    row.flood.clone(),
                    rate(row.flooded),
                    or_none(row.elsewhere.map(rate)),
                ],
                _ => vec![String::new(); 3],
            };
            cells.extend([
                call.to_owned(),
                time(pair.quiet_p99_ns),
                time(pair.flooded_p99_ns),
                or_none(pair.elsewhere_p99_ns.map(time)),
                format!("{:.2}", pair.ratio),
                or_none(pair.server_ratio.map(|ratio| format!("{ratio:.2}"))),
            ]);
            table.row(cells);
        }
    }
    table
}
