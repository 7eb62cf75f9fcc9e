//! The options of `odafs serve`, from the command line and from a file.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use clap::Args;
use odafs_common::page::PageSize;
use odafs_fabric::ReadOrder;
use odafs_server::config::{
    Anonymous, Costs, Credits, Direct, RdmaConfig, RegistrationConfig, ServerConfig, Squash,
    Strategy,
};
use odafs_server::memory;
use serde::Deserialize;

mod checks;
mod exports;
mod file;
mod reload;
mod values;

pub use checks::{check_directory, check_served, without_admission};
use exports::Exported;
use values::{
    Allow, CreditsOption, DesignName, DirectName, IdmapName, Nfs2, Nfs4Version, ReadOrderName,
    RegistrationName, Shm, SquashName,
};

use crate::grantee::Named;
use crate::keys::keys;
use crate::{Usage, listeners, units};

/// The heading of the listeners in the help.
const LISTENERS: &str = "Listeners (with none named: --nfs, --rdma and --shm)";
/// The heading of what may be named beside the listeners, and replaces none of them.
const BESIDE: &str = "Portmapper, metrics and limits";

/// The options of the command line. A configuration file has the same ones, under the same names.
#[derive(Args, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
pub struct ServeOptions {
    /// The directory to serve, or an uncompressed tar archive
    #[arg(value_name = "DIR")]
    dir: Option<PathBuf>,
    /// Name of the export, with which the paths of URLs and mounts begin [default: /]. For several exports, instead of DIR:
    /// once for each, as /NAME=DIR, followed by its own options: ,read-only ,allow=CIDR[:CIDR...] ,squash=WHO ,anonuid=N
    /// ,anongid=N ,insecure ,direct=guarded|off. Each has the same meaning as the server's option of that name, and
    /// overrides it for this export
    #[arg(long, value_name = "/NAME[=DIR[,OPTION]...]")]
    #[serde(deserialize_with = "exports::one_or_more")]
    export: Vec<Exported>,
    /// Serve NFS over TCP here, and MOUNT and the portmapper's protocol on the same port [default: 127.0.0.1:2049]
    #[arg(
        long,
        value_name = "ADDR:PORT",
        value_parser = units::address,
        help_heading = LISTENERS
    )]
    #[serde(deserialize_with = "file::address")]
    nfs: Option<SocketAddr>,
    /// Tell clients of NFS version 3, over TCP and UDP, where the lock manager is. They look for it at port 111, which
    /// only root may open, and which rpcbind must not use. Without it, they must mount with nolock [default: off]
    #[arg(
        long,
        value_name = "ADDR:PORT",
        value_parser = units::address,
        help_heading = BESIDE
    )]
    #[serde(deserialize_with = "file::address")]
    portmap: Option<SocketAddr>,
    /// Serve shared memory through this Unix socket [default: odafs.sock in $RUNTIME_DIRECTORY of a systemd unit, else in
    /// /run (root), $XDG_RUNTIME_DIR or /tmp/odafs-UID]. If a directory or an archive follows --shm, it is taken as DIR
    #[arg(
        long,
        value_name = "SOCKET",
        num_args = 0..=1,
        default_missing_value = Shm::NO_VALUE,
        value_parser = Shm::parser(),
        help_heading = LISTENERS
    )]
    #[serde(deserialize_with = "file::socket")]
    shm: Option<Shm>,
    /// How many connections one user may have over shared memory; each may take 2 MiB of memory, and a client makes four,
    /// or more if it has many threads [default: 8192]
    #[arg(
        long,
        value_name = "N",
        help_heading = BESIDE
    )]
    #[serde(deserialize_with = "file::number")]
    shm_connections: Option<u32>,
    /// Serve NFS over RDMA and direct reads here, by iWARP over TCP; no RDMA hardware is needed [default:
    /// 127.0.0.1:20049]
    #[arg(
        long,
        value_name = "ADDR:PORT",
        value_parser = units::address,
        help_heading = LISTENERS
    )]
    #[serde(deserialize_with = "file::address")]
    rdma: Option<SocketAddr>,
    /// Serve NFS over RDMA and direct reads here, by an RDMA device (`odafs devices` lists the addresses) [default: off]
    #[arg(
        long,
        value_name = "ADDR:PORT",
        value_parser = units::address,
        help_heading = LISTENERS
    )]
    #[serde(deserialize_with = "file::address")]
    verbs: Option<SocketAddr>,
    /// Serve Prometheus metrics over HTTP here [default: off]
    #[arg(
        long,
        value_name = "ADDR:PORT",
        value_parser = units::address,
        help_heading = BESIDE
    )]
    #[serde(deserialize_with = "file::address")]
    metrics: Option<SocketAddr>,
    /// Serve NFS version 2 too, for old clients; its files end at 2 GiB [default: off]
    #[arg(long, value_name = "on|off")]
    #[serde(deserialize_with = "file::on_or_off")]
    nfs2: Option<Nfs2>,
    /// Minor versions of NFS version 4 to serve beside version 3 [default: 4.0,4.1,4.2]
    #[arg(long, value_name = "4.N,...|off", value_delimiter = ',')]
    #[serde(deserialize_with = "file::list")]
    nfs4: Vec<Nfs4Version>,
    /// Lease of NFS version 4, 10s to 1h: how long the server keeps the opens and locks of a silent client, and how long
    /// clients may reclaim them after a restart [default: 90s]
    #[arg(long, value_name = "TIME", value_parser = units::short_duration)]
    #[serde(deserialize_with = "file::duration")]
    lease: Option<Duration>,
    /// The form in which NFS version 4 sends owners and groups; it accepts both [default: numeric]
    #[arg(long, value_enum, value_name = "FORM")]
    idmap: Option<IdmapName>,
    /// The domain in names of owners and groups, `user@DOMAIN` [default: localdomain]
    #[arg(long, value_name = "DOMAIN")]
    idmap_domain: Option<String>,
    /// Log a warning for calls that take longer than this, and show them in `odafs top` [default: 100ms]
    #[arg(long, value_name = "TIME", value_parser = units::short_duration)]
    #[serde(deserialize_with = "file::duration")]
    slow_call: Option<Duration>,
    /// Keep here what must survive a restart: keys, identity and file handles [default: a directory below /var/lib/odafs
    /// (root) or $XDG_STATE_HOME/odafs]
    #[arg(long, value_name = "DIR")]
    state: Option<PathBuf>,
    /// Memory for the page cache; must be available at the start [default: 1GiB, or half of the available memory if
    /// that is less]
    #[arg(long, value_name = "SIZE", value_parser = units::size)]
    #[serde(deserialize_with = "file::size")]
    cache: Option<u64>,
    /// Size of a page of the cache: a power of two from 4KiB to 64KiB [default: 4KiB]
    #[arg(long, value_name = "SIZE", value_parser = units::size)]
    #[serde(deserialize_with = "file::size")]
    page: Option<u64>,
    /// Refuse every change (an archive is always read-only)
    #[arg(long, num_args = 0..=1, require_equals = true, default_missing_value = "true", value_name = "true|false", hide_possible_values = true)]
    read_only: Option<bool>,
    /// Admit clients at these addresses over TCP and RDMA, besides loopback; no-loopback shuts loopback out [may be
    /// repeated; default: loopback only]
    #[arg(long, value_name = "CIDR|no-loopback")]
    #[serde(deserialize_with = "file::list")]
    allow: Vec<Allow>,
    /// Let only those clients of other machines open sessions for direct reads whose public keys this file lists [may be
    /// repeated; default: all admitted clients]
    ///
    /// Each line is a key of 64 hexadecimal digits; `#` begins a comment. A client program sets its secret key and the
    /// server's public key (identity.pub in the state directory) in `Options::identity` and `Options::server_key`.
    #[arg(long, value_name = "KEYFILE")]
    #[serde(deserialize_with = "file::list")]
    admit: Vec<PathBuf>,
    /// Which user ids to accept from callers over TCP and RDMA [default: all]
    #[arg(long, value_enum, value_name = "WHO")]
    squash: Option<SquashName>,
    /// User id for callers whose own ids are not trusted: root with --squash root, everyone with --squash all [default:
    /// 65534; with --squash all the user that runs the server, if that is not root]
    #[arg(long, value_name = "N")]
    #[serde(deserialize_with = "file::number")]
    anonuid: Option<u32>,
    /// Group id for those callers; they get no supplementary groups [default: 65534, or as without --anonuid]
    #[arg(long, value_name = "N")]
    #[serde(deserialize_with = "file::number")]
    anongid: Option<u32>,
    /// With --squash root or none, believe callers on ports of 1024 and above too. Anyone who can run a program on an
    /// admitted machine, this one included, can then act as any user
    #[arg(long, num_args = 0..=1, require_equals = true, default_missing_value = "true", value_name = "true|false", hide_possible_values = true)]
    insecure: Option<bool>,
    /// Which direct reads of the cache's pages to grant [default: auto]
    #[arg(long, value_enum, value_name = "MODE")]
    direct: Option<DirectName>,
    /// Let these users read the whole cache from shared memory too, whatever the modes of the files: users and @groups,
    /// by name or number, or all. Grant this only on an export of which they may read every file [may be repeated]
    #[arg(long, value_name = "WHO,...", value_delimiter = ',')]
    #[serde(deserialize_with = "file::list")]
    one_sided_for: Vec<Named>,
    /// How long an engine polls without work before it sleeps, and how long a thread of NFS over TCP polls for the next
    /// of several consecutive calls [default: 50us]
    #[arg(long, value_name = "TIME", value_parser = units::short_duration)]
    #[serde(deserialize_with = "file::duration")]
    spin: Option<Duration>,
    /// Threads for calls that may block, and as many again for calls that sync, 1 to 1024 [default: 8]
    #[arg(long, value_name = "N")]
    #[serde(deserialize_with = "file::number")]
    workers: Option<usize>,
    /// Do not ask the kernel for 2 MiB pages of memory for the cache (asking takes about 2 s per GiB at the start)
    #[arg(long, num_args = 0..=1, require_equals = true, default_missing_value = "true", value_name = "true|false", hide_possible_values = true)]
    small_pages: Option<bool>,
    /// How many calls a client may have under way over RDMA, 1 to 1024; adaptive: as many as it needs, up to 256, of 1024
    /// for all clients [default: 128]
    #[arg(long, value_name = "N|adaptive", help_heading = "RDMA")]
    #[serde(deserialize_with = "file::credits")]
    credits: Option<CreditsOption>,
    /// How data moves over RDMA; read-read is for comparisons, with clients that ask for it [default: read-write]
    #[arg(long, value_enum, value_name = "DESIGN", help_heading = "RDMA")]
    design: Option<DesignName>,
    /// Let an RDMA device fetch pages of the cache on demand (on-demand paging), instead of pinning all of them
    #[arg(long, help_heading = "RDMA", num_args = 0..=1, require_equals = true, default_missing_value = "true", value_name = "true|false", hide_possible_values = true)]
    odp: Option<bool>,
    /// The order in which RDMA Reads see the cache, as the devices at both ends and the network guarantee it. If you
    /// promise more than they keep, clients accept torn pages (docs/RDMA.md, section 7) [default: fence]
    #[arg(long, value_enum, value_name = "ORDER", help_heading = "RDMA")]
    read_order: Option<ReadOrderName>,
    /// Where the memory for WRITE data comes from [default: cached]
    #[arg(long, value_enum, value_name = "HOW", help_heading = "RDMA")]
    registration: Option<RegistrationName>,
    /// Time that the engine spends on each registration, as hardware would; for comparing strategies [default: 0]
    #[arg(long, value_name = "TIME", value_parser = units::short_duration, help_heading = "RDMA")]
    #[serde(deserialize_with = "file::duration")]
    registration_cost: Option<Duration>,
    /// Time that the engine spends on each 4 KiB page that it pins [default: 0]
    #[arg(long, value_name = "TIME", value_parser = units::short_duration, help_heading = "RDMA")]
    #[serde(deserialize_with = "file::duration")]
    pinning_cost: Option<Duration>,
}

