//! Compounds against a store in memory, as clients send them.

/// The result of the last operation of a reply, which must have succeeded.
macro_rules! last {
    ($reply:expr, $operation:ident) => {
        match $reply.last() {
            OperationResult::$operation(Ok(ok)) => ok,
            other => panic!("{other:?}"),
        }
    };
}

mod acls;
mod advice;
mod attributes;
mod back_channel;
mod callbacks;
mod cb_getattr;
mod delegations;
mod excess;
mod files;
mod hostile;
mod legacy;
mod locks;
mod names;
mod offloads;
mod placing;
mod restarts;
mod slots;
mod space;
mod suspended;
mod trunking;
mod unkept;
mod wants;
mod withdrawn;
mod xattrs;

use std::cell::Cell;

use odafs_common::wire::nfs4::*;
use odafs_common::wire::rpc::{Auth, AuthSys, Groups};
use odafs_common::wire::xdr::{Reader, Writer};
use odafs_fabric::Peer;
use odafs_fabric::clock::Nanos;
use odafs_fabric::sync::Arc;
use odafs_nic::calls::{Caller, Notes, Placements, Transport};

use super::{
    CACHED_BYTES, Config, LEASE, MinorVersions, Nfs4, OPERATIONS_MAX, OwnersConfig, Records,
};
use crate::rpc::access::{Access, Rights};
use crate::rpc::{Answer, ApartPayloads, Call, Program as _, Resumed, Suspended};
use crate::vfs::Credential;
use crate::vfs::export::ExportsConfig;
use crate::vfs::read::Effort;
use crate::vfs::testing::{World, owner};

/// A server.
struct Room {
    world: World,
    nfs: Arc<Nfs4>,
    /// Who may do what, where that is not the same for all.
    access: Option<Access>,
}

/// A client of one connection.
struct Client<'r> {
    room: &'r Room,
    caller: Caller,
    who: Credential,
    id: u64,
    session: SessionId,
    sequence: Cell<u32>,
    /// Whether it asks slots to keep its replies.
    keeps: bool,
}

/// A reply, decoded.
struct Reply(Vec<u8>);

impl Reply {
    fn status(&self) -> Status {
        self.results().0.header().status
    }

    fn results(&self) -> (Results<'_>, ()) {
        let results = Results::begin(Reader::new(&self.0)).expect("the results of a compound");
        (results, ())
    }

    fn all(&self) -> Vec<OperationResult<'_>> {
        let (mut results, ()) = self.results();
        let all = results.by_ref().map(|result| result.expect("a result"));
        let all = all.collect();
        results.finish().expect("nothing behind the results");
        all
    }

    fn last(&self) -> OperationResult<'_> {
        self.all().pop().expect("a result")
    }
}

impl Room {
    fn new() -> Self {
        Self::named("/")
    }

    fn named(export: &str) -> Self {
        let config = ExportsConfig {
            name: export.to_owned(),
            ..ExportsConfig::default()
        };
        Self::of(config, Records::none())
    }

    fn of(config: ExportsConfig, records: Records) -> Self {
        Self::lasting(config, records, LEASE)
    }

    fn lasting(config: ExportsConfig, records: Records, lease: Nanos) -> Self {
        Self::over(World::with(256, config), records, lease)
    }

    fn over(world: World, records: Records, lease: Nanos) -> Self {
        let config = Config {
            minors: MinorVersions::ALL,
            lease,
            boot: 7,
            records,
            owners: OwnersConfig::default(),
            cached_bytes: CACHED_BYTES,
        };
        Self {
            nfs: Nfs4::new(Arc::clone(&world.export), config),
            world,
            access: None,
        }
    }

    /// The server's metrics.
    fn text(&self) -> String {
        let mut text = String::new();
        self.nfs.append_text(&mut text);
        text
    }

    /// Makes a file with these bytes, past the protocol.
    fn file(&self, name: &[u8], data: &[u8]) {
        let name = std::str::from_utf8(name).expect("a name of letters");
        self.world.file(name, data);
    }

    fn run(
        &self,
        caller: &Caller,
        who: &Credential,
        bytes: &[u8],
        effort: Effort,
    ) -> (Answer, Reply) {
        let auth = claimed(who);
        let access = self.access.as_ref();
        let squashed = access.map(|access| access.credential(caller, &auth).expect("admitted"));
        let call = Call {
            caller,
            who: squashed.unwrap_or_else(|| who.clone()),
            rights: access.map_or_else(Rights::default, |access| access.rights(caller, &auth)),
            procedure: Procedure::Compound.code(),
            arguments: Reader::new(bytes),
            apart: ApartPayloads::default(),
            effort,
        };
        let mut results = Vec::new();
        let answer = self.nfs.call(call, &mut Writer::new(&mut results));
        (answer, Reply(results))
    }

