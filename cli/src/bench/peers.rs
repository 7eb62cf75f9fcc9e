//! `odafs bench peers`.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use clap::Args;
use odafs::{ServerAddress, Url};
use odafs_bench::peers::{self, Plan, Report, Row};
use odafs_bench::table::{Table, bytes, count, time};

use crate::{Usage, output, units};

/// Compare reads from other servers with reads from ODAFS
#[derive(Args)]
#[command(after_help = "Example:
  odafs bench peers --file /dev/shm/x/file --redis /tmp/redis.sock \\
      --nfs nfs-ganesha=nfs://127.0.0.1:12049/dev/shm/x/file?mountport=12048

The script bench/peers/run in the sources installs the peers, starts them, and runs this command.
Each round measures every row once, in turn, on a new connection. Reads of 256 bytes are GET at
depth 1 and MGET at depth 1000; our client reads them as a table. The client is bound to the first
processor and our servers to the second; the script does the same for the peers. The servers of
the peers sleep while they wait; ours waits as its client does, but for `usual` rows: there the
client sleeps, and our server waits as it does without options.")]
pub struct Arguments {
    /// The file to read; our servers serve its directory, read-only
    #[arg(long, value_name = "FILE")]
    file: PathBuf,
    /// Redis' Unix socket; the command stores pages there as page:N, and rows of 256 bytes as row:N
    #[arg(long, value_name = "SOCKET")]
    redis: Option<PathBuf>,
    /// Memcached's Unix socket; the command stores pages there as page:N
    #[arg(long, value_name = "SOCKET")]
    memcached: Option<PathBuf>,
    /// An NFS server that serves the same file [may be repeated]
    #[arg(long, value_name = "NAME=URL", value_parser = named_url)]
    nfs: Vec<(String, Url)>,
    /// The servers of --nfs also speak NFS version 4.2, and have the file at the same path
    #[arg(long, requires = "nfs")]
    nfs4: bool,
    /// The program built from bench/peers/libnfs-read.c, for rows by libnfs
    #[arg(long, value_name = "PROGRAM")]
    libnfs: Option<PathBuf>,
    /// The process id of a peer, to measure its CPU time [may be repeated]
    #[arg(long, value_name = "NAME=PID", value_parser = named_process)]
    process: Vec<(String, u32)>,
    /// Number of rounds; each measures every row once
    #[arg(long, value_name = "N", default_value_t = 5)]
    rounds: u32,
    /// Time for a row in a round
    #[arg(long, value_name = "TIME", value_parser = units::duration, default_value = "300ms")]
    time: Duration,
    /// Print JSON instead of a table
    #[arg(long)]
    json: bool,
}

fn named_url(text: &str) -> Result<(String, Url), String> {
    let (name, url) = text
        .split_once('=')
        .ok_or("put a name before the URL, as in ganesha=nfs://HOST/FILE")?;
    let url = crate::connection::url(url)?;
    match url.server {
        ServerAddress::NfsTcp(_) => Ok((name.to_owned(), url)),
        _ => Err("the URL must begin with nfs://".to_owned()),
    }
}

fn named_process(text: &str) -> Result<(String, u32), String> {
    let (name, pid) = text
        .split_once('=')
        .ok_or("put a name before the process id, as in redis=123")?;
    let pid = pid
        .parse()
        .map_err(|_| "a process id must follow the =, as in redis=123".to_owned())?;
    Ok((name.to_owned(), pid))
}

/// Runs the command.
pub fn run(arguments: Arguments) -> Result<()> {
    Usage::unless_no_time("--time", Some(arguments.time))?;
    Usage::unless_none("--rounds", arguments.rounds == 0)?;
    let length = std::fs::metadata(&arguments.file)
        .with_context(|| format!("cannot read {}", arguments.file.display()))?
        .len();
    if length < 4 << 20 || length % (1 << 20) != 0 {
        bail!(Usage(format!(
            "{}: the size must be a whole number of MiB, 4 or more",
            arguments.file.display()
        )));
    }
    let plan = Plan {
        program: super::this_program()?,
        file: arguments.file.canonicalize()?,
        redis: arguments.redis,
        memcached: arguments.memcached,
        nfs: arguments.nfs,
        nfs4: arguments.nfs4,
        libnfs: arguments.libnfs,
        processes: arguments.process,
        time: arguments.time,
        rounds: arguments.rounds,
    };
    let progress = output::step_progress(0, "");
    let report = peers::run(&plan, |what| {
        progress.set_message(what.to_owned());
        progress.inc(1);
    })?;
    progress.finish_and_clear();
    if arguments.json {
        output::json(&report)
    } else {
        print(&report, length)
    }
}

fn print(report: &Report, length: u64) -> Result<()> {
    output::text(&format!(
        "{}\ncommit {}\nReads of a file of {} in memory\n\n",
        report.machine.sentence(),
        report.commit,
        bytes(length)
    ))?;
    let mut table = Table::new([
        "<server",
        "<route",
        "<wait",
        "=size",
        "=depth",
        "=<pattern",
        "p50",
        "p99",
        "p99.9",
        "reads/s",
        "MiB/s",
        "client CPU",
        "server CPU",
    ]);
    for row in &report.rows {
        table.row(cells(row));
    }
    output::figures(&table)?;
    output::text("\nPeer over ours, the median of the rounds (lowest, highest):\n")?;
    let mut table = Table::new(["<ratio", "median", "lowest", "highest"]);
    for r in &report.ratios {
        let figures = [r.ratio, r.lowest, r.highest].map(|n| format!("{n:.2}"));
        table.row([r.name.clone()].into_iter().chain(figures).collect());
    }
    output::figures(&table)
}

fn cells(row: &Row) -> Vec<String> {
    let s = &row.spec;
    vec![
        s.peer.clone(),
        s.route.to_owned(),
        s.wait.to_owned(),
        bytes(s.size_bytes as u64),
        s.depth.to_string(),
        s.pattern.to_owned(),
        time(row.p50_ns),
        time(row.p99_ns),
        time(row.p999_ns),
        count(row.reads_per_second),
        count(row.mib_per_second),
        time(row.client_cpu_ns_per_read),
        row.server_cpu_ns_per_read.map_or("?".to_owned(), time),
    ]
}
