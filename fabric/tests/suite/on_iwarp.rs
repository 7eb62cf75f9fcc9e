use crate::{Subject, suite};
use odafs_fabric::clock::Nanos;
use odafs_fabric::iwarp::{self, ConnectOptions, Crc, Limits};
use odafs_fabric::wake::WakeSet;
use odafs_fabric::{Listener, QueuePair};
use std::io::{self, Read as _};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

struct Iwarp {
    address: Mutex<SocketAddr>,
    options: ConnectOptions,
    limits: Limits,
}

impl Iwarp {
    fn new(crc: bool, listener_crc: Crc) -> Iwarp {
        Iwarp {
            // Nobody listens there.
            address: Mutex::new(SocketAddr::from((Ipv4Addr::LOCALHOST, 1))),
            options: ConnectOptions {
                crc,
                ..ConnectOptions::default()
            },
            limits: Limits {
                crc: listener_crc,
                ..Limits::default()
            },
        }
    }
}

impl Subject for Iwarp {
    fn listen(&self) -> Box<dyn Listener> {
        let any = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
        let listener = iwarp::Listener::bind(any, self.limits).unwrap();
        *self.address.lock().unwrap() = listener.local_addr();
        Box::new(listener)
    }

    fn connect(&self, private_data: &[u8]) -> io::Result<Box<dyn QueuePair>> {
        let address = *self.address.lock().unwrap();
        iwarp::connect(address, private_data, &self.options)
    }

    fn has_loads(&self) -> bool {
        false
    }
}

/// The kernel reports them once, and they are more than are accepted at a time.
#[test]
fn all_connections_of_a_burst_are_accepted() {
    const BURST: u32 = 40;
    let mut subject = Iwarp::new(false, Crc::WhenAsked);
    // The first of them goes when the last has been accepted.
    subject.limits.handshakes = BURST - 1;
    subject.limits.handshake_deadline = Nanos::from_secs(3600);
    let mut listener = subject.listen();
    let set = Arc::new(WakeSet::new().unwrap());
    listener.watch(&set).unwrap();
    let address = *subject.address.lock().unwrap();
    let mut silent: Vec<_> = (0..BURST)
        .map(|_| TcpStream::connect(address).unwrap())
        .collect();
    silent[0].set_nonblocking(true).unwrap();
    let began = Instant::now();
    while silent[0].read(&mut [0]).is_err() {
        assert!(began.elapsed() < Duration::from_secs(30), "no more events");
        set.prepare();
        assert!(listener.poll_accept().unwrap().is_none());
        set.wait(Some(Nanos::from_secs(60)));
    }
}

/// What a connection that is read directly has taken already ends no wait: who serves it sleeps between two messages.
#[test]
fn what_was_taken_ends_no_wait() {
    let subject = Iwarp::new(false, Crc::WhenAsked);
    let mut listener = subject.listen();
    let set = Arc::new(WakeSet::new().unwrap());
    let (mut client, mut server) = thread::scope(|scope| {
        let client = scope.spawn(|| subject.connect(b"").unwrap());
        let server = loop {
            if let Some(incoming) = listener.poll_accept().unwrap() {
                break incoming.accept(b"", 0).unwrap();
            }
        };
        (client.join().unwrap(), server)
    });
    server.post_receives(10);
    server.watch(&set).unwrap();
    for number in 0..3u8 {
        client.post_send(0, &[&[number]]).unwrap();
        client.flush();
        while server.poll().is_none() {}
        assert_eq!(server.message(), [number]);
        // The message's own event may be on its way yet: it ends one wait.
        let nap = Duration::from_millis(30);
        let waits = (1..10).find(|_| {
            set.prepare();
            while !server.arm() {}
            let began = Instant::now();
            set.wait(Some(Nanos::from_millis(30)));
            assert!(server.poll().is_none());
            began.elapsed() >= nap
        });
        assert!(waits.is_some_and(|waits| waits <= 3), "{waits:?}");
    }
}

