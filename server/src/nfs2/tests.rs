//! Changes by version 2 beside delegations and attributes of clients of other versions.

use std::collections::HashSet;

use odafs_common::wire::nfs2::*;
use odafs_common::wire::xdr::{Decode as _, Encode as _, Reader, Writer};
use odafs_fabric::Peer;
use odafs_fabric::sync::{Arc, Mutex};
use odafs_nic::calls::{Caller, Notes, Placements, Transport};

use super::Nfs2;
use crate::rpc::access::Rights;
use crate::rpc::{Answer, ApartPayloads, Call, Program as _};
use crate::vfs::around::Change;
use crate::vfs::promises::{Holders, Keeper as By, Party};
use crate::vfs::read::Effort;
use crate::vfs::testing::{LocalTree, World, looks, owner};
use crate::vfs::{ObjectId, ShortHandle};

/// Gives every promise back at once.
#[derive(Default)]
struct Keeper(Mutex<Vec<ObjectId>>);

impl Holders for Keeper {
    fn give_back(&self, object: ObjectId, _by: Party) -> bool {
        self.0.lock().push(object);
        true
    }

    fn broken(&self, _object: ObjectId) {}

    fn is_awaited(&self, _object: ObjectId, _by: Party) -> bool {
        false
    }
}

/// The results of a call by the owner. `None` if there is no reply.
fn call(world: &World, procedure: Procedure, arguments: &[u8]) -> Option<Vec<u8>> {
    let caller = Caller {
        peer: Peer::Simulated(1),
        local: None,
        connection: 1,
        transport: Transport::NfsTcp,
        reply_bytes_max: 1 << 20,
        placements: Placements::default(),
        apart: None,
        back: None,
        notes: Notes::default(),
    };
    let call = Call {
        caller: &caller,
        who: owner(),
        rights: Rights::default(),
        procedure: procedure.code(),
        arguments: Reader::new(arguments),
        apart: ApartPayloads::default(),
        effort: Effort::MayBlock,
    };
    let mut results = Vec::new();
    match Nfs2::new(Arc::clone(&world.export)).call(call, &mut Writer::new(&mut results)) {
        Answer::Replied => Some(results),
        Answer::Blocks => None,
        other => panic!("{other:?}"),
    }
}

/// A call that succeeds.
#[track_caller]
fn done(world: &World, procedure: Procedure, arguments: &[u8]) {
    let results = call(world, procedure, arguments).expect("a reply");
    assert_eq!(results[..4], [0; 4], "{procedure:?}");
}

fn place<'a>(directory: &'a ShortHandle, name: &'a str) -> DirectoryName<'a> {
    DirectoryName {
        directory: FileHandle(directory),
        name: name.as_bytes(),
    }
}

fn write(file: &ShortHandle) -> WriteArgs<'_> {
    WriteArgs {
        file: FileHandle(file),
        begin_offset: 0,
        offset: 0,
        total_count: 0,
        data: Payload(b"new"),
    }
}

#[test]
fn every_change_of_a_file_asks_for_what_was_promised_of_it() {
    let world = World::new(64);
    let keeper = Arc::new(Keeper::default());
    let holders: Arc<dyn Holders> = Arc::clone(&keeper) as _;
    world
        .export
        .promises()
        .keep(By::Nfs4, Arc::downgrade(&holders));
    let (file, other) = (world.file("a", b"old"), world.file("b", b"other"));
    let root = world.export.short_handle(world.export.root());
    let handle = world.export.short_handle(file.object());
    let attributes = SetAttributes {
        mode: Some(0o600),
        ..SetAttributes::default()
    };
    let set = SetAttributesArgs {
        file: FileHandle(&handle),
        attributes,
    };
    let link = LinkArgs {
        file: FileHandle(&handle),
        place: place(&root, "c"),
    };
    let over = RenameArgs {
        from: place(&root, "b"),
        to: place(&root, "a"),
    };
    let changed = |procedure, arguments: Vec<u8>| {
        keeper.0.lock().clear();
        assert!(world.export.promises().make(By::Nfs4, &file));
        done(&world, procedure, &arguments);
        assert!(keeper.0.lock().contains(&file.object()), "{procedure:?}");
        world.export.promises().end(By::Nfs4, file.object());
    };
    changed(Procedure::Write, write(&handle).to_bytes());
    changed(Procedure::SetAttributes, set.to_bytes());
    changed(Procedure::Link, link.to_bytes());
    changed(Procedure::Remove, place(&root, "c").to_bytes());
    changed(Procedure::Rename, over.to_bytes());
    assert_eq!(world.read(&other, 0, 5), b"other");
}

