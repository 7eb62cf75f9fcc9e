//! The figures of the configurations of a case, compared with the best of them.

use odafs::Granted;
use serde::Serialize;

use super::crowd::Crowd;
use super::plan::Case;
use super::player::{Player, Routes, Slice};
use crate::histogram::Latencies;
use crate::spread::median;

/// One configuration in one case.
#[derive(Clone, Debug, Serialize)]
pub struct Row {
    /// The case.
    #[serde(flatten)]
    pub spec: Case,
    /// What the server granted: `one-sided`, `guarded`, `none`.
    pub mode: &'static str,
    /// Percent of a processor that the server took for others.
    pub load_found: f64,
    /// `rpc`, `guarded`, `one-sided` or `policy`, with `+cache` where pages are kept; `default`; `mmap`; `spin-..`.
    pub config: String,
    /// Whether this is one of the fixed configurations, with the best of which the default is compared.
    pub is_fixed: bool,
    /// Reads that count.
    pub reads: u64,
    /// The mean time of a read: the median over slices; over all slices where others come for a while.
    pub mean_ns: u64,
    /// The mean of the fastest slice.
    pub mean_lowest_ns: u64,
    /// The mean of the slowest slice.
    pub mean_highest_ns: u64,
    /// Time that half of the reads did not exceed.
    pub p50_ns: u64,
    /// Time that 99 % did not exceed.
    pub p99_ns: u64,
    /// The mean of a new client's first reads.
    pub cold_mean_ns: Option<u64>,
    /// The mean of all its reads: the first, those that touch the working set once, those that settle, those that
    /// count.
    pub first_mean_ns: Option<u64>,
    /// CPU time of the client for a read.
    pub client_cpu_ns_per_read: u64,
    /// CPU time of the server for a read.
    pub server_cpu_ns_per_read: u64,
    /// Where the reads ended.
    #[serde(flatten)]
    pub routes: Routes,
    /// The mean divided by that of the best fixed configuration: the median over rounds. The best is chosen by the other half of
    /// the rounds.
    pub ratio_to_best: Option<f64>,
    /// The lowest of the rounds.
    pub ratio_lowest: Option<f64>,
    /// The highest.
    pub ratio_highest: Option<f64>,
    /// The mean of all reads against the lowest of a fixed configuration.
    pub first_ratio_to_best: Option<f64>,
    /// Without pages kept: the mean against that of the best fixed configuration without.
    pub ratio_to_route: Option<f64>,
    /// The same against the route that most of its own reads took, and which that was.
    pub ratio_to_settled: Option<f64>,
    /// That route.
    pub settled: Option<&'static str>,
    /// The median against that of a copy out of a mapped file.
    pub p50_ratio_to_mmap: Option<f64>,
}

/// The worst of some rows.
#[derive(Clone, Debug, Serialize)]
pub struct Worst {
    /// The case, in one line.
    pub case: String,
    /// The ratio.
    pub ratio: f64,
    /// The configuration that it is to.
    pub to: String,
}

impl Worst {
    /// The highest of this value among rows of this configuration.
    pub fn of(rows: &[Row], config: &str, value: impl Fn(&Row) -> Option<f64>) -> Option<Self> {
        let valued = rows
            .iter()
            .filter(|row| row.config == config)
            .filter_map(|row| Some((value(row)?, row)));
        let (ratio, row) = valued.max_by(|a, b| a.0.total_cmp(&b.0))?;
        Some(Self {
            case: row.spec.label(),
            ratio,
            to: best_of(rows, &row.spec).map_or_else(String::new, |best| best.config.clone()),
        })
    }
}

/// The best fixed configuration of a case.
pub fn best_of<'a>(rows: &'a [Row], case: &Case) -> Option<&'a Row> {
    rows.iter()
        .filter(|row| row.is_fixed && row.spec.label() == case.label())
        .min_by_key(|row| row.mean_ns)
}

