//! A running server: everything wired together.

use std::io;
use std::net::{SocketAddr, TcpListener, UdpSocket};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::SystemTime;

use odafs_common::page::Layout;
use odafs_common::session::Identity;
use odafs_fabric::memory::{Arena, ArenaConfig, LifeWord};
use odafs_fabric::{Listener, ReadOrder};
use odafs_fabric::{iwarp, shm, verbs};
use odafs_nic::calls::Transport;
use odafs_nic::engine::{EngineConfig, RdmaConfig};
use odafs_nic::nic::NicConfig;

mod reload;

use crate::nfs4;
use crate::nlm4;
use crate::odafs::{GivenRecord, SessionPolicy};
use crate::process::assembly::{Assembly, Parts, Ports};
use crate::process::config::{Direct, ExportOptions, ServerConfig};
use crate::process::datagrams::Datagrams;
use crate::process::exports;
use crate::process::memory;
use crate::process::metrics_http::MetricsServer;
use crate::process::names::NameServices;
use crate::process::peers::Callers;
use crate::process::watch::Watch;
use crate::rpc::access::Access;
use crate::rpc::tcp::{self, TcpServer};
use crate::store::state::StateDir;
use crate::store::table;
use crate::store::{Credential, LocalOptions, Store};
use crate::vfs::export::ExportsConfig;

/// The addresses on which a server listens, with the real ports. `None` stands for a listener that is not open.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Addresses {
    /// Address of NFS, MOUNT, the lock manager and the portmapper over TCP.
    pub nfs: Option<SocketAddr>,
    /// A further address of the portmapper, over TCP and UDP.
    pub portmap: Option<SocketAddr>,
    /// Address of iWARP over TCP.
    pub rdma: Option<SocketAddr>,
    /// Path of the shared-memory fabric's Unix socket.
    pub shm: Option<PathBuf>,
    /// Address of the RDMA device.
    pub verbs: Option<SocketAddr>,
    /// Address of the metrics over HTTP.
    pub metrics: Option<SocketAddr>,
}

/// Why a server did not start. The text names the thing, the cause and the remedy. There is no `source` besides.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The state directory cannot be used.
    #[error(transparent)]
    State(#[from] crate::store::state::StateError),
    /// The system refused something.
    #[error("cannot {action}: {source}")]
    Io {
        /// What was tried.
        action: String,
        /// The option that asked for it.
        option: Option<&'static str>,
        /// Why it failed.
        r#source: io::Error,
    },
    /// The server cannot meet an option.
    #[error("{0}")]
    Config(String),
    /// The page cache does not fit in memory. Sooner or later the kernel would kill this process or another.
    #[error(
        "a page cache of {asked} bytes does not fit in memory: this process can use {} bytes ({}); name a smaller one with --cache",
        available.bytes, available.bound
    )]
    Memory {
        /// Size of the cache in bytes.
        asked: u64,
        /// The memory that is available.
        available: memory::Available,
    },
}

/// Adds what was tried to an error.
fn trying<T>(action: impl Into<String>, result: io::Result<T>) -> Result<T, StartError> {
    result.map_err(|source| StartError::Io {
        action: action.into(),
        option: None,
        source,
    })
}

/// Adds the address of a listener to an error, and the option that asked for it.
fn listening<T>(
    place: impl std::fmt::Display,
    option: &'static str,
    result: io::Result<T>,
) -> Result<T, StartError> {
    result.map_err(|source| StartError::Io {
        action: format!("listen on {place} ({option})"),
        option: Some(option),
        source,
    })
}

/// A running server. Dropping it stops it.
pub struct Server {
    addresses: Addresses,
    config: ServerConfig,
    // Dropped in this order: what brings calls, what serves them, the lock on the state directory.
    tcp: Option<TcpServer>,
    portmap: Option<(TcpServer, Datagrams)>,
    metrics: Option<MetricsServer>,
    assembly: Assembly,
    _state: Arc<StateDir>,
}

