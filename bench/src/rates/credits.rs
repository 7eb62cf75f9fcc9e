//! `odafs bench credits`: throughput and fairness of adaptive and fixed credits ("Optimizing OpenSolaris NFS over RDMA",
//! section 5.1).

use anyhow::Result;
use odafs::{Rdma, RdmaCredits};
use serde::Serialize;

use super::{Case, Conditions, Operation, Rate, Report, Round, Setting, report};
use crate::machine::Machine;

/// The options of the bench.
#[derive(Clone, Debug)]
pub struct Plan {
    /// The options that all these benches have.
    pub conditions: Conditions,
    /// Fixed numbers of credits. Adaptive credits are always measured beside them.
    pub fixed: Vec<u32>,
    /// Numbers of clients, each with one connection.
    pub clients: Vec<u32>,
    /// Numbers of reads that each client has under way if it has the credits.
    pub in_flight: u32,
    /// Bytes of a read.
    pub record_bytes: usize,
}

/// The parameters of a row.
#[derive(Clone, Debug, Serialize)]
pub struct Spec {
    /// A number of credits or `adaptive`, at both ends.
    pub credits: String,
    /// Number of clients.
    pub clients: u32,
    /// Reads that each client has under way if it has the credits.
    pub in_flight: u32,
    /// Bytes of a read.
    pub record_bytes: usize,
}

/// A row of the result.
#[derive(Clone, Debug, Serialize)]
pub struct Row {
    /// The parameters of the row.
    #[serde(flatten)]
    pub spec: Spec,
    /// The figures of the row.
    #[serde(flatten)]
    pub rate: Rate,
    /// Jain's index of the clients' rates in the least fair round: 1 if all rates are equal, 1/n if one client got
    /// everything.
    pub fairness: f64,
    /// The slowest client's part of a fair share, in the least fair round.
    pub slowest_share: f64,
}

/// Jain's index: the square of the sum, divided by n times the sum of the squares. 1 for no values.
fn jain(rates: &[u64]) -> f64 {
    let sum: f64 = rates.iter().map(|&r| r as f64).sum();
    let squares: f64 = rates.iter().map(|&r| (r as f64).powi(2)).sum();
    if squares == 0.0 {
        return 1.0;
    }
    sum * sum / (rates.len() as f64 * squares)
}

fn slowest(rates: &[u64]) -> f64 {
    let sum: u64 = rates.iter().sum();
    let least = rates.iter().min().copied().unwrap_or(0);
    if sum == 0 {
        return 1.0;
    }
    least as f64 * rates.len() as f64 / sum as f64
}

impl Plan {
    /// The names of the ways to grant credits.
    fn names(&self) -> Vec<String> {
        let fixed = self.fixed.iter().map(u32::to_string);
        fixed.chain(["adaptive".to_owned()]).collect()
    }

    /// How many servers the rows need, each with a file of its own.
    pub fn servers(&self) -> usize {
        self.names().len()
    }

    /// The parameters of all rows.
    pub fn specs(&self) -> Vec<Spec> {
        let mut specs = Vec::new();
        for &clients in &self.clients {
            specs.extend(self.names().into_iter().map(|credits| Spec {
                credits,
                clients,
                in_flight: self.in_flight,
                record_bytes: self.record_bytes,
            }));
        }
        specs
    }
}

fn case(spec: &Spec, server: usize) -> Case {
    let credits = match spec.credits.parse() {
        Ok(credits) => RdmaCredits::Fixed(credits),
        Err(_) => RdmaCredits::Adaptive,
    };
    Case {
        server,
        fabric: "rdma",
        rdma: Rdma {
            credits,
            ..Rdma::default()
        },
        spins: false,
        clients: spec.clients,
        threads: 1,
        operation: Operation::Read,
        record_bytes: spec.record_bytes,
        depth: spec.in_flight,
    }
}

fn row(spec: Spec, rounds: &[Round]) -> Row {
    let least = |of: fn(&[u64]) -> f64| {
        let values = rounds.iter().map(|round| of(&round.by_caller));
        (values.fold(1.0, f64::min) * 1000.0).round() / 1000.0
    };
    Row {
        spec,
        rate: Rate::of(rounds),
        fairness: least(jain),
        slowest_share: least(slowest),
    }
}

/// Measures all rows. It calls `tick` with the name of each before it measures it.
///
/// # Errors
/// A file could not be made, a server could not be started or reached, or a read failed.
pub fn run(plan: &Plan, mut tick: impl FnMut(&str)) -> Result<Report<Row>> {
    let machine = Machine::here();
    let mut setting = Setting::new(&plan.conditions)?;
    let mut servers = Vec::new();
    for credits in plan.names() {
        tick(&format!(
            "starting and filling a server ({credits} credits)"
        ));
        let server = setting.start(false, &["--credits", &credits], &mut tick)?;
        servers.push((credits, server));
    }
    let specs = plan.specs().into_iter().filter_map(|spec| {
        let (_, server) = servers.iter().find(|(name, _)| *name == spec.credits)?;
        let case = case(&spec, *server);
        Some((spec, case))
    });
    report(
        "credits",
        &plan.conditions,
        (machine, &setting),
        specs.collect(),
        &mut tick,
        row,
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fairness_of_equal_and_of_one_sided_shares() {
        assert_eq!((jain(&[5, 5, 5]), slowest(&[5, 5, 5])), (1.0, 1.0));
        assert_eq!((jain(&[8, 0, 0, 0]), slowest(&[8, 0, 0, 0])), (0.25, 0.0));
        assert_eq!((jain(&[]), slowest(&[0, 0])), (1.0, 1.0));
        assert!((slowest(&[1, 3]) - 0.5).abs() < 1e-9);
    }
}
