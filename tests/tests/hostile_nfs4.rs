//! Hostile clients of NFS version 4 beside one that behaves, at a running server.
#![cfg(not(shuttle))]

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::thread;
use std::time::{Duration, Instant};

use odafs_common::wire::nfs4::*;
use odafs_common::wire::rpc;
use odafs_common::wire::xdr::{Encode as _, Writer};
use odafs_tests::compounds::compound;
use odafs_tests::crowd::Crowd;
use odafs_tests::raw::RawRpc;
use odafs_tests::raw4::{COMPOUND, Raw4, results};
use odafs_tests::served::Served;
use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;

/// The shortest that there is.
const LEASE: [&str; 2] = ["--lease", "10s"];
/// How long a test waits for what needs a lease or two.
const PATIENCE: Duration = Duration::from_secs(60);
const FILES: u32 = 500;

struct World {
    server: Served,
    directory: TempDir,
    _scratch: TempDir,
}

fn serve(options: &[&str]) -> World {
    let new = || tempfile::tempdir().expect("a directory");
    let directory = new();
    // Each client that holds something is written to stable storage: here that costs nothing.
    let scratch = tempfile::tempdir_in("/dev/shm").unwrap_or_else(|_| new());
    // Callers without ids act as nobody.
    let mode = fs::Permissions::from_mode(0o777);
    fs::set_permissions(directory.path(), mode).expect("mode");
    let server = Served::start(directory.path(), scratch.path(), options);
    World {
        server,
        directory,
        _scratch: scratch,
    }
}

impl World {
    fn file(&self, name: &str) {
        let path = self.directory.path().join(name);
        fs::write(&path, b"the content").expect("a file");
        fs::set_permissions(&path, fs::Permissions::from_mode(0o666)).expect("mode");
    }

    fn client(&self, name: &[u8]) -> Raw4 {
        Raw4::connect(&self.server.nfs, name)
    }
}

fn open<'a>(client: &Raw4, name: &'a str, access: u32, deny: u32) -> [Operation<'a>; 2] {
    let open = Operation::Open(OpenArgs {
        sequence: 0,
        share_access: access,
        share_deny: deny,
        owner: client.owner(b"owner"),
        create: None,
        claim: Claim::Null(Name(name.as_bytes())),
    });
    [Operation::PutRootFileHandle, open]
}

/// What a client does that behaves: it opens a file so that nobody else may, locks it, writes it, and closes it.
fn works(client: &mut Raw4, name: &str) {
    let access = share_access::BOTH | share_access::WANT_NONE;
    let opens = open(client, name, access, share_deny::BOTH);
    let lock = Operation::Lock(LockArgs {
        kind: LockType::Write,
        reclaim: false,
        offset: 0,
        length: u64::MAX,
        locker: Locker::New(OpenToLockOwner {
            open_sequence: 0,
            open: StateId::CURRENT,
            lock_sequence: 0,
            owner: client.owner(b"locker"),
        }),
    });
    let write = Operation::Write(WriteArgs {
        state: StateId::CURRENT,
        offset: 0,
        stable: Stable::Unstable,
        data: Payload(b"mine"),
    });
    let unlock = Operation::Unlock(UnlockArgs {
        kind: LockType::Write,
        sequence: 0,
        lock: StateId::CURRENT,
        offset: 0,
        length: u64::MAX,
    });
    let locks = [lock, write, unlock];
    let reply = client.does(&[&opens[..], &locks].concat());
    let all = results(&reply);
    let Some(OperationResult::Open(Ok(opened))) = all.get(2) else {
        panic!("{all:?}");
    };
    let closes = Operation::Close(CloseArgs {
        sequence: 0,
        state: opened.state,
    });
    let lookup = Operation::Lookup(Name(name.as_bytes()));
    client.does(&[Operation::PutRootFileHandle, lookup, closes]);
}

fn status_of(reply: &[u8]) -> Status {
    let body = rpc::parse_reply(reply).expect("a reply").body;
    let results = Results::begin(body.expect("accepted")).expect("results");
    results.header().status
}

