use odafs_common::exception::Exception;

use super::*;
use crate::store::{Operation, Store as _};
use crate::vfs::metrics::Reason;
use crate::vfs::testing::{PAGE, World, other, owner};

const P: usize = PAGE as usize;

fn range(offset: u64, length: u64) -> Range {
    Range { offset, length }
}

fn stored(world: &World, file: &Arc<File>) -> Vec<u8> {
    let mut data = vec![0; 1 << 16];
    let count = world.store.read_at(file.object(), 0, &mut data);
    data.truncate(count.expect("read"));
    data
}

#[test]
fn a_hole_is_read_as_zeros_by_every_route() {
    let world = World::new(64);
    let file = world.file("a", &[1; 4 * P]);
    world.read(&file, 0, 4 * P as u32);
    let (mut client, view) = (world.client(&owner()), world.view());
    let old: Vec<_> = (0..4)
        .map(|page| client.reference(&file, page).expect("resident"))
        .collect();
    let (change, before) = (file.change(), file.attributes());
    // The end of page 1 and the beginning of page 2.
    let hole = range(2 * PAGE - 10, 20);
    deallocate(&world.export, &owner(), &file, hole).expect("a hole");
    assert_ne!(file.change(), change);
    assert!(file.attributes().change() > before.change());
    assert_eq!(file.attributes().size, before.size);
    for page in [1, 2] {
        assert!(!view.read(old[page].address, &mut [0; 1], old[page].epoch));
        assert_eq!(client.read(&old[page]), Err(Exception::Stale));
    }
    for page in [0, 3] {
        assert!(client.read(&old[page]).is_ok(), "the others stand");
    }
    let mut expected = vec![1; 4 * P];
    expected[2 * P - 10..2 * P + 10].fill(0);
    assert_eq!(world.read(&file, 0, 4 * P as u32), expected);
    assert_eq!(stored(&world, &file), expected);
    let new = client.reference(&file, 1).expect("resident again");
    assert_eq!(client.read(&new), Ok(expected[P..2 * P].to_vec()));
    assert_eq!(world.export.metrics().stale_count(Reason::Write), 2);
    world.observe();
    assert_eq!(world.export.metrics().outside_changes.get(), 0);
}

#[test]
fn behind_the_end_there_is_nothing_to_free() {
    let world = World::new(64);
    let file = world.file("a", &[1; P + 100]);
    world.read(&file, 0, 2 * P as u32);
    let mut client = world.client(&owner());
    let first = client.reference(&file, 0).expect("resident");
    deallocate(&world.export, &owner(), &file, range(PAGE, 1 << 40)).expect("a hole");
    assert_eq!(
        world.read(&file, 0, 2 * P as u32),
        [vec![1; P], vec![0; 100]].concat()
    );
    let before = (file.change(), file.attributes());
    deallocate(&world.export, &owner(), &file, range(PAGE + 100, 10)).expect("nothing");
    assert_eq!((file.change(), file.attributes()), before);
    assert_eq!(client.read(&first), Ok(vec![1; P]));
    // The right is asked for all the same.
    let refused = deallocate(&world.export, &other(), &file, range(PAGE + 100, 10));
    assert_eq!(refused.expect_err("not his").status, Status::Access);
}

#[test]
fn a_refused_change_leaves_pages_and_references_alone() {
    let world = World::new(64);
    let file = world.file("a", &[1; 2 * P]);
    world.read(&file, 0, 2 * P as u32);
    let mut client = world.client(&owner());
    let old = client.reference(&file, 0).expect("resident");
    let before = (file.change(), file.attributes());
    let (export, all) = (&world.export, range(0, 2 * PAGE));
    let refused = deallocate(export, &other(), &file, all);
    assert_eq!(refused.expect_err("not his").status, Status::Access);
    let refused = allocate(export, &other(), &file, range(0, 9 * PAGE));
    assert_eq!(refused.expect_err("not his").status, Status::Access);
    assert_eq!((file.change(), file.attributes()), before);
    assert_eq!(client.read(&old), Ok(vec![1; P]));
    // After a failure in the middle the store has to say.
    world.store.fail_next(Operation::Write, Status::Io);
    let failed = deallocate(export, &owner(), &file, all);
    assert_eq!(failed.expect_err("injected").status, Status::Io);
    assert_ne!(file.change(), before.0);
    assert_eq!(client.read(&old), Err(Exception::Stale));
    assert_eq!(world.read(&file, 0, 2 * P as u32), [1; 2 * P]);
}

