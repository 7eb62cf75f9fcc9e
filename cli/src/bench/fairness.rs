//! `odafs bench fairness`.

use std::time::Duration;

use anyhow::Result;
use clap::Args;
use odafs_bench::fairness::{self, Pair, Plan, Report};
use odafs_bench::table::{Table, count, time};

use super::rates::measured;
use crate::{output, units};

/// What a client is left with while another floods the server with calls
#[derive(Args)]
#[command(after_help = "Example:
  odafs bench fairness --seconds 60

A client of NFS over TCP makes one call after the other: LOOKUP and READ of what the server has
in memory, and READDIR, which takes a worker. Beside it, another client keeps 32 calls of one
procedure under way, of 1 MiB where the procedure has data; then four clients write, set, make
and commit where each sync takes --sync. The figures are 99th percentiles, quiet and beside the
flood in turn, and their ratio. Server and clients share this machine; the flood's are nice.")]
pub struct Arguments {
    /// Time for the rows
    #[arg(long, value_name = "N", value_parser = units::duration, default_value = "30")]
    seconds: Duration,
    /// How long a sync takes in the last row
    #[arg(long, value_name = "TIME", value_parser = units::duration, default_value = "1s")]
    sync: Duration,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// Measures.
pub fn run(arguments: Arguments) -> Result<()> {
    let plan = Plan {
        time: arguments.seconds,
        sync: arguments.sync,
    };
    let report = measured(fairness::rows() as u64, |tick| fairness::run(&plan, tick))?;
    if arguments.json {
        return output::json(&report);
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
        "<flood", "calls", "LOOKUP", "flooded", "ratio", "READ", "flooded", "ratio", "READDIR",
        "flooded", "ratio",
    ]);
    let cells = |pair: &Pair| {
        let times = [pair.quiet_p99_ns, pair.flooded_p99_ns].map(time);
        times.into_iter().chain([format!("{:.2}", pair.ratio)])
    };
    for row in &report.rows {
        let mut of_row = vec![row.flood.clone(), count(row.flooded)];
        of_row.extend(
            [&row.lookup, &row.read, &row.readdir]
                .into_iter()
                .flat_map(cells),
        );
        table.row(of_row);
    }
    table
}
