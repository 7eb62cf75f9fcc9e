//! Clients of version 3 among themselves.

use odafs_common::wire::nfs3::FileHandle;
use odafs_common::wire::nlm4::{
    FreeAllArgs, LockArgs, LockResult, Name, Object, Procedure, Share, ShareAccess, ShareArgs,
    ShareMode, ShareResult, Status, TestArgs, UnlockArgs,
};
use odafs_common::wire::rpc::Rejection;
use odafs_common::wire::xdr::{Decode as _, Encode as _};
use odafs_common::wire::{nlm4, nsm};
use odafs_fabric::clock::Nanos;
use odafs_server::nlm4::Heard;

use crate::harness::{Server, Three, caller, read, user, write};

/// Two clients of one server.
fn clients(server: &Server) -> (Three<'_>, Three<'_>) {
    (
        server.client("10.1.0.1:700", "one"),
        server.client("10.1.0.2:700", "two"),
    )
}

#[test]
fn a_lock_keeps_others_out_until_it_is_given_back() {
    let server = Server::new();
    let (one, two) = clients(&server);
    assert_eq!(one.lock(write(1, 10, 20)), Status::Granted);
    assert_eq!(two.lock(read(1, 29, 0)), Status::Denied);
    let holder = two.test(read(1, 0, 11)).expect_err("it is locked");
    assert_eq!((holder.offset, holder.length), (10, 20));
    assert_eq!((holder.process, holder.owner), (1, Object(b"owner")));
    assert!(holder.exclusive);
    assert_eq!(two.test(read(1, 0, 10)), Ok(Status::Granted));
    // Another process of the same host is another owner. The same one replaces what it has.
    assert_eq!(one.lock(read(2, 10, 1)), Status::Denied);
    assert_eq!(one.lock(read(1, 0, 0)), Status::Granted);
    assert_eq!(two.lock(read(1, 29, 0)), Status::Granted);
    assert_eq!(two.test(write(1, 5, 5)).map_err(|h| h.length), Err(0));
    assert_eq!(one.unlock(write(1, 0, 0)), Status::Granted);
    assert_eq!(two.lock(write(1, 0, 0)), Status::Granted);
    // What nobody has may be given back.
    assert_eq!(one.unlock(write(1, 0, 0)), Status::Granted);
    assert_eq!(one.unlock(write(7, 0, 0)), Status::Granted);
}

#[test]
fn a_waiting_client_is_called_when_it_has_the_lock() {
    let server = Server::new();
    let (one, two) = clients(&server);
    assert_eq!(one.lock(write(1, 0, 0)), Status::Granted);
    assert_eq!(two.lock(write(2, 5, 10).waiting()), Status::Blocked);
    assert!(server.network.is_silent());
    assert_eq!(one.unlock(write(1, 0, 5)), Status::Granted);
    assert!(server.network.is_silent());
    assert_eq!(one.unlock(write(1, 5, 0)), Status::Granted);
    let call = server.network.granted();
    assert_eq!(call.address.to_string(), "10.1.0.2");
    let told = TestArgs::from_bytes(&call.arguments).expect("arguments");
    assert!(told.exclusive);
    assert_eq!(told.lock, two.of(write(2, 5, 10)));
    // It has it already.
    assert_eq!(one.lock(read(1, 0, 6)), Status::Denied);
    call.answers(Status::Granted);
    assert_eq!(one.lock(read(1, 0, 6)), Status::Denied);
    assert_eq!(two.unlock(write(2, 5, 10)), Status::Granted);
    assert_eq!(one.lock(read(1, 0, 6)), Status::Granted);
    assert!(server.network.is_silent());
}

