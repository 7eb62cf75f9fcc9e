//! Which rows there are, and which of them are wanted.

use std::net::IpAddr;
use std::path::PathBuf;
use std::time::Duration;

use serde::Serialize;

/// The two ways to wait, by name.
pub const WAITS: [&str; 2] = ["spin", "block"];

/// What to measure, and for how long.
#[derive(Clone, Debug)]
pub struct Plan {
    /// The program `odafs`, for servers in processes of their own.
    pub program: PathBuf,
    /// Bytes of the file that is read.
    pub file_bytes: u64,
    /// Bytes of one read: the sizes for which there are rows.
    pub sizes: Vec<usize>,
    /// Reads of one row in one round, if not by time.
    pub reads: Option<u64>,
    /// Time for one row in one round.
    pub time: Duration,
    /// How often each row is measured.
    pub rounds: u32,
    /// Which rows.
    pub filter: Filter,
    /// Address of the RDMA device for the rows of `verbs`; without it there are none.
    pub verbs: Option<IpAddr>,
    /// A file on a server that runs already, to be read in place of our own.
    pub url: Option<odafs::Url>,
}

/// Which rows are wanted: those that are named in every list that is not empty.
#[derive(Clone, Debug, Default)]
pub struct Filter {
    /// Fabrics.
    pub fabrics: Vec<String>,
    /// Routes.
    pub routes: Vec<String>,
    /// `spin`, `block`.
    pub waits: Vec<String>,
    /// MACs.
    pub macs: Vec<String>,
    /// Kinds of RPC.
    pub rpcs: Vec<String>,
    /// Reads in flight together.
    pub depths: Vec<u32>,
    /// Page sizes behind the memory.
    pub backings: Vec<u64>,
}

/// One row to measure.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Spec {
    /// `local`, or the fabric's name.
    pub fabric: &'static str,
    /// `pread`, `mmap`, `floor`, `one-sided`, `guarded`, `rpc`, `cache`.
    pub route: &'static str,
    /// How both sides wait. (Routes without a second side never wait: `spin`.)
    pub wait: &'static str,
    /// The MAC of the requests.
    pub mac: &'static str,
    /// How an RPC is answered: `inline`, `direct`, by a `worker`, with `references`.
    pub rpc: Option<&'static str>,
    /// Reads in flight together.
    pub depth: u32,
    /// Page size asked for behind the memory. The row says what was there.
    #[serde(skip)]
    pub backing: u64,
    /// Bytes of one read.
    pub size_bytes: usize,
    /// Where the next read goes.
    pub pattern: &'static str,
}

const SMALL: u64 = 4096;
const LARGE: u64 = 2 << 20;

impl Spec {
    fn new(fabric: &'static str, route: &'static str, wait: &'static str, size: usize) -> Self {
        let backing = if fabric == "local" { SMALL } else { LARGE };
        let (mac, rpc, depth, pattern) = ("none", None, 1, "random");
        Self {
            fabric,
            route,
            wait,
            mac,
            rpc,
            depth,
            backing,
            size_bytes: size,
            pattern,
        }
    }

    /// The row in words.
    pub fn label(&self) -> String {
        let mut words = vec![self.fabric.to_owned(), self.route.to_owned()];
        words.extend((self.mac != "none").then(|| self.mac.to_owned()));
        words.extend(self.rpc.map(str::to_owned));
        words.extend((self.wait == "block").then(|| "blocking".to_owned()));
        words.extend((self.backing == SMALL).then(|| "on 4 KiB pages".to_owned()));
        words.extend((self.depth > 1).then(|| format!("depth {}", self.depth)));
        words.push(crate::table::bytes(self.size_bytes as u64));
        words.join(" ")
    }
}

