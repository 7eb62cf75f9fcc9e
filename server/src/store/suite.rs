//! What every store must do: the same tests for each.
//!
//! They run with whatever ids the process has; what needs other users is in [`others`], for stores that can act
//! as any user.

use std::collections::BTreeSet;
use std::time::Duration;

use odafs_common::wire::nfs3::{FileType, SetAttributes, SetTime, Status, Time, access};

use super::*;

type Test = fn(&dyn Store);

/// Runs every test below, each on a store of its own that `make` gives; listing with that many entries.
pub(crate) fn all<S: Store>(make: impl Fn() -> S, entries: usize) {
    listing(&make(), entries);
    let tests: &[(&str, Test)] = &[
        ("root", root),
        ("bytes", bytes),
        ("create", create),
        ("names", names),
        ("directories", directories),
        ("links", links),
        ("renames", renames),
        ("symlinks", symlinks),
        ("specials", specials),
        ("attributes", attributes),
        ("listing while it changes", listing_while_it_changes),
        ("listing with objects", listing_with_objects),
        ("types", types),
        ("handles", handles),
        ("deep paths", deep_paths),
        ("limits", limits),
        ("one of many wins", one_of_many_wins),
        ("events", events),
    ];
    for (name, test) in tests {
        eprintln!("suite: {name}");
        test(&make());
    }
}

/// Runs the tests that need several users.
pub(crate) fn others<S: Store>(make: impl Fn() -> S) {
    let tests: &[(&str, Test)] = &[
        ("classes", classes),
        ("owners", owners),
        ("sticky", sticky),
        ("giving away", giving_away),
        ("inherited group", inherited_group),
    ];
    for (name, test) in tests {
        eprintln!("suite: {name}");
        test(&make());
    }
}

pub(crate) fn me() -> Credential {
    Credential::of_this_process()
}

pub(crate) fn new_mode(mode: u32) -> SetAttributes {
    SetAttributes {
        mode: Some(mode),
        ..SetAttributes::default()
    }
}

/// A new file in the root directory.
pub(crate) fn file(store: &dyn Store, who: &Credential, name: &str, mode: u32) -> ObjectId {
    let how = new_mode(mode);
    let how = CreateHow::Guarded(&how);
    store
        .create(who, store.root(), name.as_bytes(), how)
        .unwrap()
        .object
}

fn directory(store: &dyn Store, who: &Credential, name: &str, mode: u32) -> ObjectId {
    store
        .mkdir(who, store.root(), name.as_bytes(), &new_mode(mode))
        .unwrap()
        .0
}

pub(crate) fn content(store: &dyn Store, object: ObjectId) -> Vec<u8> {
    let mut data = vec![0xee; 1 << 16];
    let count = store.read_at(object, 0, &mut data).unwrap();
    data.truncate(count);
    data
}

#[track_caller]
pub(crate) fn refused<T>(result: Result<T>, status: Status) {
    match result {
        Ok(_) => panic!("should have been refused with {status:?}"),
        Err(error) => assert_eq!(error.status, status),
    }
}

fn root(store: &dyn Store) {
    let root = store.root();
    let attributes = store.getattr(root).unwrap();
    assert_eq!(attributes.kind, FileType::Directory);
    assert_eq!(attributes.fileid, root.ino);
    for name in [b".".as_slice(), b".."] {
        assert_eq!(store.lookup(&me(), root, name).unwrap().0, root);
    }
}

fn bytes(store: &dyn Store) {
    let object = file(store, &me(), "f", 0o644);
    assert_eq!(store.write_at(&me(), object, 10_000, b"end").unwrap(), 3);
    assert_eq!(store.write_at(&me(), object, 0, b"start").unwrap(), 5);
    let attributes = store.getattr(object).unwrap();
    assert_eq!(attributes.size, 10_003);
    let data = content(store, object);
    assert_eq!(&data[..5], b"start");
    assert!(data[5..10_000].iter().all(|byte| *byte == 0));
    assert_eq!(&data[10_000..], b"end");
    let mut tail = [0; 8];
    assert_eq!(store.read_at(object, 10_001, &mut tail).unwrap(), 2);
    assert_eq!(&tail[..2], b"nd");
    assert_eq!(store.read_at(object, 10_003, &mut tail).unwrap(), 0);
    assert_eq!(store.read_at(object, u64::MAX - 3, &mut tail).unwrap(), 0);
    assert_eq!(store.write_at(&me(), object, 5, b"").unwrap(), 0);
    refused(
        store.write_at(&me(), object, u64::MAX - 3, b"far away"),
        Status::FBig,
    );
    store.sync(object, true).unwrap();
    store.sync(object, false).unwrap();
    let directory = directory(store, &me(), "d", 0o755);
    store.sync(directory, false).unwrap();
}

