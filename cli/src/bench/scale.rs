//! `odafs bench scale`.

use anyhow::Result;
use clap::Args;
use clap::builder::PossibleValuesParser;
use odafs_bench::scale::{self, Plan, Report};
use odafs_bench::table::{Table, bytes, count, counted, time};

use super::Planned;
use super::rates::{ROW_WANTS, measured};
use crate::output;

/// The rate of one server with 1 to 1000 clients, and what each client costs
#[derive(Args)]
#[command(after_help = "Examples:
  odafs bench scale                              1 to 1000 clients, several minutes
  odafs bench scale --fabric tcp --most 64
  odafs bench scale --seconds 60 --json
  odafs bench scale --plan mine.toml             other routes and counts

All clients are in this process. Each has its own connections and session, keeps no pages, and
reads 4 KiB at random with default options otherwise. At most 64 threads read; with more clients,
each thread reads for several in turn. In each round, every route gets a new server, and the
number of clients grows from 1 to 4, 16, 64, 256 and 1000.

`alone` is the machine without a server: as many clients, to which one thread hands out pages
through memory (`shm`) or TCP (`tcp`). All poll while each thread can have a processor; else all
sleep while they wait. What these rows lose between counts that wait alike (16 and 1000) is not
the server's. They bound nothing for one-sided reads over shm, which hand nothing over.

`/ best` is the rate / the best one of the same round, and `/ 16` that at 16 clients. `slowest` is
the slowest client's part of a fair share. `server memory` and `client memory` are what each
further client takes. The last table shows what an open file takes, and a page whose reference a
client holds. With too few --seconds, the largest numbers of clients are left out.

The built-in plan is bench/plans/scale.toml in the sources.")]
pub struct Arguments {
    /// Measure only routes over this fabric [may be repeated]
    #[arg(long, value_name = "F", value_parser = PossibleValuesParser::new(["shm", "tcp", "nfs"]))]
    fabric: Vec<String>,
    /// The largest number of clients, 1 to 4000 [default: that of the plan]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=4000))]
    most: Option<u32>,
    #[command(flatten)]
    planned: Planned,
}

/// Runs the command.
pub fn run(arguments: Arguments) -> Result<()> {
    let mut plan = arguments.planned.plan(Plan::built_in, Plan::parse)?;
    plan.keep(&arguments.fabric, arguments.most.map(|most| most as usize));
    super::must_be_left("route", !plan.routes.is_empty())?;
    if let Some(seconds) = arguments.planned.seconds {
        plan.fit(seconds);
        if !plan.left_out.is_empty() {
            let counts: Vec<String> = plan.left_out.iter().map(ToString::to_string).collect();
            eprintln!(
                "odafs: --seconds {}: too short to connect {} clients for each route: left out",
                seconds.as_secs_f64(),
                counts.join(", ")
            );
        }
        let rows = plan.routes.len() as u32 * plan.counts();
        let each = ROW_WANTS + plan.around() / plan.counts();
        output::warn_if_short("--seconds", seconds, rows, each);
    }
    let program = super::this_program()?;
    let steps = plan.routes.len() as u64 * u64::from(plan.rounds);
    let report = measured(steps, |tick| scale::run(&plan, program, tick))?;
    arguments.planned.show(&report, &report.machine, print)
}

fn print(report: &Report) -> Result<()> {
    output::text(&format!(
        "{}\ncommit {}\n{} at random from a file of {} in the server's memory; {}; the median of {}, {} a \
         row in each\n\n",
        report.machine.sentence(),
        report.commit,
        bytes(report.size_bytes),
        bytes(report.file_bytes),
        report.placement,
        counted(report.rounds, "round"),
        time(report.slice_ns),
    ))?;
    output::figures(&rows(report))?;
    output::text("\n")?;
    output::figures(&costs(report))
}

fn rows(report: &Report) -> Table {
    let mut table = Table::new([
        "<fabric",
        "<route",
        "=clients",
        "reads/s",
        "lowest",
        "highest",
        "/ best",
        "lowest",
        "highest",
        "/ 16",
        "lowest",
        "highest",
        "slowest",
        "lowest",
        "highest",
        "client CPU",
        "server CPU",
        "server memory",
        "client memory",
    ]);
    let ratio = |ratio: f64| format!("{ratio:.2}");
    for row in &report.rows {
        let rate = row.reads_per_second;
        let mut cells = vec![
            row.fabric.to_owned(),
            row.route.to_owned(),
            row.clients.to_string(),
        ];
        cells.extend([rate.median, rate.lowest, rate.highest].map(|rate| count(rate as u64)));
        for spread in [row.rate_to_best, row.rate_to_16, Some(row.slowest_share)] {
            cells.extend(match spread {
                Some(spread) => [spread.median, spread.lowest, spread.highest].map(ratio),
                None => [(); 3].map(|()| String::new()),
            });
        }
        cells.extend([row.client_cpu_ns_per_read, row.server_cpu_ns_per_read].map(time));
        let memory = [row.server_bytes_per_client, row.client_bytes_per_client];
        cells.extend(memory.map(|each| each.map_or_else(String::new, bytes)));
        table.row(cells);
    }
    table
}

fn costs(report: &Report) -> Table {
    let mut table = Table::new([
        "<what",
        "=number",
        "server memory",
        "client memory",
        "in the directory",
    ]);
    for cost in &report.costs {
        let directory = cost.directory_bytes.map(|bytes| format!("{bytes:.1} B"));
        table.row(vec![
            cost.what.to_owned(),
            count(cost.number),
            bytes(cost.server_bytes),
            bytes(cost.client_bytes),
            directory.unwrap_or_default(),
        ]);
    }
    table
}
