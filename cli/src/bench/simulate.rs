//! `odafs bench simulate`.

use std::path::PathBuf;

use anyhow::{Context as _, Result, bail};
use clap::Args;
use odafs_bench::simulate::{self, Plan, Report, Row};
use odafs_bench::table::{Table, bytes, count, time};

use super::Planned;
use crate::{Usage, output};

/// Simulate what one machine cannot show: thousands of clients, terabytes and fast links
#[derive(Args)]
#[command(after_help = "Examples:
  odafs bench simulate                           the whole plan, less than a minute
  odafs bench simulate --case links --case cores
  odafs bench simulate --plan mine.toml          other costs, links, clients
  odafs bench scale --most 64 --json >scale.json
  odafs bench simulate --case \"one machine\" --against scale.json

This measures nothing. A model has up to 10,000 clients, each with one read under way, which queue
for the server's processors, its adapter and its link. The plan has the cost of each step:
`measured` is this code with iWARP in software over TCP; `published` is hardware, by figures that
others have published. A direct read that is refused takes one more call, and so does one for
whose reference the client has no memory. `limit` names what bounds the rate. The same seed gives
the same figures.

--against compares the model with the rates that `odafs bench scale` has measured on this machine.

The built-in plan is bench/plans/simulate.toml in the sources. docs/SIMULATION.md describes the
model and what it leaves out.")]
pub struct Arguments {
    /// Simulate only this case of the plan [may be repeated]
    #[arg(long, value_name = "NAME")]
    case: Vec<String>,
    /// Compare with this file, the output of `odafs bench scale --json`, for equal numbers of clients
    #[arg(long, value_name = "FILE")]
    against: Option<PathBuf>,
    #[command(flatten)]
    planned: Planned,
}

/// Runs the command.
pub fn run(arguments: Arguments) -> Result<()> {
    let mut plan = arguments.planned.plan(Plan::built_in, Plan::parse)?;
    let known = |name: &String| plan.cases.iter().any(|case| case.name == *name);
    if let Some(name) = arguments.case.iter().find(|name| !known(name)) {
        let cases: Vec<&str> = plan.cases.iter().map(|case| &*case.name).collect();
        bail!(Usage(format!(
            "--case {name}: the plan has no such case; it has {}",
            cases.join(", ")
        )));
    }
    plan.keep(&arguments.case);
    if let Some(seconds) = arguments.planned.seconds {
        plan.fit(seconds);
    }
    let measured = match &arguments.against {
        Some(path) => {
            let name = path.display();
            let text = std::fs::read(path).with_context(|| format!("cannot read {name}"))?;
            Some(serde_json::from_slice(&text).with_context(|| format!("{name} is not JSON"))?)
        }
        None => None,
    };
    let progress = output::step_progress(plan.rows()?.len() as u64, "");
    let mut report = simulate::run(&plan, || progress.inc(1))?;
    progress.finish_and_clear();
    if let Some(measured) = measured {
        simulate::compare(&mut report.rows, &measured).context("--against")?;
    }
    match arguments.planned.json {
        true => output::json(&report),
        false => print(&report),
    }
}

fn print(report: &Report) -> Result<()> {
    output::text(&format!(
        "Simulated: nothing was measured. Commit {}, seed {}; costs:\n",
        report.commit, report.seed
    ))?;
    for costs in &report.costs {
        output::text(&format!("  {}: {}\n", costs.name, costs.source))?;
    }
    output::text("\n")?;
    output::figures(&table(&report.rows))
}

fn table(rows: &[Row]) -> Table {
    let compared = rows.iter().any(|row| row.measured_reads_per_s.is_some());
    let heading = [
        "<case",
        "<costs",
        "<route",
        "=size",
        "=link",
        "=cores",
        "=stale",
        "=cache",
        "=clients",
        "reads/s",
        "p50",
        "p99",
        "server CPU",
        "link use",
        "<limit",
    ];
    let compare: &[&str] = match compared {
        true => &["measured", "simulated / measured"],
        false => &[],
    };
    let mut table = Table::with(&[&heading, compare].concat());
    let percent = |part: f64| format!("{:.0} %", part * 100.0);
    for row in rows {
        let spec = &row.spec;
        let mut cells = vec![
            spec.case.clone(),
            spec.costs.clone(),
            spec.route.name().to_owned(),
            bytes(spec.size_bytes),
            match spec.link_gbit {
                0.0 => "none".to_owned(),
                gbit => format!("{gbit} Gbit/s"),
            },
            spec.cores.to_string(),
            format!("{} %", spec.stale_percent),
            bytes(spec.cache_bytes),
            count(spec.clients.into()),
            count(row.reads_per_s as u64),
            time(row.p50_ns),
            time(row.p99_ns),
            percent(row.server_cpu),
            percent(row.link_use),
            row.limit.to_owned(),
        ];
        if compared {
            let measured = row.measured_reads_per_s.map(|rate| count(rate as u64));
            let ratio = row.simulated_to_measured.map(|ratio| format!("{ratio:.2}"));
            cells.extend([measured, ratio].map(Option::unwrap_or_default));
        }
        table.row(cells);
    }
    table
}
