//! `odafs bench metadata`: operations on names and small files, by our client and by system calls on the same
//! directory.
//!
//! Two mixes of the paper on Read-Write replies (002, sections 6.2 and 6.3): each operation by itself, as IOzone's
//! fileop does, and transactions on a pool of small files, as PostMark does. Each client has its own connections,
//! thread and directory. All routes are on one server, and are measured in turn in each round. The clients sync
//! nothing. What the server itself syncs (RFC 1813 requires that names are stable) costs little for files in memory.

mod caller;
mod nfs4;
mod plan;
mod row;
mod work;

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Result, anyhow};
use serde::Serialize;

pub use plan::{Design, Mix, Plan, Route};
pub use row::{Operation, Row};

use crate::cpu;
use crate::gate::Gate;
use crate::machine::{Machine, commit};
use crate::served::{Served, ServedPlan};
use caller::Caller;
use row::{Slice, Spec};
use work::Client;

/// What `odafs bench metadata --json` prints.
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
    /// Where the files are.
    pub directory: PathBuf,
    /// Files of a tree of fileop.
    pub files: usize,
    /// Files of a client of postmark, at the beginning.
    pub pool: usize,
    /// How often each row was measured, and for how long.
    pub rounds: u32,
    /// In nanoseconds.
    pub slice_ns: u64,
    /// A row for each operation of each mix, route and number of clients.
    #[serde(serialize_with = "crate::spread::flat")]
    pub rows: Vec<Row>,
}

/// Measures. `tick` hears of each slice of each round before it begins, with `round` first.
///
/// # Errors
/// The server could not be started or reached, a call failed, or one returned wrong data.
pub fn run(plan: &Plan, program: PathBuf, mut tick: impl FnMut(&str)) -> Result<Report> {
    let machine = Machine::here();
    tick("starting a server");
    let served_plan = ServedPlan {
        program,
        // Only its directory is wanted.
        file_bytes: 4096,
        cache_bytes: 64 << 20,
        direct: "guarded",
        apart: false,
    };
    let ways = plan.ways()?;
    // Who does not ask such a server for Read-Read gets Read-Write.
    let arguments: &[&str] = match ways.contains(&Route::Rdma(Design::ReadRead)) {
        true => &["--design", "read-read"],
        false => &[],
    };
    let served = Served::start_with(&served_plan, arguments)?;
    let most = plan.clients.iter().max().copied().unwrap_or(0);
    let mut clients = Vec::new();
    for &way in &ways {
        let name = way.name();
        let mut of_way = Vec::new();
        for number in 0..most {
            let caller = Caller::new(way, &served)?;
            let seed = number as u64;
            let mut client = Client::new(caller, format!("{name}-{number}"), plan, seed)?;
            if plan.mixes.iter().any(|mix| *mix != Mix::Fileop) {
                client.fill(plan)?;
            }
            of_way.push(client);
        }
        clients.push(of_way);
    }
    let time = Duration::from_millis(plan.slice_ms);
    let mut slices: Vec<(Spec, Vec<Slice>)> = Vec::new();
    for round in 1..=plan.rounds {
        let mut at = 0;
        for &mix in &plan.mixes {
            for &number in &plan.clients {
                for (way, clients) in ways.iter().zip(&mut clients) {
                    let fabric = way.name();
                    let name = mix.name();
                    tick(&format!(
                        "round {round}: {name}, {fabric}, {number} at once"
                    ));
                    let done = slice(&mut clients[..number], mix, plan, (time, &served))?;
                    if round == 1 {
                        let spec = Spec {
                            mix,
                            fabric,
                            clients: number,
                        };
                        slices.push((spec, Vec::new()));
                    }
                    slices[at].1.push(done);
                    at += 1;
                }
            }
        }
    }
    let mut rows = Vec::new();
    for (spec, of_spec) in &slices {
        let local = slices.iter().find(|(other, _)| {
            (other.mix, other.fabric, other.clients) == (spec.mix, "local", spec.clients)
        });
        rows.extend(spec.rows(of_spec, local.map(|(_, slices)| &slices[..])));
    }
    let directory = served.path().parent().map(PathBuf::from);
    Ok(Report {
        machine,
        commit: commit(),
        bench: "metadata",
        placement: served.placement(),
        directory: directory.unwrap_or_default(),
        files: plan.files,
        pool: plan.pool,
        rounds: plan.rounds,
        slice_ns: time.as_nanos() as u64,
        rows,
    })
}

/// All clients at once.
fn slice(
    clients: &mut [Client],
    mix: Mix,
    plan: &Plan,
    (time, served): (Duration, &Served),
) -> Result<Slice> {
    let start = Gate::new(clients.len());
    let before = (cpu::own_ns(), served.process().cpu_ns());
    let done: Vec<_> = std::thread::scope(|scope| {
        let threads: Vec<_> = clients
            .iter_mut()
            .map(|client| {
                let start = &start;
                scope.spawn(move || {
                    start.pass();
                    client.slice(mix, plan, time)
                })
            })
            .collect();
        threads.into_iter().map(|thread| thread.join()).collect()
    });
    let cpu_ns = (
        cpu::own_ns() - before.0,
        served.process().cpu_ns().saturating_sub(before.1),
    );
    let mut all = Vec::new();
    for done in done {
        all.push(done.map_err(|_| anyhow!("a client's thread panicked"))??);
    }
    Ok(Slice::of(&all, mix, cpu_ns))
}
