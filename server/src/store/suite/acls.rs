//! Access control lists, of stores that have them.

use super::users::{alice, bob, open_to_all};
use super::*;

const TEAM: u32 = 4100;

fn list(entries: &[(AclTag, u8)]) -> Acl {
    let entries = entries.iter().map(|(tag, permissions)| AclEntry {
        tag: *tag,
        permissions: *permissions,
    });
    Acl::new(entries.collect()).unwrap()
}

/// `u::rw- u:UID:PERMISSIONS g::--- m::r-x o::---`
fn naming(uid: u32, permissions: u8) -> Acl {
    list(&[
        (AclTag::Owner, 6),
        (AclTag::User(uid), permissions),
        (AclTag::OwningGroup, 0),
        (AclTag::Mask, 5),
        (AclTag::Other, 0),
    ])
}

fn get(store: &dyn Store, object: ObjectId, kind: AclKind) -> Option<Acl> {
    store.acl(object, kind).unwrap()
}

fn set(store: &dyn Store, object: ObjectId, kind: AclKind, list: Option<&Acl>) {
    store.set_acl(&me(), object, kind, list).unwrap();
}

/// Set, told, and removed; lists and modes.
pub(super) fn lists(store: &dyn Store) {
    if !store.has_acls() {
        let f = file(store, &me(), "f", 0o640);
        refused(store.acl(f, AclKind::Access), Status::NotSupp);
        return;
    }
    let f = file(store, &me(), "f", 0o640);
    let d = directory(store, &me(), "d", 0o755);
    for (object, kind) in [
        (f, AclKind::Access),
        (f, AclKind::Default),
        (d, AclKind::Access),
        (d, AclKind::Default),
    ] {
        assert_eq!(get(store, object, kind), None);
        // There is nothing to remove.
        set(store, object, kind, None);
    }
    let before = store.getattr(f).unwrap();
    let named = naming(4002, 7);
    set(store, f, AclKind::Access, Some(&named));
    assert_eq!(get(store, f, AclKind::Access), Some(named.clone()));
    let after = store.getattr(f).unwrap();
    // The mask where the group's bits belong.
    assert_eq!(after.mode, 0o650);
    assert_eq!(after.mtime, before.mtime);
    assert!(after.ctime >= before.ctime);
    assert!(!store.mode_decides(f).unwrap());
    // A change of the mode changes the list.
    let changed = store.setattr(&me(), f, &new_mode(0o604)).unwrap();
    assert_eq!(changed.mode, 0o604);
    assert_eq!(
        get(store, f, AclKind::Access),
        Some(list(&[
            (AclTag::Owner, 6),
            (AclTag::User(4002), 7),
            (AclTag::OwningGroup, 0),
            (AclTag::Mask, 0),
            (AclTag::Other, 4),
        ]))
    );
    // A list that says no more than a mode is none.
    set(store, f, AclKind::Access, Some(&Acl::of_mode(0o444)));
    assert_eq!(get(store, f, AclKind::Access), None);
    assert_eq!(store.getattr(f).unwrap().mode, 0o444);
    assert!(store.mode_decides(f).unwrap());
    set(store, f, AclKind::Access, Some(&named));
    set(store, f, AclKind::Access, None);
    assert_eq!(get(store, f, AclKind::Access), None);
    assert!(store.mode_decides(f).unwrap());
    // Only directories hand lists on, and symbolic links have none.
    refused(
        store.set_acl(&me(), f, AclKind::Default, Some(&named)),
        Status::Access,
    );
    set(store, d, AclKind::Default, Some(&named));
    assert_eq!(get(store, d, AclKind::Default), Some(named.clone()));
    assert_eq!(get(store, d, AclKind::Access), None);
    assert_eq!(store.getattr(d).unwrap().mode, 0o755);
    set(store, d, AclKind::Default, None);
    assert_eq!(get(store, d, AclKind::Default), None);
    let none = SetAttributes::default();
    let (link, _) = store
        .symlink(&me(), store.root(), b"l", b"f", &none)
        .unwrap();
    assert_eq!(get(store, link, AclKind::Access), None);
    refused(
        store.set_acl(&me(), link, AclKind::Access, Some(&named)),
        Status::NotSupp,
    );
    assert!(store.mode_decides(link).unwrap());
    // As long as the store takes it: all of it, or nothing.
    let users = (0..ACL_ENTRIES_MAX as u32 - 4).map(|uid| (AclTag::User(uid), 4));
    let long = list(&[named_rest().to_vec(), users.collect()].concat());
    match store.set_acl(&me(), f, AclKind::Access, Some(&long)) {
        Ok(()) => assert_eq!(get(store, f, AclKind::Access), Some(long)),
        Err(full) => assert_eq!(full.status, Status::NoSpc),
    }
}

fn named_rest() -> [(AclTag, u8); 4] {
    [
        (AclTag::Owner, 6),
        (AclTag::OwningGroup, 0),
        (AclTag::Mask, 4),
        (AclTag::Other, 0),
    ]
}