fn create(store: &dyn Store) {
    let (root, new) = (store.root(), new_mode(0o640));
    let guarded = || store.create(&me(), root, b"f", CreateHow::Guarded(&new));
    let first = guarded().unwrap();
    assert!(!first.existed);
    assert_eq!(first.attributes.mode, 0o640);
    assert_eq!(first.attributes.kind, FileType::Regular);
    assert_eq!((first.attributes.size, first.attributes.links), (0, 1));
    refused(guarded(), Status::Exist);

    store.write_at(&me(), first.object, 0, b"kept").unwrap();
    let cut = SetAttributes {
        size: Some(0),
        ..new_mode(0o777)
    };
    let again = store
        .create(&me(), root, b"f", CreateHow::Unchecked(&cut))
        .unwrap();
    assert!(again.existed);
    assert_eq!(again.object, first.object);
    assert_eq!((again.attributes.size, again.attributes.mode), (4, 0o640));

    let exclusive = |verifier| store.create(&me(), root, b"x", CreateHow::Exclusive(verifier));
    let first = exclusive([1, 2, 3, 4, 5, 6, 7, 8]).unwrap();
    let again = exclusive([1, 2, 3, 4, 5, 6, 7, 8]).unwrap();
    assert!(!first.existed && again.existed);
    assert_eq!(first.object, again.object);
    refused(exclusive([1, 2, 3, 4, 5, 6, 7, 9]), Status::Exist);

    store.mkdir(&me(), root, b"d", &new_mode(0o755)).unwrap();
    refused(
        store.create(&me(), root, b"d", CreateHow::Unchecked(&new)),
        Status::Exist,
    );
    let sized = SetAttributes {
        size: Some(5),
        ..new_mode(0o600)
    };
    let created = store
        .create(&me(), root, b"s", CreateHow::Unchecked(&sized))
        .unwrap();
    assert_eq!(created.attributes.size, 5);
    assert_eq!(content(store, created.object), [0; 5]);
}

fn names(store: &dyn Store) {
    let (root, new) = (store.root(), new_mode(0o755));
    let longest = [b'n'; 255];
    let (object, _) = store.mkdir(&me(), root, &longest, &new).unwrap();
    assert_eq!(store.lookup(&me(), root, &longest).unwrap().0, object);
    let odd = b"\xff\xfe\n\t *?\\~";
    let (object, _) = store.mkdir(&me(), root, odd, &new).unwrap();
    assert_eq!(store.lookup(&me(), root, odd).unwrap().0, object);

    let far = [b'n'; 256];
    let bad: &[(&[u8], Status)] = &[
        (&far, Status::NameTooLong),
        (b"", Status::Access),
        (b"a/b", Status::Access),
        (b"/etc", Status::Access),
        (b"..//", Status::Access),
        (b"a\0b", Status::Access),
    ];
    for (name, status) in bad {
        refused(store.lookup(&me(), root, name), *status);
        refused(
            store.create(&me(), root, name, CreateHow::Unchecked(&new)),
            *status,
        );
        refused(store.mkdir(&me(), root, name, &new), *status);
        refused(store.symlink(&me(), root, name, b"t", &new), *status);
        refused(store.mknod(&me(), root, name, Special::Fifo, &new), *status);
        refused(store.remove(&me(), root, name), *status);
        refused(store.rmdir(&me(), root, name), *status);
        refused(store.rename(&me(), (root, name), (root, b"y")), *status);
        refused(store.rename(&me(), (root, odd), (root, name)), *status);
    }
    for dots in [b".".as_slice(), b".."] {
        refused(
            store.create(&me(), root, dots, CreateHow::Unchecked(&new)),
            Status::Exist,
        );
        refused(store.mkdir(&me(), root, dots, &new), Status::Exist);
        refused(store.remove(&me(), root, dots), Status::IsDir);
        refused(
            store.rename(&me(), (root, dots), (root, b"y")),
            Status::Inval,
        );
        refused(
            store.rename(&me(), (root, odd), (root, dots)),
            Status::Inval,
        );
    }
    refused(store.rmdir(&me(), root, b"."), Status::Inval);
    refused(store.rmdir(&me(), root, b".."), Status::Exist);
    refused(store.lookup(&me(), root, b"missing"), Status::NoEnt);
}

fn directories(store: &dyn Store) {
    let root = store.root();
    let links = store.getattr(root).unwrap().links;
    let (outer, attributes) = store
        .mkdir(&me(), root, b"outer", &new_mode(0o750))
        .unwrap();
    assert_eq!(attributes.mode & 0o777, 0o750);
    // Not every file system counts a directory's links.
    let counts = attributes.links == 2;
    assert_eq!(
        store.getattr(root).unwrap().links,
        links + u32::from(counts)
    );
    let (inner, _) = store
        .mkdir(&me(), outer, b"inner", &new_mode(0o755))
        .unwrap();
    assert_eq!(store.lookup(&me(), inner, b"..").unwrap().0, outer);
    refused(
        store.mkdir(&me(), root, b"outer", &new_mode(0o755)),
        Status::Exist,
    );
    refused(store.rmdir(&me(), root, b"outer"), Status::NotEmpty);
    refused(store.rmdir(&me(), root, b"missing"), Status::NoEnt);
    refused(store.remove(&me(), root, b"outer"), Status::IsDir);
    let before = store.getattr(outer).unwrap();
    assert_eq!(store.rmdir(&me(), outer, b"inner").unwrap(), inner);
    let after = store.getattr(outer).unwrap();
    assert_eq!(after.links, before.links - u32::from(counts));
    assert!(after.mtime >= before.mtime);
    refused(store.getattr(inner), Status::Stale);
    refused(store.lookup(&me(), inner, b"x"), Status::Stale);
    assert_eq!(store.rmdir(&me(), root, b"outer").unwrap(), outer);
    file(store, &me(), "f", 0o644);
    refused(store.rmdir(&me(), root, b"f"), Status::NotDir);
}