impl Plan {
    /// The rows to measure, in the order of the table.
    pub fn specs(&self) -> Vec<Spec> {
        let mut specs: Vec<Spec> = self
            .sizes
            .iter()
            .enumerate()
            .flat_map(|(i, &size)| rows(size, i == 0))
            .collect();
        let at_server = self.url.as_ref().map(|url| fabric_of(&url.server));
        specs.retain(|spec| {
            self.filter.wants(spec)
                && match at_server {
                    Some(fabric) => suits(spec, fabric),
                    None => match spec.fabric {
                        "nfs" => false,
                        "verbs" => self.verbs.is_some(),
                        _ => true,
                    },
                }
        });
        specs
    }
}

/// The rows of one size; the main size has those that only matter once.
fn rows(size: usize, main: bool) -> Vec<Spec> {
    let mut rows = on_this_host(size, main);
    rows.extend(WAITS.map(|wait| Spec::new("tcp", "floor", wait, size)));
    rows.extend(over_rdma("tcp", size, main));
    rows.extend(over_rdma("verbs", size, main));
    rows.extend(over_nfs(size, main));
    rows
}

/// NFS over TCP, of a server that runs already: there are calls, and nothing direct.
fn over_nfs(size: usize, main: bool) -> Vec<Spec> {
    let rpc = |wait, depth| Spec {
        rpc: Some("inline"),
        depth,
        ..Spec::new("nfs", "rpc", wait, size)
    };
    let mut rows = WAITS.map(|wait| rpc(wait, 1)).to_vec();
    rows.extend(WAITS.map(|wait| rpc(wait, 8)).into_iter().filter(|_| main));
    rows
}

/// Local rows, and those of shared memory.
fn on_this_host(size: usize, main: bool) -> Vec<Spec> {
    let local = |route, backing| Spec {
        backing,
        ..Spec::new("local", route, "spin", size)
    };
    let shm = |route, wait| Spec::new("shm", route, wait, size);
    let guarded = |wait, mac| Spec {
        mac,
        ..shm("guarded", wait)
    };
    let rpc = |wait, kind| Spec {
        rpc: Some(kind),
        ..shm("rpc", wait)
    };
    let deep = |spec: Spec| Spec { depth: 8, ..spec };
    let mut rows = Vec::new();
    for route in ["pread", "mmap"] {
        rows.extend([local(route, SMALL), local(route, LARGE)]);
    }
    rows.extend(WAITS.map(|wait| shm("floor", wait)));
    rows.extend([shm("cache", "spin"), shm("one-sided", "spin")]);
    rows.push(guarded("spin", "blake3"));
    rows.push(rpc("spin", "inline"));
    if main {
        let small = |spec: Spec| Spec {
            backing: SMALL,
            ..spec
        };
        rows.extend([
            small(shm("one-sided", "spin")),
            small(guarded("spin", "blake3")),
        ]);
        rows.push(deep(shm("one-sided", "spin")));
        rows.extend([
            deep(guarded("spin", "blake3")),
            guarded("spin", "hmac-sha256"),
        ]);
        rows.push(deep(guarded("spin", "hmac-sha256")));
        rows.extend([guarded("block", "blake3"), guarded("block", "hmac-sha256")]);
        rows.push(deep(guarded("block", "blake3")));
        rows.extend([
            rpc("spin", "direct"),
            rpc("spin", "worker"),
            rpc("spin", "references"),
            deep(rpc("spin", "inline")),
        ]);
        rows.extend([
            rpc("block", "inline"),
            rpc("block", "direct"),
            rpc("block", "worker"),
        ]);
        rows.push(deep(rpc("block", "inline")));
    }
    rows
}

/// Rows of a fabric that is RDMA.
fn over_rdma(fabric: &'static str, size: usize, main: bool) -> Vec<Spec> {
    let over = |route, wait| Spec::new(fabric, route, wait, size);
    let guarded = |wait, mac| Spec {
        mac,
        ..over("guarded", wait)
    };
    let kind = if size <= RDMA_INLINE {
        "inline"
    } else {
        "direct"
    };
    let rpc = |wait, kind| Spec {
        rpc: Some(kind),
        ..over("rpc", wait)
    };
    let deep = |spec: Spec| Spec { depth: 8, ..spec };
    let mut rows = vec![
        over("one-sided", "spin"),
        guarded("spin", "blake3"),
        rpc("spin", kind),
    ];
    if main {
        rows.extend([
            guarded("spin", "hmac-sha256"),
            rpc("spin", "worker"),
            rpc("spin", "references"),
            deep(over("one-sided", "spin")),
            deep(guarded("spin", "blake3")),
            deep(rpc("spin", kind)),
        ]);
        rows.extend([
            over("one-sided", "block"),
            guarded("block", "blake3"),
            rpc("block", kind),
            rpc("block", "worker"),
        ]);
    }
    rows
}

