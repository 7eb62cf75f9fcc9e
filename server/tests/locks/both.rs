//! Clients of versions 3 and 4.2 exclude each other, and who waits is told, whoever gave the lock back.

use std::sync::{Arc, Mutex};

use odafs_common::wire::nfs4::{LockType, share_access};
use odafs_common::wire::nlm4::Status;
use odafs_fabric::clock::Nanos;
use odafs_nic::calls::Back;

use crate::harness::{Four, Server, caller, read, write};

/// The way back to a client of version 4: how many calls went over it.
#[derive(Debug, Default)]
struct Mailbox(Mutex<usize>);

impl Back for Mailbox {
    fn send(&self, _message: Vec<u8>) -> bool {
        *self.0.lock().unwrap() += 1;
        true
    }

    fn is_open(&self) -> bool {
        true
    }
}

fn four(server: &Server) -> (Four<'_>, Arc<Mailbox>) {
    let mailbox = Arc::new(Mailbox::default());
    let mut caller = caller("10.1.0.4:700");
    caller.connection = 4;
    caller.back = Some(mailbox.clone());
    let mut four = Four::new(server, caller);
    four.reclaim_complete();
    four.open().expect("opened");
    (four, mailbox)
}

/// Who has a delegation may have locked what it likes.
#[test]
fn a_lock_by_version_3_asks_for_delegations_back() {
    let server = Server::new();
    let three = server.client("10.1.0.3:700", "three");
    let (mut four, mailbox) = four(&server);
    let wish = share_access::WANT_ANY;
    four.open_wishing(wish).expect("opened");
    assert_eq!(three.lock(write(1, 0, 1)), Status::DeniedGracePeriod);
    assert_eq!(*mailbox.0.lock().unwrap(), 1);
}

#[test]
fn a_lock_by_one_version_keeps_out_the_other() {
    let server = Server::new();
    let three = server.client("10.1.0.3:700", "three");
    let (four, _) = four(&server);
    assert_eq!(three.lock(write(1, 10, 10)), Status::Granted);
    assert_eq!(four.lock(LockType::Read, (0, 11)), Err((10, 10)));
    let low = four.lock(LockType::Write, (0, 10)).expect("free");
    assert_eq!(three.lock(read(1, 0, 1)), Status::Denied);
    let holder = three.test(read(1, 9, 100)).expect_err("locked");
    assert_eq!((holder.offset, holder.length), (0, 10));
    assert_eq!((holder.process, holder.owner.0), (0, &[][..]));
    four.unlock(low);
    assert_eq!(three.lock(read(1, 0, 0)), Status::Granted);
    four.lock(LockType::Read, (0, u64::MAX)).expect("both read");
    assert_eq!(three.lock(write(1, 5, 1)), Status::Denied);
}

#[test]
fn a_client_of_version_3_is_called_when_one_of_version_4_gives_back() {
    let server = Server::new();
    let three = server.client("10.1.0.3:700", "three");
    let (four, _) = four(&server);
    let held = four.lock(LockType::Write, (0, u64::MAX)).expect("free");
    assert_eq!(three.lock(write(1, 5, 5).waiting()), Status::Blocked);
    four.unlock(held);
    server.network.granted().answers(Status::Granted);
    assert_eq!(four.lock(LockType::Read, (0, 6)), Err((5, 5)));
    // Once more, for who waits a second time.
    assert_eq!(three.unlock(write(1, 0, 0)), Status::Granted);
    let held = four.lock(LockType::Write, (0, u64::MAX)).expect("free");
    assert_eq!(three.lock(write(1, 5, 5).waiting()), Status::Blocked);
    four.unlock(held);
    server.network.granted().answers(Status::Granted);
}

#[test]
fn a_client_of_version_4_whose_lease_is_over_keeps_nobody_out() {
    for asks_first in [true, false] {
        // Leases are over at once.
        let server = Server::start(Server::new().remains, 2, Nanos(0));
        let three = server.client("10.1.0.3:700", "three");
        let (four, _) = four(&server);
        four.lock(LockType::Write, (0, 10)).expect("free");
        // What nobody wants it keeps.
        assert_eq!(three.test(write(1, 10, 5)), Ok(Status::Granted));
        assert_eq!(three.lock(write(1, 10, 5)), Status::Granted);
        server.tick();
        assert_eq!(server.gauge("nfs4_locks"), 1);
        if asks_first {
            assert_eq!(three.test(read(2, 9, 1)), Ok(Status::Granted));
            assert_eq!(server.gauge("nfs4_locks"), 0);
        }
        assert_eq!(three.lock(read(2, 9, 1)), Status::Granted);
        assert_eq!(server.gauge("nfs4_locks"), 0);
        // It is not to reclaim that after a restart.
        assert_eq!(*server.remains.kept4.lock().unwrap(), "");
    }
}

#[test]
fn a_waiter_gets_the_lock_of_a_client_of_version_4_whose_lease_is_over() {
    let server = Server::new();
    let three = server.client("10.1.0.3:700", "three");
    let (four, _) = four(&server);
    four.lock(LockType::Write, (0, 10)).expect("free");
    assert_eq!(three.lock(write(1, 5, 10).waiting()), Status::Blocked);
    server.tick();
    assert!(server.network.is_silent());
    server.tick_after(Nanos::from_secs(2 * 3600));
    server.network.granted().answers(Status::Granted);
    assert_eq!(three.unlock(write(1, 0, 0)), Status::Granted);
    assert_eq!(server.gauge("nfs4_locks"), 0);
    assert_eq!(*server.remains.kept4.lock().unwrap(), "");
}

#[test]
fn a_client_of_version_4_is_told_when_one_of_version_3_gives_back() {
    let server = Server::new();
    let three = server.client("10.1.0.3:700", "three");
    let (four, mailbox) = four(&server);
    assert_eq!(three.lock(write(1, 0, 0)), Status::Granted);
    let denied = four.lock(LockType::WriteWait, (5, 5));
    assert_eq!(denied, Err((0, u64::MAX)));
    assert_eq!(three.unlock(write(1, 0, 5)), Status::Granted);
    server.tick();
    assert_eq!(*mailbox.0.lock().unwrap(), 0);
    assert_eq!(three.unlock(write(1, 5, 5)), Status::Granted);
    server.tick();
    assert_eq!(*mailbox.0.lock().unwrap(), 1);
    four.lock(LockType::WriteWait, (5, 5)).expect("free");
}
