//! Rights of other users, of ordinary users, and by ACLs.

use std::os::unix::fs::PermissionsExt as _;

use rustix::fs::IFlags;

use super::*;
use crate::store::local::attributes::permitted_by_kernel;
use crate::store::{AclEntry, AclTag, access, ids};

/// Runs all tests of this store again as an ordinary user.
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
    // A new object would not belong to her.
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
    // The mode decides about removal.
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
    // A client's root has the rights of the serving user, and no more.
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
fn a_file_that_nobody_may_execute_stays_open_for_a_moment_or_until_somebody_may() {
    let served = Place::on_disk().open(true);
    let path = served.place.served().join("script");
    let f = file(&served, &me(), "script", 0o644);
    let is_open = || served.store.descriptors.find(f, Use::Write).is_some();
    let write = || {
        served.write_at(&me(), f, 0, b"#!/bin/sh\n").unwrap();
        served.sync(f, true).unwrap();
        assert!(is_open());
    };
    let runs = || {
        std::process::Command::new(&path)
            .status()
            .unwrap()
            .success()
    };
    write();
    served.setattr(&me(), f, &new_mode(0o755)).unwrap();
    served.sync(f, false).unwrap();
    assert!(!is_open() && runs());
    served.setattr(&me(), f, &new_mode(0o644)).unwrap();
    write();
    // Somebody else changes the mode.
    assert!(served.watch(f));
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
    while is_open() {
        served.wait_events(Duration::from_secs(60));
    }
    assert!(runs());
    served.setattr(&me(), f, &new_mode(0o644)).unwrap();
    write();
    while is_open() {
        served.wait_events(Duration::from_millis(50));
    }
}

#[test]
fn access_lists_count_and_the_kernel_knows_them() {
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
    // By the mode, the group would have what only the mask allows.
    assert_eq!(attributes.mode, 0o640);
    // An ordinary user's server reads the list itself.
    assert_eq!(served.access(&alice, f, 0x3f).unwrap(), 1);
    let group = Credential::of(4002, attributes.gid, &[]);
    assert_eq!(served.access(&group, f, 0x3f).unwrap(), 0);
    refused(served.write_at(&alice, f, 0, b"x"), Status::Access);
    if !can_act() {
        let own = served.acl(f, AclKind::Access).unwrap();
        let set = |who: &Credential| served.set_acl(who, f, AclKind::Access, own.as_ref());
        refused(set(&alice), Status::Perm);
        set(&me()).unwrap();
    }
    // A default ACL takes precedence over the mode of a new file.
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

/// What callers may do with an object, as a thread is told that takes nobody's ids. `None`: it would have to.
fn told_as_ourselves(
    store: &LocalStore,
    callers: &[Credential],
    object: ObjectId,
) -> Vec<Option<u32>> {
    let ask = |who| {
        let told = store.access(who, object, 0x3f);
        told.ok().filter(|_| !ids::were_missed())
    };
    let ask_all = || {
        ids::keep();
        callers.iter().map(ask).collect()
    };
    std::thread::scope(|scope| scope.spawn(ask_all).join().unwrap())
}

#[test]
fn who_only_asks_is_judged_as_by_the_kernel_without_his_ids() {
    if !can_act() {
        return;
    }
    let served = Place::on_disk().open(true);
    let root = served.root();
    let f = file(&served, &me(), "f", 0o600);
    let (d, _) = served.mkdir(&me(), root, b"d", &new_mode(0o700)).unwrap();
    served.mkdir(&me(), d, b"x", &new_mode(0o700)).unwrap();
    let callers = [
        Credential::of(0, 0, &[]),
        Credential::of(4001, 9, &[4002]),
        Credential::of(4003, 4002, &[]),
        Credential::of(4003, 9, &[8, 4002]),
        Credential::of(4003, 9, &[]),
    ];
    for mode in 0..=0o777 {
        for object in [f, d] {
            let new = SetAttributes {
                uid: Some(4001),
                gid: Some(4002),
                ..new_mode(mode)
            };
            served.setattr(&me(), object, &new).unwrap();
            let path = served.store.descriptor(object, Use::Path).unwrap();
            let told = told_as_ourselves(&served.store, &callers, object);
            for (who, told) in callers.iter().zip(told) {
                let judge = served.store.identity.judge(who).unwrap();
                let granted = permitted_by_kernel(&path, 0x3f);
                drop(judge);
                assert_eq!(told, Some(granted), "{mode:o} {who:?}");
                if object == d {
                    let found = served.lookup(who, d, b"x");
                    assert_eq!(found.is_ok(), granted & access::LOOKUP != 0, "{mode:o}");
                }
            }
        }
    }
    // What nobody may do is told to nobody, whatever the mode.
    let open = std::fs::File::open(served.place.served().join("f")).unwrap();
    let set = |flags| rustix::fs::ioctl_setflags(&open, flags);
    if set(IFlags::IMMUTABLE).is_ok() {
        let told = told_as_ourselves(&served.store, &callers[1..2], f);
        set(IFlags::empty()).unwrap();
        assert_eq!(told, [Some(access::READ | access::EXECUTE)]);
    }
    // With a list the kernel judges.
    let entry = |tag, permissions| AclEntry { tag, permissions };
    let list = Acl::new(vec![
        entry(AclTag::Owner, 6),
        entry(AclTag::User(4003), 4),
        entry(AclTag::OwningGroup, 0),
        entry(AclTag::Mask, 4),
        entry(AclTag::Other, 0),
    ]);
    let owner = &callers[1];
    served
        .set_acl(owner, f, AclKind::Access, Some(&list.unwrap()))
        .unwrap();
    let told = told_as_ourselves(&served.store, &callers[4..], f);
    assert_eq!(told, [None]);
    assert_eq!(served.access(&callers[4], f, 0x3f).unwrap(), access::READ);
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
