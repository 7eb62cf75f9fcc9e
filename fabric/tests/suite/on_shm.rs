use crate::{Ends, Subject, connected, memory, next_incoming, suite, while_polled};
use odafs_fabric::clock::{self, Nanos};
use odafs_fabric::shm::{self, ConnectOptions, Limits};
use odafs_fabric::{Access, Listener, QueuePair};
use std::io;
use std::path::PathBuf;

struct Shm {
    directory: tempfile::TempDir,
}

impl Shm {
    fn new() -> Shm {
        Shm {
            directory: tempfile::tempdir().unwrap(),
        }
    }

    fn path(&self) -> PathBuf {
        self.directory.path().join("socket")
    }
}

impl Subject for Shm {
    fn listen(&self) -> Box<dyn Listener> {
        Box::new(shm::Listener::bind(&self.path(), Limits::default()).unwrap())
    }

    fn connect(&self, private_data: &[u8]) -> io::Result<Box<dyn QueuePair>> {
        shm::connect(&self.path(), private_data, &ConnectOptions::default())
    }

    fn has_loads(&self) -> bool {
        true
    }

    fn marks(&self) -> bool {
        true
    }
}

/// The answer to a registration that was given up is not taken for that to the next one.
#[test]
fn a_late_refusal_hits_no_other_registration() {
    let shm = Shm::new();
    let mut listener = shm.listen();
    let options = ConnectOptions {
        timeout: Nanos::from_secs(1),
    };
    let (client, server) = std::thread::scope(|scope| {
        let client = scope.spawn(|| shm::connect(&shm.path(), b"", &options).unwrap());
        let server = next_incoming(&mut *listener).accept(b"", 0).unwrap();
        (client.join().unwrap(), server)
    });
    let mut ends = Ends {
        client,
        server,
        _listener: listener,
    };
    let given_up = ends.client.register(1 << 50, Access::BOTH);
    assert_eq!(
        given_up.err().map(|error| error.kind()),
        Some(io::ErrorKind::TimedOut)
    );
    let region = while_polled(&mut ends, |client| client.register(4096, Access::BOTH));
    assert_eq!(region.map(|region| region.len()).ok(), Some(4096));
}

suite!(Shm::new());

/// A server that dies says nothing: its life word stays as it was.
#[test]
fn memory_of_a_server_that_is_gone_counts_no_more() {
    let mut ends = connected(&Shm::new());
    let (arena, life) = memory::arena_with_life();
    let exposed = ends.server.expose(&arena, &life).unwrap();
    let view = ends.client.map_exposed(&exposed).unwrap().unwrap();
    assert!(view.is_alive());
    drop(ends.server);
    let patience = clock::now() + Nanos::from_secs(30);
    while view.is_alive() {
        assert!(clock::now() < patience, "it counts without a server");
        clock::sleep(Nanos::from_millis(1));
    }
}

/// A server that serves others polls this connection now and then, and never waits.
#[test]
fn a_busy_server_notices_that_its_client_is_gone() {
    const POLLS: u32 = 20_000;
    let mut ends = connected(&Shm::new());
    drop(ends.client);
    for _ in 0..POLLS {
        if ends.server.is_closed() {
            return;
        }
        if !ends.server.is_quiet() {
            assert!(ends.server.poll().is_none());
        }
        clock::sleep(Nanos::from_micros(100));
    }
    panic!("it is open after {POLLS} polls, two seconds and more");
}
