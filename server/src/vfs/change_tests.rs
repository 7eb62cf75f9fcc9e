//! Changes by others, and by ourselves under other names.

use odafs_common::exception::Exception;

use odafs_fabric::sync::Mutex;

use super::*;
use crate::store::{
    CreateHow, Credential, Meddler, MemoryStore, Operation, OutsideChange, Store as _,
};
use crate::vfs::around::{Around, Before};
use crate::vfs::namespace;
use crate::vfs::read::ReadRange;
use crate::vfs::testing::{PAGE, World, other, owner};
use crate::vfs::write::{Stable, commit, write};

const P: usize = PAGE as usize;

/// Only where reports are of the server's own writes alone do further reports wait for a moment.
#[test]
fn reports_are_told_apart_by_who_has_written() {
    let world = World::new(64);
    let file = world.file("a", &[1; P]);
    let elsewhere = world.made("b");
    let reported = |events: &[OutsideEvent]| handle(&world.export, events.to_vec());
    let written = OutsideEvent::Written(file.object());
    assert!(!reported(&[]));
    assert!(!reported(&[OutsideEvent::Written(elsewhere)]), "not live");
    world.write(&file, 0, b"own");
    assert!(reported(&[written]));
    world.write(&file, 0, b"own");
    assert!(reported(&[written, OutsideEvent::Written(elsewhere)]));
    world.write(&file, 0, b"own");
    assert!(!reported(
        &[written, OutsideEvent::Changed(file.object())][1..]
    ));
}

#[test]
fn outside_changes_are_seen() {
    let changes = [
        OutsideChange::Write {
            offset: PAGE + 5,
            data: b"outside",
        },
        OutsideChange::Resize(PAGE + 10),
        OutsideChange::Resize(3 * PAGE),
        OutsideChange::Mode(0o600),
        OutsideChange::Owner(4000),
    ];
    for change in changes {
        let world = World::new(64);
        let file = world.file("a", &[1; 2 * P]);
        world.read(&file, 0, 2 * P as u32);
        let mut client = world.client(&owner());
        let old = client.reference(&file, 0).expect("resident");
        let before = file.change();
        world
            .store
            .outside_change(file.object(), change)
            .expect("changed");
        world.observe();
        assert_eq!(world.export.metrics().outside_changes.get(), 1);
        assert_ne!(file.change(), before, "{change:?}");
        assert!(client.read(&old).is_err(), "{change:?}");
        assert!(!world.view().read(old.address, &mut [0; 1], old.epoch));
        let attributes = world.store.getattr(file.object()).expect("there");
        assert_eq!(file.attributes(), attributes);
        let mut stored = vec![0; attributes.size as usize];
        world
            .store
            .read_at(file.object(), 0, &mut stored)
            .expect("read");
        let root = crate::store::Credential::of(0, 0, &[]);
        let mut data = vec![0; 4 * P];
        let range = ReadRange {
            offset: 0,
            count: 4 * P as u32,
        };
        let effort = Effort::MayBlock;
        let done = crate::vfs::read::read(&world.export, &root, &file, range, effort, &mut data)
            .expect("read");
        assert_eq!(data[..done.count as usize], stored, "{change:?}");
    }
}

#[test]
fn what_was_removed_from_outside_is_gone() {
    let world = World::new(64);
    let file = world.file("a", &[1; P]);
    world.read(&file, 0, 1);
    let mut client = world.client(&owner());
    let old = client.reference(&file, 0).expect("resident");
    world
        .store
        .outside_change(file.object(), OutsideChange::Remove)
        .expect("removed");
    world.observe();
    assert_eq!(client.read(&old), Err(Exception::Stale));
    for effort in [Effort::ResidentOnly, Effort::MayBlock] {
        let failed = world.try_read(&file, 0, 1, effort).err();
        assert_eq!(failed, Some(ReadFailed::Status(Status::Stale)));
    }
    assert!(world.export.live(file.object()).is_none());
}

