//! Calls in the reverse direction. Bytes of the wire are derived from RFC 8167, sections 4 and 5, RFC 8166, section 4.2,
//! and RFC 5531, section 9.

use std::time::Duration;

use proptest::prelude::*;

use crate::rpcrdma::*;
use crate::wire::testing::hex;

/// As many as Linux grants.
const MOST: u32 = 16;
const NOW: Duration = Duration::ZERO;

fn responder_of(reverse_credits: u32, inline: Option<&PrivateData>) -> Responder {
    Responder::new(ResponderConfig {
        terms: Terms::between(&PrivateData::default(), inline),
        credits: GrantPolicy::Fixed(4),
        message_max: 1 << 20,
        read_read: ReadRead::default(),
        reverse_credits,
    })
}

fn responder() -> Responder {
    responder_of(MOST, Some(&PrivateData::default()))
}

fn words(words: &[u32]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_be_bytes()).collect()
}

/// A call of procedure 0 of the callback program.
fn call(xid: u32) -> Vec<u8> {
    words(&[xid, 0, 2, 0x4000_0000, 1, 0, 0, 0, 0, 0])
}

/// The reply to it, with its header.
fn reply(xid: u32, credits: u32) -> Vec<u8> {
    words(&[xid, 1, credits, 0, 0, 0, 0, xid, 1, 0, 0, 0, 0])
}

#[track_caller]
fn sent(responder: &mut Responder, xid: u32) {
    let called = responder.call_back(&call(xid), NOW, &mut Vec::new());
    assert_eq!(called, Ok(()), "call {xid}");
}

