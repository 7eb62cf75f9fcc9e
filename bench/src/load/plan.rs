//! What is measured: a plan in TOML.

use anyhow::{Result, bail, ensure};
use serde::Deserialize;

use crate::served::Way;

/// The plan that is measured unless another is given.
const BUILT_IN: &str = include_str!("../../plans/load.toml");

/// A plan, as its file has it.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Plan {
    /// The file, in MiB.
    pub file_mib: u64,
    /// Bytes of a read.
    pub size: usize,
    /// Percent of the server's processor that others take.
    pub loads: Vec<u32>,
    /// How many processes take it.
    pub others: u32,
    /// How often each row is measured.
    pub rounds: u32,
    /// Time for a row in a round, in milliseconds.
    pub slice_ms: u64,
    /// Milliseconds to wait after the load has changed, before anything is measured.
    pub settle_ms: u64,
    /// Names of [`Path`]s.
    pub routes: Vec<String>,
}

/// How a read gets to its bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Path {
    /// A copy out of the mapped file, without a server.
    Mapped,
    /// A READ of NFS version 3 over TCP, by a minimal caller that polls.
    NfsTcp,
    /// A client of the server, by this way and route.
    Client(Way, odafs::Route),
}

impl Path {
    /// The path of this name: `mmap`, `nfs rpc`, or `shm` or `tcp` with a route.
    pub fn named(name: &str) -> Option<Self> {
        let (way, route) = match name {
            "mmap" => return Some(Self::Mapped),
            "nfs rpc" => return Some(Self::NfsTcp),
            _ => name.split_once(' ')?,
        };
        let way = [Way::Shm, Way::Iwarp]
            .into_iter()
            .find(|w| w.name() == way)?;
        let route = match route {
            "one-sided" => odafs::Route::OneSided,
            "guarded" => odafs::Route::Guarded,
            "rpc" => odafs::Route::Rpc,
            "policy" => odafs::Route::Policy,
            _ => return None,
        };
        Some(Self::Client(way, route))
    }

    /// The fabric and the route of a row.
    pub fn names(self) -> (&'static str, &'static str) {
        match self {
            Self::Mapped => ("local", "mmap"),
            Self::NfsTcp => ("nfs", "rpc"),
            Self::Client(way, odafs::Route::OneSided) => (way.name(), "one-sided"),
            Self::Client(way, odafs::Route::Guarded) => (way.name(), "guarded"),
            Self::Client(way, odafs::Route::Rpc) => (way.name(), "rpc"),
            Self::Client(way, odafs::Route::Policy) => (way.name(), "policy"),
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
        let counts = [plan.file_mib, plan.rounds.into(), plan.slice_ms];
        ensure!(
            !counts.contains(&0) && !plan.loads.is_empty(),
            "file-mib, rounds, slice-ms and loads: must be more than 0"
        );
        ensure!(
            plan.size > 0 && 4096 % plan.size == 0,
            "size: must be a power of two, 4096 or less"
        );
        ensure!(
            plan.loads.iter().all(|load| *load <= 100),
            "loads: must be 100 (percent) or less"
        );
        ensure!(
            (1..=16).contains(&plan.others),
            "others: must be 1 to 16 processes"
        );
        plan.paths()?;
        Ok(plan)
    }

    /// The routes, in the order of the plan.
    ///
    /// # Errors
    /// None, of a plan that was parsed.
    pub fn paths(&self) -> Result<Vec<Path>> {
        let path = |name: &String| match Path::named(name) {
            Some(path) => Ok(path),
            None => bail!(
                "{name:?} is no route; give `mmap`, `nfs rpc`, or `shm` or `tcp` with `one-sided`, `guarded`, `rpc` or \
                 `policy`"
            ),
        };
        self.routes.iter().map(path).collect()
    }

    /// Keeps the routes over one of these fabrics, and these loads with the idle one; all where none is named.
    pub fn keep(&mut self, fabrics: &[String], loads: &[u32]) {
        let over = |name: &String| fabrics.iter().any(|f| name.split(' ').next() == Some(f));
        self.routes
            .retain(|name| fabrics.is_empty() || name == "mmap" || over(name));
        self.loads
            .retain(|load| loads.is_empty() || *load == 0 || loads.contains(load));
        for load in loads {
            if !self.loads.contains(load) {
                self.loads.push(*load);
            }
        }
    }

    /// Shortens slices, then reduces rounds, so that the whole run takes approximately this long.
    pub fn fit(&mut self, seconds: std::time::Duration) {
        /// In a shorter slice, NFS under load makes a read or two, or none.
        const LEAST_MS: u64 = 10;
        let (rows, loads) = (self.routes.len() as u64, self.loads.len() as u64);
        // A third is for files, servers and connections.
        let all = seconds.as_millis() as u64 * 2 / 3;
        let each = |rounds: u64, settle: u64| {
            (all / rounds.max(1) / loads.max(1)).saturating_sub(settle) / rows.max(1)
        };
        self.settle_ms = self.settle_ms.min(all / 20 / loads.max(1));
        while self.rounds > 1 && each(self.rounds.into(), self.settle_ms) < LEAST_MS {
            self.rounds -= 1;
        }
        let slice = each(self.rounds.into(), self.settle_ms);
        self.slice_ms = slice.clamp(2, self.slice_ms.max(2));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn the_built_in_plan_has_what_is_asked_for() {
        let plan = Plan::built_in().unwrap();
        assert_eq!(plan.loads, [0, 25, 50, 75, 100]);
        for name in ["shm one-sided", "shm guarded", "shm rpc", "nfs rpc"] {
            let path = Path::named(name).unwrap();
            assert!(plan.paths().unwrap().contains(&path), "{name}");
            let (fabric, route) = path.names();
            assert_eq!(format!("{fabric} {route}"), name);
        }
    }

    #[test]
    fn what_is_no_plan_is_told() {
        for (from, to) in [
            ("size = 4096", "size = 3000"),
            ("75, 100]", "75, 101]"),
            ("others = 4", "others = 0"),
            ("\"nfs rpc\"", "\"nfs guarded\""),
        ] {
            assert!(BUILT_IN.contains(from));
            assert!(Plan::parse(&BUILT_IN.replace(from, to)).is_err(), "{to}");
        }
    }

    #[test]
    fn what_is_kept_has_the_idle_row_to_compare_with() {
        let mut plan = Plan::built_in().unwrap();
        plan.keep(&["nfs".into()], &[60]);
        assert_eq!(plan.routes, ["mmap", "nfs rpc"]);
        assert_eq!(plan.loads, [0, 60]);
    }

    #[test]
    fn a_plan_fits_its_seconds() {
        for seconds in [1, 5, 20, 60] {
            let mut plan = Plan::built_in().unwrap();
            plan.fit(Duration::from_secs(seconds));
            let slices = plan.slice_ms * plan.routes.len() as u64 + plan.settle_ms;
            let all = slices * plan.loads.len() as u64 * u64::from(plan.rounds);
            assert!(all <= seconds * 1000, "{plan:?}");
            assert!(plan.rounds >= 1 && plan.slice_ms >= 2);
        }
    }
}
