//! Bytes of the wire, derived from RFC 8166, sections 4.2 to 4.4, and the frames of the Linux client.

use crate::rpcrdma::*;
use crate::wire::rpcrdma::*;
use crate::wire::testing::hex;
use crate::wire::xdr::{Encode, Gap, Reader};

#[track_caller]
fn golden(header: Header, digits: &str) {
    let bytes = hex(digits);
    assert_eq!(header.to_bytes(), bytes, "encoding {header:?}");
    let mut r = Reader::new(&bytes);
    assert_eq!(Header::decode(&mut r), Ok(header));
    assert_eq!(r.rest(), [0; 0]);
    if let Body::Msg(chunks) | Body::Nomsg(chunks) = header.body {
        assert_eq!(chunks.header_bytes(), bytes.len());
    }
    for end in 0..bytes.len() {
        assert!(
            Header::decode(&mut Reader::new(&bytes[..end])).is_err(),
            "cut at {end}"
        );
    }
}

fn segment(handle: u32, length: u32, offset: u64) -> Segment {
    Segment {
        handle,
        length,
        offset,
    }
}

fn reads(list: &[(u32, Segment)]) -> ReadList {
    let mut reads = ReadList::default();
    for &(position, segment) in list {
        assert!(reads.push(ReadSegment { position, segment }));
    }
    reads
}

const XID: u32 = 0x1a2b_3c4d;

#[test]
fn a_call_without_chunks() {
    let header = Header {
        xid: XID,
        credits: 128,
        body: Body::Msg(Chunks::default()),
    };
    golden(
        header,
        "1a2b3c4d 00000001 00000080 00000000 00000000 00000000 00000000",
    );
}

/// READ of the Linux client: one write chunk.
#[test]
fn a_read() {
    let chunks = Chunks {
        writes: WriteList::one(&Segments::one(segment(
            0x0102_0304,
            4096,
            0xffff_8880_1234_5000,
        ))),
        ..Chunks::default()
    };
    let header = Header {
        xid: XID,
        credits: 128,
        body: Body::Msg(chunks),
    };
    golden(
        header,
        "1a2b3c4d 00000001 00000080 00000000 00000000
         00000001 00000001 01020304 00001000 ffff888012345000 00000000
         00000000",
    );
}

/// WRITE of the Linux client: one read chunk behind the length word of the data, here of two segments.
#[test]
fn a_write() {
    let chunks = Chunks {
        reads: reads(&[
            (144, segment(0x0101, 0x10_0000, 0x1000)),
            (144, segment(0x0202, 0x20, 0x2000)),
        ]),
        ..Chunks::default()
    };
    let header = Header {
        xid: XID,
        credits: 128,
        body: Body::Msg(chunks),
    };
    golden(
        header,
        "1a2b3c4d 00000001 00000080 00000000
         00000001 00000090 00000101 00100000 0000000000001000
         00000001 00000090 00000202 00000020 0000000000002000 00000000
         00000000 00000000",
    );
}

/// A COMPOUND of two WRITEs and three READs, the second of which is to come in the reply.
#[test]
fn several_chunks_each_way() {
    let mut writes = WriteList::one(&Segments::one(segment(7, 0x1000, 0x100)));
    assert!(writes.push(&[]));
    assert!(writes.push(&[segment(8, 0x800, 0), segment(9, 0x10, 0xf0)]));
    let chunks = Chunks {
        reads: reads(&[
            (200, segment(5, 0x1001, 0x1000)),
            (4352, segment(6, 0x20, 0x2000)),
        ]),
        writes,
        reply: None,
    };
    let header = Header {
        xid: XID,
        credits: 128,
        body: Body::Msg(chunks),
    };
    golden(
        header,
        "1a2b3c4d 00000001 00000080 00000000
         00000001 000000c8 00000005 00001001 0000000000001000
         00000001 00001100 00000006 00000020 0000000000002000 00000000
         00000001 00000001 00000007 00001000 0000000000000100
         00000001 00000000
         00000001 00000002 00000008 00000800 0000000000000000 00000009 00000010 00000000000000f0
         00000000
         00000000",
    );
}

/// A long call with a reply chunk of two segments.
#[test]
fn a_long_call() {
    let (reply, all) = Segments::new(&[segment(3, 0x1000, 0), segment(4, 0x800, 0x7000)]);
    assert!(all);
    let chunks = Chunks {
        reads: reads(&[(0, segment(5, 5000, 0xabc))]),
        reply: Some(reply),
        ..Chunks::default()
    };
    let header = Header {
        xid: XID,
        credits: 1,
        body: Body::Nomsg(chunks),
    };
    golden(
        header,
        "1a2b3c4d 00000001 00000001 00000001
         00000001 00000000 00000005 00001388 0000000000000abc 00000000
         00000000
         00000001 00000002 00000003 00001000 0000000000000000 00000004 00000800 0000000000007000",
    );
}