/// The file of the state directory that lists the clients of NFS version 4 that may reclaim what they held.
const NFS4_CLIENTS: &str = "nfs4-clients";
/// The file of the state directory that lists the files of which these have write delegations.
const NFS4_FILES: &str = "nfs4-files";
/// The file of the state directory that lists the clients of NFS version 3 that hold locks.
const NLM_CLIENTS: &str = "nlm-clients";
/// The file of the state directory that says whether clients of the ODAFS program were given delegations.
const DELEGATIONS: &str = "delegations";
/// Threads that serve connections over TCP.
const TCP_THREADS: usize = 2;

impl Server {
    /// Opens the state, the store and the listeners, and serves until [`Server::shutdown`] or until it is dropped.
    ///
    /// # Errors
    /// The server cannot start with these options on this machine. The text says why, and what to do.
    pub fn start(config: ServerConfig) -> Result<Server, StartError> {
        Self::start_with(config, store)
    }

    /// As [`Server::start`], with a store of the caller's own. `open` returns the store, and may keep files in the state
    /// directory. [`ServerConfig::directory`] then decides only the default place of that directory.
    ///
    /// # Errors
    /// As [`Server::start`], and the errors of `open`.
    pub fn start_with(
        config: ServerConfig,
        open: impl FnOnce(&ServerConfig, &StateDir) -> io::Result<Arc<dyn Store>>,
    ) -> Result<Server, StartError> {
        config.check().map_err(StartError::Config)?;
        let asked = config.cache_bytes;
        if let Some(available) = memory::available().filter(|there| there.bytes < asked) {
            return Err(StartError::Memory { asked, available });
        }
        let state = Arc::new(match config.exports.as_slice() {
            [] => StateDir::open(config.state.as_deref(), &config.directory)?,
            _ => StateDir::open_of_exports(config.state.as_deref())?,
        });
        // This process holds the lock, so its predecessor is dead or stopping. The new life word makes the predecessor's
        // mappings worthless. Only then may anything be accepted.
        let life = trying(
            "make the life word",
            LifeWord::create(&state.life_file(), state.life()),
        )?;
        let mut doors = Doors::open(&config)?;
        let addresses = doors.addresses.clone();

        let ports = Ports::default();
        for (port, address) in [(&ports.tcp, addresses.nfs), (&ports.udp, addresses.portmap)] {
            if let Some(address) = address {
                port.set(address.port());
            }
        }
        let action = match config.exports.as_slice() {
            [] => format!("serve {}", config.directory.display()),
            _ => "serve the exports".to_owned(),
        };
        let store = trying(action, open(&config, &state))?;
        let parts = parts(&config, &state, store, life, ports)?;
        if let Some(listener) = doors.device.take() {
            // This shows whether so much memory may be pinned.
            let prepared = listener.prepare(&parts.arena, config.direct == Direct::OneSided);
            trying("register the page cache with the RDMA device", prepared)?;
            doors.fabrics.push((Box::new(listener), Transport::Verbs));
        }
        if let Some(path) = &config.shm {
            // Now that the cache's memory is there, which may take seconds: a client that finds the socket is served.
            let limits = shm::Limits::of_connections(config.shm_connections);
            let listener = listening("shared memory", "--shm", shm::Listener::bind(path, limits))?;
            doors.fabrics.push((Box::new(listener), Transport::Shm));
        }
        let assembly = trying("start the engine", Assembly::start(parts, doors.fabrics))?;
        assembly.service().report_slow(config.slow_call.into());
        let tcp = doors.nfs.map(|listener| {
            let (calls, workers) = (assembly.calls(), assembly.workers());
            let access = Arc::clone(assembly.service().access());
            TcpServer::start(
                listener,
                TCP_THREADS,
                calls,
                workers,
                tcp::Limits {
                    spin: config.spin,
                    ..tcp::Limits::default()
                },
                move |address| access.admits_address(address),
            )
        });
        let tcp = trying("serve NFS", tcp.transpose())?;
        let portmap = doors.portmap.map(|doors| serve_portmap(doors, &assembly));
        let portmap = trying("serve the portmapper", portmap.transpose())?;
        if tcp.is_some() && portmap.is_none() {
            tracing::info!(
                "clients of NFS version 3 have to mount with nolock: no --portmap ADDR:111 tells them of the lock manager"
            );
        }
        let metrics = doors.metrics.map(|listener| {
            let watch = Watch::new(&assembly, tcp.as_ref());
            MetricsServer::start(listener, Arc::new(move |path| watch.page(path)))
        });
        let metrics = trying("serve metrics", metrics.transpose())?;
        Ok(Server {
            addresses,
            config,
            tcp,
            portmap,
            metrics,
            assembly,
            _state: state,
        })
    }

