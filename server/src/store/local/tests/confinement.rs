//! What a store neither shows nor changes.

use super::*;

#[test]
fn no_way_leads_out() {
    for by_handle in [true, false] {
        let served = Place::on_disk().open(by_handle);
        let (root, path) = (served.root(), served.place.served());
        let secret = served.place.outside("secret");
        std::fs::create_dir(&secret).unwrap();
        std::fs::write(secret.join("key"), b"secret").unwrap();
        symlink(&secret, path.join("absolute")).unwrap();
        symlink("../secret", path.join("relative")).unwrap();
        symlink("../secret/key", path.join("file")).unwrap();
        symlink("/proc/self/root", path.join("magic")).unwrap();
        for name in ["absolute", "relative", "file", "magic"] {
            let (link, attributes) = served.lookup(&me(), root, name.as_bytes()).unwrap();
            assert_eq!(attributes.kind, FileType::Symlink);
            refused(served.lookup(&me(), link, b"key"), Status::NotDir);
            refused(served.read_at(link, 0, &mut [0; 8]), Status::Inval);
            refused(served.write_at(&me(), link, 0, b"x"), Status::Inval);
            let cut = SetAttributes {
                size: Some(0),
                ..SetAttributes::default()
            };
            refused(served.setattr(&me(), link, &cut), Status::Inval);
            let how = SetAttributes {
                size: Some(0),
                ..new_mode(0o666)
            };
            let create = served.create(&me(), root, name.as_bytes(), CreateHow::Unchecked(&how));
            refused(create, Status::Exist);
        }
        assert_eq!(std::fs::read(secret.join("key")).unwrap(), b"secret");
        assert_eq!(served.lookup(&me(), root, b"..").unwrap().0, root);
        // Nobody gets out with a directory that others move away.
        std::fs::create_dir(path.join("d")).unwrap();
        let (d, _) = served.lookup(&me(), root, b"d").unwrap();
        std::fs::rename(path.join("d"), secret.join("d")).unwrap();
        std::fs::write(secret.join("d/inner"), b"").unwrap();
        refused(served.lookup(&me(), d, b".."), Status::Stale);
        refused(served.lookup(&me(), d, b"inner"), Status::Stale);
        let create = served.create(&me(), d, b"x", CreateHow::Unchecked(&new_mode(0o644)));
        refused(create, Status::Stale);
        let range = ReaddirRange {
            cookie: 0,
            verifier: [0; 8],
            max_entries: 9,
            plus: true,
        };
        refused(served.readdir(&me(), d, range), Status::Stale);
        refused(served.getattr(d), Status::Stale);
        refused(served.access(&me(), d, 0x3f), Status::Stale);
        refused(served.setattr(&me(), d, &new_mode(0o700)), Status::Stale);
        refused(served.readlink(d), Status::Stale);
        refused(served.read_at(d, 0, &mut [0; 8]), Status::Stale);
        refused(served.write_at(&me(), d, 0, b"x"), Status::Stale);
        refused(served.sync(d, false), Status::Stale);
        refused(served.statfs(d), Status::Stale);
        refused(served.pathconf(d), Status::Stale);
        refused(served.link(&me(), d, root, b"x"), Status::Stale);
        refused(served.find(d), Status::Stale);
        // A neighbour whose name begins alike is outside, too.
        std::fs::create_dir(path.join("e")).unwrap();
        let (e, _) = served.lookup(&me(), root, b"e").unwrap();
        let alike = served.place.outside("served too");
        std::fs::create_dir(&alike).unwrap();
        std::fs::rename(path.join("e"), alike.join("e")).unwrap();
        refused(served.lookup(&me(), e, b".."), Status::Stale);
    }
}

