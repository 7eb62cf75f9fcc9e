//! The figures of a route.

use std::collections::BTreeSet;

use serde::Serialize;

use super::player::{Pass, Tally};
use crate::histogram::{Latencies, median};
use crate::spread::Spread;

/// One kind of operation by one route, with the medians of the rounds, the lowest and the highest.
#[derive(Clone, Debug, Serialize)]
pub struct Row {
    /// `rpc`, `guarded`, `one-sided`, `policy`, `default`.
    pub route: String,
    /// The operation as in the trace (`read` for reads in one call, too), or `all` for all operations.
    pub operation: &'static str,
    /// Number of calls in a pass.
    pub calls: u64,
    /// The median call.
    pub p50_ns: Spread,
    /// The 99th percentile.
    pub p99_ns: Spread,
    /// The mean.
    pub mean_ns: Spread,
    /// The mean divided by that of RPC in the same round.
    pub mean_to_rpc: Option<Spread>,
    /// Where reads of a pass ended, and how many operations differed from the recording. Only for `all`.
    #[serde(flatten)]
    pub ends: Option<RowEnds>,
}

/// Where reads ended, in the median pass.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct RowEnds {
    /// In the client's data cache.
    pub cache_hits: u64,
    /// By a direct read.
    pub direct_hits: u64,
    /// By RPC.
    pub rpc_reads: u64,
    /// Number of direct reads that were refused.
    pub stale_hits: u64,
    /// Number of operations that failed or succeeded otherwise than in the recording, or that read another length.
    pub differs: u64,
}

const ALL: &str = "all";

fn tally(pass: &Pass, operation: &str) -> Tally {
    if operation != ALL {
        return pass.tallies.get(operation).cloned().unwrap_or_default();
    }
    let mut all = Tally::default();
    for tally in pass.tallies.values() {
        all.latencies.add(&tally.latencies);
        all.sum_ns += tally.sum_ns;
    }
    all
}

fn mean(tally: &Tally) -> f64 {
    tally.sum_ns as f64 / tally.latencies.len().max(1) as f64
}

impl Row {
    /// The rows of a route, compared with RPC in the same rounds: first `all`, then each operation.
    pub fn of_route(route: &str, passes: &[Pass], rpc: Option<&[Pass]>) -> Vec<Self> {
        let verbs: BTreeSet<_> = passes.iter().flat_map(|p| p.tallies.keys()).collect();
        let operations = [ALL].into_iter().chain(verbs.into_iter().copied());
        let row = |operation| {
            let tallies: Vec<_> = passes.iter().map(|pass| tally(pass, operation)).collect();
            let spread = |value: &dyn Fn(&Tally) -> f64| {
                Spread::of(tallies.iter().map(value)).unwrap_or_default()
            };
            let at = |quantile| move |latencies: &Latencies| latencies.at(quantile) as f64;
            let (p50, p99) = (at(0.5), at(0.99));
            let of = |value: fn(&Pass) -> u64| median(passes.iter().map(value));
            Self {
                route: route.to_owned(),
                operation,
                calls: median(tallies.iter().map(|tally| tally.latencies.len())),
                p50_ns: spread(&|tally| p50(&tally.latencies)),
                p99_ns: spread(&|tally| p99(&tally.latencies)),
                mean_ns: spread(&mean),
                mean_to_rpc: rpc.and_then(|rpc| {
                    let rpc = rpc.iter().map(|pass| mean(&tally(pass, operation)));
                    Spread::of_ratios(tallies.iter().map(mean).zip(rpc))
                }),
                ends: (operation == ALL).then(|| RowEnds {
                    cache_hits: of(|pass| pass.ends.cache_hits),
                    direct_hits: of(|pass| pass.ends.direct_hits),
                    rpc_reads: of(|pass| pass.ends.rpc_reads),
                    stale_hits: of(|pass| pass.ends.stale_hits),
                    differs: of(|pass| pass.differs),
                }),
            }
        };
        operations.map(row).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pass(reads: &[u64], stats: &[u64]) -> Pass {
        let mut pass = Pass::default();
        for (verb, times) in [("read", reads), ("stat", stats)] {
            let tally = pass.tallies.entry(verb).or_default();
            for &ns in times {
                tally.latencies.record(ns);
                tally.sum_ns += ns;
            }
        }
        pass
    }

    #[test]
    fn rows_are_of_all_and_of_each_operation_beside_rpc() {
        let rpc = [pass(&[100, 300], &[400]), pass(&[1000, 3000], &[4000])];
        let direct = [pass(&[50, 150], &[400]), pass(&[500, 1500], &[4000])];
        let rows = Row::of_route("guarded", &direct, Some(&rpc));
        let operations: Vec<_> = rows.iter().map(|row| row.operation).collect();
        assert_eq!(operations, ["all", "read", "stat"]);
        assert_eq!(rows[0].calls, 3);
        let ratio = rows[1].mean_to_rpc.unwrap();
        assert_eq!((ratio.lowest, ratio.highest), (0.5, 0.5));
        assert_eq!(rows[0].mean_to_rpc.unwrap().median, 0.75);
        assert!(rows[0].ends.is_some() && rows[1].ends.is_none());
    }
}
