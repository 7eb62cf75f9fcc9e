//! Copies that go on after their COPY was answered. The tests make the pieces, one by one.

mod model;

use super::callbacks::{self, Mailbox, called_back, listening, status_result};
use super::delegations::{BOTH, READ, gives_back, opens};
use super::space::copy_all;
use super::*;
use crate::vfs;

const P: usize = 4096;
const PAGE: u64 = P as u64;

/// A room where copies of more than two pages go on, a page at a time.
fn room() -> Room {
    let mut room = Room::new();
    let copier = &mut Arc::get_mut(&mut room.nfs).expect("not shared").copier;
    copier.longer_than = 2 * PAGE;
    copier.piece = PAGE;
    copier.has_thread = false;
    room
}

fn bytes(count: usize) -> Vec<u8> {
    (0..count).map(|at| (at % 251) as u8).collect()
}

/// A client of minor version 2 that hears callbacks.
fn hearing<'r>(room: &'r Room, name: &[u8], connection: u64) -> (Client<'r>, Arc<Mailbox>) {
    starting(room, name, connection, 1)
}

fn starting<'r>(
    room: &'r Room,
    name: &[u8],
    connection: u64,
    verifier: u8,
) -> (Client<'r>, Arc<Mailbox>) {
    let (caller, mailbox) = listening(connection);
    let flag = create_session_flag::BACK_CHANNEL;
    let client = Client::starting(room, name, caller, flag, (2, verifier));
    client.completes();
    (client, mailbox)
}

/// Opens a file, and wants no delegation of it: its stateid and handle.
fn opened(client: &Client<'_>, name: &[u8], access: u32) -> (StateId, Vec<u8>) {
    let access = access | share_access::WANT_NONE;
    client.opened(b"me", name, (access, 0), None)
}

/// Two files, the first of these bytes and the second empty, open for reading and for both.
fn pair(client: &Client<'_>, room: &Room, data: &[u8]) -> ((StateId, Vec<u8>), (StateId, Vec<u8>)) {
    room.file(b"source", data);
    room.file(b"target", b"");
    let source = opened(client, b"source", READ);
    (source, opened(client, b"target", BOTH))
}

/// What COPY answered.
fn copies(client: &Client<'_>, from: &[u8], to: &[u8], copy: CopyArgs<'static>) -> CopyOk {
    let reply = client.between(from, to, Operation::Copy(copy));
    last!(reply, Copy)
}

/// The stateid of a copy that goes on.
fn goes_on(ok: &CopyOk) -> StateId {
    assert!(!ok.requirements.synchronous && ok.requirements.consecutive);
    assert_eq!(ok.response.count, 0);
    let state = ok.response.callback.0.expect("a stateid");
    assert_ne!(state.sequence, 0);
    state
}

fn status(
    client: &Client<'_>,
    target: &[u8],
    copy: StateId,
) -> Result<(u64, Option<Status>), Status> {
    let reply = client.on(target, Operation::OffloadStatus(copy));
    match reply.last() {
        OperationResult::OffloadStatus(result) => result.map(|ok| (ok.count, ok.complete.0)),
        other => panic!("{other:?}"),
    }
}

fn cancel(client: &Client<'_>, target: &[u8], copy: StateId) -> Status {
    client.on(target, Operation::OffloadCancel(copy)).status()
}

/// CB_OFFLOAD that came: its xid and number, and what it says.
#[derive(Debug)]
struct Told {
    xid: u32,
    sequence: u32,
    state: StateId,
    file: Vec<u8>,
    info: OffloadInfo,
}

fn told(client: &Client<'_>, message: &[u8]) -> Told {
    let (xid, sequence, operation) = called_back(message, 2);
    let CallbackOperation::Offload(offload) = operation else {
        panic!("{operation:?}");
    };
    let calls = &sequence.referring.0[0];
    assert_eq!(calls.session, client.session);
    assert!(calls.calls.0[0].sequence <= client.sequence.get());
    Told {
        xid,
        sequence: sequence.sequence,
        state: offload.state,
        file: offload.file.0.to_vec(),
        info: offload.info,
    }
}

fn answers(client: &Client<'_>, told: &Told, status: Status) {
    let to = (client.room, client.caller.connection);
    let result = CallbackResult::Offload(status_result(status));
    let call = (told.xid, told.sequence);
    callbacks::answers(to, client.session, call, Ok((status, result)));
}

