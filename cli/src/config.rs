//! The options of `odafs serve`, from the command line and from a file.

use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use clap::{Args, ValueEnum};
use ipnet::IpNet;
use odafs_common::page::PageSize;
use odafs_fabric::ReadOrder;
use odafs_server::config::{
    Costs, Credits, Direct, MinorVersions, RdmaConfig, RegistrationConfig, ServerConfig, Squash,
    Strategy,
};
use odafs_server::memory;
use serde::{Deserialize, Deserializer};

mod checks;
mod exports;

pub use checks::{check_directory, check_served};
use exports::Exported;

use crate::grantee::Named;
use crate::keys::keys;
use crate::{Usage, listeners, units};

/// What may be said on the command line and, under the same names, in a file.
#[derive(Args, Default, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
pub struct ServeOptions {
    /// The directory to serve, or a tar archive that is not compressed
    #[arg(value_name = "DIR")]
    dir: Option<PathBuf>,
    /// Name of the export; URLs and mounts begin with it [default: /]. In place of DIR, once for each of several exports:
    /// /NAME=DIR, or /NAME=DIR,read-only
    #[arg(long, value_name = "/NAME[=DIR]")]
    #[serde(deserialize_with = "exports::one_or_more")]
    export: Vec<Exported>,
    /// Serve NFS, MOUNT and the portmapper's protocol over TCP here [default: 127.0.0.1:2049]
    #[arg(
        long,
        value_name = "ADDR:PORT",
        value_parser = units::address,
        help_heading = "Listeners (with none named: --nfs, --rdma and --shm)"
    )]
    nfs: Option<SocketAddr>,
    /// Tell clients of NFS version 3 here where the lock manager is, over TCP and UDP. They look for it at port 111, which
    /// needs root, and which rpcbind must have left. Without it they mount with nolock [default: off]
    #[arg(
        long,
        value_name = "ADDR:PORT",
        value_parser = units::address,
        help_heading = "Listeners (with none named: --nfs, --rdma and --shm)"
    )]
    portmap: Option<SocketAddr>,
    /// Serve shared memory through this socket, or through odafs.sock in the runtime directory. (A directory behind
    /// --shm is no socket: it is DIR, if no other is named)
    #[arg(
        long,
        value_name = "SOCKET",
        help_heading = "Listeners (with none named: --nfs, --rdma and --shm)"
    )]
    #[serde(deserialize_with = "socket")]
    shm: Option<Option<PathBuf>>,
    /// Connections of one user over shared memory, with 2 MiB of memory for each; a client makes four, one with many
    /// threads more [default: 8192]
    #[arg(
        long,
        value_name = "N",
        help_heading = "Listeners (with none named: --nfs, --rdma and --shm)"
    )]
    shm_connections: Option<u32>,
    /// Serve NFS over RDMA and direct reads here, by iWARP over TCP [default: 127.0.0.1:20049]
    #[arg(
        long,
        value_name = "ADDR:PORT",
        value_parser = units::address,
        help_heading = "Listeners (with none named: --nfs, --rdma and --shm)"
    )]
    rdma: Option<SocketAddr>,
    /// Serve NFS over RDMA and direct reads here, by an RDMA device (`odafs devices` shows the addresses) [default: off]
    #[arg(
        long,
        value_name = "ADDR:PORT",
        value_parser = units::address,
        help_heading = "Listeners (with none named: --nfs, --rdma and --shm)"
    )]
    verbs: Option<SocketAddr>,
    /// Serve Prometheus metrics over HTTP here [default: off]
    #[arg(
        long,
        value_name = "ADDR:PORT",
        value_parser = units::address,
        help_heading = "Listeners (with none named: --nfs, --rdma and --shm)"
    )]
    metrics: Option<SocketAddr>,
    /// Minor versions of NFS 4 to serve beside version 3: of 4.0, 4.1 and 4.2, or off [default: all three]
    #[arg(long, value_name = "4.N,...|off", value_delimiter = ',')]
    nfs4: Vec<Nfs4Version>,
    /// How long opens and locks of NFS version 4 live without a sign of their client, and how long clients have to reclaim
    /// them after a restart, 10s to 1h [default: 90s]
    #[arg(long, value_name = "TIME", value_parser = units::short_duration)]
    #[serde(deserialize_with = "duration")]
    lease: Option<Duration>,
    /// Warn in the log of calls that take longer, and show them in `odafs top` [default: 100ms]
    #[arg(long, value_name = "TIME", value_parser = units::short_duration)]
    #[serde(deserialize_with = "duration")]
    slow_call: Option<Duration>,
    /// What must survive a restart is kept here [default: below /var/lib/odafs or $XDG_STATE_HOME/odafs]
    #[arg(long, value_name = "DIR")]
    state: Option<PathBuf>,
    /// Memory for the page cache, no more than is available [default: 1GiB, or half of what is if that is less]
    #[arg(long, value_name = "SIZE", value_parser = units::size)]
    #[serde(deserialize_with = "size")]
    cache: Option<u64>,
    /// Size of a page of the cache, 4KiB to 64KiB [default: 4KiB]
    #[arg(long, value_name = "SIZE", value_parser = units::size)]
    #[serde(deserialize_with = "size")]
    page: Option<u64>,
    /// Refuse every change, as for an archive in any case
    #[arg(long)]
    read_only: bool,
    /// Let these addresses in over TCP and RDMA, beside loopback; no-loopback leaves that out [may be repeated]
    #[arg(long, value_name = "CIDR|no-loopback")]
    allow: Vec<Allow>,
    /// Of other machines, let those open sessions whose public keys stand in this file [may be repeated]
    ///
    /// A key is 64 hexadecimal digits; one a line, `#` begins a comment. Their own secret and the server's key
    /// (identity.pub in the state directory) the clients give by Options.
    #[arg(long, value_name = "KEYFILE")]
    admit: Vec<PathBuf>,
    /// Whose rights TCP callers have [default: all]
    #[arg(long, value_enum, value_name = "WHO")]
    squash: Option<SquashName>,
    /// With --squash root and none: believe callers on ports of 1024 and above too. Then whoever runs a program on a machine
    /// that is let in, this one included, can be any user
    #[arg(long)]
    insecure: bool,
    /// Direct reads of the cache's pages [default: auto]
    #[arg(long, value_enum, value_name = "MODE")]
    direct: Option<DirectName>,
    /// Let these too read the whole cache from shared memory, whatever the files' modes say: users, @groups (names or
    /// numbers), or all. For an export that they may read all of [may be repeated]
    #[arg(long, value_name = "WHO,...", value_delimiter = ',')]
    one_sided_for: Vec<Named>,
    /// How long an engine polls without finding work before it sleeps, and a thread for NFS over TCP for the next of
    /// calls that follow each other [default: 50us]
    #[arg(long, value_name = "TIME", value_parser = units::short_duration)]
    #[serde(deserialize_with = "duration")]
    spin: Option<Duration>,
    /// Threads for what may block, and as many for what syncs, 1 to 1024 [default: 8]
    #[arg(long, value_name = "N")]
    workers: Option<usize>,
    /// Do not ask for 2 MiB pages of memory behind the cache (they take about 2 s a GiB at the start)
    #[arg(long)]
    small_pages: bool,
    /// Calls that a client may have under way over RDMA; adaptive: as many as it needs and there are [default: 128]
    #[arg(long, value_name = "N|adaptive", help_heading = "RDMA")]
    credits: Option<CreditsOption>,
    /// How data goes over RDMA; read-read is for comparisons, with clients that ask for it [default: read-write]
    #[arg(long, value_enum, value_name = "DESIGN", help_heading = "RDMA")]
    design: Option<DesignName>,
    /// Let an RDMA device fetch pages of the cache on demand (on-demand paging), in place of pinning all of it
    #[arg(long, help_heading = "RDMA")]
    odp: bool,
    /// In which order RDMA Reads see the cache, by the devices at both ends and the network. Where it is not as you say, torn
    /// pages pass (docs/RDMA.md, section 7) [default: fence]
    #[arg(long, value_enum, value_name = "ORDER", help_heading = "RDMA")]
    read_order: Option<ReadOrderName>,
    /// Where memory for WRITE data comes from [default: cached]
    #[arg(long, value_enum, value_name = "HOW", help_heading = "RDMA")]
    registration: Option<RegistrationName>,
    /// Time that the engine spends on a registration, as hardware would, to compare strategies [default: 0]
    #[arg(long, value_name = "TIME", value_parser = units::short_duration, help_heading = "RDMA")]
    #[serde(deserialize_with = "duration")]
    registration_cost: Option<Duration>,
    /// The same for each page of 4 KiB that is pinned [default: 0]
    #[arg(long, value_name = "TIME", value_parser = units::short_duration, help_heading = "RDMA")]
    #[serde(deserialize_with = "duration")]
    pinning_cost: Option<Duration>,
}

