//! Minor version 0, which has no sessions.

use odafs_fabric::sync::atomic::{AtomicBool, Ordering};

use super::*;

/// A client of minor version 0 that is confirmed.
pub(super) fn confirmed<'r>(room: &'r Room, name: &[u8]) -> Client<'r> {
    let mut client = Client::unknown(room, 1);
    let set = Operation::SetClientId(SetClientIdArgs {
        client: ClientOwner {
            verifier: [1; 8],
            id: Opaque(name),
        },
        callback: CallbackClient {
            program: 0x4000_0000,
            address: NetAddress {
                network: Opaque(b"tcp"),
                address: Opaque(b"127.0.0.1.0.1"),
            },
        },
        callback_ident: 1,
    });
    let reply = client.call(0, &[set]);
    let OperationResult::SetClientId(Ok(confirm)) = reply.last() else {
        panic!("{:?}", reply.last());
    };
    let reply = client.call(0, &[Operation::SetClientIdConfirm(confirm)]);
    assert_eq!(reply.status(), Status::Ok);
    client.id = confirm.client_id;
    client
}

/// Opens a name in the root, with the numbers 1 and 2 of the owner: the stateid and the handle.
pub(super) fn opened_and_confirmed(client: &Client<'_>, name: &[u8]) -> (StateId, Vec<u8>) {
    let Operation::Open(open) = client.open(b"me", name, (share_access::BOTH, 0), None) else {
        panic!();
    };
    let open = Operation::Open(OpenArgs {
        sequence: 1,
        ..open
    });
    let find = [Operation::PutRootFileHandle, open, Operation::GetFileHandle];
    let reply = client.call(0, &find);
    let all = reply.all();
    let (opened, handle) = opened(&all);
    let confirm = Operation::OpenConfirm(OpenConfirmArgs {
        state: opened.state,
        sequence: 2,
    });
    let reply = client.call(0, &[Operation::PutFileHandle(FileHandle(handle)), confirm]);
    let OperationResult::OpenConfirm(Ok(state)) = reply.last() else {
        panic!("{:?}", reply.last());
    };
    (state, handle.to_vec())
}

#[test]
fn an_owner_confirms_its_first_open_and_repetitions_are_answered_again() {
    let room = Room::new();
    let client = confirmed(&room, b"client");
    let Operation::Open(open) =
        client.open(b"me", b"file", (share_access::BOTH, 0), Some(unchecked()))
    else {
        panic!();
    };
    let open = Operation::Open(OpenArgs {
        sequence: 5,
        ..open
    });
    let ask = [Operation::PutRootFileHandle, open, Operation::GetFileHandle];
    let reply = client.call(0, &ask);
    let all = reply.all();
    let (opened, handle) = opened(&all);
    assert_ne!(opened.flags & open_result::CONFIRM, 0);
    assert_eq!(client.call(0, &ask).0, reply.0, "the same again");
    let confirm = Operation::OpenConfirm(OpenConfirmArgs {
        state: opened.state,
        sequence: 6,
    });
    let reply = client.call(0, &[Operation::PutFileHandle(FileHandle(handle)), confirm]);
    let OperationResult::OpenConfirm(Ok(state)) = reply.last() else {
        panic!("{:?}", reply.last());
    };
    let write = |offset| {
        Operation::Write(WriteArgs {
            state,
            offset,
            stable: Stable::Unstable,
            data: Payload(b"data"),
        })
    };
    let reply = client.call(
        0,
        &[
            Operation::PutFileHandle(FileHandle(handle)),
            write(0),
            write(4),
        ],
    );
    assert_eq!(reply.status(), Status::Ok, "{:?}", reply.all());
    let close = |sequence| Operation::Close(CloseArgs { sequence, state });
    let reply = client.call(0, &[Operation::PutFileHandle(FileHandle(handle)), close(9)]);
    assert_eq!(reply.status(), Status::BadSeqId);
    let reply = client.call(0, &[Operation::PutFileHandle(FileHandle(handle)), close(7)]);
    assert_eq!(reply.status(), Status::Ok);
    let again = client.call(0, &[Operation::PutFileHandle(FileHandle(handle)), close(7)]);
    assert_eq!(again.0, reply.0);
}

#[test]
fn a_number_that_another_operation_had_is_no_repetition() {
    let room = Room::new();
    let client = confirmed(&room, b"client");
    let open = client.open(b"me", b"file", (share_access::BOTH, 0), Some(unchecked()));
    let ask = [Operation::PutRootFileHandle, open, Operation::GetFileHandle];
    let reply = client.call(0, &ask);
    let all = reply.all();
    let (opened, handle) = opened(&all);
    let close = Operation::Close(CloseArgs {
        sequence: 0,
        state: opened.state,
    });
    let reply = client.call(0, &[Operation::PutFileHandle(FileHandle(handle)), close]);
    assert_eq!(reply.status(), Status::BadSeqId);
    assert!(matches!(
        reply.last(),
        OperationResult::Close(Err(Status::BadSeqId))
    ));
}

#[test]
fn what_belongs_to_later_minor_versions_is_no_operation() {
    let room = Room::new();
    let client = Client::unknown(&room, 1);
    let reply = client.call(0, &[Operation::DestroyClientId(1)]);
    assert_eq!(reply.status(), Status::OpIllegal);
    let reply = client.call(0, &[Operation::GetFileHandle]);
    assert_eq!(reply.status(), Status::NoFileHandle);
    let reply = client.call(0, &[Operation::RestoreFileHandle]);
    assert_eq!(reply.status(), Status::RestoreFh);
}

#[test]
fn an_operation_that_panics_gives_its_owners_turn_back() {
    let panics = Arc::new(AtomicBool::new(false));
    let at_sync = Arc::clone(&panics);
    let world = World::before_syncs(256, move || {
        assert!(!at_sync.load(Ordering::Relaxed), "on purpose");
    });
    let room = Room::over(world, Records::none(), LEASE);
    let client = confirmed(&room, b"client");
    let ask = |name, sequence| {
        let Operation::Open(open) =
            client.open(b"me", name, (share_access::BOTH, 0), Some(unchecked()))
        else {
            panic!();
        };
        let open = Operation::Open(OpenArgs { sequence, ..open });
        client.call(0, &[Operation::PutRootFileHandle, open])
    };
    panics.store(true, Ordering::Relaxed);
    let run = std::panic::AssertUnwindSafe(|| ask(b"one", 1));
    assert!(std::panic::catch_unwind(run).is_err());
    panics.store(false, Ordering::Relaxed);
    // Nobody knows what it has done, so it does not run again.
    assert_eq!(ask(b"one", 1).status(), Status::ServerFault);
    assert_eq!(ask(b"two", 2).status(), Status::Ok);
}
