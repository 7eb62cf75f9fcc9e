//! `odafs bench designs`.

use anyhow::Result;
use clap::Args;
use odafs_bench::rates::designs::{self, Plan, Row};
use odafs_bench::table::{Table, bytes, count};

use super::rates::{Common, RATE, cells, word};
use crate::units;

/// RPC-over-RDMA: the Read-Read design against Read-Write
#[derive(Args)]
#[command(after_help = "Example:
  odafs bench designs --threads 1 --threads 8 --size 1MiB

What does it cost that a client fetches its replies? In the Read-Write design (RFC 8166) the server moves
all data. In the Read-Read design clients read replies from the server's memory and say when they have:
one more RDMA Read and one more message for each call. Writes are the same in both.
By iWARP over TCP, both sides asleep while they wait; each thread has a connection.")]
pub struct Arguments {
    /// Bytes of a record [may be repeated; default: 128KiB, 256KiB, 512KiB and 1MiB]
    #[arg(long, value_name = "SIZE", value_parser = units::size)]
    size: Vec<u64>,
    /// Threads that read or write [may be repeated; default: 1, 2, 4 and 8]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=64))]
    threads: Vec<u32>,
    #[command(flatten)]
    common: Common,
}

/// Measures.
pub fn run(arguments: Arguments) -> Result<()> {
    let plan = plan(&arguments)?;
    let measure = |tick: &mut dyn FnMut(&str)| designs::run(&plan, tick);
    arguments.common.run(plan.specs().len(), measure, table)
}

fn plan(arguments: &Arguments) -> Result<Plan> {
    let (sizes, threads) = threads_and_sizes(&arguments.threads, &arguments.size);
    let most = threads.iter().max().copied().unwrap_or(1);
    arguments.common.check(&sizes, most)?;
    let mut plan = Plan {
        conditions: arguments.common.conditions(1)?,
        threads,
        record_bytes: sizes.iter().map(|&s| s as usize).collect(),
    };
    plan.conditions = arguments.common.conditions(plan.specs().len())?;
    Ok(plan)
}

/// Those that are named, or those of the paper.
pub fn threads_and_sizes(threads: &[u32], sizes: &[u64]) -> (Vec<u64>, Vec<u32>) {
    let sizes = match sizes.is_empty() {
        true => vec![128 << 10, 256 << 10, 512 << 10, 1 << 20],
        false => sizes.to_vec(),
    };
    let threads = match threads.is_empty() {
        true => vec![1, 2, 4, 8],
        false => threads.to_vec(),
    };
    (sizes, threads)
}

fn table(rows: &[Row]) -> Table {
    let [a, b, c, d, e, f] = RATE;
    let mut table = Table::new([
        "<operation",
        "<design",
        "threads",
        "record",
        a,
        b,
        c,
        d,
        e,
        f,
        "fetched",
    ]);
    for Row {
        spec,
        rate,
        fetched,
    } in rows
    {
        let mut row = vec![
            word(spec.operation),
            spec.design.to_owned(),
            spec.threads.to_string(),
            bytes(spec.record_bytes as u64),
        ];
        row.extend(cells(rate));
        row.push(count(*fetched));
        table.row(row);
    }
    table
}
