//! Delegations: who gets one, and what asks for it back.

use super::callbacks::{Mailbox, answers, called_back, hearing, listening, status_result};
use super::*;
use crate::vfs::write::{Stable as VfsStable, write as write_pages};
use crate::vfs::{self, namespace};

pub(super) const READ: u32 = share_access::READ;
const WRITE: u32 = share_access::WRITE;
pub(super) const BOTH: u32 = share_access::BOTH;

/// What an OPEN gave: the open, the delegation, the file handle.
pub(super) struct Given {
    pub open: StateId,
    pub delegation: Result<StateId, Option<WhyNone>>,
    pub handle: Vec<u8>,
}

pub(super) fn opens(client: &Client<'_>, name: &[u8], access: u32) -> Given {
    claims(
        client,
        access,
        Operation::PutRootFileHandle,
        Claim::Null(Name(name)),
    )
}

pub(super) fn claims(
    client: &Client<'_>,
    access: u32,
    at: Operation<'_>,
    claim: Claim<'_>,
) -> Given {
    let reply = client.does(&[at, open_op(client, access, claim), Operation::GetFileHandle]);
    let all = reply.all();
    let (opened, handle) = opened(&all);
    Given {
        open: opened.state,
        delegation: match &opened.delegation {
            Delegation::Read(read) => {
                assert!(!read.recall);
                Ok(read.state)
            }
            Delegation::Write(write) => {
                assert_eq!(
                    (write.recall, write.space_limit),
                    (false, SpaceLimit::Size(0))
                );
                Ok(write.state)
            }
            Delegation::NoneBecause(why) => Err(Some(*why)),
            Delegation::None => Err(None),
        },
        handle: handle.to_vec(),
    }
}

pub(super) fn open_op<'a>(client: &Client<'_>, access: u32, claim: Claim<'a>) -> Operation<'a> {
    Operation::Open(OpenArgs {
        sequence: 0,
        share_access: access,
        share_deny: 0,
        owner: client.owner(b"me"),
        create: None,
        claim,
    })
}

/// A recall that came: its xid and number, and what is recalled.
pub(super) struct Recall {
    pub xid: u32,
    pub sequence: u32,
    pub state: StateId,
    file: Vec<u8>,
}

pub(super) fn recall(client: &Client<'_>, mailbox: &Mailbox) -> Recall {
    let message = mailbox.only();
    let (xid, sequence, operation) = called_back(&message, 1);
    let CallbackOperation::Recall(recall) = operation else {
        panic!("{operation:?}");
    };
    let calls = &sequence.referring.0[0];
    assert_eq!(calls.session, client.session);
    assert_eq!(calls.calls.0[0].slot, 0);
    assert!(calls.calls.0[0].sequence <= client.sequence.get());
    Recall {
        xid,
        sequence: sequence.sequence,
        state: recall.state,
        file: recall.file.0.to_vec(),
    }
}

/// Answers a recall with this status.
pub(super) fn answer(client: &Client<'_>, recall: &Recall, status: Status) {
    let to = (client.room, client.caller.connection);
    let result = CallbackResult::Recall(status_result(status));
    let call = (recall.xid, recall.sequence);
    answers(to, client.session, call, Ok((status, result)));
}

pub(super) fn gives_back(client: &Client<'_>, given: &Given) -> Status {
    let state = given.delegation.expect("a delegation");
    let give_back = Operation::DelegationReturn(state);
    client.does(&[put(&given.handle), give_back]).status()
}

