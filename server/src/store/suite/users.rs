//! Several users.

use super::*;

const ALICE: u32 = 4001;
const BOB: u32 = 4002;
const TEAM: u32 = 4100;

pub(super) fn alice() -> Credential {
    Credential::of(ALICE, ALICE, &[TEAM])
}

pub(super) fn bob() -> Credential {
    Credential::of(BOB, BOB, &[])
}

/// A directory to which everyone may write.
pub(super) fn open_to_all(store: &dyn Store, mode: u32) -> ObjectId {
    let (d, _) = store
        .mkdir(&me(), store.root(), b"all", &new_mode(mode))
        .unwrap();
    store
        .setattr(&me(), store.root(), &new_mode(0o755))
        .unwrap();
    d
}

/// Only root may name the owner and group of a new object. Others get their own.
pub(super) fn foreign_ids(store: &dyn Store) {
    let d = open_to_all(store, 0o777);
    let new = SetAttributes {
        uid: Some(ALICE),
        gid: Some(ALICE),
        ..new_mode(0o640)
    };
    let made = |name: &str, who: &Credential| {
        let name = name.as_bytes();
        let file = store.create(who, d, &[name, b"f"].concat(), CreateHow::Guarded(&new));
        let (_, directory) = store.mkdir(who, d, &[name, b"d"].concat(), &new).unwrap();
        let (_, fifo) = store
            .mknod(who, d, &[name, b"p"].concat(), Special::Fifo, &new)
            .unwrap();
        let (_, link) = store
            .symlink(who, d, &[name, b"l"].concat(), b"f", &new)
            .unwrap();
        let all = [file.unwrap().attributes, directory, fifo, link];
        all.map(|of| (of.uid, of.gid))
    };
    assert_eq!(made("bob's", &bob()), [(BOB, BOB); 4]);
    assert_eq!(made("alice's", &alice()), [(ALICE, ALICE); 4]);
    let root = Credential::of(0, 0, &[]);
    assert_eq!(made("root's", &root), [(ALICE, ALICE); 4]);
}

pub(super) fn classes(store: &dyn Store) {
    let d = open_to_all(store, 0o777);
    let new = SetAttributes {
        gid: Some(TEAM),
        ..new_mode(0o640)
    };
    let how = CreateHow::Guarded(&new);
    let f = store.create(&alice(), d, b"f", how).unwrap();
    assert_eq!((f.attributes.uid, f.attributes.gid), (ALICE, TEAM));
    let all = access::READ | access::MODIFY | access::EXTEND | access::EXECUTE;
    let granted = |who: &Credential| store.access(who, f.object, all).unwrap();
    assert_eq!(
        granted(&alice()),
        access::READ | access::MODIFY | access::EXTEND
    );
    assert_eq!(granted(&Credential::of(BOB, BOB, &[7, TEAM])), access::READ);
    assert_eq!(granted(&Credential::of(BOB, TEAM, &[])), access::READ);
    assert_eq!(granted(&bob()), 0);
    assert!(store.mode_decides(f.object).unwrap());
    for who in [alice(), bob(), Credential::of(BOB, TEAM, &[])] {
        let pure = attributes_permit(&f.attributes, &who, all);
        assert_eq!(pure, granted(&who));
    }
    refused(store.write_at(&bob(), f.object, 0, b"no"), Status::Access);
    refused(store.write_at(&bob(), f.object, 0, b""), Status::Access);
    assert_eq!(store.write_at(&alice(), f.object, 0, b"").unwrap(), 0);
    match store.deallocate(&bob(), f.object, 0, 10) {
        Err(error) if error.status == Status::NotSupp => {}
        kept_out => {
            refused(kept_out, Status::Access);
            store.deallocate(&alice(), f.object, 0, 10).unwrap();
        }
    }
    store.write_at(&alice(), f.object, 0, b"yes").unwrap();
    // Directories.
    let (private, attributes) = store
        .mkdir(&alice(), d, b"private", &new_mode(0o700))
        .unwrap();
    let all = access::READ | access::LOOKUP | access::MODIFY | access::EXTEND | access::DELETE;
    assert_eq!(
        store
            .access(&alice(), private, all | access::EXECUTE)
            .unwrap(),
        all
    );
    assert_eq!(
        attributes_permit(&attributes, &alice(), all | access::EXECUTE),
        all
    );
    assert_eq!(store.access(&bob(), private, all).unwrap(), 0);
    refused(store.lookup(&bob(), private, b"x"), Status::Access);
    refused(store.mkdir(&bob(), private, b"x", &new), Status::Access);
    let range = ReaddirRange {
        cookie: 0,
        verifier: [0; 8],
        max_entries: 9,
        plus: false,
    };
    refused(store.readdir(&bob(), private, range), Status::Access);
    refused(store.remove(&bob(), store.root(), b"all"), Status::Access);
    refused(store.rmdir(&bob(), store.root(), b"all"), Status::Access);
}

