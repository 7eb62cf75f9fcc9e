//! Minor version 0, which has no sessions.

use std::sync::mpsc;

use odafs_fabric::sync::Mutex;
use odafs_fabric::sync::atomic::{AtomicBool, Ordering};

use super::*;

/// SETCLIENTID of a client that wants to be called at this address.
fn set_client_id<'a>(name: &'a [u8], address: &'a [u8]) -> Operation<'a> {
    Operation::SetClientId(SetClientIdArgs {
        client: ClientOwner {
            verifier: [1; 8],
            id: Opaque(name),
        },
        callback: CallbackClient {
            program: 0x4000_0000,
            address: NetAddress {
                network: Opaque(b"tcp"),
                address: Opaque(address),
            },
        },
        callback_ident: 1,
    })
}

/// A client of minor version 0 that is confirmed.
pub(super) fn confirmed<'r>(room: &'r Room, name: &[u8]) -> Client<'r> {
    let mut client = Client::unknown(room, 1);
    let reply = client.call(0, &[set_client_id(name, b"127.0.0.1.0.1")]);
    let confirm = last!(reply, SetClientId);
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
    let reply = client.call(0, &[put(handle), confirm]);
    let state = last!(reply, OpenConfirm);
    (state, handle.to_vec())
}

#[test]
fn who_takes_a_name_in_use_hears_where_its_holder_is() {
    let room = Room::new();
    room.file(b"file", b"data");
    let client = confirmed(&room, b"client");
    opened_and_confirmed(&client, b"file");
    let mut other = Client::unknown(&room, 2);
    other.who = Credential::of(6, 6, &[]);
    let holder = || {
        let reply = other.call(0, &[set_client_id(b"client", b"10.0.0.9.3.4")]);
        let OperationResult::SetClientId(Err(SetClientIdFailed::InUse(holder))) = reply.last()
        else {
            panic!("{:?}", reply.all());
        };
        (holder.network.0.to_vec(), holder.address.0.to_vec())
    };
    assert_eq!(holder(), (b"tcp".to_vec(), b"127.0.0.1.0.1".to_vec()));
    // The holder wants to be called elsewhere, and then at what is no address.
    for (address, told) in [
        (&b"10.0.0.1.3.4"[..], &b"10.0.0.1.3.4"[..]),
        (&[b'1'; 65], b""),
    ] {
        client.call(0, &[set_client_id(b"client", address)]);
        assert_eq!(holder().1, told);
    }
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
    let reply = client.call(0, &[put(handle), confirm]);
    let state = last!(reply, OpenConfirm);
    let write = |offset| write(state, offset, Stable::Unstable, b"data");
    let reply = client.call(0, &[put(handle), write(0), write(4)]);
    assert_eq!(reply.status(), Status::Ok, "{:?}", reply.all());
    let close = |sequence| close(state, sequence);
    let reply = client.call(0, &[put(handle), close(9)]);
    assert_eq!(reply.status(), Status::BadSeqId);
    let reply = client.call(0, &[put(handle), close(7)]);
    assert_eq!(reply.status(), Status::Ok);
    let again = client.call(0, &[put(handle), close(7)]);
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
    let close = close(opened.state, 0);
    let reply = client.call(0, &[put(handle), close]);
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

/// OPEN of a name in the root, which it makes, by this owner with this number.
fn open_numbered<'a>(client: &Client<'_>, name: &'a [u8], sequence: u32) -> [Operation<'a>; 2] {
    let Operation::Open(open) =
        client.open(b"me", name, (share_access::BOTH, 0), Some(unchecked()))
    else {
        panic!();
    };
    let open = Operation::Open(OpenArgs { sequence, ..open });
    [Operation::PutRootFileHandle, open]
}

/// A client could not tell whether a refusal was counted.
#[test]
fn operations_wait_for_another_of_their_owner() {
    let (began, begins) = mpsc::channel();
    let (release, released) = mpsc::channel::<()>();
    let waits = Arc::new(AtomicBool::new(false));
    let (at_sync, released) = (Arc::clone(&waits), Mutex::new(released));
    let world = World::before_syncs(256, move || {
        if at_sync.swap(false, Ordering::SeqCst) {
            began.send(()).expect("a test");
            released.lock().recv().expect("a test");
        }
    });
    let room = Room::over(world, Records::none(), LEASE);
    let client = confirmed(&room, b"client");
    let one = open_numbered(&client, b"one", 1);
    let two = open_numbered(&client, b"two", 2);
    let three = open_numbered(&client, b"three", 3);
    let run = |operations: &[Operation<'_>]| {
        let bytes = compound(0, operations);
        let (_, reply) = room.run(&client.caller, &client.who, &bytes, Effort::MayBlock);
        reply
    };
    // Repetitions; and one, beside the next.
    for (first, others) in [(&one, [&one, &one]), (&two, [&two, &three])] {
        waits.store(true, Ordering::SeqCst);
        std::thread::scope(|scope| {
            let first = scope.spawn(|| run(first));
            begins.recv().expect("it waits");
            let others = others.map(|other| scope.spawn(|| run(other)));
            let waiting = || room.nfs.turn_queue.waiting.load(Ordering::SeqCst);
            while waiting() < 2 && !others.iter().any(|other| other.is_finished()) {
                std::thread::yield_now();
            }
            release.send(()).expect("it waits");
            let first = first.join().expect("no panic");
            assert_eq!(first.status(), Status::Ok, "{:?}", first.all());
            for other in others {
                let other = other.join().expect("no panic");
                assert_eq!(other.status(), Status::Ok, "{:?}", other.all());
            }
        });
    }
}

