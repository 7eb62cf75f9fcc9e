//! `odafs bench policy`.

use std::time::Duration;

use anyhow::{Result, bail};
use clap::Args;
use clap::builder::PossibleValuesParser;
use odafs::Url;
use odafs_bench::policy::{self, Filter, Plan, Report, Row, Worst, word};
use odafs_bench::table::{Table, bytes, counted, time};

use super::Planned;
use crate::connection::url;
use crate::{Usage, output, units};

/// Compare a client with default options with the best fixed options, case by case
#[derive(Args)]
#[command(after_help = "Examples:
  odafs bench policy                                      the whole plan
  odafs bench policy --case patterns --fabric shm --mode one-sided
  odafs bench policy --case \"short of cores\"              many clients on few processors
  odafs bench policy --seconds 60 --json
  odafs bench policy --plan mine.toml                     other cases

Each configuration of a case is a route, with pages kept or not, and gets a new client. All take
turns in short slices. The first slices let caches fill and do not count. A mean is the median of
the slices, a ratio that of the rounds. `from the first` includes the reads that fill the caches.
The last line is the worst ratio of `default` to the best fixed configuration.

The built-in plan is bench/plans/policy.toml in the sources.")]
pub struct Arguments {
    /// Measure only cases over this fabric [may be repeated]
    #[arg(long, value_name = "F", value_parser = PossibleValuesParser::new(["shm", "tcp"]))]
    fabric: Vec<String>,
    /// Measure only cases whose server grants these direct reads [may be repeated]
    #[arg(long, value_name = "M", value_parser = PossibleValuesParser::new(["one-sided", "guarded", "default"]))]
    mode: Vec<String>,
    /// Measure only cases with this pattern of reads [may be repeated]
    #[arg(long, value_name = "P", value_parser = PossibleValuesParser::new(["uniform", "zipf", "sequential"]))]
    pattern: Vec<String>,
    /// Measure only cases with reads of this size [may be repeated]
    #[arg(long, value_name = "SIZE", value_parser = units::size)]
    size: Vec<u64>,
    /// Measure only cases with this load of the server, in percent [may be repeated]
    #[arg(long, value_name = "N")]
    load: Vec<u32>,
    /// Measure only cases with this number of clients [may be repeated]
    #[arg(long, value_name = "N")]
    clients: Vec<u32>,
    /// Measure only cases with this name in the plan [may be repeated]
    #[arg(long, value_name = "NAME")]
    case: Vec<String>,
    /// Print every row too, with percentiles, CPU time and where reads ended
    #[arg(long)]
    all: bool,
    #[command(flatten)]
    planned: Planned,
    /// Run as the other clients of a server, which read this file
    #[arg(long, hide = true, value_name = "URL", value_parser = url, requires_all = ["load_server", "load_percent"])]
    load_url: Option<Url>,
    /// The server's process id
    #[arg(long, hide = true)]
    load_server: Option<u32>,
    /// The share of a processor that the server shall take, in percent
    #[arg(long, hide = true)]
    load_percent: Option<u32>,
    /// Write pages below this offset instead of reading
    #[arg(long, hide = true)]
    load_writes: Option<u64>,
}

/// Runs the command.
pub fn run(arguments: Arguments) -> Result<()> {
    let load = arguments
        .load_url
        .as_ref()
        .zip(arguments.load_server.zip(arguments.load_percent));
    if let Some((url, (server, percent))) = load {
        return policy::load::run(url, server, percent, arguments.load_writes);
    }
    let plan = arguments.planned.plan(Plan::built_in, Plan::parse)?;
    let filter = Filter {
        fabrics: arguments.fabric,
        modes: arguments.mode,
        patterns: arguments.pattern,
        sizes: arguments.size,
        loads: arguments.load,
        clients: arguments.clients,
        cases: arguments.case,
    };
    let cases = plan.cases(&filter).len();
    if cases == 0 {
        bail!(Usage(
            "no case is left: no case has all that the options name; leave one of them out"
                .to_owned()
        ));
    }
    if let Some(given) = arguments.planned.seconds {
        // The nine configurations of a case need a second: five slices of 10 ms each, and the preparation.
        output::warn_if_short("--seconds", given, cases as u32, Duration::from_secs(1));
    }
    let program = super::this_program()?;
    let progress = output::step_progress(cases as u64 + 1, "");
    let report = policy::run(&plan, &filter, arguments.planned.seconds, program, |case| {
        progress.set_message(case.to_owned());
        progress.inc(1);
    })?;
    progress.finish_and_clear();
    arguments.planned.show(&report, &report.machine, |report| {
        print(report, arguments.all)
    })?;
    unless_skipped(&report.skipped)
}

/// Fails if a case could not be measured.
fn unless_skipped(skipped: &[String]) -> Result<()> {
    match skipped.first() {
        None => Ok(()),
        Some(first) => bail!(
            "{} could not be measured; the first: {first}",
            counted(skipped.len(), "case")
        ),
    }
}

/// Configurations, in the order of their columns.
const ROUTES: [&str; 9] = [
    "mmap",
    "rpc",
    "guarded",
    "one-sided",
    "rpc+cache",
    "guarded+cache",
    "one-sided+cache",
    "policy",
    "default",
];

