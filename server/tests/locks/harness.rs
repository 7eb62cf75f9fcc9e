//! A server without transports or threads, clients of both versions, and what the server calls of clients.

use std::cell::Cell;
use std::net::IpAddr;
use std::sync::{Arc, Mutex};

use odafs_common::page::{Layout, PageSize};
use odafs_common::wire::nfs3::FileHandle;
use odafs_common::wire::nlm4::{self, Lock, LockArgs, LockResult, Name, Object, Procedure, Status};
use odafs_common::wire::rpc::{self, Auth, Rejection};
use odafs_common::wire::xdr::{Decode, Encode, Writer};
use odafs_common::wire::{nfs4, nsm};
use odafs_fabric::clock::{self, Nanos};
use odafs_fabric::memory::{Arena, ArenaConfig};
use odafs_nic::calls::{Caller, Calls};
use odafs_server::access::{Access, Rule};
use odafs_server::config::{MinorVersions, Squash};
use odafs_server::export::{Exports, ExportsConfig};
use odafs_server::nfs4::Nfs4;
use odafs_server::nlm4::{Config, Heard, Lockd, Nlm4, Nsm, PeerCall, Peers, Records};
use odafs_server::rpc::Program;
use odafs_server::store::{CreateHow, Credential, MemoryStore, SetAttributes, Store};

pub use crate::bare::caller;
use crate::bare::{self, Bare};

/// What the server has called of a client, and not heard of yet.
pub struct PeerCalled {
    pub address: IpAddr,
    /// The server's address from which the call comes.
    pub from: Option<IpAddr>,
    pub program: u32,
    pub procedure: u32,
    pub arguments: Vec<u8>,
    done: Box<dyn FnOnce(Heard) + Send>,
}

impl PeerCalled {
    pub fn hears(self, heard: Heard) {
        (self.done)(heard);
    }

    /// The client of a GRANTED answers it.
    pub fn answers(self, status: Status) {
        let result = LockResult {
            cookie: Object(&[]),
            status,
        };
        self.hears(Heard::Answer(result.to_bytes()));
    }
}

/// The server, as clients see it at this address.
pub const SERVER: &str = "10.9.9.9";

#[derive(Default)]
pub struct Network(Mutex<Vec<PeerCalled>>);

impl Peers for Network {
    fn call(&self, call: PeerCall, done: Box<dyn FnOnce(Heard) + Send>) {
        let called = PeerCalled {
            address: call.address,
            from: call.ours,
            program: call.program,
            procedure: call.procedure,
            arguments: (call.arguments)(SERVER.parse().unwrap()),
            done,
        };
        self.0.lock().unwrap().push(called);
    }
}

impl Network {
    pub fn all(&self) -> Vec<PeerCalled> {
        std::mem::take(&mut self.0.lock().unwrap())
    }

    /// The only call, which must be a GRANTED.
    pub fn granted(&self) -> PeerCalled {
        let mut calls = self.all();
        assert_eq!(calls.len(), 1);
        let call = calls.remove(0);
        let granted = (nlm4::PROGRAM, Procedure::Granted.code());
        assert_eq!((call.program, call.procedure), granted);
        call
    }

    pub fn is_silent(&self) -> bool {
        self.0.lock().unwrap().is_empty()
    }
}

pub type Hook = Box<dyn FnOnce() + Send>;

/// What survives a server.
pub struct Remains {
    store: Arc<MemoryStore>,
    pub kept: Arc<Mutex<String>>,
    /// What happens when it is next kept.
    pub keeping: Arc<Mutex<Option<Hook>>>,
    pub kept4: Arc<Mutex<String>>,
    key: odafs_server::state::HandleKey,
}

pub struct Server {
    bare: Bare,
    pub network: Arc<Network>,
    pub remains: Remains,
    pub file: Vec<u8>,
}

impl Server {
    pub fn new() -> Self {
        let store = Arc::new(MemoryStore::new(1));
        let new = SetAttributes {
            mode: Some(0o600),
            ..SetAttributes::default()
        };
        let (who, root) = (Credential::of(1000, 1000, &[]), store.root());
        let made = store.create(&who, root, b"file", CreateHow::Guarded(&new));
        made.expect("a file");
        let remains = Remains {
            store,
            kept: Arc::default(),
            keeping: Arc::default(),
            kept4: Arc::default(),
            key: odafs_server::state::HandleKey::from([7; 32]),
        };
        Self::start(remains, 1, Nanos::from_secs(3600))
    }

