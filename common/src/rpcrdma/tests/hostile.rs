//! What no peer should send.

use proptest::prelude::*;

use crate::rpcrdma::*;
use crate::wire::rpcrdma::{Gaps, Segment, Segments};
use crate::wire::testing::hex;

const MESSAGE_MAX: u32 = 1 << 20;

fn responder() -> Responder {
    let private = PrivateData::default();
    Responder::new(ResponderConfig {
        terms: Terms::between(&private, Some(&private)),
        credits: GrantPolicy::Fixed(16),
        message_max: MESSAGE_MAX,
        read_read: ReadRead::default(),
        reverse_credits: 0,
    })
}

const ERR_CHUNK: &str = "00000007 00000001 00000001 00000004 00000002";

#[track_caller]
fn answered(message: &str, with: &str) {
    match responder().receive(&hex(message)) {
        Received::Respond(answer) => assert_eq!(answer, hex(with)),
        step => panic!("{step:?}"),
    }
}

#[test]
fn other_versions_and_kinds_are_refused() {
    // The answer is of the version that is refused.
    let lists = "00000000 00000000 00000000";
    for version in ["00000002", "00000000", "ffffffff"] {
        answered(
            &format!("00000007 {version} 00000080 00000000 {lists}"),
            &format!("00000007 {version} 00000001 00000004 00000001 00000001 00000001"),
        );
    }
    // RDMA_MSGP, and what does not exist.
    answered(
        "00000007 00000001 00000080 00000002 00000200 00000400 00000000 00000000 00000000",
        ERR_CHUNK,
    );
    answered(
        &format!("00000007 00000001 00000080 00000005 {lists}"),
        ERR_CHUNK,
    );
}

/// RFC 8166, section 4.5: whose xid is not to be trusted is not answered.
#[test]
fn what_is_shorter_than_a_header_is_dropped() {
    for head in [
        "00000007 00000001 00000080 00000000",
        "00000007 00000001 00000080 00000001",
        "00000007 00000001 00000080 00000002",
        "00000007 00000001 00000080 00000009",
        "00000007 00000002 00000080 00000000",
        "00000007 00000002 00000080 00000003",
    ] {
        let whole = hex(&format!("{head} 00000001 ffffffff ffffffff"));
        for bytes in 0..whole.len() {
            let step = responder().receive(&whole[..bytes]);
            let dropped = matches!(step, Received::Ignore(Ignored::Unanswerable));
            assert!(dropped, "{head}, {bytes} bytes: {step:?}");
        }
        assert!(matches!(responder().receive(&whole), Received::Respond(_)));
    }
}

/// RFC 8166, section 4.5.2.
#[test]
fn a_call_of_another_xid_than_its_header_is_refused() {
    let header = "00000007 00000001 00000080 00000000 00000000 00000000 00000000";
    for call in ["00000008 00000000 00000002", "00000000", ""] {
        answered(&format!("{header} {call}"), ERR_CHUNK);
    }
}

#[test]
fn errors_are_not_answered() {
    for error in [
        "00000007 00000001 00000080 00000004 00000002",
        "00000007 00000001 00000080 00000004 00000003",
        "00000007 00000001 00000080 00000004",
        "00000007 00000002 00000080 00000004 00000001",
        "00000007 00000001 00000080",
        "",
    ] {
        let step = responder().receive(&hex(error));
        assert!(matches!(step, Received::Ignore(_)), "{error}: {step:?}");
    }
    assert!(matches!(
        responder().receive(&[0; 15]),
        Received::Ignore(Ignored::Unanswerable)
    ));
}

#[test]
fn a_reply_is_no_call() {
    let reply = "00000007 00000001 00000080 00000000 00000000 00000000 00000000 00000007 00000001";
    assert!(matches!(
        responder().receive(&hex(reply)),
        Received::Ignore(Ignored::Reply)
    ));
}

/// Segments of a read list.
fn list(segments: &[(u32, u32)]) -> String {
    segments
        .iter()
        .map(|(position, length)| {
            format!("00000001 {position:08x} 00000009 {length:08x} 0000000000000000")
        })
        .collect()
}

fn call(procedure: u32, reads: &[(u32, u32)], rest: &str) -> String {
    format!(
        "00000007 00000001 00000080 {procedure:08x} {} 00000000 {rest}",
        list(reads)
    )
}

const MSG: u32 = 0;
const NOMSG: u32 = 1;

