//! `odafs bench latency`.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Result, bail};
use clap::Args;
use clap::builder::PossibleValuesParser;
use odafs::Url;
use odafs_bench::latency::{self, Filter, Plan, Report, Row, WAITS};
use odafs_bench::report::{Page, draw};
use odafs_bench::table::{Table, bytes, count, counted, time};

use super::rates::{DeviceAddress, ROW_WANTS, check_memory, within};
use crate::connection::url;
use crate::{Usage, output, units};

/// Latency of random reads by every route, beside the floors of the machine
#[derive(Args)]
#[command(after_help = "Examples:
  odafs bench latency                                     all rows
  odafs bench latency --route one-sided --route mmap      two of them
  odafs bench latency --wait spin --depth 1 --size 4096 --json
  odafs bench latency --url odafs+shm:///run/odafs.sock?/big.bin
  odafs bench latency --fabric verbs --wait block         an RDMA device of this machine
  odafs bench latency --url odafs+verbs://SERVER/big.bin  RDMA devices of two machines
  odafs bench latency --url nfs://SERVER/big.bin          calls over TCP to any NFS server

Rows: `local` rows read a file by pread, or by mmap and memcpy. A `floor` row passes a page
between two threads and does nothing else: through shared memory, or for tcp with a request of 64
bytes and a page in reply on a bare TCP socket. RPC over tcp and verbs is RPC-over-RDMA; a reply
of more than 4096 bytes is direct there.

Method: the server runs in its own process and serves a file in memory. With two processors or
more, the client is bound to the first and the server to the second. Each round measures every
row once, in turn, on a new connection. A row shows the medians of the rounds; a ratio compares
rows of the same round. The clock is read once between two reads, and the cost of that is
subtracted from each latency.")]
pub struct Arguments {
    /// Size of the file to read, 1MiB or more [default: 1GiB; with --seconds, 8MiB per second, from 16MiB to 1GiB]
    #[arg(long, value_name = "SIZE", value_parser = units::size)]
    file_size: Option<u64>,
    /// Size of a read in bytes, 64KiB at most [may be repeated; default: 4096, with fewer rows of 64, 16384 and 65536]
    #[arg(long, value_name = "SIZE", value_parser = units::size)]
    size: Vec<u64>,
    /// Number of reads of a row in a round [default: as many as its time allows]
    #[arg(long, value_name = "N")]
    reads: Option<u64>,
    /// Measure only this fabric's rows [may be repeated; default: all but verbs]
    #[arg(long, value_name = "F", value_parser = PossibleValuesParser::new(["local", "shm", "tcp", "verbs"]))]
    fabric: Vec<String>,
    #[command(flatten)]
    device: DeviceAddress,
    /// Measure only this route's rows [may be repeated]
    #[arg(
        long,
        value_name = "R",
        value_parser = PossibleValuesParser::new(["pread", "mmap", "floor", "cache", "one-sided", "guarded", "rpc"])
    )]
    route: Vec<String>,
    /// Measure only rows whose client and server wait in this way [may be repeated]
    #[arg(long, value_name = "W", value_parser = PossibleValuesParser::new(WAITS))]
    wait: Vec<String>,
    /// Of the rows with a MAC, measure only those with this one [may be repeated]
    #[arg(long, value_name = "M", value_parser = PossibleValuesParser::new(["hmac-sha256", "blake3"]))]
    mac: Vec<String>,
    /// Of the RPC rows, measure only those with this kind of reply [may be repeated]
    #[arg(long, value_name = "K", value_parser = PossibleValuesParser::new(["inline", "direct", "worker", "references"]))]
    rpc: Vec<String>,
    /// Measure only rows with this many reads in flight: 1 or 8 [may be repeated]
    #[arg(long, value_name = "N")]
    depth: Vec<u32>,
    /// Measure only rows on memory with pages of this size: 4KiB or 2MiB [may be repeated]
    #[arg(long, value_name = "B", value_parser = units::size)]
    backing: Vec<u64>,
    /// Number of rounds; each measures every row once [default: 5, or fewer if --seconds leaves no time for them]
    #[arg(long, value_name = "N")]
    rounds: Option<u32>,
    /// Seconds for the whole run, approximately: half for the rows, half for files, servers and connections [default: a
    /// quarter of a second for a row in a round, and what the rest takes]
    #[arg(long, value_name = "N", value_parser = units::duration)]
    seconds: Option<Duration>,
    /// Measure a server that already runs, by this file on it, of 4096 bytes or more
    #[arg(long, value_name = "URL", value_parser = url)]
    url: Option<Url>,
    /// Print JSON instead of a table
    #[arg(long)]
    json: bool,
    /// Also write a page with plots to this file
    #[arg(long, value_name = "FILE.html")]
    report: Option<PathBuf>,
}

