//! Minor version 0, which has no sessions.

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
