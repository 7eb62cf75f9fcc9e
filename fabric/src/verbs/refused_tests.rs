//! A device that does not end a tag: its memory is used for nothing else, and the connection closes. On a device, at the
//! address in `ODAFS_VERBS_ADDRESS`; with windows it is one of these that does not end, without them a region.

use super::domain::REFUSES;
use super::{ConnectOptions, Limits, Listener, connect};
use crate::clock::{self, Nanos};
use crate::fabric::{Access, Listener as _, QueuePair, Region, RemoteInvalidation, SteeringTag};
use crate::memory::Own;
use std::net::SocketAddr;
use std::sync::Arc;

/// Messages of which the server takes only those that it has receives for, so that there is always something under way.
const MESSAGES: usize = 64;

struct Refusing;

impl Refusing {
    fn new() -> Refusing {
        REFUSES.set(true);
        Refusing
    }
}

impl Drop for Refusing {
    fn drop(&mut self) {
        REFUSES.set(false);
    }
}

/// A client and its server.
fn connected() -> (Box<dyn QueuePair>, Box<dyn QueuePair>) {
    let ip = std::env::var("ODAFS_VERBS_ADDRESS").expect("ODAFS_VERBS_ADDRESS");
    let any = SocketAddr::new(ip.parse().unwrap(), 0);
    let mut listener = Listener::bind(any, Limits::default()).unwrap();
    let address = listener.local_addr();
    std::thread::scope(|scope| {
        let client = scope.spawn(move || connect(address, b"", &ConnectOptions::default()));
        let until = clock::now() + Nanos::from_secs(10);
        let incoming = loop {
            if let Some(incoming) = listener.poll_accept().unwrap() {
                break incoming;
            }
            assert!(clock::now() < until, "nobody connects");
            clock::sleep(Nanos::from_micros(100));
        };
        let server = incoming.accept(b"", 1).unwrap();
        (client.join().unwrap().unwrap(), server)
    })
}

/// What is lent to the peer, and its tag once the device knows it.
fn lent(client: &mut dyn QueuePair) -> (Arc<Region>, SteeringTag) {
    let region = Own::new(4096).unwrap().lend();
    let tag = client.bind(&region, 0, 4096, Access::WRITE).unwrap().tag;
    client.flush();
    let until = clock::now() + Nanos::from_secs(10);
    while !client.ends_at_once(tag) {
        assert!(clock::now() < until, "it is not bound");
    }
    (region, tag)
}

#[test]
#[ignore = "needs an RDMA device"]
fn a_tag_that_ends_gives_its_memory_back() {
    let (mut client, _server) = connected();
    let (region, tag) = lent(&mut *client);
    for _ in 0..MESSAGES {
        client.post_send(0, &[b"x"]).unwrap();
    }
    client.invalidate(tag);
    assert!(!client.is_closed());
    assert!(Own::take_back(region).is_ok());
}

#[test]
#[ignore = "needs an RDMA device"]
fn a_tag_that_does_not_end_closes_the_connection_and_keeps_its_memory() {
    let (mut client, _server) = connected();
    let (region, tag) = lent(&mut *client);
    for _ in 0..MESSAGES {
        client.post_send(0, &[b"x"]).unwrap();
    }
    let refusing = Refusing::new();
    client.invalidate(tag);
    assert!(client.is_closed());
    drop(refusing);
    // Soft RoCE would wait 50 s for the window before it lets the queue pair go. Nothing of the connection is in use.
    std::mem::forget(client);
    assert!(Own::take_back(region).is_err());
}

#[test]
#[ignore = "needs an RDMA device"]
fn what_is_lent_when_a_connection_goes_is_kept_too() {
    let (mut client, _server) = connected();
    if client.remote_invalidation() == RemoteInvalidation::Bound {
        // As above.
        return;
    }
    let (region, _) = lent(&mut *client);
    let refusing = Refusing::new();
    drop(client);
    drop(refusing);
    assert!(Own::take_back(region).is_err());
}
