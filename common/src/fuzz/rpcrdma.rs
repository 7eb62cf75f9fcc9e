use std::time::Duration;

use crate::rpcrdma::*;
use crate::wire::rpcrdma::{
    Body, Gaps, HEADER_BYTES_MIN, Header, Segment, Segments, TransportError, capacity,
};
use crate::wire::xdr::{Encode, Reader};

const MESSAGE_MAX: u32 = 1 << 16;

/// A header, and private data.
pub fn header(bytes: &[u8]) {
    let mut r = Reader::new(bytes);
    match Header::decode(&mut r) {
        Ok(header) => {
            let taken = bytes.len() - r.rest().len();
            let mut again = header.to_bytes();
            if let Body::Error(TransportError::Version { .. }) = header.body {
                again[4..8].copy_from_slice(&bytes[4..8]);
            }
            assert_eq!(again, bytes[..taken]);
            if let Body::Msg(chunks) | Body::Nomsg(chunks) = header.body {
                assert_eq!(chunks.header_bytes(), taken);
            }
        }
        Err(error) => {
            if let Some(answer) = error.answer(1) {
                assert!(bytes.len() >= HEADER_BYTES_MIN);
                assert_eq!(answer[..8], bytes[..8]);
                let answer = Header::decode(&mut Reader::new(&answer)).expect("what was encoded");
                assert!(matches!(answer.body, Body::Error(_)));
            }
        }
    }
    if let Some(data) = PrivateData::decode(bytes) {
        assert_eq!(PrivateData::decode(&data.encode()), Some(data));
    }
}

/// The first byte chooses the terms and how long the reply is; the rest is a message to a responder.
pub fn responder(bytes: &[u8]) {
    let Some((choice, message)) = bytes.split_first() else {
        return;
    };
    let terms = terms(*choice);
    let mut responder = Responder::new(ResponderConfig {
        terms,
        credits: GrantPolicy::Fixed(8),
        message_max: MESSAGE_MAX,
        read_read: ReadRead::default(),
        reverse_credits: 8,
    });
    // In the reverse direction a call is under way.
    let mut called = Vec::new();
    let call = [0, 0, 0, 7, 0, 0, 0, 0];
    responder
        .call_back(&call, Duration::ZERO, &mut called)
        .expect("a credit");
    responder.receives_due();
    match responder.receive(message) {
        Received::Call(incoming) => {
            check_assembly(&incoming.assembly, message, MESSAGE_MAX);
            answer(&mut responder, incoming.ticket, *choice);
        }
        Received::Respond(error) => {
            let header = Header::decode(&mut Reader::new(&error)).expect("what was encoded");
            assert!(matches!(header.body, Body::Error(_)));
            assert_eq!(header.xid.to_be_bytes(), message[..4]);
            assert_eq!(error[4..8], message[4..8]);
        }
        Received::Done(_) => panic!("nothing was exposed"),
        Received::Answered(reply) => {
            assert_eq!(message[reply][..8], [0, 0, 0, 7, 0, 0, 0, 1]);
            assert_eq!(responder.called_back(), 0);
        }
        Received::Failed(xid) => assert_eq!((xid, responder.called_back()), (7, 0)),
        Received::Ignore(_) => assert_eq!(responder.called_back(), 1),
    }
    assert!(responder.receives_due() <= 9);
}

fn terms(choice: u8) -> Terms {
    Terms {
        inline: Inline {
            send: 1024,
            receive: 1024,
        },
        remote_invalidate: choice & 1 != 0,
        read_read: choice & 2 != 0,
    }
}

