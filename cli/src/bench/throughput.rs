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

/// Sequential reads and writes, record size x requests in flight, over each fabric
#[derive(Args)]
#[command(after_help = "Examples:
  odafs bench throughput                                  all rows
  odafs bench throughput --fabric nfs --fabric tcp --operation read --size 32KiB --json

How much goes through, and what it costs either side? Fabrics: nfs is NFS over TCP, shm shared
memory, tcp RPC-over-RDMA by iWARP over TCP, verbs the same by an RDMA device (if named); all by
calls, none read directly, the client's data cache off. A read ahead of N keeps N further
records under way with the one that is waited for: reads are a batch on one connection (of 16
calls at most at a time), writes have a thread and a connection each. Records longer than the
longest call (shm 64KiB, tcp and verbs 256KiB, nfs 512KiB) are several calls. Writes are
unstable, with one COMMIT for each row, which counts.")]
pub struct Arguments {
    /// Bytes of a record [may be repeated; default: 512, 4096, 32KiB, 256KiB and 1MiB]
    #[arg(long, value_name = "SIZE", value_parser = units::size)]
    size: Vec<u64>,
    /// Further requests in flight, 0 to 16 [may be repeated; default: 0, 1, 4 and 16]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(..=16))]
    read_ahead: Vec<u32>,
    /// Only this fabric's rows [may be repeated]
    #[arg(long, value_name = "F", value_parser = PossibleValuesParser::new(FABRICS))]
    fabric: Vec<String>,
    /// Only reads or only writes
    #[arg(long, value_name = "O", value_parser = PossibleValuesParser::new(["read", "write"]))]
    operation: Option<String>,
    /// How both sides wait: block (asleep) or spin (polling) [may be repeated; default: block]
    #[arg(long, value_name = "W", value_parser = PossibleValuesParser::new(["spin", "block"]))]
    wait: Vec<String>,
    #[command(flatten)]
    device: DeviceAddress,
    #[command(flatten)]
    common: Common,
}

/// Measures.
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
        bail!(Usage("no row is left".to_owned()));
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
        "ahead",
        "record",
        a,
        b,
        c,
        d,
        e,
        f,
    ]);
    for Row { spec, rate } in rows {
        let mut row = vec![
            word(spec.operation),
            spec.fabric.to_owned(),
            spec.wait.to_owned(),
            spec.read_ahead.to_string(),
            bytes(spec.record_bytes as u64),
        ];
        row.extend(cells(rate));
        table.row(row);
    }
    table
}
