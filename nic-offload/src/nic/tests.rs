//! Requests of a client and what becomes of them.

mod keys;
mod world;

use odafs_common::direct::Feedback;
use odafs_common::reference::{AccessKey, Epoch, Reference};
use odafs_common::session::SessionKey;
use odafs_fabric::memory::FrameNumber;

use super::*;
use world::*;

#[test]
fn a_good_read_is_let_in() {
    for mac in [MacAlgorithm::HmacSha256, MacAlgorithm::Blake3] {
        let mut world = World::new(mac);
        let feedback = Feedback {
            evictions_per_second: 1,
            hit_permille: 900,
            settled_seconds: 3,
        };
        world.nic.set_feedback(feedback.pack());
        let reference = world.publish(3, 0x33, 4096);
        let request = Request {
            address: reference.address + 100,
            length: 50,
            ..world.client.request(&reference)
        };
        let Verdict::Read(transfer) = world.receive(&world.client.seal(&request)) else {
            panic!("refused")
        };
        assert_eq!(
            (transfer.frame.frame(), transfer.offset, transfer.length),
            (FrameNumber(3), 100, 50)
        );
        assert_eq!(
            (transfer.answer, transfer.sequence),
            (DataTarget::Inline, 1)
        );
        assert!(world.arena.is_pinned(FrameNumber(3)));
        let answer = [world.nic.complete(&transfer).as_slice(), &[0x33; 50]].concat();
        let (completion, data) = Completion::parse(&answer).unwrap();
        assert_eq!((completion.result, data), (Ok(50), &[0x33; 50][..]));
        assert_eq!(Feedback::unpack(completion.feedback), feedback);
        world.arena.take_referenced(FrameNumber(3));
        world.nic.finish(transfer);
        assert!(!world.arena.is_pinned(FrameNumber(3)));
        assert!(
            world.arena.take_referenced(FrameNumber(3)),
            "pageout hears of the read"
        );
        let counts = world.nic.counters().snapshot();
        assert_eq!((counts.reads, counts.bytes, counts.faults), (1, 50, 1));
        assert_eq!(world.read(&reference), Ok(4096));
        assert_eq!(
            world.nic.counters().snapshot().faults,
            1,
            "the TPT was refilled"
        );
    }
}

#[test]
fn a_sink_is_passed_on() {
    let mut world = World::new(MacAlgorithm::Blake3);
    let reference = world.publish(1, 1, 4096);
    let request = Request {
        inline: false,
        sink_tag: 5,
        sink_offset: 6,
        ..world.client.request(&reference)
    };
    let Verdict::Read(transfer) = world.receive(&world.client.seal(&request)) else {
        panic!("refused")
    };
    assert_eq!(
        transfer.answer,
        DataTarget::Sink(Remote {
            tag: SteeringTag(5),
            offset: 6
        })
    );
    drop(transfer);
    assert_eq!(world.nic.counters().snapshot().reads, 0);
}

#[test]
fn not_resident() {
    let mut world = World::new(MacAlgorithm::Blake3);
    let reference = world.publish(1, 1, 4096);
    assert_eq!(world.read(&reference), Ok(4096));
    world.arena.unpublish(FrameNumber(1));
    world.nic.tpt_remove(Handle(1));
    world.pages.lock().clear();
    assert_eq!(world.read(&reference), Err(Exception::NotResident));
    let counts = world.nic.counters().snapshot();
    assert_eq!(counts.refused(Exception::NotResident), 1);
}

#[test]
fn stale_by_content_key_or_epoch() {
    let mut world = World::new(MacAlgorithm::Blake3);
    let old = world.publish(1, 1, 4096);
    let current = world.arena.current_epoch();
    for wrong in [
        Reference {
            key: AccessKey(old.key.0 ^ 1),
            ..old
        },
        Reference {
            epoch: Epoch(current.0 + 1),
            ..old
        },
        Reference {
            epoch: Epoch(u64::MAX),
            ..old
        },
        Reference {
            epoch: Epoch(0),
            ..old
        },
    ] {
        assert_eq!(world.read(&wrong), Err(Exception::Stale));
    }
    assert_eq!(world.read(&old), Ok(4096));
    world.arena.revoke(FrameNumber(1));
    assert_eq!(world.read(&old), Err(Exception::Stale));
    let new = world.publish(1, 2, 4096);
    assert_eq!(world.read(&old), Err(Exception::Stale));
    assert_eq!(
        world.read(&new),
        Ok(4096),
        "the TPT's older entry is refilled"
    );
    assert_eq!(
        world.read(&Reference {
            key: new.key,
            ..old
        }),
        Err(Exception::Stale),
        "an epoch of before"
    );
}

