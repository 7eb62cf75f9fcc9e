//! What a peer must not do, and the Terminate message that it gets for it.

use super::super::rdmap::{self, Fatal, ReadRequest};
use super::*;
use crate::fabric::{Access, Fault, Local, Remote, Sink, SteeringTag};

/// An endpoint with one receive posted, and a region of 100 bytes that may be written.
fn victim() -> (Endpoint, u32) {
    let mut endpoint = Endpoint::new(&agreed(false, false));
    endpoint.post_receives(1);
    let region = endpoint.register(100, Access::WRITE).unwrap();
    (endpoint, region.tag().0)
}

/// The error that ended an endpoint, as its Terminate message tells the peer.
fn told(endpoint: &mut Endpoint) -> Option<Fatal> {
    let fatal = endpoint.fatal()?;
    let sent = outgoing(endpoint);
    let mut peer = Endpoint::new(&agreed(false, true));
    feed(&mut peer, &sent);
    assert!(peer.is_over() && peer.fatal() == Some(fatal));
    assert!(outgoing(&mut peer).is_empty(), "no answer to a Terminate");
    Some(fatal)
}

fn verdict(segments: &[Vec<u8>]) -> Option<Fatal> {
    let (mut endpoint, _) = victim();
    for segment in segments {
        feed(&mut endpoint, &framed(segment, false));
    }
    told(&mut endpoint)
}

#[test]
fn headers() {
    let good = send(1, 0, true, b"x");
    assert_eq!(verdict(std::slice::from_ref(&good)), None);
    let with = |at: usize, byte: u8| {
        let mut bytes = good.clone();
        bytes[at] = byte;
        verdict(&[bytes])
    };
    assert_eq!(with(0, 0x42), Some(Fatal::DDP_UNTAGGED_VERSION));
    assert_eq!(with(0, 0xc0), Some(Fatal::DDP_TAGGED_VERSION));
    assert_eq!(with(1, 0x83), Some(Fatal::RDMAP_VERSION));
    assert_eq!(with(1, 0x4f), Some(Fatal::UNEXPECTED_OPCODE));
    assert_eq!(with(1, 0x40), Some(Fatal::UNEXPECTED_OPCODE), "untagged");
    assert_eq!(with(0, 0xc1), Some(Fatal::UNEXPECTED_OPCODE), "tagged");
    // Cut off within the header.
    for length in 0..18 {
        assert_eq!(verdict(&[good[..length].to_vec()]), Some(Fatal::TRUNCATED));
    }
}

#[test]
fn queues_and_numbers() {
    let cases = [
        (send(2, 0, true, b"x"), Fatal::NUMBER),
        (send(0, 0, true, b"x"), Fatal::NUMBER),
        (send(1, 1, true, b"x"), Fatal::OFFSET),
        (
            untagged(Opcode::Send, 1, 1, 0, true, b"x"),
            Fatal::UNEXPECTED_OPCODE,
        ),
        (untagged(Opcode::Send, 3, 1, 0, true, b"x"), Fatal::QUEUE),
        (
            untagged(Opcode::ReadRequest, 0, 1, 0, true, &[0; 28]),
            Fatal::UNEXPECTED_OPCODE,
        ),
        (
            untagged(Opcode::ReadRequest, 1, 2, 0, true, &[0; 28]),
            Fatal::NUMBER,
        ),
        (
            untagged(Opcode::ReadRequest, 1, 1, 4, true, &[0; 28]),
            Fatal::OFFSET,
        ),
        (
            untagged(Opcode::ReadRequest, 1, 1, 0, true, &[0; 29]),
            Fatal::TOO_LONG,
        ),
        (
            untagged(Opcode::ReadRequest, 1, 1, 0, true, &[0; 27]),
            Fatal::TRUNCATED,
        ),
        (
            untagged(Opcode::ReadRequest, 1, 1, 0, false, &[0; 28]),
            Fatal::TRUNCATED,
        ),
    ];
    for (segment, fatal) in cases {
        assert_eq!(
            verdict(std::slice::from_ref(&segment)),
            Some(fatal),
            "{segment:x?}"
        );
    }
}

