//! Copies that go on after their COPY was answered.

use super::*;

const TARGET: ObjectId = ObjectId {
    ino: 8,
    generation: 1,
};

/// A client that hears of its copies.
fn hearing(state: &mut State, now: Nanos, name: &[u8]) -> (u64, SessionId) {
    let exchanged = state.exchange_id(now, WHO, &exchange(name, 1, 0)).unwrap();
    let id = exchanged.client_id;
    let args = CreateSessionArgs {
        flags: create_session_flag::BACK_CHANNEL,
        callback_security: List(vec![CallbackSecurity::None]),
        ..create(id, exchanged.sequence)
    };
    let arrival = Arrival {
        minor: 2,
        ..arrival(id)
    };
    let made = state.create_session(now, WHO, arrival, &args).unwrap();
    state.knows_session(&made.session);
    state.reclaim_complete(id, false).unwrap();
    (id, made.session)
}

fn copying() -> Copying {
    Copying {
        source: (StateId::ANONYMOUS, FILE),
        target: (StateId::ANONYMOUS, TARGET),
        verifier: [7; 8],
        origin: None,
    }
}

fn begin(state: &mut State, client: u64) -> Option<StateId> {
    state.begin_copy(Sender::Client(client), copying())
}

#[test]
fn a_copy_does_not_outlive_the_rules_that_it_began_under() {
    let state = &mut machine();
    let (id, _) = hearing(state, at(0), b"one");
    let copy = begin(state, id).unwrap();
    assert_eq!(state.next_piece(at(0), &copy), NextPiece::Copy);
    state.withdraw_copies();
    assert!(state.end_piece(&copy, 100));
    let refused = NextPiece::Refused(Status::Access);
    assert_eq!(state.next_piece(at(0), &copy), refused);
    let later = begin(state, id).unwrap();
    assert_eq!(state.next_piece(at(0), &later), NextPiece::Copy);
}

#[test]
fn a_piece_that_is_under_way_is_waited_for() {
    let state = &mut machine();
    let (id, _) = hearing(state, at(0), b"one");
    let sender = Sender::Client(id);
    let copy = begin(state, id).unwrap();
    assert_eq!(state.next_piece(at(0), &copy), NextPiece::Copy);
    state.cancel_copy(sender, &copy, TARGET).unwrap();
    assert!(state.is_copying(&copy));
    let twice = state.cancel_copy(sender, &copy, TARGET);
    assert_eq!(twice, Err(Status::BadStateId));
    assert!(!state.end_piece(&copy, 100), "nobody wants the rest");
    assert!(!state.is_copying(&copy));
    assert_eq!(state.next_piece(at(0), &copy), NextPiece::Gone);
    // One that ends meanwhile says nothing.
    let copy = begin(state, id).unwrap();
    assert_eq!(state.next_piece(at(0), &copy), NextPiece::Copy);
    state.forget_copy(&copy);
    state.end_copy(&copy, Status::Ok);
    assert!(!state.is_copying(&copy) && state.take_callbacks(at(0)).is_empty());
    state.tick(at(200));
    assert_empty(state);
}

#[test]
fn a_share_that_denies_writing_ends_a_copy_under_no_open() {
    let state = &mut machine();
    let (id, _) = hearing(state, at(0), b"one");
    let (other, _) = client(state, at(0), b"other");
    let copy = begin(state, id).unwrap();
    assert_eq!(state.next_piece(at(0), &copy), NextPiece::Copy);
    assert!(state.end_piece(&copy, 100));
    let denies = OpenRequest {
        file: TARGET,
        ..wanted(1, 2)
    };
    let named = owner(other, b"o");
    state
        .open(at(0), Sender::Client(other), &named, &denies)
        .unwrap();
    let refused = NextPiece::Refused(Status::Locked);
    assert_eq!(state.next_piece(at(0), &copy), refused);
    state.end_copy(&copy, Status::Locked);
    let sends = state.take_callbacks(at(0));
    let [send] = &sends[..] else {
        panic!("{sends:?}");
    };
    let Callback::Offload { copied, .. } = &send.callback else {
        panic!("{send:?}");
    };
    let told = Copied {
        status: Status::Ok,
        count: 100,
        verifier: [7; 8],
    };
    assert_eq!(*copied, told);
    // Whatever the client answers, it has heard.
    state.called(at(0), send.sent, Called::AnswerLost);
    assert_eq!(state.copies(), 0);
}

#[test]
fn who_does_not_take_what_became_of_its_copies_begins_no_others() {
    let state = &mut machine();
    let (id, session) = hearing(state, at(0), b"one");
    let copies = Vec::from_iter((0..20).map_while(|_| begin(state, id)));
    assert_eq!(copies.len(), 8);
    for copy in &copies {
        assert_eq!(state.next_piece(at(0), copy), NextPiece::Copy);
        state.end_copy(copy, Status::Ok);
    }
    let sends = state.take_callbacks(at(0));
    assert_eq!(sends.len(), 1, "one after the other");
    state.called(at(0), sends[0].sent, Called::Refused);
    assert!(state.take_callbacks(at(0)).is_empty());
    assert!(!state.may_copy_later(Sender::Client(id)));
    assert_eq!(state.copies(), 8);
    // It asks, and lets go of them.
    for copy in &copies {
        let told = state.copy_status(Sender::Client(id), copy, TARGET);
        assert_eq!(told, Ok((0, Some(Status::Ok))));
        state.cancel_copy(Sender::Client(id), copy, TARGET).unwrap();
    }
    assert_eq!(state.copies(), 0);
    // What is not known any more is not told either.
    let bind = BindConnectionArgs {
        session,
        channel: WantedChannel::BackOrBoth,
        rdma: false,
    };
    let arrival = Arrival {
        minor: 2,
        ..arrival(9)
    };
    state.bind_connection(at(0), arrival, &bind).unwrap();
    assert!(state.take_callbacks(at(0)).is_empty());
    state.tick(at(200));
    assert_empty(state);
}
