//! `odafs bench simulate`: what one machine cannot show. A model of queues plays thousands of clients, terabytes of cache
//! and links of 25 to 400 Gbit/s, with costs that were measured or published.
//!
//! Nothing here is measured, and every row says so. [`compare`] puts the results of `odafs bench scale` on one machine
//! beside those of the model.

mod model;
mod plan;

use anyhow::{Context as _, Result, ensure};
use serde::Serialize;
use serde_json::Value;

pub use plan::{Plan, Route};

use crate::machine::{Machine, commit};

/// The result, as `odafs bench simulate --json` prints it.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    /// The machine that ran the model. No figure depends on it.
    pub machine: Machine,
    /// The commit that the program was built from.
    pub commit: &'static str,
    /// The name of the bench.
    pub bench: &'static str,
    /// Always true, because nothing was measured.
    pub simulated: bool,
    /// The seed of everything random.
    pub seed: u64,
    /// The sources of the costs.
    pub costs: Vec<Source>,
    /// A row for each combination of a case.
    pub rows: Vec<Row>,
}

/// The source of costs.
#[derive(Clone, Debug, Serialize)]
pub struct Source {
    /// The name of the costs in the rows.
    pub name: String,
    /// Where they were measured or published.
    pub source: String,
}

/// The parameters of a row.
#[derive(Clone, Debug, Serialize)]
pub struct Spec {
    /// The case of the plan.
    pub case: String,
    /// The name of the costs.
    pub costs: String,
    /// The fabric of this project to which the costs belong, if any.
    pub fabric: Option<String>,
    /// How clients read.
    pub route: Route,
    /// Size of a read in bytes.
    pub size_bytes: u64,
    /// The server's link in Gbit/s each way. 0 for no link.
    pub link_gbit: f64,
    /// Number of processors of the server.
    pub cores: u32,
    /// Percent of direct reads that are refused.
    pub stale_percent: f64,
    /// Size of the server's page cache in bytes.
    pub cache_bytes: u64,
    /// Number of clients, each with one read under way.
    pub clients: u32,
}

/// A row.
#[derive(Clone, Debug, Serialize)]
pub struct Row {
    /// The parameters of the row.
    #[serde(flatten)]
    pub spec: Spec,
    /// Always true.
    pub simulated: bool,
    /// Percent of reads for which the client has a reference.
    pub referenced_percent: f64,
    /// Reads per second of all clients.
    pub reads_per_s: f64,
    /// The median read.
    pub p50_ns: u64,
    /// The 99th percentile.
    pub p99_ns: u64,
    /// The part of the server's processors that was busy, 0 to 1.
    pub server_cpu: f64,
    /// The part of the link towards the clients that was in use, 0 to 1.
    pub link_use: f64,
    /// The part of the adapter that was in use, 0 to 1.
    pub adapter_use: f64,
    /// What limits the rate: `server CPU`, `adapter`, `link`, or `clients`, if these wait only for their own reads.
    pub limit: &'static str,
    /// The rate measured on one machine, if [`compare`] has found it.
    pub measured_reads_per_s: Option<f64>,
    /// The rate of the model divided by that.
    pub simulated_to_measured: Option<f64>,
}

/// Runs the model for all rows. It calls `tick` before each.
///
/// # Errors
/// None if the plan was parsed.
pub fn run(plan: &Plan, mut tick: impl FnMut()) -> Result<Report> {
    let machine = Machine::here().unwatched();
    let mut rows = Vec::new();
    for (spec, setting) in plan.rows()? {
        tick();
        let reads = plan.reads + 5 * u64::from(setting.clients);
        let found = setting.simulate(reads, plan.seed);
        let limits = setting.limits().into_iter();
        let limit = limits.min_by(|a, b| a.1.total_cmp(&b.1));
        let direct = spec.route != Route::Rpc;
        rows.push(Row {
            simulated: true,
            referenced_percent: if direct {
                rounded(setting.referenced * 100.0)
            } else {
                0.0
            },
            reads_per_s: found.reads_per_s.round(),
            p50_ns: found.p50_ns,
            p99_ns: found.p99_ns,
            server_cpu: rounded(found.server_cpu),
            link_use: rounded(found.link_use),
            adapter_use: rounded(found.adapter_use),
            limit: limit.map_or("", |(name, _)| name),
            measured_reads_per_s: None,
            simulated_to_measured: None,
            spec,
        });
    }
    let used = |name: &String| rows.iter().any(|row| row.spec.costs == *name);
    Ok(Report {
        machine,
        commit: commit(),
        bench: "simulate",
        simulated: true,
        seed: plan.seed,
        costs: (plan.costs.iter())
            .filter(|(name, _)| used(name))
            .map(|(name, costs)| Source {
                name: name.clone(),
                source: costs.source.clone(),
            })
            .collect(),
        rows,
    })
}

