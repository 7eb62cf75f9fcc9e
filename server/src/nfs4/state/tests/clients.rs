//! Client ids, leases and reclaims.

use super::*;

#[test]
fn exchange_id_goes_by_name_verifier_and_user() {
    let state = &mut machine();
    let update = exchange_id_flag::UPDATE_CONFIRMED;
    let ask = |state: &mut State, who, verifier, flags| {
        state.exchange_id(at(1), who, &exchange(b"one", verifier, flags))
    };
    assert_eq!(ask(state, WHO, 1, update), Err(Status::NoEnt));
    let first = ask(state, WHO, 1, 0).unwrap();
    assert_eq!(first.flags & exchange_id_flag::CONFIRMED, 0);
    // What was not confirmed is replaced, by whomever.
    let second = ask(state, Principal(2), 1, 0).unwrap();
    assert_ne!(first.client_id, second.client_id);
    let stale = state.create_session(at(1), WHO, arrival(1), &create(first.client_id, 1));
    assert_eq!(stale, Err(Status::StaleClientId));

    let (id, session) = client(state, at(1), b"one");
    let again = ask(state, WHO, 1, 0).unwrap();
    assert_eq!(again.client_id, id);
    assert_ne!(again.flags & exchange_id_flag::CONFIRMED, 0);
    assert_eq!(ask(state, WHO, 2, update), Err(Status::NotSame));
    assert_eq!(ask(state, Principal(2), 1, update), Err(Status::Perm));
    assert_eq!(ask(state, WHO, 1, update).unwrap().client_id, id);
    open(state, at(1), id, b"o", (1, 0)).unwrap();
    assert_eq!(ask(state, Principal(2), 1, 0), Err(Status::ClidInUse));

    // A client that has restarted has what it had until it is confirmed.
    let anew = ask(state, WHO, 2, 0).unwrap();
    assert_eq!(state.counts(), [2, 1, 1, 0]);
    let made = state.create_session(
        at(1),
        WHO,
        arrival(1),
        &create(anew.client_id, anew.sequence),
    );
    made.unwrap();
    assert_eq!(state.counts(), [1, 1, 0, 0]);
    let gone = state.sequence(at(1), WHO, 1, &sequence(session, 0, 1, false), 100, 1);
    assert!(matches!(gone, Err(Status::BadSession)));
}

#[test]
fn of_a_long_name_a_digest_is_kept() {
    let state = &mut machine();
    let (mut one, mut other) = ([b'n'; 1000], [b'n'; 1000]);
    (one[999], other[999]) = (1, 2);
    let ids = [&one, &other].map(|name| client(state, at(1), name).0);
    assert_ne!(ids[0], ids[1]);
    for (name, id) in [&one, &other].into_iter().zip(ids) {
        let again = state.exchange_id(at(1), WHO, &exchange(name, 1, 0));
        assert_eq!(again.unwrap().client_id, id);
        open(state, at(1), id, b"o", (1, 0)).unwrap();
    }
    let kept = state.take_records();
    assert_eq!(kept.len(), 2);
    for record in kept {
        let Record::Keep(client) = record else {
            panic!("{record:?}");
        };
        assert!(client.identity.len() < 40);
    }
}

#[test]
fn a_client_without_anything_can_be_destroyed() {
    let state = &mut machine();
    let (id, session) = client(state, at(1), b"one");
    let destroy = |state: &mut State| state.destroy_client_id(id);
    assert_eq!(destroy(state), Err(Status::ClientIdBusy));
    state.destroy_session(at(1), id, &session).unwrap();
    let file = open(state, at(1), id, b"o", (1, 0)).unwrap();
    assert_eq!(destroy(state), Err(Status::ClientIdBusy));
    state.close(at(1), Sender::Client(id), &file, FILE).unwrap();
    assert_eq!(destroy(state), Ok(()));
    assert_eq!(destroy(state), Err(Status::StaleClientId));
    assert_empty(state);
}

