//! What is measured: a plan in TOML.

use std::time::Duration;

use anyhow::{Result, bail, ensure};
use serde::Deserialize;

use super::alone::Alone;
use crate::load::Path;
use crate::served::Way;

/// The plan that is measured unless another is given.
const BUILT_IN: &str = include_str!("../../plans/scale.toml");

/// What a row measures.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reading {
    /// Clients of a server, by this route.
    Client(Way, odafs::Route),
    /// The machine without a server.
    Alone(Alone),
}

impl Reading {
    /// Names of the fabric and the route, as rows have them.
    pub fn names(self) -> (&'static str, &'static str) {
        match self {
            Self::Client(way, route) => Path::Client(way, route).names(),
            Self::Alone(alone) => (alone.fabric(), "alone"),
        }
    }
}

/// A plan, as its file has it.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Plan {
    /// Clients at once, in rising order.
    pub clients: Vec<usize>,
    /// Maximum number of threads of the clients. If there are more clients, those of a thread read in turn.
    pub threads: usize,
    /// Names of routes.
    pub routes: Vec<String>,
    /// The file, in MiB.
    pub file_mib: u64,
    /// Bytes of a read: a page, if it is not said.
    #[serde(default = "page")]
    pub size: usize,
    /// How often each row is measured, each time with a new server.
    pub rounds: u32,
    /// Reads that each client makes before a slice of them all.
    #[serde(default)]
    pub settle_reads: usize,
    /// Time for a row in a round, in milliseconds.
    pub slice_ms: u64,
    /// Files that one client opens.
    pub files: usize,
    /// Pages whose references one client asks for.
    pub pages: u64,
    /// Numbers of clients for which there is no time.
    #[serde(skip)]
    pub left_out: Vec<usize>,
}

/// What a new server takes.
const SERVER: Duration = Duration::from_millis(200);

fn page() -> usize {
    4096
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
            !counts.contains(&0) && plan.files > 0 && plan.pages > 0 && plan.threads > 0,
            "file-mib, rounds, slice-ms, files, pages and threads: must be more than 0"
        );
        ensure!(
            plan.clients.first() > Some(&0) && plan.clients.is_sorted_by(|a, b| a < b),
            "clients: must be in rising order"
        );
        ensure!(
            plan.size > 0 && plan.size as u64 <= plan.file_mib << 20,
            "size: must be 1 or more, and at most the size of the file"
        );
        plan.ways()?;
        Ok(plan)
    }

    /// The routes, in the order of the plan.
    ///
    /// # Errors
    /// None, of a plan that was parsed.
    pub fn ways(&self) -> Result<Vec<Reading>> {
        let way = |name: &String| match (name.as_str(), Path::named(name)) {
            ("shm alone", _) => Ok(Reading::Alone(Alone::Memory)),
            ("tcp alone", _) => Ok(Reading::Alone(Alone::Tcp)),
            (_, Some(Path::Client(way, route))) => Ok(Reading::Client(way, route)),
            (_, Some(Path::NfsTcp)) => Ok(Reading::Client(Way::NfsTcp, odafs::Route::Rpc)),
            _ => bail!(
                "{name:?} is no route; give `nfs rpc`, or `shm` or `tcp` with `one-sided`, `guarded`, `rpc`, `policy` \
                 or `alone`"
            ),
        };
        self.routes.iter().map(way).collect()
    }

    /// Keeps the routes over one of these fabrics, and no more clients than this.
    pub fn keep(&mut self, fabrics: &[String], most: Option<usize>) {
        let over = |name: &String| fabrics.iter().any(|f| name.split(' ').next() == Some(f));
        self.routes.retain(|name| fabrics.is_empty() || over(name));
        self.clients.retain(|&n| most.is_none_or(|most| n <= most));
        if let Some(most) = most
            && self.clients.last() != Some(&most)
        {
            self.clients.push(most);
        }
    }

    /// Reduces rounds and slices, so that the whole run takes approximately this long. Leaves out the largest numbers of clients
    /// if there is no time to connect them.
    pub fn fit(&mut self, seconds: Duration) {
        // A slice of 20 ms is the shortest that says something.
        const SLICE: Duration = Duration::from_millis(20);
        let routes = self.routes.len().max(1) as u32;
        let round = |plan: &Self| plan.around() + SLICE * plan.counts();
        while self.clients.len() > 1 && (round(self) - SERVER) * routes > seconds {
            self.left_out.extend(self.clients.pop());
        }
        let rounds = seconds.as_millis() / (round(self) * routes).as_millis();
        self.rounds = u128::from(self.rounds).min(rounds.max(1)) as u32;
        let share = (seconds / self.rounds / routes).saturating_sub(self.around());
        let slice = (share / self.counts()).as_millis() as u64;
        self.slice_ms = slice.clamp(5, self.slice_ms.max(5));
    }

    /// What a route in a round takes beside its slices: a new server, and to connect all clients and to let them go.
    pub fn around(&self) -> Duration {
        const CLIENT: Duration = Duration::from_millis(7);
        SERVER + CLIENT * self.clients.last().copied().unwrap_or(1) as u32
    }

    /// How many numbers of clients there are, one at least.
    pub fn counts(&self) -> u32 {
        self.clients.len().max(1) as u32
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_built_in_plan_has_what_is_asked_for() {
        let plan = Plan::built_in().unwrap();
        assert_eq!(plan.clients, [1, 4, 16, 64, 256, 1000]);
        assert_eq!(plan.ways().unwrap().len(), plan.routes.len());
    }

    #[test]
    fn what_is_no_plan_is_told() {
        for (from, to) in [
            ("[1, 4,", "[4, 1,"),
            ("[1, 4,", "[0, 4,"),
            ("\"tcp rpc\"", "\"mmap\""),
            ("pages = 16384", "pages = 0"),
            ("size = 4096", "size = 4194305"),
        ] {
            assert!(BUILT_IN.contains(from));
            assert!(Plan::parse(&BUILT_IN.replace(from, to)).is_err(), "{to}");
        }
    }

    #[test]
    fn what_is_kept_and_fits() {
        let mut plan = Plan::built_in().unwrap();
        plan.keep(&["nfs".into()], Some(20));
        assert_eq!(
            (plan.routes, plan.clients),
            (vec!["nfs rpc".into()], vec![1, 4, 16, 20])
        );
        let mut plan = Plan::built_in().unwrap();
        plan.fit(Duration::from_secs(60));
        assert!(plan.left_out.is_empty());
        let row = 7200 + plan.slice_ms * 6;
        assert!(row * 8 * u64::from(plan.rounds) <= 60_000, "{plan:?}");
        // Too short to connect 1000 clients for each route; or even 16.
        let mut plan = Plan::built_in().unwrap();
        plan.fit(Duration::from_secs(20));
        assert_eq!(plan.left_out, [1000]);
        let row = 200 + 256 * 7 + plan.slice_ms * 5;
        assert!(row * 8 * u64::from(plan.rounds) <= 20_000, "{plan:?}");
        plan.fit(Duration::from_secs(1));
        assert_eq!(plan.left_out, [1000, 256, 64, 16]);
        assert_eq!((plan.rounds, plan.slice_ms), (1, 5));
    }
}
