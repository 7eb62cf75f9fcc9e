//! The plan of a simulation, in TOML.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use serde::{Deserialize, Serialize};

use super::Spec;
use super::model::Setting;

/// The default plan.
const BUILT_IN: &str = include_str!("../../plans/simulate.toml");

/// A plan as in its file.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Plan {
    /// The seed of everything random.
    pub seed: u64,
    /// Number of reads for a row, besides five for each client.
    pub reads: u64,
    /// The part of each processor's time that varies, 0 to 1.
    pub variability: f64,
    /// Memory of a client that a reference takes, in bytes.
    pub reference_bytes: f64,
    /// The cases. Each stands for all combinations of the values in its lists.
    pub cases: Vec<Case>,
    /// Costs by name.
    pub costs: BTreeMap<String, Costs>,
}

/// A case of a plan.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Case {
    /// Name of the case, as in the plan and in its rows.
    pub name: String,
    /// Names of costs.
    pub costs: Vec<String>,
    /// Numbers of clients that read at the same time.
    pub clients: Vec<u32>,
    /// The server's link in Gbit/s each way. 0 for no link.
    pub links_gbit: Vec<f64>,
    /// Sizes of a read, in bytes.
    pub sizes: Vec<u64>,
    /// Numbers of processors of the server.
    pub cores: Vec<u32>,
    /// Percent of direct reads that are refused.
    pub stale_percent: Vec<f64>,
    /// Memory of the server's page cache, in GiB.
    pub cache_gib: Vec<u64>,
    /// The part of the cache that clients read, every page equally often.
    pub working_set: f64,
    /// Memory of a client for references, in GiB.
    pub directory_gib: f64,
    /// One-way latency of the network, in nanoseconds.
    pub one_way_ns: f64,
    /// Whether clients share the server's processors, as on one machine.
    #[serde(default)]
    pub together: bool,
}

/// How clients read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Route {
    /// A call for each read.
    Rpc,
    /// The server checks the reference that a read brings.
    Guarded,
    /// The client checks what it has read.
    OneSided,
}

const ROUTES: [Route; 3] = [Route::Rpc, Route::Guarded, Route::OneSided];

impl Route {
    /// The name in rows.
    pub fn name(self) -> &'static str {
        match self {
            Self::Rpc => "rpc",
            Self::Guarded => "guarded",
            Self::OneSided => "one-sided",
        }
    }
}

/// The costs of the steps.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Costs {
    /// The source of these figures, in words.
    pub source: String,
    /// The fabric of this project to which they belong.
    pub fabric: Option<String>,
    /// The lengths of reads for which there are times, in rising order. Times in between are interpolated.
    pub sizes: Vec<u64>,
    /// The most operations that the adapter has under way at once.
    pub adapter_units: u32,
    /// Size of a request in bytes.
    pub request_bytes: u64,
    /// Size of a reply without its data, in bytes.
    pub reply_bytes: u64,
    /// The most payload of a packet, in bytes.
    pub packet_bytes: u64,
    /// Size of a packet without its payload, in bytes.
    pub header_bytes: u64,
    /// The costs of a call.
    pub rpc: Cost,
    /// The costs of a guarded read.
    pub guarded: Cost,
    /// The costs of a one-sided read.
    pub one_sided: Cost,
}

/// The costs of one route.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Cost {
    /// CPU time of the client for a read of each length.
    pub client_ns: Vec<f64>,
    /// CPU time of the server.
    pub server_ns: Vec<f64>,
    /// Time of one unit of the server's adapter, for a call or for each page of a direct read.
    pub adapter_ns: f64,
}

impl Costs {
    /// The costs of a route.
    pub fn of(&self, route: Route) -> &Cost {
        match route {
            Route::Rpc => &self.rpc,
            Route::Guarded => &self.guarded,
            Route::OneSided => &self.one_sided,
        }
    }

    /// The time of a read of so many bytes, interpolated between the times of each length. A read that is shorter than
    /// the first
    /// length takes as long as that.
    pub fn at(&self, times: &[f64], bytes: u64) -> f64 {
        let known: Vec<(f64, f64)> = (self.sizes.iter().zip(times))
            .map(|(bytes, ns)| (*bytes as f64, *ns))
            .collect();
        let bytes = bytes as f64;
        let after = known.iter().position(|(length, _)| *length >= bytes);
        match (known.as_slice(), after.unwrap_or(known.len())) {
            ([first, ..], 0) => first.1,
            ([only], _) => only.1,
            (known, after) => {
                let after = after.min(known.len() - 1);
                let ((x, y), (to_x, to_y)) = (known[after - 1], known[after]);
                y + (to_y - y) * (bytes - x) / (to_x - x)
            }
        }
    }

