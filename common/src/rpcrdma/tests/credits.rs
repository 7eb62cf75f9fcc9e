use proptest::prelude::*;

use crate::rpcrdma::*;

const REQUESTS: RequestPolicy = RequestPolicy::Adaptive(AdaptiveRequests {
    min: 8,
    max: 64,
    threshold: 4,
    factor_percent: 150,
});
const GRANTS: AdaptiveGrants = AdaptiveGrants {
    average: 16,
    max: 64,
    factor_percent: 50,
};

/// Figure 10 of the paper.
#[test]
fn requests_follow_what_is_under_way() {
    assert_eq!(REQUESTS.request(32, 10), 8);
    assert_eq!(REQUESTS.request(32, 28), 8);
    assert_eq!(REQUESTS.request(32, 29), 8 + 43);
    assert_eq!(REQUESTS.request(8, 8), 8 + 12);
    assert_eq!(REQUESTS.request(1, 1_000_000), 64);
    assert_eq!(RequestPolicy::Fixed(128).request(1, 1), 128);
    assert_eq!(RequestPolicy::Fixed(0).request(1, 1), 1);
}

/// Figure 11 of the paper.
#[test]
fn grants_follow_what_is_asked_for() {
    let grants = GrantPolicy::Adaptive(GRANTS);
    assert_eq!(grants.grant(4, 8), 8);
    assert_eq!(grants.grant(8, 8), 8);
    assert_eq!(grants.grant(12, 8), 12);
    assert_eq!(grants.grant(40, 8), 16 + 12);
    assert_eq!(grants.grant(u32::MAX, 8), 64);
    // What is above the average and not asked for goes back.
    assert_eq!(grants.grant(4, 20), 16);
    assert_eq!(grants.grant(18, 20), 18);
    assert_eq!(grants.grant(20, 20), 20);
    assert_eq!(GrantPolicy::Fixed(32).grant(0, 1), 32);
    assert_eq!(GrantPolicy::Fixed(2).grant(0, 10), 2);
    assert_eq!(GrantPolicy::Fixed(0).grant(0, 1), 1);
}

proptest! {
    #[test]
    fn a_grant_is_never_0_nor_above_the_most(
        average in 0..100_u32, max in 0..200_u32, factor_percent in 0..1000_u32,
        steps in proptest::collection::vec(any::<u32>(), 1..50),
    ) {
        let policy = GrantPolicy::Adaptive(AdaptiveGrants { average, max, factor_percent });
        let mut granted = 1;
        for requested in steps {
            let next = policy.grant(requested % 300, granted);
            prop_assert!((1..=max.max(1)).contains(&next));
            granted = next;
        }
    }
}

fn requester(credits: u32) -> Requester {
    let private = PrivateData::default();
    Requester::new(RequesterConfig {
        terms: Terms::between(&private, Some(&private)),
        credits: RequestPolicy::Fixed(credits),
    })
}

fn call(requester: &mut Requester, xid: u32, health_check: bool) -> Result<Vec<u8>, CallError> {
    let mut message = xid.to_be_bytes().to_vec();
    message.extend([0; 36]);
    let shape = CallShape {
        reply_max: 100,
        ..CallShape::default()
    };
    let mut sent = Vec::new();
    let call = Call {
        message: &message,
        shape: &shape,
        health_check,
    };
    requester.call(&call, &mut |_| None, &mut sent)?;
    Ok(sent)
}

/// The words of an inline reply.
fn reply(xid: u32, credits: u32) -> Vec<u8> {
    let words = [xid, 1, credits, 0, 0, 0, 0, xid, 1, 0, 0, 0, 0];
    words.iter().flat_map(|word| word.to_be_bytes()).collect()
}

#[test]
fn calls_keep_to_the_grant_less_one_for_a_health_check() {
    let mut requester = requester(32);
    call(&mut requester, 1, false).expect("the first credit");
    assert_eq!(call(&mut requester, 2, false), Err(CallError::NoCredit));
    assert_eq!(call(&mut requester, 1, true), Err(CallError::Duplicate));
    assert!(matches!(requester.receive(&reply(1, 4)), Event::Reply(_)));
    for xid in 10..13 {
        call(&mut requester, xid, false).expect("three of four");
    }
    assert!(!requester.may_call());
    assert_eq!(call(&mut requester, 13, false), Err(CallError::NoCredit));
    call(&mut requester, 13, true).expect("the fourth is for that");
    assert_eq!(call(&mut requester, 14, true), Err(CallError::NoCredit));
}

#[test]
fn a_grant_of_0_counts_as_1_and_one_of_too_many_as_those_there_is_room_for() {
    let mut requester = requester(32);
    for (granted, taken) in [(0, 1), (1000, 32), (7, 7)] {
        call(&mut requester, 1, false).expect("a credit");
        requester.receive(&reply(1, granted));
        assert_eq!(requester.granted(), taken);
    }
}

