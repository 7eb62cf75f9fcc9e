//! A configuration of the client, and its results in a case.

use std::time::{Duration, Instant};

use anyhow::Result;
use odafs::{Cache, File, Granted, Options, Route, Statistics, Wait};

use super::pattern::{Offsets, each_page};
use super::plan::Case;
use super::setting::Setting;
use crate::floors::local::LocalFile;
use crate::histogram::Latencies;
use crate::{clock, cpu};

/// One of this many reads is timed by itself.
const BULK: u64 = 32;

/// How a client reads. Without options, it is not a client but a copy out of a mapped file.
#[derive(Clone, Debug)]
pub struct Config {
    /// Its name in the rows.
    pub name: String,
    /// The options of the client.
    pub options: Option<Options>,
    /// Whether this is one of the fixed configurations, with the best of which the default is compared.
    pub is_fixed: bool,
}

impl Config {
    /// The configurations that are compared in a case at a server that grants this.
    pub fn all(case: &Case, granted: Option<Granted>) -> Vec<Self> {
        let default = Options {
            memory_bytes: case.memory_bytes,
            ..Options::default()
        };
        let spins = case.spins_us.iter().map(|us| Self {
            name: format!("spin-{us}us"),
            options: Some(Options {
                wait: Wait::Block {
                    spin: Duration::from_micros(*us),
                },
                ..default.clone()
            }),
            is_fixed: true,
        });
        let mut configs: Vec<Self> = spins.collect();
        if configs.is_empty() {
            configs = Self::routes(&default, granted);
            // A file that others write must not be looked at so.
            configs.retain(|config| case.shift.is_none() || config.options.is_some());
        }
        configs.push(Self {
            name: "default".to_owned(),
            options: Some(default),
            is_fixed: false,
        });
        configs
    }

    fn routes(default: &Options, granted: Option<Granted>) -> Vec<Self> {
        let mut routes = vec![("rpc", Route::Rpc)];
        routes.extend(granted.is_some().then_some(("guarded", Route::Guarded)));
        let one_sided = matches!(granted, Some(Granted::OneSided { .. }));
        routes.extend(one_sided.then_some(("one-sided", Route::OneSided)));
        let config = |(name, route): (&str, Route), cache| {
            let kept = cache == Cache::CloseToOpen;
            Self {
                name: format!("{name}{}", if kept { "+cache" } else { "" }),
                options: Some(Options {
                    route,
                    cache,
                    ..default.clone()
                }),
                is_fixed: route != Route::Policy,
            }
        };
        let mut configs = vec![Self {
            name: "mmap".to_owned(),
            options: None,
            is_fixed: false,
        }];
        for cache in [Cache::Off, Cache::CloseToOpen] {
            configs.extend(routes.iter().map(|route| config(*route, cache)));
        }
        configs.push(config(("policy", Route::Policy), Cache::Off));
        configs
    }
}

/// The reader of a configuration.
enum Reader<'a> {
    Remote(File),
    Local(&'a LocalFile),
}

/// One slice of a configuration's time.
#[derive(Clone, Copy, Debug, Default)]
pub struct Slice {
    /// Reads made.
    pub reads: u64,
    /// The time that they took.
    pub elapsed_ns: u64,
    /// CPU time of this process.
    pub client_cpu_ns: u64,
    /// CPU time of the server.
    pub server_cpu_ns: u64,
}

impl Slice {
    /// The sum of both.
    pub fn and(&self, other: &Self) -> Self {
        Self {
            reads: self.reads + other.reads,
            elapsed_ns: self.elapsed_ns + other.elapsed_ns,
            client_cpu_ns: self.client_cpu_ns + other.client_cpu_ns,
            server_cpu_ns: self.server_cpu_ns + other.server_cpu_ns,
        }
    }

    /// The mean time of a read.
    pub fn mean_ns(&self) -> f64 {
        self.elapsed_ns as f64 / self.reads.max(1) as f64
    }
}

/// A configuration in a case: its own client, which waits for its turns without running.
pub struct Player<'a> {
    /// Its configuration.
    pub config: Config,
    /// The first reads.
    pub cold: Slice,
    /// All reads before those that count.
    pub before: Slice,
    /// The slices.
    pub slices: Vec<Slice>,
    /// Reads that were timed one by one, in the slices.
    pub latencies: Latencies,
    reader: Reader<'a>,
    offsets: Offsets,
    clock_ns: u64,
    buffer: Vec<u8>,
    counted: Statistics,
}

