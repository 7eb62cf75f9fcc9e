//! A server of the bench, and what its clients work on.

use std::net::{SocketAddr, TcpListener};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result};
use odafs_common::page::{Layout, PageSize};
use odafs_common::wire::nfs3::{LookupOk, LookupResult, Procedure};
use odafs_common::wire::xdr::Decode as _;
use odafs_fabric::memory::{Arena, ArenaConfig};
use odafs_nic::engine::EngineConfig;
use odafs_server::access::Access;
use odafs_server::assembly::{Assembly, Parts, Ports};
use odafs_server::config::Squash;
use odafs_server::export::{Direct, ExportsConfig};
use odafs_server::odafs::SessionPolicy;
use odafs_server::state::StateDir;
use odafs_server::store::{BeforeSync, Credential, LocalOptions, LocalStore, ObjectId, Store};
use odafs_server::tcp::{Limits, TcpServer};

use super::flood::{LONG, Targets};
use super::peer::{FileHandleBytes, Peer};
use crate::cpu;
use crate::process::{ServerPlan, ServerProcess};
use crate::scratch::Scratch;

/// A server with a directory on disk.
pub struct Setting {
    // Dropped in this order: who serves, then the files.
    server: Server,
    address: SocketAddr,
    root: FileHandleBytes,
    scratch: Scratch,
}

enum Server {
    /// In a process of its own: it shares nothing with its clients but the machine.
    Apart { process: ServerProcess },
    /// In this process.
    Here { _server: Here },
}

/// The server itself, with a store of ours.
struct Here {
    tcp: Option<TcpServer>,
    assembly: Assembly,
    _state: StateDir,
}

/// Page cache, bytes.
const CACHE_BYTES: u64 = 64 << 20;
/// What the server serves, beside its state.
const SERVED: &str = "served";

impl Setting {
    /// Starts `odafs serve` on some processors, or on all.
    pub fn apart(program: &Path, cpus: Option<&[usize]>) -> Result<Self> {
        let (scratch, served) = directory()?;
        let process = ServerProcess::start(&ServerPlan {
            program: program.to_owned(),
            directory: served,
            read_only: false,
            cache_bytes: CACHE_BYTES,
            fabrics: Vec::new(),
            direct: Some("off"),
            spin: None,
            nfs: true,
            cpus: cpus.map(<[usize]>::to_vec),
            arguments: Vec::new(),
        })?;
        let address = process.nfs().context("the server has no NFS port")?;
        Ok(Self {
            server: Server::Apart { process },
            address,
            root: Peer::connect(address)?.mount()?,
            scratch,
        })
    }

    /// Starts one in this process, on some processors or on all. `before_sync` comes ahead of each sync of its store.
    pub fn here(
        cpus: Option<&[usize]>,
        before_sync: impl Fn(ObjectId) + Send + Sync + 'static,
    ) -> Result<Self> {
        let (scratch, served) = directory()?;
        let state = StateDir::open(Some(&scratch.path().join("state")), &served)?;
        let store = LocalStore::open(&served, &state, LocalOptions::default())?;
        let store = BeforeSync::new(Arc::new(store), before_sync);
        let serve = || Here::serve(Arc::new(store), state);
        let (server, address) = cpu::bound(cpus, serve).context("cannot bind to a processor")??;
        Ok(Self {
            server: Server::Here { _server: server },
            address,
            root: Peer::connect(address)?.mount()?,
            scratch,
        })
    }

    /// The processor time that the server has used so far; none if it is not a process of its own.
    pub fn processor_time(&self) -> Duration {
        match &self.server {
            Server::Apart { process } => Duration::from_nanos(process.cpu_ns()),
            Server::Here { .. } => Duration::ZERO,
        }
    }

    /// Another client.
    pub fn peer(&self) -> Result<Peer> {
        Peer::connect(self.address)
    }

    /// The root directory.
    pub fn root(&self) -> &[u8] {
        &self.root
    }

    /// What floods work on.
    pub fn targets(&self) -> Result<Targets> {
        let mut peer = self.peer()?;
        let directory = peer.mkdir(&self.root, "flooded")?;
        let crowd = peer.mkdir(&self.root, "crowd")?;
        let path = self.scratch.path().join(SERVED);
        fill(&path)?;
        let files: Result<_> = (0..4)
            .map(|number| peer.file(&directory, &format!("file {number}"), LONG))
            .collect();
        peer.file(&directory, "there", 0)?;
        let link = peer.call(Procedure::Lookup, &super::peer::place(&directory, "link"))?;
        let LookupOk { file, .. } = LookupResult::from_bytes(link)?
            .map_err(|failed| anyhow::anyhow!("LOOKUP: {:?}", failed.status))?;
        Ok(Targets {
            link: file.0.to_vec(),
            directory,
            crowd,
            files: files?,
            data: vec![3; LONG],
        })
    }
}

/// A directory, and what is served of it.
fn directory() -> Result<(Scratch, PathBuf)> {
    let scratch = Scratch::new()?;
    let served = scratch.path().join(SERVED);
    for path in [scratch.path(), &served] {
        std::fs::create_dir_all(path)?;
        // The server may serve us as nobody.
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o777))?;
    }
    Ok((scratch, served))
}

impl Here {
    fn serve(store: Arc<dyn Store>, state: StateDir) -> Result<(Self, SocketAddr)> {
        let page = PageSize::DEFAULT;
        let arena = Arena::create(&ArenaConfig {
            frames: (CACHE_BYTES >> page.shift()) as u32,
            layout: Layout::apart(page),
            huge: false,
            populate: false,
        })?;
        let serving = Credential::of_this_process();
        let parts = Parts {
            nfs2: false,
            nfs4: None,
            locks: None,
            store,
            arena: Arc::new(arena),
            export: ExportsConfig {
                direct: Direct::Off,
                ..ExportsConfig::default()
            },
            sessions: SessionPolicy::default(),
            access: Access::new(Vec::new(), Squash::All, serving),
            life: None,
            workers: 8,
            offload: false,
            engine: EngineConfig::default(),
            ports: Ports::default(),
        };
        let assembly = Assembly::start(parts, Vec::new())?;
        let listener = TcpListener::bind("127.0.0.1:0")?;
        let address = listener.local_addr()?;
        let tcp = TcpServer::start(
            listener,
            2,
            assembly.calls(),
            assembly.workers(),
            Limits::default(),
            |_| true,
        )?;
        let server = Self {
            tcp: Some(tcp),
            assembly,
            _state: state,
        };
        Ok((server, address))
    }
}

/// What is quicker made from outside.
fn fill(served: &Path) -> Result<()> {
    std::os::unix::fs::symlink("somewhere", served.join("flooded/link"))?;
    for number in 0..4000 {
        let name = format!("crowd/a name as long as others are {number}");
        std::fs::write(served.join(name), b"").context("cannot fill a directory")?;
    }
    // The server hears of it, and is done with that.
    std::thread::sleep(Duration::from_millis(100));
    Ok(())
}

impl Drop for Here {
    fn drop(&mut self) {
        if let Some(tcp) = self.tcp.take() {
            tcp.shutdown();
        }
        self.assembly.stop();
    }
}