/// Ten thousand clients, of whom nine in ten open a file and lock a byte of it. None gives a sign of life after that.
#[test]
fn ten_thousand_clients_fall_silent() {
    let world = serve(&[&LEASE[..], &["--metrics", "127.0.0.1:0"]].concat());
    let names: Vec<String> = (0..FILES).map(|number| format!("f{number}")).collect();
    names.iter().for_each(|name| world.file(name));
    world.file("mine");
    let mut honest = world.client(b"honest");
    works(&mut honest, "mine");
    let before = world.server.resident_kib();
    let address = &world.server.nfs;
    thread::scope(|scope| {
        let crowds = [(0, 0), (1, 5000)].map(|(minor, first)| {
            scope.spawn(move || {
                for some in (first..first + 5000).step_by(50) {
                    let mut holding = Crowd::connect(address, minor, some..some + 45);
                    holding.open_and_lock(|number| format!("f{}", number % FILES));
                    Crowd::connect(address, minor, some + 45..some + 50);
                }
            })
        });
        while !crowds.iter().all(|crowd| crowd.is_finished()) {
            works(&mut honest, "mine");
            thread::sleep(Duration::from_millis(50));
        }
    });
    let grown = world.server.resident_kib().saturating_sub(before);
    let figure = |name: &str| world.server.metric(&format!("odafs_nfs4_{name}"));
    assert_eq!([figure("opens"), figure("locks")], [9_000; 2]);
    assert!(grown < 64 << 10, "the server grew by {grown} KiB");
    // Who holds nothing is gone once its lease is over, and what others hold is for whoever wants it.
    until(|| {
        works(&mut honest, "mine");
        figure("clients") == 9_001
    });
    for name in &names {
        works(&mut honest, name);
    }
    assert_eq!([figure("opens"), figure("locks")], [0; 2]);
}

/// Waits until something is so.
fn until(mut is_so: impl FnMut() -> bool) {
    let end = Instant::now() + PATIENCE;
    while !is_so() {
        assert!(Instant::now() < end, "not within {PATIENCE:?}");
        thread::sleep(Duration::from_millis(100));
    }
}

/// A COMPOUND of minor version 2 in the client's session, with these words behind SEQUENCE, as the operations that it says it has.
fn announcing(client: &mut Raw4, operations: u32, words: &[u32]) -> Vec<u8> {
    let mut bytes = Vec::new();
    let mut w = Writer::new(&mut bytes);
    w.opaque(b"");
    w.words([2, operations]);
    client.sequence().encode(&mut w);
    for word in words {
        w.u32(*word);
    }
    bytes
}

#[test]
fn what_is_announced_is_not_believed() {
    const GIB: u32 = 1 << 30;
    let world = serve(&[]);
    world.file("mine");
    let mut honest = world.client(b"honest");
    works(&mut honest, "mine");
    let mut hostile = world.client(b"hostile");
    let before = world.server.resident_kib();
    // A thousand operations are not executed, if they are there or not.
    let root = OpCode::PutRootFileHandle.code();
    let thousand = vec![root; 1000];
    for there in [1, 126, 127, 128, 1000] {
        let call = announcing(&mut hostile, 1001, &thousand[..there]);
        assert_eq!(status_of(&hostile.sends(&call)), Status::TooManyOps);
        // The slot was not taken.
        hostile.take_back();
    }
    let mut rpc = RawRpc::connect(&world.server.nfs);
    for (minor, operations) in [(0, 1000), (0, u32::MAX)] {
        let mut call = compound(minor, &vec![Operation::PutRootFileHandle; 1000]);
        call[8..12].copy_from_slice(&u32::to_be_bytes(operations));
        let reply = rpc.call(COMPOUND, &call).expect("a reply");
        assert_eq!(status_of(&reply), Status::Resource);
        assert!(results(&reply).len() < 200);
    }
    let of = |code: OpCode, words: &[u32]| [&[code.code()], words].concat();
    let zeros = |code: OpCode, count: usize, rest: &[u32]| {
        let zeros = vec![0; count];
        of(code, &[&zeros[..], rest].concat())
    };
    let announced = [
        // Masks of attributes of 4 GiB, and of more words than are there.
        of(OpCode::GetAttributes, &[GIB]),
        of(OpCode::GetAttributes, &[u32::MAX, 7, 7]),
        of(OpCode::GetAttributes, &[65, 7, 7]),
        zeros(OpCode::ReadDir, 6, &[GIB, 7]),
        of(OpCode::Verify, &[1, 7, GIB, 7]),
        zeros(OpCode::IoAdvise, 8, &[GIB]),
        zeros(OpCode::GetDirDelegation, 1, &[GIB]),
        // An access control list of a billion entries.
        zeros(OpCode::SetAttributes, 4, &[1, 1 << 12, 8, GIB, 0]),
        // Names, data and lists.
        of(OpCode::Lookup, &[GIB, 7]),
        zeros(OpCode::Write, 6, &[2, GIB, 7]),
        of(OpCode::TestStateId, &[GIB, 7]),
        of(OpCode::SetXattr, &[0, 4, 0x6161_6161, GIB, 7]),
        of(OpCode::BackchannelCtl, &[7, GIB, 1]),
        zeros(OpCode::Copy, 14, &[1, 1, GIB]),
        zeros(OpCode::WriteSame, 16, &[GIB]),
        of(OpCode::Rename, &[4, 0x6161_6161, u32::MAX]),
    ];
    for round in 0..100 {
        for words in &announced {
            let call = announcing(&mut hostile, 3, &[&[root], &words[..]].concat());
            let reply = hostile.sends(&call);
            let status = status_of(&reply);
            let all = results(&reply).len();
            assert_eq!((status, all), (Status::BadXdr, 3), "{words:?}, {round}");
        }
        works(&mut honest, "mine");
    }
    let grown = world.server.resident_kib().saturating_sub(before);
    assert!(grown < 32 << 10, "the server grew by {grown} KiB");
}