    /// The addresses on which the server listens.
    pub fn addresses(&self) -> &Addresses {
        &self.addresses
    }

    /// The parts of the server, for programs that embed it.
    pub fn assembly(&self) -> &Assembly {
        &self.assembly
    }

    /// Drains and stops: the server takes no new connections, makes references worthless, and finishes calls under
    /// way.
    pub fn shutdown(mut self) {
        self.assembly.poison();
        if let Some(tcp) = self.tcp.take() {
            tcp.shutdown();
        }
        self.portmap.take();
        self.metrics.take();
        self.assembly.stop();
    }
}

/// Serves the portmapper at its further address, and the status monitor over UDP.
fn serve_portmap(
    (listener, socket): (TcpListener, UdpSocket),
    assembly: &Assembly,
) -> io::Result<(TcpServer, Datagrams)> {
    let (calls, workers) = (assembly.calls(), assembly.workers());
    let access = Arc::clone(assembly.service().access());
    let limits = tcp::Limits {
        connections: 256,
        ..tcp::Limits::default()
    };
    let listed = move |address| access.admits_address(address);
    let tcp = TcpServer::start(listener, 1, calls, workers, limits, listed)?;
    let udp = Datagrams::start(socket, Arc::clone(assembly.service()))?;
    Ok((tcp, udp))
}

/// Opens a directory or an archive, or the table of several.
fn store(config: &ServerConfig, state: &StateDir) -> io::Result<Arc<dyn Store>> {
    if !config.exports.is_empty() {
        return exports::open(config, state);
    }
    let options = LocalOptions {
        read_only: config.read_only,
        ..LocalOptions::default()
    };
    exports::open_one(&config.directory, state, options)
}

/// The options of NFS version 4, if any minor version is served.
fn version_4(config: &ServerConfig, state: &Arc<StateDir>) -> io::Result<Option<nfs4::Config>> {
    let (text, mut keep) = kept(state, NFS4_CLIENTS)?;
    if !config.nfs4.any() {
        // This server changes what they held without asking: no later one may let them reclaim it.
        if !text.is_empty() {
            keep("")?;
        }
        return Ok(None);
    }
    let (files, keep_files) = kept(state, NFS4_FILES)?;
    Ok(Some(nfs4::Config {
        minors: config.nfs4,
        lease: config.lease.into(),
        boot: state
            .next_boot(seconds_since_1970())
            .map_err(io::Error::other)?,
        records: nfs4::Records::read(&text, keep).naming_files(&files, keep_files),
        owners: nfs4::OwnersConfig {
            names: config.owner_names,
            domain: config.owner_domain.clone(),
            directory: Some(Arc::new(NameServices)),
        },
        cached_bytes: nfs4::CACHED_BYTES,
    }))
}

/// The options of locks for NFS version 3.
fn locks(config: &ServerConfig, state: &Arc<StateDir>) -> io::Result<nlm4::Config> {
    let (text, keep) = kept(state, NLM_CLIENTS)?;
    Ok(nlm4::Config {
        // An odd state says that the server runs.
        state: (state.life() as u32) << 1 | 1,
        grace: config.lease.into(),
        records: nlm4::Records::read(&text, keep),
        peers: Some(Arc::new(Callers::start()?)),
    })
}

/// Whether an earlier server gave delegations to clients of the ODAFS program, and how to keep that this one does.
fn given(state: &Arc<StateDir>) -> io::Result<GivenRecord> {
    let (text, mut keep) = kept(state, DELEGATIONS)?;
    Ok(GivenRecord::new(!text.is_empty(), move || keep("given\n")))
}

