//! `odafs bench`: measurements.

mod breakdown;
mod cold;
mod convert;
mod credits;
mod designs;
mod distribution;
mod fairness;
mod latency;
mod load;
mod metadata;
mod mixed;
mod peers;
mod policy;
mod rates;
mod registration;
mod replay;
mod report;
mod scale;
mod simulate;
mod soak;
mod throughput;

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context as _, Result};
use clap::{Args, Subcommand};
use odafs_bench::machine::Machine;
use odafs_bench::scratch;
use serde::Serialize;

use crate::unfinished::Unfinished;
use crate::{Usage, output, units};

/// Measure latency, throughput, scaling and coherence, and draw the results
#[derive(Subcommand)]
#[command(
    after_help = "Figures change with the machine and its load: compare only rows of the same run, by their ratios.
For a quick look, use `odafs demo`; these benches take longer, and measure each row in rounds.

Examples:
  odafs bench latency --seconds 20
  odafs bench report all.html --quick"
)]
pub enum Command {
    Latency(latency::Arguments),
    Breakdown(breakdown::Arguments),
    Throughput(throughput::Arguments),
    Designs(designs::Arguments),
    Registration(registration::Arguments),
    Credits(credits::Arguments),
    Fairness(fairness::Arguments),
    Load(load::Arguments),
    Distribution(distribution::Arguments),
    Cold(cold::Arguments),
    Scale(scale::Arguments),
    Simulate(simulate::Arguments),
    Mixed(mixed::Arguments),
    Soak(soak::Arguments),
    Metadata(metadata::Arguments),
    Peers(peers::Arguments),
    Policy(policy::Arguments),
    Replay(replay::Arguments),
    Convert(convert::Arguments),
    Report(report::Arguments),
}

/// Runs the command.
pub fn run(command: Command) -> Result<()> {
    let scratch = Unfinished::new(scratch::remove_all)?;
    let done = measure(command);
    scratch.forget();
    done
}

fn measure(command: Command) -> Result<()> {
    match command {
        Command::Latency(arguments) => latency::run(arguments),
        Command::Breakdown(arguments) => breakdown::run(arguments),
        Command::Throughput(arguments) => throughput::run(arguments),
        Command::Designs(arguments) => designs::run(arguments),
        Command::Registration(arguments) => registration::run(arguments),
        Command::Credits(arguments) => credits::run(arguments),
        Command::Fairness(arguments) => fairness::run(arguments),
        Command::Load(arguments) => load::run(arguments),
        Command::Distribution(arguments) => distribution::run(arguments),
        Command::Cold(arguments) => cold::run(arguments),
        Command::Mixed(arguments) => mixed::run(arguments),
        Command::Soak(arguments) => soak::run(arguments),
        Command::Metadata(arguments) => metadata::run(arguments),
        Command::Scale(arguments) => scale::run(arguments),
        Command::Simulate(arguments) => simulate::run(arguments),
        Command::Replay(arguments) => replay::run(arguments),
        Command::Convert(arguments) => convert::run(arguments),
        Command::Report(arguments) => report::run(arguments),
        Command::Peers(arguments) => peers::run(arguments),
        Command::Policy(arguments) => policy::run(arguments),
    }
}

/// Fails if `--fabric` leaves nothing to measure.
fn must_be_left(what: &str, is_left: bool) -> Result<(), Usage> {
    match is_left {
        true => Ok(()),
        false => Err(Usage(format!(
            "no {what} is left: the plan has none over this fabric; name another with --fabric, or another --plan"
        ))),
    }
}

/// This program, which a bench starts again as a server or a client.
fn this_program() -> Result<PathBuf> {
    std::env::current_exe().context("cannot find this program")
}

/// The options of a bench that follows a plan.
#[derive(Args)]
struct Planned {
    /// Follow the plan in this file [default: the built-in plan]
    #[arg(long, value_name = "FILE.toml")]
    plan: Option<PathBuf>,
    /// Seconds for the whole run, approximately [default: what the plan asks for]
    #[arg(long, value_name = "N", value_parser = units::duration)]
    seconds: Option<Duration>,
    /// Print JSON instead of a table
    #[arg(long)]
    json: bool,
}

impl Planned {
    /// The plan in the file, or the built-in one. Refuses options that leave no time.
    fn plan<P>(
        &self,
        built_in: impl FnOnce() -> Result<P>,
        parse: impl FnOnce(&str) -> Result<P>,
    ) -> Result<P> {
        Usage::unless_no_time("--seconds", self.seconds)?;
        plan(self.plan.as_deref(), built_in, parse)
    }

    /// Prints a report as JSON, or by `print`.
    fn show<R: Serialize>(
        &self,
        report: &R,
        machine: &Machine,
        print: impl FnOnce(&R) -> Result<()>,
    ) -> Result<()> {
        match self.json {
            true => output::report(report, machine),
            false => print(report),
        }
    }
}

/// The plan in a file, or the built-in one.
fn plan<P>(
    file: Option<&Path>,
    built_in: impl FnOnce() -> Result<P>,
    parse: impl FnOnce(&str) -> Result<P>,
) -> Result<P> {
    let Some(path) = file else {
        return built_in();
    };
    let name = path.display();
    let text = std::fs::read_to_string(path).with_context(|| format!("cannot read {name}"))?;
    parse(&text).map_err(|error| Usage(format!("{name}: {error}")).into())
}