fn sequence(session: SessionId, slot: u32, number: u32) -> Operation<'static> {
    Operation::Sequence(SequenceArgs {
        session,
        sequence: number,
        slot,
        highest_slot: slot,
        cache: true,
    })
}

/// Two connections use the same slot at once for the same change.
#[test]
fn a_slot_that_two_connections_use_at_once_is_used_once() {
    let world = serve(&[]);
    let client = world.client(b"client");
    let session = client.session();
    let mut both = [(); 2].map(|()| RawRpc::connect(&world.server.nfs));
    for number in 1..=200 {
        let name = format!("d{number}");
        let makes = Operation::Create(CreateArgs {
            kind: CreateType::Directory,
            name: Name(name.as_bytes()),
            attributes: RawAttributes::default(),
        });
        let root = Operation::PutRootFileHandle;
        let call = compound(2, &[sequence(session, 1, number), root, makes]);
        for rpc in &mut both {
            rpc.post(COMPOUND, &call).expect("sent");
        }
        let replies = both.each_mut().map(|rpc| rpc.receive().expect("a reply"));
        let statuses = replies.each_ref().map(|reply| status_of(reply));
        let done = |status: &Status| *status == Status::Ok;
        assert!(statuses.iter().any(done), "{statuses:?}");
        match statuses {
            // One was the first reply again: all but the xid is the same.
            [Status::Ok, Status::Ok] => assert_eq!(replies[0][4..], replies[1][4..]),
            [Status::Ok, other] | [other, _] => assert_eq!(other, Status::Delay),
        }
    }
    let mut wrong = |slot, number| {
        let ask = [
            sequence(session, slot, number),
            Operation::PutRootFileHandle,
        ];
        let reply = both[0].call(COMPOUND, &compound(2, &ask));
        status_of(&reply.expect("a reply"))
    };
    assert_eq!(wrong(4, 1), Status::BadSlot);
    assert_eq!(wrong(u32::MAX, 1), Status::BadSlot);
    for number in [0, 199, 202, u32::MAX] {
        assert_eq!(wrong(1, number), Status::SeqMisordered, "{number}");
    }
    assert_eq!(wrong(1, 201), Status::Ok);
}

