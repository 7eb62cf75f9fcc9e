//! What a client loses only when stable storage has forgotten that it may reclaim it.

use super::delegations::{file, hearing, renew, take};
use super::*;

/// Stable storage has all changes from now on.
fn keep(state: &mut State) -> Vec<Record> {
    let records = state.take_records();
    state.have_kept_records();
    records
}

fn stable() -> State {
    machine().with_stable_storage()
}

#[test]
fn who_comes_back_before_it_is_expelled_is_recorded_again() {
    let state = &mut stable();
    let (one, _) = client(state, at(0), b"one");
    open(state, at(0), one, b"o", (3, 3)).unwrap();
    let known = keep(state);
    let (two, _) = client(state, at(100), b"two");
    keep(state);
    state.begin();
    assert_eq!(open(state, at(100), two, b"o", (1, 0)), Err(Status::Delay));
    assert!(state.is_held_up());
    let forgotten = Record::Forget([1, b'o', b'n', b'e'].to_vec());
    assert_eq!(state.take_records(), std::slice::from_ref(&forgotten));
    // It is asked for once, and stable storage does not have it yet.
    state.begin();
    assert_eq!(open(state, at(100), two, b"o", (1, 0)), Err(Status::Delay));
    assert!(state.is_held_up() && state.take_records().is_empty());
    state.have_kept_records();
    renew(state, one, at(101));
    state.tick(at(101));
    assert_eq!(keep(state), known);
    state.begin();
    assert_eq!(
        open(state, at(101), two, b"o", (1, 0)),
        Err(Status::ShareDenied)
    );
    assert!(!state.is_held_up());
    // The next time it does not.
    renew(state, two, at(200));
    assert_eq!(open(state, at(200), two, b"o", (1, 0)), Err(Status::Delay));
    assert_eq!(keep(state), [forgotten]);
    open(state, at(200), two, b"o", (1, 0)).unwrap();
    assert!(state.session_client(one).is_err() && state.take_records().is_empty());
}

#[test]
fn a_delegation_is_revoked_when_stable_storage_knows_that_it_is_not_reclaimed() {
    let state = &mut stable();
    let (a, _) = hearing(state, b"a", 1);
    let sender = Sender::Client(a);
    let held = take(state, at(0), a, FILE).unwrap();
    let number = state.number(a).unwrap();
    assert!(!state.has_recorded_delegations(number));
    keep(state);
    assert!(state.has_recorded_delegations(number));
    let other = take(state, at(0), a, file(9)).unwrap();
    assert!(!state.recall(at(1), FILE, None));
    // It has not answered the recall, so it has two leases.
    renew(state, a, at(182));
    for _ in 0..2 {
        state.begin();
        assert!(!state.recall(at(182), FILE, None) && state.is_held_up());
        assert!(state.take_undelegated().is_empty());
    }
    // It can still be returned, and then the other one can be reclaimed.
    assert_eq!(state.delegation_return(sender, &held, FILE), Ok(()));
    keep(state);
    assert!(state.has_recorded_delegations(number));
    assert!(!state.recall(at(182), file(9), None));
    renew(state, a, at(363));
    state.tick(at(363));
    assert_eq!(state.test_state(a, &other), Status::Ok);
    keep(state);
    assert!(!state.has_recorded_delegations(number));
    state.tick(at(364));
    assert_eq!(state.test_state(a, &other), Status::DelegRevoked);
    assert_eq!(state.take_undelegated(), [FILE, file(9)]);
}

/// With another one it would be recorded again as one that may reclaim, so that the revocation would never come.
#[test]
fn a_client_whose_delegation_is_to_be_revoked_gets_no_other() {
    let state = &mut stable();
    let (a, _) = hearing(state, b"a", 1);
    take(state, at(0), a, FILE).unwrap();
    let other = take(state, at(0), a, file(9)).unwrap();
    keep(state);
    assert!(!state.recall(at(1), FILE, None));
    renew(state, a, at(182));
    assert!(!state.recall(at(182), FILE, None));
    state.take_records();
    // Meanwhile stable storage is at work.
    assert!(take(state, at(182), a, file(10)).is_err());
    let returned = state.delegation_return(Sender::Client(a), &other, file(9));
    assert_eq!((returned, state.take_records()), (Ok(()), Vec::new()));
    state.have_kept_records();
    assert!(state.recall(at(182), FILE, None));
}

#[test]
fn a_client_whose_name_another_user_takes_is_forgotten_first() {
    let state = &mut stable();
    let (one, _) = client(state, at(0), b"one");
    open(state, at(0), one, b"o", (3, 3)).unwrap();
    keep(state);
    let other = |state: &mut State| {
        let args = exchange(b"one", 1, 0);
        state.exchange_id(at(200), Principal(2), &args).map(drop)
    };
    assert_eq!(other(state), Err(Status::Delay));
    assert!(state.session_client(one).is_ok());
    keep(state);
    assert_eq!(other(state), Ok(()));
    assert!(state.session_client(one).is_err());
}

