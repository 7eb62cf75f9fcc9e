//! The servers of the rows, and the measurement of a case.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::unix::fs::PermissionsExt as _;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use odafs::{Cache, Client, File, Options, Rdma, RdmaDesign, Route, Url, Wait};

use super::Conditions;
use super::load::{self, Load, Operation, Round};
use crate::cpu::{self, Placement};
use crate::floors::local;
use crate::process::{Fabric, ServerPlan, ServerProcess};
use crate::progress::percents;
use crate::scratch::Scratch;

/// How long a spinning side polls. It is longer than any gap within a row.
const SPIN: Duration = Duration::from_millis(20);

/// The shortest record that is read into registered memory over RDMA, in bytes. The client copies shorter ones.
const REGISTERED_MIN: usize = 64 << 10;

/// The file's name below the served directory.
const FILE: &str = "file";

/// The parameters of a measurement.
#[derive(Clone, Copy, Debug)]
pub struct Case {
    /// The server, by its place in the order of their start.
    pub server: usize,
    /// The fabric: `shm`, `tcp`, `verbs`, `nfs`, or `rdma` (tcp or verbs, by the options).
    pub fabric: &'static str,
    /// How calls travel over RDMA.
    pub rdma: Rdma,
    /// How both sides wait: polling or asleep.
    pub spins: bool,
    /// Number of clients, each with connections of its own.
    pub clients: u32,
    /// Number of callers in each client.
    pub threads: u32,
    /// The operation of the callers.
    pub operation: Operation,
    /// Size of a record in bytes.
    pub record_bytes: usize,
    /// Number of reads that a caller has under way.
    pub depth: u32,
}

impl Case {
    /// One client over RDMA with `threads` callers by this design. Each caller has one record under way, and both sides
    /// sleep while they wait.
    pub fn by_design(
        design: RdmaDesign,
        server: usize,
        operation: Operation,
        threads: u32,
        record_bytes: usize,
    ) -> Self {
        Self {
            server,
            fabric: "rdma",
            rdma: Rdma {
                design,
                ..Rdma::default()
            },
            spins: false,
            clients: 1,
            threads,
            operation,
            record_bytes,
            depth: 1,
        }
    }
}

/// The servers, each with a file of its own in memory.
pub struct Setting {
    conditions: Conditions,
    placement: Option<Placement>,
    servers: Vec<(ServerProcess, Scratch)>,
}

impl Setting {
    /// A setting without a server. From now on this process runs on the client's processor.
    ///
    /// # Errors
    /// The process cannot be bound to the processor.
    pub fn new(conditions: &Conditions) -> Result<Self> {
        let placement = Placement::apart();
        if let Some(placement) = &placement {
            cpu::bind(&placement.client).context("cannot bind to a processor")?;
        }
        Ok(Self {
            conditions: conditions.clone(),
            placement,
            servers: Vec::new(),
        })
    }

    /// Starts a server with these further arguments, and makes it read its whole file.
    ///
    /// # Errors
    /// The file could not be made, or the server could not be started or read.
    pub fn start(
        &mut self,
        spins: bool,
        arguments: &[&str],
        tick: &mut impl FnMut(&str),
    ) -> Result<usize> {
        let bytes = self.conditions.file_bytes;
        let directory = Scratch::for_bytes(bytes).context("cannot make a directory")?;
        let path = directory.path().join(FILE);
        let wrote = percents("writing a file", bytes, tick);
        local::write_random(&path, bytes, wrote).context("cannot write a file")?;
        // Over TCP the server squashes root to another user. No further user can enter the directory.
        let everyone = std::fs::Permissions::from_mode(0o666);
        std::fs::set_permissions(&path, everyone).context("cannot open a file to writers")?;
        let arguments = [&["--metrics", "127.0.0.1:0"], arguments].concat();
        let mut fabrics = vec![Fabric::Shm, Fabric::Iwarp];
        fabrics.extend(Some(self.conditions.rdma).filter(|rdma| *rdma != Fabric::Iwarp));
        let process = ServerProcess::start(&ServerPlan {
            program: self.conditions.program.clone(),
            directory: directory.path().to_owned(),
            read_only: false,
            // Written pages move to fresh frames, and one strategy of registration uses free frames.
            cache_bytes: 2 * bytes + (64 << 20),
            fabrics,
            direct: Some("one-sided"),
            spin: Some(if spins { SPIN } else { Duration::ZERO }),
            nfs: true,
            cpus: self.placement.as_ref().map(|p| p.server.clone()),
            arguments: arguments.iter().map(|&a| a.to_owned()).collect(),
        })?;
        let url = process.url(Fabric::Shm)?;
        let file = open(&url, options(spins, 1, Rdma::default()))?;
        let mut piece = vec![0; 1 << 20];
        let mut filled = percents("filling a server", bytes, tick);
        let mut offset = 0;
        while offset < bytes {
            let read = match file.read_at(&mut piece, offset)? {
                0 => bail!("the server's file is shorter than what was written"),
                n => n as u64,
            };
            offset += read;
            filled(read);
        }
        drop(filled);
        self.servers.push((process, directory));
        Ok(self.servers.len() - 1)
    }

    /// Where client and server run, as a sentence.
    pub fn placement(&self) -> String {
        match &self.placement {
            Some(p) => format!(
                "client bound to processor {}, server to processor {}",
                p.client[0], p.server[0]
            ),
            None => "not bound: there is one processor".to_owned(),
        }
    }

