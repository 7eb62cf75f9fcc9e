//! How much goes through: `odafs bench throughput`, `designs`, `registration` and `credits`.
//!
//! Each row is a [`Case`]: callers who read or write a file of their server's one after the other, for a while. Cases
//! are measured in turn, each once a round and on new connections; a row is the median of its rounds.

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
pub use setting::{Case, Counters, Setting};

use crate::histogram::median;
use crate::machine::{Machine, commit};
use crate::process::Fabric;

const MIB: f64 = (1 << 20) as f64;

/// The common options of these benches.
#[derive(Clone, Debug)]
pub struct Conditions {
    /// The program `odafs`, for servers in processes of their own.
    pub program: PathBuf,
    /// Bytes of each server's file.
    pub file_bytes: u64,
    /// How often each row is measured.
    pub rounds: u32,
    /// Time for a row in a round.
    pub time: Duration,
    /// The fabric that RPC-over-RDMA goes by: `tcp`, or a device.
    pub rdma: Fabric,
}

/// What these benches print as JSON.
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
    /// Bytes of the file.
    pub file_bytes: u64,
    /// How often each row was measured.
    pub rounds: u32,
    /// The rows.
    pub rows: Vec<R>,
}

/// The throughput and its costs: the medians of the rounds.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Rate {
    /// 2^20 bytes a second.
    pub mib_per_second: f64,
    /// The slowest round.
    pub mib_per_second_lowest: f64,
    /// The fastest.
    pub mib_per_second_highest: f64,
    /// Records read or written, in all rounds together.
    pub operations: u64,
    /// CPU time of the client for 2^20 bytes, in nanoseconds.
    pub client_cpu_ns_per_mib: u64,
    /// That of the server.
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

/// Measures all cases in turn, and makes a row of the rounds of each.
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

/// The RDMA device, if it is one.
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
        // Nothing measured is no division by nothing.
        assert_eq!(Rate::of(&[Round::default()]).mib_per_second, 0.0);
    }
}
