//! Memory by every strategy, and its bounds.

use odafs_common::page::{Layout, PageSize};
use odafs_fabric::memory::ArenaConfig;
use odafs_fabric::sim::{Network, NetworkConfig};
use odafs_fabric::sync::{Mutex, thread};
use odafs_fabric::{Access, Local, QueuePair, Remote, Sink};

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
        Room::all::<1>(strategy, adapter, network)
            .into_iter()
            .next()
            .unwrap()
    }

    /// So many connections.
    fn all<const N: usize>(
        strategy: Strategy,
        adapter: Adapter,
        network: NetworkConfig,
    ) -> [Room; N] {
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
        let supply = Supply::new(
            Some(Arc::clone(&spare) as Arc<dyn Frames>),
            Arc::new(arena.unwrap()),
            config.bytes_max,
            Arc::default(),
        );
        let network = Network::new(1, network);
        let mut listener = network.listen("server").unwrap();
        std::array::from_fn(|_| {
            let network = network.clone();
            let client = thread::spawn(move || network.connect("server", b"").unwrap());
            let incoming = loop {
                match listener.poll_accept().unwrap() {
                    Some(incoming) => break incoming,
                    None => thread::yield_now(),
                }
            };
            Room {
                registrar: Registrar::new(config, adapter, supply.clone()),
                supply: supply.clone(),
                spare: Arc::clone(&spare),
                qp: incoming.accept(b"", 8).unwrap(),
                peer: client.join().unwrap(),
            }
        })
    }

    fn lease(&mut self, length: usize) -> Option<Lease> {
        match self.registrar.lease(&mut *self.qp, length) {
            Ok(lease) => Some(lease),
            Err(NoLease::Later) => None,
            Err(NoLease::Never(error)) => panic!("{error}"),
        }
    }

    fn expose(&mut self, length: usize) -> Option<Lease> {
        self.registrar.expose(&mut *self.qp, length)
    }

    fn release(&mut self, lease: Lease) {
        self.release_at(lease, Nanos(0));
    }

    fn release_at(&mut self, lease: Lease, now: Nanos) {
        self.registrar.release(&mut *self.qp, lease, now);
    }

    fn trim(&mut self, now: Nanos) -> bool {
        self.registrar.trim(&mut *self.qp, now)
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
            let lease = room.lease(5000).unwrap();
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
            let lease = room.lease(5000).unwrap();
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
        let mut room = Room::at(strategy, Adapter::Soft, bare);
        let lease = room.lease(5 * 4096).unwrap();
        assert_eq!(lease.remote(), None, "{strategy:?}");
        let mut room = Room::at(strategy, Adapter::Device, bare);
        let mut tags = Vec::new();
        for _ in 0..3 {
            let lease = room.expose(5000).unwrap();
            tags.push(lease.remote().unwrap().tag);
            room.release(lease);
            assert_eq!(room.supply.used(), 0, "{strategy:?}");
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
        let lease = room.expose(5000).unwrap();
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
    let lease = room.lease(5000).unwrap();
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
    assert_eq!(room.supply.used(), 0);
    // What no frames are left for comes from elsewhere.
    let lease = room.lease(5 * 4096).unwrap();
    assert!(matches!(lease.sink(0, 1).0, Sink::Region(_)));
    assert_eq!(room.spare.0.lock().len(), 4);
}

/// A job that a slow disk holds up outlives its connection.
#[test]
fn memory_is_charged_for_until_the_last_reader_is_gone() {
    for strategy in [Strategy::PerOperation, Strategy::Pooled, Strategy::Cached] {
        let mut room = Room::new(strategy);
        let lease = room.lease(16 << 10).unwrap();
        let contents = lease.contents();
        let supply = room.supply.clone();
        drop((lease, room));
        assert_eq!(supply.used(), 16 << 10, "{strategy:?}");
        drop(contents);
        assert_eq!(supply.used(), 0, "{strategy:?}");
    }
}

#[test]
fn memory_is_bounded_and_idle_memory_makes_room() {
    for strategy in [Strategy::PerOperation, Strategy::Pooled, Strategy::Cached] {
        let mut room = Room::new(strategy);
        let leases = [0; 4].map(|_| room.lease(16 << 10).unwrap());
        assert!(room.lease(1).is_none(), "{strategy:?}");
        leases.into_iter().for_each(|lease| room.release(lease));
        let lease = room.lease(60 << 10).unwrap();
        room.release(lease);
        room.trim(Nanos::from_secs(10));
        assert!(!room.registrar.keeps_memory());
        assert_eq!(room.supply.used(), 0, "{strategy:?}");
    }
}

/// Each buffer goes when it has not been used for a while, though others of its connection are.
#[test]
fn buffers_age_one_by_one() {
    for strategy in [Strategy::Pooled, Strategy::Cached] {
        let mut room = Room::new(strategy);
        let leases = [0; 4].map(|_| room.lease(16 << 10).unwrap());
        leases.into_iter().for_each(|lease| room.release(lease));
        let mut now = Nanos(0);
        for _ in 0..50 {
            let lease = room.lease(16 << 10).unwrap();
            now = now + Nanos::from_millis(100);
            room.release_at(lease, now);
            room.trim(now);
        }
        // One is enough for them; of those that are pooled, others have tags that are to be flushed.
        let enough = if strategy == Strategy::Pooled { 3 } else { 1 };
        assert!(room.supply.used() <= enough * (16 << 10), "{strategy:?}");
        assert_eq!(room.supply.counters.registered.load(Ordering::Relaxed), 4);
    }
}

/// Eight connections have used all the memory, and use it now and then. A ninth has some when each of them has had a turn,
/// and a later one waits behind it.
#[test]
fn who_waits_has_what_idles_elsewhere() {
    for strategy in [Strategy::PerOperation, Strategy::Pooled, Strategy::Cached] {
        let [mut ninth, mut others @ ..] =
            Room::all::<9>(strategy, Adapter::Soft, NetworkConfig::default());
        let mut leases: Vec<Lease> = others
            .iter_mut()
            .map(|room| room.lease(8 << 10).unwrap())
            .collect();
        assert!(
            ninth.lease(64 << 10).is_none(),
            "all is in use: {strategy:?}"
        );
        for (room, lease) in others.iter_mut().zip(leases.drain(..)) {
            room.release(lease);
            assert!(room.lease(8 << 10).is_none(), "another waits: {strategy:?}");
            let gave = room.trim(Nanos(0));
            assert!(gave || strategy == Strategy::PerOperation);
            assert!(!room.registrar.keeps_memory());
        }
        let lease = ninth.lease(64 << 10).unwrap();
        assert!(others[0].lease(8 << 10).is_none(), "{strategy:?}");
        ninth.release(lease);
        assert!(!ninth.trim(Nanos(0)) || strategy != Strategy::PerOperation);
        // In the order of their coming, though others ask first.
        for at in 0..others.len() {
            for later in (at + 1..others.len()).rev() {
                assert!(others[later].lease(8 << 10).is_none());
            }
            let lease = others[at].lease(8 << 10).unwrap();
            others[at].release(lease);
            others[at].trim(Nanos(0));
        }
    }
}

/// A connection that is gone, or needs no more memory, holds nobody up; only as much as is wanted is given back.
#[test]
fn who_has_gone_waits_no_longer() {
    let [mut first, mut second, mut third] =
        Room::all::<3>(Strategy::Cached, Adapter::Soft, NetworkConfig::default());
    let leases = [0; 4].map(|_| first.lease(16 << 10).unwrap());
    assert!(second.lease(30 << 10).is_none());
    assert!(third.lease(1).is_none());
    leases.into_iter().for_each(|lease| first.release(lease));
    assert!(first.trim(Nanos(0)));
    assert_eq!(first.supply.used(), 32 << 10, "half was wanted");
    drop(second);
    let lease = third.lease(1).unwrap();
    third.release(lease);
    assert!(!first.trim(Nanos(0)), "nobody waits");
    let leases = [0; 3].map(|_| third.lease(8 << 10).unwrap());
    assert!(third.lease(16 << 10).is_none());
    third.registrar.waits_no_longer();
    assert!(!first.trim(Nanos(0)), "nobody waits");
    drop(leases);
}

/// Where the system locks no more memory, all that idles is given back before a call fails; it is not asked again before
/// anything has changed.
#[test]
fn what_the_system_refuses_is_waited_for_as_long_as_some_is_in_use() {
    let network = NetworkConfig {
        locked_max: 32 << 10,
        ..NetworkConfig::default()
    };
    for strategy in [Strategy::PerOperation, Strategy::Pooled, Strategy::Cached] {
        let [mut first, mut second] = Room::all::<2>(strategy, Adapter::Device, network);
        let leases = [0; 4].map(|_| first.lease(8 << 10).unwrap());
        for _ in 0..3 {
            assert!(second.lease(16 << 10).is_none(), "{strategy:?}");
        }
        for lease in leases {
            first.release(lease);
            first.trim(Nanos(0));
            assert!(!first.registrar.keeps_memory(), "{strategy:?}");
        }
        let lease = second.lease(16 << 10).unwrap();
        second.release(lease);
        // Of its own, too.
        let lease = second.lease(32 << 10).unwrap();
        second.release(lease);
        let never = second.registrar.lease(&mut *second.qp, 33 << 10);
        let Err(NoLease::Never(error)) = never else {
            panic!("{strategy:?}")
        };
        assert_eq!(error.kind(), std::io::ErrorKind::OutOfMemory);
        assert_eq!(second.supply.used(), 0, "{strategy:?}");
        assert!(first.lease(1).is_some(), "nobody waits: {strategy:?}");
    }
}

/// More than there ever is.
#[test]
fn what_is_too_long_is_not_waited_for() {
    let mut room = Room::new(Strategy::Cached);
    let lease = room.lease(64 << 10).unwrap();
    let again = room.registrar.lease(&mut *room.qp, 65 << 10);
    assert!(matches!(again, Err(NoLease::Later)));
    room.release(lease);
    let again = room.registrar.lease(&mut *room.qp, 65 << 10);
    assert!(matches!(again, Err(NoLease::Never(_))));
}

/// A peer that takes no messages holds up the end of its own tags, and nobody who asks for it.
#[test]
fn a_tag_whose_end_would_be_waited_for_ends_later() {
    let network = NetworkConfig {
        receives: true,
        ..NetworkConfig::default()
    };
    for strategy in [Strategy::Pooled, Strategy::Cached] {
        let mut room = Room::at(strategy, Adapter::Device, network);
        room.qp
            .post_send(0, &[b"there is no receive for it"])
            .unwrap();
        room.qp.flush();
        let lease = room.expose(5000).unwrap();
        let from = lease.remote().unwrap();
        room.release(lease);
        for seconds in [1, 5, 9] {
            room.trim(Nanos::from_secs(seconds));
            assert!(room.registrar.keeps_memory() && room.supply.used() > 0);
            assert!(!room.registrar.is_stuck(Nanos::from_secs(seconds)));
        }
        assert!(
            room.registrar.is_stuck(Nanos::from_secs(11)),
            "{strategy:?}"
        );
        room.peer.post_receives(1);
        while room.peer.poll().is_none() {
            thread::yield_now();
        }
        room.trim(Nanos::from_secs(11));
        assert_eq!(room.supply.used(), 0, "{strategy:?}");
        assert!(!room.may_read(from, 1), "{strategy:?}");
    }
}
