//! `odafs bench designs`: the Read-Read design against Read-Write ("Designing NFS with RDMA for Security, Performance and
//! Scalability", figures 5 and 6).

use anyhow::Result;
use odafs::RdmaDesign;
use serde::Serialize;

use super::{Case, Conditions, Operation, Rate, Report, Round, Setting, report};
use crate::machine::Machine;

/// What is measured.
#[derive(Clone, Debug)]
pub struct Plan {
    /// The rest.
    pub conditions: Conditions,
    /// Callers, each on a connection of its own.
    pub threads: Vec<u32>,
    /// Bytes of a record.
    pub record_bytes: Vec<usize>,
}

/// What a row measures.
#[derive(Clone, Debug, Serialize)]
pub struct Spec {
    /// `read-read` or `read-write`.
    pub design: &'static str,
    /// Reads or writes.
    pub operation: Operation,
    /// Callers.
    pub threads: u32,
    /// Bytes of a record.
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
    /// Replies that clients fetched from the server's memory, in all rounds: none in the Read-Write design.
    pub fetched: u64,
}

impl Plan {
    /// The rows.
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

/// Both designs have one server: a client that does not ask for Read-Read gets Read-Write.
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

/// Measures. `tick` hears what is measured next.
///
/// # Errors
/// A file could not be made, a server not started or not reached, a read or write failed.
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