/// What `--allow` says.
#[derive(Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(try_from = "String")]
enum Allow {
    Network(IpNet),
    NoLoopback,
}

impl Allow {
    fn network(&self) -> Option<IpNet> {
        match self {
            Self::Network(network) => Some(*network),
            Self::NoLoopback => None,
        }
    }
}

impl FromStr for Allow {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if text == "no-loopback" {
            return Ok(Self::NoLoopback);
        }
        let network = text
            .parse()
            .or_else(|_| text.parse().map(|address: IpAddr| address.into()));
        network
            .map(Self::Network)
            .map_err(|_| "say a network such as 10.0.0.0/8, an address, or no-loopback".to_owned())
    }
}

impl TryFrom<String> for Allow {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        text.parse()
    }
}

/// What `--nfs4` says.
#[derive(Clone, Copy, PartialEq, Eq, ValueEnum, Deserialize)]
enum Nfs4Version {
    /// RFC 7530
    #[value(name = "4.0")]
    #[serde(rename = "4.0")]
    Minor0,
    /// RFC 8881
    #[value(name = "4.1")]
    #[serde(rename = "4.1")]
    Minor1,
    /// RFC 7862
    #[value(name = "4.2")]
    #[serde(rename = "4.2")]
    Minor2,
    /// None of them
    #[serde(rename = "off")]
    Off,
}

