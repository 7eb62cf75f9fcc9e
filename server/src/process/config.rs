//! The options of a server. They correspond to those of `odafs serve`.

use std::net::SocketAddr;
use std::ops::RangeInclusive;
use std::path::PathBuf;
use std::time::Duration;

use ipnet::IpNet;
use odafs_common::page::PageSize;
use odafs_common::session::PublicKey;
use odafs_fabric::ReadOrder;

use crate::store::table;

pub use crate::nfs4::MinorVersions;
pub use crate::odafs::Grantee;
pub use crate::rpc::access::{Anonymous, Squash};
pub use crate::vfs::export::Direct;
pub use odafs_nic::engine::{Credits, RdmaConfig};
pub use odafs_nic::registration::{Costs, RegistrationConfig, Strategy};

/// The options of a server. [`ServerConfig::new`] sets the defaults that the fields name.
#[derive(Clone, Debug)]
pub struct ServerConfig {
    /// The directory or tar archive to serve.
    pub directory: PathBuf,
    /// Name of the export, `/` by default.
    pub export: String,
    /// Several exports, each under its own name below the root `/`. If there are any, the server ignores `directory` and
    /// `export`.
    pub exports: Vec<ExportOptions>,
    /// Address for NFS, MOUNT, the lock manager and the portmapper over TCP; `None`: not served.
    pub nfs: Option<SocketAddr>,
    /// A further address of the portmapper, over TCP and UDP. Clients of NFS version 3 look for the lock manager at port
    /// 111, and report their restarts to the status monitor there. `None`: there is none.
    pub portmap: Option<SocketAddr>,
    /// Whether to serve NFS version 2 too, with MOUNT versions 1 and 2, on all listeners. False by default.
    pub nfs2: bool,
    /// The minor versions of NFS version 4 to serve beside version 3, on all listeners. All of them by default.
    pub nfs4: MinorVersions,
    /// The lease of NFS version 4: how long the server keeps the opens and locks of a silent client, and how long clients
    /// may reclaim them after a restart. 10 s to 1 h; 90 s by default.
    pub lease: Duration,
    /// Whether version 4 tells owners and groups by name (`user@domain`), where this host knows one; by number by default.
    /// It takes both.
    pub owner_names: bool,
    /// The domain of these names; `localdomain` by default.
    pub owner_domain: String,
    /// Address for iWARP over TCP: RPC-over-RDMA and direct reads; `None`: not served.
    pub rdma: Option<SocketAddr>,
    /// Path of the shared-memory fabric's Unix socket; `None`: not served.
    pub shm: Option<PathBuf>,
    /// The most connections that one user may have over shared memory; 8192 by default.
    pub shm_connections: u32,
    /// Address of an RDMA device: RPC-over-RDMA and direct reads; `None`: not served.
    pub verbs: Option<SocketAddr>,
    /// Let an RDMA device that supports it fetch pages of the cache on demand, instead of pinning the whole cache.
    pub on_demand_paging: bool,
    /// The order in which RDMA Reads see the cache, as devices and network guarantee it. [`ReadOrder::Fence`] by default.
    /// With any other order, the stamps of a one-sided export lie beside their pages.
    pub read_order: ReadOrder,
    /// The state directory. `None`: the default one.
    pub state: Option<PathBuf>,
    /// Size of the page cache in bytes, at least 64 pages. 1 GiB by default.
    pub cache_bytes: u64,
    /// Size of a page, 4 KiB by default.
    pub page: PageSize,
    /// Ask for 2 MiB pages of memory for the cache, which takes about 2 s for each GiB at the start. True by default.
    pub huge_pages: bool,
    /// Refuse changes. An archive refuses them in any case.
    pub read_only: bool,
    /// Networks that may call, besides loopback.
    pub allow: Vec<IpNet>,
    /// Whether loopback may call. True by default.
    pub loopback: bool,
    /// With [`Squash::Root`] and [`Squash::None`], believe callers on any port, not only on ports below 1024.
    pub insecure: bool,
    /// The ids with which callers act. [`Squash::All`] by default.
    pub squash: Squash,
    /// The ids of those who do not keep their own. By default that is the serving user, or nobody.
    pub anonymous: Anonymous,
    /// Public keys of the clients that may open sessions from other machines. If there are none, every client that may call
    /// may open sessions.
    pub admitted: Vec<PublicKey>,
    /// Which direct reads the server grants.
    pub direct: Direct,
    /// Users that may read the whole page cache from shared memory, besides root and the user that runs the server.
    pub one_sided_for: Vec<Grantee>,
    /// Address for Prometheus metrics over HTTP; `None`: not served.
    pub metrics: Option<SocketAddr>,
    /// The server logs a warning for calls that take longer, and `odafs top` shows them. 100 ms by default.
    pub slow_call: std::time::Duration,
    /// How the server serves RPC-over-RDMA.
    pub rpc_rdma: RdmaConfig,
    /// Number of threads for calls that may block, 1 to 1024. As many again serve calls that may wait for stable storage.
    /// 8 by default.
    pub workers: usize,
    /// Offload every call to a worker, even one that the engine could serve, to measure what that costs.
    pub offload: bool,
    /// How long an engine polls without work before it sleeps, and how long a thread of NFS over TCP polls for the next
    /// of several consecutive calls. 50 us by default.
    pub spin: Duration,
}

