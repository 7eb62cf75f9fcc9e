//! `odafs bench registration`.

use std::time::Duration;

use anyhow::Result;
use clap::Args;
use odafs_bench::rates::registration::{self, Costs, Plan, Row};
use odafs_bench::rates::revocation;
use odafs_bench::table::{Table, bytes, count, time};

use super::rates::{Callers, Common, Over, RATE, cells, word};
use crate::units;

/// RPC-over-RDMA: four strategies to register memory, and the time that each takes
#[derive(Args)]
#[command(after_help = "Example:
  odafs bench registration --threads 1 --size 128KiB --operation-cost 0us --page-cost 0ns
  odafs bench registration --fabric verbs --threads 1 --size 128KiB --file-size 8MiB
  odafs bench registration --fabric verbs --revocation

Strategies: `per-operation` registers memory for each call; `pooled` keeps memory registered and
gives it a fresh tag for each call; `cached` uses registered memory again; `all-physical` reads
into free frames of the page cache, which are registered with it. Writes use the Read-Write
design, and reads the Read-Read design, because the server registers nothing for reads in the
other one.

On an RDMA device (--fabric verbs), memory is really registered; `on-demand` is per-operation
without pinning, on devices that offer it. RDMA over TCP registers and pins nothing. There the
server's engine spends the times that --operation-cost and --page-cost name, which are
assumptions, not measurements of hardware.

The columns behind the rates divide the time of a call: registering, invalidating and the rest.

--revocation measures how a server takes a page back from a client that reads it one-sided.
By its stamp: the server stores to the page's stamp; the client finds that its read is stale and
goes on. By a tag for this page and client (a memory window, or a region if the device has no
windows): the server invalidates it; the device refuses the read and ends the connection.")]
pub struct Arguments {
    #[command(flatten)]
    callers: Callers,
    /// Time that an adapter would take to register or to invalidate memory (RDMA over TCP only)
    #[arg(long, value_name = "TIME", value_parser = units::short_duration, default_value = "10us")]
    operation_cost: Duration,
    /// Time that pinning a 4 KiB page would take (RDMA over TCP only)
    #[arg(long, value_name = "TIME", value_parser = units::short_duration, default_value = "250ns")]
    page_cost: Duration,
    /// Measure instead how a server takes a page back: by its stamp, and by a tag
    #[arg(long)]
    revocation: bool,
    #[command(flatten)]
    over: Over,
    #[command(flatten)]
    common: Common,
}

/// Runs the command.
pub fn run(arguments: Arguments) -> Result<()> {
    if arguments.revocation {
        let rdma = arguments.over.fabric()?;
        let conditions = arguments.common.conditions(revocation::ROWS, 0, rdma)?;
        let measure = |tick: &mut dyn FnMut(&str)| revocation::run(&conditions, tick);
        return (arguments.common).run(revocation::ROWS, measure, revocation_table);
    }
    let plan = plan(&arguments)?;
    let measure = |tick: &mut dyn FnMut(&str)| registration::run(&plan, tick);
    arguments.common.run(plan.specs().len(), measure, table)
}

fn plan(arguments: &Arguments) -> Result<Plan> {
    let (record_bytes, threads) = arguments.callers.checked(&arguments.common)?;
    let rdma = arguments.over.fabric()?;
    let mut plan = Plan {
        conditions: arguments.common.conditions(1, 0, rdma)?,
        threads,
        record_bytes,
        costs: Costs {
            operation: arguments.operation_cost,
            page: arguments.page_cost,
        },
        on_demand: registration::pages_on_demand(rdma),
    };
    plan.conditions = (arguments.common).conditions(plan.specs().len(), plan.servers(), rdma)?;
    Ok(plan)
}

fn table(rows: &[Row]) -> Table {
    let [a, b, c, d, e, f] = RATE;
    let mut table = Table::new([
        "<operation",
        "<registration",
        "=threads",
        "=record",
        a,
        b,
        c,
        d,
        e,
        f,
        "call",
        "register",
        "invalidate",
        "other",
    ]);
    for Row {
        spec,
        rate,
        breakdown,
    } in rows
    {
        let mut row = vec![
            word(spec.operation),
            spec.registration.to_owned(),
            spec.threads.to_string(),
            bytes(spec.record_bytes as u64),
        ];
        row.extend(cells(rate));
        let parts = [
            breakdown.ns_per_call,
            breakdown.register_ns_per_call,
            breakdown.invalidate_ns_per_call,
            breakdown.other_ns_per_call,
        ];
        row.extend(parts.map(time));
        table.row(row);
    }
    table
}

fn revocation_table(rows: &[revocation::Row]) -> Table {
    let mut table = Table::new([
        "<taken back by",
        "reference",
        "read",
        "take back",
        "stale read",
        "good again",
        "connections lost",
        "times",
    ]);
    for row in rows {
        let times = [
            row.reference_ns,
            row.read_ns,
            row.revoke_ns,
            row.stale_ns,
            row.recovered_ns,
        ];
        let mut cells = vec![row.by.to_owned()];
        cells.extend(times.map(time));
        cells.extend([row.connections_lost, row.times].map(count));
        table.row(cells);
    }
    table
}