fn links(store: &dyn Store) {
    let root = store.root();
    let object = file(store, &me(), "one", 0o644);
    store.write_at(&me(), object, 0, b"shared").unwrap();
    let attributes = store.link(&me(), object, root, b"two").unwrap();
    assert_eq!(attributes.links, 2);
    assert_eq!(store.lookup(&me(), root, b"two").unwrap().0, object);
    refused(store.link(&me(), object, root, b"two"), Status::Exist);
    let (d, _) = store.mkdir(&me(), root, b"d", &new_mode(0o755)).unwrap();
    refused(store.link(&me(), d, root, b"e"), Status::IsDir);
    assert_eq!(
        store.remove(&me(), root, b"one").unwrap(),
        Unlinked {
            object,
            last: false
        }
    );
    assert_eq!(store.getattr(object).unwrap().links, 1);
    assert_eq!(content(store, object), b"shared");
    assert_eq!(
        store.remove(&me(), root, b"two").unwrap(),
        Unlinked { object, last: true }
    );
    refused(store.getattr(object), Status::Stale);
    refused(store.read_at(object, 0, &mut [0; 8]), Status::Stale);
    refused(store.write_at(&me(), object, 0, b"ghost"), Status::Stale);
    refused(store.link(&me(), object, root, b"three"), Status::Stale);
    let next = file(store, &me(), "one", 0o644);
    assert_ne!(next, object);
    refused(store.getattr(object), Status::Stale);
}

fn renames(store: &dyn Store) {
    let root = store.root();
    let rename = |from: (ObjectId, &str), to: (ObjectId, &str)| {
        store.rename(&me(), (from.0, from.1.as_bytes()), (to.0, to.1.as_bytes()))
    };
    let f = file(store, &me(), "f", 0o644);
    let g = file(store, &me(), "g", 0o644);
    let d = directory(store, &me(), "d", 0o755);
    let e = directory(store, &me(), "e", 0o755);
    assert_eq!(rename((root, "f"), (d, "moved")).unwrap(), None);
    assert_eq!(store.lookup(&me(), d, b"moved").unwrap().0, f);
    refused(store.lookup(&me(), root, b"f"), Status::NoEnt);
    store.write_at(&me(), f, 0, b"still").unwrap();
    assert_eq!(content(store, f), b"still");
    // Over another file.
    let replaced = rename((d, "moved"), (root, "g")).unwrap();
    assert_eq!(
        replaced,
        Some(Unlinked {
            object: g,
            last: true
        })
    );
    refused(store.getattr(g), Status::Stale);
    // Two names of one object.
    store.link(&me(), f, root, b"h").unwrap();
    assert_eq!(rename((root, "h"), (root, "g")).unwrap(), None);
    assert_eq!(store.getattr(f).unwrap().links, 2);
    // Over one of two names.
    let k = file(store, &me(), "k", 0o644);
    assert_eq!(
        rename((root, "k"), (root, "h")).unwrap(),
        Some(Unlinked {
            object: f,
            last: false
        })
    );
    assert_eq!(store.lookup(&me(), root, b"h").unwrap().0, k);
    // Directories.
    refused(rename((root, "d"), (root, "g")), Status::NotDir);
    refused(rename((root, "g"), (root, "d")), Status::IsDir);
    let (inner, _) = store.mkdir(&me(), d, b"inner", &new_mode(0o755)).unwrap();
    refused(rename((root, "d"), (inner, "loop")), Status::Inval);
    refused(rename((root, "e"), (root, "d")), Status::NotEmpty);
    let replaced = rename((root, "d"), (root, "e")).unwrap();
    assert_eq!(
        replaced,
        Some(Unlinked {
            object: e,
            last: true
        })
    );
    assert_eq!(store.lookup(&me(), root, b"e").unwrap().0, d);
    assert_eq!(rename((d, "inner"), (root, "up")).unwrap(), None);
    assert_eq!(store.lookup(&me(), inner, b"..").unwrap().0, root);
    refused(rename((root, "missing"), (root, "x")), Status::NoEnt);
}

