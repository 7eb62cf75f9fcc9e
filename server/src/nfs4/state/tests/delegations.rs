//! Who has delegations, and how they end.

use super::*;

pub(super) const READ: u32 = share_access::READ;
const WRITE: u32 = share_access::WRITE;

/// A client that hears callbacks over a connection of this number.
pub(super) fn hearing(state: &mut State, name: &[u8], connection: u64) -> (u64, SessionId) {
    let exchanged = state.exchange_id(at(0), WHO, &exchange(name, 1, 0));
    let exchanged = exchanged.unwrap();
    let id = exchanged.client_id;
    let create = CreateSessionArgs {
        flags: create_session_flag::BACK_CHANNEL,
        callback_security: List(vec![CallbackSecurity::None]),
        ..create(id, exchanged.sequence)
    };
    let made = state.create_session(at(0), WHO, arrival(connection), &create);
    let session = made.unwrap().session;
    // As its SEQUENCE, before RECLAIM_COMPLETE.
    state.knows_session(&session);
    state.reclaim_complete(id, false).unwrap();
    (id, session)
}

pub(super) fn file(ino: u64) -> ObjectId {
    ObjectId { ino, generation: 1 }
}

pub(super) fn of(file: ObjectId, access: u32) -> OpenRequest {
    OpenRequest {
        file,
        ..wanted(access, 0)
    }
}

/// Opens a file for reading, and takes the delegation that may come with it.
pub(super) fn take(
    state: &mut State,
    now: Nanos,
    client: u64,
    file: ObjectId,
) -> Result<StateId, WhyNone> {
    take_for(state, now, client, of(file, READ), Delegated::Read)
}

/// The same for reading and writing.
fn take_alone(state: &mut State, now: Nanos, client: u64) -> Result<StateId, WhyNone> {
    take_for(state, now, client, of(FILE, READ | WRITE), Delegated::Write)
}

fn take_for(
    state: &mut State,
    now: Nanos,
    client: u64,
    wanted: OpenRequest,
    kind: Delegated,
) -> Result<StateId, WhyNone> {
    let file = wanted.file;
    let sender = Sender::Client(client);
    state
        .open(now, sender, &owner(client, b"o"), &wanted)
        .unwrap();
    let number = state.may_delegate(now, sender, &wanted, kind)?;
    let (given, recall) = state.delegate(now, number, (file, kind), None).unwrap();
    assert!(!recall);
    Ok(given)
}

pub(super) fn writes(state: &mut State, now: Nanos, client: u64) -> Result<StateId, Status> {
    open(state, now, client, b"writer", (WRITE, 0))
}

/// The recalls that go out, all of which are answered.
pub(super) fn recalls(state: &mut State, now: Nanos) -> Vec<StateId> {
    let mut recalled = Vec::new();
    loop {
        let sends = state.take_callbacks(now);
        if sends.is_empty() {
            return recalled;
        }
        for send in sends {
            state.called(now, send.sent, Called::Seen);
            if let Callback::Recall { stateid, .. } = send.callback {
                recalled.push(stateid);
            }
        }
    }
}

/// The client was heard of.
pub(super) fn renew(state: &mut State, client: u64, now: Nanos) {
    let number = state.number(client).unwrap();
    state.clients.get_mut(&number).unwrap().renewed = now;
}

