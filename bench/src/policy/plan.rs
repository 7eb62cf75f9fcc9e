//! What is measured: a plan in TOML, and the cases that it stands for.

use anyhow::{Result, bail};
use odafs::Options;
use serde::{Deserialize, Serialize};

/// The plan that is measured unless another is given.
const BUILT_IN: &str = include_str!("../../plans/policy.toml");

const MIB: u64 = 1 << 20;

/// A plan, as its file has it.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Plan {
    /// The file, in MiB.
    pub file_mib: u64,
    /// The server's page cache, in MiB.
    pub cache_mib: u64,
    /// Slices of each configuration.
    pub rounds: u32,
    /// Length of a slice in milliseconds.
    pub slice_ms: u64,
    /// Number of first reads of a new client, which are counted separately.
    pub cold_reads: u64,
    /// Maximum time for a client to touch its working set, in milliseconds.
    pub warm_up_ms: u64,
    /// How long it reads then before its slices count.
    #[serde(default)]
    pub settle_ms: u64,
    /// Lists of cases.
    pub cases: Vec<Group>,
}

/// Cases: all combinations of what the lists hold.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Group {
    name: String,
    fabrics: Vec<Over>,
    modes: Vec<Mode>,
    patterns: Vec<Pattern>,
    sizes: Vec<usize>,
    /// Sizes of the working set, in units of the client's memory.
    working_sets: Vec<f64>,
    /// The client's memory, if it is not the default.
    #[serde(default)]
    memory_mib: Vec<u64>,
    #[serde(default)]
    loads: Vec<u32>,
    /// What others do in the middle third of the slices, and only there. Without any they read all along.
    #[serde(default)]
    shifts: Vec<Shift>,
    #[serde(default)]
    clients: Vec<u32>,
    /// What is compared with the default is how long clients spin, not their routes.
    #[serde(default)]
    spins_us: Vec<u64>,
}

/// The fabric between client and server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Over {
    /// Shared memory.
    Shm,
    /// RDMA over TCP.
    #[serde(rename = "tcp")]
    Iwarp,
}

/// The direct reads that the server grants.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Mode {
    /// One-sided and guarded ones.
    OneSided,
    /// Guarded ones.
    Guarded,
    /// Those that it grants by default.
    Default,
}

/// What other clients do for a while.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Shift {
    /// They read the same file.
    Reads,
    /// They write what the client reads.
    Writes,
    /// They read another file, which takes memory from the client's at a server that has little.
    Memory,
}

/// The order in which pages are read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Pattern {
    /// Each page with the same probability.
    Uniform,
    /// The page that is n-th by popularity with a probability proportional to n to the power of -0.99. Popular pages
    /// lie anywhere in the file.
    Zipf,
    /// One after the other, over and over.
    Sequential,
}

/// A case in which configurations are compared.
#[derive(Clone, Debug, Serialize)]
pub struct Case {
    /// Its list's name.
    pub case: String,
    /// The fabric.
    pub fabric: Over,
    /// The direct reads that the server grants.
    pub served: Mode,
    /// The order of reads.
    pub pattern: Pattern,
    /// Bytes of a read.
    pub size_bytes: usize,
    /// The client's memory for pages and references.
    pub memory_bytes: u64,
    /// Bytes of the file that are read.
    pub working_set_bytes: u64,
    /// Percent of the server's processor that others keep busy.
    pub load: u32,
    /// What they do, if they do it for a while only.
    pub shift: Option<Shift>,
    /// Clients that read at once.
    pub clients: u32,
    /// How long clients spin, where that is what is compared.
    #[serde(skip)]
    pub spins_us: Vec<u64>,
}

/// Which cases are measured; an empty list leaves all.
#[derive(Clone, Debug, Default)]
pub struct Filter {
    /// By fabric.
    pub fabrics: Vec<String>,
    /// By the direct reads that the server grants.
    pub modes: Vec<String>,
    /// By pattern.
    pub patterns: Vec<String>,
    /// By bytes of a read.
    pub sizes: Vec<u64>,
    /// By load of the server.
    pub loads: Vec<u32>,
    /// By clients that read at once.
    pub clients: Vec<u32>,
    /// By name.
    pub cases: Vec<String>,
}