/// What one configuration has measured.
struct Measured<'a> {
    name: &'a str,
    is_fixed: bool,
    slices: &'a [Slice],
    latencies: &'a Latencies,
    routes: Routes,
    cold: Option<Slice>,
    before: Option<Slice>,
}

/// The rows of configurations that took turns.
pub fn of_players(
    case: &Case,
    (granted, load): (Option<Granted>, f64),
    players: &[Player<'_>],
) -> Vec<Row> {
    let measured = players.iter().map(|player| Measured {
        name: &player.config.name,
        is_fixed: player.config.is_fixed,
        slices: &player.slices,
        latencies: &player.latencies,
        routes: player.routes(),
        cold: Some(player.cold),
        before: Some(player.before),
    });
    rows(case, (granted, load), &measured.collect::<Vec<_>>())
}

/// The rows of crowds.
pub fn of_crowds(case: &Case, granted: Option<Granted>, crowds: &[Crowd]) -> Vec<Row> {
    let measured = crowds.iter().map(|crowd| Measured {
        name: &crowd.config.name,
        is_fixed: crowd.config.is_fixed,
        slices: &crowd.slices,
        latencies: &crowd.latencies,
        routes: crowd.routes,
        cold: None,
        before: None,
    });
    rows(case, (granted, 0.0), &measured.collect::<Vec<_>>())
}

fn rows(
    case: &Case,
    (granted, load): (Option<Granted>, f64),
    measured: &[Measured<'_>],
) -> Vec<Row> {
    // Where what pays changes, all of it counts.
    let mean_of: MeanOf = match case.shift {
        None => middle,
        Some(_) => average,
    };
    let named = |name: &str| measured.iter().find(|m| m.name == name);
    let best = Rival::fastest(measured.iter().filter(|m| m.is_fixed), mean_of);
    let first_lowest = (measured.iter().filter(|m| m.is_fixed))
        .filter_map(Measured::first_mean_ns)
        .min_by(f64::total_cmp);
    let routes = measured.iter().filter(|m| m.is_fixed && !m.keeps_pages());
    let best_route = Rival::fastest(routes, mean_of);
    let row = |m: &Measured<'_>| {
        let ratios = best.map(|best| best.ratios(m)).unwrap_or_default();
        let reads: u64 = m.slices.iter().map(|s| s.reads).sum();
        let per_read =
            |sum: fn(&Slice) -> u64| m.slices.iter().map(sum).sum::<u64>() / reads.max(1);
        let means: Vec<f64> = m.slices.iter().map(Slice::mean_ns).collect();
        let settled = (m.name == "policy").then(|| m.routes.settled());
        let to = |rival: Option<Rival<'_>>| {
            rival.and_then(|rival| match case.shift {
                None => middle(&rival.ratios(m)),
                Some(_) => Some(m.mean_ns(mean_of) / mean_of(&rival.means())?.max(1e-9)),
            })
        };
        Row {
            spec: case.clone(),
            mode: match granted {
                Some(Granted::OneSided { .. }) => "one-sided",
                Some(Granted::Guarded { .. }) => "guarded",
                None => "none",
            },
            load_found: rounded(load),
            config: m.name.to_owned(),
            is_fixed: m.is_fixed,
            reads,
            mean_ns: m.mean_ns(mean_of) as u64,
            mean_lowest_ns: means.iter().copied().fold(f64::INFINITY, f64::min) as u64,
            mean_highest_ns: means.iter().copied().fold(0.0, f64::max) as u64,
            p50_ns: m.latencies.at(0.5),
            p99_ns: m.latencies.at(0.99),
            cold_mean_ns: m.cold.map(|slice| slice.mean_ns() as u64),
            first_mean_ns: m.first_mean_ns().map(|mean| mean as u64),
            client_cpu_ns_per_read: per_read(|s| s.client_cpu_ns),
            server_cpu_ns_per_read: per_read(|s| s.server_cpu_ns),
            routes: m.routes,
            ratio_to_best: to(best).map(rounded),
            ratio_lowest: ratios.iter().copied().min_by(f64::total_cmp).map(rounded),
            ratio_highest: ratios.iter().copied().max_by(f64::total_cmp).map(rounded),
            first_ratio_to_best: (m.first_mean_ns().zip(first_lowest))
                .map(|(mean, lowest)| rounded(mean / lowest.max(1e-9))),
            ratio_to_route: to(best_route)
                .filter(|_| case.is_bound() && !m.keeps_pages() && m.name != "mmap")
                .map(rounded),
            ratio_to_settled: settled
                .and_then(|route| to(named(route).map(Rival::one)))
                .map(rounded),
            settled,
            p50_ratio_to_mmap: named("mmap")
                .map(|mmap| m.latencies.at(0.5) as f64 / mmap.latencies.at(0.5).max(1) as f64)
                .map(rounded),
        }
    };
    measured.iter().map(row).collect()
}