/// Adds the rates that `odafs bench scale --json` has printed to rows without a link, of the same fabric, route and
/// number of clients.
///
/// # Errors
/// It is not such a report, or no row matches it.
pub fn compare(rows: &mut [Row], measured: &Value) -> Result<()> {
    ensure!(
        measured["bench"] == "scale",
        "it is no report of `odafs bench scale`"
    );
    let all = measured["rows"]
        .as_array()
        .context("there are no rows in it")?;
    // Older reports do not name the length, which was a page.
    let size = measured["size_bytes"].as_u64().unwrap_or(4096);
    let mut found = false;
    for row in rows
        .iter_mut()
        .filter(|row| (row.spec.link_gbit, row.spec.size_bytes) == (0.0, size))
    {
        let same = |other: &&Value| {
            other["fabric"].as_str() == row.spec.fabric.as_deref()
                && other["route"] == row.spec.route.name()
                && other["clients"] == row.spec.clients
        };
        let rate = all
            .iter()
            .find(same)
            .and_then(|r| r["reads_per_second"].as_f64());
        let Some(rate) = rate.filter(|rate| *rate > 0.0) else {
            continue;
        };
        row.measured_reads_per_s = Some(rate);
        row.simulated_to_measured = Some(rounded(row.reads_per_s / rate));
        found = true;
    }
    ensure!(found, "no row of the plan is of what it measured");
    Ok(())
}

fn rounded(value: f64) -> f64 {
    (value * 1e3).round() / 1e3
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_say_that_they_are_simulated_and_what_bounds_them() {
        let mut plan = Plan::built_in().unwrap();
        plan.keep(&["stale".to_owned()]);
        plan.reads = 200;
        let mut ticks = 0;
        let report = run(&plan, || ticks += 1).unwrap();
        assert_eq!(ticks, report.rows.len());
        assert!(report.simulated && report.rows.iter().all(|row| row.simulated));
        for row in &report.rows {
            assert!(
                report
                    .costs
                    .iter()
                    .any(|costs| costs.name == row.spec.costs)
            );
            let busy = match row.limit {
                "server CPU" => row.server_cpu,
                "link" => row.link_use,
                "adapter" => row.adapter_use,
                _ => continue,
            };
            assert!(busy > 0.8, "{row:?}");
        }
    }

    #[test]
    fn what_was_measured_stands_beside_the_same_row() {
        let mut plan = Plan::built_in().unwrap();
        plan.keep(&["one machine".to_owned()]);
        plan.reads = 100;
        let mut rows = run(&plan, || ()).unwrap().rows;
        let first = rows[0].spec.clone();
        let measured = |clients: u32| {
            serde_json::json!({"bench": "scale", "rows": [
                {"fabric": first.fabric, "route": "rpc", "clients": clients, "reads_per_second": 2.0 * rows[0].reads_per_s},
            ]})
        };
        let (same, other) = (measured(first.clients), measured(9999));
        assert!(compare(&mut rows.clone(), &other).is_err());
        compare(&mut rows, &same).unwrap();
        assert_eq!(rows[0].simulated_to_measured, Some(0.5));
        assert_eq!(rows[1].measured_reads_per_s, None);
        assert!(compare(&mut rows, &serde_json::json!({"bench": "load"})).is_err());
    }
}
