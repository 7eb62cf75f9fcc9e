//! Recalls that are lost, refused or not known of, and what is left of delegations that were taken away.

use super::delegations::{READ, file, hearing, of, recalls, renew, status_flags, take, writes};
use super::*;

const DOWN: u32 = sequence_status::CALLBACK_PATH_DOWN | sequence_status::CALLBACK_PATH_DOWN_SESSION;

/// The client binds a connection to its session, for calls both ways.
fn binds(state: &mut State, now: Nanos, session: SessionId, connection: u64) {
    let bind = BindConnectionArgs {
        session,
        channel: WantedChannel::BackOrBoth,
        rdma: false,
    };
    let bound = state.bind_connection(now, arrival(connection), &bind);
    assert_eq!(bound.unwrap().channel, GrantedChannel::Both);
}

/// Time passes, and a client calls now and then.
fn calls(state: &mut State, client: u64, seconds: std::ops::RangeInclusive<u64>) {
    for second in seconds {
        renew(state, client, at(second));
        state.tick(at(second));
    }
}

/// The callback that is to go out now.
fn next(state: &mut State, now: Nanos) -> Send {
    let mut sends = state.take_callbacks(now);
    assert_eq!(sends.len(), 1);
    sends.remove(0)
}

#[test]
fn a_recall_whose_answer_was_lost_comes_again() {
    let state = &mut machine();
    let (a, _) = hearing(state, b"a", 1);
    let held = take(state, at(0), a, FILE).unwrap();
    assert!(!state.recall(at(1), FILE, None));
    let send = next(state, at(1));
    state.called(at(1), send.sent, Called::AnswerLost);
    state.tick(at(2));
    let again = next(state, at(2));
    assert_eq!(again.sequence, send.sequence + 1);
    assert!(matches!(again.callback, Callback::Recall { stateid, .. } if stateid == held));
}

#[test]
fn a_recall_is_said_however_much_there_is_to_say() {
    let state = &mut machine();
    let (a, _) = hearing(state, b"a", 1);
    let held = take(state, at(0), a, FILE).unwrap();
    let number = state.number(a).unwrap();
    for _ in 0..2000 {
        let notify = Callback::NotifyLock {
            file: FILE,
            owner: Vec::new(),
        };
        state.say(number, notify);
    }
    assert!(!state.recall(at(1), FILE, None));
    assert_eq!(recalls(state, at(1)), [held]);
}

#[test]
fn a_delegation_that_its_client_never_heard_of_leaves_nothing() {
    let state = &mut machine();
    let (a, session) = hearing(state, b"a", 1);
    take(state, at(0), a, FILE).unwrap();
    assert!(!state.recall(at(1), FILE, None));
    let send = next(state, at(1));
    state.called(at(1), send.sent, Called::Unknown);
    renew(state, a, at(92));
    state.tick(at(92));
    assert_eq!(state.take_undelegated(), [FILE]);
    assert_eq!(status_flags(state, session, 1), 0);
    let counts = state.delegation_counts();
    assert_eq!((counts.held, counts.revoked), (0, 0));
}

#[test]
fn what_a_client_asks_time_for_it_knows_of() {
    let state = &mut machine();
    let (a, _) = hearing(state, b"a", 1);
    take(state, at(0), a, FILE).unwrap();
    assert!(!state.recall(at(1), FILE, None));
    for called in [Called::Unknown, Called::NotYet] {
        let send = next(state, at(1));
        state.called(at(1), send.sent, called);
        state.tick(at(1));
    }
    renew(state, a, at(92));
    state.tick(at(92));
    assert_eq!(state.delegation_counts().revoked, 1);
}

