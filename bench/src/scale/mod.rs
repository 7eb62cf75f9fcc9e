//! `odafs bench scale`: the rate that many clients get from a server together, and what each of them costs.
//!
//! In each round every route gets a new server, and its clients increase from one number to the next, with one slice of
//! time at each. So the rate at a number has a ratio to the best one of the same server. A client has its own
//! connections and session. All are in this process. Up to some number each has a thread; beyond that, threads have
//! several clients, which read in turn. Neither side is bound to processors.

mod alone;
mod crowd;
mod memory;
mod plan;

use std::path::PathBuf;
use std::time::Duration;

use anyhow::Result;
use serde::Serialize;

pub use memory::Cost;
pub use plan::{Plan, Reading};

use crate::floors::local::{LocalFile, write_random};
use crate::histogram::median;
use crate::machine::{Machine, commit};
use crate::scratch::Scratch;
use crate::served::{Served, ServedPlan};
use crate::spread::Spread;
use crate::usage::MemoryUse;
use alone::{Alone, Load};
use crowd::{Crowd, Slice};

/// What `odafs bench scale --json` prints.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
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
    /// Bytes of a read.
    pub size_bytes: u64,
    /// How often each row was measured, and for how long.
    pub rounds: u32,
    /// In nanoseconds.
    pub slice_ns: u64,
    /// Numbers of clients for which there was no time.
    pub left_out: Vec<usize>,
    /// A row for each route and count of clients.
    #[serde(serialize_with = "crate::spread::flat")]
    pub rows: Vec<Row>,
    /// Memory per open file, and per page that was handed out.
    pub costs: Vec<Cost>,
}

/// A row: medians of the rounds, with the lowest and the highest.
#[derive(Clone, Debug, Serialize)]
pub struct Row {
    /// `shm`, `tcp`, `nfs`.
    pub fabric: &'static str,
    /// `one-sided`, `guarded`, `rpc`, `policy`, or `alone`: the machine without a server.
    pub route: &'static str,
    /// Number of clients that read at the same time.
    pub clients: usize,
    /// Reads per second of all clients together.
    pub reads_per_second: Spread,
    /// That rate divided by the highest rate of the same round at any number of clients.
    pub rate_to_best: Option<Spread>,
    /// That rate divided by the rate of the same round at 16 clients: from there on it does not depend on which side sleeps
    /// when. `None`: nothing was measured at 16.
    pub rate_to_16: Option<Spread>,
    /// Reads of the slowest client, divided by the mean of all clients.
    pub slowest_share: Spread,
    /// CPU time of the clients for a read.
    pub client_cpu_ns_per_read: u64,
    /// CPU time of the server for a read.
    pub server_cpu_ns_per_read: u64,
    /// Memory of the server for each client beyond the first, in bytes: its own and what it shares with them.
    pub server_bytes_per_client: Option<u64>,
    /// Memory of the clients' process for each client beyond the first, in bytes; the highest of the rounds, as
    /// memory that was freed stays with the process.
    pub client_bytes_per_client: Option<u64>,
}

/// What a round measured with one number of clients.
#[derive(Clone, Copy, Debug, Default)]
struct Sample {
    slice: Slice,
    server: MemoryUse,
    client: MemoryUse,
}

/// Measures. `tick` hears of each route of each round before it begins, with `round` first.
///
/// # Errors
/// A server could not be started or reached, or a read failed.
pub fn run(plan: &Plan, program: PathBuf, mut tick: impl FnMut(&str)) -> Result<Report> {
    let machine = Machine::here();
    let ways = plan.ways()?;
    let file_bytes = plan.file_mib << 20;
    tick("files and references");
    let costs = memory::costs(plan, program.clone())?;
    let mut placement = String::new();
    let mut rounds: Vec<Vec<Vec<Sample>>> = vec![Vec::new(); ways.len()];
    for round in 1..=plan.rounds {
        for ((&reading, name), rounds) in ways.iter().zip(&plan.routes).zip(&mut rounds) {
            tick(&format!("round {round}: {name}"));
            let (way, route) = match reading {
                Reading::Client(way, route) => (way, route),
                Reading::Alone(alone) => {
                    rounds.push(machine_alone(alone, plan)?);
                    continue;
                }
            };
            let served = Served::start(&ServedPlan {
                program: program.clone(),
                file_bytes,
                cache_bytes: file_bytes * 2,
                direct: "one-sided",
                apart: false,
            })?;
            served.fill()?;
            placement = served.placement();
            let mut crowd = Crowd::new(way, route);
            let mut steps = Vec::new();
            for &clients in &plan.clients {
                crowd.grow(&served, clients)?;
                let time = Duration::from_millis(plan.slice_ms);
                let reads = (file_bytes, plan.size);
                let slice = crowd.slice(time, reads, (plan.threads, plan.settle_reads), || {
                    served.process().cpu_ns()
                })?;
                steps.push(Sample {
                    slice,
                    server: MemoryUse::of(Some(served.process().id()))?,
                    client: MemoryUse::of(None)?,
                });
            }
            rounds.push(steps);
        }
    }
    let mut rows = Vec::new();
    for (&reading, rounds) in ways.iter().zip(&rounds) {
        rows.extend((0..plan.clients.len()).map(|at| row(reading, at, rounds)));
    }
    Ok(Report {
        machine,
        commit: commit(),
        bench: "scale",
        placement,
        file_bytes,
        size_bytes: plan.size as u64,
        rounds: plan.rounds,
        slice_ns: plan.slice_ms * 1_000_000,
        left_out: plan.left_out.clone(),
        rows,
        costs,
    })
}

