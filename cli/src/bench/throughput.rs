//! `odafs bench throughput`.

use anyhow::{Result, bail};
use clap::Args;
use clap::builder::PossibleValuesParser;
use odafs_bench::process::Fabric;
use odafs_bench::rates::Operation;
use odafs_bench::rates::throughput::{self, FABRICS, Plan, Row};
use odafs_bench::table::{Table, bytes};

use super::rates::{Common, DeviceAddress, RATE, cells, word};
use crate::{Usage, units};

/// Throughput of sequential reads and writes, by record size, requests in flight and fabric
#[derive(Args)]
#[command(after_help = "Examples:
  odafs bench throughput                                  all rows
  odafs bench throughput --fabric nfs --fabric tcp --operation read --size 32KiB --json

Fabrics: `nfs` is NFS over TCP, `shm` shared memory, `tcp` RPC-over-RDMA by iWARP over TCP, and
`verbs` the same by an RDMA device (only if it is named). All reads and writes are calls. There
are no direct reads, and the client's data cache is off.

With a read ahead of N, N further records are under way beside the one that is waited for. Reads
are a batch on one connection, of 16 calls at most at a time; each write has its own thread and
connection. A record longer than the longest call takes several calls, which are under way
together: `calls` is their number, the COMMIT of writes among them. The longest call has just
under 64KiB over shm (a write 64KiB), 256KiB over tcp and verbs, and 512KiB over nfs. Reads of
64KiB and more over tcp go into registered memory, where a call has up to 1MiB. Writes are
unstable; the time includes one COMMIT for each row.")]
pub struct Arguments {
    /// Size of a record, 16MiB at most [may be repeated; default: 512, 4096, 32KiB, 256KiB and 1MiB]
    #[arg(long, value_name = "SIZE", value_parser = units::size)]
    size: Vec<u64>,
    /// Number of further requests in flight, 0 to 16 [may be repeated; default: 0, 1, 4 and 16]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(..=16))]
    read_ahead: Vec<u32>,
    /// Measure only this fabric's rows [may be repeated; default: all but verbs]
    #[arg(long, value_name = "F", value_parser = PossibleValuesParser::new(FABRICS))]
    fabric: Vec<String>,
    /// Measure only reads or only writes [default: both]
    #[arg(long, value_name = "O", value_parser = PossibleValuesParser::new(["read", "write"]))]
    operation: Option<String>,
    /// How client and server wait: block (sleep in the kernel) or spin (poll) [may be repeated; default: block]
    #[arg(long, value_name = "W", value_parser = PossibleValuesParser::new(["spin", "block"]))]
    wait: Vec<String>,
    #[command(flatten)]
    device: DeviceAddress,
    #[command(flatten)]
    common: Common,
}

/// Runs the command.
pub fn run(arguments: Arguments) -> Result<()> {
    let plan = plan(&arguments)?;
    let measure = |tick: &mut dyn FnMut(&str)| throughput::run(&plan, tick);
    arguments.common.run(plan.specs().len(), measure, table)
}

fn plan(arguments: &Arguments) -> Result<Plan> {
    let chosen = |all: &[&'static str], named: &[String]| -> Vec<&'static str> {
        let wanted = |name: &&&str| named.is_empty() || named.iter().any(|n| n == **name);
        all.iter().filter(wanted).copied().collect()
    };
    let sizes = match arguments.size.is_empty() {
        true => vec![512, 4 << 10, 32 << 10, 256 << 10, 1 << 20],
        false => arguments.size.clone(),
    };
    let read_ahead = match arguments.read_ahead.is_empty() {
        true => vec![0, 1, 4, 16],
        false => arguments.read_ahead.clone(),
    };
    let waits = match arguments.wait.is_empty() {
        true => vec!["block"],
        false => chosen(&["spin", "block"], &arguments.wait),
    };
    let most = read_ahead.iter().max().copied().unwrap_or(0);
    arguments.common.check(&sizes, most + 2)?;
    let rdma = match arguments.fabric.iter().any(|fabric| fabric == "verbs") {
        true => arguments.device.fabric()?,
        false => Fabric::Iwarp,
    };
    let fabrics = match arguments.fabric.is_empty() {
        true => FABRICS.into_iter().filter(|f| *f != "verbs").collect(),
        false => chosen(&FABRICS, &arguments.fabric),
    };
    let mut plan = Plan {
        conditions: arguments.common.conditions(1, 0, rdma)?,
        fabrics,
        operations: match arguments.operation.as_deref() {
            Some("read") => vec![Operation::Read],
            Some(_) => vec![Operation::Write],
            None => vec![Operation::Read, Operation::Write],
        },
        record_bytes: sizes.iter().map(|&s| s as usize).collect(),
        read_ahead,
        waits,
    };
    if plan.specs().is_empty() {
        bail!(Usage(
            "no row is left: no row has all that the options name; leave one of them out"
                .to_owned()
        ));
    }
    plan.conditions = (arguments.common).conditions(plan.specs().len(), plan.servers(), rdma)?;
    Ok(plan)
}

fn table(rows: &[Row]) -> Table {
    let [a, b, c, d, e, f] = RATE;
    let mut table = Table::new([
        "<operation",
        "<fabric",
        "<wait",
        "=ahead",
        "=record",
        "calls",
        a,
        b,
        c,
        d,
        e,
        f,
    ]);
    for Row {
        spec,
        calls_per_record,
        rate,
    } in rows
    {
        let mut row = vec![
            word(spec.operation),
            spec.fabric.to_owned(),
            spec.wait.to_owned(),
            spec.read_ahead.to_string(),
            bytes(spec.record_bytes as u64),
            format!("{calls_per_record:.1}"),
        ];
        row.extend(cells(rate));
        table.row(row);
    }
    table
}
