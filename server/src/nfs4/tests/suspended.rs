//! Compounds that wait: what was done before is not done again.

use std::sync::mpsc::{self, Receiver, Sender};

use odafs_common::wire::rpc::{self, Auth};
use odafs_fabric::clock;
use odafs_fabric::sync::Mutex;
use odafs_fabric::sync::atomic::{AtomicUsize, Ordering};
use odafs_nic::calls::{Calls as _, ChunkSource, Job, Outcome, Placements};

use super::legacy::{confirmed, opened_and_confirmed};
use super::*;
use crate::rpc::Service;
use crate::rpc::access::{Access, Squash};
use crate::rpc::drc::{Bounds, DuplicateCache};
use crate::vfs::testing::PAGE;

/// A file of two pages, the second of which nobody has read.
const FILE: [u8; 2 * PAGE as usize] = [7; 2 * PAGE as usize];

/// A server, and its syncs of files so far. `at_sync` runs in each of them.
fn counting(at_sync: impl Fn() + Send + Sync + 'static) -> (Room, Arc<AtomicUsize>) {
    let syncs = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&syncs);
    let world = World::before_syncs(256, move || {
        counted.fetch_add(1, Ordering::Relaxed);
        at_sync();
    });
    let room = Room::over(world, Records::none(), LEASE);
    room.file(b"file", &FILE);
    (room, syncs)
}

/// A write that is synced, once.
fn write(state: StateId, offset: u64, data: &[u8]) -> Operation<'_> {
    super::write(state, offset, Stable::FileSync, data)
}

fn size() -> Operation<'static> {
    get(Bitmap::of(&[Attribute::Size]))
}

fn told(result: &OperationResult<'_>) -> u64 {
    let OperationResult::GetAttributes(Ok(raw)) = result else {
        panic!("{result:?}");
    };
    let told = Attributes::parse(raw).expect("attributes");
    told.size.expect("the size")
}

fn data<'r>(result: &OperationResult<'r>) -> &'r [u8] {
    let OperationResult::Read(Ok(ok)) = result else {
        panic!("{result:?}");
    };
    ok.data.0
}

/// The writes of a compound, what it reads of a page that is not in memory, and what is before and behind them.
fn ask(state: StateId, handle: &[u8]) -> [Operation<'_>; 6] {
    [
        put(handle),
        size(),
        write(state, 0, b"one"),
        write(state, 3, b"two"),
        read(state, PAGE, 4),
        size(),
    ]
}

/// A client that has the file open, and whose handle is known.
fn opened(client: &Client<'_>) -> (StateId, Vec<u8>) {
    let (state, handle) = client.opened(b"me", b"file", (share_access::BOTH, 0), None);
    assert_eq!(client.does(&[put(&handle), size()]).status(), Status::Ok);
    (state, handle)
}

fn again(client: &Client<'_>, bytes: &[u8]) -> Reply {
    let (_, reply) = client
        .room
        .run(&client.caller, &client.who, bytes, Effort::MayBlock);
    reply
}

#[test]
fn each_operation_runs_once() {
    let (room, syncs) = counting(|| {});
    let client = Client::new(&room, b"client", 1);
    let other = Client::new(&room, b"other", 2);
    let (state, handle) = opened(&client);
    let (others, _) = other.opened(b"me", b"file", (share_access::BOTH, 0), None);
    let fills = || room.world.export.metrics().fills.get();
    let (synced, filled) = (syncs.load(Ordering::Relaxed), fills());
    let bytes = client.next(&ask(state, &handle));
    let suspended = room.suspended(&client, &bytes);
    assert_eq!((syncs.load(Ordering::Relaxed), fills()), (synced, filled));
    // What the second operation told is true no more.
    let longer = other.does(&[put(&handle), write(others, 2 * PAGE, b"more")]);
    assert_eq!(longer.status(), Status::Ok, "{:?}", longer.all());
    // The slot is taken: who asks again comes too early.
    assert_eq!(again(&client, &bytes).status(), Status::Delay);
    let (answer, reply) = room.resume((&client.caller, &client.who), suspended, &bytes);
    assert!(matches!(answer, Answer::Replied), "{answer:?}");
    let all = reply.all();
    assert_eq!(all.len(), 7, "{all:?}");
    assert!(matches!(all[0], OperationResult::Sequence(Ok(_))));
    assert_eq!((told(&all[2]), told(&all[6])), (2 * PAGE, 2 * PAGE + 4));
    assert_eq!(data(&all[5]), [7; 4]);
    let counts = || (syncs.load(Ordering::Relaxed), fills());
    assert_eq!(counts(), (synced + 3, filled + 1));
    // Once it is over, it is answered by the slot.
    assert_eq!(again(&client, &bytes).0, reply.0);
    assert_eq!(counts(), (synced + 3, filled + 1));
    let start = other.does(&[put(&handle), read(others, 0, 7)]);
    assert_eq!(data(&start.last()), b"onetwo\x07");
}

