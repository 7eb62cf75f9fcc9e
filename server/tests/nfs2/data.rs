//! Attributes, READ and WRITE, and what 32 bits cannot say.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::sync::Arc;

use odafs_common::wire::nfs2::{
    AttributesResult, ChangeResult, FileHandle, FileType, Procedure, ReadResult, SetAttributes,
    SetAttributesArgs, SetTime, StatFsResult, Status, Time,
};
use odafs_server::config::Squash;
use odafs_server::state::StateDir;
use odafs_server::store::{LocalOptions, LocalStore, MemoryStore, Store as _};
use odafs_server::vfs::read::Effort;

use crate::harness::{Server, at, mode, range, user};

const LARGEST: u32 = i32::MAX as u32;

fn set(server: &Server, file: FileHandle<'_>, attributes: SetAttributes) -> AttributesResult {
    server.nfs(
        Procedure::SetAttributes,
        &SetAttributesArgs { file, attributes },
    )
}

fn size(size: u32) -> SetAttributes {
    SetAttributes {
        size: Some(size),
        ..SetAttributes::default()
    }
}

#[test]
fn what_is_written_is_read_and_stable() {
    let store = Arc::new(MemoryStore::new(1));
    let server = Server::over(store.clone(), Squash::None);
    let file = server.create(server.root(), "f");
    let data: Vec<u8> = (0..20_000_u32).map(|i| ((i * 13) >> 3) as u8).collect();
    for (at, part) in data.chunks(8192).enumerate() {
        let written = server.write(file, at as u32 * 8192, part).expect("written");
        assert_eq!(written.size as usize, (at * 8192 + part.len()));
    }
    assert_eq!(server.content(file), data);
    // No COMMIT follows: a crash loses nothing of it.
    store.crash();
    let handle = server.export.handle_of_short(file.0).expect("a handle");
    let object = server.export.resolve(&handle, Effort::MayBlock);
    let mut kept = vec![0; data.len()];
    let read = store.read_at(object.expect("an object"), 0, &mut kept);
    assert_eq!(read, Ok(data.len()));
    assert!(kept == data);
    for (offset, count, expected) in [
        (5, 100, &data[5..105]),
        (0, u32::MAX, &data[..8192]),
        (19_999, 5, &data[19_999..]),
        (20_000, 5, &[]),
        (u32::MAX, u32::MAX, &[]),
        (7, 0, &[]),
    ] {
        let read = server.read(file, offset, count).expect("read");
        assert_eq!(read.data.0, expected, "{offset} {count}");
        assert_eq!(read.attributes, server.attributes(file));
    }
    assert_eq!(server.write(file, 3, &[]).expect("nothing").size, 20_000);
}

#[test]
fn a_read_of_resident_pages_takes_no_worker() {
    let server = Server::new();
    let file = server.create(server.root(), "f");
    server.write(file, 0, &[7; 8192]).expect("written");
    server.read(file, 0, 8192).expect("read");
    let before = server.deferred();
    let read = server.read(file, 4000, 4192).expect("read");
    assert_eq!(read.data.0, [7; 4192]);
    server.attributes(file);
    assert_eq!(server.deferred(), before);
}

#[test]
fn files_end_at_two_gibibytes() {
    // Sparse files, which a store in memory does not have.
    let place = tempfile::tempdir().expect("a directory");
    let tree = place.path().join("tree");
    fs::create_dir(&tree).expect("a directory");
    let path = tree.join("f");
    fs::write(&path, b"").expect("a file");
    // Where root serves, callers are nobody.
    fs::set_permissions(&path, fs::Permissions::from_mode(0o666)).expect("rights");
    let state = StateDir::open(Some(&place.path().join("state")), &tree).expect("a state");
    let store = LocalStore::open(&tree, &state, LocalOptions::default()).expect("a store");
    let server = Server::over(Arc::new(store), Squash::All);
    let file = server.lookup(server.root(), "f").expect("found").file;

    assert_eq!(
        set(&server, file, size(LARGEST)).expect("set").size,
        LARGEST
    );
    server.write(file, LARGEST - 3, b"end").expect("written");
    let end = server.read(file, LARGEST - 3, 9).expect("read");
    assert_eq!(end.data.0, b"end");
    let big = Err(Status::FBig);
    assert_eq!(server.write(file, LARGEST - 2, b"end"), big);
    assert_eq!(server.write(file, u32::MAX, b"end"), big);
    assert_eq!(set(&server, file, size(LARGEST + 1)), big);
    assert_eq!(set(&server, file, size(u32::MAX - 1)), big);
    assert_eq!(server.attributes(file).size, LARGEST);

    // One that others have made larger is told as the largest, and no part of it is taken for all of it.
    let large = fs::File::create(tree.join("large")).expect("a file");
    large.set_len((1 << 33) + 5).expect("a size");
    let everyone = fs::Permissions::from_mode(0o666);
    large.set_permissions(everyone).expect("rights");
    let large = server.lookup(server.root(), "large").expect("found").file;
    assert_eq!(server.attributes(large).size, LARGEST);
    assert_eq!(server.read(large, 0, 10).err(), Some(Status::FBig));
    assert_eq!(server.write(large, 0, b"x"), big);
    let cut = set(&server, large, size(4)).expect("cut");
    assert_eq!(cut.size, 4);
    let read = server.read(large, 0, 10).expect("read");
    assert_eq!(read.data.0, [0; 4]);
}

