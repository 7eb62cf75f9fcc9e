//! Locks, as the wire tells them.

use super::callbacks::hearing;
use super::delegations::{BOTH, READ, gives_back, opens, recall};
use super::*;

fn lock<'a>(kind: LockType, range: (u64, u64), locker: Locker<'a>) -> Operation<'a> {
    Operation::Lock(LockArgs {
        kind,
        reclaim: false,
        offset: range.0,
        length: range.1,
        locker,
    })
}

fn new<'a>(client: &Client<'_>, open: StateId, name: &'a [u8]) -> Locker<'a> {
    Locker::New(OpenToLockOwner {
        open_sequence: 0,
        open,
        lock_sequence: 0,
        owner: client.owner(name),
    })
}

#[test]
fn a_lock_keeps_others_out_until_it_is_given_back() {
    let room = Room::new();
    room.file(b"file", b"data");
    let one = Client::new(&room, b"one", 1);
    let two = Client::new(&room, b"two", 2);
    let share = (share_access::BOTH, 0);
    let (open, handle) = one.opened(b"me", b"file", share, None);
    let put = || put(&handle);
    let reply = one.does(&[
        put(),
        lock(LockType::Write, (10, 20), new(&one, open, b"o")),
    ]);
    let locked = last!(reply, Lock);
    let (other, _) = two.opened(b"me", b"file", share, None);
    let ask = || {
        [
            put(),
            lock(LockType::Read, (29, u64::MAX), new(&two, other, b"o")),
        ]
    };
    let reply = two.does(&ask());
    let OperationResult::Lock(Err(LockFailed::Denied(denied))) = reply.last() else {
        panic!("{:?}", reply.last());
    };
    assert_eq!((denied.offset, denied.length), (10, 20));
    assert_eq!(
        (denied.kind, denied.owner.owner),
        (LockType::Write, Opaque(b"o"))
    );
    let test = Operation::LockTest(LockTestArgs {
        kind: LockType::Read,
        offset: 0,
        length: 11,
        owner: two.owner(b"o"),
    });
    assert_eq!(two.does(&[put(), test.clone()]).status(), Status::Denied);
    let unlock = Operation::Unlock(UnlockArgs {
        kind: LockType::Write,
        sequence: 0,
        lock: locked,
        offset: 0,
        length: u64::MAX,
    });
    assert_eq!(one.does(&[put(), unlock]).status(), Status::Ok);
    assert_eq!(two.does(&[put(), test]).status(), Status::Ok);
    assert_eq!(two.does(&ask()).status(), Status::Ok);
}

/// Who has a delegation locks without telling.
#[test]
fn a_test_asks_for_delegations_back_whose_clients_may_have_locked() {
    for (access, harmless) in [(READ, true), (BOTH, false)] {
        let room = Room::new();
        room.file(b"file", b"data");
        let (holder, mailbox) = hearing(&room, b"holder", 1);
        let other = Client::new(&room, b"other", 2);
        let given = opens(&holder, b"file", access);
        assert!(given.delegation.is_ok());
        let test = |kind| {
            let test = Operation::LockTest(LockTestArgs {
                kind,
                offset: 0,
                length: 10,
                owner: other.owner(b"o"),
            });
            other.does(&[put(&given.handle), test]).status()
        };
        let reads = [Status::Delay, Status::Ok][usize::from(harmless)];
        assert_eq!(test(LockType::Read), reads);
        assert_eq!(mailbox.is_empty(), harmless);
        assert_eq!(test(LockType::Write), Status::Delay);
        recall(&holder, &mailbox);
        assert_eq!(gives_back(&holder, &given), Status::Ok);
        assert_eq!(test(LockType::Write), Status::Ok);
        assert!(mailbox.is_empty());
    }
}
