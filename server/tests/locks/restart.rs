//! What becomes of locks when the server restarts.

use std::net::IpAddr;
use std::sync::mpsc;
use std::time::Duration;

use odafs_common::wire::nfs4::{LockType, Status as Status4};
use odafs_common::wire::nlm4::{
    self, Procedure, ShareAccess, ShareArgs, ShareMode, ShareResult, Status,
};
use odafs_common::wire::nsm;
use odafs_common::wire::xdr::Decode as _;
use odafs_fabric::clock::Nanos;
use odafs_server::nlm4::Heard;

use crate::harness::{Four, SERVER, Server, Three, caller, read, write};
use crate::nlm::share_of;

const HOUR: Nanos = Nanos::from_secs(3600);

#[test]
fn a_host_that_held_locks_is_told_and_reclaims_them() {
    let server = Server::new();
    let one = server.client("10.1.0.1:700", "one");
    assert_eq!(one.lock(write(1, 0, 5)), Status::Granted);
    let server = Server::start(server.remains, 2, HOUR);
    let mut calls = server.network.all();
    assert_eq!(calls.len(), 1);
    let call = calls.remove(0);
    let notify = (nsm::PROGRAM, nsm::Procedure::Notify.code());
    assert_eq!((call.program, call.procedure), notify);
    assert_eq!(call.address.to_string(), "10.1.0.1");
    let told = nsm::Notification::from_bytes(&call.arguments).expect("arguments");
    assert_eq!((told.host.0, told.state), (SERVER.as_bytes(), 5));
    call.hears(Heard::Answer(Vec::new()));
    let one = server.client("10.1.0.1:700", "one");
    let two = server.client("10.1.0.2:700", "two");
    assert_eq!(two.lock(write(1, 0, 5)), Status::DeniedGracePeriod);
    assert_eq!(two.test(write(1, 0, 5)), Ok(Status::DeniedGracePeriod));
    let reclaimed = two.lock(write(1, 0, 5).reclaiming());
    assert_eq!(reclaimed, Status::DeniedGracePeriod);
    assert_eq!(one.lock(write(1, 0, 5).reclaiming()), Status::Granted);
    assert_eq!(one.unlock(write(1, 4, 1)), Status::Granted);
    server.tick();
    assert!(server.network.is_silent());
}

#[test]
fn a_host_is_called_from_the_address_that_it_uses() {
    let (first, other) = ("10.9.9.1".parse().ok(), "10.9.9.2".parse().ok());
    for (expected, later) in [(None, None), (first, other)] {
        let server = Server::new();
        let mut one = server.client("10.1.0.1:700", "one");
        let two = server.client("10.1.0.2:700", "two");
        assert_eq!(two.lock(write(1, 0, 5)), Status::Granted);
        one.caller.local = expected;
        assert_eq!(one.lock(write(1, 0, 5).waiting()), Status::Blocked);
        // It has mounted the server by another address, too. It waits by the first one.
        one.caller.local = later;
        assert_eq!(one.lock(write(1, 9, 1)), Status::Granted);
        assert_eq!(two.unlock(write(1, 0, 5)), Status::Granted);
        let call = server.network.granted();
        assert_eq!(call.from, expected);
        call.answers(Status::Granted);
        server.tick_after(HOUR);
        let server = Server::start(server.remains, 2, HOUR);
        let called = server.network.all();
        assert_eq!((called.len(), called[0].from), (1, expected));
        let told = nsm::Notification::from_bytes(&called[0].arguments).expect("arguments");
        let name = expected.map_or(SERVER.to_owned(), |used: IpAddr| used.to_string());
        assert_eq!(told.host.0, name.as_bytes());
    }
}

#[test]
fn a_host_that_shares_a_file_is_told_and_shares_it_again() {
    let server = Server::new();
    let one = server.client("10.1.0.1:700", "one");
    let share = |client: &Three<'_>, reclaim| {
        let arguments = ShareArgs {
            reclaim,
            ..share_of(client, ShareMode::DenyBoth, ShareAccess::Read)
        };
        client
            .call::<ShareResult<'static>>(Procedure::Share, &arguments)
            .status
    };
    assert_eq!(share(&one, false), Status::Granted);
    let server = Server::start(server.remains, 2, HOUR);
    let calls = server.network.all();
    assert_eq!((calls.len(), calls[0].program), (1, nsm::PROGRAM));
    let one = server.client("10.1.0.1:700", "one");
    let two = server.client("10.1.0.2:700", "two");
    assert_eq!(share(&two, false), Status::DeniedGracePeriod);
    assert_eq!(share(&one, true), Status::Granted);
    // It has restarted itself, and has nothing.
    one.notifies("one", 9);
    assert_eq!(server.gauge("nlm_hosts"), 0);
}

