//! A server without its TCP listeners: export, programs, pool, engine, observer and timer. The simulator assembles the same
//! server as [`crate::process::server`], with any store, any fabric's listener, and no tokio.

use std::io;
use std::time::Duration;

use odafs_fabric::Listener;
use odafs_fabric::clock::{self, Nanos};
use odafs_fabric::memory::{Arena, LifeWord};
use odafs_fabric::sync::thread::{self, JoinHandle};
use odafs_fabric::sync::{Arc, Condvar, Mutex};
use odafs_nic::calls::{Calls, Transport, Workers};
use odafs_nic::engine::{Engine, EngineConfig, OpenConnections, RdmaCounters, Serves, Stopper};

use crate::mount3::MountProgram;
use crate::nfs2::Nfs2;
use crate::nfs3::Nfs3;
use crate::nfs4::{self, Nfs4};
use crate::nfsacl3::NfsAcl3;
use crate::nlm4::{self, Lockd, Nlm4, Nsm};
use crate::odafs::{Odafs, SessionPolicy};
use crate::portmap::{Port, Portmap};
use crate::rpc::access::Access;
use crate::rpc::drc::{Bounds, DuplicateCache};
use crate::rpc::pool::Pool;
use crate::rpc::{Program, Service};
use crate::store::{Store, ids};
use crate::vfs::acls;
use crate::vfs::change;
use crate::vfs::export::{Direct, Exports, ExportsConfig};
use crate::vfs::spare::SpareFrames;

/// The parts from which [`Assembly::start`] makes a server.
pub struct Parts {
    /// The store of the files.
    pub store: Arc<dyn Store>,
    /// Memory for the page cache, of which nothing is published yet.
    pub arena: Arc<Arena>,
    /// Options of the export.
    pub export: ExportsConfig,
    /// What the server asks of sessions and grants them.
    pub sessions: SessionPolicy,
    /// NFS version 2, with MOUNT versions 1 and 2.
    pub nfs2: bool,
    /// NFS version 4. `None` if it is not served.
    pub nfs4: Option<nfs4::Config>,
    /// Locks for NFS version 3. `None` if they are not served.
    pub locks: Option<nlm4::Config>,
    /// Who may call.
    pub access: Access,
    /// The life word that one-sided clients check. Without it the server grants no one-sided reads.
    pub life: Option<Arc<LifeWord>>,
    /// Number of threads for calls that may block.
    pub workers: usize,
    /// Offload every call to a worker, even one that cannot block.
    pub offload: bool,
    /// Options of the engine.
    pub engine: EngineConfig,
    /// The ports that the portmapper reports.
    pub ports: Ports,
}

/// The ports that the portmapper reports.
#[derive(Clone, Debug, Default)]
pub struct Ports {
    /// The port of everything that is served over TCP.
    pub tcp: Port,
    /// The port of the portmapper and the status monitor over UDP.
    pub udp: Port,
}

/// The most calls that wait for a worker.
const WAITING_MAX: usize = 4096;
/// How long the observer waits for reports of the store at a time.
const OBSERVED: Duration = Duration::from_millis(500);
/// How often the observer checks files without a watch, and the timer measures the cache and looks at leases.
const TICK: Nanos = Nanos::from_secs(1);

/// A running server. Dropping it stops it.
pub struct Assembly {
    export: Arc<Exports>,
    service: Arc<Service>,
    pool: Arc<Pool>,
    life: Option<Arc<LifeWord>>,
    rdma: Arc<RdmaCounters>,
    open: Option<Arc<OpenConnections>>,
    engine: Option<(Stopper, JoinHandle<()>)>,
    observer: Option<JoinHandle<()>>,
    timer: Option<JoinHandle<()>>,
    stopping: Arc<Stopping>,
}

/// Whether the observer and the timer are to end.
#[derive(Default)]
struct Stopping {
    stopping: Mutex<bool>,
    news: Condvar,
}

impl Stopping {
    fn begin(&self) {
        *self.stopping.lock() = true;
        self.news.notify_all();
    }

    fn has_begun(&self) -> bool {
        *self.stopping.lock()
    }