#[test]
fn only_what_is_named_is_set() {
    let server = Server::new();
    let file = server.create(server.root(), "f");
    let before = server.attributes(file);
    let same = set(&server, file, SetAttributes::default()).expect("nothing");
    assert_eq!(
        (same.mode, same.uid, same.size),
        (before.mode, before.uid, 0)
    );
    assert_eq!((same.atime, same.mtime), (before.atime, before.mtime));
    let time = |seconds, microseconds| {
        SetTime::To(Time {
            seconds,
            microseconds,
        })
    };
    let new = SetAttributes {
        mode: Some(0o104711),
        uid: Some(5),
        gid: Some(6),
        size: Some(7),
        atime: time(8, 9),
        mtime: time(10, 999_999),
    };
    set(&server, file, new).expect("set");
    let after = server.attributes(file);
    assert_eq!((after.kind, after.mode), (FileType::Regular, 0o104711));
    assert_eq!((after.uid, after.gid, after.size), (5, 6, 7));
    let told = |time: Time| (time.seconds, time.microseconds);
    assert_eq!(
        (told(after.atime), told(after.mtime)),
        ((8, 9), (10, 999_999))
    );
    let now = SetAttributes {
        atime: time(8, 9),
        mtime: SetTime::ServerTime,
        ..SetAttributes::default()
    };
    let after = set(&server, file, now).expect("set");
    assert_ne!(told(after.mtime), (10, 999_999));
    assert_eq!(after.atime, after.mtime);
    let never = SetAttributes {
        atime: time(8, 1_000_001),
        ..SetAttributes::default()
    };
    assert_eq!(set(&server, file, never), Err(Status::Io));
}

#[test]
fn rights_are_those_of_the_caller() {
    let server = Server::new();
    let file = server.create(server.root(), "f");
    server.write(file, 0, b"secret").expect("written");
    set(&server, file, mode(0o600)).expect("set");
    let stranger = user(4321, 4321);
    let read: ReadResult<'static> = server.nfs_as(&stranger, Procedure::Read, &range(file, 0, 9));
    assert_eq!(read.err(), Some(Status::Access));
    let arguments = SetAttributesArgs {
        file,
        attributes: mode(0o644),
    };
    let changed: AttributesResult = server.nfs_as(&stranger, Procedure::SetAttributes, &arguments);
    assert_eq!(changed, Err(Status::Perm));
    // Root is nobody there.
    let server = Server::over(Arc::new(MemoryStore::new(1)), Squash::Root);
    let made = server.make(Procedure::Create, at(server.root(), "f"), mode(0o644));
    assert_ne!(made.expect("created").attributes.uid, 0);
}

#[test]
fn what_is_no_file_is_refused_as_such() {
    let server = Server::new();
    let directory = server.mkdir(server.root(), "d");
    assert_eq!(server.read(directory, 0, 5).err(), Some(Status::IsDir));
    assert_eq!(server.write(directory, 0, b"x"), Err(Status::IsDir));
    let file = server.create(server.root(), "f");
    assert_eq!(server.lookup(file, "x").err(), Some(Status::NotDir));
    let gone = server.create(server.root(), "gone");
    let removed: ChangeResult = server.nfs(Procedure::Remove, &at(server.root(), "gone"));
    removed.expect("removed");
    assert_eq!(server.read(gone, 0, 5).err(), Some(Status::Stale));
    // None of ours.
    for forged in [[0; 32], [0xff; 32]] {
        let result: AttributesResult = server.nfs(Procedure::GetAttributes, &FileHandle(&forged));
        assert_eq!(result, Err(Status::Stale));
    }
}

#[test]
fn space_is_told_in_blocks() {
    let store = Arc::new(MemoryStore::new(1));
    let server = Server::over(store.clone(), Squash::None);
    let ask = || {
        let space: StatFsResult = server.nfs(Procedure::StatFs, &server.root());
        space.expect("space")
    };
    let space = ask();
    assert_eq!(space.transfer_bytes, 8192);
    // Once the server has seen the directory, the pool is not asked.
    let before = server.deferred();
    assert_eq!((ask(), server.deferred()), (space, before));
    let held = store.statfs(store.root()).expect("space");
    let told = u64::from(space.blocks) * u64::from(space.block_bytes);
    let block = u64::from(space.block_bytes);
    assert!(told <= held.total_bytes && held.total_bytes - told < block || space.blocks == LARGEST);
    assert!(space.available_blocks <= space.free_blocks && space.free_blocks <= space.blocks);
    store.set_read_only(true);
    let refused = server.make(Procedure::Create, at(server.root(), "f"), mode(0o644));
    assert_eq!(refused.err(), Some(Status::RoFs));
}
