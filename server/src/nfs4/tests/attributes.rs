//! What the server tells of an object besides what it always knew: when it was made, and what its removal would free.

use super::*;
use odafs_common::wire::xdr::{Decode as _, Encode as _};

const TIME: Time = Time {
    seconds: 77,
    nanoseconds: 7,
};
const ASKED: Bitmap = Bitmap::of(&[
    Attribute::SupportedAttributes,
    Attribute::TimeCreate,
    Attribute::TimeMetadata,
    Attribute::SpaceFreed,
    Attribute::SpaceUsed,
    Attribute::Mode,
]);

impl Client<'_> {
    /// What a client of a minor version hears of the object of that handle.
    fn told(&self, minor: u32, handle: &[u8]) -> (Bitmap, Told) {
        let reply = self.does_by(minor, &[put(handle), get(ASKED)]);
        let raw = last!(reply, GetAttributes);
        let all = Attributes::parse(&raw).expect("attributes");
        let told = Told {
            birth: all.time_create,
            changed: all.time_metadata.expect("told"),
            freed: all.space_freed,
            used: all.space_used.expect("told"),
            mode: all.mode.expect("told"),
        };
        (all.supported.expect("told"), told)
    }
}

#[derive(Debug)]
struct Told {
    birth: Option<Time>,
    changed: Time,
    freed: Option<u64>,
    used: u64,
    mode: u32,
}

/// `fattr4` of a mode and a time of creation.
fn with_birth(mode: u32) -> Vec<u8> {
    let new = SetAttributes {
        mode: Some(mode),
        time_create: Some(TIME),
        ..SetAttributes::default()
    };
    new.to_bytes()
}

#[test]
fn the_time_of_creation_is_told_and_never_changes() {
    let room = Room::new();
    room.file(b"file", b"data");
    let client = Client::new(&room, b"client", 1);
    let (state, handle) = client.opened(b"me", b"file", (share_access::BOTH, 0), None);
    let (supported, before) = client.told(1, &handle);
    assert!(supported.contains(Attribute::TimeCreate));
    let birth = before.birth.expect("a time");
    let reply = client.does(&[put(&handle), write(state, 0, Stable::FileSync, b"more")]);
    assert_eq!(reply.status(), Status::Ok);
    let (_, after) = client.told(2, &handle);
    assert_eq!(after.birth, Some(birth));
    let order = [birth, before.changed, after.changed].map(|time| (time.seconds, time.nanoseconds));
    assert!(order[0] <= order[1] && order[1] < order[2], "{order:?}");
    // A listing tells it too.
    let list = Operation::ReadDir(ReadDirArgs {
        cookie: 0,
        verifier: [0; 8],
        directory_count: 1 << 16,
        max_count: 1 << 16,
        asked: Bitmap::of(&[Attribute::TimeCreate]),
    });
    let reply = client.does(&[Operation::PutRootFileHandle, list]);
    let listed = last!(reply, ReadDir);
    let [entry] = &listed.entries[..] else {
        panic!("{listed:?}");
    };
    let all = Attributes::parse(&entry.attributes).expect("attributes");
    assert_eq!(all.time_create, Some(birth));
}