/// A thread that goes on waits for the disk, twice.
#[test]
fn a_compound_that_waits_again_has_done_nothing_again() {
    let (began, begins) = mpsc::channel();
    let (release, released): (Sender<()>, Receiver<()>) = mpsc::channel();
    let waiting = Arc::new(Mutex::new(false));
    let (waits, released) = (Arc::clone(&waiting), Mutex::new(released));
    let (room, syncs) = counting(move || {
        if *waits.lock() {
            began.send(()).expect("a test");
            released.lock().recv().expect("a test");
        }
    });
    let client = Client::new(&room, b"client", 1);
    let (state, handle) = opened(&client);
    *waiting.lock() = true;
    let synced = syncs.load(Ordering::Relaxed);
    let bytes = client.next(&ask(state, &handle));
    let suspended = room.suspended(&client, &bytes);
    std::thread::scope(|scope| {
        let worker = scope.spawn(|| room.resume((&client.caller, &client.who), suspended, &bytes));
        for _ in 0..2 {
            begins.recv().expect("it waits");
            assert_eq!(again(&client, &bytes).status(), Status::Delay);
            release.send(()).expect("it waits");
        }
        let (_, reply) = worker.join().expect("no panic");
        assert_eq!(reply.status(), Status::Ok, "{:?}", reply.all());
        assert_eq!(again(&client, &bytes).0, reply.0);
    });
    assert_eq!(syncs.load(Ordering::Relaxed), synced + 2);
}

#[test]
fn a_connection_that_dies_in_between_loses_nothing_and_repeats_nothing() {
    let (room, syncs) = counting(|| {});
    let mut client = Client::new(&room, b"client", 1);
    let (state, handle) = opened(&client);
    let synced = syncs.load(Ordering::Relaxed);
    let bytes = client.next(&ask(state, &handle));
    let suspended = room.suspended(&client, &bytes);
    room.nfs.closed(1);
    client.caller = caller(2);
    assert_eq!(again(&client, &bytes).status(), Status::Delay);
    let (_, reply) = room.resume((&client.caller, &client.who), suspended, &bytes);
    assert_eq!(reply.status(), Status::Ok, "{:?}", reply.all());
    // The reply went nowhere; the client asks for it over another connection.
    assert_eq!(again(&client, &bytes).0, reply.0);
    assert_eq!(syncs.load(Ordering::Relaxed), synced + 2);
    // Nobody goes on: nothing was written, and the slot is free.
    let bytes = client.next(&ask(state, &handle));
    drop(room.suspended(&client, &bytes));
    assert_eq!(syncs.load(Ordering::Relaxed), synced + 2);
    assert_eq!(again(&client, &bytes).status(), Status::Ok);
    assert_eq!(syncs.load(Ordering::Relaxed), synced + 4);
}

