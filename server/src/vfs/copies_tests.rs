use odafs_common::exception::Exception;

use super::*;
use crate::store::{CreateHow, Operation, OutsideChange, SetAttributes, Store as _};
use crate::vfs::testing::{PAGE, World, other, owner};

const P: usize = PAGE as usize;

fn place(file: &Arc<File>, offset: u64) -> FileOffset<'_> {
    FileOffset { file, offset }
}

/// Bytes that tell where they are from.
fn bytes(length: usize) -> Vec<u8> {
    (0..length).map(|at| (at % 251) as u8 + 1).collect()
}

fn copied(world: &World, from: FileOffset<'_>, to: FileOffset<'_>, count: u64) -> u64 {
    let copied = copy(&world.export, &owner(), from, to, count);
    copied.expect("copied").count
}

fn all(world: &World, file: &Arc<File>) -> Vec<u8> {
    let cached = world.read(file, 0, 1 << 20);
    let mut stored = vec![0; 1 << 20];
    let count = world.store.read_at(file.object(), 0, &mut stored);
    stored.truncate(count.expect("read"));
    assert!(cached == stored, "the cache and the store differ");
    cached
}

#[test]
fn what_is_copied_is_read_by_every_route() {
    let world = World::new(64);
    let data = bytes(4 * P);
    let (source, target) = (world.file("a", &data), world.file("b", &[0xee; 4 * P]));
    world.read(&target, 0, 4 * P as u32);
    // What clients wrote last is copied too.
    world.write(&source, PAGE, &[7; 10]);
    let (mut client, view) = (world.client(&owner()), world.view());
    let old: Vec<_> = (0..4)
        .map(|page| client.reference(&target, page).expect("resident"))
        .collect();
    let before = (target.change(), target.attributes());
    let (from, to) = (place(&source, PAGE - 5), place(&target, PAGE + 10));
    assert_eq!(copied(&world, from, to, PAGE), PAGE);
    assert_ne!(target.change(), before.0);
    assert!(target.attributes().change() > before.1.change());
    for page in [1, 2] {
        assert!(!view.read(old[page].address, &mut [0; 1], old[page].epoch));
        assert_eq!(client.read(&old[page]), Err(Exception::Stale));
    }
    for page in [0, 3] {
        assert!(client.read(&old[page]).is_ok(), "the others stand");
    }
    let mut now = data;
    now[P..P + 10].fill(7);
    let mut expected = vec![0xee; 4 * P];
    expected[P + 10..2 * P + 10].copy_from_slice(&now[P - 5..2 * P - 5]);
    assert_eq!(all(&world, &target), expected);
    assert_eq!(all(&world, &source), now);
    let new = client.reference(&target, 2).expect("resident again");
    assert_eq!(client.read(&new), Ok(expected[2 * P..3 * P].to_vec()));
    world.observe();
    assert_eq!(world.export.metrics().outside_changes.get(), 0);
}

#[test]
fn a_copy_may_grow_its_target_and_leave_a_gap() {
    let world = World::new(64);
    let data = bytes(P + 100);
    let (source, target) = (world.file("a", &data), world.file("b", &[1; 100]));
    world.read(&target, 0, P as u32);
    let mut client = world.client(&owner());
    let old = client.reference(&target, 0).expect("resident");
    // All that follows the first byte.
    assert_eq!(
        copied(&world, place(&source, 10), place(&target, 9000), 0),
        PAGE + 90
    );
    assert_eq!(client.read(&old), Err(Exception::Stale), "it was shorter");
    let mut expected = vec![1; 100];
    expected.resize(9000, 0);
    expected.extend_from_slice(&data[10..]);
    assert_eq!(all(&world, &target), expected);
}

#[test]
fn what_the_source_does_not_have_is_not_copied() {
    let world = World::new(64);
    let (source, target) = (world.file("a", &[1; 100]), world.file("b", &[2; 100]));
    let before = (target.change(), target.attributes());
    let (export, to) = (&world.export, place(&target, 0));
    for (offset, count) in [(101, 0), (0, 101), (50, 51), (u64::MAX, 1), (1, u64::MAX)] {
        let refused = copy(export, &owner(), place(&source, offset), to, count);
        assert_eq!(refused.expect_err("too much").status, Status::Inval);
    }
    let far = place(&target, i64::MAX as u64 - 5);
    let refused = copy(export, &owner(), place(&source, 0), far, 6);
    assert_eq!(refused.expect_err("too far").status, Status::FBig);
    assert_eq!(copied(&world, place(&source, 100), to, 0), 0);
    assert_eq!((target.change(), target.attributes()), before);
    assert_eq!(all(&world, &target), [2; 100]);
}

