//! Sessions and their slots.

use super::*;

#[test]
fn create_session_is_counted_and_answered_again() {
    let state = &mut machine();
    let exchanged = state.exchange_id(at(1), WHO, &exchange(b"one", 1, 0));
    let id = exchanged.unwrap().client_id;
    let ask = |state: &mut State, who, args: &CreateSessionArgs<'_>| {
        state.create_session(at(1), who, arrival(1), args)
    };
    assert_eq!(ask(state, WHO, &create(id, 0)), Err(Status::SeqMisordered));
    assert_eq!(
        ask(state, Principal(2), &create(id, 1)),
        Err(Status::ClidInUse)
    );
    // That does not count. The failures of its own do.
    let mut small = create(id, 1);
    small.back.max_request = 10;
    assert_eq!(ask(state, WHO, &small), Err(Status::TooSmall));
    assert_eq!(ask(state, WHO, &small), Err(Status::TooSmall));
    let flags = CreateSessionArgs {
        flags: 0xf,
        ..create(id, 2)
    };
    assert_eq!(ask(state, WHO, &flags), Err(Status::Inval));
    assert_eq!(ask(state, WHO, &create(id, 1)), Err(Status::SeqMisordered));
    assert_eq!(ask(state, WHO, &create(id, 4)), Err(Status::SeqMisordered));
    let made = ask(state, WHO, &create(id, 3)).unwrap();
    assert_eq!(ask(state, WHO, &create(id, 3)), Ok(made));
    assert_eq!(ask(state, WHO, &create(id, 5)), Err(Status::SeqMisordered));
    // Whoever it was that confirmed it, others may use it.
    for sequence in 4..=6 {
        ask(state, Principal(2), &create(id, sequence)).unwrap();
    }
    assert_eq!(ask(state, WHO, &create(id, 7)), Err(Status::NoSpc));
    let exchanged = state.exchange_id(at(1), WHO, &exchange(b"one", 1, 0));
    assert_eq!(exchanged.unwrap().sequence, 8);
    state.destroy_session(at(1), 1, &made.session).unwrap();
    // A repetition must not find the room that there is now.
    assert_eq!(ask(state, WHO, &create(id, 7)), Err(Status::NoSpc));
    assert!(ask(state, WHO, &create(id, 8)).is_ok());
}

#[test]
fn a_client_that_does_not_count_what_was_wrong_in_itself_is_understood() {
    let state = &mut machine();
    let exchanged = state.exchange_id(at(1), WHO, &exchange(b"one", 1, 0));
    let id = exchanged.unwrap().client_id;
    let mut small = create(id, 1);
    small.fore.max_response = 10;
    for _ in 0..2 {
        let refused = state.create_session(at(1), WHO, arrival(1), &small);
        assert_eq!(refused, Err(Status::TooSmall));
    }
    let made = state.create_session(at(1), WHO, arrival(1), &create(id, 1));
    let again = state.create_session(at(1), WHO, arrival(1), &create(id, 1));
    assert_eq!((made.is_ok(), made), (true, again));
}

#[test]
fn a_client_that_is_put_off_has_not_used_its_number_up() {
    let limits = StateLimits {
        all_cached_bytes: 0,
        ..limits()
    };
    let state = &mut State::new(limits, 5, at(0), Vec::new());
    let exchanged = state.exchange_id(at(1), WHO, &exchange(b"one", 1, 0));
    let id = exchanged.unwrap().client_id;
    for _ in 0..2 {
        let delayed = state.create_session(at(1), WHO, arrival(1), &create(id, 1));
        assert_eq!(delayed, Err(Status::Delay));
    }
    state.limits.all_cached_bytes = 1 << 20;
    assert!(
        state
            .create_session(at(1), WHO, arrival(1), &create(id, 1))
            .is_ok()
    );
}

#[test]
fn what_slots_keep_is_bounded_for_all_together() {
    let state = &mut machine();
    let mut sessions = 0;
    for name in 0..16u8 {
        let exchanged = state.exchange_id(at(1), WHO, &exchange(&[name], 1, 0));
        let id = exchanged.unwrap().client_id;
        for sequence in 1..=4 {
            let mut args = create(id, sequence);
            args.fore.max_requests = 1000;
            args.fore.max_response_cached = 1 << 20;
            match state.create_session(at(1), WHO, arrival(1), &args) {
                Ok(made) => {
                    assert!(made.fore.max_requests <= limits().slots);
                    assert!(made.fore.max_response_cached <= limits().cached_bytes);
                    sessions += 1;
                }
                Err(status) => {
                    assert_eq!(status, Status::Delay);
                    break;
                }
            }
        }
    }
    assert!(sessions > 16, "{sessions}");
    assert!(state.cached_bytes <= limits().all_cached_bytes);
}

