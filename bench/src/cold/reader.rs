//! Reads a file in passes, by system calls or as a client.

use std::fs::File;
use std::os::unix::fs::FileExt as _;
use std::time::Instant;

use anyhow::{Result, ensure};
use odafs::{Client, Options, Statistics};

use super::disk::{FILE, OnDisk};
use super::plan::Caller;
use super::row::Pass;
use crate::histogram::Latencies;
use crate::process::{Fabric, ServerProcess};
use crate::served::{Way, by_rpc};
use crate::{clock, cpu, usage};

/// A caller with the file open.
pub struct Reader<'a> {
    source: Source,
    /// `None` for system calls.
    server: Option<&'a ServerProcess>,
}

enum Source {
    Local(File),
    Client(odafs::File),
}

impl<'a> Reader<'a> {
    /// A reader by system calls.
    ///
    /// # Errors
    /// The file cannot be opened.
    pub fn local(file: &OnDisk) -> Result<Self> {
        Ok(Self {
            source: Source::Local(file.open()?),
            server: None,
        })
    }

    /// A reader that is a new client.
    ///
    /// # Errors
    /// The server refused it.
    pub fn of(caller: Caller, server: &'a ServerProcess) -> Result<Self> {
        let (way, options) = match caller {
            Caller::Pread => anyhow::bail!("a system call is no client"),
            Caller::Default(way) => (way, Options::default()),
            Caller::Rpc(way) => (way, by_rpc()),
        };
        let url = match way {
            Way::Shm => server.url(Fabric::Shm)?,
            Way::Iwarp => server.url(Fabric::Iwarp)?,
            Way::NfsTcp => server.nfs_url(b"/")?,
        };
        let file = Client::connect_with(&url, options)?.open(FILE)?;
        Ok(Self {
            source: Source::Client(file),
            server: Some(server),
        })
    }

    /// Reads once at each of these places, given in units of the buffer; each read is timed, and `clock_ns` is
    /// subtracted from each time.
    ///
    /// # Errors
    /// A read failed, or was short.
    pub fn pass(&self, places: &[u32], buffer: &mut [u8], clock_ns: u64) -> Result<Pass> {
        let (mut latencies, mut sum_ns) = (Latencies::default(), 0);
        let counted = self.statistics();
        let disk = self.disk_bytes();
        let cpu = (cpu::own_ns(), self.server_cpu_ns());
        for place in places {
            let offset = u64::from(*place) * buffer.len() as u64;
            let before = Instant::now();
            let read = match &self.source {
                Source::Local(file) => {
                    file.read_exact_at(buffer, offset)?;
                    buffer.len()
                }
                Source::Client(file) => file.read_at(buffer, offset)?,
            };
            let took = clock::nanos(before, Instant::now()).saturating_sub(clock_ns);
            std::hint::black_box(&mut *buffer);
            ensure!(read == buffer.len(), "the file is shorter than it was made");
            sum_ns += took;
            latencies.record(took);
        }
        let now = self.statistics();
        let since = |of: fn(&Statistics) -> u64| of(&now) - of(&counted);
        Ok(Pass {
            reads: latencies.len(),
            size_bytes: buffer.len() as u64,
            sum_ns,
            p50_ns: latencies.at(0.5),
            p99_ns: latencies.at(0.99),
            client_cpu_ns: cpu::own_ns() - cpu.0,
            server_cpu_ns: self.server_cpu_ns().saturating_sub(cpu.1),
            disk_bytes: (self.disk_bytes().zip(disk)).map(|(now, before)| now - before),
            cache_hits: since(|s| s.cache_hits),
            direct_hits: since(|s| s.direct_hits),
        })
    }

    fn statistics(&self) -> Statistics {
        match &self.source {
            Source::Local(_) => Statistics::default(),
            Source::Client(file) => file.client().statistics(),
        }
    }

    fn server_cpu_ns(&self) -> u64 {
        self.server.map_or(0, ServerProcess::cpu_ns)
    }

    /// Bytes that the kernel read from the disk for a process.
    fn disk_bytes(&self) -> Option<u64> {
        usage::disk_bytes(self.server.map(ServerProcess::id))
    }
}