/// Clients of version 2 know the end of the file by the attributes alone.
#[test]
fn a_read_brings_something_where_the_file_has_grown_before_it() {
    let world = World::new(64);
    let file = world.file("a", b"old");
    let handle = world.export.short_handle(file.object());
    let arguments = ReadArgs {
        file: FileHandle(&handle),
        offset: 3,
        count: 100,
        total_count: 0,
    };
    world.write_unreported(&file, b"old and new");
    let results = call(&world, Procedure::Read, &arguments.to_bytes()).expect("a reply");
    let done = ReadResult::from_bytes(&results).expect("a result");
    let done = done.expect("read");
    assert_eq!((done.data.0, done.attributes.size), (&b" and new"[..], 11));
}

#[test]
fn what_takes_longer_than_a_thread_may_wait_gets_no_reply() {
    let world = World::new(64);
    let file = world.file("a", b"old");
    let handle = world.export.short_handle(file.object());
    world.export.promises().close(HashSet::new());
    let arguments = write(&handle).to_bytes();
    assert_eq!(call(&world, Procedure::Write, &arguments), None);
    world.export.promises().open();
    done(&world, Procedure::Write, &arguments);
    assert_eq!(world.read(&file, 0, 3), b"new");
}

/// A client of version 3 that is told the attributes of a directory right before its change takes all that it has cached
/// for true.
#[test]
fn a_directory_that_version_2_changes_was_not_changed_by_one_alone() {
    let world = World::new(64);
    world.file("a", b"old");
    let handle = world.export.short_handle(world.file("b", b"").object());
    let root = world.export.short_handle(world.export.root());
    let create = |name| CreateArgs {
        place: place(&root, name),
        attributes: SetAttributes::default(),
    };
    let beside = |procedure, arguments: Vec<u8>| {
        let change = Change::begin(&world.export, world.export.root());
        done(&world, procedure, &arguments);
        assert!(change.end().before.is_none(), "{procedure:?}");
    };
    let link = LinkArgs {
        file: FileHandle(&handle),
        place: place(&root, "link"),
    };
    let symlink = SymlinkArgs {
        place: place(&root, "symlink"),
        target: Payload(b"a"),
        attributes: SetAttributes::default(),
    };
    let rename = RenameArgs {
        from: place(&root, "a"),
        to: place(&root, "renamed"),
    };
    beside(Procedure::Create, create("file").to_bytes());
    beside(Procedure::MakeDirectory, create("directory").to_bytes());
    beside(Procedure::Symlink, symlink.to_bytes());
    beside(Procedure::Link, link.to_bytes());
    beside(Procedure::Rename, rename.to_bytes());
    beside(Procedure::Remove, place(&root, "file").to_bytes());
    beside(
        Procedure::RemoveDirectory,
        place(&root, "directory").to_bytes(),
    );
}

#[test]
fn a_change_sees_once_where_its_directory_lies() {
    let LocalTree { world, d, .. } = &LocalTree::new();
    let directory = world.export.short_handle(*d);
    let arguments = place(&directory, "f").to_bytes();
    let ((), looks) = looks(|| done(world, Procedure::Remove, &arguments));
    assert_eq!(looks, 1);
}
