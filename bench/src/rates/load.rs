//! Callers that read or write a file for a while. Each takes a part of its own, from front to back and again.

use std::time::{Duration, Instant};

use anyhow::{Result, anyhow, ensure};
use odafs::{Buffer, File, IntoRequest, ReadRequest};
use serde::Serialize;

use super::setting::RdmaCounters;
use crate::clock;
use crate::cpu;
use crate::gate::Gate;

/// The operation of the callers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Operation {
    /// Reads of pages that the server holds in memory.
    Read,
    /// Unstable writes, and a COMMIT at the end.
    Write,
}

/// The work of each caller.
#[derive(Clone, Copy, Debug)]
pub struct Load {
    /// Whether to read or to write.
    pub operation: Operation,
    /// Size of a record in bytes.
    pub record_bytes: usize,
    /// Number of reads that a caller has under way. Writes go one at a time.
    pub depth: u32,
    /// Whether to read into registered memory.
    pub registered: bool,
    /// For how long.
    pub time: Duration,
}

/// One case in one round.
#[derive(Clone, Debug, Default)]
pub struct Round {
    /// Number of bytes read or written.
    pub bytes: u64,
    /// Number of records read or written.
    pub operations: u64,
    /// The time that it took.
    pub elapsed_ns: u64,
    /// CPU time of the client.
    pub client_cpu_ns: u64,
    /// CPU time of the server.
    pub server_cpu_ns: u64,
    /// The rate of each caller in bytes per second.
    pub by_caller: Vec<u64>,
    /// Calls that the clients made.
    pub calls: u64,
    /// The server's counters.
    pub counters: RdmaCounters,
}

impl Round {
    /// The rate in bytes per second.
    pub fn bytes_per_second(&self) -> u64 {
        rate(self.bytes, self.elapsed_ns)
    }

    /// Calls for a record. A record longer than the longest call takes several, which are under way together.
    pub fn calls_per_record(rounds: &[Self]) -> f64 {
        let sum = |of: fn(&Self) -> u64| rounds.iter().map(of).sum::<u64>() as f64;
        let calls = sum(|round| round.calls) / sum(|round| round.operations).max(1.0);
        (calls * 100.0).round() / 100.0
    }

    /// `ns` divided by the number of MiB.
    pub fn per_mib(&self, ns: u64) -> u64 {
        (u128::from(ns) * (1 << 20) / u128::from(self.bytes.max(1))) as u64
    }
}

fn rate(bytes: u64, ns: u64) -> u64 {
    (u128::from(bytes) * 1_000_000_000 / u128::from(ns.max(1))) as u64
}

/// The part of the file that belongs to a caller, in records.
#[derive(Clone, Copy, Debug)]
struct Stretch {
    start: u64,
    records: u64,
    record_bytes: u64,
}

impl Stretch {
    fn of(caller: usize, callers: usize, file_bytes: u64, record_bytes: usize) -> Self {
        let record_bytes = record_bytes as u64;
        let records = (file_bytes / record_bytes / callers as u64).max(1);
        Self {
            start: caller as u64 * records * record_bytes,
            records,
            record_bytes,
        }
    }

    fn offset(&self, number: u64) -> u64 {
        self.start + number % self.records * self.record_bytes
    }
}

/// Runs one caller for each of `files`. `server_cpu` returns the CPU time of the server in nanoseconds.
pub fn run(
    files: &[File],
    load: &Load,
    file_bytes: u64,
    server_cpu: impl Fn() -> u64,
) -> Result<Round> {
    let start = Gate::new(files.len() + 1);
    let (mut begin, mut client, mut server) = (Instant::now(), 0, 0);
    let callers: Vec<Result<Done>> = std::thread::scope(|scope| {
        let callers: Vec<_> = files
            .iter()
            .enumerate()
            .map(|(number, file)| {
                let stretch = Stretch::of(number, files.len(), file_bytes, load.record_bytes);
                let start = &start;
                scope.spawn(move || call(file, load, stretch, start))
            })
            .collect();
        (client, server) = (cpu::own_ns(), server_cpu());
        begin = Instant::now();
        start.pass();
        let join = |caller: std::thread::ScopedJoinHandle<'_, Result<Done>>| {
            caller
                .join()
                .unwrap_or_else(|_| Err(anyhow!("a caller's thread panicked")))
        };
        callers.into_iter().map(join).collect()
    });
    let mut round = Round {
        elapsed_ns: clock::nanos(begin, Instant::now()),
        client_cpu_ns: cpu::own_ns().saturating_sub(client),
        server_cpu_ns: server_cpu().saturating_sub(server),
        ..Round::default()
    };
    for done in callers {
        let done = done?;
        let bytes = done.operations * load.record_bytes as u64;
        round.operations += done.operations;
        round.bytes += bytes;
        round.by_caller.push(rate(bytes, done.elapsed_ns));
    }
    Ok(round)
}

