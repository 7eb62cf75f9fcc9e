//! What a client may want in an OPEN (RFC 9754).

use super::callbacks::hearing;
use super::delegations::{BOTH, READ, claims};
use super::*;

const XOR: u32 = share_access::OPEN_XOR_DELEGATION;

/// OPEN of a name in the root.
fn open(
    client: &Client<'_>,
    share: (u32, u32),
    claim: Claim<'_>,
) -> (StateId, u32, Option<StateId>) {
    let open = Operation::Open(OpenArgs {
        sequence: 0,
        share_access: share.0,
        share_deny: share.1,
        owner: client.owner(b"me"),
        create: None,
        claim,
    });
    let reply = client.does(&[Operation::PutRootFileHandle, open]);
    let opened = last!(reply, Open);
    let delegation = match &opened.delegation {
        Delegation::Read(read) => Some(read.state),
        Delegation::Write(write) => Some(write.state),
        _ => None,
    };
    (opened.state, opened.flags, delegation)
}

fn named(name: &[u8]) -> Claim<'_> {
    Claim::Null(Name(name))
}

fn opens_of(room: &Room) -> usize {
    room.nfs.state.lock().counts()[2]
}

#[test]
fn minor_version_2_tells_what_open_takes() {
    let room = Room::new();
    let client = Client::new(&room, b"client", 1);
    let asked = Bitmap::of(&[Attribute::SupportedAttributes, Attribute::OpenArguments]);
    let get = get(asked);
    let reply = client.does(&[Operation::PutRootFileHandle, get.clone()]);
    let raw = last!(reply, GetAttributes);
    let told = Attributes::parse(&raw).expect("attributes");
    assert!(told.supported.unwrap().contains(Attribute::OpenArguments));
    let arguments = told.open_arguments.expect("what OPEN takes");
    let numbers = |set: &Bitmap| Vec::from_iter(set.iter());
    assert_eq!(numbers(&arguments.share_access), [1, 2, 3]);
    assert_eq!(numbers(&arguments.share_deny), [0, 1, 2, 3]);
    assert_eq!(numbers(&arguments.wants), [3, 4, 5, 21]);
    assert_eq!(numbers(&arguments.claims), [0, 1, 2, 4, 5]);
    assert_eq!(numbers(&arguments.creations), [0, 1, 2, 3]);
    // Version 4.0 has no such attribute, and refuses what it does not know.
    let reply = client.call(0, &[Operation::PutRootFileHandle, get]);
    let raw = last!(reply, GetAttributes);
    assert_eq!(raw.mask, Bitmap::of(&[Attribute::SupportedAttributes]));
}

#[test]
fn a_delegation_comes_instead_of_an_open() {
    let room = Room::new();
    room.file(b"file", b"data");
    let (client, _mailbox) = hearing(&room, b"client", 1);
    let (state, flags, delegation) = open(&client, (BOTH | XOR, 0), named(b"file"));
    let held = delegation.expect("a delegation");
    assert_eq!(state, StateId::ANONYMOUS);
    assert_ne!(flags & open_result::NO_OPEN_STATEID, 0);
    assert_eq!(opens_of(&room), 0);
    // The client reads and writes by it, and opens by it what it keeps when that is recalled.
    let get = [
        Operation::PutRootFileHandle,
        Operation::Lookup(Name(b"file")),
        Operation::GetFileHandle,
    ];
    let reply = client.does(&get);
    let handle = last!(reply, GetFileHandle);
    let write = write(held, 0, Stable::Unstable, b"new");
    let read = read(held, 0, 9);
    let reply = client.does(&[put(handle.0), write, read]);
    assert_eq!(reply.status(), Status::Ok, "{:?}", reply.all());
    let by = Claim::DelegateCurrentFile(held);
    let given = claims(&client, BOTH | XOR, put(handle.0), by);
    assert_ne!(given.open, StateId::ANONYMOUS);
    assert_eq!(opens_of(&room), 1);
    let give_back = Operation::DelegationReturn(held);
    let reply = client.does(&[put(handle.0), give_back]);
    assert_eq!(reply.status(), Status::Ok, "{:?}", reply.all());
}

#[test]
fn where_there_is_no_delegation_or_something_is_denied_there_is_an_open() {
    let room = Room::new();
    for name in [&b"file"[..], b"denied", b"twice"] {
        room.file(name, b"data");
    }
    let silent = Client::new(&room, b"silent", 1);
    let (state, flags, delegation) = open(&silent, (READ | XOR, 0), named(b"file"));
    assert_ne!(state, StateId::ANONYMOUS);
    assert_eq!(
        (flags & open_result::NO_OPEN_STATEID, delegation),
        (0, None)
    );
    let (client, _mailbox) = hearing(&room, b"client", 2);
    let deny = (READ | XOR, share_deny::WRITE);
    let (state, flags, delegation) = open(&client, deny, named(b"denied"));
    assert_ne!(state, StateId::ANONYMOUS);
    assert_eq!(flags & open_result::NO_OPEN_STATEID, 0);
    assert!(delegation.is_some());
    // What was open before stays open.
    let no = READ | share_access::WANT_NONE;
    let (first, ..) = open(&client, (no, 0), named(b"twice"));
    let (second, flags, delegation) = open(&client, (READ | XOR, 0), named(b"twice"));
    assert_eq!((second.other, second.sequence), (first.other, 2));
    assert_eq!(flags & open_result::NO_OPEN_STATEID, 0);
    assert!(delegation.is_some());
}

#[test]
fn times_are_no_part_of_a_delegation() {
    let room = Room::new();
    room.file(b"file", b"data");
    let (client, _mailbox) = hearing(&room, b"client", 1);
    let want = READ | share_access::DELEGATION_TIMESTAMPS;
    let (state, _, delegation) = open(&client, (want, 0), named(b"file"));
    assert!(delegation.is_some() && state != StateId::ANONYMOUS);
    // No bit that nobody knows is passed over.
    let open = client.open(b"me", b"file", (READ | 0x40_0000, 0), None);
    let reply = client.does(&[Operation::PutRootFileHandle, open]);
    assert_eq!(reply.status(), Status::Inval);
}
