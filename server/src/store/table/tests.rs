use odafs_fabric::sync::Arc;

use super::*;
use crate::store::suite::{self, content, list, me, new_mode, refused};
use crate::store::{FileType, MemoryStore, OutsideChange, TarStore};

const STARTED: Time = Time {
    seconds: 1_000,
    nanoseconds: 7,
};

fn entry(name: &str, tag: u16, store: Arc<dyn Store>) -> Entry {
    Entry {
        name: name.to_owned(),
        tag,
        store,
    }
}

fn two() -> (Arc<MemoryStore>, Arc<MemoryStore>, StoreTable) {
    let (one, other) = (Arc::new(MemoryStore::new(1)), Arc::new(MemoryStore::new(1)));
    let entries = vec![
        entry("/data", 7, Arc::clone(&one) as Arc<dyn Store>),
        entry("/srv/other", 9, Arc::clone(&other) as Arc<dyn Store>),
    ];
    (one, other, StoreTable::new(entries, 5, STARTED).unwrap())
}

fn walk(table: &StoreTable, path: &[&str]) -> ObjectId {
    let step = |at, name: &&str| table.lookup(&me(), at, name.as_bytes()).unwrap().0;
    path.iter().fold(table.root(), step)
}

#[test]
fn stores_are_found_by_their_names() {
    let (one, other, table) = two();
    assert_eq!(inner(walk(&table, &["data"])), one.root());
    assert_eq!(inner(walk(&table, &["srv", "other"])), other.root());
    assert_eq!(walk(&table, &["data", ".."]), table.root());
    let srv = walk(&table, &["srv"]);
    assert_eq!(walk(&table, &["srv", "other", ".."]), srv);
    assert_eq!(walk(&table, &["srv", "."]), srv);
    assert_eq!(walk(&table, &["srv", ".."]), table.root());
    assert_eq!(walk(&table, &[".."]), table.root());
    refused(table.lookup(&me(), table.root(), b"other"), Status::NoEnt);
    let at_hand = table.lookup_at_hand(&me(), table.root(), b"srv");
    assert_eq!(at_hand.unwrap().unwrap().0, srv);
    // What looks like an object of the table and is none.
    let stale = ObjectId {
        ino: 99,
        generation: 0,
    };
    refused(table.getattr(stale), Status::Stale);
    refused(table.getattr(outer(8, one.root())), Status::Stale);
    assert!(table.find(srv).is_ok() && table.find(stale).is_err());
}

#[test]
fn the_table_lists_its_names_and_takes_no_changes() {
    let (_, _, table) = two();
    for chunk in 1..5 {
        let entries = list(&table, table.root(), chunk, true);
        let names: Vec<&[u8]> = entries.iter().map(|entry| &*entry.name).collect();
        assert_eq!(names, [&b"."[..], b"..", b"data", b"srv"]);
        let objects = entries.iter().map(|entry| entry.object.unwrap().0);
        let data = walk(&table, &["data"]);
        assert_eq!(objects.clone().nth(2), Some(data));
    }
    let data = list(&table, walk(&table, &["data"]), 10, true);
    assert_eq!(data[1].object.unwrap().0, table.root());
    let root = table.getattr(table.root()).unwrap();
    assert_eq!(
        (root.kind, root.mode, root.links, root.ctime),
        (FileType::Directory, 0o555, 4, STARTED)
    );
    let who = me();
    let plain = new_mode(0o600);
    refused(table.mkdir(&who, table.root(), b"x", &plain), Status::RoFs);
    refused(table.rmdir(&who, table.root(), b"data"), Status::RoFs);
    refused(table.setattr(&who, table.root(), &plain), Status::RoFs);
    refused(
        table.rename(&who, (table.root(), b"data"), (table.root(), b"x")),
        Status::RoFs,
    );
    assert!(table.pathconf(table.root()).unwrap().read_only);
    assert!(!table.pathconf(walk(&table, &["data"])).unwrap().read_only);
    let all = access::READ | access::LOOKUP | access::MODIFY | access::EXTEND | access::DELETE;
    let granted = table.access(&who, table.root(), all).unwrap();
    assert_eq!(granted, access::READ | access::LOOKUP);
}