/// The text of a file of the state directory (empty if there is no such file), and a function that replaces it.
fn kept(
    state: &Arc<StateDir>,
    name: &'static str,
) -> io::Result<(String, impl FnMut(&str) -> io::Result<()> + Send + 'static)> {
    let text = match std::fs::read_to_string(state.path().join(name)) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => String::new(),
        read => read?,
    };
    let keeper = Arc::clone(state);
    let keep = move |text: &str| {
        let kept = keeper.replace(name, text.as_bytes());
        kept.map_err(io::Error::other)
    };
    Ok((text, keep))
}

fn seconds_since_1970() -> u64 {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    since.map_or(0, |since| since.as_secs())
}

fn parts(
    config: &ServerConfig,
    state: &Arc<StateDir>,
    store: Arc<dyn Store>,
    life: LifeWord,
    ports: Ports,
) -> Result<Parts, StartError> {
    let frames = (config.cache_bytes >> config.page.shift()) as u32;
    let arena = ArenaConfig {
        frames,
        layout: match config.direct == Direct::OneSided && config.read_order > ReadOrder::Fence {
            true => Layout::beside(config.page),
            false => Layout::apart(config.page),
        },
        huge: config.huge_pages,
        populate: false,
    };
    let arena = trying(
        format!(
            "get {} bytes of memory for the page cache",
            config.cache_bytes
        ),
        Arena::create(&arena),
    )?;
    let serving = Credential::of_this_process();
    let serving_uid = serving.uid;
    let shm = shm::Limits::of_connections(config.shm_connections);
    let tags = store.tags();
    let tagged = (config.exports.iter()).map(|export| tag_of(&tags, export));
    let tagged = trying("find the exports", tagged.collect::<io::Result<Vec<u16>>>())?;
    let off = |export: &ExportOptions| export.direct == Some(Direct::Off);
    let direct_off = tagged.iter().zip(&config.exports);
    let direct_off = direct_off.filter(|(_, export)| off(export));
    let direct_off = direct_off.map(|(tag, _)| *tag).collect();
    let places = tagged.iter().zip(&config.exports);
    let mut places =
        Vec::from_iter(places.filter_map(|(tag, export)| exports::place(*tag, &export.directory)));
    if config.exports.is_empty() {
        places.extend(exports::place(0, &config.directory));
    }
    let rules = tagged.into_iter().zip(config.export_rules());
    let access = Access::of(config.rule(), serving).with_exports(rules.collect());
    let nfs4 = trying(
        format!("read {NFS4_CLIENTS} in {}", state.path().display()),
        version_4(config, state),
    )?;
    let locks = trying(
        format!("read {NLM_CLIENTS} in {}", state.path().display()),
        locks(config, state),
    )?;
    let given = trying(
        format!("read {DELEGATIONS} in {}", state.path().display()),
        given(state),
    )?;
    Ok(Parts {
        store,
        nfs2: config.nfs2,
        nfs4,
        locks: Some(locks),
        arena: Arc::new(arena),
        export: ExportsConfig {
            name: match config.exports.as_slice() {
                [] => config.export.clone(),
                _ => "/".to_owned(),
            },
            others: config.exports.iter().map(|e| e.name.clone()).collect(),
            places,
            direct: config.direct_of_all(),
            direct_off,
            // No life makes so many changes.
            change_base: state.life() << 40,
            handle_key: state.handle_key().clone(),
            nic: NicConfig {
                // Twice as many as pages, so that few sets overflow and the NIC seldom has to ask.
                tpt_entries: (frames as usize * 2).next_power_of_two(),
                // Each session takes more than one connection.
                sessions_max: config.shm_connections.max(4096) as usize,
                ..NicConfig::default()
            },
            ..ExportsConfig::default()
        },
        sessions: SessionPolicy {
            identity: Some(Identity::from_secret(**state.identity())),
            admitted: config.admitted.clone(),
            life: state.life(),
            serving_uid,
            one_sided_for: config.one_sided_for.clone(),
            delegations: Some(given),
            ..SessionPolicy::default()
        },
        access,
        life: Some(Arc::new(life)),
        workers: config.workers,
        offload: config.offload,
        engine: EngineConfig {
            spin: config.spin.into(),
            rdma: RdmaConfig {
                back_time_max: config.lease.into(),
                ..config.rpc_rdma
            },
            connections_max: shm.connections as usize + EngineConfig::default().connections_max,
            ..EngineConfig::default()
        },
        ports,
    })
}

