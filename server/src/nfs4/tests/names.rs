//! Names, directories and the pseudo file system.

use odafs_common::wire::rpc::{FLAVOR_NONE, FLAVOR_SYS};
use odafs_common::wire::xdr::{Decode as _, Encode as _};

use super::*;
use crate::rpc::access::{Rule, Squash};

fn readdir(cookie: u64, max: u32, asked: Bitmap) -> Operation<'static> {
    Operation::ReadDir(ReadDirArgs {
        cookie,
        verifier: [0; 8],
        directory_count: 0,
        max_count: max,
        asked,
    })
}

#[test]
fn the_export_is_found_by_its_name() {
    let room = Room::named("/srv/data");
    room.file(b"file", b"data");
    let client = Client::new(&room, b"client", 1);
    let asked = Bitmap::of(&[
        Attribute::FileId,
        Attribute::MountedOnFileId,
        Attribute::FsId,
    ]);
    let reply = client.does(&[
        Operation::PutRootFileHandle,
        readdir(0, 4096, asked),
        Operation::Lookup(Name(b"srv")),
        Operation::Lookup(Name(b"data")),
        get(asked),
        Operation::Lookup(Name(b"file")),
        Operation::LookupParent,
    ]);
    assert_eq!(reply.status(), Status::NotDir, "{:?}", reply.all());
    let all = reply.all();
    let OperationResult::ReadDir(Ok(listing)) = &all[2] else {
        panic!("{all:?}");
    };
    assert_eq!(listing.entries.len(), 1);
    assert_eq!(listing.entries[0].name, Name(b"srv"));
    assert!(listing.eof);
    let OperationResult::GetAttributes(Ok(raw)) = &all[5] else {
        panic!("{all:?}");
    };
    let told = Attributes::parse(raw).expect("attributes");
    assert_ne!(told.fileid, told.mounted_on_fileid);
    assert_ne!(told.fsid, Some(FsId::default()));
    let reply = client.does(&[
        Operation::PutRootFileHandle,
        Operation::Lookup(Name(b"srv")),
        Operation::Lookup(Name(b"data")),
        Operation::LookupParent,
        Operation::LookupParent,
        Operation::LookupParent,
    ]);
    assert_eq!((reply.status(), reply.all().len()), (Status::NoEnt, 7));
    let reply = client.does(&[
        Operation::PutRootFileHandle,
        Operation::Lookup(Name(b"etc")),
    ]);
    assert_eq!(reply.status(), Status::NoEnt);
    let reply = client.does(&[
        Operation::PutRootFileHandle,
        Operation::Remove(Name(b"srv")),
    ]);
    assert_eq!(reply.status(), Status::RoFs);
}

#[test]
fn a_directory_is_listed_once_in_parts_without_the_two_dots() {
    let room = Room::new();
    let mut expected: Vec<Vec<u8>> = (0..40)
        .map(|at| format!("file-{at}").into_bytes())
        .collect();
    for name in &expected {
        room.file(name, b"");
    }
    expected.sort();
    let client = Client::new(&room, b"client", 1);
    for asked in [
        Bitmap::EMPTY,
        Bitmap::of(&[Attribute::Type, Attribute::FileHandle]),
    ] {
        let (mut found, mut cookie, mut parts) = (Vec::new(), 0, 0);
        loop {
            let reply = client.does(&[Operation::PutRootFileHandle, readdir(cookie, 600, asked)]);
            let listing = last!(reply, ReadDir);
            for entry in &listing.entries {
                assert_eq!(entry.attributes.mask, asked);
                found.push(entry.name.0.to_vec());
                cookie = entry.cookie;
            }
            parts += 1;
            if listing.eof {
                break;
            }
        }
        found.sort();
        assert_eq!(found, expected);
        assert!(parts > 1);
    }
    let reply = client.does(&[Operation::PutRootFileHandle, readdir(0, 20, Bitmap::EMPTY)]);
    assert_eq!(reply.status(), Status::TooSmall);
    let reply = client.does(&[Operation::PutRootFileHandle, readdir(2, 600, Bitmap::EMPTY)]);
    assert_eq!(reply.status(), Status::BadCookie);
}