fn print(report: &Report, all: bool) -> Result<()> {
    output::text(&format!(
        "{}\ncommit {}\nA file of {} in the server's memory; {}; mean times of a read, the median of {} of {}; \
         default / best is the median over rounds\n\n",
        report.machine.sentence(),
        report.commit,
        bytes(report.file_bytes),
        report.placement,
        counted(report.rounds, "slice"),
        time(report.slice_ns),
    ))?;
    let cases = by_case(&report.rows);
    let (spins, routes): (Vec<_>, Vec<_>) = cases
        .into_iter()
        .partition(|rows| rows.iter().any(|row| row.config.starts_with("spin")));
    if !routes.is_empty() {
        output::figures(&table_of(&routes, &ROUTES))?;
    }
    if !spins.is_empty() {
        let names: Vec<&str> = spins[0].iter().map(|row| row.config.as_str()).collect();
        output::text("\nMany clients, on processors that they share:\n")?;
        output::figures(&table_of(&spins, &names))?;
    }
    if all {
        output::text("\nAll rows:\n")?;
        output::figures(&rows(&report.rows))?;
    }
    for skipped in &report.skipped {
        output::text(&format!("\nnot measured: {skipped}"))?;
    }
    output::text("\n")?;
    let lines = [
        ("policy / best route, no pages kept", &report.choosing),
        (
            "policy / best route, where others come for a while",
            &report.shifting,
        ),
        ("no options, p50 / mmap", &report.mapped),
        ("default / best fixed spin", &report.waiting),
        (
            "default / best fixed configuration, from the first read on",
            &report.first,
        ),
        ("default / best fixed configuration", &report.worst),
    ];
    for (what, worst) in lines {
        if let Some(Worst { case, ratio, to }) = worst {
            output::text(&format!(
                "worst {what}: {ratio:.2} ({case}; best is {to})\n"
            ))?;
        }
    }
    Ok(())
}

/// The rows of each case.
fn by_case(rows: &[Row]) -> Vec<&[Row]> {
    rows.chunk_by(|a, b| a.spec.label() == b.spec.label())
        .collect()
}

/// A line for each case, with a column for each configuration.
fn table_of(cases: &[&[Row]], names: &[&str]) -> Table {
    let heading = [
        "<case", "<fabric", "<mode", "<pattern", "=size", "=set", "=memory", "=load", "=clients",
    ];
    let last = [
        "from the first",
        "lowest",
        "highest",
        "default / best",
        "<best",
    ];
    let heading: Vec<&str> = heading.iter().chain(names).chain(&last).copied().collect();
    let mut table = Table::with(&heading);
    for rows in cases {
        let named = |name: &str| rows.iter().find(|row| row.config == name);
        let mut cells = place(&rows[0]);
        let mean = |name: &&str| named(name).map_or(String::new(), |row| time(row.mean_ns));
        cells.extend(names.iter().map(mean));
        if let Some(default) = named("default") {
            let ratios = [
                default.first_ratio_to_best,
                default.ratio_lowest,
                default.ratio_highest,
                default.ratio_to_best,
            ];
            let ratio = |r: Option<f64>| r.map_or(String::new(), |r| format!("{r:.2}"));
            cells.extend(ratios.map(ratio));
        }
        let fixed = rows.iter().filter(|row| row.is_fixed);
        cells.extend(
            fixed
                .min_by_key(|row| row.mean_ns)
                .map(|row| row.config.clone()),
        );
        table.row(cells);
    }
    table
}

fn place(row: &Row) -> Vec<String> {
    let spec = &row.spec;
    vec![
        spec.case.clone(),
        word(&spec.fabric),
        row.mode.to_owned(),
        word(&spec.pattern),
        bytes(spec.size_bytes as u64),
        bytes(spec.working_set_bytes),
        bytes(spec.memory_bytes),
        match &spec.shift {
            Some(shift) => format!("{} % {}", spec.load, word(shift)),
            None => format!("{:.0} %", row.load_found),
        },
        spec.clients.to_string(),
    ]
}

fn rows(rows: &[Row]) -> Table {
    let mut table = Table::new([
        "<case",
        "<fabric",
        "<mode",
        "<pattern",
        "=size",
        "=set",
        "=memory",
        "=load",
        "=clients",
        "=<config",
        "mean",
        "lowest",
        "highest",
        "p50",
        "p99",
        "cold",
        "client CPU",
        "server CPU",
        "cache",
        "direct",
        "rpc",
        "stale",
        "/ best",
    ]);
    for row in rows {
        let share = |n: u64| {
            let all = row.routes.cache_hits + row.routes.direct_hits + row.routes.rpc_reads;
            format!("{:.1} %", n as f64 * 100.0 / all.max(1) as f64)
        };
        let mut cells = place(row);
        cells.push(row.config.clone());
        cells.extend(
            [
                row.mean_ns,
                row.mean_lowest_ns,
                row.mean_highest_ns,
                row.p50_ns,
                row.p99_ns,
            ]
            .map(time),
        );
        cells.push(row.cold_mean_ns.map_or(String::new(), time));
        cells.extend([row.client_cpu_ns_per_read, row.server_cpu_ns_per_read].map(time));
        let routes = &row.routes;
        cells.extend(
            [
                routes.cache_hits,
                routes.direct_hits,
                routes.rpc_reads,
                routes.stale_hits,
            ]
            .map(share),
        );
        cells.push(
            row.ratio_to_best
                .map_or(String::new(), |r| format!("{r:.2}")),
        );
        table.row(cells);
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_case_that_was_skipped_is_a_failure() {
        assert!(unless_skipped(&[]).is_ok());
        let skipped = ["shm: no server".to_owned(), "tcp: no server".to_owned()];
        let error = unless_skipped(&skipped).unwrap_err().to_string();
        assert!(
            error.contains("2 cases") && error.contains("shm: no server"),
            "{error}"
        );
    }
}
