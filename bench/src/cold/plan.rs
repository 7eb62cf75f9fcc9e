//! What is measured: a plan in TOML.

use std::time::Duration;

use anyhow::{Result, bail, ensure};
use serde::{Deserialize, Serialize};

use crate::served::Way;

/// The plan that is measured unless another is given.
const BUILT_IN: &str = include_str!("../../plans/cold.toml");

/// Bytes of a page, and of a read in random order.
pub const PAGE: u64 = 4096;

/// Fewer pages a server's cache cannot have.
const CACHE_LEAST: u64 = 64 * PAGE;

/// A plan, as its file has it.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Plan {
    /// The file, in MiB.
    pub file_mib: u64,
    /// The server's page cache, in files.
    pub caches: Vec<f64>,
    /// Part of the file's pages that a pass in random order reads; 0: there is none.
    pub random: f64,
    /// Bytes of the reads of a pass through the file.
    pub records: Vec<u64>,
    /// Names of [`Caller`]s.
    pub routes: Vec<String>,
    /// How often each row is measured.
    pub rounds: u32,
}

/// Who reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Caller {
    /// System calls on the file that is served.
    Pread,
    /// A client with default options.
    Default(Way),
    /// A client that makes calls and keeps nothing.
    Rpc(Way),
}

impl Caller {
    fn named(name: &str) -> Option<Self> {
        let ways = [Way::Shm, Way::Iwarp, Way::NfsTcp];
        let all = ways
            .into_iter()
            .flat_map(|way| [Self::Default(way), Self::Rpc(way)]);
        [Self::Pread]
            .into_iter()
            .chain(all)
            .find(|caller| name.split_once(' ') == Some(caller.names()))
    }

    /// The fabric and the route of a row.
    pub fn names(self) -> (&'static str, &'static str) {
        match self {
            Self::Pread => ("local", "pread"),
            Self::Default(way) => (way.name(), "default"),
            Self::Rpc(way) => (way.name(), "rpc"),
        }
    }
}

/// In which order a pass reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Pattern {
    /// Some pages of the file, each once.
    Random,
    /// The whole file, from front to back.
    Sequential,
}

impl Pattern {
    /// Its name in rows.
    pub fn name(self) -> &'static str {
        match self {
            Self::Random => "random",
            Self::Sequential => "sequential",
        }
    }
}

