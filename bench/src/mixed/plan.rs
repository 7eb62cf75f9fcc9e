//! What is measured: a plan in TOML.

use std::time::Duration;

use anyhow::{Result, bail, ensure};
use odafs::Route;
use serde::Deserialize;

use crate::load::Path;
use crate::served::Way;

/// The plan that is measured unless another is given.
const BUILT_IN: &str = include_str!("../../plans/mixed.toml");

/// A plan, as its file has it.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Plan {
    /// Number of clients, which all run at the same time.
    pub clients: usize,
    /// Percent of them that read directly.
    pub direct: Vec<u32>,
    /// Names of the routes of the clients that read directly.
    pub routes: Vec<String>,
    /// Percentage of each client's operations that are writes.
    pub writes: u64,
    /// The file, in MiB.
    pub file_mib: u64,
    /// How often each row is measured.
    pub rounds: u32,
    /// Time for a row in a round, in milliseconds.
    pub slice_ms: u64,
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
        let counts = [plan.file_mib, plan.rounds.into(), plan.slice_ms];
        ensure!(
            !counts.contains(&0) && !plan.direct.is_empty(),
            "file-mib, rounds, slice-ms and direct: must be more than 0"
        );
        ensure!(
            (1..=256).contains(&plan.clients),
            "clients: must be 1 to 256"
        );
        ensure!(
            plan.writes <= 100 && plan.direct.iter().all(|percent| *percent <= 100),
            "writes and direct: must be 100 (percent) or less"
        );
        plan.ways()?;
        Ok(plan)
    }

    /// The ways and routes of the clients that read directly.
    ///
    /// # Errors
    /// None, of a plan that was parsed.
    pub fn ways(&self) -> Result<Vec<(Way, Route)>> {
        let way = |name: &String| match Path::named(name) {
            Some(Path::Client(way, route)) if route != Route::Rpc => Ok((way, route)),
            _ => bail!(
                "{name:?} is no direct route; give `shm` or `tcp` with `one-sided`, `guarded` or `policy`"
            ),
        };
        self.routes.iter().map(way).collect()
    }

    /// Number of clients that read directly, if that is this percentage.
    pub fn direct_clients(&self, percent: u32) -> usize {
        (self.clients * percent as usize + 50) / 100
    }

    /// Keeps the routes over one of these fabrics.
    pub fn keep(&mut self, fabrics: &[String]) {
        let over = |name: &String| fabrics.iter().any(|f| name.split(' ').next() == Some(f));
        self.routes.retain(|name| fabrics.is_empty() || over(name));
    }

    /// Reduces rounds and slices, so that the whole run takes approximately this long.
    pub fn fit(&mut self, seconds: Duration) {
        const LEAST_MS: u64 = 20;
        let rows = (self.routes.len() * self.direct.len()).max(1) as u64;
        // A fifth is for the server and its clients.
        let all = seconds.as_millis() as u64 * 4 / 5;
        self.rounds = u64::from(self.rounds).min((all / rows / LEAST_MS).max(1)) as u32;
        let slice = all / rows / u64::from(self.rounds);
        self.slice_ms = slice.clamp(5, self.slice_ms.max(5));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_built_in_plan_has_what_is_asked_for() {
        let plan = Plan::built_in().unwrap();
        let direct = |percent: &u32| plan.direct_clients(*percent);
        let counts: Vec<usize> = plan.direct.iter().map(direct).collect();
        assert_eq!((counts, plan.writes), (vec![0, 2, 4, 6, 8], 10));
        assert_eq!(plan.ways().unwrap().len(), plan.routes.len());
    }

    #[test]
    fn what_is_no_plan_is_told() {
        for (from, to) in [
            ("clients = 8", "clients = 0"),
            ("writes = 10", "writes = 101"),
            ("\"tcp guarded\"", "\"tcp rpc\""),
        ] {
            assert!(BUILT_IN.contains(from));
            assert!(Plan::parse(&BUILT_IN.replace(from, to)).is_err(), "{to}");
        }
    }

    #[test]
    fn a_plan_fits_its_seconds() {
        for seconds in [1, 10, 60] {
            let mut plan = Plan::built_in().unwrap();
            plan.fit(Duration::from_secs(seconds));
            let all = plan.slice_ms * 15 * u64::from(plan.rounds);
            assert!(all <= seconds * 1000, "{plan:?}");
        }
    }
}
