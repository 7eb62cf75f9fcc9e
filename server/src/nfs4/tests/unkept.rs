//! Stable storage takes nothing: nobody gets what a client could reclaim after a restart, and all else goes on.

use odafs_fabric::clock;

use super::callbacks::hearing;
use super::delegations::{BOTH, READ, attributes_op, claims, gives_back, opens};
use super::restarts::{Kept, file_handle, lock, writes};
use super::*;
use crate::vfs::file::File;
use crate::vfs::locks::{LockOwner, Side, Span};
use crate::vfs::promises::{Party, changing_for};

/// A lease that is over at once, but for clients with a compound under way.
const NO_LEASE: Nanos = Nanos::from_secs(0);

fn unlock(state: StateId) -> Operation<'static> {
    Operation::Unlock(UnlockArgs {
        kind: LockType::Write,
        sequence: 0,
        lock: state,
        offset: 0,
        length: 1,
    })
}

/// A client that holds a lock and is cut off for more than a lease; and its open.
fn locked<'r>(room: &'r Room, name: &[u8]) -> (Client<'r>, StateId, Vec<u8>) {
    let silent = Client::new(room, name, 1);
    let (open, handle) = silent.opened(b"me", b"file", (BOTH, 0), None);
    let reply = silent.does(&[put(&handle), lock(&silent, open, false)]);
    let locked = last!(reply, Lock);
    (silent, locked, handle)
}

#[test]
fn nobody_gets_a_lock_that_a_silent_client_could_reclaim() {
    let kept = Kept::default();
    let (room, file) = kept.room_of(NO_LEASE);
    let (silent, held, handle) = locked(&room, b"silent");
    let other = Client::new(&room, b"other", 2);
    let (open, _) = other.opened(b"me", b"file", (BOTH, 0), None);
    kept.refuses(true, false);
    let asks = || {
        other
            .does(&[put(&handle), lock(&other, open, false)])
            .status()
    };
    assert_eq!(asks(), Status::Delay);
    let test = Operation::LockTest(LockTestArgs {
        kind: LockType::Write,
        offset: 0,
        length: 1,
        owner: other.owner(b"locker"),
    });
    assert_eq!(other.does(&[put(&handle), test]).status(), Status::Delay);
    // The lock manager of version 3 does not get it either.
    let locks = room.world.export.locks();
    let three = LockOwner {
        side: Side::Nlm,
        number: 1,
    };
    let first = Span { first: 0, last: 0 };
    locks.make_way(Side::Nlm, clock::awake(), file.object(), first, true);
    assert!(locks.lock(file.object(), first, true, three).is_err());
    // What needs no record goes on, also for clients that hold other things.
    let reply = other.does(&[put(&handle), attributes_op(), read(open, 0, 4)]);
    assert_eq!(reply.status(), Status::Ok, "{:?}", reply.all());
    room.file(b"another", b"data");
    other.opened(b"me", b"another", (BOTH, 0), None);
    // Who comes back has lost nothing, and a lock that it gives back is free.
    assert_eq!(
        silent.does(&[put(&handle), unlock(held)]).status(),
        Status::Ok
    );
    assert_eq!(asks(), Status::Ok);
}

#[test]
fn what_a_silent_client_has_is_free_once_stable_storage_has_forgotten_it() {
    let kept = Kept::default();
    let (room, _) = kept.room_of(NO_LEASE);
    let (silent, _, handle) = locked(&room, b"silent");
    let other = Client::new(&room, b"other", 2);
    let (open, _) = other.opened(b"me", b"file", (BOTH, 0), None);
    let before = kept.text();
    kept.refuses(true, false);
    let asks = || {
        other
            .does(&[put(&handle), lock(&other, open, false)])
            .status()
    };
    assert_eq!(asks(), Status::Delay);
    room.nfs.tick(clock::awake());
    assert_eq!((asks(), kept.text()), (Status::Delay, before.clone()));
    kept.refuses(false, false);
    assert_eq!(asks(), Status::Ok);
    assert_eq!(kept.text().lines().count(), before.lines().count() - 1);
    assert_eq!(silent.does(&[]).status(), Status::BadSession);
}

#[test]
fn nobody_opens_what_a_silent_client_could_reclaim_and_deny() {
    let kept = Kept::default();
    let (room, _) = kept.room_of(NO_LEASE);
    let silent = Client::new(&room, b"silent", 1);
    silent.opened(b"me", b"file", (BOTH, share_deny::BOTH), None);
    let other = Client::new(&room, b"other", 2);
    kept.refuses(true, false);
    let asks = || {
        let open = other.open(b"me", b"file", (READ, 0), None);
        other.does(&[Operation::PutRootFileHandle, open]).status()
    };
    assert_eq!(asks(), Status::Delay);
    kept.refuses(false, false);
    assert_eq!(asks(), Status::Ok);
}

#[test]
fn nothing_is_changed_that_a_silent_client_could_reclaim_a_delegation_of() {
    let kept = Kept::default();
    let (room, file) = kept.room_of(NO_LEASE);
    let (holder, _mailbox) = hearing(&room, b"holder", 1);
    assert!(opens(&holder, b"file", READ).delegation.is_ok());
    let _acting = changing_for(Party::Returning(None));
    kept.refuses(true, false);
    assert_eq!(writes(&room, &file), Err(crate::vfs::Status::Jukebox));
    room.nfs.tick(clock::awake());
    assert_eq!(writes(&room, &file), Err(crate::vfs::Status::Jukebox));
    kept.refuses(false, false);
    assert_eq!(writes(&room, &file), Ok(()));
    assert_eq!(kept.text(), "");
}

