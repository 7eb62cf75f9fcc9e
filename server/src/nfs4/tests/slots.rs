//! Slots: what is sent again is not done again.

use odafs_fabric::sync::atomic::{AtomicUsize, Ordering};

use super::super::fits;
use super::super::run::REPLY_OVERHEAD_BYTES;
use super::acls::raw;
use super::*;
use crate::vfs::{ids, namespace};

#[test]
fn a_repetition_gets_the_first_reply_and_does_nothing() {
    let room = Room::new();
    room.file(b"file", b"data");
    let client = Client::new(&room, b"client", 1);
    let ask = [
        Operation::PutRootFileHandle,
        Operation::Remove(Name(b"file")),
    ];
    let first = client.does(&ask);
    assert_eq!(first.status(), Status::Ok);
    let bytes = client.again(&ask);
    let (_, again) = room.run(&client.caller, &client.who, &bytes, Effort::MayBlock);
    assert_eq!(first.0, again.0);
    assert_eq!(client.does(&ask).status(), Status::NoEnt);
}

#[test]
fn a_compound_that_is_suspended_keeps_its_slot_until_it_is_dropped() {
    let room = Room::new();
    let client = Client::new(&room, b"client", 1);
    let open = client.open(b"me", b"file", (share_access::BOTH, 0), Some(unchecked()));
    let bytes = client.next(&[Operation::PutRootFileHandle, open]);
    for _ in 0..2 {
        let suspended = room.suspended(&client, &bytes);
        for effort in [Effort::ResidentOnly, Effort::MayBlock] {
            let (_, again) = room.run(&client.caller, &client.who, &bytes, effort);
            assert_eq!(again.status(), Status::Delay);
        }
        drop(suspended);
    }
    let (answer, reply) = room.resume(
        (&client.caller, &client.who),
        room.suspended(&client, &bytes),
        &bytes,
    );
    assert!(matches!(answer, Answer::Replied), "{answer:?}");
    assert_eq!(reply.status(), Status::Ok, "{:?}", reply.all());
    let (_, again) = room.run(&client.caller, &client.who, &bytes, Effort::ResidentOnly);
    assert_eq!(again.0, reply.0);
}

#[test]
fn compounds_begin_with_a_sequence_but_for_those_that_need_none() {
    let room = Room::new();
    let client = Client::new(&room, b"client", 1);
    let root = Operation::PutRootFileHandle;
    assert_eq!(
        client.call(1, std::slice::from_ref(&root)).status(),
        Status::OpNotInSession
    );
    let destroy = Operation::DestroySession([9; 16]);
    assert_eq!(
        client.call(1, std::slice::from_ref(&destroy)).status(),
        Status::BadSession
    );
    assert_eq!(client.call(1, &[destroy, root]).status(), Status::NotOnlyOp);
    let sequence = Operation::Sequence(SequenceArgs {
        session: client.session,
        sequence: 1,
        slot: 1,
        highest_slot: 1,
        cache: false,
    });
    assert_eq!(
        client.call(1, &[sequence.clone(), sequence]).status(),
        Status::SequencePos
    );
    assert_eq!(client.call(1, &[]).status(), Status::Ok);
}

#[test]
fn minor_versions_that_are_not_served_are_refused() {
    let room = Room::new();
    let client = Client::unknown(&room, 1);
    let reply = client.call(3, &[Operation::PutRootFileHandle]);
    assert_eq!(reply.status(), Status::MinorVersMismatch);
    assert!(reply.all().is_empty());
}

#[test]
fn a_reply_that_is_too_big_to_be_kept_is_refused() {
    let room = Room::new();
    room.file(b"file", &[7; 8192]);
    let client = Client::new(&room, b"client", 1);
    let (state, handle) = client.opened(b"me", b"file", (share_access::READ, 0), None);
    let reply = client.does(&[put(&handle), read(state, 0, 8192)]);
    assert_eq!(reply.status(), Status::RepTooBigToCache);
}

#[test]
fn leases_that_are_over_leave_nothing() {
    let room = Room::new();
    let client = Client::new(&room, b"client", 1);
    client.opened(b"me", b"file", (share_access::BOTH, 0), Some(unchecked()));
    let day = Nanos::from_secs(48 * 3600);
    room.nfs.tick(odafs_fabric::clock::awake() + day);
    assert_eq!(room.nfs.state.lock().counts(), [0; 4]);
    let reply = client.does(&[Operation::PutRootFileHandle]);
    assert_eq!(reply.status(), Status::BadSession);
}