#[test]
fn names_come_move_and_go_and_the_change_attribute_tells() {
    let room = Room::new();
    room.file(b"file", b"data");
    let client = Client::new(&room, b"client", 1);
    let make = Operation::Create(CreateArgs {
        kind: CreateType::Directory,
        name: Name(b"dir"),
        attributes: RawAttributes::default(),
    });
    let root = Operation::PutRootFileHandle;
    let lookup = |name| Operation::Lookup(Name(name));
    let reply = client.does(&[
        root.clone(),
        make,
        Operation::SaveFileHandle,
        root.clone(),
        lookup(b"file"),
        Operation::SaveFileHandle,
        root.clone(),
        lookup(b"dir"),
        Operation::Link(Name(b"other")),
    ]);
    assert_eq!(reply.status(), Status::Ok, "{:?}", reply.all());
    let change = last!(reply, Link);
    assert!(change.atomic && change.after > change.before);
    let reply = client.does(&[
        root.clone(),
        lookup(b"dir"),
        Operation::SaveFileHandle,
        root.clone(),
        Operation::Rename(RenameArgs {
            from: Name(b"other"),
            to: Name(b"file"),
        }),
        Operation::Rename(RenameArgs {
            from: Name(b"."),
            to: Name(b"file"),
        }),
    ]);
    assert_eq!((reply.status(), reply.all().len()), (Status::BadName, 7));
    let gone = client.does(&[root.clone(), lookup(b"file"), lookup(b"file")]);
    assert_eq!(gone.status(), Status::NotDir);
    let reply = client.does(&[root.clone(), Operation::Remove(Name(b"dir"))]);
    assert_eq!(reply.status(), Status::NotEmpty);
    let link = Operation::Create(CreateArgs {
        kind: CreateType::Symlink(Payload(b"file")),
        name: Name(b"link"),
        attributes: RawAttributes::default(),
    });
    let reply = client.does(&[root.clone(), link, Operation::ReadLink, lookup(b"x")]);
    assert_eq!(reply.status(), Status::Symlink);
    let all = reply.all();
    assert!(matches!(&all[3], OperationResult::ReadLink(Ok(ok)) if ok.target.0 == b"file"));
    let open = client.open(b"me", b"link", (share_access::READ, 0), None);
    assert_eq!(client.does(&[root, open]).status(), Status::Symlink);
}

#[test]
fn an_exclusive_creation_that_is_sent_again_finds_its_own_file() {
    let room = Room::new();
    let client = Client::new(&room, b"client", 1);
    let raw = RawAttributes::default();
    let how = |verifier| Some(CreateHow::ExclusiveWith([verifier; 8], raw));
    let share = (share_access::BOTH, 0);
    let open = client.open(b"me", b"file", share, how(1));
    let made = client.does(&[Operation::PutRootFileHandle, open]);
    let made = last!(made, Open);
    // The verifier is where the times are: the client has to set them.
    for time in [Attribute::TimeAccessSet, Attribute::TimeModifySet] {
        assert!(made.set.contains(time), "{time:?} of {:?}", made.set);
    }
    let (_, first) = client.opened(b"me", b"file", share, how(1));
    let (_, again) = client.opened(b"me", b"file", share, how(1));
    assert_eq!(first, again);
    let other = client.open(b"me", b"file", share, how(2));
    let reply = client.does(&[Operation::PutRootFileHandle, other]);
    assert_eq!(reply.status(), Status::Exist);
}

#[test]
fn whoever_may_not_is_refused() {
    let room = Room::new();
    room.file(b"file", b"data");
    let mut client = Client::new(&room, b"client", 1);
    client.who = crate::vfs::testing::other();
    let open = client.open(b"me", b"file", (share_access::WRITE, 0), None);
    let reply = client.does(&[Operation::PutRootFileHandle, open]);
    assert_eq!(reply.status(), Status::Access);
}