/// A round without a server.
fn machine_alone(alone: Alone, plan: &Plan) -> Result<Vec<Sample>> {
    let file_bytes = plan.file_mib << 20;
    let directory = Scratch::for_bytes(file_bytes)?;
    let path = directory.path().join("file");
    write_random(&path, file_bytes, |_| {})?;
    let set = LocalFile::open(&path, false)?;
    let step = |&clients: &usize| {
        let load = Load {
            clients,
            threads: plan.threads,
            size: plan.size,
            settle: plan.settle_reads,
            time: Duration::from_millis(plan.slice_ms),
        };
        let slice = alone.slice(&set, load)?;
        Ok(Sample {
            slice,
            ..Sample::default()
        })
    };
    plan.clients.iter().map(step).collect()
}

fn row(reading: Reading, at: usize, rounds: &[Vec<Sample>]) -> Row {
    let steps = || rounds.iter().map(|steps| &steps[at]);
    let best = |steps: &[Sample]| steps.iter().map(|s| s.slice.rate()).fold(0.0, f64::max);
    let spread = |value: fn(&Slice) -> f64| {
        Spread::of(steps().map(|step| value(&step.slice))).unwrap_or_default()
    };
    let per_read =
        |of: fn(&Slice) -> u64| median(steps().map(|s| of(&s.slice) / s.slice.reads.max(1)));
    let clients = steps().next().map_or(0, |step| step.slice.clients);
    let further = clients.saturating_sub(1) as u64;
    let per_client = |of: fn(&Sample) -> u64| {
        rounds
            .iter()
            .map(move |steps| of(&steps[at]).saturating_sub(of(&steps[0])) / further.max(1))
    };
    let (fabric, route) = reading.names();
    let has_memory = at > 0 && matches!(reading, Reading::Client(..));
    Row {
        fabric,
        route,
        clients,
        reads_per_second: spread(Slice::rate),
        rate_to_best: Spread::of_ratios(
            rounds
                .iter()
                .map(|steps| (steps[at].slice.rate(), best(steps))),
        ),
        rate_to_16: Spread::of_ratios(rounds.iter().filter_map(|steps| {
            let at_16 = steps.iter().find(|step| step.slice.clients == 16)?;
            Some((steps[at].slice.rate(), at_16.slice.rate()))
        })),
        slowest_share: spread(Slice::slowest_share),
        client_cpu_ns_per_read: per_read(|slice| slice.client_cpu_ns),
        server_cpu_ns_per_read: per_read(|slice| slice.server_cpu_ns),
        server_bytes_per_client: has_memory.then(|| median(per_client(|step| step.server.all()))),
        client_bytes_per_client: has_memory
            .then(|| per_client(|step| step.client.own).max().unwrap_or(0)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::served::Way;

    #[test]
    fn a_row_is_beside_the_best_and_the_first_of_its_round() {
        let step = |clients, reads, own| Sample {
            slice: Slice {
                reads,
                elapsed_ns: 1_000_000_000,
                fewest: reads / clients as u64,
                clients,
                server_cpu_ns: reads * 7,
                client_cpu_ns: reads * 3,
            },
            server: MemoryUse { own, shared: 5 },
            client: MemoryUse::default(),
        };
        let rounds = [
            vec![step(1, 100, 1000), step(11, 200, 2000)],
            vec![step(1, 1000, 1000), step(11, 500, 4000)],
            vec![step(1, 100, 1000), step(11, 80, 3000)],
        ];
        let of = Reading::Client(Way::Shm, odafs::Route::Guarded);
        let row = |at| row(of, at, &rounds);
        assert_eq!(row(1).rate_to_best.unwrap().median, 0.8);
        assert_eq!(row(0).rate_to_best.unwrap().lowest, 0.5);
        assert_eq!(
            (row(1).clients, row(1).server_bytes_per_client),
            (11, Some(200))
        );
        assert_eq!(row(0).server_bytes_per_client, None);
        let cpu = (row(1).client_cpu_ns_per_read, row(1).server_cpu_ns_per_read);
        assert_eq!(cpu, (3, 7));
        assert_eq!(row(1).rate_to_16, None);
        let rounds = [
            vec![step(1, 100, 0), step(16, 400, 0), step(64, 200, 0)],
            vec![step(1, 100, 0), step(16, 100, 0), step(64, 80, 0)],
            vec![step(1, 100, 0), step(16, 100, 0), step(64, 70, 0)],
        ];
        let to_16 = super::row(of, 2, &rounds).rate_to_16.unwrap();
        assert_eq!((to_16.lowest, to_16.median, to_16.highest), (0.5, 0.7, 0.8));
        let alone = super::row(Reading::Alone(Alone::Tcp), 1, &rounds);
        assert_eq!((alone.fabric, alone.route), ("tcp", "alone"));
        assert_eq!(alone.server_bytes_per_client, None);
    }
}
