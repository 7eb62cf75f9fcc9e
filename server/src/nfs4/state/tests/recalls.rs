//! Recalls that are lost, refused or not known of, and what is left of delegations that were taken away.

use super::delegations::{READ, file, hearing, of, recalls, renew, status_flags, take, writes};
use super::*;

/// The recall that is to go out now.
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
    state.called(&send.session, send.sequence, Called::AnswerLost);
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
    state.called(&send.session, send.sequence, Called::Unknown);
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
        state.called(&send.session, send.sequence, called);
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
