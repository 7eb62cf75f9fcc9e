//! Changes beside promises.

use std::collections::HashSet;

use odafs_fabric::sync::mpsc;

use super::Keeper as By;
use super::*;
use crate::store::{
    Acl, CreateHow, Operation, OutsideChange, ReaddirRange, SetAttributes, SetTime, StoreError,
    Time, XattrHow,
};
use crate::vfs::acls::NewAcls;
use crate::vfs::testing::{World, owner};
use crate::vfs::write::{Stable, commit, write};
use crate::vfs::{acls, attributes, copies, namespace, space, xattrs};

/// Promises what it is told to.
#[derive(Default)]
struct Keeper {
    promised: Mutex<HashSet<ObjectId>>,
    asked: Mutex<Vec<(ObjectId, Party)>>,
    broken: Mutex<Vec<ObjectId>>,
    /// Looks at it wait, but for those of this party.
    awaited: Mutex<Option<(ObjectId, Party)>>,
    /// Told of each that is asked for.
    tell: Mutex<Option<mpsc::Sender<ObjectId>>>,
}

impl Holders for Keeper {
    fn give_back(&self, object: ObjectId, by: Party) -> bool {
        self.asked.lock().push((object, by));
        if let Some(tell) = &*self.tell.lock() {
            let _ = tell.send(object);
        }
        !self.promised.lock().contains(&object)
    }

    fn broken(&self, object: ObjectId) {
        self.broken.lock().push(object);
    }

    fn is_awaited(&self, object: ObjectId, by: Party) -> bool {
        let awaited = *self.awaited.lock();
        awaited.is_some_and(|(file, but)| file == object && by != but)
    }
}

fn kept(world: &World) -> Arc<Keeper> {
    let keeper = Arc::new(Keeper::default());
    let holders: Arc<dyn Holders> = Arc::clone(&keeper) as _;
    world
        .export
        .promises()
        .keep(By::Nfs4, Arc::downgrade(&holders));
    keeper
}

fn promise(world: &World, keeper: &Keeper, file: &Arc<File>) {
    keeper.promised.lock().insert(file.object());
    assert!(world.export.promises().make(By::Nfs4, file));
}

fn end(world: &World, keeper: &Keeper, file: &Arc<File>) {
    keeper.promised.lock().remove(&file.object());
    world.export.promises().end(By::Nfs4, file.object());
}

fn is_empty(promises: &Promises) -> bool {
    let idle = |shard: &Shard| {
        let counts = [&shard.changes, &shard.promised].map(|count| count.load(Ordering::SeqCst));
        counts == [0; 2] && shard.kept.lock().is_empty()
    };
    promises.shards.iter().all(idle)
        && promises.promised.load(Ordering::SeqCst) == 0
        && promises.alone.load(Ordering::SeqCst) == 0
        && promises.naming.load(Ordering::SeqCst) == 0
        && promises.waiting.load(Ordering::SeqCst) == 0
}

#[test]
fn a_stranger_waits_until_a_promise_is_given_back() {
    let world = World::new(64);
    let keeper = kept(&world);
    let file = world.file("a", b"old");
    promise(&world, &keeper, &file);
    let (tell, told) = mpsc::channel();
    *keeper.tell.lock() = Some(tell);
    std::thread::scope(|scope| {
        let writer = scope.spawn(|| world.write(&file, 0, &b"new"[..]));
        assert_eq!(told.recv(), Ok(file.object()));
        // The write has not begun.
        assert_eq!(world.read(&file, 0, 3), b"old");
        // Nor is a promise made beside it.
        assert!(!world.export.promises().make(By::Nfs4, &file));
        end(&world, &keeper, &file);
        writer.join().expect("written");
    });
    assert_eq!(world.read(&file, 0, 3), b"new");
    assert_eq!(keeper.asked.lock()[0], (file.object(), Party::Stranger));
    assert!(is_empty(world.export.promises()));
}