#[test]
fn growing_a_file_revokes_its_old_end_alone() {
    let world = World::new(64);
    let file = world.file("a", &[1; P + 100]);
    world.read(&file, 0, 2 * P as u32);
    let mut client = world.client(&owner());
    let old = [0, 1].map(|page| client.reference(&file, page).expect("resident"));
    allocate(&world.export, &owner(), &file, range(50, 3 * PAGE)).expect("space");
    assert_eq!(file.attributes().size, 3 * PAGE + 50);
    assert_eq!(client.read(&old[0]), Ok(vec![1; P]));
    assert_eq!(client.read(&old[1]), Err(Exception::Stale));
    let mut expected = vec![1; P + 100];
    expected.resize(3 * P + 50, 0);
    assert_eq!(world.read(&file, 0, 4 * P as u32), expected);
    world.observe();
    assert_eq!(world.export.metrics().outside_changes.get(), 0);
}

#[test]
fn what_has_no_verifier_survives_a_crash() {
    let world = World::new(64);
    let file = world.file("a", &[1; 2 * P]);
    world.store.sync(file.object(), false).expect("synced");
    let export = &world.export;
    deallocate(export, &owner(), &file, range(0, PAGE)).expect("a hole");
    allocate(export, &owner(), &file, range(2 * PAGE, PAGE)).expect("space");
    world.store.crash();
    let expected = [vec![0; P], vec![1; P], vec![0; P]].concat();
    assert_eq!(stored(&world, &file), expected);
    // If it did not get there, nobody is told that it did, nor reads it any more.
    world.store.fail_next(Operation::Sync, Status::Io);
    let verifier = export.verifier();
    let failed = deallocate(export, &owner(), &file, range(PAGE, PAGE));
    assert_eq!(failed.expect_err("injected").status, Status::Io);
    assert_ne!(export.verifier(), verifier);
    assert!(file.is_empty());
}

#[test]
fn what_others_do_meanwhile_is_not_taken_for_ours() {
    use crate::store::OutsideChange;
    let world = World::new(64);
    let file = world.file("a", &[1; 4 * P]);
    world.read(&file, 0, 4 * P as u32);
    let mut client = world.client(&owner());
    let old = client.reference(&file, 3).expect("resident");
    let object = file.object();
    let grow = move |store: &crate::store::MemoryStore| {
        let change = OutsideChange::Write {
            offset: 3 * PAGE,
            data: &[2; 2 * P],
        };
        store.outside_change(object, change).expect("written");
    };
    world.store.meddle_next(Operation::Write, Box::new(grow));
    deallocate(&world.export, &owner(), &file, range(0, PAGE)).expect("a hole");
    assert_eq!(client.read(&old), Err(Exception::Stale));
    let expected = [vec![0; P], vec![1; 2 * P], vec![2; 2 * P]].concat();
    assert_eq!(world.read(&file, 0, 9 * P as u32), expected);
    assert_eq!(world.export.metrics().outside_changes.get(), 1);
}

#[test]
fn a_change_is_not_for_good_if_someone_was_told_of_its_loss() {
    use crate::vfs::write::commit;
    let world = World::new(64);
    let file = world.file("a", &[1; P]);
    world.store.fail_next(Operation::Sync, Status::Io);
    let lost = for_good(&world.export, &file, || {
        // Another client's COMMIT takes the change with it, and fails.
        assert!(commit(&world.export, &file).is_err());
        Ok(Made {
            touched: 0,
            reaches: 0,
        })
    });
    assert_eq!(lost.expect_err("it may be lost").status, Status::Io);
}