impl Nfs4Version {
    fn all_of(named: &[Self]) -> Result<MinorVersions> {
        if named.contains(&Self::Off) && named.len() > 1 {
            bail!(Usage("--nfs4: name versions, or off alone".to_owned()));
        }
        Ok(named
            .iter()
            .fold(MinorVersions::NONE, |all, version| match version {
                Self::Minor0 => all.with(0),
                Self::Minor1 => all.with(1),
                Self::Minor2 => all.with(2),
                Self::Off => all,
            }))
    }
}

#[derive(Clone, Copy, ValueEnum, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum SquashName {
    /// Everyone acts as the serving user (nobody, if that is root)
    All,
    /// The caller's ids count, but root becomes nobody
    Root,
    /// The caller's ids count
    None,
}

#[derive(Clone, Copy, ValueEnum, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum DirectName {
    /// On this machine root and the serving user, who may read the files anyway, read the cache's memory themselves; all
    /// others guarded
    Auto,
    /// The server's engine checks every request and moves the data
    Guarded,
    /// As auto, and all clients of other machines read the cache's memory themselves too
    OneSided,
    /// None: calls only
    Off,
}

impl ServeOptions {
    /// Reads a TOML file.
    pub fn from_file(path: &Path) -> Result<Self> {
        let text = std::fs::read_to_string(path)
            .with_context(|| format!("cannot read {}", path.display()))
            .context("--config names a TOML file of options")?;
        match toml::from_str(&text) {
            Ok(options) => Ok(options),
            Err(error) => bail!(Usage(format!("{}: {error}", path.display()))),
        }
    }

