//! `odafs bench credits`.

use anyhow::Result;
use clap::Args;
use odafs_bench::rates::credits::{self, Plan, Row};
use odafs_bench::table::{Table, bytes};

use super::rates::{Common, Over, RATE, cells};
use crate::units;

/// RPC-over-RDMA: adaptive credits compared with fixed ones
#[derive(Args)]
#[command(after_help = "Example:
  odafs bench credits --clients 1 --clients 64 --fixed 8

The bench measures whether granting credits by need pays, and whether it is fair. Each client has
one connection and tries to keep --in-flight reads under way. Credits limit these reads, and the
receive buffers that the server keeps for the client. `fairness` is Jain's index of the clients'
rates (1: all equal); `slowest` is the slowest client's part of a fair share. Both are those of
the least fair round. Both sides sleep while they wait.")]
pub struct Arguments {
    /// Number of clients, 1 to 1000 [may be repeated; default: 1, 4, 16 and 64]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1000))]
    clients: Vec<u32>,
    /// Fixed number of credits, 1 to 1024 [may be repeated; default: 2, 8 and 128]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1024))]
    fixed: Vec<u32>,
    /// Number of reads that each client tries to keep under way, 1 to 16
    #[arg(long, value_name = "N", default_value_t = 16, value_parser = clap::value_parser!(u32).range(1..=16))]
    in_flight: u32,
    /// Size of a read, 16MiB at most
    #[arg(long, value_name = "SIZE", value_parser = units::size, default_value = "4KiB")]
    size: u64,
    #[command(flatten)]
    over: Over,
    #[command(flatten)]
    common: Common,
}

/// Runs the command.
pub fn run(arguments: Arguments) -> Result<()> {
    let plan = plan(&arguments)?;
    let measure = |tick: &mut dyn FnMut(&str)| credits::run(&plan, tick);
    arguments.common.run(plan.specs().len(), measure, table)
}

fn plan(arguments: &Arguments) -> Result<Plan> {
    let or = |named: &[u32], default: &[u32]| match named.is_empty() {
        true => default.to_vec(),
        false => named.to_vec(),
    };
    let clients = or(&arguments.clients, &[1, 4, 16, 64]);
    let most = clients.iter().max().copied().unwrap_or(1);
    arguments
        .common
        .check(&[arguments.size], most * (arguments.in_flight + 1))?;
    let rdma = arguments.over.fabric()?;
    let mut plan = Plan {
        conditions: arguments.common.conditions(1, 0, rdma)?,
        fixed: or(&arguments.fixed, &[2, 8, 128]),
        clients,
        in_flight: arguments.in_flight,
        record_bytes: arguments.size as usize,
    };
    plan.conditions = (arguments.common).conditions(plan.specs().len(), plan.servers(), rdma)?;
    Ok(plan)
}

fn table(rows: &[Row]) -> Table {
    let [a, b, c, d, e, f] = RATE;
    let mut table = Table::new([
        "<credits",
        "=clients",
        "=in flight",
        "=size",
        a,
        b,
        c,
        d,
        e,
        f,
        "fairness",
        "slowest",
    ]);
    for row in rows {
        let spec = &row.spec;
        let mut cells_of_row = vec![
            spec.credits.clone(),
            spec.clients.to_string(),
            spec.in_flight.to_string(),
            bytes(spec.record_bytes as u64),
        ];
        cells_of_row.extend(cells(&row.rate));
        cells_of_row.extend([row.fairness, row.slowest_share].map(|n| format!("{n:.3}")));
        table.row(cells_of_row);
    }
    table
}
