//! The differences between two samples.

use std::collections::BTreeMap;

use serde::Serialize;

use super::figures::{Figures, Sample, SlowCall};

/// What happened in an interval. Rates are per second. A share is `null` if nothing happened that could be shared.
#[derive(Debug, Default, Serialize)]
pub struct Report {
    pub server: String,
    pub version: String,
    pub up_seconds: f64,
    /// 0 if there was only one sample. All rates are 0 then.
    pub interval_seconds: f64,
    pub calls_per_second: f64,
    /// Bytes read and written, by calls and by direct reads.
    pub bytes_per_second: f64,
    pub page_hit_share: Option<f64>,
    pub direct_reads_per_second: f64,
    /// The share of direct reads among those that the server saw. It does not see one-sided reads.
    pub direct_share: Option<f64>,
    pub direct_refusals_per_second: BTreeMap<String, f64>,
    pub connections: BTreeMap<String, f64>,
    pub sessions: f64,
    pub cache_bytes: f64,
    pub cache_used_bytes: f64,
    pub evictions_per_second: f64,
    pub pools: Vec<PoolRow>,
    pub memory_waiting: f64,
    pub procedures: Vec<ProcedureRow>,
    pub clients: Vec<ClientRow>,
    pub slow_calls: Vec<SlowRow>,
}

/// A pool of threads for calls that may block.
#[derive(Debug, Serialize)]
pub struct PoolRow {
    pub pool: String,
    pub threads: f64,
    pub running: f64,
    pub waiting: f64,
}

/// A procedure of a program, over all fabrics.
#[derive(Debug, Serialize)]
pub struct ProcedureRow {
    pub program: String,
    pub procedure: String,
    pub calls_per_second: f64,
    pub p50_seconds: Option<f64>,
    pub p99_seconds: Option<f64>,
    pub errors_per_second: f64,
}

/// A client.
#[derive(Debug, Serialize)]
pub struct ClientRow {
    pub client: String,
    pub calls_per_second: f64,
    pub bytes_per_second: f64,
}

/// A slow call, and how long ago it ended.
#[derive(Debug, Serialize)]
pub struct SlowRow {
    #[serde(flatten)]
    pub call: SlowCall,
    pub seconds_ago: f64,
}

/// Computes rates from two sets of figures.
struct Rates<'a> {
    before: Option<&'a Figures>,
    now: &'a Figures,
    seconds: f64,
}

impl Rates<'_> {
    fn rate(&self, now: f64, before: f64) -> f64 {
        match self.seconds > 0.0 {
            true => (now - before).max(0.0) / self.seconds,
            false => 0.0,
        }
    }

    /// The rate of all figures of a name together.
    fn of(&self, name: &str) -> f64 {
        let before = self.before.map_or(0.0, |before| before.sum(name));
        self.rate(self.now.sum(name), before)
    }

    fn by(&self, name: &str, label: &str) -> BTreeMap<String, f64> {
        let before = self.before.map(|before| before.by(name, label));
        let before = before.unwrap_or_default();
        let was = |of: &str| before.get(of).copied().unwrap_or(0.0);
        let now = self.now.by(name, label).into_iter();
        now.map(|(of, now)| (of.clone(), self.rate(now, was(&of))))
            .collect()
    }
}

fn share(part: f64, rest: f64) -> Option<f64> {
    (part + rest > 0.0).then(|| part / (part + rest))
}

impl Report {
    /// The report from `before` to `now`. A sample of another run of the server does not count as `before`.
    pub fn between(before: Option<&Sample>, now: &Sample, server: &str) -> Self {
        const STARTED: &str = "odafs_start_time_seconds";
        let started = now.figures.sum(STARTED);
        let before = before.filter(|before| before.figures.sum(STARTED) == started);
        let seconds = before.map_or(0.0, |before| (now.taken - before.taken).as_secs_f64());
        let rates = Rates {
            before: before.map(|before| &before.figures),
            now: &now.figures,
            seconds,
        };
        let direct = rates.of("odafs_direct_reads_total");
        let refusals = rates.by("odafs_direct_refusals_total", "exception");
        Self {
            server: server.to_owned(),
            version: now.top.version.clone(),
            up_seconds: (now.top.now - now.top.started).max(0.0),
            interval_seconds: seconds,
            calls_per_second: rates.of("odafs_calls_total"),
            bytes_per_second: rates.of("odafs_read_bytes_total")
                + rates.of("odafs_written_bytes_total")
                + rates.of("odafs_direct_bytes_total"),
            page_hit_share: share(
                rates.of("odafs_page_hits_total"),
                rates.of("odafs_page_misses_total"),
            ),
            direct_reads_per_second: direct,
            direct_share: share(direct, rates.of("odafs_reads_total")),
            direct_refusals_per_second: refusals
                .into_iter()
                .filter(|(_, rate)| *rate > 0.0)
                .collect(),
            connections: now.figures.by("odafs_connections", "fabric"),
            sessions: now.figures.sum("odafs_sessions"),
            cache_bytes: now.figures.sum("odafs_cache_bytes"),
            cache_used_bytes: now.figures.sum("odafs_cache_used_bytes"),
            evictions_per_second: rates.of("odafs_evictions_total"),
            pools: pools(&now.figures),
            memory_waiting: now.figures.sum("odafs_rdma_memory_waiting"),
            procedures: procedures(&rates),
            clients: clients(before, now, &rates),
            slow_calls: now
                .top
                .slow_calls
                .iter()
                .map(|call| SlowRow {
                    seconds_ago: (now.top.now - call.time).max(0.0),
                    call: call.clone(),
                })
                .collect(),
        }
    }
}

