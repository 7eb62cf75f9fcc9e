//! `odafs demo`: the routes of a read, compared in a few seconds.

use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use clap::{Args, ValueEnum};
use odafs::Wait;
use odafs_bench::demo::{self, Demo, ROUTES, RouteRow, Workload};
use odafs_bench::machine::{self, Machine};
use odafs_bench::process::{Fabric, ServerPlan, ServerProcess};
use odafs_bench::report::{Dots, DotsRow, Page, Series};
use odafs_bench::scratch::Scratch;
use odafs_bench::table::{Table, bytes, count, counted, time};
use odafs_bench::tree::{Listing, TreePlan};
use odafs_bench::{clock, cpu};
use odafs_server::config::ServerConfig;

use crate::{Usage, config, devices, output, units};

/// How long the server's engine polls with `--wait spin`: longer than any gap between two reads, but the engine still
/// sleeps once the demonstration is over.
const SPIN: Duration = Duration::from_millis(200);

/// Compare the routes of a read: RPC, guarded, one-sided, and the default policy
#[derive(Args)]
#[command(after_help = "Examples:
  odafs demo                            on 300 generated files (removed afterwards)
  odafs demo --dir /usr/share           on your own files (they are only read)
  odafs demo --cache 32MiB              the server cannot hold all files: references go stale
  odafs demo --fabric tcp               RDMA over TCP in software, as between two hosts
  odafs demo --fabric verbs             an RDMA device of this machine
  odafs demo --report demo.html         write a page with plots too

The demo starts a server in its own process, reads pages at random by each route, and compares
every byte with the local file. Before the measurement the server reads the files into its
cache, for at most a minute; if the cache does not hold all of them, the output says so. Only
the reads are timed: opening files, asking for references and comparing bytes are not. The
client's data cache is off, except on the policy route.

Columns: p50 and p99 are percentiles of the time of a read; CPU times are per read. `cache`,
`direct` and `rpc` count where reads ended: in the client's data cache, with a direct read, or
with a call. `refused` counts direct reads that met a stale reference and went by RPC instead.
`changed` counts reads of files that somebody changed meanwhile, which are not compared.
`mismatches` counts reads that returned wrong bytes; if there is one, the demo exits with 1. These
last three columns are left out if they are zero throughout.")]
pub struct Arguments {
    /// Read the files below DIR [default: generated files, removed afterwards]
    #[arg(long, value_name = "DIR")]
    dir: Option<PathBuf>,
    /// How client and server are connected
    #[arg(long, value_enum, default_value = "shm")]
    fabric: FabricName,
    /// IP address of the RDMA device's network interface, for verbs [default: the first device that has one]
    #[arg(long, value_name = "ADDR")]
    address: Option<IpAddr>,
    /// How client and server wait for each other [default: spin; block with one processor]
    #[arg(long, value_enum)]
    wait: Option<WaitName>,
    /// Size of the server's page cache; if it is smaller than the files, references go stale [default: enough for the
    /// files, 1GiB at most]
    #[arg(long, value_name = "SIZE", value_parser = units::size)]
    cache: Option<u64>,
    /// How long to measure each route, in seconds
    #[arg(long, value_name = "N", value_parser = units::duration, default_value = "3")]
    seconds: Duration,
    /// Print JSON instead of a table
    #[arg(long)]
    json: bool,
    /// Also write a page with plots to this file
    #[arg(long, value_name = "FILE.html")]
    report: Option<PathBuf>,
}

/// The fabrics, by name.
#[derive(Clone, Copy, ValueEnum)]
pub enum FabricName {
    /// Shared memory on this machine
    Shm,
    /// RDMA over TCP (iWARP), through the loopback interface
    #[value(name = "tcp")]
    Iwarp,
    /// An RDMA device of this machine
    Verbs,
}

/// The ways to wait, by name.
#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum WaitName {
    /// Poll
    Spin,
    /// Sleep in the kernel
    Block,
}