    /// Starts a server for the n-th time.
    pub fn start(remains: Remains, life: u32, grace: Nanos) -> Self {
        let arena = ArenaConfig {
            frames: 256,
            layout: Layout::apart(PageSize::DEFAULT),
            huge: false,
            populate: false,
        };
        let arena = Arc::new(Arena::create(&arena).expect("memory"));
        let config = ExportsConfig {
            handle_key: remains.key.clone(),
            ..ExportsConfig::default()
        };
        let export = Arc::new(Exports::new(config, remains.store.clone(), arena));
        let listed = vec!["10.1.0.0/16".parse().expect("a network")];
        let serving = Credential::of(1000, 1000, &[]);
        let access = Arc::new(Access::new(listed, Squash::None, serving));
        let network = Arc::new(Network::default());
        let text = remains.kept.lock().unwrap().clone();
        let kept = Arc::clone(&remains.kept);
        let keeping = Arc::clone(&remains.keeping);
        let config = Config {
            state: life << 1 | 1,
            grace,
            records: Records::read(&text, move |text| {
                let keeping = keeping.lock().unwrap().take();
                if let Some(hook) = keeping {
                    hook();
                }
                *kept.lock().unwrap() = text.to_owned();
                Ok(())
            }),
            peers: Some(network.clone()),
        };
        let lockd = Lockd::start(export.clone(), access.clone(), config);
        let text = remains.kept4.lock().unwrap().clone();
        let kept = Arc::clone(&remains.kept4);
        let four = odafs_server::nfs4::Config {
            minors: MinorVersions::ALL,
            lease: grace,
            boot: life,
            records: odafs_server::nfs4::Records::read(&text, move |text| {
                *kept.lock().unwrap() = text.to_owned();
                Ok(())
            }),
            owners: odafs_server::nfs4::OwnersConfig::default(),
            cached_bytes: odafs_server::nfs4::CACHED_BYTES,
        };
        let programs: Vec<Box<dyn Program>> = vec![
            Box::new(Nlm4::new(lockd.clone())),
            Box::new(Nsm::new(lockd)),
            Box::new(Nfs4::new(export.clone(), four)),
        ];
        let store = &remains.store;
        let (file, _) = store
            .lookup(&Credential::of(0, 0, &[]), store.root(), b"file")
            .expect("the file");
        Self {
            bare: Bare::new(programs, access),
            file: export.handle(file).to_vec(),
            network,
            remains,
        }
    }

    pub fn tick(&self) {
        self.tick_after(Nanos(0));
    }

    /// So much later, as far as the programs are told.
    pub fn tick_after(&self, later: Nanos) {
        self.bare.service.tick(clock::awake() + later);
    }

    /// From now on only hosts of this network may call.
    pub fn admits_only(&self, network: &str) {
        let rule = Rule::new(vec![network.parse().expect("a network")], Squash::None);
        let service = &self.bare.service;
        service.access().replace(rule, Vec::new()).expect("a rule");
        service.rules_changed();
    }

    /// Somebody removes the file.
    pub fn remove_file(&self) {
        let store = &self.remains.store;
        let removed = store.remove(&Credential::of(0, 0, &[]), store.root(), b"file");
        removed.expect("removed");
    }

    /// Whether a call without arguments may wait for stable storage, as transports are told.
    pub fn may_sync(&self, (program, version, procedure): (u32, u32, u32)) -> bool {
        let mut message = Vec::new();
        let mut w = Writer::new(&mut message);
        rpc::call(&mut w, 1, program, version, procedure, &user(1000));
        self.bare.service.may_sync(&message)
    }

    /// What a gauge says.
    pub fn gauge(&self, name: &str) -> u64 {
        let mut text = String::new();
        self.bare.service.append_text(&mut text);
        let line = text
            .lines()
            .find_map(|line| line.strip_prefix("odafs_")?.strip_prefix(name));
        let value = line.expect("the gauge").trim();
        value.parse().expect("a number")
    }

    /// The results of a call.
    pub fn call(
        &self,
        caller: &Caller,
        (program, version, procedure): (u32, u32, u32),
        who: &Auth<'_>,
        arguments: &[u8],
    ) -> Result<&'static [u8], Rejection> {
        let program = (program, version);
        self.bare
            .call_from(caller, program, procedure, who, arguments)
    }

    /// A client of version 3 at this address.
    pub fn client(&self, address: &str, name: &'static str) -> Three<'_> {
        Three {
            server: self,
            caller: caller(address),
            name,
            state: 3,
        }
    }
}

pub fn user(uid: u32) -> Auth<'static> {
    bare::user(uid, uid)
}

/// A client of version 3.
pub struct Three<'s> {
    pub server: &'s Server,
    pub caller: Caller,
    pub name: &'static str,
    /// How often it has started.
    pub state: u32,
}

/// What a client asks for.
#[derive(Clone, Copy)]
pub struct Ask {
    pub process: u32,
    pub range: (u64, u64),
    pub exclusive: bool,
    pub block: bool,
    pub reclaim: bool,
}

