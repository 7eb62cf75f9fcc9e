//! `odafs bench distribution`: where reads end, while a file outgrows the server's memory ("The Optimistic Direct
//! Access
//! File System", figure 4).
//!
//! For each length of the file and each pattern of reads, and in each round, a new server reads the file once from
//! front to back. Then each route gets a new client, which begins with the references of all that is in the server's
//! memory, reads for a while until its cache is full, and then takes its slice. Where the file is longer than the
//! server's memory each call that brings a page takes the frame of another, whose reference is stale from then on.

mod plan;
mod player;
mod row;

use std::path::PathBuf;
use std::time::Duration;

use anyhow::Result;
use serde::Serialize;

pub use plan::{Pattern, Plan};
pub use row::{Row, Slice, Spec};

use crate::load::Path;
use crate::machine::{Machine, commit};
use crate::served::{Served, ServedPlan};
use player::Player;
use row::Memories;

/// What `odafs bench distribution --json` prints.
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
    /// Bytes of the server's page cache.
    pub cache_bytes: u64,
    /// Bytes of the client's memory; 0: it kept no pages.
    pub client_bytes: u64,
    /// Bytes of a read.
    pub size_bytes: u64,
    /// How often each row was measured, and for how long.
    pub rounds: u32,
    /// In nanoseconds.
    pub slice_ns: u64,
    /// A row for each pattern, length of the file and route.
    #[serde(serialize_with = "crate::spread::flat")]
    pub rows: Vec<Row>,
}

/// Measures. `tick` hears of each server of each round before it starts, with `round` first.
///
/// # Errors
/// A server could not be started or reached, or a read failed.
pub fn run(plan: &Plan, program: PathBuf, mut tick: impl FnMut(&str)) -> Result<Report> {
    let machine = Machine::here();
    let (paths, clock_ns) = (plan.paths(), crate::clock::overhead_ns());
    let slice = Duration::from_millis(plan.slice_ms);
    let mut placement = String::new();
    let at: Vec<(Pattern, f64)> = plan
        .patterns
        .iter()
        .flat_map(|pattern| plan.files.iter().map(move |file| (*pattern, *file)))
        .collect();
    let mut slices: Vec<Vec<Vec<Slice>>> = vec![vec![Vec::new(); paths.len()]; at.len()];
    for round in 1..=plan.rounds {
        for ((pattern, caches), slices) in at.iter().zip(&mut slices) {
            tick(&format!(
                "round {round}: {} {caches}",
                format!("{pattern:?}").to_lowercase()
            ));
            let file_bytes = plan.file_bytes(*caches);
            let served = Served::start(&ServedPlan {
                program: program.clone(),
                file_bytes,
                cache_bytes: plan.cache_bytes(),
                direct: "one-sided",
                apart: true,
            })?;
            served.fill()?;
            let places = player::draw(*pattern, file_bytes, plan.size, round.into());
            for (path, slices) in paths.iter().zip(slices) {
                let Path::Client(way, route) = *path else {
                    continue;
                };
                let mut player = Player::new(plan, (way, route), &served, &places)?;
                player.slice(Duration::from_millis(plan.settle_ms), clock_ns)?;
                slices.push(player.slice(slice, clock_ns)?);
            }
            placement = served.placement();
        }
    }
    let mut rows = Vec::new();
    for ((pattern, caches), slices) in at.iter().zip(&slices) {
        let memories = Memories {
            client: plan.client_memory,
            file: *caches,
        };
        for (path, of_path) in paths.iter().zip(slices) {
            let fabric = path.names().0;
            let rpc = paths.iter().position(|p| p.names() == (fabric, "rpc"));
            let spec = row::spec(*pattern, *caches, plan.file_bytes(*caches), *path);
            rows.push(spec.row(of_path, rpc.map(|rpc| &slices[rpc][..]), memories));
        }
    }
    Ok(Report {
        machine,
        commit: commit(),
        bench: "distribution",
        placement,
        cache_bytes: plan.cache_bytes(),
        client_bytes: plan.client_bytes(),
        size_bytes: plan.size,
        rounds: plan.rounds,
        slice_ns: slice.as_nanos() as u64,
        rows,
    })
}