    /// Waits for it, for `span` at most. Returns whether it has begun.
    fn wait(&self, span: Nanos) -> bool {
        let stopping = self.stopping.lock();
        if *stopping {
            return true;
        }
        *self.news.wait_timeout(stopping, span).0
    }
}

impl Assembly {
    /// Starts a server, with an engine if there are listeners.
    ///
    /// # Errors
    /// The system can give no more threads or descriptors.
    pub fn start(parts: Parts, listeners: Vec<(Box<dyn Listener>, Transport)>) -> io::Result<Self> {
        let direct = parts.export.direct;
        let export = Arc::new(Exports::new(
            parts.export,
            parts.store,
            Arc::clone(&parts.arena),
        ));
        export.promises().served_by(parts.workers);
        let service = Arc::new(service(
            &export,
            parts.access,
            parts.sessions,
            (parts.nfs2, parts.nfs4, parts.locks),
            parts.ports,
            parts.offload,
        ));
        let mut assembly = Self {
            pool: Arc::new(Pool::start(parts.workers, WAITING_MAX)?),
            export,
            service,
            life: parts.life,
            rdma: Arc::default(),
            open: None,
            engine: None,
            observer: None,
            timer: None,
            stopping: Arc::default(),
        };
        assembly.start_observer()?;
        assembly.start_timer()?;
        if !listeners.is_empty() {
            assembly.start_engine(parts.engine, direct, listeners)?;
        }
        Ok(assembly)
    }

    fn start_observer(&mut self) -> io::Result<()> {
        let (export, stopping) = (Arc::clone(&self.export), Arc::clone(&self.stopping));
        let observer = thread::Builder::new().name("odafs-observer".to_owned());
        self.observer = Some(observer.spawn(move || observe(&export, &stopping))?);
        Ok(())
    }

    fn start_timer(&mut self) -> io::Result<()> {
        let (export, stopping) = (Arc::clone(&self.export), Arc::clone(&self.stopping));
        let service = Arc::clone(&self.service);
        let timer = thread::Builder::new().name("odafs-timer".to_owned());
        self.timer = Some(timer.spawn(move || tick(&export, &service, &stopping))?);
        Ok(())
    }

    fn start_engine(
        &mut self,
        config: EngineConfig,
        direct: Direct,
        listeners: Vec<(Box<dyn Listener>, Transport)>,
    ) -> io::Result<()> {
        let serves = Serves {
            arena: Arc::clone(self.export.arena()),
            nic: self.export.nic().cloned(),
            calls: self.calls(),
            workers: self.workers(),
            // Without one-sided reads, the engine offers the arena to nobody.
            life: (self.life.clone()).filter(|_| matches!(direct, Direct::Auto | Direct::OneSided)),
            frames: Some(Arc::new(SpareFrames::of(Arc::clone(&self.export)))),
            rdma: Arc::clone(&self.rdma),
        };
        let device = listeners
            .iter()
            .any(|(_, transport)| *transport == Transport::Verbs);
        let config = EngineConfig {
            remote_reads: direct == Direct::OneSided,
            ..config
        };
        let mut engine = Engine::new(config, serves)?;
        for (listener, transport) in listeners {
            engine.listen(listener, transport)?;
        }
        let stopper = engine.stopper();
        self.open = Some(Arc::clone(engine.open_connections()));
        let thread = thread::Builder::new().name("odafs-engine".to_owned());
        let thread = thread.spawn(move || {
            if device {
                ids::keep();
            }
            engine.run();
        })?;
        self.engine = Some((stopper, thread));
        Ok(())
    }

    /// The export.
    pub fn export(&self) -> &Arc<Exports> {
        &self.export
    }

    /// Counters of the RPC-over-RDMA connections.
    pub fn rdma(&self) -> &Arc<RdmaCounters> {
        &self.rdma
    }

    /// The engine's connections; `None` without an engine.
    pub fn open_connections(&self) -> Option<&Arc<OpenConnections>> {
        self.open.as_ref()
    }

    /// The threads for calls that may block.
    pub fn pool(&self) -> &Arc<Pool> {
        &self.pool
    }

