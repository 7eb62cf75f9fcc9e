//! A server in this process on a simulated network, and connections to it that can be told to misbehave.

use odafs::{Client, Dial, Options};
use odafs_common::{
    connect::{PrivateData, Role},
    page::{Layout, PageSize},
    wire::{
        odafs::{PROGRAM, Procedure},
        rpc,
        xdr::{Encode as _, Writer},
    },
};
use odafs_fabric::{
    Access, Completion, Exposed, Peer, PostError, Posted, QueuePair, ReadOrder, Region, Remote,
    RemoteInvalidation, Sink, Source,
    clock::Nanos,
    memory::{Arena, ArenaConfig, ArenaView, LifeWord},
    sim::{Network, NetworkConfig},
    wake::WakeSet,
};
use odafs_nic::{calls::Transport, engine::EngineConfig};
use odafs_server::{
    access::Access as Admission,
    assembly::{Assembly, Parts, Ports},
    config::Squash,
    export::{Direct, ExportsConfig},
    odafs::SessionPolicy,
    state::HandleKey,
    store::{CreateHow, Credential, MemoryStore, SetAttributes, Store},
};
use std::{
    io,
    os::fd::BorrowedFd,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst},
    },
};

const NAME: &str = "server";
const UID: u32 = 1000;

/// What was seen of the connections, and what is wrong with them.
#[derive(Default)]
pub struct Seen {
    /// Connections made for calls, and for direct reads.
    pub for_calls: AtomicUsize,
    pub direct: AtomicUsize,
    /// Connections that are open.
    pub open: AtomicUsize,
    /// Whether no further connection for direct reads can be made.
    pub no_direct: AtomicBool,
    /// Calls of the ODAFS program that are lost on their way.
    pub lost: Mutex<Vec<Procedure>>,
    /// All calls of the ODAFS program.
    pub calls: Mutex<Vec<Procedure>>,
    /// How long a thread was ready to wait after each of the lost calls.
    pub waits: Mutex<Vec<(Procedure, Nanos)>>,
    /// Whether answers to nobody come without end.
    pub babble: AtomicBool,
}

impl Seen {
    /// Number of calls of this procedure.
    pub fn count(&self, procedure: Procedure) -> usize {
        let calls = self.calls.lock().unwrap();
        calls.iter().filter(|call| **call == procedure).count()
    }
}

/// A server with one file, and its clients' network.
pub struct House {
    network: Network,
    store: Arc<MemoryStore>,
    policy: fn(SessionPolicy) -> SessionPolicy,
    direct: Direct,
    assembly: Option<Assembly>,
    life: u64,
    pub seen: Arc<Seen>,
}

impl House {
    /// A server of this file, `a`.
    pub fn open(content: &[u8]) -> Self {
        Self::with(content, Direct::Guarded, |policy| policy)
    }

    /// As [`open`](Self::open), with other sessions.
    pub fn with(
        content: &[u8],
        direct: Direct,
        policy: fn(SessionPolicy) -> SessionPolicy,
    ) -> Self {
        let store = Arc::new(MemoryStore::new(1));
        let who = Credential::of(UID, UID, &[]);
        let attributes = SetAttributes {
            mode: Some(0o666),
            ..SetAttributes::default()
        };
        let how = CreateHow::Unchecked(&attributes);
        let file = store.create(&who, store.root(), b"a", how).unwrap().object;
        store.write_at(&who, file, 0, content).unwrap();
        let mut house = Self {
            network: Network::new(1, NetworkConfig::default()),
            store,
            policy,
            direct,
            assembly: None,
            life: 0,
            seen: Arc::default(),
        };
        house.start();
        house
    }

    fn start(&mut self) {
        self.life += 1;
        let arena = ArenaConfig {
            frames: 256,
            layout: Layout::apart(PageSize::DEFAULT),
            huge: false,
            populate: false,
        };
        let life = LifeWord::in_memory(self.life).unwrap();
        let parts = Parts {
            store: Arc::clone(&self.store) as Arc<dyn Store>,
            arena: Arc::new(Arena::create(&arena).unwrap()),
            export: ExportsConfig {
                direct: self.direct,
                change_base: self.life << 32,
                handle_key: HandleKey::from([1; 32]),
                ..ExportsConfig::default()
            },
            nfs2: false,
            nfs4: None,
            locks: None,
            sessions: (self.policy)(SessionPolicy {
                life: self.life,
                serving_uid: UID,
                ..SessionPolicy::default()
            }),
            access: Admission::new(Vec::new(), Squash::All, Credential::of(UID, UID, &[])),
            life: Some(Arc::new(life)),
            workers: 2,
            offload: false,
            engine: EngineConfig {
                spin: Nanos(0),
                ..EngineConfig::default()
            },
            ports: Ports::default(),
        };
        let listener = self.network.listen(NAME).unwrap();
        let assembly = Assembly::start(parts, vec![(listener, Transport::Sim)]).unwrap();
        self.assembly = Some(assembly);
    }

    /// The server ends, and another begins.
    pub fn restart(&mut self) {
        self.stop();
        self.start();
    }

    fn stop(&mut self) {
        if let Some(mut assembly) = self.assembly.take() {
            assembly.poison();
            assembly.stop();
            self.network.kill(NAME);
        }
    }

    pub fn connect(&self, options: Options) -> Client {
        let dial = Sim {
            network: self.network.clone(),
            node: self.network.node(),
            seen: Arc::clone(&self.seen),
        };
        let url = "odafs://server/".parse().unwrap();
        Client::over(Arc::new(dial), &url, options).unwrap()
    }
}