/// A client has as many sessions as it can get, with as many slots as they begin with, and each slot keeps as long a reply as it
/// can.
#[test]
fn replies_that_are_kept_are_bounded() {
    const KEPT: u32 = 8 << 10;
    let world = serve(&[]);
    fs::write(world.directory.path().join("long"), [7; KEPT as usize]).expect("a file");
    world.file("mine");
    let mut honest = world.client(b"honest");
    works(&mut honest, "mine");
    let mut client = world.client(b"greedy");
    let channel = ChannelAttributes {
        header_padding: 0,
        max_request: u32::MAX,
        max_response: u32::MAX,
        max_response_cached: u32::MAX,
        max_operations: u32::MAX,
        max_requests: u32::MAX,
        rdma_reads: AtMostOne(None),
    };
    let mut sessions = Vec::new();
    let refused = loop {
        let create = Operation::CreateSession(CreateSessionArgs {
            client_id: client.id(),
            sequence: 2 + sessions.len() as u32,
            flags: 0,
            fore: channel,
            back: channel,
            callback_program: 1,
            callback_security: List(vec![]),
        });
        let reply = client.call(&[create]);
        match &results(&reply)[..] {
            [OperationResult::CreateSession(Ok(made))] => {
                sessions.push((made.session, made.fore.max_requests));
            }
            [OperationResult::CreateSession(Err(status))] => break *status,
            other => panic!("{other:?}"),
        }
    };
    assert_eq!((sessions.len(), refused), (15, Status::NoSpc));
    let before = world.server.resident_kib();
    let mut rpc = RawRpc::connect(&world.server.nfs);
    let mut fills = |number| {
        let mut kept = 0;
        for (session, slots) in &sessions {
            for slot in 0..*slots {
                let lookup = Operation::Lookup(Name(b"long"));
                let read = Operation::Read(ReadArgs {
                    state: StateId::ANONYMOUS,
                    offset: 0,
                    count: KEPT - 300,
                });
                let root = Operation::PutRootFileHandle;
                let all = [sequence(*session, slot, number), root, lookup, read];
                let reply = rpc.call(COMPOUND, &compound(2, &all)).expect("a reply");
                assert_eq!(status_of(&reply), Status::Ok);
                kept += reply.len();
            }
        }
        kept
    };
    let kept = fills(1);
    for number in 2..5 {
        assert_eq!(fills(number), kept);
    }
    let grown = world.server.resident_kib().saturating_sub(before);
    assert!(grown < 32 << 10, "the server grew by {grown} KiB");
    works(&mut honest, "mine");
}

/// A client has delegations of files that others want, takes no callback, and leaves what the server sends unread.
#[test]
fn a_client_that_answers_no_callback_is_not_waited_for_without_end() {
    let world = serve(&LEASE);
    let names: Vec<String> = (0..8).map(|number| format!("f{number}")).collect();
    names.iter().for_each(|name| world.file(name));
    world.file("mine");
    let mut silent = world.client(b"silent");
    for name in &names {
        let opens = open(
            &silent,
            name,
            share_access::READ | share_access::WANT_READ,
            0,
        );
        let reply = silent.does(&opens);
        let all = results(&reply);
        let Some(OperationResult::Open(Ok(opened))) = all.last() else {
            panic!("{all:?}");
        };
        assert!(
            matches!(opened.delegation, Delegation::Read(_)),
            "{opened:?}"
        );
    }
    let mut honest = world.client(b"honest");
    let mut other = world.client(b"other");
    for name in &names {
        let access = share_access::BOTH | share_access::WANT_NONE;
        let mut delayed = 0;
        until(|| {
            let opens = open(&other, name, access, 0);
            let sequence = other.sequence();
            let reply = other.call(&[&[sequence], &opens[..]].concat());
            works(&mut honest, "mine");
            let status = status_of(&reply);
            delayed += u32::from(status == Status::Delay);
            match status {
                Status::Ok => true,
                Status::Delay => false,
                other => panic!("{other:?}"),
            }
        });
        assert!(delayed > 0 || *name != names[0], "nobody was waited for");
    }
}

/// What the server did not hear while it was stopped, it does not hold against its clients.
#[test]
fn a_server_that_was_stopped_takes_nothing_away_for_that() {
    let world = serve(&LEASE);
    world.file("file");
    let mut holder = world.client(b"holder");
    let access = share_access::READ | share_access::WANT_READ;
    let reply = holder.does(&open(&holder, "file", access, 0));
    let all = results(&reply);
    let Some(OperationResult::Open(Ok(opened))) = all.last() else {
        panic!("{all:?}");
    };
    let Delegation::Read(delegation) = &opened.delegation else {
        panic!("{opened:?}");
    };
    let mut other = world.client(b"other");
    let access = share_access::BOTH | share_access::WANT_NONE;
    let mut wants = || {
        let opens = open(&other, "file", access, 0);
        let sequence = other.sequence();
        status_of(&other.call(&[&[sequence], &opens[..]].concat()))
    };
    assert_eq!(wants(), Status::Delay);
    let pid = i32::try_from(world.server.pid()).ok();
    let server = pid.and_then(Pid::from_raw).expect("the server");
    kill_process(server, Signal::STOP).expect("SIGSTOP");
    thread::sleep(Duration::from_secs(12));
    kill_process(server, Signal::CONT).expect("SIGCONT");
    assert_eq!(wants(), Status::Delay);
    let lookup = Operation::Lookup(Name(b"file"));
    let returns = Operation::DelegationReturn(delegation.state);
    holder.does(&[Operation::PutRootFileHandle, lookup, returns]);
    until(|| wants() == Status::Ok);
}
