//! Calls of sizes and numbers that no client needs.

use super::callbacks::hearing;
use super::delegations::{BOTH, READ, open_op, opens};
use super::*;

/// A COMPOUND with these words behind the number of its operations.
fn words(minor: u32, operations: u32, words: &[u32]) -> Vec<u8> {
    let mut bytes = Vec::new();
    let mut w = Writer::new(&mut bytes);
    w.opaque(b"");
    w.words([minor, operations]);
    for word in words {
        w.u32(*word);
    }
    bytes
}

impl Client<'_> {
    fn sends(&self, bytes: &[u8]) -> (Answer, Reply) {
        let (room, may) = (self.room, Effort::MayBlock);
        room.run(&self.caller, &self.who, bytes, may)
    }
}

#[test]
fn of_a_thousand_operations_as_many_are_executed_as_there_may_be() {
    let room = Room::new();
    let client = Client::new(&room, b"client", 1);
    let thousand = vec![Operation::PutRootFileHandle; 1000];
    let reply = client.call(0, &thousand);
    assert_eq!(reply.status(), Status::Resource);
    assert!(reply.all().len() <= OPERATIONS_MAX as usize + 1);
    let reply = client.does(&thousand);
    assert_eq!(reply.status(), Status::TooManyOps);
    assert_eq!(reply.all().len(), 1);
    let sequence = client.sequence.get();
    // Nothing was executed: the number is still to come.
    client.sequence.set(sequence - 1);
    assert_eq!(client.does(&thousand[..2]).status(), Status::Ok);
    let exchange = Operation::DestroySession(client.session);
    let many = [&[exchange][..], &thousand].concat();
    assert_eq!(client.call(1, &many).status(), Status::NotOnlyOp);
    assert_eq!(client.does(&thousand[..2]).status(), Status::Ok);
}

#[test]
fn what_is_announced_and_not_there_ends_the_compound() {
    let room = Room::new();
    let client = Client::new(&room, b"client", 1);
    const GIB: u32 = 1 << 30;
    let root = OpCode::PutRootFileHandle.code();
    // 4,294,967,295 operations, of which there is one.
    let (answer, reply) = client.sends(&words(0, u32::MAX, &[root]));
    assert!(matches!(answer, Answer::Replied), "{answer:?}");
    assert_eq!(reply.status(), Status::BadXdr);
    assert_eq!(reply.all().len(), 2);
    let state = [0; 4];
    let write = [&[OpCode::Write.code()], &state[..], &[0, 0, 2, GIB, 7, 7]].concat();
    let of = |code: OpCode, rest: &[u32]| [&[code.code()], rest].concat();
    for announced in [
        write,
        of(OpCode::PutFileHandle, &[GIB, 7]),
        of(OpCode::Lookup, &[u32::MAX, 7]),
        of(OpCode::GetAttributes, &[u32::MAX, 7, 7]),
        of(OpCode::ReadDir, &[0, 0, 0, 0, 100, 100, GIB, 7]),
        of(OpCode::Verify, &[1, 7, GIB, 7]),
        of(OpCode::SetAttributes, &[0, 0, 0, 0, 0, u32::MAX]),
        of(OpCode::SetClientId, &[7, 7, GIB, 7]),
    ] {
        let all = [&[root], &announced[..]].concat();
        let (answer, reply) = client.sends(&words(0, 2, &all));
        assert!(matches!(answer, Answer::Replied), "{answer:?}");
        assert_eq!(reply.status(), Status::BadXdr, "{announced:?}");
        assert_eq!(reply.all().len(), 2);
    }
    let mut tag = Vec::new();
    Writer::new(&mut tag).words([GIB, 0, 0]);
    let (answer, _) = client.sends(&tag);
    assert!(matches!(answer, Answer::Garbage(_)), "{answer:?}");
}

