//! The options and tables that the benches of throughput share.

use std::net::IpAddr;
use std::time::Duration;

use anyhow::{Result, bail};
use clap::Args;
use clap::builder::PossibleValuesParser;
use odafs_bench::process::Fabric;
use odafs_bench::rates::{Conditions, Rate, Report};
use odafs_bench::table::{Table, bytes, count, counted, time};
use odafs_server::memory;
use serde::Serialize;

use crate::{Usage, devices, output, units};

/// The options of each bench.
#[derive(Args)]
pub struct Common {
    /// Size of the file, which the server holds in memory
    #[arg(long, value_name = "SIZE", value_parser = units::size, default_value = "64MiB")]
    file_size: u64,
    /// Number of rounds; each measures every row once [default: 3, or fewer if --seconds leaves no time for them]
    #[arg(long, value_name = "N")]
    rounds: Option<u32>,
    /// Seconds for the whole run, approximately: half for the rows, half for files, servers and connections [default: a
    /// fifth of a second for a row in a round, and what the rest takes]
    #[arg(long, value_name = "N", value_parser = units::duration)]
    seconds: Option<Duration>,
    /// Print JSON instead of a table
    #[arg(long)]
    json: bool,
}

impl Common {
    /// Checks the options. The file must hold `records` of the longest records.
    pub fn check(&self, sizes: &[u64], records: u32) -> Result<()> {
        if self.rounds == Some(0) || sizes.contains(&0) {
            bail!(Usage("--rounds and --size: must be more than 0".to_owned()));
        }
        let longest = sizes.iter().max().copied().unwrap_or(0);
        if longest > 16 << 20 {
            bail!(Usage("--size: must be 16MiB or less".to_owned()));
        }
        if self.file_size < longest * u64::from(records) {
            bail!(Usage(format!(
                "--file-size: must be {} or more, for {records} records of {}",
                bytes(longest * u64::from(records)),
                bytes(longest)
            )));
        }
        Ok(())
    }

    /// The conditions of a bench with this many rows and servers.
    pub fn conditions(&self, rows: usize, servers: usize, rdma: Fabric) -> Result<Conditions> {
        Usage::unless_no_time("--seconds", self.seconds)?;
        Usage::unless_none("--rounds", self.rounds == Some(0))?;
        // Each server needs memory for its file, and for a cache of twice the size.
        check_memory(
            "--file-size",
            self.file_size,
            self.file_size.saturating_mul(3 * servers as u64),
        )?;
        let (rounds, time) = self.share(rows);
        Ok(Conditions {
            program: super::this_program()?,
            file_bytes: self.file_size,
            rounds,
            time,
            rdma,
        })
    }

    /// The number of rounds for this many rows, and the time for a row in each.
    fn share(&self, rows: usize) -> (u32, Duration) {
        match self.seconds {
            Some(all) => within(all, rows as u32, self.rounds, ROUNDS),
            None => (self.rounds.unwrap_or(ROUNDS), Duration::from_millis(200)),
        }
    }

    /// Measures and prints.
    pub fn run<R: Serialize>(
        &self,
        rows: usize,
        measure: impl FnOnce(&mut dyn FnMut(&str)) -> Result<Report<R>>,
        table: impl FnOnce(&[R]) -> Table,
    ) -> Result<()> {
        if let Some(given) = self.seconds {
            output::warn_if_short("--seconds", given, rows as u32, ROW_WANTS);
        }
        let report = measured(rows as u64 * u64::from(self.share(rows).0), measure)?;
        if self.json {
            return output::report(&report, &report.machine);
        }
        output::text(&format!(
            "{}\ncommit {}\nA file of {} in the server's memory; {}; the median of {} in turn\n\n",
            report.machine.sentence(),
            report.commit,
            bytes(report.file_bytes),
            report.placement,
            counted(report.rounds, "round")
        ))?;
        output::figures(&table(&report.rows))
    }
}

/// The default number of rounds.
const ROUNDS: u32 = 3;

/// The shortest time for a row in a round with which another round is worthwhile.
const ROW_LEAST: Duration = Duration::from_millis(50);

/// How much of the whole time a row needs for a meaningful figure and its spread: three rounds, and as much around them.
pub const ROW_WANTS: Duration = Duration::from_millis(300);

/// Fails if a bench needs more memory than this process can use, for files in memory and for the servers that hold them.
pub fn check_memory(option: &str, given: u64, needed: u64) -> Result<()> {
    match memory::available() {
        Some(available) if needed > available.bytes => bail!(
            "{option}: {} does not fit in memory: {} are needed, and this process can use {} ({}); name a smaller size",
            bytes(given),
            bytes(needed),
            bytes(available.bytes),
            available.bound
        ),
        _ => Ok(()),
    }
}