#[test]
fn nobody_is_asked_where_nobody_else_has_a_promise() {
    let world = World::new(64);
    let keeper = kept(&world);
    let file = world.file("a", b"old");
    let promises = world.export.promises();
    let is_free = |party| {
        let _acting = changing_for(party);
        let changing = promises.ask_at_hand(file.object());
        // None is made beside the change.
        let made = changing.is_some() && promises.make(By::Nfs4, &file);
        assert!(!made);
        changing.is_some()
    };
    let client = |id| Party::Returning(Some(id));
    assert!(is_free(Party::Stranger) && is_free(client(1)));
    promise(&world, &keeper, &file);
    assert!(!is_free(Party::Stranger) && !is_free(client(1)));
    end(&world, &keeper, &file);
    assert!(promises.leave_to(&file, 1));
    assert!(is_free(client(1)) && !is_free(client(2)) && !is_free(Party::Stranger));
    end(&world, &keeper, &file);
    promises.close(HashSet::new());
    assert!(!is_free(client(1)));
    assert!(keeper.asked.lock().is_empty());
    assert!(is_empty(promises));
}

#[test]
fn a_returning_party_is_refused_whatever_it_changes() {
    let world = World::new(64);
    let keeper = kept(&world);
    let file = world.file("a", b"old");
    let other = world.file("b", b"other");
    promise(&world, &keeper, &file);
    let (export, who, root) = (&*world.export, &owner(), world.export.root());
    let new = SetAttributes {
        mode: Some(0o600),
        ..SetAttributes::default()
    };
    let cut = SetAttributes {
        size: Some(0),
        ..SetAttributes::default()
    };
    let object = file.object();
    let range = space::Range {
        offset: 0,
        length: 9,
    };
    let changes: [&dyn Fn() -> Result<(), StoreError>; 9] = [
        &|| {
            let written = write(export, who, &file, 0, &b"new"[..], Stable::Unstable);
            written.map(drop).map_err(|no| no.error)
        },
        &|| {
            let set = attributes::set(export, who, object, &new, None);
            set.map(drop).map_err(|no| no.error)
        },
        &|| namespace::create(export, who, root, b"a", CreateHow::Unchecked(&cut)).map(drop),
        &|| namespace::remove(export, who, root, b"a"),
        &|| namespace::rename(export, who, (root, b"a"), (root, b"c")),
        &|| namespace::rename(export, who, (root, b"b"), (root, b"a")),
        &|| namespace::link(export, who, object, root, b"c").map(drop),
        &|| space::allocate(export, who, &file, range),
        &|| xattrs::set(export, who, object, (b"x", b"y"), XattrHow::Either).map(drop),
    ];
    let before = export.store().getattr(object).expect("there");
    let returning = Party::Returning(Some(7));
    let acting = changing_for(returning);
    for (number, change) in changes.iter().enumerate() {
        let refused = change().expect_err("refused");
        assert_eq!(refused.status, Status::Jukebox, "{number}");
        assert_eq!(
            keeper.asked.lock().pop(),
            Some((object, returning)),
            "{number}"
        );
    }
    assert_eq!(export.store().getattr(object).expect("there"), before);
    // Another file is changed, and this one once it is promised no more.
    world.write(&other, 0, &b"x"[..]);
    end(&world, &keeper, &file);
    for (number, change) in changes.iter().enumerate().take(3) {
        assert!(change().is_ok(), "{number}");
    }
    drop(acting);
    assert_eq!(acting_for(), Party::Stranger);
    assert!(keeper.asked.lock().is_empty());
    assert!(is_empty(export.promises()));
}

#[test]
fn a_stranger_does_not_wait_for_ever() {
    let world = World::new(64);
    let keeper = kept(&world);
    let file = world.file("a", b"old");
    promise(&world, &keeper, &file);
    let refused = write(
        &world.export,
        &owner(),
        &file,
        0,
        &b"new"[..],
        Stable::Unstable,
    );
    assert_eq!(refused.expect_err("refused").error.status, Status::Jukebox);
    assert_eq!(world.read(&file, 0, 3), b"old");
    end(&world, &keeper, &file);
    assert!(is_empty(world.export.promises()));
}

