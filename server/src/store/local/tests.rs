use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, symlink};
use std::path::PathBuf;

use tempfile::TempDir;

use super::*;
use crate::store::suite::{self, content, expect_event, file, list, me, new_mode, refused};

/// A directory to serve and one for the state, side by side.
pub(super) struct Place {
    directory: TempDir,
}

impl Place {
    pub fn in_memory() -> Self {
        Self::within(&directory_in_memory())
    }

    pub fn on_disk() -> Self {
        Self::within(&std::env::temp_dir())
    }

    fn within(parent: &Path) -> Self {
        let directory = tempfile::Builder::new()
            .prefix("odafs-store")
            .tempdir_in(parent)
            .unwrap();
        let served = directory.path().join("served");
        std::fs::create_dir(&served).unwrap();
        for path in [directory.path(), &served] {
            std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o755)).unwrap();
        }
        Self { directory }
    }

    fn served(&self) -> PathBuf {
        self.directory.path().join("served")
    }

    fn outside(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    fn state(&self) -> StateDir {
        StateDir::open(Some(&self.outside("state")), &self.served()).unwrap()
    }

    pub fn open(self, by_handle: bool) -> Served {
        let options = LocalOptions::default();
        let state = self.state();
        let store = LocalStore::open_with(&self.served(), &state, options, by_handle).unwrap();
        Served {
            store,
            state,
            place: self,
        }
    }
}

/// A store with all that it stands on.
pub(super) struct Served {
    store: LocalStore,
    state: StateDir,
    place: Place,
}

impl Served {
    /// Ends this server and starts the next one on the same state.
    fn restart(self, by_handle: bool) -> Self {
        let Self {
            store,
            state,
            place,
        } = self;
        drop(store);
        drop(state);
        place.open(by_handle)
    }
}

/// Where a sync costs nothing.
pub(super) fn directory_in_memory() -> PathBuf {
    let shared = PathBuf::from("/dev/shm");
    if shared.is_dir() {
        shared
    } else {
        std::env::temp_dir()
    }
}

/// Lets the suite use a store that owns its directories.
macro_rules! forward {
    ($($name:ident($($arg:ident: $kind:ty),*) -> $result:ty;)*) => {
        impl Store for Served {
            $(fn $name(&self, $($arg: $kind),*) -> $result { self.store.$name($($arg),*) })*
        }
    };
}