#[test]
fn both_rights_are_asked_for() {
    let world = World::new(64);
    let (theirs, target) = (world.file("a", &[1; 100]), world.file("b", &[2; 100]));
    let secret = SetAttributes {
        mode: Some(0o600),
        ..SetAttributes::default()
    };
    let root = world.store.root();
    let created = world
        .store
        .create(&other(), root, b"c", CreateHow::Guarded(&secret));
    let secret = created.expect("created").object;
    let wrote = world.store.write_at(&other(), secret, 0, b"secret");
    assert_eq!(wrote.expect("written"), 6);
    let secret = world.export.file(secret).expect("live");
    let export = &world.export;
    for (who, from, to) in [(owner(), &secret, &target), (other(), &secret, &theirs)] {
        for count in [0, 6] {
            let refused = copy(export, &who, place(from, 0), place(to, 0), count);
            assert_eq!(refused.expect_err("no right").status, Status::Access);
        }
        let refused = clone_range(export, &who, place(from, 0), place(to, 0), 0);
        assert_eq!(refused.expect_err("no right").status, Status::Access);
    }
    let refused = copy(export, &other(), place(&secret, 6), place(&theirs, 0), 0);
    assert_eq!(refused.expect_err("no right").status, Status::Access);
    assert_eq!(all(&world, &theirs), [1; 100]);
    assert_eq!(all(&world, &target), [2; 100]);
}

#[test]
fn a_long_copy_is_made_in_several_calls() {
    let world = World::new(64);
    let data = bytes(10 * P);
    let (source, target) = (world.file("a", &data), world.file("b", &[]));
    let call = |at: u64, bounds| {
        let (from, to) = (place(&source, at), place(&target, at));
        let copied = copy_within(&world.export, &owner(), from, to, 0, bounds);
        copied.expect("copied").count
    };
    let few = Bounds {
        piece: PAGE + 7,
        bytes: 3 * PAGE,
        ..BOUNDS
    };
    assert_eq!(call(0, few), 3 * PAGE);
    // However slow it is, something is done.
    let late = Bounds {
        piece: 100,
        time: Nanos(0),
        ..BOUNDS
    };
    let slow = call(3 * PAGE, late);
    assert!(slow >= 100);
    let mut at = 3 * PAGE + slow;
    while at < 10 * PAGE {
        at += call(at, few);
    }
    assert_eq!(all(&world, &target), data);
}

#[test]
fn what_was_copied_before_a_failure_is_told() {
    let world = World::new(64);
    let data = bytes(3 * P);
    let (source, target) = (world.file("a", &data), world.file("b", &[9; 3 * P]));
    world.read(&target, 0, 3 * P as u32);
    let mut client = world.client(&owner());
    let old = client.references(&target, 0, 3 * P as u32);
    let pages = Bounds {
        piece: PAGE,
        ..BOUNDS
    };
    let (from, to) = (place(&source, 0), place(&target, 0));
    let fail = |store: &crate::store::MemoryStore| store.fail_next(Operation::Write, Status::Io);
    // The first write goes well, the second does not.
    world.store.meddle_next(Operation::Write, Box::new(|_| {}));
    world.store.meddle_next(Operation::Write, Box::new(fail));
    let copied = copy_within(&world.export, &owner(), from, to, 0, pages);
    assert_eq!(copied.expect("a part").count, PAGE);
    for old in &old[..2] {
        let read = client.read(&old.reference);
        assert_eq!(read, Err(Exception::Stale), "page {}", old.page);
    }
    assert!(client.read(&old[2].reference).is_ok());
    world.store.fail_next(Operation::Write, Status::Io);
    let failed = copy_within(&world.export, &owner(), from, to, 0, pages);
    assert_eq!(failed.expect_err("injected").status, Status::Io);
    assert_eq!(all(&world, &target), [&data[..P], &[9; 2 * P][..]].concat());
}

#[test]
fn a_copy_that_was_committed_survives_a_crash_and_another_one_is_known_to_be_lost() {
    use crate::vfs::write::commit;
    let world = World::new(64);
    let data = bytes(3 * P);
    let (source, target) = (world.file("a", &data), world.file("b", &[]));
    world.store.sync(source.object(), false).expect("synced");
    let (from, to) = (place(&source, 0), place(&target, 0));
    let copied = copy(&world.export, &owner(), from, to, 0).expect("copied");
    let (verifier, _) = commit(&world.export, &target).expect("committed");
    assert_eq!(copied.verifier, verifier);
    world.store.crash();
    assert_eq!(all(&world, &target), data);
    // The sync that fails says so by the verifier.
    let copied = copy(&world.export, &owner(), from, to, 0).expect("copied");
    world.store.fail_next(Operation::Sync, Status::Io);
    assert!(commit(&world.export, &target).is_err());
    let (verifier, _) = commit(&world.export, &target).expect("committed");
    assert_ne!(copied.verifier, verifier);
}

