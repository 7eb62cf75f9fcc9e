use crate::{Ends, Subject, connected, memory, next_incoming, suite, while_polled};
use odafs_common::page::{Layout, PageSize};
use odafs_fabric::clock::{self, Nanos};
use odafs_fabric::memory::{Arena, ArenaConfig, LifeWord};
use odafs_fabric::shm::{self, ConnectOptions, Limits};
use odafs_fabric::{Access, Listener, PostError, QueuePair};
use std::path::PathBuf;
use std::sync::Arc;
use std::{fs, io};

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

/// How often this thread has waited for anything.
fn waits() -> String {
    let status = fs::read_to_string("/proc/thread-self/status").unwrap();
    let mut lines = status.lines();
    let waits = lines.find(|line| line.starts_with("voluntary_ctxt_switches"));
    waits.expect("the kernel counts").to_owned()
}

/// Nobody is left to wake it.
#[test]
fn a_client_does_not_sleep_once_its_server_has_gone() {
    let mut ends = connected(&Shm::new());
    drop(ends.server);
    let before = waits();
    assert_eq!(ends.client.wait(None), Err(PostError::Closed));
    assert_eq!(waits(), before);
}

/// Nobody is left to make room.
#[test]
fn a_client_whose_ring_is_full_learns_that_its_server_has_gone() {
    let mut ends = connected(&Shm::new());
    let message = vec![0; ends.client.max_message()];
    while ends.client.post_send(0, &[&message]).is_ok() {}
    drop(ends.server);
    let patience = clock::now() + Nanos::from_secs(30);
    while ends.client.post_send(0, &[&message]) != Err(PostError::Closed) {
        assert!(clock::now() < patience, "it waits for room");
    }
}

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

/// How many mappings, only to read, this process has of memory of that name and length.
fn mappings(name: &str, length: u64) -> usize {
    let maps = fs::read_to_string("/proc/self/maps").unwrap();
    let wanted = |line: &str| {
        let (start, rest) = line.split_once('-')?;
        let (end, rest) = rest.split_once(' ')?;
        let [start, end] = [start, end].map(|at| u64::from_str_radix(at, 16).unwrap());
        (rest.starts_with("r--s") && rest.contains(name) && end - start == length).then_some(())
    };
    maps.lines().filter_map(wanted).count()
}

#[test]
fn connections_share_mappings_but_not_their_ends() {
    // No other test has an arena of this length.
    let config = ArenaConfig {
        frames: 37,
        layout: Layout::apart(PageSize::DEFAULT),
        huge: false,
        populate: false,
    };
    let arena = Arc::new(Arena::create(&config).unwrap());
    let life = LifeWord::in_memory(0x11ff).unwrap();
    let [mut first, mut second] = [Shm::new(), Shm::new()].map(|shm| connected(&shm));
    let views = [&mut first, &mut second].map(|ends| {
        let exposed = ends.server.expose(&arena, &life).unwrap();
        ends.client.map_exposed(&exposed).unwrap().unwrap()
    });
    assert_eq!(mappings("odafs-arena", 37 * 4096), 1);
    drop(first.server);
    let patience = clock::now() + Nanos::from_secs(30);
    while views[0].is_alive() {
        assert!(clock::now() < patience, "it counts without a server");
        clock::sleep(Nanos::from_millis(1));
    }
    assert!(views[1].is_alive());
    drop((first.client, second.client));
    drop(views);
    assert_eq!(mappings("odafs-arena", 37 * 4096), 0);
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