#[test]
fn a_caller_that_may_not_change_a_file_asks_nobody() {
    let world = World::new(64);
    let keeper = kept(&world);
    let file = world.file("a", b"old");
    let source = world.file("source", b"data");
    promise(&world, &keeper, &file);
    let (export, root) = (&*world.export, world.export.root());
    let stranger = Credential {
        uid: 4711,
        gid: 4711,
        groups: Arc::from([]),
        own: false,
    };
    let root_user = Credential {
        uid: 0,
        ..stranger.clone()
    };
    let new = SetAttributes {
        mode: Some(0o755),
        ..SetAttributes::default()
    };
    let set = attributes::set(export, &root_user, root, &new, None);
    set.expect("the mode is set");
    let set = |new: &SetAttributes| {
        let set = attributes::set(export, &stranger, file.object(), new, None);
        set.map(drop).map_err(|no| no.error)
    };
    let is_owners = [
        SetAttributes {
            mode: Some(0o666),
            ..SetAttributes::default()
        },
        SetAttributes {
            uid: Some(4711),
            ..SetAttributes::default()
        },
        SetAttributes {
            mtime: SetTime::To(Time::default()),
            ..SetAttributes::default()
        },
    ];
    for new in is_owners {
        assert_eq!(set(&new).unwrap_err().status, Status::Perm);
    }
    let lists = NewAcls {
        access: Some(Acl::of_mode(0o666)),
        ..NewAcls::default()
    };
    let listed = acls::set(export, &stranger, file.object(), &lists);
    assert_eq!(listed.unwrap_err().status, Status::Perm);
    let cut = SetAttributes {
        size: Some(0),
        ..SetAttributes::default()
    };
    let touch = SetAttributes {
        mtime: SetTime::ServerTime,
        ..SetAttributes::default()
    };
    let object = file.object();
    let range = space::Range {
        offset: 0,
        length: 2,
    };
    let at = |file| copies::FileOffset { file, offset: 0 };
    let changes: [&dyn Fn() -> Result<(), StoreError>; 11] = [
        &|| set(&cut),
        &|| set(&touch),
        &|| namespace::link(export, &stranger, object, root, b"c").map(drop),
        &|| xattrs::set(export, &stranger, object, (b"x", b"y"), XattrHow::Either).map(drop),
        &|| xattrs::remove(export, &stranger, object, b"x").map(drop),
        &|| space::allocate(export, &stranger, &file, range),
        &|| space::deallocate(export, &stranger, &file, range),
        &|| copies::copy(export, &stranger, at(&source), at(&file), 2).map(drop),
        &|| {
            let written = write(export, &stranger, &file, 0, &b"new"[..], Stable::Unstable);
            written.map(drop).map_err(|no| no.error)
        },
        &|| namespace::remove(export, &stranger, root, b"a"),
        &|| namespace::rename(export, &stranger, (root, b"a"), (root, b"b")),
    ];
    for (number, change) in changes.iter().enumerate() {
        assert_eq!(change().unwrap_err().status, Status::Access, "{number}");
    }
    assert!(keeper.asked.lock().is_empty());
    end(&world, &keeper, &file);
    assert!(is_empty(export.promises()));
}

#[test]
fn who_may_take_no_name_or_give_no_new_one_asks_nobody() {
    let world = World::new(64);
    let keeper = kept(&world);
    let file = world.file("a", b"old");
    world.file("b", b"other");
    promise(&world, &keeper, &file);
    let (export, root) = (&*world.export, world.export.root());
    let root_user = Credential::of(0, 0, &[]);
    let new = SetAttributes {
        mode: Some(0o1777),
        ..SetAttributes::default()
    };
    let set = attributes::set(export, &root_user, root, &new, None);
    set.expect("the mode is set");
    let stranger = Credential::of(4711, 4711, &[]);
    let removed = namespace::remove(export, &stranger, root, b"a");
    let renamed = namespace::rename(export, &stranger, (root, b"a"), (root, b"c"));
    for taken in [removed, renamed] {
        assert_eq!(taken.unwrap_err().status, Status::Perm);
    }
    let linked = namespace::link(export, &owner(), file.object(), root, b"b");
    assert_eq!(linked.unwrap_err().status, Status::Exist);
    assert!(keeper.asked.lock().is_empty());
    // Its owner may.
    let returning = changing_for(Party::Returning(None));
    let removed = namespace::remove(export, &owner(), root, b"a");
    assert_eq!(removed.unwrap_err().status, Status::Jukebox);
    assert_eq!(keeper.asked.lock().len(), 1);
    drop(returning);
    end(&world, &keeper, &file);
    assert!(is_empty(export.promises()));
}

