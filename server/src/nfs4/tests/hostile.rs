//! Calls with bytes that no client would send.

use proptest::prelude::*;

use super::*;

/// Something of everything, for a client with this file open.
fn everything<'a>(client: &Client<'_>, state: StateId, handle: &'a [u8]) -> Vec<Operation<'a>> {
    let put = || put(handle);
    let asked =
        super::super::attributes::supported(&client.room.world.export, 2).without(&WRITE_ONLY);
    vec![
        put(),
        get(asked),
        write(state, 0, Stable::FileSync, b"some data"),
        read(state, 0, 100),
        Operation::Lock(LockArgs {
            kind: LockType::Write,
            reclaim: false,
            offset: 0,
            length: 10,
            locker: Locker::New(OpenToLockOwner {
                open_sequence: 0,
                open: state,
                lock_sequence: 0,
                owner: StateOwner {
                    client_id: client.id,
                    owner: Opaque(b"locker"),
                },
            }),
        }),
        Operation::Seek(SeekArgs {
            state,
            offset: 0,
            what: ContentType::Hole,
        }),
        Operation::Deallocate(RangeArgs {
            state,
            offset: 2,
            length: 4,
        }),
        Operation::SaveFileHandle,
        Operation::Clone(CloneArgs {
            source: state,
            destination: state,
            source_offset: 0,
            destination_offset: 4096,
            count: 0,
        }),
        Operation::ReadPlus(ReadArgs {
            state,
            offset: 0,
            count: 100,
        }),
        Operation::PutRootFileHandle,
        Operation::ReadDir(ReadDirArgs {
            cookie: 0,
            verifier: [0; 8],
            directory_count: 1000,
            max_count: 1000,
            asked: Bitmap::of(&[Attribute::Size, Attribute::FileHandle]),
        }),
        Operation::Link(Name(b"linked")),
        Operation::SaveFileHandle,
        Operation::Rename(RenameArgs {
            from: Name(b"linked"),
            to: Name(b"moved"),
        }),
        Operation::Remove(Name(b"moved")),
        Operation::TestStateId(TestStateIdArgs {
            states: List(vec![state]),
        }),
        put(),
        close(state, 0),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 100, ..ProptestConfig::default() })]
    #[test]
    fn spoilt_calls_get_replies_that_can_be_read(
        spoil in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..6),
        cut in any::<prop::sample::Index>(),
        cuts in any::<bool>(),
    ) {
        let room = Room::new();
        let client = Client::new(&room, b"client", 1);
        let (state, handle) =
            client.opened(b"me", b"file", (share_access::BOTH, 0), Some(unchecked()));
        let operations = everything(&client, state, &handle);
        let mut bytes = client.next(&operations);
        for (at, value) in &spoil {
            // Session, slot and the like stay whole more often than not.
            let at = at.index(bytes.len());
            if at >= 60 {
                bytes[at] = *value;
            }
        }
        if cuts {
            bytes.truncate(cut.index(bytes.len()));
        }
        for effort in [Effort::ResidentOnly, Effort::MayBlock] {
            let (answer, reply) = room.run(&client.caller, &client.who, &bytes, effort);
            let (answer, reply) = match answer {
                Answer::Suspended(call) if effort == Effort::ResidentOnly => {
                    room.resume((&client.caller, &client.who), (call, reply), &bytes)
                }
                answer => (answer, reply),
            };
            match answer {
                Answer::Replied => {
                    reply.all();
                }
                Answer::Garbage(_) => {}
                other => panic!("{other:?}"),
            }
        }
        // Others are served as before.
        let other = Client::new(&room, b"other", 2);
        prop_assert_eq!(other.does(&[Operation::PutRootFileHandle]).status(), Status::Ok);
    }
}

#[test]
fn what_is_not_spoilt_succeeds() {
    let room = Room::new();
    let client = Client::new(&room, b"client", 1);
    let (state, handle) = client.opened(b"me", b"file", (share_access::BOTH, 0), Some(unchecked()));
    let reply = client.does(&everything(&client, state, &handle));
    assert_eq!(reply.status(), Status::Ok, "{:?}", reply.all());
}