#[test]
fn an_unpublished_frame_is_never_pinned() {
    let mut world = World::new(MacAlgorithm::Blake3);
    let reference = world.publish(1, 1, 4096);
    world.arena.unpublish(FrameNumber(1));
    assert_eq!(world.read(&reference), Err(Exception::Stale));
}

#[test]
fn revoked_by_close_or_expiry() {
    let mut world = World::new(MacAlgorithm::Blake3);
    let reference = world.publish(1, 1, 4096);
    assert_eq!(world.read(&reference), Ok(4096));
    assert!(world.nic.close_session(world.session.id()));
    assert!(!world.nic.close_session(world.session.id()));
    assert_eq!(world.read(&reference), Err(Exception::Revoked));
    assert_eq!(world.nic.session_count(), 0);

    let mut world = World::new(MacAlgorithm::Blake3);
    let reference = world.publish(1, 1, 4096);
    for second in [600, 1199, 1200, 3600] {
        world.now = Nanos::from_secs(second);
        let expected = if second < 1200 {
            Ok(4096)
        } else {
            Err(Exception::Revoked)
        };
        assert_eq!(
            world.read(&reference),
            expected,
            "after {second} s under one key"
        );
    }
}

#[test]
fn busy_at_the_cap_of_pins() {
    let config = NicConfig {
        pins_max: 2,
        ..NicConfig::default()
    };
    let mut world = World::with(config, new_session(1, MacAlgorithm::Blake3));
    let reference = world.publish(1, 1, 4096);
    let mut held = Vec::new();
    for _ in 0..2 {
        let request = world.client.request(&reference);
        let message = world.client.seal(&request);
        let Verdict::Read(transfer) = world.receive(&message) else {
            panic!("refused")
        };
        held.push(transfer);
        world.connection.set_pins(held.len());
    }
    let request = world.client.request(&reference);
    let message = world.client.seal(&request);
    let Verdict::Refused(answer) = world.receive(&message) else {
        panic!("let in")
    };
    assert_eq!(completion_of(&answer).result, Err(Exception::Busy));
    held.into_iter()
        .for_each(|transfer| world.nic.finish(transfer));
    world.connection.set_pins(0);
    assert_eq!(world.read(&reference), Ok(4096));
}

#[test]
fn denied_before_anything_is_looked_up() {
    let mut world = World::new(MacAlgorithm::Blake3);
    let reference = world.publish(1, 1, 4096);
    let good = world.client.request(&reference);
    let sealed = world.client.seal(&good);
    let stranger = SessionKey::from_bytes([9; 32]).mac_key(MacAlgorithm::Blake3, 0);
    let own = world.client.key.mac_key(MacAlgorithm::Blake3, 0);
    let hmac = world.client.key.mac_key(MacAlgorithm::HmacSha256, 0);
    let mut messages: Vec<Vec<u8>> = vec![
        good.seal(&stranger).to_vec(),
        Request {
            session: 77,
            ..good
        }
        .seal(&own)
        .to_vec(),
        Request {
            connection: 8,
            ..good
        }
        .seal(&own)
        .to_vec(),
        Request {
            mac: MacAlgorithm::HmacSha256,
            ..good
        }
        .seal(&hmac)
        .to_vec(),
        Request {
            odd_generation: true,
            ..good
        }
        .seal(&own)
        .to_vec(),
        sealed[..79].to_vec(),
        vec![],
        vec![1],
    ];
    messages.extend((0..Request::BYTES).map(|at| {
        let mut forged = sealed;
        forged[at] ^= 0x10;
        forged.to_vec()
    }));
    for message in messages {
        assert_eq!(world.judge(&message), Err(Exception::Denied));
        world.now = world.now + MINUTE;
        world.connection.denials_forgotten();
    }
    assert_eq!(
        world.nic.counters().snapshot().faults,
        0,
        "the host was asked about a page"
    );
    world.now = MINUTE;
    assert_eq!(
        world.judge(&sealed),
        Ok(4096),
        "no forgery moved the window"
    );
}