#[test]
fn after_a_restart_only_what_was_so_before_is_taken() {
    let world = World::new(64);
    let file = world.file("a", b"old");
    let promises = world.export.promises();
    promises.close(HashSet::new());
    assert!(promises.ask(file.object()).is_err());
    assert!(promises.ask_to_lock(file.object(), true).is_ok());
    // What there was is promised again meanwhile.
    assert!(promises.make(By::Nfs4, &file));
    promises.end(By::Nfs4, file.object());
    promises.open();
    assert!(promises.ask(file.object()).is_ok());
    assert!(is_empty(promises));
}

#[test]
fn nobody_waits_on_the_last_thread() {
    let world = World::new(64);
    let keeper = kept(&world);
    let file = world.file("a", b"old");
    promise(&world, &keeper, &file);
    let promises = world.export.promises();
    promises.served_by(1);
    assert!(promises.ask(file.object()).is_err());
    // It was refused without having waited.
    assert_eq!(keeper.asked.lock().len(), 1);
    let shard = promises.shard(file.object());
    let asked = shard.kept.lock().get(&file.object()).map(|kept| kept.asked);
    assert_eq!(asked, Some(None));
    end(&world, &keeper, &file);
}

#[test]
fn no_promise_is_made_beside_a_change() {
    let world = World::new(64);
    let keeper = kept(&world);
    let file = world.file("a", b"data");
    let promises = world.export.promises();
    let changing = promises.ask(file.object()).expect("nothing is promised");
    assert!(!promises.make(By::Nfs4, &file));
    drop(changing);
    let names = [Some((world.export.root(), &b"other"[..])), None];
    let naming = promises.ask_named(&world.export, &owner(), names);
    assert!(!promises.make(By::Nfs4, &file));
    drop(naming);
    assert!(is_empty(promises));
    promise(&world, &keeper, &file);
    // It is promised once, however often.
    assert!(promises.make(By::Nfs4, &file));
    end(&world, &keeper, &file);
    assert!(is_empty(promises));
}

#[test]
fn changes_from_outside_break_a_promise() {
    let world = World::new(64);
    let keeper = kept(&world);
    let file = world.file("a", b"data");
    promise(&world, &keeper, &file);
    let change = OutsideChange::Write {
        offset: 0,
        data: b"else",
    };
    let changed = world.store.outside_change(file.object(), change);
    changed.expect("changed");
    world.observe();
    assert_eq!(keeper.broken.lock().pop(), Some(file.object()));
    let removed = world
        .store
        .outside_change(file.object(), OutsideChange::Remove);
    removed.expect("removed");
    world.observe();
    assert_eq!(keeper.broken.lock().pop(), Some(file.object()));
}

#[test]
fn a_sync_that_fails_breaks_a_promise() {
    let world = World::new(64);
    let keeper = kept(&world);
    let file = world.file("a", b"data");
    promise(&world, &keeper, &file);
    world.store.fail_next(Operation::Sync, Status::Io);
    commit(&world.export, &file).expect_err("injected");
    assert_eq!(keeper.broken.lock().pop(), Some(file.object()));
}

#[test]
fn space_that_its_own_party_sets_aside_breaks_no_promise() {
    let world = World::new(64);
    let keeper = kept(&world);
    let file = world.file("a", b"data");
    assert!(world.export.promises().make(By::Nfs4, &file));
    let counter = file.counter().value();
    let range = space::Range {
        offset: 2,
        length: 9,
    };
    space::allocate(&world.export, &owner(), &file, range).expect("allocated");
    assert!(keeper.broken.lock().is_empty());
    assert_eq!(file.attributes().size, 11);
    assert_ne!(file.counter().value(), counter);
    assert_eq!(world.read(&file, 0, 20), b"data\0\0\0\0\0\0\0");
    end(&world, &keeper, &file);
}