#[test]
fn who_reads_gets_one_and_says_what_it_wants() {
    let room = Room::new();
    room.file(b"file", b"data");
    let (client, mailbox) = hearing(&room, b"client", 1);
    let why = |access| opens(&client, b"file", access).delegation.unwrap_err();
    assert_eq!(
        why(READ | share_access::WANT_NONE),
        Some(WhyNone::NotWanted)
    );
    assert_eq!(
        why(READ | share_access::WANT_CANCEL),
        Some(WhyNone::Cancelled)
    );
    let unsupported = Some(WhyNone::WriteNotSupportedType);
    assert_eq!(why(READ | share_access::WANT_WRITE), unsupported);
    room.file(b"written", b"data");
    let given = opens(&client, b"written", WRITE | share_access::WANT_ANY);
    assert_eq!(given.delegation, Err(Some(WhyNone::Resource(false))));
    let given = opens(&client, b"written", BOTH | share_access::WANT_READ);
    assert_eq!(given.delegation, Err(Some(WhyNone::Resource(false))));
    assert_eq!(opens(&client, b"written", WRITE).delegation, Err(None));
    let given = opens(&client, b"file", READ);
    let held = given.delegation.expect("a delegation");
    // Its stateid is one to read by, and no other.
    let read = read(held, 0, 9);
    let reply = client.does(&[put(&given.handle), read]);
    let read = last!(reply, Read);
    assert_eq!(read.data.0, b"data");
    let close = close(held, 0);
    let reply = client.does(&[put(&given.handle), close]);
    assert_eq!(reply.status(), Status::BadStateId);
    let test = Operation::TestStateId(TestStateIdArgs {
        states: List(vec![held]),
    });
    let reply = client.does(&[test]);
    let tested = last!(reply, TestStateId);
    assert_eq!(tested.0, [Status::Ok]);
    assert_eq!(gives_back(&client, &given), Status::Ok);
    assert_eq!(gives_back(&client, &given), Status::BadStateId);
    assert!(mailbox.is_empty());
}

#[test]
fn who_hears_nothing_gets_none() {
    let room = Room::new();
    room.file(b"file", b"data");
    let client = Client::new(&room, b"client", 1);
    assert_eq!(opens(&client, b"file", READ).delegation, Err(None));
    let want = READ | share_access::WANT_READ;
    let given = opens(&client, b"file", want);
    assert_eq!(given.delegation, Err(Some(WhyNone::Resource(false))));
}

