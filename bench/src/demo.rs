//! The demonstration: the same random reads by each route, every byte of them
//! compared with the file itself.

use std::collections::HashMap;
use std::fs;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use odafs::{Cache, Client, Eager, Options, ReadError, Route, Wait};
use serde::Serialize;

use crate::clock;
use crate::cpu;
use crate::histogram::Latencies;
use crate::machine::Machine;
use crate::process::ServerProcess;
use crate::tree::{Draw, Found, Listing, Pages, Stamp};

/// Reads between two looks at CPU time and bytes.
const BATCH: usize = 512;

/// Time for reading the files before anything is timed.
const WARM_UP_MAX: Duration = Duration::from_secs(60);

/// Local files kept open for comparing.
const LOCAL_FILES: usize = 256;

/// The routes, in the order of their rows.
pub const ROUTES: [(&str, Route); 4] = [
    ("rpc", Route::Rpc),
    ("guarded", Route::Guarded),
    ("one-sided", Route::OneSided),
    ("policy", Route::Policy),
];

/// What `odafs demo --json` prints.
#[derive(Clone, Debug, Serialize)]
pub struct Demo {
    /// The directory that was read.
    pub dir: String,
    /// Number of files that were read.
    pub files: u64,
    /// Total bytes of these files.
    pub bytes: u64,
    /// Page size of the server's cache in bytes.
    pub page_bytes: u64,
    /// The fabric.
    pub fabric: String,
    /// `spin` or `block`.
    pub wait: String,
    /// The MAC of guarded reads.
    pub mac: String,
    /// Bytes of the server's page cache.
    pub server_cache_bytes: u64,
    /// Bytes that the server had read before anything was timed: all of the files, as much as its cache holds, or as
    /// much as it read in a minute.
    pub warm_bytes: u64,
    /// What was left out of the directory, as a sentence.
    pub skipped: Option<String>,
    /// What reading the clock costs, subtracted from every latency.
    pub clock_ns: u64,
    /// The machine that it ran on.
    pub machine: Machine,
    /// The commit that the program was built from.
    pub commit: &'static str,
    /// One row for each route.
    pub routes: Vec<RouteRow>,
}

/// One route's figures.
#[derive(Clone, Debug, Default, Serialize)]
pub struct RouteRow {
    /// `rpc`, `guarded`, `one-sided`, `policy`.
    pub route: &'static str,
    /// Reads made.
    pub reads: u64,
    /// Latency that half of them did not exceed, in nanoseconds.
    pub p50_ns: u64,
    /// Latency that 99 % of them did not exceed.
    pub p99_ns: u64,
    /// Latency that 99.9 % of them did not exceed.
    pub p999_ns: u64,
    /// CPU time of this process, per read.
    pub client_cpu_ns_per_read: u64,
    /// CPU time of the server, per read.
    pub server_cpu_ns_per_read: u64,
    /// Reads from the client's data cache.
    pub cache_hits: u64,
    /// Reads served directly.
    pub direct_hits: u64,
    /// Reads that took an RPC.
    pub rpc_reads: u64,
    /// Direct tries refused.
    pub stale_hits: u64,
    /// Reads of files that somebody changed meanwhile.
    pub changed: u64,
    /// Reads that returned other bytes than the unchanged file holds.
    pub mismatches: u64,
    /// Bytes compared.
    pub compared_bytes: u64,
}

/// What is read, from where, and for how long.
pub struct Workload<'a> {
    /// The server.
    pub server: &'a ServerProcess,
    /// Its URL.
    pub url: odafs::Url,
    /// The directory that it serves.
    pub root: &'a Path,
    /// The files in it.
    pub listing: &'a Listing,
    /// Bytes of a page.
    pub page_bytes: u64,
    /// How the client waits.
    pub wait: Wait,
    /// How long each route is measured.
    pub time: Duration,
}