#[test]
fn a_slot_takes_one_compound_after_the_other_and_answers_the_last_again() {
    let state = &mut machine();
    let (_, session) = client(state, at(1), b"one");
    let ask = |state: &mut State, number, cache| {
        state.sequence(at(1), WHO, 1, &sequence(session, 0, number, cache), 100, 2)
    };
    assert!(matches!(ask(state, 0, true), Err(Status::SeqMisordered)));
    let Ok(Sequenced::Execute(slot, _)) = ask(state, 1, true) else {
        panic!();
    };
    assert!(matches!(ask(state, 1, true), Err(Status::Delay)));
    assert!(matches!(ask(state, 2, true), Err(Status::SeqMisordered)));
    state.abandon(&slot);
    let Ok(Sequenced::Execute(slot, _)) = ask(state, 1, true) else {
        panic!();
    };
    state.finish(at(0), &slot, Some(&[7; 1000]));
    let Ok(Sequenced::Replay(reply)) = ask(state, 1, true) else {
        panic!();
    };
    assert_eq!(reply[..], [7; 1000]);
    // A compound that is given up leaves the reply before it.
    let Ok(Sequenced::Execute(slot, _)) = ask(state, 2, false) else {
        panic!();
    };
    state.abandon(&slot);
    assert!(matches!(ask(state, 1, true), Ok(Sequenced::Replay(_))));
    for (number, reply, whole, again) in [
        (2, &[1; 1000][..], true, false),
        (3, &[1; 100][..], true, true),
        (4, &[1; 100][..], false, false),
    ] {
        let Ok(Sequenced::Execute(slot, _)) = ask(state, number, false) else {
            panic!();
        };
        state.finish(at(0), &slot, whole.then_some(reply));
        match ask(state, number, false) {
            Ok(Sequenced::Replay(_)) => assert!(again, "{number}"),
            Ok(Sequenced::NotKept(ok)) => {
                assert_eq!((again, ok.sequence), (false, number));
            }
            other => panic!("{other:?}"),
        }
    }
}

/// Whether the slot has kept the reply or not.
#[test]
fn a_repetition_renews_the_lease_and_binds_its_connection_if_it_is_the_same_users() {
    for reply in [Some(&b"reply"[..]), None] {
        let state = &mut machine();
        let (id, session) = client(state, at(0), b"one");
        let number = state.number(id).unwrap();
        let args = sequence(session, 0, 1, true);
        let Ok(Sequenced::Execute(slot, _)) = state.sequence(at(1), WHO, 1, &args, 100, 2) else {
            panic!();
        };
        state.finish(at(1), &slot, reply);
        let other = state.sequence(at(50), Principal(1001), 7, &args, 100, 2);
        assert_eq!(other.err(), Some(Status::SeqFalseRetry));
        assert!(state.is_over(number, at(92)));
        let unbound = state.destroy_session(at(50), 7, &session);
        assert_eq!(unbound, Err(Status::ConnNotBoundToSession));
        let again = state.sequence(at(50), WHO, 7, &args, 100, 2).unwrap();
        assert_eq!(matches!(again, Sequenced::Replay(_)), reply.is_some());
        assert!(!state.is_over(number, at(92)));
        assert_eq!(state.destroy_session(at(50), 7, &session), Ok(()));
    }
}

#[test]
fn calls_that_a_session_does_not_take_are_refused_and_take_no_slot() {
    let state = &mut machine();
    let (_, session) = client(state, at(1), b"one");
    let good = sequence(session, 0, 1, false);
    let ask = |state: &mut State, args: &SequenceArgs, bytes, operations| {
        state.sequence(at(1), WHO, 1, args, bytes, operations).err()
    };
    let far = sequence(session, 4, 1, false);
    assert_eq!(ask(state, &far, 100, 1), Some(Status::BadSlot));
    let high = SequenceArgs {
        highest_slot: 4,
        ..good
    };
    assert_eq!(ask(state, &high, 100, 1), Some(Status::BadHighSlot));
    assert_eq!(ask(state, &good, 2 << 20, 1), Some(Status::ReqTooBig));
    assert_eq!(ask(state, &good, 100, 17), Some(Status::TooManyOps));
    assert_eq!(ask(state, &good, 100, 16), None);
}