fn symlinks(store: &dyn Store) {
    let root = store.root();
    let new = SetAttributes::default();
    let (link, attributes) = store
        .symlink(&me(), root, b"l", b"/etc/passwd", &new)
        .unwrap();
    assert_eq!(attributes.kind, FileType::Symlink);
    assert_eq!(attributes.size, 11);
    assert_eq!(store.readlink(link).unwrap(), b"/etc/passwd");
    assert_eq!(store.lookup(&me(), root, b"l").unwrap().0, link);
    // It is an object of its own, and nothing goes through it.
    store.symlink(&me(), root, b"up", b"..", &new).unwrap();
    let (up, _) = store.lookup(&me(), root, b"up").unwrap();
    refused(store.lookup(&me(), up, b"etc"), Status::NotDir);
    refused(
        store.create(&me(), up, b"x", CreateHow::Unchecked(&new)),
        Status::NotDir,
    );
    refused(
        store.create(&me(), root, b"l", CreateHow::Unchecked(&new)),
        Status::Exist,
    );
    refused(store.read_at(link, 0, &mut [0; 8]), Status::Inval);
    refused(store.write_at(&me(), link, 0, b"x"), Status::Inval);
    refused(store.symlink(&me(), root, b"l", b"t", &new), Status::Exist);
    refused(
        store.symlink(&me(), root, b"m", &[b'a'; 4096], &new),
        Status::NameTooLong,
    );
    // What every file system takes.
    let longest = vec![b'a'; 1000];
    let (long, _) = store.symlink(&me(), root, b"m", &longest, &new).unwrap();
    assert_eq!(store.readlink(long).unwrap(), longest);
    refused(store.readlink(root), Status::Inval);
    refused(
        store.readlink(file(store, &me(), "f", 0o644)),
        Status::Inval,
    );
    assert!(store.remove(&me(), root, b"l").unwrap().last);
    refused(store.readlink(link), Status::Stale);
}

fn specials(store: &dyn Store) {
    let root = store.root();
    let new = new_mode(0o666);
    let mknod = |name: &str, what| store.mknod(&me(), root, name.as_bytes(), what, &new);
    let (fifo, attributes) = mknod("fifo", Special::Fifo).unwrap();
    assert_eq!((attributes.kind, attributes.mode), (FileType::Fifo, 0o666));
    let (socket, attributes) = mknod("socket", Special::Socket).unwrap();
    assert_eq!(attributes.kind, FileType::Socket);
    refused(mknod("fifo", Special::Socket), Status::Exist);
    // None of these may hang.
    for special in [fifo, socket] {
        refused(store.read_at(special, 0, &mut [0; 8]), Status::Inval);
        refused(store.write_at(&me(), special, 0, b"x"), Status::Inval);
        refused(store.readlink(special), Status::Inval);
        let handle = store.handle(special).unwrap();
        assert_eq!(store.open_handle(&handle).unwrap(), special);
        let set = store.setattr(&me(), special, &new_mode(0o600)).unwrap();
        assert_eq!(set.mode, 0o600);
        store.access(&me(), special, 0x3f).unwrap();
    }
    refused(
        store.create(&me(), root, b"fifo", CreateHow::Unchecked(&new)),
        Status::Exist,
    );
    if me().uid == 0 {
        let what = Special::CharacterDevice { major: 1, minor: 3 };
        if let Ok((null, attributes)) = mknod("null", what) {
            assert_eq!(attributes.kind, FileType::Character);
            assert_eq!((attributes.device.major, attributes.device.minor), (1, 3));
            refused(store.read_at(null, 0, &mut [0; 8]), Status::Inval);
        }
    }
}

fn attributes(store: &dyn Store) {
    let object = file(store, &me(), "f", 0o644);
    store.write_at(&me(), object, 0, b"0123456789").unwrap();
    let set = |new: SetAttributes| store.setattr(&me(), object, &new);
    let none = SetAttributes::default();
    assert_eq!(set(new_mode(0o4751)).unwrap().mode, 0o4751);
    assert_eq!(
        set(SetAttributes {
            size: Some(4),
            ..none
        })
        .unwrap()
        .size,
        4
    );
    assert_eq!(
        set(SetAttributes {
            size: Some(8),
            ..none
        })
        .unwrap()
        .size,
        8
    );
    assert_eq!(content(store, object), b"0123\0\0\0\0");
    refused(
        set(SetAttributes {
            size: Some(u64::MAX),
            ..none
        }),
        Status::FBig,
    );
    let (a, m) = (
        Time {
            seconds: 1_000_000_007,
            nanoseconds: 123_456_789,
        },
        Time {
            seconds: 5,
            nanoseconds: 0,
        },
    );
    let times = SetAttributes {
        atime: SetTime::To(a),
        mtime: SetTime::To(m),
        ..none
    };
    let after = set(times).unwrap();
    assert_eq!((after.atime, after.mtime), (a, m));
    let now = SetAttributes {
        mtime: SetTime::ServerTime,
        ..none
    };
    let after = set(now).unwrap();
    assert_eq!(after.atime, a);
    assert!(after.mtime.seconds > 1_500_000_000);
    assert_eq!(set(none).unwrap(), store.getattr(object).unwrap());
    let d = directory(store, &me(), "d", 0o755);
    assert_eq!(
        store.setattr(&me(), d, &new_mode(0o1770)).unwrap().mode,
        0o1770
    );
    let sized = SetAttributes {
        size: Some(0),
        ..none
    };
    refused(store.setattr(&me(), d, &sized), Status::IsDir);
    let (link, _) = store
        .symlink(&me(), store.root(), b"l", b"f", &none)
        .unwrap();
    assert_eq!(store.setattr(&me(), link, &times).unwrap().mtime, m);
    assert_ne!(store.getattr(object).unwrap().mtime, m);
}