    /// The programs, for further transports.
    pub fn service(&self) -> &Arc<Service> {
        &self.service
    }

    /// The programs, as transports know them.
    pub fn calls(&self) -> Arc<dyn Calls> {
        Arc::clone(&self.service) as Arc<dyn Calls>
    }

    /// The pool, as transports know it.
    pub fn workers(&self) -> Arc<dyn Workers> {
        Arc::clone(&self.pool) as Arc<dyn Workers>
    }

    /// Makes all references worthless, by every route.
    pub fn poison(&self) {
        if let Some(life) = &self.life {
            life.poison();
        }
    }

    /// Finishes the calls under way and ends all threads.
    pub fn stop(&mut self) {
        self.poison();
        if let Some((stopper, thread)) = self.engine.take() {
            stopper.stop();
            joined(thread);
        }
        self.pool.stop();
        self.service.stop();
        self.stopping.begin();
        self.export.store().interrupt();
        for thread in [self.observer.take(), self.timer.take()] {
            thread.into_iter().for_each(joined);
        }
    }
}

impl Drop for Assembly {
    fn drop(&mut self) {
        self.stop();
    }
}

fn joined(thread: JoinHandle<()>) {
    if thread.join().is_err() {
        tracing::error!("a thread of the server panicked");
    }
}

fn service(
    export: &Arc<Exports>,
    access: Access,
    sessions: SessionPolicy,
    (nfs2, nfs4, locks): (bool, Option<nfs4::Config>, Option<nlm4::Config>),
    ports: Ports,
    offload: bool,
) -> Service {
    let access = Arc::new(access);
    let mount = MountProgram::new(Arc::clone(export), Arc::clone(&access));
    let older_mount = mount.for_version_2();
    let mut programs: Vec<Box<dyn Program>> = vec![
        Box::new(Nfs3::new(Arc::clone(export))),
        Box::new(mount),
        Box::new(Odafs::new(Arc::clone(export), sessions)),
    ];
    if acls::supported(export) {
        programs.push(Box::new(NfsAcl3::new(Arc::clone(export))));
    }
    if nfs2 {
        programs.push(Box::new(Nfs2::new(Arc::clone(export))));
        programs.extend(older_mount.map(|mount| Box::new(mount) as Box<dyn Program>));
    }
    if let Some(config) = nfs4 {
        programs.push(Box::new(Nfs4::new(Arc::clone(export), config)));
    }
    let mut by_datagrams = Vec::new();
    if let Some(config) = locks {
        let lockd = Lockd::start(Arc::clone(export), Arc::clone(&access), config);
        let monitor = Nsm::new(Arc::clone(&lockd));
        by_datagrams.push((monitor.number(), monitor.version()));
        programs.push(Box::new(Nlm4::new(lockd)));
        programs.push(Box::new(monitor));
    }
    let told: Vec<(u32, u32)> = programs
        .iter()
        .map(|program| (program.number(), program.version()))
        .collect();
    let portmap = Portmap::new(told, ports.tcp).with_datagrams(by_datagrams, ports.udp);
    for rpcbind in portmap.rpcbind() {
        programs.push(Box::new(rpcbind));
    }
    programs.push(Box::new(portmap));
    Service::new(
        programs,
        access,
        DuplicateCache::new(Bounds::default()),
        offload,
    )
}

/// The observer: takes reports of outside changes, and each second checks what nobody reports. It waits while a file
/// that it looks at is being written.
fn observe(export: &Exports, stopping: &Stopping) {
    let mut next_check = clock::now() + TICK;
    while !stopping.has_begun() {
        change::observe(export, OBSERVED);
        let now = clock::now();
        if now >= next_check {
            next_check = now + TICK;
            change::check_unwatched(export);
        }
    }
}

/// The timer: leases, locks and callbacks of all clients go on while a slow disk holds up the observer.
fn tick(export: &Exports, service: &Service, stopping: &Stopping) {
    while !stopping.wait(TICK) {
        export.tick(clock::now());
        service.tick(clock::awake());
    }
}
