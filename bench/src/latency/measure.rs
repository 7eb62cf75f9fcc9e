//! One row in one round.

use std::io;
use std::time::{Duration, Instant};

use anyhow::Result;
use odafs::{Cache, MacPreference, Options, ReadRequest, Route, Statistics, Transfer};

use super::plan::Spec;
use super::setting::{self, Setting};
use crate::clock;
use crate::cpu;
use crate::floors::local::LocalFile;
use crate::floors::{Peer, Wait, shm, tcp};
use crate::histogram::Latencies;
use crate::random::Random;

/// Number of reads before the first one that counts: this many, or as many as a row's time allows, but at least the
/// other number.
const WARM_UP: (u64, u64) = (100, 2000);

/// The figures of one row in one round, times in nanoseconds.
#[derive(Clone, Debug, Default)]
pub struct Round {
    /// Reads made.
    pub reads: u64,
    /// Median.
    pub p50_ns: u64,
    /// 99th percentile.
    pub p99_ns: u64,
    /// 99.9th percentile.
    pub p999_ns: u64,
    /// Time per read, over all in flight together.
    pub per_read_ns: u64,
    /// Client's CPU time per read.
    pub client_cpu_ns_per_read: u64,
    /// Server's CPU time per read, if known.
    pub server_cpu_ns_per_read: Option<u64>,
    /// Page size behind the memory, if known.
    pub backing_bytes: Option<u64>,
    /// Reads by another route.
    pub other_route: u64,
}

/// Measures a row; `None` where this machine cannot (no large pages, say).
///
/// # Errors
/// A server could not be reached, or a read failed.
pub fn measure(spec: &Spec, setting: &mut Setting) -> Result<Option<Round>> {
    match spec.route {
        "pread" | "mmap" => local(spec, setting),
        "floor" => floor(spec, setting),
        "cache" => cache(spec, setting).map(Some),
        _ => remote(spec, setting).map(Some),
    }
}

fn local(spec: &Spec, setting: &Setting) -> Result<Option<Round>> {
    let Some(file) = setting.local(spec.backing) else {
        return Ok(None);
    };
    let mut buffer = vec![0; spec.size_bytes];
    let read: fn(&LocalFile, u64, &mut [u8]) -> io::Result<()> = match spec.route {
        "pread" => |file, offset, into| file.pread(offset, into),
        _ => |file, offset, into| {
            file.copy(offset, into);
            Ok(())
        },
    };
    let mut offsets = Offsets::new(spec, setting);
    let timed = timed(
        setting,
        spec,
        || (cpu::thread_ns(), Some(0)),
        || {
            read(file, offsets.next(), &mut buffer)?;
            std::hint::black_box(&mut buffer);
            Ok(())
        },
    )?;
    Ok(Some(Round {
        backing_bytes: Some(file.backing_bytes()),
        ..timed
    }))
}

fn floor(spec: &Spec, setting: &Setting) -> Result<Option<Round>> {
    let Some(set) = setting.local(spec.backing).or(setting.local(4096)) else {
        return Ok(None);
    };
    let wait = if spec.wait == "spin" {
        Wait::Spin
    } else {
        Wait::Block
    };
    let cpus = setting.server_cpus();
    let round = match spec.fabric {
        "tcp" => tcp::with_peer(set, wait, cpus, |peer| against(spec, setting, peer))??,
        _ => shm::with_peer(set, wait, cpus, |peer| against(spec, setting, peer))?,
    };
    Ok(Some(Round {
        backing_bytes: Some(set.backing_bytes()),
        ..round
    }))
}

fn against(spec: &Spec, setting: &Setting, peer: &mut dyn Peer) -> Result<Round> {
    let mut buffer = vec![0; spec.size_bytes];
    let mut offsets = Offsets::new(spec, setting);
    let peer = std::cell::RefCell::new(peer);
    let cpu = || (cpu::thread_ns(), peer.borrow_mut().cpu_ns().ok());
    timed(setting, spec, cpu, || {
        peer.borrow_mut().read(offsets.next(), &mut buffer)?;
        std::hint::black_box(&mut buffer);
        Ok(())
    })
}

fn cache(spec: &Spec, setting: &mut Setting) -> Result<Round> {
    let file = setting.cached(spec)?;
    let mut buffer = vec![0; spec.size_bytes];
    let mut offsets = Offsets::new(spec, setting);
    let before = file.client().statistics();
    let round = timed(
        setting,
        spec,
        || (cpu::thread_ns(), Some(0)),
        || {
            file.read_at(&mut buffer, offsets.next())?;
            Ok(())
        },
    )?;
    let other_route = off_route(spec, &before, &file.client().statistics());
    Ok(Round {
        backing_bytes: Some(4096),
        other_route,
        ..round
    })
}

