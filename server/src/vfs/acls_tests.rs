//! What lists mean for those who read pages directly, and for those who read by calls.

use odafs_common::exception::Exception;

use super::*;
use crate::store::{AclEntry, AclTag, OutsideChange};
use crate::vfs::read::{Effort, ReadRange, read};
use crate::vfs::testing::{World, other, owner};

fn list(entries: &[(AclTag, u8)]) -> Acl {
    let entries = entries.iter().map(|(tag, permissions)| AclEntry {
        tag: *tag,
        permissions: *permissions,
    });
    Acl::new(entries.collect()).expect("a list")
}

/// The mode stays 0644, but one user has nothing.
fn denying(uid: u32) -> Acl {
    list(&[
        (AclTag::Owner, 6),
        (AclTag::User(uid), 0),
        (AclTag::OwningGroup, 4),
        (AclTag::Mask, 4),
        (AclTag::Other, 4),
    ])
}

fn access_list(list: Acl) -> NewAcls {
    NewAcls {
        access: Some(list),
        default: None,
    }
}

fn reads(world: &World, who: &Credential, object: ObjectId) -> Result<(), Status> {
    let file = world.export.file(object).expect("live");
    let range = ReadRange {
        offset: 0,
        count: 16,
    };
    let mut data = vec![0; 16];
    let done = read(
        &world.export,
        who,
        &file,
        range,
        Effort::MayBlock,
        &mut data,
    );
    match done {
        Ok(_) => Ok(()),
        Err(crate::vfs::read::ReadFailed::Status(status)) => Err(status),
        Err(failed) => panic!("{failed:?}"),
    }
}

#[test]
fn a_list_takes_references_from_all() {
    let world = World::new(64);
    let file = world.file("a", &[1; 4096]);
    let object = file.object();
    world.read(&file, 0, 4096);
    let mut clients = [owner(), other()].map(|who| world.client(&who));
    let held = clients.each_ref().map(|client| client.reference(&file, 0));
    assert!(held.iter().all(Option::is_some));
    let change = file.attributes().change();
    let set = set(
        &world.export,
        &owner(),
        object,
        &access_list(denying(other().uid)),
    );
    let around = set.expect("set");
    let after = around.after.expect("told");
    // The mode says what it said, and lets everyone read: only the list knows better.
    assert_eq!(after.mode, 0o644);
    assert!(after.change() > change);
    for (client, held) in clients.iter_mut().zip(held) {
        let held = held.expect("held");
        assert_eq!(client.read(&held), Err(Exception::Stale));
    }
    world.read(&file, 0, 4096);
    for client in &clients {
        assert!(client.reference(&file, 0).is_none());
    }
    // By calls the list counts.
    assert_eq!(reads(&world, &other(), object), Err(Status::Access));
    assert_eq!(reads(&world, &owner(), object), Ok(()));
    assert_eq!(reads(&world, &Credential::of(7, 7, &[]), object), Ok(()));
    // Once a mode says all again, references are handed out again.
    let minimal = access_list(Acl::of_mode(0o644));
    super::set(&world.export, &owner(), object, &minimal).expect("set");
    world.read(&file, 0, 4096);
    assert!(clients[1].reference(&file, 0).is_some());
}

/// `noticed` gets a world in which somebody else has just denied another user a file.
fn takes_them(noticed: impl FnOnce(&World, ObjectId)) {
    let world = World::new(64);
    let file = world.file("a", &[1; 4096]);
    world.read(&file, 0, 4096);
    let mut client = world.client(&other());
    let held = client.reference(&file, 0).expect("held");
    let denying = denying(other().uid);
    let change = OutsideChange::Acl(&denying);
    (world.store.outside_change(file.object(), change)).expect("changed");
    noticed(&world, file.object());
    assert_eq!(client.read(&held), Err(Exception::Stale));
    world.observe();
    world.read(&file, 0, 4096);
    assert!(client.reference(&file, 0).is_none());
    assert_eq!(reads(&world, &other(), file.object()), Err(Status::Access));
}

#[test]
fn a_list_that_others_set_takes_them_too() {
    takes_them(|world, _| world.observe());
}

/// The change time of names that the server changes right after that hides the one of the list.
#[test]
fn a_list_that_others_set_is_not_taken_for_a_change_of_names() {
    takes_them(|world, object| change::record_links(&world.export, object));
}

#[test]
fn a_caller_that_may_not_set_a_list_changes_nothing() {
    let world = World::new(64);
    let file = world.file("a", &[1; 4096]);
    world.read(&file, 0, 4096);
    let mut client = world.client(&owner());
    let held = client.reference(&file, 0).expect("held");
    let new = access_list(denying(owner().uid));
    let refused = set(&world.export, &other(), file.object(), &new);
    assert_eq!(refused.expect_err("refused").status, Status::Perm);
    assert!(client.read(&held).is_ok());
    // Nor is the default list of a file set, but may be taken away.
    let new = NewAcls {
        access: None,
        default: Some(Some(Acl::of_mode(0o644))),
    };
    let refused = set(&world.export, &owner(), file.object(), &new);
    assert_eq!(refused.expect_err("refused").status, Status::Access);
    let new = NewAcls {
        access: None,
        default: Some(None),
    };
    assert!(set(&world.export, &owner(), file.object(), &new).is_ok());
}