/// One export of several.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExportOptions {
    /// The name, such as `/data` or `/srv/data`. It must not be `/`, nor lie above or below the name of another export.
    pub name: String,
    /// The directory or tar archive. It must not lie above or below that of another export.
    pub directory: PathBuf,
    /// Refuse changes, as [`ServerConfig::read_only`] does for all exports.
    pub read_only: bool,
    /// Networks that may reach it, in place of [`ServerConfig::allow`].
    pub allow: Option<Vec<IpNet>>,
    /// Shut out loopback, as [`ServerConfig::loopback`] can for all exports.
    pub no_loopback: bool,
    /// The ids with which callers act in it, in place of [`ServerConfig::squash`].
    pub squash: Option<Squash>,
    /// The ids of those who do not keep their own. Those that are not given are those of [`ServerConfig::anonymous`].
    pub anonymous: Anonymous,
    /// Believe callers on any port, as [`ServerConfig::insecure`] does for all exports.
    pub insecure: bool,
    /// [`Direct::Guarded`] or [`Direct::Off`]: grant less than [`ServerConfig::direct`]. The cache has pages of all exports, so
    /// if one export has either of these, the server grants one-sided reads to nobody.
    pub direct: Option<Direct>,
}

impl ExportOptions {
    /// An export with the options of the server.
    pub fn new(name: impl Into<String>, directory: impl Into<PathBuf>) -> Self {
        Self {
            name: name.into(),
            directory: directory.into(),
            read_only: false,
            allow: None,
            no_loopback: false,
            squash: None,
            anonymous: Anonymous::default(),
            insecure: false,
            direct: None,
        }
    }
}

impl ServerConfig {
    /// The defaults, for `directory`, with no listener.
    pub fn new(directory: impl Into<PathBuf>) -> Self {
        Self {
            directory: directory.into(),
            export: "/".to_owned(),
            exports: Vec::new(),
            nfs: None,
            portmap: None,
            nfs2: false,
            nfs4: MinorVersions::ALL,
            lease: crate::nfs4::LEASE.duration(),
            owner_names: false,
            owner_domain: crate::nfs4::DOMAIN.to_owned(),
            rdma: None,
            shm: None,
            // Room for 1,000 clients of one user.
            shm_connections: 8192,
            verbs: None,
            on_demand_paging: false,
            read_order: ReadOrder::Fence,
            state: None,
            cache_bytes: 1 << 30,
            page: PageSize::DEFAULT,
            huge_pages: true,
            read_only: false,
            allow: Vec::new(),
            loopback: true,
            insecure: false,
            squash: Squash::All,
            anonymous: Anonymous::default(),
            admitted: Vec::new(),
            direct: Direct::Auto,
            one_sided_for: Vec::new(),
            metrics: None,
            slow_call: std::time::Duration::from_millis(100),
            rpc_rdma: RdmaConfig::default(),
            workers: 8,
            offload: false,
            spin: Duration::from_micros(50),
        }
    }