/// Runs the command.
pub fn run(arguments: Arguments) -> Result<()> {
    Usage::unless_no_time("--seconds", Some(arguments.seconds))?;
    output::warn_if_short(
        "--seconds",
        arguments.seconds,
        1,
        Duration::from_millis(200),
    );
    if arguments.address.is_some() && !matches!(arguments.fabric, FabricName::Verbs) {
        bail!(Usage(
            "--address: this option is for RDMA devices; add --fabric verbs, or leave it out"
                .to_owned()
        ));
    }
    if let Some(cache_bytes) = arguments.cache {
        let config = ServerConfig {
            cache_bytes,
            ..ServerConfig::new("/")
        };
        config.check().map_err(Usage)?;
    }
    // Fail before the measurement if the page cannot be written.
    let page_file = (arguments.report.as_deref())
        .map(output::Whole::begin)
        .transpose()?;
    let fabric = match arguments.fabric {
        FabricName::Shm => Fabric::Shm,
        FabricName::Iwarp => Fabric::Iwarp,
        FabricName::Verbs => Fabric::Verbs(devices::address(arguments.address)?),
    };
    let made = if arguments.dir.is_none() {
        Some(make_tree()?)
    } else {
        None
    };
    let root = match (&arguments.dir, &made) {
        (Some(dir), _) => {
            config::check_directory(dir)?;
            dir.canonicalize()?
        }
        (None, Some(tree)) => tree.path().to_owned(),
        (None, None) => bail!("no directory"),
    };
    let listing = Listing::of(&root).with_context(|| format!("cannot list {}", root.display()))?;
    if listing.files.is_empty() {
        let skipped = listing
            .skipped()
            .map(|s| format!(" (left out: {s})"))
            .unwrap_or_default();
        bail!("no file to read below {}{skipped}", root.display());
    }
    let result = measure(&arguments, fabric, &root, &listing)?;
    // A failure to print must not lose the page, nor the reverse.
    let printed = match arguments.json {
        true => output::report(&result, &result.machine),
        false => print(&result),
    };
    if let Some(file) = page_file {
        file.finish(&page(&result))?;
    }
    output::with_result(printed, verdict(&result))
}

fn verdict(result: &Demo) -> Result<()> {
    let wrong: u64 = result.routes.iter().map(|r| r.mismatches).sum();
    if wrong > 0 {
        bail!(
            "{} returned bytes that differ from the file's",
            counted(wrong, "read")
        );
    }
    Ok(())
}

/// The server of the demo. It does not warn of slow calls: the table shows what is slow.
fn server(fabric: Fabric, root: &Path, cache_bytes: u64, wait: WaitName) -> Result<ServerPlan> {
    Ok(ServerPlan {
        program: std::env::current_exe().context("cannot find this program")?,
        directory: root.to_owned(),
        read_only: true,
        cache_bytes,
        fabrics: vec![fabric],
        direct: Some("one-sided"),
        spin: Some(match wait {
            WaitName::Spin => SPIN,
            WaitName::Block => Duration::ZERO,
        }),
        nfs: false,
        cpus: None,
        arguments: ["--slow-call", "1h"].map(str::to_owned).to_vec(),
    })
}

fn make_tree() -> Result<Scratch> {
    let plan = TreePlan::default();
    let directory = Scratch::for_bytes(plan.bytes).context("cannot make a directory for files")?;
    let progress = output::byte_progress(plan.bytes, "making files");
    plan.write(directory.path(), |n| progress.inc(n))
        .with_context(|| format!("cannot make files in {}", directory.path().display()))?;
    progress.finish_and_clear();
    Ok(directory)
}

fn measure(arguments: &Arguments, fabric: Fabric, root: &Path, listing: &Listing) -> Result<Demo> {
    let machine = Machine::here();
    let default = if cpu::allowed().len() > 1 {
        WaitName::Spin
    } else {
        WaitName::Block
    };
    let wait = arguments.wait.unwrap_or(default);
    let cache = arguments.cache.unwrap_or_else(|| cache_for(listing));
    let server = ServerProcess::start(&server(fabric, root, cache, wait)?)?;
    let url = server
        .url(fabric)
        .context("the server has no such fabric")?;
    let (page_bytes, mac) = demo::page_bytes(&url)?;
    let workload = Workload {
        server: &server,
        url,
        root,
        listing,
        page_bytes,
        wait: match wait {
            WaitName::Spin => Wait::Spin,
            WaitName::Block => Wait::Block {
                spin: Duration::ZERO,
            },
        },
        time: arguments.seconds,
    };
    let progress = output::byte_progress(listing.bytes().min(cache), "warming up");
    let warm_bytes = workload.warm_up(cache, |bytes| progress.inc(bytes))?;
    progress.finish_and_clear();
    let mut routes = Vec::new();
    for (name, route) in ROUTES {
        let progress = output::time_progress(arguments.seconds, name);
        let (row, _client) = workload.run((name, route), |passed| {
            progress.set_position(passed.as_millis() as u64)
        })?;
        progress.finish_and_clear();
        routes.push(row);
    }
    Ok(Demo {
        dir: root.display().to_string(),
        files: listing.files.len() as u64,
        bytes: listing.bytes(),
        page_bytes,
        fabric: fabric.name().to_owned(),
        wait: if wait == WaitName::Spin {
            "spin"
        } else {
            "block"
        }
        .to_owned(),
        mac: mac.to_owned(),
        server_cache_bytes: cache,
        warm_bytes,
        skipped: listing.skipped(),
        clock_ns: clock::overhead_ns(),
        machine,
        commit: machine::commit(),
        routes,
    })
}