fn answer(responder: &mut Responder, ticket: Ticket, choice: u8) {
    let length = usize::from(choice >> 4) * 140 + 24;
    let placements = ticket.placements();
    let room = ticket.reply_bytes_max() as usize;
    let mut results = Results::whole(length);
    // Some of the chunks are full, and others are not used.
    for (result, bytes) in (0_u32..).zip(placements.bytes()) {
        if *bytes > 0 && u32::from(choice >> 2 & 3) <= result & 1 {
            let (at, bytes) = (24, (*bytes).min(1 << 28));
            assert!(results.apart.push(PlacedResult { result, at, bytes }));
        }
    }
    let mut header = Vec::new();
    let (terms, xid) = (*responder.terms(), ticket.xid());
    let answer = if terms.read_read {
        let mut expose = |what: &Expose| Some(Segments::one(segment(1, what.from.bytes())));
        responder.reply_exposed(ticket, &results, Duration::ZERO, &mut expose, &mut header)
    } else {
        responder.reply(ticket, &results, &mut header)
    };
    let sent = Header::decode(&mut Reader::new(&header)).expect("what was encoded");
    assert_eq!(sent.xid, xid);
    assert!(sent.credits > 0);
    let inline = if answer.inline { length } else { 0 };
    assert!(header.len() + inline <= terms.inline.send as usize || answer.overrun);
    assert!(!answer.overrun || terms.read_read || length > room);
    let written: u64 = answer
        .writes
        .iter()
        .map(|write| u64::from(write.from.bytes()))
        .sum();
    assert!(
        answer
            .writes
            .iter()
            .all(|write| write.from.bytes() == write.to.length)
    );
    if let Body::Msg(chunks) | Body::Nomsg(chunks) = sent.body {
        let long = chunks.reply.as_ref().map_or(0, Segments::capacity);
        assert_eq!(capacity(chunks.writes.segments()) + long, written);
    }
}

fn segment(handle: u32, length: u32) -> Segment {
    Segment {
        handle,
        length,
        offset: 0,
    }
}

/// What is put together is within limits, and every byte of it comes from one place.
fn check_assembly(assembly: &Assembly, message: &[u8], max: u32) {
    assert!(assembly.length <= max);
    let mut places: Vec<_> = assembly
        .pulls
        .iter()
        .map(|pull| (pull.at, pull.from.length))
        .collect();
    for piece in &assembly.inline {
        assert!(piece.from.end <= message.len());
        places.push((piece.at, piece.from.len() as u32));
    }
    places.sort_unstable();
    let end = places.iter().fold(0, |end, &(at, length)| {
        assert!(
            length > 0 && at >= end && at - end < 4,
            "a hole or an overlap"
        );
        at + length
    });
    assert!(end <= assembly.length && assembly.length - end < 4);
}

/// The first byte chooses the terms and what was offered; the rest is a message to a requester.
pub fn requester(bytes: &[u8]) {
    let Some((choice, message)) = bytes.split_first() else {
        return;
    };
    let mut requester = Requester::new(RequesterConfig {
        terms: terms(*choice),
        credits: RequestPolicy::Fixed(8),
    });
    let shape = CallShape {
        arguments: Gaps::default(),
        // Three chunks, the second of which is empty, or one, or none.
        results_max: Placements::new(match choice >> 4 & 3 {
            _ if choice & 4 == 0 => &[],
            3 => &[3001, 0, 500],
            _ => &[3001],
        }),
        reply_max: if choice & 8 != 0 { 2000 } else { 100 },
    };
    let call = Call {
        message: &[0, 0, 0, 7, 0, 0, 0, 0],
        shape: &shape,
        health_check: false,
    };
    let mut memory = |need: &Need| {
        let first = need.bytes / 3;
        Some(Segments::new(&[segment(1, first), segment(2, need.bytes - first)]).0)
    };
    let mut header = Vec::new();
    requester
        .call(&call, &mut memory, &mut header)
        .expect("one credit");
    match requester.receive(message) {
        Event::Reply(reply) => {
            let maxima = shape
                .results_max
                .bytes()
                .iter()
                .chain(std::iter::repeat(&0));
            assert!((reply.results.bytes().iter().zip(maxima)).all(|(bytes, max)| bytes <= max));
            match reply.stream {
                Stream::Inline(range) => assert_eq!(range.end, message.len()),
                Stream::Memory(length) => assert!((1..=shape.reply_max).contains(&length)),
            }
            assert_eq!(requester.under_way(), 0);
        }
        Event::Pull(pulled) => {
            check_assembly(&pulled.assembly, message, 2000 + 3004 + 500);
            assert_eq!(requester.under_way(), 1);
            assert!(requester.done(pulled.xid, &mut header));
            assert_eq!(requester.under_way(), 0);
        }
        Event::Failed { xid, .. } => assert_eq!((xid, requester.under_way()), (7, 0)),
        Event::Late { .. } => panic!("nothing was abandoned"),
        Event::Unknown { .. } | Event::Ignored => assert_eq!(requester.under_way(), 1),
    }
    assert!((1..=8).contains(&requester.granted()));
}