/// Runs the command.
pub fn run(arguments: Arguments) -> Result<()> {
    let plan = plan(&arguments)?;
    // Fail before the measurement if the page cannot be written.
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
    // A failure to print must not lose the page, nor the reverse.
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
            "--rounds, --size and --depth: must be more than 0".to_owned()
        ));
    }
    Usage::unless_no_time("--seconds", arguments.seconds)?;
    Usage::unless_none("--reads", arguments.reads == Some(0))?;
    let sizes = match arguments.size.is_empty() {
        true => vec![4096, 64, 16 << 10, 64 << 10],
        false => arguments.size.iter().map(|&s| s as usize).collect(),
    };
    if let Some(size) = sizes.iter().find(|s| **s > 64 << 10) {
        bail!(Usage(format!(
            "--size {size}: must be 64KiB (65536) or less"
        )));
    }
    let file_bytes = match (arguments.file_size, arguments.seconds) {
        (Some(bytes), _) => bytes,
        (None, Some(seconds)) => file_for(seconds),
        (None, None) => FILE_BYTES,
    };
    if file_bytes < 1 << 20 {
        bail!(Usage("--file-size: must be 1MiB or more".to_owned()));
    }
    let mut plan = Plan {
        program: super::this_program()?,
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
            "no row is left: no row has all that the options name; leave one of them out"
                .to_owned()
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

/// The default number of rounds.
const ROUNDS: u32 = 5;

/// The default size of the file, in bytes.
const FILE_BYTES: u64 = 1 << 30;

/// The size in bytes of a file that can be written, read by several servers and learned by many clients in half of the
/// time.
fn file_for(seconds: Duration) -> u64 {
    let bytes = (seconds.as_secs_f64() * f64::from(8 << 20)) as u64;
    bytes.clamp(16 << 20, FILE_BYTES)
}

const HEADING: [&str; 12] = [
    "<fabric",
    "<route",
    "<how",
    "<wait",
    "=depth",
    "=size",
    "=pages",
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
    output::figures(&table)?;
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
        let mut table = Table::new(["<ratio", "=size", "median", "lowest", "highest"]);
        for r in &report.ratios {
            let size = bytes(r.size_bytes as u64);
            let figures = [r.ratio, r.lowest, r.highest].map(|n| format!("{n:.2}"));
            table.row([r.name.clone(), size].into_iter().chain(figures).collect());
        }
        output::figures(&table)?;
    }
    if !report.left_out.is_empty() {
        output::text("\nLeft out:\n")?;
    }
    for left_out in &report.left_out {
        output::text(&format!("{left_out}\n"))?;
    }
    Ok(())
}

fn conditions(report: &Report) -> String {
    let file = match &report.url {
        Some(url) => format!("{url}, a file of {}", bytes(report.file_bytes)),
        None => format!("a file of {} in memory", bytes(report.file_bytes)),
    };
    format!(
        "Random reads of {file}; {}; {} in turn. Reading the clock ({} ns) is subtracted. At depth \
         8 the latency is that of the whole batch.",
        report.placement,
        counted(report.rounds, "round"),
        report.clock_ns,
    )
}

fn page(report: &Report) -> Result<String> {
    let mut page = Page::titled("ODAFS: latency of random reads");
    page.paragraph(&conditions(report));
    draw(&mut page, &serde_json::to_value(report)?)?;
    Ok(page.html())
}