/// The first read goes where it may, before the compound waits. Where it went is not used again.
#[test]
fn data_that_were_placed_stay_placed() {
    let room = Room::new();
    room.file(b"file", b"data");
    let mut client = Client::new(&room, b"client", 1);
    let (state, handle) = opened(&client);
    let commit = Operation::Commit(CommitArgs {
        offset: 0,
        count: 0,
    });
    let ask = [
        put(&handle),
        read(state, 0, 4),
        Operation::SaveFileHandle,
        Operation::PutRootFileHandle,
        Operation::RestoreFileHandle,
        commit,
        read(state, 1, 3),
    ];
    assert_eq!(client.does(&ask).status(), Status::Ok);
    // All of it is in memory now.
    client.caller.placements = Placements::new(&[4096, 4096]);
    let bytes = client.next(&ask);
    let suspended = room.suspended(&client, &bytes);
    assert_eq!(suspended.0.pins(), 1);
    let (answer, reply) = room.resume((&client.caller, &client.who), suspended, &bytes);
    let Answer::Placed(placed) = answer else {
        panic!("{answer:?}");
    };
    // The one was placed before the compound was suspended, and the other after.
    let [
        ChunkSource::Frame { frame, .. },
        ChunkSource::Frame { frame: second, .. },
    ] = &placed.pieces[..]
    else {
        panic!("{placed:?}");
    };
    for frame in [frame, second] {
        assert!(room.world.export.arena().is_pinned(frame.frame()));
    }
    let mut reply = reply.0;
    let numbers: Vec<_> = placed
        .results
        .iter()
        .map(|it| (it.result, it.bytes))
        .collect();
    assert_eq!(numbers, [(0, 4), (1, 3)]);
    for (result, data) in placed.results.iter().zip([&b"data"[..], b"ata\0"]).rev() {
        let at = result.at as usize;
        reply.splice(at..at, data.iter().copied());
    }
    let reply = Reply(reply);
    let all = reply.all();
    assert_eq!((data(&all[2]), data(&all[7])), (&b"data"[..], &b"ata"[..]));
}

/// The server behind RPC, with a duplicate request cache.
fn service(room: &Room) -> Service {
    let access = Access::new(Vec::new(), Squash::None, owner());
    let programs: Vec<Box<dyn crate::rpc::Program>> = vec![Box::new(Arc::clone(&room.nfs))];
    let duplicates = DuplicateCache::new(Bounds::default());
    Service::new(programs, std::sync::Arc::new(access), duplicates, false)
}