/// Bytes of data up to which the reply to a READ fits a message of RPC-over-RDMA (4096 bytes, headers included).
const RDMA_INLINE: usize = 3 << 10;

impl Filter {
    fn wants(&self, spec: &Spec) -> bool {
        let named = |list: &[String], name: &str| list.is_empty() || list.iter().any(|n| n == name);
        named(&self.fabrics, spec.fabric)
            && named(&self.routes, spec.route)
            && named(&self.waits, spec.wait)
            && (spec.mac == "none" || named(&self.macs, spec.mac))
            && spec.rpc.is_none_or(|kind| named(&self.rpcs, kind))
            && (self.depths.is_empty() || self.depths.contains(&spec.depth))
            && (self.backings.is_empty() || self.backings.contains(&spec.backing))
    }
}

/// The name of the fabric that leads to a server.
pub fn fabric_of(server: &odafs::ServerAddress) -> &'static str {
    match server {
        odafs::ServerAddress::Shm(_) | odafs::ServerAddress::DefaultShm => "shm",
        odafs::ServerAddress::Iwarp(_) => "tcp",
        odafs::ServerAddress::Verbs(_) => "verbs",
        odafs::ServerAddress::NfsTcp(_) => "nfs",
    }
}

/// Whether a row can be measured against a server that runs already: how it
/// waits and hands over is then its own affair.
fn suits(spec: &Spec, fabric: &str) -> bool {
    let ours = spec.route == "floor" || spec.rpc == Some("worker") || spec.backing != LARGE;
    spec.fabric == fabric && !ours
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plan(filter: Filter) -> Plan {
        Plan {
            program: "odafs".into(),
            file_bytes: 1 << 20,
            sizes: vec![4096, 64],
            reads: None,
            time: Duration::from_millis(1),
            rounds: 1,
            filter,
            verbs: Some([10, 0, 0, 1].into()),
            url: None,
        }
    }

    #[test]
    fn no_row_comes_twice() {
        let specs = plan(Filter::default()).specs();
        for (i, spec) in specs.iter().enumerate() {
            assert!(!specs[..i].contains(spec), "{}", spec.label());
        }
    }

    #[test]
    fn a_server_that_runs_already_has_rows_of_its_fabric_whichever_that_is() {
        for url in [
            "odafs+shm:///s?/x",
            "odafs://h/x",
            "odafs+verbs://h/x",
            "nfs://h/x",
        ] {
            let mut plan = plan(Filter::default());
            plan.url = Some(url.parse().unwrap());
            let specs = plan.specs();
            assert!(
                specs.iter().any(|s| s.route == "rpc" && s.wait == "block"),
                "{url}"
            );
            assert!(specs.iter().all(|s| s.fabric == specs[0].fabric), "{url}");
        }
        let without = plan(Filter::default()).specs();
        assert!(without.iter().all(|s| s.fabric != "nfs"));
    }

    #[test]
    fn lists_narrow() {
        let filter = Filter {
            routes: vec!["guarded".into()],
            macs: vec!["blake3".into()],
            ..Filter::default()
        };
        let specs = plan(filter).specs();
        assert!(
            !specs.is_empty()
                && specs
                    .iter()
                    .all(|s| s.route == "guarded" && s.mac == "blake3")
        );
        let filter = Filter {
            depths: vec![8],
            waits: vec!["block".into()],
            ..Filter::default()
        };
        assert!(
            plan(filter)
                .specs()
                .iter()
                .all(|s| s.depth == 8 && s.wait == "block")
        );
    }
}