#[test]
fn set_client_id_updates_replaces_and_refuses() {
    let state = &mut machine();
    let id = legacy(state, at(1), b"one", 1);
    // The same client moves its callbacks.
    let update = state.set_client_id(at(1), WHO, &set(b"one", 1)).unwrap();
    assert_eq!(update.client_id, id);
    state.confirm_client_id(at(1), WHO, &update).unwrap();
    state.confirm_client_id(at(1), WHO, &update).unwrap();
    // It has restarted.
    let first = state.set_client_id(at(1), WHO, &set(b"one", 2)).unwrap();
    let second = state.set_client_id(at(1), WHO, &set(b"one", 2)).unwrap();
    assert_ne!(first.client_id, second.client_id);
    let confirm = state.confirm_client_id(at(1), WHO, &first);
    assert_eq!(confirm, Err(Status::StaleClientId));
    assert_eq!(state.renew(at(1), id), Ok(()));
    let other = state.confirm_client_id(at(1), Principal(2), &second);
    assert_eq!(other, Err(Status::ClidInUse));
    state.confirm_client_id(at(1), WHO, &second).unwrap();
    assert_eq!(state.renew(at(1), id), Err(Status::StaleClientId));
    assert_eq!(state.renew(at(1), second.client_id), Ok(()));
}

#[test]
fn state_outlives_its_lease_until_somebody_wants_it() {
    let state = &mut machine();
    let (one, _) = client(state, at(0), b"one");
    let old = legacy(state, at(0), b"old", 1);
    let kept = open(state, at(0), one, b"o", (3, 2)).unwrap();
    state.tick(at(200));
    let (two, _) = client(state, at(200), b"two");
    // Whose lease is over may come back as if nothing was.
    assert_eq!(state.renew(at(200), old), Err(Status::StaleClientId));
    let io = state
        .io(at(200), Sender::Client(one), &kept, FILE, Io::Write)
        .map(drop);
    assert_eq!(io, Ok(()));
    assert!(!state.denies(at(200), FILE, Io::Write));
    open(state, at(200), two, b"o", (2, 0)).unwrap();
    let io = state
        .io(at(200), Sender::Client(one), &kept, FILE, Io::Write)
        .map(drop);
    assert_eq!(io, Err(Status::BadStateId));
    assert_eq!(state.counts(), [1, 1, 1, 0]);
    state.tick(at(200 + 48 * 3600));
    assert_empty(state);
}

#[test]
fn a_lease_does_not_end_under_a_compound() {
    let state = &mut machine();
    let (one, session) = client(state, at(0), b"one");
    open(state, at(0), one, b"o", (3, 2)).unwrap();
    let taken = state.sequence(at(1), WHO, 1, &sequence(session, 0, 1, true), 100, 2);
    let Ok(Sequenced::Execute(slot, _)) = taken else {
        panic!("{taken:?}");
    };
    let (two, _) = client(state, at(200), b"two");
    state.tick(at(200 + 48 * 3600));
    let (three, _) = client(state, at(200 + 48 * 3600), b"three");
    let refused = open(state, at(200 + 48 * 3600), three, b"o", (2, 0));
    assert_eq!(refused.unwrap_err(), Status::ShareDenied);
    assert!(open(state, at(200 + 48 * 3600), one, b"o", (1, 0)).is_ok());
    assert_eq!(state.session_client(two), Err(Status::Expired));
    let (end, later) = (at(200 + 48 * 3600), at(291 + 48 * 3600));
    state.finish(end, &slot, Some(b"reply"));
    // Nor before the client could send another.
    let refused = open(state, at(280 + 48 * 3600), three, b"o", (2, 0));
    assert_eq!(refused.unwrap_err(), Status::ShareDenied);
    open(state, later, three, b"o", (2, 0)).unwrap();
    assert_eq!(state.session_client(one), Err(Status::Expired));
}