/// What is made in a directory with a default list; a client's umask.
pub(super) fn inherited(store: &dyn Store) {
    let masked = |mode, umask| SetAttributes {
        umask,
        ..new_mode(mode)
    };
    let plain = directory(store, &me(), "plain", 0o755);
    let create =
        |within, name: &[u8], how: CreateHow<'_>| store.create(&me(), within, name, how).unwrap();
    let mode = |made: &Created| made.attributes.mode;
    let new = masked(0o666, 0o027);
    assert_eq!(mode(&create(plain, b"f", CreateHow::Guarded(&new))), 0o640);
    let how = CreateHow::Exclusive([7; 8], &new);
    assert_eq!(mode(&create(plain, b"x", how)), 0o640);
    let new = masked(0o777, 0o027);
    let (_, made) = store.mkdir(&me(), plain, b"d", &new).unwrap();
    assert_eq!(made.mode, 0o750);
    let (_, made) = store
        .mknod(&me(), plain, b"p", Special::Fifo, &new)
        .unwrap();
    assert_eq!(made.mode, 0o750);
    // The next one has none.
    let new = new_mode(0o666);
    assert_eq!(mode(&create(plain, b"g", CreateHow::Guarded(&new))), 0o666);
    if !store.has_acls() {
        return;
    }
    // open(2) and mkdir(2) under this list: what the list and the mode both grant, whatever the umask.
    let given = list(&[
        (AclTag::Owner, 7),
        (AclTag::User(4002), 7),
        (AclTag::OwningGroup, 5),
        (AclTag::Mask, 5),
        (AclTag::Other, 0),
    ]);
    set(store, plain, AclKind::Default, Some(&given));
    for (name, umask) in [("a", 0), ("b", 0o077)] {
        let new = masked(0o666, umask);
        let made = create(plain, name.as_bytes(), CreateHow::Guarded(&new));
        assert_eq!(mode(&made), 0o640);
        let has = get(store, made.object, AclKind::Access).unwrap();
        assert_eq!(has, given.inherited(0o666));
        assert_eq!(has.granted_to(AclTag::User(4002)), Some(7));
        assert_eq!(has.mask(), 4);
        assert_eq!(get(store, made.object, AclKind::Default), None);
        // An exclusive creation too: a mode that were set later would grant what the list does not.
        let name = [name.as_bytes(), b"x"].concat();
        let made = create(plain, &name, CreateHow::Exclusive([1; 8], &new));
        assert_eq!(get(store, made.object, AclKind::Access), Some(has));
        let new = masked(0o775, umask);
        let name = [&name, &b"d"[..]].concat();
        let (inner, made) = store.mkdir(&me(), plain, &name, &new).unwrap();
        assert_eq!(made.mode, 0o750);
        let has = get(store, inner, AclKind::Access);
        assert_eq!(has, Some(given.inherited(0o775)));
        assert_eq!(get(store, inner, AclKind::Default), Some(given.clone()));
    }
}

/// Who may do what, of several users.
pub(super) fn rights(store: &dyn Store) {
    if !store.has_acls() {
        return;
    }
    let d = open_to_all(store, 0o777);
    let made = store.create(&alice(), d, b"f", CreateHow::Guarded(&new_mode(0o666)));
    let f = made.unwrap().object;
    let all = access::READ | access::MODIFY | access::EXECUTE;
    let granted = |who: &Credential| store.access(who, f, all).unwrap();
    assert_eq!(granted(&bob()), access::READ | access::MODIFY);
    // Bob may no longer write, whatever everyone may; the mask takes it from him.
    let named = |permissions, mask| {
        list(&[
            (AclTag::Owner, 6),
            (AclTag::User(bob().uid), permissions),
            (AclTag::OwningGroup, 0),
            (AclTag::Group(TEAM), 2),
            (AclTag::Mask, mask),
            (AclTag::Other, 6),
        ])
    };
    let set = |who: &Credential, list: &Acl| store.set_acl(who, f, AclKind::Access, Some(list));
    refused(set(&bob(), &named(7, 7)), Status::Perm);
    refused(
        store.set_acl(&bob(), f, AclKind::Access, None),
        Status::Perm,
    );
    set(&alice(), &named(7, 4)).unwrap();
    assert_eq!(granted(&bob()), access::READ);
    refused(store.write_at(&bob(), f, 0, b"no"), Status::Access);
    set(&alice(), &named(0, 6)).unwrap();
    assert_eq!(granted(&bob()), 0);
    assert_eq!(granted(&Credential::of(4005, TEAM, &[])), access::MODIFY);
    // The mode shows the mask for the group, which the group does not have.
    let group = Credential::of(4005, alice().gid, &[]);
    assert_eq!(store.getattr(f).unwrap().mode, 0o666);
    assert_eq!(granted(&group), 0);
    refused(store.write_at(&group, f, 0, b"no"), Status::Access);
    let stranger = Credential::of(4005, 4005, &[]);
    assert_eq!(granted(&stranger), access::READ | access::MODIFY);
    // Root may set what it likes, and directories are searched by their lists.
    let root = Credential::of(0, 0, &[]);
    set(&root, &named(6, 6)).unwrap();
    assert_eq!(granted(&bob()), access::READ | access::MODIFY);
    store.write_at(&bob(), f, 0, b"yes").unwrap();
    let (kept, _) = store.mkdir(&alice(), d, b"kept", &new_mode(0o755)).unwrap();
    let closed = list(&[
        (AclTag::Owner, 7),
        (AclTag::User(bob().uid), 0),
        (AclTag::OwningGroup, 5),
        (AclTag::Mask, 5),
        (AclTag::Other, 5),
    ]);
    let how = new_mode(0o644);
    store
        .create(&alice(), kept, b"g", CreateHow::Guarded(&how))
        .unwrap();
    assert!(store.lookup(&bob(), kept, b"g").is_ok());
    store
        .set_acl(&alice(), kept, AclKind::Access, Some(&closed))
        .unwrap();
    refused(store.lookup(&bob(), kept, b"g"), Status::Access);
    assert!(store.lookup(&stranger, kept, b"g").is_ok());
    // A new group does not bring the old one's rights back.
    let give = SetAttributes {
        gid: Some(4005),
        ..SetAttributes::default()
    };
    store.setattr(&root, f, &give).unwrap();
    assert_eq!(granted(&stranger), 0);
}
