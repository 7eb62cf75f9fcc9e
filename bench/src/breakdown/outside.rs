//! The terms between client and server, over shared memory: a call that does
//! nothing, and a direct read that is refused.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use odafs::{Cache, Client, Options, Route, Wait};

use super::{Plan, Term};
use crate::clock;
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

/// A client's memory that holds the references of a few reads: each read brings references that the next one does not find.
const FEW_REFERENCES_BYTES: u64 = 8 << 10;

/// The servers. Each has a file of its own: what one writes would be a change from outside to the other, which takes back
/// all references for a while.
pub struct Outside {
    spinning: Served,
    sleeping: Served,
}

struct Served {
    process: ServerProcess,
    _directory: Scratch,
}

impl Outside {
    /// Starts servers of a small file each.
    pub fn new(plan: &Plan, placement: Option<&Placement>) -> Result<Self> {
        let start = |spin| -> Result<Served> {
            let directory =
                Scratch::for_bytes((PAGES * PAGE) as u64).context("cannot make a directory")?;
            let path = directory.path().join("file");
            local::write_random(&path, (PAGES * PAGE) as u64, |_| {})
                .context("cannot write a file")?;
            let process = ServerProcess::start(&ServerPlan {
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
            })?;
            Ok(Served {
                process,
                _directory: directory,
            })
        };
        Ok(Self {
            spinning: start(SPIN)?,
            sleeping: start(Duration::ZERO)?,
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
        self.connect_with(spin, route, Options::default().memory_bytes)
    }

    fn connect_with(&self, spin: &str, route: Route, memory_bytes: u64) -> Result<Client> {
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
            memory_bytes,
            ..Options::default()
        };
        Ok(Client::connect_with(
            &server.process.url(Fabric::Shm)?,
            options,
        )?)
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

    /// Lets another client write pages whose references a reader has, and has the reader read each by its old reference. Returns
    /// how often that was refused, and how long it takes up to the refusal.
    ///
    /// A refused one-sided read is timed by itself. A refused guarded read goes on by a call at once, so calls for the same
    /// pages, by a reader that keeps no references, are timed beside it and subtracted.
    fn stale(&self, spin: &str, route: Route, time: Duration) -> Result<(u64, f64)> {
        let reader = self.connect(spin, route)?.open("file")?;
        let writer = self.connect(spin, Route::Rpc)?.open("file")?;
        let caller = self
            .connect_with(spin, route, FEW_REFERENCES_BYTES)?
            .open("file")?;
        let (mut refused, mut called) = (Latencies::default(), Latencies::default());
        let clock_ns = clock::overhead_ns();
        let timed = |latencies: &mut Latencies, begin: Instant, end: Instant| {
            latencies.record(clock::nanos(begin, end).saturating_sub(clock_ns));
        };
        let stale_hits = || reader.client().statistics().stale_hits;
        let offsets = || (0..PAGES * PAGE).step_by(PAGE).map(|offset| offset as u64);
        let mut page = vec![0; PAGE];
        let begin = Instant::now();
        while begin.elapsed() < time || refused.is_empty() {
            for offset in offsets() {
                reader.read_at(&mut page, offset)?;
            }
            reader.learn(0, (PAGES * PAGE) as u64)?;
            for offset in offsets() {
                if route == Route::OneSided {
                    let read = reader.try_read_at(&mut page, offset);
                    ensure!(read == Some(PAGE), "a page is not read one-sided");
                }
                writer.write_at(&page[..8], offset)?;
            }
            for offset in offsets() {
                let before = stale_hits();
                let begin = Instant::now();
                let one_sided = match route {
                    Route::OneSided => reader.try_read_at(&mut page, offset),
                    _ => None,
                };
                let end = Instant::now();
                // By itself a refused one-sided read does not count as one. This tries it again, and counts.
                reader.read_at(&mut page, offset)?;
                let end_of_call = Instant::now();
                if stale_hits() == before || one_sided.is_some() {
                    continue;
                }
                match route {
                    Route::OneSided => timed(&mut refused, begin, end),
                    _ => {
                        timed(&mut refused, end, end_of_call);
                        let begin = Instant::now();
                        caller.read_at(&mut page, offset)?;
                        timed(&mut called, begin, Instant::now());
                    }
                }
            }
            ensure!(
                !refused.is_empty() || begin.elapsed() < time * 50,
                "no reference goes stale"
            );
        }
        let call_ns = match called.is_empty() {
            true => 0,
            false => called.at(0.5),
        };
        let ns = refused.at(0.5).saturating_sub(call_ns);
        Ok((refused.len(), ns as f64))
    }
}