#[test]
fn sessions_are_destroyed_by_their_own_connections() {
    let state = &mut machine();
    let (id, session) = client(state, at(1), b"one");
    let destroy =
        |state: &mut State, connection| state.destroy_session(at(1), connection, &session);
    assert_eq!(destroy(state, 99), Err(Status::ConnNotBoundToSession));
    for connection in 100..300 {
        let args = BindConnectionArgs {
            session,
            channel: WantedChannel::ForeOrBoth,
            rdma: false,
        };
        state
            .bind_connection(at(1), arrival(connection), &args)
            .unwrap();
    }
    assert!(state.connections.len() <= 64, "bounded");
    assert_eq!(destroy(state, id), Err(Status::ConnNotBoundToSession));
    for connection in 100..300 {
        state.connection_closed(connection);
    }
    assert!(state.connections.is_empty());
    assert_eq!(destroy(state, 99), Ok(()));
    assert_eq!(destroy(state, 99), Err(Status::BadSession));
}

/// CREATE_SESSION says of its own connection whether that carries callbacks, and not of those that follow (RFC 8881, sections
/// 18.34.3 and 18.36.3).
#[test]
fn a_back_channel_gets_its_first_connection_later_than_its_session() {
    let state = &mut machine();
    let exchanged = state.exchange_id(at(0), WHO, &exchange(b"one", 1, 0));
    let exchanged = exchanged.unwrap();
    let one = exchanged.client_id;
    let create = CreateSessionArgs {
        callback_security: List(vec![CallbackSecurity::None]),
        ..create(one, exchanged.sequence)
    };
    let made = state.create_session(at(0), WHO, arrival(1), &create);
    let made = made.unwrap();
    assert_eq!(made.flags, 0);
    state.reclaim_complete(one, false).unwrap();
    // Nobody misses what was not asked for.
    assert!(!state.hears(one as u32));
    assert_eq!(state.back_status(&made.session), 0);
    let recall = Callback::RecallAny { keep: 3 };
    state.say(one as u32, recall.clone());
    assert!(state.take_callbacks(at(1)).is_empty());
    // The client chooses another program meanwhile.
    let control = BackchannelCtlArgs {
        callback_program: 77,
        callback_security: List(vec![CallbackSecurity::None]),
    };
    assert_eq!(state.back_channel_ctl(&made.session, &control), Ok(()));
    let args = BindConnectionArgs {
        session: made.session,
        channel: WantedChannel::BackOrBoth,
        rdma: false,
    };
    let bound = state.bind_connection(at(2), arrival(2), &args).unwrap();
    assert_eq!(bound.channel, GrantedChannel::Both);
    let sent = state.take_callbacks(at(2));
    let [sent] = &sent[..] else {
        panic!("{sent:?}");
    };
    assert_eq!((sent.sent.connection, sent.program), (2, 77));
    assert_eq!(sent.callback, recall);
    assert_eq!(state.back_status(&made.session), 0);
    // From now on it is missed.
    state.connection_closed(2);
    assert_ne!(state.back_status(&made.session), 0);
}

#[test]
fn a_connection_is_bound_to_what_the_reply_says() {
    let state = &mut machine();
    // It offers no credential for callbacks.
    let (_, deaf) = client(state, at(1), b"deaf");
    let (_, hears) = delegations::hearing(state, b"hears", 1);
    let bind = |state: &mut State, session, arrival, channel| {
        let args = BindConnectionArgs {
            session,
            channel,
            rdma: false,
        };
        let bound = state.bind_connection(at(1), arrival, &args);
        bound.map(|bound| bound.channel)
    };
    use WantedChannel as W;
    let nothing = Err(Status::Inval);
    let fore_alone = Arrival {
        calls_back: false,
        ..arrival(50)
    };
    for channel in [W::Back, W::BackOrBoth] {
        assert_eq!(bind(state, deaf, arrival(50), channel), nothing);
        assert_eq!(bind(state, hears, fore_alone, channel), nothing);
    }
    assert!(!state.connections.contains_key(&50));
    let fore = Ok(GrantedChannel::Fore);
    assert_eq!(bind(state, deaf, arrival(51), W::ForeOrBoth), fore);
    assert_eq!(bind(state, hears, arrival(52), W::Fore), fore);
    let back = Ok(GrantedChannel::Back);
    assert_eq!(bind(state, hears, arrival(53), W::Back), back);
    for channel in [W::BackOrBoth, W::ForeOrBoth] {
        let both = Ok(GrantedChannel::Both);
        assert_eq!(bind(state, hears, arrival(54), channel), both);
    }
}