    /// Checks whether a server can work with these options.
    ///
    /// # Errors
    /// The text says what is wrong, and what to do.
    pub fn check(&self) -> Result<(), String> {
        let frames = self.cache_bytes >> self.page.shift();
        if frames < FRAMES_MIN {
            return Err(format!(
                "--cache: the page cache must have at least {FRAMES_MIN} pages, which are {} KiB",
                (FRAMES_MIN << self.page.shift()) >> 10
            ));
        }
        if frames > u64::from(crate::MAX_FRAMES) {
            return Err(format!(
                "--cache: the page cache may have at most {} pages, which are {} GiB: name a smaller cache, or larger pages \
                 with --page",
                crate::MAX_FRAMES,
                (u64::from(crate::MAX_FRAMES) << self.page.shift()) >> 30
            ));
        }
        let names = self.exports.iter().map(|export| export.name.as_str());
        table::check_names(names).map_err(|error| error.to_string())?;
        self.check_anonymous()?;
        self.check_direct()?;
        if self.slow_call.is_zero() {
            return Err("--slow-call: must be more than 0, as in 100ms".to_owned());
        }
        if !(1..=WORKERS_MAX).contains(&self.workers) {
            return Err(format!(
                "--workers {}: must be 1 to {WORKERS_MAX}",
                self.workers
            ));
        }
        let domain = self.owner_domain.as_bytes();
        let spelt = |byte: &u8| byte.is_ascii_alphanumeric() || b"-._".contains(byte);
        if !(1..=DOMAIN_MAX).contains(&domain.len()) || !domain.iter().all(spelt) {
            return Err(format!(
                "--idmap-domain {:?}: must be a domain such as example.org, of at most {DOMAIN_MAX} letters, digits, dots, \
                 hyphens and underscores",
                self.owner_domain
            ));
        }
        if !LEASES.contains(&self.lease) {
            return Err(format!("--lease {:?}: must be 10s to 1h", self.lease));
        }
        Ok(())
    }

    fn check_anonymous(&self) -> Result<(), String> {
        let by_export = self.exports.iter().map(|export| export.anonymous);
        for ids in by_export.chain([self.anonymous]) {
            for (option, id) in [("anonuid", ids.uid), ("anongid", ids.gid)] {
                if id == Some(u32::MAX) {
                    return Err(format!(
                        "{option}={}: the system has no such id; name one below it, such as 65534",
                        u32::MAX
                    ));
                }
            }
        }
        Ok(())
    }

    /// Refuses direct reads of an export that the server does not grant, and one-sided reads beside an export that grants none.
    fn check_direct(&self) -> Result<(), String> {
        for export in &self.exports {
            let name = &export.name;
            let wrong = match (export.direct, self.direct) {
                (None, _) => continue,
                (Some(Direct::Auto | Direct::OneSided), _) => {
                    "an export can have direct=guarded or direct=off; leave it out for what --direct says"
                }
                (_, Direct::Off) => {
                    "the server grants no direct reads with --direct off; leave one of the two out"
                }
                (_, Direct::OneSided) => {
                    "with --direct one-sided clients read the whole cache, pages of this export too; leave one of the two out, \
                     or run a server for this export"
                }
                (_, Direct::Auto | Direct::Guarded) if !self.one_sided_for.is_empty() => {
                    "with --one-sided-for users read the whole cache, pages of this export too; leave one of the two out, or \
                     run a server for this export"
                }
                (_, Direct::Auto | Direct::Guarded) => continue,
            };
            return Err(format!("--export {name}=...,direct=: {wrong}"));
        }
        Ok(())
    }

    /// The direct reads that the server grants over all its exports.
    #[cfg(not(shuttle))]
    pub(super) fn direct_of_all(&self) -> Direct {
        match self.exports.iter().any(|export| export.direct.is_some()) {
            true if self.direct == Direct::Auto => Direct::Guarded,
            _ => self.direct,
        }
    }
}

/// The range of [`ServerConfig::lease`]. Clients renew a lease twice in its time, and wait for its length after a restart.
const LEASES: RangeInclusive<Duration> = Duration::from_secs(10)..=Duration::from_secs(3600);

/// The longest [`ServerConfig::owner_domain`], bytes: names of users have to fit beside it.
const DOMAIN_MAX: usize = 200;

/// The fewest pages of a cache.
const FRAMES_MIN: u64 = 64;

/// The most threads of a kind. More would not be busy. A system without room for another stack may end the process instead
/// of reporting an error.
const WORKERS_MAX: usize = 1024;
