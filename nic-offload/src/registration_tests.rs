//! Memory by every strategy, and its bounds.

use odafs_common::page::{Layout, PageSize};
use odafs_fabric::Remote;
use odafs_fabric::memory::ArenaConfig;
use odafs_fabric::sim::{Network, NetworkConfig};
use odafs_fabric::sync::{Mutex, thread};

use super::*;

#[derive(Default)]
struct Spare(Mutex<Vec<FrameNumber>>);

impl Frames for Spare {
    fn take(&self) -> Option<FrameNumber> {
        self.0.lock().pop()
    }

    fn give(&self, frame: FrameNumber) {
        self.0.lock().push(frame);
    }
}

struct Room {
    registrar: Registrar,
    supply: Supply,
    spare: Arc<Spare>,
    qp: Box<dyn QueuePair>,
    /// The client's end.
    peer: Box<dyn QueuePair>,
}

const FRAMES: u32 = 4;

impl Room {
    fn new(strategy: Strategy) -> Room {
        Room::at(strategy, Adapter::Soft, NetworkConfig::default())
    }

    fn at(strategy: Strategy, adapter: Adapter, network: NetworkConfig) -> Room {
        let arena = Arena::create(&ArenaConfig {
            frames: FRAMES,
            layout: Layout::apart(PageSize::DEFAULT),
            huge: false,
            populate: false,
        });
        let spare = Arc::new(Spare(Mutex::new((0..FRAMES).map(FrameNumber).collect())));
        let config = RegistrationConfig {
            strategy,
            dirty_watermark: 3,
            connection_bytes_max: 64 << 10,
            bytes_max: 64 << 10,
            ..RegistrationConfig::default()
        };
        let supply = Supply {
            frames: Some(Arc::clone(&spare) as Arc<dyn Frames>),
            arena: Arc::new(arena.unwrap()),
            budget: Budget::new(config.bytes_max),
            counters: Arc::default(),
        };
        let network = Network::new(1, network);
        let mut listener = network.listen("server").unwrap();
        let client = thread::spawn(move || network.connect("server", b"").unwrap());
        let incoming = loop {
            match listener.poll_accept().unwrap() {
                Some(incoming) => break incoming,
                None => thread::yield_now(),
            }
        };
        Room {
            registrar: Registrar::new(config, adapter, supply.clone()),
            supply,
            spare,
            qp: incoming.accept(b"", 8).unwrap(),
            peer: client.join().unwrap(),
        }
    }

    fn lease(&mut self, length: usize, access: Access) -> Option<Lease> {
        self.registrar.lease(&mut *self.qp, length, access)
    }

    fn release(&mut self, lease: Lease) {
        self.registrar.release(&mut *self.qp, lease);
    }

    fn counts(&self) -> [u64; 4] {
        let counters = &self.supply.counters;
        [
            &counters.registered,
            &counters.bound,
            &counters.reused,
            &counters.flushes,
        ]
        .map(|count| count.load(Ordering::Relaxed))
    }

    /// Whether the client may read so much under a tag.
    fn may_read(&mut self, from: Remote, length: usize) -> bool {
        let region = self.peer.register(length, Access::LOCAL).unwrap();
        let sink = Sink::Region(Local {
            region: &region,
            offset: 0,
            length,
        });
        self.peer.post_read(0, sink, from).is_ok()
    }
}

#[test]
fn each_strategy_pays_when_it_should() {
    for (strategy, expected) in [
        (Strategy::PerOperation, [5, 0, 0, 0]),
        (Strategy::Pooled, [3, 5, 2, 1]),
        (Strategy::Cached, [1, 0, 4, 0]),
        (Strategy::AllPhysical, [0, 0, 0, 0]),
    ] {
        let mut room = Room::new(strategy);
        for _ in 0..5 {
            let lease = room.lease(5000, Access::LOCAL).unwrap();
            assert!(lease.remote().is_none() || strategy != Strategy::Cached);
            room.release(lease);
        }
        assert_eq!(room.counts(), expected, "{strategy:?}");
    }
}