#[test]
fn a_client_of_minor_version_0_learns_that_it_was_expelled() {
    let state = &mut machine();
    let old = legacy(state, at(0), b"old", 1);
    let named = owner(old, b"o");
    let deny_all = OpenRequest {
        deny: 3,
        ..wanted(3, 0)
    };
    let Ok(Some(Turn::Execute(turn))) = state.owner_turn(at(0), &named, 1) else {
        panic!();
    };
    let opened = state.open(at(0), Sender::Named, &named, &deny_all).unwrap();
    state.end_turn(turn, Status::Ok, b"result");
    let (two, _) = client(state, at(200), b"two");
    open(state, at(200), two, b"o", (1, 0)).unwrap();
    assert_eq!(state.renew(at(200), old), Err(Status::Expired));
    let confirm = state.state_turn(at(200), &opened.stateid, 2);
    assert_eq!(confirm.unwrap_err(), Status::Expired);
    // Its next SETCLIENTID makes a new client, though its verifier is the same.
    assert_ne!(legacy(state, at(200), b"old", 1), old);
}

#[test]
fn reclaims_are_for_those_that_were_there_and_others_wait() {
    let mut before = machine();
    client(&mut before, at(0), b"one");
    let records = before.take_records();
    let [Record::Keep(known)] = &records[..] else {
        panic!("{records:?}");
    };
    let lost = [1, b'l'].to_vec();
    let gone = Reclaiming {
        identity: lost.clone(),
        delegations: false,
    };
    let state = &mut State::new(limits(), 6, at(0), vec![known.clone(), gone]);
    assert!(state.in_grace(at(1)));
    let (other, _) = client(state, at(1), b"other");
    assert_eq!(
        open(state, at(1), other, b"o", (1, 0)),
        Err(Status::Grace),
        "not yet"
    );
    let reclaim = OpenRequest {
        reclaim: true,
        ..wanted(3, 0)
    };
    let as_other = state.open(at(1), Sender::Client(other), &owner(other, b"o"), &reclaim);
    assert_eq!(as_other, Err(Status::NoGrace));
    let exchanged = state.exchange_id(at(1), WHO, &exchange(b"one", 1, 0));
    let one = exchanged.unwrap().client_id;
    state
        .create_session(at(1), WHO, arrival(1), &create(one, 1))
        .unwrap();
    let sender = Sender::Client(one);
    state
        .open(at(1), sender, &owner(one, b"o"), &reclaim)
        .unwrap();
    assert_eq!(open(state, at(1), one, b"p", (1, 0)), Err(Status::Grace));
    state.reclaim_complete(one, false).unwrap();
    let late = state.open(at(1), sender, &owner(one, b"p"), &reclaim);
    assert_eq!(late, Err(Status::NoGrace));
    let twice = state.reclaim_complete(one, false);
    assert_eq!(twice, Err(Status::CompleteAlready));
    // One of those that may reclaim has not come.
    assert!(state.in_grace(at(89)));
    assert!(!state.in_grace(at(90)));
    // Who takes state first ends what the others may reclaim, and stable storage says so before the reply.
    open(state, at(90), other, b"o", (1, 0)).unwrap();
    assert!(state.take_records().contains(&Record::Forget(lost)));
}

/// Who has much to reclaim may need longer than a lease, but keeps nobody out for longer than two.
#[test]
fn the_grace_period_lasts_while_clients_reclaim() {
    // The times of reclaims, and when the grace period is over.
    for (reclaims, over) in [(89..90, 91), (50..60, 90), (89..200, 180)] {
        let mut before = machine();
        client(&mut before, at(0), b"one");
        let Some(Record::Keep(known)) = before.take_records().pop() else {
            panic!("no record");
        };
        let state = &mut State::new(limits(), 6, at(0), vec![known]);
        let exchanged = state.exchange_id(at(1), WHO, &exchange(b"one", 1, 0));
        let one = exchanged.unwrap().client_id;
        let made = state.create_session(at(1), WHO, arrival(1), &create(one, 1));
        made.unwrap();
        let reclaim = OpenRequest {
            reclaim: true,
            ..wanted(1, 0)
        };
        let ask = |state: &mut State, now| {
            let asked = state.open(now, Sender::Client(one), &owner(one, b"o"), &reclaim);
            asked.map(drop)
        };
        for second in reclaims.take_while(|second| *second < over) {
            assert_eq!(ask(state, at(second)), Ok(()), "{second}");
        }
        assert!(state.in_grace(at(over - 1)) && !state.in_grace(at(over)));
        assert_eq!(ask(state, at(over)), Err(Status::NoGrace), "{over}");
    }
}