#[test]
fn denied_without_the_right_or_an_attachment() {
    let mut world = World::new(MacAlgorithm::Blake3);
    let reference = world.publish(1, 1, 4096);
    world.pages.lock().get_mut(&1).unwrap().class = ReaderClass(71);
    assert_eq!(world.read(&reference), Err(Exception::Denied));
    assert!(world.nic.admit(world.session.id(), ReaderClass(71)));
    assert_eq!(world.read(&reference), Ok(4096));
    world.nic.tpt_protect(Handle(1), ReaderClass(72));
    assert_eq!(world.read(&reference), Err(Exception::Denied));
    assert!(
        !world
            .nic
            .admit(world.session.id(), ReaderClass(ReaderClass::COUNT_MAX))
    );
    assert!(!world.nic.admit(SessionId(99), CLASS));

    world.connection = Connection::new(9, NONCE);
    assert_eq!(
        world.read(&reference),
        Err(Exception::Denied),
        "not attached"
    );
}

#[test]
fn a_stolen_reference_is_worth_nothing() {
    let mut world = World::new(MacAlgorithm::Blake3);
    let reference = world.publish(1, 1, 4096);
    let thief = world
        .nic
        .open_session(new_session(2, MacAlgorithm::Blake3))
        .unwrap();
    let key = SessionKey::from_bytes([2; 32]);
    world.client = Client {
        key,
        mac: MacAlgorithm::Blake3,
        generation: 0,
        session: thief.id().0,
        connection: 9,
        sequence: 0,
    };
    world.connection = Connection::new(9, NONCE);
    assert!(
        attach(&world.nic, &mut world.connection, &world.client, false)
            .result
            .is_ok()
    );
    assert_eq!(world.read(&reference), Err(Exception::Denied));
}

#[test]
fn replayed() {
    let mut world = World::new(MacAlgorithm::HmacSha256);
    let reference = world.publish(1, 1, 4096);
    let requests: Vec<Request> = (0..3).map(|_| world.client.request(&reference)).collect();
    for request in requests.iter().rev() {
        assert_eq!(world.send(request), Ok(4096), "out of order is fine");
    }
    for request in &requests {
        assert_eq!(world.send(request), Err(Exception::Replayed));
    }
    let zero = Request {
        sequence: 0,
        ..requests[0]
    };
    assert_eq!(world.send(&zero), Err(Exception::Replayed));
    world.client.sequence = 5000;
    assert_eq!(world.read(&reference), Ok(4096));
    let old = Request {
        sequence: 5001 - 1024,
        ..requests[0]
    };
    assert_eq!(
        world.send(&old),
        Err(Exception::Replayed),
        "too old to tell"
    );
    let late = Request {
        sequence: 5001 - 1023,
        ..requests[0]
    };
    assert_eq!(world.send(&late), Ok(4096));
}

#[test]
fn out_of_bounds() {
    let mut world = World::new(MacAlgorithm::Blake3);
    let reference = world.publish(2, 1, 1000);
    let start = reference.address;
    for (address, length) in [
        (start, 1001),
        (start + 999, 2),
        (start + 1000, 1),
        (start - 1, 1),
        (start, 0),
        (start, u32::MAX),
        (u64::MAX, 1),
        (u64::MAX, u32::MAX),
        (0, 1),
    ] {
        let request = Request {
            address,
            length,
            ..world.client.request(&reference)
        };
        assert_eq!(
            world.send(&request),
            Err(Exception::OutOfBounds),
            "{length} bytes at {address}"
        );
    }
    let request = Request {
        address: start + 999,
        length: 1,
        ..world.client.request(&reference)
    };
    assert_eq!(world.send(&request), Ok(1));
}

#[test]
fn who_is_denied_too_often_is_not_worth_a_mac() {
    let mut world = World::new(MacAlgorithm::Blake3);
    let reference = world.publish(1, 1, 4096);
    for _ in 0..8 {
        assert_eq!(
            world.judge(b"\x01\x01 no request at all"),
            Err(Exception::Denied)
        );
    }
    let request = world.client.request(&reference);
    assert_eq!(world.send(&request), Err(Exception::Denied), "unread");
    assert_eq!(world.nic.counters().snapshot().throttled, 1);
    let attached = attach(&world.nic, &mut world.connection, &world.client, false);
    assert_eq!(
        attached.result,
        Err(Exception::Denied),
        "an attach gets an answer of its kind"
    );
    world.now = world.now + Nanos::from_millis(1);
    assert_eq!(
        world.send(&request),
        Ok(4096),
        "the pause is over, and the number was not used up"
    );
    assert_eq!(world.judge(b"x"), Err(Exception::Denied));
    assert_eq!(
        world.read(&reference),
        Err(Exception::Denied),
        "one more is enough for the next pause"
    );
}

