//! GETXATTR, SETXATTR, LISTXATTRS and REMOVEXATTR.

use super::*;

fn on_file<'a>(operation: Operation<'a>) -> [Operation<'a>; 3] {
    let lookup = Operation::Lookup(Name(b"file"));
    [Operation::PutRootFileHandle, lookup, operation]
}

fn set<'a>(name: &'a [u8], value: &'a [u8], option: SetXattrOption) -> Operation<'a> {
    Operation::SetXattr(SetXattrArgs {
        option,
        name: Name(name),
        value: XattrValue(value),
    })
}

fn list(cookie: u64, max_count: u32) -> Operation<'static> {
    Operation::ListXattrs(ListXattrsArgs { cookie, max_count })
}

#[test]
fn what_is_set_is_told_listed_and_removed() {
    use SetXattrOption as How;
    let room = Room::new();
    room.file(b"file", b"data");
    let client = Client::new(&room, b"client", 1);
    for name in [&b"a"[..], b"b", b"c"] {
        let reply = client.does(&on_file(set(name, name, How::Create)));
        let change = last!(reply, SetXattr);
        assert_ne!(change.before, change.after);
    }
    let huge = vec![0; (64 << 10) + 1];
    let refused: [(Operation<'_>, Status); 11] = [
        (set(b"a", b"again", How::Create), Status::Exist),
        (set(b"d", b"not there", How::Replace), Status::NoXattr),
        (set(b"d", &huge, How::Either), Status::Xattr2Big),
        (set(&[b'n'; 300], b"", How::Either), Status::NameTooLong),
        (set(b"", b"", How::Either), Status::Inval),
        (Operation::GetXattr(Name(b"d")), Status::NoXattr),
        (Operation::RemoveXattr(Name(b"d")), Status::NoXattr),
        (list(4, 1000), Status::BadCookie),
        (list(u64::MAX, 1000), Status::BadCookie),
        (list(0, 0), Status::TooSmall),
        (list(0, 23), Status::TooSmall),
    ];
    for (operation, status) in refused {
        let name = format!("{operation:?}");
        let reply = client.does(&on_file(operation));
        assert_eq!(reply.status(), status, "{name:.100}");
    }
    // Name by name, and then the end.
    let mut listed = Vec::new();
    loop {
        let reply = client.does(&on_file(list(listed.len() as u64, 24)));
        let part = last!(reply, ListXattrs);
        listed.extend(part.names.0.iter().map(|name| name.0.to_vec()));
        assert_eq!(part.cookie, listed.len() as u64);
        if part.eof {
            break;
        }
    }
    assert_eq!(listed, [b"a", b"b", b"c"]);
    let reply = client.does(&on_file(Operation::GetXattr(Name(b"b"))));
    assert_eq!(last!(reply, GetXattr).0, b"b");
    let reply = client.does(&on_file(Operation::RemoveXattr(Name(b"b"))));
    let change = last!(reply, RemoveXattr);
    assert_ne!(change.before, change.after);
    let reply = client.does(&on_file(list(0, u32::MAX)));
    let all = last!(reply, ListXattrs);
    assert_eq!(all.names.0, [Name(b"a"), Name(b"c")]);
}

#[test]
fn a_store_without_extended_attributes_says_so() {
    let room = Room::new();
    room.world.store.set_xattrs(false);
    room.file(b"file", b"data");
    let client = Client::new(&room, b"client", 1);
    let all = [
        set(b"name", b"value", SetXattrOption::Either),
        Operation::GetXattr(Name(b"name")),
        Operation::RemoveXattr(Name(b"name")),
        list(0, 1000),
    ];
    for operation in all {
        let reply = client.does(&on_file(operation));
        assert_eq!(reply.status(), Status::NotSupp);
    }
    let ask = Operation::Access(AccessArgs {
        access: access::READ | access::XATTR_READ,
    });
    let reply = client.does(&on_file(ask));
    let told = last!(reply, Access);
    assert_eq!(told.supported, access::READ);
}

/// No verifier would tell the client that it was lost.
#[test]
fn a_change_is_on_stable_storage_before_the_reply() {
    let (told, syncs) = std::sync::mpsc::channel();
    let told = odafs_fabric::sync::Mutex::new(told);
    let world = World::before_syncs(256, move || told.lock().send(()).expect("heard"));
    let room = Room::over(world, Records::none(), LEASE);
    room.file(b"file", b"data");
    let client = Client::new(&room, b"client", 1);
    for change in [
        set(b"a", b"value", SetXattrOption::Either),
        Operation::RemoveXattr(Name(b"a")),
    ] {
        syncs.try_iter().for_each(drop);
        assert_eq!(client.does(&on_file(change)).status(), Status::Ok);
        assert!(syncs.try_iter().count() > 0);
    }
}
