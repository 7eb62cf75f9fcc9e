//! Which connections are admitted, and which are ended.

use odafs_common::connect::Role;
use odafs_fabric::sync::thread;

use super::world::World;
use crate::engine::*;

#[test]
fn who_does_not_attach_is_shown_out() {
    let config = EngineConfig {
        attach_time_max: Nanos(1),
        ..EngineConfig::default()
    };
    let mut world = World::new(config);
    world.connect(Role::Direct);
    world.connect(Role::Rpc);
    while world.engine.connections() > 1 {
        world.engine.poll_once();
    }
}

#[test]
fn who_takes_no_answers_is_closed() {
    let config = EngineConfig {
        pinned_time_max: Nanos::from_millis(1),
        ..EngineConfig::default()
    };
    let mut world = World::new(config);
    let (direct, number) = world.attached();
    let rpc = world.connect(Role::Rpc);
    direct.lock().room = 0;
    rpc.lock().room = 0;
    let request = world.request(number, 1, None);
    world.send(&direct, request);
    rpc.lock().to_server.push_back(b"write".into());
    world.rounds();
    assert_eq!(world.pinned(), 2);
    while world.engine.connections() > 0 {
        world.engine.poll_once();
    }
    assert_eq!(world.pinned(), 0);
}

#[test]
fn strangers_and_crowds_are_rejected() {
    let mut world = World::new(EngineConfig {
        connections_max: 1,
        ..EngineConfig::default()
    });
    let stranger = world.connect_with(b"some other protocol");
    assert!(stranger.lock().rejected.is_some());
    world.connect(Role::Rpc);
    let crowd = world.connect(Role::Rpc);
    assert!(crowd.lock().rejected.is_some());
    assert_eq!(world.engine.connections(), 1);

    let mut world = World::new(EngineConfig::default());
    world.engine.serves.nic = None;
    let direct = world.connect(Role::Direct);
    assert_eq!(
        direct.lock().rejected.as_deref(),
        Some("direct access is off")
    );
}

#[test]
fn stopping_ends_what_is_under_way() {
    let mut world = World::new(EngineConfig::default());
    *world.hands.held.lock() = Some(Vec::new());
    let wire = world.connect(Role::Rpc);
    wire.lock().to_server.push_back(b"deferred".into());
    world.rounds();
    let stopper = world.engine.stopper();
    let World {
        mut engine,
        hands,
        arena: _arena,
        ..
    } = world;
    let run = thread::spawn(move || {
        engine.run();
        engine.connections()
    });
    stopper.stop();
    let held = hands.held.lock().take().unwrap();
    held.into_iter().for_each(|task| task());
    assert_eq!(run.join().unwrap(), 0);
    assert_eq!(wire.lock().to_client, [b"deferred".to_vec()]);
}