#[test]
fn an_outside_change_is_not_taken_for_our_own_write() {
    let world = World::new(64);
    let file = world.file("a", &[1; 3 * P]);
    world.read(&file, 0, 3 * P as u32);
    let mut client = world.client(&owner());
    let old = client.reference(&file, 2).expect("resident");
    let change = OutsideChange::Write {
        offset: 2 * PAGE,
        data: b"outside",
    };
    world
        .store
        .outside_change(file.object(), change)
        .expect("changed");
    // Nobody has looked since. The write's own look must not pass over it.
    world.write(&file, 0, b"ours");
    assert_eq!(world.export.metrics().outside_changes.get(), 1);
    assert_eq!(client.read(&old), Err(Exception::Stale));
    assert_eq!(world.read(&file, 2 * PAGE, 7), b"outside");
    assert_eq!(world.read(&file, 0, 5), b"ours\x01");
    // And is done with.
    world.observe();
    assert_eq!(world.export.metrics().outside_changes.get(), 1);
}

/// An outside write of a byte.
fn meddler(file: &File) -> Meddler {
    let object = file.object();
    Box::new(move |store| {
        let change = OutsideChange::Write {
            offset: 7,
            data: b"!",
        };
        store.outside_change(object, change).expect("changed");
    })
}

#[test]
fn attributes_around_a_write_are_true_beside_an_outside_change() {
    type Act = fn(&World, &Arc<File>) -> Around;
    fn put(world: &World, who: &Credential, file: &Arc<File>, at: u64, data: &[u8]) -> Around {
        let written = write(&world.export, who, file, at, data, Stable::Unstable);
        written.map_or_else(|refused| refused.around, |written| written.around)
    }
    let acts: [(&str, Act); 5] = [
        ("write", |world, file| put(world, &owner(), file, 0, b"x")),
        ("append", |world, file| {
            put(world, &owner(), file, PAGE, b"x")
        }),
        ("nothing", |world, file| put(world, &owner(), file, 0, b"")),
        ("refused", |world, file| put(world, &other(), file, 0, b"x")),
        ("commit", |world, file| {
            commit(&world.export, file).expect("committed").1
        }),
    ];
    for (name, act) in acts {
        let world = World::new(64);
        let file = world.file("a", &[1; P]);
        world.read(&file, 0, 1);
        let now = || world.store.getattr(file.object()).expect("there");
        // Nobody else.
        let before = now();
        let around = act(&world, &file);
        if name != "refused" {
            assert_eq!(around.before, Some(Before::from(&before)), "{name}");
        }
        assert_eq!(around.after, Some(now()), "{name}");
        // Someone before, unnoticed.
        let known = Before::from(&now());
        meddler(&file)(&world.store);
        let around = act(&world, &file);
        assert_ne!(around.before, Some(known), "{name}");
        assert_eq!(around.after, Some(now()), "{name}");
    }
}

#[test]
fn an_outside_change_during_a_commit_is_not_the_commits() {
    let world = World::new(64);
    let file = world.file("a", &[1; P]);
    world.store.meddle_next(Operation::Sync, meddler(&file));
    let (_, around) = commit(&world.export, &file).expect("committed");
    let now = world.store.getattr(file.object()).expect("there");
    assert_eq!((around.before, around.after), (None, Some(now)));
}

/// Of a file of 100 bytes, its only page in memory: someone else appends as many.
const APPENDED: OutsideChange<'_> = OutsideChange::Write {
    offset: 100,
    data: &[2; 100],
};

/// And this follows, with a gap, through us.
fn write_behind(world: &World, file: &Arc<File>) {
    world.write(file, 300, &[3; 10]);
    let mut now = [[1; 100], [2; 100], [0; 100]].concat();
    now.extend([3; 10]);
    assert_eq!(world.read(file, 0, 1000), now);
}