/// The store acts for callers by switching the ids of its thread; here it says so and is refused, as on a thread that polls
/// a device.
#[test]
fn what_a_thread_that_acts_for_nobody_was_refused_is_kept_in_no_slot() {
    let room = Room::new();
    room.file(b"file", b"data");
    let client = Client::new(&room, b"client", 1);
    let bytes = client.next(&[
        Operation::PutRootFileHandle,
        Operation::Lookup(Name(b"file")),
    ]);
    let (answer, so_far) = std::thread::scope(|scope| {
        let polls = scope.spawn(|| {
            ids::keep();
            assert!(ids::must_be_kept());
            room.run(&client.caller, &client.who, &bytes, Effort::ResidentOnly)
        });
        polls.join().expect("no panic")
    });
    let Answer::Suspended(call) = answer else {
        panic!("{answer:?}");
    };
    let (_, reply) = room.resume((&client.caller, &client.who), (call, so_far), &bytes);
    assert_eq!(reply.status(), Status::Ok, "{:?}", reply.all());
    assert_eq!(reply.all().len(), 3);
}

#[test]
fn a_link_that_is_too_long_for_the_reply_leaves_nothing_to_place() {
    let room = Room::new();
    let mut client = Client::new(&room, b"client", 1);
    let target = [b'x'; 3000];
    let link = Operation::Create(CreateArgs {
        kind: CreateType::Symlink(Payload(&target)),
        name: Name(b"link"),
        attributes: RawAttributes::default(),
    });
    let made = client.does(&[Operation::PutRootFileHandle, link]);
    assert_eq!(made.status(), Status::Ok, "{:?}", made.all());
    let mut reads = |placement: u32, reply_bytes_max: u32| {
        client.caller.reply_bytes_max = reply_bytes_max;
        client.caller.placements = Placements::one(placement);
        let bytes = client.next(&[
            Operation::PutRootFileHandle,
            Operation::Lookup(Name(b"link")),
            Operation::ReadLink,
        ]);
        room.run(&client.caller, &client.who, &bytes, Effort::MayBlock)
    };
    // With its target the result would not fit.
    let (answer, reply) = reads(3000, 1024);
    assert!(matches!(&answer, Answer::Placed(placed) if placed.bytes() == 3000));
    let fits = (reply.0.len() + REPLY_OVERHEAD_BYTES) as u32;
    assert!(matches!(reads(3000, fits).0, Answer::Placed(_)));
    // It does not fit without it either, or the target does not fit where it belongs.
    for (placement, room) in [(3000, fits - 4), (2999, 1024)] {
        let (answer, reply) = reads(placement, room);
        assert!(matches!(answer, Answer::Replied), "{answer:?}");
        assert_eq!(reply.status(), Status::RepTooBig);
    }
}

#[test]
fn an_open_whose_result_does_not_fit_makes_nothing() {
    let room = Room::new();
    room.file(b"file", &[7; 4096]);
    let mut client = Client::new(&room, b"client", 1);
    let opens = || {
        let out = room.text();
        let line = out
            .lines()
            .find_map(|l| l.strip_prefix("odafs_nfs4_opens "));
        line.expect("the gauge").to_owned()
    };
    let made = |name| {
        let export = &room.world.export;
        namespace::lookup(export, &owner(), export.root(), name).is_ok()
    };
    let share = (share_access::BOTH, 0);
    let open = |client: &Client<'_>, name| client.open(b"me", name, share, Some(unchecked()));
    let root = || Operation::PutRootFileHandle;
    let fits = client.does(&[root(), open(&client, b"first")]);
    assert_eq!(fits.status(), Status::Ok);
    assert_eq!(opens(), "1");
    // Too long for the transport.
    client.caller.reply_bytes_max = fits.0.len() as u32 + 64 - 8;
    let reply = client.does(&[root(), open(&client, b"second")]);
    assert_eq!(reply.status(), Status::RepTooBig);
    assert!(!made(b"second"));
    assert_eq!(opens(), "1");
    // Too long for the slot, with what comes before.
    client.caller.reply_bytes_max = 2 << 20;
    let find = Operation::Lookup(Name(b"file"));
    let read = read(StateId::ANONYMOUS, 0, 3900);
    let reply = client.does(&[root(), find, read, root(), open(&client, b"third")]);
    assert_eq!(reply.status(), Status::RepTooBigToCache);
    assert!(!made(b"third"));
    assert_eq!(opens(), "1");
    // Nor is a lock taken.
    let (state, handle) = client.opened(b"me", b"first", share, None);
    let lock = Operation::Lock(LockArgs {
        kind: LockType::Write,
        reclaim: false,
        offset: 0,
        length: 10,
        locker: Locker::New(OpenToLockOwner {
            open_sequence: 0,
            open: state,
            lock_sequence: 0,
            owner: client.owner(b"o"),
        }),
    });
    let put = put(&handle);
    let short = client.does(std::slice::from_ref(&put));
    client.caller.reply_bytes_max = short.0.len() as u32 + 64 + 20;
    let reply = client.does(&[put.clone(), lock.clone()]);
    assert_eq!(reply.status(), Status::RepTooBig);
    let out = room.text();
    assert!(out.contains("\nodafs_nfs4_locks 0\n"));
    client.caller.reply_bytes_max += 4;
    assert_eq!(client.does(&[put, lock]).status(), Status::Ok);
}