    /// Measures a case once, on new connections.
    ///
    /// # Errors
    /// The server could not be reached, or a read or write failed.
    pub fn measure(&self, case: &Case) -> Result<Round> {
        let (process, _) = &self.servers[case.server];
        if case.spins {
            // Lets engines fall asleep that polled for the previous row.
            std::thread::sleep(SPIN * 3 / 2);
        }
        let url = self.url(process, case.fabric)?;
        let mut files = Vec::new();
        for _ in 0..case.clients {
            let file = open(&url, options(case.spins, case.threads, case.rdma))?;
            files.extend(std::iter::repeat_n(file, case.threads as usize));
        }
        let load = |time| Load {
            operation: case.operation,
            record_bytes: case.record_bytes,
            depth: case.depth,
            registered: case.fabric == "tcp" && case.record_bytes >= REGISTERED_MIN,
            time,
        };
        let bytes = self.conditions.file_bytes;
        // Connections and buffers are made before the measurement begins.
        load::run(&files, &load(self.conditions.time / 4), bytes, || 0)?;
        // The files of a client follow each other.
        let calls = || -> u64 {
            let clients = files.iter().step_by(case.threads as usize);
            clients.map(|file| file.client().statistics().calls).sum()
        };
        let before = RdmaCounters::of(process)?;
        let called = calls();
        let server_cpu = || process.cpu_ns();
        let round = load::run(&files, &load(self.conditions.time), bytes, server_cpu)?;
        Ok(Round {
            calls: calls() - called,
            counters: RdmaCounters::of(process)?.since(&before),
            ..round
        })
    }

    fn url(&self, process: &ServerProcess, fabric: &str) -> Result<Url> {
        match fabric {
            "shm" => process.url(Fabric::Shm),
            "tcp" => process.url(Fabric::Iwarp),
            "rdma" | "verbs" => process.url(self.conditions.rdma),
            _ => process.nfs_url(b"/"),
        }
    }
}

fn open(url: &Url, options: Options) -> Result<File> {
    let client = Client::connect_with(url, options)?;
    Ok(client.open(format!("/{FILE}"))?)
}

fn options(spins: bool, threads: u32, rdma: Rdma) -> Options {
    Options {
        route: Route::Rpc,
        cache: Cache::Off,
        wait: match spins {
            true => Wait::Spin,
            false => Wait::Block {
                spin: Duration::ZERO,
            },
        },
        lanes: threads,
        rdma,
        ..Options::default()
    }
}

/// A server's counters of RPC-over-RDMA.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RdmaCounters {
    /// Number of calls.
    pub calls: u64,
    /// Number of regions registered.
    pub registrations: u64,
    /// Number of fresh tags for memory that was registered already.
    pub bindings: u64,
    /// Number of batches of invalidated tags.
    pub flushes: u64,
    /// Number of replies that clients fetched.
    pub fetched: u64,
    /// Time of registrations and fresh tags.
    pub registering_ns: u64,
    /// Time of ending them.
    pub invalidating_ns: u64,
}

impl RdmaCounters {
    fn of(process: &ServerProcess) -> Result<Self> {
        let address = process.metrics().context("the server has no metrics")?;
        Ok(Self::parse(&metrics(address).context("no metrics came")?))
    }

    fn parse(text: &str) -> Self {
        let figure = |name: &str| {
            let line = |line| str::strip_prefix(line, name)?.strip_prefix(' ');
            text.lines().find_map(line)
        };
        let value = |name| figure(name).and_then(|n| n.parse().ok()).unwrap_or(0);
        let nanos = |name| {
            let seconds = figure(name).and_then(|n| n.parse().ok()).unwrap_or(0.0);
            (seconds * 1e9_f64).round() as u64
        };
        Self {
            calls: value("odafs_rdma_calls_total"),
            registrations: value("odafs_rdma_registrations_total"),
            bindings: value("odafs_rdma_bindings_total"),
            flushes: value("odafs_rdma_flushes_total"),
            fetched: value("odafs_rdma_exposed_total"),
            registering_ns: nanos("odafs_rdma_registering_seconds_total"),
            invalidating_ns: nanos("odafs_rdma_invalidating_seconds_total"),
        }
    }

    fn since(&self, before: &Self) -> Self {
        Self {
            calls: self.calls - before.calls,
            registrations: self.registrations - before.registrations,
            bindings: self.bindings - before.bindings,
            flushes: self.flushes - before.flushes,
            fetched: self.fetched - before.fetched,
            registering_ns: self.registering_ns - before.registering_ns,
            invalidating_ns: self.invalidating_ns - before.invalidating_ns,
        }
    }
}

fn metrics(address: SocketAddr) -> std::io::Result<String> {
    let mut stream = TcpStream::connect(address)?;
    stream.set_read_timeout(Some(Duration::from_secs(10)))?;
    stream.write_all(b"GET /metrics HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")?;
    let mut text = String::new();
    stream.read_to_string(&mut text)?;
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counters_are_found_by_their_whole_name() {
        let text = "# HELP odafs_rdma_calls_total Calls.\nodafs_rdma_calls_total_x 9\nodafs_rdma_calls_total 41\n\
                    odafs_rdma_flushes_total 3\nodafs_rdma_registering_seconds_total 0.000001500\n";
        let counters = RdmaCounters::parse(text);
        assert_eq!(
            (counters.calls, counters.flushes, counters.bindings),
            (41, 3, 0)
        );
        assert_eq!(counters.registering_ns, 1500);
        assert_eq!(counters.since(&RdmaCounters::default()), counters);
    }
}
