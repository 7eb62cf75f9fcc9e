//! Calls and replies of all sizes arrive as they were sent.

use proptest::prelude::*;

use super::model::{Exchange, Memory, Outcome, World, assemble, message};
use crate::rpcrdma::*;
use crate::wire::rpcrdma::{Body, Chunks, Header, ReadList, ReadSegment};
use crate::wire::xdr::Encode;

fn private(kib: [u32; 2], remote_invalidate: bool, read_read: bool) -> PrivateData {
    PrivateData {
        remote_invalidate,
        send_bytes: kib[0] * 1024,
        receive_bytes: kib[1] * 1024,
        read_read,
    }
}

fn exchange(sizes: &Sizes) -> Exchange {
    let (call, argument) = message(7, 0, sizes.call[0], sizes.argument, sizes.call[1]);
    let (reply, data) = message(7, 1, sizes.reply[0], sizes.result, sizes.reply[1]);
    let rest = reply.len() - sizes.result.map_or(0, |bytes| bytes.next_multiple_of(4));
    Exchange {
        call,
        shape: CallShape {
            argument,
            result_max: sizes.result.map(|bytes| (bytes + sizes.slack) as u32),
            reply_max: (rest + sizes.slack) as u32,
        },
        reply,
        data,
        apart: sizes.apart,
    }
}

#[derive(Clone, Debug)]
struct Sizes {
    /// Words before and behind the argument.
    call: [usize; 2],
    argument: Option<usize>,
    reply: [usize; 2],
    result: Option<usize>,
    /// By how much the estimates are too large.
    slack: usize,
    apart: bool,
}

/// Sizes with an eye to the thresholds.
fn bytes() -> impl Strategy<Value = usize> {
    prop_oneof![
        0..80_usize,
        900..1100_usize,
        3900..4200_usize,
        0..20_000_usize
    ]
}

fn words() -> impl Strategy<Value = usize> {
    prop_oneof![0..30_usize, 220..260_usize, 900..1100_usize]
}

fn sizes() -> impl Strategy<Value = Sizes> {
    let optional = || proptest::option::of(bytes());
    (
        [words(), words()],
        optional(),
        [words(), words()],
        optional(),
        prop_oneof![Just(0), 0..5000_usize],
        any::<bool>(),
    )
        .prop_map(|(call, argument, reply, result, slack, apart)| Sizes {
            call,
            argument,
            reply,
            result,
            slack,
            apart,
        })
}

fn check(sizes: &[Sizes], kib: [u32; 4], segment: [usize; 2], flags: [bool; 3]) {
    let [one_tag, invalidate, read_read] = flags;
    let ours = private([kib[0], kib[1]], true, read_read);
    let theirs = private([kib[2], kib[3]], invalidate, read_read);
    let client = Memory::new(segment[0], one_tag);
    let mut world = World::new(ours, theirs, client, Memory::new(segment[1], one_tag));
    for sizes in sizes {
        let exchange = exchange(sizes);
        let outcome = world.run(&exchange);
        assert_eq!(outcome.reply.as_ref(), Ok(&exchange.reply), "{outcome:?}");
        if read_read {
            assert_eq!(outcome.writes, 0);
        }
        check_invalidation(&outcome, invalidate);
        assert_eq!(world.client.regions(), 0);
        assert_eq!(world.server.regions(), 0);
    }
    assert_eq!(world.requester.under_way(), 0);
    assert_eq!(world.requester.granted(), 32);
}

