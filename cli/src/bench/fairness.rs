//! `odafs bench fairness`.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::Result;
use clap::Args;
use clap::builder::PossibleValuesParser;
use odafs_bench::fairness::{self, Plan, Report};
use odafs_bench::table::{Table, count, time};

use super::rates::{ROW_WANTS, measured};
use crate::{Usage, output, units};

/// Latency of one client's calls while another client floods the server
#[derive(Args)]
#[command(after_help = "Example:
  odafs bench fairness --seconds 60

A client of NFS over TCP makes one call at a time: LOOKUP and READ of what the server has in
memory, and READDIR, which takes a worker thread. Meanwhile another client keeps 32 calls of one
procedure under way, with 1 MiB each if the procedure carries data.

The figures are 99th percentiles, measured in turn: `quiet` without a flood; `flooded` with the
flood at the same server; `elsewhere` with the flood at another server on this machine. `x quiet`
is flooded / quiet. `x there` is flooded / elsewhere. `server` is the processor time that the
server takes during the flood, of one processor.

The clients run on the first processor, and the servers on the second. The flooding client runs
only when the first is idle, and whoever wakes up takes it from it (SCHED_IDLE). So it takes no
time from the server or from the other client, as if it ran on a machine of its own. If root runs
this, the other client comes before all other programs (SCHED_FIFO). Otherwise it may wait up to
3 ms for one of them after a reply has come. The layout leaves out a network, whose links the
flood would fill, and a server with more processors than one. Each server has its own process, but
that of `syncs` has not.

Two rows are no floods of one procedure. `computing`: a thread computes on the server's processor,
and one on the clients' whenever that is idle. `syncs`: four clients write, set attributes, create
and commit, and each sync takes --sync.")]
pub struct Arguments {
    /// Seconds for all rows together
    #[arg(long, value_name = "N", value_parser = units::duration, default_value = "30")]
    seconds: Duration,
    /// How long a sync takes in the row `syncs`
    #[arg(long, value_name = "TIME", value_parser = units::duration, default_value = "1s")]
    sync: Duration,
    /// Measure only this flood, by the name of its row [may be repeated]
    #[arg(long, value_name = "NAME", value_parser = PossibleValuesParser::new(fairness::rows()))]
    flood: Vec<String>,
    /// The program whose server to measure, instead of this one
    #[arg(long, hide = true)]
    program: Option<PathBuf>,
    /// Print JSON instead of a table
    #[arg(long)]
    json: bool,
}

/// Runs the command.
pub fn run(arguments: Arguments) -> Result<()> {
    Usage::unless_no_time("--seconds", Some(arguments.seconds))?;
    let plan = Plan {
        program: arguments.program.map_or_else(super::this_program, Ok)?,
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
        "{}\n{}; commit {}\n\n",
        report.machine.sentence(),
        report.placement,
        report.commit
    ))?;
    output::figures(&table(&report))
}

fn table(report: &Report) -> Table {
    let mut table = Table::new([
        "<flood",
        "calls/s",
        "elsewhere",
        "server",
        "<call",
        "quiet",
        "flooded",
        "elsewhere",
        "x quiet",
        "x there",
    ]);
    let or_none = |cell: Option<String>| cell.unwrap_or_else(|| "-".to_owned());
    let percent = |processors: f64| format!("{:.0} %", processors * 100.0);
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
                    or_none(row.server_processors.map(percent)),
                ],
                _ => vec![String::new(); 4],
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