#[test]
fn a_listing_that_fills_the_longest_reply_is_cut_to_it() {
    let room = Room::new();
    for number in 0..200 {
        room.file(format!("name-{number}").as_bytes(), b"");
    }
    let mut client = Client::new(&room, b"client", 1);
    for reply_bytes_max in 3000..3040 {
        client.caller.reply_bytes_max = reply_bytes_max;
        let reply = client.does(&[
            Operation::PutRootFileHandle,
            Operation::ReadDir(ReadDirArgs {
                cookie: 0,
                verifier: [0; 8],
                directory_count: 1 << 16,
                max_count: 1 << 16,
                asked: Bitmap::of(&[Attribute::FileId]),
            }),
        ]);
        assert_eq!(reply.status(), Status::Ok, "{reply_bytes_max}");
        assert!(reply.0.len() > 2800 && reply.0.len() <= reply_bytes_max as usize);
    }
}

#[test]
fn the_security_flavours_are_those_that_calls_may_have() {
    let room = Room::new();
    room.file(b"file", b"data");
    let rule = Rule::new(vec!["10.0.0.0/8".parse().unwrap()], Squash::None);
    let access = Access::of(rule, owner());
    let mut client = Client::new(&room, b"client", 1);
    client.caller.peer = Peer::Address("10.0.0.1:700".parse().unwrap());
    let of_name = [
        Operation::PutRootFileHandle,
        Operation::SecInfo(Name(b"file")),
    ];
    let of_root = [
        Operation::PutRootFileHandle,
        Operation::SecInfoNoName(SecInfoStyle::CurrentFile),
    ];
    for operations in [of_name, of_root] {
        let reply = client.does(&operations);
        let flavors = match reply.last() {
            OperationResult::SecInfo(Ok(flavors)) => flavors.0,
            OperationResult::SecInfoNoName(Ok(flavors)) => flavors.0,
            other => panic!("{other:?}"),
        };
        // The best comes first.
        let both = [FLAVOR_SYS, FLAVOR_NONE].map(SecInfo::Flavor);
        assert_eq!(flavors, both);
    }
    // Those are taken, and no other.
    let other = Auth::Other {
        flavor: 6,
        body: b"",
    };
    assert!(
        access
            .credential(&client.caller, &claimed(&owner()))
            .is_ok()
    );
    assert!(access.credential(&client.caller, &Auth::None).is_ok());
    assert!(access.credential(&client.caller, &other).is_err());
}

#[test]
fn the_mode_of_a_symbolic_link_is_not_supported() {
    let room = Room::new();
    let client = Client::new(&room, b"client", 1);
    let link = Operation::Create(CreateArgs {
        kind: CreateType::Symlink(Payload(b"file")),
        name: Name(b"link"),
        attributes: RawAttributes::default(),
    });
    let asked = Bitmap::of(&[Attribute::Mode, Attribute::Owner, Attribute::TimeModify]);
    let reply = client.does(&[Operation::PutRootFileHandle, link, get(asked)]);
    let before = last!(reply, GetAttributes);
    let set = |new: SetAttributes<'_>| {
        let bytes = new.to_bytes();
        let set = Operation::SetAttributes(SetAttributesArgs {
            state: StateId::ANONYMOUS,
            attributes: RawAttributes::from_bytes(&bytes).expect("attributes"),
        });
        let lookup = Operation::Lookup(Name(b"link"));
        let reply = client.does(&[Operation::PutRootFileHandle, lookup.clone(), set]);
        let (status, set) = match reply.last() {
            OperationResult::SetAttributes(result) => (result.status, result.set),
            other => panic!("{other:?}"),
        };
        let now = client.does(&[Operation::PutRootFileHandle, lookup, get(asked)]);
        let now = last!(now, GetAttributes);
        (status, set.is_empty(), now == before)
    };
    let time = SetAttributes {
        time_modify: Some(SetTime::To(Time {
            seconds: 5,
            nanoseconds: 0,
        })),
        ..SetAttributes::default()
    };
    let both = SetAttributes {
        mode: Some(0o600),
        ..time.clone()
    };
    assert_eq!(set(both), (Status::AttrNotSupp, true, true));
    assert_eq!(set(time), (Status::Ok, false, false));
}
