//! Rows of one length by their numbers, as a service looks up embeddings: from Redis with a key for each row, and from our
//! client's table. A call brings one row or many.

use std::io::Write as _;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};

use super::setting::{Candidate, Setting};
use super::stream::Stream;
use super::{Round, Spec};
use crate::clock;
use crate::cpu;
use crate::histogram::Latencies;
use crate::random::Random;

/// Size of a row in bytes.
pub const ROW: usize = 256;
/// Number of rows in the longer calls.
pub const MANY: usize = 1000;

/// Number of keys that one message stores.
const TOGETHER: usize = 512;
/// Number of calls before the first that counts.
const UNCOUNTED: usize = 300;

/// A source of rows.
pub enum Rows {
    /// Redis.
    Redis {
        /// The connection.
        stream: Stream,
        /// The next message.
        request: Vec<u8>,
    },
    /// Our client.
    Table(odafs::Table),
}

impl Rows {
    /// Rows of Redis, over a Unix socket.
    pub fn redis(socket: &Path, spin: bool) -> Result<Self> {
        Ok(Self::Redis {
            stream: Stream::unix(socket, spin)?,
            request: Vec::new(),
        })
    }

    /// Rows of a table.
    pub fn table(table: odafs::Table) -> Self {
        Self::Table(table)
    }

    /// Stores a file's rows in Redis.
    pub fn load(&mut self, file: &[u8]) -> Result<()> {
        let Self::Redis { stream, request } = self else {
            return Ok(());
        };
        for (first, rows) in (0..).step_by(TOGETHER).zip(file.chunks(TOGETHER * ROW)) {
            request.clear();
            for (number, row) in (first..).zip(rows.chunks_exact(ROW)) {
                command(request, "SET", 2);
                key(request, number);
                request.extend_from_slice(format!("${ROW}\r\n").as_bytes());
                request.extend_from_slice(row);
                request.extend_from_slice(b"\r\n");
            }
            stream.send(request)?;
            for _ in rows.chunks_exact(ROW) {
                let line = stream.line()?;
                ensure!(
                    line == b"+OK",
                    "a row was not taken: {}",
                    String::from_utf8_lossy(line)
                );
            }
        }
        Ok(())
    }

    /// Reads rows into `out`, one behind the other.
    fn get(&mut self, rows: &[u64], out: &mut [u8]) -> Result<()> {
        let (stream, request) = match (self, rows) {
            (Self::Table(table), [row]) => return Ok(table.get(*row, out)?),
            (Self::Table(table), _) => return Ok(table.get_many(rows, out)?),
            (Self::Redis { stream, request }, _) => (stream, request),
        };
        request.clear();
        let name = if rows.len() == 1 { "GET" } else { "MGET" };
        command(request, name, rows.len());
        for row in rows {
            key(request, *row);
        }
        stream.send(request)?;
        if rows.len() > 1 {
            let line = stream.line()?;
            ensure!(
                line.strip_prefix(b"*") == Some(rows.len().to_string().as_bytes()),
                "not the rows: {}",
                String::from_utf8_lossy(line)
            );
        }
        // Like a client library, this reads the length of each row before the row.
        for into in out.chunks_exact_mut(ROW) {
            let head = stream.take(6)?;
            ensure!(head == b"$256\r\n", "not a row");
            into.copy_from_slice(&stream.take(ROW + 2)?[..ROW]);
        }
        Ok(())
    }
}

/// Begins a command with this many arguments (RESP, <https://redis.io/docs/latest/develop/reference/protocol-spec/>).
fn command(request: &mut Vec<u8>, name: &str, arguments: usize) {
    let (arguments, length) = (arguments + 1, name.len());
    write!(request, "*{arguments}\r\n${length}\r\n{name}\r\n")
        .expect("a Vec takes all that is written to it");
}

fn key(request: &mut Vec<u8>, row: u64) {
    let length = "row:".len() + 1 + row.checked_ilog10().unwrap_or(0) as usize;
    write!(request, "${length}\r\nrow:{row}\r\n").expect("a Vec takes all that is written to it");
}

/// Makes calls one after the other for this time. It compares the first results with the file.
pub fn measure(
    mut rows: Rows,
    candidate: &Candidate,
    setting: &Setting,
    time: Duration,
) -> Result<Round> {
    let &Spec { depth, .. } = &candidate.spec;
    let count = setting.file_bytes() / ROW as u64;
    let mut random = Random::new(1);
    let (mut wanted, mut out) = (vec![0; depth], vec![0; depth * ROW]);
    let mut next =
        |wanted: &mut [u64]| wanted.iter_mut().for_each(|row| *row = random.below(count));
    for _ in 0..UNCOUNTED {
        next(&mut wanted);
        rows.get(&wanted, &mut out)?;
        for (row, got) in wanted.iter().zip(out.chunks_exact(ROW)) {
            let same = got == setting.expected(row * ROW as u64, ROW);
            ensure!(same, "row {row} is not the file's");
        }
    }
    let clock_ns = clock::overhead_ns();
    let (client, server) = (cpu::own_ns(), setting.cpu_ns(candidate));
    let mut latencies = Latencies::default();
    let begin = Instant::now();
    let elapsed = loop {
        next(&mut wanted);
        let start = Instant::now();
        rows.get(&wanted, &mut out)?;
        let end = Instant::now();
        latencies.record(clock::nanos(start, end).saturating_sub(clock_ns));
        if end - begin >= time {
            break end - begin;
        }
    };
    let reads = latencies.len() * depth as u64;
    let spent = |before: u64, after: u64| after.saturating_sub(before) / reads;
    let server = server.zip(setting.cpu_ns(candidate));
    Ok(Round {
        reads,
        p50_ns: latencies.at(0.5),
        p99_ns: latencies.at(0.99),
        p999_ns: latencies.at(0.999),
        per_read_ns: (elapsed.as_nanos() as u64 / reads).max(1),
        client_cpu: spent(client, cpu::own_ns()),
        server_cpu: server.map(|(before, after)| spent(before, after)),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_says_how_long_its_words_are() {
        let mut request = Vec::new();
        command(&mut request, "MGET", 3);
        for row in [0, 9, 10] {
            key(&mut request, row);
        }
        let expected: &[u8] = b"*4\r\n$4\r\nMGET\r\n$5\r\nrow:0\r\n$5\r\nrow:9\r\n$6\r\nrow:10\r\n";
        assert_eq!(request, expected);
    }
}