#[test]
fn a_write_beyond_an_append_that_nobody_has_noticed_shows_no_zeros_for_it() {
    let world = World::new(64);
    let file = world.file("a", &[1; 100]);
    world.read(&file, 0, 100);
    world
        .store
        .outside_change(file.object(), APPENDED)
        .expect("appended");
    // What a reader finds in memory whenever the store is asked for attributes.
    let seen = Arc::new(Mutex::new(Vec::new()));
    for _ in 0..16 {
        let (arena, leaf, seen) = (
            Arc::clone(world.export.arena()),
            file.find_leaf(0).expect("in memory"),
            Arc::clone(&seen),
        );
        let look = move |_: &MemoryStore| {
            if let Some(frame) = leaf.try_lock(0).and_then(|lock| lock.frame()) {
                let mut bytes = [0xEE; 200];
                arena.copy_out(frame, 0, &mut bytes);
                seen.lock().push(bytes[100]);
            }
        };
        world
            .store
            .meddle_next(Operation::GetAttributes, Box::new(look));
    }
    write_behind(&world, &file);
    assert_eq!(*seen.lock(), [], "pages of which nobody can know the bytes");
}

#[test]
fn a_write_beyond_an_append_in_the_same_moment_shows_no_zeros_for_it() {
    let world = World::new(64);
    let file = world.file("a", &[1; 100]);
    world.read(&file, 0, 100);
    let object = file.object();
    let append = move |store: &MemoryStore| {
        store.outside_change(object, APPENDED).expect("appended");
    };
    world.store.meddle_next(Operation::Write, Box::new(append));
    write_behind(&world, &file);
}

#[test]
fn a_write_that_gives_back_the_size_hides_no_outside_cut() {
    let world = World::new(64);
    let file = world.file("a", &[1; 2 * P]);
    world.read(&file, 0, 2 * P as u32);
    world
        .store
        .outside_change(file.object(), OutsideChange::Resize(1))
        .expect("cut");
    world.write(&file, 2 * PAGE - 1, b"z");
    let mut now = vec![0; 2 * P];
    (now[0], now[2 * P - 1]) = (1, b'z');
    assert_eq!(world.read(&file, 0, 2 * P as u32), now);
}

#[test]
fn lost_events_are_made_up_for() {
    let world = World::new(64);
    let files: Vec<_> = ["a", "b", "c"]
        .map(|name| world.file(name, &[1; 100]))
        .into();
    for file in &files {
        world.read(file, 0, 100);
    }
    let change = OutsideChange::Write {
        offset: 0,
        data: b"2",
    };
    world
        .store
        .outside_change(files[1].object(), change)
        .expect("changed");
    world.store.overflow_events();
    world.observe();
    // Any of the three may have been.
    assert_eq!(world.export.metrics().outside_changes.get(), 3);
    assert_eq!(world.read(&files[1], 0, 2), [b'2', 1]);
}

/// The times are those of the beginning of the write, which is known already.
#[test]
fn the_lost_event_at_the_end_of_a_write_is_made_up_for() {
    let world = World::new(64);
    let file = world.file("a", &[1; 100]);
    let change = |change| (world.store.outside_change(file.object(), change)).expect("changed");
    change(OutsideChange::BeginWrite);
    crate::vfs::attributes::attributes(&world.export, file.object()).expect("there");
    assert_eq!(world.read(&file, 0, 2), [1, 1]);
    change(OutsideChange::EndWrite {
        offset: 0,
        data: b"2",
    });
    world.store.overflow_events();
    world.observe();
    assert_eq!(world.read(&file, 0, 2), [b'2', 1]);
}

#[test]
fn files_without_a_watch_are_looked_at() {
    let world = World::new(64);
    world.store.set_watchable(false);
    let file = world.file("a", &[1; 100]);
    world.read(&file, 0, 100);
    let change = OutsideChange::Write {
        offset: 0,
        data: b"2",
    };
    world
        .store
        .outside_change(file.object(), change)
        .expect("changed");
    // GETATTR notices.
    crate::vfs::attributes::attributes(&world.export, file.object()).expect("there");
    assert_eq!(world.read(&file, 0, 2), [b'2', 1]);
    // So does a read, once the attributes are too old; a thread that polls leaves it to others.
    world
        .store
        .outside_change(file.object(), change)
        .expect("changed");
    file.set_checked(Nanos(0));
    while file.unchecked_for(clock::now()) <= UNWATCHED_AGE_MAX {
        clock::sleep(Nanos::from_millis(50));
    }
    let failed = world.try_read(&file, 0, 1, Effort::ResidentOnly).err();
    assert_eq!(failed, Some(ReadFailed::NotResident));
    assert_eq!(world.read(&file, 0, 2), [b'2', 1]);
    assert_eq!(world.export.metrics().outside_changes.get(), 2);
}