#[test]
fn receives() {
    assert_eq!(
        verdict(&[send(1, 0, true, b"one"), send(2, 0, true, b"two")]),
        Some(Fatal::NO_BUFFER)
    );
    // The next message before this one's end, its middle twice, and more than fits.
    assert_eq!(
        verdict(&[send(1, 0, false, b"one"), send(2, 0, true, b"two")]),
        Some(Fatal::NUMBER)
    );
    assert_eq!(
        verdict(&[send(1, 0, false, b"one"), send(1, 0, true, b"one")]),
        Some(Fatal::OFFSET)
    );
    let piece = vec![0; 60_000];
    assert_eq!(
        verdict(&[send(1, 0, false, &piece), send(1, 60_000, true, &piece)]),
        Some(Fatal::TOO_LONG)
    );
}

#[test]
fn writes() {
    let (_, tag) = victim();
    let write = |tag, offset, length| tagged(Opcode::Write, tag, offset, true, &vec![1; length]);
    let cases = [
        (write(tag, 0, 100), None),
        (write(tag, 100, 1), Some(Fatal::WRITE_BOUNDS)),
        (write(tag, 0, 101), Some(Fatal::WRITE_BOUNDS)),
        (write(tag, u64::MAX - 1, 1), Some(Fatal::WRITE_BOUNDS)),
        (write(tag, u64::MAX, 2), Some(Fatal::WRITE_WRAP)),
        (write(tag + 1, 0, 1), Some(Fatal::WRITE_TAG)),
        (write(tag + 256, 0, 1), Some(Fatal::WRITE_TAG)),
        (write(0, 0, 1), Some(Fatal::WRITE_TAG)),
        (write(u32::MAX, 0, 1), Some(Fatal::WRITE_TAG)),
        (write(u32::MAX, 0, 0), None),
    ];
    for (segment, fatal) in cases {
        assert_eq!(
            verdict(std::slice::from_ref(&segment)),
            fatal,
            "{segment:x?}"
        );
    }
    // A tag that has gone, and its slot's next use.
    let (mut endpoint, tag) = victim();
    endpoint.invalidate(SteeringTag(tag));
    let next = endpoint.register(100, Access::WRITE).unwrap().tag().0;
    assert_ne!(tag, next);
    feed(&mut endpoint, &framed(&write(next, 0, 1), false));
    feed(&mut endpoint, &framed(&write(tag, 0, 1), false));
    assert_eq!(told(&mut endpoint), Some(Fatal::WRITE_TAG));
}

#[test]
fn a_tag_that_goes_while_a_segment_comes() {
    let (mut endpoint, _) = victim();
    let region = endpoint.register(100, Access::WRITE).unwrap();
    let tag = region.tag().0;
    let frame = framed(&tagged(Opcode::Write, tag, 0, true, &[1; 100]), false);
    let (first, rest) = frame.split_at(50);
    feed(&mut endpoint, first);
    endpoint.invalidate(SteeringTag(tag));
    let mut before = [0; 100];
    assert!(region.load(0, &mut before));
    feed(&mut endpoint, rest);
    let mut after = [0; 100];
    assert!(region.load(0, &mut after));
    assert_eq!(before, after);
    assert_eq!(told(&mut endpoint), Some(Fatal::WRITE_TAG));
}

fn request(tag: u32, offset: u64, length: u32, number: u32) -> Vec<u8> {
    let request = ReadRequest {
        sink_tag: 5,
        sink_offset: 0,
        length,
        source_tag: tag,
        source_offset: offset,
    };
    untagged(Opcode::ReadRequest, 1, number, 0, true, &request.encode())
}

