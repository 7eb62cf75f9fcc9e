//! Many clients at once, each with a thread of its own, on processors that are too few for them.

use std::time::{Duration, Instant};

use anyhow::{Context, Result};

use super::pattern::Offsets;
use super::plan::Case;
use super::player::{Config, Routes, Slice};
use super::setting::Setting;
use crate::gate::Gate;
use crate::histogram::Latencies;
use crate::{clock, cpu};

/// What a crowd of clients with one configuration has done.
pub struct Crowd {
    /// Their configuration.
    pub config: Config,
    /// The reads of each round, and the time of a round for each client.
    pub slices: Vec<Slice>,
    /// The time of each read in the slices.
    pub latencies: Latencies,
    /// Where the reads ended, of all rounds and with what was read before the slices.
    pub routes: Routes,
}

impl Crowd {
    /// Nothing yet.
    pub fn new(config: Config) -> Self {
        Self {
            config,
            slices: Vec::new(),
            latencies: Latencies::default(),
            routes: Routes::default(),
        }
    }

    /// New clients read for as long as a slice before anything counts, then for the slice.
    ///
    /// # Errors
    /// A client could not connect, or a read failed.
    pub fn slice(
        &mut self,
        case: &Case,
        setting: &Setting,
        offsets: &Offsets,
        time: Duration,
    ) -> Result<()> {
        let options = self.config.options.clone().unwrap_or_default();
        let connect = |number| {
            let file = setting.open(case, options.clone());
            file.with_context(|| format!("client {} of {}", number + 1, case.clients))
        };
        let files: Vec<_> = (0..case.clients).map(connect).collect::<Result<_>>()?;
        let (begin, end) = (Gate::new(files.len() + 1), Gate::new(files.len() + 1));
        let results = std::thread::scope(|scope| {
            let threads = files.iter().zip(0..).map(|(file, number)| {
                let (begin, end, offsets) = (&begin, &end, offsets.from(number));
                scope.spawn(move || {
                    begin.pass();
                    let (mut offsets, mut buffer) = (offsets, vec![0; case.size_bytes]);
                    let mut read = |latencies: &mut Latencies, until: Instant| -> Result<()> {
                        let mut last = Instant::now();
                        loop {
                            file.read_at(&mut buffer, offsets.next())?;
                            let now = Instant::now();
                            if now >= until {
                                return Ok(());
                            }
                            latencies.record(clock::nanos(last, now));
                            last = now;
                        }
                    };
                    let start = Instant::now();
                    let warm = read(&mut Latencies::default(), start + time);
                    let mut latencies = Latencies::default();
                    let read = warm.and_then(|()| read(&mut latencies, start + 2 * time));
                    end.pass();
                    read.map(|()| latencies)
                })
            });
            let threads: Vec<_> = threads.collect();
            begin.pass();
            std::thread::sleep(time);
            let cpu = (cpu::own_ns(), setting.server_cpu_ns());
            std::thread::sleep(time);
            self.slices.push(Slice {
                elapsed_ns: time.as_nanos() as u64 * u64::from(case.clients),
                client_cpu_ns: cpu::own_ns().saturating_sub(cpu.0),
                server_cpu_ns: setting.server_cpu_ns().saturating_sub(cpu.1),
                ..Slice::default()
            });
            end.pass();
            let joined = threads.into_iter().map(std::thread::ScopedJoinHandle::join);
            joined.collect::<Vec<_>>()
        });
        for result in results {
            let latencies = result.map_err(|_| anyhow::anyhow!("a client panicked"))??;
            if let Some(slice) = self.slices.last_mut() {
                slice.reads += latencies.len();
            }
            self.latencies.add(&latencies);
        }
        for file in &files {
            self.routes.add(&file.client().statistics());
        }
        Ok(())
    }
}