impl Measured<'_> {
    fn mean_ns(&self, mean_of: MeanOf) -> f64 {
        mean_of(&self.slices.iter().map(Slice::mean_ns).collect::<Vec<_>>()).unwrap_or(0.0)
    }

    /// Of all reads since the first.
    fn first_mean_ns(&self) -> Option<f64> {
        let all = self
            .slices
            .iter()
            .fold(self.before?, |sum, slice| sum.and(slice));
        Some(all.mean_ns())
    }

    fn keeps_pages(&self) -> bool {
        self.name.ends_with("+cache") || self.name == "default"
    }

    fn mean_of_half(&self, half: usize, mean_of: MeanOf) -> f64 {
        let slices = self.slices.iter().skip(half).step_by(2);
        mean_of(&slices.map(Slice::mean_ns).collect::<Vec<_>>()).unwrap_or(f64::INFINITY)
    }
}

/// With what a configuration is compared: one in the even rounds, and one in the odd ones.
#[derive(Clone, Copy)]
struct Rival<'a>([&'a Measured<'a>; 2]);

impl<'a> Rival<'a> {
    fn one(measured: &'a Measured<'a>) -> Self {
        Self([measured; 2])
    }

    /// The fastest of several. Each half of the rounds is compared with what was fastest in the other half: of many equal ones
    /// some are fast by luck, and luck must not count.
    fn fastest(
        of: impl Iterator<Item = &'a Measured<'a>> + Clone,
        mean_of: MeanOf,
    ) -> Option<Self> {
        let in_half = |half: usize| {
            let mean = |m: &Measured<'_>| m.mean_of_half(half, mean_of);
            of.clone().min_by(|a, b| mean(a).total_cmp(&mean(b)))
        };
        // One round alone has no other half.
        let other = if of.clone().any(|m| m.slices.len() > 1) {
            1
        } else {
            0
        };
        Some(Self([in_half(other)?, in_half(0)?]))
    }

    fn means(&self) -> Vec<f64> {
        let [even, odd] = self.0;
        let pairs = even.slices.iter().zip(odd.slices).enumerate();
        pairs
            .map(|(round, (even, odd))| [even, odd][round % 2].mean_ns())
            .collect()
    }

    fn ratios(&self, m: &Measured<'_>) -> Vec<f64> {
        let pairs = m.slices.iter().zip(self.means());
        pairs
            .map(|(slice, rival)| slice.mean_ns() / rival.max(1e-9))
            .collect()
    }
}

/// What is made of many means.
type MeanOf = fn(&[f64]) -> Option<f64>;

fn average(values: &[f64]) -> Option<f64> {
    (!values.is_empty()).then(|| values.iter().sum::<f64>() / values.len() as f64)
}

fn middle(values: &[f64]) -> Option<f64> {
    median(&mut values.to_vec())
}