/// What a client does with the file of a handle.
type Act = fn(&Client<'_>, &[u8]) -> Status;

#[test]
fn whatever_another_changes_waits_until_it_is_returned() {
    let changes: [Act; 6] = [
        |other, _| {
            let open = open_op(other, WRITE, Claim::Null(Name(b"file")));
            other.does(&[Operation::PutRootFileHandle, open]).status()
        },
        |other, handle| {
            let set = Operation::SetAttributes(SetAttributesArgs {
                state: StateId::ANONYMOUS,
                attributes: RawAttributes {
                    mask: Bitmap::of(&[Attribute::Mode]),
                    values: AttributeValues(&[0, 0, 1, 0x80]),
                },
            });
            other.does(&[put(handle), set]).status()
        },
        |other, handle| {
            let write = write(StateId::ANONYMOUS, 0, Stable::Unstable, b"x");
            other.does(&[put(handle), write]).status()
        },
        |other, _| {
            let remove = Operation::Remove(Name(b"file"));
            other.does(&[Operation::PutRootFileHandle, remove]).status()
        },
        |other, _| {
            let root = Operation::PutRootFileHandle;
            let rename = Operation::Rename(RenameArgs {
                from: Name(b"file"),
                to: Name(b"moved"),
            });
            let save = Operation::SaveFileHandle;
            other.does(&[root, save, rename]).status()
        },
        |other, handle| {
            let link = Operation::Link(Name(b"linked"));
            let root = Operation::PutRootFileHandle;
            let save = Operation::SaveFileHandle;
            other.does(&[put(handle), save, root, link]).status()
        },
    ];
    for (number, change) in changes.iter().enumerate() {
        let room = Room::new();
        room.file(b"file", b"data");
        let (holder, mailbox) = hearing(&room, b"holder", 1);
        let other = Client::new(&room, b"other", 2);
        let given = opens(&holder, b"file", READ);
        let held = given.delegation.expect("a delegation");
        // Its own client closes the file, and keeps the delegation.
        let close = close(given.open, 0);
        let reply = holder.does(&[put(&given.handle), close]);
        assert_eq!(reply.status(), Status::Ok);
        assert_eq!(change(&other, &given.handle), Status::Delay, "{number}");
        let told = recall(&holder, &mailbox);
        assert_eq!((told.state, &told.file), (held, &given.handle), "{number}");
        answer(&holder, &told, Status::Ok);
        assert_eq!(change(&other, &given.handle), Status::Delay, "{number}");
        assert!(mailbox.is_empty());
        assert_eq!(gives_back(&holder, &given), Status::Ok);
        assert_eq!(change(&other, &given.handle), Status::Ok, "{number}");
    }
}

#[test]
fn a_write_by_another_protocol_lands_when_the_delegation_is_returned() {
    let room = Room::new();
    let file = room.world.file("file", b"old");
    let (holder, mailbox) = hearing(&room, b"holder", 1);
    let given = opens(&holder, b"file", READ);
    let export = &room.world.export;
    std::thread::scope(|scope| {
        let writer = scope.spawn(|| {
            let who = owner();
            write_pages(export, &who, &file, 0, &b"new"[..], VfsStable::Unstable)
        });
        while mailbox.is_empty() {
            std::thread::yield_now();
        }
        let told = recall(&holder, &mailbox);
        assert_eq!(room.world.read(&file, 0, 3), b"old");
        answer(&holder, &told, Status::Ok);
        assert_eq!(gives_back(&holder, &given), Status::Ok);
        writer.join().expect("no panic").expect("written");
    });
    assert_eq!(room.world.read(&file, 0, 3), b"new");
}

#[test]
fn its_own_client_changes_the_file_unasked() {
    let room = Room::new();
    room.file(b"file", b"data");
    let (holder, mailbox) = hearing(&room, b"holder", 1);
    let given = opens(&holder, b"file", READ);
    assert!(given.delegation.is_ok());
    let set = Operation::SetAttributes(SetAttributesArgs {
        state: StateId::ANONYMOUS,
        attributes: RawAttributes {
            mask: Bitmap::of(&[Attribute::Mode]),
            values: AttributeValues(&[0, 0, 1, 0x80]),
        },
    });
    let reply = holder.does(&[put(&given.handle), set]);
    assert_eq!(reply.status(), Status::Ok);
    let remove = Operation::Remove(Name(b"file"));
    let reply = holder.does(&[Operation::PutRootFileHandle, remove]);
    assert_eq!(reply.status(), Status::Ok);
    assert!(mailbox.is_empty());
    // Of what is gone a delegation can still be returned.
    assert_eq!(gives_back(&holder, &given), Status::Ok);
}

#[test]
fn a_change_from_outside_recalls_at_once() {
    let room = Room::new();
    let file = room.world.file("file", b"data");
    let (holder, mailbox) = hearing(&room, b"holder", 1);
    let given = opens(&holder, b"file", READ);
    room.world.write_outside(&file, b"else");
    room.world.observe();
    let told = recall(&holder, &mailbox);
    assert_eq!(Ok(told.state), given.delegation);
}

#[test]
fn a_silent_client_loses_it_after_a_lease() {
    let room = Room::new();
    room.file(b"file", b"data");
    let (holder, mailbox) = hearing(&room, b"holder", 1);
    let other = Client::new(&room, b"other", 2);
    let given = opens(&holder, b"file", READ);
    let held = given.delegation.expect("a delegation");
    // What holds something is kept.
    opens(&other, b"file", READ);
    let changes = || {
        let open = open_op(&other, WRITE, Claim::Null(Name(b"file")));
        other.does(&[Operation::PutRootFileHandle, open]).status()
    };
    assert_eq!(changes(), Status::Delay);
    recall(&holder, &mailbox);
    let now = odafs_fabric::clock::awake() + LEASE + Nanos::from_secs(1);
    room.nfs.tick(now);
    assert_eq!(changes(), Status::Ok);
    let flags = |client: &Client<'_>| {
        let reply = client.does(&[]);
        let ok = last!(reply, Sequence);
        ok.status_flags & sequence_status::RECALLABLE_STATE_REVOKED
    };
    assert_ne!(flags(&holder), 0);
    assert_eq!(flags(&other), 0);
    let read = read(held, 0, 9);
    let reply = holder.does(&[put(&given.handle), read]);
    assert_eq!(reply.status(), Status::DelegRevoked);
    let free = Operation::FreeStateId(held);
    assert_eq!(holder.does(&[free]).status(), Status::Ok);
    assert_eq!(flags(&holder), 0);
}