#[test]
fn a_time_of_creation_that_is_given_is_left_and_the_reply_says_so() {
    let room = Room::new();
    let client = Client::new(&room, b"client", 1);
    let bytes = with_birth(0o640);
    let raw = RawAttributes::from_bytes(&bytes).expect("attributes");
    let made = Bitmap::of(&[Attribute::Mode]);
    let how = CreateHow::Unchecked(raw);
    let open = client.open(b"me", b"file", (share_access::BOTH, 0), Some(how));
    let reply = client.does(&[Operation::PutRootFileHandle, open, Operation::GetFileHandle]);
    let all = reply.all();
    let (open, handle) = opened(&all);
    assert_eq!(open.set, made);
    let (_, before) = client.told(2, handle);
    assert!(before.birth.is_some_and(|birth| birth != TIME));
    let bytes = with_birth(0o600);
    let set = |bytes: &[u8]| {
        let attributes = RawAttributes::from_bytes(bytes).expect("attributes");
        let set = Operation::SetAttributes(SetAttributesArgs {
            state: StateId::ANONYMOUS,
            attributes,
        });
        match client.does(&[put(handle), set]).last() {
            OperationResult::SetAttributes(result) => (result.status, result.set),
            other => panic!("{other:?}"),
        }
    };
    assert_eq!(set(&bytes), (Status::Ok, made));
    let alone = SetAttributes {
        time_create: Some(TIME),
        ..SetAttributes::default()
    };
    assert_eq!(set(&alone.to_bytes()), (Status::Ok, Bitmap::EMPTY));
    let (_, after) = client.told(2, handle);
    assert_eq!((after.birth, after.mode), (before.birth, 0o600));
    // The attribute `suppattr_exclcreat` says that an exclusive creation takes none.
    let how = CreateHow::ExclusiveWith([1; 8], raw);
    let open = client.open(b"me", b"other", (share_access::BOTH, 0), Some(how));
    let reply = client.does(&[Operation::PutRootFileHandle, open]);
    assert_eq!(reply.status(), Status::AttrNotSupp);
}

#[test]
fn a_name_that_is_not_the_last_frees_nothing() {
    let room = Room::new();
    room.file(b"file", &[1; 10_000]);
    let client = Client::new(&room, b"client", 1);
    let (_, handle) = client.opened(b"me", b"file", (share_access::READ, 0), None);
    let (supported, earlier) = client.told(1, &handle);
    assert!(!supported.contains(Attribute::SpaceFreed) && earlier.freed.is_none());
    let (supported, alone) = client.told(2, &handle);
    assert!(supported.contains(Attribute::SpaceFreed) && alone.used >= 10_000);
    assert_eq!(alone.freed, Some(alone.used));
    let link = Operation::Link(Name(b"other"));
    let root = Operation::PutRootFileHandle;
    let reply = client.does(&[put(&handle), Operation::SaveFileHandle, root, link]);
    assert_eq!(reply.status(), Status::Ok);
    assert_eq!(client.told(2, &handle).1.freed, Some(0));
    let reply = client.does(&[Operation::PutRootFileHandle, Operation::GetFileHandle]);
    let root = last!(reply, GetFileHandle);
    let (_, directory) = client.told(2, root.0);
    assert_eq!(directory.freed, Some(directory.used));
}

#[test]
fn directories_above_an_export_tell_the_same() {
    let room = Room::named("/above/export");
    let client = Client::new(&room, b"client", 1);
    let reply = client.does(&[Operation::PutRootFileHandle, get(ASKED)]);
    let raw = last!(reply, GetAttributes);
    assert_eq!(raw.mask, ASKED);
    let all = Attributes::parse(&raw).expect("attributes");
    assert_eq!(all.space_freed, Some(0));
}

#[test]
fn what_a_store_does_not_know_is_not_told() {
    let world = World::plain(256);
    let room = Room::over(world, Records::none(), LEASE);
    room.file(b"file", b"data");
    let client = Client::new(&room, b"client", 1);
    let (_, handle) = client.opened(b"me", b"file", (share_access::READ, 0), None);
    let (supported, told) = client.told(2, &handle);
    let unknown = Bitmap::of(&[Attribute::TimeCreate, Attribute::SpaceFreed]);
    assert!(supported.and(&unknown).is_empty());
    assert_eq!((told.birth, told.freed), (None, None));
    let bytes = with_birth(0o600);
    let set = Operation::SetAttributes(SetAttributesArgs {
        state: StateId::ANONYMOUS,
        attributes: RawAttributes::from_bytes(&bytes).expect("attributes"),
    });
    let reply = client.does(&[put(&handle), set]);
    assert_eq!(reply.status(), Status::AttrNotSupp);
}
