//! The figures of each operation.

use std::collections::BTreeMap;
use std::time::Instant;

use anyhow::Result;
use serde::Serialize;

use super::plan::Mix;
use crate::clock;
use crate::histogram::Latencies;
use crate::spread::Spread;

/// An operation that is timed, in the order of the rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Operation {
    /// A directory is made.
    Mkdir,
    /// A file is made, in postmark with its bytes.
    Create,
    /// A file is looked up and opened for reading.
    Open,
    /// Attributes of a file by its path.
    Stat,
    /// All names of a tree are listed.
    Readdir,
    /// Permission bits are changed.
    Chmod,
    /// A file gets another name in its directory.
    Rename,
    /// A file gets a further name.
    Link,
    /// One of a file's two names is removed.
    Unlink,
    /// An empty directory is removed.
    Rmdir,
    /// A file is opened, read and closed.
    Read,
    /// A file is opened and bytes are written at its end.
    Append,
    /// A file of the pool is removed.
    Delete,
    /// Two operations of postmark.
    Transaction,
}

impl Operation {
    /// Its name in rows.
    pub fn name(self) -> &'static str {
        match self {
            Self::Mkdir => "mkdir",
            Self::Create => "create",
            Self::Open => "open",
            Self::Stat => "stat",
            Self::Readdir => "readdir",
            Self::Chmod => "chmod",
            Self::Rename => "rename",
            Self::Link => "link",
            Self::Unlink => "unlink",
            Self::Rmdir => "rmdir",
            Self::Read => "read",
            Self::Append => "append",
            Self::Delete => "delete",
            Self::Transaction => "transaction",
        }
    }
}

/// What one client did in a slice.
#[derive(Clone, Debug, Default)]
pub struct Done {
    /// Wall-clock time of the slice.
    pub elapsed_ns: u64,
    each: BTreeMap<Operation, Latencies>,
}

impl Done {
    /// Runs an operation and counts it.
    pub fn time<T>(&mut self, which: Operation, what: impl FnOnce() -> Result<T>) -> Result<T> {
        let begin = Instant::now();
        let result = what()?;
        self.took(which, clock::nanos(begin, Instant::now()));
        Ok(result)
    }

    /// Counts an operation that took so long.
    pub fn took(&mut self, which: Operation, ns: u64) {
        self.each.entry(which).or_default().record(ns);
    }
}

/// What all clients did in a slice.
#[derive(Clone, Debug, Default)]
pub struct Slice {
    each: BTreeMap<Operation, Figures>,
    /// CPU time of the clients for an operation or transaction.
    client_cpu_ns: f64,
    /// That of the server.
    server_cpu_ns: f64,
}

#[derive(Clone, Debug, Default)]
struct Figures {
    latencies: Latencies,
    per_second: f64,
}

impl Slice {
    /// Of all clients; the CPU time is that of the whole slice, of clients and server.
    pub fn of(clients: &[Done], mix: Mix, cpu_ns: (u64, u64)) -> Self {
        let mut each: BTreeMap<Operation, Figures> = BTreeMap::new();
        for done in clients {
            for (which, latencies) in &done.each {
                let figures = each.entry(*which).or_default();
                figures.latencies.add(latencies);
                let seconds = done.elapsed_ns.max(1) as f64 / 1e9;
                figures.per_second += latencies.len() as f64 / seconds;
            }
        }
        let number: u64 = each
            .iter()
            .filter(|(which, _)| mix != Mix::Postmark || **which == Operation::Transaction)
            .map(|(_, figures)| figures.latencies.len())
            .sum();
        let share = |ns: u64| ns as f64 / number.max(1) as f64;
        Self {
            each,
            client_cpu_ns: share(cpu_ns.0),
            server_cpu_ns: share(cpu_ns.1),
        }
    }
}

