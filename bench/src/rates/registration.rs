//! `odafs bench registration`: the four strategies of registering memory, on an RDMA device or with a cost model of
//! hardware ("Designing NFS with RDMA for Security, Performance and Scalability", figures 10 to 15).

use std::time::Duration;

use anyhow::Result;
use odafs::RdmaDesign;
use serde::Serialize;

use super::{Case, Conditions, Operation, Rate, Report, Round, Setting, device, report};
use crate::histogram::median;
use crate::machine::Machine;
use crate::process::Fabric;

/// The strategies of the server, by their names in `odafs serve --registration`.
pub const STRATEGIES: [&str; 4] = ["per-operation", "pooled", "cached", "all-physical"];

/// A further strategy, on devices with on-demand paging: registration for each call, of memory whose pages are not pinned.
const ON_DEMAND: &str = "on-demand";

/// The options of the bench.
#[derive(Clone, Debug)]
pub struct Plan {
    /// The options that all these benches have.
    pub conditions: Conditions,
    /// Numbers of callers, each on a connection of its own.
    pub threads: Vec<u32>,
    /// Size of a record in bytes.
    pub record_bytes: Vec<usize>,
    /// The time that the server's engine spends on each registration over TCP. A device has costs of its own.
    pub costs: Costs,
    /// Whether the device offers on-demand paging.
    pub on_demand: bool,
}

/// The costs of registration. Software RDMA has none, so without these the strategies differ only in allocation.
#[derive(Clone, Copy, Debug)]
pub struct Costs {
    /// The cost of a registration, or of ending a batch of them.
    pub operation: Duration,
    /// The cost of pinning a page of 4 KiB.
    pub page: Duration,
}

/// The parameters of a row.
#[derive(Clone, Debug, Serialize)]
pub struct Spec {
    /// One of [`STRATEGIES`].
    pub registration: &'static str,
    /// Whether it writes or reads. It writes in the Read-Write design, where the server registers the memory into which it
    /// reads. It reads in the Read-Read design, where the server registers what clients fetch. (Reads in the Read-Write
    /// design need no registration.)
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
    /// The parts of the time of a call.
    #[serde(flatten)]
    pub breakdown: Breakdown,
}

/// The parts of the time of a call, as medians of the rounds in nanoseconds. Calls take turns on one engine, so the time
/// of a call is the whole time divided by their number.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Breakdown {
    /// The whole time.
    pub ns_per_call: u64,
    /// Registering, pinning and fresh tags, as measured by the server's engine.
    pub register_ns_per_call: u64,
    /// Ending registrations.
    pub invalidate_ns_per_call: u64,
    /// Everything else.
    pub other_ns_per_call: u64,
}

impl Breakdown {
    fn of(round: &Round) -> Self {
        let counters = &round.counters;
        let each = |ns: u64| ns / counters.calls.max(1);
        let (all, register, invalidate) = (
            each(round.elapsed_ns),
            each(counters.registering_ns),
            each(counters.invalidating_ns),
        );
        Self {
            ns_per_call: all,
            register_ns_per_call: register,
            invalidate_ns_per_call: invalidate,
            other_ns_per_call: all.saturating_sub(register + invalidate),
        }
    }

    fn median(rounds: &[Self]) -> Self {
        let middle = |value: fn(&Self) -> u64| median(rounds.iter().map(value));
        Self {
            ns_per_call: middle(|r| r.ns_per_call),
            register_ns_per_call: middle(|r| r.register_ns_per_call),
            invalidate_ns_per_call: middle(|r| r.invalidate_ns_per_call),
            other_ns_per_call: middle(|r| r.other_ns_per_call),
        }
    }
}

/// Whether the fabric is a device that offers on-demand paging.
pub fn pages_on_demand(rdma: Fabric) -> bool {
    device(rdma).is_some_and(|device| device.on_demand_paging)
}

impl Plan {
    fn strategies(&self) -> impl Iterator<Item = &'static str> {
        STRATEGIES
            .into_iter()
            .chain(self.on_demand.then_some(ON_DEMAND))
    }

    /// How many servers the rows need, each with a file of its own.
    pub fn servers(&self) -> usize {
        self.strategies().count()
    }

    /// The parameters of all rows.
    pub fn specs(&self) -> Vec<Spec> {
        let mut specs = Vec::new();
        for operation in [Operation::Write, Operation::Read] {
            for &record_bytes in &self.record_bytes {
                for &threads in &self.threads {
                    specs.extend(self.strategies().map(|registration| Spec {
                        registration,
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

fn case(spec: &Spec, server: usize) -> Case {
    let design = match spec.operation {
        Operation::Read => RdmaDesign::ReadRead,
        Operation::Write => RdmaDesign::ReadWrite,
    };
    Case::by_design(
        design,
        server,
        spec.operation,
        spec.threads,
        spec.record_bytes,
    )
}

/// Measures all rows. It calls `tick` with the name of each before it measures it.
///
/// # Errors
/// A file could not be made, a server could not be started or reached, or a read or write failed.
pub fn run(plan: &Plan, mut tick: impl FnMut(&str)) -> Result<Report<Row>> {
    let machine = Machine::here();
    let mut setting = Setting::new(&plan.conditions)?;
    let model = plan.conditions.rdma == Fabric::Iwarp;
    let [operation, page] =
        [plan.costs.operation, plan.costs.page].map(|t| format!("{}ns", t.as_nanos()));
    let mut servers = Vec::new();
    for strategy in plan.strategies() {
        tick(&format!("starting and filling a server ({strategy})"));
        let mut arguments = vec!["--design", "read-read", "--registration"];
        match strategy {
            ON_DEMAND => arguments.extend(["per-operation", "--odp"]),
            _ => arguments.push(strategy),
        }
        if model {
            arguments.extend(["--registration-cost", &operation, "--pinning-cost", &page]);
        }
        servers.push((strategy, setting.start(false, &arguments, &mut tick)?));
    }
    let specs = plan.specs().into_iter().filter_map(|spec| {
        let (_, server) = servers
            .iter()
            .find(|(name, _)| *name == spec.registration)?;
        let case = case(&spec, *server);
        Some((spec, case))
    });
    let mut report = report(
        "registration",
        &plan.conditions,
        (machine, &setting),
        specs.collect(),
        &mut tick,
        |spec, rounds| {
            let parts: Vec<_> = rounds.iter().map(Breakdown::of).collect();
            Row {
                rate: Rate::of(rounds),
                breakdown: Breakdown::median(&parts),
                spec,
            }
        },
    )?;
    if !model && !plan.on_demand {
        report.placement += "; the device offers no on-demand paging";
    }
    Ok(report)
}

#[cfg(test)]
mod tests {
    use super::super::RdmaCounters;
    use super::*;

    #[test]
    fn the_time_of_a_call_has_parts() {
        let round = Round {
            elapsed_ns: 1_000_000,
            counters: RdmaCounters {
                calls: 100,
                registering_ns: 164_000,
                invalidating_ns: 100_000,
                ..RdmaCounters::default()
            },
            ..Round::default()
        };
        let parts = Breakdown::of(&round);
        assert_eq!(parts.ns_per_call, 10_000);
        assert_eq!(
            (parts.register_ns_per_call, parts.invalidate_ns_per_call),
            (1_640, 1_000)
        );
        assert_eq!(parts.other_ns_per_call, 7_360);
        // Avoids a division by 0 if nothing was measured.
        assert_eq!(Breakdown::of(&Round::default()), Breakdown::default());
    }
}