#[test]
fn reads() {
    let (mut endpoint, tag) = victim();
    let readable = endpoint.register(100, Access::READ).unwrap().tag().0;
    let cases = [
        (tag, 0, 1, Fatal::RIGHTS),
        (readable, 100, 1, Fatal::READ_BOUNDS),
        (readable, 0, u32::MAX, Fatal::READ_BOUNDS),
        (readable, u64::MAX - 5, 100, Fatal::READ_WRAP),
        (readable + 1, 0, 1, Fatal::READ_TAG),
        (9, 0, 1, Fatal::READ_TAG),
    ];
    for (tag, offset, length, fatal) in cases {
        let (mut endpoint, _) = victim();
        endpoint.register(100, Access::READ).unwrap();
        feed(
            &mut endpoint,
            &framed(&request(tag, offset, length, 1), false),
        );
        assert_eq!(told(&mut endpoint), Some(fatal));
    }
    // Four are agreed; answered ones make room.
    for round in 0..3 {
        for number in 1..5 {
            let request = request(readable, 0, 100, round * 4 + number);
            feed(&mut endpoint, &framed(&request, false));
        }
        assert_eq!(outgoing(&mut endpoint).len(), 4 * (2 + 14 + 100 + 4));
    }
    for number in 13..18 {
        feed(
            &mut endpoint,
            &framed(&request(readable, 0, 100, number), false),
        );
    }
    assert_eq!(told(&mut endpoint), Some(Fatal::NO_BUFFER));
}

#[test]
fn responses() {
    let answer = |tag, offset, last, length: usize| {
        tagged(Opcode::ReadResponse, tag, offset, last, &vec![1; length])
    };
    assert_eq!(
        verdict(&[answer(1, 0, true, 1)]),
        Some(Fatal::UNEXPECTED_OPCODE)
    );
    type Answer = (u32, u64, bool, usize);
    let cases: [(Answer, Fatal); 6] = [
        ((1, 0, true, 16), Fatal::WRITE_TAG),
        ((0, 1, true, 16), Fatal::WRITE_BOUNDS),
        ((0, 0, true, 15), Fatal::WRITE_BOUNDS),
        ((0, 0, false, 16), Fatal::WRITE_BOUNDS),
        ((0, 0, true, 17), Fatal::WRITE_BOUNDS),
        ((0, u64::MAX, true, 16), Fatal::WRITE_BOUNDS),
    ];
    for ((wrong_tag, offset, last, length), fatal) in cases {
        let mut endpoint = Endpoint::new(&agreed(false, true));
        let region = endpoint.register(64, Access::BOTH).unwrap();
        let into = Sink::Region(Local {
            region: &region,
            offset: 0,
            length: 16,
        });
        let from = Remote {
            tag: SteeringTag(3),
            offset: 0,
        };
        endpoint.post_read(7, into, from).unwrap();
        let sent = outgoing(&mut endpoint);
        let sink = ReadRequest::decode(sent[20..48].try_into().unwrap()).sink_tag;
        // The sink is no memory to write to, not even while the read is under way.
        let write = tagged(Opcode::Write, sink, 0, true, b"x");
        let bytes = answer(sink + wrong_tag, offset, last, length);
        let events = feed(&mut endpoint, &framed(&bytes, false));
        let result = Err(Fault::Flushed);
        assert_eq!(events, [(Completion::Read { id: 7, result }, vec![])]);
        assert_eq!(told(&mut endpoint), Some(fatal));
        let mut held = [0; 64];
        assert!(region.load(0, &mut held) && held == [0; 64]);

        let mut endpoint = Endpoint::new(&agreed(false, true));
        let region = endpoint.register(64, Access::BOTH).unwrap();
        let into = Sink::Region(Local {
            region: &region,
            offset: 0,
            length: 16,
        });
        endpoint.post_read(7, into, from).unwrap();
        outgoing(&mut endpoint);
        feed(&mut endpoint, &framed(&write, false));
        assert_eq!(told(&mut endpoint), Some(Fatal::WRITE_TAG));
    }
}