#[test]
fn a_source_that_others_cut_ends_the_copy() {
    let world = World::new(64);
    let (source, target) = (world.file("a", &[1; 3 * P]), world.file("b", &[2; 3 * P]));
    let object = source.object();
    let cut = move |store: &crate::store::MemoryStore| {
        let change = OutsideChange::Resize(PAGE);
        store.outside_change(object, change).expect("cut");
    };
    world.store.meddle_next(Operation::Read, Box::new(cut));
    let (from, to) = (place(&source, 0), place(&target, 0));
    assert_eq!(copied(&world, from, to, 3 * PAGE), PAGE);
    let expected = [[1; P], [2; P], [2; P]].concat();
    assert_eq!(all(&world, &target), expected);
}

#[test]
fn a_clone_is_read_by_every_route_and_is_for_good() {
    let world = World::new(64);
    let data = bytes(2 * P + 100);
    let (source, target) = (world.file("a", &data), world.file("b", &[9; 4 * P]));
    world.store.sync(target.object(), false).expect("synced");
    world.read(&target, 0, 4 * P as u32);
    let mut client = world.client(&owner());
    let old: Vec<_> = (0..4)
        .map(|page| client.reference(&target, page).expect("resident"))
        .collect();
    let before = (target.change(), target.attributes());
    let (export, who) = (&world.export, owner());
    assert_eq!(clone_block(export, target.object()), Some(P as u32));
    let refused = |from, to, count, status| {
        let refused = clone_range(export, &who, from, to, count);
        assert_eq!(refused.expect_err("refused").status, status);
    };
    let (from, to) = (place(&source, 0), place(&target, PAGE));
    refused(place(&source, 1), to, PAGE, Status::Inval);
    refused(from, place(&target, PAGE + 1), PAGE, Status::Inval);
    refused(from, to, 100, Status::Inval);
    refused(from, to, 3 * PAGE, Status::Inval);
    refused(place(&source, 3 * PAGE), to, 0, Status::Inval);
    // The source ends within a block, and the target goes on behind it.
    refused(from, to, 0, Status::Inval);
    refused(to, place(&target, 2 * PAGE), 2 * PAGE, Status::Inval);
    assert_eq!((target.change(), target.attributes()), before);
    assert!(client.read(&old[1]).is_ok());
    clone_range(export, &who, from, to, PAGE).expect("cloned");
    assert_ne!(target.change(), before.0);
    for page in [0, 2, 3] {
        assert!(client.read(&old[page]).is_ok(), "page {page}");
    }
    assert_eq!(client.read(&old[1]), Err(Exception::Stale));
    clone_range(export, &who, from, place(&target, 2 * PAGE), 0).expect("cloned");
    world.store.crash();
    let mut expected = [&[9; P][..], &data[..P], &data[..]].concat();
    assert_eq!(all(&world, &target), expected);
    // Within one file.
    clone_range(export, &who, place(&target, PAGE), place(&target, 0), PAGE).expect("cloned");
    expected.copy_within(P..2 * P, 0);
    assert_eq!(all(&world, &target), expected);
    world.observe();
    assert_eq!(world.export.metrics().outside_changes.get(), 0);
}

#[test]
fn nobody_changes_the_source_while_a_piece_is_copied() {
    use odafs_fabric::sync::atomic::{AtomicU32, Ordering};
    let world = World::new(64);
    let (one, other) = (world.file("a", &[1; P]), world.file("b", &[2; P]));
    let closed = Arc::new(AtomicU32::new(0));
    for (from, to) in [(&one, &other), (&other, &one)] {
        let (source, count) = (Arc::clone(from), Arc::clone(&closed));
        let look = move |_: &crate::store::MemoryStore| {
            count.fetch_add(
                source.enter(Effort::ResidentOnly).is_none().into(),
                Ordering::SeqCst,
            );
        };
        world.store.meddle_next(Operation::Read, Box::new(look));
        assert_eq!(copied(&world, place(from, 0), place(to, 0), PAGE), PAGE);
    }
    assert_eq!(closed.load(Ordering::SeqCst), 2);
}