#[test]
fn nothing_goes_from_one_store_to_another() {
    let (_, _, table) = two();
    let who = me();
    let (data, other) = (walk(&table, &["data"]), walk(&table, &["srv", "other"]));
    let how = new_mode(0o600);
    let made = table
        .create(&who, data, b"file", CreateHow::Guarded(&how))
        .unwrap()
        .object;
    table.write_at(&who, made, 0, b"bytes").unwrap();
    refused(table.link(&who, made, other, b"file"), Status::XDev);
    refused(
        table.rename(&who, (data, b"file"), (other, b"file")),
        Status::XDev,
    );
    let moved = table
        .rename(&who, (data, b"file"), (data, b"moved"))
        .unwrap();
    assert_eq!(moved, None);
    // But bytes may be copied.
    let copied = table
        .create(&who, other, b"copy", CreateHow::Guarded(&how))
        .unwrap()
        .object;
    refused(
        table.clone_range(&who, (made, 0), (copied, 0), 5),
        Status::XDev,
    );
    assert_eq!(table.copy(&who, (made, 1), (copied, 0), 9).unwrap(), 4);
    assert_eq!(content(&table, copied), b"ytes");
    assert_eq!(content(&table, made), b"bytes");
    let gone = table.remove(&who, data, b"moved").unwrap();
    assert_eq!(gone.object, made);
}

#[test]
fn clients_tell_the_exports_apart_though_their_roots_look_alike() {
    let (one, other, table) = two();
    assert_eq!(one.root(), other.root());
    let of = |path: &[&str]| table.getattr(walk(&table, path)).unwrap();
    let (data, other) = (of(&["data"]), of(&["srv", "other"]));
    let fsids = [of(&[]).fsid, data.fsid, other.fsid];
    assert!(fsids[0] != fsids[1] && fsids[1] != fsids[2] && fsids[0] != fsids[2]);
    // In the directories above, each name has a number of its own.
    let listed = list(&table, table.root(), 10, false);
    let mounted = table.mounted_on(walk(&table, &["data"]));
    assert_eq!(mounted, Some(listed[2].fileid));
    assert_ne!(listed[2].fileid, listed[3].fileid);
    assert_eq!(table.mounted_on(walk(&table, &["srv"])), None);
    // All that shows attributes shows the same file system.
    let who = me();
    let root = walk(&table, &["data"]);
    let (made, attributes) = table.mkdir(&who, root, b"d", &new_mode(0o700)).unwrap();
    let set = table.setattr(&who, made, &new_mode(0o711)).unwrap();
    let listed = list(&table, root, 10, true);
    let found = table.lookup(&who, root, b"d").unwrap().1;
    for shown in [attributes, set, found, listed[2].object.unwrap().1] {
        assert_eq!(shown.fsid, data.fsid);
    }
}

#[test]
fn an_export_whose_root_is_gone_hides_no_other() {
    let scratch = tempfile::tempdir().unwrap();
    let archive = scratch.path().join("a.tar");
    std::fs::write(&archive, [0; 1024]).unwrap();
    let entries = vec![
        entry("/data", 1, Arc::new(TarStore::open(&archive).unwrap())),
        entry("/srv", 2, Arc::new(MemoryStore::new(1))),
    ];
    let table = StoreTable::new(entries, 5, STARTED).unwrap();
    // An archive that is changed in place is stale from then on.
    std::fs::write(&archive, [0; 2048]).unwrap();
    let told = || {
        table
            .wait_events(Duration::from_secs(1))
            .contains(&OutsideEvent::Overflow)
    };
    assert!((0..60).any(|_| told()));
    let listed = list(&table, table.root(), 10, true);
    let names: Vec<&[u8]> = listed.iter().map(|entry| &*entry.name).collect();
    assert_eq!(names, [&b"."[..], b"..", b"data", b"srv"]);
    assert!(listed[2].object.is_none() && listed[3].object.is_some());
}