/// The store fails in a way that nobody foresaw, when what comes before has taken effect.
#[test]
fn a_compound_that_panicked_does_not_run_again() {
    let syncs = AtomicUsize::new(0);
    // The first is that of the directory from which a name was taken.
    let second = move || assert_ne!(syncs.fetch_add(1, Ordering::Relaxed), 1, "on purpose");
    let world = World::before_syncs(256, second);
    let room = Room::over(world, Records::none(), LEASE);
    room.file(b"file", b"data");
    let client = Client::new(&room, b"client", 1);
    let (state, _) = client.opened(b"me", b"file", (share_access::BOTH, 0), None);
    room.file(b"other", b"data");
    let ask = [
        Operation::PutRootFileHandle,
        Operation::Remove(Name(b"other")),
        Operation::Lookup(Name(b"file")),
        write(state, 0, Stable::FileSync, b"new"),
    ];
    let bytes = client.next(&ask);
    let run = || room.run(&client.caller, &client.who, &bytes, Effort::MayBlock);
    assert!(std::panic::catch_unwind(std::panic::AssertUnwindSafe(run)).is_err());
    room.file(b"other", b"another one");
    for _ in 0..2 {
        let (_, reply) = room.run(&client.caller, &client.who, &bytes, Effort::MayBlock);
        assert_eq!(reply.status(), Status::ServerFault);
        let all = reply.all();
        let [
            OperationResult::Sequence(Ok(sequence)),
            OperationResult::PutRootFileHandle(Err(Status::ServerFault)),
        ] = &all[..]
        else {
            panic!("{all:?}");
        };
        assert_eq!(sequence.sequence, client.sequence.get());
    }
    let find = Operation::Lookup(Name(b"other"));
    let found = client.does(&[Operation::PutRootFileHandle, find]);
    assert_eq!(found.status(), Status::Ok, "{:?}", found.all());
    // The lease goes on.
    room.nfs.tick(odafs_fabric::clock::awake());
    assert_eq!(room.nfs.state.lock().counts()[..2], [1, 1]);
}

#[test]
fn a_change_whose_result_does_not_fit_is_not_made() {
    let room = Room::new();
    for name in [&b"file"[..], b"other", b"third"] {
        room.file(name, b"data");
    }
    let mut client = Client::new(&room, b"client", 1);
    let (state, handle) = client.opened(b"me", b"file", (share_access::BOTH, 0), None);
    let root = || Operation::PutRootFileHandle;
    let put = || put(&handle);
    let mode = SetAttributes {
        mode: Some(0o640),
        ..SetAttributes::default()
    };
    let range = RangeArgs {
        state,
        offset: 0,
        length: 2,
    };
    let changes = [
        (
            root(),
            Operation::Create(CreateArgs {
                kind: CreateType::Directory,
                name: Name(b"made"),
                attributes: RawAttributes::default(),
            }),
        ),
        (root(), Operation::Link(Name(b"linked"))),
        (root(), Operation::Remove(Name(b"other"))),
        (
            root(),
            Operation::Rename(RenameArgs {
                from: Name(b"third"),
                to: Name(b"renamed"),
            }),
        ),
        (
            put(),
            Operation::SetAttributes(SetAttributesArgs {
                state: StateId::ANONYMOUS,
                attributes: raw(&mode),
            }),
        ),
        (put(), write(state, 0, Stable::FileSync, b"new")),
        (put(), Operation::Deallocate(range)),
    ];
    let looker = Client::new(&room, b"looker", 2);
    let look = || {
        let asked = Bitmap::of(&[Attribute::Change]);
        let get = || get(asked);
        let reply = looker.does(&[root(), get(), put(), get()]);
        format!("{:?}", &reply.all()[1..])
    };
    for (at, change) in changes {
        let code = change.code();
        // LINK takes the file, and RENAME the root, from the saved handle.
        let before = match code {
            OpCode::Link => [put(), Operation::SaveFileHandle, root()],
            OpCode::Rename => [root(), Operation::SaveFileHandle, at],
            _ => [at.clone(), Operation::SaveFileHandle, at],
        };
        let without = client.does(&before).0.len();
        let longest = fits::of_change(&change, 0).expect("a change");
        let was = look();
        client.caller.reply_bytes_max = (without + REPLY_OVERHEAD_BYTES + longest - 4) as u32;
        let all = [&before[..], &[change]].concat();
        let refused = client.does(&all);
        assert_eq!(refused.status(), Status::RepTooBig, "{code:?}");
        assert_eq!(look(), was, "{code:?}");
        client.caller.reply_bytes_max += 4;
        let done = client.does(&all);
        assert_eq!(done.status(), Status::Ok, "{code:?}: {:?}", done.all());
        assert!(done.0.len() <= without + longest, "{code:?}");
        client.caller.reply_bytes_max = 2 << 20;
    }
}