#[test]
fn slots_are_asked_for_when_there_is_little_left_for_replies() {
    let limits = StateLimits {
        slots: 64,
        ..limits()
    };
    let state = &mut State::new(limits, 5, at(0), Vec::new());
    let mut made = Vec::new();
    for name in 0..16u8 {
        let exchanged = state.exchange_id(at(0), WHO, &exchange(&[name], 1, 0));
        let id = exchanged.unwrap().client_id;
        let mut args = create(id, 1);
        args.flags = create_session_flag::BACK_CHANNEL;
        args.callback_security = List(vec![CallbackSecurity::None]);
        args.fore.max_requests = 64;
        args.fore.max_response_cached = 8192;
        made.extend(state.create_session(at(0), WHO, arrival(name.into()), &args));
    }
    made.iter()
        .for_each(|made| state.knows_session(&made.session));
    let first = made[0];
    assert_eq!(first.fore.max_requests, 32);
    let recalls = |state: &mut State| {
        let sends = state.take_callbacks(at(0)).into_iter();
        let found = sends.filter_map(|send| match send.callback {
            Callback::RecallSlot { target } => Some((send.session, target)),
            _ => None,
        });
        Vec::from_iter(found)
    };
    let recalled = recalls(state);
    assert!(recalled.contains(&(first.session, 15)) && recalls(state).is_empty());
    let mut numbers = [0; 32];
    let mut ask = |state: &mut State, slot: u32, highest_slot: u32| {
        numbers[slot as usize] += 1;
        let args = SequenceArgs {
            highest_slot,
            ..sequence(first.session, slot, numbers[slot as usize], true)
        };
        match state.sequence(at(0), WHO, 1, &args, 100, 1)? {
            Sequenced::Execute(slot, ok) => {
                state.finish(at(0), &slot, Some(&[7; 1000]));
                Ok::<_, Status>((ok.highest_slot, ok.target_highest_slot))
            }
            replay => panic!("{replay:?}"),
        }
    };
    let kept = state.cached_bytes;
    // Who uses them all the same has them.
    for _ in 0..3 {
        assert_eq!(ask(state, 20, 31), Ok((31, 15)));
    }
    // The reply to this tells the client.
    assert_eq!(ask(state, 0, 0), Ok((31, 15)));
    assert_eq!(state.cached_bytes, kept);
    assert_eq!(ask(state, 0, 0), Ok((31, 15)));
    assert_eq!(state.cached_bytes, kept - 16 * 8192);
    // What it uses again is there as it was.
    assert_eq!(ask(state, 20, 20), Ok((31, 15)));
    assert_eq!(state.cached_bytes, kept - 11 * 8192);
    for (connection, made) in (0..).zip(&made).skip(1) {
        let destroyed = state.destroy_session(at(0), connection, &made.session);
        assert_eq!(destroyed, Ok(()));
    }
    state.tick(at(1));
    assert_eq!(ask(state, 0, 0), Ok((31, 31)));
}

/// A client that uses slots of one session, and hears each reply.
struct User {
    session: SessionId,
    numbers: [u32; 64],
}

impl User {
    fn new(state: &mut State, name: &[u8]) -> Self {
        let (_, session) = client(state, at(0), name);
        Self {
            session,
            numbers: [0; 64],
        }
    }

    /// Uses a slot, and no higher one. Returns the highest slot that there is, and the highest that it should use.
    fn uses(&mut self, state: &mut State, now: Nanos, slot: u32) -> (u32, u32) {
        let number = &mut self.numbers[slot as usize];
        *number += 1;
        let args = sequence(self.session, slot, *number, true);
        match state.sequence(now, WHO, 1, &args, 100, 1) {
            Ok(Sequenced::Execute(slot, ok)) => {
                state.finish(now, &slot, Some(&[7; 1000]));
                (ok.highest_slot, ok.target_highest_slot)
            }
            other => panic!("{other:?}"),
        }
    }

