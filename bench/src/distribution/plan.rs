//! What is measured: a plan in TOML.

use std::time::Duration;

use anyhow::{Result, ensure};
use serde::{Deserialize, Serialize};

use crate::load::Path;

/// The plan that is measured unless another is given.
const BUILT_IN: &str = include_str!("../../plans/distribution.toml");

/// Bytes of a page.
pub const PAGE: u64 = 4096;

/// A plan, as its file has it.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Plan {
    /// The server's page cache, in MiB.
    pub cache_mib: u64,
    /// Lengths of the file, in page caches.
    pub files: Vec<f64>,
    /// Memory of the client for pages and references, in page caches; 0: it keeps no pages.
    pub client_memory: f64,
    /// Bytes of a read.
    pub size: u64,
    /// Which pages are read.
    pub patterns: Vec<Pattern>,
    /// Names of [`Path`]s, of clients alone.
    pub routes: Vec<String>,
    /// How often each row is measured, each time with a new server.
    pub rounds: u32,
    /// How long a new client reads before its reads count, in milliseconds.
    pub settle_ms: u64,
    /// Time for a row in a round, in milliseconds.
    pub slice_ms: u64,
}

/// Which pages are read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Pattern {
    /// Each with the same chance.
    Uniform,
    /// The n-th most wanted with a chance of n to the power of -0.99; these lie anywhere in the file.
    Zipf,
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
        let counts = [plan.cache_mib, plan.rounds.into(), plan.slice_ms];
        ensure!(
            !counts.contains(&0) && !plan.files.is_empty() && !plan.patterns.is_empty(),
            "cache-mib, files, patterns, rounds and slice-ms: must be more than 0"
        );
        let ok = |length: &f64| (0.01..=16.0).contains(length);
        ensure!(
            plan.files.iter().all(ok),
            "files: must be 0.01 to 16, as multiples of the page cache"
        );
        ensure!(
            plan.client_memory == 0.0 || ok(&plan.client_memory),
            "client-memory: must be 0, or 0.01 to 16 as multiples of the page cache"
        );
        ensure!(
            plan.size > 0 && PAGE.is_multiple_of(plan.size),
            "size: must be a power of two, {PAGE} or less"
        );
        ensure!(
            plan.routes.iter().all(|name| client(name).is_some()) && !plan.routes.is_empty(),
            "routes: give `shm` or `tcp` with `one-sided`, `guarded`, `rpc` or `policy`"
        );
        Ok(plan)
    }

    /// The routes, in the order of the plan.
    pub fn paths(&self) -> Vec<Path> {
        self.routes.iter().filter_map(|name| client(name)).collect()
    }

    /// Bytes of the server's page cache.
    pub fn cache_bytes(&self) -> u64 {
        self.cache_mib << 20
    }

    /// Size in bytes of a file that is this multiple of the page cache, in whole pages.
    pub fn file_bytes(&self, caches: f64) -> u64 {
        ((self.cache_bytes() as f64 * caches) as u64 / PAGE).max(1) * PAGE
    }

    /// Bytes of the client's memory.
    pub fn client_bytes(&self) -> u64 {
        (self.cache_bytes() as f64 * self.client_memory) as u64
    }

    /// Keeps the routes over one of these fabrics, and these patterns; all where none is named.
    pub fn keep(&mut self, fabrics: &[String], patterns: &[String]) {
        if !fabrics.is_empty() {
            let routes = ["one-sided", "guarded", "rpc", "policy"];
            let named = |f: &String| routes.map(|route| format!("{f} {route}"));
            self.routes = fabrics.iter().flat_map(named).collect();
        }
        let is = |pattern: &Pattern| format!("{pattern:?}").to_lowercase();
        self.patterns
            .retain(|pattern| patterns.is_empty() || patterns.contains(&is(pattern)));
    }

    /// Reduces rounds and slices, so that the whole run takes approximately this long.
    pub fn fit(&mut self, seconds: Duration) {
        /// What a new server takes, with its file.
        const SERVER_MS: u64 = 250;
        let servers = (self.files.len() * self.patterns.len()).max(1) as u64;
        let rows = self.routes.len().max(1) as u64;
        let all = seconds.as_millis() as u64;
        let round = (SERVER_MS + rows * 15) * servers;
        self.rounds = u64::from(self.rounds).min((all / round).max(1)) as u32;
        let share = (all / u64::from(self.rounds) / servers).saturating_sub(SERVER_MS) / rows;
        self.slice_ms = (share / 3).clamp(2, self.slice_ms.max(2));
        self.settle_ms = (share * 2 / 3).clamp(2, self.settle_ms.max(2));
    }
}

fn client(name: &str) -> Option<Path> {
    Path::named(name).filter(|path| matches!(path, Path::Client(..)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_built_in_plan_is_the_papers_smaller() {
        let plan = Plan::built_in().unwrap();
        assert_eq!((plan.files[0], plan.files.last()), (0.25, Some(&1.15)));
        assert_eq!(plan.patterns, [Pattern::Uniform, Pattern::Zipf]);
        assert_eq!(plan.file_bytes(0.25), 16 << 20);
        assert!((12 << 20..13 << 20).contains(&plan.client_bytes()));
    }

    #[test]
    fn what_is_no_plan_is_told() {
        for (from, to) in [
            ("size = 4096", "size = 8192"),
            ("cache-mib = 64", "cache-mib = 0"),
            ("[0.25,", "[0,"),
            ("\"shm rpc\"", "\"mmap\""),
        ] {
            assert!(BUILT_IN.contains(from));
            assert!(Plan::parse(&BUILT_IN.replace(from, to)).is_err(), "{to}");
        }
    }

    #[test]
    fn what_is_kept() {
        let mut plan = Plan::built_in().unwrap();
        plan.keep(&["tcp".into()], &["zipf".into()]);
        assert_eq!(plan.patterns, [Pattern::Zipf]);
        assert_eq!(plan.paths().len(), 4);
        assert!(plan.routes.iter().all(|name| name.starts_with("tcp ")));
    }

    #[test]
    fn a_plan_fits_its_seconds() {
        for seconds in [10, 30, 60] {
            let mut plan = Plan::built_in().unwrap();
            plan.fit(Duration::from_secs(seconds));
            let rows = plan.routes.len() as u64;
            let each = 250 + rows * (plan.slice_ms + plan.settle_ms);
            let all = each * 18 * u64::from(plan.rounds);
            assert!(all <= seconds * 1000, "{plan:?}");
        }
    }
}