/// The work that one caller has done.
struct Done {
    operations: u64,
    elapsed_ns: u64,
}

fn call(file: &File, load: &Load, stretch: Stretch, start: &Gate) -> Result<Done> {
    let depth = load.depth.max(1) as usize;
    let mut buffers = vec![vec![0x5A; load.record_bytes]; depth];
    let mut registered = load
        .registered
        .then(|| Buffer::new(depth * load.record_bytes))
        .transpose()?;
    let mut operations = 0;
    start.pass();
    let begin = Instant::now();
    loop {
        match (load.operation, &mut registered) {
            (Operation::Read, Some(buffer)) => {
                read_into(file, &stretch, operations, buffer, load.record_bytes)?;
            }
            (Operation::Read, None) => read(file, &stretch, operations, &mut buffers)?,
            (Operation::Write, _) => {
                for (number, data) in (operations..).zip(&buffers) {
                    file.write_at(data, stretch.offset(number))?;
                }
            }
        }
        operations += buffers.len() as u64;
        if begin.elapsed() >= load.time {
            break;
        }
    }
    if load.operation == Operation::Write {
        file.sync()?;
    }
    Ok(Done {
        operations,
        elapsed_ns: clock::nanos(begin, Instant::now()),
    })
}

/// Reads a batch. It asks for the last record first, because neighbours in the other order would share a call.
fn read(file: &File, stretch: &Stretch, first: u64, buffers: &mut [Vec<u8>]) -> Result<()> {
    let mut requests: Vec<ReadRequest<'_>> = (first..)
        .zip(buffers)
        .map(|(number, buffer)| ReadRequest::new(stretch.offset(number), buffer))
        .collect();
    requests.reverse();
    file.read_batch(&mut requests)?;
    ensure!(
        requests.iter().all(|r| r.bytes == r.buf.len()),
        "the file is shorter than what was written"
    );
    Ok(())
}

/// Reads a batch into registered memory.
fn read_into(
    file: &File,
    stretch: &Stretch,
    first: u64,
    buffer: &mut Buffer,
    record_bytes: usize,
) -> Result<()> {
    let starts = (0..buffer.len()).step_by(record_bytes);
    let mut requests: Vec<IntoRequest> = (first..)
        .zip(starts)
        .map(|(number, at)| IntoRequest::new(at..at + record_bytes, stretch.offset(number)))
        .collect();
    file.read_batch_into(buffer, &mut requests)?;
    ensure!(
        requests.iter().all(|r| r.bytes == record_bytes),
        "the file is shorter than what was written"
    );
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stretches_do_not_overlap_and_stay_in_the_file() {
        for (callers, record) in [(1, 512), (3, 4096), (8, 1 << 20), (5, 12_345)] {
            let file = 16 << 20;
            let mut end = 0;
            for caller in 0..callers {
                let stretch = Stretch::of(caller, callers, file, record);
                assert_eq!(stretch.offset(0), end);
                assert_eq!(stretch.offset(stretch.records), end);
                end += stretch.records * record as u64;
            }
            assert!(end <= file);
        }
    }

    #[test]
    fn rates_of_rounds() {
        let round = Round {
            bytes: 3 << 20,
            elapsed_ns: 1_500_000_000,
            ..Round::default()
        };
        assert_eq!(round.bytes_per_second(), 2 << 20);
        assert_eq!(round.per_mib(9_000), 3_000);
        assert_eq!(Round::default().per_mib(1), 1 << 20);
        assert_eq!(Round::calls_per_record(&[]), 0.0);
        let round = |calls, operations| Round {
            calls,
            operations,
            ..Round::default()
        };
        // A COMMIT at the end is lost in the rounding.
        let rounds = [round(16 * 300 + 1, 300), round(16 * 500 + 1, 500)];
        assert_eq!(Round::calls_per_record(&rounds), 16.0);
    }
}