#[test]
fn read_lists_that_make_no_message_are_refused() {
    let lists = "00000000 00000000";
    let inline = "00000000 00000000 00000007 00000000 00000000 00000000";
    let taken = |message: String| matches!(responder().receive(&hex(&message)), Received::Call(_));
    assert!(taken(call(MSG, &[(16, 100)], inline)));
    assert!(taken(call(MSG, &[(8, 3), (8, 4)], inline)));
    assert!(taken(call(NOMSG, &[(0, 5000), (40, 9)], lists)));
    assert!(
        taken(call(NOMSG, &[(40, 9), (0, 5000)], lists)),
        "in any order"
    );
    for bad in [
        // Beyond the end, between words.
        call(MSG, &[(20, 4)], inline),
        call(MSG, &[(10, 4)], inline),
        call(NOMSG, &[(0, 36), (40, 9)], lists),
        // Position zero in a message that is there, or not where the message is nowhere else.
        call(MSG, &[(0, 0)], inline),
        call(MSG, &[(0, 100)], inline),
        call(NOMSG, &[], lists),
        call(NOMSG, &[(40, 9)], lists),
        call(NOMSG, &[(0, 0)], lists),
        // Chunks that overlap: that in front, its padding, that behind.
        call(MSG, &[(8, 8), (12, 4)], inline),
        call(MSG, &[(8, 5), (12, 4)], inline),
        call(MSG, &[(12, 4), (8, 5)], inline),
        call(MSG, &[(4, 1), (8, 100), (104, 1)], inline),
        call(NOMSG, &[(0, 40), (40, 9), (44, 1)], lists),
        // The second beyond the end, which the first has moved.
        call(MSG, &[(8, 4), (24, 4)], inline),
        call(MSG, &[(8, 4), (10, 4)], inline),
        call(MSG, &[(8, 0), (20, 0)], inline),
        // More than eight chunks elsewhere.
        call(
            MSG,
            &[4, 8, 12, 16, 20, 24, 28, 32, 36].map(|at| (at, 4)),
            inline,
        ),
        // More than 16 segments.
        call(MSG, &[(8, 4); 17], inline),
        call(
            NOMSG,
            &[[(0, 4); 16].as_slice(), &[(8, 4); 17]].concat(),
            lists,
        ),
        call(NOMSG, &[(0, 4); 17], lists),
        call(MSG, &[(8, 4); 33], inline),
        // Longer than is taken.
        call(MSG, &[(8, MESSAGE_MAX)], inline),
        call(NOMSG, &[(0, MESSAGE_MAX + 1)], lists),
        call(NOMSG, &[(0, u32::MAX), (0, u32::MAX)], lists),
        call(NOMSG, &[(0, 8), (8, u32::MAX)], lists),
        call(
            MSG,
            &[(4, MESSAGE_MAX / 2), (4 + MESSAGE_MAX / 2, MESSAGE_MAX / 2)],
            inline,
        ),
        call(MSG, &[(4, u32::MAX), (8, u32::MAX)], inline),
        call(MSG, &[(4, 4), (8, u32::MAX), (8, u32::MAX)], inline),
    ] {
        answered(&bad, ERR_CHUNK);
    }
    assert!(taken(call(NOMSG, &[(0, MESSAGE_MAX)], lists)));
    let eight = [4, 8, 12, 16, 20, 24, 28, 32].map(|at| (at, 4));
    assert!(taken(call(MSG, &eight, inline)));
    assert!(taken(call(
        NOMSG,
        &[[(0, 4); 16], [(8, 4); 16]].concat(),
        lists
    )));
    assert!(
        taken(call(MSG, &[(24, 4), (8, 5)], inline)),
        "in any order, up to the end"
    );
    assert!(taken(call(MSG, &[(8, 4); 16], inline)));
}

#[test]
fn write_lists_that_are_too_long_are_refused() {
    let segment = "00000009 00000100 0000000000000000";
    let chunk = |count: usize| format!("{count:08x} {}", segment.repeat(count));
    let call = |write: &str, reply: &str| {
        format!(
            "00000007 00000001 00000080 00000000 00000000 {write} 00000000 {reply} 00000007 00000000"
        )
    };
    let none = "00000000";
    let one = |count| format!("00000001 {}", chunk(count));
    let sixteen = call(&one(16), &one(16));
    assert!(matches!(
        responder().receive(&hex(&sixteen)),
        Received::Call(_)
    ));
    answered(&call(&one(17), none), ERR_CHUNK);
    answered(&call("", &one(17)), ERR_CHUNK);
    // Eight chunks, of 32 segments in all.
    let taken = |write: &str| {
        let step = responder().receive(&hex(&call(write, none)));
        matches!(step, Received::Call(_))
    };
    assert!(taken(&one(4).repeat(8)) && taken(&one(16).repeat(2)));
    assert!(taken(&one(0).repeat(8)));
    answered(&call(&one(0).repeat(9), none), ERR_CHUNK);
    answered(&call(&one(1).repeat(9), none), ERR_CHUNK);
    answered(&call(&(one(16).repeat(2) + &one(1)), none), ERR_CHUNK);
    answered(&call(&(one(4).repeat(7) + &one(5)), none), ERR_CHUNK);
    // Counts of what is not there.
    answered(
        "00000007 00000001 00000080 00000000 00000000 00000001 ffffffff",
        ERR_CHUNK,
    );
    answered(
        "00000007 00000001 00000080 00000000 00000000 00000000 00000001 00000010",
        ERR_CHUNK,
    );
    answered(
        "00000007 00000001 00000080 00000000 00000002 00000000 00000000",
        ERR_CHUNK,
    );
}

