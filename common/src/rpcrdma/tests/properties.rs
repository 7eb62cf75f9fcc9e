//! Calls and replies of all sizes arrive as they were sent.

use proptest::prelude::*;

use super::model::{Exchange, Memory, Outcome, World, assemble, message};
use crate::rpcrdma::*;
use crate::wire::rpcrdma::{Body, Chunks, Gaps, Header, ReadList, ReadSegment};
use crate::wire::xdr::{Encode, Gap};

fn private(kib: [u32; 2], remote_invalidate: bool, read_read: bool) -> PrivateData {
    PrivateData {
        remote_invalidate,
        send_bytes: kib[0] * 1024,
        receive_bytes: kib[1] * 1024,
        read_read,
    }
}

fn exchange(sizes: &Sizes) -> Exchange {
    let (call, mut arguments) = message(7, 0, sizes.call[0], &sizes.arguments, sizes.call[1]);
    let (reply, data) = message(7, 1, sizes.reply[0], &sizes.results, sizes.reply[1]);
    let whole = arguments;
    arguments.truncate(0);
    for gap in whole.iter().filter(|gap| gap.bytes > 0) {
        assert!(arguments.push(*gap));
    }
    let rest = reply.len() - data.iter().map(Gap::padded).sum::<usize>();
    let results_max = sizes
        .results
        .iter()
        .map(|bytes| (bytes + sizes.slack) as u32);
    Exchange {
        call,
        shape: CallShape {
            arguments,
            results_max: Placements::new(&results_max.collect::<Vec<_>>()),
            reply_max: (rest + sizes.slack) as u32,
        },
        reply,
        data,
    }
}

#[derive(Clone, Debug)]
struct Sizes {
    /// Words before and behind the arguments.
    call: [usize; 2],
    arguments: Vec<usize>,
    reply: [usize; 2],
    results: Vec<usize>,
    /// By how much the estimates are too large.
    slack: usize,
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
    let some = || proptest::collection::vec(bytes(), 0..4);
    (
        [words(), words()],
        some(),
        [words(), words()],
        some(),
        prop_oneof![Just(0), 0..5000_usize],
    )
        .prop_map(|(call, arguments, reply, results, slack)| Sizes {
            call,
            arguments,
            reply,
            results,
            slack,
        })
}

fn check(sizes: &[Sizes], kib: [u32; 4], segment: [usize; 2], flags: [bool; 3]) {
    let [one_tag, invalidate, read_read] = flags;
    let ours = private([kib[0], kib[1]], true, read_read);
    let theirs = private([kib[2], kib[3]], invalidate, read_read);
    // All chunks of a list together have 32 segments.
    let memory = |segment| Memory::new(segment, one_tag).of_segments(8);
    let mut world = World::new(ours, theirs, memory(segment[0]), memory(segment[1]));
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
    /// A call as another requester might lay it out: any chunks of any segments, in any order.
    #[test]
    fn any_layout_is_put_together(
        words in 2..60_usize, long in any::<bool>(), pieces in [20..300_usize, 20..300_usize],
        data in proptest::collection::vec((any::<prop::sample::Index>(), 1..300_usize), 0..4),
        order in any::<[prop::sample::Index; 16]>(),
    ) {
        let (base, _) = message(7, 0, words - 2, &[], 0);
        // Behind which word of the call without them the chunks are, and what they hold.
        let mut data: Vec<_> = data.iter().map(|(at, bytes)| (1 + at.index(words), *bytes)).collect();
        data.sort_unstable();
        data.dedup_by_key(|(word, _)| *word);
        let (mut whole, mut gaps, mut missing) = (base.clone(), Gaps::default(), 0);
        let mut peer = Memory::new(pieces[1], false).of_segments(8);
        let mut lists = Vec::new();
        for (number, (word, bytes)) in data.iter().enumerate() {
            let chunk: Vec<u8> = (0..*bytes).map(|i| (i + number) as u8 | 0x80).collect();
            let padded = bytes.next_multiple_of(4);
            let position = word * 4 + missing;
            whole.splice(position..position, chunk.iter().copied().chain([0; 3]).take(padded));
            missing += padded;
            let room = gaps.push(Gap { at: position as u32, bytes: *bytes as u32 });
            prop_assert!(room);
            lists.push((position as u32, peer.register(&chunk).to_vec().into_iter()));
        }
        peer.segment_max = pieces[0];
        if long {
            lists.push((0, peer.register(&base).to_vec().into_iter()));
        }
        let mut reads = ReadList::default();
        let mut order = order.into_iter().cycle();
        while !lists.is_empty() {
            let which = order.next().expect("a cycle").index(lists.len());
            let (position, segments) = &mut lists[which];
            match segments.next() {
                Some(segment) => {
                    let position = *position;
                    let room = reads.push(ReadSegment { position, segment });
                    prop_assert!(room);
                }
                None => drop(lists.remove(which)),
            }
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
        prop_assert_eq!(incoming.assembly.gaps, gaps);
    }
}

#[test]
fn every_size_around_the_threshold_arrives_whole() {
    let private = [4, 4, 4, 4];
    for result in 3900..4100 {
        for arguments in [vec![], vec![result]] {
            let sizes = Sizes {
                call: [3, 1],
                arguments,
                reply: [5, 0],
                results: vec![result],
                slack: 0,
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
    let offered = |results: &[usize], rest_words: usize| {
        let sizes = Sizes {
            call: [3, 0],
            arguments: Vec::new(),
            reply: [rest_words, 0],
            results: results.to_vec(),
            slack: 0,
        };
        let exchange = exchange(&sizes);
        let peer = PrivateData::default();
        let memory = || Memory::new(1 << 20, false);
        let mut world = World::new(peer, peer, memory(), memory());
        let mut given = Vec::new();
        world.send(&exchange, &mut given);
        given.iter().map(|(kind, _)| *kind).collect::<Vec<_>>()
    };
    assert_eq!(offered(&[], 10), []);
    assert_eq!(offered(&[1000], 10), []);
    // A page does not fit beside anything.
    assert_eq!(offered(&[4096], 10), [NeedKind::Result]);
    assert_eq!(offered(&[1000, 4096], 10), [NeedKind::Result; 2]);
    assert_eq!(offered(&[0, 4096, 0], 10), [NeedKind::Result]);
    assert_eq!(offered(&[], 1100), [NeedKind::Reply]);
    assert_eq!(offered(&[4096], 1100), [NeedKind::Result, NeedKind::Reply]);
    // To the byte: 28 of the header, 8 before the filling.
    assert_eq!(offered(&[], (4096 - 28 - 8) / 4), []);
    assert_eq!(offered(&[], (4096 - 28 - 8) / 4 + 1), [NeedKind::Reply]);
    // With the write chunk in the reply's header 24 fewer.
    assert_eq!(offered(&[4096], (4096 - 52 - 12) / 4), [NeedKind::Result]);
    assert_eq!(
        offered(&[4096], (4096 - 52 - 12) / 4 + 1),
        [NeedKind::Result, NeedKind::Reply]
    );
}