#[test]
fn done_and_errors() {
    let header = |body| Header {
        xid: XID,
        credits: 8,
        body,
    };
    golden(header(Body::Done), "1a2b3c4d 00000001 00000008 00000003");
    let versions = TransportError::Version { low: 1, high: 1 };
    golden(
        header(Body::Error(versions)),
        "1a2b3c4d 00000001 00000008 00000004 00000001 00000001 00000001",
    );
    golden(
        header(Body::Error(TransportError::Chunk)),
        "1a2b3c4d 00000001 00000008 00000004 00000002",
    );
}

/// Private data of the Linux client: remote invalidation, 4096 bytes both ways.
#[test]
fn private_data() {
    let linux = PrivateData::default();
    let bytes = hex("f6ab0e18 01010303");
    assert_eq!(linux.encode(), bytes);
    assert_eq!(PrivateData::decode(&bytes), Some(linux));
    let ours = PrivateData {
        remote_invalidate: false,
        send_bytes: 256 << 10,
        receive_bytes: 1024,
        read_read: true,
    };
    let bytes = hex("f6ab0e18 0100ff00 4f445252 01010000");
    assert_eq!(ours.encode(), bytes);
    for trailer in [&[][..], &[0; 40]] {
        let padded = [&bytes, trailer].concat();
        assert_eq!(PrivateData::decode(&padded), Some(ours));
    }
    let without = PrivateData {
        read_read: false,
        ..ours
    };
    for (at, value) in [(8, 0), (12, 2), (13, 0)] {
        let mut other = bytes.clone();
        other[at] = value;
        assert_eq!(PrivateData::decode(&other), Some(without));
    }
    assert_eq!(PrivateData::decode(&bytes[..15]), Some(without));
    for (at, value) in [(0, 0), (4, 2)] {
        let mut other = bytes.clone();
        other[at] = value;
        assert_eq!(PrivateData::decode(&other), None);
    }
    assert_eq!(PrivateData::decode(&bytes[..7]), None);
    // Behind what another layer has put in front, at no alignment (RFC 8797, section 5.2).
    for front in [&[0x80, 1, 0][..], &[0xf6], &[0xf6, 0xab, 0x0e, 0x18, 9]] {
        let behind = [front, &bytes].concat();
        assert_eq!(PrivateData::decode(&behind), Some(ours), "{front:x?}");
        assert_eq!(PrivateData::decode(&behind[..front.len() + 7]), None);
    }
}

#[test]
fn terms_are_the_smaller_of_both() {
    let ours = PrivateData {
        send_bytes: 8192,
        receive_bytes: 4096,
        ..PrivateData::default()
    };
    let theirs = PrivateData {
        remote_invalidate: false,
        send_bytes: 2048,
        receive_bytes: 5120,
        read_read: true,
    };
    let terms = Terms::between(&ours, Some(&theirs));
    let (send, receive) = (5120, 2048);
    assert_eq!(terms.inline, Inline { send, receive });
    assert!(!terms.remote_invalidate && !terms.read_read);
    let back = Terms::between(&theirs, Some(&ours));
    assert_eq!((back.inline.send, back.inline.receive), (receive, send));
    let silent = Terms::between(&ours, None);
    assert_eq!((silent.inline.send, silent.inline.receive), (1024, 1024));
    assert!(!silent.remote_invalidate);
}

/// A reply of so many bytes whose only data are not among them.
fn apart(length: usize, at: u32, bytes: u32) -> Results {
    let apart = PlacedResults::one(PlacedResult {
        result: 0,
        at,
        bytes,
    });
    Results { length, apart }
}

/// What a call brought, and what its reply says about it.
fn answer(call: &str, results: &Results) -> (Vec<u8>, ReplyPlan) {
    let private = PrivateData::default();
    let mut responder = Responder::new(ResponderConfig {
        terms: Terms::between(&private, Some(&private)),
        credits: GrantPolicy::Fixed(16),
        message_max: 1 << 20,
        read_read: ReadRead::default(),
        reverse_credits: 0,
    });
    let Received::Call(incoming) = responder.receive(&hex(call)) else {
        panic!("a call");
    };
    let mut header = Vec::new();
    let answer = responder.reply(incoming.ticket, results, &mut header);
    (header, answer)
}

const READ: &str = "00000007 00000001 00000080 00000000 00000000
    00000001 00000001 01020304 00001000 0000000000005000 00000000 00000000
    00000007 00000000";