impl<'a> Player<'a> {
    /// A new client, with the first `cold` reads made.
    ///
    /// # Errors
    /// The server could not be reached, or a read failed.
    pub fn new(
        case: &Case,
        config: Config,
        (setting, cold): (&'a Setting, u64),
        offsets: &Offsets,
    ) -> Result<Self> {
        let reader = match &config.options {
            Some(options) => Reader::Remote(setting.open(case, options.clone())?),
            None => Reader::Local(setting.local()),
        };
        let mut player = Self {
            config,
            cold: Slice::default(),
            before: Slice::default(),
            slices: Vec::new(),
            latencies: Latencies::default(),
            reader,
            offsets: offsets.clone(),
            clock_ns: setting.clock_ns(),
            buffer: vec![0; case.size_bytes],
            counted: Statistics::default(),
        };
        let begin = Instant::now();
        for _ in 0..cold {
            player.read_next()?;
        }
        player.cold = Slice {
            reads: cold,
            elapsed_ns: clock::nanos(begin, Instant::now()),
            ..Slice::default()
        };
        Ok(player)
    }

    /// Touches each page of the working set once, or as many as there is time for.
    ///
    /// # Errors
    /// A read failed.
    pub fn warm_up(&mut self, case: &Case, most: Duration) -> Result<()> {
        let begin = Instant::now();
        let mut reads = 0;
        for (number, page) in each_page(case).into_iter().enumerate() {
            self.read(page)?;
            reads += 1;
            if number % 64 == 63 && begin.elapsed() >= most {
                break;
            }
        }
        self.slices.push(Slice {
            reads,
            elapsed_ns: clock::nanos(begin, Instant::now()),
            ..Slice::default()
        });
        Ok(())
    }

    /// Begins the slices that count.
    pub fn begin(&mut self) {
        self.before = (self.slices.drain(..)).fold(self.cold, |sum, slice| sum.and(&slice));
        self.latencies = Latencies::default();
        self.counted = self.statistics();
    }

    /// Reads for this long.
    ///
    /// # Errors
    /// A read failed.
    pub fn slice(&mut self, time: Duration, server_cpu_ns: impl Fn() -> u64) -> Result<()> {
        let (client_cpu, server_cpu) = (cpu::own_ns(), server_cpu_ns());
        let mut bulks = 0;
        let begin = Instant::now();
        let end = loop {
            for _ in 1..BULK {
                self.read_next()?;
            }
            let before = Instant::now();
            self.read_next()?;
            let after = Instant::now();
            let took = clock::nanos(before, after);
            self.latencies.record(took.saturating_sub(self.clock_ns));
            bulks += 1;
            if after.duration_since(begin) >= time {
                break after;
            }
        };
        let looks_ns = bulks * 2 * self.clock_ns;
        self.slices.push(Slice {
            reads: bulks * BULK,
            elapsed_ns: clock::nanos(begin, end).saturating_sub(looks_ns),
            client_cpu_ns: cpu::own_ns().saturating_sub(client_cpu),
            server_cpu_ns: server_cpu_ns().saturating_sub(server_cpu),
        });
        Ok(())
    }

    /// The counts of its client since the warm-up.
    pub fn routes(&self) -> Routes {
        let now = self.statistics();
        Routes {
            cache_hits: now.cache_hits - self.counted.cache_hits,
            direct_hits: now.direct_hits - self.counted.direct_hits,
            one_sided_hits: now.one_sided_hits - self.counted.one_sided_hits,
            rpc_reads: now.rpc_reads - self.counted.rpc_reads,
            stale_hits: now.stale_hits - self.counted.stale_hits,
        }
    }

    fn statistics(&self) -> Statistics {
        match &self.reader {
            Reader::Remote(file) => file.client().statistics(),
            Reader::Local(_) => Statistics::default(),
        }
    }

    fn read_next(&mut self) -> Result<()> {
        let offset = self.offsets.next();
        self.read(offset)
    }

    fn read(&mut self, offset: u64) -> Result<()> {
        match &self.reader {
            Reader::Remote(file) => {
                file.read_at(&mut self.buffer, offset)?;
            }
            Reader::Local(file) => file.copy(offset, &mut self.buffer),
        }
        std::hint::black_box(&mut self.buffer);
        Ok(())
    }
}

/// Where reads ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize)]
pub struct Routes {
    /// In the client's cache.
    pub cache_hits: u64,
    /// With direct reads.
    pub direct_hits: u64,
    /// One-sided ones among these.
    pub one_sided_hits: u64,
    /// With an RPC.
    pub rpc_reads: u64,
    /// Direct tries that were refused.
    pub stale_hits: u64,
}

impl Routes {
    /// Those of many clients.
    pub fn add(&mut self, statistics: &Statistics) {
        self.cache_hits += statistics.cache_hits;
        self.direct_hits += statistics.direct_hits;
        self.one_sided_hits += statistics.one_sided_hits;
        self.rpc_reads += statistics.rpc_reads;
        self.stale_hits += statistics.stale_hits;
    }

    /// The route that most reads took which had to leave the cache.
    pub fn settled(&self) -> &'static str {
        let guarded = self.direct_hits - self.one_sided_hits;
        let routes = [
            (self.rpc_reads, "rpc"),
            (guarded, "guarded"),
            (self.one_sided_hits, "one-sided"),
        ];
        routes.into_iter().max().map_or("rpc", |(_, route)| route)
    }
}