#[test]
fn a_client_that_cannot_be_called_or_declines_does_not_get_the_lock() {
    let server = Server::new();
    let (one, two) = clients(&server);
    let three = server.client("10.1.0.3:700", "three");
    assert_eq!(one.lock(write(1, 0, 0)), Status::Granted);
    for client in [&two, &three] {
        assert_eq!(client.lock(write(1, 0, 0).waiting()), Status::Blocked);
    }
    assert_eq!(one.unlock(write(1, 0, 0)), Status::Granted);
    server.network.granted().hears(Heard::Unreached);
    let call = server.network.granted();
    assert_eq!(call.address.to_string(), "10.1.0.3");
    call.answers(Status::Denied);
    assert_eq!(one.lock(write(1, 0, 0)), Status::Granted);
    // Whom the call may have reached has it.
    assert_eq!(two.lock(write(1, 0, 0).waiting()), Status::Blocked);
    assert_eq!(one.unlock(write(1, 0, 0)), Status::Granted);
    server.network.granted().hears(Heard::Silence);
    assert_eq!(one.lock(write(1, 0, 0)), Status::Denied);
}

#[test]
fn a_client_that_asks_again_before_it_is_called_keeps_what_it_got() {
    let server = Server::new();
    let (one, two) = clients(&server);
    assert_eq!(one.lock(write(1, 0, 0)), Status::Granted);
    assert_eq!(two.lock(write(1, 0, 0).waiting()), Status::Blocked);
    assert_eq!(two.lock(write(1, 0, 0).waiting()), Status::Blocked);
    assert_eq!(one.unlock(write(1, 0, 0)), Status::Granted);
    let call = server.network.granted();
    assert_eq!(two.lock(write(1, 0, 0).waiting()), Status::Granted);
    call.answers(Status::Denied);
    assert_eq!(one.lock(write(1, 0, 0)), Status::Denied);
}

/// What becomes of a lock that a client is just being told of.
#[derive(Clone, Copy, Debug)]
enum Ends {
    Unreached,
    Declined,
    Cancelled,
}

const ENDS: [Ends; 3] = [Ends::Unreached, Ends::Declined, Ends::Cancelled];

/// The client has not the lock that it waited for.
fn ends(client: &Three<'_>, ask: crate::harness::Ask, how: Ends) {
    let call = client.server.network.granted();
    match how {
        Ends::Unreached => call.hears(Heard::Unreached),
        Ends::Declined => call.answers(Status::Denied),
        Ends::Cancelled => {
            assert_eq!(client.cancel(ask), Status::Granted);
            call.answers(Status::Denied);
        }
    }
}

#[test]
fn an_owner_that_does_not_get_the_whole_keeps_its_part() {
    for how in ENDS {
        let server = Server::new();
        let (one, two) = clients(&server);
        let three = server.client("10.1.0.3:700", "three");
        assert_eq!(one.lock(write(1, 0, 5)), Status::Granted);
        assert_eq!(two.lock(write(1, 5, 5)), Status::Granted);
        assert_eq!(one.lock(write(1, 0, 10).waiting()), Status::Blocked);
        assert_eq!(two.unlock(write(1, 5, 5)), Status::Granted);
        ends(&one, write(1, 0, 10), how);
        assert_eq!(three.lock(read(1, 0, 5)), Status::Denied, "{how:?}");
        assert_eq!(three.lock(read(1, 4, 1)), Status::Denied, "{how:?}");
        assert_eq!(three.lock(write(1, 5, 0)), Status::Granted, "{how:?}");
    }
}