impl Workload<'_> {
    /// Reads the files once, up to `most` bytes (what fits the server's cache), so that they are in its memory before
    /// anything is timed. Stops after a minute. Returns the number of bytes read. `tick` hears that number.
    ///
    /// # Errors
    /// The server could not be reached.
    pub fn warm_up(&self, most: u64, mut tick: impl FnMut(u64)) -> Result<u64> {
        let options = Options {
            route: Route::Rpc,
            cache: Cache::Off,
            ..Options::default()
        };
        let client = Client::connect_with(&self.url, options)?;
        let mut piece = vec![0; 1 << 20];
        let begin = Instant::now();
        let mut warm = 0;
        for found in &self.listing.files {
            // What cannot be opened or read now is judged when its turn to be timed comes.
            let Ok(file) = client.open(&found.path) else {
                continue;
            };
            let mut offset = 0;
            while let Ok(bytes @ 1..) = file.read_at(&mut piece, offset) {
                offset += bytes as u64;
                warm += bytes as u64;
                tick(bytes as u64);
                if warm >= most || begin.elapsed() > WARM_UP_MAX {
                    return Ok(warm);
                }
            }
        }
        Ok(warm)
    }

    /// Measures one route. `tick` hears how much of the time has passed.
    ///
    /// # Errors
    /// The server could not be reached, or a read failed on a file that is
    /// still as it was.
    pub fn run(
        &self,
        route: (&'static str, Route),
        mut tick: impl FnMut(Duration),
    ) -> Result<(RouteRow, Client)> {
        let cache = if route.1 == Route::Policy {
            Cache::CloseToOpen
        } else {
            Cache::Off
        };
        let options = Options {
            route: route.1,
            wait: self.wait,
            cache,
            eager: Eager::OnOpen,
            ..Options::default()
        };
        let client = Client::connect_with(&self.url, options)?;
        let mut reader = Reader::new(self, client.clone());
        let sizes = self.listing.files.iter().map(|f| f.size);
        let mut pages = Pages::new(sizes, self.page_bytes, 1);
        let begin = Instant::now();
        loop {
            let passed = begin.elapsed();
            // Opening files is no part of the time, but it has an end too.
            if passed.saturating_sub(reader.opening) >= self.time || passed >= self.time * 4 {
                break;
            }
            reader.batch(&mut pages)?;
            tick(passed.saturating_sub(reader.opening).min(self.time));
        }
        Ok((reader.row(route.0), client))
    }
}

/// One route under way.
struct Reader<'a> {
    workload: &'a Workload<'a>,
    client: Client,
    files: Vec<Option<odafs::File>>,
    local: LocalFiles<'a>,
    buffer: Vec<u8>,
    clock_ns: u64,
    opening: Duration,
    latencies: Latencies,
    client_cpu: u64,
    server_cpu: u64,
    row: RouteRow,
}

/// What came of one read.
type Outcome = Result<usize, ReadError>;

impl<'a> Reader<'a> {
    fn new(workload: &'a Workload<'a>, client: Client) -> Self {
        Self {
            workload,
            client,
            files: vec![None; workload.listing.files.len()],
            local: LocalFiles::new(workload.root, &workload.listing.files),
            buffer: vec![0; BATCH * workload.page_bytes as usize],
            clock_ns: clock::overhead_ns(),
            opening: Duration::ZERO,
            latencies: Latencies::default(),
            client_cpu: 0,
            server_cpu: 0,
            row: RouteRow::default(),
        }
    }

    fn batch(&mut self, pages: &mut Pages) -> Result<()> {
        let draws: Vec<Draw> = std::iter::from_fn(|| pages.draw()).take(BATCH).collect();
        let begin = Instant::now();
        let draws = self.open(draws)?;
        self.opening += begin.elapsed();
        let outcomes = self.read(&draws);
        for (i, (draw, outcome)) in draws.iter().zip(outcomes).enumerate() {
            self.judge(i, *draw, outcome)?;
        }
        Ok(())
    }

    /// Opens files that are not open yet. Leaves out reads of files that have gone.
    fn open(&mut self, draws: Vec<Draw>) -> Result<Vec<Draw>> {
        let mut opened = Vec::with_capacity(draws.len());
        for draw in draws {
            if self.files[draw.file].is_none() {
                match self
                    .client
                    .open(&self.workload.listing.files[draw.file].path)
                {
                    Ok(file) => self.files[draw.file] = Some(file),
                    Err(_) if self.local.has_changed(draw.file) => {
                        self.row.changed += 1;
                        continue;
                    }
                    Err(error) => return Err(error.into()),
                }
            }
            opened.push(draw);
        }
        Ok(opened)
    }

    /// The timed part: nothing in here but the reads and one look at the clock each.
    fn read(&mut self, draws: &[Draw]) -> Vec<Outcome> {
        let mut outcomes = Vec::with_capacity(draws.len());
        let counted = self.client.statistics();
        let server_cpu = self.workload.server.cpu_ns();
        let client_cpu = cpu::own_ns();
        let mut last = Instant::now();
        for (draw, page) in draws
            .iter()
            .zip(self.buffer.chunks_mut(self.workload.page_bytes as usize))
        {
            let Some(file) = &self.files[draw.file] else {
                continue;
            };
            outcomes.push(file.read_at(&mut page[..draw.length], draw.offset));
            let now = Instant::now();
            self.latencies
                .record(clock::nanos(last, now).saturating_sub(self.clock_ns));
            last = now;
        }
        self.client_cpu += cpu::own_ns().saturating_sub(client_cpu);
        self.server_cpu += self.workload.server.cpu_ns().saturating_sub(server_cpu);
        let now = self.client.statistics();
        self.row.cache_hits += now.cache_hits - counted.cache_hits;
        self.row.direct_hits += now.direct_hits - counted.direct_hits;
        self.row.rpc_reads += now.rpc_reads - counted.rpc_reads;
        self.row.stale_hits += now.stale_hits - counted.stale_hits;
        outcomes
    }

