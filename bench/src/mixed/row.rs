//! The figures of the clients of both kinds.

use serde::Serialize;

use crate::histogram::Latencies;
use crate::load::Path;
use crate::served::Way;
use crate::spread::Spread;

/// What the clients of one kind did in a slice.
#[derive(Clone, Debug, Default)]
pub struct Done {
    /// What each read took.
    pub reads: Latencies,
    /// What each write took.
    pub writes: Latencies,
    /// Number of reads that returned wrong data.
    pub incoherent: u64,
}

impl Done {
    /// That of both.
    pub fn add(&mut self, other: &Self) {
        self.reads.add(&other.reads);
        self.writes.add(&other.writes);
        self.incoherent += other.incoherent;
    }
}

/// One row in one round.
#[derive(Clone, Debug, Default)]
pub struct Slice {
    /// Its length in nanoseconds.
    pub elapsed_ns: u64,
    /// What the clients that read directly did.
    pub direct: Done,
    /// What the NFS clients did.
    pub nfs: Done,
}

/// The figures of the clients of one kind: medians of the rounds, with the lowest and the highest.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Kind {
    /// Number of these clients.
    pub clients: usize,
    /// Reads per second of all these clients.
    pub reads_per_second: Spread,
    /// The median read.
    pub read_p50_ns: Spread,
    /// The 99th percentile of reads.
    pub read_p99_ns: Spread,
    /// The median write.
    pub write_p50_ns: Spread,
    /// The 99th percentile of writes.
    pub write_p99_ns: Spread,
}

impl Kind {
    fn of(clients: usize, slices: &[Slice], done: fn(&Slice) -> &Done) -> Option<Self> {
        let spread = |value: &dyn Fn(&Slice) -> f64| {
            Spread::of(slices.iter().map(value)).unwrap_or_default()
        };
        let at = |of: fn(&Done) -> &Latencies, quantile: f64| {
            spread(&move |slice: &Slice| of(done(slice)).at(quantile) as f64)
        };
        (clients > 0).then(|| Self {
            clients,
            reads_per_second: spread(&|s| rate(done(s).reads.len(), s.elapsed_ns)),
            read_p50_ns: at(|done| &done.reads, 0.5),
            read_p99_ns: at(|done| &done.reads, 0.99),
            write_p50_ns: at(|done| &done.writes, 0.5),
            write_p99_ns: at(|done| &done.writes, 0.99),
        })
    }
}

fn rate(operations: u64, ns: u64) -> f64 {
    operations as f64 * 1e9 / ns.max(1) as f64
}

/// A row: medians of the rounds, with the lowest and the highest.
#[derive(Clone, Debug, Serialize)]
pub struct Row {
    /// The fabric of the clients that read directly.
    pub fabric: &'static str,
    /// Their route.
    pub route: &'static str,
    /// Percent of the clients that read directly.
    pub direct_percent: u32,
    /// Reads and writes per second of all clients.
    pub operations_per_second: Spread,
    /// Figures of the clients that read directly.
    pub direct: Option<Kind>,
    /// Figures of the clients of NFS over TCP.
    pub nfs: Option<Kind>,
    /// Number of reads in all rounds, each of which was checked.
    pub checked: u64,
    /// Number of these reads that returned wrong data: an older page than the last one acknowledged before they began,
    /// one that nobody wrote, or parts of two.
    pub incoherent: u64,
}

impl Row {
    /// The row of some slices. `clients`: of the direct kind, and of NFS.
    pub fn of(
        (way, route): (Way, odafs::Route),
        direct_percent: u32,
        clients: (usize, usize),
        slices: &[Slice],
    ) -> Self {
        let (fabric, route) = Path::Client(way, route).names();
        let both =
            |count: fn(&Done) -> u64| move |slice: &Slice| count(&slice.direct) + count(&slice.nfs);
        let operations = both(|done| done.reads.len() + done.writes.len());
        let rates = slices.iter().map(|s| rate(operations(s), s.elapsed_ns));
        Self {
            fabric,
            route,
            direct_percent,
            operations_per_second: Spread::of(rates).unwrap_or_default(),
            direct: Kind::of(clients.0, slices, |slice| &slice.direct),
            nfs: Kind::of(clients.1, slices, |slice| &slice.nfs),
            checked: slices.iter().map(both(|done| done.reads.len())).sum(),
            incoherent: slices.iter().map(both(|done| done.incoherent)).sum(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_has_both_kinds_and_counts_what_was_checked() {
        let mut slice = Slice {
            elapsed_ns: 500_000_000,
            ..Slice::default()
        };
        (0..9).for_each(|_| slice.direct.reads.record(100));
        slice.direct.writes.record(3000);
        slice.direct.incoherent = 2;
        let way = (Way::Iwarp, odafs::Route::Guarded);
        let row = Row::of(way, 100, (1, 0), &[slice.clone(), slice]);
        assert_eq!((row.fabric, row.route), ("tcp", "guarded"));
        assert_eq!(row.operations_per_second.median, 20.0);
        assert_eq!((row.checked, row.incoherent, row.nfs), (18, 4, None));
        let direct = row.direct.unwrap();
        assert_eq!(direct.reads_per_second.median, 18.0);
        assert_eq!((direct.read_p99_ns.median, direct.clients), (100.0, 1));
    }
}