#[test]
fn an_owner_that_declines_another_kind_of_lock_keeps_its_own() {
    for how in ENDS {
        let server = Server::new();
        let (one, two) = clients(&server);
        // Stronger.
        for client in [&one, &two] {
            assert_eq!(client.lock(read(1, 0, 9)), Status::Granted);
        }
        assert_eq!(one.lock(write(1, 0, 9).waiting()), Status::Blocked);
        assert_eq!(two.unlock(read(1, 0, 9)), Status::Granted);
        ends(&one, write(1, 0, 9), how);
        assert_eq!(two.lock(write(1, 0, 9)), Status::Denied, "{how:?}");
        assert_eq!(two.lock(read(1, 0, 9)), Status::Granted, "{how:?}");
        assert_eq!(two.unlock(read(1, 0, 9)), Status::Granted);
        // Weaker: it is for writing until its owner knows.
        assert_eq!(one.lock(write(1, 0, 5)), Status::Granted);
        assert_eq!(two.lock(write(1, 20, 5)), Status::Granted);
        assert_eq!(one.lock(read(1, 0, 30).waiting()), Status::Blocked);
        assert_eq!(two.unlock(write(1, 20, 5)), Status::Granted);
        assert_eq!(two.lock(read(1, 0, 1)), Status::Denied, "{how:?}");
        ends(&one, read(1, 0, 30), how);
        assert_eq!(two.lock(read(1, 0, 1)), Status::Denied, "{how:?}");
        assert_eq!(two.lock(write(1, 10, 0)), Status::Granted, "{how:?}");
    }
}

#[test]
fn a_weaker_lock_is_that_once_its_owner_knows() {
    let server = Server::new();
    let (one, two) = clients(&server);
    assert_eq!(one.lock(write(1, 0, 5)), Status::Granted);
    assert_eq!(two.lock(write(1, 20, 5)), Status::Granted);
    assert_eq!(one.lock(read(1, 0, 30).waiting()), Status::Blocked);
    assert_eq!(two.unlock(write(1, 20, 5)), Status::Granted);
    let call = server.network.granted();
    assert_eq!(two.lock(read(1, 0, 1).waiting()), Status::Blocked);
    call.answers(Status::Granted);
    let call = server.network.granted();
    assert_eq!(call.address.to_string(), "10.1.0.2");
    call.answers(Status::Granted);
    assert_eq!(two.lock(write(1, 0, 1)), Status::Denied);
}

#[test]
fn what_an_owner_does_meanwhile_outlasts_what_it_declines() {
    for how in ENDS {
        let server = Server::new();
        let (one, two) = clients(&server);
        assert_eq!(one.lock(write(1, 0, 4)), Status::Granted);
        assert_eq!(two.lock(write(1, 5, 5)), Status::Granted);
        assert_eq!(one.lock(write(1, 0, 10).waiting()), Status::Blocked);
        assert_eq!(two.unlock(write(1, 5, 5)), Status::Granted);
        assert_eq!(one.lock(write(1, 8, 1)), Status::Granted);
        assert_eq!(one.unlock(write(1, 1, 1)), Status::Granted);
        // Another lock that overlaps waits until it is known what becomes of the first.
        assert_eq!(two.lock(write(1, 20, 1)), Status::Granted);
        assert_eq!(one.lock(read(1, 7, 20).waiting()), Status::Blocked);
        assert_eq!(two.unlock(write(1, 20, 1)), Status::Granted);
        ends(&one, write(1, 0, 10), how);
        let call = server.network.granted();
        assert_eq!(one.cancel(read(1, 7, 20)), Status::Granted);
        call.answers(Status::Denied);
        for kept in [0, 2, 3, 8] {
            let denied = two.lock(read(1, kept, 1));
            assert_eq!(denied, Status::Denied, "{how:?} {kept}");
        }
        for free in [1, 4, 5, 6, 7, 9, 20] {
            let granted = two.lock(write(1, free, 1));
            assert_eq!(granted, Status::Granted, "{how:?} {free}");
        }
        // Nothing is left that counts.
        assert_eq!(one.unlock(write(1, 0, 0)), Status::Granted);
        assert_eq!(two.unlock(write(1, 0, 0)), Status::Granted);
        assert_eq!(server.gauge("nlm_locks"), 0);
        assert_eq!(server.gauge("nlm_waiters"), 0);
    }
}