    /// Whether the interpolation gives a possible time for a read of so many bytes.
    fn reach(&self, bytes: u64) -> bool {
        ROUTES.iter().all(|route| {
            let cost = self.of(*route);
            (1.0..1e9).contains(&self.at(&cost.client_ns, bytes))
                && (0.0..1e9).contains(&self.at(&cost.server_ns, bytes))
        })
    }

    fn are_possible(&self) -> bool {
        let costs = [&self.rpc, &self.guarded, &self.one_sided];
        let times = |of: fn(&Cost) -> &Vec<f64>, least: f64| {
            let each = costs.iter().map(|cost| of(cost));
            each.clone().all(|times| times.len() == self.sizes.len())
                && each.flatten().all(|ns| (least..1e9).contains(ns))
        };
        !self.sizes.is_empty()
            && self.sizes.is_sorted_by(|a, b| a < b)
            // A read that takes no time at all would never end.
            && times(|cost| &cost.client_ns, 1.0)
            && times(|cost| &cost.server_ns, 0.0)
            && costs.iter().all(|cost| (0.0..1e6).contains(&cost.adapter_ns))
            && (1..=1024).contains(&self.adapter_units)
            && (64..=1 << 24).contains(&self.packet_bytes)
            && self.header_bytes <= 1024
            && self.request_bytes.max(self.reply_bytes) <= 1 << 16
    }
}

impl Plan {
    /// The default plan, which comes with the sources.
    ///
    /// # Errors
    /// None, because a test reads the plan.
    pub fn built_in() -> Result<Self> {
        Self::parse(BUILT_IN)
    }

    /// Reads a plan.
    ///
    /// # Errors
    /// The text is not a valid plan. The error says why.
    pub fn parse(text: &str) -> Result<Self> {
        let plan: Self = toml::from_str(text)?;
        ensure!(
            (100..=1_000_000).contains(&plan.reads),
            "reads: must be 100 to 1,000,000"
        );
        ensure!(
            (0.0..=1.0).contains(&plan.variability) && plan.reference_bytes > 0.0,
            "variability must be 0 to 1, and reference-bytes more than 0"
        );
        for (name, costs) in &plan.costs {
            ensure!(
                costs.are_possible(),
                "costs.{name}: sizes must rise, and client-ns and server-ns must have a time for each of the rising \
                 sizes, client-ns 1 or more, server-ns 0 or more, both below 1e9; adapter-ns must be 0 to 1e6, \
                 adapter-units 1 to 1024, packet-bytes 64 to 16777216, header-bytes up to 1024, request-bytes and \
                 reply-bytes up to 65536"
            );
        }
        for case in &plan.cases {
            case.check(&plan.costs)?;
        }
        let rows: usize = plan.cases.iter().map(Case::len).sum();
        ensure!(
            (1..=MOST_ROWS).contains(&rows),
            "the cases have {rows} rows, but must have 1 to {MOST_ROWS}"
        );
        Ok(plan)
    }

    /// Keeps the named cases, or all if none is named.
    pub fn keep(&mut self, cases: &[String]) {
        self.cases
            .retain(|case| cases.is_empty() || cases.contains(&case.name));
    }

    /// Lowers the number of reads for a row, so that everything takes about this time.
    pub fn fit(&mut self, seconds: Duration) {
        /// The reads that any processor can play in a second. A read takes 0.5 us in a small crowd, and 1.5 us in a large
        /// one.
        const READS_A_SECOND: f64 = 700_000.0;
        let rows = self.rows().map_or(1, |rows| rows.len()).max(1);
        let each = seconds.as_secs_f64() * READS_A_SECOND / rows as f64;
        self.reads = self.reads.min(each as u64).max(100);
    }

    /// The parameters of each row and of its simulation.
    ///
    /// # Errors
    /// Costs are missing. A parsed plan has all of them.
    pub fn rows(&self) -> Result<Vec<(Spec, Setting)>> {
        let mut rows = Vec::new();
        for case in &self.cases {
            for spec in case.specs() {
                let costs = self
                    .costs
                    .get(&spec.costs)
                    .context("there are no such costs")?;
                let setting = self.setting(case, &spec, costs);
                let fabric = costs.fabric.clone();
                rows.push((Spec { fabric, ..spec }, setting));
            }
        }
        Ok(rows)
    }

