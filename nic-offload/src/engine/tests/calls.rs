//! Connections that carry calls.

use odafs_common::connect::Role;
use odafs_fabric::sync::atomic::Ordering;
use odafs_fabric::{Completion, Fault};

use super::world::World;
use crate::engine::*;

#[test]
fn calls() {
    let mut world = World::new(EngineConfig::default());
    let wire = world.connect(Role::Rpc);
    for message in ["echo", "x no answer", "deferred", "panic", "more"] {
        wire.lock().to_server.push_back(message.into());
    }
    world.rounds();
    let mut replies = std::mem::take(&mut wire.lock().to_client);
    replies.sort();
    assert_eq!(
        replies,
        [b"deferred".to_vec(), b"echo".to_vec(), b"more".to_vec()]
    );
    assert_eq!(wire.lock().receives, world.engine.config.receives);
    wire.lock().closed = true;
    world.rounds();
    assert_eq!(world.echo.gone.lock().len(), 1);
}

#[test]
fn frames_go_out_ahead_of_the_reply() {
    let mut world = World::new(EngineConfig::default());
    let wire = world.connect(Role::Rpc);
    wire.lock().slow_writes = true;
    wire.lock().room = 1;
    wire.lock().to_server.push_back(b"write".into());
    world.rounds();
    assert_eq!(
        wire.lock().written.len(),
        1,
        "the copy went, the frame waits"
    );
    assert_eq!(world.pinned(), 1);
    wire.lock().room = 1000;
    world.rounds();
    assert_eq!(wire.lock().written.len(), 2);
    assert_eq!(
        std::mem::take(&mut wire.lock().to_client),
        [b"write".to_vec()]
    );
    assert_eq!(world.pinned(), 1, "until the write has completed");
    let completions = std::mem::take(&mut wire.lock().pending);
    for id in completions {
        wire.lock()
            .completions
            .push_back(Completion::Write { id, result: Ok(()) });
    }
    world.rounds();
    assert_eq!(world.pinned(), 0);
    assert_eq!(world.engine.connections(), 1);
}

#[test]
fn a_chunk_that_is_not_there_or_fails_closes_the_connection() {
    let mut world = World::new(EngineConfig::default());
    let wire = world.connect(Role::Rpc);
    wire.lock().to_server.push_back(b"bad chunk".into());
    world.rounds();
    assert_eq!((world.pinned(), world.engine.connections()), (0, 0));
    assert!(wire.lock().to_client.is_empty());

    let wire = world.connect(Role::Rpc);
    wire.lock().slow_writes = true;
    wire.lock().to_server.push_back(b"write".into());
    world.rounds();
    let failed = Completion::Write {
        id: 0,
        result: Err(Fault::RemoteAccess),
    };
    wire.lock().completions.push_back(failed);
    world.rounds();
    assert_eq!((world.pinned(), world.engine.connections()), (0, 0));
}

#[test]
fn a_connection_waits_for_workers_without_room() {
    let mut world = World::new(EngineConfig::default());
    world.hands.full.store(true, Ordering::Relaxed);
    let (first, second) = (world.connect(Role::Rpc), world.connect(Role::Rpc));
    let other = world.connect(Role::Rpc);
    for call in ["deferred 1", "deferred 2", "echo"] {
        first.lock().to_server.push_back(call.into());
    }
    second.lock().to_server.push_back(b"deferred 3".into());
    other.lock().to_server.push_back(b"echo".into());
    world.rounds();
    assert_eq!(
        first.lock().to_server.len(),
        2,
        "the rest stays with the peer"
    );
    assert_eq!(other.lock().to_client, [b"echo".to_vec()]);
    assert!(first.lock().to_client.is_empty() && second.lock().to_client.is_empty());
    world.hands.full.store(false, Ordering::Relaxed);
    world.rounds();
    let mut answers = first.lock().to_client.clone();
    answers.sort();
    assert_eq!(answers, [&b"deferred 1"[..], b"deferred 2", b"echo"]);
    assert_eq!(second.lock().to_client, [b"deferred 3".to_vec()]);
    assert_eq!(world.engine.connections(), 3);
}

#[test]
fn deferred_calls_are_bounded() {
    let mut world = World::new(EngineConfig {
        deferred_max: 2,
        ..EngineConfig::default()
    });
    *world.hands.held.lock() = Some(Vec::new());
    let wire = world.connect(Role::Rpc);
    for _ in 0..5 {
        wire.lock().to_server.push_back(b"deferred".into());
    }
    world.rounds();
    let held = world.hands.held.lock().take().unwrap();
    assert_eq!(
        (held.len(), wire.lock().to_server.len()),
        (2, 3),
        "the rest stays with the peer"
    );
    held.into_iter().for_each(|task| task());
    world.rounds();
    assert_eq!(wire.lock().to_client.len(), 5);
}

/// A call that goes on later keeps what it has pinned, so others wait as if its answer waited.
#[test]
fn what_deferred_calls_keep_pinned_is_bounded() {
    let mut world = World::new(EngineConfig {
        pins_max: 2,
        ..EngineConfig::default()
    });
    *world.hands.held.lock() = Some(Vec::new());
    let (wire, other) = (world.connect(Role::Rpc), world.connect(Role::Rpc));
    for _ in 0..5 {
        wire.lock().to_server.push_back(b"keep".into());
    }
    other.lock().to_server.push_back(b"keep".into());
    world.rounds();
    let mut held = world.hands.held.lock().replace(Vec::new()).unwrap();
    assert_eq!(
        (held.len(), wire.lock().to_server.len()),
        (3, 3),
        "the rest stays with the peer"
    );
    // One that is over makes room for one, also if its job is lost.
    drop(held.remove(0));
    world.rounds();
    assert_eq!(wire.lock().to_server.len(), 2);
    held.extend(world.hands.held.lock().take().unwrap());
    held.into_iter().for_each(|task| task());
    world.rounds();
    assert_eq!((wire.lock().to_client.len(), world.pinned()), (4, 0));
}

#[test]
fn an_answer_for_a_connection_that_is_gone_goes_nowhere() {
    let mut world = World::new(EngineConfig::default());
    *world.hands.held.lock() = Some(Vec::new());
    let wire = world.connect(Role::Rpc);
    wire.lock().to_server.push_back(b"deferred".into());
    world.rounds();
    assert!(!world.echo.notes.lock().is_closed());
    wire.lock().closed = true;
    world.rounds();
    assert!(
        world.echo.notes.lock().is_closed(),
        "what is under way can tell"
    );
    let next = world.connect(Role::Rpc);
    let held = world.hands.held.lock().take().unwrap();
    held.into_iter().for_each(|task| task());
    world.rounds();
    assert!(
        next.lock().to_client.is_empty(),
        "the next tenant of the place gets it"
    );
}
