//! Delegations beside changes.

use odafs_fabric::sync::atomic::{AtomicBool, Ordering};

use super::*;
use crate::vfs::Status;
use crate::vfs::promises::changing_for;
use crate::vfs::testing::{World, owner};
use crate::vfs::write::{Stable, write};

const SESSION: u32 = 5;
const OTHER: u32 = 6;

fn given(world: &World) -> Arc<Delegations> {
    let record = GivenRecord::new(false, || Ok(()));
    Delegations::new(Arc::clone(&world.export), Some(record))
}

/// Delegates the file for longer than any test takes.
fn grant(delegations: &Delegations, session: u32, file: &Arc<File>) -> u64 {
    let later = clock::now() + Nanos::from_secs(3600);
    let granted = delegations.grant(later, session, file);
    granted.expect("granted")
}

/// Tries to write as one who comes again by himself.
fn try_write(world: &World, file: &Arc<File>) -> Result<(), Status> {
    let _acting = changing_for(Party::Returning(None));
    let written = write(
        &world.export,
        &owner(),
        file,
        0,
        &b"new"[..],
        Stable::Unstable,
    );
    written.map(drop).map_err(|refused| refused.error.status)
}

#[test]
fn a_change_waits_until_the_delegation_is_given_back() {
    let world = World::new(64);
    let delegations = given(&world);
    let file = world.file("a", b"old");
    let first = grant(&delegations, SESSION, &file);
    let second = grant(&delegations, OTHER, &file);
    let now = clock::now();
    assert_eq!(try_write(&world, &file), Err(Status::Jukebox));
    // Nobody gets another one, and nobody gives back what is not his.
    assert_eq!(
        delegations.grant(now, SESSION, &file),
        Err(Refused::Contention)
    );
    delegations.give_back(SESSION, &[first, second]);
    assert_eq!(try_write(&world, &file), Err(Status::Jukebox));
    delegations.give_back(OTHER, &[second]);
    assert_eq!(try_write(&world, &file), Ok(()));
    assert_eq!(
        delegations.counts(),
        Counts {
            held: 0,
            granted: 2,
            recalled: 2,
            lapsed: 0
        }
    );
    // It cools down.
    assert_eq!(
        delegations.grant(now, SESSION, &file),
        Err(Refused::Contention)
    );
    let later = clock::now() + COOLING;
    assert!(delegations.grant(later, SESSION, &file).is_ok());
}

#[test]
fn a_silent_client_delays_a_change_for_no_more_than_its_lease() {
    let world = World::new(64);
    let delegations = given(&world);
    let file = world.file("a", b"old");
    let granted = clock::now();
    delegations.grant(granted, SESSION, &file).expect("granted");
    // A stranger waits, and nobody gives anything back.
    world.write(&file, 0, &b"new"[..]);
    assert!(clock::now() >= granted + LEASE);
    assert_eq!(world.read(&file, 0, 3), b"new");
    let counts = delegations.counts();
    assert_eq!((counts.held, counts.lapsed), (0, 1));
}

#[test]
fn a_lease_that_nobody_renews_is_forgotten() {
    let world = World::new(64);
    let delegations = given(&world);
    let file = world.file("a", b"old");
    let now = clock::now();
    delegations.grant(now, SESSION, &file).expect("granted");
    delegations.tick(now + LEASE);
    let table = delegations.table.lock();
    assert!(table.all.is_empty() && table.files.is_empty() && table.sessions.is_empty());
    assert!(table.ends.is_empty());
    drop(table);
    assert_eq!(delegations.counts().lapsed, 0);
    assert_eq!(try_write(&world, &file), Ok(()));
}

#[test]
fn who_ends_a_session_gives_back_what_it_has() {
    let world = World::new(64);
    let delegations = given(&world);
    let files = [world.file("a", b"old"), world.file("b", b"old")];
    for file in &files {
        grant(&delegations, SESSION, file);
    }
    delegations.end_session(OTHER);
    assert_eq!(delegations.counts().held, 2);
    delegations.end_session(SESSION);
    assert_eq!(delegations.counts().held, 0);
    for file in &files {
        assert_eq!(try_write(&world, file), Ok(()));
    }
}