forward! {
    root() -> ObjectId;
    getattr(object: ObjectId) -> Result<Attributes>;
    access(who: &Credential, object: ObjectId, mask: u32) -> Result<u32>;
    mode_decides(object: ObjectId) -> Result<bool>;
    lookup(who: &Credential, directory: ObjectId, name: &[u8]) -> Result<(ObjectId, Attributes)>;
    readlink(object: ObjectId) -> Result<Vec<u8>>;
    read_at(object: ObjectId, offset: u64, data: &mut [u8]) -> Result<usize>;
    write_at(who: &Credential, object: ObjectId, offset: u64, data: &[u8]) -> Result<usize>;
    sync(object: ObjectId, data_only: bool) -> Result<()>;
    setattr(who: &Credential, object: ObjectId, new: &SetAttributes) -> Result<Attributes>;
    create(who: &Credential, directory: ObjectId, name: &[u8], how: CreateHow<'_>) -> Result<Created>;
    mkdir(who: &Credential, directory: ObjectId, name: &[u8], new: &SetAttributes) -> Result<(ObjectId, Attributes)>;
    symlink(who: &Credential, directory: ObjectId, name: &[u8], target: &[u8], new: &SetAttributes) -> Result<(ObjectId, Attributes)>;
    mknod(who: &Credential, directory: ObjectId, name: &[u8], what: Special, new: &SetAttributes) -> Result<(ObjectId, Attributes)>;
    link(who: &Credential, object: ObjectId, directory: ObjectId, name: &[u8]) -> Result<Attributes>;
    rename(who: &Credential, from: (ObjectId, &[u8]), to: (ObjectId, &[u8])) -> Result<Option<Unlinked>>;
    remove(who: &Credential, directory: ObjectId, name: &[u8]) -> Result<Unlinked>;
    rmdir(who: &Credential, directory: ObjectId, name: &[u8]) -> Result<ObjectId>;
    readdir(who: &Credential, directory: ObjectId, range: ReaddirRange) -> Result<Listing>;
    statfs(object: ObjectId) -> Result<Space>;
    pathconf(object: ObjectId) -> Result<Limits>;
    handle(object: ObjectId) -> Result<HandleBytes>;
    open_handle(handle: &[u8]) -> Result<ObjectId>;
    watch(object: ObjectId) -> bool;
    unwatch(object: ObjectId) -> ();
    wait_events(timeout: Duration) -> Vec<OutsideEvent>;
    interrupt() -> ();
}

pub(super) fn can_act() -> bool {
    Identity::of_this_process().switches()
}

#[test]
fn suite_in_memory_by_handle() {
    suite::all(|| Place::in_memory().open(true), 10_000);
}

#[test]
fn suite_in_memory_by_name() {
    suite::all(|| Place::in_memory().open(false), 10_000);
}

#[test]
fn suite_on_disk_by_handle() {
    suite::all(|| Place::on_disk().open(true), 50);
}

#[test]
fn suite_on_disk_by_name() {
    suite::all(|| Place::on_disk().open(false), 50);
}

#[test]
fn suite_of_other_users() {
    if can_act() {
        suite::others(|| Place::in_memory().open(true));
        suite::others(|| Place::on_disk().open(false));
    }
}

/// Has an ordinary user run all tests of this store again.
#[test]
fn all_of_it_as_an_ordinary_user() {
    use std::os::unix::process::CommandExt as _;
    if !can_act() {
        return;
    }
    // Wherever this program lies: that user may not be able to get there.
    let copy = tempfile::tempdir().unwrap();
    let program = copy.path().join("tests");
    std::fs::copy(std::env::current_exe().unwrap(), &program).unwrap();
    for path in [copy.path(), &program] {
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o755)).unwrap();
    }
    let output = std::process::Command::new(program)
        .args(["store::local", "--skip", "ten_thousand"])
        .current_dir(copy.path())
        .uid(4000)
        .gid(4000)
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{text}");
    assert!(
        text.contains("strangers_at_an_ordinary_users_server ... ok"),
        "{text}"
    );
}

#[test]
fn strangers_at_an_ordinary_users_server() {
    if rustix::process::geteuid().is_root() {
        return;
    }
    let served = Place::in_memory().open(true);
    assert!(!served.store.acts_as_callers() && !served.store.opens_by_handle());
    let root = served.root();
    let f = file(&served, &me(), "f", 0o646);
    let secret = file(&served, &me(), "secret", 0o600);
    let alice = Credential::of(4001, 4001, &[]);
    assert_eq!(served.access(&alice, f, 0x3f).unwrap(), 0x1 | 0x4 | 0x8);
    assert_eq!(served.access(&alice, secret, 0x3f).unwrap(), 0);
    assert_eq!(served.write_at(&alice, f, 0, b"hers").unwrap(), 4);
    refused(served.write_at(&alice, secret, 0, b"no"), Status::Access);
    refused(served.setattr(&alice, f, &new_mode(0o777)), Status::Perm);
    let cut = SetAttributes {
        size: Some(2),
        ..SetAttributes::default()
    };
    assert_eq!(served.setattr(&alice, f, &cut).unwrap().size, 2);
    // What she made would not be hers.
    let (all, _) = served
        .mkdir(&me(), root, b"all", &new_mode(0o1777))
        .unwrap();
    let new = new_mode(0o6777);
    refused(
        served.create(&alice, all, b"x", CreateHow::Unchecked(&new)),
        Status::Perm,
    );
    refused(served.mkdir(&alice, all, b"x", &new), Status::Perm);
    refused(served.symlink(&alice, all, b"x", b"t", &new), Status::Perm);
    refused(
        served.mknod(&alice, all, b"x", Special::Fifo, &new),
        Status::Perm,
    );
    refused(served.link(&alice, f, all, b"x"), Status::Perm);
    // Taking away goes by mode.
    served.rename(&me(), (root, b"f"), (all, b"f")).unwrap();
    refused(served.remove(&alice, all, b"f"), Status::Perm);
    served.setattr(&me(), all, &new_mode(0o777)).unwrap();
    served.rename(&alice, (all, b"f"), (all, b"g")).unwrap();
    served.remove(&alice, all, b"g").unwrap();
    refused(served.remove(&alice, root, b"secret"), Status::Access);
    served.setattr(&me(), root, &new_mode(0o700)).unwrap();
    refused(served.lookup(&alice, root, b"secret"), Status::Access);
    let range = ReaddirRange {
        cookie: 0,
        verifier: [0; 8],
        max_entries: 9,
        plus: false,
    };
    refused(served.readdir(&alice, root, range), Status::Access);
    // Root on a client is as good as the serving user, and no better.
    let root_there = Credential::of(0, 0, &[]);
    assert_eq!(
        served.lookup(&root_there, root, b"secret").unwrap().0,
        secret
    );
    let made = file(&served, &root_there, "made", 0o644);
    assert_eq!(served.getattr(made).unwrap().uid, me().uid);
    let give = SetAttributes {
        uid: Some(4001),
        ..SetAttributes::default()
    };
    refused(served.setattr(&root_there, made, &give), Status::Perm);
}

