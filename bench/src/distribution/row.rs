//! What came of a route with a file of some length.

use serde::Serialize;

use super::plan::Pattern;
use crate::load::Path;
use crate::spread::Spread;

/// One row in one round.
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
    /// Reads that ended in the client's cache.
    pub cache_hits: u64,
    /// Reads that ended with a direct read.
    pub direct_hits: u64,
    /// Reads that ended with a call.
    pub rpc_reads: u64,
    /// Direct reads that were refused with an exception.
    pub stale_hits: u64,
}

/// What a row measures.
#[derive(Clone, Debug, Serialize)]
pub struct Spec {
    /// `uniform` or `zipf`.
    pub pattern: Pattern,
    /// Length of the file, in page caches of the server.
    pub file_to_cache: f64,
    /// The same in bytes.
    pub file_bytes: u64,
    /// `shm` or `tcp`.
    pub fabric: &'static str,
    /// `one-sided`, `guarded`, `rpc`, `policy`.
    pub route: &'static str,
}

/// A row: medians of the rounds, with the lowest and the highest. Shares are percent of all reads.
#[derive(Clone, Debug, Serialize)]
pub struct Row {
    /// What the row measures.
    #[serde(flatten)]
    pub spec: Spec,
    /// Number of reads in all rounds.
    pub reads: u64,
    /// Reads that ended in the client's cache.
    pub cache_percent: Spread,
    /// Reads that ended with a direct read (directory hits).
    pub direct_percent: Spread,
    /// Direct reads that were refused with an exception (stale directory hits).
    pub stale_percent: Spread,
    /// Reads that ended with a call, after a refusal or without.
    pub rpc_percent: Spread,
    /// Reads a second of the one client.
    pub reads_per_second: Spread,
    /// The mean.
    pub mean_ns: Spread,
    /// The median read.
    pub p50_ns: Spread,
    /// The 99th percentile.
    pub p99_ns: Spread,
    /// The mean divided by that of `rpc` over the same fabric in the same round.
    pub mean_to_rpc: Option<Spread>,
    /// Of uniform reads: the share that the client's cache would serve if it held nothing but pages.
    pub expected_cache_percent: Option<f64>,
    /// Of uniform reads by a direct route: those that would be refused if the server's memory held any page with the
    /// same chance, whatever the client's cache holds.
    pub expected_stale_percent: Option<f64>,
}

/// Sizes in units of the server's page cache.
#[derive(Clone, Copy, Debug)]
pub struct Memories {
    /// The client's data cache.
    pub client: f64,
    /// The file.
    pub file: f64,
}

impl Memories {
    fn cached(self) -> f64 {
        (self.client / self.file).min(1.0)
    }

    fn refused(self) -> f64 {
        (1.0 - 1.0 / self.file).max(0.0) * (1.0 - self.cached())
    }
}

impl Spec {
    /// The row of some slices, beside those of `rpc` in the same rounds.
    pub fn row(self, slices: &[Slice], rpc: Option<&[Slice]>, memories: Memories) -> Row {
        let spread = |value: &dyn Fn(&Slice) -> f64| {
            Spread::of(slices.iter().map(value)).unwrap_or_default()
        };
        let percent = |count: fn(&Slice) -> u64| {
            spread(&move |s: &Slice| count(s) as f64 * 100.0 / s.reads.max(1) as f64)
        };
        let mean = |s: &Slice| s.sum_ns as f64 / s.reads.max(1) as f64;
        let is_uniform = self.pattern == Pattern::Uniform;
        let is_direct = ["one-sided", "guarded"].contains(&self.route);
        let hundredths = |share: f64| (share * 1e4).round() / 1e2;
        Row {
            reads: slices.iter().map(|s| s.reads).sum(),
            cache_percent: percent(|s| s.cache_hits),
            direct_percent: percent(|s| s.direct_hits),
            stale_percent: percent(|s| s.stale_hits),
            rpc_percent: percent(|s| s.rpc_reads),
            reads_per_second: spread(&|s| s.reads as f64 * 1e9 / s.sum_ns.max(1) as f64),
            mean_ns: spread(&mean),
            p50_ns: spread(&|s| s.p50_ns as f64),
            p99_ns: spread(&|s| s.p99_ns as f64),
            mean_to_rpc: rpc.and_then(|rpc| {
                let pairs = slices.iter().zip(rpc);
                Spread::of_ratios(pairs.map(|(slice, rpc)| (mean(slice), mean(rpc))))
            }),
            expected_cache_percent: is_uniform.then(|| hundredths(memories.cached())),
            expected_stale_percent: (is_uniform && is_direct)
                .then(|| hundredths(memories.refused())),
            spec: self,
        }
    }
}

/// The names of a path in a [`Spec`].
pub fn spec(pattern: Pattern, file_to_cache: f64, file_bytes: u64, path: Path) -> Spec {
    let (fabric, route) = path.names();
    Spec {
        pattern,
        file_to_cache,
        file_bytes,
        fabric,
        route,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_are_of_all_reads_and_what_is_expected_of_uniform_ones() {
        let slice = Slice {
            reads: 200,
            sum_ns: 20_000,
            cache_hits: 40,
            direct_hits: 140,
            rpc_reads: 20,
            stale_hits: 18,
            ..Slice::default()
        };
        let path = Path::named("shm guarded").unwrap();
        let memories = Memories {
            client: 0.25,
            file: 1.25,
        };
        let row =
            spec(Pattern::Uniform, 1.25, 5 << 20, path).row(&[slice], Some(&[slice]), memories);
        assert_eq!(
            (row.cache_percent.median, row.direct_percent.median),
            (20.0, 70.0)
        );
        assert_eq!(
            (row.stale_percent.median, row.rpc_percent.median),
            (9.0, 10.0)
        );
        assert_eq!(
            (row.mean_ns.median, row.mean_to_rpc.unwrap().median),
            (100.0, 1.0)
        );
        // A fifth of the pages is in the client's memory, a fifth of the others in nobody's.
        assert_eq!(row.expected_cache_percent, Some(20.0));
        assert_eq!(row.expected_stale_percent, Some(16.0));
        let zipf = spec(Pattern::Zipf, 0.5, 2 << 20, path).row(&[slice], None, memories);
        assert_eq!(
            (zipf.expected_stale_percent, zipf.mean_to_rpc),
            (None, None)
        );
        let fits = Memories {
            client: 0.25,
            file: 0.5,
        };
        let row = spec(Pattern::Uniform, 0.5, 2 << 20, path).row(&[slice], None, fits);
        assert_eq!(row.expected_stale_percent, Some(0.0));
    }
}