    /// Compares what a read returned with the file. Other bytes from a file
    /// that shows no change and that reads the same locally twice are a mismatch.
    fn judge(&mut self, index: usize, draw: Draw, outcome: Outcome) -> Result<()> {
        let at = index * self.workload.page_bytes as usize;
        match outcome {
            Ok(bytes) => {
                let seen = &self.buffer[at..at + bytes];
                self.row.compared_bytes += bytes as u64;
                if self.local.holds(draw, seen) {
                    return Ok(());
                }
                if self.local.has_changed(draw.file) || self.local.holds(draw, seen) {
                    self.row.changed += 1;
                } else {
                    self.row.mismatches += 1;
                }
            }
            Err(_) if self.local.has_changed(draw.file) => {
                self.row.changed += 1;
                self.files[draw.file] = None;
            }
            Err(error) => return Err(error.into()),
        }
        Ok(())
    }

    fn row(mut self, route: &'static str) -> RouteRow {
        let reads = self.latencies.len();
        self.row.route = route;
        self.row.reads = reads;
        self.row.p50_ns = self.latencies.at(0.5);
        self.row.p99_ns = self.latencies.at(0.99);
        self.row.p999_ns = self.latencies.at(0.999);
        self.row.client_cpu_ns_per_read = self.client_cpu / reads.max(1);
        self.row.server_cpu_ns_per_read = self.server_cpu / reads.max(1);
        self.row
    }
}

/// The files themselves, to compare with.
struct LocalFiles<'a> {
    root: &'a Path,
    found: &'a [Found],
    stamps: Vec<Stamp>,
    open: HashMap<usize, fs::File>,
    page: Vec<u8>,
}

impl<'a> LocalFiles<'a> {
    fn new(root: &'a Path, found: &'a [Found]) -> Self {
        let stamps = found.iter().map(|f| f.stamp).collect();
        Self {
            root,
            found,
            stamps,
            open: HashMap::new(),
            page: Vec::new(),
        }
    }

    /// Whether the file holds exactly `seen` there now.
    fn holds(&mut self, draw: Draw, seen: &[u8]) -> bool {
        self.page.resize(draw.length, 0);
        let mut page = std::mem::take(&mut self.page);
        let read = self
            .file(draw.file)
            .map(|file| read_full(file, &mut page, draw.offset));
        let same = matches!(read, Some(Ok(n)) if page[..n] == *seen);
        self.page = page;
        same
    }

    fn file(&mut self, index: usize) -> Option<&fs::File> {
        if !self.open.contains_key(&index) {
            if self.open.len() >= LOCAL_FILES {
                self.open.clear();
            }
            self.open
                .insert(index, fs::File::open(self.path(index)).ok()?);
        }
        self.open.get(&index)
    }

    fn path(&self, index: usize) -> PathBuf {
        self.root.join(&self.found[index].path)
    }

    /// Whether the file is not as it was when last looked at (or is gone).
    fn has_changed(&mut self, index: usize) -> bool {
        self.open.remove(&index);
        match fs::metadata(self.path(index)) {
            Ok(metadata) => {
                let stamp = Stamp::of(&metadata);
                std::mem::replace(&mut self.stamps[index], stamp) != stamp
                    || stamp != self.found[index].stamp
            }
            Err(_) => true,
        }
    }
}

fn read_full(file: &fs::File, page: &mut [u8], offset: u64) -> std::io::Result<usize> {
    let mut filled = 0;
    while filled < page.len() {
        match file.read_at(&mut page[filled..], offset + filled as u64)? {
            0 => break,
            n => filled += n,
        }
    }
    Ok(filled)
}

/// Bytes of a page of the server's cache, as it says itself.
///
/// # Errors
/// It could not be reached, or grants no direct reads.
pub fn page_bytes(url: &odafs::Url) -> Result<(u64, &'static str)> {
    let options = Options {
        route: Route::Guarded,
        ..Options::default()
    };
    let facts = Client::connect_with(url, options)?.server();
    let mac = match facts.granted {
        Some(odafs::Granted::Guarded { mac } | odafs::Granted::OneSided { mac }) => mac,
        None => "none",
    };
    let bytes = u64::from(facts.page_bytes);
    (bytes > 0)
        .then_some((bytes, mac))
        .context("the server grants no direct reads")
}
