//! The times shown of a store whose clock stands still.

use super::*;
use crate::store::{MemoryStore, Operation, OutsideChange, Status, suite};

fn held() -> (Arc<MemoryStore>, Advancing) {
    let store = Arc::new(MemoryStore::new(1));
    store.hold_clock(u32::MAX);
    let advancing = Advancing::new(Arc::clone(&store) as Arc<dyn Store>);
    (store, advancing)
}

fn who() -> Credential {
    Credential::of(1000, 1000, &[])
}

fn make(store: &Advancing, name: &[u8]) -> ObjectId {
    let new = SetAttributes::default();
    let how = CreateHow::Guarded(&new);
    let made = store.create(&who(), store.root(), name, how);
    made.expect("created").object
}

/// The attributes by name, and as a thread that must not wait gets them.
fn looked_up(store: &Advancing, name: &[u8]) -> [Attributes; 2] {
    let (who, root) = (who(), store.root());
    let at_hand = store.lookup_at_hand(&who, root, name).expect("in memory");
    [store.lookup(&who, root, name), at_hand].map(|found| found.expect("there").1)
}

fn times(store: &Advancing, object: ObjectId) -> Times {
    Times::of(&store.getattr(object).expect("there"))
}

#[test]
fn it_is_as_good_a_store_as_another() {
    let entries = 1000;
    suite::all(|| held().1, entries);
    suite::others(|| held().1);
}

#[test]
fn each_change_shows_later_times() {
    let (_store, store) = held();
    let file = make(&store, b"a");
    let mut last = times(&store, file);
    for _ in 0..10 {
        assert!(times(&store, file) == last, "nothing changed");
        store.write_at(&who(), file, 0, b"x").expect("written");
        let now = times(&store, file);
        assert!(now.ctime > last.ctime && now.mtime > last.mtime);
        assert!(
            looked_up(&store, b"a")
                .iter()
                .all(|seen| Times::of(seen) == now)
        );
        last = now;
    }
    let new = SetAttributes {
        mode: Some(0o600),
        ..SetAttributes::default()
    };
    let set = store.setattr(&who(), file, &new).expect("set");
    assert!(set.ctime > last.ctime && set.mtime == last.mtime);
    assert!(set.change() > last.ctime.change());
    assert!(Times::of(&set) == times(&store, file));
    let linked = store
        .link(&who(), file, store.root(), b"b")
        .expect("linked");
    assert!(linked.ctime > set.ctime && linked.mtime == set.mtime);
    assert!(linked.change() > set.change());
}

#[test]
fn directories_change_with_each_name() {
    let (_store, store) = held();
    let (who, root) = (who(), store.root());
    let new = SetAttributes::default();
    let mut last = times(&store, root);
    let mut changed = |what: &str| {
        let now = times(&store, root);
        assert!(now.ctime > last.ctime && now.mtime > last.mtime, "{what}");
        last = now;
    };
    let file = make(&store, b"a");
    changed("create");
    store.mkdir(&who, root, b"d", &new).expect("made");
    changed("mkdir");
    store.symlink(&who, root, b"s", b"a", &new).expect("made");
    changed("symlink");
    let fifo = Special::Fifo;
    store.mknod(&who, root, b"f", fifo, &new).expect("made");
    changed("mknod");
    store.link(&who, file, root, b"b").expect("linked");
    changed("link");
    let renamed = store.rename(&who, (root, b"b"), (root, b"c"));
    renamed.expect("renamed");
    changed("rename");
    store.remove(&who, root, b"c").expect("removed");
    changed("remove");
    store.rmdir(&who, root, b"d").expect("removed");
    changed("rmdir");
}

#[test]
fn what_was_changed_once_or_set_is_shown_as_it_is() {
    let (memory, store) = held();
    let file = make(&store, b"a");
    memory.hold_clock(0);
    store.write_at(&who(), file, 0, b"x").expect("written");
    let stored = Times::of(&memory.getattr(file).expect("there"));
    assert!(times(&store, file) == stored);
    memory.hold_clock(u32::MAX);
    store.write_at(&who(), file, 0, b"y").expect("written");
    let shown = times(&store, file);
    let new = SetAttributes {
        mtime: SetTime::To(stored.mtime),
        ..SetAttributes::default()
    };
    let set = store.setattr(&who(), file, &new).expect("set");
    assert!(set.mtime == stored.mtime && set.ctime > shown.ctime);
    store.write_at(&who(), file, 0, b"z").expect("written");
    assert!(times(&store, file).mtime > stored.mtime);
    // Once the clock moves on, it is ahead of the shown times.
    memory.hold_clock(0);
    store.write_at(&who(), file, 0, b"x").expect("written");
    let stored = Times::of(&memory.getattr(file).expect("there"));
    assert!(times(&store, file) == stored);
}

#[test]
fn what_was_refused_changes_no_times_and_what_failed_does() {
    let (memory, store) = held();
    let file = make(&store, b"a");
    store.write_at(&who(), file, 0, b"x").expect("written");
    let before = times(&store, file);
    let other = Credential::of(2000, 2000, &[]);
    assert!(store.write_at(&other, file, 0, b"y").is_err());
    assert!(times(&store, file) == before);
    memory.fail_next(Operation::Write, Status::Io);
    assert!(store.write_at(&who(), file, 0, b"y").is_err());
    assert!(times(&store, file).ctime > before.ctime);
}

#[test]
fn a_look_from_before_a_change_is_not_taken_for_another() {
    let (memory, store) = held();
    let file = make(&store, b"a");
    store.write_at(&who(), file, 0, b"x").expect("written");
    let old = memory.getattr(file).expect("there");
    let outside = OutsideChange::Write {
        offset: 0,
        data: b"!",
    };
    memory.outside_change(file, outside).expect("changed");
    let now = times(&store, file);
    let late = store.shown(file, old).expect("there");
    assert!(Times::of(&late) == now);
    assert!(times(&store, file) == now);
}

#[test]
fn a_clock_that_goes_back_does_no_harm() {
    let (memory, store) = held();
    let file = make(&store, b"a");
    store.write_at(&who(), file, 0, b"x").expect("written");
    let now = times(&store, file);
    // The same as after a look at a later time.
    let later = Attributes {
        ctime: Time {
            seconds: now.ctime.seconds + 3600,
            ..now.ctime
        },
        ..memory.getattr(file).expect("there")
    };
    let shown = store.shown(file, later).expect("there");
    let mut last = shown.ctime;
    for _ in 0..3 {
        store.write_at(&who(), file, 0, b"y").expect("written");
        let now = times(&store, file);
        assert!(now.ctime > last);
        last = now.ctime;
    }
    assert!(times(&store, file).ctime == last);
}

#[test]
fn the_table_is_bounded() {
    let (_memory, store) = held();
    let mut generations = Generations::default();
    let shown = Shown {
        stored: times(&store, store.root()),
        shown: times(&store, store.root()),
        changed: None,
    };
    for ino in 0..5 * Advancing::YOUNG_MAX as u64 {
        let generation = 1;
        generations.insert(ObjectId { ino, generation }, shown);
    }
    let held = generations.young.len() + generations.old.len();
    assert!(held <= 2 * Advancing::YOUNG_MAX);
    // Entries that were used lately stay.
    let last = ObjectId {
        ino: 5 * Advancing::YOUNG_MAX as u64 - 1,
        generation: 1,
    };
    assert!(generations.get(last).is_some());
}
