//! What is measured: a plan in TOML.

use std::time::Duration;

use anyhow::{Result, bail, ensure};
use serde::{Deserialize, Serialize};

use crate::served::Way;

/// The plan that is measured unless another is given.
const BUILT_IN: &str = include_str!("../../plans/metadata.toml");

/// A plan, as its file has it.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Plan {
    /// What is done.
    pub mixes: Vec<Mix>,
    /// `local`, or how a client reaches the server: `shm`, `tcp` (by default options), `tcp-read-read` and
    /// `tcp-read-write` (by that design), or `nfs`; `nfs4` and `nfs4-delegations` for `reopen` alone.
    pub routes: Vec<String>,
    /// Clients at once.
    pub clients: Vec<usize>,
    /// Files of a tree of fileop.
    pub files: usize,
    /// Files of a client of postmark, at the beginning.
    pub pool: usize,
    /// Bytes of such a file, at least and at most.
    pub bytes: [u64; 2],
    /// How often each row is measured.
    pub rounds: u32,
    /// Time for a row in a round, in milliseconds.
    pub slice_ms: u64,
}

/// What clients do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Mix {
    /// Each operation on the files of a tree, one after the other, as IOzone's fileop does.
    Fileop,
    /// Small files are made, read, appended to and deleted at random, as PostMark does.
    Postmark,
    /// Small files that stay as they are are opened, read and closed at random.
    Reopen,
}

/// Who moves the data of calls by RPC-over-RDMA.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Design {
    /// Each side fetches what the other sends.
    ReadRead,
    /// The server reads the data of calls, and writes that of replies (RFC 8166).
    ReadWrite,
}

/// How a client reaches the files.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Route {
    /// By system calls.
    Local,
    /// By our client.
    Client(Way),
    /// By our client over iWARP, with this design of RPC-over-RDMA.
    Rdma(Design),
    /// By NFS version 4.2 over TCP: a bare client, which keeps nothing.
    Nfs4,
    /// The same, but that it has delegations, and keeps what it has read for as long as it has them.
    Delegations,
}

impl Route {
    /// As it is named in plans and rows.
    pub fn name(self) -> &'static str {
        match self {
            Self::Local => "local",
            Self::Client(way) => way.name(),
            Self::Rdma(Design::ReadRead) => "tcp-read-read",
            Self::Rdma(Design::ReadWrite) => "tcp-read-write",
            Self::Nfs4 => "nfs4",
            Self::Delegations => "nfs4-delegations",
        }
    }
}

impl Mix {
    /// As it is named in plans and rows.
    pub fn name(self) -> &'static str {
        match self {
            Self::Fileop => "fileop",
            Self::Postmark => "postmark",
            Self::Reopen => "reopen",
        }
    }
}