fn remote(spec: &Spec, setting: &Setting) -> Result<Round> {
    setting.settle();
    let server = setting.server(spec)?;
    let file = setting::open(&server.url(spec), options(spec))?;
    if spec.route != "rpc" {
        file.learn(0, setting.file_bytes())?;
    }
    let mut offsets = Offsets::new(spec, setting);
    let mut buffer = vec![0; spec.size_bytes * spec.depth as usize];
    let mut read = || -> Result<()> {
        if spec.depth == 1 {
            file.read_at(&mut buffer, offsets.next())?;
        } else {
            let mut requests: Vec<ReadRequest<'_>> = buffer
                .chunks_mut(spec.size_bytes)
                .map(|into| ReadRequest::new(offsets.next(), into))
                .collect();
            file.read_batch(&mut requests)?;
        }
        Ok(())
    };
    if spec.route == "one-sided" && server.is_mapped(spec) {
        touch(&file, setting.file_bytes())?;
    }
    // References are learned, pages of the mapping touched, and both engines awake.
    let (least, most) = WARM_UP;
    let begin = Instant::now();
    for number in 0..most {
        if number >= least && begin.elapsed() > setting.time() {
            break;
        }
        read()?;
    }
    let before = file.client().statistics();
    let round = timed(
        setting,
        spec,
        || (cpu::own_ns(), server.cpu_ns()),
        &mut read,
    )?;
    let other_route = off_route(spec, &before, &file.client().statistics());
    let backing_bytes = match spec.route {
        "one-sided" if server.is_mapped(spec) && server.cpu_ns().is_none() => {
            Some(setting::backing_of("self", setting.file_bytes()))
        }
        _ => server.backing(),
    };
    Ok(Round {
        backing_bytes,
        other_route,
        ..round
    })
}

/// Reads a word of every page, so that none of a fresh mapping is faulted in
/// while reads are timed.
fn touch(file: &odafs::File, bytes: u64) -> Result<()> {
    let mut word = [0; 8];
    for offset in (0..bytes).step_by(4096) {
        file.read_at(&mut word, offset)?;
    }
    Ok(())
}

/// A client's memory that holds the references of a few reads.
const FEW_REFERENCES_BYTES: u64 = 8 << 10;

fn options(spec: &Spec) -> Options {
    Options {
        route: match (spec.route, spec.rpc) {
            ("one-sided", _) => Route::OneSided,
            ("guarded", _) | (_, Some("references")) => Route::Guarded,
            _ => Route::Rpc,
        },
        memory_bytes: match spec.rpc {
            // Too little for what comes: each read brings references that the next one does not find.
            Some("references") => FEW_REFERENCES_BYTES,
            _ => Options::default().memory_bytes,
        },
        wait: match spec.wait {
            "spin" => odafs::Wait::Spin,
            _ => odafs::Wait::Block {
                spin: Duration::ZERO,
            },
        },
        cache: Cache::Off,
        mac: if spec.mac == "hmac-sha256" {
            MacPreference::HmacSha256
        } else {
            MacPreference::Fastest
        },
        // Over RDMA the length decides.
        transfer: if spec.rpc == Some("direct") && spec.fabric == "shm" {
            Transfer::Direct
        } else {
            Transfer::Inline
        },
        ..Options::default()
    }
}

fn off_route(spec: &Spec, before: &Statistics, after: &Statistics) -> u64 {
    let cache = after.cache_hits - before.cache_hits;
    let one_sided = after.one_sided_hits - before.one_sided_hits;
    let guarded = after.guarded_hits - before.guarded_hits;
    let rpc = after.rpc_reads - before.rpc_reads;
    let all = cache + one_sided + guarded + rpc;
    all - match spec.route {
        "cache" => cache,
        "one-sided" => one_sided,
        "guarded" => guarded,
        _ => rpc,
    }
}

/// Where the next read goes.
struct Offsets {
    random: Random,
    pieces: u64,
    size: u64,
}

impl Offsets {
    fn new(spec: &Spec, setting: &Setting) -> Self {
        let size = spec.size_bytes as u64;
        Self {
            random: Random::new(1),
            pieces: (setting.file_bytes() / size).max(1),
            size,
        }
    }

    fn next(&mut self) -> u64 {
        self.random.below(self.pieces) * self.size
    }
}

/// Reads until it is enough. The clock is looked at once between two reads,
/// and what that costs is subtracted from each.
fn timed(
    setting: &Setting,
    spec: &Spec,
    cpu: impl Fn() -> (u64, Option<u64>),
    mut read: impl FnMut() -> Result<()>,
) -> Result<Round> {
    let depth = u64::from(spec.depth);
    let mut latencies = Latencies::default();
    let (client_before, server_before) = cpu();
    let begin = Instant::now();
    let mut last = begin;
    while !setting.enough(latencies.len() * depth, last.duration_since(begin)) {
        read()?;
        let now = Instant::now();
        latencies.record(clock::nanos(last, now).saturating_sub(setting.clock_ns()));
        last = now;
    }
    let (client_after, server_after) = cpu();
    let reads = (latencies.len() * depth).max(1);
    let elapsed = clock::nanos(begin, last).saturating_sub(latencies.len() * setting.clock_ns());
    Ok(Round {
        reads,
        p50_ns: latencies.at(0.5),
        p99_ns: latencies.at(0.99),
        p999_ns: latencies.at(0.999),
        per_read_ns: elapsed / reads,
        client_cpu_ns_per_read: client_after.saturating_sub(client_before) / reads,
        server_cpu_ns_per_read: server_before
            .zip(server_after)
            .map(|(before, after)| after.saturating_sub(before) / reads),
        ..Round::default()
    })
}