fn done(told: &Told) -> (u64, Stable, Verifier) {
    let OffloadInfo::Done(response) = told.info else {
        panic!("{told:?}");
    };
    assert_eq!(response.callback, AtMostOne(None));
    (response.count, response.committed, response.verifier)
}

#[test]
fn a_long_copy_goes_on_after_its_reply() {
    let room = room();
    let (client, mailbox) = hearing(&room, b"client", 1);
    let data = bytes(5 * P + 100);
    let (source, target) = pair(&client, &room, &data);
    let ok = copies(&client, &source.1, &target.1, copy_all(source.0, target.0));
    let copy = goes_on(&ok);
    assert!(client.content(&target.1).is_empty());
    assert_eq!(status(&client, &target.1, copy), Ok((0, None)));
    for piece in 1..=5 {
        assert!(room.nfs.copier.copy_piece());
        let copied = Ok((piece * PAGE, None));
        assert_eq!(status(&client, &target.1, copy), copied);
        assert_eq!(client.content(&target.1), data[..piece as usize * P]);
    }
    assert!(mailbox.is_empty());
    assert!(room.nfs.copier.copy_piece());
    assert!(!room.nfs.copier.copy_piece());
    assert_eq!(client.content(&target.1), data);
    let all = data.len() as u64;
    let over = told(&client, &mailbox.only());
    assert_eq!((over.state, &over.file), (copy, &target.1));
    assert_eq!(done(&over), (all, Stable::Unstable, ok.response.verifier));
    // It is known until the client has heard of its end.
    answers(&client, &over, Status::Delay);
    assert_eq!(
        status(&client, &target.1, copy),
        Ok((all, Some(Status::Ok)))
    );
    room.nfs.tick(odafs_fabric::clock::awake());
    let again = told(&client, &mailbox.only());
    answers(&client, &again, Status::Ok);
    assert_eq!(status(&client, &target.1, copy), Err(Status::BadStateId));
    assert_eq!(cancel(&client, &target.1, copy), Status::BadStateId);
    let commit = Operation::Commit(CommitArgs {
        offset: 0,
        count: 0,
    });
    let committed = client.on(&target.1, commit);
    let committed = last!(committed, Commit);
    assert_eq!(committed.verifier, ok.response.verifier);
}

#[test]
fn a_copy_that_is_short_or_has_to_be_over_or_is_not_heard_of_is_over_with_its_reply() {
    let room = room();
    let (client, mailbox) = hearing(&room, b"client", 1);
    let data = bytes(5 * P);
    let (source, target) = pair(&client, &room, &data);
    let all = copy_all(source.0, target.0);
    let short = CopyArgs {
        count: 2 * PAGE,
        ..all.clone()
    };
    let at_once = CopyArgs {
        synchronous: true,
        ..all.clone()
    };
    for (copy, count) in [(short, 2 * PAGE), (at_once, 5 * PAGE)] {
        let ok = copies(&client, &source.1, &target.1, copy);
        assert!(ok.requirements.synchronous);
        assert_eq!((ok.response.count, ok.response.callback.0), (count, None));
    }
    // A client of minor version 1, and one that is not called back any more.
    let (one, _) = super::callbacks::hearing(&room, b"one", 2);
    let (from, _) = opened(&one, b"source", READ);
    let (to, _) = opened(&one, b"target", BOTH);
    let ok = copies(&one, &source.1, &target.1, copy_all(from, to));
    assert_eq!(
        (ok.response.count, ok.response.callback.0),
        (5 * PAGE, None)
    );
    room.nfs.closed(1);
    let ok = copies(&client, &source.1, &target.1, all);
    assert_eq!(
        (ok.response.count, ok.response.callback.0),
        (5 * PAGE, None)
    );
    assert!(mailbox.is_empty() && !room.nfs.copier.copy_piece());
}

#[test]
fn a_copy_is_refused_at_once_where_its_first_piece_would_be() {
    let room = room();
    let (mut client, _) = hearing(&room, b"client", 1);
    let data = bytes(5 * P);
    let (source, target) = pair(&client, &room, &data);
    let beyond = CopyArgs {
        count: 6 * PAGE,
        ..copy_all(source.0, target.0)
    };
    let ask = |client: &Client<'_>, copy| {
        let reply = client.between(&source.1, &target.1, Operation::Copy(copy));
        reply.status()
    };
    assert_eq!(ask(&client, beyond), Status::Inval);
    let exchanged = copy_all(target.0, source.0);
    assert_eq!(ask(&client, exchanged), Status::BadStateId);
    client.who = crate::vfs::testing::other();
    let all = copy_all(source.0, target.0);
    assert_eq!(ask(&client, all), Status::Access);
    assert!(!room.nfs.copier.copy_piece());
    assert_eq!(room.nfs.state.lock().copies(), 0);
}

