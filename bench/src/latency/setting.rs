//! What all rows share: the files, the servers, the placement.

use std::fs;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use odafs::{Cache, Client, Options, Route, ServerAddress, Url, Wait};

use super::plan::{Plan, Spec};
use crate::cpu::{self, Placement};
use crate::floors::local::{self, LocalFile};
use crate::floors::memory::LARGE_PAGE;
use crate::process::{Fabric, ServerPlan, ServerProcess};
use crate::progress::percents;
use crate::scratch::Scratch;

/// How long the engine of a spinning server polls: longer than any gap within
/// a row; between rows it sleeps, so that it does not disturb the others.
const SPIN: Duration = Duration::from_millis(20);

/// Time after which a spinning server has fallen asleep.
const QUIET: Duration = Duration::from_millis(30);

/// The file's name below the served directory.
const FILE: &str = "file";

/// What all rows share.
pub struct Setting {
    file_bytes: u64,
    reads: Option<u64>,
    time: Duration,
    clock_ns: u64,
    placement: Option<Placement>,
    small: Option<LocalFile>,
    large: Option<LocalFile>,
    servers: Vec<(Kind, Server)>,
    cached: Option<odafs::File>,
    _directory: Option<Scratch>,
}

/// A server to measure.
pub struct Server {
    process: Option<ServerProcess>,
    /// Where its file is, over each of its fabrics.
    urls: Vec<Url>,
    /// Page size behind its page cache, if known.
    backing: Option<u64>,
}

/// A server's way of working.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Kind {
    /// Its engine polls.
    spins: bool,
    /// It hands every call to a worker.
    hands_over: bool,
    /// Its memory has small pages.
    small: bool,
}

impl Kind {
    fn of(spec: &Spec) -> Self {
        Self {
            spins: spec.wait == "spin",
            hands_over: spec.rpc == Some("worker"),
            small: spec.backing != LARGE_PAGE,
        }
    }
}

impl std::fmt::Display for Kind {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(if self.spins { "polling" } else { "sleeping" })?;
        f.write_str(if self.hands_over { ", workers" } else { "" })?;
        f.write_str(if self.small { ", small pages" } else { "" })
    }
}

/// Whether a row is measured at a server.
fn is_remote(spec: &Spec) -> bool {
    spec.fabric != "local" && spec.route != "floor"
}

/// The servers that rows need.
fn kinds(specs: &[Spec]) -> Vec<Kind> {
    let mut kinds = Vec::new();
    for kind in specs.iter().filter(|spec| is_remote(spec)).map(Kind::of) {
        if !kinds.contains(&kind) {
            kinds.push(kind);
        }
    }
    kinds
}

/// How many files rows need: one on large pages too, where that is read without a server.
fn files(specs: &[Spec]) -> u64 {
    match (specs.iter()).any(|spec| spec.backing == LARGE_PAGE && !is_remote(spec)) {
        true => 2,
        false => 1,
    }
}

impl Plan {
    /// Memory that it takes in bytes, about: the files, and the cache of each server.
    pub fn memory_bytes(&self) -> u64 {
        let specs = self.specs();
        let copies = files(&specs) + kinds(&specs).len() as u64;
        self.file_bytes.saturating_mul(copies)
    }
}

impl Setting {
    /// Makes the files and starts the servers that these rows need.
    ///
    /// # Errors
    /// A file could not be made, or a server not be started or reached.
    pub fn new(plan: &Plan, specs: &[Spec], tick: &mut impl FnMut(&str)) -> Result<Self> {
        let placement = Placement::apart();
        if let Some(placement) = &placement {
            cpu::bind(&placement.client).context("cannot bind to a processor")?;
        }
        let mut setting = Self {
            file_bytes: plan.file_bytes,
            reads: plan.reads,
            time: plan.time,
            clock_ns: crate::clock::overhead_ns(),
            placement,
            small: None,
            large: None,
            servers: Vec::new(),
            cached: None,
            _directory: None,
        };
        match &plan.url {
            Some(url) => setting.use_server(url)?,
            None => setting.make(plan, specs, tick)?,
        }
        Ok(setting)
    }