#[test]
fn events_of_all_stores_are_told() {
    let (one, other, table) = two();
    let who = me();
    for (store, path) in [(&one, &["data"][..]), (&other, &["srv", "other"])] {
        let root = walk(&table, path);
        let how = new_mode(0o600);
        let made = table
            .create(&who, root, b"f", CreateHow::Guarded(&how))
            .unwrap()
            .object;
        assert!(table.watch(made));
        let change = OutsideChange::Write {
            offset: 0,
            data: b"x",
        };
        store.outside_change(inner(made), change).unwrap();
        let mut told = Vec::new();
        for _ in 0..100 {
            told.extend(table.wait_events(Duration::from_millis(100)));
            if told.contains(&OutsideEvent::Written(made)) {
                break;
            }
        }
        assert!(told.contains(&OutsideEvent::Written(made)), "{told:?}");
    }
    table.interrupt();
    assert!(table.wait_events(Duration::from_secs(60)).is_empty());
    assert!(table.watch(table.root()));
}

#[test]
fn tables_that_make_no_sense_are_refused() {
    let store = || Arc::new(MemoryStore::new(1)) as Arc<dyn Store>;
    let refused = |entries| match StoreTable::new(entries, 5, STARTED) {
        Ok(_) => panic!("it was taken"),
        Err(error) => error.to_string(),
    };
    for name in ["", "data", "/", "//", "/a/../b", "/a/.", "/a\nb", "/a\r"] {
        let said = refused(vec![entry(name, 1, store())]);
        assert!(said.contains("no name for one export"), "{said}");
    }
    for other in ["/a", "/a/b", "/a/"] {
        for names in [["/a", other], [other, "/a"]] {
            let said = refused(vec![
                entry(names[0], 1, store()),
                entry(names[1], 2, store()),
            ]);
            let reason = if other == "/a/b" {
                "below"
            } else {
                "two exports"
            };
            assert!(said.contains(reason), "{names:?}: {said}");
        }
    }
    for tags in [[1, 1], [1, 0]] {
        let said = refused(vec![
            entry("/a", tags[0], store()),
            entry("/b", tags[1], store()),
        ]);
        assert!(said.contains("tag"), "{said}");
    }
}

/// What a store must do, an export must do too.
#[test]
fn an_export_of_a_table_passes_the_suite() {
    suite::all(Below::new, 200);
    suite::others(Below::new);
}

/// An export of a table as if it were all there is.
struct Below {
    table: StoreTable,
    root: ObjectId,
}

impl Below {
    fn new() -> Self {
        let (_, _, table) = two();
        let root = walk(&table, &["srv", "other"]);
        Self { table, root }
    }

    fn above(&self) -> Result<Found> {
        Ok((self.root, self.table.getattr(self.root)?))
    }
}

macro_rules! forward {
    ($($name:ident($($arg:ident: $kind:ty),*) -> $result:ty;)*) => {
        impl Store for Below {
            fn root(&self) -> ObjectId {
                self.root
            }

            fn lookup(&self, who: &Credential, directory: ObjectId, name: &[u8]) -> Result<Found> {
                match name {
                    b".." if directory == self.root => self.above(),
                    _ => self.table.lookup(who, directory, name),
                }
            }

            fn readdir(&self, who: &Credential, directory: ObjectId, range: ReaddirRange) -> Result<Listing> {
                let mut listing = self.table.readdir(who, directory, range)?;
                let up = listing.entries.iter_mut().filter(|entry| entry.name == b".." && directory == self.root);
                for entry in up {
                    entry.fileid = self.root.ino;
                    entry.object = entry.object.map(|_| self.above()).transpose()?;
                }
                Ok(listing)
            }

            $(fn $name(&self, $($arg: $kind),*) -> $result {
                self.table.$name($($arg),*)
            })*
        }
    };
}

