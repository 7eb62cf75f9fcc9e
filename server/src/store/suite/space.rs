//! Allocation, holes, copies and clones. A store that cannot do one of them must refuse it with NOTSUPP and change nothing.

use super::*;

/// Whether the store supports the operation.
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
    // Within a page, several pages, the first and the last byte, and across the end.
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

/// What a store reports of holes is true.
pub(super) fn holes_found(store: &dyn Store) {
    let object = file(store, &me(), "f", 0o644);
    refused(store.seek(object, 0, Extent::Data), Status::Nxio);
    let size = (1 << 20) + 5;
    store.write_at(&me(), object, size - 5, b"data!").unwrap();
    store
        .write_at(&me(), object, 1 << 19, &[7; 1 << 16])
        .unwrap();
    let (mut at, mut what, mut borders) = (0, Extent::Hole, 0);
    let mut known = vec![false; size as usize];
    while at < size {
        let found = store.seek(object, at, what).unwrap();
        // Every file ends with a hole.
        let border = found.unwrap_or(size);
        assert!(border >= at && border <= size, "{what:?} at {border}");
        assert!(found.is_some() || what == Extent::Data);
        // The bytes before a hole are data.
        known[at as usize..border as usize].fill(what == Extent::Hole);
        (at, borders) = (border, borders + 1);
        what = match what {
            Extent::Data => Extent::Hole,
            Extent::Hole => Extent::Data,
        };
        assert!(borders < 100);
    }
    let written = (1 << 19..(1 << 19) + (1 << 16)).chain(size - 5..size);
    for byte in written {
        assert!(known[byte as usize], "byte {byte} was written");
    }
    for beyond in [size, size + 1, i64::MAX as u64, u64::MAX] {
        for what in [Extent::Data, Extent::Hole] {
            refused(store.seek(object, beyond, what), Status::Nxio);
        }
    }
}

pub(super) fn copies(store: &dyn Store) {
    let (source, data) = full(store, "source", 20_000);
    let target = file(store, &me(), "target", 0o644);
    let mut expected: Vec<u8> = Vec::new();
    // Again and again, like a client that is told that fewer bytes were copied.
    let copy = |from: u64, to: u64, count: u64| {
        let mut done = 0;
        while done < count {
            let (from, to) = ((source, from + done), (target, to + done));
            let copied = store.copy(&me(), from, to, count - done).unwrap();
            assert!(copied <= count - done);
            if copied == 0 {
                break;
            }
            done += copied;
        }
        done
    };
    for (from, to, count, done) in [
        (0, 0, 100, 100),
        (5000, 50, 10_000, 10_000),
        // A gap, and the end of the source.
        (19_000, 30_000, 5000, 1000),
        (20_000, 0, 10, 0),
        (1 << 40, 0, 10, 0),
        (0, 0, 0, 0),
    ] {
        assert_eq!(copy(from, to, count), done);
        let end = (to + done) as usize;
        if done > 0 {
            expected.resize(expected.len().max(end), 0);
            let bytes = &data[from as usize..(from + done) as usize];
            expected[to as usize..end].copy_from_slice(bytes);
        }
        assert_eq!(content(store, target), expected);
        assert_eq!(content(store, source), data);
    }
    store.sync(target, true).unwrap();
    assert_eq!(content(store, target), expected);
    let root = store.root();
    refused(store.copy(&me(), (root, 0), (target, 0), 10), Status::IsDir);
    refused(store.copy(&me(), (source, 0), (root, 0), 10), Status::IsDir);
    let far = store.copy(&me(), (source, 0), (target, u64::MAX - 3), 10);
    refused(far, Status::FBig);
}

pub(super) fn clones(store: &dyn Store) {
    let blocks = store.clone_block_bytes(store.root());
    let block = u64::from(blocks.unwrap_or(4096));
    let length = 2 * block as usize + 100;
    let (source, data) = full(store, "source", length);
    let target = file(store, &me(), "target", 0o644);
    let clone = |from, to, count| store.clone_range(&me(), (source, from), (target, to), count);
    assert_eq!(store.clone_block_bytes(target), blocks);
    if blocks.is_none() {
        eprintln!("suite: no clones here");
        refused(clone(0, 0, block), Status::NotSupp);
        assert!(content(store, target).is_empty());
        return;
    }
    clone(0, block, length as u64).unwrap();
    let mut expected = [vec![0; block as usize], data.clone()].concat();
    assert_eq!(content(store, target), expected);
    clone(block, 0, block).unwrap();
    expected[..block as usize].copy_from_slice(&data[block as usize..2 * block as usize]);
    assert_eq!(content(store, target), expected);
    // They are still files of their own.
    store.write_at(&me(), target, 0, b"other").unwrap();
    expected[..5].copy_from_slice(b"other");
    store.write_at(&me(), source, block + 5, b"new").unwrap();
    store.sync(target, true).unwrap();
    assert_eq!(content(store, target), expected);
    for (from, to, count) in [
        (1, 0, block),
        (0, 1, block),
        (0, 0, block - 1),
        // A block is cut short, but the target continues behind it.
        (block, 0, block + 100),
        (2 * block, 0, block),
    ] {
        refused(clone(from, to, count), Status::Inval);
    }
    assert_eq!(content(store, target), expected);
}