#[test]
fn a_file_is_left_to_one_alone() {
    let world = World::new(64);
    let keeper = kept(&world);
    let file = world.file("a", b"data");
    let promises = world.export.promises();
    promise(&world, &keeper, &file);
    assert!(!promises.leave_to(&file, 7));
    end(&world, &keeper, &file);
    assert!(promises.leave_to(&file, 7));
    assert!(!promises.make(By::Nfs4, &file) && !promises.leave_to(&file, 8));
    assert_eq!(promises.alone_for(file.object()), Some(7));
    assert!(promises.is_hidden(file.object()));
    let acting = changing_for(Party::Returning(Some(7)));
    assert!(!promises.is_hidden(file.object()));
    drop(acting);
    end(&world, &keeper, &file);
    assert!(!promises.is_hidden(file.object()));
    assert!(is_empty(promises));
}

/// A file that was left to one client alone before a restart, and another.
fn restarted() -> (World, Arc<Keeper>, [Arc<File>; 2]) {
    let world = World::new(64);
    let keeper = kept(&world);
    let files = [world.file("a", b"old"), world.file("b", b"old")];
    let returning = Party::Returning(Some(7));
    *keeper.awaited.lock() = Some((files[0].object(), returning));
    world
        .export
        .promises()
        .close(HashSet::from([files[0].object()]));
    (world, keeper, files)
}

#[test]
fn nobody_looks_at_what_was_left_to_one_alone_before_a_restart() {
    let (world, keeper, [file, other]) = restarted();
    let (export, object) = (&*world.export, file.object());
    let reads = |file, effort| world.try_read(file, 0, 3, effort).map(|(data, _)| data);
    let later = ReadFailed::Status(Status::Jukebox);
    assert_eq!(reads(&file, Effort::MayBlock), Err(later));
    let polled = reads(&file, Effort::ResidentOnly);
    assert_eq!(polled, Err(ReadFailed::NotResident));
    assert!(attributes::attributes_at_hand(export, object).is_none());
    let known = attributes::attributes(export, object);
    assert_eq!(known.unwrap_err().status, Status::Jukebox);
    let found = namespace::lookup(export, &owner(), export.root(), b"a");
    assert_eq!(found.unwrap_err().status, Status::Jukebox);
    // Others are looked at and read directly.
    assert_eq!(reads(&other, Effort::MayBlock).expect("read"), b"old");
    let reader = world.client(&owner());
    assert!(reader.counter(&file).is_none() && reader.counter(&other).is_some());
    assert!(reader.reference(&other, 0).is_some());
    // Who comes back looks at it, and then everybody does.
    let acting = changing_for(Party::Returning(Some(7)));
    assert_eq!(reads(&file, Effort::MayBlock).expect("read"), b"old");
    drop(acting);
    *keeper.awaited.lock() = None;
    assert_eq!(reads(&file, Effort::MayBlock).expect("read"), b"old");
    export.promises().open();
    export.promises().open();
    assert!(keeper.asked.lock().is_empty());
    assert!(is_empty(export.promises()));
}

#[test]
fn a_listing_leaves_out_what_cannot_be_shown_after_a_restart() {
    let (world, _keeper, [file, other]) = restarted();
    let export = &*world.export;
    let range = ReaddirRange {
        cookie: 0,
        verifier: [0; 8],
        max_entries: 10,
        plus: true,
    };
    let list = || namespace::readdir(export, &owner(), export.root(), range, &|_| Ok(()));
    let listing = list().expect("listed");
    let shown = |file: &Arc<File>| {
        let mut entries = listing.entries.iter();
        let entry = entries.find(|entry| entry.fileid == file.object().ino);
        entry.expect("listed").object.is_some()
    };
    assert!(!shown(&file) && shown(&other));
    let _acting = changing_for(Party::Returning(None));
    assert_eq!(list().unwrap_err().status, Status::Jukebox);
}