#[test]
fn nobody_gets_one_while_a_change_waits_for_another() {
    let state = &mut machine();
    let (a, _) = hearing(state, b"a", 1);
    let (b, _) = hearing(state, b"b", 2);
    take(state, at(0), a, FILE).unwrap();
    assert!(!state.recall(at(1), FILE, None));
    // Longer than a file is left alone after a recall.
    state.tick(at(60));
    let late = take(state, at(60), b, FILE);
    assert_eq!(late, Err(WhyNone::Contention(false)));
}

#[test]
fn what_was_taken_away_is_known_until_its_client_takes_note() {
    let state = &mut machine();
    let (a, session) = hearing(state, b"a", 1);
    let (b, _) = client(state, at(0), b"b");
    let sender = Sender::Client(a);
    let held = take(state, at(0), a, FILE).unwrap();
    let opened = open(state, at(0), a, b"o", (READ, 0)).unwrap();
    state.close(at(0), sender, &opened, FILE).unwrap();
    assert_eq!(writes(state, at(1), b), Err(Status::Delay));
    assert_eq!(recalls(state, at(1)), [held]);
    renew(state, a, at(92));
    renew(state, b, at(92));
    state.tick(at(92));
    // A handle of it is good for a DELEGRETURN, be the file gone.
    assert!(!state.is_delegated(FILE) && state.is_held(FILE));
    assert_eq!(state.delegation_counts().held, 0);
    let revoked = state.delegation_return(sender, &held, FILE);
    assert_eq!(revoked, Err(Status::DelegRevoked));
    // It holds nothing that stands.
    state.destroy_session(at(92), 1, &session).unwrap();
    assert_eq!(state.destroy_client_id(a), Ok(()));
    assert!(!state.is_held(FILE));
}

#[test]
fn who_is_gone_keeps_no_delegations_from_others() {
    let state = &mut machine();
    let most = limits().delegations as u64;
    // One holds nothing else, two have files open.
    let clients: Vec<u64> = (0..3u8)
        .map(|name| hearing(state, &[name], u64::from(name)).0)
        .collect();
    let (last, _) = hearing(state, b"last", 9);
    for (client, ino) in clients
        .iter()
        .flat_map(|c| (0..most).map(move |ino| (*c, ino)))
    {
        take(state, at(0), client, file(ino)).unwrap();
        if client == clients[0] {
            let sender = Sender::Client(client);
            let opened = open_of(state, client, file(ino));
            state.close(at(0), sender, &opened, file(ino)).unwrap();
        }
    }
    recalls(state, at(0));
    renew(state, last, at(91));
    renew(state, clients[1], at(91));
    let full = take(state, at(91), last, file(99));
    assert_eq!(full, Err(WhyNone::Resource(false)));
    state.tick(at(91));
    // Those that are gone have nothing left, and are asked for nothing.
    assert_eq!(state.delegation_counts().held, limits().delegations);
    assert!(
        state
            .number(clients[0])
            .is_some_and(|n| !state.clients.contains_key(&n))
    );
    assert!(
        state
            .number(clients[2])
            .is_some_and(|n| !state.clients.contains_key(&n))
    );
    assert!(take(state, at(91), last, file(99)).is_ok());
}

#[test]
fn who_holds_nothing_else_loses_delegations_with_its_lease() {
    let state = &mut machine();
    let (a, _) = hearing(state, b"a", 1);
    let (b, _) = hearing(state, b"b", 2);
    for client in [a, b] {
        take(state, at(0), client, FILE).unwrap();
    }
    let opened = open_of(state, a, FILE);
    state
        .close(at(0), Sender::Client(a), &opened, FILE)
        .unwrap();
    state.tick(at(91));
    assert!(state.session_client(a).is_err());
    assert!(state.session_client(b).is_ok());
}

/// The open with which a file was taken.
fn open_of(state: &mut State, client: u64, file: ObjectId) -> StateId {
    let wanted = of(file, READ);
    let sender = Sender::Client(client);
    let opened = state.open(at(0), sender, &owner(client, b"o"), &wanted);
    opened.unwrap().stateid
}