fn check_invalidation(outcome: &Outcome, agreed: bool) {
    if outcome.invalidate.is_some() {
        assert!(agreed);
        assert!(outcome.pulls > 0 || outcome.writes > 0 || outcome.reply_bytes > 0);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn every_size_arrives_whole(
        sizes in proptest::collection::vec(sizes(), 1..6),
        kib in [2..6_u32, 2..6_u32, 2..6_u32, 2..6_u32],
        segment in [prop_oneof![Just(1 << 20), 1000..9000_usize], prop_oneof![Just(1 << 20), 1000..9000_usize]],
        flags in any::<[bool; 3]>(),
    ) {
        check(&sizes, kib, segment, flags);
    }
}

proptest! {
    /// A call as another requester might lay it out: any segments, in any order of their chunks.
    #[test]
    fn any_layout_is_put_together(
        words in 2..60_usize, at in any::<prop::sample::Index>(), data in proptest::option::of(1..300_usize),
        long in any::<bool>(), pieces in [20..300_usize, 20..300_usize], order in any::<[bool; 16]>(),
    ) {
        let (base, _) = message(7, 0, words - 2, None, 0);
        let position = (1 + at.index(words)) * 4;
        let chunk: Vec<u8> = (0..data.unwrap_or(0)).map(|i| i as u8 | 0x80).collect();
        let mut whole = base.clone();
        let padded = chunk.iter().copied().chain([0; 3]).take(chunk.len().next_multiple_of(4));
        whole.splice(position..position, padded);

        let mut peer = Memory::new(pieces[0], false);
        let zero = if long { peer.register(&base).to_vec() } else { Vec::new() };
        peer.segment_max = pieces[1];
        let elsewhere = peer.register(&chunk).to_vec();
        let mut reads = ReadList::default();
        let (mut zero, mut elsewhere) = (zero.into_iter().peekable(), elsewhere.into_iter().peekable());
        let mut order = order.into_iter().cycle();
        while zero.peek().is_some() || elsewhere.peek().is_some() {
            let first = order.next() == Some(true);
            let from_zero = elsewhere.peek().is_none() || first && zero.peek().is_some();
            let next = if from_zero { zero.next() } else { elsewhere.next() };
            let position = if from_zero { 0 } else { position as u32 };
            let segment = next.expect("a segment");
            let room = reads.push(ReadSegment { position, segment });
            prop_assert!(room);
        }
        let chunks = Chunks { reads, ..Chunks::default() };
        let body = if long { Body::Nomsg(chunks) } else { Body::Msg(chunks) };
        let mut sent = Header { xid: 7, credits: 1, body }.to_bytes();
        if !long {
            sent.extend_from_slice(&base);
        }
        let world = World::new(PrivateData::default(), PrivateData::default(), Memory::default(), Memory::default());
        let Received::Call(incoming) = { world }.responder.receive(&sent) else {
            panic!("a call");
        };
        prop_assert_eq!(assemble(&incoming.assembly, &sent, &mut peer), whole);
        let expected = data.map(|bytes| position as u32..(position + bytes) as u32);
        prop_assert_eq!(incoming.assembly.data, expected);
    }
}

#[test]
fn every_size_around_the_threshold_arrives_whole() {
    let private = [4, 4, 4, 4];
    for result in 3900..4100 {
        for argument in [None, Some(result)] {
            let sizes = Sizes {
                call: [3, 1],
                argument,
                reply: [5, 0],
                result: Some(result),
                slack: 0,
                apart: result % 2 == 0,
            };
            for read_read in [false, true] {
                check(
                    std::slice::from_ref(&sizes),
                    private,
                    [1 << 20; 2],
                    [true, true, read_read],
                );
            }
        }
    }
}

/// What is offered, and no more than that.
#[test]
fn chunks_are_offered_where_they_are_needed() {
    let offered = |result: Option<usize>, rest_words: usize| {
        let sizes = Sizes {
            call: [3, 0],
            argument: None,
            reply: [rest_words, 0],
            result,
            slack: 0,
            apart: false,
        };
        let exchange = exchange(&sizes);
        let peer = PrivateData::default();
        let memory = || Memory::new(1 << 20, false);
        let mut world = World::new(peer, peer, memory(), memory());
        let mut given = Vec::new();
        world.send(&exchange, &mut given);
        given.iter().map(|(kind, _)| *kind).collect::<Vec<_>>()
    };
    assert_eq!(offered(None, 10), []);
    assert_eq!(offered(Some(1000), 10), []);
    // A page does not fit beside anything.
    assert_eq!(offered(Some(4096), 10), [NeedKind::Result]);
    assert_eq!(offered(None, 1100), [NeedKind::Reply]);
    assert_eq!(
        offered(Some(4096), 1100),
        [NeedKind::Result, NeedKind::Reply]
    );
    // To the byte: 28 of the header, 8 before the filling.
    assert_eq!(offered(None, (4096 - 28 - 8) / 4), []);
    assert_eq!(offered(None, (4096 - 28 - 8) / 4 + 1), [NeedKind::Reply]);
    // With the write chunk in the reply's header 24 fewer.
    assert_eq!(
        offered(Some(4096), (4096 - 52 - 12) / 4),
        [NeedKind::Result]
    );
    assert_eq!(
        offered(Some(4096), (4096 - 52 - 12) / 4 + 1),
        [NeedKind::Result, NeedKind::Reply]
    );
}