/// The tag that the store of all exports has given to one of them.
fn tag_of(tags: &[(String, u16)], export: &ExportOptions) -> io::Result<u16> {
    let name = table::normalized(&export.name).map_err(io::Error::other)?;
    let mut named = tags.iter().filter(|(known, _)| *known == name);
    let found = named.next().map(|(_, tag)| *tag);
    found.ok_or_else(|| io::Error::other(format!("the store has no export {name}")))
}

/// Listeners, open before anything is served from them. (That of shared memory is opened last.)
struct Doors {
    nfs: Option<TcpListener>,
    portmap: Option<(TcpListener, UdpSocket)>,
    metrics: Option<TcpListener>,
    fabrics: Vec<(Box<dyn Listener>, Transport)>,
    /// A further listener, for an RDMA device.
    device: Option<verbs::Listener>,
    addresses: Addresses,
}

impl Doors {
    fn open(config: &ServerConfig) -> Result<Doors, StartError> {
        let nfs = config.nfs.map(|address| listen(address, "--nfs"));
        let nfs = nfs.transpose()?;
        let portmap = config.portmap.map(|address| {
            let (tcp, real) = listen(address, "--portmap")?;
            let udp = listening(real, "--portmap", UdpSocket::bind(real))?;
            Ok::<_, StartError>(((tcp, udp), real))
        });
        let portmap = portmap.transpose()?;
        let metrics = config.metrics.map(|address| listen(address, "--metrics"));
        let metrics = metrics.transpose()?;
        let mut fabrics: Vec<(Box<dyn Listener>, Transport)> = Vec::new();
        let mut rdma = None;
        if let Some(address) = config.rdma {
            let listener = listening(
                address,
                "--rdma",
                iwarp::Listener::bind(address, iwarp::Limits::default()),
            )?;
            rdma = Some(listener.local_addr());
            fabrics.push((Box::new(listener), Transport::Iwarp));
        }
        let device = config.verbs.map(|address| {
            let limits = verbs::Limits {
                odp: config.on_demand_paging,
                read_order: config.read_order,
                receives: config
                    .rpc_rdma
                    .receives_max()
                    .max(verbs::Limits::default().receives),
                ..verbs::Limits::default()
            };
            listening(
                format_args!("{address} by an RDMA device"),
                "--verbs",
                verbs::Listener::bind(address, limits),
            )
        });
        let device = device.transpose()?;
        let addresses = Addresses {
            rdma,
            verbs: device.as_ref().map(verbs::Listener::local_addr),
            nfs: nfs.as_ref().map(|(_, address)| *address),
            portmap: portmap.as_ref().map(|(_, address)| *address),
            metrics: metrics.as_ref().map(|(_, address)| *address),
            shm: config.shm.clone(),
        };
        Ok(Doors {
            nfs: nfs.map(|(listener, _)| listener),
            portmap: portmap.map(|(listeners, _)| listeners),
            metrics: metrics.map(|(listener, _)| listener),
            fabrics,
            device,
            addresses,
        })
    }
}

fn listen(
    address: SocketAddr,
    option: &'static str,
) -> Result<(TcpListener, SocketAddr), StartError> {
    let bound = TcpListener::bind(address).and_then(|listener| {
        odafs_fabric::tcp::hold_pacing(&listener);
        let real = listener.local_addr()?;
        Ok((listener, real))
    });
    listening(address, option, bound)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_server_without_version_4_disregards_nobody_reclaims_later() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("state");
        let state = StateDir::open(Some(&path), directory.path()).expect("a state directory");
        let state = Arc::new(state);
        state.replace(NFS4_CLIENTS, b"0a d\n").expect("kept");
        let mut config = ServerConfig::new(directory.path());
        let text = || std::fs::read_to_string(path.join(NFS4_CLIENTS)).expect("a file");
        assert!(version_4(&config, &state).expect("read").is_some());
        assert_eq!(text(), "0a d\n");
        config.nfs4 = nfs4::MinorVersions::NONE;
        assert!(version_4(&config, &state).expect("read").is_none());
        assert_eq!(text(), "");
    }
}
