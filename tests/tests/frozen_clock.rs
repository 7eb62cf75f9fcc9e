//! The clock of the file system stands still: changes made through the server are told apart all the same, by every route.
#![cfg(not(shuttle))]

use odafs::{Cache, Client, Dial, File, Options, Route, RpcOver};
use odafs_common::page::{Layout, PageSize};
use odafs_fabric::clock::Nanos;
use odafs_fabric::memory::{Arena, ArenaConfig, LifeWord};
use odafs_fabric::sim::{Network, NetworkConfig};
use odafs_fabric::{QueuePair, sync::Arc};
use odafs_nic::calls::Transport;
use odafs_nic::engine::EngineConfig;
use odafs_server::access::Access;
use odafs_server::assembly::{Assembly, Parts, Ports};
use odafs_server::config::Squash;
use odafs_server::export::{Direct, ExportsConfig};
use odafs_server::odafs::SessionPolicy;
use odafs_server::store::{Credential, MemoryStore, Store};
use odafs_server::tcp::{Limits, TcpServer};
use odafs_tests::page::PAGE;
use std::io;
use std::net::{SocketAddr, TcpListener};

const NAME: &str = "server";
const UID: u32 = 1000;
const ROUNDS: u8 = 40;

/// A server in this process, on a network in memory and on TCP.
struct House {
    network: Network,
    assembly: Assembly,
    tcp: Option<TcpServer>,
    address: SocketAddr,
    store: Arc<MemoryStore>,
}

impl House {
    fn open(state: &std::path::Path) -> Self {
        let config = NetworkConfig {
            loads: true,
            ..NetworkConfig::default()
        };
        let network = Network::new(1, config);
        let store = Arc::new(MemoryStore::new(1));
        let arena = ArenaConfig {
            frames: 64,
            layout: Layout::apart(PageSize::DEFAULT),
            huge: false,
            populate: false,
        };
        let parts = Parts {
            store: Arc::clone(&store) as Arc<dyn Store>,
            arena: Arc::new(Arena::create(&arena).expect("arena")),
            export: ExportsConfig {
                direct: Direct::OneSided,
                ..ExportsConfig::default()
            },
            nfs2: false,
            nfs4: None,
            locks: None,
            sessions: SessionPolicy {
                serving_uid: UID,
                ..SessionPolicy::default()
            },
            access: Access::new(Vec::new(), Squash::All, Credential::of(UID, UID, &[])),
            life: Some(Arc::new(LifeWord::create(state, 1).expect("life word"))),
            workers: 2,
            offload: false,
            engine: EngineConfig {
                spin: Nanos(0),
                ..EngineConfig::default()
            },
            ports: Ports::default(),
        };
        let listener = network.listen(NAME).expect("listen");
        let assembly = Assembly::start(parts, vec![(listener, Transport::Sim)]).expect("start");
        let listener = TcpListener::bind("127.0.0.1:0").expect("bind");
        let address = listener.local_addr().expect("address");
        let (calls, workers) = (assembly.calls(), assembly.workers());
        let tcp = TcpServer::start(listener, 1, calls, workers, Limits::default(), |_| true);
        Self {
            network,
            assembly,
            tcp: Some(tcp.expect("serve")),
            address,
            store,
        }
    }

    /// By NFS alone.
    fn plain(&self) -> Client {
        let url = format!("nfs://{}/?mountport={}", self.address, self.address.port());
        let url = url.parse().expect("url");
        Client::connect_with(&url, options(Route::Rpc)).expect("connect")
    }

    fn client(&self, route: Route) -> Client {
        let url = "odafs+shm:///sim?/".parse().expect("url");
        let dial = Arc::new(Sim(self.network.clone(), self.network.node()));
        Client::over(dial, &url, options(route)).expect("connect")
    }
}

impl Drop for House {
    fn drop(&mut self) {
        if let Some(tcp) = self.tcp.take() {
            tcp.shutdown();
        }
        self.assembly.stop();
    }
}

fn options(route: Route) -> Options {
    Options {
        route,
        cache: Cache::CloseToOpen,
        ..Options::default()
    }
}

/// A client's way to the server: the network, and which node it is.
struct Sim(Network, u32);

impl Dial for Sim {
    fn dial(&self, private_data: &[u8], _: Nanos) -> io::Result<Box<dyn QueuePair>> {
        self.0.connect_from(self.1, NAME, private_data)
    }

    fn fabric(&self) -> &'static str {
        "sim"
    }

    fn rpc_over(&self) -> RpcOver {
        RpcOver::Messages
    }

    fn address(&self) -> String {
        NAME.to_owned()
    }
}

fn read(file: &File) -> u8 {
    let mut page = [0; PAGE];
    file.read_exact_at(&mut page, 0).expect("read");
    assert_eq!(page, [page[0]; PAGE]);
    page[0]
}

#[test]
fn two_writes_within_a_tick_are_two_versions_by_every_route() {
    let scratch = tempfile::tempdir().expect("dir");
    let house = House::open(&scratch.path().join("life"));
    let writer = house.plain();
    let written = writer.create("/file").expect("create");
    written.write_at(&[0; PAGE], 0).expect("write");
    house.store.hold_clock(u32::MAX);
    let readers = [
        ("plain", house.plain()),
        ("rpc", house.client(Route::Rpc)),
        ("guarded", house.client(Route::Guarded)),
        ("one-sided", house.client(Route::OneSided)),
        ("policy", house.client(Route::Policy)),
    ];
    for (name, reader) in &readers {
        let kept = reader.open("/file").expect("open");
        for value in 1..ROUNDS {
            let before = read(&kept);
            let value = value.wrapping_add(before);
            written.write_at(&[value; PAGE], 0).expect("write");
            if value % 2 == 0 {
                assert!(!kept.revalidate().expect("revalidate"), "{name}: {value}");
                assert_eq!(read(&kept), value, "{name}: after revalidate");
            } else {
                let opened = reader.open("/file").expect("open");
                assert_eq!(read(&opened), value, "{name}: after open");
            }
            // Nobody has written since.
            assert!(kept.revalidate().expect("revalidate"), "{name}: {value}");
            let hits = reader.statistics().cache_hits;
            assert_eq!(read(&kept), value, "{name}: cached");
            // By policy, pages are kept only where a hit saves something.
            let hit = reader.statistics().cache_hits == hits + 1;
            assert!(hit || *name == "policy", "{name}: {value}");
        }
    }
}
