//! What a store neither shows nor changes.

use odafs_fabric::clock::Nanos;

use super::*;
use crate::store::local::counted::{Counted, count_of};

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
fn one_call_looks_once_where_a_directory_lies() {
    for by_handle in [true, false] {
        let served = Place::in_memory().open(by_handle);
        let root = served.root();
        let (d, _) = served.mkdir(&me(), root, b"d", &new_mode(0o755)).unwrap();
        file_in(&served, d, b"f");
        let looks = |act: &dyn Fn()| count_of(Counted::Look, act).1;
        let uses = || {
            served.lookup(&me(), d, b"f").unwrap();
            served.lookup_at_hand(&me(), d, b"f").unwrap().unwrap();
            served.getattr(d).unwrap();
        };
        assert_eq!(looks(&uses), 3);
        within::known_for(Nanos(u64::MAX), || {
            assert_eq!(looks(&|| within::in_one_call(uses)), 1);
            assert_eq!(
                looks(&|| within::in_one_call(|| within::in_one_call(uses))),
                1
            );
            let nested = || {
                within::in_one_call(uses);
                uses();
            };
            assert_eq!(
                looks(&|| within::in_one_call(nested)),
                1,
                "it is the same call"
            );
            let make = || file_in(&served, d, b"g");
            assert_eq!(looks(&|| within::in_one_call(make)), 1);
            assert_eq!(looks(&uses), 3, "the call is over");
            let panicked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
                within::in_one_call(|| {
                    uses();
                    panic!("in between");
                });
            }));
            assert!(panicked.is_err());
            assert_eq!(looks(&uses), 3, "so is this one");
            // Two directories.
            let (e, _) = served.mkdir(&me(), root, b"e", &new_mode(0o755)).unwrap();
            let rename = || {
                within::in_one_call(|| {
                    served.getattr(d).unwrap();
                    served.getattr(e).unwrap();
                    served.rename(&me(), (d, b"g"), (e, b"g")).unwrap();
                    served.getattr(d).unwrap();
                    served.getattr(e).unwrap();
                });
            };
            assert_eq!(looks(&rename), 2);
        });
        within::known_for(Nanos(0), || {
            assert_eq!(looks(&|| within::in_one_call(uses)), 3, "it was long ago");
        });
    }
}

fn file_in(served: &Served, directory: ObjectId, name: &[u8]) {
    let how = CreateHow::Guarded(&new_mode(0o644));
    served.create(&me(), directory, name, how).unwrap();
}

#[test]
fn what_a_call_knows_ends_with_the_call_and_with_the_directory() {
    for by_handle in [true, false] {
        within::known_for(Nanos(u64::MAX), || {
            let served = Place::on_disk().open(by_handle);
            let (root, path) = (served.root(), served.place.served());
            let make = |name| served.mkdir(&me(), root, name, &new_mode(0o755)).unwrap().0;
            // Moved out of the export.
            let d = make(b"d");
            within::in_one_call(|| {
                served.getattr(d).unwrap();
                served.getattr(d).unwrap();
            });
            std::fs::rename(path.join("d"), served.place.outside("d")).unwrap();
            within::in_one_call(|| {
                refused(served.lookup(&me(), d, b"x"), Status::Stale);
                refused(served.getattr(d), Status::Stale);
            });
            // Moved out while a call lasts that waits.
            let e = make(b"e");
            within::known_for(Nanos(0), || {
                within::in_one_call(|| {
                    served.getattr(e).unwrap();
                    std::fs::rename(path.join("e"), served.place.outside("e")).unwrap();
                    refused(served.getattr(e), Status::Stale);
                    let how = CreateHow::Guarded(&new_mode(0o644));
                    refused(served.create(&me(), e, b"x", how), Status::Stale);
                });
            });
            // Removed by the call.
            let f = make(b"f");
            within::in_one_call(|| {
                served.getattr(f).unwrap();
                served.rmdir(&me(), root, b"f").unwrap();
                refused(served.getattr(f), Status::Stale);
                refused(served.lookup(&me(), f, b"x"), Status::Stale);
                refused(served.find(f), Status::Stale);
            });
            // Replaced by the call.
            let (g, h) = (make(b"g"), make(b"h"));
            within::in_one_call(|| {
                served.getattr(h).unwrap();
                served.rename(&me(), (root, b"g"), (root, b"h")).unwrap();
                refused(served.lookup(&me(), h, b"x"), Status::Stale);
                served.getattr(g).unwrap();
            });
            // Removed by others meanwhile.
            within::in_one_call(|| {
                served.getattr(g).unwrap();
                std::fs::remove_dir(path.join("h")).unwrap();
                refused(served.getattr(g), Status::Stale);
                refused(served.lookup(&me(), g, b"x"), Status::Stale);
            });
        });
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

/// Gives this thread mounts of its own. False if it may not have any.
fn in_own_mounts() -> bool {
    use rustix::mount::{MountPropagationFlags, mount_change};
    let flags = MountPropagationFlags::PRIVATE | MountPropagationFlags::REC;
    #[expect(deprecated, reason = "of the flags passed none concerns descriptors")]
    let unshared = rustix::thread::unshare(
        rustix::thread::UnshareFlags::NEWNS | rustix::thread::UnshareFlags::FS,
    );
    unshared.is_ok() && mount_change("/", flags).is_ok()
}

#[test]
fn what_is_mounted_inside_is_refused() {
    // A mount needs a namespace of its own, which a thread may have.
    let result = std::thread::spawn(|| {
        use rustix::mount::{MountFlags, mount};
        if !in_own_mounts() {
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
        // Of the same file system, so the device does not tell.
        std::fs::write(path.join("f"), b"").unwrap();
        std::fs::create_dir(served.place.outside("d")).unwrap();
        std::fs::write(served.place.outside("g"), b"").unwrap();
        for (there, what) in [("m", "d"), ("f", "g")] {
            rustix::mount::mount_bind(served.place.outside(what), path.join(there)).unwrap();
        }
        for name in [&b"m"[..], b"f"] {
            refused(served.lookup(&me(), root, name), Status::Access);
            let entries = list(&served, root, 9, true);
            let entry = entries.iter().find(|entry| entry.name == name).unwrap();
            assert!(entry.object.is_none(), "{:?}", entry.name);
        }
        for there in ["m", "f"] {
            rustix::mount::unmount(path.join(there), rustix::mount::UnmountFlags::empty()).unwrap();
        }
        assert!(
            list(&served, root, 9, true)
                .iter()
                .all(|entry| entry.object.is_some())
        );
    })
    .join();
    result.unwrap();
}

#[test]
fn a_look_where_a_directory_lies_does_not_search_proc() {
    // It is hidden from this thread alone.
    let result = std::thread::spawn(|| {
        if !in_own_mounts() {
            return;
        }
        let served = Place::on_disk().open(true);
        let new = new_mode(0o755);
        let (d, _) = served.mkdir(&me(), served.root(), b"d", &new).unwrap();
        let (none, flags) = ("none", rustix::mount::MountFlags::empty());
        rustix::mount::mount(none, "/proc", "tmpfs", flags, None).unwrap();
        assert!(!Path::new("/proc/self").exists());
        let (found, looks) = count_of(Counted::Look, || served.getattr(d));
        found.unwrap();
        assert_eq!(looks, 1);
        let (from, to) = (served.place.served(), served.place.outside("d"));
        std::fs::rename(from.join("d"), to).unwrap();
        refused(served.getattr(d), Status::Stale);
        let flags = rustix::mount::UnmountFlags::empty();
        rustix::mount::unmount("/proc", flags).unwrap();
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
