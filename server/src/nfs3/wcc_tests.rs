//! What changes of several objects at once say of each other.

use odafs_common::wire::nfs3::{FileHandle, SetAttributes, SetAttributesArgs, SetAttributesResult};
use odafs_common::wire::xdr::{Decode as _, Writer};

use super::*;
use crate::nfs3::setattr::setattr;
use crate::read::Effort;
use crate::store::Store as _;
use crate::testing::{World, owner};

fn context<'a>(world: &'a World, changes: &'a Changes) -> Context<'a> {
    Context {
        export: &world.export,
        changes,
        who: owner(),
        effort: Effort::MayBlock,
        room: 4096,
        placement: None,
        apart: None,
    }
}

fn directory(world: &World, name: &str) -> ObjectId {
    let new = SetAttributes::default();
    let made = world
        .store
        .mkdir(&owner(), world.store.root(), name.as_bytes(), &new);
    made.expect("made").0
}

#[test]
fn changes_of_different_directories_do_not_disturb_each_other() {
    let (world, changes) = (World::new(64), Changes::default());
    let context = context(&world, &changes);
    let directories: Vec<_> = (0..200)
        .map(|number| directory(&world, &format!("d{number}")))
        .collect();
    let under_way: Vec<_> = directories
        .iter()
        .map(|directory| Change::begin(&context, *directory))
        .collect();
    for (directory, change) in directories.iter().zip(under_way) {
        let new = SetAttributes::default();
        let made = world.store.mkdir(&owner(), *directory, b"name", &new);
        made.expect("made");
        let wcc = change.end(&context);
        let (before, after) = (wcc.before.expect("alone"), wcc.after.expect("there"));
        assert!(before.mtime < after.mtime);
    }
    assert!(changes.under_way.lock().is_empty(), "nothing is kept");
}

#[test]
fn of_two_changes_of_one_directory_neither_says_what_it_was_before() {
    let (world, changes) = (World::new(64), Changes::default());
    let context = context(&world, &changes);
    let directory = directory(&world, "d");
    let (one, two) = (
        Change::begin(&context, directory),
        Change::begin(&context, directory),
    );
    assert_eq!(one.end(&context).before, None);
    assert_eq!(two.end(&context).before, None);
    let after = Change::begin(&context, directory).end(&context);
    assert!(after.before.is_some());
}

#[test]
fn attributes_set_while_a_name_comes_say_nothing_of_before() {
    let (world, changes) = (World::new(64), Changes::default());
    let context = context(&world, &changes);
    let directory = directory(&world, "d");
    let handle = world.store.handle(directory).expect("a handle");
    let set = || {
        let arguments = SetAttributesArgs {
            file: FileHandle(&handle),
            attributes: SetAttributes {
                mode: Some(0o700),
                ..SetAttributes::default()
            },
            guard: None,
        };
        let mut results = Vec::new();
        assert!(setattr(&context, arguments, &mut Writer::new(&mut results)).is_ok());
        let result = SetAttributesResult::from_bytes(&results).expect("a result");
        result.expect("set")
    };
    let change = Change::begin(&context, directory);
    assert_eq!(set().before, None);
    assert_eq!(change.end(&context).before, None);
    assert!(set().before.is_some());
}