impl ServeOptions {
    /// Reads a TOML file.
    pub fn from_file(path: &Path) -> Result<Self> {
        let text = std::fs::read_to_string(path)
            .with_context(|| format!("--config: cannot read the TOML file {}", path.display()))?;
        match toml::from_str(&text) {
            Ok(options) => Ok(options),
            Err(error) => {
                let why = error.to_string();
                bail!(Usage(format!("{}: {}", path.display(), why.trim_end())))
            }
        }
    }

    /// These options, with those of `file` where these are not given.
    fn or(self, mut file: Self) -> Self {
        // One place says what is served: a directory here replaces exports there, and the reverse.
        if self.dir.is_some() && file.export.iter().any(Exported::is_directory) {
            file.export.clear();
        }
        if self.export.iter().any(Exported::is_directory) {
            file.dir = None;
        }
        Self {
            dir: self.dir.or(file.dir),
            export: if self.export.is_empty() {
                file.export
            } else {
                self.export
            },
            nfs: self.nfs.or(file.nfs),
            portmap: self.portmap.or(file.portmap),
            shm: self.shm.or(file.shm),
            shm_connections: self.shm_connections.or(file.shm_connections),
            rdma: self.rdma.or(file.rdma),
            verbs: self.verbs.or(file.verbs),
            metrics: self.metrics.or(file.metrics),
            nfs2: self.nfs2.or(file.nfs2),
            nfs4: if self.nfs4.is_empty() {
                file.nfs4
            } else {
                self.nfs4
            },
            lease: self.lease.or(file.lease),
            idmap: self.idmap.or(file.idmap),
            idmap_domain: self.idmap_domain.or(file.idmap_domain),
            slow_call: self.slow_call.or(file.slow_call),
            state: self.state.or(file.state),
            cache: self.cache.or(file.cache),
            page: self.page.or(file.page),
            read_only: self.read_only.or(file.read_only),
            allow: if self.allow.is_empty() {
                file.allow
            } else {
                self.allow
            },
            admit: if self.admit.is_empty() {
                file.admit
            } else {
                self.admit
            },
            squash: self.squash.or(file.squash),
            anonuid: self.anonuid.or(file.anonuid),
            anongid: self.anongid.or(file.anongid),
            insecure: self.insecure.or(file.insecure),
            direct: self.direct.or(file.direct),
            one_sided_for: if self.one_sided_for.is_empty() {
                file.one_sided_for
            } else {
                self.one_sided_for
            },
            spin: self.spin.or(file.spin),
            workers: self.workers.or(file.workers),
            small_pages: self.small_pages.or(file.small_pages),
            credits: self.credits.or(file.credits),
            design: self.design.or(file.design),
            odp: self.odp.or(file.odp),
            read_order: self.read_order.or(file.read_order),
            registration: self.registration.or(file.registration),
            registration_cost: self.registration_cost.or(file.registration_cost),
            pinning_cost: self.pinning_cost.or(file.pinning_cost),
        }
    }