    /// Runs a compound on the thread that polls, where it must stop: what goes on, and the reply so far.
    fn suspended(&self, client: &Client<'_>, bytes: &[u8]) -> (Box<dyn Suspended>, Reply) {
        let (answer, reply) = self.run(&client.caller, &client.who, bytes, Effort::ResidentOnly);
        let Answer::Suspended(call) = answer else {
            panic!("{answer:?}");
        };
        (call, reply)
    }

    /// Goes on with a suspended compound of these bytes.
    fn resume(
        &self,
        (caller, who): (&Caller, &Credential),
        (call, so_far): (Box<dyn Suspended>, Reply),
        bytes: &[u8],
    ) -> (Answer, Reply) {
        let mut results = so_far.0;
        let auth = claimed(who);
        let access = self.access.as_ref();
        let resumed = Resumed {
            caller,
            who: who.clone(),
            rights: access.map_or_else(Rights::default, |access| access.rights(caller, &auth)),
            arguments: Reader::new(bytes),
            apart: ApartPayloads::default(),
        };
        let answer = call.resume(resumed, &mut Writer::resume(&mut results, None));
        (answer, Reply(results))
    }
}

/// What a caller says of itself.
fn claimed(who: &Credential) -> Auth<'_> {
    Auth::Sys(AuthSys {
        stamp: 0,
        machine: b"client",
        uid: who.uid,
        gid: who.gid,
        gids: Groups::new(&who.groups),
    })
}

fn caller(connection: u64) -> Caller {
    Caller {
        peer: Peer::Simulated(connection as u32),
        local: None,
        connection,
        transport: Transport::Sim,
        reply_bytes_max: 2 << 20,
        placements: Placements::default(),
        apart: None,
        back: None,
        notes: Notes::default(),
    }
}