/// Lists in steps of `chunk`.
pub(crate) fn list(
    store: &dyn Store,
    directory: ObjectId,
    chunk: usize,
    plus: bool,
) -> Vec<DirEntry> {
    let (mut all, mut cookie, mut verifier) = (Vec::new(), 0, [0; 8]);
    loop {
        let range = ReaddirRange {
            cookie,
            verifier,
            max_entries: chunk,
            plus,
        };
        let listing = store.readdir(&me(), directory, range).unwrap();
        assert!(listing.entries.len() <= chunk);
        assert!(listing.eof || !listing.entries.is_empty());
        verifier = listing.verifier;
        all.extend(listing.entries);
        if listing.eof {
            return all;
        }
        cookie = all.last().unwrap().cookie;
        assert_ne!(cookie, 0);
    }
}

fn listing(store: &dyn Store, count: usize) {
    let d = directory(store, &me(), "d", 0o755);
    let entries = list(store, d, 7, false);
    let found: Vec<_> = entries
        .iter()
        .map(|entry| (entry.name.as_slice(), entry.fileid, entry.cookie))
        .collect();
    assert_eq!(
        found,
        [(b".".as_slice(), d.ino, 1), (b"..", store.root().ino, 2)]
    );
    let mut expected = BTreeSet::from([b".".to_vec(), b"..".to_vec()]);
    for number in 0..count {
        let name = format!("entry {number:05} {}", "x".repeat(number % 97)).into_bytes();
        if number % 1000 == 0 {
            store.mkdir(&me(), d, &name, &new_mode(0o755)).unwrap();
        } else {
            let how = CreateHow::Unchecked(&SetAttributes {
                mode: Some(0o644),
                ..<_>::default()
            });
            store.create(&me(), d, &name, how).unwrap();
        }
        expected.insert(name);
    }
    for chunk in [1009, 64, 20_000] {
        let entries = list(store, d, chunk, false);
        assert_eq!(entries.len(), expected.len());
        let found: BTreeSet<_> = entries.iter().map(|entry| entry.name.clone()).collect();
        assert_eq!(found, expected);
        let cookies: BTreeSet<_> = entries.iter().map(|entry| entry.cookie).collect();
        assert_eq!(cookies.len(), entries.len());
    }
    // Going on behind the dots, and with a verifier that is none of ours.
    let range = ReaddirRange {
        cookie: 1,
        verifier: [0; 8],
        max_entries: 1,
        plus: false,
    };
    let after_here = store.readdir(&me(), d, range).unwrap();
    assert_eq!(after_here.entries[0].name, b"..");
    let range = ReaddirRange {
        verifier: [1; 8],
        ..range
    };
    refused(store.readdir(&me(), d, range), Status::BadCookie);
}

fn listing_while_it_changes(store: &dyn Store) {
    let d = directory(store, &me(), "d", 0o755);
    let name = |number: usize| format!("n{number}").into_bytes();
    for number in 0..500 {
        store
            .symlink(&me(), d, &name(number), b"t", &SetAttributes::default())
            .unwrap();
    }
    let (mut seen, mut cookie, mut round) = (Vec::new(), 0, 0);
    loop {
        let range = ReaddirRange {
            cookie,
            verifier: [0; 8],
            max_entries: 50,
            plus: false,
        };
        let listing = store.readdir(&me(), d, range).unwrap();
        cookie = listing.entries.last().map_or(cookie, |entry| entry.cookie);
        // Even numbers vanish right after they were listed, the one that the cookie stands for included.
        for entry in &listing.entries {
            let number = entry
                .name
                .strip_prefix(b"n")
                .map(|n| String::from_utf8_lossy(n));
            if number.is_some_and(|n| n.parse::<usize>().is_ok_and(|n| n % 2 == 0 && n < 500)) {
                store.remove(&me(), d, &entry.name).unwrap();
            }
        }
        seen.extend(listing.entries.into_iter().map(|entry| entry.name));
        if listing.eof {
            break;
        }
        store
            .symlink(
                &me(),
                d,
                &name(1000 + round),
                b"t",
                &SetAttributes::default(),
            )
            .unwrap();
        round += 1;
    }
    for number in 0..500 {
        assert_eq!(
            seen.iter().filter(|seen| **seen == name(number)).count(),
            1,
            "{number}"
        );
    }
}