#[test]
fn opens_by_a_delegation_are_made_while_it_is_recalled() {
    let room = Room::new();
    room.file(b"file", b"data");
    let (holder, mailbox) = hearing(&room, b"holder", 1);
    let other = Client::new(&room, b"other", 2);
    let given = opens(&holder, b"file", READ);
    let held = given.delegation.expect("a delegation");
    let who = owner();
    let root = room.world.export.root();
    let acting = vfs::promises::changing_for(vfs::promises::Party::Returning(None));
    let removed = namespace::remove(&room.world.export, &who, root, b"file");
    assert_eq!(removed.unwrap_err().status, vfs::Status::Jukebox);
    drop(acting);
    recall(&holder, &mailbox);
    let root = Operation::PutRootFileHandle;
    let by_name = Claim::DelegateCurrent(held, Name(b"file"));
    let opened = claims(&holder, READ, root, by_name);
    assert_eq!(opened.delegation, Err(None));
    let by_handle = Claim::DelegateCurrentFile(held);
    claims(&holder, READ, put(&given.handle), by_handle);
    let refused = |client: &Client<'_>, access, claim| {
        let open = open_op(client, access, claim);
        client.does(&[put(&given.handle), open]).status()
    };
    assert_eq!(refused(&holder, WRITE, by_handle), Status::OpenMode);
    assert_eq!(refused(&other, READ, by_handle), Status::BadStateId);
    let before = Claim::DelegatePreviousFile;
    assert_eq!(refused(&holder, READ, before), Status::NotSupp);
    let purge = Operation::DelegationPurge(holder.id);
    assert_eq!(holder.does(&[purge]).status(), Status::NotSupp);
    assert_eq!(gives_back(&holder, &given), Status::Ok);
}

#[test]
fn a_recall_reaches_a_client_over_its_next_connection() {
    let room = Room::new();
    room.file(b"file", b"data");
    let (mut holder, mailbox) = hearing(&room, b"holder", 1);
    let other = Client::new(&room, b"other", 2);
    opens(&holder, b"file", READ);
    mailbox.close();
    room.nfs.closed(1);
    let open = open_op(&other, WRITE, Claim::Null(Name(b"file")));
    let reply = other.does(&[Operation::PutRootFileHandle, open]);
    assert_eq!(reply.status(), Status::Delay);
    let (caller, mailbox) = listening(3);
    holder.caller = caller;
    let bind = holder.bind(WantedChannel::BackOrBoth);
    assert_eq!(holder.call(1, &[bind]).status(), Status::Ok);
    recall(&holder, &mailbox);
}

#[test]
fn metrics_tell_of_delegations() {
    let room = Room::new();
    room.file(b"file", b"data");
    let (holder, _mailbox) = hearing(&room, b"holder", 1);
    let given = opens(&holder, b"file", READ);
    let text = || room.text();
    assert!(text().contains("\nodafs_nfs4_delegations 1\n"));
    assert_eq!(gives_back(&holder, &given), Status::Ok);
    assert!(text().contains("\nodafs_nfs4_delegations 0\n"));
    assert!(text().contains("\nodafs_nfs4_delegations_granted_total 1\n"));
}

pub(super) fn attributes_op() -> Operation<'static> {
    get(Bitmap::of(&[Attribute::Size, Attribute::Change]))
}