/// A COMPOUND of these operations.
fn compound(minor: u32, operations: &[Operation<'_>]) -> Vec<u8> {
    let mut bytes = Vec::new();
    let mut w = Writer::new(&mut bytes);
    let call = CallWriter::compound(&mut w, Opaque(b"tag"), minor);
    let call = operations
        .iter()
        .fold(call, |call, operation| call.push(operation));
    call.finish();
    bytes
}

const CHANNEL: ChannelAttributes = ChannelAttributes {
    header_padding: 0,
    max_request: 1 << 20,
    max_response: 1 << 20,
    max_response_cached: 4096,
    max_operations: 64,
    max_requests: 8,
    rdma_reads: AtMostOne(None),
};

impl<'r> Client<'r> {
    /// A client of minor version 1 with a session, which has nothing to reclaim.
    fn new(room: &'r Room, name: &[u8], connection: u64) -> Self {
        Self::over(room, name, caller(connection), 0)
    }

    /// The same over any connection, with flags of CREATE_SESSION.
    fn over(room: &'r Room, name: &[u8], caller: Caller, flags: u32) -> Self {
        let client = Self::reclaiming(room, name, caller, flags);
        client.completes();
        client
    }

    fn completes(&self) {
        let complete = Operation::ReclaimComplete(ReclaimCompleteArgs {
            one_file_system: false,
        });
        assert_eq!(self.does(&[complete]).status(), Status::Ok);
    }

    /// The same, but that it may have something to reclaim.
    fn reclaiming(room: &'r Room, name: &[u8], caller: Caller, flags: u32) -> Self {
        Self::starting(room, name, caller, flags, (1, 1))
    }

    /// The same with a minor version and a verifier.
    fn starting(room: &'r Room, name: &[u8], caller: Caller, flags: u32, of: (u32, u8)) -> Self {
        Self::of_channel(room, name, caller, flags, of, CHANNEL)
    }

    /// The same with a fore channel of its own.
    fn of_channel(
        room: &'r Room,
        name: &[u8],
        caller: Caller,
        flags: u32,
        (minor, verifier): (u32, u8),
        fore: ChannelAttributes,
    ) -> Self {
        let mut client = Self {
            caller,
            ..Self::unknown(room, 0)
        };
        let reply = client.call(minor, &[exchange(name, verifier, 0)]);
        let exchanged = last!(reply, ExchangeId);
        let create = Operation::CreateSession(CreateSessionArgs {
            client_id: exchanged.client_id,
            sequence: exchanged.sequence,
            flags,
            fore,
            back: CHANNEL,
            callback_program: 0x4000_0000,
            callback_security: List(vec![CallbackSecurity::None]),
        });
        let reply = client.call(minor, &[create]);
        let session = last!(reply, CreateSession);
        client.id = exchanged.client_id;
        client.session = session.session;
        client
    }

    /// A client that the server has not heard of.
    fn unknown(room: &'r Room, connection: u64) -> Self {
        Self {
            room,
            caller: caller(connection),
            who: owner(),
            id: 0,
            session: [0; 16],
            sequence: Cell::new(0),
            keeps: true,
        }
    }

    fn call(&self, minor: u32, operations: &[Operation<'_>]) -> Reply {
        let bytes = compound(minor, operations);
        let (answer, reply) = self
            .room
            .run(&self.caller, &self.who, &bytes, Effort::MayBlock);
        assert!(matches!(answer, Answer::Replied), "{answer:?}");
        reply
    }

    /// The bytes of the next compound of slot 0, and of its repetitions.
    fn next(&self, operations: &[Operation<'_>]) -> Vec<u8> {
        self.sequence.set(self.sequence.get() + 1);
        self.again(operations)
    }

    fn again(&self, operations: &[Operation<'_>]) -> Vec<u8> {
        compound(2, &self.sequenced(operations))
    }

    /// These operations behind the SEQUENCE of the last compound of slot 0.
    fn sequenced<'a>(&self, operations: &[Operation<'a>]) -> Vec<Operation<'a>> {
        let sequence = Operation::Sequence(SequenceArgs {
            session: self.session,
            sequence: self.sequence.get(),
            slot: 0,
            highest_slot: 0,
            cache: self.keeps,
        });
        [&[sequence], operations].concat()
    }

    /// Runs operations in the session.
    fn does(&self, operations: &[Operation<'_>]) -> Reply {
        self.does_by(2, operations)
    }

    /// As [`Client::does`], by another minor version.
    fn does_by(&self, minor: u32, operations: &[Operation<'_>]) -> Reply {
        self.sequence.set(self.sequence.get() + 1);
        self.call(minor, &self.sequenced(operations))
    }

    fn bind(&self, channel: WantedChannel) -> Operation<'static> {
        Operation::BindConnection(BindConnectionArgs {
            session: self.session,
            channel,
            rdma: false,
        })
    }

    fn owner<'a>(&self, name: &'a [u8]) -> StateOwner<'a> {
        StateOwner {
            client_id: self.id,
            owner: Opaque(name),
        }
    }

    /// OPEN of a name in the root by this owner.
    fn open<'a>(
        &self,
        by: &'a [u8],
        name: &'a [u8],
        share: (u32, u32),
        create: Option<CreateHow<'a>>,
    ) -> Operation<'a> {
        Operation::Open(OpenArgs {
            sequence: 0,
            share_access: share.0,
            share_deny: share.1,
            owner: self.owner(by),
            create,
            claim: Claim::Null(Name(name)),
        })
    }

    /// Opens a name in the root: its stateid and handle.
    fn opened(
        &self,
        by: &[u8],
        name: &[u8],
        share: (u32, u32),
        create: Option<CreateHow<'_>>,
    ) -> (StateId, Vec<u8>) {
        let open = self.open(by, name, share, create);
        let reply = self.does(&[Operation::PutRootFileHandle, open, Operation::GetFileHandle]);
        let all = reply.all();
        let (opened, handle) = opened(&all);
        (opened.state, handle.to_vec())
    }
}

/// What the last two operations of a compound gave, which were OPEN and GETFH.
fn opened<'r>(all: &'r [OperationResult<'r>]) -> (&'r OpenOk<'r>, &'r [u8]) {
    let [
        ..,
        OperationResult::Open(Ok(opened)),
        OperationResult::GetFileHandle(Ok(handle)),
    ] = all
    else {
        panic!("{all:?}");
    };
    (opened, handle.0)
}

/// EXCHANGE_ID of a client with this name and verifier.
fn exchange(name: &[u8], verifier: u8, flags: u32) -> Operation<'_> {
    Operation::ExchangeId(ExchangeIdArgs {
        client: ClientOwner {
            verifier: [verifier; 8],
            id: Opaque(name),
        },
        flags,
        protection: StateProtection::None,
        implementation: AtMostOne(None),
    })
}

fn put(handle: &[u8]) -> Operation<'_> {
    Operation::PutFileHandle(FileHandle(handle))
}

fn read(state: StateId, offset: u64, count: u32) -> Operation<'static> {
    Operation::Read(ReadArgs {
        state,
        offset,
        count,
    })
}

fn write(state: StateId, offset: u64, stable: Stable, data: &[u8]) -> Operation<'_> {
    Operation::Write(WriteArgs {
        state,
        offset,
        stable,
        data: Payload(data),
    })
}

fn close(state: StateId, sequence: u32) -> Operation<'static> {
    Operation::Close(CloseArgs { sequence, state })
}

fn get(asked: Bitmap) -> Operation<'static> {
    Operation::GetAttributes(GetAttributesArgs { asked })
}

/// OPEN's way to make a file of this mode.
fn unchecked() -> CreateHow<'static> {
    CreateHow::Unchecked(RawAttributes::default())
}