fn listing_with_objects(store: &dyn Store) {
    let root = store.root();
    let f = file(store, &me(), "f", 0o640);
    let d = directory(store, &me(), "d", 0o755);
    let (l, _) = store
        .symlink(&me(), root, b"l", b"f", &SetAttributes::default())
        .unwrap();
    let entries = list(store, root, 2, true);
    for (name, object) in [("f", f), ("d", d), ("l", l), (".", root), ("..", root)] {
        let entry = entries
            .iter()
            .find(|entry| entry.name == name.as_bytes())
            .unwrap();
        let (found, attributes) = entry.object.unwrap();
        assert_eq!((found, entry.fileid), (object, object.ino));
        // Listing a directory may count as an access to it.
        let now = store.getattr(object).unwrap();
        assert_eq!(
            Attributes {
                atime: now.atime,
                ..attributes
            },
            now
        );
    }
}

fn types(store: &dyn Store) {
    let root = store.root();
    let f = file(store, &me(), "f", 0o777);
    let new = new_mode(0o755);
    refused(store.read_at(root, 0, &mut [0; 8]), Status::IsDir);
    refused(store.write_at(&me(), root, 0, b"x"), Status::IsDir);
    refused(store.lookup(&me(), f, b"x"), Status::NotDir);
    refused(store.lookup(&me(), f, b"."), Status::NotDir);
    refused(store.mkdir(&me(), f, b"x", &new), Status::NotDir);
    refused(
        store.create(&me(), f, b"x", CreateHow::Unchecked(&new)),
        Status::NotDir,
    );
    refused(store.remove(&me(), f, b"x"), Status::NotDir);
    refused(store.rmdir(&me(), f, b"x"), Status::NotDir);
    refused(store.rename(&me(), (f, b"x"), (root, b"y")), Status::NotDir);
    refused(store.rename(&me(), (root, b"f"), (f, b"y")), Status::NotDir);
    refused(store.link(&me(), f, f, b"y"), Status::NotDir);
    let range = ReaddirRange {
        cookie: 0,
        verifier: [0; 8],
        max_entries: 9,
        plus: false,
    };
    refused(store.readdir(&me(), f, range), Status::NotDir);
    let nothing = ObjectId {
        ino: 0x7fff_fff0,
        generation: 77,
    };
    refused(store.getattr(nothing), Status::Stale);
    refused(store.lookup(&me(), nothing, b"x"), Status::Stale);
    refused(
        store.getattr(ObjectId {
            generation: f.generation ^ 1,
            ..f
        }),
        Status::Stale,
    );
}

fn handles(store: &dyn Store) {
    let f = file(store, &me(), "f", 0o644);
    for object in [store.root(), f] {
        let handle = store.handle(object).unwrap();
        assert!(handle.len() <= 64);
        assert_eq!(store.open_handle(&handle).unwrap(), object);
        assert_eq!(*store.handle(object).unwrap(), *handle);
        for at in 0..handle.len() {
            let mut forged = handle.to_vec();
            forged[at] ^= 0x10;
            refused(store.open_handle(&forged), Status::BadHandle);
        }
    }
    for forged in [[].as_slice(), &[0; 40], &[0xff; 64], &[1; 65]] {
        refused(store.open_handle(forged), Status::BadHandle);
    }
    let handle = store.handle(f).unwrap();
    store
        .rename(&me(), (store.root(), b"f"), (store.root(), b"g"))
        .unwrap();
    assert_eq!(store.open_handle(&handle).unwrap(), f);
    store.remove(&me(), store.root(), b"g").unwrap();
    let gone = store
        .open_handle(&handle)
        .and_then(|object| store.getattr(object));
    refused(gone, Status::Stale);
}

fn deep_paths(store: &dyn Store) {
    // 25 kB of path: far beyond PATH_MAX.
    let (mut at, name) = (store.root(), [b'p'; 250]);
    let mut path = vec![at];
    for _ in 0..100 {
        at = store.mkdir(&me(), at, &name, &new_mode(0o755)).unwrap().0;
        path.push(at);
    }
    let how = CreateHow::Guarded(&SetAttributes {
        mode: Some(0o600),
        ..<_>::default()
    });
    let bottom = store.create(&me(), at, b"bottom", how).unwrap().object;
    store.write_at(&me(), bottom, 0, b"down here").unwrap();
    assert_eq!(content(store, bottom), b"down here");
    let handle = store.handle(bottom).unwrap();
    assert_eq!(store.open_handle(&handle).unwrap(), bottom);
    for pair in path.windows(2).rev() {
        assert_eq!(store.lookup(&me(), pair[1], b"..").unwrap().0, pair[0]);
    }
}

fn limits(store: &dyn Store) {
    let space = store.statfs(store.root()).unwrap();
    assert!(space.total_bytes >= space.free_bytes && space.free_bytes >= space.available_bytes);
    assert!(space.total_files >= space.free_files);
    let limits = store.pathconf(store.root()).unwrap();
    assert_eq!(limits.name_max, 255);
    assert!(limits.no_trunc && limits.case_preserving && !limits.case_insensitive);
    assert!(limits.link_max > 1 && limits.size_max > 1 << 20 && !limits.read_only);
}

