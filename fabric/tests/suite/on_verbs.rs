//! On a device, at the address in `ODAFS_VERBS_ADDRESS`.

use crate::{Ends, Subject, suite};
use odafs_fabric::clock::{self, Nanos};
use odafs_fabric::memory::{FrameNumber, LifeWord};
use odafs_fabric::verbs::{self, ConnectOptions, DeviceTransport, Limits};
use odafs_fabric::{
    Access, Completion, Listener, Local, QueuePair, Remote, Sink, Source, SteeringTag,
};
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};

struct Verbs {
    address: Mutex<SocketAddr>,
    iwarp: bool,
    rxe: bool,
}

/// What Linux's soft RoCE gives as its vendor.
const RXE: u32 = 0xff_ffff;

impl Verbs {
    fn new() -> Verbs {
        let ip = std::env::var("ODAFS_VERBS_ADDRESS").expect("ODAFS_VERBS_ADDRESS");
        let ip: IpAddr = ip.parse().expect("an address");
        let devices = verbs::devices().unwrap();
        let device = devices.iter().find(|device| {
            let mut ports = device.ports.iter();
            ports.any(|port| port.addresses.contains(&ip))
        });
        let device = device.expect("a device");
        Verbs {
            // Nobody listens there.
            address: Mutex::new(SocketAddr::new(ip, 1)),
            iwarp: device.transport == DeviceTransport::IWarp,
            rxe: device.transport == DeviceTransport::RoCE && device.vendor == RXE,
        }
    }
}

impl Verbs {
    fn listen_with(&self, limits: Limits) -> Box<dyn Listener> {
        let any = SocketAddr::new(self.address.lock().unwrap().ip(), 0);
        let listener = verbs::Listener::bind(any, limits).unwrap();
        *self.address.lock().unwrap() = listener.local_addr();
        Box::new(listener)
    }

    /// Both ends of a connection, none of whose receives are posted but those that are always.
    fn ends(&self, limits: Limits) -> Ends {
        let mut listener = self.listen_with(limits);
        let (client, server) = std::thread::scope(|scope| {
            let client = scope.spawn(|| self.connect(b"").unwrap());
            let incoming = crate::next_incoming(&mut *listener);
            let server = incoming.accept(b"", 0).unwrap();
            (client.join().unwrap(), server)
        });
        Ends {
            client,
            server,
            _listener: listener,
        }
    }
}

impl Subject for Verbs {
    fn listen(&self) -> Box<dyn Listener> {
        self.listen_with(Limits::default())
    }

    fn connect(&self, private_data: &[u8]) -> io::Result<Box<dyn QueuePair>> {
        let address = *self.address.lock().unwrap();
        verbs::connect(address, private_data, &ConnectOptions::default())
    }

    fn has_loads(&self) -> bool {
        false
    }

    fn message_min(&self) -> usize {
        4096
    }

    fn is_patient(&self) -> bool {
        !self.iwarp
    }

    /// Soft iWARP may take what follows the answer to a connection request for a part of it.
    fn lets_servers_speak_first(&self) -> bool {
        !self.iwarp
    }

    fn keeps_depths(&self) -> bool {
        !self.iwarp
    }

    fn orders_reads(&self) -> bool {
        self.rxe
    }

    /// Soft RoCE checks the bounds of the region that a window is of.
    fn checks_ranges(&self) -> bool {
        !self.rxe
    }

    /// Soft iWARP checks only that a read's memory is registered.
    fn checks_reads(&self) -> bool {
        !self.iwarp
    }

    fn tells_of_invalidation(&self) -> bool {
        !self.iwarp
    }
}

