//! `odafs bench designs`.

use anyhow::Result;
use clap::Args;
use odafs_bench::rates::designs::{self, Plan, Row};
use odafs_bench::table::{Table, bytes, count};

use super::rates::{Callers, Common, Over, RATE, cells, word};

/// RPC-over-RDMA: the Read-Read design compared with Read-Write
#[derive(Args)]
#[command(after_help = "Example:
  odafs bench designs --threads 1 --threads 8 --size 1MiB

The bench measures what it costs that clients fetch their replies. In the Read-Write design
(RFC 8166) the server moves all data. In the Read-Read design, clients read the replies from the
server's memory and then tell the server: one more RDMA Read and one more message for each call.
Writes are the same in both.

Each thread has its own connection, by iWARP over TCP or by an RDMA device (--fabric verbs). Both
sides sleep while they wait.")]
pub struct Arguments {
    #[command(flatten)]
    callers: Callers,
    #[command(flatten)]
    over: Over,
    #[command(flatten)]
    common: Common,
}

/// Runs the command.
pub fn run(arguments: Arguments) -> Result<()> {
    let plan = plan(&arguments)?;
    let measure = |tick: &mut dyn FnMut(&str)| designs::run(&plan, tick);
    arguments.common.run(plan.specs().len(), measure, table)
}

fn plan(arguments: &Arguments) -> Result<Plan> {
    let (record_bytes, threads) = arguments.callers.checked(&arguments.common)?;
    let rdma = arguments.over.fabric()?;
    let mut plan = Plan {
        conditions: arguments.common.conditions(1, 0, rdma)?,
        threads,
        record_bytes,
    };
    plan.conditions = arguments.common.conditions(plan.specs().len(), 1, rdma)?;
    Ok(plan)
}

fn table(rows: &[Row]) -> Table {
    let [a, b, c, d, e, f] = RATE;
    let mut table = Table::new([
        "<operation",
        "<design",
        "=threads",
        "=record",
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