fn one_of_many_wins(store: &dyn Store) {
    let won = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..8)
            .map(|_| {
                scope.spawn(|| {
                    let new = new_mode(0o644);
                    (0..20)
                        .filter(|round| {
                            let name = format!("f{round}");
                            let how = CreateHow::Guarded(&new);
                            store
                                .create(&me(), store.root(), name.as_bytes(), how)
                                .is_ok()
                        })
                        .count()
                })
            })
            .collect();
        threads
            .into_iter()
            .map(|thread| thread.join().unwrap())
            .sum::<usize>()
    });
    assert_eq!(won, 20);
}

/// Waits until `wanted` has come.
pub(crate) fn expect_event(store: &dyn Store, wanted: OutsideEvent) {
    let mut all = Vec::new();
    for _ in 0..100 {
        all.extend(store.wait_events(Duration::from_millis(100)));
        if all.contains(&wanted) {
            return;
        }
    }
    panic!("{wanted:?} did not come, only {all:?}");
}

fn events(store: &dyn Store) {
    let f = file(store, &me(), "f", 0o644);
    let unwatched = file(store, &me(), "u", 0o644);
    assert!(store.watch(f));
    assert!(store.watch(f));
    store.write_at(&me(), unwatched, 0, b"unheard").unwrap();
    store.write_at(&me(), f, 0, b"heard").unwrap();
    expect_event(store, OutsideEvent::Changed(f));
    store.setattr(&me(), f, &new_mode(0o600)).unwrap();
    expect_event(store, OutsideEvent::Changed(f));
    store.interrupt();
    let _ = store.wait_events(Duration::from_secs(3600));
    store.remove(&me(), store.root(), b"f").unwrap();
    expect_event(store, OutsideEvent::Removed(f));
    assert!(!store.watch(f));
    assert!(store.watch(unwatched));
    store.unwatch(unwatched);
    store.write_at(&me(), unwatched, 0, b"unheard").unwrap();
    let late = store.wait_events(Duration::from_millis(20));
    assert!(
        !late.contains(&OutsideEvent::Changed(unwatched)),
        "{late:?}"
    );
}

const ALICE: u32 = 4001;
const BOB: u32 = 4002;
const TEAM: u32 = 4100;

fn alice() -> Credential {
    Credential::of(ALICE, ALICE, &[TEAM])
}

fn bob() -> Credential {
    Credential::of(BOB, BOB, &[])
}

/// A directory that everyone may write to.
fn open_to_all(store: &dyn Store, mode: u32) -> ObjectId {
    let (d, _) = store
        .mkdir(&me(), store.root(), b"all", &new_mode(mode))
        .unwrap();
    store
        .setattr(&me(), store.root(), &new_mode(0o755))
        .unwrap();
    d
}

fn classes(store: &dyn Store) {
    let d = open_to_all(store, 0o777);
    let new = SetAttributes {
        gid: Some(TEAM),
        ..new_mode(0o640)
    };
    let how = CreateHow::Guarded(&new);
    let f = store.create(&alice(), d, b"f", how).unwrap();
    assert_eq!((f.attributes.uid, f.attributes.gid), (ALICE, TEAM));
    let all = access::READ | access::MODIFY | access::EXTEND | access::EXECUTE;
    let granted = |who: &Credential| store.access(who, f.object, all).unwrap();
    assert_eq!(
        granted(&alice()),
        access::READ | access::MODIFY | access::EXTEND
    );
    assert_eq!(granted(&Credential::of(BOB, BOB, &[7, TEAM])), access::READ);
    assert_eq!(granted(&Credential::of(BOB, TEAM, &[])), access::READ);
    assert_eq!(granted(&bob()), 0);
    assert!(store.mode_decides(f.object).unwrap());
    for who in [alice(), bob(), Credential::of(BOB, TEAM, &[])] {
        let pure = attributes_permit(&f.attributes, &who, all);
        assert_eq!(pure, granted(&who));
    }
    refused(store.write_at(&bob(), f.object, 0, b"no"), Status::Access);
    store.write_at(&alice(), f.object, 0, b"yes").unwrap();
    // Directories.
    let (private, attributes) = store
        .mkdir(&alice(), d, b"private", &new_mode(0o700))
        .unwrap();
    let all = access::READ | access::LOOKUP | access::MODIFY | access::EXTEND | access::DELETE;
    assert_eq!(
        store
            .access(&alice(), private, all | access::EXECUTE)
            .unwrap(),
        all
    );
    assert_eq!(
        attributes_permit(&attributes, &alice(), all | access::EXECUTE),
        all
    );
    assert_eq!(store.access(&bob(), private, all).unwrap(), 0);
    refused(store.lookup(&bob(), private, b"x"), Status::Access);
    refused(store.mkdir(&bob(), private, b"x", &new), Status::Access);
    let range = ReaddirRange {
        cookie: 0,
        verifier: [0; 8],
        max_entries: 9,
        plus: false,
    };
    refused(store.readdir(&bob(), private, range), Status::Access);
    refused(store.remove(&bob(), store.root(), b"all"), Status::Access);
    refused(store.rmdir(&bob(), store.root(), b"all"), Status::Access);
}