pub(super) fn status_flags(state: &mut State, session: SessionId, number: u32) -> u32 {
    let args = sequence(session, 0, number, false);
    match state.sequence(at(0), WHO, 1, &args, 100, 1) {
        Ok(Sequenced::Execute(slot, ok)) => {
            state.abandon(&slot);
            ok.status_flags
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn another_opens_for_writing_once_all_are_returned() {
    let state = &mut machine();
    let (a, _) = hearing(state, b"a", 1);
    let (b, _) = hearing(state, b"b", 2);
    let (c, _) = client(state, at(0), b"c");
    let first = take(state, at(0), a, FILE).unwrap();
    let second = take(state, at(0), b, FILE).unwrap();
    assert_eq!(writes(state, at(1), c), Err(Status::Delay));
    assert_eq!(recalls(state, at(1)), [first, second]);
    assert!(state.take_undelegated().is_empty());
    let (a, b) = (Sender::Client(a), Sender::Client(b));
    assert_eq!(state.delegation_return(a, &first, FILE), Ok(()));
    assert_eq!(writes(state, at(2), c), Err(Status::Delay));
    assert!(recalls(state, at(2)).is_empty(), "it is recalled once");
    assert_eq!(state.delegation_return(b, &second, FILE), Ok(()));
    assert_eq!(state.take_undelegated(), [FILE]);
    assert!(writes(state, at(3), c).is_ok());
    let gone = state.delegation_return(a, &first, FILE);
    assert_eq!(gone, Err(Status::BadStateId));
    let counts = state.delegation_counts();
    assert_eq!((counts.granted, counts.recalled, counts.revoked), (2, 2, 0));
}

#[test]
fn what_denies_reading_waits_too_and_reading_does_not() {
    let state = &mut machine();
    let (a, _) = hearing(state, b"a", 1);
    let (b, _) = hearing(state, b"b", 2);
    let held = take(state, at(0), a, FILE).unwrap();
    assert!(open(state, at(1), b, b"o", (READ, 0)).is_ok());
    assert!(recalls(state, at(1)).is_empty());
    // Not even its own open for reading, which others may have denied.
    let sender = Sender::Client(a);
    let opened = open(state, at(1), a, b"o", (READ, 0)).unwrap();
    state.close(at(1), sender, &opened, FILE).unwrap();
    let opened = open(state, at(1), b, b"o", (READ, 0)).unwrap();
    state
        .close(at(1), Sender::Client(b), &opened, FILE)
        .unwrap();
    let denies = open(state, at(1), b, b"denier", (READ, share_deny::READ));
    assert_eq!(denies, Err(Status::Delay));
    assert_eq!(recalls(state, at(1)), [held]);
}

#[test]
fn nobody_gets_one_where_it_does_not_pay() {
    let state = &mut machine();
    let (a, _) = hearing(state, b"a", 1);
    let (b, _) = hearing(state, b"b", 2);
    let (deaf, _) = client(state, at(0), b"deaf");
    assert_eq!(
        take(state, at(0), deaf, FILE),
        Err(WhyNone::Resource(false))
    );
    // A file that somebody writes.
    let writer = open(state, at(0), b, b"w", (WRITE, 0)).unwrap();
    assert_eq!(take(state, at(0), a, FILE), Err(WhyNone::Contention(false)));
    state
        .close(at(0), Sender::Client(b), &writer, FILE)
        .unwrap();
    let held = take(state, at(0), a, FILE).unwrap();
    // One is enough.
    assert_eq!(take(state, at(0), a, FILE), Err(WhyNone::Resource(false)));
    // A file that was recalled.
    assert!(!state.recall(at(1), FILE, None));
    let returned = state.delegation_return(Sender::Client(a), &held, FILE);
    assert_eq!(returned, Ok(()));
    assert_eq!(take(state, at(2), a, FILE), Err(WhyNone::Contention(false)));
    assert!(take(state, at(60), a, FILE).is_ok());
}

#[test]
fn its_own_client_changes_the_file_beside_it() {
    let state = &mut machine();
    let (a, _) = hearing(state, b"a", 1);
    let (b, _) = hearing(state, b"b", 2);
    let held = take(state, at(0), a, FILE).unwrap();
    assert!(state.recall_for(at(1), FILE, Some(a)));
    assert!(recalls(state, at(1)).is_empty());
    // A client that opens the file for writing has another view of it, in which it has no delegation.
    assert!(writes(state, at(1), a).is_ok());
    assert_eq!(recalls(state, at(1)), [held]);
    assert!(!state.recall_for(at(1), FILE, Some(b)));
}

#[test]
fn who_does_not_return_it_loses_it_and_is_told_until_it_takes_note() {
    let state = &mut machine();
    let (a, session) = hearing(state, b"a", 1);
    let (b, _) = client(state, at(0), b"b");
    let sender = Sender::Client(a);
    let held = take(state, at(0), a, FILE).unwrap();
    assert_eq!(state.test_state(a, &held), Status::Ok);
    assert_eq!(state.free_state(a, &held), Err(Status::LocksHeld));
    assert!(state.io(at(0), sender, &held, FILE, Io::Read).is_ok());
    let write = state.io(at(0), sender, &held, FILE, Io::Write);
    assert_eq!(write, Err(Status::OpenMode));
    let wrong = state.io(at(0), sender, &held, file(9), Io::Read);
    assert_eq!(wrong, Err(Status::BadStateId));
    assert_eq!(writes(state, at(1), b), Err(Status::Delay));
    assert_eq!(recalls(state, at(1)), [held]);
    for second in [40, 80, 91] {
        renew(state, a, at(second));
        renew(state, b, at(second));
        state.tick(at(second));
        assert_eq!(writes(state, at(second), b), Err(Status::Delay));
    }
    assert_eq!(status_flags(state, session, 1), 0);
    renew(state, a, at(92));
    renew(state, b, at(92));
    state.tick(at(92));
    assert!(writes(state, at(92), b).is_ok());
    assert_eq!(state.take_undelegated(), [FILE]);
    assert_eq!(state.delegation_counts().revoked, 1);
    let flag = sequence_status::RECALLABLE_STATE_REVOKED;
    assert_eq!(status_flags(state, session, 1), flag);
    let revoked = Err(Status::DelegRevoked);
    let read = state.io(at(92), sender, &held, FILE, Io::Read);
    assert_eq!(read.map(drop), revoked);
    assert_eq!(state.delegation_return(sender, &held, FILE), revoked);
    assert_eq!(state.test_state(a, &held), Status::DelegRevoked);
    assert_eq!(state.free_state(a, &held), Ok(()));
    assert_eq!(state.test_state(a, &held), Status::BadStateId);
    assert_eq!(status_flags(state, session, 1), 0);
}

#[test]
fn who_is_not_heard_of_for_a_lease_is_in_nobodys_way() {
    let state = &mut machine();
    let (a, _) = hearing(state, b"a", 1);
    let (b, _) = client(state, at(0), b"b");
    take(state, at(0), a, FILE).unwrap();
    renew(state, b, at(91));
    state.tick(at(91));
    // Until somebody wants to write it keeps what it has.
    assert_eq!(state.delegation_counts().held, 1);
    assert!(writes(state, at(91), b).is_ok());
    assert_eq!(state.take_undelegated(), [FILE]);
    assert!(state.delegations.files().is_empty());
}

#[test]
fn a_recall_that_the_client_does_not_know_yet_comes_again() {
    let state = &mut machine();
    let (a, _) = hearing(state, b"a", 1);
    let held = take(state, at(0), a, FILE).unwrap();
    assert!(!state.recall(at(1), FILE, None));
    let sends = state.take_callbacks(at(1));
    assert_eq!(sends.len(), 1);
    state.called(at(1), sends[0].sent, Called::NotYet);
    assert!(state.take_callbacks(at(1)).is_empty());
    state.tick(at(2));
    let again = state.take_callbacks(at(2));
    assert_eq!((again.len(), again[0].sequence), (1, sends[0].sequence + 1));
    // It is returned meanwhile, and needs no recall any more.
    state.called(at(2), again[0].sent, Called::NotYet);
    let returned = state.delegation_return(Sender::Client(a), &held, FILE);
    assert_eq!(returned, Ok(()));
    state.tick(at(3));
    assert!(state.take_callbacks(at(3)).is_empty());
}

#[test]
fn the_bounds_hold_and_who_is_near_one_is_asked_for_some() {
    let state = &mut machine();
    let (a, _) = hearing(state, b"a", 1);
    let most = limits().delegations as u64;
    let held: Vec<StateId> = (0..most)
        .map(|ino| take(state, at(0), a, file(ino)).unwrap())
        .collect();
    let full = take(state, at(0), a, file(most));
    assert_eq!(full, Err(WhyNone::Resource(false)));
    let asked: Vec<Callback> = state
        .take_callbacks(at(0))
        .into_iter()
        .map(|send| send.callback)
        .collect();
    assert_eq!(asked, [Callback::RecallAny { keep: 3 }], "once");
    for (ino, state_id) in held.iter().enumerate() {
        let returned = state.delegation_return(Sender::Client(a), state_id, file(ino as u64));
        assert_eq!(returned, Ok(()));
    }
    // All clients together.
    let clients: Vec<u64> = (0..4u8)
        .map(|name| hearing(state, &[name], 2 + u64::from(name)).0)
        .collect();
    let mut given = 0;
    for (ino, client) in (100..120).flat_map(|ino| clients.iter().map(move |c| (ino, *c))) {
        given += usize::from(take(state, at(1), client, file(ino)).is_ok());
    }
    assert_eq!(given, limits().all_delegations);
    assert_eq!(state.delegation_counts().held, limits().all_delegations);
}

#[test]
fn delegations_from_before_a_restart_are_reclaimed() {
    let mut old = machine();
    let (a, _) = hearing(&mut old, b"a", 1);
    let known = kept(&mut old).expect("it holds state");
    assert!(!known.delegations);
    take(&mut old, at(0), a, FILE).unwrap();
    let known = kept(&mut old).expect("it holds state");
    assert!(known.delegations);
    let state = &mut State::new(limits(), 6, at(0), vec![known]);
    assert!(state.awaits_delegations());
    let exchanged = state
        .exchange_id(at(1), WHO, &exchange(b"a", 1, 0))
        .unwrap();
    let id = exchanged.client_id;
    let sender = Sender::Client(id);
    let made = state.create_session(at(1), WHO, arrival(1), &create(id, exchanged.sequence));
    made.unwrap();
    let wanted = OpenRequest {
        reclaim: true,
        ..of(FILE, READ)
    };
    state
        .open(at(1), sender, &owner(id, b"o"), &wanted)
        .unwrap();
    let number = state
        .may_delegate(at(1), sender, &wanted, Delegated::Read)
        .unwrap();
    let (given, recall) = state
        .delegate(at(1), number, (FILE, Delegated::Read), None)
        .unwrap();
    // It hears no callbacks, and so cannot keep it.
    assert!(recall);
    assert_eq!(state.delegation_return(sender, &given, FILE), Ok(()));
    state.reclaim_complete(id, false).unwrap();
    assert!(!state.awaits_delegations());
    let late = state.may_delegate(at(2), sender, &wanted, Delegated::Read);
    assert_eq!(late, Err(WhyNone::Resource(false)));
    assert!(kept(state).expect("it holds state").delegations);
    // It has none for a lease.
    state.tick(at(3));
    assert_eq!(kept(state), None);
    renew(state, id, at(94));
    state.tick(at(94));
    assert!(!kept(state).expect("it holds state").delegations);
}

/// What is kept of a client, if that has changed.
fn kept(state: &mut State) -> Option<Reclaiming> {
    match state.take_records().pop()? {
        Record::Keep(reclaiming) => Some(reclaiming),
        Record::Forget(identity) => panic!("{identity:?} is forgotten"),
    }
}

#[test]
fn what_was_taken_from_a_client_it_reclaims_no_more() {
    let mut old = machine();
    let (a, session) = hearing(&mut old, b"a", 1);
    let sender = Sender::Client(a);
    let held = take(&mut old, at(0), a, FILE).unwrap();
    take(&mut old, at(0), a, file(9)).unwrap();
    assert!(!old.recall(at(1), FILE, None));
    assert_eq!(recalls(&mut old, at(1)), [held]);
    assert!(kept(&mut old).expect("it holds state").delegations);
    renew(&mut old, a, at(92));
    assert!(old.recall(at(92), FILE, None));
    let known = kept(&mut old).expect("it holds state");
    assert!(!known.delegations);
    let state = &mut State::new(limits(), 6, at(0), vec![known]);
    assert!(state.in_grace(at(1)) && !state.awaits_delegations());
    let exchanged = state.exchange_id(at(1), WHO, &exchange(b"a", 1, 0));
    let id = exchanged.unwrap().client_id;
    let refused = state.may_reclaim_delegation(Sender::Client(id));
    assert_eq!(refused, Err(Status::ReclaimBad));
    // When it has taken note it may reclaim the others.
    old.free_state(a, &held).unwrap();
    assert!(kept(&mut old).expect("it holds state").delegations);
    assert_eq!(status_flags(&mut old, session, 1), 0);
    assert_eq!(old.test_state(a, &held), Status::BadStateId);
    assert_eq!(
        old.delegation_return(sender, &held, FILE),
        Err(Status::BadStateId)
    );
}

#[test]
fn opens_by_a_delegation_need_it_to_stand() {
    let state = &mut machine();
    let (a, _) = hearing(state, b"a", 1);
    let (b, _) = hearing(state, b"b", 2);
    let held = take(state, at(0), a, FILE).unwrap();
    let sender = Sender::Client(a);
    assert!(!state.recall(at(1), FILE, None));
    assert_eq!(recalls(state, at(1)), [held]);
    assert_eq!(state.may_claim(sender, &held, FILE, READ), Ok(()));
    let writes = state.may_claim(sender, &held, FILE, WRITE);
    assert_eq!(writes, Err(Status::OpenMode));
    let other = state.may_claim(sender, &held, file(9), READ);
    assert_eq!(other, Err(Status::BadStateId));
    let theirs = state.may_claim(Sender::Client(b), &held, FILE, READ);
    assert_eq!(theirs, Err(Status::BadStateId));
    renew(state, a, at(92));
    state.tick(at(92));
    let revoked = state.may_claim(sender, &held, FILE, READ);
    assert_eq!(revoked, Err(Status::DelegRevoked));
}

#[test]
fn who_has_it_alone_gets_one_to_write() {
    let state = &mut machine();
    let (a, _) = hearing(state, b"a", 1);
    let (b, _) = hearing(state, b"b", 2);
    let sender = Sender::Client(a);
    let reader = open(state, at(0), b, b"o", (READ, 0)).unwrap();
    assert_eq!(take_alone(state, at(0), a), Err(WhyNone::Contention(false)));
    state
        .close(at(0), Sender::Client(b), &reader, FILE)
        .unwrap();
    let held = take_alone(state, at(0), a).unwrap();
    assert!(state.io(at(0), sender, &held, FILE, Io::Write).is_ok());
    assert_eq!(state.may_claim(sender, &held, FILE, READ | WRITE), Ok(()));
    // Opens by it disturb nobody, and those of others do, for reading too.
    let by_it = OpenRequest {
        delegated: true,
        ..of(FILE, READ)
    };
    let opened = state.open(at(1), sender, &owner(a, b"again"), &by_it);
    assert!(opened.is_ok());
    assert!(recalls(state, at(1)).is_empty());
    assert_eq!(open(state, at(1), b, b"o", (READ, 0)), Err(Status::Delay));
    assert_eq!(recalls(state, at(1)), [held]);
    assert_eq!(state.delegation_return(sender, &held, FILE), Ok(()));
    assert!(open(state, at(1), b, b"o", (READ, 0)).is_ok());
    let shared = take_alone(state, at(80), a);
    assert_eq!(shared, Err(WhyNone::Contention(false)));
}

#[test]
fn a_client_that_opens_again_what_it_has_alone_waits_for_itself() {
    let state = &mut machine();
    let (a, _) = hearing(state, b"a", 1);
    let held = take_alone(state, at(0), a).unwrap();
    let again = open(state, at(1), a, b"again", (READ, 0));
    assert_eq!(again, Err(Status::Delay));
    assert_eq!(recalls(state, at(1)), [held]);
    let returned = state.delegation_return(Sender::Client(a), &held, FILE);
    assert_eq!(returned, Ok(()));
    assert!(open(state, at(1), a, b"again", (READ, 0)).is_ok());
}

#[test]
fn nobody_gets_one_to_write_beside_one_to_read() {
    let state = &mut machine();
    let (a, _) = hearing(state, b"a", 1);
    let (b, _) = hearing(state, b"b", 2);
    let held = take(state, at(0), b, FILE).unwrap();
    let opened = open(state, at(0), b, b"o", (READ, 0)).unwrap();
    state
        .close(at(0), Sender::Client(b), &opened, FILE)
        .unwrap();
    let wanted = of(FILE, READ | WRITE);
    let may = state.may_delegate(at(0), Sender::Client(a), &wanted, Delegated::Write);
    assert_eq!(may, Err(WhyNone::Contention(false)));
    let sender = Sender::Client(b);
    assert_eq!(state.delegation_return(sender, &held, FILE), Ok(()));
    assert!(take_alone(state, at(0), a).is_ok());
}
