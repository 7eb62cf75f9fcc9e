//! Direct connections.

use odafs_common::direct::{Completion as Header, Request};
use odafs_common::exception::Exception;
use odafs_common::reference::{AccessKey, Handle};
use odafs_fabric::{Completion, Remote, SteeringTag};

use super::wire::{SINK_BYTES, Shared};
use super::world::World;
use crate::engine::*;

fn results(wire: &Shared) -> Vec<(u64, Result<u32, Exception>)> {
    let messages = std::mem::take(&mut wire.lock().to_client);
    let parse = |message: &Vec<u8>| {
        Header::parse(message)
            .map(|(header, _)| (header.sequence, header.result))
            .unwrap()
    };
    messages.iter().map(parse).collect()
}

#[test]
fn direct_reads_inline_and_into_the_sink() {
    let mut world = World::new(EngineConfig::default());
    let (wire, number) = world.attached();
    let inline = world.request(number, 1, None);
    world.send(&wire, inline);
    let sunk = world.request(number, 3, Some(500));
    world.send(&wire, sunk);
    world.rounds();
    let wire = wire.lock();
    let (header, data) = Header::parse(&wire.to_client[0]).unwrap();
    assert_eq!((header.result, data), (Ok(100), &[2; 100][..]));
    let (header, data) = Header::parse(&wire.to_client[1]).unwrap();
    assert_eq!(
        (header.result, header.inline, data.len()),
        (Ok(100), false, 0)
    );
    assert_eq!(
        wire.written,
        [(
            Remote {
                tag: SteeringTag(3),
                offset: 500
            },
            100
        )]
    );
    assert_eq!(world.pinned(), 0);
    assert_eq!(
        wire.receives, world.engine.config.receives,
        "each receive was posted again"
    );
}

#[test]
fn a_slow_write_holds_its_pin_until_it_completes() {
    let mut world = World::new(EngineConfig::default());
    let (wire, number) = world.attached();
    wire.lock().slow_writes = true;
    for frame in [1, 2] {
        let request = world.request(number, frame, Some(0));
        world.send(&wire, request);
    }
    world.rounds();
    assert_eq!(
        results(&wire).len(),
        2,
        "completions follow the writes at once: the fabric keeps the order"
    );
    assert_eq!(world.pinned(), 2);
    let complete = |wire: &Shared| {
        let mut wire = wire.lock();
        let id = wire.pending.pop_front().unwrap();
        wire.completions
            .push_back(Completion::Write { id, result: Ok(()) });
    };
    complete(&wire);
    world.rounds();
    assert_eq!(world.pinned(), 1);
    complete(&wire);
    world.rounds();
    assert_eq!(world.pinned(), 0);
}

#[test]
fn what_finds_no_room_waits_in_order() {
    let config = EngineConfig {
        receives: 8,
        ..EngineConfig::default()
    };
    let mut world = World::new(config);
    let (wire, number) = world.attached();
    wire.lock().room = 3;
    for n in 0..20 {
        let sink = (n % 2 == 0).then_some(n);
        let request = world.request(number, 1, sink);
        world.send(&wire, request);
    }
    world.rounds();
    assert_eq!(
        wire.lock().to_server.len(),
        20 - 8 - 2,
        "the rest stays with the peer"
    );
    assert!(
        world.engine.look_again().is_some(),
        "a blocked engine does not sleep for long"
    );
    for _ in 0..40 {
        wire.lock().room += 1;
        world.rounds();
    }
    let expected: Vec<_> = (1..=20).map(|sequence| (sequence, Ok(100))).collect();
    assert_eq!(results(&wire), expected);
    assert_eq!(world.pinned(), 0);
    assert_eq!(world.nic.counters().snapshot().reads, 20);
}

#[test]
fn a_sink_that_is_not_there_is_out_of_bounds() {
    let mut world = World::new(EngineConfig::default());
    let (wire, number) = world.attached();
    let request = world.request(number, 1, Some(SINK_BYTES));
    world.send(&wire, request);
    let good = world.request(number, 1, Some(0));
    world.send(&wire, good);
    world.rounds();
    assert_eq!(
        results(&wire),
        [(1, Err(Exception::OutOfBounds)), (2, Ok(100))]
    );
    assert_eq!(world.pinned(), 0);
}

#[test]
fn exceptions_leave_the_connection_open() {
    let mut world = World::new(EngineConfig::default());
    let (wire, number) = world.attached();
    let good = world.request(number, 1, None);
    let cases = [
        (
            Request {
                connection: number + 1,
                ..good
            },
            Exception::Denied,
        ),
        (
            Request {
                key: AccessKey(8),
                ..good
            },
            Exception::Stale,
        ),
        (
            Request {
                sequence: 2,
                handle: Handle(9),
                ..good
            },
            Exception::NotResident,
        ),
        (
            Request {
                sequence: 3,
                length: 5000,
                ..good
            },
            Exception::OutOfBounds,
        ),
        (
            Request {
                sequence: 3,
                ..good
            },
            Exception::Replayed,
        ),
    ];
    for (request, exception) in cases {
        world.send(&wire, request);
        world.rounds();
        assert_eq!(results(&wire), [(request.sequence, Err(exception))]);
    }
    world
        .nic
        .close_session(crate::capability::SessionId(world.session));
    world.send(
        &wire,
        Request {
            sequence: 4,
            ..good
        },
    );
    world.rounds();
    assert_eq!(results(&wire), [(4, Err(Exception::Revoked))]);
    assert_eq!(world.engine.connections(), 1);
}

#[test]
fn a_dead_connection_leaves_no_pin() {
    let mut world = World::new(EngineConfig::default());
    let (wire, number) = world.attached();
    wire.lock().slow_writes = true;
    wire.lock().room = 3;
    for frame in 0..3 {
        let request = world.request(number, frame, Some(0));
        world.send(&wire, request);
    }
    world.rounds();
    assert!(world.pinned() > 1, "some are on their way, some wait");
    wire.lock().closed = true;
    world.rounds();
    assert_eq!((world.pinned(), world.engine.connections()), (0, 0));
    let (_, next) = world.attached();
    assert_ne!(next, number, "numbers are not used again");
}