    fn setting(&self, case: &Case, spec: &Spec, costs: &Costs) -> Setting {
        let pages = spec.cache_bytes as f64 * case.working_set / 4096.0;
        let references = case.directory_gib * GIB as f64 / self.reference_bytes;
        Setting {
            clients: spec.clients,
            cores: spec.cores,
            together: case.together,
            link_gbit: spec.link_gbit,
            one_way_ns: case.one_way_ns,
            size: spec.size_bytes,
            route: spec.route,
            referenced: (references / pages).min(1.0),
            stale: spec.stale_percent / 100.0,
            costs: costs.clone(),
            variability: self.variability,
        }
    }
}

const GIB: u64 = 1 << 30;
/// Rows of a plan.
const MOST_ROWS: usize = 10_000;

impl Case {
    fn check(&self, known: &BTreeMap<String, Costs>) -> Result<()> {
        let name = &self.name;
        ensure!(
            self.len() > 0,
            "{name}: each list must have one value or more, or else the case has no rows"
        );
        let within = |values: &[u32], most| values.iter().all(|n| (1..=most).contains(n));
        ensure!(
            within(&self.clients, 10_000),
            "{name}: clients must be 1 to 10,000"
        );
        ensure!(within(&self.cores, 1024), "{name}: cores must be 1 to 1024");
        ensure!(
            self.sizes.iter().all(|n| (1..=1 << 24).contains(n)),
            "{name}: sizes must be 1 to 16777216"
        );
        let link = |gbit: &f64| *gbit == 0.0 || (1.0..=10_000.0).contains(gbit);
        ensure!(
            self.links_gbit.iter().all(link),
            "{name}: links-gbit must be 1 to 10000, or 0 for no link"
        );
        let percent = |part: &f64| (0.0..=100.0).contains(part);
        ensure!(
            self.stale_percent.iter().all(percent),
            "{name}: stale-percent must be 0 to 100"
        );
        ensure!(
            self.cache_gib.iter().all(|n| (1..1 << 30).contains(n)),
            "{name}: cache-gib must be 1 to 1073741823"
        );
        ensure!(
            self.working_set > 0.0 && self.working_set <= 1.0,
            "{name}: working-set must be more than 0, and 1 or less"
        );
        ensure!(
            self.directory_gib >= 0.0 && (0.0..1e9).contains(&self.one_way_ns),
            "{name}: directory-gib and one-way-ns must be 0 or more, and one-way-ns below 1e9"
        );
        for of in &self.costs {
            let costs = known
                .get(of)
                .with_context(|| format!("{name}: there are no costs.{of}"))?;
            for bytes in &self.sizes {
                ensure!(
                    costs.reach(*bytes),
                    "{name}: a read of {bytes} bytes is too far from the sizes of costs.{of}"
                );
            }
        }
        Ok(())
    }

    /// The number of rows.
    fn len(&self) -> usize {
        let lists = [
            self.costs.len(),
            self.sizes.len(),
            self.links_gbit.len(),
            self.cores.len(),
            self.stale_percent.len(),
            self.cache_gib.len(),
            self.clients.len(),
        ];
        lists.into_iter().fold(ROUTES.len(), usize::saturating_mul)
    }

    /// All combinations. The last list varies fastest.
    fn specs(&self) -> Vec<Spec> {
        let first = Spec {
            case: self.name.clone(),
            costs: String::new(),
            fabric: None,
            route: Route::Rpc,
            size_bytes: 0,
            link_gbit: 0.0,
            cores: 0,
            stale_percent: 0.0,
            cache_bytes: 0,
            clients: 0,
        };
        let all = each(vec![first], &self.costs, |spec, name| spec.costs = name);
        let all = each(all, &self.sizes, |spec, bytes| spec.size_bytes = bytes);
        let all = each(all, &ROUTES, |spec, route| spec.route = route);
        let all = each(all, &self.links_gbit, |spec, gbit| spec.link_gbit = gbit);
        let all = each(all, &self.cores, |spec, cores| spec.cores = cores);
        let all = each(all, &self.stale_percent, |spec, part| {
            spec.stale_percent = part
        });
        let all = each(all, &self.cache_gib, |spec, gib| {
            spec.cache_bytes = gib * GIB
        });
        each(all, &self.clients, |spec, clients| spec.clients = clients)
    }
}