#[test]
fn all_attributes_that_can_be_named_are_asked_for() {
    let room = Room::new();
    room.file(b"file", b"data");
    let client = Client::new(&room, b"client", 1);
    let all = (0..256).fold(Bitmap::EMPTY, |all, number| all.with(number));
    let readdir = |asked, max_count| {
        Operation::ReadDir(ReadDirArgs {
            cookie: 0,
            verifier: [0; 8],
            directory_count: u32::MAX,
            max_count,
            asked,
        })
    };
    let get = |asked| get(asked);
    let root = || Operation::PutRootFileHandle;
    for asks in [get(all), readdir(all, 4000)] {
        assert_eq!(client.does(&[root(), asks]).status(), Status::Inval);
    }
    // Those that nobody knows are left out. An error of reading attributes is one too, if that is asked for.
    let asked = all.without(&WRITE_ONLY);
    assert!(asked.contains(Attribute::ReadAttributeError));
    let reply = client.does(&[root(), get(asked)]);
    let raw = last!(reply, GetAttributes);
    assert!(raw.mask.without(&READABLE).is_empty());
    assert!(raw.mask.contains(Attribute::Size) && !raw.mask.has(255));
    let reply = client.does(&[root(), readdir(asked, 3000)]);
    let listed = last!(reply, ReadDir);
    assert_eq!(listed.entries.len(), 1);
    let reply = client.does(&[root(), readdir(asked, 10)]);
    assert_eq!(reply.status(), Status::TooSmall);
}

#[test]
fn slots_and_sessions_that_are_not_there_are_refused_and_cost_nothing() {
    let room = Room::new();
    let client = Client::new(&room, b"client", 1);
    let ask = |session, slot, sequence, highest_slot| {
        let sequence = Operation::Sequence(SequenceArgs {
            session,
            sequence,
            slot,
            highest_slot,
            cache: false,
        });
        let reply = client.call(2, &[sequence, Operation::PutRootFileHandle]);
        (reply.status(), reply.all().len())
    };
    let ours = client.session;
    assert_eq!(ask(ours, 8, 1, 8), (Status::BadSlot, 1));
    assert_eq!(ask(ours, u32::MAX, 1, 0), (Status::BadSlot, 1));
    assert_eq!(ask(ours, 1, 1, u32::MAX), (Status::BadHighSlot, 1));
    for false_number in [0, 2, 77, u32::MAX] {
        assert_eq!(ask(ours, 1, false_number, 1), (Status::SeqMisordered, 1));
    }
    assert_eq!(ask([9; 16], 0, 1, 0), (Status::BadSession, 1));
    assert_eq!(ask(ours, 1, 1, 1), (Status::Ok, 2));
    // A thousand sessions of one client: as many as it may have.
    let mut made = 1;
    for number in 0..1000 {
        let create = Operation::CreateSession(CreateSessionArgs {
            client_id: client.id,
            sequence: 2 + made - 1,
            flags: 0,
            fore: CHANNEL,
            back: CHANNEL,
            callback_program: 1,
            callback_security: List(vec![]),
        });
        let reply = client.call(1, &[create]);
        match reply.last() {
            OperationResult::CreateSession(Ok(_)) => made += 1,
            OperationResult::CreateSession(Err(status)) => assert_eq!(status, Status::NoSpc),
            other => panic!("{number}: {other:?}"),
        }
    }
    assert_eq!(made, 16);
    assert_eq!(room.nfs.state.lock().counts()[..2], [1, 16]);
    // The session goes under the compound that runs in it.
    let reply = client.does(&[
        Operation::DestroySession(ours),
        Operation::PutRootFileHandle,
    ]);
    assert_eq!(reply.status(), Status::Ok);
    assert_eq!(ask(ours, 1, 2, 1), (Status::BadSession, 1));
}

#[test]
fn who_answers_no_callback_holds_up_all_that_it_has_for_one_lease() {
    let room = Room::new();
    let names = Vec::from_iter((0..100).map(|number| format!("f{number}").into_bytes()));
    for name in &names {
        room.file(name, b"data");
    }
    let (silent, mailbox) = hearing(&room, b"silent", 1);
    for name in &names {
        assert!(opens(&silent, name, READ).delegation.is_ok());
    }
    let other = Client::new(&room, b"other", 2);
    let writes = |name: &[u8]| {
        let open = open_op(&other, BOTH, Claim::Null(Name(name)));
        other.does(&[Operation::PutRootFileHandle, open]).status()
    };
    for name in &names {
        assert_eq!(writes(name), Status::Delay);
    }
    // One callback is under way; the others are not waited for one after the other.
    mailbox.only();
    assert!(mailbox.is_empty());
    // Meanwhile whoever does not want these files is served.
    let (open, handle) = other.opened(b"me", b"free", (BOTH, 0), Some(unchecked()));
    let write = write(open, 0, Stable::FileSync, b"data");
    assert_eq!(other.does(&[put(&handle), write]).status(), Status::Ok);
    let now = odafs_fabric::clock::awake() + LEASE + Nanos::from_secs(1);
    room.nfs.tick(now);
    for name in &names {
        assert_eq!(writes(name), Status::Ok);
    }
}
