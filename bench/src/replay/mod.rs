//! `odafs bench replay`: replays a trace (docs/TRACES.md) by each route in turn.
//!
//! The run creates the files that the trace needs in its own directory, and a server serves them from its memory. A
//! first pass by RPC does not count: it fills the server's cache, and shows how much of the trace fits the time. Then
//! each round replays that much by every route, each with a new client. So routes are compared by the same operations of
//! the same round. Each thread of the recording becomes a thread, which does its operations in their order.

mod player;
mod row;
mod tree;

use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use odafs::record::Trace;
use odafs::{Cache, Client, Options, Route, Url};
use serde::Serialize;

pub use row::Row;

use crate::machine::{Machine, commit};
use crate::process::{Fabric, ServerPlan, ServerProcess};
use crate::table::bytes;
use player::{Pass, PassLimits};
use tree::Tree;

/// The options of the bench.
#[derive(Clone, Debug)]
pub struct Plan {
    /// Names of routes: `rpc`, `guarded`, `one-sided`, `policy`, all without a data cache, and `default`: default
    /// options.
    pub routes: Vec<String>,
    /// The fabric.
    pub fabric: Fabric,
    /// Whether operations begin no earlier than in the recording. Their times then include how long they had to wait for the one
    /// before.
    pub as_recorded: bool,
    /// Size of the server's page cache in bytes. `None`: all files fit twice.
    pub cache_bytes: Option<u64>,
    /// The most bytes that files and buffers may take.
    pub bytes_max: u64,
    /// Number of rounds.
    pub rounds: u32,
    /// Whether each client replays the trace once before the pass that counts.
    pub warm: bool,
    /// The approximate time for everything.
    pub time: Option<Duration>,
}

/// All routes.
pub const ROUTES: [&str; 5] = ["rpc", "guarded", "one-sided", "policy", "default"];

/// The result, as `odafs bench replay --json` prints it.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    /// The machine that it ran on.
    pub machine: Machine,
    /// The commit that the program was built from.
    pub commit: &'static str,
    /// The name of the bench.
    pub bench: &'static str,
    /// The trace's name.
    pub trace: String,
    /// `shm` or `tcp`.
    pub fabric: &'static str,
    /// Number of files and directories that exist before the trace begins.
    pub names: u64,
    /// Size of these files in bytes.
    pub file_bytes: u64,
    /// Number of threads.
    pub threads: usize,
    /// Number of operations in the trace.
    pub recorded: u64,
    /// Number of operations of a pass, which is less if the time is too short.
    pub operations: u64,
    /// Number of rounds.
    pub rounds: u32,
    /// Whether operations began no earlier than in the recording.
    pub as_recorded: bool,
    /// Whether each client replayed the trace once before the pass that counts.
    pub warm: bool,
    /// A row for each route and operation.
    #[serde(serialize_with = "crate::spread::flat")]
    pub rows: Vec<Row>,
}

/// Replays the trace. It calls `tick` before each pass.
///
/// # Errors
/// The trace takes too much room, the server could not be started or reached, or a connection was lost. An operation whose
/// result differs from the recording is counted, and is no error.
pub fn run(
    plan: &Plan,
    program: PathBuf,
    (name, trace): (String, &Trace),
    mut tick: impl FnMut(&str),
) -> Result<Report> {
    let machine = Machine::here();
    let threads = player::threads(trace);
    ensure!(!threads.is_empty(), "the trace has no operations");
    let needed = tree::needed(trace);
    let buffers = player::buffer_bytes(trace).saturating_mul(threads.len() as u64);
    let all = needed.saturating_add(buffers);
    ensure!(
        all <= plan.bytes_max,
        "the trace's files and buffers take {}, more than {}: allow more with --bytes-max, or convert the trace anew \
         with --fold or --limit",
        bytes(all),
        bytes(plan.bytes_max)
    );
    tick("making files");
    let tree = Tree::new(trace, needed)?;
    let process = ServerProcess::start(&ServerPlan {
        program,
        directory: tree.path(),
        read_only: false,
        cache_bytes: plan.cache_bytes.unwrap_or((2 * needed).max(64 << 20)),
        fabrics: vec![plan.fabric],
        direct: Some("one-sided"),
        spin: None,
        nfs: false,
        cpus: None,
        arguments: Vec::new(),
    })?;
    let url = process.url(plan.fabric)?;
    let passes = plan.routes.len() as u32 * plan.rounds * (1 + u32::from(plan.warm)) + 1;
    // A third of the time is for files, servers and connections.
    let slice = plan.time.map(|time| time * 2 / 3 / passes);
    let mut limits = PassLimits {
        operations: threads.iter().map(Vec::len).collect(),
        until: None,
        as_recorded: plan.as_recorded,
    };
    tick("filling the server by RPC");
    let begin = Instant::now();
    limits.until = slice.map(|slice| begin + slice);
    let first = player::play(&connect(&url, "rpc")?, trace, &threads, &limits)?;
    limits.until = None;
    limits.operations = first.done;
    let mut rounds: Vec<Vec<Pass>> = vec![Vec::new(); plan.routes.len()];
    for round in 1..=plan.rounds {
        for (route, passes) in plan.routes.iter().zip(&mut rounds) {
            tick(&format!("round {round}: {route}"));
            let client = connect(&url, route)?;
            for _ in 0..=u32::from(plan.warm) {
                tree.restore(trace, &url)?;
                passes.truncate(round as usize - 1);
                passes.push(player::play(&client, trace, &threads, &limits)?);
            }
        }
    }
    let rpc = plan.routes.iter().position(|route| route == "rpc");
    let rpc = rpc.map(|at| &rounds[at][..]);
    let rows = plan.routes.iter().zip(&rounds);
    Ok(Report {
        machine,
        commit: commit(),
        bench: "replay",
        trace: name,
        fabric: plan.fabric.name(),
        names: tree::found(trace),
        file_bytes: needed,
        threads: threads.len(),
        recorded: trace.entries.len() as u64,
        operations: limits.operations.iter().sum::<usize>() as u64,
        rounds: plan.rounds,
        as_recorded: plan.as_recorded,
        warm: plan.warm,
        rows: rows
            .flat_map(|(route, passes)| Row::of_route(route, passes, rpc))
            .collect(),
    })
}

fn connect(url: &Url, route: &str) -> Result<Client> {
    let route = match route {
        "rpc" => Some(Route::Rpc),
        "guarded" => Some(Route::Guarded),
        "one-sided" => Some(Route::OneSided),
        "policy" => Some(Route::Policy),
        _ => None,
    };
    let options = match route {
        Some(route) => Options {
            route,
            cache: Cache::Off,
            ..Options::default()
        },
        None => Options::default(),
    };
    Client::connect_with(url, options).context("cannot connect")
}

#[cfg(test)]
mod tests {
    /// Every trace that is shipped can be read.
    #[test]
    fn the_traces_of_the_sources() {
        let directory = concat!(env!("CARGO_MANIFEST_DIR"), "/traces");
        let mut found = 0;
        for entry in std::fs::read_dir(directory).unwrap() {
            let path = entry.unwrap().path();
            if path.extension().is_some_and(|ending| ending == "trace") {
                let text = std::fs::read(&path).unwrap();
                assert!(text.len() < 300 << 10, "{}", path.display());
                let trace = odafs::record::Trace::parse(&text).unwrap();
                assert!(!trace.entries.is_empty());
                found += 1;
            }
        }
        assert_eq!(found, 4);
    }
}
