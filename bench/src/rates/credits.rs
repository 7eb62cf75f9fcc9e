//! `odafs bench credits`: adaptive credits against fixed ones, throughput and fairness ("Optimizing OpenSolaris NFS over
//! RDMA", section 5.1).

use anyhow::Result;
use odafs::{Rdma, RdmaCredits};
use serde::Serialize;

use super::{Case, Conditions, Operation, Rate, Report, Round, Setting, report};
use crate::machine::Machine;

/// What is measured.
#[derive(Clone, Debug)]
pub struct Plan {
    /// The rest.
    pub conditions: Conditions,
    /// Fixed numbers of credits; adaptive ones are always measured beside them.
    pub fixed: Vec<u32>,
    /// How many clients there are, each with one connection.
    pub clients: Vec<u32>,
    /// Reads that each would have under way, had it the credits.
    pub in_flight: u32,
    /// Bytes of a read.
    pub record_bytes: usize,
}

/// What a row measures.
#[derive(Clone, Debug, Serialize)]
pub struct Spec {
    /// A number, or `adaptive`; at both ends.
    pub credits: String,
    /// How many clients there are.
    pub clients: u32,
    /// Reads that each would have under way.
    pub in_flight: u32,
    /// Bytes of a read.
    pub record_bytes: usize,
}

/// A row.
#[derive(Clone, Debug, Serialize)]
pub struct Row {
    /// What the row measures.
    #[serde(flatten)]
    pub spec: Spec,
    /// Its figures.
    #[serde(flatten)]
    pub rate: Rate,
    /// Jain's index of the clients' rates, the least fair round: 1 if all got the same, 1/n if one got everything.
    pub fairness: f64,
    /// What the slowest client got of a fair share, in the least fair round.
    pub slowest_share: f64,
}

/// Jain's index: the square of the sum by n times the sum of the squares; 1 of nothing.
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
    /// Names of the ways to give credits.
    fn names(&self) -> Vec<String> {
        let fixed = self.fixed.iter().map(u32::to_string);
        fixed.chain(["adaptive".to_owned()]).collect()
    }

    /// How many servers they need, each with a file of its own.
    pub fn servers(&self) -> usize {
        self.names().len()
    }

    /// The rows.
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

/// Measures. `tick` hears what is measured next.
///
/// # Errors
/// A file could not be made, a server not started or not reached, a read failed.
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