#[test]
fn an_ordinary_owner_writes_on_to_a_file_without_write_permission() {
    let served = Place::in_memory().open(true);
    let f = file(&served, &me(), "f", 0o444);
    for round in 0..3 {
        served.write_at(&me(), f, round, b"x").unwrap();
        served.sync(f, true).unwrap();
    }
    assert_eq!(content(&served, f), b"xxx");
}

#[test]
fn a_synced_file_can_be_executed() {
    let served = Place::on_disk().open(true);
    let f = file(&served, &me(), "script", 0o755);
    served
        .write_at(&me(), f, 0, b"#!/bin/sh\nexit 7\n")
        .unwrap();
    served.sync(f, true).unwrap();
    let status = std::process::Command::new(served.place.served().join("script"))
        .status()
        .unwrap();
    assert_eq!(status.code(), Some(7));
}

#[test]
fn ten_thousand_entries_on_disk_are_listed_once() {
    let place = Place::on_disk();
    for number in 0..10_000 {
        std::fs::write(place.served().join(format!("entry {number}")), b"").unwrap();
    }
    let served = place.open(true);
    for (chunk, plus) in [(97, false), (5_000, true)] {
        let entries = list(&served, served.root(), chunk, plus);
        let names: std::collections::BTreeSet<_> =
            entries.iter().map(|entry| entry.name.clone()).collect();
        assert_eq!((entries.len(), names.len()), (10_002, 10_002));
        assert!(entries.iter().all(|entry| entry.object.is_some() == plus));
    }
}

#[test]
fn handles_survive_a_restart() {
    for by_handle in [true, false] {
        let served = Place::on_disk().open(by_handle);
        let f = file(&served, &me(), "f", 0o644);
        served.write_at(&me(), f, 0, b"kept").unwrap();
        let (d, _) = served
            .mkdir(&me(), served.root(), b"d", &new_mode(0o755))
            .unwrap();
        served.link(&me(), f, d, b"other").unwrap();
        served
            .rename(&me(), (served.root(), b"f"), (d, b"moved"))
            .unwrap();
        let handles = [served.root(), d, f].map(|object| served.handle(object).unwrap());
        let life = served.state.life();
        let served = served.restart(by_handle);
        assert_eq!(served.state.life(), life + 1);
        let [_, _, again] = handles.map(|handle| served.open_handle(&handle).unwrap());
        assert_eq!(again, f);
        assert_eq!(content(&served, again), b"kept");
        // One of its names goes; the other one still leads there.
        served.remove(&me(), d, b"moved").unwrap();
        let served = served.restart(by_handle);
        assert_eq!(served.open_handle(&handles[2]).unwrap(), f);
        served.remove(&me(), d, b"other").unwrap();
        refused(served.open_handle(&handles[2]), Status::Stale);
        let served = served.restart(by_handle);
        refused(served.open_handle(&handles[2]), Status::Stale);
        // Another key: none of ours.
        std::fs::remove_file(served.state.path().join("handle-key")).unwrap();
        let served = served.restart(by_handle);
        refused(served.open_handle(&handles[0]), Status::BadHandle);
    }
}