#[test]
fn the_state_directory_is_never_shown() {
    let directory = tempfile::tempdir().unwrap();
    let inside = directory.path().join("state");
    let state = StateDir::open(Some(&inside), directory.path()).unwrap();
    let store = LocalStore::open(directory.path(), &state, LocalOptions::default()).unwrap();
    let root = store.root();
    refused(store.lookup(&me(), root, b"state"), Status::NoEnt);
    refused(
        store.rename(&me(), (root, b"state"), (root, b"mine")),
        Status::NoEnt,
    );
    refused(store.rmdir(&me(), root, b"state"), Status::NoEnt);
    let names: Vec<_> = list(&store, root, 100, true)
        .into_iter()
        .map(|entry| entry.name)
        .collect();
    assert_eq!(names, [b".".to_vec(), b"..".to_vec()]);
    refused(
        store.mkdir(&me(), root, b"state", &new_mode(0o755)),
        Status::Exist,
    );
    let ino = std::fs::metadata(&inside).unwrap().ino();
    for generation in 0..3 {
        refused(store.getattr(ObjectId { ino, generation }), Status::Stale);
    }
}

#[test]
fn what_is_mounted_inside_is_refused() {
    // A mount needs a namespace of its own, which a thread may have.
    let result = std::thread::spawn(|| {
        use rustix::mount::{MountFlags, MountPropagationFlags, mount, mount_change};
        let flags = MountPropagationFlags::PRIVATE | MountPropagationFlags::REC;
        #[expect(deprecated, reason = "of the flags passed none concerns descriptors")]
        let unshared = rustix::thread::unshare(
            rustix::thread::UnshareFlags::NEWNS | rustix::thread::UnshareFlags::FS,
        );
        if unshared.is_err() || mount_change("/", flags).is_err() {
            return;
        }
        let served = Place::on_disk().open(true);
        let path = served.place.served();
        std::fs::create_dir(path.join("m")).unwrap();
        mount("none", path.join("m"), "tmpfs", MountFlags::empty(), None).unwrap();
        std::fs::write(path.join("m/inner"), b"").unwrap();
        let root = served.root();
        refused(served.lookup(&me(), root, b"m"), Status::Access);
        refused(served.rmdir(&me(), root, b"m"), Status::Access);
        refused(
            served.rename(&me(), (root, b"m"), (root, b"n")),
            Status::Access,
        );
        let entries = list(&served, root, 9, true);
        let entry = entries.iter().find(|entry| entry.name == b"m").unwrap();
        assert!(entry.object.is_none());
        rustix::mount::unmount(path.join("m"), rustix::mount::UnmountFlags::empty()).unwrap();
        served.lookup(&me(), root, b"m").unwrap();
    })
    .join();
    result.unwrap();
}

#[test]
fn read_only_means_read_only() {
    let place = Place::in_memory();
    std::fs::write(place.served().join("f"), b"x").unwrap();
    let state = place.state();
    let options = LocalOptions {
        read_only: true,
        ..LocalOptions::default()
    };
    let store = LocalStore::open(&place.served(), &state, options).unwrap();
    let (root, new) = (store.root(), new_mode(0o755));
    let (f, _) = store.lookup(&me(), root, b"f").unwrap();
    refused(store.write_at(&me(), f, 0, b"y"), Status::RoFs);
    refused(store.setattr(&me(), f, &new), Status::RoFs);
    refused(
        store.create(&me(), root, b"g", CreateHow::Unchecked(&new)),
        Status::RoFs,
    );
    refused(
        store.create(&me(), root, b"f", CreateHow::Unchecked(&new)),
        Status::RoFs,
    );
    refused(store.mkdir(&me(), root, b"g", &new), Status::RoFs);
    refused(store.symlink(&me(), root, b"g", b"t", &new), Status::RoFs);
    refused(
        store.mknod(&me(), root, b"g", Special::Fifo, &new),
        Status::RoFs,
    );
    refused(store.link(&me(), f, root, b"g"), Status::RoFs);
    refused(
        store.rename(&me(), (root, b"f"), (root, b"g")),
        Status::RoFs,
    );
    refused(store.remove(&me(), root, b"f"), Status::RoFs);
    refused(store.rmdir(&me(), root, b"f"), Status::RoFs);
    assert_eq!(content(&store, f), b"x");
    assert!(store.pathconf(root).unwrap().read_only);
    assert_eq!(store.access(&me(), f, 0x3f).unwrap(), 1);
}