    /// Uses all the slots that it should, until it should use no more than before.
    fn fills(&mut self, state: &mut State, now: Nanos) -> (u32, u32) {
        let (mut highest, mut target) = self.uses(state, now, 0);
        loop {
            let before = target;
            for slot in (0..=before).chain([before]) {
                (highest, target) = self.uses(state, now, slot);
            }
            if target <= before {
                return (highest, target);
            }
        }
    }
}

#[test]
fn a_session_that_uses_all_of_its_slots_gets_more_up_to_a_bound() {
    let state = &mut machine();
    let mut quiet = User::new(state, b"quiet");
    let mut busy = User::new(state, b"busy");
    let kept = state.cached_bytes;
    for _ in 0..10 {
        for slot in 0..3 {
            assert_eq!(quiet.uses(state, at(0), slot), (3, 3));
        }
    }
    assert_eq!(busy.uses(state, at(0), 3), (3, 3));
    // It has heard the reply, and uses the last one again.
    assert_eq!(busy.uses(state, at(0), 3), (4, 4));
    assert_eq!(busy.uses(state, at(0), 3), (4, 4));
    let most = limits().slots_grown - 1;
    assert_eq!(busy.fills(state, at(0)), (most, most));
    assert_eq!(quiet.uses(state, at(0), 0), (3, 3));
    // What the new slots may keep counts.
    assert!(state.cached_bytes >= kept + 28 * 4096, "{kept}");
    let repetition = sequence(busy.session, most, busy.numbers[most as usize], true);
    let again = state.sequence(at(0), WHO, 1, &repetition, 100, 1);
    assert!(matches!(again, Ok(Sequenced::Replay(reply)) if reply[..] == [7; 1000]));
    let beyond = sequence(busy.session, most + 1, 1, true);
    let refused = state.sequence(at(0), WHO, 1, &beyond, 100, 1);
    assert!(matches!(refused, Err(Status::BadSlot)));
}

#[test]
fn slots_that_lie_idle_are_given_up_when_the_client_has_heard_that_it_should_use_fewer() {
    let state = &mut machine();
    let mut user = User::new(state, b"user");
    let (few, most) = (3, limits().slots_grown - 1);
    let kept = state.cached_bytes;
    assert_eq!(user.fills(state, at(0)), (most, most));
    let grown = state.cached_bytes;
    state.tick(at(30));
    assert_eq!(user.uses(state, at(30), 0), (most, most));
    // In the first minute it used them all.
    state.tick(at(60));
    assert_eq!(user.uses(state, at(60), 0), (most, most));
    state.tick(at(120));
    // It is told, and has heard it when it uses the slot again.
    assert_eq!(user.uses(state, at(120), 0), (most, 15));
    assert_eq!(state.cached_bytes, grown);
    assert_eq!(user.uses(state, at(120), 0), (most, 15));
    assert_eq!(state.cached_bytes, grown - 16 * 4096);
    for minute in 3..10 {
        state.tick(at(60 * minute));
        user.uses(state, at(60 * minute), 0);
        user.uses(state, at(60 * minute), 0);
    }
    assert_eq!(user.uses(state, at(600), 0), (most, few));
    // The slots themselves stay, for a client that uses them nevertheless.
    assert!((kept..kept + 8192).contains(&state.cached_bytes));
    assert_eq!(user.uses(state, at(600), most), (most, few));
    // What is used in full again grows again.
    assert_eq!(user.fills(state, at(600)), (most, most));
    let destroyed = state.destroy_session(at(600), 1, &user.session);
    assert_eq!((destroyed, state.cached_bytes), (Ok(()), 0));
    assert!(state.grown.is_empty());
}

#[test]
fn no_session_grows_when_half_of_what_slots_may_keep_is_taken() {
    let state = &mut machine();
    let mut users: Vec<_> = (0..16u8).map(|name| User::new(state, &[name])).collect();
    let each = users.iter_mut().map(|user| user.fills(state, at(0)));
    let targets: Vec<_> = each.map(|(_, target)| target).collect();
    let most = limits().slots_grown - 1;
    assert_eq!((targets[0], targets[15]), (most, 3), "{targets:?}");
    assert!(state.cached_bytes <= limits().all_cached_bytes / 2);
    assert!(state.cached_bytes > limits().all_cached_bytes / 4);
}
