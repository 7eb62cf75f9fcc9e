//! Exports that a reload takes from a client, which holds something there; and users that an export squashes to one.

use super::callbacks::hearing;
use super::delegations::BOTH;
use super::legacy::confirmed;
use super::*;
use crate::rpc::access::{Rule, Squash};

/// The export that is taken away.
const TAKEN: u16 = 7;
/// The one that stays.
const STAYS: u16 = 9;

fn rule(network: &str) -> Rule {
    let mut rule = Rule::new(vec![network.parse().unwrap()], Squash::All);
    rule.loopback = false;
    rule
}

/// A server of two exports for callers of 10.0.0.0/8. All of them are squashed to the owner of the files.
fn table() -> Room {
    let world = World::table(256, [("/taken", TAKEN), ("/stays", STAYS)]);
    let mut room = Room::over(world, Records::none(), LEASE);
    let access = Access::of(rule("10.0.0.0/8"), owner());
    let rules = [TAKEN, STAYS].map(|tag| (tag, rule("10.0.0.0/8")));
    room.access = Some(access.with_exports(rules.into()));
    room
}

/// A reload takes the first export from everybody.
fn reload(room: &Room) {
    let access = room.access.as_ref().expect("rules");
    let rules = vec![rule("192.0.2.0/24"), rule("10.0.0.0/8")];
    access.replace(rule("10.0.0.0/8"), rules).expect("as many");
}

fn at(number: u8) -> Peer {
    Peer::Address(format!("10.0.0.{number}:700").parse().unwrap())
}

/// The bytes of a file handle, and what was opened by it.
struct Taken {
    open: StateId,
    delegation: Option<StateId>,
    handle: Vec<u8>,
}

impl Taken {
    /// Does this to the file: the status.
    fn and(&self, client: &Client<'_>, minor: u32, operation: Operation<'_>) -> Reply {
        let ask = [put(&self.handle), operation];
        match minor {
            0 => client.call(0, &ask),
            _ => client.does(&ask),
        }
    }
}

/// Opens a file of the first export.
fn takes(client: &Client<'_>, minor: u32, name: &[u8]) -> Taken {
    let open = client.open(b"me", name, (BOTH, 0), None);
    let lookup = Operation::Lookup(Name(b"taken"));
    let get = Operation::GetFileHandle;
    let ask = [Operation::PutRootFileHandle, lookup, open, get];
    let reply = match minor {
        0 => client.call(0, &ask),
        _ => client.does(&ask),
    };
    let all = reply.all();
    let (opened, handle) = opened(&all);
    Taken {
        open: opened.state,
        delegation: match &opened.delegation {
            Delegation::Write(write) => Some(write.state),
            _ => None,
        },
        handle: handle.to_vec(),
    }
}

fn lock(client: &Client<'_>, open: StateId, open_sequence: u32) -> Operation<'static> {
    Operation::Lock(LockArgs {
        kind: LockType::Write,
        reclaim: false,
        offset: 0,
        length: 10,
        locker: Locker::New(OpenToLockOwner {
            open_sequence,
            open,
            lock_sequence: 0,
            owner: client.owner(b"locks"),
        }),
    })
}

fn unlock(lock: StateId, sequence: u32) -> Operation<'static> {
    Operation::Unlock(UnlockArgs {
        kind: LockType::Write,
        sequence,
        lock,
        offset: 0,
        length: 10,
    })
}

fn downgrade(state: StateId, sequence: u32) -> Operation<'static> {
    Operation::OpenDowngrade(OpenDowngradeArgs {
        state,
        sequence,
        share_access: BOTH,
        share_deny: 0,
    })
}

fn size() -> Operation<'static> {
    get(Bitmap::of(&[Attribute::Size]))
}

/// The stateid that an operation on locks or opens came to.
fn state(reply: &Reply) -> StateId {
    match reply.last() {
        OperationResult::Lock(Ok(state))
        | OperationResult::Unlock(Ok(state))
        | OperationResult::OpenConfirm(Ok(state))
        | OperationResult::OpenDowngrade(Ok(state)) => state,
        other => panic!("{other:?}"),
    }
}

