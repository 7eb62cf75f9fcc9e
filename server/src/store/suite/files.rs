//! Objects of each type.

use super::*;

pub(super) fn root(store: &dyn Store) {
    let root = store.root();
    let attributes = store.getattr(root).unwrap();
    assert_eq!(attributes.kind, FileType::Directory);
    assert_eq!(attributes.fileid, root.ino);
    for name in [b".".as_slice(), b".."] {
        assert_eq!(store.lookup(&me(), root, name).unwrap().0, root);
    }
}

pub(super) fn bytes(store: &dyn Store) {
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
    for (offset, length) in [(0, 10_003), (9_000, 1_003), (10_001, 3), (u64::MAX - 3, 8)] {
        let mut at_hand = vec![1; length];
        let end = (offset as usize).saturating_add(length);
        if store.read_at_hand(object, offset, &mut at_hand) {
            assert_eq!(data.get(offset as usize..end), Some(&*at_hand));
        }
    }
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

pub(super) fn create(store: &dyn Store) {
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

    let exclusive = |verifier| {
        let how = CreateHow::Exclusive(verifier, &new);
        store.create(&me(), root, b"x", how)
    };
    let first = exclusive([1, 2, 3, 4, 5, 6, 7, 8]).unwrap();
    let again = exclusive([1, 2, 3, 4, 5, 6, 7, 8]).unwrap();
    assert!(!first.existed && again.existed);
    assert_eq!(first.object, again.object);
    assert_eq!(again.attributes.mode, 0o640);
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

pub(super) fn symlinks(store: &dyn Store) {
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
    // A size that every file system accepts.
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

pub(super) fn specials(store: &dyn Store) {
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
        store.find(special).unwrap();
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
        // The kernel's numbers have 12 and 20 bits.
        for (major, minor) in [(1 << 12, 3), (1, 1 << 20), (5000, 1 << 21)] {
            let character = Special::CharacterDevice { major, minor };
            refused(mknod("beyond", character), Status::Inval);
            refused(
                mknod("beyond", Special::BlockDevice { major, minor }),
                Status::Inval,
            );
        }
    }
}

pub(super) fn attributes(store: &dyn Store) {
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
    // The mode of a link cannot be set. Then no other attribute is set either.
    let before = store.getattr(link).unwrap();
    let all = SetAttributes {
        uid: Some(before.uid),
        mtime: SetTime::ServerTime,
        ..new_mode(0o600)
    };
    refused(store.setattr(&me(), link, &all), Status::NotSupp);
    assert_eq!(store.getattr(link).unwrap(), before);
}

pub(super) fn birth_times(store: &dyn Store) {
    let none = SetAttributes::default();
    let object = file(store, &me(), "f", 0o644);
    let directory = directory(store, &me(), "d", 0o755);
    let link = store.symlink(&me(), store.root(), b"l", b"f", &none);
    let all = [store.root(), object, directory, link.unwrap().0];
    let births = || all.map(|object| store.birth_time(object).unwrap());
    let before = births();
    if !store.has_birth_times() {
        eprintln!("suite: no birth times here");
        assert_eq!(before, [None; 4]);
        return;
    }
    for (object, birth) in all.iter().zip(before) {
        assert!(birth.unwrap() <= store.getattr(*object).unwrap().ctime);
    }
    store.write_at(&me(), object, 0, b"data").unwrap();
    let long_ago = SetTime::To(Time {
        seconds: 5,
        nanoseconds: 0,
    });
    let times = SetAttributes {
        atime: long_ago,
        mtime: long_ago,
        ..none
    };
    store.setattr(&me(), object, &times).unwrap();
    let (from, to) = ((store.root(), &b"f"[..]), (directory, &b"g"[..]));
    store.rename(&me(), from, to).unwrap();
    assert_eq!(births(), before);
    store.remove(&me(), to.0, to.1).unwrap();
    refused(patiently(|| store.birth_time(object)), Status::Stale);
}

pub(super) fn types(store: &dyn Store) {
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

pub(super) fn found_again(store: &dyn Store) {
    let f = file(store, &me(), "f", 0o644);
    for object in [store.root(), f] {
        store.find(object).unwrap();
    }
    let rename =
        |from: &[u8], to: &[u8]| store.rename(&me(), (store.root(), from), (store.root(), to));
    rename(b"f", b"g").unwrap();
    store.find(f).unwrap();
    store.remove(&me(), store.root(), b"g").unwrap();
    // Linux reports ENOMEM while it gives the inode number to a new file. A client then asks again.
    let gone = patiently(|| store.find(f).and_then(|()| store.getattr(f)));
    refused(gone, Status::Stale);
}

pub(super) fn limits(store: &dyn Store) {
    let space = store.statfs(store.root()).unwrap();
    assert!(space.total_bytes >= space.free_bytes && space.free_bytes >= space.available_bytes);
    assert!(space.total_files >= space.free_files);
    let limits = store.pathconf(store.root()).unwrap();
    assert_eq!(limits.name_max, 255);
    assert!(limits.no_trunc && limits.case_preserving && !limits.case_insensitive);
    assert!(limits.link_max > 1 && limits.size_max > 1 << 20 && !limits.read_only);
}

pub(super) fn events(store: &dyn Store) {
    let f = file(store, &me(), "f", 0o644);
    let unwatched = file(store, &me(), "u", 0o644);
    assert!(store.watch(f));
    assert!(store.watch(f));
    store.write_at(&me(), unwatched, 0, b"unheard").unwrap();
    store.write_at(&me(), f, 0, b"heard").unwrap();
    expect_event(store, OutsideEvent::Written(f));
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
        !late.contains(&OutsideEvent::Written(unwatched)),
        "{late:?}"
    );
}