/// Each of these combined with each value.
fn each<T: Clone>(specs: Vec<Spec>, values: &[T], set: impl Fn(&mut Spec, T)) -> Vec<Spec> {
    let with = |spec: &Spec, value: &T| {
        let mut spec = spec.clone();
        set(&mut spec, value.clone());
        spec
    };
    (specs.iter())
        .flat_map(|spec| values.iter().map(move |value| (spec, value)))
        .map(|(spec, value)| with(spec, value))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_built_in_plan_has_what_is_asked_for() {
        let plan = Plan::built_in().unwrap();
        let rows = plan.rows().unwrap();
        let has = |what: &dyn Fn(&Spec) -> bool| rows.iter().any(|(spec, _)| what(spec));
        for gbit in [25.0, 100.0, 400.0] {
            assert!(has(&|spec| spec.link_gbit == gbit && spec.clients >= 1000));
        }
        for size in [4096, 65_536, 1 << 20] {
            for costs in ["measured", "published"] {
                let like = |spec: &Spec| (spec.size_bytes, spec.costs.as_str()) == (size, costs);
                assert!(has(&|spec| like(spec) && spec.clients == 10_000));
            }
        }
        assert!(has(&|spec| spec.cache_bytes > 4 << 40));
        assert!(plan.costs.values().all(|costs| !costs.source.is_empty()));
    }

    #[test]
    fn times_between_lengths_lie_on_a_line() {
        let costs = &Plan::built_in().unwrap().costs["published"];
        let costs = Costs {
            sizes: vec![100, 200, 400],
            ..costs.clone()
        };
        let at = |bytes| costs.at(&[10.0, 30.0, 50.0], bytes);
        assert_eq!(
            [50, 100, 150, 200, 300, 500].map(at),
            [10.0, 10.0, 20.0, 30.0, 40.0, 60.0]
        );
        let one = Costs {
            sizes: vec![100],
            ..costs
        };
        assert_eq!([50, 100, 900].map(|bytes| one.at(&[7.0], bytes)), [7.0; 3]);
    }

    #[test]
    fn a_directory_that_is_too_small_leaves_calls() {
        let plan = Plan::built_in().unwrap();
        for (spec, setting) in plan.rows().unwrap() {
            let case = plan
                .cases
                .iter()
                .find(|case| case.name == spec.case)
                .unwrap();
            let needed = spec.cache_bytes as f64 * case.working_set / 4096.0 * 24.25;
            let expected = (case.directory_gib * GIB as f64 / needed).min(1.0);
            assert!((setting.referenced - expected).abs() < 1e-6, "{spec:?}");
        }
    }

    #[test]
    fn what_is_no_plan_is_told() {
        for (from, to, told) in [
            ("variability = 0.", "variability = 5.", "variability"),
            ("reads = ", "reads = 99 # ", "100 to 1,000,000"),
            ("\"published\"", "\"guessed\"", "no costs.guessed"),
            ("adapter-units = ", "adapter-units = 0 # ", "adapter-units"),
            ("client-ns = [", "client-ns = [-", "client-ns"),
            ("server-ns = [", "server-ns = [1, ", "rising sizes"),
            ("working-set = 0.", "working-set = 2.", "working-set"),
            ("working-set = 0.5", "working-set = nan", "working-set"),
            ("clients = [1,", "clients = [0,", "clients must be"),
            ("clients = [1,", "clients = [] # ", "no rows"),
            ("links-gbit = [100]", "links-gbit = [0.01]", "links-gbit"),
            (
                "stale-percent = [1]",
                "stale-percent = [101]",
                "stale-percent",
            ),
            ("sizes = [4096, 65536, 1", "sizes = [0, 1", "sizes must be"),
            ("seed = 1", "sed = 1", "sed"),
        ] {
            assert!(BUILT_IN.contains(from), "{from}");
            let error = Plan::parse(&BUILT_IN.replacen(from, to, 1)).unwrap_err();
            assert!(error.to_string().contains(told), "{to}: {error}");
        }
    }

    #[test]
    fn a_plan_without_end_is_refused() {
        let many = (1..=4000).map(|n| n.to_string()).collect::<Vec<_>>();
        let many = format!("clients = [{}] # ", many.join(", "));
        let error = Plan::parse(&BUILT_IN.replacen("clients = [1,", &many, 1)).unwrap_err();
        assert!(
            error.to_string().contains("must have 1 to 10000"),
            "{error}"
        );
        let long = BUILT_IN.replacen("370000]", "900000000]", 1);
        let long = long.replacen("1048576]", "16777216]", 1);
        let error = Plan::parse(&long).unwrap_err();
        assert!(error.to_string().contains("too far"), "{error}");
    }

    #[test]
    fn what_is_kept_and_fits() {
        let mut plan = Plan::built_in().unwrap();
        plan.keep(&["stale".to_owned()]);
        assert_eq!(plan.cases.len(), 1);
        plan.fit(Duration::from_millis(1));
        assert_eq!(plan.reads, 100);
    }
}