#[test]
fn a_call_and_its_reply() {
    let mut responder = responder();
    let message = hex("0000002a 00000000 00000002 40000000 00000001 00000001
        00000000 00000000 00000000 00000000 00000000 00000001 00000000 00000000");
    let mut header = b"what was there".to_vec();
    assert_eq!(responder.call_back(&message, NOW, &mut header), Ok(()));
    // The xid of the call, version 1, the credits asked for, RDMA_MSG, and three empty lists.
    let golden = "0000002a 00000001 00000010 00000000 00000000 00000000 00000000";
    assert_eq!(header, hex(golden));
    let answer = hex(
        "0000002a 00000001 00000010 00000000 00000000 00000000 00000000
         0000002a 00000001 00000000 00000000 00000000 00000000
         00000000 00000000 00000000",
    );
    match responder.receive(&answer) {
        Received::Answered(range) => assert_eq!(range, 28..answer.len()),
        step => panic!("{step:?}"),
    }
    assert_eq!(responder.called_back(), 0);
}

/// RFC 8167, section 4: as in the forward direction it begins with one credit, and a reply grants what comes next.
#[test]
fn calls_keep_to_what_the_client_grants() {
    let mut responder = responder();
    let mut header = Vec::new();
    for (round, (grant, then)) in [(3, 3), (0, 1), (2, 2), (1000, MOST)].iter().enumerate() {
        let first = 100 * round as u32;
        let mut calls = 0;
        while responder.may_call_back() {
            sent(&mut responder, first + calls);
            calls += 1;
        }
        let beyond = responder.call_back(&call(first + calls), NOW, &mut header);
        assert_eq!(beyond, Err(ReverseError::NoCredit));
        assert_eq!(header, [0; 0], "nothing has happened");
        for xid in first..first + calls {
            let step = responder.receive(&reply(xid, *grant));
            assert!(matches!(step, Received::Answered(_)), "{step:?}");
        }
        let mut may = 0;
        while responder.may_call_back() {
            sent(&mut responder, first + 50 + may);
            may += 1;
        }
        assert_eq!(may, *then, "granted {grant}");
        for xid in first + 50..first + 50 + may {
            responder.receive(&reply(xid, *grant));
        }
    }
}

#[test]
fn the_oldest_call_without_an_answer_is_known() {
    let mut responder = responder();
    assert_eq!(responder.unanswered_since(), None);
    sent(&mut responder, 1);
    responder.receive(&reply(1, 4));
    for xid in [4, 2, 3] {
        let at = Duration::from_secs(u64::from(xid));
        let called = responder.call_back(&call(xid), at, &mut Vec::new());
        assert_eq!(called, Ok(()));
    }
    // Whatever the order of the answers, and of whatever kind they are.
    for (answer, oldest) in [
        (reply(4, 4), Some(2)),
        (words(&[2, 1, 4, 4, 2]), Some(3)),
        (reply(9, 4), Some(3)),
        (reply(3, 4), None),
    ] {
        responder.receive(&answer);
        let oldest = oldest.map(Duration::from_secs);
        assert_eq!(responder.unanswered_since(), oldest);
    }
}

/// A grant that shrinks below what is under way waits for replies.
#[test]
fn a_smaller_grant_counts_at_once() {
    let mut responder = responder();
    sent(&mut responder, 1);
    responder.receive(&reply(1, 4));
    for xid in 2..6 {
        sent(&mut responder, xid);
    }
    for xid in 2..5 {
        responder.receive(&reply(xid, 1));
        assert!(!responder.may_call_back(), "{} left", 5 - xid);
    }
    responder.receive(&reply(5, 1));
    assert!(responder.may_call_back());
}

#[test]
fn credits_of_the_two_directions_are_apart() {
    let mut responder = responder();
    responder.receives_due();
    // Calls ask for credits of the forward direction, whatever is under way in the other.
    sent(&mut responder, 7);
    let forward = words(&[7, 1, 900, 0, 0, 0, 0, 7, 0]);
    let Received::Call(incoming) = responder.receive(&forward) else {
        panic!("it is a call");
    };
    assert_eq!((incoming.ticket.xid(), responder.called_back()), (7, 1));
    assert!(!responder.may_call_back());
    // A grant of the reverse direction is none of the forward one's.
    assert!(matches!(
        responder.receive(&reply(7, 9)),
        Received::Answered(_)
    ));
    assert_eq!((responder.under_way(), responder.granted()), (1, 1));
    let results = Results::whole(24);
    let mut header = Vec::new();
    responder.reply(incoming.ticket, &results, &mut header);
    assert_eq!(header[8..12], 4_u32.to_be_bytes());
    for xid in 0..9 {
        sent(&mut responder, xid);
    }
    assert!(!responder.may_call_back());
}

#[test]
fn what_does_not_go_inline_is_not_sent() {
    for (theirs, inline) in [(Some(PrivateData::default()), 4096), (None, 1024)] {
        let mut responder = responder_of(MOST, theirs.as_ref());
        let mut message = call(1);
        message.resize(inline - 28 + 1, 0);
        let mut header = Vec::new();
        let long = responder.call_back(&message, NOW, &mut header);
        assert_eq!(long, Err(ReverseError::Unfit));
        message.pop();
        assert_eq!(responder.call_back(&message, NOW, &mut header), Ok(()));
        assert_eq!(header.len() + message.len(), inline);
    }
    let mut responder = responder();
    for no_call in [&reply(1, 1)[28..], &[0; 7], &[]] {
        let called = responder.call_back(no_call, NOW, &mut Vec::new());
        assert_eq!(called, Err(ReverseError::Unfit));
    }
    assert_eq!(responder.called_back(), 0);
    let mut none = responder_of(0, Some(&PrivateData::default()));
    let called = none.call_back(&call(1), NOW, &mut Vec::new());
    assert_eq!(called, Err(ReverseError::NoCredit));
}

/// No chunk was offered for the reply, and none may bring it.
#[test]
fn a_reply_with_chunks_fails_its_call() {
    let segment = "00000009 00000010 0000000000000000";
    for lists in [
        format!("00000001 00000000 {segment} 00000000 00000000 00000000"),
        format!("00000000 00000001 00000001 {segment} 00000000 00000000"),
        format!("00000000 00000000 00000001 00000001 {segment}"),
    ] {
        let mut responder = responder();
        sent(&mut responder, 5);
        let head = "00000005 00000001 00000010 00000000";
        let message = "00000005 00000001 00000000 00000000 00000000 00000000";
        let step = responder.receive(&hex(&format!("{head} {lists} {message}")));
        assert!(matches!(step, Received::Failed(5)), "{lists}: {step:?}");
        assert_eq!(responder.called_back(), 0);
        sent(&mut responder, 6);
        assert!(!responder.may_call_back(), "it grants nothing");
    }
}

/// What a client sends that knows nothing of callbacks.
#[test]
fn an_error_fails_the_call_that_it_answers() {
    let mut responder = responder();
    sent(&mut responder, 5);
    for (xid, error) in [(6, &[2][..]), (5, &[3]), (5, &[])] {
        let error = [&[xid, 1, 10, 4], error].concat();
        let step = responder.receive(&words(&error));
        assert!(matches!(step, Received::Ignore(_)), "{error:?}: {step:?}");
    }
    let refused = words(&[5, 1, 10, 4, 2]);
    assert!(matches!(responder.receive(&refused), Received::Failed(5)));
    assert!(matches!(
        responder.receive(&refused),
        Received::Ignore(Ignored::Error)
    ));
    sent(&mut responder, 6);
    assert!(!responder.may_call_back(), "an error grants nothing");
    let version = words(&[6, 1, 10, 4, 1, 2, 2]);
    assert!(matches!(responder.receive(&version), Received::Failed(6)));
}

#[test]
fn replies_to_no_call_are_dropped() {
    let mut responder = responder();
    responder.receives_due();
    let unasked = |responder: &mut Responder, reply: &[u8]| {
        let step = responder.receive(reply);
        assert!(matches!(step, Received::Ignore(Ignored::Reply)), "{step:?}");
    };
    unasked(&mut responder, &reply(1, 100));
    sent(&mut responder, 1);
    unasked(&mut responder, &reply(2, 100));
    // Of another xid than its header, either way.
    let mut other = reply(1, 100);
    other[31] = 2;
    unasked(&mut responder, &other);
    let mut other = reply(2, 100);
    other[31] = 1;
    unasked(&mut responder, &other);
    assert_eq!(responder.called_back(), 1);
    assert!(matches!(
        responder.receive(&reply(1, 2)),
        Received::Answered(_)
    ));
    // Once more.
    unasked(&mut responder, &reply(1, 100));
    for xid in 1..3 {
        sent(&mut responder, xid);
    }
    assert!(
        !responder.may_call_back(),
        "what was dropped granted nothing"
    );
}

proptest! {
    /// A client that uses every credit it has of the forward direction, and answers every call of the other, always
    /// finds a receive. No more calls are under way than it granted, and nothing that it may send more costs more than
    /// the receive it takes.
    #[test]
    fn there_is_a_receive_for_each_reply(
        steps in proptest::collection::vec((0..5_u32, 0..40_u32), 1..300),
    ) {
        let mut responder = responder();
        let mut posted = responder.receives_due();
        let (mut serving, mut known) = (Vec::new(), 1);
        let (mut calling, mut granted) = (Vec::new(), 1);
        for (xid, (step, number)) in (1_u32..).zip(steps) {
            match step {
                0 if serving.len() < known as usize => {
                    posted = posted.checked_sub(1).expect("a receive for each credit");
                    match responder.receive(&words(&[xid, 1, number, 0, 0, 0, 0, xid, 0])) {
                        Received::Call(incoming) => serving.push(incoming.ticket),
                        step => panic!("{step:?}"),
                    }
                }
                1 => if let Some(ticket) = serving.pop() {
                    let results = Results::whole(24);
                    responder.reply(ticket, &results, &mut Vec::new());
                    known = responder.granted();
                }
                2 => {
                    let called = responder.call_back(&call(xid), NOW, &mut Vec::new());
                    let may = calling.len() < granted.min(MOST as usize);
                    prop_assert_eq!(called.is_ok(), may);
                    calling.extend(called.ok().map(|()| xid));
                }
                3 if !calling.is_empty() => {
                    let call = calling.swap_remove(number as usize % calling.len());
                    posted = posted.checked_sub(1).expect("a receive for each reply");
                    let step = responder.receive(&reply(call, number));
                    prop_assert!(matches!(step, Received::Answered(_)));
                    granted = number.max(1) as usize;
                }
                _ => {
                    // The spare one.
                    posted = posted.checked_sub(1).expect("a receive to spare");
                    let step = responder.receive(&reply(1 << 31 | xid, 100));
                    prop_assert!(matches!(step, Received::Ignore(Ignored::Reply)));
                }
            }
            posted += responder.receives_due();
            prop_assert_eq!(responder.called_back() as usize, calling.len());
            prop_assert!(posted <= 4 + MOST + SPARE_RECEIVES);
        }
    }
}
