//! Clients that take what they can and are never heard of again.

use super::*;

/// A client opens a file that it may share with another one, and locks a part of it. One in five denies others to read it.
fn takes(state: &mut State, now: Nanos, number: u32) {
    let name = number.to_be_bytes();
    let file = ObjectId {
        ino: u64::from(number / 2),
        generation: 0,
    };
    let (id, sender) = match number % 2 {
        0 => (legacy(state, now, &name, 1), Sender::Named),
        _ => {
            let (id, _) = client(state, now, &name);
            (id, Sender::Client(id))
        }
    };
    let wanted = OpenRequest {
        file,
        access: 3,
        deny: u32::from(number.is_multiple_of(5)),
        reclaim: false,
        delegated: false,
    };
    let named = owner(id, b"o");
    let turn = (sender == Sender::Named).then(|| state.owner_turn(now, &named, 1));
    let opened = state.open(now, sender, &named, &wanted);
    if let Some(Ok(Some(Turn::Execute(turn)))) = turn {
        state.end_turn(turn, Status::Ok, b"result");
    }
    let Ok(mut opened) = opened.map(|opened| opened.stateid) else {
        // The one before has it, and denies it.
        return;
    };
    if sender == Sender::Named
        && let Ok(Some(Turn::Execute(turn))) = state.state_turn(now, &opened, 2)
    {
        opened = state.open_confirm(now, &opened, file).expect("confirmed");
        state.end_turn(turn, Status::Ok, b"result");
    }
    let locker = Locker::New(OpenToLockOwner {
        open_sequence: 3,
        open: opened,
        lock_sequence: 0,
        owner: named,
    });
    let range = LockRange {
        kind: LockType::Write,
        offset: u64::from(number % 2) * 100,
        length: 100,
    };
    let locked = state.lock(now, sender, file, range, &locker, false);
    locked.expect("nobody else wants these bytes");
}

/// What a client with a session does all day: it opens a file, which another may deny, locks it, and closes it.
fn works(state: &mut State, now: Nanos, id: u64, file: u64) -> Result<(), Status> {
    let file = ObjectId {
        ino: file,
        generation: 0,
    };
    let wanted = OpenRequest {
        file,
        access: 3,
        deny: 0,
        reclaim: false,
        delegated: false,
    };
    let sender = Sender::Client(id);
    let opened = state.open(now, sender, &owner(id, b"w"), &wanted)?;
    let locker = Locker::New(OpenToLockOwner {
        open_sequence: 0,
        open: opened.stateid,
        lock_sequence: 0,
        owner: owner(id, b"w"),
    });
    let all = LockRange {
        kind: LockType::Write,
        offset: 0,
        length: u64::MAX,
    };
    let locked = state.lock(now, sender, file, all, &locker, false);
    locked.map_err(|refused| match refused {
        LockRefused::Denied(_) => Status::Denied,
        LockRefused::Other(status) => status,
    })?;
    state.close(now, sender, &opened.stateid, file).map(drop)
}

#[test]
fn ten_thousand_silent_clients_are_in_nobodys_way() {
    let limits = crate::nfs4::limits(LEASE, crate::nfs4::CACHED_BYTES);
    let state = &mut State::new(limits, 5, at(0), Vec::new());
    let (id, session) = client(state, at(0), b"well-behaved");
    let mut call = 0;
    let mut serves = |state: &mut State, now, file| {
        call += 1;
        let taken = state.sequence(now, WHO, 1, &sequence(session, 0, call, false), 100, 3);
        let Ok(Sequenced::Execute(slot, _)) = taken else {
            panic!("{taken:?}");
        };
        let done = works(state, now, id, file);
        state.finish(now, &slot, Some(b"reply"));
        done
    };
    let within = |state: &State| {
        let [clients, sessions, opens, ranges] = state.counts();
        assert!(clients <= limits.clients && sessions <= limits.clients * limits.sessions);
        assert!(opens <= limits.all_states && ranges <= limits.all_states);
        assert!(state.entries.len() <= limits.all_states);
        assert!(state.cached_bytes <= limits.all_cached_bytes);
    };
    for number in 0..10_000 {
        takes(state, at(1), number);
        if number % 1000 == 0 {
            let other = u64::MAX - u64::from(number);
            assert_eq!(serves(state, at(1), other), Ok(()), "{number}");
            within(state);
        }
    }
    assert_eq!(state.counts()[0], 10_001);
    // What others hold, they hold for as long as a lease.
    assert!(serves(state, at(60), 0).is_err());
    for second in [100, 130, 160, 190] {
        state.tick(at(second));
        assert_eq!(serves(state, at(second), u64::MAX), Ok(()));
    }
    assert!(state.counts()[2] >= 5000, "kept while nobody wants it");
    // Then it is whoever's wants it, and that is all who held this file.
    for file in 0..5000 {
        assert_eq!(serves(state, at(200), file), Ok(()), "{file}");
    }
    within(state);
    // As many again, and more than there may be together.
    for number in 10_000..20_000 {
        takes(state, at(200), number);
        if number % 1000 == 0 {
            assert_eq!(serves(state, at(200), u64::MAX), Ok(()), "{number}");
            within(state);
        }
    }
    for day in 1..=2 {
        state.tick(at(200 + day * 25 * 3600));
    }
    assert_empty(state);
}