#[test]
fn cancel_ends_the_wait() {
    let server = Server::new();
    let (one, two) = clients(&server);
    assert_eq!(one.lock(write(1, 0, 9)), Status::Granted);
    assert_eq!(two.cancel(write(1, 0, 9)), Status::Denied);
    assert_eq!(two.lock(write(1, 0, 9).waiting()), Status::Blocked);
    assert_eq!(two.cancel(read(1, 0, 9)), Status::Denied);
    assert_eq!(two.cancel(write(1, 0, 9)), Status::Granted);
    assert_eq!(one.unlock(write(1, 0, 9)), Status::Granted);
    assert!(server.network.is_silent());
    // Also of a lock that it is just being told of.
    assert_eq!(one.lock(write(1, 0, 9)), Status::Granted);
    assert_eq!(two.lock(write(1, 0, 9).waiting()), Status::Blocked);
    assert_eq!(one.unlock(write(1, 0, 9)), Status::Granted);
    let call = server.network.granted();
    assert_eq!(two.cancel(write(1, 0, 9)), Status::Granted);
    assert_eq!(one.lock(write(1, 0, 9)), Status::Granted);
    call.answers(Status::Denied);
    assert_eq!(two.lock(write(1, 0, 9)), Status::Denied);
}

#[test]
fn a_stronger_lock_of_its_own_does_not_stand_in_the_way_of_a_weaker() {
    let server = Server::new();
    let (one, two) = clients(&server);
    assert_eq!(one.lock(write(1, 0, 9)), Status::Granted);
    assert_eq!(two.lock(read(1, 0, 9).waiting()), Status::Blocked);
    assert_eq!(one.lock(read(1, 0, 9)), Status::Granted);
    server.network.granted().answers(Status::Granted);
}

#[test]
fn a_client_without_an_address_is_not_called_and_so_does_not_wait() {
    let server = Server::new();
    let (one, two) = clients(&server);
    let mut local = caller("10.1.0.9:700");
    local.peer = odafs_fabric::Peer::Simulated(9);
    let two = Three {
        caller: local,
        ..two
    };
    assert_eq!(one.lock(write(1, 0, 9)), Status::Granted);
    assert_eq!(two.lock(write(1, 0, 9).waiting()), Status::Denied);
}

#[test]
fn what_is_no_range_or_no_file_is_refused() {
    let server = Server::new();
    let (one, _) = clients(&server);
    assert_eq!(one.lock(write(1, u64::MAX, 2)), Status::TooBig);
    assert_eq!(one.lock(write(1, u64::MAX, 1)), Status::Granted);
    let mut lock = one.of(write(1, 0, 0));
    lock.file = FileHandle(&[1, 2, 3]);
    let arguments = LockArgs {
        cookie: Object(&[]),
        block: false,
        exclusive: true,
        lock,
        reclaim: false,
        state: 0,
    };
    let result: LockResult<'static> = one.call(Procedure::Lock, &arguments);
    assert_eq!(result.status, Status::StaleHandle);
    // The mode is 600, and its owner is user 1000.
    let arguments = LockArgs {
        lock: one.of(write(1, 0, 1)),
        ..arguments
    };
    let procedure = (nlm4::PROGRAM, nlm4::VERSION, Procedure::Lock.code());
    let bytes = arguments.to_bytes();
    let reply = server.call(&one.caller, procedure, &user(2000), &bytes);
    let reply = reply.expect("served");
    let result = LockResult::from_bytes(reply).expect("a result");
    assert_eq!(result.status, Status::Failed);
}

#[test]
fn a_host_frees_what_it_has_and_nothing_else() {
    let server = Server::new();
    let (one, two) = clients(&server);
    let also = server.client("10.1.0.1:701", "also");
    assert_eq!(one.lock(write(1, 0, 5)), Status::Granted);
    assert_eq!(also.lock(write(1, 5, 5)), Status::Granted);
    assert_eq!(two.lock(write(1, 0, 5).waiting()), Status::Blocked);
    let free = |client: &Three<'_>, name: &'static str| {
        let arguments = FreeAllArgs {
            name: Name(name.as_bytes()),
            state: 0,
        };
        client.call::<()>(Procedure::FreeAll, &arguments);
    };
    free(&two, "one");
    free(&one, "two");
    assert!(server.network.is_silent());
    free(&one, "one");
    server.network.granted().answers(Status::Granted);
    assert_eq!(two.lock(write(1, 5, 1)), Status::Denied);
}