/// On a device, what we alone read into needs no tag, whatever the strategy.
#[test]
fn a_device_binds_nothing_that_the_peer_has_no_right_to() {
    for (strategy, expected) in [
        (Strategy::PerOperation, [5, 0, 0, 0]),
        (Strategy::Pooled, [1, 0, 4, 0]),
        (Strategy::Cached, [1, 0, 4, 0]),
        (Strategy::AllPhysical, [0, 0, 0, 0]),
    ] {
        let mut room = Room::at(strategy, Adapter::Device, NetworkConfig::default());
        for _ in 0..5 {
            let lease = room.lease(5000, Access::LOCAL).unwrap();
            room.release(lease);
        }
        assert_eq!(room.counts(), expected, "{strategy:?}");
    }
}

/// Where there are no tags for ranges, what the peer may reach is registered for each use.
#[test]
fn without_tags_for_ranges_memory_is_registered_for_each_use() {
    let bare = NetworkConfig {
        bare: true,
        ..NetworkConfig::default()
    };
    for strategy in [Strategy::Pooled, Strategy::Cached, Strategy::AllPhysical] {
        let mut room = Room::at(strategy, Adapter::Device, bare);
        let mut tags = Vec::new();
        for _ in 0..3 {
            let lease = room.lease(5000, Access::READ).unwrap();
            tags.push(lease.remote().unwrap().tag);
            room.release(lease);
            assert_eq!(room.supply.budget.used(), 0, "{strategy:?}");
        }
        tags.dedup();
        assert_eq!(tags.len(), 3, "{strategy:?}");
        // One more: the first time it was not known.
        assert_eq!(room.counts(), [4, 0, 0, 0], "{strategy:?}");
    }
}

#[test]
fn what_the_peer_may_read_has_a_tag_of_its_own() {
    for strategy in [
        Strategy::PerOperation,
        Strategy::Pooled,
        Strategy::Cached,
        Strategy::AllPhysical,
    ] {
        let mut room = Room::new(strategy);
        let lease = room.lease(5000, Access::READ).unwrap();
        let from = lease.remote().unwrap();
        assert!(lease.store(0, &[1; 5000]));
        assert!(room.may_read(from, 5000));
        assert!(!room.may_read(from, 5001), "beyond the lease: {strategy:?}");
        room.release(lease);
        room.registrar.flush(&mut *room.qp);
        assert!(!room.may_read(from, 1), "{strategy:?}");
    }
}

#[test]
fn frames_go_back_when_the_last_reader_is_gone() {
    let mut room = Room::new(Strategy::AllPhysical);
    let lease = room.lease(5000, Access::LOCAL).unwrap();
    let (Sink::Frame { frame, length, .. }, reach) = lease.sink(4090, 910) else {
        panic!("no frame")
    };
    assert_eq!((length, reach), (6, 6), "up to the end of its frame");
    room.supply.arena.copy_in(frame, 4090, b"abcdef");
    let contents = lease.contents();
    room.release(lease);
    assert_eq!(room.spare.0.lock().len(), 2, "they are still looked at");
    let mut bytes = [0; 6];
    assert!(contents.load(4090, &mut bytes));
    assert_eq!(&bytes, b"abcdef");
    assert!(!contents.load(8190, &mut bytes), "beyond them");
    drop(contents);
    assert_eq!(room.spare.0.lock().len(), 4);
    assert_eq!(room.supply.budget.used(), 0);
    // What no frames are left for comes from elsewhere.
    let lease = room.lease(5 * 4096, Access::LOCAL).unwrap();
    assert!(matches!(lease.sink(0, 1).0, Sink::Region(_)));
    assert_eq!(room.spare.0.lock().len(), 4);
}

#[test]
fn memory_is_bounded_and_idle_memory_makes_room() {
    for strategy in [Strategy::PerOperation, Strategy::Pooled, Strategy::Cached] {
        let mut room = Room::new(strategy);
        let leases = [0; 4].map(|_| room.lease(16 << 10, Access::LOCAL).unwrap());
        assert!(room.lease(1, Access::LOCAL).is_none(), "{strategy:?}");
        leases.into_iter().for_each(|lease| room.release(lease));
        let lease = room.lease(60 << 10, Access::LOCAL).unwrap();
        room.release(lease);
        room.registrar
            .trim(&mut *room.qp, clock::now() + Nanos::from_secs(10));
        assert!(!room.registrar.keeps_memory());
        assert_eq!(room.supply.budget.used(), 0, "{strategy:?}");
    }
}
