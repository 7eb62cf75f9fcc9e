//! What files and references take of memory.

use std::fs;
use std::path::PathBuf;

use anyhow::{Context as _, Result, ensure};
use odafs::{Cache, Eager, Options, Route};
use serde::Serialize;

use super::plan::Plan;
use crate::served::{Served, ServedPlan, Way};
use crate::usage::MemoryUse;

/// What one of something takes, in bytes.
#[derive(Clone, Debug, Serialize)]
pub struct Cost {
    /// An open file, a page that was handed out.
    pub what: &'static str,
    /// How many there were.
    pub number: u64,
    /// Memory of the server for one.
    pub server_bytes: u64,
    /// Memory of the client for one.
    pub client_bytes: u64,
    /// What the client's directory says that one takes.
    pub directory_bytes: Option<f64>,
}

/// What an open file takes, and a page whose reference a client holds.
///
/// # Errors
/// The server could not be started or reached.
pub fn costs(plan: &Plan, program: PathBuf) -> Result<Vec<Cost>> {
    let served = Served::start(&ServedPlan {
        program,
        file_bytes: plan.pages << 12,
        cache_bytes: plan.pages << 13,
        direct: "guarded",
        apart: false,
    })?;
    let directory = served.path();
    let directory = directory.parent().context("the file is in no directory")?;
    for number in 0..plan.files {
        fs::write(directory.join(format!("file {number}")), b"some bytes")?;
    }
    served.fill()?;
    let options = Options {
        route: Route::Guarded,
        cache: Cache::Off,
        ..Options::default()
    };
    let first = served.open(Way::Shm, options.clone())?;
    let server = || MemoryUse::of(Some(served.process().id()));
    let each = |before: MemoryUse, after: MemoryUse, number: u64| {
        after.own.saturating_sub(before.own) / number.max(1)
    };

    let (ours, theirs) = (MemoryUse::of(None)?, server()?);
    let mut open = Vec::with_capacity(plan.files);
    for number in 0..plan.files {
        open.push(first.client().open(format!("file {number}"))?);
    }
    let number = plan.files as u64;
    let file = Cost {
        what: "open file",
        number,
        server_bytes: each(theirs, server()?, number),
        client_bytes: each(ours, MemoryUse::of(None)?, number),
        directory_bytes: None,
    };

    let (ours, theirs) = (MemoryUse::of(None)?, server()?);
    let eager = served.open(
        Way::Shm,
        Options {
            eager: Eager::OnOpen,
            ..options
        },
    )?;
    let statistics = eager.client().statistics();
    let number = statistics.references_held;
    ensure!(number > 0, "the server handed out no references");
    let page = Cost {
        what: "page with a reference",
        number,
        server_bytes: each(theirs, server()?, number),
        client_bytes: each(ours, MemoryUse::of(None)?, number),
        directory_bytes: Some(statistics.directory_bytes as f64 / number as f64),
    };
    Ok(vec![file, page])
}