/// A read that is refused as it is answered is told of by its own headers, whatever came behind it (RFC 5040 section 4.8).
#[test]
fn a_read_that_is_refused_late() {
    let mut endpoint = Endpoint::new(&agreed(false, false));
    endpoint.post_receives(1);
    let region = endpoint.register(100, Access::READ).unwrap();
    let request = ReadRequest {
        sink_tag: 9,
        sink_offset: 0,
        length: 100,
        source_tag: region.tag().0,
        source_offset: 0,
    };
    let request = untagged(Opcode::ReadRequest, 1, 1, 0, true, &request.encode());
    feed(&mut endpoint, &framed(&request, false));
    feed(
        &mut endpoint,
        &framed(&send(1, 0, true, b"behind it"), false),
    );
    endpoint.invalidate(region.tag());
    let message = rdmap::terminate(Fatal::READ_TAG, request.len(), &request);
    let message = untagged(Opcode::Terminate, 2, 1, 0, true, &message);
    assert_eq!(outgoing(&mut endpoint), framed(&message, false));
}

/// A peer that is refused a read learns it from a Terminate message, whichever way its nibbles are.
#[test]
fn a_refused_read() {
    for nibbles in [0x01, 0x10] {
        let mut endpoint = Endpoint::new(&agreed(false, true));
        let region = endpoint.register(64, Access::LOCAL).unwrap();
        for id in [1, 2] {
            let into = Sink::Region(Local {
                region: &region,
                offset: 0,
                length: 16,
            });
            let from = Remote {
                tag: SteeringTag(3),
                offset: 0,
            };
            endpoint.post_read(id, into, from).unwrap();
        }
        let mut message = rdmap::terminate(Fatal::READ_TAG, 46, &[]);
        message[0] = nibbles;
        let bytes = untagged(Opcode::Terminate, 2, 77, 0, true, &message);
        let events = feed(&mut endpoint, &framed(&bytes, false));
        let read = |id, fault| {
            (
                Completion::Read {
                    id,
                    result: Err(fault),
                },
                vec![],
            )
        };
        assert_eq!(
            events,
            [read(1, Fault::RemoteAccess), read(2, Fault::Flushed)]
        );
        assert!(endpoint.is_over());
    }
}

#[test]
fn invalidations() {
    for (tag, fatal) in [(0x100, None), (0x101, Some(Fatal::NOT_INVALIDATED))] {
        let (mut endpoint, known) = victim();
        assert_eq!(known, 0x100);
        let mut bytes = send(1, 0, true, b"x");
        bytes[1] = 0x44;
        bytes[2..6].copy_from_slice(&u32::to_be_bytes(tag));
        feed(&mut endpoint, &framed(&bytes, false));
        assert_eq!(told(&mut endpoint), fatal);
    }
}

#[test]
fn checksums() {
    let mut bytes = framed(&send(1, 0, true, b"hello"), true);
    for at in 2..bytes.len() {
        bytes[at] ^= 0x10;
        let mut endpoint = Endpoint::new(&agreed(true, false));
        endpoint.post_receives(1);
        assert!(feed(&mut endpoint, &bytes).is_empty());
        assert_eq!(endpoint.fatal(), Some(Fatal::CRC));
        bytes[at] ^= 0x10;
    }
}

/// The responder says nothing before the initiator has spoken.
#[test]
fn the_responder_waits() {
    let mut endpoint = Endpoint::new(&agreed(false, false));
    endpoint.post_receives(1);
    endpoint.post_send(&[b"too early"], None).unwrap();
    assert!(outgoing(&mut endpoint).is_empty());
    let bytes = framed(&send(1, 0, true, b"x"), false);
    feed(&mut endpoint, &bytes[..bytes.len() - 1]);
    assert!(outgoing(&mut endpoint).is_empty());
    feed(&mut endpoint, &bytes[bytes.len() - 1..]);
    assert!(!outgoing(&mut endpoint).is_empty());
}