#[test]
fn none_is_given_beside_a_change_or_a_write_delegation() {
    let world = World::new(64);
    let delegations = given(&world);
    let file = world.file("a", b"old");
    let promises = world.export.promises();
    let now = clock::now();
    let changing = promises.ask(file.object()).expect("nothing is promised");
    assert_eq!(
        delegations.grant(now, SESSION, &file),
        Err(Refused::Contention)
    );
    drop(changing);
    assert!(promises.leave_to(&file, 7));
    assert_eq!(
        delegations.grant(now, SESSION, &file),
        Err(Refused::Contention)
    );
    promises.end(Keeper::Nfs4, file.object());
    grant(&delegations, SESSION, &file);
    // And none to write while somebody has one of ours.
    assert!(!promises.leave_to(&file, 7));
    // One of either kind stands for itself.
    assert!(promises.make(Keeper::Nfs4, &file));
    promises.end(Keeper::Nfs4, file.object());
    assert_eq!(try_write(&world, &file), Err(Status::Jukebox));
}

#[test]
fn there_are_only_so_many_of_a_session() {
    let world = World::new(64);
    let delegations = given(&world);
    let file = world.file("a", b"old");
    let now = clock::now();
    let numbers: Vec<u64> = (0..SESSION_MAX)
        .map(|_| delegations.grant(now, SESSION, &file).expect("granted"))
        .collect();
    assert_eq!(delegations.grant(now, SESSION, &file), Err(Refused::Full));
    assert!(delegations.grant(now, OTHER, &file).is_ok());
    delegations.give_back(SESSION, &numbers[..1]);
    assert!(delegations.grant(now, SESSION, &file).is_ok());
    // Those who only give back and ask again end at the bound of all.
    let mut number = 0;
    let refused = (0..ALL_MAX).find_map(|_| {
        delegations.give_back(OTHER, &[number]);
        match delegations.grant(now, OTHER, &file) {
            Ok(given) => number = given,
            Err(refused) => return Some(refused),
        }
        None
    });
    assert_eq!(refused, Some(Refused::Full));
}

#[test]
fn without_stable_storage_there_are_none() {
    let world = World::new(64);
    let file = world.file("a", b"old");
    let none = Delegations::new(Arc::clone(&world.export), None);
    assert_eq!(none.grant(clock::now(), 5, &file), Err(Refused::Never));
    let fails = || Err(io::Error::other("full"));
    let failing = GivenRecord::new(false, fails);
    let failing = Delegations::new(Arc::clone(&world.export), Some(failing));
    assert_eq!(failing.grant(clock::now(), 5, &file), Err(Refused::Never));
}

#[test]
fn stable_storage_says_so_before_the_first() {
    let world = World::new(64);
    let file = world.file("a", b"old");
    let kept = Arc::new(AtomicBool::new(false));
    let keeper = Arc::clone(&kept);
    let record = GivenRecord::new(false, move || {
        assert!(!keeper.swap(true, Ordering::SeqCst), "once");
        Ok(())
    });
    let delegations = Delegations::new(Arc::clone(&world.export), Some(record));
    assert!(!kept.load(Ordering::SeqCst));
    for _ in 0..2 {
        assert!(delegations.grant(clock::now(), 5, &file).is_ok());
        assert!(kept.load(Ordering::SeqCst));
    }
}

#[test]
fn after_a_restart_changes_wait_for_the_leases_of_before() {
    let world = World::new(64);
    let file = world.file("a", b"old");
    let started = clock::now();
    let record = GivenRecord::new(true, || Ok(()));
    let _delegations = Delegations::new(Arc::clone(&world.export), Some(record));
    let (tried, left) = (
        try_write(&world, &file),
        world.export.promises().leave_to(&file, 7),
    );
    // Nor may somebody write unseen, unless it could before.
    if clock::now() < started + LEASE {
        assert_eq!((tried, left), (Err(Status::Jukebox), false));
        assert!(world.export.promises().leave_again_to(&file, 7));
    }
    world.export.promises().end(Keeper::Nfs4, file.object());
    world.write(&file, 0, &b"new"[..]);
    assert!(clock::now() >= started + LEASE);
    assert_eq!(try_write(&world, &file), Ok(()));
    assert!(world.export.promises().leave_to(&file, 7));
}

#[test]
fn what_changes_outside_is_not_delegated_again() {
    let world = World::new(64);
    let delegations = given(&world);
    let file = world.file("a", b"old");
    let number = grant(&delegations, SESSION, &file);
    world.export.promises().broken(file.object());
    delegations.give_back(SESSION, &[number]);
    assert_eq!(
        delegations.grant(clock::now(), SESSION, &file),
        Err(Refused::Contention)
    );
}