    /// These options, with `file` for what they leave open.
    fn or(self, mut file: Self) -> Self {
        // What is served is said in one place: a directory here goes before exports there, and the reverse.
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
            nfs4: if self.nfs4.is_empty() {
                file.nfs4
            } else {
                self.nfs4
            },
            lease: self.lease.or(file.lease),
            slow_call: self.slow_call.or(file.slow_call),
            state: self.state.or(file.state),
            cache: self.cache.or(file.cache),
            page: self.page.or(file.page),
            read_only: self.read_only || file.read_only,
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
            insecure: self.insecure || file.insecure,
            direct: self.direct.or(file.direct),
            one_sided_for: if self.one_sided_for.is_empty() {
                file.one_sided_for
            } else {
                self.one_sided_for
            },
            spin: self.spin.or(file.spin),
            workers: self.workers.or(file.workers),
            small_pages: self.small_pages || file.small_pages,
            credits: self.credits.or(file.credits),
            design: self.design.or(file.design),
            odp: self.odp || file.odp,
            read_order: self.read_order.or(file.read_order),
            registration: self.registration.or(file.registration),
            registration_cost: self.registration_cost.or(file.registration_cost),
            pinning_cost: self.pinning_cost.or(file.pinning_cost),
        }
    }

    /// A directory or an archive is no socket, so it is the one to serve if that is still open.
    pub fn shm_before_dir(mut self) -> Self {
        match &self.shm {
            Some(Some(path)) if self.dir.is_none() && (path.is_dir() || path.is_file()) => {
                self.dir = self.shm.replace(None).flatten();
            }
            _ => {}
        }
        self
    }

    /// What the server is asked to do.
    pub fn server_config(self) -> Result<ServerConfig> {
        self.check()?;
        let mut config = self.served()?;
        self.listeners(&mut config)?;
        config.portmap = self.portmap;
        config.on_demand_paging = self.odp;
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
            config
                .admitted
                .extend(keys(path).context("--admit names a file of public keys, one a line")?);
        }
        if !self.nfs4.is_empty() {
            config.nfs4 = Nfs4Version::all_of(&self.nfs4)?;
        }
        config.lease = self.lease.unwrap_or(config.lease);
        config.state = self.state;
        config.read_only = self.read_only;
        config.allow = self.allow.iter().filter_map(Allow::network).collect();
        config.loopback = !self.allow.contains(&Allow::NoLoopback);
        config.insecure = self.insecure;
        config.squash = self.squash.map_or(Squash::All, Squash::from);
        config.direct = self.direct.map_or(config.direct, Direct::from);
        config.one_sided_for = self.one_sided_for.iter().map(|named| named.0).collect();
        config.spin = self.spin.unwrap_or(config.spin);
        config.slow_call = self.slow_call.unwrap_or(config.slow_call);
        config.workers = self.workers.unwrap_or(config.workers);
        config.huge_pages = !self.small_pages;
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
                let taken = match &self.shm {
                    Some(Some(socket)) => {
                        format!(" ({} is the socket of --shm)", socket.display())
                    }
                    _ => String::new(),
                };
                bail!(Usage(format!(
                    "which directory? Name one, or a tar archive: odafs serve DIR{taken}"
                )));
            }
            exports::Served::Several(all) => {
                for export in &all {
                    check_served(&export.directory)?;
                }
                let first = all.first().map(|export| export.directory.clone());
                let mut config = ServerConfig::new(first.unwrap_or_default());
                config.exports = all;
                Ok(config)
            }
        }
    }

    fn read_order(&self) -> ReadOrder {
        match self.read_order {
            None | Some(ReadOrderName::Fence) => ReadOrder::Fence,
            Some(ReadOrderName::Rising) => ReadOrder::Rising,
            Some(ReadOrderName::Ordered) => ReadOrder::Ordered,
        }
    }

    fn names_listeners(&self) -> bool {
        self.nfs.is_some() || self.rdma.is_some() || self.shm.is_some() || self.verbs.is_some()
    }

    /// Those that are named; with none named, those of this machine.
    fn listeners(&self, config: &mut ServerConfig) -> Result<()> {
        let named = self.names_listeners();
        let or = |given: Option<SocketAddr>, default| given.or((!named).then_some(default));
        config.nfs = or(self.nfs, listeners::DEFAULT_NFS);
        config.rdma = or(self.rdma, listeners::DEFAULT_RDMA);
        config.shm_connections = self.shm_connections.unwrap_or(config.shm_connections);
        config.verbs = self.verbs;
        config.metrics = self.metrics;
        config.shm = match &self.shm {
            Some(Some(path)) => Some(path.clone()),
            None if named => None,
            _ => Some(listeners::default_socket()?),
        };
        if let Some(path) = &config.shm {
            checks::check_socket(path)?;
        }
        let on_network = config.nfs.or(config.rdma).or(config.verbs).is_some();
        if on_network && self.allow == [Allow::NoLoopback] {
            bail!(Usage(
                "--allow no-loopback: then nobody is let in over TCP and RDMA; name those who are with --allow too".to_owned()
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

impl From<SquashName> for Squash {
    fn from(name: SquashName) -> Self {
        match name {
            SquashName::All => Self::All,
            SquashName::Root => Self::Root,
            SquashName::None => Self::None,
        }
    }
}

impl From<DirectName> for Direct {
    fn from(name: DirectName) -> Self {
        match name {
            DirectName::Auto => Self::Auto,
            DirectName::Guarded => Self::Guarded,
            DirectName::OneSided => Self::OneSided,
            DirectName::Off => Self::Off,
        }
    }
}

impl From<RegistrationName> for Strategy {
    fn from(name: RegistrationName) -> Self {
        match name {
            RegistrationName::PerOperation => Self::PerOperation,
            RegistrationName::Pooled => Self::Pooled,
            RegistrationName::Cached => Self::Cached,
            RegistrationName::AllPhysical => Self::AllPhysical,
        }
    }
}

/// Credits of all clients together, and of one, where they are adaptive.
const ADAPTIVE: Credits = Credits::Adaptive {
    all: 1024,
    max: 256,
};
/// The most that a client may be granted.
const CREDITS_MAX: u32 = 1024;

/// A number, or `adaptive`.
#[derive(Clone, Copy)]
struct CreditsOption(Credits);

impl FromStr for CreditsOption {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if text == "adaptive" {
            return Ok(Self(ADAPTIVE));
        }
        match text.parse() {
            Ok(credits @ 1..=CREDITS_MAX) => Ok(Self(Credits::Fixed(credits))),
            _ => Err(format!("credits are 1 to {CREDITS_MAX}, or adaptive")),
        }
    }
}

impl<'de> Deserialize<'de> for CreditsOption {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        #[serde(untagged)]
        enum Value {
            Number(u32),
            Text(String),
        }
        let text = match Value::deserialize(from)? {
            Value::Number(number) => number.to_string(),
            Value::Text(text) => text,
        };
        text.parse().map_err(serde::de::Error::custom)
    }
}

#[derive(Clone, Copy, ValueEnum, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum DesignName {
    /// The server reads and writes the client's memory, and exposes none of its own
    ReadWrite,
    /// Clients of this kind fetch replies from the server's memory, and say when they have
    ReadRead,
}

#[derive(Clone, Copy, ValueEnum, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum ReadOrderName {
    /// Any: a page's stamp is asked for when the page is there
    Fence,
    /// From front to back within a read: a page comes with its stamp in one read
    Rising,
    /// The same, and reads in the order of their posts: a stamp is asked for together with its page
    Ordered,
}

