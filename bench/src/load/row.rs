//! The figures of a route at a load.

use serde::Serialize;

use super::plan::Path;
use crate::histogram::median;
use crate::spread::Spread;

/// One route at one load in one round.
#[derive(Clone, Copy, Debug, Default)]
pub struct Slice {
    /// Reads made.
    pub reads: u64,
    /// The sum of their times.
    pub sum_ns: u64,
    /// Time that half of them did not exceed.
    pub p50_ns: u64,
    /// Time that 99 % did not exceed.
    pub p99_ns: u64,
    /// Time that 99.9 % did not exceed.
    pub p999_ns: u64,
    /// CPU time of this process.
    pub client_cpu_ns: u64,
    /// CPU time of the server.
    pub server_cpu_ns: u64,
    /// Percent of a processor that the others took.
    pub held_percent: f64,
}

impl Slice {
    fn mean_ns(&self) -> f64 {
        self.sum_ns as f64 / self.reads.max(1) as f64
    }

    fn reads_per_second(&self) -> f64 {
        self.reads as f64 * 1e9 / self.sum_ns.max(1) as f64
    }
}

/// A row: medians of the rounds, with the lowest and the highest.
#[derive(Clone, Debug, Serialize)]
pub struct Row {
    /// `shm`, `tcp`, `nfs`; `local` without a server.
    pub fabric: &'static str,
    /// `one-sided`, `guarded`, `rpc`, `policy`; `mmap` without a server.
    pub route: &'static str,
    /// Percent of the server's processor that the other processes were told to take.
    pub load_percent: u32,
    /// Percent that they took while this was measured: the median of the rounds.
    pub held_percent: u64,
    /// Number of reads in all rounds.
    pub reads: u64,
    /// The median read.
    pub p50_ns: Spread,
    /// The mean.
    pub mean_ns: Spread,
    /// The 99th percentile.
    pub p99_ns: Spread,
    /// The 99.9th percentile.
    pub p999_ns: Spread,
    /// Reads per second of the one client.
    pub reads_per_second: Spread,
    /// CPU time of the client for a read.
    pub client_cpu_ns_per_read: u64,
    /// CPU time of the server for a read.
    pub server_cpu_ns_per_read: u64,
    /// The mean divided by that of the idle slice of the same round.
    pub mean_to_idle: Option<Spread>,
    /// The same for the 99th percentile.
    pub p99_to_idle: Option<Spread>,
}

impl Row {
    /// The row of some slices, beside those of the idle server in the same rounds.
    pub fn of(path: Path, load_percent: u32, slices: &[Slice], idle: Option<&[Slice]>) -> Self {
        let (fabric, route) = path.names();
        let spread = |value: &dyn Fn(&Slice) -> f64| {
            Spread::of(slices.iter().map(value)).unwrap_or_default()
        };
        let to_idle = |value: &dyn Fn(&Slice) -> f64| {
            let pairs = slices.iter().zip(idle?);
            Spread::of_ratios(pairs.map(|(slice, idle)| (value(slice), value(idle))))
        };
        let per_read =
            |sum: fn(&Slice) -> u64| median(slices.iter().map(|s| sum(s) / s.reads.max(1)));
        Self {
            fabric,
            route,
            load_percent,
            held_percent: median(slices.iter().map(|s| s.held_percent.round() as u64)),
            reads: slices.iter().map(|s| s.reads).sum(),
            p50_ns: spread(&|s| s.p50_ns as f64),
            mean_ns: spread(&Slice::mean_ns),
            p99_ns: spread(&|s| s.p99_ns as f64),
            p999_ns: spread(&|s| s.p999_ns as f64),
            reads_per_second: spread(&Slice::reads_per_second),
            client_cpu_ns_per_read: per_read(|s| s.client_cpu_ns),
            server_cpu_ns_per_read: per_read(|s| s.server_cpu_ns),
            mean_to_idle: to_idle(&Slice::mean_ns),
            p99_to_idle: to_idle(&|s| s.p99_ns as f64),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_ratio_is_to_the_idle_slice_of_its_round() {
        let slice = |mean: u64, p99_ns| Slice {
            reads: 10,
            sum_ns: mean * 10,
            p99_ns,
            held_percent: 99.6,
            ..Slice::default()
        };
        let idle = [slice(100, 200), slice(1000, 2000), slice(100, 300)];
        let held = [slice(110, 400), slice(1100, 4000), slice(120, 600)];
        let row = Row::of(Path::NfsTcp, 100, &held, Some(&idle));
        assert_eq!(
            (row.fabric, row.route, row.held_percent),
            ("nfs", "rpc", 100)
        );
        assert_eq!(row.mean_ns.median, 120.0);
        assert_eq!(row.mean_ns.highest, 1100.0);
        assert_eq!(row.mean_to_idle.unwrap().median, 1.1);
        assert_eq!(row.p99_to_idle.unwrap().highest, 2.0);
        assert_eq!(Row::of(Path::NfsTcp, 100, &held, None).p99_to_idle, None);
    }
}
