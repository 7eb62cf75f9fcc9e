//! `odafs bench cold`: reads of files that are in no cache.
//!
//! A file lies on a disk. For each row of a round it is dropped from the kernel's page cache, a new server is started
//! on it, and a new client reads it twice: some pages in random order, or all of it from front to back. The first pass
//! is from the disk. Where the server's page cache holds all of the file, so may the second be from memory. Where it
//! does not, the file is dropped from the kernel's page cache before the second pass too, so that what the server had
//! to give up comes from the disk again. System calls on the same file are the peer; the kernel counts what came from
//! the disk.

mod disk;
mod plan;
mod reader;
mod row;

use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};
use serde::Serialize;

pub use plan::{Caller, Pattern, Plan};
pub use row::{Row, Spec};

use crate::cpu::{self, Placement};
use crate::machine::{Machine, commit};
use crate::process::{Fabric, ServerPlan, ServerProcess};
use crate::random::Random;
use crate::zipf::shuffled;
use disk::OnDisk;
use reader::Reader;
use row::Pass;

/// What `odafs bench cold --json` prints.
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
    /// Where the file was.
    pub directory: PathBuf,
    /// Bytes of the file.
    pub file_bytes: u64,
    /// How often each row was measured.
    pub rounds: u32,
    /// A row for each pass of each caller, order of reads and page cache.
    #[serde(serialize_with = "crate::spread::flat")]
    pub rows: Vec<Row>,
}

impl Report {
    /// Whether the first passes read from a disk, as far as the kernel reports: with system calls, half of the bytes or
    /// more.
    pub fn is_cold(&self) -> Option<bool> {
        let first = |row: &&Row| (row.spec.route, row.spec.pass) == ("pread", "first");
        let all: Option<Vec<f64>> = (self.rows.iter().filter(first))
            .map(|row| Some(row.from_disk?.lowest))
            .collect();
        all.filter(|all| !all.is_empty())
            .map(|all| all.iter().all(|part| *part >= 0.5))
    }
}

/// Passes of a caller.
const PASSES: usize = 2;

/// Measures, with a file below `directory`. `tick` hears of each caller of each round before it begins, with `round`
/// first.
///
/// # Errors
/// The file would not be on a disk, a server could not be started or reached, or a read failed.
pub fn run(
    plan: &Plan,
    directory: Option<&Path>,
    program: PathBuf,
    mut tick: impl FnMut(&str),
) -> Result<Report> {
    let machine = Machine::here();
    let file = OnDisk::write(directory, plan.file_bytes(), &mut tick)?;
    let placement = Placement::at_start();
    if let Some(placement) = &placement {
        cpu::bind(&placement.client).context("cannot bind to a processor")?;
    }
    let bench = Bench {
        plan,
        file: &file,
        program,
        cpus: placement.as_ref().map(|p| p.server.clone()),
        clock_ns: crate::clock::overhead_ns(),
    };
    let callers = plan.callers()?;
    let at: Vec<(f64, (Pattern, u64))> = (plan.caches.iter())
        .flat_map(|cache| plan.patterns().into_iter().map(|pattern| (*cache, pattern)))
        .collect();
    let mut passes: Vec<Vec<Vec<[Pass; PASSES]>>> = vec![vec![Vec::new(); callers.len()]; at.len()];
    for round in 1..=plan.rounds {
        for (&(cache, pattern), passes) in at.iter().zip(&mut passes) {
            for ((&caller, name), passes) in callers.iter().zip(&plan.routes).zip(passes) {
                tick(&format!("round {round}: {name}, {}", pattern.0.name()));
                passes.push(bench.passes(cache, pattern, caller, round)?);
            }
        }
    }
    let pread = callers.iter().position(|caller| *caller == Caller::Pread);
    let mut rows = Vec::new();
    for (&(cache, pattern), passes) in at.iter().zip(&passes) {
        for (&caller, rounds) in callers.iter().zip(passes) {
            for pass in 0..PASSES {
                let of = |rounds: &[[Pass; PASSES]]| -> Vec<Pass> {
                    rounds.iter().map(|passes| passes[pass]).collect()
                };
                let spec = Spec::new(cache, pattern, caller, pass);
                let pread = pread.map(|at| of(&passes[at]));
                rows.push(Row::of(spec, &of(rounds), pread.as_deref()));
            }
        }
    }
    Ok(Report {
        machine,
        commit: commit(),
        bench: "cold",
        placement: Placement::words(placement.as_ref()),
        directory: file.directory().to_owned(),
        file_bytes: plan.file_bytes(),
        rounds: plan.rounds,
        rows,
    })
}

struct Bench<'a> {
    plan: &'a Plan,
    file: &'a OnDisk,
    program: PathBuf,
    /// The server's processors.
    cpus: Option<Vec<usize>>,
    clock_ns: u64,
}

impl Bench<'_> {
    /// A new server, and a new caller's passes.
    fn passes(
        &self,
        cache: f64,
        (pattern, size): (Pattern, u64),
        caller: Caller,
        round: u32,
    ) -> Result<[Pass; PASSES]> {
        let cannot = "cannot drop the file from the kernel's page cache";
        let process = match caller {
            Caller::Pread => None,
            _ => Some(self.server(self.plan.cache_bytes(cache))?),
        };
        let reader = match &process {
            None => Reader::local(self.file)?,
            Some(process) => Reader::of(caller, process)?,
        };
        let mut buffer = vec![0; size as usize];
        let mut passes = [Pass::default(); PASSES];
        for (number, pass) in passes.iter_mut().enumerate() {
            let places = self.places(pattern, size, u64::from(round), number);
            if number == 0 || cache < 1.0 {
                self.file.forget().context(cannot)?;
            }
            *pass = reader.pass(&places, &mut buffer, self.clock_ns)?;
        }
        Ok(passes)
    }

    /// Where a pass reads, in units of a read: passes of a round read the same places, at random in another order.
    fn places(&self, pattern: Pattern, size: u64, round: u64, pass: usize) -> Vec<u32> {
        let places = self.plan.file_bytes() / size;
        match pattern {
            Pattern::Sequential => (0..places as u32).collect(),
            Pattern::Random => {
                let mut drawn = shuffled(places, &mut Random::new(round));
                drawn.truncate(self.plan.random_reads() as usize);
                let order = shuffled(drawn.len() as u64, &mut Random::new(pass as u64));
                order.iter().map(|at| drawn[*at as usize]).collect()
            }
        }
    }

    /// As one is started without options, but for its page cache.
    fn server(&self, cache_bytes: u64) -> Result<ServerProcess> {
        ServerProcess::start(&ServerPlan {
            program: self.program.clone(),
            directory: self.file.directory().to_owned(),
            read_only: false,
            cache_bytes,
            fabrics: vec![Fabric::Shm, Fabric::Iwarp],
            direct: None,
            spin: None,
            nfs: true,
            cpus: self.cpus.clone(),
            arguments: Vec::new(),
        })
    }
}