#[test]
fn attaching() {
    let mut world = World::new(MacAlgorithm::Blake3);
    let again = attach(&world.nic, &mut world.connection, &world.client, false);
    assert_eq!(
        again.result,
        Err(Exception::Denied),
        "a second attach would reset the window"
    );

    let mut connection = Connection::new(10, NONCE);
    let attach_as = |client: &Client, connection: &mut Connection, nonce: &Nonce| {
        let message = Attach {
            session: client.session,
            nonce: [4; 16],
            one_sided: false,
        }
        .seal(&client.key.attach_key(), nonce);
        matches!(
            world.nic.receive(connection, &message, MINUTE),
            Verdict::Attach(_)
        )
    };
    assert!(
        !attach_as(&world.client, &mut connection, &[5; 16]),
        "made for another connection"
    );
    world.client.session += 1;
    assert!(
        !attach_as(&world.client, &mut connection, &NONCE),
        "no such session"
    );
    world.client.session -= 1;
    let own = std::mem::replace(&mut world.client.key, SessionKey::from_bytes([8; 32]));
    assert!(
        !attach_as(&world.client, &mut connection, &NONCE),
        "another key"
    );
    world.client.key = own;
    let grant = attach(&world.nic, &mut connection, &world.client, true)
        .result
        .unwrap();
    assert_eq!(
        grant,
        Grant {
            connection: 10,
            one_sided: None
        },
        "one-sided was not granted to the session"
    );

    let trusted = NewSession {
        one_sided: true,
        ..new_session(7, MacAlgorithm::Blake3)
    };
    let over = trusted.expires;
    world.client.session = world.nic.open_session(trusted).unwrap().id().0;
    world.client.key = SessionKey::from_bytes([7; 32]);
    let mut connection = Connection::new(11, NONCE);
    let late = attach_at(&world.nic, &mut connection, &world.client, true, over);
    assert_eq!(late.result, Err(Exception::Denied), "the session is over");
    let mut connection = Connection::new(11, NONCE);
    let grant = attach(&world.nic, &mut connection, &world.client, true)
        .result
        .unwrap();
    assert_eq!(grant.one_sided, Some(EXPOSED));
    let mut connection = Connection::new(12, NONCE);
    let grant = attach(&world.nic, &mut connection, &world.client, false)
        .result
        .unwrap();
    assert_eq!(grant.one_sided, None, "not asked for");
}

#[test]
fn sessions_are_bounded_and_the_unused_make_room() {
    let config = NicConfig {
        sessions_max: 2,
        ..NicConfig::default()
    };
    let mut world = World::with(config, new_session(1, MacAlgorithm::Blake3));
    let short = NewSession {
        expires: Nanos(10),
        ..new_session(2, MacAlgorithm::Blake3)
    };
    world.nic.open_session(short).unwrap();
    let more = |second| NewSession {
        now: Nanos::from_secs(second),
        ..new_session(3, MacAlgorithm::Blake3)
    };
    assert_eq!(
        world.nic.open_session(more(0)).unwrap_err(),
        TooManySessions(2)
    );
    let young = world.nic.open_session(more(50)).unwrap();
    assert_eq!(
        world.nic.open_session(more(60)).unwrap_err(),
        TooManySessions(2),
        "one is attached, one young"
    );
    world.nic.open_session(more(111)).unwrap();
    assert!(!young.is_open(MINUTE), "it was never used");
    let reference = world.publish(1, 1, 4096);
    assert_eq!(
        world.read(&reference),
        Ok(4096),
        "the one that is used stays"
    );
    assert_eq!(world.nic.session_count(), 2);
    world.connection = Connection::new(10, NONCE);
    world.nic.open_session(more(200)).unwrap();
    assert!(!world.session.is_open(MINUTE), "its connection is gone");
}