/// What a row measures.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Spec {
    /// `fileop`, `postmark` or `reopen`.
    pub mix: Mix,
    /// `local`, `shm`, `tcp`, `nfs`, `nfs4` or `nfs4-delegations`.
    pub fabric: &'static str,
    /// Clients at once.
    pub clients: usize,
}

/// A row: medians of the rounds, with the lowest and the highest.
#[derive(Clone, Debug, Serialize)]
pub struct Row {
    /// What the row measures.
    #[serde(flatten)]
    pub spec: Spec,
    /// Which operation. `transaction` stands for two operations of postmark.
    pub operation: Operation,
    /// Number of operations in all rounds.
    pub operations: u64,
    /// Operations per second of all clients, while they also made the other operations of the mix.
    pub operations_per_second: Spread,
    /// The median.
    pub p50_ns: Spread,
    /// The 99th percentile.
    pub p99_ns: Spread,
    /// The median divided by that of system calls on the same directory in the same round.
    pub p50_to_local: Option<Spread>,
    /// CPU time of the clients for an operation of the mix (fileop, reopen) or a transaction (postmark), the same in each of
    /// its rows.
    pub client_cpu_ns: Spread,
    /// That of the server.
    pub server_cpu_ns: Spread,
}

impl Spec {
    /// The rows of some slices, beside those of `local` in the same rounds.
    pub fn rows(self, slices: &[Slice], local: Option<&[Slice]>) -> Vec<Row> {
        let Some(first) = slices.first() else {
            return Vec::new();
        };
        let row = |which: &Operation| {
            let at = |slice: &Slice, quantile| {
                slice
                    .each
                    .get(which)
                    .map_or(0.0, |figures| figures.latencies.at(quantile) as f64)
            };
            let spread = |value: &dyn Fn(&Slice) -> f64| {
                Spread::of(slices.iter().map(value)).unwrap_or_default()
            };
            let of = |slice: &Slice| slice.each.get(which).cloned().unwrap_or_default();
            Row {
                spec: self,
                operation: *which,
                operations: slices.iter().map(|slice| of(slice).latencies.len()).sum(),
                operations_per_second: spread(&|slice| of(slice).per_second),
                p50_ns: spread(&|slice| at(slice, 0.5)),
                p99_ns: spread(&|slice| at(slice, 0.99)),
                p50_to_local: local.and_then(|local| {
                    let pairs = slices.iter().zip(local);
                    Spread::of_ratios(pairs.map(|(slice, local)| (at(slice, 0.5), at(local, 0.5))))
                }),
                client_cpu_ns: spread(&|slice| slice.client_cpu_ns),
                server_cpu_ns: spread(&|slice| slice.server_cpu_ns),
            }
        };
        first.each.keys().map(row).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_add_up_and_ratios_are_of_one_round() {
        let mut done = Done {
            elapsed_ns: 500_000_000,
            ..Done::default()
        };
        for _ in 0..10 {
            done.took(Operation::Stat, 2000);
            done.took(Operation::Transaction, 4000);
        }
        let fileop = Slice::of(&[done.clone(), done.clone()], Mix::Fileop, (400, 80));
        assert_eq!((fileop.client_cpu_ns, fileop.server_cpu_ns), (10.0, 2.0));
        let slice = Slice::of(&[done.clone(), done], Mix::Postmark, (400, 80));
        assert_eq!((slice.client_cpu_ns, slice.server_cpu_ns), (20.0, 4.0));
        let spec = Spec {
            mix: Mix::Postmark,
            fabric: "shm",
            clients: 2,
        };
        let slices = [slice];
        let rows = spec.rows(&slices, Some(&slices));
        assert_eq!(rows.len(), 2);
        assert_eq!(rows[0].operation, Operation::Stat);
        assert_eq!(rows[0].operations, 20);
        assert_eq!(rows[0].operations_per_second.median, 40.0);
        assert_eq!(rows[0].p50_to_local.unwrap().median, 1.0);
        assert!(spec.rows(&[], None).is_empty());
    }
}