pub(super) fn owners(store: &dyn Store) {
    let d = open_to_all(store, 0o777);
    let f = store
        .create(&alice(), d, b"f", CreateHow::Guarded(&new_mode(0o400)))
        .unwrap()
        .object;
    // The owner may have opened it for writing before (RFC 1813 section 4.4).
    store.write_at(&alice(), f, 0, b"mine").unwrap();
    assert_eq!(
        store
            .access(&alice(), f, access::READ | access::MODIFY)
            .unwrap(),
        access::READ
    );
    let attributes = store.setattr(&alice(), f, &new_mode(0o000)).unwrap();
    assert!(may_read(&attributes, &alice()) && may_write(&attributes, &alice()));
    assert!(!may_read(&attributes, &bob()) && !may_write(&attributes, &bob()));
    let cut = SetAttributes {
        size: Some(2),
        ..SetAttributes::default()
    };
    assert_eq!(store.setattr(&alice(), f, &cut).unwrap().size, 2);
    refused(store.setattr(&bob(), f, &cut), Status::Access);
    refused(store.setattr(&bob(), f, &new_mode(0o777)), Status::Perm);
    let now = SetAttributes {
        mtime: SetTime::ServerTime,
        ..SetAttributes::default()
    };
    refused(store.setattr(&bob(), f, &now), Status::Access);
    let then = SetAttributes {
        mtime: SetTime::To(Time::default()),
        ..SetAttributes::default()
    };
    refused(store.setattr(&bob(), f, &then), Status::Perm);
    store.setattr(&alice(), f, &new_mode(0o666)).unwrap();
    store.setattr(&bob(), f, &now).unwrap();
    refused(store.setattr(&bob(), f, &then), Status::Perm);
}

pub(super) fn sticky(store: &dyn Store) {
    let d = open_to_all(store, 0o1777);
    let new = new_mode(0o666);
    store
        .create(&alice(), d, b"f", CreateHow::Guarded(&new))
        .unwrap();
    store
        .create(&bob(), d, b"g", CreateHow::Guarded(&new))
        .unwrap();
    refused(store.remove(&bob(), d, b"f"), Status::Perm);
    refused(store.rename(&bob(), (d, b"f"), (d, b"x")), Status::Perm);
    refused(store.rename(&bob(), (d, b"g"), (d, b"f")), Status::Perm);
    store.rename(&alice(), (d, b"f"), (d, b"h")).unwrap();
    store.remove(&alice(), d, b"h").unwrap();
}

pub(super) fn giving_away(store: &dyn Store) {
    let d = open_to_all(store, 0o777);
    let f = store
        .create(&alice(), d, b"f", CreateHow::Guarded(&new_mode(0o644)))
        .unwrap()
        .object;
    let none = SetAttributes::default();
    let to_bob = SetAttributes {
        uid: Some(BOB),
        ..none
    };
    refused(store.setattr(&alice(), f, &to_bob), Status::Perm);
    refused(store.setattr(&bob(), f, &to_bob), Status::Perm);
    let to_group = |gid| SetAttributes {
        gid: Some(gid),
        ..none
    };
    refused(store.setattr(&alice(), f, &to_group(BOB)), Status::Perm);
    assert_eq!(
        store.setattr(&alice(), f, &to_group(TEAM)).unwrap().gid,
        TEAM
    );
    let root = Credential::of(0, 0, &[]);
    assert_eq!(store.setattr(&root, f, &to_bob).unwrap().uid, BOB);
    // A write by another user clears set-user-id.
    store.setattr(&bob(), f, &new_mode(0o4777)).unwrap();
    store.write_at(&alice(), f, 0, b"changed").unwrap();
    assert_eq!(store.getattr(f).unwrap().mode, 0o777);
    let device = Special::BlockDevice { major: 8, minor: 0 };
    refused(
        store.mknod(&alice(), d, b"disk", device, &new_mode(0o666)),
        Status::Perm,
    );
    store
        .mknod(&alice(), d, b"pipe", Special::Fifo, &new_mode(0o666))
        .unwrap();
}

pub(super) fn inherited_group(store: &dyn Store) {
    let d = open_to_all(store, 0o777);
    let give = SetAttributes {
        gid: Some(TEAM),
        ..SetAttributes::default()
    };
    store.setattr(&me(), d, &give).unwrap();
    store.setattr(&me(), d, &new_mode(0o2777)).unwrap();
    let f = store
        .create(&bob(), d, b"f", CreateHow::Guarded(&new_mode(0o644)))
        .unwrap();
    assert_eq!((f.attributes.uid, f.attributes.gid), (BOB, TEAM));
    let (_, inner) = store.mkdir(&bob(), d, b"inner", &new_mode(0o755)).unwrap();
    assert_eq!((inner.gid, inner.mode), (TEAM, 0o2755));
}