/// A call of minor version 0 by the owner of the file.
fn message(xid: u32, operations: &[Operation<'_>]) -> Vec<u8> {
    let mut bytes = Vec::new();
    let who = Auth::Sys(rpc::AuthSys {
        stamp: 0,
        machine: b"",
        uid: 1000,
        gid: 1000,
        gids: rpc::Groups::new(&[]),
    });
    let procedure = Procedure::Compound.code();
    rpc::call(
        &mut Writer::new(&mut bytes),
        xid,
        PROGRAM,
        VERSION,
        procedure,
        &who,
    );
    bytes.extend(compound(0, operations));
    bytes
}

fn deferred(service: &Service, caller: &Caller, message: &[u8]) -> Job {
    match service.call(caller, message, &mut Vec::new()) {
        Outcome::Deferred(job) => job,
        outcome => panic!("{outcome:?}"),
    }
}

/// The results in a reply.
fn results(reply: &[u8]) -> Reply {
    let reply = rpc::parse_reply(reply).expect("a reply");
    Reply(reply.body.expect("results").rest().to_vec())
}

fn done(job: Job) -> Reply {
    let mut reply = Vec::new();
    let outcome = job.run(&mut reply);
    assert!(matches!(outcome, Outcome::Replied), "{outcome:?}");
    results(&reply)
}

/// Serves a call, wherever that takes it.
fn served(service: &Service, caller: &Caller, message: &[u8]) -> Reply {
    let mut reply = Vec::new();
    match service.call(caller, message, &mut reply) {
        Outcome::Deferred(job) => done(job),
        Outcome::Replied => results(&reply),
        outcome => panic!("{outcome:?}"),
    }
}

#[test]
fn a_compound_without_a_session_goes_on_too() {
    let room = Room::new();
    let file = room.world.file("file", &FILE);
    let handle = room.world.export.handle(file.object());
    let service = service(&room);
    let (caller, anyone) = (caller(1), StateId::ANONYMOUS);
    // From now on the handle is known.
    served(&service, &caller, &message(0, &[put(&handle), size()]));
    let ask = [put(&handle), size(), read(anyone, PAGE, 4), size()];
    let message = message(1, &ask);
    let job = deferred(&service, &caller, &message);
    room.world.write(&file, 2 * PAGE, &b"more"[..]);
    let reply = done(job);
    let all = reply.all();
    assert_eq!((told(&all[1]), told(&all[3])), (2 * PAGE, 2 * PAGE + 4));
    assert_eq!(data(&all[2]), [7; 4]);
    // What is in memory now ends on the thread that polls.
    let deferred = service.counts().deferred;
    let reply = served(&service, &caller, &message);
    assert_eq!(data(&reply.all()[2]), [7; 4]);
    assert_eq!(service.counts().deferred, deferred);
}

/// The transport hears what a compound has pinned, because it waits with that.
#[test]
fn a_compound_that_waits_says_what_it_has_pinned() {
    let room = Room::new();
    let file = room.world.file("file", &FILE);
    let handle = room.world.export.handle(file.object());
    let service = service(&room);
    let (mut caller, anyone) = (caller(1), StateId::ANONYMOUS);
    let ask = [
        put(&handle),
        read(anyone, 0, 4),
        read(anyone, 4, 4),
        Operation::Commit(CommitArgs {
            offset: 0,
            count: 0,
        }),
    ];
    // The page is in memory after this. COMMIT may wait.
    served(&service, &caller, &message(0, &ask[..3]));
    let waits = message(1, &ask);
    assert_eq!(deferred(&service, &caller, &waits).pins(), 0);
    caller.placements = Placements::new(&[4096, 4096, 4096]);
    assert_eq!(deferred(&service, &caller, &waits).pins(), 2);
}

/// Minor version 0 counts the operations of owners. The duplicate request cache answers who repeats a call, and the owner
/// who makes it anew.
#[test]
fn operations_of_owners_are_counted_once() {
    let (room, syncs) = counting(|| {});
    let client = confirmed(&room, b"client");
    let (state, handle) = opened_and_confirmed(&client, b"file");
    let handle = &handle;
    let lock = Operation::Lock(LockArgs {
        kind: LockType::Write,
        reclaim: false,
        offset: 0,
        length: 10,
        locker: Locker::New(OpenToLockOwner {
            open_sequence: 3,
            open: state,
            lock_sequence: 7,
            owner: client.owner(b"locker"),
        }),
    });
    let ask = [
        put(handle),
        lock,
        write(state, 0, b"one"),
        read(state, PAGE, 4),
        size(),
    ];
    let service = service(&room);
    let synced = syncs.load(Ordering::Relaxed);
    let bytes = message(1, &ask);
    let job = deferred(&service, &client.caller, &bytes);
    // It waits for a thread, and its connection dies.
    let mut nothing = Vec::new();
    let outcome = service.call(&client.caller, &bytes, &mut nothing);
    assert!(matches!(outcome, Outcome::Dropped), "{outcome:?}");
    service.closed(client.caller.connection);
    let reply = done(job);
    assert_eq!(reply.status(), Status::Ok, "{:?}", reply.all());
    let OperationResult::Lock(Ok(locked)) = reply.all()[1] else {
        panic!("{:?}", reply.all());
    };
    let deferrals = service.counts().deferred;
    assert_eq!(served(&service, &client.caller, &bytes).0, reply.0);
    assert_eq!(service.counts().deferred, deferrals);
    assert_eq!(syncs.load(Ordering::Relaxed), synced + 1);
    // As another call: the owner has had that turn.
    let anew = done(deferred(&service, &client.caller, &message(2, &ask[..2])));
    assert_eq!(anew.all()[1], reply.all()[1]);
    let unlock = Operation::Unlock(UnlockArgs {
        kind: LockType::Write,
        sequence: 8,
        lock: locked,
        offset: 0,
        length: 10,
    });
    let unlocked = done(deferred(
        &service,
        &client.caller,
        &message(3, &[put(handle), unlock]),
    ));
    assert_eq!(unlocked.status(), Status::Ok, "{:?}", unlocked.all());
}

/// A client need not fear for what it has because its call took long.
#[test]
fn the_end_of_a_compound_renews_the_lease() {
    let last = Arc::new(Mutex::new(Nanos(0)));
    let synced = Arc::clone(&last);
    let (room, _) = counting(move || *synced.lock() = clock::awake());
    let client = Client::new(&room, b"client", 1);
    let (state, handle) = opened(&client);
    let renewed = |client: &Client<'_>| room.nfs.state.lock().renewed(client.id);
    let written = client.does(&[put(&handle), write(state, 0, b"data")]);
    assert_eq!(written.status(), Status::Ok, "{:?}", written.all());
    assert!(renewed(&client) >= *last.lock());
    // In minor version 0, if an operation of the compound renews.
    let old = confirmed(&room, b"old");
    let (state, _) = opened_and_confirmed(&old, b"file");
    let written = old.call(0, &[put(&handle), write(state, 0, b"data")]);
    assert_eq!(written.status(), Status::Ok, "{:?}", written.all());
    assert!(renewed(&old) >= *last.lock());
    let before = renewed(&old);
    let anyone = write(StateId::ANONYMOUS, 0, b"data");
    let written = old.call(0, &[put(&handle), anyone]);
    assert_eq!(written.status(), Status::Ok, "{:?}", written.all());
    assert_eq!(renewed(&old), before);
}

/// A thread that does not block has made the write, and the rest goes to one that never takes it up: the client is not admitted
/// any more, for example, or its connection broke while the pool had no room.
#[test]
fn a_write_that_was_made_is_not_made_again_and_the_client_hears_of_it() {
    let room = Room::new();
    let file = room.world.file("file", b"data");
    let client = Client::new(&room, b"client", 1);
    let (state, handle) = opened(&client);
    let commit = Operation::Commit(CommitArgs {
        offset: 0,
        count: 0,
    });
    let made = super::write(state, 0, Stable::FileSync, b"new!");
    let bytes = client.next(&[put(&handle), made, commit]);
    // The store has a write at hand at every second look. Until then nothing is done, and the slot is given back.
    let is_made = || {
        drop(room.suspended(&client, &bytes));
        room.world.read(&file, 0, 4) == b"new!"
    };
    assert!((0..4).any(|_| is_made()));
    room.world.write_outside(&file, b"next");
    room.world.observe();
    let (_, reply) = room.run(&client.caller, &client.who, &bytes, Effort::MayBlock);
    let all = reply.all();
    let [
        OperationResult::Sequence(Ok(_)),
        OperationResult::PutFileHandle(Ok(())),
        OperationResult::Write(Ok(made)),
        OperationResult::Commit(Err(Status::Delay)),
    ] = &all[..]
    else {
        panic!("{all:?}");
    };
    assert_eq!((made.count, reply.status()), (4, Status::Delay));
    assert_eq!(room.world.read(&file, 0, 4), b"next");
    // The rest, with the next sequence number.
    let commit = Operation::Commit(CommitArgs {
        offset: 0,
        count: 0,
    });
    let reply = client.does(&[put(&handle), commit]);
    assert_eq!(last!(reply, Commit).verifier, made.verifier);
}

/// The same, where data have been placed before: they are kept with the reply.
#[test]
fn what_was_placed_before_nobody_went_on_is_placed_again() {
    let room = Room::new();
    let file = room.world.file("file", b"data");
    let mut client = Client::new(&room, b"client", 1);
    let (state, handle) = opened(&client);
    assert_eq!(room.world.read(&file, 0, 4), b"data");
    client.caller.placements = Placements::one(4096);
    let commit = Operation::Commit(CommitArgs {
        offset: 0,
        count: 0,
    });
    let made = super::write(state, 0, Stable::FileSync, b"new!");
    let bytes = client.next(&[put(&handle), made, read(state, 0, 4), commit]);
    let is_made = || {
        drop(room.suspended(&client, &bytes));
        room.world.read(&file, 0, 4) == b"new!"
    };
    assert!((0..4).any(|_| is_made()));
    room.world.write(&file, 0, &b"next"[..]);
    let (answer, reply) = room.run(&client.caller, &client.who, &bytes, Effort::MayBlock);
    let Answer::Placed(placed) = answer else {
        panic!("{answer:?}");
    };
    let [ChunkSource::Bytes(again)] = &placed.pieces[..] else {
        panic!("{placed:?}");
    };
    assert_eq!(again[..], *b"new!");
    let mut whole = reply.0;
    let at = placed.results[0].at as usize;
    whole.splice(at..at, again.iter().copied());
    let reply = Reply(whole);
    let all = reply.all();
    assert_eq!(
        (data(&all[3]), reply.status()),
        (&b"new!"[..], Status::Delay)
    );
    assert!(matches!(
        all[4],
        OperationResult::Commit(Err(Status::Delay))
    ));
}