forward! {
    getattr(object: ObjectId) -> Result<Attributes>;
    has_birth_times() -> bool;
    birth_time(object: ObjectId) -> Result<Option<Time>>;
    access(who: &Credential, object: ObjectId, mask: u32) -> Result<u32>;
    is_at_hand(object: ObjectId) -> bool;
    mode_decides(object: ObjectId) -> Result<bool>;
    has_acls() -> bool;
    acl(object: ObjectId, kind: AclKind) -> Result<Option<Acl>>;
    set_acl(who: &Credential, object: ObjectId, kind: AclKind, list: Option<&Acl>) -> Result<()>;
    lookup_at_hand(who: &Credential, directory: ObjectId, name: &[u8]) -> Option<Result<Found>>;
    wants_sync(object: ObjectId) -> bool;
    has_xattrs() -> bool;
    xattr(who: &Credential, object: ObjectId, name: &[u8]) -> Result<Vec<u8>>;
    xattrs(who: &Credential, object: ObjectId) -> Result<Vec<Vec<u8>>>;
    set_xattr(who: &Credential, object: ObjectId, name: &[u8], value: &[u8], how: XattrHow) -> Result<()>;
    remove_xattr(who: &Credential, object: ObjectId, name: &[u8]) -> Result<()>;
    readlink(object: ObjectId) -> Result<Vec<u8>>;
    read_at(object: ObjectId, offset: u64, data: &mut [u8]) -> Result<usize>;
    read_at_hand(object: ObjectId, offset: u64, data: &mut [u8]) -> bool;
    write_from(who: &Credential, object: ObjectId, offset: u64, data: &Gather<'_>) -> Result<usize>;
    is_write_at_hand(who: &Credential, object: ObjectId) -> bool;
    sync(object: ObjectId, data_only: bool) -> Result<()>;
    allocate(who: &Credential, object: ObjectId, offset: u64, length: u64) -> Result<()>;
    deallocate(who: &Credential, object: ObjectId, offset: u64, length: u64) -> Result<()>;
    seek(object: ObjectId, offset: u64, what: Extent) -> Result<Option<u64>>;
    copy(who: &Credential, from: (ObjectId, u64), to: (ObjectId, u64), count: u64) -> Result<u64>;
    clone_block_bytes(object: ObjectId) -> Option<u32>;
    clone_range(who: &Credential, from: (ObjectId, u64), to: (ObjectId, u64), count: u64) -> Result<()>;
    setattr(who: &Credential, object: ObjectId, new: &SetAttributes) -> Result<Attributes>;
    create(who: &Credential, directory: ObjectId, name: &[u8], how: CreateHow<'_>) -> Result<Created>;
    mkdir(who: &Credential, directory: ObjectId, name: &[u8], new: &SetAttributes) -> Result<Found>;
    symlink(who: &Credential, directory: ObjectId, name: &[u8], target: &[u8], new: &SetAttributes) -> Result<Found>;
    mknod(who: &Credential, directory: ObjectId, name: &[u8], what: Special, new: &SetAttributes) -> Result<Found>;
    link(who: &Credential, object: ObjectId, directory: ObjectId, name: &[u8]) -> Result<Attributes>;
    rename(who: &Credential, from: (ObjectId, &[u8]), to: (ObjectId, &[u8])) -> Result<Option<Unlinked>>;
    remove(who: &Credential, directory: ObjectId, name: &[u8]) -> Result<Unlinked>;
    rmdir(who: &Credential, directory: ObjectId, name: &[u8]) -> Result<ObjectId>;
    statfs(object: ObjectId) -> Result<Space>;
    pathconf(object: ObjectId) -> Result<FileSystemLimits>;
    number() -> u64;
    find(object: ObjectId) -> Result<()>;
    watch(object: ObjectId) -> bool;
    unwatch(object: ObjectId) -> ();
    wait_events(timeout: Duration) -> Vec<OutsideEvent>;
    interrupt() -> ();
}
