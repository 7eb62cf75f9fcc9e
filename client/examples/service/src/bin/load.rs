//! Asks services for rows at random, in turn, over one connection each, and prints what `odafs bench report` draws.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use clap::Parser;
use odafs_bench::histogram::{Latencies, median};
use odafs_bench::machine::{self, Machine};
use odafs_bench::random::Random;
use serde::Serialize;

/// Measure services of rows against each other
#[derive(Parser)]
struct Arguments {
    /// The services, as NAME=ADDR:PORT; ratios are to the first
    #[arg(required = true, value_parser = service)]
    services: Vec<(String, String)>,
    /// The file of rows, to compare what comes with
    #[arg(long, value_name = "FILE")]
    file: PathBuf,
    /// Length of a row, in bytes
    #[arg(long, value_name = "BYTES", default_value_t = 256)]
    row_bytes: usize,
    /// How often each service is measured, in turn
    #[arg(long, value_name = "N", default_value_t = 5)]
    rounds: u32,
    /// Milliseconds for a service in a round
    #[arg(long, value_name = "MS", default_value_t = 500)]
    time: u64,
}

fn service(text: &str) -> Result<(String, String), String> {
    let named = text.split_once('=').ok_or("name it: NAME=ADDR:PORT")?;
    Ok((named.0.to_owned(), named.1.to_owned()))
}

/// How many rows a request asks for.
const DEPTHS: [usize; 2] = [1, 1000];
/// Requests before the first that counts, each compared with the file.
const CHECKED: usize = 200;

/// A row of the report, as `odafs bench peers` has it.
#[derive(Serialize)]
struct Row {
    peer: String,
    route: &'static str,
    wait: &'static str,
    size_bytes: usize,
    depth: usize,
    pattern: &'static str,
    reads: u64,
    p50_ns: u64,
    p50_lowest_ns: u64,
    p50_highest_ns: u64,
    p99_ns: u64,
}

#[derive(Serialize)]
struct Ratio {
    name: String,
    ratio: f64,
    lowest: f64,
    highest: f64,
}

#[derive(Serialize)]
struct Report {
    machine: Machine,
    commit: &'static str,
    bench: &'static str,
    rows: Vec<Row>,
    ratios: Vec<Ratio>,
}

/// A connection that is kept.
struct Connection {
    stream: BufReader<TcpStream>,
    body: Vec<u8>,
}

impl Connection {
    fn open(address: &str) -> Result<Self> {
        let stream =
            TcpStream::connect(address).with_context(|| format!("cannot reach {address}"))?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(Duration::from_secs(30)))?;
        Ok(Self {
            stream: BufReader::with_capacity(1 << 20, stream),
            body: Vec::new(),
        })
    }

    /// The rows with these numbers.
    fn ask(&mut self, numbers: &[u64]) -> Result<&[u8]> {
        let request = match numbers {
            [number] => format!("GET /row/{number} HTTP/1.1\r\nHost: rows\r\n\r\n"),
            numbers => {
                let body = serde_json::to_string(numbers)?;
                let length = body.len();
                format!(
                    "POST /rows HTTP/1.1\r\nHost: rows\r\nContent-Type: application/json\r\nContent-Length: {length}\r\n\r\n{body}"
                )
            }
        };
        self.stream.get_mut().write_all(request.as_bytes())?;
        let mut line = String::new();
        self.stream.read_line(&mut line)?;
        ensure!(
            line.starts_with("HTTP/1.1 200"),
            "the service says {line:?}"
        );
        let mut length = 0;
        loop {
            line.clear();
            self.stream.read_line(&mut line)?;
            let header = line.trim_end().to_ascii_lowercase();
            if header.is_empty() {
                break;
            }
            if let Some(value) = header.strip_prefix("content-length:") {
                length = value.trim().parse()?;
            }
        }
        self.body.resize(length, 0);
        self.stream.read_exact(&mut self.body)?;
        Ok(&self.body)
    }
}

/// What one service did in one round.
struct Round {
    reads: u64,
    p50: u64,
    p99: u64,
}