fn owners(store: &dyn Store) {
    let d = open_to_all(store, 0o777);
    let f = store
        .create(&alice(), d, b"f", CreateHow::Guarded(&new_mode(0o400)))
        .unwrap()
        .object;
    // The owner may have opened it for writing before (RFC 1813 section 4.4).
    store.write_at(&alice(), f, 0, b"mine").unwrap();
    assert_eq!(
        store
            .access(&alice(), f, access::READ | access::MODIFY)
            .unwrap(),
        access::READ
    );
    let attributes = store.setattr(&alice(), f, &new_mode(0o000)).unwrap();
    assert!(may_read(&attributes, &alice()) && may_write(&attributes, &alice()));
    assert!(!may_read(&attributes, &bob()) && !may_write(&attributes, &bob()));
    let cut = SetAttributes {
        size: Some(2),
        ..SetAttributes::default()
    };
    assert_eq!(store.setattr(&alice(), f, &cut).unwrap().size, 2);
    refused(store.setattr(&bob(), f, &cut), Status::Access);
    refused(store.setattr(&bob(), f, &new_mode(0o777)), Status::Perm);
    let now = SetAttributes {
        mtime: SetTime::ServerTime,
        ..SetAttributes::default()
    };
    refused(store.setattr(&bob(), f, &now), Status::Access);
    let then = SetAttributes {
        mtime: SetTime::To(Time::default()),
        ..SetAttributes::default()
    };
    refused(store.setattr(&bob(), f, &then), Status::Perm);
    store.setattr(&alice(), f, &new_mode(0o666)).unwrap();
    store.setattr(&bob(), f, &now).unwrap();
    refused(store.setattr(&bob(), f, &then), Status::Perm);
}

fn sticky(store: &dyn Store) {
    let d = open_to_all(store, 0o1777);
    let new = new_mode(0o666);
    store
        .create(&alice(), d, b"f", CreateHow::Guarded(&new))
        .unwrap();
    store
        .create(&bob(), d, b"g", CreateHow::Guarded(&new))
        .unwrap();
    refused(store.remove(&bob(), d, b"f"), Status::Perm);
    refused(store.rename(&bob(), (d, b"f"), (d, b"x")), Status::Perm);
    refused(store.rename(&bob(), (d, b"g"), (d, b"f")), Status::Perm);
    store.rename(&alice(), (d, b"f"), (d, b"h")).unwrap();
    store.remove(&alice(), d, b"h").unwrap();
}

fn giving_away(store: &dyn Store) {
    let d = open_to_all(store, 0o777);
    let f = store
        .create(&alice(), d, b"f", CreateHow::Guarded(&new_mode(0o644)))
        .unwrap()
        .object;
    let none = SetAttributes::default();
    let to_bob = SetAttributes {
        uid: Some(BOB),
        ..none
    };
    refused(store.setattr(&alice(), f, &to_bob), Status::Perm);
    refused(store.setattr(&bob(), f, &to_bob), Status::Perm);
    let to_group = |gid| SetAttributes {
        gid: Some(gid),
        ..none
    };
    refused(store.setattr(&alice(), f, &to_group(BOB)), Status::Perm);
    assert_eq!(
        store.setattr(&alice(), f, &to_group(TEAM)).unwrap().gid,
        TEAM
    );
    let root = Credential::of(0, 0, &[]);
    assert_eq!(store.setattr(&root, f, &to_bob).unwrap().uid, BOB);
    // Set-user-id does not outlive a write by someone else.
    store.setattr(&bob(), f, &new_mode(0o4777)).unwrap();
    store.write_at(&alice(), f, 0, b"changed").unwrap();
    assert_eq!(store.getattr(f).unwrap().mode, 0o777);
    let device = Special::BlockDevice { major: 8, minor: 0 };
    refused(
        store.mknod(&alice(), d, b"disk", device, &new_mode(0o666)),
        Status::Perm,
    );
    store
        .mknod(&alice(), d, b"pipe", Special::Fifo, &new_mode(0o666))
        .unwrap();
}

fn inherited_group(store: &dyn Store) {
    let d = open_to_all(store, 0o777);
    let give = SetAttributes {
        gid: Some(TEAM),
        ..SetAttributes::default()
    };
    store.setattr(&me(), d, &give).unwrap();
    store.setattr(&me(), d, &new_mode(0o2777)).unwrap();
    let f = store
        .create(&bob(), d, b"f", CreateHow::Guarded(&new_mode(0o644)))
        .unwrap();
    assert_eq!((f.attributes.uid, f.attributes.gid), (BOB, TEAM));
    let (_, inner) = store.mkdir(&bob(), d, b"inner", &new_mode(0o755)).unwrap();
    assert_eq!((inner.gid, inner.mode), (TEAM, 0o2755));
}
