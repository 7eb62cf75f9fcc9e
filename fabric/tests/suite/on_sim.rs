use crate::{Subject, suite};
use odafs_fabric::clock::Nanos;
use odafs_fabric::sim::{Network, NetworkConfig};
use odafs_fabric::{Access, Completion, Listener, Local, QueuePair, ReadOrder, Sink};
use std::io;

struct Sim {
    network: Network,
    loads: bool,
    ordered: bool,
}

impl Sim {
    fn new(config: NetworkConfig) -> Sim {
        Sim {
            network: Network::new(7, config),
            loads: config.loads,
            ordered: !config.bare,
        }
    }
}

impl Subject for Sim {
    fn listen(&self) -> Box<dyn Listener> {
        self.network.listen("server").unwrap()
    }

    fn connect(&self, private_data: &[u8]) -> io::Result<Box<dyn QueuePair>> {
        self.network.connect("server", private_data)
    }

    fn has_loads(&self) -> bool {
        self.loads
    }

    fn orders_reads(&self) -> bool {
        self.ordered
    }
}

mod quick {
    use super::*;
    suite!(windows: Sim::new(NetworkConfig {
        loads: true,
        ..NetworkConfig::default()
    }));
}

mod slow {
    use super::*;
    suite!(windows: Sim::new(NetworkConfig {
        delay_max: Nanos::from_micros(200),
        slow: true,
        receives: true,
        ..NetworkConfig::default()
    }));
}

mod iwarp {
    use super::*;
    suite!(windows: Sim::new(NetworkConfig {
        iwarp: true,
        ..NetworkConfig::default()
    }));
}

mod bare {
    use super::*;

    fn sim() -> Sim {
        Sim::new(NetworkConfig {
            bare: true,
            ..NetworkConfig::default()
        })
    }

    suite!(sim());

    /// Of two RDMA Reads that are under way together the later may see less; of two with a completion between them it
    /// does not.
    #[test]
    fn reads_see_memory_in_any_order() {
        let mut ends = crate::connected(&sim());
        assert_eq!(ends.client.read_order(), ReadOrder::Fence);
        let theirs = ends.server.register(8, Access::READ).unwrap();
        let mine = ends.client.register(16, Access::LOCAL).unwrap();
        let read = |client: &mut dyn QueuePair, id: u64| {
            let into = Sink::Region(Local {
                region: &mine,
                offset: 0,
                length: 8,
            });
            client.post_read(id, into, theirs.remote(0)).unwrap();
        };
        read(&mut *ends.client, 1);
        read(&mut *ends.client, 2);
        ends.client.flush();
        let over = |client: &mut dyn QueuePair| match crate::next(client) {
            Some(Completion::Read { id, result: Ok(()) }) => id,
            other => panic!("{other:?} instead of the end of a read"),
        };
        assert_eq!([0; 2].map(|_| over(&mut *ends.client)), [2, 1]);
        for id in [3, 4] {
            read(&mut *ends.client, id);
            ends.client.flush();
            assert_eq!(over(&mut *ends.client), id);
        }
        let bound = ends.server.bind(&theirs, 0, 8, Access::READ);
        assert_eq!(bound.unwrap_err().kind(), io::ErrorKind::Unsupported);
    }
}

/// The peer's first frame, without which nobody may answer, takes its time.
#[test]
fn first_words_on_slow_iwarp() {
    let config = NetworkConfig {
        delay_max: Nanos::from_micros(200),
        iwarp: true,
        ..NetworkConfig::default()
    };
    crate::messages::first_words(&Sim::new(config));
}

/// A killed server's ends are dead at once, on both sides; its name is free.
#[test]
fn kill() {
    let sim = Sim::new(NetworkConfig::default());
    let mut ends = crate::connected(&sim);
    crate::send(&mut *ends.client, b"before");
    sim.network.kill("server");
    assert!(ends.server.is_closed() && ends.client.is_closed());
    assert!(ends.server.post_send(1, &[b"after"]).is_err());
    assert!(sim.connect(b"").is_err());
    let _again = sim.listen();
}

/// A cut loses what is under way, and tells both ends.
#[test]
fn cut() {
    let sim = Sim::new(NetworkConfig {
        slow: true,
        ..NetworkConfig::default()
    });
    let mut ends = crate::connected(&sim);
    let sink = ends.client.register(64, Access::BOTH).unwrap();
    let to = sink.remote(0);
    ends.server
        .post_write(5, odafs_fabric::Source::Bytes(b"x"), to)
        .unwrap();
    assert_eq!(sim.network.clients().len(), 1);
    sim.network.cut(sim.network.clients()[0]);
    assert!(ends.client.is_closed());
    let flushed = odafs_fabric::Completion::Write {
        id: 5,
        result: Err(odafs_fabric::Fault::Flushed),
    };
    assert_eq!(ends.server.poll(), Some(flushed));
    assert!(sim.network.clients().is_empty());
}