/// A chunk as long as can be claimed.
#[test]
fn chunks_of_many_gigabytes_do_not_overflow() {
    let huge = "00000009 ffffffff ffffffffffffffff".repeat(16);
    let call = format!(
        "00000007 00000001 00000080 00000000 00000000 00000001 00000010 {huge} 00000000
         00000001 00000010 {huge} 00000007 00000000"
    );
    let mut responder = responder();
    let Received::Call(incoming) = responder.receive(&hex(&call)) else {
        panic!("a call");
    };
    assert_eq!(incoming.ticket.placements().first(), Some(u32::MAX));
    assert_eq!(incoming.ticket.reply_bytes_max(), u32::MAX);
    let results = Results {
        length: 10_000,
        apart: PlacedResults::one(PlacedResult {
            result: 0,
            at: 10_000,
            bytes: u32::MAX,
        }),
    };
    let answer = responder.reply(incoming.ticket, &results, &mut Vec::new());
    assert_eq!(answer.writes.len(), 2);
    assert_eq!(answer.invalidate, Some(9));
}

fn offer(result: bool, reply: bool) -> Requester {
    let private = PrivateData::default();
    let mut requester = Requester::new(RequesterConfig {
        terms: Terms::between(&private, Some(&private)),
        credits: RequestPolicy::Fixed(8),
    });
    let shape = CallShape {
        arguments: Gaps::default(),
        results_max: if result {
            Placements::one(8192)
        } else {
            Placements::default()
        },
        reply_max: if reply { 6000 } else { 100 },
    };
    let message = hex("00000007 00000000 00000002");
    let call = Call {
        message: &message,
        shape: &shape,
        health_check: false,
    };
    let mut memory = |need: &Need| {
        let half = need.bytes / 2;
        let segment = |handle, length| Segment {
            handle,
            length,
            offset: 0,
        };
        Some(Segments::new(&[segment(1, half), segment(2, need.bytes - half)]).0)
    };
    requester
        .call(&call, &mut memory, &mut Vec::new())
        .expect("a call");
    requester
}

fn chunk(lengths: &[u32]) -> String {
    let segments: String = lengths
        .iter()
        .map(|length| format!("00000001 {length:08x} 0000000000000000"))
        .collect();
    format!("00000001 {:08x} {segments}", lengths.len())
}

#[test]
fn replies_that_return_other_chunks_are_malformed() {
    let none = "00000000";
    let returned = |result: bool, reply: bool, nomsg: u32, write: &[u32], long: &[u32]| {
        let write = if write.is_empty() {
            String::new()
        } else {
            chunk(write)
        };
        let long = if long.is_empty() {
            none.to_owned()
        } else {
            chunk(long)
        };
        let inline = if nomsg == 0 { "00000007 00000001" } else { "" };
        let message = format!(
            "00000007 00000001 00000008 {nomsg:08x} 00000000 {write} 00000000 {long} {inline}"
        );
        let mut requester = offer(result, reply);
        let event = requester.receive(&hex(&message));
        assert_eq!(requester.under_way(), 0);
        event
    };
    let result = |event: Event| match event {
        Event::Reply(reply) => reply.results.first(),
        event => panic!("{event:?}"),
    };
    // Full, filled in order, empty, not returned at all.
    assert_eq!(
        result(returned(true, false, 0, &[4096, 4096], &[])),
        Some(8192)
    );
    assert_eq!(
        result(returned(true, false, 0, &[4096, 1], &[])),
        Some(4097)
    );
    assert_eq!(result(returned(true, false, 0, &[17, 0], &[])), Some(17));
    assert_eq!(result(returned(true, false, 0, &[0, 0], &[])), None);
    assert_eq!(result(returned(true, false, 0, &[], &[])), None);
    assert_eq!(result(returned(false, true, 0, &[], &[0, 0])), None);
    assert_eq!(
        result(returned(true, true, 1, &[4096, 1], &[3000, 3000])),
        Some(4097)
    );
    let long = returned(false, true, 1, &[], &[3000, 8]);
    assert!(matches!(
        long,
        Event::Reply(Reply {
            stream: Stream::Memory(3008),
            ..
        })
    ));

    let malformed = Event::Failed {
        xid: 7,
        why: Failure::Malformed,
    };
    for bad in [
        // More than was offered, with a hole, of other segments.
        returned(true, false, 0, &[4097, 0], &[]),
        returned(true, false, 0, &[4096, 4097], &[]),
        returned(true, false, 0, &[4095, 1], &[]),
        returned(true, false, 0, &[4096], &[]),
        returned(true, false, 0, &[4096, 4096, 0], &[]),
        returned(true, false, 0, &[u32::MAX, u32::MAX], &[]),
        // What was not offered.
        returned(false, false, 0, &[4096, 4096], &[]),
        returned(false, false, 1, &[], &[3000, 3000]),
        // A reply that is nowhere, or in two places.
        returned(false, true, 1, &[], &[]),
        returned(false, true, 1, &[], &[0, 0]),
        returned(false, true, 0, &[], &[3000, 3000]),
    ] {
        assert_eq!(bad, malformed);
    }
}