    /// Takes a directory or an archive after `--shm`, which can be no socket, as the one to serve if no other is named.
    pub fn shm_before_dir(mut self) -> Self {
        match &self.shm {
            Some(Shm::At(path)) if self.dir.is_none() && (path.is_dir() || path.is_file()) => {
                self.dir = Some(path.clone());
                self.shm = Some(Shm::Default);
            }
            _ => {}
        }
        self
    }

    /// The server's configuration.
    pub fn server_config(self) -> Result<ServerConfig> {
        self.check()?;
        let mut config = self.served()?;
        self.listeners(&mut config)?;
        config.portmap = self.portmap;
        config.on_demand_paging = self.odp();
        config.read_order = self.read_order();
        config.rpc_rdma = self.rdma_config();
        config.cache_bytes = self.cache.unwrap_or_else(|| {
            let half = memory::available().map_or(u64::MAX, |available| available.bytes / 2);
            config.cache_bytes.min(half)
        });
        if let Some(bytes) = self.page {
            config.page =
                PageSize::new(bytes).map_err(|error| Usage(format!("--page: {error}")))?;
        }
        for path in &self.admit {
            config.admitted.extend(keys(path).context("--admit")?);
        }
        config.nfs2 = self.nfs2 == Some(Nfs2::On);
        if !self.nfs4.is_empty() {
            config.nfs4 = Nfs4Version::all_of(&self.nfs4)?;
        }
        config.lease = self.lease.unwrap_or(config.lease);
        config.owner_names = matches!(self.idmap, Some(IdmapName::Names));
        config.read_only = self.read_only();
        config.allow = self.allow.iter().filter_map(Allow::network).collect();
        config.loopback = !self.allow.contains(&Allow::NoLoopback);
        config.insecure = self.insecure();
        config.squash = self.squash.map_or(Squash::All, Squash::from);
        config.anonymous = Anonymous {
            uid: self.anonuid,
            gid: self.anongid,
        };
        config.direct = self.direct.map_or(config.direct, Direct::from);
        config.one_sided_for = self.one_sided_for.iter().map(|named| named.0).collect();
        config.spin = self.spin.unwrap_or(config.spin);
        config.slow_call = self.slow_call.unwrap_or(config.slow_call);
        config.workers = self.workers.unwrap_or(config.workers);
        config.huge_pages = !self.small_pages();
        config.owner_domain = self.idmap_domain.unwrap_or(config.owner_domain);
        config.state = self.state;
        config.check().map_err(Usage)?;
        Ok(config)
    }