/// A server that is still at a call drops its repetition: no answer comes for that one's credit.
#[test]
fn a_call_sent_again_takes_a_credit_until_there_is_an_answer() {
    let mut requester = requester(32);
    call(&mut requester, 1, false).expect("a credit");
    assert!(!requester.send_again(1), "there is one credit");
    requester.receive(&reply(1, 4));
    assert!(!requester.send_again(1), "it has been answered");
    call(&mut requester, 2, false).expect("a credit");
    assert!(requester.send_again(2) && requester.send_again(2));
    assert_eq!((requester.under_way(), requester.may_call()), (3, false));
    assert!(!requester.send_again(2));
    assert!(matches!(requester.receive(&reply(2, 4)), Event::Reply(_)));
    assert_eq!(requester.under_way(), 0);
    assert_eq!(requester.receive(&reply(2, 4)), Event::Unknown { xid: 2 });
}

#[test]
fn late_duplicate_and_unknown_replies_are_told_apart() {
    let mut requester = requester(32);
    call(&mut requester, 1, false).expect("a credit");
    assert!(requester.abandon(1));
    assert!(!requester.abandon(1));
    assert_eq!(requester.under_way(), 1, "the credit is still in use");
    assert_eq!(requester.receive(&reply(1, 8)), Event::Late { xid: 1 });
    assert_eq!(requester.granted(), 8);
    assert_eq!(requester.receive(&reply(1, 20)), Event::Unknown { xid: 1 });
    assert_eq!(requester.granted(), 8, "a duplicate grants nothing");
    assert_eq!(requester.receive(&reply(99, 8)), Event::Unknown { xid: 99 });
    assert_eq!(requester.receive(&[]), Event::Ignored);
    assert_eq!(requester.under_way(), 0);
}

fn responder(credits: GrantPolicy) -> Responder {
    let private = PrivateData::default();
    Responder::new(ResponderConfig {
        terms: Terms::between(&private, Some(&private)),
        credits,
        message_max: 1 << 20,
        read_read: ReadRead::default(),
        reverse_credits: 0,
    })
}

fn arriving(responder: &mut Responder, xid: u32, requested: u32) -> Ticket {
    let words = [xid, 1, requested, 0, 0, 0, 0, xid, 0];
    let message: Vec<u8> = words.iter().flat_map(|word| word.to_be_bytes()).collect();
    match responder.receive(&message) {
        Received::Call(incoming) => incoming.ticket,
        step => panic!("{step:?}"),
    }
}

proptest! {
    /// A client that uses every credit it has heard of always finds a receive, however the grants move.
    #[test]
    fn what_is_granted_is_posted(
        steps in proptest::collection::vec((any::<bool>(), 0..90_u32, 1..40_u32), 1..200),
    ) {
        let grants = |average| GrantPolicy::Adaptive(AdaptiveGrants { average, max: 64, factor_percent: 100 });
        let mut responder = responder(grants(16));
        let mut posted = responder.receives_due();
        // Calls that the server has, replies that the client has not seen: each with its grant.
        let (mut serving, mut flying) = (Vec::new(), Vec::new());
        let mut known = 1;
        for (xid, (answer, requested, average)) in (0_u32..).zip(steps) {
            responder.set_credits(grants(average));
            while serving.len() + flying.len() < known as usize {
                posted = posted.checked_sub(1).expect("a receive for each credit");
                serving.push(arriving(&mut responder, xid, requested));
                posted += responder.receives_due();
            }
            if let Some(ticket) = serving.pop() {
                let mut header = Vec::new();
                let results = Results::whole(24);
                let answered = responder.reply(ticket, &results, &mut header);
                prop_assert!(!answered.overrun);
                posted += responder.receives_due();
                let granted = u32::from_be_bytes(header[8..12].try_into().unwrap());
                prop_assert_eq!(granted, responder.granted());
                flying.push(granted);
            }
            if answer && !flying.is_empty() {
                known = flying.remove(0);
            }
        }
    }
}

#[test]
fn a_grant_stays_while_there_is_enough() {
    let mut responder = responder(GrantPolicy::Adaptive(GRANTS));
    for (requested, granted) in [(12, 12), (4, 12), (30, 23), (4, 16), (0, 16)] {
        let ticket = arriving(&mut responder, 1, requested);
        let results = Results::whole(24);
        responder.reply(ticket, &results, &mut Vec::new());
        assert_eq!(responder.granted(), granted, "{requested} requested");
    }
}

#[test]
fn a_call_that_is_not_answered_gives_its_receive_back() {
    let mut responder = responder(GrantPolicy::Fixed(4));
    assert_eq!(responder.receives_due(), 2);
    let ticket = arriving(&mut responder, 1, 4);
    assert_eq!((responder.under_way(), responder.receives_due()), (1, 0));
    responder.dropped(ticket);
    assert_eq!((responder.under_way(), responder.receives_due()), (0, 1));
    // A message that is no call takes a receive too.
    assert!(matches!(
        responder.receive(&[0; 3]),
        Received::Ignore(Ignored::Unanswerable)
    ));
    assert_eq!(responder.receives_due(), 1);
}
