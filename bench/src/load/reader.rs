//! A client of one route that reads at random for a given time.

use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use odafs::{Cache, File, Options};

use super::plan::Path;
use super::row::Slice;
use crate::floors::local::LocalFile;
use crate::histogram::Latencies;
use crate::peers::nfs::NfsFile;
use crate::random::Random;
use crate::served::{Served, Way};
use crate::{clock, cpu};

/// Number of reads per page of the file that a new client makes before any is counted: by then, it has nearly all
/// references.
const PASSES: u64 = 3;

/// A route, connected.
pub struct Reader<'a> {
    reads: Reads<'a>,
    random: Random,
    places: u64,
    buffer: Vec<u8>,
}

enum Reads<'a> {
    Mapped(&'a LocalFile),
    NfsTcp(NfsFile),
    Client(File),
}

impl<'a> Reader<'a> {
    /// Connects and learns the references.
    ///
    /// # Errors
    /// The server could not be reached, or a read failed.
    pub fn new(path: Path, served: &Served, local: &'a LocalFile, size: usize) -> Result<Self> {
        let reads = match path {
            Path::Mapped => Reads::Mapped(local),
            // It polls: no other row waits in a way that answers sooner.
            Path::NfsTcp => Reads::NfsTcp(NfsFile::open(&served.nfs_file()?, true)?),
            Path::Client(way, route) => Reads::Client(served.open(
                way,
                Options {
                    route,
                    cache: Cache::Off,
                    ..Options::default()
                },
            )?),
        };
        let file_bytes = local.bytes().len() as u64;
        let mut reader = Self {
            reads,
            random: Random::new(7),
            places: file_bytes / size as u64,
            buffer: vec![0; size],
        };
        if let Path::Client(Way::Shm, _) = path {
            for _ in 0..PASSES * file_bytes / 4096 {
                reader.read()?;
            }
        } else if let Reads::Client(file) = &reader.reads {
            // Slower: in order and by long reads, whose replies bring the references.
            let mut piece = vec![0; 256 << 10];
            for offset in (0..file_bytes).step_by(piece.len()) {
                file.read_at(&mut piece, offset)?;
            }
        }
        Ok(reader)
    }

    /// Reads for this long, one read after the other. Each is timed, and `clock_ns` is subtracted.
    ///
    /// # Errors
    /// A read failed.
    pub fn slice(
        &mut self,
        time: Duration,
        clock_ns: u64,
        server_cpu_ns: impl Fn() -> u64,
    ) -> Result<Slice> {
        let mut latencies = Latencies::default();
        let mut sum_ns = 0;
        let (client_cpu, server_cpu) = (cpu::own_ns(), server_cpu_ns());
        let begin = Instant::now();
        let mut before = begin;
        loop {
            self.read()?;
            let after = Instant::now();
            let took = clock::nanos(before, after).saturating_sub(clock_ns);
            sum_ns += took;
            latencies.record(took);
            if after.duration_since(begin) >= time {
                break;
            }
            // What was counted in between belongs to no read.
            before = Instant::now();
        }
        Ok(Slice {
            reads: latencies.len(),
            sum_ns,
            p50_ns: latencies.at(0.5),
            p99_ns: latencies.at(0.99),
            p999_ns: latencies.at(0.999),
            client_cpu_ns: cpu::own_ns().saturating_sub(client_cpu),
            server_cpu_ns: server_cpu_ns().saturating_sub(server_cpu),
            held_percent: 0.0,
        })
    }

    fn read(&mut self) -> Result<()> {
        let offset = self.random.below(self.places) * self.buffer.len() as u64;
        let read = match &mut self.reads {
            Reads::Mapped(file) => {
                file.copy(offset, &mut self.buffer);
                self.buffer.len()
            }
            Reads::NfsTcp(file) => file.read_at(&mut self.buffer, offset)?,
            Reads::Client(file) => file.read_at(&mut self.buffer, offset)?,
        };
        ensure!(
            read == self.buffer.len(),
            "the file is shorter than it was made"
        );
        std::hint::black_box(&mut self.buffer);
        Ok(())
    }
}
