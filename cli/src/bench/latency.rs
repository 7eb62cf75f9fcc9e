//! `odafs bench latency`.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use clap::Args;
use clap::builder::PossibleValuesParser;
use odafs::Url;
use odafs_bench::latency::{self, Filter, Plan, Report, Row, WAITS};
use odafs_bench::report::{Page, draw};
use odafs_bench::table::{Table, bytes, count, time};

use super::rates::{DeviceAddress, ROW_WANTS, check_memory, within};
use crate::connection::url;
use crate::{Usage, output, units};

/// Random reads by every route, beside what the machine itself can do
#[derive(Args)]
#[command(after_help = "Examples:
  odafs bench latency                                     all rows
  odafs bench latency --route one-sided --route mmap      two of them
  odafs bench latency --wait spin --depth 1 --size 4096 --json
  odafs bench latency --url odafs+shm:///run/odafs.sock?/big.bin
  odafs bench latency --fabric verbs --wait block         by an RDMA device of this machine
  odafs bench latency --url odafs+verbs://SERVER/big.bin  by RDMA devices of two
  odafs bench latency --url nfs://SERVER/big.bin          calls over TCP, of any NFS server

Local rows read a file by pread, and by mmap and memcpy. A floor row hands a page over between
two threads with nothing around it: through shared memory, or for tcp by a request of 64 bytes
and a page in answer on a bare TCP socket. RPC over tcp and verbs is RPC-over-RDMA: a reply that
does not fit its 4096 bytes is direct. The server runs in a process of its own on a file in
memory; with two processors or more, the client is bound to the first and the server to the
second. Every row is measured once a round, in turn, on a new connection; rows are the medians
of the rounds, ratios are of rows of the same round. The clock is looked at once between two
reads, and what that costs is subtracted from each latency.")]
pub struct Arguments {
    /// Bytes of the file that is read [default: 1GiB; with --seconds 8MiB for each, from 16MiB to 1GiB]
    #[arg(long, value_name = "SIZE", value_parser = units::size)]
    file_size: Option<u64>,
    /// Bytes of one read [may be repeated; default: 4096, and fewer rows of 64, 16384 and 65536]
    #[arg(long, value_name = "SIZE", value_parser = units::size)]
    size: Vec<u64>,
    /// Reads of a row in a round [default: as many as its time allows]
    #[arg(long, value_name = "N")]
    reads: Option<u64>,
    /// Only this fabric's rows; verbs has rows only if it is named [may be repeated]
    #[arg(long, value_name = "F", value_parser = PossibleValuesParser::new(["local", "shm", "tcp", "verbs"]))]
    fabric: Vec<String>,
    #[command(flatten)]
    device: DeviceAddress,
    /// Only this route's rows [may be repeated]
    #[arg(
        long,
        value_name = "R",
        value_parser = PossibleValuesParser::new(["pread", "mmap", "floor", "cache", "one-sided", "guarded", "rpc"])
    )]
    route: Vec<String>,
    /// Only rows whose sides wait in this way [may be repeated]
    #[arg(long, value_name = "W", value_parser = PossibleValuesParser::new(WAITS))]
    wait: Vec<String>,
    /// Of the rows with a MAC, only these [may be repeated]
    #[arg(long, value_name = "M", value_parser = PossibleValuesParser::new(["hmac-sha256", "blake3"]))]
    mac: Vec<String>,
    /// Of the RPC rows, only those with this kind of answer [may be repeated]
    #[arg(long, value_name = "K", value_parser = PossibleValuesParser::new(["inline", "direct", "worker", "references"]))]
    rpc: Vec<String>,
    /// Only rows with so many reads in flight together: 1 or 8 [may be repeated]
    #[arg(long, value_name = "N")]
    depth: Vec<u32>,
    /// Only rows on memory with pages of this size: 4KiB or 2MiB [may be repeated]
    #[arg(long, value_name = "B", value_parser = units::size)]
    backing: Vec<u64>,
    /// How often every row is measured [default: 5; less where --seconds leaves no time for them]
    #[arg(long, value_name = "N")]
    rounds: Option<u32>,
    /// Time for all of it, about: half for the rows, half for files, servers and connections
    /// [default: a quarter of a second for a row in a round, and what the rest takes]
    #[arg(long, value_name = "N", value_parser = units::duration)]
    seconds: Option<Duration>,
    /// Measure a server that runs already: a file on it, of 4096 bytes at least
    #[arg(long, value_name = "URL", value_parser = url)]
    url: Option<Url>,
    /// Print JSON
    #[arg(long)]
    json: bool,
    /// Write a page with plots too
    #[arg(long, value_name = "FILE.html")]
    report: Option<PathBuf>,
}

/// Measures.
pub fn run(arguments: Arguments) -> Result<()> {
    let plan = plan(&arguments)?;
    // A page that cannot be written is told before anything is measured.
    let page_file = (arguments.report.as_deref())
        .map(output::Whole::begin)
        .transpose()?;
    let steps = plan.specs().len() as u64 * u64::from(plan.rounds);
    let progress = output::step_progress(steps, "");
    let report = latency::run(&plan, |what| {
        progress.set_message(what.to_owned());
        progress.inc(u64::from(what.starts_with("round")));
    })?;
    progress.finish_and_clear();
    // Neither is lost with the other.
    let printed = match arguments.json {
        true => output::report(&report, &report.machine),
        false => print(&report),
    };
    if let Some(file) = page_file {
        file.finish(&page(&report)?)?;
    }
    printed
}