impl Plan {
    /// The plan that comes with the program.
    ///
    /// # Errors
    /// None, as a test reads it.
    pub fn built_in() -> Result<Self> {
        Self::parse(BUILT_IN)
    }

    /// Reads a plan.
    ///
    /// # Errors
    /// The text is not a valid plan. The error says why.
    pub fn parse(text: &str) -> Result<Self> {
        let plan: Self = toml::from_str(text)?;
        if plan.file_mib == 0 || plan.rounds == 0 || plan.slice_ms == 0 {
            bail!("file-mib, rounds and slice-ms: must be more than 0");
        }
        let wrong = |case: &Case| {
            case.size_bytes == 0
                || case.size_bytes > READ_MAX
                || case.working_set_bytes < case.stride()
                || case.clients == 0
                || case.load > 90
                || (case.shift.is_some() && case.load == 0)
        };
        match plan.all().into_iter().find(wrong) {
            Some(case) => bail!(
                "{}: size must be 1 to {READ_MAX} bytes; the working set a page and a size or more; clients 1 or more; load 90 \
                 (percent) or less, and more than 0 with a shift",
                case.case
            ),
            None => Ok(plan),
        }
    }

    /// The cases that the filter leaves. Those of one server follow each other.
    pub fn cases(&self, filter: &Filter) -> Vec<Case> {
        let mut cases = self.all();
        cases.retain(|case| filter.wants(case));
        cases.sort_by_key(|case| (case.served as u8, !case.is_bound(), case.server_memory()));
        cases
    }

    fn all(&self) -> Vec<Case> {
        self.cases.iter().flat_map(|g| g.cases(self)).collect()
    }
}

/// Bytes of a page. Shorter reads lie within one page.
pub const PAGE: usize = 4096;

/// Bytes of the longest read.
const READ_MAX: usize = 1 << 20;

impl Group {
    fn cases(&self, plan: &Plan) -> Vec<Case> {
        fn or<T: Clone>(list: &[T], other: T) -> Vec<T> {
            match list.is_empty() {
                true => vec![other],
                false => list.to_vec(),
            }
        }
        let memories = self.memory_mib.iter().map(|mib| mib * MIB);
        let memories = or(
            &memories.collect::<Vec<_>>(),
            Options::default().memory_bytes,
        );
        let mut cases = Vec::new();
        for fabric in &self.fabrics {
            for served in &self.modes {
                for pattern in &self.patterns {
                    for size_bytes in &self.sizes {
                        for memory_bytes in &memories {
                            for share in &self.working_sets {
                                for load in or(&self.loads, 0) {
                                    for shift in self.shifts() {
                                        for clients in or(&self.clients, 1) {
                                            let bytes = (*memory_bytes as f64 * share) as u64;
                                            let mut case = Case {
                                                case: self.name.clone(),
                                                fabric: *fabric,
                                                served: *served,
                                                pattern: *pattern,
                                                size_bytes: *size_bytes,
                                                memory_bytes: *memory_bytes,
                                                working_set_bytes: bytes.min(plan.file_mib * MIB),
                                                load,
                                                shift,
                                                clients,
                                                spins_us: self.spins_us.clone(),
                                            };
                                            case.working_set_bytes -=
                                                case.working_set_bytes % case.stride();
                                            cases.push(case);
                                        }
                                    }
                                }
                            }
                        }
                    }
                }
            }
        }
        cases
    }

    fn shifts(&self) -> Vec<Option<Shift>> {
        match self.shifts.is_empty() {
            true => vec![None],
            false => self.shifts.iter().copied().map(Some).collect(),
        }
    }
}

impl Case {
    /// Reads begin at a multiple of this many bytes, and the working set consists of such units: a page, or the length
    /// of longer reads.
    pub fn stride(&self) -> u64 {
        self.size_bytes.max(PAGE) as u64
    }

    /// Whether client and server have a processor each. They have, unless the case measures what sharing them costs.
    pub fn is_bound(&self) -> bool {
        self.spins_us.is_empty()
    }

    /// Whether both cases can use the same server.
    pub fn shares_server(&self, other: &Self) -> bool {
        let kind = |case: &Self| (case.served, case.is_bound(), case.server_memory());
        kind(self) == kind(other)
    }