    fn make(&mut self, plan: &Plan, specs: &[Spec], tick: &mut impl FnMut(&str)) -> Result<()> {
        let files = files(specs);
        let directory =
            Scratch::for_bytes(files * plan.file_bytes).context("cannot make a directory")?;
        let (served, beside) = (
            directory.path().join("served"),
            directory.path().join("large"),
        );
        fs::create_dir(&served).context("cannot make a directory")?;
        let path = served.join(FILE);
        let wrote = percents("writing the file", plan.file_bytes, tick);
        local::write_random(&path, plan.file_bytes, wrote)
            .with_context(|| format!("cannot write {}", path.display()))?;
        if files == 2 {
            fs::copy(&path, &beside)
                .with_context(|| format!("cannot write {}", beside.display()))?;
            self.large = Some(LocalFile::open(&beside, true)?);
        }
        self.small = Some(LocalFile::open(&path, false)?);
        let mut fabrics = vec![Fabric::Shm];
        let has_rows = |fabric| (specs.iter()).any(|s| is_remote(s) && s.fabric == fabric);
        fabrics.extend(has_rows("tcp").then_some(Fabric::Iwarp));
        let device = plan.verbs.filter(|_| has_rows("verbs"));
        fabrics.extend(device.map(Fabric::Verbs));
        for kind in kinds(specs) {
            tick(&format!("starting a server ({kind})"));
            let server = self.start(plan, &served, kind, &fabrics, tick)?;
            self.servers.push((kind, server));
        }
        self._directory = Some(directory);
        Ok(())
    }

    fn start(
        &self,
        plan: &Plan,
        served: &std::path::Path,
        kind: Kind,
        fabrics: &[Fabric],
        tick: &mut impl FnMut(&str),
    ) -> Result<Server> {
        let mut arguments = Vec::new();
        arguments.extend(kind.small.then(|| "--small-pages".to_owned()));
        arguments.extend(kind.hands_over.then(|| "--hand-over".to_owned()));
        let process = ServerProcess::start(&ServerPlan {
            program: plan.program.clone(),
            directory: served.to_owned(),
            read_only: true,
            cache_bytes: plan.file_bytes + plan.file_bytes / 16 + (16 << 20),
            fabrics: fabrics.to_vec(),
            direct: Some("one-sided"),
            spin: Some(if kind.spins { SPIN } else { Duration::ZERO }),
            nfs: false,
            cpus: self.placement.as_ref().map(|p| p.server.clone()),
            arguments,
        })?;
        let file_at = |fabric: &Fabric| {
            anyhow::Ok(Url {
                path: format!("/{FILE}").into_bytes(),
                ..process.url(*fabric)?
            })
        };
        let urls: Result<Vec<Url>> = fabrics.iter().map(file_at).collect();
        let mut server = Server {
            urls: urls?,
            process: Some(process),
            backing: None,
        };
        let options = Options {
            route: Route::Rpc,
            cache: Cache::Off,
            ..Options::default()
        };
        let file = open(&server.urls[0], options)?;
        let mut piece = vec![0; 1 << 20];
        let what = format!("filling a server ({kind})");
        let mut filled = percents(&what, self.file_bytes, tick);
        let mut offset = 0;
        while offset < self.file_bytes {
            let bytes = match file.read_at(&mut piece, offset)? {
                0 => bail!("the server's file is shorter than what was written"),
                n => n as u64,
            };
            offset += bytes;
            filled(bytes);
        }
        let id = server.process.as_ref().map_or(0, ServerProcess::id);
        server.backing = Some(backing_of(&id.to_string(), self.file_bytes));
        Ok(server)
    }

    fn use_server(&mut self, url: &Url) -> Result<()> {
        let file = open(url, Options::default())?;
        self.file_bytes = file.metadata()?.size;
        if self.file_bytes < 4096 {
            bail!("{url}: a file of at least 4096 bytes is needed");
        }
        for spins in [true, false] {
            let kind = Kind {
                spins,
                hands_over: false,
                small: false,
            };
            let server = Server {
                process: None,
                urls: vec![url.clone()],
                backing: None,
            };
            self.servers.push((kind, server));
        }
        Ok(())
    }

    /// Where client and server run, as a sentence.
    pub fn placement(&self) -> String {
        let runs_already = self.servers.iter().any(|(_, s)| s.process.is_none());
        match &self.placement {
            Some(p) if runs_already => format!(
                "client bound to processor {}, the server where it ran already",
                p.client[0]
            ),
            Some(p) => format!(
                "client bound to processor {}, server to processor {}",
                p.client[0], p.server[0]
            ),
            None => "not bound: there is one processor".to_owned(),
        }
    }

    /// What reading the clock costs.
    pub fn clock_ns(&self) -> u64 {
        self.clock_ns
    }