#[test]
fn a_delegation_is_given_when_stable_storage_knows_of_it() {
    let kept = Kept::default();
    let (room, file) = kept.room();
    room.file(b"read", b"data");
    let (holder, mailbox) = hearing(&room, b"holder", 1);
    let refused = Err(Some(WhyNone::Resource(false)));
    let asks = |name: &[u8], access| opens(&holder, name, access | share_access::WANT_ANY);
    // Nobody would wait for the client after a restart.
    kept.refuses(true, false);
    assert_eq!(asks(b"read", READ).delegation, refused);
    assert_eq!(asks(b"file", BOTH).delegation, refused);
    // Others would look at the file after a restart.
    kept.refuses(false, true);
    assert_eq!(asks(b"file", BOTH).delegation, refused);
    assert_eq!(kept.files(), "");
    // Nobody waits for what the client does not have.
    assert_eq!(writes(&room, &file), Ok(()));
    assert!(mailbox.is_empty());
    let given = asks(b"read", READ);
    assert!(given.delegation.is_ok());
    // Now this client is recorded, and may have more.
    kept.refuses(true, true);
    room.file(b"more", b"data");
    assert!(asks(b"more", READ).delegation.is_ok());
    kept.refuses(false, false);
    assert!(asks(b"file", BOTH).delegation.is_ok());
    assert_ne!(kept.files(), "");
    assert_eq!(gives_back(&holder, &given), Status::Ok);
}

/// A server whose grace period is over by the clock, while a client that holds something has not come back; and that client's record.
fn late() -> (Kept, (Room, Arc<File>), String) {
    let kept = Kept::default();
    let (room, _) = kept.room();
    let gone = Client::new(&room, b"gone", 1);
    gone.opened(b"me", b"file", (BOTH, 0), None);
    let record = kept.text();
    // The file is live, so that a thread that polls reads it.
    let restarted = kept.room_of(NO_LEASE);
    (kept, restarted, record)
}

#[test]
fn nobody_takes_state_before_those_are_forgotten_that_have_not_reclaimed() {
    let (kept, (room, _file), record) = late();
    kept.refuses(true, false);
    let asks = |client: &Client<'_>| {
        let open = client.open(b"me", b"file", (READ, 0), None);
        client.does(&[Operation::PutRootFileHandle, open]).status()
    };
    let reclaiming = || {
        let locks = room.world.export.locks();
        locks.is_reclaiming(Side::Nfs4, clock::awake())
    };
    for number in 2..4 {
        // The lease of one that holds nothing ends with the tick.
        let other = Client::new(&room, b"other", number);
        let handle = file_handle(&other);
        let does = |operation| other.does(&[put(&handle), operation]).status();
        assert_eq!(asks(&other), Status::Grace);
        let data = write(StateId::ANONYMOUS, 0, Stable::FileSync, b"new");
        assert_eq!(does(data), Status::Grace);
        // What takes nothing from anybody goes on.
        assert_eq!(does(read(StateId::ANONYMOUS, 0, 4)), Status::Ok);
        assert_eq!(does(attributes_op()), Status::Ok);
        assert!(reclaiming());
        room.nfs.tick(clock::awake());
        assert_eq!(kept.text(), record);
    }
    // Who comes late has lost nothing.
    let gone = Client::reclaiming(&room, b"gone", caller(4), 0);
    let handle = file_handle(&gone);
    let claim = Claim::Previous(DelegationType::None);
    claims(&gone, BOTH, put(&handle), claim);
    kept.refuses(false, false);
    let other = Client::new(&room, b"other", 5);
    assert_eq!(asks(&other), Status::Ok);
    assert!(!kept.text().contains(record.trim()), "{}", kept.text());
    assert!(!reclaiming());
}

/// The thread that polls brings nothing to stable storage.
#[test]
fn a_thread_that_polls_does_not_end_the_grace_period() {
    let ends = |kept: &Kept, room: &Room, record: &str| {
        let over = !room.nfs.state.lock().in_grace(clock::awake());
        assert_eq!(over, !kept.text().contains(record.trim()));
        over
    };
    let other = |room| {
        let other = Client::new(room, b"other", 2);
        let handle = file_handle(&other);
        // Now a thread that polls knows the handle and has the page. This read asks for nobody's shares.
        let known = other.does(&[put(&handle), read(StateId::READ_BYPASS, 0, 4)]);
        assert_eq!(known.status(), Status::Ok);
        (other, handle)
    };
    let (kept, (room, _file), record) = late();
    let (reader, handle) = other(&room);
    let bytes = reader.next(&[put(&handle), read(StateId::ANONYMOUS, 0, 4)]);
    let (answer, _) = room.run(&reader.caller, &reader.who, &bytes, Effort::ResidentOnly);
    assert!(matches!(answer, Answer::Replied), "{answer:?}");
    assert!(!ends(&kept, &room, &record));
    let (kept, (room, _file), record) = late();
    let (writer, handle) = other(&room);
    let data = write(StateId::ANONYMOUS, 0, Stable::FileSync, b"new");
    let bytes = writer.next(&[put(&handle), data]);
    let suspended = room.suspended(&writer, &bytes);
    assert!(!ends(&kept, &room, &record));
    let (_, reply) = room.resume((&writer.caller, &writer.who), suspended, &bytes);
    assert_eq!(reply.status(), Status::Ok, "{:?}", reply.all());
    assert!(ends(&kept, &room, &record));
}