#[test]
fn a_client_that_has_started_anew_has_no_locks() {
    let server = Server::new();
    let (mut one, two) = clients(&server);
    one.name = "one.example.com";
    assert_eq!(one.lock(write(1, 0, 5)), Status::Granted);
    assert_eq!(two.lock(write(1, 0, 5).waiting()), Status::Blocked);
    // Another host cannot say so for it, nor one that shares its address.
    two.notifies("one", 5);
    one.notifies("other", 5);
    assert!(server.network.is_silent());
    let unprivileged = server.client("10.1.0.1:40000", "one");
    unprivileged.notifies("one", 5);
    server.network.granted().answers(Status::Granted);
    // Said again, late: what it has locked since is its own.
    one.state = 5;
    assert_eq!(two.unlock(write(1, 0, 5)), Status::Granted);
    assert_eq!(one.lock(write(1, 0, 5)), Status::Granted);
    one.notifies("one", 5);
    assert_eq!(two.lock(write(1, 0, 5)), Status::Denied);
}

#[test]
fn a_lock_taken_before_the_notice_does_not_save_the_ones_of_before() {
    // Of another process, and of one with the same number.
    for process in [2, 1] {
        let server = Server::new();
        let (mut one, two) = clients(&server);
        assert_eq!(one.lock(write(1, 0, 5)), Status::Granted);
        assert_eq!(one.lock(write(1, 10, 5)), Status::Granted);
        let share = share_of(&one, ShareMode::DenyBoth, ShareAccess::Read);
        let shared: ShareResult<'static> = one.call(Procedure::Share, &share);
        assert_eq!(shared.status, Status::Granted);
        one.state = 5;
        assert_eq!(one.lock(write(process, 100, 1)), Status::Granted);
        if process == 1 {
            assert_eq!(one.lock(write(1, 10, 2)), Status::Granted);
        }
        one.notifies("one", 5);
        assert_eq!(two.lock(write(1, 0, 5)), Status::Granted, "{process}");
        assert_eq!(two.lock(write(1, 12, 3)), Status::Granted, "{process}");
        let kept = match process {
            1 => [Status::Denied; 2],
            _ => [Status::Granted, Status::Denied],
        };
        let locked = [two.lock(write(1, 10, 2)), two.lock(write(1, 100, 1))];
        assert_eq!(locked, kept, "{process}");
        let share = share_of(&two, ShareMode::DenyNone, ShareAccess::Write);
        let shared: ShareResult<'static> = two.call(Procedure::Share, &share);
        assert_eq!(shared.status, Status::Granted);
        // Once more: it keeps what it has taken since.
        one.notifies("one", 5);
        assert_eq!(two.lock(write(1, 100, 1)), Status::Denied);
    }
}

/// How a client shows that it has a lock.
#[derive(Clone, Copy, Debug)]
enum Shows {
    Nothing,
    Locks,
    Unlocks,
}

#[test]
fn a_grant_without_an_answer_can_be_cancelled() {
    for shows in [Shows::Nothing, Shows::Locks, Shows::Unlocks] {
        let server = Server::new();
        let (one, two) = clients(&server);
        assert_eq!(one.lock(write(1, 0, 9)), Status::Granted);
        assert_eq!(two.lock(write(1, 0, 9).waiting()), Status::Blocked);
        assert_eq!(one.unlock(write(1, 0, 9)), Status::Granted);
        server.network.granted().hears(Heard::Silence);
        assert_eq!(one.lock(write(1, 0, 9)), Status::Denied);
        let (cancelled, free) = match shows {
            Shows::Nothing => (Status::Granted, Status::Granted),
            Shows::Locks => {
                assert_eq!(two.lock(write(1, 0, 9)), Status::Granted);
                (Status::Denied, Status::Denied)
            }
            Shows::Unlocks => {
                assert_eq!(two.unlock(write(1, 3, 1)), Status::Granted);
                (Status::Denied, Status::Denied)
            }
        };
        assert_eq!(two.cancel(write(1, 0, 9)), cancelled, "{shows:?}");
        assert_eq!(one.lock(write(1, 0, 9)), free, "{shows:?}");
        assert_eq!(server.gauge("nlm_waiters"), 0);
    }
}

