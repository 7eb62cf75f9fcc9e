//! The tests that a read-only store must pass.

use super::*;

/// Length of the file in bytes.
const BYTES: usize = 10_000;

/// The content of `file` in a store for [`reading`].
pub fn data() -> Vec<u8> {
    (0..BYTES).map(|at| (at % 251) as u8).collect()
}

/// Makes the files for [`reading`] in a store that still accepts changes.
pub fn grow(store: &dyn Store) {
    let (root, new) = (store.root(), new_mode(0o755));
    let made = file(store, &me(), "file", 0o644);
    let wrote = store.write_at(&me(), made, 0, &data());
    assert_eq!(wrote.unwrap(), BYTES);
    store.link(&me(), made, root, b"hard").unwrap();
    store.symlink(&me(), root, b"link", b"file", &new).unwrap();
    store
        .mknod(&me(), root, b"pipe", Special::Fifo, &new)
        .unwrap();
    let inner = directory(store, &me(), "directory", 0o755);
    store
        .create(&me(), inner, b"empty", CreateHow::Guarded(&new))
        .unwrap();
    store.sync(made, false).unwrap();
}

/// Tests a read-only store with the files of [`grow`].
pub fn reading(store: &dyn Store) {
    let root = store.root();
    let named = |name: &[u8]| store.lookup(&me(), root, name).unwrap();
    assert!(store.pathconf(root).unwrap().read_only);
    assert_eq!(store.lookup(&me(), root, b"..").unwrap().0, root);
    bytes(store, named(b"file"));
    assert_eq!(named(b"hard").0, named(b"file").0);
    assert_eq!(store.readlink(named(b"link").0).unwrap(), b"file");
    refused(store.readlink(root), Status::Inval);
    refused(store.read_at(root, 0, &mut [0]), Status::IsDir);
    assert_eq!(named(b"pipe").1.kind, FileType::Fifo);
    let (inner, _) = named(b"directory");
    assert_eq!(store.lookup(&me(), inner, b"..").unwrap().0, root);
    let (empty, attributes) = store.lookup(&me(), inner, b"empty").unwrap();
    assert_eq!((attributes.size, content(store, empty).len()), (0, 0));
    refused(store.lookup(&me(), root, b"none"), Status::NoEnt);
    refused(store.lookup(&me(), empty, b"none"), Status::NotDir);
    for (name, status) in [(b"a/b".as_slice(), Status::Access), (b"", Status::Access)] {
        refused(store.lookup(&me(), root, name), status);
    }
    listing(store);
    for object in [root, inner, empty, named(b"link").0] {
        store.find(object).unwrap();
    }
    changes(store);
}

fn bytes(store: &dyn Store, (file, attributes): (ObjectId, Attributes)) {
    let expected = data();
    assert_eq!(attributes.kind, FileType::Regular);
    assert_eq!((attributes.size, attributes.links), (BYTES as u64, 2));
    assert_eq!(store.getattr(file).unwrap().fileid, file.ino);
    assert_eq!(content(store, file), expected);
    let mut data = [0; 100];
    assert_eq!(store.read_at(file, 4000, &mut data).unwrap(), 100);
    assert_eq!(data, expected[4000..4100]);
    let end = BYTES as u64;
    assert_eq!(store.read_at(file, end - 7, &mut data).unwrap(), 7);
    for beyond in [end, end + 1, u64::MAX] {
        assert_eq!(store.read_at(file, beyond, &mut data).unwrap(), 0);
    }
    if store.read_at_hand(file, 1, &mut data) {
        assert_eq!(data, expected[1..101]);
    }
    assert!(!store.read_at_hand(file, end - 7, &mut data));
}

fn listing(store: &dyn Store) {
    let names = |chunk| -> Vec<_> {
        let entries = list(store, store.root(), chunk, true).into_iter();
        entries.map(|entry| (entry.cookie, entry.name)).collect()
    };
    let all = names(100);
    for chunk in [1, 2, 3] {
        assert_eq!(names(chunk), all);
    }
    let all: BTreeSet<_> = all.into_iter().map(|(_, name)| name).collect();
    let wanted = [".", "..", "directory", "file", "hard", "link", "pipe"];
    assert_eq!(all, wanted.map(|name| name.as_bytes().to_vec()).into());
}

fn changes(store: &dyn Store) {
    let (root, new) = (store.root(), new_mode(0o700));
    let (file, _) = store.lookup(&me(), root, b"file").unwrap();
    let all = access::MODIFY | access::EXTEND | access::DELETE;
    let granted = store.access(&me(), file, access::READ | all).unwrap();
    assert_ne!(granted & access::READ, 0);
    let how = || CreateHow::Unchecked(&new);
    refused(store.create(&me(), root, b"new", how()), Status::RoFs);
    refused(store.mkdir(&me(), root, b"new", &new), Status::RoFs);
    refused(store.symlink(&me(), root, b"new", b"t", &new), Status::RoFs);
    refused(
        store.mknod(&me(), root, b"new", Special::Fifo, &new),
        Status::RoFs,
    );
    refused(store.link(&me(), file, root, b"new"), Status::RoFs);
    refused(
        store.rename(&me(), (root, b"file"), (root, b"new")),
        Status::RoFs,
    );
    refused(store.remove(&me(), root, b"file"), Status::RoFs);
    refused(store.rmdir(&me(), root, b"directory"), Status::RoFs);
    refused(store.setattr(&me(), file, &new), Status::RoFs);
    refused(store.write_at(&me(), file, 0, b"new"), Status::RoFs);
    assert!(store.allocate(&me(), file, 0, 20_000).is_err());
    assert!(store.deallocate(&me(), file, 0, 100).is_err());
    assert_eq!(content(store, file), data());
}