impl Plan {
    /// The plan that comes with the sources.
    ///
    /// # Errors
    /// None: a test reads it.
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
            (1..=1024).contains(&plan.file_mib),
            "file-mib: must be 1 to 1024"
        );
        ensure!(plan.rounds > 0, "rounds: must be more than 0");
        ensure!(
            !plan.caches.is_empty() && plan.caches.iter().all(|c| (0.001..=4.0).contains(c)),
            "caches: must be 0.001 to 4, as parts of the file"
        );
        ensure!(
            (0.0..=1.0).contains(&plan.random),
            "random: must be 0 to 1, as a part of the file's pages"
        );
        let fits = |bytes: &u64| (512..=1 << 20).contains(bytes) && bytes.is_power_of_two();
        ensure!(
            plan.records.iter().all(fits),
            "records: must be powers of two from 512 to 1048576"
        );
        ensure!(
            plan.random > 0.0 || !plan.records.is_empty(),
            "random and records: one of them must ask for reads"
        );
        plan.callers()?;
        Ok(plan)
    }

    /// Who reads, in the order of the plan.
    ///
    /// # Errors
    /// None, of a plan that was parsed.
    pub fn callers(&self) -> Result<Vec<Caller>> {
        let caller = |name: &String| match Caller::named(name) {
            Some(caller) => Ok(caller),
            None => bail!(
                "{name:?} is no route; give `local pread`, or `shm`, `tcp` or `nfs` with `default` or `rpc`"
            ),
        };
        self.routes.iter().map(caller).collect()
    }

    /// The orders of reads, and bytes of a read.
    pub fn patterns(&self) -> Vec<(Pattern, u64)> {
        let random = (self.random > 0.0).then_some((Pattern::Random, PAGE));
        let records = self.records.iter();
        let sequential = records.map(|bytes| (Pattern::Sequential, *bytes));
        random.into_iter().chain(sequential).collect()
    }

    /// Bytes of the file.
    pub fn file_bytes(&self) -> u64 {
        self.file_mib << 20
    }

    /// Size in bytes of a page cache that is this multiple of the file.
    pub fn cache_bytes(&self, files: f64) -> u64 {
        (((self.file_bytes() as f64 * files) as u64) & !(PAGE - 1)).max(CACHE_LEAST)
    }

    /// Pages that a pass in random order reads.
    pub fn random_reads(&self) -> u64 {
        ((self.file_bytes() / PAGE) as f64 * self.random).ceil() as u64
    }

    /// How often a round drops the file from memory and reads it twice.
    pub fn runs(&self) -> usize {
        self.caches.len() * self.patterns().len() * self.routes.len()
    }

    /// Keeps the local route and those over one of these fabrics.
    pub fn keep(&mut self, fabrics: &[String]) {
        let fabric = |name: &str| name.split(' ').next().map(str::to_owned);
        self.routes.retain(|name| {
            let fabric = fabric(name);
            fabrics.is_empty() || fabric.is_some_and(|f| f == "local" || fabrics.contains(&f))
        });
    }

    /// Shortens the file, then reduces rounds, so that the whole run takes approximately this long.
    pub fn fit(&mut self, seconds: Duration) {
        let fits = |plan: &Self| plan.estimate() <= seconds;
        while self.file_mib > 16 && !fits(self) {
            self.file_mib /= 2;
        }
        while self.rounds > 1 && !fits(self) {
            self.rounds -= 1;
        }
        while self.file_mib > 1 && !fits(self) {
            self.file_mib /= 2;
        }
    }

    /// What all of it takes on a machine whose disk gives 4 KiB in 100 us, and 300 MiB/s.
    fn estimate(&self) -> Duration {
        const SERVER: Duration = Duration::from_millis(150);
        let (random, mut reading) = (self.random_reads(), Duration::ZERO);
        for (pattern, _) in self.patterns() {
            reading += match pattern {
                Pattern::Random => Duration::from_micros(100 * random),
                Pattern::Sequential => Duration::from_millis(self.file_mib * 1000 / 300),
            };
        }
        let servers = SERVER * self.runs() as u32;
        // Half of the second passes are from memory.
        let passes = reading * (self.caches.len() * self.routes.len()) as u32 * 3 / 2;
        (servers + passes) * self.rounds
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_built_in_plan_has_what_is_asked_for() {
        let plan = Plan::built_in().unwrap();
        let callers = plan.callers().unwrap();
        assert_eq!(callers[..2], [Caller::Pread, Caller::Default(Way::Shm)]);
        let patterns = plan.patterns();
        assert_eq!(patterns[0], (Pattern::Random, 4096));
        assert_eq!(patterns.len(), 4);
        let pages = plan.file_bytes() / PAGE;
        assert_eq!(plan.random_reads(), pages / 2);
        assert!(plan.cache_bytes(plan.caches[0]) > plan.file_bytes());
        // What a random pass reads does not fit either.
        assert!(plan.cache_bytes(plan.caches[1]) < plan.random_reads() * PAGE);
    }

    #[test]
    fn what_is_no_plan_is_told() {
        for (from, to) in [
            ("file-mib = 64 ", "file-mib = 0 "),
            ("[2.0, 0.125]", "[]"),
            ("random = 0.5", "random = 1.5"),
            ("[4096,", "[5000,"),
            ("\"local pread\"", "\"local mmap\""),
            ("\"nfs default\"", "\"nfs one-sided\""),
            ("rounds = 3", "rounds = 0"),
        ] {
            assert!(BUILT_IN.contains(from), "{from}");
            assert!(Plan::parse(&BUILT_IN.replace(from, to)).is_err(), "{to}");
        }
    }

    #[test]
    fn a_plan_fits_its_seconds_and_keeps_its_peer() {
        for seconds in [10, 30, 60] {
            let mut plan = Plan::built_in().unwrap();
            plan.fit(Duration::from_secs(seconds));
            assert!(plan.estimate() <= Duration::from_secs(seconds), "{plan:?}");
            assert!(plan.file_mib >= 1 && plan.rounds >= 1);
        }
        let mut plan = Plan::built_in().unwrap();
        plan.keep(&["tcp".to_owned()]);
        assert_eq!(plan.routes, ["local pread", "tcp default", "tcp rpc"]);
    }
}
