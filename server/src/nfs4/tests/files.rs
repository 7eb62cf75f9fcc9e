//! Data and attributes.

use super::*;
use crate::vfs::ObjectId;
use crate::vfs::promises::{Holders, Keeper, Party};

#[test]
fn what_is_written_is_read_by_the_current_stateid_and_by_its_own() {
    let room = Room::new();
    let client = Client::new(&room, b"client", 1);
    let reply = client.does(&[
        Operation::PutRootFileHandle,
        client.open(b"me", b"file", (share_access::BOTH, 0), Some(unchecked())),
        write(StateId::CURRENT, 0, Stable::FileSync, b"some data"),
        read(StateId::CURRENT, 0, 100),
        Operation::GetFileHandle,
    ]);
    assert_eq!(reply.status(), Status::Ok, "{:?}", reply.all());
    let all = reply.all();
    let [
        ..,
        OperationResult::Open(Ok(opened)),
        OperationResult::Write(Ok(written)),
        OperationResult::Read(Ok(data)),
        OperationResult::GetFileHandle(Ok(handle)),
    ] = &all[..]
    else {
        panic!("{all:?}");
    };
    assert_eq!((written.count, written.committed), (9, Stable::FileSync));
    assert_eq!((data.data.0, data.eof), (&b"some data"[..], true));
    let reply = client.does(&[
        Operation::PutFileHandle(*handle),
        read(opened.state, 0, 4),
        close(opened.state, 0),
        read(opened.state, 0, 4),
    ]);
    assert_eq!(reply.status(), Status::BadStateId);
    let all = reply.all();
    let OperationResult::Read(Ok(data)) = &all[2] else {
        panic!("{all:?}");
    };
    assert_eq!((data.data.0, data.eof), (&b"some"[..], false));
}

#[test]
fn a_read_brings_something_where_the_file_has_grown_before_it() {
    let room = Room::new();
    let live = room.world.file("file", b"old");
    let client = Client::new(&room, b"client", 1);
    let (state, handle) = client.opened(b"me", b"file", (share_access::READ, 0), None);
    room.world.write_unreported(&live, b"old and new");
    let reply = client.does(&[put(&handle), read(state, 3, 100)]);
    let data = last!(reply, Read);
    assert_eq!((data.data.0, data.eof), (&b" and new"[..], true));
}

#[test]
fn a_read_for_which_the_reply_has_no_room_is_refused() {
    const DATA: u32 = crate::nfs4::DATA_BYTES_MAX;
    let room = Room::new();
    room.file(b"file", &vec![7; DATA as usize]);
    let client = Client::new(&room, b"client", 1);
    let (_, handle) = client.opened(b"me", b"file", (share_access::READ, 0), None);
    let read = || read(StateId::ANONYMOUS, 0, DATA);
    let file = put(&handle);
    let reply = client.call(0, &[file, read(), read(), read()]);
    let all = reply.all();
    let [_, OperationResult::Read(Ok(first)), .., last] = &all[..] else {
        panic!("{all:?}");
    };
    assert_eq!(first.data.0.len(), DATA as usize);
    assert!(
        matches!(last, OperationResult::Read(Err(Status::Resource))),
        "{last:?}"
    );
}

#[test]
fn a_share_for_reading_is_none_for_writing() {
    let room = Room::new();
    room.file(b"file", b"data");
    let client = Client::new(&room, b"client", 1);
    let (state, handle) = client.opened(b"me", b"file", (share_access::READ, 0), None);
    let reply = client.does(&[put(&handle), write(state, 0, Stable::FileSync, b"other")]);
    assert_eq!(reply.status(), Status::OpenMode);
    let reply = client.does(&[put(&handle), read(StateId::ANONYMOUS, 0, 10)]);
    assert!(matches!(reply.last(), OperationResult::Read(Ok(ok)) if ok.data.0 == b"data"));
}

#[test]
fn what_a_share_denies_is_denied_to_others_and_nothing_is_cut() {
    let room = Room::new();
    room.file(b"file", b"data");
    let one = Client::new(&room, b"one", 1);
    let two = Client::new(&room, b"two", 2);
    let deny = (share_access::BOTH, share_deny::WRITE);
    let (_, handle) = one.opened(b"me", b"file", deny, None);
    let size = SetAttributes {
        size: Some(0),
        ..SetAttributes::default()
    };
    let bytes = odafs_common::wire::xdr::Encode::to_bytes(&size);
    let raw = odafs_common::wire::xdr::Decode::from_bytes(&bytes).expect("attributes");
    let cut = CreateHow::Unchecked(raw);
    let reply = two.does(&[
        Operation::PutRootFileHandle,
        two.open(b"me", b"file", (share_access::WRITE, 0), Some(cut)),
    ]);
    assert_eq!(reply.status(), Status::ShareDenied);
    let reply = two.does(&[
        put(&handle),
        Operation::SetAttributes(SetAttributesArgs {
            state: StateId::ANONYMOUS,
            attributes: raw,
        }),
    ]);
    assert_eq!(reply.status(), Status::Locked);
    let reply = two.does(&[put(&handle), read(StateId::ANONYMOUS, 0, 10)]);
    assert!(matches!(reply.last(), OperationResult::Read(Ok(ok)) if ok.data.0 == b"data"));
}

