//! `odafs bench`: measurements.

use clap::Subcommand;

/// Measure
#[derive(Subcommand)]
pub enum Command {}

/// Measures.
pub fn run(command: Command) -> anyhow::Result<()> {
    match command {}
}
