//! A stranger reads a callback over the RDMA listener (RFC 8167): a recorded connection of a client that waits for a lock,
//! through tshark. Without tshark there is nothing to test (apt-get install tshark).
#![cfg(not(shuttle))]

use odafs_common::wire::nfs4::*;
use odafs_common::wire::rpc;
use odafs_common::wire::xdr::{Encode, Writer};
use odafs_tests::raw_rdma::{Header, Messages, RawRdma};
use odafs_tests::raw4;
use odafs_tests::served::Served;
use odafs_tests::tap::Tap;
use std::fs;

const CHANNEL: ChannelAttributes = ChannelAttributes {
    header_padding: 0,
    max_request: 4000,
    max_response: 4000,
    max_response_cached: 1000,
    max_operations: 16,
    max_requests: 1,
    rdma_reads: AtMostOne(None),
};

/// A client with a session, and two owners of locks.
struct Client {
    raw: RawRdma,
    id: u64,
    session: SessionId,
    sequence: u32,
}

/// The results of a COMPOUND's reply.
fn results(message: &[u8]) -> Vec<OperationResult<'_>> {
    raw4::results(&message[28..])
}

impl Client {
    fn connect(address: &str) -> Self {
        let mut client = Self {
            raw: RawRdma::connect(address, false),
            id: 0,
            session: SessionId::default(),
            sequence: 0,
        };
        let exchange = Operation::ExchangeId(ExchangeIdArgs {
            client: ClientOwner {
                verifier: [1; 8],
                id: Opaque(b"client"),
            },
            flags: 0,
            protection: StateProtection::None,
            implementation: AtMostOne(None),
        });
        let reply = client.run(&[exchange]);
        let [OperationResult::ExchangeId(Ok(known))] = &results(&reply)[..] else {
            panic!("{:?}", results(&reply));
        };
        let create = Operation::CreateSession(CreateSessionArgs {
            client_id: known.client_id,
            sequence: known.sequence,
            flags: create_session_flag::BACK_CHANNEL,
            fore: CHANNEL,
            back: CHANNEL,
            callback_program: 0x4000_0000,
            callback_security: List(vec![CallbackSecurity::None]),
        });
        client.id = known.client_id;
        let reply = client.run(&[create]);
        let [OperationResult::CreateSession(Ok(made))] = &results(&reply)[..] else {
            panic!("{:?}", results(&reply));
        };
        client.session = made.session;
        client.does(&[Operation::ReclaimComplete(ReclaimCompleteArgs {
            one_file_system: false,
        })]);
        client
    }

    fn send(&mut self, operations: &[Operation<'_>]) {
        let (xid, mut message) = self
            .raw
            .call((PROGRAM, VERSION, Procedure::Compound.code()));
        let mut w = Writer::new(&mut message);
        let call = CallWriter::compound(&mut w, Opaque(b""), 1);
        let call = operations.iter().fold(call, |call, it| call.push(it));
        call.finish();
        let header = Header::message(xid).bytes();
        self.raw.message(&[header, message].concat()).expect("call");
    }

    fn run(&mut self, operations: &[Operation<'_>]) -> Vec<u8> {
        self.send(operations);
        self.raw.receive().expect("a reply")
    }

    fn in_session<'a>(&mut self, operations: &[Operation<'a>]) -> Vec<Operation<'a>> {
        self.sequence += 1;
        let sequence = Operation::Sequence(SequenceArgs {
            session: self.session,
            sequence: self.sequence,
            slot: 0,
            highest_slot: 0,
            cache: false,
        });
        [&[sequence], operations].concat()
    }

    fn does(&mut self, operations: &[Operation<'_>]) -> Vec<u8> {
        let operations = self.in_session(operations);
        self.run(&operations)
    }

    fn owner<'a>(&self, name: &'a [u8]) -> StateOwner<'a> {
        StateOwner {
            client_id: self.id,
            owner: Opaque(name),
        }
    }

    /// Opens the file and lets one owner lock it, another wait for it. The file and the lock.
    fn waits(&mut self) -> (Vec<u8>, StateId) {
        let open = Operation::Open(OpenArgs {
            sequence: 0,
            share_access: share_access::BOTH | share_access::WANT_NONE,
            share_deny: 0,
            owner: self.owner(b"owner"),
            create: None,
            claim: Claim::Null(Name(b"file")),
        });
        let reply = self.does(&[Operation::PutRootFileHandle, open, Operation::GetFileHandle]);
        let all = results(&reply);
        let [
            ..,
            OperationResult::Open(Ok(open)),
            OperationResult::GetFileHandle(Ok(file)),
        ] = &all[..]
        else {
            panic!("{all:?}");
        };
        let ask = |client: &Self, owner| {
            Operation::Lock(LockArgs {
                kind: LockType::WriteWait,
                reclaim: false,
                offset: 0,
                length: 10,
                locker: Locker::New(OpenToLockOwner {
                    open_sequence: 0,
                    open: open.state,
                    lock_sequence: 0,
                    owner: client.owner(owner),
                }),
            })
        };
        let put = Operation::PutFileHandle(FileHandle(file.0));
        let lock = ask(self, b"holder");
        let reply = self.does(&[put.clone(), lock]);
        let Some(OperationResult::Lock(Ok(held))) = results(&reply).pop() else {
            panic!("{:?}", results(&reply));
        };
        let lock = ask(self, b"waiter");
        let reply = self.does(&[put, lock]);
        let last = results(&reply).pop();
        assert!(
            matches!(last, Some(OperationResult::Lock(Err(_)))),
            "{last:?}"
        );
        (file.0.to_vec(), held)
    }

    /// Answers a callback: its xid.
    fn answer(&mut self, call: &[u8]) -> u32 {
        let (header, _) = rpc::parse_call(&call[28..]).expect("a call");
        let mut reply = Vec::new();
        let mut w = Writer::new(&mut reply);
        rpc::reply_success(&mut w, header.xid);
        Status::Ok.encode(&mut w);
        w.opaque(b"");
        w.u32(2);
        let taken = CallbackSequenceOk {
            session: self.session,
            sequence: 1,
            slot: 0,
            highest_slot: 0,
            target_highest_slot: 0,
        };
        CallbackResult::Sequence(Ok(taken)).encode(&mut w);
        CallbackResult::NotifyLock(Ok(())).encode(&mut w);
        let transport = Header::message(header.xid).bytes();
        let message = [transport, reply].concat();
        self.raw.message(&message).expect("an answer");
        header.xid
    }
}

