//! How long a key is good.

use super::*;

#[test]
fn after_a_rekey_both_keys_are_good_for_the_grace() {
    let mut world = World::new(MacAlgorithm::Blake3);
    let reference = world.publish(1, 1, 4096);
    let id = world.session.id();
    assert_eq!(
        world.nic.rekey(id, 2, world.now),
        Err(RekeyRefused::Generation { current: 0 })
    );
    world.nic.rekey(id, 1, world.now).unwrap();
    assert_eq!(
        world.read(&reference),
        Ok(4096),
        "under way since before the rekey"
    );
    world.client.generation = 1;
    assert_eq!(world.read(&reference), Ok(4096));
    world.now = world.now + Nanos::from_secs(2);
    assert_eq!(world.read(&reference), Ok(4096));
    world.client.generation = 0;
    assert_eq!(world.read(&reference), Err(Exception::Revoked), "rotated");
    world.nic.rekey(id, 2, world.now).unwrap();
    assert_eq!(
        world.read(&reference),
        Err(Exception::Denied),
        "two generations old: forgotten"
    );
    world.client.generation = 2;
    assert_eq!(world.read(&reference), Ok(4096));
    world.session.close();
    assert_eq!(
        world.nic.rekey(id, 3, world.now),
        Err(RekeyRefused::NoSession)
    );
    assert_eq!(
        world.nic.rekey(SessionId(99), 3, world.now),
        Err(RekeyRefused::NoSession)
    );
}

#[test]
fn a_key_wears_out() {
    let new = NewSession {
        rekey_requests: 100,
        ..new_session(1, MacAlgorithm::Blake3)
    };
    let mut world = World::with(NicConfig::default(), new);
    let reference = world.publish(1, 1, 4096);
    let served = (0..1000)
        .take_while(|_| world.read(&reference).is_ok())
        .count();
    assert!(
        (200..330).contains(&served),
        "{served} requests under a key meant for 100"
    );
    assert_eq!(world.read(&reference), Err(Exception::Revoked));
    world.nic.rekey(world.session.id(), 1, world.now).unwrap();
    world.client.generation = 1;
    assert_eq!(world.read(&reference), Ok(4096));
}

#[test]
fn a_key_wears_out_over_many_short_connections() {
    let new = NewSession {
        rekey_requests: 100,
        ..new_session(1, MacAlgorithm::Blake3)
    };
    let mut world = World::with(NicConfig::default(), new);
    let reference = world.publish(1, 1, 4096);
    let mut served = 0;
    for number in 10..40 {
        world.connection = Connection::new(number, NONCE);
        (world.client.connection, world.client.sequence) = (number, 0);
        let attached = attach(&world.nic, &mut world.connection, &world.client, false);
        assert!(
            attached.result.is_ok(),
            "a connection may be made, to renew the key"
        );
        served += (0..50)
            .take_while(|_| world.read(&reference).is_ok())
            .count();
    }
    assert!(
        (200..330).contains(&served),
        "{served} requests under a key meant for 100"
    );
}