#[derive(Clone, Copy, ValueEnum, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum RegistrationName {
    /// Registered for each call
    PerOperation,
    /// Registered once, under a fresh tag for each call
    Pooled,
    /// Registered once, and used again
    Cached,
    /// Free frames of the page cache
    AllPhysical,
}

fn size<'de, D: Deserializer<'de>>(from: D) -> Result<Option<u64>, D::Error> {
    #[derive(Deserialize)]
    #[serde(untagged)]
    enum Size {
        Bytes(u64),
        Text(String),
    }
    match Size::deserialize(from)? {
        Size::Bytes(bytes) => Ok(Some(bytes)),
        Size::Text(text) => units::size(&text)
            .map(Some)
            .map_err(serde::de::Error::custom),
    }
}

fn duration<'de, D: Deserializer<'de>>(from: D) -> Result<Option<Duration>, D::Error> {
    units::short_duration(&String::deserialize(from)?)
        .map(Some)
        .map_err(serde::de::Error::custom)
}

/// `shm = true` is the default socket, as `--shm` alone is.
fn socket<'de, D: Deserializer<'de>>(from: D) -> Result<Option<Option<PathBuf>>, D::Error> {
    #[derive(Deserialize)]
    #[serde(untagged)]
    enum Socket {
        Wanted(bool),
        Path(PathBuf),
    }
    Ok(match Socket::deserialize(from)? {
        Socket::Wanted(true) => Some(None),
        Socket::Wanted(false) => None,
        Socket::Path(path) => Some(Some(path)),
    })
}

#[cfg(test)]
#[path = "config_tests.rs"]
mod tests;
