//! Throughput: `odafs bench throughput`, `designs`, `registration` and `credits`.
//!
//! Each row is a [`Case`]: callers that read or write a file of their server in order, for a while. The cases take turns,
//! each once in a round and on new connections. A row has the medians of its rounds.

pub mod credits;
pub mod designs;
mod load;
pub mod registration;
pub mod revocation;
mod setting;
pub mod throughput;

use std::path::PathBuf;
use std::time::Duration;

use anyhow::Result;
use odafs_fabric::verbs;
use serde::Serialize;

pub use load::{Operation, Round};
pub use setting::{Case, RdmaCounters, Setting};

use crate::histogram::median;
use crate::machine::{Machine, commit};
use crate::process::Fabric;

const MIB: f64 = (1 << 20) as f64;

/// The common options of these benches.
#[derive(Clone, Debug)]
pub struct Conditions {
    /// The program `odafs`, for servers in processes of their own.
    pub program: PathBuf,
    /// Size of each server's file in bytes.
    pub file_bytes: u64,
    /// Number of rounds.
    pub rounds: u32,
    /// Time for a row in a round.
    pub time: Duration,
    /// The fabric of RPC-over-RDMA: `tcp`, or a device.
    pub rdma: Fabric,
}

/// The result of these benches, as they print it in JSON.
#[derive(Clone, Debug, Serialize)]
pub struct Report<R> {
    /// The machine that it ran on.
    pub machine: Machine,
    /// The commit that the program was built from.
    pub commit: &'static str,
    /// The name of the bench.
    pub bench: &'static str,
    /// Where client and server ran, as a sentence.
    pub placement: String,
    /// Size of the file in bytes.
    pub file_bytes: u64,
    /// Number of rounds.
    pub rounds: u32,
    /// The rows.
    pub rows: Vec<R>,
}

/// Throughput and costs, as medians of the rounds.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Rate {
    /// The rate in MiB per second.
    pub mib_per_second: f64,
    /// The rate of the slowest round.
    pub mib_per_second_lowest: f64,
    /// The rate of the fastest round.
    pub mib_per_second_highest: f64,
    /// Number of records read or written in all rounds.
    pub operations: u64,
    /// CPU time of the client for a MiB, in nanoseconds.
    pub client_cpu_ns_per_mib: u64,
    /// CPU time of the server for a MiB, in nanoseconds.
    pub server_cpu_ns_per_mib: u64,
}

impl Rate {
    fn of(rounds: &[Round]) -> Self {
        let rates = || rounds.iter().map(Round::bytes_per_second);
        let mib = |bytes: u64| (bytes as f64 / MIB * 100.0).round() / 100.0;
        Self {
            mib_per_second: mib(median(rates())),
            mib_per_second_lowest: mib(rates().min().unwrap_or(0)),
            mib_per_second_highest: mib(rates().max().unwrap_or(0)),
            operations: rounds.iter().map(|round| round.operations).sum(),
            client_cpu_ns_per_mib: median(rounds.iter().map(|r| r.per_mib(r.client_cpu_ns))),
            server_cpu_ns_per_mib: median(rounds.iter().map(|r| r.per_mib(r.server_cpu_ns))),
        }
    }
}

/// Measures all cases in turn, and makes a row of each case.
fn report<S, R>(
    bench: &'static str,
    conditions: &Conditions,
    (machine, setting): (Machine, &Setting),
    specs: Vec<(S, Case)>,
    tick: &mut impl FnMut(&str),
    row: impl Fn(S, &[Round]) -> R,
) -> Result<Report<R>> {
    let mut rounds: Vec<Vec<Round>> = vec![Vec::new(); specs.len()];
    for number in 1..=conditions.rounds {
        for (place, ((_, case), rounds)) in specs.iter().zip(&mut rounds).enumerate() {
            tick(&format!(
                "round {number}: {bench} {} of {}",
                place + 1,
                specs.len()
            ));
            rounds.push(setting.measure(case)?);
        }
    }
    let rows = specs.into_iter().zip(&rounds);
    Ok(Report {
        machine,
        commit: commit(),
        bench,
        placement: setting.placement(),
        file_bytes: conditions.file_bytes,
        rounds: conditions.rounds,
        rows: rows.map(|((spec, _), rounds)| row(spec, rounds)).collect(),
    })
}

/// Whether it is an RDMA device.
fn device(fabric: Fabric) -> Option<verbs::Device> {
    let Fabric::Verbs(address) = fabric else {
        return None;
    };
    verbs::devices().ok()?.into_iter().find(|device| {
        let mut ports = device.ports.iter();
        ports.any(|port| port.addresses.contains(&address))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rate_is_the_median_of_its_rounds() {
        let round = |mib: u64, seconds: u64| Round {
            bytes: mib << 20,
            operations: mib,
            elapsed_ns: seconds * 1_000_000_000,
            client_cpu_ns: 500 * mib,
            server_cpu_ns: 0,
            ..Round::default()
        };
        let rate = Rate::of(&[round(10, 1), round(60, 2), round(20, 1)]);
        assert_eq!(rate.mib_per_second, 20.0);
        assert_eq!(
            (rate.mib_per_second_lowest, rate.mib_per_second_highest),
            (10.0, 30.0)
        );
        assert_eq!((rate.operations, rate.client_cpu_ns_per_mib), (90, 500));
        // Avoids a division by 0 if nothing was measured.
        assert_eq!(Rate::of(&[Round::default()]).mib_per_second, 0.0);
    }
}