/// The client's and the server's.
type TwoEnds = (Box<dyn QueuePair>, Box<dyn QueuePair>);

/// Some connections of one listener, all on one set, none of which is read directly any more.
fn cold<const N: usize>() -> (Arc<WakeSet>, [TwoEnds; N]) {
    let subject = Iwarp::new(false, Crc::WhenAsked);
    let mut listener = subject.listen();
    let set = Arc::new(WakeSet::new().unwrap());
    let mut pairs = [(); N].map(|()| {
        thread::scope(|scope| {
            let client = scope.spawn(|| subject.connect(b"").unwrap());
            let mut server = loop {
                if let Some(incoming) = listener.poll_accept().unwrap() {
                    break incoming.accept(b"", 0).unwrap();
                }
            };
            server.post_receives(10);
            server.watch(&set).unwrap();
            (client.join().unwrap(), server)
        })
    });
    let until = Instant::now() + Duration::from_millis(200);
    while Instant::now() < until {
        for (_, server) in &mut pairs {
            assert!(server.poll().is_none());
        }
    }
    (set, pairs)
}

/// What comes for one connection while the next one is armed ends the wait, although both share what tells of it.
#[test]
fn arming_takes_no_event_of_another_connection() {
    for stuck in [false, true] {
        let (set, [(mut client, mut first), (_other, mut second)]) = cold();
        // A peer that takes nothing.
        while stuck && second.post_send(0, &[&[0; 60 << 10]]).is_ok() {
            second.flush();
        }
        set.prepare();
        while !first.arm() {}
        client.post_send(0, &[b"hello"]).unwrap();
        client.flush();
        thread::sleep(Duration::from_millis(50));
        for _ in 0..1000 {
            second.arm();
        }
        let began = Instant::now();
        set.wait(Some(Nanos::from_secs(5)));
        assert!(began.elapsed() < Duration::from_secs(2), "nobody was woken");
        let until = Instant::now() + Duration::from_secs(2);
        while first.poll().is_none() {
            assert!(Instant::now() < until, "the message was not taken");
        }
    }
}

/// A message and the end of the connection come together, and a look for another connection takes their event: who has
/// read the message looks for the end before it sleeps.
#[test]
fn the_end_behind_a_message_is_not_slept_through() {
    let (set, [(mut client, mut first), (_other, mut second)]) = cold();
    set.prepare();
    while !first.arm() {}
    client.post_send(0, &[b"hello"]).unwrap();
    client.flush();
    drop(client);
    thread::sleep(Duration::from_millis(50));
    for _ in 0..1000 {
        assert!(second.poll().is_none());
    }
    let until = Instant::now() + Duration::from_secs(2);
    while first.poll().is_none() {
        assert!(Instant::now() < until, "the message was not taken");
    }
    assert!(first.poll().is_none());
    assert!(!first.arm(), "nothing else tells of the end");
}

#[test]
fn an_idle_connection_is_quiet_until_something_comes() {
    let (_set, [(mut client, mut first), (other, mut second)]) = cold();
    for _ in 0..1000 {
        assert!(first.is_quiet() && second.is_quiet());
    }
    let until = Instant::now() + Duration::from_secs(10);
    let stirs = |server: &mut dyn QueuePair| {
        while server.is_quiet() {
            assert!(Instant::now() < until, "nothing came");
        }
    };
    client.post_send(0, &[b"hello"]).unwrap();
    client.flush();
    stirs(&mut *first);
    assert!(first.poll().is_some() && second.is_quiet());
    drop(other);
    stirs(&mut *second);
    assert!(second.poll().is_none() && second.is_closed());
}

mod plain {
    use super::*;
    suite!(windows: Iwarp::new(false, Crc::WhenAsked));
}

mod checked {
    use super::*;
    suite!(windows: Iwarp::new(true, Crc::WhenAsked));
}

mod checked_by_the_listener {
    use super::*;
    suite!(windows: Iwarp::new(false, Crc::Always));
}