fn rounded(ratio: f64) -> f64 {
    (ratio * 1000.0).round() / 1000.0
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::policy::plan::{Filter, Plan};

    fn slices(means: &[u64]) -> Vec<Slice> {
        let slice = |mean: &u64| Slice {
            reads: 10,
            elapsed_ns: mean * 10,
            ..Slice::default()
        };
        means.iter().map(slice).collect()
    }

    #[test]
    fn a_ratio_is_of_rounds_and_to_the_best_of_what_is_fixed() {
        let case = &Plan::built_in().unwrap().cases(&Filter::default())[0];
        let latencies = Latencies::default();
        let all = [
            ("mmap", false, slices(&[100, 100, 100])),
            ("rpc", true, slices(&[1000, 3000, 1000])),
            ("one-sided", true, slices(&[500, 1500, 400])),
            ("rpc+cache", true, slices(&[400, 1200, 350])),
            ("policy", false, slices(&[550, 1650, 440])),
            ("default", false, slices(&[800, 2400, 700])),
        ];
        let measured = all.iter().map(|(name, is_fixed, slices)| Measured {
            name,
            is_fixed: *is_fixed,
            slices,
            latencies: &latencies,
            routes: Routes {
                direct_hits: 9,
                one_sided_hits: 9,
                ..Routes::default()
            },
            cold: None,
            before: (*name != "mmap").then_some(Slice {
                reads: 30,
                elapsed_ns: 30 * 2000,
                ..Slice::default()
            }),
        });
        let rows = rows(case, (None, 0.0), &measured.collect::<Vec<_>>());
        let row = |name: &str| rows.iter().find(|row| row.config == name).unwrap();
        // The slow round is slow for all.
        assert_eq!(row("default").ratio_to_best, Some(2.0));
        assert_eq!(row("rpc+cache").ratio_to_best, Some(1.0));
        assert_eq!(row("default").ratio_to_route, None);
        assert_eq!(row("policy").ratio_to_route, Some(1.1));
        assert_eq!(row("policy").settled, Some("one-sided"));
        assert_eq!(row("policy").ratio_to_settled, Some(1.1));
        assert_eq!(
            (row("rpc").mean_ns, row("rpc").mean_highest_ns),
            (1000, 3000)
        );
        // Thirty reads of 2,000 ns, and thirty of 650 or of 1,300 ns.
        assert_eq!(row("default").first_mean_ns, Some(1650));
        assert_eq!(row("default").first_ratio_to_best, Some(1.245));
        assert_eq!(row("mmap").first_ratio_to_best, None);
        let worst = Worst::of(&rows, "default", |row| row.ratio_to_best).unwrap();
        assert_eq!((worst.ratio, worst.to.as_str()), (2.0, "rpc+cache"));
    }

    #[test]
    fn luck_does_not_make_the_best() {
        let latencies = Latencies::default();
        let measured = |name: &'static str, slices| Measured {
            name,
            is_fixed: true,
            slices,
            latencies: &latencies,
            routes: Routes::default(),
            cold: None,
            before: None,
        };
        // Equal but for luck: each has fast rounds.
        let [first, second] = [slices(&[80, 120, 80, 120]), slices(&[120, 80, 120, 80])];
        let all = [measured("rpc", &first), measured("guarded", &second)];
        let rival = Rival::fastest(all.iter(), middle).unwrap();
        assert_eq!(rival.means(), [120.0; 4]);
        // One is better.
        let [first, second] = [slices(&[80, 120, 90]), slices(&[70, 100, 80])];
        let all = [measured("rpc", &first), measured("guarded", &second)];
        let rival = Rival::fastest(all.iter(), middle).unwrap();
        assert_eq!(rival.means(), [70.0, 100.0, 80.0]);
        let one = [measured("rpc", &first[..1])];
        let rival = Rival::fastest(one.iter(), middle).unwrap();
        assert_eq!(rival.means(), [80.0]);
    }
}