fn pools(figures: &Figures) -> Vec<PoolRow> {
    let by = |name| figures.by(name, "pool");
    let (running, waiting) = (by("odafs_pool_running"), by("odafs_pool_waiting"));
    let of = |sums: &BTreeMap<String, f64>, pool: &str| sums.get(pool).copied().unwrap_or(0.0);
    let row = |(pool, threads): (String, f64)| PoolRow {
        threads,
        running: of(&running, &pool),
        waiting: of(&waiting, &pool),
        pool,
    };
    by("odafs_pool_threads").into_iter().map(row).collect()
}

/// Program and procedure.
type Key = (String, String);

/// The most buckets of a histogram. A server has 23. Further ones are left out, because the search is linear.
const BUCKETS_MAX: usize = 64;

/// The figures of a procedure: calls, errors, and for each bound in seconds how many sampled calls took at most that.
#[derive(Default)]
struct Sums {
    calls: f64,
    errors: f64,
    buckets: Vec<(f64, f64)>,
}

fn sums(figures: &Figures) -> BTreeMap<Key, Sums> {
    let mut sums: BTreeMap<Key, Sums> = BTreeMap::new();
    let mut each = |name: &str, add: &dyn Fn(&mut Sums, f64, f64)| {
        for (labels, value) in figures.all(name) {
            let of = |label| labels.get(label).cloned().unwrap_or_default();
            let bound = match &*of("le") {
                "+Inf" => f64::INFINITY,
                bound => bound.parse().unwrap_or(0.0),
            };
            add(
                sums.entry((of("program"), of("procedure"))).or_default(),
                bound,
                *value,
            );
        }
    };
    each("odafs_calls_total", &|sums, _, value| sums.calls += value);
    each("odafs_call_errors_total", &|sums, _, value| {
        sums.errors += value
    });
    each(
        "odafs_sampled_call_seconds_bucket",
        &|sums, bound, value| {
            let known = sums.buckets.iter().position(|(known, _)| *known == bound);
            match known {
                Some(at) => sums.buckets[at].1 += value,
                None if sums.buckets.len() < BUCKETS_MAX => sums.buckets.push((bound, value)),
                None => {}
            }
        },
    );
    sums
}

/// The procedures that were called in the interval, the most frequent ones first.
fn procedures(rates: &Rates<'_>) -> Vec<ProcedureRow> {
    let before = rates.before.map(sums).unwrap_or_default();
    let nothing = Sums::default();
    let row = |((program, procedure), now): (Key, Sums)| {
        let key = (program, procedure);
        let was = before.get(&key).unwrap_or(&nothing);
        let (program, procedure) = key;
        let buckets: Vec<(f64, f64)> = now
            .buckets
            .iter()
            .map(|(bound, count)| {
                let was = was.buckets.iter().find(|(known, _)| known == bound);
                (
                    *bound,
                    (count - was.map_or(0.0, |(_, count)| *count)).max(0.0),
                )
            })
            .collect();
        ProcedureRow {
            program,
            procedure,
            calls_per_second: rates.rate(now.calls, was.calls),
            p50_seconds: quantile(&buckets, 0.5),
            p99_seconds: quantile(&buckets, 0.99),
            errors_per_second: rates.rate(now.errors, was.errors),
        }
    };
    let rows = sums(rates.now).into_iter().map(row);
    let mut rows: Vec<ProcedureRow> = rows.filter(|row| row.calls_per_second > 0.0).collect();
    rows.sort_by(|a, b| b.calls_per_second.total_cmp(&a.calls_per_second));
    rows
}

/// A quantile as Prometheus' `histogram_quantile` computes it: linear within a bucket, and the last bound above that.
fn quantile(buckets: &[(f64, f64)], share: f64) -> Option<f64> {
    let mut buckets = buckets.to_vec();
    buckets.sort_by(|a, b| a.0.total_cmp(&b.0));
    let all = buckets.last()?.1;
    if all <= 0.0 {
        return None;
    }
    let wanted = all * share;
    let (mut low, mut below) = (0.0, 0.0);
    for (bound, count) in buckets {
        if count >= wanted {
            if bound.is_infinite() || count <= below {
                return Some(low);
            }
            return Some(low + (bound - low) * (wanted - below) / (count - below));
        }
        (low, below) = (bound, count);
    }
    Some(low)
}

/// The clients that called in the interval, the busiest ones first.
fn clients(before: Option<&Sample>, now: &Sample, rates: &Rates<'_>) -> Vec<ClientRow> {
    let was = |name: &str| {
        let clients = before.map_or(&[][..], |before| &before.top.clients);
        let found = clients.iter().find(|client| client.client == name);
        found.map_or((0.0, 0.0), |client| {
            (client.calls as f64, client.bytes as f64)
        })
    };
    let row = |client: &super::figures::Client| {
        let (calls, bytes) = was(&client.client);
        ClientRow {
            client: client.client.clone(),
            calls_per_second: rates.rate(client.calls as f64, calls),
            bytes_per_second: rates.rate(client.bytes as f64, bytes),
        }
    };
    let rows = now.top.clients.iter().map(row);
    let mut rows: Vec<ClientRow> = rows.filter(|row| row.calls_per_second > 0.0).collect();
    rows.sort_by(|a, b| b.calls_per_second.total_cmp(&a.calls_per_second));
    rows
}

#[cfg(test)]
#[path = "report_tests.rs"]
mod tests;
