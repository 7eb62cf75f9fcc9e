//! The Read-Read design: what it exposes, and for how long.

use std::time::Duration;

use crate::rpcrdma::*;
use crate::wire::rpcrdma::{Gaps, Segment, Segments};

const NOW: Duration = Duration::from_secs(5);
const TIMEOUT: Duration = Duration::from_secs(10);

fn responder() -> Responder {
    let private = PrivateData {
        read_read: true,
        ..PrivateData::default()
    };
    Responder::new(ResponderConfig {
        terms: Terms::between(&private, Some(&private)),
        credits: GrantPolicy::Fixed(8),
        message_max: 1 << 20,
        read_read: ReadRead {
            exposures_max: 2,
            done_timeout: TIMEOUT,
        },
        reverse_credits: 0,
    })
}

fn words(words: &[u32]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_be_bytes()).collect()
}

fn ticket(responder: &mut Responder, xid: u32) -> Ticket {
    match responder.receive(&words(&[xid, 1, 8, 0, 0, 0, 0, xid, 0])) {
        Received::Call(incoming) => incoming.ticket,
        step => panic!("{step:?}"),
    }
}

/// A reply of 100 bytes without its data.
fn long() -> Results {
    Results {
        length: 100,
        apart: PlacedResults::one(PlacedResult {
            result: 0,
            at: 96,
            bytes: 8000,
        }),
    }
}

fn expose(responder: &mut Responder, xid: u32, now: Duration) -> ReplyPlan {
    let ticket = ticket(responder, xid);
    let mut segment = |what: &Expose| {
        let length = what.from.bytes();
        Some(Segments::one(Segment {
            handle: 1,
            length,
            offset: 0,
        }))
    };
    let mut header = Vec::new();
    let answer = responder.reply_exposed(ticket, &long(), now, &mut segment, &mut header);
    if !answer.overrun {
        // One read chunk at position 96, and nothing else.
        assert_eq!(header[12..], words(&[0, 1, 96, 1, 8000, 0, 0, 0, 0, 0]));
        assert!(answer.inline);
    }
    answer
}

#[test]
fn what_is_exposed_is_given_back_by_done_or_in_time() {
    let mut responder = responder();
    let first = expose(&mut responder, 1, NOW).exposed.expect("an exposure");
    let second = expose(&mut responder, 2, NOW + TIMEOUT / 2)
        .exposed
        .expect("an exposure");
    assert_ne!(first, second);
    assert!(
        expose(&mut responder, 3, NOW + TIMEOUT / 2).overrun,
        "there is room for two"
    );
    assert_eq!(responder.exposed(), 2);

    assert!(matches!(responder.receive(&words(&[2, 1, 8, 3])), Received::Done(id) if id == second));
    assert!(matches!(
        responder.receive(&words(&[2, 1, 8, 3])),
        Received::Ignore(Ignored::Done)
    ));
    assert_eq!(responder.dones(), 2);

    assert_eq!(responder.deadline(), Some(NOW + TIMEOUT));
    assert_eq!(
        responder.expired(NOW + TIMEOUT - Duration::from_nanos(1)),
        None
    );
    assert_eq!(responder.expired(NOW + TIMEOUT), Some(first));
    assert_eq!(responder.expired(NOW + TIMEOUT), None);
    assert_eq!(responder.deadline(), None);
    // Its client comes too late, and does no harm.
    assert!(matches!(
        responder.receive(&words(&[1, 1, 8, 3])),
        Received::Ignore(Ignored::Done)
    ));
}

/// The receive for an `RDMA_DONE` does not come out of those for calls.
#[test]
fn a_done_has_a_receive_of_its_own() {
    let mut responder = responder();
    let mut posted = responder.receives_due();
    for xid in [1, 2] {
        posted -= 1;
        expose(&mut responder, xid, NOW);
        posted += responder.receives_due();
    }
    assert_eq!(posted, 8 + 2 + 1);
    for xid in [1, 2] {
        posted -= 1;
        responder.receive(&words(&[xid, 1, 8, 3]));
        posted += responder.receives_due();
    }
    assert_eq!(posted, 8 + 1);
}

#[test]
fn one_xid_twice_is_two_exposures() {
    let mut responder = responder();
    let first = expose(&mut responder, 1, NOW).exposed.expect("an exposure");
    let second = expose(&mut responder, 1, NOW).exposed.expect("an exposure");
    for id in [first, second] {
        assert!(
            matches!(responder.receive(&words(&[1, 1, 8, 3])), Received::Done(done) if done == id)
        );
    }
}

/// What the server offers to be read is no longer than the call allowed for.
#[test]
fn a_reply_that_is_too_long_is_not_fetched() {
    let private = PrivateData {
        read_read: true,
        ..PrivateData::default()
    };
    let event = |result_max: u32, agreed: bool| {
        let mut terms = Terms::between(&private, Some(&private));
        terms.read_read = agreed;
        let mut requester = Requester::new(RequesterConfig {
            terms,
            credits: RequestPolicy::Fixed(8),
        });
        let shape = CallShape {
            arguments: Gaps::default(),
            results_max: Placements::one(result_max),
            reply_max: 100,
        };
        let message = words(&[1, 0]);
        let call = Call {
            message: &message,
            shape: &shape,
            health_check: false,
        };
        let mut memory = |need: &Need| {
            let length = need.bytes;
            Some(Segments::one(Segment {
                handle: 1,
                length,
                offset: 0,
            }))
        };
        requester
            .call(&call, &mut memory, &mut Vec::new())
            .expect("a call");
        let mut reply = words(&[1, 1, 8, 0, 1, 96, 9, 8000, 0, 0, 0, 0, 0, 1, 1]);
        reply.resize(reply.len() + 92, 0);
        requester.receive(&reply)
    };
    let malformed = Event::Failed {
        xid: 1,
        why: Failure::Malformed,
    };
    assert!(matches!(event(8000, true), Event::Pull(_)));
    assert_eq!(event(7996, true), malformed);
    assert_eq!(event(8000, false), malformed, "nobody agreed to it");
}
