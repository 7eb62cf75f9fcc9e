//! `odafs bench throughput`: sequential reads and writes over each fabric, by record size and requests in flight ("NFS over
//! RDMA", figures 15 to 18).

use anyhow::Result;
use odafs::Rdma;
use serde::Serialize;

use super::{Case, Conditions, Operation, Rate, Report, Round, Setting, report};
use crate::machine::Machine;

/// The fabrics: NFS over TCP, shared memory, and RPC-over-RDMA by iWARP over TCP and by a device.
pub const FABRICS: [&str; 4] = ["nfs", "shm", "tcp", "verbs"];

/// The options of the bench.
#[derive(Clone, Debug)]
pub struct Plan {
    /// The options that all these benches have.
    pub conditions: Conditions,
    /// Some of [`FABRICS`].
    pub fabrics: Vec<&'static str>,
    /// Whether to read, to write, or both.
    pub operations: Vec<Operation>,
    /// Size of a record in bytes.
    pub record_bytes: Vec<usize>,
    /// Number of further requests under way beside the one for which the caller waits.
    pub read_ahead: Vec<u32>,
    /// `spin`, `block`.
    pub waits: Vec<&'static str>,
}

/// The parameters of a row.
#[derive(Clone, Debug, Serialize)]
pub struct Spec {
    /// One of [`FABRICS`].
    pub fabric: &'static str,
    /// Whether it reads or writes.
    pub operation: Operation,
    /// How both sides wait.
    pub wait: &'static str,
    /// Size of a record in bytes.
    pub record_bytes: usize,
    /// Further requests under way with the one that is waited for.
    pub read_ahead: u32,
}

/// A row of the result.
#[derive(Clone, Debug, Serialize)]
pub struct Row {
    /// The parameters of the row.
    #[serde(flatten)]
    pub spec: Spec,
    /// Calls for a record, all of which are under way together.
    pub calls_per_record: f64,
    /// The figures of the row.
    #[serde(flatten)]
    pub rate: Rate,
}

impl Plan {
    /// How many servers the rows need, each with a file of its own.
    pub fn servers(&self) -> usize {
        self.waits.len()
    }

    /// The parameters of all rows.
    pub fn specs(&self) -> Vec<Spec> {
        let mut specs = Vec::new();
        for &operation in &self.operations {
            for &wait in &self.waits {
                for &read_ahead in &self.read_ahead {
                    for &record_bytes in &self.record_bytes {
                        specs.extend(self.fabrics.iter().map(|&fabric| Spec {
                            fabric,
                            operation,
                            wait,
                            record_bytes,
                            read_ahead,
                        }));
                    }
                }
            }
        }
        specs
    }
}

impl Spec {
    /// Reads go as a batch on one connection. A write returns when it is done, so each write has a thread and a connection
    /// of its own.
    fn case(&self, server: usize) -> Case {
        let in_flight = self.read_ahead + 1;
        let (threads, depth) = match self.operation {
            Operation::Read => (1, in_flight),
            Operation::Write => (in_flight, 1),
        };
        Case {
            server,
            fabric: self.fabric,
            rdma: Rdma::default(),
            spins: self.wait == "spin",
            clients: 1,
            threads,
            operation: self.operation,
            record_bytes: self.record_bytes,
            depth,
        }
    }
}

/// Measures all rows. It calls `tick` with the name of each before it measures it.
///
/// # Errors
/// A file could not be made, a server could not be started or reached, or a read or write failed.
pub fn run(plan: &Plan, mut tick: impl FnMut(&str)) -> Result<Report<Row>> {
    let machine = Machine::here();
    let mut setting = Setting::new(&plan.conditions)?;
    let mut servers = Vec::new();
    for &wait in &plan.waits {
        tick("starting and filling a server");
        servers.push((wait, setting.start(wait == "spin", &[], &mut tick)?));
    }
    let specs = plan.specs().into_iter().filter_map(|spec| {
        let (_, server) = servers.iter().find(|(wait, _)| *wait == spec.wait)?;
        let case = spec.case(*server);
        Some((spec, case))
    });
    report(
        "throughput",
        &plan.conditions,
        (machine, &setting),
        specs.collect(),
        &mut tick,
        |spec, rounds| Row {
            spec,
            calls_per_record: Round::calls_per_record(rounds),
            rate: Rate::of(rounds),
        },
    )
}