/// A lock of bytes for writing.
pub fn write(process: u32, offset: u64, length: u64) -> Ask {
    Ask {
        process,
        range: (offset, length),
        exclusive: true,
        block: false,
        reclaim: false,
    }
}

/// The same for reading.
pub fn read(process: u32, offset: u64, length: u64) -> Ask {
    Ask {
        exclusive: false,
        ..write(process, offset, length)
    }
}

impl Ask {
    pub fn waiting(self) -> Self {
        Self {
            block: true,
            ..self
        }
    }

    pub fn reclaiming(self) -> Self {
        Self {
            reclaim: true,
            ..self
        }
    }
}

impl Three<'_> {
    pub fn call<R: Decode<'static>>(&self, procedure: Procedure, arguments: &impl Encode) -> R {
        let procedure = (nlm4::PROGRAM, nlm4::VERSION, procedure.code());
        let called = self
            .server
            .call(&self.caller, procedure, &user(1000), &arguments.to_bytes());
        R::from_bytes(called.expect("served")).expect("its results")
    }

    pub fn of<'a>(&'a self, ask: Ask) -> Lock<'a> {
        Lock {
            caller: Name(self.name.as_bytes()),
            file: FileHandle(&self.server.file),
            owner: Object(b"owner"),
            process: ask.process,
            offset: ask.range.0,
            length: ask.range.1,
        }
    }

    pub fn lock(&self, ask: Ask) -> Status {
        let arguments = LockArgs {
            cookie: Object(b"cookie"),
            block: ask.block,
            exclusive: ask.exclusive,
            lock: self.of(ask),
            reclaim: ask.reclaim,
            state: self.state,
        };
        let result: LockResult<'static> = self.call(Procedure::Lock, &arguments);
        assert_eq!(result.cookie, Object(b"cookie"));
        result.status
    }

    pub fn unlock(&self, ask: Ask) -> Status {
        let arguments = nlm4::UnlockArgs {
            cookie: Object(&[]),
            lock: self.of(ask),
        };
        self.call::<LockResult<'static>>(Procedure::Unlock, &arguments)
            .status
    }

    pub fn cancel(&self, ask: Ask) -> Status {
        let arguments = nlm4::CancelArgs {
            cookie: Object(&[]),
            block: true,
            exclusive: ask.exclusive,
            lock: self.of(ask),
        };
        self.call::<LockResult<'static>>(Procedure::Cancel, &arguments)
            .status
    }

    pub fn test(&self, ask: Ask) -> Result<Status, nlm4::Holder<'static>> {
        let arguments = nlm4::TestArgs {
            cookie: Object(&[]),
            exclusive: ask.exclusive,
            lock: self.of(ask),
        };
        self.call::<nlm4::TestResult<'static>>(Procedure::Test, &arguments)
            .outcome
    }

    /// It has restarted, says its status monitor, under this name.
    pub fn notifies(&self, name: &str, state: u32) {
        let told = nsm::Notification {
            host: nsm::HostName(name.as_bytes()),
            state,
        };
        let procedure = (nsm::PROGRAM, nsm::VERSION, nsm::Procedure::Notify.code());
        let called = self
            .server
            .call(&self.caller, procedure, &Auth::None, &told.to_bytes());
        assert_eq!(called.expect("served"), [0; 0]);
    }
}

/// A client of version 4.2 that has the file open.
pub struct Four<'s> {
    server: &'s Server,
    caller: Caller,
    id: u64,
    session: nfs4::SessionId,
    sequence: Cell<u32>,
    open: nfs4::StateId,
}

const CHANNEL: nfs4::ChannelAttributes = nfs4::ChannelAttributes {
    header_padding: 0,
    max_request: 1 << 20,
    max_response: 1 << 20,
    max_response_cached: 4096,
    max_operations: 64,
    max_requests: 8,
    rdma_reads: nfs4::AtMostOne(None),
};

impl<'s> Four<'s> {
    /// With a session, and nothing to reclaim.
    pub fn new(server: &'s Server, caller: Caller) -> Self {
        use nfs4::*;
        let mut client = Self {
            server,
            caller,
            id: 0,
            session: [0; 16],
            sequence: Cell::new(0),
            open: StateId::ANONYMOUS,
        };
        let exchange = Operation::ExchangeId(ExchangeIdArgs {
            client: ClientOwner {
                verifier: [1; 8],
                id: Opaque(b"four"),
            },
            flags: 0,
            protection: StateProtection::None,
            implementation: AtMostOne(None),
        });
        let OperationResult::ExchangeId(Ok(exchanged)) = client.compound(1, &[exchange]) else {
            panic!("no client id");
        };
        let create = Operation::CreateSession(CreateSessionArgs {
            client_id: exchanged.client_id,
            sequence: exchanged.sequence,
            flags: create_session_flag::BACK_CHANNEL,
            fore: CHANNEL,
            back: CHANNEL,
            callback_program: 0x4000_0000,
            callback_security: List(vec![CallbackSecurity::None]),
        });
        let OperationResult::CreateSession(Ok(session)) = client.compound(1, &[create]) else {
            panic!("no session");
        };
        client.id = exchanged.client_id;
        client.session = session.session;
        client
    }