#[test]
fn what_was_given_back_is_not_remembered_for_ever() {
    let server = Server::new();
    let one = server.client("10.1.0.1:700", "one");
    assert_eq!(one.lock(write(1, 0, 5)), Status::Granted);
    // Nobody reclaims in time.
    let server = Server::start(server.remains, 2, Nanos(0));
    assert!(!server.remains.kept.lock().unwrap().is_empty());
    server.tick();
    assert_eq!(*server.remains.kept.lock().unwrap(), "");
    let one = server.client("10.1.0.1:700", "one");
    let reclaimed = one.lock(write(1, 0, 5).reclaiming());
    assert_eq!(reclaimed, Status::DeniedGracePeriod);
    assert_eq!(one.lock(write(1, 0, 5)), Status::Granted);
    // It was told that its locks are lost by starting anew itself.
    one.notifies("one", 9);
    assert_eq!(*server.remains.kept.lock().unwrap(), "");
}

#[test]
fn a_host_that_was_not_reached_is_told_again() {
    let server = Server::new();
    let one = server.client("10.1.0.1:700", "one");
    assert_eq!(one.lock(write(1, 0, 5)), Status::Granted);
    let server = Server::start(server.remains, 2, HOUR);
    let call = server.network.all().remove(0);
    call.hears(Heard::Unreached);
    server.tick_after(Nanos::from_secs(60));
    assert_eq!(server.network.all().len(), 1);
}

#[test]
fn the_versions_wait_for_each_others_clients() {
    let server = Server::new();
    let one = server.client("10.1.0.1:700", "one");
    assert_eq!(one.lock(write(1, 0, 5)), Status::Granted);
    let server = Server::start(server.remains, 2, HOUR);
    let mut four = Four::new(&server, caller("10.1.0.4:700"));
    four.reclaim_complete();
    assert_eq!(four.open(), Err(Status4::Grace));
    drop(four);

    // The other way round: a client of version 4 that has something may reclaim it, until it says that it is done.
    let server = Server::new();
    let mut four = Four::new(&server, caller("10.1.0.4:700"));
    four.reclaim_complete();
    four.open().expect("opened");
    four.lock(LockType::Write, (0, 9)).expect("free");
    drop(four);
    let server = Server::start(server.remains, 2, HOUR);
    let one = server.client("10.1.0.1:700", "one");
    assert_eq!(one.lock(read(1, 0, 5)), Status::DeniedGracePeriod);
    Four::new(&server, caller("10.1.0.4:700")).reclaim_complete();
    assert_eq!(one.lock(read(1, 0, 5)), Status::Granted);
}

#[test]
fn what_changes_no_records_does_not_wait_until_those_of_others_are_kept() {
    let server = Server::new();
    let one = server.client("10.1.0.1:700", "one");
    let two = server.client("10.1.0.2:700", "two");
    assert_eq!(two.lock(write(1, 0, 5)), Status::Granted);
    let ((began, begins), (end, ends)) = (mpsc::channel(), mpsc::channel());
    *server.remains.keeping.lock().unwrap() = Some(Box::new(move || {
        began.send(()).expect("the test goes on");
        // It waits in vain only if the test fails.
        let _ = ends.recv_timeout(Duration::from_secs(20));
    }));
    std::thread::scope(|scope| {
        let locked = scope.spawn(|| one.lock(write(1, 10, 5)));
        begins.recv().expect("it is kept that it holds a lock");
        assert_eq!(two.test(write(1, 0, 5)), Ok(Status::Granted));
        assert_eq!(two.cancel(write(1, 0, 5)), Status::Denied);
        assert_eq!(two.unlock(write(1, 0, 5)), Status::Granted);
        server.tick();
        end.send(()).expect("it is still being kept");
        assert_eq!(locked.join().expect("no panic"), Status::Granted);
    });
}

#[test]
fn calls_that_change_records_say_that_they_may_wait() {
    let server = Server::new();
    let of = |procedure: Procedure| (nlm4::PROGRAM, nlm4::VERSION, procedure.code());
    for procedure in [Procedure::Lock, Procedure::Share, Procedure::FreeAll] {
        assert!(server.may_sync(of(procedure)));
    }
    for procedure in [Procedure::Test, Procedure::Unlock, Procedure::Cancel] {
        assert!(!server.may_sync(of(procedure)));
    }
    let notify = nsm::Procedure::Notify.code();
    assert!(server.may_sync((nsm::PROGRAM, nsm::VERSION, notify)));
}
