//! The terms between client and server, over shared memory: a call that does
//! nothing, and a direct read that is refused.

use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use odafs::{Cache, Client, Options, Route, Wait};

use super::{Plan, Term};
use crate::cpu::Placement;
use crate::floors::local;
use crate::histogram::Latencies;
use crate::process::{Fabric, ServerPlan, ServerProcess};
use crate::scratch::Scratch;

/// How long the server polls before it sleeps, as in the latency bench.
const SPIN: Duration = Duration::from_millis(20);

/// Number of pages whose references are made stale.
const PAGES: usize = 2048;

const PAGE: usize = 4096;

/// The servers.
pub struct Outside {
    spinning: ServerProcess,
    sleeping: ServerProcess,
    _directory: Scratch,
}

impl Outside {
    /// Starts servers of a small file.
    pub fn new(plan: &Plan, placement: Option<&Placement>) -> Result<Self> {
        let directory =
            Scratch::for_bytes((PAGES * PAGE) as u64).context("cannot make a directory")?;
        let path = directory.path().join("file");
        local::write_random(&path, (PAGES * PAGE) as u64, |_| {}).context("cannot write a file")?;
        let start = |spin| {
            ServerProcess::start(&ServerPlan {
                program: plan.program.clone(),
                directory: directory.path().to_owned(),
                read_only: false,
                cache_bytes: 64 << 20,
                fabrics: vec![Fabric::Shm],
                direct: Some("one-sided"),
                spin: Some(spin),
                nfs: false,
                cpus: placement.map(|p| p.server.clone()),
                arguments: Vec::new(),
            })
        };
        Ok(Self {
            spinning: start(SPIN)?,
            sleeping: start(Duration::ZERO)?,
            _directory: directory,
        })
    }

    /// All terms.
    pub fn terms(&self) -> Vec<Term<'_>> {
        let mut terms = Vec::new();
        for wait in ["spin", "block"] {
            terms.push(Term {
                name: "T_NullRPC",
                what: "a call that does nothing, there and back".to_owned(),
                wait,
                size: 0,
                measure: Box::new(move |time| self.null_call(wait, time)),
            });
            for (name, route) in [("guarded", Route::Guarded), ("one-sided", Route::OneSided)] {
                terms.push(Term {
                    name: "T_stale",
                    what: format!("a {name} read, up to its refusal"),
                    wait,
                    size: PAGE,
                    measure: Box::new(move |time| self.stale(wait, route, time)),
                });
            }
        }
        terms
    }

    fn connect(&self, spin: &str, route: Route) -> Result<Client> {
        let (server, wait) = match spin {
            "spin" => (&self.spinning, Wait::Spin),
            _ => (
                &self.sleeping,
                Wait::Block {
                    spin: Duration::ZERO,
                },
            ),
        };
        std::thread::sleep(SPIN * 3 / 2);
        let options = Options {
            route,
            wait,
            cache: Cache::Off,
            ..Options::default()
        };
        Ok(Client::connect_with(&server.url(Fabric::Shm)?, options)?)
    }

    fn null_call(&self, spin: &str, time: Duration) -> Result<(u64, f64)> {
        let client = self.connect(spin, Route::Rpc)?;
        for _ in 0..100 {
            client.ping()?;
        }
        let mut latencies = Latencies::default();
        let begin = Instant::now();
        while begin.elapsed() < time {
            latencies.record(client.ping()?.as_nanos() as u64);
        }
        Ok((latencies.len(), latencies.at(0.5) as f64))
    }

    /// Learns the references of all pages, lets another client write every page, and reads each by its old reference.
    /// Returns the number of refused attempts, and how long one takes by the client's own measurement.
    fn stale(&self, spin: &str, route: Route, time: Duration) -> Result<(u64, f64)> {
        let reader = self.connect(spin, route)?;
        let writer = self.connect(spin, Route::Rpc)?;
        let (file, changed) = (reader.open("file")?, writer.open("file")?);
        let mut page = vec![0; PAGE];
        let begin = Instant::now();
        while begin.elapsed() < time || reader.statistics().stale_hits == 0 {
            for offset in (0..PAGES * PAGE).step_by(PAGE) {
                file.read_at(&mut page, offset as u64)?;
            }
            file.learn(0, (PAGES * PAGE) as u64)?;
            for offset in (0..PAGES * PAGE).step_by(PAGE) {
                changed.write_at(&page[..8], offset as u64)?;
            }
            for offset in (0..PAGES * PAGE).step_by(PAGE) {
                file.read_at(&mut page, offset as u64)?;
            }
            let stale = reader.statistics().stale_hits > 0;
            anyhow::ensure!(
                stale || begin.elapsed() < time * 50,
                "no reference goes stale"
            );
        }
        let counted = reader.statistics();
        Ok((counted.stale_hits, counted.terms.stale_ns as f64))
    }
}