#[test]
fn a_lock_that_is_refused_counts_for_an_owner_that_is_known() {
    let room = Room::new();
    room.file(b"file", b"data");
    let client = confirmed(&room, b"client");
    let (state, handle) = opened_and_confirmed(&client, b"file");
    let does = |operation| client.call(0, &[put(&handle), operation]);
    let asked = |open, [open_sequence, lock_sequence]: [u32; 2], offset| {
        Operation::Lock(LockArgs {
            kind: LockType::Write,
            reclaim: false,
            offset,
            length: 1,
            locker: Locker::New(OpenToLockOwner {
                open_sequence,
                open,
                lock_sequence,
                owner: client.owner(b"locker"),
            }),
        })
    };
    let lock = |open, sequences, offset| does(asked(open, sequences, offset));
    assert_eq!(lock(state, [3, 7], 0).status(), Status::Ok);
    let close = Operation::Close(CloseArgs { sequence: 4, state });
    assert_eq!(does(close).status(), Status::Ok);
    // The server remembers the owner, which has nothing any more.
    let [root, open] = open_numbered(&client, b"file", 5);
    let reply = client.call(0, &[root, open]);
    let OperationResult::Open(Ok(opened)) = reply.last() else {
        panic!("{:?}", reply.last());
    };
    let other = Client::new(&room, b"other", 2);
    let (others, _) = other.opened(b"me", b"file", (share_access::BOTH, 0), None);
    let locker = Locker::New(OpenToLockOwner {
        open_sequence: 0,
        open: others,
        lock_sequence: 0,
        owner: other.owner(b"locker"),
    });
    let taken = Operation::Lock(LockArgs {
        kind: LockType::Write,
        reclaim: false,
        offset: 0,
        length: 1,
        locker,
    });
    assert_eq!(other.does(&[put(&handle), taken]).status(), Status::Ok);
    assert_eq!(lock(opened.state, [6, 8], 0).status(), Status::Denied);
    assert_eq!(lock(opened.state, [7, 8], 1).status(), Status::BadSeqId);
    assert_eq!(lock(opened.state, [7, 9], 1).status(), Status::Ok);
    // Before anybody looks at what the client holds.
    let on_directory = asked(opened.state, [8, 10], 1);
    let refused = client.call(0, &[Operation::PutRootFileHandle, on_directory]);
    assert_eq!(refused.status(), Status::IsDir);
    assert_eq!(lock(opened.state, [9, 10], 1).status(), Status::BadSeqId);
    assert_eq!(lock(opened.state, [9, 11], 1).status(), Status::Ok);
}

#[test]
fn a_lock_counts_for_no_owner_of_another_client() {
    let room = Room::new();
    room.file(b"file", b"data");
    let (client, other) = (confirmed(&room, b"client"), confirmed(&room, b"other"));
    let (state, handle) = opened_and_confirmed(&client, b"file");
    let (others, _) = opened_and_confirmed(&other, b"file");
    let lock = |open, lock_sequence, length| {
        Operation::Lock(LockArgs {
            kind: LockType::Write,
            reclaim: false,
            offset: 0,
            length,
            locker: Locker::New(OpenToLockOwner {
                open_sequence: 3,
                open,
                lock_sequence,
                owner: client.owner(b"locker"),
            }),
        })
    };
    let reply = client.call(0, &[put(&handle), lock(state, 7, 1)]);
    let locked = last!(reply, Lock);
    // It names the first client's lock owner, and is refused before anybody looks whose that is.
    let refused = other.call(0, &[put(&handle), lock(others, 8, 0)]);
    assert_eq!(refused.status(), Status::Inval);
    let unlock = Operation::Unlock(UnlockArgs {
        kind: LockType::Write,
        sequence: 8,
        lock: locked,
        offset: 0,
        length: 1,
    });
    let reply = client.call(0, &[put(&handle), unlock]);
    assert_eq!(reply.status(), Status::Ok);
}