/// The number of rounds for this many rows (at most `most`, unless it is `given`) and the time for a row in each. Half of
/// `all` is left for files, servers and connections.
pub fn within(all: Duration, rows: u32, given: Option<u32>, most: u32) -> (u32, Duration) {
    let (half, rows) = (all / 2, rows.max(1));
    let fit = half.as_nanos() / (ROW_LEAST * rows).as_nanos();
    let rounds = given.unwrap_or_else(|| fit.clamp(1, most.into()) as u32);
    (rounds, half / (rows * rounds))
}

/// Which RDMA to use.
#[derive(Args)]
pub struct Over {
    /// RDMA over TCP, or an RDMA device of this machine
    #[arg(long, value_name = "F", value_parser = PossibleValuesParser::new(["tcp", "verbs"]), default_value = "tcp")]
    fabric: String,
    #[command(flatten)]
    device: DeviceAddress,
}

/// Which RDMA device.
#[derive(Args)]
pub struct DeviceAddress {
    /// IP address of the RDMA device's network interface, for verbs [default: the first device that has one]
    #[arg(long, value_name = "ADDR")]
    address: Option<IpAddr>,
}

impl Over {
    /// The fabric.
    pub fn fabric(&self) -> Result<Fabric> {
        match self.fabric.as_str() {
            "verbs" => self.device.fabric(),
            _ => Ok(Fabric::Iwarp),
        }
    }
}

impl DeviceAddress {
    /// The fabric of that device.
    pub fn fabric(&self) -> Result<Fabric> {
        Ok(Fabric::Verbs(self.address()?))
    }

    /// The address of the network interface of that device.
    pub fn address(&self) -> Result<IpAddr> {
        devices::address(self.address)
    }
}

/// The callers in the benches of the papers' figures.
#[derive(Args)]
pub struct Callers {
    /// Size of a record, 16MiB at most [may be repeated; default: 128KiB, 256KiB, 512KiB and 1MiB]
    #[arg(long, value_name = "SIZE", value_parser = units::size)]
    size: Vec<u64>,
    /// Number of threads that read or write, 1 to 64 [may be repeated; default: 1, 2, 4 and 8]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=64))]
    threads: Vec<u32>,
}

impl Callers {
    /// Sizes of a record in bytes and numbers of threads: the given ones, or those of the paper. The file must hold a
    /// record for each thread.
    pub fn checked(&self, common: &Common) -> Result<(Vec<usize>, Vec<u32>)> {
        let sizes = match self.size.is_empty() {
            true => vec![128 << 10, 256 << 10, 512 << 10, 1 << 20],
            false => self.size.clone(),
        };
        let threads = match self.threads.is_empty() {
            true => vec![1, 2, 4, 8],
            false => self.threads.clone(),
        };
        let most = threads.iter().max().copied().unwrap_or(1);
        common.check(&sizes, most)?;
        Ok((sizes.iter().map(|&size| size as usize).collect(), threads))
    }
}

/// Measures, and shows progress on stderr.
pub fn measured<R>(
    steps: u64,
    measure: impl FnOnce(&mut dyn FnMut(&str)) -> Result<R>,
) -> Result<R> {
    let progress = output::step_progress(steps, "");
    let report = measure(&mut |what| {
        progress.set_message(what.to_owned());
        progress.inc(u64::from(what.starts_with("round")));
    })?;
    progress.finish_and_clear();
    Ok(report)
}

/// The headings of [`cells`].
pub const RATE: [&str; 6] = [
    "MiB/s",
    "lowest",
    "highest",
    "records",
    "client CPU/MiB",
    "server CPU/MiB",
];

/// The cells of a rate in a table.
pub fn cells(rate: &Rate) -> [String; 6] {
    let figures = [
        rate.mib_per_second,
        rate.mib_per_second_lowest,
        rate.mib_per_second_highest,
    ];
    let [median, lowest, highest] = figures.map(|n| format!("{n:.1}"));
    [
        median,
        lowest,
        highest,
        count(rate.operations),
        time(rate.client_cpu_ns_per_mib),
        time(rate.server_cpu_ns_per_mib),
    ]
}

/// The word for an operation.
pub fn word(operation: odafs_bench::rates::Operation) -> String {
    format!("{operation:?}").to_lowercase()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn half_of_the_time_is_for_the_rows_in_as_many_rounds_as_are_worth_while() {
        let seconds = Duration::from_secs;
        assert_eq!(within(seconds(5), 60, None, 5), (1, seconds(5) / 120));
        assert_eq!(within(seconds(60), 60, None, 5), (5, seconds(60) / 600));
        assert_eq!(within(seconds(18), 60, None, 5), (3, seconds(18) / 360));
        assert_eq!(within(seconds(5), 60, Some(4), 5), (4, seconds(5) / 480));
        assert_eq!(within(seconds(1), 0, None, 3), (3, seconds(1) / 6));
    }
}