/// A cache that holds all pages of the files with some room to spare. The last page of each file counts as a whole one.
fn cache_for(listing: &Listing) -> u64 {
    let pages = listing
        .files
        .iter()
        .map(|f| f.size.next_multiple_of(4096))
        .sum::<u64>();
    (pages + pages / 8 + (16 << 20)).min(1 << 30)
}

fn print(demo: &Demo) -> Result<()> {
    let skipped = demo
        .skipped
        .as_ref()
        .map(|s| format!("left out: {s}\n"))
        .unwrap_or_default();
    let cold = match &*cold(demo) {
        "" => String::new(),
        cold => format!("{cold}\n"),
    };
    output::text(&format!(
        "{}, {} below {}; pages of {}, server cache {}, {} fabric, client and server {}, MAC {}\n{skipped}{cold}\n",
        counted(demo.files, "file"),
        bytes(demo.bytes),
        demo.dir,
        bytes(demo.page_bytes),
        bytes(demo.server_cache_bytes),
        demo.fabric,
        demo.wait,
        demo.mac,
    ))?;
    output::table(&figures(&demo.routes))?;
    let busy = match demo.machine.warning() {
        Some(warning) => format!("\nTake the figures with care, because {warning}.\n"),
        None => String::new(),
    };
    output::text(&format!("\n{}\n{busy}", sentence(demo)))
}

/// How much of the files the server had read before, in words; empty if it was all.
fn cold(demo: &Demo) -> String {
    match demo.warm_bytes < demo.bytes {
        true => format!(
            "the server had read {} of them before the measurement",
            bytes(demo.warm_bytes)
        ),
        false => String::new(),
    }
}

const HEADING: [&str; 12] = [
    "<route",
    "reads",
    "p50",
    "p99",
    "client CPU",
    "server CPU",
    "cache",
    "direct",
    "rpc",
    "refused",
    "changed",
    "mismatches",
];

/// The last columns, which count what seldom happens. The table leaves them out if they are zero throughout, so that it
/// fits 100 columns.
const SELDOM: usize = 3;

/// The table of the routes.
fn figures(routes: &[RouteRow]) -> Table {
    let rows: Vec<Vec<String>> = routes.iter().map(cells).collect();
    let common = HEADING.len() - SELDOM;
    let is_shown = |column: usize| column < common || rows.iter().any(|row| row[column] != "0");
    let shown: Vec<usize> = (0..HEADING.len())
        .filter(|column| is_shown(*column))
        .collect();
    let heading: Vec<&str> = shown.iter().map(|column| HEADING[*column]).collect();
    let mut table = Table::with(&heading);
    for row in &rows {
        table.row(shown.iter().map(|column| row[*column].clone()).collect());
    }
    table
}

fn cells(row: &RouteRow) -> Vec<String> {
    vec![
        row.route.to_owned(),
        count(row.reads),
        time(row.p50_ns),
        time(row.p99_ns),
        time(row.client_cpu_ns_per_read),
        time(row.server_cpu_ns_per_read),
        count(row.cache_hits),
        count(row.direct_hits),
        count(row.rpc_reads),
        count(row.stale_hits),
        count(row.changed),
        count(row.mismatches),
    ]
}