#[test]
fn a_client_that_a_recall_does_not_reach_is_told_in_time_to_get_it_another_way() {
    let state = &mut machine();
    let (a, session) = hearing(state, b"a", 1);
    let held = take(state, at(0), a, FILE).unwrap();
    assert!(!state.recall(at(1), FILE, None));
    // Its connection is dead, and the server does not know. The client goes on over another one, which carries no callbacks.
    let lost = next(state, at(1));
    calls(state, a, 2..=23);
    assert_eq!(status_flags(state, session, 1), 0);
    calls(state, a, 24..=60);
    assert_eq!(status_flags(state, session, 1), DOWN);
    assert!(state.take_callbacks(at(60)).is_empty());
    binds(state, at(60), session, 2);
    assert_eq!(status_flags(state, session, 1), 0);
    let again = next(state, at(60));
    assert_eq!((again.sent.connection, again.sequence), (2, lost.sequence));
    assert!(matches!(again.callback, Callback::Recall { stateid, .. } if stateid == held));
    // A late answer is none to the call that was given up.
    assert!(!state.called(at(60), lost.sent, Called::Seen));
    assert!(state.called(at(61), again.sent, Called::Seen));
    // It has as long as others from then on.
    calls(state, a, 62..=151);
    assert_eq!(state.delegation_counts().revoked, 0);
    calls(state, a, 152..=152);
    assert_eq!(state.delegation_counts().revoked, 1);
}

#[test]
fn what_a_recall_waits_behind_does_not_cost_the_client_its_delegation() {
    let state = &mut machine();
    let (a, session) = hearing(state, b"a", 1);
    let held = take(state, at(0), a, FILE).unwrap();
    let notify = Callback::NotifyLock {
        file: FILE,
        owner: Vec::new(),
    };
    state.say(state.number(a).unwrap(), notify.clone());
    assert_eq!(next(state, at(1)).callback, notify);
    assert!(!state.recall(at(2), FILE, None));
    assert!(state.take_callbacks(at(2)).is_empty(), "one at a time");
    calls(state, a, 2..=100);
    assert_eq!(state.delegation_counts().revoked, 0);
    assert_eq!(status_flags(state, session, 1), DOWN);
    binds(state, at(100), session, 2);
    let again = next(state, at(100));
    assert_eq!(again.callback, notify);
    assert!(state.called(at(100), again.sent, Called::Seen));
    assert_eq!(recalls(state, at(100)), [held]);
}

#[test]
fn a_callback_without_an_answer_goes_over_the_connection_that_was_bound_since() {
    let state = &mut machine();
    let (a, session) = hearing(state, b"a", 1);
    take(state, at(0), a, FILE).unwrap();
    assert!(!state.recall(at(1), FILE, None));
    let first = next(state, at(1));
    binds(state, at(5), session, 2);
    calls(state, a, 6..=30);
    assert_eq!(status_flags(state, session, 1), 0);
    let again = next(state, at(30));
    assert_eq!(again.sent.connection, 2);
    assert_eq!((again.sequence, again.callback), (1, first.callback));
    assert_eq!(state.take_unanswered(), 1);
    // There is no other.
    calls(state, a, 31..=60);
    assert_eq!(status_flags(state, session, 1), DOWN);
    assert_eq!(state.take_unanswered(), 1);
}

#[test]
fn nobody_waits_longer_than_two_leases_for_a_client_that_takes_no_recall() {
    // It binds nothing, or one connection after the other and answers over none.
    for answers in [false, true] {
        let state = &mut machine();
        let (a, session) = hearing(state, b"a", 1);
        take(state, at(0), a, FILE).unwrap();
        assert!(!state.recall(at(1), FILE, None));
        next(state, at(1));
        for second in 2..=181 {
            calls(state, a, second..=second);
            if answers && status_flags(state, session, 1) == DOWN {
                binds(state, at(second), session, second);
                next(state, at(second));
            }
            assert_eq!(state.delegation_counts().revoked, 0, "{second}");
        }
        calls(state, a, 182..=182);
        assert_eq!(state.delegation_counts().revoked, 1);
    }
}