#[test]
fn our_own_changes_are_not_taken_for_others() {
    let world = World::new(64);
    let file = world.file("a", &[1; P]);
    world.read(&file, 0, 1);
    let (export, root) = (&world.export, world.store.root());
    let set = |new| {
        crate::vfs::write::set_attributes(export, &owner(), file.object(), &new, None)
            .expect("set");
    };
    world.write(&file, 0, b"x");
    set(crate::store::SetAttributes {
        mode: Some(0o640),
        ..Default::default()
    });
    set(crate::store::SetAttributes {
        size: Some(10),
        ..Default::default()
    });
    set(crate::store::SetAttributes {
        mtime: crate::store::SetTime::ServerTime,
        ..Default::default()
    });
    namespace::link(export, &owner(), file.object(), root, b"b").expect("linked");
    namespace::rename(export, &owner(), (root, b"b"), (root, b"c")).expect("renamed");
    namespace::remove(export, &owner(), root, b"c").expect("removed");
    world.write(&file, 5, b"yz");
    world.observe();
    assert_eq!(export.metrics().outside_changes.get(), 0);
    assert_eq!(world.read(&file, 0, 10), b"x\x01\x01\x01\x01yz\x01\x01\x01");
}

/// An outside write to the first page, of which a reader gets the old bytes with the new times. Gives what it was told.
fn outside_write_under_way(world: &World, file: &Arc<File>) -> Attributes {
    let object = file.object();
    let change = OutsideChange::BeginWrite;
    world.store.outside_change(object, change).expect("begun");
    let seen = crate::vfs::attributes::attributes(&world.export, object).expect("there");
    assert_eq!(world.read(file, 0, 1), [1]);
    seen
}

const END: OutsideChange<'_> = OutsideChange::EndWrite {
    offset: 0,
    data: b"2",
};

#[test]
fn what_was_read_while_an_outside_write_was_under_way_is_read_again() {
    for ours_between in [false, true] {
        let world = World::new(64);
        let file = world.file("a", &[1; 2 * P]);
        world.read(&file, 0, 2 * P as u32);
        let mut seen = outside_write_under_way(&world, &file);
        if ours_between {
            world.write(&file, PAGE, b"ours");
            world.observe();
            assert_eq!(world.read(&file, 0, 1), [1]);
            seen = crate::vfs::attributes::attributes(&world.export, file.object()).expect("there");
        }
        let reference = world
            .client(&owner())
            .reference(&file, 0)
            .expect("resident");
        world
            .store
            .outside_change(file.object(), END)
            .expect("ended");
        world.observe();
        assert_eq!(world.read(&file, 0, 1), *b"2");
        assert!(
            !world
                .view()
                .read(reference.address, &mut [0; 1], reference.epoch)
        );
        // Clients that keep pages see another version.
        let now = crate::vfs::attributes::attributes(&world.export, file.object()).expect("there");
        assert!(now.ctime > seen.ctime && now.mtime > seen.mtime);
        assert_eq!(world.export.metrics().outside_changes.get(), 1);
    }
}

#[test]
fn what_was_read_while_a_file_without_a_watch_was_written_is_read_again() {
    let world = World::new(64);
    world.store.set_watchable(false);
    let file = world.file("a", &[1; P]);
    outside_write_under_way(&world, &file);
    world
        .store
        .outside_change(file.object(), END)
        .expect("ended");
    let deadline = clock::now() + Nanos::from_secs(60);
    while world.read(&file, 0, 1) != *b"2" {
        assert!(clock::now() < deadline, "an old page for good");
        clock::sleep(Nanos::from_millis(50));
    }
}