/// Another client comes when there is as much of everything as there may be.
fn comes(state: &mut State, now: Nanos, name: &[u8]) -> Result<(), Status> {
    let exchanged = state.exchange_id(now, WHO, &exchange(name, 1, 0))?;
    let id = exchanged.client_id;
    let args = create(id, exchanged.sequence);
    let made = state.create_session(now, WHO, arrival(id), &args)?;
    assert_eq!(made.fore.max_requests, args.fore.max_requests);
    state.reclaim_complete(id, false)?;
    works(state, now, id, 1 << 40)
}

#[test]
fn who_is_silent_makes_room_for_state_once_there_is_none() {
    let state = &mut machine();
    // Four clients have all stateids there may be.
    for name in 0..4u8 {
        let (id, _) = client(state, at(0), &[name]);
        for ino in 0..64 {
            let wanted = OpenRequest {
                file: ObjectId { ino, generation: 0 },
                ..wanted(1, 0)
            };
            let sender = Sender::Client(id);
            state
                .open(at(0), sender, &owner(id, b"o"), &wanted)
                .unwrap();
        }
    }
    assert_eq!(state.entries.len(), limits().all_states);
    assert_eq!(comes(state, at(1), b"early"), Err(Status::Delay));
    state.tick(at(200));
    assert_eq!(state.entries.len(), limits().all_states, "nobody wants it");
    assert_eq!(comes(state, at(200), b"late"), Ok(()));
    assert_eq!(state.entries.len(), 3 * 64, "one of them made room");
}

#[test]
fn who_is_silent_makes_room_for_ranges_once_there_are_as_many_as_there_may_be() {
    let state = &mut machine();
    for name in 0..5u8 {
        let (id, _) = client(state, at(0), &[name]);
        let opened = open(state, at(0), id, b"o", (3, 0)).unwrap();
        for byte in 0..62 {
            let locker = Locker::New(OpenToLockOwner {
                open_sequence: 0,
                open: opened,
                lock_sequence: 0,
                owner: owner(id, b"o"),
            });
            let range = LockRange {
                kind: LockType::Read,
                offset: byte * 2,
                length: 1,
            };
            let locked = state.lock(at(0), Sender::Client(id), FILE, range, &locker, false);
            let full = state.counts()[3] + 2 > limits().all_states;
            assert!(locked.is_ok() || full, "{locked:?}");
        }
    }
    let [.., ranges] = state.counts();
    assert!(ranges <= limits().all_states && ranges + 2 > limits().all_states);
    assert_eq!(comes(state, at(1), b"early"), Err(Status::Delay));
    assert_eq!(comes(state, at(200), b"late"), Ok(()));
}

#[test]
fn sessions_of_the_silent_make_room_for_those_of_others() {
    let state = &mut machine();
    let most = ChannelAttributes {
        max_requests: 1000,
        max_response_cached: 1 << 20,
        ..CHANNEL
    };
    // They have something open, and are kept for that.
    let mut silent = 0;
    for name in 0..12u8 {
        let exchanged = state.exchange_id(at(0), WHO, &exchange(&[name], 1, 0));
        let id = exchanged.unwrap().client_id;
        let made = (1..=4).map_while(|sequence| {
            let args = CreateSessionArgs {
                fore: most,
                ..create(id, sequence)
            };
            state.create_session(at(0), WHO, arrival(id), &args).ok()
        });
        if made.count() == 0 {
            break;
        }
        state.reclaim_complete(id, false).unwrap();
        open(state, at(0), id, b"o", (1, 0)).unwrap();
        silent += 1;
    }
    assert!(state.cached_bytes > limits().all_cached_bytes / 2);
    state.tick(at(200));
    assert_eq!(state.counts()[2], silent);
    assert_eq!(comes(state, at(200), b"late"), Ok(()));
    assert!(state.counts()[2] < silent, "some of them made room");
}

#[test]
fn a_session_is_destroyed_under_a_compound_and_knows_few_connections() {
    let state = &mut machine();
    let (id, session) = client(state, at(0), b"one");
    let taken = state.sequence(at(0), WHO, id, &sequence(session, 0, 1, true), 100, 2);
    let Ok(Sequenced::Execute(slot, _)) = taken else {
        panic!("{taken:?}");
    };
    let bind = BindConnectionArgs {
        session,
        channel: WantedChannel::Fore,
        rdma: false,
    };
    for connection in 1000..2000 {
        state
            .bind_connection(at(0), arrival(connection), &bind)
            .unwrap();
        assert!(state.connections.len() <= 64);
    }
    assert_eq!(
        state.destroy_session(at(0), 1000, &session),
        Err(Status::ConnNotBoundToSession)
    );
    state.destroy_session(at(0), 1999, &session).unwrap();
    state.finish(at(0), &slot, Some(b"reply"));
    state.abandon(&slot);
    for connection in 1000..2000 {
        state.connection_closed(connection);
    }
    state.destroy_client_id(id).unwrap();
    assert_empty(state);
}
