//! What all rows share: the files, the servers, the placement.

use std::fs;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use odafs::{Cache, Client, Options, Route, ServerAddress, Url, Wait};

use super::plan::{Plan, Spec};
use crate::cpu::{self, Placement};
use crate::floors::local::{self, LocalFile};
use crate::floors::memory::LARGE_PAGE;
use crate::process::{ServerPlan, ServerProcess};
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
    servers: Vec<(&'static str, Server)>,
    cached: Option<odafs::File>,
    _directory: Option<Scratch>,
}

/// A server to measure.
pub struct Server {
    process: Option<ServerProcess>,
    url: Url,
    /// Page size behind its page cache.
    backing: u64,
}

/// A server's way of working: how it waits, and whether reads go to a worker.
fn server_kind(spec: &Spec) -> &'static str {
    match (spec.rpc, spec.wait) {
        _ if spec.backing != LARGE_PAGE => "small-spin",
        (Some("worker"), "spin") => "worker-spin",
        (Some("worker"), _) => "worker-block",
        (_, "spin") => "spin",
        _ => "block",
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
        let directory =
            Scratch::for_bytes(2 * plan.file_bytes).context("cannot make a directory")?;
        let (served, beside) = (
            directory.path().join("served"),
            directory.path().join("large"),
        );
        fs::create_dir(&served).context("cannot make a directory")?;
        tick("writing the file");
        let path = served.join(FILE);
        local::write_random(&path, plan.file_bytes, |_| {})
            .with_context(|| format!("cannot write {}", path.display()))?;
        let wants_large =
            |s: &Spec| s.backing == LARGE_PAGE && (s.fabric == "local" || s.route == "floor");
        if specs.iter().any(wants_large) {
            fs::copy(&path, &beside)
                .with_context(|| format!("cannot write {}", beside.display()))?;
            self.large = Some(LocalFile::open(&beside, true)?);
        }
        self.small = Some(LocalFile::open(&path, false)?);
        for spec in specs
            .iter()
            .filter(|s| s.fabric != "local" && s.route != "floor")
        {
            let kind = server_kind(spec);
            if self.servers.iter().any(|(k, _)| *k == kind) {
                continue;
            }
            tick(&format!("starting and filling a server ({kind})"));
            let server = self.start(plan, &served, kind)?;
            self.servers.push((kind, server));
        }
        self._directory = Some(directory);
        Ok(())
    }

    fn start(&self, plan: &Plan, served: &std::path::Path, kind: &str) -> Result<Server> {
        let process = ServerProcess::start(&ServerPlan {
            program: plan.program.clone(),
            directory: served.to_owned(),
            read_only: true,
            cache_bytes: plan.file_bytes + plan.file_bytes / 16 + (16 << 20),
            spin: if kind.ends_with("spin") {
                SPIN
            } else {
                Duration::ZERO
            },
            nfs: false,
            cpus: self.placement.as_ref().map(|p| p.server.clone()),
            arguments: match kind {
                "small-spin" => vec!["--small-pages".to_owned()],
                "worker-spin" | "worker-block" => vec!["--hand-over".to_owned()],
                _ => Vec::new(),
            },
        })?;
        let url = Url {
            path: format!("/{FILE}").into_bytes(),
            ..process.url()
        };
        let mut server = Server {
            process: Some(process),
            url,
            backing: 4096,
        };
        let options = Options {
            route: Route::Rpc,
            cache: Cache::Off,
            ..Options::default()
        };
        let file = open(&server.url, options)?;
        let mut piece = vec![0; 1 << 20];
        let mut offset = 0;
        while offset < self.file_bytes {
            offset += match file.read_at(&mut piece, offset)? {
                0 => bail!("the server's file is shorter than what was written"),
                n => n as u64,
            };
        }
        let id = server.process.as_ref().map_or(0, ServerProcess::id);
        server.backing = backing_of(&id.to_string(), self.file_bytes);
        Ok(server)
    }

    fn use_server(&mut self, url: &Url) -> Result<()> {
        let file = open(url, Options::default())?;
        self.file_bytes = file.metadata()?.size;
        if self.file_bytes < 4096 {
            bail!("{url}: a file of at least 4096 bytes is needed");
        }
        for kind in ["spin", "block"] {
            self.servers.push((
                kind,
                Server {
                    process: None,
                    url: url.clone(),
                    backing: 4096,
                },
            ));
        }
        Ok(())
    }

    /// Where both sides run, in words.
    pub fn placement(&self) -> String {
        match &self.placement {
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
        let kind = server_kind(spec);
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
            memory_bytes,
            wait: Wait::Spin,
            ..Options::default()
        };
        let file = open(&self.server(spec)?.url, options)?;
        let mut page = vec![0; 64 << 10];
        for offset in (0..self.file_bytes).step_by(page.len()) {
            file.read_at(&mut page, offset)?;
        }
        self.cached = Some(file.clone());
        Ok(file)
    }
}

impl Server {
    /// Where its file is.
    pub fn url(&self) -> &Url {
        &self.url
    }

    /// CPU time that it has used, if it is ours.
    pub fn cpu_ns(&self) -> Option<u64> {
        self.process.as_ref().map(ServerProcess::cpu_ns)
    }

    /// Page size behind its page cache, as far as is known.
    pub fn backing(&self) -> u64 {
        self.backing
    }

    /// Whether it can be read over this fabric.
    pub fn is_local(&self) -> bool {
        matches!(self.url.server, ServerAddress::Shm(_))
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
