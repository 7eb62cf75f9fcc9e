//! `odafs bench designs`: compares the designs Read-Read and Read-Write ("Designing NFS with RDMA for Security, Performance
//! and Scalability", figures 5 and 6).

use anyhow::Result;
use odafs::RdmaDesign;
use serde::Serialize;

use super::{Case, Conditions, Operation, Rate, Report, Round, Setting, report};
use crate::machine::Machine;

/// The options of the bench.
#[derive(Clone, Debug)]
pub struct Plan {
    /// The options that all these benches have.
    pub conditions: Conditions,
    /// Numbers of callers, each on a connection of its own.
    pub threads: Vec<u32>,
    /// Size of a record in bytes.
    pub record_bytes: Vec<usize>,
}

/// The parameters of a row.
#[derive(Clone, Debug, Serialize)]
pub struct Spec {
    /// `read-read` or `read-write`.
    pub design: &'static str,
    /// Whether it reads or writes.
    pub operation: Operation,
    /// Number of callers.
    pub threads: u32,
    /// Size of a record in bytes.
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
    /// Number of replies that clients fetched from the server's memory in all rounds. 0 in the Read-Write design.
    pub fetched: u64,
}

impl Plan {
    /// The parameters of all rows.
    pub fn specs(&self) -> Vec<Spec> {
        let mut specs = Vec::new();
        for operation in [Operation::Read, Operation::Write] {
            for &record_bytes in &self.record_bytes {
                for &threads in &self.threads {
                    specs.extend(["read-read", "read-write"].map(|design| Spec {
                        design,
                        operation,
                        threads,
                        record_bytes,
                    }));
                }
            }
        }
        specs
    }
}

/// Both designs use the same server, which offers Read-Read. A client that does not ask for it gets Read-Write.
fn case(spec: &Spec, server: usize) -> Case {
    let design = match spec.design {
        "read-read" => RdmaDesign::ReadRead,
        _ => RdmaDesign::ReadWrite,
    };
    Case::by_design(
        design,
        server,
        spec.operation,
        spec.threads,
        spec.record_bytes,
    )
}

fn row(spec: Spec, rounds: &[Round]) -> Row {
    Row {
        spec,
        rate: Rate::of(rounds),
        fetched: rounds.iter().map(|round| round.counters.fetched).sum(),
    }
}

/// Measures all rows. It calls `tick` with the name of each before it measures it.
///
/// # Errors
/// A file could not be made, a server could not be started or reached, or a read or write failed.
pub fn run(plan: &Plan, mut tick: impl FnMut(&str)) -> Result<Report<Row>> {
    let machine = Machine::here();
    let mut setting = Setting::new(&plan.conditions)?;
    tick("starting and filling a server");
    let server = setting.start(false, &["--design", "read-read"], &mut tick)?;
    let specs = plan.specs().into_iter().map(|spec| {
        let case = case(&spec, server);
        (spec, case)
    });
    report(
        "designs",
        &plan.conditions,
        (machine, &setting),
        specs.collect(),
        &mut tick,
        row,
    )
}