#[test]
fn whatever_looks_at_a_file_waits_for_what_was_written_under_a_delegation() {
    let looks: [Act; 4] = [
        |other, _| {
            let open = open_op(other, READ, Claim::Null(Name(b"file")));
            other.does(&[Operation::PutRootFileHandle, open]).status()
        },
        |other, handle| {
            let read = read(StateId::ANONYMOUS, 0, 9);
            other.does(&[put(handle), read]).status()
        },
        |other, _| {
            let list = Operation::ReadDir(ReadDirArgs {
                cookie: 0,
                verifier: [0; 8],
                directory_count: 4096,
                max_count: 4096,
                asked: Bitmap::of(&[Attribute::Size]),
            });
            other.does(&[Operation::PutRootFileHandle, list]).status()
        },
        |other, handle| {
            let write = write(StateId::ANONYMOUS, 0, Stable::Unstable, b"x");
            other.does(&[put(handle), write]).status()
        },
    ];
    for (number, look) in looks.iter().enumerate() {
        let room = Room::new();
        let file = room.world.file("file", b"old");
        let (holder, mailbox) = hearing(&room, b"holder", 1);
        let other = Client::new(&room, b"other", 2);
        let given = opens(&holder, b"file", BOTH);
        let held = given.delegation.expect("a delegation");
        // Its client does as it likes, on any thread.
        let get = [put(&given.handle), attributes_op()];
        for effort in [Effort::MayBlock, Effort::ResidentOnly] {
            let bytes = holder.next(&get);
            let (answer, _) = room.run(&holder.caller, &holder.who, &bytes, effort);
            assert!(matches!(answer, Answer::Replied), "{answer:?}");
        }
        assert_eq!(look(&other, &given.handle), Status::Delay, "{number}");
        let told = recall(&holder, &mailbox);
        assert_eq!((told.state, &told.file), (held, &given.handle), "{number}");
        answer(&holder, &told, Status::Ok);
        let write = write(held, 0, Stable::Unstable, b"newer");
        assert_eq!(
            holder.does(&[put(&given.handle), write]).status(),
            Status::Ok
        );
        assert_eq!(look(&other, &given.handle), Status::Delay, "{number}");
        assert_eq!(gives_back(&holder, &given), Status::Ok);
        assert_eq!(look(&other, &given.handle), Status::Ok, "{number}");
        assert_eq!(file.attributes().size, 5, "{number}");
        assert!(mailbox.is_empty());
    }
}

#[test]
fn direct_readers_have_no_references_beside_a_write_delegation() {
    let room = Room::new();
    let file = room.world.file("file", &[1; 4096]);
    let (holder, mailbox) = hearing(&room, b"holder", 1);
    room.world.read(&file, 0, 4096);
    let mut reader = room.world.client(&owner());
    let old = reader.reference(&file, 0).expect("a reference");
    let counter = reader.counter(&file).expect("a reference");
    assert_eq!(reader.read(&old).expect("read"), [1; 4096]);
    let given = opens(&holder, b"file", BOTH);
    assert!(given.delegation.is_ok());
    assert!(reader.read(&old).is_err() && reader.read(&counter).is_err());
    // Its own client reads the page back into memory, and that gives the others nothing.
    let read = read(given.open, 0, 100);
    assert_eq!(
        holder.does(&[put(&given.handle), read]).status(),
        Status::Ok
    );
    assert!(reader.reference(&file, 0).is_none() && reader.counter(&file).is_none());
    let polled = room.world.try_read(&file, 0, 1, Effort::ResidentOnly);
    assert!(matches!(
        polled,
        Err(crate::vfs::read::ReadFailed::NotResident)
    ));
    std::thread::scope(|scope| {
        let read = scope.spawn(|| room.world.read(&file, 0, 4));
        while mailbox.is_empty() {
            std::thread::yield_now();
        }
        recall(&holder, &mailbox);
        let write = write(given.open, 0, Stable::Unstable, b"new!");
        assert_eq!(
            holder.does(&[put(&given.handle), write]).status(),
            Status::Ok
        );
        assert_eq!(gives_back(&holder, &given), Status::Ok);
        assert_eq!(read.join().expect("no panic"), b"new!");
    });
    assert!(reader.reference(&file, 0).is_some() && reader.counter(&file).is_some());
}

#[test]
fn what_a_client_of_version_3_has_locked_is_not_delegated() {
    let room = Room::new();
    let file = room.world.file("file", b"data");
    let (client, _mailbox) = hearing(&room, b"client", 1);
    let locks = room.world.export.locks();
    let theirs = vfs::locks::LockOwner {
        side: vfs::locks::Side::Nlm,
        number: 1,
    };
    let span = vfs::locks::Span { first: 0, last: 9 };
    locks.lock(file.object(), span, true, theirs).expect("free");
    let want = READ | share_access::WANT_READ;
    let contended = Err(Some(WhyNone::Contention(false)));
    assert_eq!(opens(&client, b"file", want).delegation, contended);
    locks.unlock(file.object(), span, theirs);
    assert!(opens(&client, b"file", want).delegation.is_ok());
}