    /// With what is served, and the rest as by default.
    fn served(&self) -> Result<ServerConfig> {
        match exports::Served::of(&self.export, self.dir.as_deref())? {
            exports::Served::One {
                name,
                dir: Some(dir),
            } => {
                check_served(dir)?;
                let mut config = ServerConfig::new(dir);
                config.export = name.map_or(config.export, str::to_owned);
                Ok(config)
            }
            exports::Served::One { dir: None, .. } => {
                let taken = match self.shm.as_ref().and_then(Shm::socket) {
                    Some(socket) => format!(" ({} is the socket of --shm)", socket.display()),
                    None => String::new(),
                };
                bail!(Usage(format!(
                    "the directory to serve is missing; name one, or a tar archive: odafs serve DIR{taken}"
                )));
            }
            exports::Served::Several(all) => {
                for export in &all {
                    exports::check_options(export)?;
                    check_served(&export.directory)?;
                }
                let first = all.first().map(|export| export.directory.clone());
                let mut config = ServerConfig::new(first.unwrap_or_default());
                config.exports = all;
                Ok(config)
            }
        }
    }

    fn read_only(&self) -> bool {
        self.read_only == Some(true)
    }

    fn insecure(&self) -> bool {
        self.insecure == Some(true)
    }

    fn small_pages(&self) -> bool {
        self.small_pages == Some(true)
    }