    /// Bytes of the file.
    pub fn file_bytes(&self) -> u64 {
        self.file_bytes
    }

    /// Time for a row, if it is not measured by reads.
    pub fn time(&self) -> Duration {
        self.time
    }

    /// Whether a row has been measured long enough.
    pub fn enough(&self, reads: u64, time: Duration) -> bool {
        self.reads
            .map_or(time >= self.time, |wanted| reads >= wanted)
    }

    /// The local file with that page size behind it, if there is one.
    pub fn local(&self, backing: u64) -> Option<&LocalFile> {
        let file = if backing == LARGE_PAGE {
            &self.large
        } else {
            &self.small
        };
        file.as_ref().filter(|f| f.backing_bytes() == backing)
    }

    /// The processors of the server's side.
    pub fn server_cpus(&self) -> Option<&[usize]> {
        self.placement.as_ref().map(|p| p.server.as_slice())
    }

    /// The server that a row is measured at.
    ///
    /// # Errors
    /// None was started for it.
    pub fn server(&self, spec: &Spec) -> Result<&Server> {
        let kind = Kind::of(spec);
        let found = self.servers.iter().find(|(k, _)| *k == kind);
        found
            .map(|(_, server)| server)
            .with_context(|| format!("no {kind} server"))
    }

    /// Lets the servers fall asleep.
    pub fn settle(&self) {
        std::thread::sleep(QUIET);
    }

    /// The file of a client whose data cache holds all of it; filled once.
    ///
    /// # Errors
    /// The server could not be reached or read.
    pub fn cached(&mut self, spec: &Spec) -> Result<odafs::File> {
        if let Some(file) = &self.cached {
            return Ok(file.clone());
        }
        let memory_bytes = self.file_bytes + self.file_bytes / 4 + (32 << 20);
        let options = Options {
            // By default a client keeps nothing that it can load from the server's memory.
            route: Route::Guarded,
            memory_bytes,
            wait: Wait::Spin,
            ..Options::default()
        };
        let file = open(&self.server(spec)?.url(spec), options)?;
        let mut page = vec![0; 64 << 10];
        for offset in (0..self.file_bytes).step_by(page.len()) {
            file.read_at(&mut page, offset)?;
        }
        self.cached = Some(file.clone());
        Ok(file)
    }
}

impl Server {
    /// Where its file is, over the row's fabric.
    pub fn url(&self, spec: &Spec) -> Url {
        let over = |url: &&Url| super::plan::fabric_of(&url.server) == spec.fabric;
        self.urls.iter().find(over).unwrap_or(&self.urls[0]).clone()
    }

    /// CPU time that it has used, if it is ours.
    pub fn cpu_ns(&self) -> Option<u64> {
        self.process.as_ref().map(ServerProcess::cpu_ns)
    }

    /// Page size behind its page cache, if known.
    pub fn backing(&self) -> Option<u64> {
        self.backing
    }

    /// Whether clients of this row map its memory.
    pub fn is_mapped(&self, spec: &Spec) -> bool {
        matches!(
            self.url(spec).server,
            ServerAddress::Shm(_) | ServerAddress::DefaultShm
        )
    }
}

/// Connects and opens the URL's file.
///
/// # Errors
/// The server could not be reached, or has no such file.
pub fn open(url: &Url, options: Options) -> Result<odafs::File> {
    use std::os::unix::ffi::OsStrExt;
    let client = Client::connect_with(url, options)?;
    Ok(client.open(std::ffi::OsStr::from_bytes(&url.path))?)
}

/// Page size behind the largest sealed memory that a process has mapped: large
/// if nine tenths of `bytes` are.
pub fn backing_of(process: &str, bytes: u64) -> u64 {
    let Ok(text) = fs::read_to_string(format!("/proc/{process}/smaps")) else {
        return 4096;
    };
    let mut in_memfd = false;
    let mut large = 0;
    for line in text.lines() {
        let first = line.split_whitespace().next().unwrap_or("");
        if !first.ends_with(':') {
            in_memfd = line.contains("/memfd:");
        } else if in_memfd && first == "ShmemPmdMapped:" {
            large += line
                .split_whitespace()
                .nth(1)
                .and_then(|n| n.parse::<u64>().ok())
                .unwrap_or(0)
                << 10;
        }
    }
    if large >= bytes / 10 * 9 {
        LARGE_PAGE
    } else {
        4096
    }
}
