//! Callbacks over the server's RDMA listener (RFC 8167): clients of NFS version 4.1 that are told of a lock.

#![cfg(not(shuttle))]

use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt;

use odafs_common::rpcrdma::PrivateData;
use odafs_common::wire::nfs4::*;
use odafs_common::wire::rpc;
use odafs_common::wire::rpcrdma::{Body, Chunks, Header, ReadList};
use odafs_common::wire::xdr::{Decode, Encode, Reader, Writer};
use odafs_fabric::Completion;
use odafs_fabric::clock::Nanos;
use odafs_fabric::iwarp::{ConnectOptions, connect};
use odafs_server::config::ServerConfig;
use odafs_server::server::Server;

#[expect(dead_code, reason = "some of it is for clients of version 3")]
mod common;

const CALLBACK_PROGRAM: u32 = 0x4000_0000;
const EVERYTHING: u64 = u64::MAX;

const CHANNEL: ChannelAttributes = ChannelAttributes {
    header_padding: 0,
    max_request: 4000,
    max_response: 4000,
    max_response_cached: 1000,
    max_operations: 16,
    max_requests: 8,
    rdma_reads: AtMostOne(None),
};

fn start(directory: &std::path::Path) -> Server {
    let tree = directory.join("tree");
    std::fs::create_dir_all(&tree).expect("a directory");
    let file = tree.join("f");
    std::fs::write(&file, b"").expect("a file");
    // Where root serves, callers are nobody.
    std::fs::set_permissions(file, Permissions::from_mode(0o666)).expect("rights");
    let mut config = ServerConfig::new(tree);
    config.state = Some(directory.join("state"));
    config.rdma = Some("127.0.0.1:0".parse().expect("an address"));
    config.cache_bytes = 8 << 20;
    config.huge_pages = false;
    Server::start(config).expect("a server")
}

/// A connection without a session.
fn connected(server: &Server) -> common::Client {
    let address = server.addresses().rdma.expect("an RDMA listener");
    let options = ConnectOptions::default();
    let qp = connect(address, &PrivateData::default().encode(), &options);
    common::Client::new(qp.expect("a connection"))
}

/// Runs a COMPOUND: its results.
fn run(client: &mut common::Client, operations: &[Operation<'_>]) -> Vec<u8> {
    let procedure = Procedure::Compound.code();
    let (_, results) = client.call((PROGRAM, VERSION), procedure, Chunks::default(), |w| {
        let call = CallWriter::compound(w, Opaque(b""), 1);
        let call = operations.iter().fold(call, |call, it| call.push(it));
        call.finish();
        ReadList::default()
    });
    results
}

fn all(results: &[u8]) -> Vec<OperationResult<'_>> {
    let results = Results::begin(Reader::new(results)).expect("results");
    results.map(|result| result.expect("a result")).collect()
}

/// A client with a session.
struct Client {
    line: common::Client,
    name: &'static [u8],
    id: u64,
    session: SessionId,
    sequence: u32,
    open: StateId,
    file: Vec<u8>,
}

impl Client {
    /// With a back channel over its connection, and the file open.
    fn new(server: &Server, name: &'static [u8]) -> Self {
        let mut line = connected(server);
        let exchange = Operation::ExchangeId(ExchangeIdArgs {
            client: ClientOwner {
                verifier: [1; 8],
                id: Opaque(name),
            },
            flags: 0,
            protection: StateProtection::None,
            implementation: AtMostOne(None),
        });
        let results = run(&mut line, &[exchange]);
        let [OperationResult::ExchangeId(Ok(known))] = &all(&results)[..] else {
            panic!("{:?}", all(&results));
        };
        let create = Operation::CreateSession(CreateSessionArgs {
            client_id: known.client_id,
            sequence: known.sequence,
            flags: create_session_flag::BACK_CHANNEL | create_session_flag::RDMA,
            fore: CHANNEL,
            back: CHANNEL,
            callback_program: CALLBACK_PROGRAM,
            callback_security: List(vec![CallbackSecurity::None]),
        });
        let results = run(&mut line, &[create]);
        let [OperationResult::CreateSession(Ok(made))] = &all(&results)[..] else {
            panic!("{:?}", all(&results));
        };
        // The connection is one of RDMA already, and does not become one.
        assert_eq!(made.flags, create_session_flag::BACK_CHANNEL);
        let mut client = Self {
            line,
            name,
            id: known.client_id,
            session: made.session,
            sequence: 0,
            open: StateId::default(),
            file: Vec::new(),
        };
        client.does(&[Operation::ReclaimComplete(ReclaimCompleteArgs {
            one_file_system: false,
        })]);
        client.open();
        client
    }