#[test]
fn every_attribute_that_is_supported_is_told_and_matches_itself() {
    let room = Room::new();
    room.file(b"file", b"data");
    for minor in 0..=2 {
        let client = Client::unknown(&room, 1);
        let client = if minor == 0 {
            client
        } else {
            Client::new(&room, &[minor as u8], 1)
        };
        let asked =
            super::super::attributes::supported(&room.world.export, minor).without(&WRITE_ONLY);
        let ask = [
            Operation::PutRootFileHandle,
            Operation::Lookup(Name(b"file")),
            get(asked),
        ];
        let reply = if minor == 0 {
            client.call(0, &ask)
        } else {
            client.does(&ask)
        };
        let raw = last!(reply, GetAttributes);
        if minor != 1 {
            // The session's compounds are of minor version 2.
            assert_eq!(raw.mask, asked, "minor version {minor}");
        }
        let told = Attributes::parse(&raw).expect("attributes");
        assert_eq!((told.size, told.kind), (Some(4), Some(FileType::Regular)));
        assert_eq!(told.owner, Some(Opaque(b"1000")));
        let raw = RawAttributes {
            mask: raw
                .mask
                .without(&Bitmap::of(&[Attribute::ReadAttributeError])),
            values: raw.values,
        };
        let without = Attributes {
            read_error: None,
            ..told
        };
        let bytes = odafs_common::wire::xdr::Encode::to_bytes(&without);
        let theirs: RawAttributes<'_> =
            odafs_common::wire::xdr::Decode::from_bytes(&bytes).expect("attributes");
        assert_eq!(theirs.mask, raw.mask);
        let verify = |operation| {
            let all = [
                Operation::PutRootFileHandle,
                Operation::Lookup(Name(b"file")),
                operation,
            ];
            let reply = if minor == 0 {
                client.call(0, &all)
            } else {
                client.does(&all)
            };
            reply.status()
        };
        assert_eq!(verify(Operation::Verify(theirs)), Status::Ok);
        assert_eq!(verify(Operation::VerifyNot(theirs)), Status::Same);
    }
}

#[test]
fn resident_data_is_read_on_the_thread_that_polls() {
    let room = Room::new();
    room.file(b"file", b"data");
    let client = Client::new(&room, b"client", 1);
    let (state, handle) = client.opened(b"me", b"file", (share_access::READ, 0), None);
    let ask = [put(&handle), read(state, 0, 4)];
    assert_eq!(client.does(&ask).status(), Status::Ok);
    let bytes = client.next(&ask);
    let (answer, reply) = room.run(&client.caller, &client.who, &bytes, Effort::ResidentOnly);
    assert!(matches!(answer, Answer::Replied), "{answer:?}");
    assert!(matches!(reply.last(), OperationResult::Read(Ok(ok)) if ok.data.0 == b"data"));
}

#[test]
fn data_goes_to_a_placement_and_what_follows_into_the_reply() {
    let room = Room::new();
    room.file(b"file", b"data");
    let mut client = Client::new(&room, b"client", 1);
    let (state, handle) = client.opened(b"me", b"file", (share_access::READ, 0), None);
    client.caller.placements = Placements::one(4096);
    let ask = [put(&handle), read(state, 0, 4), Operation::GetFileHandle];
    let bytes = client.next(&ask);
    let (answer, reply) = room.run(&client.caller, &client.who, &bytes, Effort::MayBlock);
    let Answer::Placed(placed) = answer else {
        panic!("{answer:?}");
    };
    assert_eq!((placed.bytes(), placed.pieces.len()), (4, 1));
    let mut whole = reply.0.clone();
    let at = placed.results[0].at as usize;
    whole.splice(at..at, *b"data");
    let whole = Reply(whole);
    assert!(matches!(&whole.all()[2], OperationResult::Read(Ok(ok)) if ok.data.0 == b"data"));
    assert!(matches!(whole.last(), OperationResult::GetFileHandle(Ok(ok)) if ok.0 == handle));
}

/// Whoever has a promise of the file keeps it.
struct Keeps;

impl Holders for Keeps {
    fn give_back(&self, _object: ObjectId, _by: Party) -> bool {
        false
    }

    fn broken(&self, _object: ObjectId) {}
}

#[test]
fn an_open_that_cannot_truncate_changes_no_stateid() {
    let room = Room::new();
    let file = room.world.file("file", b"data");
    let client = Client::new(&room, b"client", 1);
    let (first, handle) = client.opened(b"me", b"file", (share_access::READ, 0), None);
    let keeps: Arc<dyn Holders> = Arc::new(Keeps);
    let promises = room.world.export.promises();
    promises.keep(Keeper::Odafs, Arc::downgrade(&keeps));
    assert!(promises.make(Keeper::Odafs, &file));
    let both = (share_access::BOTH, share_deny::WRITE);
    for by in [&b"me"[..], b"new"] {
        let truncate = CreateHow::Unchecked(RawAttributes {
            mask: Bitmap::of(&[Attribute::Size]),
            values: AttributeValues(&[0; 8]),
        });
        let open = client.open(by, b"file", both, Some(truncate));
        let reply = client.does(&[Operation::PutRootFileHandle, open]);
        assert_eq!(reply.status(), Status::Delay, "{:?}", reply.all());
    }
    // Nobody is denied anything, and nothing may be written.
    let other = Client::new(&room, b"other", 2);
    other.opened(b"me", b"file", (share_access::WRITE, 0), None);
    let data = write(first, 0, Stable::Unstable, b"new");
    let reply = client.does(&[put(&handle), data]);
    assert_eq!(reply.status(), Status::OpenMode);
    let reply = client.does(&[put(&handle), close(first, 0)]);
    assert_eq!(reply.status(), Status::Ok, "{:?}", reply.all());
}