#[test]
fn the_reply_to_a_read_returns_the_chunk_with_what_was_written() {
    let results = apart(128, 128, 4095);
    let (header, answer) = answer(READ, &results);
    assert_eq!(
        header,
        hex("00000007 00000001 00000010 00000000 00000000
             00000001 00000001 01020304 00000fff 0000000000005000 00000000 00000000")
    );
    let to = segment(0x0102_0304, 4095, 0x5000);
    let from = Source::Data(0..4095);
    assert_eq!(answer.writes, [Write { from, to }]);
    assert!(answer.inline);
    assert_eq!(answer.invalidate, Some(0x0102_0304));
}

#[test]
fn a_chunk_that_is_not_used_is_returned_empty() {
    let results = Results::whole(100);
    let (header, answer) = answer(READ, &results);
    assert_eq!(
        header,
        hex("00000007 00000001 00000010 00000000 00000000
             00000001 00000001 01020304 00000000 0000000000005000 00000000 00000000")
    );
    assert_eq!(answer.writes, []);
}

/// EXCHANGE_ID of the Linux client and the like: the reply chunk that an inline reply did not need.
#[test]
fn a_short_reply_returns_its_reply_chunk_empty() {
    let call = "00000007 00000001 00000080 00000000 00000000 00000000
        00000001 00000001 01020304 00010000 0000000000005000
        00000007 00000000";
    let short = Results::whole(200);
    let (header, short) = answer(call, &short);
    assert_eq!(
        header,
        hex("00000007 00000001 00000010 00000000 00000000 00000000
             00000001 00000001 01020304 00000000 0000000000005000")
    );
    assert!(short.inline);
    let long = Results::whole(5000);
    let (header, long) = answer(call, &long);
    assert_eq!(
        header,
        hex("00000007 00000001 00000010 00000001 00000000 00000000
             00000001 00000001 01020304 00001388 0000000000005000")
    );
    assert!(!long.inline);
    let to = segment(0x0102_0304, 5000, 0x5000);
    let from = Source::Message(0..5000);
    assert_eq!(long.writes, [Write { from, to }]);
}

/// Send With Invalidate takes one tag: it must be the only one of the call.
#[test]
fn a_tag_is_invalidated_if_there_is_no_other() {
    let results = Results::whole(100);
    let invalidated = |read: u32, write: [u32; 2], reply: u32| {
        let call = format!(
            "00000007 00000001 00000080 00000000
             00000001 00000008 {read:08x} 00000010 0000000000000000 00000000
             00000001 00000002 {:08x} 00000010 0000000000000000 {:08x} 00000010 0000000000000000 00000000
             00000001 00000001 {reply:08x} 00000010 0000000000000000
             00000007 00000000",
            write[0], write[1]
        );
        answer(&call, &results).1.invalidate
    };
    assert_eq!(invalidated(5, [5, 5], 5), Some(5));
    assert_eq!(invalidated(6, [5, 5], 5), None);
    assert_eq!(invalidated(5, [5, 6], 5), None);
    assert_eq!(invalidated(5, [5, 5], 6), None);
    let (_, none) = answer(
        "00000007 00000001 00000080 00000000 00000000 00000000 00000000 00000007 00000000",
        &results,
    );
    assert_eq!(none.invalidate, None);
}

const READS: &str = "00000007 00000001 00000080 00000000 00000000
    00000001 00000002 00000011 00000100 0000000000005000 00000012 00000100 0000000000006000
    00000001 00000001 00000013 00001000 0000000000007000
    00000001 00000001 00000014 00001000 0000000000008000
    00000000 00000000
    00000007 00000000";

/// The n-th result goes to the n-th chunk. The second READ met the end of its file: its chunk comes back with nothing in it,
/// and the data of the third are in the third. A fourth would have come in the reply.
#[test]
fn each_result_goes_to_its_chunk() {
    let placed = [(0, 60, 0x180), (1, 80, 0), (2, 100, 7)];
    let placed = placed.map(|(result, at, bytes)| PlacedResult { result, at, bytes });
    let results = Results {
        length: 120,
        apart: PlacedResults::new(&placed).0,
    };
    let (header, answer) = answer(READS, &results);
    assert_eq!(
        header,
        hex("00000007 00000001 00000010 00000000 00000000
             00000001 00000002 00000011 00000100 0000000000005000 00000012 00000080 0000000000006000
             00000001 00000001 00000013 00000000 0000000000007000
             00000001 00000001 00000014 00000007 0000000000008000
             00000000 00000000")
    );
    let write = |from: std::ops::Range<u32>, tag, offset| Write {
        to: segment(tag, from.end - from.start, offset),
        from: Source::Data(from),
    };
    let expected = [
        write(0..0x100, 0x11, 0x5000),
        write(0x100..0x180, 0x12, 0x6000),
        write(0x180..0x187, 0x14, 0x8000),
    ];
    assert_eq!(answer.writes, expected);
    assert!(answer.inline && answer.invalidate.is_none());
}

/// The first READ failed, so there were no others.
#[test]
fn chunks_of_operations_that_did_not_run_come_back_empty() {
    let (header, answer) = answer(READS, &Results::whole(80));
    assert_eq!(
        header,
        hex("00000007 00000001 00000010 00000000 00000000
             00000001 00000002 00000011 00000000 0000000000005000 00000012 00000000 0000000000006000
             00000001 00000001 00000013 00000000 0000000000007000
             00000001 00000001 00000014 00000000 0000000000008000
             00000000 00000000")
    );
    assert_eq!(answer.writes, []);
}

/// Each chunk has room for itself alone.
#[test]
fn a_result_that_does_not_fit_its_chunk_is_an_error() {
    for (result, bytes) in [(0, 0x201), (1, 0x1001), (3, 1)] {
        let at = 60;
        let results = Results {
            length: 80,
            apart: PlacedResults::one(PlacedResult { result, at, bytes }),
        };
        let (header, answer) = answer(READS, &results);
        assert_eq!(header, hex("00000007 00000001 00000010 00000004 00000002"));
        assert!(answer.overrun && answer.writes.is_empty());
    }
}

/// The call of two WRITEs whose data are in chunks: where each byte of it is.
#[test]
fn a_call_of_two_read_chunks_is_put_together() {
    let private = PrivateData::default();
    let mut responder = Responder::new(ResponderConfig {
        terms: Terms::between(&private, Some(&private)),
        credits: GrantPolicy::Fixed(16),
        message_max: 1 << 20,
        read_read: ReadRead::default(),
        reverse_credits: 0,
    });
    // 36 bytes inline. Five bytes of data belong behind the first 16, and 32 behind the next 12: at 16, and at 16 + 8 + 12.
    let call = "00000007 00000001 00000080 00000000
        00000001 00000024 00000006 00000010 0000000000002000
        00000001 00000010 00000005 00000005 0000000000001000
        00000001 00000024 00000006 00000010 0000000000003000 00000000
        00000000 00000000
        00000007 00000000 000000a1 00000005
        000000a2 000000a3 00000020
        000000a4 000000a5";
    let call = hex(call);
    let Received::Call(incoming) = responder.receive(&call) else {
        panic!("a call");
    };
    let header = call.len() - 36;
    let inline = |from: std::ops::Range<usize>, at| InlinePart {
        from: header + from.start..header + from.end,
        at,
    };
    let pull = |handle, length, offset, at| Pull {
        from: segment(handle, length, offset),
        at,
    };
    let expected = Assembly {
        length: 36 + 8 + 32,
        inline: vec![inline(0..16, 0), inline(16..28, 24), inline(28..36, 68)],
        pulls: vec![
            pull(5, 5, 0x1000, 16),
            pull(6, 16, 0x2000, 36),
            pull(6, 16, 0x3000, 52),
        ],
        gaps: Gaps::new(&[Gap { at: 16, bytes: 5 }, Gap { at: 36, bytes: 32 }]).0,
    };
    assert_eq!(incoming.assembly, expected);
}

/// An empty write chunk asks for the data inline (RFC 8267, section 6.4.1).
#[test]
fn an_empty_write_chunk_takes_no_data() {
    let call = "00000007 00000001 00000080 00000000 00000000
        00000001 00000000 00000000 00000000 00000007 00000000";
    let results = Results::whole(128);
    let (header, answer) = answer(call, &results);
    assert_eq!(
        header,
        hex("00000007 00000001 00000010 00000000 00000000 00000001 00000000 00000000 00000000")
    );
    assert!(answer.inline);
    assert_eq!(answer.invalidate, None);
}

#[test]
fn a_reply_without_room_is_an_error() {
    let too_long = [Results::whole(8192), apart(100, 100, 4097)];
    for results in too_long {
        let (header, answer) = answer(READ, &results);
        assert_eq!(header, hex("00000007 00000001 00000010 00000004 00000002"));
        assert_eq!(
            answer,
            ReplyPlan {
                overrun: true,
                ..ReplyPlan::default()
            }
        );
    }
    // A reply chunk that is too short by a byte.
    let call = |length: u32| {
        format!(
            "00000007 00000001 00000080 00000000 00000000 00000000
             00000001 00000001 01020304 {length:08x} 0000000000005000 00000007 00000000"
        )
    };
    let long = Results::whole(8192);
    assert!(answer(&call(8191), &long).1.overrun);
    assert!(!answer(&call(8192), &long).1.overrun);
}