impl Drop for House {
    fn drop(&mut self) {
        self.stop();
    }
}

struct Sim {
    network: Network,
    node: u32,
    seen: Arc<Seen>,
}

impl Dial for Sim {
    fn dial(&self, private_data: &[u8], _: Nanos) -> io::Result<Box<dyn QueuePair>> {
        let seen = Arc::clone(&self.seen);
        let said = PrivateData::decode(private_data);
        if said.is_some_and(|said| said.role == Role::Direct) {
            seen.direct.fetch_add(1, SeqCst);
            if seen.no_direct.load(SeqCst) {
                return Err(io::Error::other("there are enough of them"));
            }
        } else {
            seen.for_calls.fetch_add(1, SeqCst);
        }
        let pair = (self.network).connect_from(self.node, NAME, private_data)?;
        seen.open.fetch_add(1, SeqCst);
        Ok(Box::new(Watched {
            pair,
            seen,
            lost: None,
            message: None,
        }))
    }

    fn fabric(&self) -> &'static str {
        "sim"
    }

    fn address(&self) -> String {
        NAME.to_owned()
    }
}

struct Watched {
    pair: Box<dyn QueuePair>,
    seen: Arc<Seen>,
    /// The last call, if it was lost.
    lost: Option<Procedure>,
    /// An answer to nobody.
    message: Option<Vec<u8>>,
}

impl Drop for Watched {
    fn drop(&mut self) {
        self.seen.open.fetch_sub(1, SeqCst);
    }
}

/// The procedure of a call of the ODAFS program.
fn procedure_of(message: &[u8]) -> Option<Procedure> {
    let (header, _) = rpc::parse_call(message).ok()?;
    let mut number = Vec::new();
    header.procedure.encode(&mut Writer::new(&mut number));
    (header.program == PROGRAM)
        .then(|| odafs_common::wire::xdr::Decode::from_bytes(&number).ok())
        .flatten()
}

impl QueuePair for Watched {
    fn post_send(&mut self, id: u64, parts: &[&[u8]]) -> Result<Posted, PostError> {
        self.lost = None;
        if let Some(procedure) = procedure_of(&parts.concat()) {
            self.seen.calls.lock().unwrap().push(procedure);
            if self.seen.lost.lock().unwrap().contains(&procedure) {
                self.lost = Some(procedure);
                return Ok(Posted::Done);
            }
        }
        self.pair.post_send(id, parts)
    }

    fn poll(&mut self) -> Option<Completion> {
        self.message = None;
        if self.lost.is_some() && self.seen.babble.load(SeqCst) {
            let message = self.message.insert(Vec::new());
            rpc::reply_success(&mut Writer::new(message), 0);
            return Some(Completion::Recv {
                bytes: message.len() as u32,
                invalidated: None,
            });
        }
        self.pair.poll()
    }

    fn message(&self) -> &[u8] {
        match &self.message {
            Some(message) => message,
            None => self.pair.message(),
        }
    }

    fn wait(&mut self, timeout: Option<Nanos>) -> Result<(), PostError> {
        if let (Some(procedure), Some(timeout)) = (self.lost, timeout) {
            self.seen.waits.lock().unwrap().push((procedure, timeout));
        }
        self.pair.wait(timeout)
    }

    fn poll_send_queue(&mut self) -> Option<Completion> {
        self.pair.poll_send_queue()
    }

    fn is_settled(&mut self) -> bool {
        self.pair.is_settled()
    }

    fn read_order(&self) -> ReadOrder {
        self.pair.read_order()
    }

    fn post_receives(&mut self, count: u32) {
        self.pair.post_receives(count);
    }

    fn post_write(&mut self, id: u64, from: Source<'_>, to: Remote) -> Result<Posted, PostError> {
        self.pair.post_write(id, from, to)
    }

    fn post_read(&mut self, id: u64, into: Sink<'_>, from: Remote) -> Result<Posted, PostError> {
        self.pair.post_read(id, into, from)
    }

    fn reads_max(&self) -> u32 {
        self.pair.reads_max()
    }

    fn flush(&mut self) {
        self.pair.flush();
    }

    fn arm(&mut self) -> bool {
        self.pair.arm()
    }

    fn wake_fd(&self) -> Option<BorrowedFd<'_>> {
        self.pair.wake_fd()
    }

    fn watch(&mut self, set: &Arc<WakeSet>) -> io::Result<()> {
        self.pair.watch(set)
    }

    fn register(&mut self, length: usize, access: Access) -> io::Result<Arc<Region>> {
        self.pair.register(length, access)
    }

    fn remote_invalidation(&self) -> RemoteInvalidation {
        self.pair.remote_invalidation()
    }

    fn expose(&mut self, arena: &Arc<Arena>, life: &LifeWord) -> io::Result<Exposed> {
        self.pair.expose(arena, life)
    }

    fn map_exposed(&mut self, exposed: &Exposed) -> io::Result<Option<ArenaView>> {
        self.pair.map_exposed(exposed)
    }

    fn max_message(&self) -> usize {
        self.pair.max_message()
    }

    fn private_data(&self) -> &[u8] {
        self.pair.private_data()
    }

    fn peer(&self) -> &Peer {
        self.pair.peer()
    }

    fn is_closed(&self) -> bool {
        self.pair.is_closed()
    }
}