#[test]
fn tshark_understands_a_callback() {
    let (directory, scratch) = (
        tempfile::tempdir().expect("dir"),
        tempfile::tempdir().expect("dir"),
    );
    fs::write(directory.path().join("file"), [7; 100]).expect("file");
    for (path, mode) in [("", 0o777), ("file", 0o666)] {
        let mode = std::os::unix::fs::PermissionsExt::from_mode(mode);
        fs::set_permissions(directory.path().join(path), mode).expect("mode");
    }
    let options = ["--rdma", "127.0.0.1:0", "--squash", "none", "--insecure"];
    let server = Served::start(directory.path(), scratch.path(), &options);
    let tap = Tap::start(&server.rdma);
    let mut client = Client::connect(&tap.address.to_string());
    let (file, lock) = client.waits();
    let put = Operation::PutFileHandle(FileHandle(&file));
    let unlock = Operation::Unlock(UnlockArgs {
        kind: LockType::Write,
        sequence: 0,
        lock,
        offset: 0,
        length: 10,
    });
    let operations = client.in_session(&[put, unlock]);
    client.send(&operations);
    // The callback may come first.
    let mut came: Vec<Vec<u8>> = (0..2)
        .map(|_| client.raw.receive().expect("a message"))
        .collect();
    came.sort_by_key(|message| message[28 + 7]);
    let [callback, unlocked] = &came[..] else {
        panic!("two messages");
    };
    let last = results(unlocked).pop();
    assert!(
        matches!(last, Some(OperationResult::Unlock(Ok(_)))),
        "{last:?}"
    );
    let xid = client.answer(callback);
    // Whatever is answered now has come behind that answer.
    client.does(&[]);
    let capture = tap.capture();
    let Some(strange) = capture.tshark(&["-Y", "!iwarp_mpa || _ws.malformed"]) else {
        return;
    };
    assert_eq!(strange, "");
    let xid = format!("{xid:#010x}");
    // CB_SEQUENCE and CB_NOTIFY_LOCK, from the server's port and back.
    let fields = [
        "tcp.srcport",
        "rpc.msgtyp",
        "rpcordma.msg_type",
        "rpcordma.flow_control",
        "rpcordma.reads_count",
        "rpcordma.writes_count",
        "rpcordma.reply_count",
        "nfs.cb.operation",
    ];
    let rows = capture
        .fields(&format!("rpcordma.xid == {xid}"), &fields)
        .expect("tshark");
    let none = ["0", "0", "0"];
    let [call, reply] = &rows[..] else {
        panic!("{rows:?}");
    };
    assert_eq!(call[..4], ["20049", "0", "0", "16"]);
    assert_eq!(reply[1..4], ["1", "0", "32"]);
    for row in [call, reply] {
        assert_eq!(row[4..7], none);
        assert_eq!(row[7], "11,13");
    }
}