    fn odp(&self) -> bool {
        self.odp == Some(true)
    }

    fn read_order(&self) -> ReadOrder {
        match self.read_order {
            None | Some(ReadOrderName::Fence) => ReadOrder::Fence,
            Some(ReadOrderName::Rising) => ReadOrder::Rising,
            Some(ReadOrderName::Ordered) => ReadOrder::Ordered,
        }
    }

    fn names_listeners(&self) -> bool {
        let shm = !matches!(self.shm, None | Some(Shm::Off));
        self.nfs.is_some() || self.rdma.is_some() || shm || self.verbs.is_some()
    }

    /// Sets the listeners that the options name, or the default ones if they name none.
    fn listeners(&self, config: &mut ServerConfig) -> Result<()> {
        let named = self.names_listeners();
        let or = |given: Option<SocketAddr>, default| given.or((!named).then_some(default));
        config.nfs = or(self.nfs, listeners::DEFAULT_NFS);
        config.rdma = or(self.rdma, listeners::DEFAULT_RDMA);
        config.shm_connections = self.shm_connections.unwrap_or(config.shm_connections);
        config.verbs = self.verbs;
        config.metrics = self.metrics;
        config.shm = match &self.shm {
            Some(Shm::At(path)) => Some(path.clone()),
            Some(Shm::Off) => None,
            None if named => None,
            Some(Shm::Default) | None => Some(listeners::default_socket()?),
        };
        if let Some(path) = &config.shm {
            checks::check_socket(path)?;
        }
        let on_network = config.nfs.or(config.rdma).or(config.verbs).is_some();
        let counts = config.exports.is_empty() || config.exports.iter().any(|e| e.allow.is_none());
        if on_network && counts && self.allow == [Allow::NoLoopback] {
            bail!(Usage(
                "--allow no-loopback: this admits nobody over TCP and RDMA; name a network with --allow too".to_owned()
            ));
        }
        Ok(())
    }

    fn rdma_config(&self) -> RdmaConfig {
        RdmaConfig {
            credits: self.credits.map_or(Credits::default(), |credits| credits.0),
            read_read: matches!(self.design, Some(DesignName::ReadRead)),
            registration: RegistrationConfig {
                strategy: self
                    .registration
                    .map_or(Strategy::default(), Strategy::from),
                costs: Costs {
                    operation: self.registration_cost.unwrap_or_default().into(),
                    page: self.pinning_cost.unwrap_or_default().into(),
                },
                ..RegistrationConfig::default()
            },
            ..RdmaConfig::default()
        }
    }
}

#[cfg(test)]
#[path = "config_tests.rs"]
mod tests;
