//! Changes of attributes: what they do to pages, references and counters.

use odafs_common::exception::Exception;

use super::tests::resized;
use super::*;
use crate::store::{CreateHow, Operation, Store as _};
use crate::vfs::metrics::Reason;
use crate::vfs::namespace;
use crate::vfs::read::Effort;
use crate::vfs::testing::{PAGE, World, other, owner};

const P: usize = PAGE as usize;

#[test]
fn truncation_revokes_from_the_new_end_on() {
    let world = World::new(64);
    let file = world.file("a", &[1; 6 * P]);
    world.read(&file, 0, 6 * P as u32);
    let (mut client, view) = (world.client(&owner()), world.view());
    let old: Vec<_> = (0..6)
        .map(|page| client.reference(&file, page).expect("resident"))
        .collect();
    resized(&world, &file, 2 * PAGE + 10);
    for (page, reference) in old.iter().enumerate() {
        let good = view.read(reference.address, &mut [0; 1], reference.epoch);
        assert_eq!(good, page < 2, "page {page}");
        assert_eq!(client.read(reference).is_ok(), page < 2, "page {page}");
    }
    assert_eq!(world.export.metrics().stale_count(Reason::Size), 4);
    assert_eq!(world.read(&file, 0, 6 * P as u32), [1; 2 * P + 10]);
    // What grows back is zero.
    resized(&world, &file, 3 * PAGE);
    let data = world.read(&file, 2 * PAGE, P as u32);
    assert_eq!(data[..10], [1; 10]);
    assert!(data[10..].iter().all(|byte| *byte == 0));
    world.observe();
    assert_eq!(world.export.metrics().outside_changes.get(), 0);
}

#[test]
fn a_change_of_rights_revokes_everything() {
    let world = World::new(64);
    let file = world.file("a", &[1; 2 * P]);
    world.read(&file, 0, 2 * P as u32);
    let mut reader = world.client(&other());
    let old = reader.reference(&file, 0).expect("readable");
    let counter = reader.counter(&file).expect("readable");
    let new = SetAttributes {
        mode: Some(0o600),
        ..SetAttributes::default()
    };
    set_attributes(&world.export, &owner(), file.object(), &new, None).expect("chmod");
    assert_eq!(reader.read(&old), Err(Exception::Stale));
    assert!(reader.read(&counter).is_err());
    assert!(reader.reference(&file, 0).is_none());
    assert!(!world.view().read(old.address, &mut [0; 1], old.epoch));
    // The neighbour's reference had come along.
    assert_eq!(world.export.metrics().stale_count(Reason::Rights), 2);
    // The content is in memory still; only its owner gets at it.
    let found = world.try_read(&file, 0, 1, Effort::ResidentOnly);
    assert!(found.is_ok());
    let mut owner = world.client(&owner());
    let again = owner.reference(&file, 0).expect("the owner may");
    assert_eq!(owner.read(&again), Ok(vec![1; P]));
    assert_eq!(reader.read(&again), Err(Exception::Denied));
}

#[test]
fn a_guard_is_heeded() {
    let world = World::new(64);
    let file = world.file("a", b"x");
    let ctime = file.attributes().ctime;
    let new = SetAttributes {
        size: Some(0),
        ..SetAttributes::default()
    };
    let guarded = |guard| set_attributes(&world.export, &owner(), file.object(), &new, Some(guard));
    let wrong = Time {
        seconds: ctime.seconds.wrapping_add(1),
        ..ctime
    };
    let refused = guarded(wrong).expect_err("another time");
    assert_eq!(refused.error.status, Status::NotSync);
    assert!(refused.around.after.is_some());
    assert_eq!(world.read(&file, 0, 10), b"x");
    guarded(ctime).expect("the right time");
    assert!(world.read(&file, 0, 10).is_empty());
    // On a directory too.
    let root = world.store.root();
    let refused = set_attributes(
        &world.export,
        &Credential::of(0, 0, &[]),
        root,
        &SetAttributes::default(),
        Some(wrong),
    );
    assert_eq!(
        refused.expect_err("another time").error.status,
        Status::NotSync
    );
}

#[test]
fn a_refused_change_leaves_pages_references_and_counter_alone() {
    let world = World::new(64);
    let file = world.file("a", &[1; 3 * P]);
    let (export, root) = (&world.export, world.store.root());
    let write_as = |who: &Credential, offset| {
        let refused = write(export, who, &file, offset, b"x", Stable::Unstable);
        refused.expect_err("refused").error.status
    };
    let cut = SetAttributes {
        size: Some(1),
        ..SetAttributes::default()
    };
    let private = SetAttributes {
        mode: Some(0o600),
        ..SetAttributes::default()
    };
    let set_as = |who: &Credential, new| {
        let refused = set_attributes(export, who, file.object(), new, None);
        refused.expect_err("refused").error.status
    };
    type Refusal<'a> = (Status, Box<dyn Fn() -> Status + 'a>);
    let refusals: [Refusal<'_>; 8] = [
        (Status::Access, Box::new(|| write_as(&other(), PAGE))),
        (Status::Access, Box::new(|| write_as(&other(), 9 * PAGE))),
        (Status::FBig, Box::new(|| write_as(&owner(), 1 << 40))),
        (
            Status::RoFs,
            Box::new(|| {
                world.store.set_read_only(true);
                let status = write_as(&owner(), 0);
                world.store.set_read_only(false);
                status
            }),
        ),
        (
            Status::NoSpc,
            Box::new(|| {
                world.store.fail_next(Operation::Write, Status::NoSpc);
                write_as(&owner(), 0)
            }),
        ),
        (Status::Access, Box::new(|| set_as(&other(), &cut))),
        (Status::Perm, Box::new(|| set_as(&other(), &private))),
        (
            Status::Access,
            Box::new(|| {
                let how = CreateHow::Unchecked(&cut);
                let refused = namespace::create(export, &other(), root, b"a", how);
                refused.expect_err("refused").status
            }),
        ),
    ];
    world.read(&file, 0, 3 * P as u32);
    let mut client = world.client(&owner());
    let references = client.references(&file, 0, 3 * P as u32);
    assert_eq!(references.len(), 3);
    let counter = client.counter(&file).expect("watched");
    let change = file.change();
    for (number, (expected, refuse)) in refusals.iter().enumerate() {
        assert_eq!(refuse(), *expected, "{number}");
        assert_eq!(file.change(), change, "{number}");
        for page in &references {
            let found = client.read(&page.reference);
            assert_eq!(found, Ok(vec![1; P]), "{number}: page {}", page.page);
        }
        assert!(client.read(&counter).is_ok(), "{number}");
        let found = world.try_read(&file, 0, 3 * P as u32, Effort::ResidentOnly);
        assert_eq!(found.expect("resident").0, [1; 3 * P], "{number}");
    }
    assert_eq!(export.metrics().outside_changes.get(), 0);
}