#[test]
fn a_new_file_has_another_handle_even_with_an_old_inode_number() {
    for by_handle in [true, false] {
        let served = Place::on_disk().open(by_handle);
        let mut seen = std::collections::BTreeSet::new();
        for _ in 0..20 {
            let f = file(&served, &me(), "f", 0o644);
            assert!(seen.insert(f), "the same again: {f:?}");
            served.remove(&me(), served.root(), b"f").unwrap();
            refused(served.getattr(f), Status::Stale);
        }
    }
}

#[test]
fn what_others_rename_is_found_by_handle_and_not_by_name() {
    for by_handle in [true, false] {
        let served = Place::on_disk().open(by_handle);
        let path = served.place.served();
        std::fs::write(path.join("f"), b"x").unwrap();
        let (f, _) = served.lookup(&me(), served.root(), b"f").unwrap();
        let handle = served.handle(f).unwrap();
        std::fs::rename(path.join("f"), path.join("g")).unwrap();
        // Still open.
        assert_eq!(content(&served, f), b"x");
        let served = served.restart(by_handle);
        match served.open_handle(&handle) {
            Ok(found) => assert!(served.store.opens_by_handle() && found == f),
            Err(error) => {
                assert!(!served.store.opens_by_handle() && error.status == Status::Stale);
            }
        }
        // Looking it up finds it again, under the same handle.
        assert_eq!(served.lookup(&me(), served.root(), b"g").unwrap().0, f);
        assert_eq!(served.open_handle(&handle).unwrap(), f);
        // Another file in its place is not taken for it.
        std::fs::remove_file(path.join("g")).unwrap();
        std::fs::write(path.join("g"), b"another").unwrap();
        refused(served.getattr(f), Status::Stale);
        refused(served.open_handle(&handle), Status::Stale);
    }
}

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
        // A directory that others move away takes nobody along.
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
        // Its neighbour whose name begins alike is no inside either.
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
    let options = LocalOptions { read_only: true };
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

#[test]
fn few_descriptors_serve_many_files() {
    for by_handle in [true, false] {
        let mut served = Place::in_memory().open(by_handle);
        served.store.descriptors = Descriptors::new(16);
        let files: Vec<_> = (0..200)
            .map(|number| {
                let f = file(&served, &me(), &format!("f{number}"), 0o644);
                served
                    .write_at(&me(), f, 0, format!("content {number}").as_bytes())
                    .unwrap();
                f
            })
            .collect();
        let open = std::fs::read_dir("/proc/self/fd").unwrap();
        let place = served.place.served();
        let ours = open
            .filter_map(|fd| std::fs::read_link(fd.unwrap().path()).ok())
            .filter(|path| path.starts_with(&place))
            .count();
        assert!(ours <= 20, "{ours} descriptors");
        for (number, f) in files.iter().enumerate() {
            assert_eq!(content(&served, *f), format!("content {number}").as_bytes());
        }
        served.store.descriptors.shrink();
    }
}