#[test]
fn who_may_not_call_any_more_has_no_locks() {
    let server = Server::new();
    let (one, two) = clients(&server);
    let three = server.client("10.1.0.3:700", "three");
    assert_eq!(one.lock(write(1, 0, 5)), Status::Granted);
    let share = share_of(&one, ShareMode::DenyBoth, ShareAccess::Read);
    let shared: ShareResult<'static> = one.call(Procedure::Share, &share);
    assert_eq!(shared.status, Status::Granted);
    for client in [&one, &two] {
        assert_eq!(client.lock(write(2, 0, 3).waiting()), Status::Blocked);
    }
    assert!(!server.remains.kept.lock().unwrap().is_empty());
    server.admits_only("10.1.0.2/31");
    // Neither does the other program of that host get it.
    let call = server.network.granted();
    assert_eq!(call.address.to_string(), "10.1.0.2");
    call.answers(Status::Granted);
    assert_eq!(two.unlock(write(2, 0, 0)), Status::Granted);
    assert!(server.network.is_silent());
    assert_eq!(three.lock(write(1, 0, 0)), Status::Granted);
    let share = share_of(&three, ShareMode::DenyNone, ShareAccess::Write);
    let shared: ShareResult<'static> = three.call(Procedure::Share, &share);
    assert_eq!(shared.status, Status::Granted);
    server.admits_only("10.9.0.0/16");
    assert_eq!(server.gauge("nlm_hosts"), 0);
    assert_eq!(*server.remains.kept.lock().unwrap(), "");
}

#[test]
fn a_share_outlives_its_file_until_it_is_given_back() {
    let server = Server::new();
    let (one, two) = clients(&server);
    let share = share_of(&one, ShareMode::DenyBoth, ShareAccess::Read);
    let shared: ShareResult<'static> = one.call(Procedure::Share, &share);
    assert_eq!(shared.status, Status::Granted);
    server.remove_file();
    // Somebody without a share makes the server remember nothing.
    for client in [&two, &one] {
        let share = share_of(client, ShareMode::DenyBoth, ShareAccess::Read);
        let ended: ShareResult<'static> = client.call(Procedure::Unshare, &share);
        assert_eq!(ended.status, Status::Granted);
    }
    server.tick_after(Nanos::from_secs(3600));
    assert_eq!(server.gauge("nlm_hosts"), 0);
}

pub fn share_of<'a>(client: &'a Three<'_>, mode: ShareMode, access: ShareAccess) -> ShareArgs<'a> {
    ShareArgs {
        cookie: Object(b"c"),
        share: Share {
            caller: Name(client.name.as_bytes()),
            file: FileHandle(&client.server.file),
            owner: Object(b"o"),
            mode,
            access,
        },
        reclaim: false,
    }
}

#[test]
fn a_user_who_may_not_read_or_write_a_file_cannot_share_it() {
    let server = Server::new();
    let (one, _) = clients(&server);
    let bytes = share_of(&one, ShareMode::DenyBoth, ShareAccess::Read).to_bytes();
    // The mode is 600, and its owner is user 1000.
    for (uid, status) in [(2000, Status::Failed), (1000, Status::Granted)] {
        let procedure = (nlm4::PROGRAM, nlm4::VERSION, Procedure::Share.code());
        let reply = server.call(&one.caller, procedure, &user(uid), &bytes);
        let reply = reply.expect("served");
        let result = ShareResult::from_bytes(reply).expect("a result");
        assert_eq!(result.status, status);
    }
}

