//! What one client can make the server hold is bounded, and so is what all can.

use odafs_common::wire::nfs3::FileHandle;
use odafs_common::wire::nlm4::{self, LockArgs, LockResult, Name, Object, Procedure, Status};
use odafs_common::wire::xdr::Encode as _;

use crate::harness::{Server, Three, user, write};

/// Asks until it is refused for want of room; how often that was granted.
fn until_full(mut ask: impl FnMut(u32) -> Status) -> u32 {
    for granted in 0.. {
        match ask(granted) {
            Status::Granted | Status::Blocked => {}
            Status::DeniedNoLocks => return granted,
            other => panic!("{other:?}"),
        }
    }
    unreachable!("somewhere it ends")
}

#[test]
fn owners_ranges_names_and_waiters_of_an_address_are_bounded() {
    let server = Server::new();
    let one = server.client("10.1.0.1:700", "one");
    let two = server.client("10.1.0.2:700", "two");
    let ranges = until_full(|n| one.lock(write(1, u64::from(n) * 2, 1)));
    assert!((1000..100_000).contains(&ranges), "{ranges}");
    // Another name at the address does not help, and others are not hindered.
    let other = server.client("10.1.0.1:700", "other");
    assert_eq!(other.lock(write(1, 1 << 40, 1)), Status::DeniedNoLocks);
    assert_eq!(two.lock(write(1, 1 << 40, 1)), Status::Granted);
    assert_eq!(one.unlock(write(1, 0, 1)), Status::Granted);
    assert_eq!(one.unlock(write(1, 0, 0)), Status::Granted);

    let owners = until_full(|n| one.lock(write(n, u64::from(n) * 2, 1)));
    assert!((1000..10_000).contains(&owners), "{owners}");
    one.notifies("one", 9);

    assert_eq!(two.lock(write(1, 0, 9)), Status::Granted);
    let waiters = until_full(|n| one.lock(write(n, 0, 9).waiting()));
    assert!((100..1000).contains(&waiters), "{waiters}");
    one.notifies("one", 11);
    assert_eq!(two.unlock(write(1, 0, 9)), Status::Granted);
    assert!(server.network.is_silent());

    let names = until_full(|n| {
        let name: &'static str = format!("name{n}").leak();
        server
            .client("10.1.0.1:700", name)
            .lock(write(1, u64::from(n), 1))
    });
    assert!((10..1000).contains(&names), "{names}");
}

#[test]
fn arguments_of_any_bytes_are_refused_or_answered() {
    let server = Server::new();
    let one = server.client("10.1.0.1:700", "one");
    let good = LockArgs {
        cookie: Object(&[1; 9]),
        block: true,
        exclusive: true,
        lock: one.of(write(1, 0, 0)),
        reclaim: false,
        state: 7,
    };
    let bytes = good.to_bytes();
    let call = |procedure, arguments: &[u8]| {
        let procedure = (nlm4::PROGRAM, nlm4::VERSION, procedure);
        server.call(&one.caller, procedure, &user(1000), arguments)
    };
    for procedure in [1, 2, 3, 4, 20, 21, 22, 23] {
        for end in 0..bytes.len() {
            let _ = call(procedure, &bytes[..end]);
        }
        for at in 0..bytes.len() {
            let mut bent = bytes.clone();
            bent[at] ^= 0xff;
            let _ = call(procedure, &bent);
        }
    }
}

#[test]
fn handles_of_what_is_no_file_hold_nothing() {
    let server = Server::new();
    let one: Three<'_> = server.client("10.1.0.1:700", "one");
    for handle in [&[][..], &[0; 64], &server.file[..server.file.len() - 1]] {
        let mut lock = one.of(write(1, 0, 0));
        lock.file = FileHandle(handle);
        lock.caller = Name(&[0; 1024]);
        lock.owner = Object(&[0; 1024]);
        let arguments = LockArgs {
            cookie: Object(&[0; 1024]),
            block: true,
            exclusive: true,
            lock,
            reclaim: false,
            state: 7,
        };
        let result: LockResult<'static> = one.call(Procedure::Lock, &arguments);
        assert_eq!(result.status, Status::StaleHandle);
    }
}