#[test]
fn access_lists_are_the_kernels_business() {
    let served = Place::on_disk().open(true);
    let root = served.root();
    let f = file(&served, &me(), "f", 0o600);
    let alice = Credential::of(4001, 4001, &[]);
    assert!(served.mode_decides(f).unwrap());
    assert_eq!(served.access(&alice, f, 1).unwrap(), 0);
    // user::rw-, user:4001:r--, group::---, mask::r--, other::---
    let mut list = 2_u32.to_le_bytes().to_vec();
    for (tag, permissions, id) in [
        (1_u16, 6_u16, u32::MAX),
        (2, 4, 4001),
        (4, 0, u32::MAX),
        (16, 4, u32::MAX),
        (32, 0, u32::MAX),
    ] {
        list.extend([tag.to_le_bytes(), permissions.to_le_bytes()].concat());
        list.extend(id.to_le_bytes());
    }
    let path = served.place.served().join("f");
    let flags = rustix::fs::XattrFlags::empty();
    match rustix::fs::setxattr(&path, "system.posix_acl_access", &list, flags) {
        Err(rustix::io::Errno::OPNOTSUPP) => return,
        set => set.unwrap(),
    }
    assert!(!served.mode_decides(f).unwrap());
    let attributes = served.getattr(f).unwrap();
    // The mode would grant the group what only the mask allows.
    assert_eq!(attributes.mode, 0o640);
    if can_act() {
        assert_eq!(served.access(&alice, f, 0x3f).unwrap(), 1);
        let group = Credential::of(4002, attributes.gid, &[]);
        assert_eq!(served.access(&group, f, 0x3f).unwrap(), 0);
        refused(served.write_at(&alice, f, 0, b"x"), Status::Access);
    }
    // A default list for new files has the last word over the mode.
    served.mkdir(&me(), root, b"d", &new_mode(0o755)).unwrap();
    let flags = rustix::fs::XattrFlags::empty();
    let d = served.place.served().join("d");
    rustix::fs::setxattr(&d, "system.posix_acl_default", &list, flags).unwrap();
    let (d, _) = served.lookup(&me(), root, b"d").unwrap();
    let made = served
        .create(&me(), d, b"g", CreateHow::Guarded(&new_mode(0o666)))
        .unwrap();
    assert_eq!(made.attributes.mode, 0o640);
}

#[test]
fn modes_are_those_asked_for_whatever_the_umask() {
    let served = Place::on_disk().open(true);
    let f = file(&served, &me(), "f", 0o4777);
    assert_eq!(served.getattr(f).unwrap().mode, 0o4777);
    let (d, attributes) = served
        .mkdir(&me(), served.root(), b"d", &new_mode(0o1777))
        .unwrap();
    assert_eq!(attributes.mode, 0o1777);
    let (_, fifo) = served
        .mknod(&me(), d, b"p", Special::Fifo, &new_mode(0o666))
        .unwrap();
    assert_eq!(fifo.mode, 0o666);
}

#[test]
fn changes_by_others_are_seen() {
    let served = Place::on_disk().open(true);
    let path = served.place.served();
    let f = file(&served, &me(), "f", 0o644);
    let g = file(&served, &me(), "g", 0o644);
    assert!(served.watch(f) && served.watch(g) && served.watch(served.root()));
    std::fs::write(path.join("f"), b"by another").unwrap();
    expect_event(&served, OutsideEvent::Changed(f));
    std::fs::set_permissions(path.join("f"), std::fs::Permissions::from_mode(0o600)).unwrap();
    expect_event(&served, OutsideEvent::Changed(f));
    std::fs::rename(path.join("f"), path.join("h")).unwrap();
    expect_event(&served, OutsideEvent::Changed(f));
    // Its descriptor is open here, and another one elsewhere: it is gone all the same.
    let held = std::fs::File::open(path.join("h")).unwrap();
    std::fs::rename(path.join("g"), path.join("h")).unwrap();
    expect_event(&served, OutsideEvent::Removed(f));
    refused(served.getattr(f), Status::Stale);
    drop(held);
    std::fs::write(path.join("new"), b"").unwrap();
    expect_event(&served, OutsideEvent::Changed(served.root()));
}

#[test]
fn an_overrun_queue_is_told() {
    let served = Place::in_memory().open(true);
    let limit = std::fs::read_to_string("/proc/sys/fs/inotify/max_queued_events").unwrap();
    let limit: usize = limit.trim().parse().unwrap();
    if limit > 100_000 {
        return;
    }
    let f = file(&served, &me(), "f", 0o644);
    let g = file(&served, &me(), "g", 0o644);
    assert!(served.watch(f) && served.watch(g));
    // Equal events in a row are one: so they alternate.
    for _ in 0..=limit / 2 {
        served.write_at(&me(), f, 0, b"x").unwrap();
        served.write_at(&me(), g, 0, b"x").unwrap();
    }
    expect_event(&served, OutsideEvent::Overflow);
}

#[test]
fn a_directory_that_is_not_there_is_named() {
    let place = Place::in_memory();
    let state = place.state();
    let missing = place.outside("missing");
    let error = LocalStore::open(&missing, &state, LocalOptions::default())
        .err()
        .unwrap();
    assert!(error.to_string().contains("missing"), "{error}");
}