    /// Runs operations in the session: its results.
    fn does(&mut self, operations: &[Operation<'_>]) -> Vec<u8> {
        self.sequence += 1;
        let sequence = Operation::Sequence(SequenceArgs {
            session: self.session,
            sequence: self.sequence,
            slot: 0,
            highest_slot: 0,
            cache: false,
        });
        run(&mut self.line, &[&[sequence], operations].concat())
    }

    fn open(&mut self) {
        let open = Operation::Open(OpenArgs {
            sequence: 0,
            share_access: share_access::BOTH | share_access::WANT_NONE,
            share_deny: 0,
            owner: StateOwner {
                client_id: self.id,
                owner: Opaque(self.name),
            },
            create: None,
            claim: Claim::Null(Name(b"f")),
        });
        let results = self.does(&[Operation::PutRootFileHandle, open, Operation::GetFileHandle]);
        let all = all(&results);
        let [
            ..,
            OperationResult::Open(Ok(open)),
            OperationResult::GetFileHandle(Ok(file)),
        ] = &all[..]
        else {
            panic!("{all:?}");
        };
        (self.open, self.file) = (open.state, file.0.to_vec());
    }

    /// Locks the file, or waits for that.
    fn lock(&mut self) -> Result<StateId, Status> {
        let file = self.file.clone();
        let lock = Operation::Lock(LockArgs {
            kind: LockType::WriteWait,
            reclaim: false,
            offset: 0,
            length: EVERYTHING,
            locker: Locker::New(OpenToLockOwner {
                open_sequence: 0,
                open: self.open,
                lock_sequence: 0,
                owner: StateOwner {
                    client_id: self.id,
                    owner: Opaque(self.name),
                },
            }),
        });
        let results = self.does(&[Operation::PutFileHandle(FileHandle(&file)), lock]);
        match all(&results).pop() {
            Some(OperationResult::Lock(Ok(state))) => Ok(state),
            Some(OperationResult::Lock(Err(_))) => Err(Status::Denied),
            other => panic!("{other:?}"),
        }
    }

    fn unlock(&mut self, lock: StateId) {
        let file = self.file.clone();
        let unlock = Operation::Unlock(UnlockArgs {
            kind: LockType::Write,
            sequence: 0,
            lock,
            offset: 0,
            length: EVERYTHING,
        });
        let results = self.does(&[Operation::PutFileHandle(FileHandle(&file)), unlock]);
        let all = all(&results);
        assert!(
            matches!(all.last(), Some(OperationResult::Unlock(Ok(_)))),
            "{all:?}"
        );
    }

    /// Waits for a callback, which must tell of the lock, and answers it. Its number in the session.
    fn is_told(&mut self) -> u32 {
        let qp = &mut self.line.qp;
        while !matches!(qp.poll(), Some(Completion::Recv { .. })) {
            qp.wait(Some(Nanos::from_secs(30)))
                .expect("the connection lives");
        }
        qp.post_receives(1);
        let message = qp.message().to_vec();
        let mut r = Reader::new(&message);
        let header = Header::decode(&mut r).expect("a header");
        assert_eq!(header.body, Body::Msg(Chunks::default()));
        let (call, mut r) = rpc::parse_call(r.rest()).expect("a call");
        assert_eq!((header.xid, header.credits), (call.xid, 16));
        assert_eq!((call.program, call.version), (CALLBACK_PROGRAM, 1));
        let compound = CallbackHeader::decode(&mut r).expect("a compound");
        assert_eq!((compound.minor_version, compound.operations), (1, 2));
        let mut next = || CallbackOperation::decode(&mut r).expect("an operation");
        let (CallbackOperation::Sequence(sequence), CallbackOperation::NotifyLock(notify)) =
            (next(), next())
        else {
            panic!("{message:x?}");
        };
        assert_eq!(sequence.session, self.session);
        assert_eq!(notify.file, FileHandle(&self.file));
        assert_eq!(notify.owner.owner, Opaque(self.name));
        let sequence = sequence.sequence;
        self.answer(header.xid, sequence);
        sequence
    }

    fn answer(&mut self, xid: u32, sequence: u32) {
        let mut reply = Vec::new();
        let mut w = Writer::new(&mut reply);
        rpc::reply_success(&mut w, xid);
        Status::Ok.encode(&mut w);
        w.opaque(b"");
        w.u32(2);
        let taken = CallbackSequenceOk {
            session: self.session,
            sequence,
            slot: 0,
            highest_slot: 0,
            target_highest_slot: 0,
        };
        CallbackResult::Sequence(Ok(taken)).encode(&mut w);
        CallbackResult::NotifyLock(Ok(())).encode(&mut w);
        let header = Header {
            xid,
            credits: 16,
            body: Body::Msg(Chunks::default()),
        };
        let qp = &mut self.line.qp;
        qp.post_send(0, &[&header.to_bytes(), &reply])
            .expect("room");
        qp.flush();
    }
}

#[test]
fn who_waits_for_a_lock_is_told_over_rdma() {
    let directory = tempfile::tempdir().expect("a directory");
    let server = start(directory.path());
    let (mut holder, mut waiter) = (
        Client::new(&server, b"holder"),
        Client::new(&server, b"waiter"),
    );
    let mut held = holder.lock().expect("nobody has it");
    // From the second on, it is sent because the answer to the one before has been heard.
    for told in 1..4 {
        assert_eq!(waiter.lock(), Err(Status::Denied));
        holder.unlock(held);
        assert_eq!(waiter.is_told(), told);
        held = waiter.lock().expect("it is free");
        assert_eq!(holder.lock(), Err(Status::Denied));
        waiter.unlock(held);
        assert_eq!(holder.is_told(), told);
        held = holder.lock().expect("it is free");
    }
    server.shutdown();
}

/// A further connection takes the place of the first when that is gone. It stays one of RDMA, whatever is asked for.
#[test]
fn another_connection_is_bound_to_the_back_channel() {
    let directory = tempfile::tempdir().expect("a directory");
    let server = start(directory.path());
    let (mut holder, mut waiter) = (
        Client::new(&server, b"holder"),
        Client::new(&server, b"waiter"),
    );
    let held = holder.lock().expect("nobody has it");
    assert_eq!(waiter.lock(), Err(Status::Denied));
    let mut line = connected(&server);
    let bind = Operation::BindConnection(BindConnectionArgs {
        session: waiter.session,
        channel: WantedChannel::ForeOrBoth,
        rdma: true,
    });
    let results = run(&mut line, &[bind]);
    let [OperationResult::BindConnection(Ok(bound))] = &all(&results)[..] else {
        panic!("{:?}", all(&results));
    };
    assert_eq!((bound.channel, bound.rdma), (GrantedChannel::Both, false));
    waiter.line = line;
    holder.unlock(held);
    assert_eq!(waiter.is_told(), 1);
    waiter.lock().expect("it is free");
    server.shutdown();
}
