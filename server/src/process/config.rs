//! What a server is asked to do: the options of `odafs serve`.

use std::net::SocketAddr;
use std::path::PathBuf;

use ipnet::IpNet;
use odafs_common::page::PageSize;
use odafs_common::session::PublicKey;
use odafs_fabric::ReadOrder;

pub use crate::odafs::Grantee;
pub use crate::rpc::access::Squash;
pub use crate::vfs::export::Direct;
pub use odafs_nic::engine::{Credits, RdmaConfig};
pub use odafs_nic::registration::{Costs, RegistrationConfig, Strategy};

/// A server's options.
#[derive(Clone, Debug)]
pub struct ServerConfig {
    /// The directory served, or a tar archive.
    pub directory: PathBuf,
    /// Name of the export.
    pub export: String,
    /// NFS, MOUNT and portmapper over TCP.
    pub nfs: Option<SocketAddr>,
    /// iWARP: RPC over RDMA and direct reads.
    pub rdma: Option<SocketAddr>,
    /// Socket of the shared-memory fabric.
    pub shm: Option<PathBuf>,
    /// Connections of one user over it.
    pub shm_connections: u32,
    /// An RDMA device: RPC over RDMA and direct reads.
    pub verbs: Option<SocketAddr>,
    /// Let the device fetch pages of the cache on demand where it can, in place of pinning all of it.
    pub on_demand_paging: bool,
    /// In which order RDMA Reads see the cache, by the device and the network. With more than [`ReadOrder::Fence`] the stamps
    /// of a one-sided export lie beside their pages.
    pub read_order: ReadOrder,
    /// State directory; `None` for the default.
    pub state: Option<PathBuf>,
    /// Page cache, bytes.
    pub cache_bytes: u64,
    /// Page size.
    pub page: PageSize,
    /// Ask for 2 MiB pages of memory behind the cache; takes about 2 s a GiB at the start.
    pub huge_pages: bool,
    /// Refuse changes; those to an archive are refused in any case.
    pub read_only: bool,
    /// Who may call, beyond loopback.
    pub allow: Vec<IpNet>,
    /// Loopback may call.
    pub loopback: bool,
    /// With [`Squash::Root`] and [`Squash::None`] callers may come from any port, not from privileged ones alone.
    pub insecure: bool,
    /// Whose ids callers act with.
    pub squash: Squash,
    /// Keys of the clients that may open sessions from other machines. Empty: those who may call.
    pub admitted: Vec<PublicKey>,
    /// Direct reads.
    pub direct: Direct,
    /// Who may read the whole page cache from shared memory, beside root and the serving user.
    pub one_sided_for: Vec<Grantee>,
    /// Prometheus metrics over HTTP.
    pub metrics: Option<SocketAddr>,
    /// How RPC over RDMA is served.
    pub rpc_rdma: RdmaConfig,
    /// Threads for what may block, and as many again for what may wait for stable storage.
    pub workers: usize,
    /// Hand every call to one of them, even one that the polling thread could serve: what that costs is
    /// then measured.
    pub offload: bool,
    /// How long an engine polls without finding anything before it sleeps, and a thread of NFS over TCP for the next
    /// call of a connection that makes one after the other.
    pub spin: std::time::Duration,
}

impl ServerConfig {
    /// Serves `directory` with the defaults, no listener open.
    pub fn new(directory: impl Into<PathBuf>) -> Self {
        Self {
            directory: directory.into(),
            export: "/".to_owned(),
            nfs: None,
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
            admitted: Vec::new(),
            direct: Direct::Auto,
            one_sided_for: Vec::new(),
            metrics: None,
            rpc_rdma: RdmaConfig::default(),
            workers: 8,
            offload: false,
            spin: std::time::Duration::from_micros(50),
        }
    }

    /// Whether a server can work with these options. The text says what is wrong, and what to do.
    pub fn check(&self) -> Result<(), String> {
        let frames = self.cache_bytes >> self.page.shift();
        if frames < FRAMES_MIN {
            return Err(format!(
                "a cache of {} bytes is too small: give it at least {} ({FRAMES_MIN} pages) with --cache",
                self.cache_bytes,
                FRAMES_MIN << self.page.shift()
            ));
        }
        if frames > u64::from(crate::MAX_FRAMES) {
            return Err(format!(
                "a cache of {} bytes has too many pages of {} bytes: ask for less with --cache, or for larger pages with --page",
                self.cache_bytes,
                self.page.bytes()
            ));
        }
        if !(1..=WORKERS_MAX).contains(&self.workers) {
            return Err(format!(
                "{} workers are too {}: name 1 to {WORKERS_MAX} with --workers",
                self.workers,
                if self.workers == 0 { "few" } else { "many" }
            ));
        }
        Ok(())
    }
}

/// Fewest pages of a cache.
const FRAMES_MIN: u64 = 64;

/// Most threads of a kind. More would not be busy, and where the system has no room for another's stack it may end the
/// process rather than say so.
const WORKERS_MAX: usize = 1024;
