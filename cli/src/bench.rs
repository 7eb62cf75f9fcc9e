//! `odafs bench`: measurements.

mod breakdown;
mod credits;
mod designs;
mod fairness;
mod latency;
mod peers;
mod policy;
mod rates;
mod registration;
mod report;
mod throughput;

use anyhow::Result;
use clap::Subcommand;

/// Measure
#[derive(Subcommand)]
#[command(
    after_help = "Figures drift with the machine: only ratios of rows of one run say much.
`odafs demo` is the quick look; these take longer and are careful."
)]
pub enum Command {
    Latency(latency::Arguments),
    Breakdown(breakdown::Arguments),
    Throughput(throughput::Arguments),
    Designs(designs::Arguments),
    Registration(registration::Arguments),
    Credits(credits::Arguments),
    Fairness(fairness::Arguments),
    Peers(peers::Arguments),
    Policy(policy::Arguments),
    Report(report::Arguments),
}

/// Measures.
pub fn run(command: Command) -> Result<()> {
    match command {
        Command::Latency(arguments) => latency::run(arguments),
        Command::Breakdown(arguments) => breakdown::run(arguments),
        Command::Throughput(arguments) => throughput::run(arguments),
        Command::Designs(arguments) => designs::run(arguments),
        Command::Registration(arguments) => registration::run(arguments),
        Command::Credits(arguments) => credits::run(arguments),
        Command::Fairness(arguments) => fairness::run(arguments),
        Command::Report(arguments) => report::run(arguments),
        Command::Peers(arguments) => peers::run(arguments),
        Command::Policy(arguments) => policy::run(arguments),
    }
}
