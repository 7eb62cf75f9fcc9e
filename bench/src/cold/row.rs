//! What came of a pass.

use serde::Serialize;

use super::plan::{Caller, Pattern};
use crate::histogram::median;
use crate::spread::Spread;

/// One pass over the file in one round.
#[derive(Clone, Copy, Debug, Default)]
pub struct Pass {
    /// Reads made.
    pub reads: u64,
    /// Bytes of each.
    pub size_bytes: u64,
    /// The sum of their times.
    pub sum_ns: u64,
    /// Time that half of them did not exceed.
    pub p50_ns: u64,
    /// Time that 99 % did not exceed.
    pub p99_ns: u64,
    /// CPU time of this process.
    pub client_cpu_ns: u64,
    /// CPU time of the server.
    pub server_cpu_ns: u64,
    /// Bytes that the kernel fetched from the disk, if it counts them.
    pub disk_bytes: Option<u64>,
    /// Reads that ended in the client's cache.
    pub cache_hits: u64,
    /// Reads that ended with a direct read.
    pub direct_hits: u64,
}

impl Pass {
    fn bytes(&self) -> f64 {
        (self.reads * self.size_bytes) as f64
    }

    fn mean_ns(&self) -> f64 {
        self.sum_ns as f64 / self.reads.max(1) as f64
    }

    fn percent(&self, reads: u64) -> f64 {
        reads as f64 * 100.0 / self.reads.max(1) as f64
    }

    fn per_mib(&self, ns: u64) -> u64 {
        (ns as f64 * f64::from(1 << 20) / self.bytes().max(1.0)) as u64
    }
}

/// What a row measures.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Spec {
    /// The server's page cache, in files.
    pub cache_to_file: f64,
    /// `random` or `sequential`.
    pub pattern: Pattern,
    /// Bytes of a read.
    pub size_bytes: u64,
    /// `local`, `shm`, `tcp`, `nfs`.
    pub fabric: &'static str,
    /// `pread`, `default`, `rpc`.
    pub route: &'static str,
    /// `first` or `second`.
    pub pass: &'static str,
}

impl Spec {
    /// The first or second pass of a caller.
    pub fn new(
        cache_to_file: f64,
        (pattern, size_bytes): (Pattern, u64),
        caller: Caller,
        pass: usize,
    ) -> Self {
        let (fabric, route) = caller.names();
        Self {
            cache_to_file,
            pattern,
            size_bytes,
            fabric,
            route,
            pass: ["first", "second"][pass],
        }
    }
}

/// A row: medians of the rounds, with the lowest and the highest.
#[derive(Clone, Debug, Serialize)]
pub struct Row {
    /// What the row measures.
    #[serde(flatten)]
    pub spec: Spec,
    /// Number of reads in all rounds.
    pub reads: u64,
    /// The median read.
    pub p50_ns: Spread,
    /// The mean.
    pub mean_ns: Spread,
    /// The 99th percentile.
    pub p99_ns: Spread,
    /// What was read in a second, one read at a time.
    pub mib_per_second: Spread,
    /// The mean against that of `pread` in the same pass and round.
    pub mean_to_pread: Option<Spread>,
    /// Bytes that the kernel fetched from the disk for each byte read: 0 is from memory, above 1 it read ahead in vain.
    pub from_disk: Option<Spread>,
    /// Percent of the reads that ended in the client's cache.
    pub cache_percent: f64,
    /// Percent of the reads that ended with a direct read.
    pub direct_percent: f64,
    /// CPU time of the client for a read.
    pub client_cpu_ns_per_read: u64,
    /// CPU time of the server for a read.
    pub server_cpu_ns_per_read: u64,
    /// CPU time of the client for a MiB.
    pub client_cpu_ns_per_mib: u64,
    /// CPU time of the server for a MiB.
    pub server_cpu_ns_per_mib: u64,
}

impl Row {
    /// The row of these passes, one a round, beside those of `pread`.
    pub fn of(spec: Spec, passes: &[Pass], pread: Option<&[Pass]>) -> Self {
        let spread =
            |value: &dyn Fn(&Pass) -> f64| Spread::of(passes.iter().map(value)).unwrap_or_default();
        let middle = |value: fn(&Pass) -> u64| median(passes.iter().map(value));
        let from_disk = passes
            .iter()
            .filter_map(|p| Some(p.disk_bytes? as f64 / p.bytes().max(1.0)));
        Self {
            spec,
            reads: passes.iter().map(|p| p.reads).sum(),
            p50_ns: spread(&|p| p.p50_ns as f64),
            mean_ns: spread(&Pass::mean_ns),
            p99_ns: spread(&|p| p.p99_ns as f64),
            mib_per_second: spread(&|p| {
                p.bytes() / f64::from(1 << 20) * 1e9 / p.sum_ns.max(1) as f64
            }),
            mean_to_pread: pread.and_then(|pread| {
                let pairs = passes.iter().zip(pread);
                Spread::of_ratios(pairs.map(|(pass, pread)| (pass.mean_ns(), pread.mean_ns())))
            }),
            from_disk: Spread::of(from_disk),
            cache_percent: spread(&|p| p.percent(p.cache_hits)).median,
            direct_percent: spread(&|p| p.percent(p.direct_hits)).median,
            client_cpu_ns_per_read: middle(|p| p.client_cpu_ns / p.reads.max(1)),
            server_cpu_ns_per_read: middle(|p| p.server_cpu_ns / p.reads.max(1)),
            client_cpu_ns_per_mib: middle(|p| p.per_mib(p.client_cpu_ns)),
            server_cpu_ns_per_mib: middle(|p| p.per_mib(p.server_cpu_ns)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::served::Way;

    #[test]
    fn a_row_is_of_its_rounds_and_beside_pread() {
        let pass = |mean: u64, disk_bytes| Pass {
            reads: 256,
            size_bytes: 4096,
            sum_ns: mean * 256,
            p50_ns: mean,
            p99_ns: mean * 3,
            server_cpu_ns: 2560,
            disk_bytes,
            direct_hits: 64,
            ..Pass::default()
        };
        let pread = [pass(100, None), pass(1000, None), pass(100, None)];
        let passes = [
            pass(200, Some(1 << 20)),
            pass(2500, Some(2 << 20)),
            pass(300, Some(1 << 19)),
        ];
        let of = (Pattern::Random, 4096);
        let spec = Spec::new(2.0, of, Caller::Default(Way::Iwarp), 1);
        let row = Row::of(spec, &passes, Some(&pread));
        assert_eq!(
            (spec.fabric, spec.route, spec.pass),
            ("tcp", "default", "second")
        );
        assert_eq!(row.mean_ns.median, 300.0);
        assert_eq!(row.mean_to_pread.unwrap().median, 2.5);
        let disk = row.from_disk.unwrap();
        assert_eq!((disk.lowest, disk.median, disk.highest), (0.5, 1.0, 2.0));
        assert_eq!((row.direct_percent, row.cache_percent), (25.0, 0.0));
        assert_eq!(
            (row.server_cpu_ns_per_read, row.server_cpu_ns_per_mib),
            (10, 2560)
        );
        // 1 MiB in 256 reads of 300 ns.
        assert_eq!(row.mib_per_second.median.round(), 13021.0);
        assert!(Row::of(spec, &pread, None).from_disk.is_none());
    }
}
