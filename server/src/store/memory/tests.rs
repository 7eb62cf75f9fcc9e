use super::*;
use crate::store::suite;

#[test]
fn suite_of_all_stores() {
    suite::all(|| MemoryStore::new(1), 10_000);
    suite::others(|| MemoryStore::new(2));
}

#[test]
fn suite_for_reading() {
    let store = MemoryStore::new(1);
    suite::grow(&store);
    store.set_read_only(true);
    suite::reading(&store);
}

fn who() -> Credential {
    Credential::of(0, 0, &[])
}

fn new_file(store: &MemoryStore) -> ObjectId {
    let how = CreateHow::Unchecked(&SetAttributes::default());
    store
        .create(&who(), store.root(), b"f", how)
        .unwrap()
        .object
}

fn content(store: &MemoryStore, file: ObjectId) -> Vec<u8> {
    let mut data = vec![0; 1 << 16];
    let count = store.read_at(file, 0, &mut data).unwrap();
    data.truncate(count);
    data
}

/// What is there after a crash with that seed.
fn after_crash(seed: u64) -> Vec<u8> {
    let store = MemoryStore::new(seed);
    let file = new_file(&store);
    store.write_at(&who(), file, 0, &[1; 16384]).unwrap();
    store.sync(file, true).unwrap();
    store.write_at(&who(), file, 0, &[2; 16384]).unwrap();
    let lost = store.crash();
    let data = content(&store, file);
    assert_eq!(lost, data.contains(&1));
    data
}

#[test]
fn a_crash_keeps_what_was_synced_and_pages_of_the_rest() {
    let mut outcomes = std::collections::BTreeSet::new();
    for seed in 0..64 {
        let data = after_crash(seed);
        assert_eq!(data, after_crash(seed));
        assert_eq!(data.len(), 16384);
        let pages: Vec<u8> = data
            .chunks(4096)
            .map(|page| {
                assert!(
                    page.iter()
                        .all(|byte| *byte == page[0] && matches!(byte, 1 | 2))
                );
                page[0]
            })
            .collect();
        outcomes.insert(pages);
    }
    assert!(outcomes.len() > 8, "{outcomes:?}");
}

#[test]
fn after_a_failed_sync_a_good_one_brings_nothing_back() {
    let lost = (0..32).filter(|seed| {
        let store = MemoryStore::new(*seed);
        let file = new_file(&store);
        store.write_at(&who(), file, 0, b"new").unwrap();
        store.fail_next(Operation::Sync, Status::Io);
        assert_eq!(store.sync(file, true).unwrap_err().status, Status::Io);
        assert_eq!(content(&store, file), b"new");
        store.sync(file, true).unwrap();
        store.crash();
        content(&store, file).is_empty()
    });
    let lost = lost.count();
    assert!((1..32).contains(&lost), "{lost}");
}

#[test]
fn full_and_read_only_and_failing() {
    let store = MemoryStore::new(3);
    let file = new_file(&store);
    store.set_capacity(10);
    assert_eq!(store.write_at(&who(), file, 0, &[1; 16]).unwrap(), 10);
    let status = |result: Result<usize>| result.unwrap_err().status;
    assert_eq!(
        status(store.write_at(&who(), file, 10, &[1; 16])),
        Status::NoSpc
    );
    assert_eq!(store.write_at(&who(), file, 4, &[2; 6]).unwrap(), 6);
    store.set_capacity(1 << 20);
    store.fail_next(Operation::Write, Status::Io);
    store.fail_next(Operation::Write, Status::DQuot);
    assert_eq!(status(store.write_at(&who(), file, 0, b"x")), Status::Io);
    assert_eq!(status(store.write_at(&who(), file, 0, b"x")), Status::DQuot);
    store.set_read_only(true);
    assert_eq!(status(store.write_at(&who(), file, 0, b"x")), Status::RoFs);
    assert_eq!(
        store.remove(&who(), store.root(), b"f").unwrap_err().status,
        Status::RoFs
    );
    store.set_read_only(false);
    assert_eq!(store.write_at(&who(), file, 0, b"x").unwrap(), 1);
}

#[test]
fn extended_attributes_take_room() {
    let store = MemoryStore::new(5);
    let (file, root) = (new_file(&store), store.root());
    store.set_capacity(1000);
    let used = || {
        let space = store.statfs(root).unwrap();
        assert_eq!(space.free_bytes, space.available_bytes);
        space.total_bytes - space.free_bytes
    };
    let set = |object, name: &[u8], length: usize| {
        let value = vec![7; length];
        let set = store.set_xattr(&who(), object, name, &value, XattrHow::Either);
        set.map_err(|refused| refused.status)
    };
    let write = |bytes: usize| store.write_at(&who(), file, 0, &vec![1; bytes]);
    set(file, b"name", 196).unwrap();
    set(root, b"n", 99).unwrap();
    assert_eq!(used(), 300);
    // Files have the rest.
    assert_eq!(write(800).unwrap(), 700);
    assert_eq!((used(), set(root, b"m", 0)), (1000, Err(Status::NoSpc)));
    assert_eq!(set(file, b"name", 197), Err(Status::NoSpc));
    assert_eq!(store.xattr(&who(), file, b"name").unwrap(), [7; 196]);
    // A shorter value makes room, also for a name.
    set(file, b"name", 100).unwrap();
    set(root, b"m", 95).unwrap();
    assert_eq!(used(), 1000);
    store.remove_xattr(&who(), root, b"m").unwrap();
    assert_eq!(used(), 904);
    store.sync(file, false).unwrap();
    store.crash();
    assert_eq!(used(), 904);
    // A file gives back all that it has with its last name.
    store.link(&who(), file, root, b"other").unwrap();
    store.remove(&who(), root, b"f").unwrap();
    assert_eq!(used(), 904);
    store.remove(&who(), root, b"other").unwrap();
    assert_eq!(used(), 100);
    let directory = store.mkdir(&who(), root, b"d", &SetAttributes::default());
    set(directory.unwrap().0, b"name", 300).unwrap();
    assert_eq!(used(), 404);
    store.rmdir(&who(), root, b"d").unwrap();
    store.remove_xattr(&who(), root, b"n").unwrap();
    assert_eq!(used(), 0);
}

#[test]
fn changes_from_outside_are_reported_where_watched() {
    let store = MemoryStore::new(4);
    let file = new_file(&store);
    store
        .outside_change(file, OutsideChange::Mode(0o600))
        .unwrap();
    assert!(store.watch(file));
    assert!(store.wait_events(Duration::ZERO).is_empty());
    let write = OutsideChange::Write {
        offset: 2,
        data: b"hey",
    };
    store.outside_change(file, write).unwrap();
    assert_eq!(
        store.wait_events(Duration::ZERO),
        [OutsideEvent::Written(file)]
    );
    assert_eq!(content(&store, file), b"\0\0hey");
    store
        .outside_change(file, OutsideChange::Resize(3))
        .unwrap();
    store.overflow_events();
    assert_eq!(store.wait_events(Duration::ZERO), [OutsideEvent::Overflow]);
    store.outside_change(file, OutsideChange::Remove).unwrap();
    assert_eq!(
        store.wait_events(Duration::ZERO),
        [OutsideEvent::Removed(file)]
    );
    assert_eq!(store.getattr(file).unwrap_err().status, Status::Stale);
    store.set_watchable(false);
    assert!(!store.watch(store.root()));
}