fn measure(
    address: &str,
    rows: &[u8],
    row_bytes: usize,
    depth: usize,
    time: Duration,
) -> Result<Round> {
    let mut connection = Connection::open(address)?;
    let count = (rows.len() / row_bytes) as u64;
    let mut random = Random::new(depth as u64);
    let mut numbers = || -> Vec<u64> { (0..depth).map(|_| random.below(count)).collect() };
    for _ in 0..CHECKED.div_ceil(depth).max(5) {
        let numbers = numbers();
        let got = connection.ask(&numbers)?;
        let wanted = numbers
            .iter()
            .flat_map(|&n| &rows[n as usize * row_bytes..][..row_bytes]);
        ensure!(
            got.iter().eq(wanted),
            "other bytes came than the file holds"
        );
    }
    let mut latencies = Latencies::default();
    let end = Instant::now() + time;
    while Instant::now() < end {
        let numbers = numbers();
        let began = Instant::now();
        let got = connection.ask(&numbers)?;
        latencies.record(began.elapsed().as_nanos() as u64);
        ensure!(got.len() == depth * row_bytes, "{} bytes came", got.len());
    }
    Ok(Round {
        reads: latencies.len(),
        p50: latencies.at(0.5),
        p99: latencies.at(0.99),
    })
}

fn main() -> Result<()> {
    let arguments = Arguments::parse();
    let machine = Machine::here().unwatched();
    let rows = std::fs::read(&arguments.file)
        .with_context(|| format!("cannot read {}", arguments.file.display()))?;
    ensure!(
        arguments.row_bytes > 0 && rows.len() >= arguments.row_bytes,
        "the file has no row of {} bytes",
        arguments.row_bytes
    );
    let time = Duration::from_millis(arguments.time);
    let mut report = Report {
        machine,
        commit: machine::commit(),
        bench: "peers",
        rows: Vec::new(),
        ratios: Vec::new(),
    };
    for depth in DEPTHS {
        let mut all: Vec<Vec<Round>> = arguments.services.iter().map(|_| Vec::new()).collect();
        for _ in 0..arguments.rounds.max(1) {
            for ((_, address), rounds) in arguments.services.iter().zip(&mut all) {
                rounds.push(measure(address, &rows, arguments.row_bytes, depth, time)?);
            }
        }
        report
            .ratios
            .extend(ratios(&arguments.services, &all, depth));
        for ((name, _), rounds) in arguments.services.iter().zip(&all) {
            report
                .rows
                .push(row(name, arguments.row_bytes, depth, rounds));
        }
    }
    println!("{}", serde_json::to_string(&report)?);
    Ok(())
}

fn row(name: &str, row_bytes: usize, depth: usize, rounds: &[Round]) -> Row {
    let p50 = || rounds.iter().map(|round| round.p50);
    Row {
        peer: name.to_owned(),
        route: "rows over HTTP",
        wait: "block",
        size_bytes: row_bytes,
        depth,
        pattern: "random",
        reads: rounds.iter().map(|round| round.reads).sum(),
        p50_ns: median(p50()),
        p50_lowest_ns: p50().min().unwrap_or(0),
        p50_highest_ns: p50().max().unwrap_or(0),
        p99_ns: median(rounds.iter().map(|round| round.p99)),
    }
}

/// Each other service over the first, round by round.
fn ratios(services: &[(String, String)], all: &[Vec<Round>], depth: usize) -> Vec<Ratio> {
    let others = services.iter().zip(all).skip(1);
    others
        .filter_map(|((name, _), theirs)| {
            let pairs = theirs.iter().zip(&all[0]);
            let mut each: Vec<f64> = pairs
                .map(|(b, a)| b.p50 as f64 / a.p50.max(1) as f64)
                .collect();
            each.sort_by(f64::total_cmp);
            Some(Ratio {
                name: format!("{name} / {}, {depth} rows a request, p50", services[0].0),
                ratio: *each.get(each.len() / 2)?,
                lowest: *each.first()?,
                highest: *each.last()?,
            })
        })
        .collect()
}
