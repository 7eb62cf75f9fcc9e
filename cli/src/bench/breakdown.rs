//! `odafs bench breakdown`.

use std::time::Duration;

use anyhow::{Result, bail};
use clap::Args;
use odafs_bench::breakdown::{self, Plan, Report};
use odafs_bench::table::{Table, bytes, count};

use super::rates::check_memory;
use crate::{Usage, output, units};

/// The parts of a read's time, each measured alone
#[derive(Args)]
#[command(after_help = "Example:
  odafs bench breakdown --json

T_NullRPC   a call that does nothing
T_FS        the server's file system: finding, locking and copying a resident page, and
            the whole READ call around that
T_MAC       making and verifying the MAC of a request
T_exc       the NIC's check of a direct read, and its calls to the host's page cache, through
            shared memory and through a queue to a thread of the host
T_copy      copying a page out of the page cache
T_stale     a direct read that is refused

Terms within one process are timed in batches of 256; terms between client and server are timed
one by one. A guarded read that is refused goes on by a call: T_stale is the median of both less
that of such calls. All figures are nanoseconds, the median of the rounds.")]
pub struct Arguments {
    /// Size of the memory that the terms access at random, 1MiB to 1TiB
    #[arg(long, value_name = "SIZE", value_parser = units::size, default_value = "256MiB")]
    set: u64,
    /// Number of rounds; each measures every term once
    #[arg(long, value_name = "N", default_value_t = 5)]
    rounds: u32,
    /// Seconds for the whole run, approximately: half for the terms, half for the rest [default: a tenth of a second for
    /// a term in a round]
    #[arg(long, value_name = "N", value_parser = units::duration)]
    seconds: Option<Duration>,
    /// Print JSON instead of a table
    #[arg(long)]
    json: bool,
}

/// The number of terms.
const TERMS: u32 = 28;

/// Runs the command.
pub fn run(arguments: Arguments) -> Result<()> {
    if arguments.rounds == 0 || !(1 << 20..=1 << 40).contains(&arguments.set) {
        bail!(Usage(
            "--rounds must be 1 or more, and --set 1MiB to 1TiB".to_owned()
        ));
    }
    Usage::unless_no_time("--seconds", arguments.seconds)?;
    check_memory("--set", arguments.set, arguments.set)?;
    if let Some(given) = arguments.seconds {
        let each = Duration::from_millis(10) * arguments.rounds;
        output::warn_if_short("--seconds", given, TERMS, each);
    }
    let default = Duration::from_millis(100);
    let plan = Plan {
        program: super::this_program()?,
        set_bytes: arguments.set,
        time: arguments
            .seconds
            .map_or(default, |all| all / 2 / (TERMS * arguments.rounds)),
        rounds: arguments.rounds,
    };
    let progress = output::step_progress(u64::from(TERMS * plan.rounds), "");
    let report = breakdown::run(&plan, |what| {
        progress.set_message(what.to_owned());
        progress.inc(1);
    })?;
    progress.finish_and_clear();
    debug_assert_eq!(report.rows.len(), TERMS as usize);
    if arguments.json {
        output::report(&report, &report.machine)
    } else {
        print(&report)
    }
}

fn print(report: &Report) -> Result<()> {
    output::text(&format!(
        "{}\ncommit {}\nAt random over {} on pages of {}\n\n",
        report.machine.sentence(),
        report.commit,
        bytes(report.set_bytes),
        bytes(report.backing_bytes)
    ))?;
    let mut table = Table::new([
        "<term", "<what", "<wait", "=size", "times", "ns", "lowest", "highest",
    ]);
    for row in &report.rows {
        let figures = [row.ns, row.lowest_ns, row.highest_ns].map(|ns| format!("{ns:.0}"));
        let size = if row.size_bytes == 0 {
            String::new()
        } else {
            bytes(row.size_bytes as u64)
        };
        let words = [
            row.term.to_owned(),
            row.what.clone(),
            row.wait.to_owned(),
            size,
            count(row.times),
        ];
        table.row(words.into_iter().chain(figures).collect());
    }
    output::figures(&table)
}