fn is_rdma(route: &str) -> bool {
    route == "tcp" || route.starts_with("tcp-")
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
        let counts = [plan.rounds.into(), plan.slice_ms];
        ensure!(
            !counts.contains(&0) && !plan.mixes.is_empty() && !plan.clients.is_empty(),
            "rounds, slice-ms, mixes and clients: must be more than 0"
        );
        ensure!(
            plan.clients.iter().all(|number| (1..=256).contains(number)),
            "clients: must be 1 to 256"
        );
        ensure!(
            (1..=10_000).contains(&plan.files) && (1..=10_000).contains(&plan.pool),
            "files and pool: must be 1 to 10000"
        );
        let [least, most] = plan.bytes;
        ensure!(
            0 < least && least <= most && most <= 64 << 10,
            "bytes: must be 1 to 65536, the smaller one first"
        );
        let bare = |route: &Route| matches!(route, Route::Nfs4 | Route::Delegations);
        let reopens = plan.mixes.iter().all(|mix| *mix == Mix::Reopen);
        ensure!(
            reopens || !plan.ways()?.iter().any(bare),
            "routes: nfs4 and nfs4-delegations have no mix but `reopen`"
        );
        // Who has more is asked to return some.
        ensure!(
            plan.pool <= 500 || !plan.ways()?.contains(&Route::Delegations),
            "pool: must be at most 500 with nfs4-delegations"
        );
        Ok(plan)
    }

    /// The routes, in the order of the plan.
    ///
    /// # Errors
    /// None, of a plan that was parsed.
    pub fn ways(&self) -> Result<Vec<Route>> {
        let way = |name: &String| match name.as_str() {
            "local" => Ok(Route::Local),
            "shm" => Ok(Route::Client(Way::Shm)),
            "tcp" => Ok(Route::Client(Way::Iwarp)),
            "tcp-read-read" => Ok(Route::Rdma(Design::ReadRead)),
            "tcp-read-write" => Ok(Route::Rdma(Design::ReadWrite)),
            "nfs" => Ok(Route::Client(Way::NfsTcp)),
            "nfs4" => Ok(Route::Nfs4),
            "nfs4-delegations" => Ok(Route::Delegations),
            _ => bail!(
                "{name:?} is no route; give `local`, `shm`, `tcp`, `tcp-read-read`, `tcp-read-write`, `nfs`, `nfs4` \
                 or `nfs4-delegations`"
            ),
        };
        self.routes.iter().map(way).collect()
    }

    /// Rows of a round, each with all its operations.
    pub fn slices(&self) -> usize {
        self.mixes.len() * self.routes.len() * self.clients.len()
    }

    /// Keeps the local route and those over one of these fabrics.
    pub fn keep(&mut self, fabrics: &[String]) {
        self.routes.retain(|name| {
            let fabric = if is_rdma(name) { "tcp" } else { name };
            fabrics.is_empty() || name == "local" || fabrics.iter().any(|kept| kept == fabric)
        });
    }

    /// Whether there is a route over RDMA.
    pub fn has_rdma(&self) -> bool {
        self.routes.iter().any(|name| is_rdma(name))
    }

    /// Has the routes over RDMA once for each of these designs, `read-read` or `read-write`, if there are any.
    pub fn by_designs(&mut self, designs: &[String]) {
        if designs.is_empty() {
            return;
        }
        let mut routes: Vec<String> = Vec::new();
        for name in std::mem::take(&mut self.routes) {
            let of_route = match is_rdma(&name) {
                true => designs
                    .iter()
                    .map(|design| format!("tcp-{design}"))
                    .collect(),
                false => vec![name],
            };
            for name in of_route {
                if !routes.contains(&name) {
                    routes.push(name);
                }
            }
        }
        self.routes = routes;
    }

    /// Reduces rounds and slices, so that the whole run takes approximately this long.
    pub fn fit(&mut self, seconds: Duration) {
        const LEAST_MS: u64 = 20;
        let slices = self.slices().max(1) as u64;
        // A third is for the server, its clients, and pools and trees that are finished.
        let all = seconds.as_millis() as u64 * 2 / 3;
        self.rounds = u64::from(self.rounds).min((all / slices / LEAST_MS).max(1)) as u32;
        let slice = all / slices / u64::from(self.rounds);
        self.slice_ms = slice.clamp(5, self.slice_ms.max(5));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_built_in_plan_has_what_is_asked_for() {
        let plan = Plan::built_in().unwrap();
        assert_eq!(plan.mixes, [Mix::Fileop, Mix::Postmark]);
        let names: Vec<&str> = plan.ways().unwrap().into_iter().map(Route::name).collect();
        assert_eq!(names, ["local", "shm", "tcp", "nfs"]);
    }

    #[test]
    fn delegations_have_a_plan() {
        let plan = Plan::parse(include_str!("../../plans/delegations.toml")).unwrap();
        assert_eq!(plan.mixes, [Mix::Reopen]);
        let routes = [Route::Local, Route::Nfs4, Route::Delegations];
        assert_eq!(plan.ways().unwrap(), routes);
        for text in [
            BUILT_IN.replace("\"nfs\"]", "\"nfs4\"]"),
            include_str!("../../plans/delegations.toml").replace("pool = 200", "pool = 2000"),
        ] {
            assert!(Plan::parse(&text).is_err(), "{text}");
        }
    }

    #[test]
    fn what_is_no_plan_is_told() {
        for (from, to) in [
            ("clients = [1, 4]", "clients = [0]"),
            ("\"nfs\"]", "\"ftp\"]"),
            ("[500, 10000]", "[500, 100]"),
            ("pool = 100", "pool = 0"),
            ("\"postmark\"]", "\"iozone\"]"),
        ] {
            assert!(BUILT_IN.contains(from));
            assert!(Plan::parse(&BUILT_IN.replace(from, to)).is_err(), "{to}");
        }
    }

    #[test]
    fn a_plan_fits_its_seconds_and_keeps_its_peer() {
        for seconds in [1, 10, 60] {
            let mut plan = Plan::built_in().unwrap();
            plan.fit(Duration::from_secs(seconds));
            let all = plan.slice_ms * plan.slices() as u64 * u64::from(plan.rounds);
            assert!(all <= seconds * 1000, "{plan:?}");
        }
        let mut plan = Plan::built_in().unwrap();
        plan.keep(&["tcp".to_owned()]);
        assert_eq!(plan.routes, ["local", "tcp"]);
    }

    #[test]
    fn routes_over_rdma_come_by_each_design() {
        let designs = ["read-read", "read-write"].map(str::to_owned);
        let mut plan = Plan::built_in().unwrap();
        let before = plan.routes.clone();
        plan.by_designs(&[]);
        assert_eq!(plan.routes, before);
        plan.by_designs(&designs);
        let names = ["local", "shm", "tcp-read-read", "tcp-read-write", "nfs"];
        assert_eq!(plan.routes, names);
        let ways = plan.ways().unwrap();
        assert_eq!(ways[2], Route::Rdma(Design::ReadRead));
        assert!(ways.into_iter().map(Route::name).eq(names));
        plan.by_designs(&designs[1..]);
        plan.keep(&["tcp".to_owned()]);
        assert_eq!(plan.routes, ["local", "tcp-read-write"]);
        assert!(plan.has_rdma());
        plan.keep(&["nfs".to_owned()]);
        assert!(!plan.has_rdma());
    }
}