    pub fn reclaim_complete(&self) {
        use nfs4::*;
        let complete = Operation::ReclaimComplete(ReclaimCompleteArgs {
            one_file_system: false,
        });
        let done = self.does(&[complete]);
        assert!(matches!(done, OperationResult::ReclaimComplete(Ok(()))));
    }

    /// OPEN, for reading and writing, without a delegation; or what it was refused with.
    pub fn open(&mut self) -> Result<(), nfs4::Status> {
        self.open_wishing(nfs4::share_access::WANT_NONE)
    }

    /// The same, with this wish for a delegation.
    pub fn open_wishing(&mut self, wish: u32) -> Result<(), nfs4::Status> {
        use nfs4::*;
        let open = Operation::Open(OpenArgs {
            sequence: 0,
            share_access: share_access::BOTH | wish,
            share_deny: 0,
            owner: self.owner(),
            create: None,
            claim: Claim::Null(odafs_common::wire::nfs4::Name(b"file")),
        });
        match self.does(&[Operation::PutRootFileHandle, open]) {
            OperationResult::Open(opened) => {
                self.open = opened?.state;
                Ok(())
            }
            other => panic!("{other:?}"),
        }
    }

    fn owner(&self) -> nfs4::StateOwner<'static> {
        nfs4::StateOwner {
            client_id: self.id,
            owner: nfs4::Opaque(b"four"),
        }
    }

    fn put(&self) -> nfs4::Operation<'_> {
        nfs4::Operation::PutFileHandle(nfs4::FileHandle(&self.server.file))
    }

    /// The lock, or the range of that in the way.
    pub fn lock(
        &self,
        kind: nfs4::LockType,
        (offset, length): (u64, u64),
    ) -> Result<nfs4::StateId, (u64, u64)> {
        use nfs4::*;
        let lock = Operation::Lock(LockArgs {
            kind,
            reclaim: false,
            offset,
            length,
            locker: Locker::New(OpenToLockOwner {
                open_sequence: 0,
                open: self.open,
                lock_sequence: 0,
                owner: self.owner(),
            }),
        });
        match self.does(&[self.put(), lock]) {
            OperationResult::Lock(Ok(state)) => Ok(state),
            OperationResult::Lock(Err(LockFailed::Denied(denied))) => {
                Err((denied.offset, denied.length))
            }
            other => panic!("{other:?}"),
        }
    }

    pub fn unlock(&self, lock: nfs4::StateId) {
        use nfs4::*;
        let unlock = Operation::Unlock(UnlockArgs {
            kind: LockType::Write,
            sequence: 0,
            lock,
            offset: 0,
            length: u64::MAX,
        });
        let done = self.does(&[self.put(), unlock]);
        assert!(matches!(done, OperationResult::Unlock(Ok(_))), "{done:?}");
    }

    fn does(&self, operations: &[nfs4::Operation<'_>]) -> nfs4::OperationResult<'static> {
        self.sequence.set(self.sequence.get() + 1);
        let sequence = nfs4::Operation::Sequence(nfs4::SequenceArgs {
            session: self.session,
            sequence: self.sequence.get(),
            slot: 0,
            highest_slot: 0,
            cache: true,
        });
        self.compound(2, &[&[sequence], operations].concat())
    }

    /// The last result of a compound.
    fn compound(
        &self,
        minor: u32,
        operations: &[nfs4::Operation<'_>],
    ) -> nfs4::OperationResult<'static> {
        let mut bytes = Vec::new();
        let mut w = Writer::new(&mut bytes);
        let call = nfs4::CallWriter::compound(&mut w, nfs4::Opaque(b""), minor);
        let call = operations
            .iter()
            .fold(call, |call, operation| call.push(operation));
        call.finish();
        let procedure = (
            nfs4::PROGRAM,
            nfs4::VERSION,
            nfs4::Procedure::Compound.code(),
        );
        let called = self
            .server
            .call(&self.caller, procedure, &user(1000), &bytes);
        let reply = called.expect("served");
        let results = nfs4::Results::begin(odafs_common::wire::xdr::Reader::new(reply));
        let results = results.expect("the results of a compound");
        let results = results.map(|result| result.expect("a result"));
        results.last().expect("a result")
    }
}
