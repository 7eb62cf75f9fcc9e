//! Access control lists and owners.

use super::*;
use crate::vfs::testing::other;

const ACL: Bitmap = Bitmap::of(&[Attribute::Acl]);
const R: u32 = ace_mask::READ_DATA;
const W: u32 = ace_mask::WRITE_DATA | ace_mask::APPEND_DATA;

fn ace(kind: u32, flags: u32, access: u32, who: &'static [u8]) -> Ace<'static> {
    Ace {
        kind,
        flags,
        access,
        who: Opaque(who),
    }
}

fn allow(access: u32, who: &'static [u8]) -> Ace<'static> {
    ace(ace_type::ALLOW, 0, access, who)
}

/// Attributes to set, encoded.
pub(super) fn raw(new: &SetAttributes<'_>) -> RawAttributes<'static> {
    let mut bytes = Vec::new();
    odafs_common::wire::xdr::Encode::encode(new, &mut Writer::new(&mut bytes));
    let bytes: &'static [u8] = bytes.leak();
    let raw = <RawAttributes<'_> as odafs_common::wire::xdr::Decode>::from_bytes(bytes);
    raw.expect("a fattr4")
}

fn setting(aces: &[Ace<'static>]) -> SetAttributes<'static> {
    SetAttributes {
        acl: Some(List(aces.to_vec())),
        ..SetAttributes::default()
    }
}

fn set(new: &SetAttributes<'_>) -> Operation<'static> {
    Operation::SetAttributes(SetAttributesArgs {
        state: StateId::ANONYMOUS,
        attributes: raw(new),
    })
}

fn lookup(name: &'static [u8]) -> [Operation<'static>; 2] {
    [Operation::PutRootFileHandle, Operation::Lookup(Name(name))]
}

fn on(name: &'static [u8], more: &[Operation<'static>]) -> Vec<Operation<'static>> {
    [&lookup(name)[..], more].concat()
}

/// What GETATTR tells at the end of a reply.
fn told(reply: &Reply) -> Attributes<'static> {
    let raw = last!(reply, GetAttributes);
    let values: &'static [u8] = raw.values.0.to_vec().leak();
    let raw = RawAttributes {
        mask: raw.mask,
        values: AttributeValues(values),
    };
    Attributes::parse(&raw).expect("attributes")
}

fn entries(client: &Client<'_>, name: &'static [u8]) -> Vec<(u32, u32, u32, Vec<u8>)> {
    let asked = Operation::GetAttributes(GetAttributesArgs { asked: ACL });
    let reply = client.does(&on(name, &[asked]));
    let acl = told(&reply).acl.expect("a list").0;
    acl.iter()
        .map(|ace| (ace.kind, ace.flags, ace.access, ace.who.0.to_vec()))
        .collect()
}

fn mode(client: &Client<'_>, name: &'static [u8]) -> u32 {
    let asked = Bitmap::of(&[Attribute::Mode]);
    let asked = get(asked);
    told(&client.does(&on(name, &[asked])))
        .mode
        .expect("a mode")
}

fn access_of(client: &Client<'_>, name: &'static [u8]) -> u32 {
    let asked = Operation::Access(AccessArgs {
        access: access::READ | access::MODIFY,
    });
    match client.does(&on(name, &[asked])).last() {
        OperationResult::Access(Ok(ok)) => ok.access,
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_mode_is_told_as_a_list_and_a_list_is_set() {
    let room = Room::new();
    room.file(b"file", b"data");
    let client = Client::new(&room, b"client", 1);
    let told = entries(&client, b"file");
    let who: Vec<&[u8]> = told.iter().map(|entry| &entry.3[..]).collect();
    assert_eq!(who, [&b"OWNER@"[..], b"GROUP@", b"EVERYONE@"]);
    let aces = [
        allow(R | W, b"OWNER@"),
        allow(R | W, b"2000"),
        ace(ace_type::ALLOW, ace_flag::IDENTIFIER_GROUP, R, b"7"),
        allow(0, b"EVERYONE@"),
    ];
    let reply = client.does(&on(b"file", &[set(&setting(&aces))]));
    let OperationResult::SetAttributes(result) = reply.last() else {
        panic!("{:?}", reply.all());
    };
    assert_eq!((result.status, result.set), (Status::Ok, ACL));
    // The mask where the group's bits belong.
    assert_eq!(mode(&client, b"file"), 0o660);
    let told = entries(&client, b"file");
    let user = told.iter().find(|entry| entry.3 == b"2000").expect("told");
    assert_eq!((user.0, user.1, user.2 & (R | W)), (0, 0, R | W));
    let group = told.iter().find(|entry| entry.3 == b"7").expect("told");
    assert_eq!(group.1, ace_flag::IDENTIFIER_GROUP);
    let all = access::READ | access::MODIFY;
    let mut stranger = Client::new(&room, b"stranger", 2);
    stranger.who = other();
    assert_eq!(access_of(&stranger, b"file"), all);
    stranger.who = Credential::of(9, 9, &[7]);
    assert_eq!(access_of(&stranger, b"file"), access::READ);
    stranger.who = Credential::of(9, owner().gid, &[]);
    assert_eq!(access_of(&stranger, b"file"), 0);
    let open = stranger.open(b"me", b"file", (share_access::READ, 0), None);
    let reply = stranger.does(&[Operation::PutRootFileHandle, open]);
    assert_eq!(reply.status(), Status::Access);
    // VERIFY compares what GETATTR tells.
    let asked = Operation::GetAttributes(GetAttributesArgs { asked: ACL });
    let reply = client.does(&on(b"file", &[asked]));
    let same = last!(reply, GetAttributes);
    let verify = [&lookup(b"file")[..], &[Operation::Verify(same)]].concat();
    assert_eq!(client.does(&verify).status(), Status::Ok);
}

#[test]
fn what_no_list_can_say_is_refused_and_changes_nothing() {
    let room = Room::new();
    room.file(b"file", b"data");
    let client = Client::new(&room, b"client", 1);
    let refused = [
        (
            ace(ace_type::AUDIT, 0, R, b"EVERYONE@"),
            Status::AttrNotSupp,
        ),
        (
            ace(ace_type::ALLOW, ace_flag::NO_PROPAGATE, R, b"OWNER@"),
            Status::AttrNotSupp,
        ),
        (
            ace(ace_type::ALLOW, ace_flag::FILE_INHERIT, R, b"OWNER@"),
            Status::AttrNotSupp,
        ),
        (
            ace(ace_type::DENY, 0, ace_mask::READ_ACL, b"EVERYONE@"),
            Status::AttrNotSupp,
        ),
        (allow(R, b"nobody by this name"), Status::BadOwner),
        (allow(R, b"INTERACTIVE@"), Status::BadOwner),
        (allow(R, b""), Status::Inval),
    ];
    for (ace, status) in refused {
        let new = SetAttributes {
            mode: Some(0o600),
            ..setting(&[ace])
        };
        let reply = client.does(&on(b"file", &[set(&new)]));
        assert_eq!(reply.status(), status, "{ace:?}");
        assert_eq!(mode(&client, b"file"), 0o644, "{ace:?}");
    }
    // Others may not set it; what was set before is told.
    let mut stranger = Client::new(&room, b"stranger", 2);
    stranger.who = other();
    let reply = stranger.does(&on(b"file", &[set(&setting(&[]))]));
    assert_eq!(reply.status(), Status::Perm);
    // A mode and a list: the list comes after the mode, and has the last word about its bits.
    let new = SetAttributes {
        mode: Some(0o4777),
        ..setting(&[allow(R, b"OWNER@")])
    };
    assert_eq!(client.does(&on(b"file", &[set(&new)])).status(), Status::Ok);
    assert_eq!(mode(&client, b"file"), 0o4400);
}

#[test]
fn what_is_made_has_the_list_that_it_is_made_with() {
    let room = Room::new();
    let client = Client::new(&room, b"client", 1);
    let aces = [allow(R | W, b"OWNER@"), allow(R, b"2000")];
    let share = (share_access::BOTH, 0);
    let new = SetAttributes {
        mode: Some(0o1777),
        ..setting(&aces)
    };
    for (name, how) in [
        (&b"unchecked"[..], CreateHow::Unchecked(raw(&new))),
        (&b"guarded"[..], CreateHow::Guarded(raw(&new))),
        (
            &b"exclusive"[..],
            CreateHow::ExclusiveWith([1; 8], raw(&new)),
        ),
    ] {
        let open = client.open(b"me", name, share, Some(how));
        let reply = client.does(&[Operation::PutRootFileHandle, open]);
        let opened = last!(reply, Open);
        assert!(opened.set.contains(Attribute::Acl));
        assert_eq!(mode(&client, name), 0o1640);
        assert!(
            entries(&client, name)
                .iter()
                .any(|entry| entry.3 == b"2000")
        );
    }
    let only = ace_flag::INHERIT_ONLY | ace_flag::FILE_INHERIT | ace_flag::DIRECTORY_INHERIT;
    let rwx = R | W | ace_mask::EXECUTE | ace_mask::DELETE_CHILD;
    let aces = [
        allow(rwx, b"OWNER@"),
        ace(ace_type::ALLOW, only, rwx, b"OWNER@"),
        ace(ace_type::ALLOW, only, R, b"2000"),
    ];
    let make = |kind, name| {
        Operation::Create(CreateArgs {
            kind,
            name: Name(name),
            attributes: raw(&setting(&aces)),
        })
    };
    let made = client.does(&[
        Operation::PutRootFileHandle,
        make(CreateType::Directory, b"dir"),
    ]);
    let ok = last!(made, Create);
    assert_eq!(ok.set, ACL);
    assert_eq!(mode(&client, b"dir"), 0o700);
    let inherited = entries(&client, b"dir");
    let inherited = inherited.iter().filter(|entry| entry.1 & only == only);
    assert_eq!(inherited.count(), 4, "owner, user, group and everyone");
    // What is made there inherits it, and a umask of the client's counts for nothing; elsewhere it does.
    let new = SetAttributes {
        mode_umask: Some(ModeUmask {
            mode: 0o666,
            umask: 0o066,
        }),
        ..SetAttributes::default()
    };
    let create = |within: &'static [u8], name: &'static [u8], how: CreateHow<'static>| {
        let create = client.open(b"me", name, share, Some(how));
        let asked = Bitmap::of(&[Attribute::Mode, Attribute::Acl]);
        let asked = get(asked);
        let place = match within {
            [] => vec![Operation::PutRootFileHandle],
            name => lookup(name).to_vec(),
        };
        let all = [place, vec![create, asked]].concat();
        let told = told(&client.does(&all));
        let user = |ace: &Ace<'_>| ace.who.0 == b"2000" && ace.access & R != 0;
        let named = told.acl.expect("a list").0.iter().any(user);
        (told.mode.expect("a mode"), named)
    };
    for how in [
        CreateHow::Guarded(raw(&new)),
        CreateHow::ExclusiveWith([2; 8], raw(&new)),
    ] {
        let (a, b) = match how {
            CreateHow::Guarded(_) => (&b"a"[..], &b"b"[..]),
            _ => (&b"ax"[..], &b"bx"[..]),
        };
        // The mask of the list, and nothing for others.
        assert_eq!(create(b"dir", a, how), (0o640, true));
        assert_eq!(create(b"", b, how), (0o600, false));
    }
    // A symbolic link has none, and says so.
    let link = client.does(&[
        Operation::PutRootFileHandle,
        Operation::Create(CreateArgs {
            kind: CreateType::Symlink(Payload(b"dir")),
            name: Name(b"link"),
            attributes: raw(&setting(&[allow(R, b"OWNER@")])),
        }),
    ]);
    let ok = last!(link, Create);
    assert_eq!(ok.set, Bitmap::EMPTY);
}

#[test]
fn listings_and_the_pseudo_file_system_tell_lists() {
    let room = Room::named("/srv");
    room.file(b"file", b"data");
    let client = Client::new(&room, b"client", 1);
    let asked = Bitmap::of(&[
        Attribute::Acl,
        Attribute::AclSupport,
        Attribute::SupportedAttributes,
    ]);
    let ask = get(asked);
    let reply = client.does(&[Operation::PutRootFileHandle, ask]);
    let pseudo = told(&reply);
    assert_eq!(pseudo.acl.expect("a list").0.len(), 3);
    assert_eq!(pseudo.acl_support, Some(3));
    assert!(pseudo.supported.expect("told").contains(Attribute::Acl));
    let reply = client.does(&[
        Operation::PutRootFileHandle,
        Operation::Lookup(Name(b"srv")),
        Operation::ReadDir(ReadDirArgs {
            cookie: 0,
            verifier: [0; 8],
            directory_count: 0,
            max_count: 4096,
            asked: ACL,
        }),
    ]);
    let listing = last!(reply, ReadDir);
    let [entry] = &listing.entries[..] else {
        panic!("{listing:?}");
    };
    assert_eq!(entry.attributes.mask, ACL);
}

#[test]
fn owners_that_nobody_is_are_refused() {
    let room = Room::new();
    room.file(b"file", b"data");
    let client = Client::new(&room, b"client", 1);
    let owner = |owner: &'static [u8]| {
        let new = SetAttributes {
            owner: Some(Opaque(owner)),
            ..SetAttributes::default()
        };
        client.does(&on(b"file", &[set(&new)])).status()
    };
    assert_eq!(owner(b"1000"), Status::Ok);
    assert_eq!(owner(b"nobody@localdomain"), Status::BadOwner);
    let asked = Bitmap::of(&[Attribute::Owner, Attribute::OwnerGroup]);
    let asked = get(asked);
    let reply = client.does(&on(b"file", &[asked]));
    let told = told(&reply);
    assert_eq!(told.owner, Some(Opaque(b"1000")));
    assert_eq!(told.group, Some(Opaque(b"1000")));
}