fn plan(arguments: &Arguments) -> Result<Plan> {
    if arguments.rounds == Some(0) || arguments.size.contains(&0) || arguments.depth.contains(&0) {
        bail!(Usage(
            "--rounds, --size and --depth: more than none is needed".to_owned()
        ));
    }
    Usage::unless_no_time("--seconds", arguments.seconds)?;
    Usage::unless_none("--reads", arguments.reads == Some(0))?;
    let sizes = match arguments.size.is_empty() {
        true => vec![4096, 64, 16 << 10, 64 << 10],
        false => arguments.size.iter().map(|&s| s as usize).collect(),
    };
    if let Some(size) = sizes.iter().find(|s| **s > 64 << 10) {
        bail!(Usage(format!("--size {size}: 64 KiB is the most")));
    }
    let file_bytes = match (arguments.file_size, arguments.seconds) {
        (Some(bytes), _) => bytes,
        (None, Some(seconds)) => file_for(seconds),
        (None, None) => FILE_BYTES,
    };
    if file_bytes < 1 << 20 {
        bail!(Usage("--file-size: at least 1MiB is needed".to_owned()));
    }
    let mut plan = Plan {
        program: std::env::current_exe().context("cannot find this program")?,
        file_bytes: file_bytes.next_multiple_of(2 << 20),
        sizes,
        reads: arguments.reads,
        time: Duration::from_millis(250),
        rounds: arguments.rounds.unwrap_or(ROUNDS),
        filter: Filter {
            fabrics: arguments.fabric.clone(),
            routes: arguments.route.clone(),
            waits: arguments.wait.clone(),
            macs: arguments.mac.clone(),
            rpcs: arguments.rpc.clone(),
            depths: arguments.depth.clone(),
            backings: arguments.backing.clone(),
        },
        verbs: match (
            &arguments.url,
            arguments.fabric.iter().any(|f| f == "verbs"),
        ) {
            (None, true) => Some(arguments.device.address()?),
            _ => None,
        },
        url: arguments.url.clone(),
    };
    let rows = plan.specs().len() as u32;
    if rows == 0 {
        bail!(Usage(
            "no row is left: the options exclude each other".to_owned()
        ));
    }
    if arguments.url.is_none() {
        check_memory("--file-size", plan.file_bytes, plan.memory_bytes())?;
    }
    if let Some(seconds) = arguments.seconds {
        output::warn_if_short("--seconds", seconds, rows, ROW_WANTS);
        (plan.rounds, plan.time) = within(seconds, rows, arguments.rounds, ROUNDS);
    }
    Ok(plan)
}

/// Rounds, where nothing else is said.
const ROUNDS: u32 = 5;

/// Bytes of the file, where nothing else is said.
const FILE_BYTES: u64 = 1 << 30;

/// Bytes of a file that is written, read by some servers and learned by many clients in half of that time.
fn file_for(seconds: Duration) -> u64 {
    let bytes = (seconds.as_secs_f64() * f64::from(8 << 20)) as u64;
    bytes.clamp(16 << 20, FILE_BYTES)
}

const HEADING: [&str; 12] = [
    "<fabric",
    "<route",
    "<how",
    "<wait",
    "depth",
    "size",
    "pages",
    "p50",
    "p99",
    "p99.9",
    "client CPU",
    "server CPU",
];

fn cells(row: &Row) -> Vec<String> {
    let s = &row.spec;
    let how = s.rpc.or((s.mac != "none").then_some(s.mac)).unwrap_or("");
    vec![
        s.fabric.to_owned(),
        s.route.to_owned(),
        how.to_owned(),
        s.wait.to_owned(),
        s.depth.to_string(),
        bytes(s.size_bytes as u64),
        row.backing_bytes.map_or("?".to_owned(), bytes),
        time(row.p50_ns),
        time(row.p99_ns),
        time(row.p999_ns),
        time(row.client_cpu_ns_per_read),
        row.server_cpu_ns_per_read.map_or("?".to_owned(), time),
    ]
}

fn print(report: &Report) -> Result<()> {
    output::text(&format!(
        "{}\ncommit {}\n{}\n\n",
        report.machine.sentence(),
        report.commit,
        conditions(report)
    ))?;
    let mut table = Table::new(HEADING);
    for row in &report.rows {
        table.row(cells(row));
    }
    output::table(&table)?;
    let strays: Vec<&Row> = report.rows.iter().filter(|r| r.other_route > 0).collect();
    for row in strays {
        let label = row.spec.label();
        output::text(&format!(
            "{label}: {} of {} reads took another route\n",
            count(row.other_route),
            count(row.reads)
        ))?;
    }
    if !report.ratios.is_empty() {
        output::text("\nRatios, the median of the rounds (lowest, highest):\n")?;
        let mut table = Table::new(["<ratio", "size", "median", "lowest", "highest"]);
        for r in &report.ratios {
            let size = bytes(r.size_bytes as u64);
            let figures = [r.ratio, r.lowest, r.highest].map(|n| format!("{n:.2}"));
            table.row([r.name.clone(), size].into_iter().chain(figures).collect());
        }
        output::table(&table)?;
    }
    Ok(())
}

fn conditions(report: &Report) -> String {
    let file = match &report.url {
        Some(url) => format!("{url}, a file of {}", bytes(report.file_bytes)),
        None => format!("a file of {} in memory", bytes(report.file_bytes)),
    };
    format!(
        "Random reads of {file}; {}; {} rounds in turn. Reading the clock ({} ns) is subtracted. At depth \
         8 the latency is that of the whole batch.",
        report.placement, report.rounds, report.clock_ns,
    )
}

fn page(report: &Report) -> Result<String> {
    let mut page = Page::titled("ODAFS: latency of random reads");
    page.paragraph(&conditions(report));
    draw(&mut page, &serde_json::to_value(report)?)?;
    Ok(page.html())
}