suite!(windows: Verbs::new(), #[ignore = "needs an RDMA device"]);

/// Where there is no device the error tells how to get one.
#[test]
fn without_a_device() {
    if verbs::devices().is_ok() {
        return;
    }
    let address = "127.0.0.1:0".parse().unwrap();
    let errors = [
        verbs::devices().unwrap_err().to_string(),
        verbs::Listener::bind(address, Limits::default())
            .err()
            .unwrap()
            .to_string(),
        verbs::connect(address, b"", &ConnectOptions::default())
            .err()
            .unwrap()
            .to_string(),
    ];
    for error in errors {
        assert!(
            error.contains("modprobe") || error.contains("rdma link add"),
            "{error}"
        );
    }
}

/// Bytes that this process has pinned for devices.
fn pinned() -> usize {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmPin:"));
    let kib = line.and_then(|line| line.split_whitespace().next());
    kib.map_or(0, |kib| kib.parse::<usize>().unwrap()) << 10
}

/// An idle connection pins its receives, and next to nothing else; memory is used again by those who come later.
#[test]
#[ignore = "needs an RDMA device"]
fn idle_connections_pin_their_receives() {
    const CONNECTIONS: usize = 32;
    const RECEIVES: usize = 128;
    let subject = Verbs::new();
    let mut listener = subject.listen();
    let mut connect = || {
        std::thread::scope(|scope| {
            let client = scope.spawn(|| subject.connect(b"").unwrap());
            let incoming = crate::next_incoming(&mut *listener);
            let mut server = incoming.accept(b"", 0).unwrap();
            server.post_receives(RECEIVES as u32);
            (client.join().unwrap(), server)
        })
    };
    let first = connect();
    let before = pinned();
    let pairs: Vec<_> = (1..CONNECTIONS).map(|_| connect()).collect();
    let each = (pinned() - before) / pairs.len();
    // The client's end is here too: 64 slots, of which it uses few.
    let (server, client) = (RECEIVES * 4096, 64 * 4096);
    println!("{each} bytes pinned for both ends of a connection");
    assert!(each <= server + client + 65536, "{each}");
    assert!(each >= server, "{each}: nothing is pinned, or not told");
    drop(pairs);
    let again: Vec<_> = (1..CONNECTIONS).map(|_| connect()).collect();
    let more = pinned().saturating_sub(before) / again.len();
    assert!(more <= each + 65536, "{more} after {each}");
    drop((first, again));
}

/// What a write takes its bytes from is its owner's again once the connection was dropped, even if the peer has held the
/// write up until then.
#[test]
#[ignore = "needs an RDMA device"]
fn a_dropped_connection_writes_nothing_more() {
    let subject = Verbs::new();
    if !subject.is_patient() {
        return;
    }
    let mut listener = subject.listen();
    let (mut client, mut server) = std::thread::scope(|scope| {
        let client = scope.spawn(|| subject.connect(b"").unwrap());
        let incoming = crate::next_incoming(&mut *listener);
        let server = incoming.accept(b"", 0).unwrap();
        (client.join().unwrap(), server)
    });
    let region = client.register(4096, Access::WRITE).unwrap();
    let arena = crate::memory::frames_of_eight();
    arena.copy_in(FrameNumber(3), 0, &[1; 4096]);
    // More messages than the client has receives.
    for _ in 0..64 {
        server.post_send(0, &[b"x"]).unwrap();
    }
    let from = Source::Frame {
        arena: &arena,
        frame: FrameNumber(3),
        offset: 0,
        length: 4096,
    };
    server.post_write(1, from, region.remote(0)).unwrap();
    server.flush();
    clock::sleep(Nanos::from_millis(5));
    drop(server);
    arena.copy_in(FrameNumber(3), 0, &[2; 4096]);
    client.post_receives(128);
    let until = clock::now() + Nanos::from_millis(300);
    while clock::now() < until {
        client.poll();
    }
    let byte = crate::memory::loaded(&region, 0, 1)[0];
    assert_ne!(byte, 2, "a frame of somebody else's was sent");
}

/// To a peer that was offered no RDMA Reads nothing is exposed: it shares its domain with those that may not read.
#[test]
#[ignore = "needs an RDMA device"]
fn nothing_is_exposed_without_reads() {
    let subject = Verbs::new();
    let arena = crate::memory::frames_of_eight();
    let life = LifeWord::in_memory(1).unwrap();
    let mut ends = crate::connected_with(&subject, 0);
    assert!(ends.server.expose(&arena, &life).is_err());
    let mut ends = crate::connected(&subject);
    assert!(ends.server.expose(&arena, &life).is_ok());
}

/// Messages that a server has made room for are received, however many they are, before it looks.
#[test]
#[ignore = "needs an RDMA device"]
fn as_many_receives_as_were_asked_for() {
    const MESSAGES: u32 = 600;
    let limits = Limits {
        receives: MESSAGES,
        ..Limits::default()
    };
    let mut ends = Verbs::new().ends(limits);
    assert!(ends.server.receives_max() >= MESSAGES);
    ends.server.post_receives(MESSAGES);
    // In time, what was sent has arrived without the server's doing: its device takes no more than it has receives for.
    for number in 0..MESSAGES {
        let until = clock::now() + Nanos::from_secs(10);
        while ends.client.post_send(0, &[&number.to_be_bytes()]).is_err() {
            assert!(clock::now() < until, "{number} messages were taken");
            ends.client.flush();
            assert_eq!(ends.client.poll(), None);
        }
    }
    ends.client.flush();
    for number in 0..MESSAGES {
        assert_eq!(crate::receive(&mut *ends.server), number.to_be_bytes());
    }
}

/// The end of a tag that is bound behind what the peer does not take is not waited for.
///
/// Soft RoCE (Linux 6.12) executes a bind once more when it sends again what was before it, finds the window bound, and ends
/// the connection: with luck the bind's turn comes after the last refusal.
#[test]
#[ignore = "needs an RDMA device"]
fn nobody_waits_for_the_end_of_a_tag() {
    let subject = Verbs::new();
    if !subject.is_patient() {
        return;
    }
    let tries = if subject.rxe { 20 } else { 1 };
    let lives = (0..tries).any(|_| ends_behind_what_is_not_taken(&subject));
    assert!(lives, "no connection outlives it");
}

/// Whether the connection goes on.
fn ends_behind_what_is_not_taken(subject: &Verbs) -> bool {
    let mut ends = subject.ends(Limits::default());
    let region = ends.server.register(4096, Access::LOCAL).unwrap();
    // More messages than the client has receives.
    for _ in 0..64 {
        ends.server.post_send(0, &[b"x"]).unwrap();
    }
    let bound = ends.server.bind(&region, 0, 4096, Access::READ).unwrap();
    ends.server.flush();
    assert!(!ends.server.ends_at_once(bound.tag));
    ends.client.post_receives(64);
    let until = clock::now() + Nanos::from_secs(10);
    while !ends.server.ends_at_once(bound.tag) {
        assert!(clock::now() < until, "it never ends");
        ends.client.poll();
    }
    ends.server.invalidate(bound.tag);
    !ends.server.is_closed()
}

/// A server asks an idle client whether it is there, by the client's device alone: the connection goes on.
#[test]
#[ignore = "needs an RDMA device"]
fn an_idle_connection_lives() {
    let mut ends = Verbs::new().ends(Limits::default());
    let patience = ends._listener.patience().expect("the server has to ask");
    let until = clock::now() + Nanos(patience.0 * 5 / 2);
    while clock::now() < until {
        assert!(ends.server.arm() && !ends.server.is_closed());
        clock::sleep(Nanos::from_millis(200));
        assert_eq!((ends.client.poll(), ends.server.poll()), (None, None));
    }
    crate::send(&mut *ends.client, b"still there?");
    assert_eq!(crate::receive(&mut *ends.server), b"still there?");
    crate::send(&mut *ends.server, b"yes");
    assert_eq!(crate::receive(&mut *ends.client), b"yes");
}

/// Soft iWARP may leave what comes first in its socket until more comes: on a busy machine a client that says no other word
/// has to send more by itself.
#[test]
#[ignore = "needs an RDMA device"]
fn a_read_as_the_first_word_is_answered() {
    const CONNECTIONS: usize = 200;
    let subject = Verbs::new();
    let mut listener = subject.listen();
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let _until = Until(&over);
        for _ in 0..2 {
            scope.spawn(|| {
                while !over.load(Ordering::Relaxed) {
                    std::hint::spin_loop();
                }
            });
        }
        for _ in 0..CONNECTIONS {
            let client = scope.spawn(|| reads_at_once(&subject));
            // The client may have been shown out already.
            let server = crate::next_incoming(&mut *listener).accept(b"", 128);
            let read = client.join().unwrap();
            assert!(
                matches!(read, None | Some(Completion::Read { result: Err(_), .. })),
                "{read:?}"
            );
            drop(server);
        }
    });
}

/// Ends the threads that keep the processors busy, also when the test fails.
struct Until<'a>(&'a AtomicBool);

impl Drop for Until<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Connects, and reads under a tag that is none: what came of it.
fn reads_at_once(subject: &Verbs) -> Option<Completion> {
    let mut client = subject.connect(b"").unwrap();
    let region = client.register(8, Access::LOCAL).unwrap();
    let into = Sink::Region(Local {
        region: &region,
        offset: 0,
        length: 8,
    });
    let from = Remote {
        tag: SteeringTag(0x4242),
        offset: 0,
    };
    client.post_read(1, into, from).unwrap();
    client.flush();
    crate::next(&mut *client)
}
