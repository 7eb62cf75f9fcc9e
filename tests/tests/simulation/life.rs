//! A server life on the simulated network: everything of a server but sockets and disks.

use crate::mortal::Mortal;
use odafs_common::page::PageSize;
use odafs_fabric::clock::Nanos;
use odafs_fabric::memory::{Arena, ArenaConfig, LifeWord};
use odafs_fabric::sim::Network;
use odafs_fabric::sync::atomic::{AtomicBool, Ordering};
use odafs_fabric::sync::thread::{self, JoinHandle};
use odafs_fabric::sync::{Arc, OnceLock};
use odafs_nic::calls::{Transport, Workers};
use odafs_nic::engine::{Engine, EngineConfig, Serves, Stopper};
use odafs_server::access::Access;
use odafs_server::change;
use odafs_server::config::Squash;
use odafs_server::drc::DuplicateCache;
use odafs_server::export::{Direct, Export, ExportConfig};
use odafs_server::mount::MountProgram;
use odafs_server::nfs3::Nfs3;
use odafs_server::odafs::{Odafs, SessionPolicy};
use odafs_server::pool::Pool;
use odafs_server::rpc::{Program, Service};
use odafs_server::store::{Credential, MemoryStore, Store};
use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::time::Duration;

/// Where clients find the server.
pub const NAME: &str = "server";
/// The user that the simulated server runs as, and all callers become.
pub const UID: u32 = 1000;

/// One run of a server, from its start to its death or drain.
pub struct Life {
    store: Arc<Mortal>,
    export: Arc<Export>,
    pool: Arc<Pool>,
    stopper: Stopper,
    ended: Arc<AtomicBool>,
    threads: Vec<JoinHandle<()>>,
}

impl Life {
    /// Starts the life `number` (from 1) on `store`, with room for `frames` pages.
    pub fn start(
        store: &Arc<MemoryStore>,
        network: &Network,
        number: u64,
        frames: u32,
        state: &PathBuf,
    ) -> Self {
        let store = Arc::new(Mortal::new(store));
        let config = ArenaConfig {
            frames,
            page: PageSize::DEFAULT,
            huge: false,
            populate: false,
        };
        let arena = Arc::new(Arena::create(&config).expect("arena"));
        let life = Arc::new(LifeWord::create(state, number).expect("life word"));
        let serving = Credential::of(UID, UID, &[]);
        let export = Arc::new(Export::new(
            ExportConfig {
                direct: Direct::OneSided,
                read_ahead_bytes: 8192,
                change_base: number << 32,
                ..ExportConfig::default()
            },
            Arc::clone(&store) as Arc<dyn Store>,
            Arc::clone(&arena),
        ));
        let access = Arc::new(Access::new(Vec::new(), Squash::All, serving));
        let policy = SessionPolicy {
            life: number,
            serving_uid: UID,
            ..SessionPolicy::default()
        };
        let programs: Vec<Box<dyn Program>> = vec![
            Box::new(Nfs3::new(Arc::clone(&export))),
            Box::new(MountProgram::new(Arc::clone(&export), Arc::clone(&access))),
            Box::new(Odafs::new(Arc::clone(&export), policy)),
        ];
        let replies = NonZeroUsize::new(64).expect("not zero");
        let service = Arc::new(Service::new(programs, access, DuplicateCache::new(replies)));
        let pool = Arc::new(Pool::start(2, 64).expect("pool"));
        let listener = network.listen(NAME).expect("listen");

        let config = EngineConfig {
            spin: Nanos(0),
            ..EngineConfig::default()
        };
        let serves = Serves {
            arena,
            nic: export.nic().cloned(),
            calls: service,
            workers: Arc::clone(&pool) as Arc<dyn Workers>,
            life: Some(life),
        };
        // An engine belongs to the thread that runs it.
        let (told, tell) = (Arc::new(OnceLock::new()), Arc::new(AtomicBool::new(false)));
        let (give, given) = (Arc::clone(&told), Arc::clone(&tell));
        let engine = thread::spawn(move || {
            let mut engine = Engine::new(config, serves).expect("engine");
            engine.listen(listener, Transport::Shm).expect("listen");
            let _ = give.set(engine.stopper());
            given.store(true, Ordering::SeqCst);
            engine.run();
        });
        while !tell.load(Ordering::SeqCst) {
            thread::yield_now();
        }
        let stopper = told.get().cloned().expect("the engine has started");

        let ended = Arc::new(AtomicBool::new(false));
        let (over, watched) = (Arc::clone(&ended), Arc::clone(&export));
        let observer = thread::spawn(move || {
            while !over.load(Ordering::SeqCst) {
                change::observe(&watched, Duration::from_millis(10));
            }
        });
        Self {
            store,
            export,
            pool,
            stopper,
            ended,
            threads: vec![engine, observer],
        }
    }

    /// The export.
    pub fn export(&self) -> &Arc<Export> {
        &self.export
    }

    /// Kills it in whatever it is doing, together with the machine: unsynced data may be gone.
    /// Its threads go on for a while, as zombies that can reach neither clients nor files.
    pub fn kill(&self, network: &Network) {
        network.kill(NAME);
        self.store.die();
    }

    /// Ends what is left of it.
    pub fn end(self) {
        self.ended.store(true, Ordering::SeqCst);
        self.store.interrupt();
        self.stopper.stop();
        for thread in self.threads {
            thread.join().expect("a server thread panicked");
        }
        self.pool.stop();
    }
}
