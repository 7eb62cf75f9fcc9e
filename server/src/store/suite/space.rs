//! What is done to bytes of a file without bringing any. A store need not be able to do it: then it says NOTSUPP, and
//! nothing has changed.

use super::*;

/// Whether the store can do it.
fn done(result: Result<()>, what: &str) -> bool {
    match result {
        Err(error) if error.status == Status::NotSupp => {
            eprintln!("suite: no {what} here");
            false
        }
        result => {
            result.unwrap();
            true
        }
    }
}

/// A file without a zero in it.
fn full(store: &dyn Store, name: &str, length: usize) -> (ObjectId, Vec<u8>) {
    let object = file(store, &me(), name, 0o644);
    let data: Vec<u8> = (0..length).map(|at| (at % 251) as u8 + 1).collect();
    assert_eq!(store.write_at(&me(), object, 0, &data).unwrap(), length);
    (object, data)
}

pub(super) fn setting_aside(store: &dyn Store) {
    let (object, mut data) = full(store, "f", 1000);
    for (offset, length, size) in [(2, 998, 1000), (500, 10_000, 10_500), (0, 10, 10_500)] {
        let set = store.allocate(&me(), object, offset, length);
        if done(set, "space set aside") {
            data.resize(size, 0);
        }
        assert_eq!(content(store, object), data);
    }
    assert!(store.allocate(&me(), store.root(), 0, 10).is_err());
}

pub(super) fn holes_made(store: &dyn Store) {
    let (object, mut data) = full(store, "f", 40_000);
    // Within a page, several pages, the first and the last byte; and across the end.
    for (offset, length) in [
        (5000, 100),
        (8192, 8192),
        (0, 1),
        (39_999, 1),
        (30_000, 1_000_000),
    ] {
        if done(store.deallocate(&me(), object, offset, length), "holes") {
            let end = (offset + length).min(40_000);
            data[offset as usize..end as usize].fill(0);
        }
        assert_eq!(store.getattr(object).unwrap().size, 40_000);
        assert_eq!(content(store, object), data);
    }
    store.sync(object, true).unwrap();
    assert_eq!(content(store, object), data);
    let new = SetAttributes::default();
    let link = store.symlink(&me(), store.root(), b"l", b"f", &new);
    for other in [store.root(), link.unwrap().0] {
        assert!(store.deallocate(&me(), other, 0, 10).is_err());
    }
}