#[test]
fn reports_of_our_own_writes_cost_no_page() {
    let world = World::new(64);
    let file = world.file("a", &[1; 4 * P]);
    world.read(&file, 0, 4 * P as u32);
    for round in 0..10 {
        let writes = [1, 2, 0, 3][round % 4];
        for page in 0..writes {
            world.write(&file, page * PAGE, &[round as u8; P]);
        }
        let change = file.change();
        world.observe();
        assert_eq!(file.change(), change, "{round}");
        let found = world.try_read(&file, 0, 4 * P as u32, Effort::ResidentOnly);
        assert!(found.is_ok(), "{round}");
    }
    assert_eq!(world.export.metrics().outside_changes.get(), 0);
}

#[test]
fn a_counter_ends_with_its_watch() {
    let world = World::new(64);
    let file = world.file("a", &[1; P]);
    world.read(&file, 0, 1);
    let mut client = world.client(&owner());
    let counter = client.counter(&file).expect("watched");
    let before = client.read(&counter).expect("readable");
    world.store.end_watches();
    world.observe();
    // Whoever reads it past the NIC sees that it moves, once.
    let view = world.view();
    let now = view.read_word(counter.address, counter.epoch);
    assert_ne!(now.map(|now| now.to_le_bytes().to_vec()), Some(before));
    assert_eq!(client.read(&counter), Err(Exception::Stale));
    assert_eq!(client.counter(&file), None);
}

#[test]
fn what_we_remove_or_replace_is_gone() {
    let world = World::new(64);
    let (a, b) = (world.file("a", &[1; P]), world.file("b", &[2; P]));
    world.read(&a, 0, 1);
    world.read(&b, 0, 1);
    let mut client = world.client(&owner());
    let (old_a, old_b) = (
        client.reference(&a, 0).expect("resident"),
        client.reference(&b, 0).expect("resident"),
    );
    let (export, root) = (&world.export, world.store.root());
    namespace::rename(export, &owner(), (root, b"a"), (root, b"b")).expect("renamed");
    assert_eq!(client.read(&old_b), Err(Exception::Stale));
    assert!(!world.view().read(old_b.address, &mut [0; 1], old_b.epoch));
    assert!(client.read(&old_a).is_ok());
    let handle = *a.handle();
    export
        .file_of_handle(&handle, Effort::MayBlock)
        .expect("there");
    namespace::remove(export, &owner(), root, b"b").expect("removed");
    assert_eq!(client.read(&old_a), Err(Exception::Stale));
    let failed = export.file_of_handle(&handle, Effort::MayBlock).err();
    assert_eq!(failed, Some(ReadFailed::Status(Status::Stale)));
}

#[test]
fn an_unchecked_create_cuts_what_is_there() {
    let world = World::new(64);
    let file = world.file("a", &[1; P]);
    world.read(&file, 0, 1);
    let mut client = world.client(&owner());
    let old = client.reference(&file, 0).expect("resident");
    let new = crate::store::SetAttributes {
        size: Some(0),
        ..Default::default()
    };
    let root = world.store.root();
    let how = || CreateHow::Unchecked(&new);
    let refused = namespace::create(&world.export, &other(), root, b"a", how());
    assert!(refused.is_err(), "not his to cut");
    let created = namespace::create(&world.export, &owner(), root, b"a", how()).expect("cut");
    assert!(created.existed);
    assert_eq!(
        (created.object, created.attributes.size),
        (file.object(), 0)
    );
    assert!(client.read(&old).is_err());
    assert!(world.read(&file, 0, 10).is_empty());
}

#[test]
fn someone_cuts_the_file_during_a_read() {
    let world = World::new(64);
    let file = world.file("a", &[1; 8 * P]);
    world
        .store
        .outside_change(file.object(), OutsideChange::Resize(PAGE + 1))
        .expect("cut");
    // Nobody has told us yet; the store's answer does.
    assert_eq!(world.read(&file, 0, 8 * P as u32), [1; P + 1]);
    assert_eq!(world.export.metrics().outside_changes.get(), 1);
}