#[test]
fn a_number_stays_with_its_callback_while_the_client_asks_for_time() {
    let state = &mut machine();
    let (a, session) = hearing(state, b"a", 1);
    let held = take(state, at(0), a, FILE).unwrap();
    take(state, at(0), a, file(9)).unwrap();
    assert!(!state.recall(at(1), FILE, None));
    let first = next(state, at(1));
    calls(state, a, 2..=30);
    binds(state, at(30), session, 2);
    // It still works on the first one, as Linux says, and has returned what was recalled.
    let again = next(state, at(30));
    assert!(state.called(at(30), again.sent, Called::Later));
    let returned = state.delegation_return(Sender::Client(a), &held, FILE);
    assert_eq!(returned, Ok(()));
    assert!(!state.recall(at(31), file(9), None));
    let again = next(state, at(31));
    assert_eq!((again.sequence, again.callback), (1, first.callback));
    assert!(state.called(at(31), again.sent, Called::Unknown));
    state.tick(at(32));
    let second = next(state, at(31));
    assert_eq!(
        (second.sequence, second.callback.file()),
        (2, Some(file(9)))
    );
}

#[test]
fn callbacks_go_over_the_connection_that_was_bound_last_even_if_that_was_bound_before() {
    let state = &mut machine();
    let (a, session) = hearing(state, b"a", 1);
    take(state, at(0), a, FILE).unwrap();
    binds(state, at(0), session, 2);
    binds(state, at(0), session, 1);
    assert!(!state.recall(at(1), FILE, None));
    assert_eq!(next(state, at(1)).sent.connection, 1);
}

#[test]
fn a_call_that_failed_late_says_nothing_of_the_connection_over_which_it_was_sent_again() {
    let state = &mut machine();
    let (a, session) = hearing(state, b"a", 1);
    take(state, at(0), a, FILE).unwrap();
    binds(state, at(0), session, 2);
    assert!(!state.recall(at(1), FILE, None));
    let first = next(state, at(1));
    state.connection_closed(2);
    let second = next(state, at(1));
    assert_eq!((first.sent.connection, second.sent.connection), (2, 1));
    assert_eq!(first.sequence, second.sequence);
    // Only now does the thread that had the first one find that its connection is gone.
    assert!(!state.called(at(1), first.sent, Called::Lost));
    assert_eq!(status_flags(state, session, 1), 0);
    assert!(state.take_callbacks(at(1)).is_empty());
    assert!(state.called(at(1), second.sent, Called::Seen));
}

#[test]
fn what_is_under_way_goes_with_its_session() {
    let state = &mut machine();
    let (a, mut session) = hearing(state, b"a", 1);
    take(state, at(0), a, FILE).unwrap();
    assert!(!state.recall(at(1), FILE, None));
    for sequence in 2..50 {
        let sent = next(state, at(2));
        assert_eq!((sent.session, state.calls.len()), (session, 1));
        state.destroy_session(at(1), 1, &session).unwrap();
        assert_eq!(state.calls.len(), 0);
        assert!(!state.called(at(1), sent.sent, Called::Seen));
        let create = CreateSessionArgs {
            flags: create_session_flag::BACK_CHANNEL,
            callback_security: List(vec![CallbackSecurity::None]),
            ..create(a, sequence)
        };
        let made = state.create_session(at(1), WHO, arrival(1), &create);
        session = made.unwrap().session;
        // Nothing overtakes the reply by which the client learns of the session.
        assert!(state.take_callbacks(at(1)).is_empty());
        if sequence % 2 == 0 {
            state.knows_session(&session);
        } else {
            // It says nothing.
            state.tick(at(2));
        }
    }
}