/// The result in one sentence.
fn sentence(demo: &Demo) -> String {
    let row = |name: &str| {
        demo.routes
            .iter()
            .find(|r| r.route == name)
            .cloned()
            .unwrap_or_default()
    };
    let (rpc, guarded, one_sided) = (row("rpc"), row("guarded"), row("one-sided"));
    let compared: u64 = demo.routes.iter().map(|r| r.compared_bytes).sum();
    let sum = |count: fn(&RouteRow) -> u64| demo.routes.iter().map(count).sum::<u64>();
    let ratio = |row: &RouteRow| rpc.p50_ns as f64 / row.p50_ns.max(1) as f64;
    let stale = match sum(|r| r.stale_hits) {
        0 => String::new(),
        n => format!(
            ", {} met a refusal and went by RPC instead",
            counted(n, "direct read")
        ),
    };
    let changed = match sum(|r| r.changed) {
        0 => String::new(),
        n => format!(
            ", {} met files that somebody was changing",
            counted(n, "read")
        ),
    };
    let verdict = match sum(|r| r.mismatches) {
        0 => "every byte was right".to_owned(),
        n => format!("{} READS RETURNED WRONG BYTES", count(n)),
    };
    format!(
        "The median read took {} by RPC, {} guarded ({:.1} times as fast) and {} one-sided ({:.1} times as fast, server CPU \
         {} a read){stale}{changed}; {} were compared with the files, and {verdict}.",
        time(rpc.p50_ns),
        time(guarded.p50_ns),
        ratio(&guarded),
        time(one_sided.p50_ns),
        ratio(&one_sided),
        time(one_sided.server_cpu_ns_per_read),
        bytes(compared),
    )
}

fn page(demo: &Demo) -> String {
    let mut page = Page::new(
        "ODAFS: the same reads by four routes",
        &demo.machine,
        demo.commit,
    );
    page.paragraph(&sentence(demo));
    let rows = demo.routes.iter().map(|row| {
        let [p50, p99] = [row.p50_ns, row.p99_ns].map(|ns| ns as f64);
        DotsRow::latency(row.route, Series::of(row.route), p50, None, p99)
    });
    page.dots(&Dots::latencies(
        &format!("Reading a page of {}", bytes(demo.page_bytes)),
        rows.collect(),
    ));
    page.heading("All figures");
    let rows = demo.routes.iter().map(cells);
    let heading = HEADING.map(str::to_owned).to_vec();
    page.table(&[heading].into_iter().chain(rows).collect::<Vec<_>>());
    page.small(&format!(
        "Reads of {} at random positions in {}, {} below {}, over the fabric {}. Server cache: {}{}. While they wait, \
         client and server {}. The axis is logarithmic. p50 and p99 are percentiles of the time of a read, from which reading the clock ({} ns) is \
         subtracted; CPU times are per read. The columns cache, direct and rpc count where reads ended: in the client's data \
         cache, with a direct read, or with a call. Refused are direct reads by a stale reference, which then went by RPC. \
         Reads of files that somebody changed meanwhile are not compared. Only the policy route keeps pages in the client.",
        bytes(demo.page_bytes),
        counted(demo.files, "file"),
        bytes(demo.bytes),
        demo.dir,
        demo.fabric,
        bytes(demo.server_cache_bytes),
        match &*cold(demo) {
            "" => String::new(),
            cold => format!("; {cold}"),
        },
        if demo.wait == "spin" { "poll" } else { "sleep" },
        demo.clock_ns,
    ));
    page.html()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(route: &'static str, stale_hits: u64) -> RouteRow {
        RouteRow {
            route,
            reads: 12_345_678,
            p50_ns: 123_456,
            p99_ns: 123_456,
            client_cpu_ns_per_read: 123_456,
            server_cpu_ns_per_read: 123_456,
            direct_hits: 12_345_678,
            stale_hits,
            ..RouteRow::default()
        }
    }

    #[test]
    fn the_server_does_not_warn_of_slow_calls() {
        let plan = server(Fabric::Shm, Path::new("/"), 1 << 20, WaitName::Block).unwrap();
        let mut arguments = plan.arguments.iter().skip_while(|a| *a != "--slow-call");
        let after = arguments
            .nth(1)
            .map(|time| units::short_duration(time).unwrap());
        assert!(after >= Some(Duration::from_secs(3600)), "{after:?}");
    }

    #[test]
    fn the_table_fits_an_ordinary_terminal() {
        let plain = figures(&[row("one-sided", 0), row("policy", 0)]).render();
        let width = plain.lines().map(str::len).max();
        assert!(width <= Some(100), "{plain}");
        assert!(
            !plain.contains("refused") && !plain.contains("mismatches"),
            "{plain}"
        );
        let stale = figures(&[row("one-sided", 0), row("policy", 7)]).render();
        assert!(
            stale.contains("refused") && !stale.contains("changed"),
            "{stale}"
        );
    }
}