#[test]
fn what_was_cancelled_is_copied_no_further() {
    let room = room();
    let (client, mailbox) = hearing(&room, b"client", 1);
    let (other, _) = hearing(&room, b"other", 2);
    let data = bytes(5 * P);
    let (source, target) = pair(&client, &room, &data);
    let ok = copies(&client, &source.1, &target.1, copy_all(source.0, target.0));
    let copy = goes_on(&ok);
    assert!(room.nfs.copier.copy_piece());
    // Not by another client, of another file, or of the latest of several.
    assert_eq!(cancel(&other, &target.1, copy), Status::BadStateId);
    assert_eq!(cancel(&client, &source.1, copy), Status::BadStateId);
    let latest = StateId {
        sequence: 0,
        ..copy
    };
    assert_eq!(cancel(&client, &target.1, latest), Status::BadStateId);
    assert_eq!(cancel(&client, &target.1, copy), Status::Ok);
    assert_eq!(status(&client, &target.1, copy), Err(Status::BadStateId));
    while room.nfs.copier.copy_piece() {}
    assert_eq!(client.content(&target.1), data[..P]);
    assert!(mailbox.is_empty());
    // One that is over, and whose client has not said that it knows.
    let ok = copies(&client, &source.1, &target.1, copy_all(source.0, target.0));
    while room.nfs.copier.copy_piece() {}
    assert_eq!(cancel(&client, &target.1, goes_on(&ok)), Status::Ok);
    assert_eq!(room.nfs.state.lock().copies(), 0);
}

#[test]
fn a_copy_ends_with_its_client() {
    let room = room();
    let data = bytes(5 * P);
    let (client, mailbox) = hearing(&room, b"client", 1);
    let (source, target) = pair(&client, &room, &data);
    let begin = |client: &Client<'_>, from, to| {
        let ok = copies(client, &source.1, &target.1, copy_all(from, to));
        goes_on(&ok);
        assert!(room.nfs.copier.copy_piece());
        assert_eq!(room.nfs.state.lock().copies(), 1);
    };
    begin(&client, source.0, target.0);
    // It has restarted.
    let (anew, _) = starting(&room, b"client", 2, 2);
    assert_eq!(room.nfs.state.lock().copies(), 0);
    while room.nfs.copier.copy_piece() {}
    assert_eq!(anew.content(&target.1), data[..P]);
    let (from, _) = opened(&anew, b"source", READ);
    let (to, _) = opened(&anew, b"target", BOTH);
    begin(&anew, from, to);
    // It was not heard of for long.
    let later = odafs_fabric::clock::awake() + Nanos::from_secs(48 * 3600);
    room.nfs.tick(later);
    assert_eq!(room.nfs.state.lock().copies(), 0);
    while room.nfs.copier.copy_piece() {}
    let (third, _) = hearing(&room, b"third", 3);
    assert_eq!(third.content(&target.1), data[..P]);
    assert!(mailbox.is_empty());
}

#[test]
fn a_copy_goes_as_far_as_its_stateids_allow() {
    let room = room();
    let (client, mailbox) = hearing(&room, b"client", 1);
    let data = bytes(5 * P);
    let (source, target) = pair(&client, &room, &data);
    // Opened again, it is as it was.
    let begin = |from, to| {
        let ok = copies(&client, &source.1, &target.1, copy_all(from, to));
        goes_on(&ok)
    };
    let copy = begin(source.0, target.0);
    assert!(room.nfs.copier.copy_piece());
    let (again, _) = opened(&client, b"target", BOTH);
    assert!(room.nfs.copier.copy_piece());
    assert_eq!(status(&client, &target.1, copy), Ok((2 * PAGE, None)));
    let closed = client.does(&[put(&target.1), close(again, 0)]);
    assert_eq!(closed.status(), Status::Ok);
    while room.nfs.copier.copy_piece() {}
    // What is there is told, as after a short WRITE.
    let over = told(&client, &mailbox.only());
    assert_eq!(done(&over).0, 2 * PAGE);
    answers(&client, &over, Status::Ok);
    assert_eq!(client.content(&target.1), data[..2 * P]);
    // Before there is anything, it is a failure.
    let (to, _) = opened(&client, b"target", BOTH);
    let copy = begin(source.0, to);
    let closed = client.does(&[put(&source.1), close(source.0, 0)]);
    assert_eq!(closed.status(), Status::Ok);
    while room.nfs.copier.copy_piece() {}
    let over = told(&client, &mailbox.only());
    assert_eq!(over.state, copy);
    assert_eq!(over.info, OffloadInfo::Failed(Status::BadStateId, 0));
    let failed = Ok((0, Some(Status::BadStateId)));
    assert_eq!(status(&client, &target.1, copy), failed);
}

