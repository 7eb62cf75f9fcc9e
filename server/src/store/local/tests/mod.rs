mod confinement;
mod space;
mod users;

use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, symlink};
use std::path::PathBuf;
use std::sync::mpsc;

use tempfile::TempDir;

use super::counted::{Counted, count_of};
use super::unsynced::Asked;
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

/// A store, and the directories that it uses.
pub(super) struct Served {
    store: LocalStore,
    state: StateDir,
    place: Place,
}

impl Served {
    /// Ends this store and opens the next one on the same state.
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

/// A place where a sync costs nothing.
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
    has_birth_times() -> bool;
    birth_time(object: ObjectId) -> Result<Option<Time>>;
    access(who: &Credential, object: ObjectId, mask: u32) -> Result<u32>;
    mode_decides(object: ObjectId) -> Result<bool>;
    has_acls() -> bool;
    acl(object: ObjectId, kind: AclKind) -> Result<Option<Acl>>;
    set_acl(who: &Credential, object: ObjectId, kind: AclKind, list: Option<&Acl>) -> Result<()>;
    lookup(who: &Credential, directory: ObjectId, name: &[u8]) -> Result<(ObjectId, Attributes)>;
    lookup_at_hand(who: &Credential, directory: ObjectId, name: &[u8]) -> Option<Result<(ObjectId, Attributes)>>;
    readlink(object: ObjectId) -> Result<Vec<u8>>;
    read_at(object: ObjectId, offset: u64, data: &mut [u8]) -> Result<usize>;
    read_at_hand(object: ObjectId, offset: u64, data: &mut [u8]) -> bool;
    write_from(who: &Credential, object: ObjectId, offset: u64, data: &Gather<'_>) -> Result<usize>;
    is_write_at_hand(who: &Credential, object: ObjectId) -> bool;
    sync(object: ObjectId, data_only: bool) -> Result<()>;
    wants_sync(object: ObjectId) -> bool;
    copy(who: &Credential, from: (ObjectId, u64), to: (ObjectId, u64), count: u64) -> Result<u64>;
    clone_block_bytes(object: ObjectId) -> Option<u32>;
    clone_range(who: &Credential, from: (ObjectId, u64), to: (ObjectId, u64), count: u64) -> Result<()>;
    seek(object: ObjectId, offset: u64, what: Extent) -> Result<Option<u64>>;
    allocate(who: &Credential, object: ObjectId, offset: u64, length: u64) -> Result<()>;
    deallocate(who: &Credential, object: ObjectId, offset: u64, length: u64) -> Result<()>;
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
    pathconf(object: ObjectId) -> Result<FileSystemLimits>;
    number() -> u64;
    find(object: ObjectId) -> Result<()>;
    watch(object: ObjectId) -> bool;
    unwatch(object: ObjectId) -> ();
    wait_events(timeout: Duration) -> Vec<OutsideEvent>;
    interrupt() -> ();
}

pub(super) fn can_act() -> bool {
    Identity::of_this_process().switches()
}

#[test]
fn suite_for_reading() {
    let Served {
        store,
        state,
        place,
    } = Place::in_memory().open(true);
    suite::grow(&store);
    drop(store);
    let options = LocalOptions {
        read_only: true,
        ..LocalOptions::default()
    };
    suite::reading(&LocalStore::open(&place.served(), &state, options).unwrap());
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
fn a_listing_with_attributes_opens_nothing() {
    for (place, by_handle) in [
        (Place::in_memory(), true),
        (Place::in_memory(), false),
        (Place::on_disk(), true),
    ] {
        let mut served = place.open(by_handle);
        let (root, path) = (served.root(), served.place.served());
        for number in 0..20 {
            file(&served, &me(), &format!("f{number}"), 0o644);
        }
        served.mkdir(&me(), root, b"d", &new_mode(0o755)).unwrap();
        let fifo = served.mknod(&me(), root, b"p", Special::Fifo, &new_mode(0o644));
        fifo.unwrap();
        for (target, name) in [("f0", "l"), ("..", "out"), ("gone", "broken")] {
            symlink(target, path.join(name)).unwrap();
        }
        std::fs::hard_link(path.join("f1"), path.join("h")).unwrap();
        let listed = |served: &Served| {
            let (entries, opened) = count_of(Counted::Open, || list(served, root, 100, true));
            let entries = entries.into_iter().filter(|entry| entry.cookie > 2);
            (entries.collect::<Vec<_>>(), opened)
        };
        let (entries, opened) = listed(&served);
        assert_eq!(entries.len(), 26);
        if served.store.scheme.is_some() {
            assert_eq!(opened, 0);
        }
        for entry in &entries {
            let found = served.lookup(&me(), root, &entry.name).unwrap();
            assert_eq!(entry.object, Some(found), "{:?}", entry.name);
        }
        // Without the file system's generations, birth times distinguish objects. They take a descriptor.
        served.store.scheme = None;
        let (entries, opened) = listed(&served);
        assert_eq!(opened, 26);
        for entry in &entries {
            let found = served.lookup(&me(), root, &entry.name).unwrap();
            assert_eq!(entry.object, Some(found), "{:?}", entry.name);
        }
    }
}

#[test]
fn nothing_is_synced_where_there_is_no_device() {
    for (place, synced) in [(Place::in_memory(), false), (Place::on_disk(), true)] {
        let served = place.open(true);
        let is_memory = served.store.has_no_device;
        if is_memory == synced {
            eprintln!("skipped: both file systems are in memory, or neither");
            continue;
        }
        let root = served.root();
        let count = |what: &str, act: &dyn Fn()| {
            let count = count_of(Counted::Sync, act).1;
            assert_eq!(count > 0, synced, "{what}");
        };
        count("create", &|| {
            file(&served, &me(), "f", 0o644);
        });
        count("mkdir", &|| {
            served.mkdir(&me(), root, b"d", &new_mode(0o755)).unwrap();
        });
        count("rename", &|| {
            let renamed = served.rename(&me(), (root, b"f"), (root, b"g"));
            renamed.unwrap();
        });
        count("remove", &|| {
            served.remove(&me(), root, b"g").unwrap();
        });
        count("rmdir", &|| {
            served.rmdir(&me(), root, b"d").unwrap();
        });
    }
}

#[test]
fn objects_are_found_again_after_a_restart() {
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
        let number = served.number();
        let life = served.state.life();
        let served = served.restart(by_handle);
        assert_eq!(served.state.life(), life + 1);
        assert_eq!(served.number(), number);
        for object in [served.root(), d, f] {
            served.find(object).unwrap();
        }
        assert_eq!(content(&served, f), b"kept");
        // One of its names goes. The other one still leads to it.
        served.remove(&me(), d, b"moved").unwrap();
        let served = served.restart(by_handle);
        served.find(f).unwrap();
        served.remove(&me(), d, b"other").unwrap();
        refused(served.find(f), Status::Stale);
        let served = served.restart(by_handle);
        refused(served.find(f), Status::Stale);
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
        std::fs::rename(path.join("f"), path.join("g")).unwrap();
        // Still open.
        assert_eq!(content(&served, f), b"x");
        let served = served.restart(by_handle);
        match served.find(f) {
            Ok(()) => assert!(served.store.opens_by_handle()),
            Err(error) => {
                assert!(!served.store.opens_by_handle() && error.status == Status::Stale);
            }
        }
        // A lookup finds it again, under the same file handle.
        assert_eq!(served.lookup(&me(), served.root(), b"g").unwrap().0, f);
        served.find(f).unwrap();
        // Another file in its place is not confused with it.
        std::fs::remove_file(path.join("g")).unwrap();
        std::fs::write(path.join("g"), b"another").unwrap();
        refused(served.getattr(f), Status::Stale);
        refused(served.find(f), Status::Stale);
    }
}

#[test]
fn few_descriptors_serve_many_files() {
    for by_handle in [true, false] {
        let mut served = Place::in_memory().open(by_handle);
        served.store.descriptors = Descriptors::new(16).unwrap();
        let files: Vec<_> = (0..200)
            .map(|number| {
                let f = file(&served, &me(), &format!("f{number}"), 0o644);
                served
                    .write_at(&me(), f, 0, format!("content {number}").as_bytes())
                    .unwrap();
                if served.wants_sync(f) {
                    served.sync(f, true).unwrap();
                }
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
fn changes_by_others_are_seen() {
    let served = Place::on_disk().open(true);
    let path = served.place.served();
    let f = file(&served, &me(), "f", 0o644);
    let g = file(&served, &me(), "g", 0o644);
    assert!(served.watch(f) && served.watch(g) && served.watch(served.root()));
    std::fs::write(path.join("f"), b"by another").unwrap();
    expect_event(&served, OutsideEvent::Written(f));
    std::fs::set_permissions(path.join("f"), std::fs::Permissions::from_mode(0o600)).unwrap();
    expect_event(&served, OutsideEvent::Changed(f));
    std::fs::rename(path.join("f"), path.join("h")).unwrap();
    expect_event(&served, OutsideEvent::Changed(f));
    // Its descriptor is open here and elsewhere, but the object is gone nevertheless.
    let held = std::fs::File::open(path.join("h")).unwrap();
    std::fs::rename(path.join("g"), path.join("h")).unwrap();
    expect_event(&served, OutsideEvent::Removed(f));
    refused(served.getattr(f), Status::Stale);
    drop(held);
    std::fs::write(path.join("new"), b"").unwrap();
    expect_event(&served, OutsideEvent::Changed(served.root()));
}

#[test]
fn a_sync_without_a_device_waits_for_no_other_and_never_fails() {
    let served = Place::in_memory().open(true);
    let f = file(&served, &me(), "f", 0o644);
    served.write_at(&me(), f, 0, b"x").unwrap();
    if !served.is_write_at_hand(&me(), f) {
        return; // There is no file system in memory here.
    }
    let unsynced = served.store.descriptors.unsynced();
    std::thread::scope(|scope| {
        let (told, heard) = mpsc::channel();
        let other = unsynced.sync(f, Asked::No, |_| {
            let (told, store) = (told.clone(), &served.store);
            scope.spawn(move || told.send(store.sync(f, false)));
            assert_eq!(heard.recv_timeout(Duration::from_secs(10)), Ok(Ok(())));
            Ok(())
        });
        assert_eq!(other, Ok(()));
    });
    served.write_at(&me(), f, 0, b"x").unwrap();
    std::fs::remove_file(served.place.served().join("f")).unwrap();
    served.store.descriptors.release(f);
    assert_eq!(served.sync(f, false), Ok(()));
    assert!(unsynced.find(f).is_none());
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
    // The kernel merges equal events in a row, so these alternate.
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

#[test]
fn what_is_open_is_looked_up_at_hand() {
    for by_handle in [true, false] {
        let served = Place::in_memory().open(by_handle);
        let d = served.mkdir(&me(), served.root(), b"d", &new_mode(0o755));
        let d = d.unwrap().0;
        let f = served.create(&me(), d, b"f", CreateHow::Guarded(&new_mode(0o644)));
        let f = f.unwrap().object;
        let at_hand = |name: &[u8]| {
            let found = served.lookup_at_hand(&me(), d, name);
            found.map(|found| found.map(|found| found.0).map_err(|no| no.status))
        };
        if at_hand(b"f").is_none() {
            eprintln!("skipped: before Linux 5.12 nothing is looked up at hand");
            return;
        }
        assert_eq!(at_hand(b"f"), Some(Ok(f)));
        assert_eq!(at_hand(b"f/"), Some(Err(Status::Access)));
        // Neither answers from memory alone, or the difference does not matter.
        assert_eq!(at_hand(b"."), None);
        served.store.descriptors.release(f);
        assert_eq!(at_hand(b"f"), None);
        assert_eq!(served.lookup(&me(), d, b"f").unwrap().0, f);
        assert_eq!(at_hand(b"f"), Some(Ok(f)));
        // Another object has the name now.
        let path = served.place.served().join("d");
        std::fs::write(path.join("other"), b"").unwrap();
        std::fs::rename(path.join("other"), path.join("f")).unwrap();
        assert_eq!(at_hand(b"f"), None);
        let other = served.lookup(&me(), d, b"f").unwrap().0;
        assert_eq!(at_hand(b"f"), Some(Ok(other)));
        std::fs::rename(&path, served.place.outside("d")).unwrap();
        assert_eq!(at_hand(b"f"), Some(Err(Status::Stale)));
    }
}

#[test]
fn the_largest_size_is_the_file_systems() {
    let served = Place::on_disk().open(true);
    let most = served.pathconf(served.root()).unwrap().size_max;
    let f = file(&served, &me(), "f", 0o644);
    let sized = |size| SetAttributes {
        size: Some(size),
        ..SetAttributes::default()
    };
    let set = served.setattr(&me(), f, &sized(most));
    assert_eq!(set.unwrap().size, most);
    if most < i64::MAX as u64 {
        refused(served.setattr(&me(), f, &sized(most + 1)), Status::FBig);
    }
}

#[test]
fn what_changes_elsewhere_too_does_not_count_as_watched() {
    // As on NFS, inotify accepts a watch here but reports only what happens through this mount.
    let place = Place::in_memory();
    let options = LocalOptions::default();
    let store = LocalStore::open(Path::new("/proc/sys/kernel"), &place.state(), options).unwrap();
    assert!(!store.watch(store.root()));
    let served = place.open(true);
    assert!(served.watch(served.root()));
    for remote in [
        0x6969,
        0x6573_5546,
        0x0102_1997,
        0xFF53_4D42,
        0xFE53_4D42,
        0x00C3_6400,
    ] {
        assert!(!sys::is_of_this_host(remote), "{remote:#x}");
    }
}