#[test]
fn shares_exclude_what_they_deny() {
    let server = Server::new();
    let (one, two) = clients(&server);
    let share = |client: &Three<'_>, procedure, mode, access| {
        let result: ShareResult<'static> = client.call(procedure, &share_of(client, mode, access));
        result.status
    };
    let shared = |client, mode, access| share(client, Procedure::Share, mode, access);
    let reads = (ShareMode::DenyWrite, ShareAccess::Read);
    assert_eq!(shared(&one, reads.0, reads.1), Status::Granted);
    assert_eq!(shared(&two, reads.0, reads.1), Status::Granted);
    let writes = (ShareMode::DenyNone, ShareAccess::Write);
    assert_eq!(shared(&one, writes.0, writes.1), Status::Denied);
    let ended = share(&two, Procedure::Unshare, reads.0, reads.1);
    assert_eq!(ended, Status::Granted);
    assert_eq!(shared(&one, writes.0, writes.1), Status::Granted);
    assert_eq!(shared(&two, reads.0, reads.1), Status::Denied);
    one.notifies("one", 9);
    assert_eq!(shared(&two, reads.0, reads.1), Status::Granted);
}

#[test]
fn others_versions_and_forms_are_refused() {
    let server = Server::new();
    let one = caller("10.1.0.1:700");
    let call = |version, procedure| {
        let procedure = (nlm4::PROGRAM, version, procedure);
        server.call(&one, procedure, &user(1000), &[])
    };
    for version in [1, 3] {
        let mismatch = Rejection::ProgramMismatch { low: 4, high: 4 };
        assert_eq!(call(version, 1), Err(mismatch));
    }
    for form in 5..=19 {
        assert_eq!(call(4, form), Err(Rejection::ProcedureUnavailable));
    }
    assert_eq!(call(4, 2), Err(Rejection::GarbageArguments));
    let stranger = server.client("10.7.0.1:700", "x");
    let procedure = (nlm4::PROGRAM, 4, 4);
    let unlock = UnlockArgs {
        cookie: Object(&[]),
        lock: stranger.of(write(1, 0, 0)),
    };
    let refused = server.call(&stranger.caller, procedure, &user(1000), &unlock.to_bytes());
    assert!(matches!(refused, Err(Rejection::Auth(_))), "{refused:?}");
}

#[test]
fn the_status_monitor_monitors_nobody_for_others() {
    let server = Server::new();
    let one = caller("10.1.0.1:700");
    let name = nsm::HostName(b"host");
    let call = |procedure: nsm::Procedure, arguments: &[u8]| {
        let procedure = (nsm::PROGRAM, nsm::VERSION, procedure.code());
        server.call(&one, procedure, &user(0), arguments)
    };
    let reply = call(nsm::Procedure::Stat, &name.to_bytes()).expect("served");
    let monitored = nsm::Monitored {
        outcome: nsm::Outcome::Fail,
        state: 3,
    };
    assert_eq!(nsm::Monitored::from_bytes(reply), Ok(monitored));
    let id = nsm::MonitorId {
        host: name,
        caller: nsm::Caller {
            name,
            program: 1,
            version: 2,
            procedure: 3,
        },
    };
    let monitor = nsm::Monitor {
        id,
        private: [0; 16],
    };
    let reply = call(nsm::Procedure::Monitor, &monitor.to_bytes()).expect("served");
    assert_eq!(nsm::Monitored::from_bytes(reply), Ok(monitored));
    let reply = call(nsm::Procedure::Unmonitor, &id.to_bytes()).expect("served");
    assert_eq!(reply, [0, 0, 0, 3]);
    let reply = call(nsm::Procedure::UnmonitorAll, &id.caller.to_bytes()).expect("served");
    assert_eq!(reply, [0, 0, 0, 3]);
    assert_eq!(call(nsm::Procedure::SimulateCrash, &[]), Ok(&[][..]));
}