#[test]
fn a_copy_waits_for_a_delegation_that_another_has() {
    let room = room();
    let (client, mailbox) = hearing(&room, b"client", 1);
    let (holder, asked) = hearing(&room, b"holder", 2);
    let data = bytes(5 * P);
    room.file(b"source", &data);
    let source = opened(&client, b"source", READ);
    room.file(b"target", b"");
    let given = opens(&holder, b"target", READ);
    assert!(given.delegation.is_ok());
    // Under no open, so that the delegation stands.
    let arguments = copy_all(source.0, StateId::ANONYMOUS);
    let copy = goes_on(&copies(&client, &source.1, &given.handle, arguments));
    assert!(asked.is_empty());
    assert!(room.nfs.copier.copy_piece());
    assert!(!asked.is_empty(), "it is recalled");
    assert!(!room.nfs.copier.copy_piece(), "it comes again later");
    assert_eq!(status(&client, &given.handle, copy), Ok((0, None)));
    room.nfs.tick(odafs_fabric::clock::awake());
    assert!(room.nfs.copier.copy_piece());
    assert_eq!(status(&client, &given.handle, copy), Ok((0, None)));
    assert_eq!(gives_back(&holder, &given), Status::Ok);
    room.nfs.tick(odafs_fabric::clock::awake());
    while room.nfs.copier.copy_piece() {}
    assert_eq!(done(&told(&client, &mailbox.only())).0, 5 * PAGE);
    assert_eq!(client.content(&given.handle), data);
}

#[test]
fn a_store_that_fails_or_has_lost_the_file_ends_the_copy() {
    let room = room();
    let (client, mailbox) = hearing(&room, b"client", 1);
    let data = bytes(5 * P);
    let (source, target) = pair(&client, &room, &data);
    let begin = || {
        let ok = copies(&client, &source.1, &target.1, copy_all(source.0, target.0));
        goes_on(&ok)
    };
    begin();
    room.world.fail_next_write(vfs::Status::Stale);
    while room.nfs.copier.copy_piece() {}
    let over = told(&client, &mailbox.only());
    assert_eq!(over.info, OffloadInfo::Failed(Status::Stale, 0));
    answers(&client, &over, Status::Ok);
    begin();
    assert!(room.nfs.copier.copy_piece());
    room.world.fail_next_write(vfs::Status::NoSpc);
    while room.nfs.copier.copy_piece() {}
    let over = told(&client, &mailbox.only());
    assert_eq!(done(&over).0, PAGE);
    answers(&client, &over, Status::Ok);
    // The source is removed: its client has it open, and it is gone all the same.
    begin();
    assert!(room.nfs.copier.copy_piece());
    let remove = Operation::Remove(Name(b"source"));
    let removed = client.does(&[Operation::PutRootFileHandle, remove]);
    assert_eq!(removed.status(), Status::Ok);
    while room.nfs.copier.copy_piece() {}
    let over = told(&client, &mailbox.only());
    assert_eq!(done(&over).0, PAGE);
    answers(&client, &over, Status::Ok);
    assert_eq!(room.nfs.state.lock().copies(), 0);
}

#[test]
fn what_became_of_a_copy_is_said_over_the_next_connection() {
    let room = room();
    let (mut client, mailbox) = hearing(&room, b"client", 1);
    let data = bytes(5 * P);
    let (source, target) = pair(&client, &room, &data);
    let ok = copies(&client, &source.1, &target.1, copy_all(source.0, target.0));
    let copy = goes_on(&ok);
    mailbox.close();
    room.nfs.closed(1);
    while room.nfs.copier.copy_piece() {}
    (client.caller, _) = listening(2);
    let over = Ok((5 * PAGE, Some(Status::Ok)));
    assert_eq!(status(&client, &target.1, copy), over);
    let (caller, mailbox) = listening(3);
    client.caller = caller;
    let bind = client.bind(WantedChannel::BackOrBoth);
    assert_eq!(client.call(2, &[bind]).status(), Status::Ok);
    let over = told(&client, &mailbox.only());
    assert_eq!(done(&over).0, 5 * PAGE);
    answers(&client, &over, Status::Ok);
    assert_eq!(status(&client, &target.1, copy), Err(Status::BadStateId));
}

