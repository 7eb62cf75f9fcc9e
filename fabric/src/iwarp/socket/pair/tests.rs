//! What an end does by itself.

use crate::clock::Nanos;
use crate::fabric::{Access, Listener as _, Remote, Source};
use crate::iwarp::{ConnectOptions, Limits, Listener, connect};
use std::time::{Duration, Instant};

/// More than a socket takes at once.
const BYTES: usize = 16 << 20;

/// What is longer than a burst is sent to its end, although nothing more is posted.
#[test]
fn more_than_a_burst() {
    let mut listener = Listener::bind(([127, 0, 0, 1], 0).into(), Limits::default()).unwrap();
    let address = listener.local_addr();
    let client = std::thread::spawn(move || {
        let mut client = connect(address, b"", &ConnectOptions::default()).unwrap();
        let region = client.register(BYTES, Access::WRITE).unwrap();
        client
            .post_send(0, &[&region.tag().0.to_be_bytes()])
            .unwrap();
        client.flush();
        let until = Instant::now() + Duration::from_secs(5);
        while Instant::now() < until {
            assert!(client.poll().is_none());
            let mut last = [0];
            if region.load(BYTES - 1, &mut last) && last == [7] {
                return true;
            }
            client.wait(Some(Nanos::from_millis(100))).unwrap();
        }
        false
    });
    let mut server = loop {
        if let Some(incoming) = listener.poll_accept().unwrap() {
            break incoming.accept(b"", 0).unwrap();
        }
    };
    server.post_receives(1);
    while server.poll().is_none() {
        server.wait(None).unwrap();
    }
    let tag = u32::from_be_bytes(server.message().try_into().unwrap());
    let to = Remote {
        tag: crate::fabric::SteeringTag(tag),
        offset: 0,
    };
    let from = vec![7; BYTES];
    server.post_write(0, Source::Bytes(&from), to).unwrap();
    server.flush();
    while !client.is_finished() {
        // As an engine does: without anything to post it rings no doorbell.
        assert!(server.poll().is_none());
        if server.arm() {
            std::thread::yield_now();
        }
    }
    assert!(client.join().unwrap(), "some of it was never sent");
}
