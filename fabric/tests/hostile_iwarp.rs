//! Strangers at the tcp fabric's port: whatever they send, they end their own connection at most.

#![cfg(not(any(shuttle, loom)))]

use odafs_common::page::{Layout, PageSize};
use odafs_fabric::clock::{self, Nanos};
use odafs_fabric::iwarp::{self, ConnectOptions, Limits};
use odafs_fabric::memory::{Arena, ArenaConfig, LifeWord};
use odafs_fabric::wake::WakeSet;
use odafs_fabric::{
    Access, Completion, Listener, PostError, QueuePair, Remote, Source, SteeringTag,
};
use std::io::{ErrorKind, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::sync::Arc;
use std::time::Duration;

/// As Linux's `siw` asks.
const REQUEST: &[u8] =
    b"MPA ID Req Frame\x10\x02\x00\x0c\x00\x80\x00\x00\xf6\xab\x0e\x18\x01\x01\x03\x03";

fn listener(limits: Limits) -> iwarp::Listener {
    iwarp::Listener::bind(SocketAddr::from((Ipv4Addr::LOCALHOST, 0)), limits).unwrap()
}

fn raw(listener: &iwarp::Listener) -> TcpStream {
    let stream = TcpStream::connect(listener.local_addr()).unwrap();
    stream
        .set_read_timeout(Some(Duration::from_secs(10)))
        .unwrap();
    stream
}

fn until<T>(mut found: impl FnMut() -> Option<T>) -> T {
    let give_up = clock::now() + Nanos::from_secs(20);
    loop {
        if let Some(found) = found() {
            return found;
        }
        assert!(clock::now() < give_up, "it never comes");
        clock::sleep(Nanos::from_micros(200));
    }
}

fn accept(listener: &mut iwarp::Listener, inbound_reads: u32) -> Box<dyn QueuePair> {
    let incoming = until(|| listener.poll_accept().unwrap());
    incoming.accept(b"hi", inbound_reads).unwrap()
}

/// A raw stream behind its handshake, and the server's end.
fn connected(
    listener: &mut iwarp::Listener,
    inbound_reads: u32,
) -> (TcpStream, Box<dyn QueuePair>) {
    let mut stream = raw(listener);
    stream.write_all(REQUEST).unwrap();
    let server = accept(listener, inbound_reads);
    let mut reply = [0; 26];
    stream.read_exact(&mut reply).unwrap();
    assert_eq!(reply[..18], *b"MPA ID Rep Frame\x10\x02");
    assert_eq!(reply[24..], *b"hi");
    (stream, server)
}

/// An honest client is served.
fn serves(listener: &mut iwarp::Listener) {
    let address = listener.local_addr();
    let client = std::thread::spawn(move || {
        let mut client = iwarp::connect(address, b"me", &ConnectOptions::default()).unwrap();
        client.post_send(1, &[b"hello"]).unwrap();
        client.flush();
        client
    });
    let mut server = loop {
        let incoming = until(|| listener.poll_accept().unwrap());
        if incoming.private_data() == b"me" {
            break incoming.accept(b"", 0).unwrap();
        }
    };
    server.post_receives(1);
    let came = until(|| server.poll());
    assert!(matches!(came, Completion::Recv { .. }) && server.message() == b"hello");
    drop(client.join().unwrap());
}

/// A frame around a ULPDU, without a checksum.
fn framed(ulpdu: &[u8]) -> Vec<u8> {
    let mut bytes = (ulpdu.len() as u16).to_be_bytes().to_vec();
    bytes.extend_from_slice(ulpdu);
    bytes.resize(bytes.len().next_multiple_of(4) + 4, 0);
    bytes
}

fn send(number: u8, payload: &[u8]) -> Vec<u8> {
    let header = [
        0x41, 0x43, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, number, 0, 0, 0, 0,
    ];
    framed(&[&header, payload].concat())
}

fn write(tag: u32, offset: u64, payload: &[u8]) -> Vec<u8> {
    let (tag, offset) = (tag.to_be_bytes(), offset.to_be_bytes());
    framed(&[&[0xc1, 0x40], &tag[..], &offset, payload].concat())
}

fn read_request(tag: u32, offset: u64, length: u32, number: u8) -> Vec<u8> {
    let header = [
        0x41, 0x41, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, number, 0, 0, 0, 0,
    ];
    let sink = [9; 12];
    let (length, tag, offset) = (
        length.to_be_bytes(),
        tag.to_be_bytes(),
        offset.to_be_bytes(),
    );
    framed(&[&header, &sink[..], &length, &tag, &offset].concat())
}

/// What the server says until it closes: the first two octets of its Terminate message.
fn terminated(stream: &mut TcpStream) -> Option<[u8; 2]> {
    let mut all = Vec::new();
    // A reset is an end too.
    let _ = stream.read_to_end(&mut all);
    let at = all.windows(2).position(|pair| pair == [0x41, 0x47])?;
    all.get(at + 18..at + 20)?.try_into().ok()
}

#[test]
fn no_handshake() {
    let mut listener = listener(Limits::default());
    let mut long = REQUEST.to_vec();
    long[18] = 2;
    let cases: [&[u8]; 5] = [
        b"GET / HTTP/1.1\r\n\r\n",
        &[0xff; 4096],
        b"\x80\0\0\x28",
        b"MPA ID Rep Frame\0\x02\0\0",
        &long,
    ];
    for bytes in cases {
        let mut stream = raw(&listener);
        stream.write_all(bytes).unwrap();
        let mut answer = Vec::new();
        stream.set_nonblocking(true).unwrap();
        let ended = until(|| {
            assert!(listener.poll_accept().unwrap().is_none());
            match stream.read_to_end(&mut answer) {
                Err(error) if error.kind() == ErrorKind::WouldBlock => None,
                ended => Some(ended),
            }
        });
        assert!(ended.is_err() || answer.is_empty());
    }
    serves(&mut listener);
}

#[test]
fn markers_are_refused() {
    let mut listener = listener(Limits::default());
    let mut stream = raw(&listener);
    let mut request = REQUEST.to_vec();
    request[16] |= 0x80;
    stream.write_all(&request).unwrap();
    stream.set_nonblocking(true).unwrap();
    let mut reply = [0; 20];
    until(|| {
        assert!(listener.poll_accept().unwrap().is_none());
        stream.read_exact(&mut reply).ok()
    });
    assert_eq!(reply[..17], *b"MPA ID Rep Frame\x20", "rejected");
    serves(&mut listener);
}

/// Those who say nothing, or not enough, are sent away; others are served meanwhile.
#[test]
fn half_open() {
    let mut listener = listener(Limits {
        handshake_deadline: Nanos::from_millis(300),
        handshakes: 8,
        ..Limits::default()
    });
    let silent: Vec<TcpStream> = (0..40)
        .map(|number| {
            let mut stream = raw(&listener);
            stream
                .write_all(&REQUEST[..number % REQUEST.len()])
                .unwrap();
            stream
        })
        .collect();
    serves(&mut listener);
    for mut stream in silent {
        stream.set_nonblocking(true).unwrap();
        let came = until(|| {
            assert!(listener.poll_accept().unwrap().is_none());
            match stream.read(&mut [0; 100]) {
                Err(error) if error.kind() == ErrorKind::WouldBlock => None,
                // A reset is an end too.
                ended => Some(ended.unwrap_or(0)),
            }
        });
        assert_eq!(came, 0);
    }
    serves(&mut listener);
}

/// A handshake and a message, one byte at a time.
#[test]
fn slow() {
    let mut listener = listener(Limits::default());
    let mut stream = raw(&listener);
    stream.set_nodelay(true).unwrap();
    for byte in REQUEST {
        stream.write_all(&[*byte]).unwrap();
        let _ = listener.wake_fd();
    }
    let mut server = accept(&mut listener, 0);
    server.post_receives(1);
    for byte in send(1, b"slowly") {
        assert_eq!(server.poll(), None);
        stream.write_all(&[byte]).unwrap();
    }
    assert!(matches!(until(|| server.poll()), Completion::Recv { .. }));
    assert_eq!(server.message(), b"slowly");
}

#[test]
fn too_many() {
    let mut listener = listener(Limits {
        connections: 3,
        ..Limits::default()
    });
    let mut held: Vec<_> = (0..3).map(|_| connected(&mut listener, 0)).collect();
    let mut stream = raw(&listener);
    let _ = stream.write_all(REQUEST);
    stream.set_nonblocking(true).unwrap();
    let came = until(|| {
        assert!(listener.poll_accept().unwrap().is_none());
        match stream.read(&mut [0; 100]) {
            Err(error) if error.kind() == ErrorKind::WouldBlock => None,
            ended => Some(ended.unwrap_or(0)),
        }
    });
    assert_eq!(came, 0);
    held.pop();
    serves(&mut listener);
}

/// The responder says nothing before the initiator's first frame.
#[test]
fn the_initiator_speaks_first() {
    let mut listener = listener(Limits::default());
    let (mut stream, mut server) = connected(&mut listener, 0);
    server.post_receives(1);
    server.post_send(1, &[b"patience"]).unwrap();
    server.flush();
    stream.set_nonblocking(true).unwrap();
    for _ in 0..20 {
        assert_eq!(server.poll(), None);
        let nothing = stream.read(&mut [0; 100]).unwrap_err();
        assert_eq!(nothing.kind(), ErrorKind::WouldBlock);
        clock::sleep(Nanos::from_millis(1));
    }
    stream.write_all(&send(1, b"now")).unwrap();
    assert!(matches!(until(|| server.poll()), Completion::Recv { .. }));
    // It was flushed before: nobody has to do that again.
    let mut answer = [0; 32];
    until(|| {
        assert_eq!(server.poll(), None);
        stream.read_exact(&mut answer).ok()
    });
    assert_eq!(answer[20..28], *b"patience");
}

/// Each misdeed has its Terminate message, and the end of the connection.
#[test]
fn misdeeds() {
    let mut listener = listener(Limits::default());
    let config = ArenaConfig {
        frames: 8,
        layout: Layout::apart(PageSize::DEFAULT),
        huge: false,
        populate: false,
    };
    let arena = Arc::new(Arena::create(&config).unwrap());
    let life = LifeWord::in_memory(1).unwrap();
    // Tags are counted from 0x100 on: a region of 4096 bytes to be written, the arena, the stamps.
    let (region, frames, stamps) = (0x100, 0x200, 0x300);
    let cases: Vec<(Vec<u8>, [u8; 2])> = vec![
        ([send(1, b"one"), send(2, b"two")].concat(), [0x12, 0x02]),
        (send(2, b"x"), [0x12, 0x03]),
        (framed(&[0x41, 0x43, 0]), [0x02, 0xff]),
        (framed(b""), [0x02, 0xff]),
        (write(region, 4095, b"xy"), [0x11, 0x01]),
        (write(region + 1, 0, b"x"), [0x11, 0x00]),
        (write(frames, 0, b"x"), [0x01, 0x02]),
        (write(stamps, 0, b"x"), [0x01, 0x02]),
        (read_request(region, 0, 8, 1), [0x01, 0x02]),
        (read_request(frames, 8 * 4096 - 4, 8, 1), [0x01, 0x01]),
        (read_request(0x900, 0, 8, 1), [0x01, 0x00]),
        (read_request(frames, 0, 8, 2), [0x12, 0x03]),
        (
            (1..20)
                .flat_map(|number| read_request(frames, 0, 32_000, number))
                .collect(),
            [0x12, 0x02],
        ),
    ];
    for (bytes, code) in cases {
        let (mut stream, mut server) = connected(&mut listener, 2);
        server.post_receives(1);
        let sink = server.register(4096, Access::WRITE).unwrap();
        let exposed = server.expose(&arena, &life).unwrap();
        assert_eq!(sink.tag(), SteeringTag(region));
        assert_eq!(exposed.stamps.tag, SteeringTag(stamps));
        stream.write_all(&bytes).unwrap();
        let reader = std::thread::spawn(move || terminated(&mut stream));
        until(|| {
            while server.poll().is_some() {}
            server.is_closed().then_some(())
        });
        assert_eq!(server.post_send(1, &[b"x"]), Err(PostError::Closed));
        drop(server);
        assert_eq!(
            reader.join().unwrap(),
            Some(code),
            "{:x?}",
            &bytes[..20.min(bytes.len())]
        );
    }
    serves(&mut listener);
}

/// Who was offered no RDMA Reads gets none, not even of what is exposed to others.
#[test]
fn no_reads_offered() {
    let mut listener = listener(Limits::default());
    let (mut stream, mut server) = connected(&mut listener, 0);
    let region = server.register(64, Access::READ).unwrap();
    let request = read_request(region.tag().0, 0, 8, 1);
    stream.write_all(&request).unwrap();
    let reader = std::thread::spawn(move || terminated(&mut stream));
    until(|| {
        assert_eq!(server.poll(), None);
        server.is_closed().then_some(())
    });
    drop(server);
    assert_eq!(reader.join().unwrap(), Some([0x12, 0x02]));
}

/// A connection that is cut after any byte is over, without harm.
#[test]
fn cut_at_any_byte() {
    let mut listener = listener(Limits::default());
    let stream_bytes = [
        REQUEST,
        &send(1, b"hello"),
        &write(0x100, 4, b"written"),
        &read_request(0x100, 0, 16, 1),
        &send(2, &[7; 300]),
    ]
    .concat();
    for cut in 0..stream_bytes.len() {
        let mut stream = raw(&listener);
        stream.write_all(&stream_bytes[..cut]).unwrap();
        if cut < REQUEST.len() {
            drop(stream);
            continue;
        }
        let mut server = accept(&mut listener, 4);
        server.post_receives(9);
        server.register(64, Access::BOTH).unwrap();
        if cut % 2 == 0 {
            drop(stream);
        } else {
            stream.shutdown(std::net::Shutdown::Write).unwrap();
        }
        let mut messages = 0;
        until(|| {
            while let Some(completion) = server.poll() {
                assert!(matches!(completion, Completion::Recv { .. }));
                messages += 1;
            }
            server.is_closed().then_some(())
        });
        assert!(messages <= 2);
    }
    serves(&mut listener);
}

/// A peer that does not read fills a bounded queue, and what it reads by RDMA waits.
#[test]
fn a_peer_that_does_not_read() {
    let mut listener = listener(Limits::default());
    let (mut stream, mut server) = connected(&mut listener, 64);
    server.post_receives(9);
    let region = server.register(8 << 20, Access::READ).unwrap();
    for number in 1..=64 {
        let request = read_request(region.tag().0, 0, 8 << 20, number);
        stream.write_all(&request).unwrap();
    }
    for _ in 0..200 {
        assert_eq!(server.poll(), None);
        assert!(!server.is_closed());
        clock::sleep(Nanos::from_micros(200));
    }
    // An answer has begun: nothing mixes with it.
    assert_eq!(server.post_send(1, &[b"x"]), Err(PostError::Full));
    drop(stream);
    until(|| {
        assert_eq!(server.poll(), None);
        server.is_closed().then_some(())
    });

    let (mut stream, mut server) = connected(&mut listener, 0);
    server.post_receives(9);
    stream.write_all(&send(1, b"")).unwrap();
    until(|| server.poll());
    let to = Remote {
        tag: SteeringTag(1),
        offset: 0,
    };
    let bytes = vec![1; 64 << 10];
    let mut posted = 0;
    while server.post_write(1, Source::Bytes(&bytes), to).is_ok() {
        posted += 1;
        server.flush();
        assert!(posted < 1000, "it never ends");
    }
    serves(&mut listener);
    // It reads after all.
    let reader = std::thread::spawn(move || {
        let mut all = vec![0; posted * (64 << 10)];
        stream.read_exact(&mut all).unwrap();
    });
    until(|| {
        server.flush();
        assert_eq!(server.poll(), None);
        server.post_send(1, &[b"room again"]).ok()
    });
    until(|| {
        server.flush();
        reader.is_finished().then_some(())
    });
    reader.join().unwrap();
}

/// Many connections, most of them idle, on one set: whoever speaks is heard.
#[test]
fn idle_connections() {
    const IDLE: usize = 150;
    let mut listener = listener(Limits::default());
    let set = Arc::new(WakeSet::new().unwrap());
    listener.watch(&set).unwrap();
    let mut pairs: Vec<_> = (0..IDLE)
        .map(|_| {
            let (stream, mut server) = connected(&mut listener, 0);
            server.post_receives(100);
            server.watch(&set).unwrap();
            (stream, server)
        })
        .collect();
    for round in 1..4 {
        for speaker in (0..IDLE).step_by(7) {
            pairs[speaker]
                .0
                .write_all(&send(round, b"it is me"))
                .unwrap();
            let heard = until(|| {
                let heard = pairs
                    .iter_mut()
                    .position(|(_, server)| server.poll().is_some());
                if heard.is_none() {
                    set.prepare();
                    if pairs.iter_mut().all(|(_, server)| server.arm()) {
                        set.wait(Some(Nanos::from_secs(5)));
                    }
                }
                heard
            });
            assert_eq!(heard, speaker);
            assert_eq!(pairs[heard].1.message(), b"it is me");
        }
    }
    // Those who leave are noticed too.
    for (stream, _) in pairs.iter_mut().step_by(3) {
        stream.shutdown(std::net::Shutdown::Both).unwrap();
    }
    until(|| {
        for (_, server) in &mut pairs {
            assert_eq!(server.poll(), None);
        }
        let gone = pairs.iter().filter(|(_, server)| server.is_closed());
        (gone.count() == IDLE.div_ceil(3)).then_some(())
    });
}