#[test]
fn a_delegation_that_its_client_has_not_heard_of_leaves_nothing() {
    let state = &mut stable();
    let (a, _) = hearing(state, b"a", 1);
    let given = take(state, at(0), a, FILE).unwrap();
    state.take_back_delegation(&given);
    assert_eq!(state.take_undelegated(), [FILE]);
    let counts = state.delegation_counts();
    assert_eq!((counts.held, counts.granted), (0, 0));
    assert_eq!(state.test_state(a, &given), Status::BadStateId);
    state.take_back_delegation(&given);
}

#[test]
fn who_is_silent_for_a_day_is_forgotten_before_it_is_removed() {
    let state = &mut stable();
    let (one, _) = client(state, at(0), b"one");
    open(state, at(0), one, b"o", (3, 3)).unwrap();
    keep(state);
    let day = 48 * 3600;
    for _ in 0..2 {
        state.tick(at(day));
        assert!(state.session_client(one).is_ok());
    }
    keep(state);
    state.tick(at(day + 1));
    assert_empty(state);
}

#[test]
fn many_silent_clients_are_forgotten_at_once() {
    let state = &mut stable();
    for name in 0..8u8 {
        let (id, _) = client(state, at(0), &[name]);
        open(state, at(0), id, b"o", (1, 2)).unwrap();
    }
    keep(state);
    let (late, _) = client(state, at(100), b"late");
    assert_eq!(open(state, at(100), late, b"o", (2, 0)), Err(Status::Delay));
    assert_eq!(keep(state).len(), 9);
    open(state, at(100), late, b"o", (2, 0)).unwrap();
    assert_eq!(state.counts()[0], 1);
}

/// A silent client leaves as much memory as its session has. Returns what another client gets: the slots of its session.
fn crowded(state: &mut State) -> impl Fn(&mut State) -> Result<u32, Status> + use<> {
    let (one, _) = client(state, at(0), b"one");
    open(state, at(0), one, b"o", (1, 0)).unwrap();
    keep(state);
    state.limits.all_cached_bytes = 2 * state.cached_bytes;
    let exchanged = state.exchange_id(at(200), WHO, &exchange(b"late", 1, 0));
    let id = exchanged.unwrap().client_id;
    move |state| {
        state.begin();
        let made = state.create_session(at(200), WHO, arrival(id), &create(id, 1));
        made.map(|made| made.fore.max_requests)
    }
}

#[test]
fn a_session_is_not_cut_short_while_stable_storage_is_at_work() {
    let state = &mut stable();
    let slots = crowded(state);
    assert_eq!(slots(state), Err(Status::Delay));
    assert!(state.is_held_up());
    keep(state);
    assert_eq!(slots(state), Ok(2));
}

#[test]
fn a_session_has_few_slots_rather_than_none_if_stable_storage_takes_nothing() {
    let state = &mut stable();
    let slots = crowded(state);
    assert_eq!(slots(state), Err(Status::Delay));
    state.note_kept(false);
    assert_eq!(slots(state), Ok(1));
}

#[test]
fn a_new_owner_of_version_4_0_is_put_off_while_stable_storage_is_at_work() {
    let state = &mut stable();
    let (one, _) = client(state, at(0), b"one");
    for name in 0..4u8 {
        open(state, at(0), one, &[name], (1, 0)).unwrap();
    }
    keep(state);
    state.limits.all_states = 4;
    let two = legacy(state, at(200), b"two", 1);
    let turn = |state: &mut State| {
        state.begin();
        let turn = state.owner_turn(at(200), &owner(two, b"o"), 1);
        turn.map(|turn| turn.is_some())
    };
    assert_eq!(turn(state), Err(Status::Delay));
    assert!(state.is_held_up());
    keep(state);
    assert_eq!(turn(state), Ok(true));
}

#[test]
fn an_open_that_fails_leaves_the_one_before_as_it_was() {
    let state = &mut machine();
    let (one, _) = client(state, at(0), b"one");
    let named = owner(one, b"o");
    let sender = Sender::Client(one);
    let first = open(state, at(0), one, b"o", (1, 0)).unwrap();
    let widened = state.open(at(1), sender, &named, &wanted(3, 0)).unwrap();
    state.undo_open(&widened);
    let key = *state.held.values().next().unwrap();
    assert_eq!(state.entries[&key].shares(), Some((1, 0)));
    assert_eq!(state.files[&FILE].opens.of(key), Some((1, 0)));
    assert_eq!(state.test_state(one, &first), Status::Ok);
    // Nobody can go back to what it was not opened for.
    let down = state.open_downgrade(at(1), sender, &first, FILE, 2, 0);
    assert_eq!(down, Err(Status::Inval));
    // What was opened once more meanwhile stays.
    let widened = state.open(at(1), sender, &named, &wanted(2, 0)).unwrap();
    let again = state.open(at(1), sender, &named, &wanted(1, 0)).unwrap();
    state.undo_open(&widened);
    assert_eq!(state.entries[&key].shares(), Some((3, 0)));
    assert_eq!(state.test_state(one, &again.stateid), Status::Ok);
    // A new one goes.
    let other = OpenRequest {
        file: file(9),
        ..wanted(1, 0)
    };
    let new = state.open(at(1), sender, &named, &other).unwrap();
    state.undo_open(&new);
    assert!(!state.files.contains_key(&file(9)));
}