#[test]
fn what_a_client_holds_it_gives_back_where_it_may_go_no_more() {
    let room = table();
    room.world.made("file");
    room.world.made("delegated");
    let (mut client, _mailbox) = hearing(&room, b"client", 1);
    client.caller.peer = at(1);
    let delegated = takes(&client, 1, b"delegated");
    let held = delegated.delegation.expect("a delegation");
    let taken = takes(&client, 1, b"file");
    let locked = state(&taken.and(&client, 1, lock(&client, taken.open, 0)));
    reload(&room);
    // Nobody else learns that the file is there.
    let mut other = Client::new(&room, b"other", 2);
    other.caller.peer = at(2);
    let refused = taken.and(&other, 1, size());
    assert_eq!((refused.status(), refused.all().len()), (Status::Stale, 2));
    // Whoever holds it can do nothing else to it.
    for operation in [
        size(),
        Operation::GetFileHandle,
        Operation::SaveFileHandle,
        client.open(b"me", b"file", (BOTH, 0), None),
        lock(&client, taken.open, 0),
        Operation::Commit(CommitArgs {
            offset: 0,
            count: 0,
        }),
        read(taken.open, 0, 1),
        write(taken.open, 0, Stable::Unstable, b"data"),
    ] {
        let code = operation.code();
        let refused = taken.and(&client, 1, operation);
        assert_eq!(refused.status(), Status::Access, "{code:?}");
        assert_eq!(refused.all().len(), 3);
    }
    let unlocked = taken.and(&client, 1, unlock(locked, 0));
    assert_ne!(state(&unlocked), locked);
    let less = state(&taken.and(&client, 1, downgrade(taken.open, 0)));
    let closed = taken.and(&client, 1, close(less, 0));
    assert_eq!(closed.status(), Status::Ok, "{:?}", closed.all());
    let returned = delegated.and(&client, 1, Operation::DelegationReturn(held));
    assert_eq!(returned.status(), Status::Ok, "{:?}", returned.all());
    let closed = delegated.and(&client, 1, close(delegated.open, 0));
    assert_eq!(closed.status(), Status::Ok, "{:?}", closed.all());
    let returned = Operation::DelegationReturn(taken.delegation.expect("a delegation"));
    assert_eq!(taken.and(&client, 1, returned).status(), Status::Ok);
    // It holds nothing any more.
    assert_eq!(taken.and(&client, 1, size()).status(), Status::Stale);
    assert_eq!(delegated.and(&client, 1, size()).status(), Status::Stale);
    assert_eq!(room.nfs.state.lock().counts(), [2, 2, 0, 0]);
}

#[test]
fn a_compound_that_waits_meanwhile_gives_back_too() {
    let room = table();
    room.world.made("file");
    let mut client = Client::new(&room, b"client", 1);
    client.caller.peer = at(1);
    let taken = takes(&client, 1, b"file");
    let bytes = client.next(&[put(&taken.handle), close(taken.open, 0)]);
    let suspended = room.suspended(&client, &bytes);
    reload(&room);
    let (_, reply) = room.resume((&client.caller, &client.who), suspended, &bytes);
    assert_eq!(reply.status(), Status::Ok, "{:?}", reply.all());
    assert_eq!(room.nfs.state.lock().counts(), [1, 1, 0, 0]);
}

/// No operation tells for which client it sends a file handle: so nobody can be told from a stranger.
#[test]
fn a_client_of_minor_version_0_reaches_nothing_there() {
    let room = table();
    room.world.made("file");
    let mut client = confirmed(&room, b"client");
    client.caller.peer = at(1);
    let taken = takes(&client, 0, b"file");
    let open = client.open(b"me", b"file", (BOTH, 0), None);
    let ask = [Operation::PutRootFileHandle, open, size()];
    assert_eq!(client.call(0, &ask).status(), Status::Ok);
    reload(&room);
    assert_eq!(taken.and(&client, 0, size()).status(), Status::Stale);
    let closed = taken.and(&client, 0, close(taken.open, 1));
    assert_eq!(closed.status(), Status::Stale);
    // Nor by an operation that it repeats.
    let again = client.call(0, &ask);
    let all = again.all();
    assert!(matches!(all[1], OperationResult::Open(Ok(_))), "{all:?}");
    assert_eq!(again.status(), Status::NoFileHandle);
}

#[test]
fn users_that_are_squashed_to_one_do_not_end_the_clients_of_each_other() {
    let room = table();
    room.world.made("file");
    let mut client = Client::new(&room, b"client", 1);
    client.caller.peer = at(1);
    takes(&client, 1, b"file");
    let exchange = |verifier, flags| exchange(b"client", verifier, flags);
    let mut other = Client::unknown(&room, 2);
    other.caller.peer = at(2);
    other.who = Credential::of(6, 6, &[]);
    assert_eq!(other.call(1, &[exchange(2, 0)]).status(), Status::ClidInUse);
    let update = exchange_id_flag::UPDATE_CONFIRMED;
    let reply = other.call(1, &[exchange(1, update)]);
    assert_eq!(reply.status(), Status::Perm);
    assert_eq!(
        client.does(&[Operation::PutRootFileHandle]).status(),
        Status::Ok
    );
    // Its own user may.
    other.who = client.who.clone();
    assert_eq!(other.call(1, &[exchange(2, 0)]).status(), Status::Ok);
}