    /// Bytes of the server's page cache, if the plan's size does not apply.
    pub fn server_memory(&self) -> Option<u64> {
        let is_short = self.shift == Some(Shift::Memory);
        is_short.then_some(self.working_set_bytes + self.working_set_bytes / 4)
    }

    /// One line that tells it from all others.
    pub fn label(&self) -> String {
        let mut label = format!(
            "{}: {} {}, {} of {}, {} of {} of memory",
            self.case,
            word(&self.fabric),
            word(&self.served),
            word(&self.pattern),
            crate::table::bytes(self.size_bytes as u64),
            crate::table::bytes(self.working_set_bytes),
            crate::table::bytes(self.memory_bytes),
        );
        if self.load > 0 {
            label += &format!(", {} % load", self.load);
        }
        if let Some(shift) = &self.shift {
            label += &format!(" by {} for a while", word(shift));
        }
        if self.clients > 1 {
            label += &format!(", {} clients", self.clients);
        }
        label
    }
}

impl Filter {
    fn wants(&self, case: &Case) -> bool {
        fn among<T: PartialEq>(list: &[T], value: T) -> bool {
            list.is_empty() || list.contains(&value)
        }
        among(&self.fabrics, word(&case.fabric))
            && among(&self.modes, word(&case.served))
            && among(&self.patterns, word(&case.pattern))
            && among(&self.sizes, case.size_bytes as u64)
            && among(&self.loads, case.load)
            && among(&self.clients, case.clients)
            && among(&self.cases, case.case.clone())
    }
}

/// The word for a value, as plans and rows have it.
pub fn word(value: &impl Serialize) -> String {
    match serde_json::to_value(value) {
        Ok(serde_json::Value::String(word)) => word,
        _ => String::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_built_in_plan_has_each_case_that_is_asked_for() {
        let plan = Plan::built_in().unwrap();
        let cases = plan.cases(&Filter::default());
        for fabric in [Over::Shm, Over::Iwarp] {
            for served in [Mode::OneSided, Mode::Guarded] {
                let of = |c: &&Case| (c.fabric, c.served) == (fabric, served);
                let here: Vec<&Case> = cases.iter().filter(of).collect();
                for pattern in [Pattern::Uniform, Pattern::Zipf, Pattern::Sequential] {
                    for (of, memory) in [(1, 2), (1, 1), (4, 1)] {
                        let is = |c: &&&Case| {
                            c.pattern == pattern
                                && c.working_set_bytes * memory == c.memory_bytes * of
                                && (c.size_bytes, c.load, c.clients) == (4096, 0, 1)
                        };
                        assert!(here.iter().any(|c| is(&c)), "{pattern:?} {of}/{memory}");
                    }
                }
                assert!(here.iter().any(|c| c.size_bytes == 64));
                assert!(here.iter().any(|c| c.load > 0));
                for clients in [1, 8, 64] {
                    let is = |c: &&&Case| c.clients == clients && c.spins_us == [0, 5, 50];
                    assert!(here.iter().any(|c| is(&c)));
                }
            }
        }
        let labels: std::collections::HashSet<String> = cases.iter().map(Case::label).collect();
        assert!(labels.len() == cases.len(), "labels tell cases apart");
    }

    #[test]
    fn a_filter_narrows_and_a_wrong_plan_is_refused() {
        let plan = Plan::built_in().unwrap();
        let filter = Filter {
            fabrics: vec!["tcp".into()],
            modes: vec!["guarded".into()],
            patterns: vec!["zipf".into()],
            loads: vec![0],
            ..Filter::default()
        };
        let cases = plan.cases(&filter);
        assert!(!cases.is_empty());
        let is = |c: &Case| {
            (c.fabric, c.served, c.pattern) == (Over::Iwarp, Mode::Guarded, Pattern::Zipf)
        };
        assert!(cases.iter().all(is));
        let text = BUILT_IN.replace("sizes = [64]", "sizes = [1048577]");
        assert!(Plan::parse(&text).is_err());
        assert!(Plan::parse("rounds = 1").is_err());
    }
}