#[test]
fn a_server_may_refuse_and_may_not_ask_for_memory() {
    let event = |message: &str| offer(false, false).receive(&hex(message));
    let failed = |why| Event::Failed { xid: 7, why };
    assert_eq!(
        event("00000007 00000001 00000008 00000004 00000002"),
        failed(Failure::Chunk)
    );
    let versions = Failure::Version { low: 2, high: 3 };
    assert_eq!(
        event("00000007 00000001 00000008 00000004 00000001 00000002 00000003"),
        failed(versions)
    );
    assert_eq!(
        event("00000007 00000002 00000008 00000004 00000001 00000002 00000003"),
        failed(versions),
        "in any version"
    );
    let read = call(MSG, &[(8, 4000)], "00000000 00000000 00000007 00000001");
    assert_eq!(
        event(&read),
        failed(Failure::Malformed),
        "nobody agreed to the Read-Read design"
    );
    // A call in the other direction (RFC 8167) may have any xid.
    let backward =
        "00000007 00000001 00000008 00000000 00000000 00000000 00000000 00000007 00000000";
    assert_eq!(event(backward), Event::Ignored);
    assert_eq!(event("00000007 00000001 00000008 00000003"), Event::Ignored);
}

/// RFC 8166, sections 4.5 and 4.6: the call goes on waiting, and its reply is taken when it comes.
#[test]
fn replies_that_cannot_be_read_are_dropped() {
    let lists = "00000000 00000000 00000000";
    for dropped in [
        // RDMA_ERROR of no known kind, cut short, of another version.
        "00000007 00000001 00000008 00000004 00000009".to_owned(),
        "00000007 00000001 00000008 00000004".to_owned(),
        "00000007 00000001 00000008 00000004 00000001 00000002".to_owned(),
        "00000007 00000002 00000008 00000004 00000002".to_owned(),
        // Another version, another kind, RDMA_MSGP.
        format!("00000007 00000003 00000008 00000000 {lists} 00000007 00000001"),
        format!("00000007 00000001 00000008 00000009 {lists} 00000007 00000001"),
        format!("00000007 00000001 00000008 00000002 {lists} 00000007 00000001"),
        // No lists, and such as do not decode.
        "00000007 00000001 00000008 00000000".to_owned(),
        "00000007 00000001 00000008 00000000 00000002 00000000 00000000".to_owned(),
        // The reply to another call, or to none.
        format!("00000007 00000001 00000008 00000000 {lists} 00000008 00000001"),
        format!("00000007 00000001 00000008 00000000 {lists}"),
    ] {
        let mut requester = offer(false, false);
        assert_eq!(
            requester.receive(&hex(&dropped)),
            Event::Ignored,
            "{dropped}"
        );
        assert_eq!((requester.under_way(), requester.granted()), (1, 1));
        let reply = format!("00000007 00000001 00000008 00000000 {lists} 00000007 00000001");
        assert!(matches!(requester.receive(&hex(&reply)), Event::Reply(_)));
    }
}

proptest! {
    /// Whatever arrives: no panic, and what is to be done is within limits.
    #[test]
    fn any_words_are_survived(
        head in (0..9_u32, 0..3_u32, any::<u32>(), 0..6_u32),
        words in proptest::collection::vec(prop_oneof![0..3_u32, 0..20_u32, any::<u32>()], 0..60),
    ) {
        let all = [head.0, head.1, head.2, head.3].into_iter().chain(words);
        let message: Vec<u8> = all.flat_map(|word| word.to_be_bytes()).collect();
        crate::fuzz::run("rpcrdma_header", &message);
        crate::fuzz::run("rpcrdma_responder", &message);
        crate::fuzz::run("rpcrdma_requester", &message);
    }
}