#[test]
fn a_grace_period_that_is_over_does_not_begin_again() {
    let mut before = machine();
    client(&mut before, at(0), b"one");
    let Some(Record::Keep(known)) = before.take_records().pop() else {
        panic!("no record");
    };
    let locks = Arc::<Locks>::default();
    locks.reclaims_until(Side::Nlm, at(95));
    let state = State::new(limits(), 6, at(0), vec![known]);
    let state = &mut state.with_locks(Arc::clone(&locks));
    let exchanged = state.exchange_id(at(1), WHO, &exchange(b"one", 1, 0));
    let one = exchanged.unwrap().client_id;
    let made = state.create_session(at(1), WHO, arrival(1), &create(one, 1));
    made.unwrap();
    let reclaim = OpenRequest {
        reclaim: true,
        ..wanted(1, 0)
    };
    assert!(locks.is_reclaiming(Side::Nfs4, at(89)));
    let _ = state.open(at(91), Sender::Client(one), &owner(one, b"o"), &reclaim);
    assert!(!locks.is_reclaiming(Side::Nfs4, at(92)));
}

/// Another restart after the end of the grace period: what a client did not reclaim in time others may have had since.
#[test]
fn who_is_not_done_when_the_grace_is_over_may_reclaim_again_only_when_it_is() {
    let known = |name: &[u8]| {
        let mut before = machine();
        client(&mut before, at(0), name);
        match before.take_records().pop() {
            Some(Record::Keep(known)) => known,
            other => panic!("{other:?}"),
        }
    };
    let (slow, other) = (known(b"slow"), known(b"other"));
    let state = &mut State::new(limits(), 6, at(0), vec![slow.clone(), other]);
    let (id, _) = client(state, at(1), b"other");
    let exchanged = state.exchange_id(at(1), WHO, &exchange(b"slow", 1, 0));
    let late = exchanged.unwrap().client_id;
    let made = state.create_session(at(1), WHO, arrival(2), &create(late, 1));
    made.unwrap();
    let reclaim = OpenRequest {
        reclaim: true,
        ..wanted(1, 0)
    };
    let sender = Sender::Client(late);
    let reclaimed = state.open(at(80), sender, &owner(late, b"o"), &reclaim);
    reclaimed.unwrap();
    state.take_records();
    open(state, at(90), id, b"o", (1, 0)).unwrap();
    let forgotten = Record::Forget(slow.identity.clone());
    assert_eq!(state.take_records(), [forgotten]);
    let rest = state.open(at(91), sender, &owner(late, b"p"), &reclaim);
    assert_eq!(rest, Err(Status::NoGrace));
    state.reclaim_complete(late, false).unwrap();
    assert_eq!(state.take_records(), [Record::Keep(slow)]);
}

#[test]
fn a_full_table_makes_room_where_nobody_is_hurt() {
    let state = &mut machine();
    let (kept, _) = client(state, at(0), b"kept");
    for name in 0..100u8 {
        let made = state.exchange_id(at(1), WHO, &exchange(&[name], 1, 0));
        made.expect("the oldest that was not confirmed goes");
    }
    assert_eq!(state.counts()[0], limits().clients);
    assert!(state.session_client(kept).is_ok());
    let mut state = machine();
    for name in 0..16u8 {
        client(&mut state, at(0), &[name]);
    }
    let full = state.exchange_id(at(1), WHO, &exchange(b"more", 1, 0));
    assert_eq!(full, Err(Status::Delay));
    state
        .exchange_id(at(100), WHO, &exchange(b"more", 1, 0))
        .unwrap();
}
