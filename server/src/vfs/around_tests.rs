//! What changes of several objects at once say of each other.

use super::*;
use crate::store::{SetAttributes, Store as _};
use crate::vfs::attributes::set;
use crate::vfs::testing::{World, owner};

fn directory(world: &World, name: &str) -> ObjectId {
    let new = SetAttributes::default();
    let made = world
        .store
        .mkdir(&owner(), world.store.root(), name.as_bytes(), &new);
    made.expect("made").0
}

#[test]
fn changes_of_different_directories_do_not_disturb_each_other() {
    let world = World::new(64);
    let directories: Vec<_> = (0..200)
        .map(|number| directory(&world, &format!("d{number}")))
        .collect();
    let under_way: Vec<_> = directories
        .iter()
        .map(|directory| Change::begin(&world.export, *directory))
        .collect();
    for (directory, change) in directories.iter().zip(under_way) {
        let new = SetAttributes::default();
        let made = world.store.mkdir(&owner(), *directory, b"name", &new);
        made.expect("made");
        let around = change.end();
        let (before, after) = (around.before.expect("alone"), around.after.expect("there"));
        assert!(before.mtime < after.mtime);
    }
    assert!(
        world.export.changes().under_way.lock().is_empty(),
        "nothing is kept"
    );
}

#[test]
fn of_two_changes_of_one_directory_neither_says_what_it_was_before() {
    let world = World::new(64);
    let directory = directory(&world, "d");
    let (one, two) = (
        Change::begin(&world.export, directory),
        Change::begin(&world.export, directory),
    );
    assert_eq!(one.end().before, None);
    assert_eq!(two.end().before, None);
    let after = Change::begin(&world.export, directory).end();
    assert!(after.before.is_some());
}

#[test]
fn attributes_set_while_a_name_comes_say_nothing_of_before() {
    let world = World::new(64);
    let directory = directory(&world, "d");
    let set_mode = || {
        let new = SetAttributes {
            mode: Some(0o700),
            ..SetAttributes::default()
        };
        set(&world.export, &owner(), directory, &new, None).expect("set")
    };
    let change = Change::begin(&world.export, directory);
    assert_eq!(set_mode().before, None);
    assert_eq!(change.end().before, None);
    assert!(set_mode().before.is_some());
}
