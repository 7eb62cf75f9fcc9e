//! A server life on the simulated network: everything of a server but sockets and disks.

use crate::mortal::Mortal;
use crate::nfs4::Model;
use odafs_common::page::Layout;
use odafs_fabric::clock::{self, Nanos};
use odafs_fabric::memory::{Arena, ArenaConfig, LifeWord};
use odafs_fabric::sim::Network;
use odafs_fabric::sync::Arc;
use odafs_nic::calls::Transport;
use odafs_nic::engine::{EngineConfig, RdmaConfig};
use odafs_nic::nic::NicConfig;
use odafs_server::access::Access;
use odafs_server::assembly::{Assembly, Parts, Ports};
use odafs_server::config::{RegistrationConfig, Squash};
use odafs_server::export::{Direct, ExportsConfig};
use odafs_server::nfs4::{self, MinorVersions, Records};
use odafs_server::odafs::{GivenRecord, SessionPolicy};
use odafs_server::state::HandleKey;
use odafs_server::store::{Credential, MemoryStore, Store};
use std::io;
use std::path::Path;
use std::sync::Mutex;

/// Where clients find the server.
pub const NAME: &str = "server";
/// The user as which the simulated server runs and all callers act.
pub const UID: u32 = 1000;

/// What brings a text to stable storage of this life.
fn keep(
    to: &Arc<Mutex<String>>,
    store: &Arc<Mortal>,
) -> impl FnMut(&str) -> io::Result<()> + Send + use<> {
    let (to, store) = (to.clone(), Arc::clone(store));
    move |text: &str| {
        let keep = || *to.lock().expect("a run panicked before") = text.to_owned();
        match store.unless_dead(keep) {
            true => Ok(()),
            false => Err(io::Error::other("the machine is dead")),
        }
    }
}

/// Bytes of replies that slots keep: so few that a crowd of sessions leaves little.
const CACHED_BYTES: usize = 256 << 10;

/// Version 4 of this life. What it keeps of who may reclaim, and of what was left to whom, the next one reads.
fn version_4(model: &Model, number: u64, store: &Arc<Mortal>) -> nfs4::Config {
    let text = |of: &Mutex<String>| of.lock().expect("a run panicked before").clone();
    let records = Records::read(&text(&model.records), keep(&model.records, store));
    nfs4::Config {
        minors: MinorVersions::ALL,
        lease: model.lease,
        boot: number as u32,
        records: records.naming_files(&text(&model.named), keep(&model.named, store)),
        owners: nfs4::OwnersConfig::default(),
        cached_bytes: CACHED_BYTES,
    }
}

/// One run of a server, from its start to its death or drain.
pub struct Life {
    store: Arc<Mortal>,
    assembly: Assembly,
}

impl Life {
    /// Starts the life `number` (from 1) on `store`, with a page cache of this size and layout, and memory for the data of
    /// calls.
    pub fn start(
        store: &Arc<MemoryStore>,
        network: &Network,
        number: u64,
        (frames, layout): (u32, Layout),
        registration: RegistrationConfig,
        state: &Path,
        model: Option<&Model>,
    ) -> Self {
        let started = clock::now();
        let store = Arc::new(Mortal::new(store));
        let config = ArenaConfig {
            frames,
            layout,
            huge: false,
            populate: false,
        };
        let life = LifeWord::create(state, number).expect("life word");
        let parts = Parts {
            store: Arc::clone(&store) as Arc<dyn Store>,
            arena: Arc::new(Arena::create(&config).expect("arena")),
            export: ExportsConfig {
                direct: Direct::OneSided,
                read_ahead_bytes: 8192,
                change_base: number << 32,
                handle_key: HandleKey::from([1; 32]),
                // Every second life has fewer entries than frames, so the NIC replaces entries and the host finds them again.
                nic: NicConfig {
                    tpt_entries: if number % 2 == 1 { 4 } else { 16 },
                    ..NicConfig::default()
                },
                ..ExportsConfig::default()
            },
            nfs2: false,
            nfs4: model.map(|model| version_4(model, number, &store)),
            locks: None,
            sessions: SessionPolicy {
                life: number,
                serving_uid: UID,
                // Nobody keeps data in a run in which it is killed.
                delegations: Some(GivenRecord::new(false, || Ok(()))),
                ..SessionPolicy::default()
            },
            access: Access::new(Vec::new(), Squash::All, Credential::of(UID, UID, &[])),
            life: Some(Arc::new(life)),
            workers: 2,
            offload: false,
            engine: EngineConfig {
                spin: Nanos(0),
                rdma: RdmaConfig {
                    read_read: number % 2 == 1,
                    registration,
                    ..RdmaConfig::default()
                },
                ..EngineConfig::default()
            },
            ports: Ports::default(),
        };
        let listener = network.listen(NAME).expect("listen");
        let assembly = Assembly::start(parts, vec![(listener, Transport::Sim)]).expect("start");
        if let Some(model) = model {
            model.lives_again(started);
        }
        Self { store, assembly }
    }

    /// What it says of itself.
    pub fn figures(&self) -> String {
        let mut text = String::new();
        self.assembly.service().append_text(&mut text);
        text
    }

    /// Kills the server and its machine at any point of their work. The server's threads go on for a while, as zombies
    /// that can reach neither clients nor files. Returns whether unsynced data was lost.
    pub fn kill(&self, network: &Network) -> bool {
        network.kill(NAME);
        self.store.die()
    }

    /// Ends what is left of the server.
    pub fn end(mut self) {
        self.assembly.stop();
    }
}
