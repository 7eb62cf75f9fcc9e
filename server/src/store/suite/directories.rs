//! Names in directories.

use super::*;

pub(super) fn names(store: &dyn Store) {
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

pub(super) fn directories(store: &dyn Store) {
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

pub(super) fn links(store: &dyn Store) {
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

pub(super) fn renames(store: &dyn Store) {
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

pub(super) fn listing(store: &dyn Store, count: usize) {
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
    // Continues behind the dots, and with a verifier that the store never gave.
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
    for cookie in [1 << 63, u64::MAX] {
        let range = ReaddirRange {
            cookie,
            verifier: [0; 8],
            ..range
        };
        refused(store.readdir(&me(), d, range), Status::BadCookie);
    }
}

pub(super) fn listing_while_it_changes(store: &dyn Store) {
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
        // Even numbers vanish right after they were listed, including the one of the cookie.
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

pub(super) fn listing_with_objects(store: &dyn Store) {
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

pub(super) fn deep_paths(store: &dyn Store) {
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
    store.find(bottom).unwrap();
    for pair in path.windows(2).rev() {
        assert_eq!(store.lookup(&me(), pair[1], b"..").unwrap().0, pair[0]);
    }
}

pub(super) fn one_of_many_wins(store: &dyn Store) {
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