#[test]
fn there_are_so_many_copies_and_no_more() {
    let room = room();
    let (client, _) = hearing(&room, b"client", 1);
    let data = bytes(5 * P);
    let (source, target) = pair(&client, &room, &data);
    let begin = |client: &Client<'_>, from, to| {
        let ok = copies(client, &source.1, &target.1, copy_all(from, to));
        ok.response.callback.0
    };
    let first = Vec::from_iter((0..8).map(|_| begin(&client, source.0, target.0)));
    assert!(first.iter().all(Option::is_some));
    // The others are made at once.
    assert_eq!(begin(&client, source.0, target.0), None);
    assert_eq!(client.content(&target.1), data);
    let mut clients = Vec::new();
    for name in 1..10u8 {
        clients.push(hearing(&room, &[name], u64::from(name) + 1).0);
    }
    let mut begun = 8;
    for client in &clients {
        let (from, _) = opened(client, b"source", READ);
        let (to, _) = opened(client, b"target", BOTH);
        let all = (0..10).filter(|_| begin(client, from, to).is_some());
        begun += all.count();
    }
    assert_eq!(begun, 64);
    assert_eq!(room.nfs.state.lock().copies(), 64);
    // Who cancels one may begin another.
    let cancelled = cancel(&client, &target.1, first[0].expect("a copy"));
    assert_eq!(cancelled, Status::Ok);
    assert!(begin(&client, source.0, target.0).is_some());
    let text = room.text();
    assert!(text.contains("\nodafs_nfs4_copies 64\n"), "{text}");
}

#[test]
fn a_copy_whose_reply_does_not_fit_is_taken_back() {
    let room = room();
    let (mut client, mailbox) = hearing(&room, b"client", 1);
    let data = bytes(5 * P);
    let (source, target) = pair(&client, &room, &data);
    let all = || Operation::Copy(copy_all(source.0, target.0));
    let reply = client.between(&source.1, &target.1, all());
    let ok = last!(reply, Copy);
    assert_eq!(cancel(&client, &target.1, goes_on(&ok)), Status::Ok);
    // One word less, and what is around it.
    client.caller.reply_bytes_max = reply.0.len() as u32 - 4 + 64;
    let reply = client.between(&source.1, &target.1, all());
    assert_eq!(reply.status(), Status::RepTooBig);
    assert_eq!(room.nfs.state.lock().copies(), 0);
    while room.nfs.copier.copy_piece() {}
    assert!(mailbox.is_empty());
}

#[test]
fn copies_have_a_thread_which_ends_with_the_server() {
    let mut room = room();
    let nfs = Arc::get_mut(&mut room.nfs).expect("not shared");
    nfs.copier.has_thread = true;
    let data = bytes(50 * P);
    {
        let (client, mailbox) = hearing(&room, b"client", 1);
        let (source, target) = pair(&client, &room, &data);
        for round in 0..20 {
            let ok = copies(&client, &source.1, &target.1, copy_all(source.0, target.0));
            let copy = goes_on(&ok);
            if round % 2 == 0 {
                // Nothing more is written once that is answered.
                let cancelled = cancel(&client, &target.1, copy);
                let content = client.content(&target.1);
                let over = cancelled == Status::BadStateId;
                assert!(over || cancelled == Status::Ok, "{cancelled:?}");
                assert_eq!(client.content(&target.1), content);
                while !mailbox.is_empty() {
                    answers(&client, &told(&client, &mailbox.only()), Status::Ok);
                }
            } else {
                while mailbox.is_empty() {
                    std::thread::yield_now();
                }
                let over = told(&client, &mailbox.only());
                assert_eq!(done(&over).0, data.len() as u64);
                answers(&client, &over, Status::Ok);
                assert_eq!(client.content(&target.1), data);
            }
        }
        let ok = copies(&client, &source.1, &target.1, copy_all(source.0, target.0));
        goes_on(&ok);
        room.nfs.stop();
        let content = client.content(&target.1);
        assert_eq!(client.content(&target.1), content);
        // Nothing goes on by itself any more.
        let ok = copies(&client, &source.1, &target.1, copy_all(source.0, target.0));
        assert_eq!(ok.response.callback.0, None);
        assert_eq!(client.content(&target.1), data);
    }
}
