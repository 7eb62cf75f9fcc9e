//! The engine over a queue pair whose room and completions the test decides.

use std::collections::{HashMap, VecDeque};
use std::os::fd::BorrowedFd;

use odafs_common::direct::{Attach, Attached, Completion as Header, Request};
use odafs_common::exception::Exception;
use odafs_common::mac::MacAlgorithm;
use odafs_common::page::PageSize;
use odafs_common::reference::{AccessKey, Handle, Reference};
use odafs_common::session::SessionKey;
use odafs_fabric::memory::{ArenaConfig, ArenaView, FrameNumber, Region};
use odafs_fabric::sync::{Mutex, mpsc, thread};
use odafs_fabric::{
    Access, Completion, Exposed, Fault, Peer, PostError, Posted, QueuePair, Remote, Sink, Source,
    SteeringTag,
};

use super::*;
use crate::calls::{Caller, ChunkSource, ChunkWrite, Job, Outcome};
use crate::capability::{NewSession, ReaderClass};
use crate::host_vm::SharedVm;
use crate::nic::NicConfig;
use crate::tpt::TptEntry;

/// Both ends of a connection: the engine holds the queue pair, the test the wire.
#[derive(Default)]
struct Wire {
    to_server: VecDeque<Vec<u8>>,
    to_client: Vec<Vec<u8>>,
    written: Vec<(Remote, usize)>,
    completions: VecDeque<Completion>,
    pending: VecDeque<u64>,
    private: Vec<u8>,
    /// Posts that still find room.
    room: usize,
    slow_writes: bool,
    closed: bool,
    receives: u32,
    rejected: Option<String>,
}

type Shared = Arc<Mutex<Wire>>;

struct Pair {
    wire: Shared,
    message: Vec<u8>,
    peer: Peer,
}

/// Sinks end here.
const SINK_BYTES: u64 = 1 << 20;
const MAX_MESSAGE: usize = 8192;

impl Pair {
    fn take_room(wire: &mut Wire) -> Result<(), PostError> {
        if wire.closed {
            return Err(PostError::Closed);
        }
        wire.room = wire.room.checked_sub(1).ok_or(PostError::Full)?;
        Ok(())
    }
}

impl QueuePair for Pair {
    fn post_receives(&mut self, count: u32) {
        self.wire.lock().receives += count;
    }

    fn post_send(&mut self, _id: u64, parts: &[&[u8]]) -> Result<Posted, PostError> {
        let message = parts.concat();
        if message.len() > MAX_MESSAGE {
            return Err(PostError::TooLong);
        }
        let mut wire = self.wire.lock();
        Pair::take_room(&mut wire)?;
        wire.to_client.push(message);
        Ok(Posted::Done)
    }

    fn post_write(&mut self, id: u64, from: Source<'_>, to: Remote) -> Result<Posted, PostError> {
        let length = match from {
            Source::Frame { length, .. } => length as usize,
            Source::Bytes(bytes) => bytes.len(),
        };
        if to.offset.saturating_add(length as u64) > SINK_BYTES {
            return Err(PostError::BadRange);
        }
        let mut wire = self.wire.lock();
        Pair::take_room(&mut wire)?;
        wire.written.push((to, length));
        if !wire.slow_writes {
            return Ok(Posted::Done);
        }
        wire.pending.push_back(id);
        Ok(Posted::Pending)
    }

    fn post_read(&mut self, _id: u64, _into: Sink<'_>, _from: Remote) -> Result<Posted, PostError> {
        Err(PostError::BadRange)
    }

    fn reads_max(&self) -> u32 {
        0
    }

    fn flush(&mut self) {}

    fn poll(&mut self) -> Option<Completion> {
        let mut wire = self.wire.lock();
        self.message.clear();
        if let Some(completion) = wire.completions.pop_front() {
            return Some(completion);
        }
        let receives = wire.receives.checked_sub(1)?;
        self.message = wire.to_server.pop_front()?;
        wire.receives = receives;
        Some(Completion::Recv {
            bytes: self.message.len() as u32,
            invalidated: None,
        })
    }

    fn message(&self) -> &[u8] {
        &self.message
    }

    fn arm(&mut self) -> bool {
        let wire = self.wire.lock();
        wire.to_server.is_empty() && wire.completions.is_empty() && !wire.closed
    }

    fn wake_fd(&self) -> Option<BorrowedFd<'_>> {
        None
    }

    fn watch(&mut self, _set: &Arc<WakeSet>) -> io::Result<()> {
        Ok(())
    }

    fn wait(&mut self, _timeout: Option<Nanos>) -> Result<(), PostError> {
        Ok(())
    }

    fn register(&mut self, _length: usize, _access: Access) -> io::Result<Arc<Region>> {
        Err(io::ErrorKind::Unsupported.into())
    }

    fn expose(&mut self, _arena: &Arc<Arena>, _life: &LifeWord) -> io::Result<Exposed> {
        Ok(Exposed {
            arena: SteeringTag(11),
            stamps: SteeringTag(12),
        })
    }

    fn map_exposed(&mut self, _exposed: &Exposed) -> io::Result<Option<ArenaView>> {
        Ok(None)
    }

    fn max_message(&self) -> usize {
        MAX_MESSAGE
    }

    fn private_data(&self) -> &[u8] {
        &[]
    }

    fn peer(&self) -> &Peer {
        &self.peer
    }

    fn is_closed(&self) -> bool {
        self.wire.lock().closed
    }
}

struct Door(mpsc::Receiver<Shared>);

struct Guest {
    wire: Shared,
    private: Vec<u8>,
}

impl Listener for Door {
    fn poll_accept(&mut self) -> io::Result<Option<Box<dyn Incoming>>> {
        Ok(self.0.try_recv().ok().map(|wire| {
            let private = wire.lock().private.clone();
            Box::new(Guest { wire, private }) as Box<dyn Incoming>
        }))
    }

    fn wake_fd(&self) -> Option<BorrowedFd<'_>> {
        None
    }

    fn watch(&mut self, _set: &Arc<WakeSet>) -> io::Result<()> {
        Ok(())
    }

    fn name(&self) -> String {
        "door".into()
    }
}

impl Incoming for Guest {
    fn private_data(&self) -> &[u8] {
        &self.private
    }

    fn peer(&self) -> &Peer {
        &Peer::Simulated(1)
    }

    fn accept(
        self: Box<Self>,
        private_data: &[u8],
        _inbound_reads: u32,
    ) -> io::Result<Box<dyn QueuePair>> {
        self.wire.lock().private = private_data.to_vec();
        Ok(Box::new(Pair {
            wire: self.wire,
            message: Vec::new(),
            peer: Peer::Simulated(1),
        }))
    }

    fn reject(self: Box<Self>, reason: &str) {
        self.wire.lock().rejected = Some(reason.into());
    }
}

/// Echoes; and a call's first byte may ask for more.
struct Echo {
    arena: Arc<Arena>,
    gone: Mutex<Vec<u64>>,
}

const FRAME: FrameNumber = FrameNumber(2);

impl Calls for Echo {
    fn call(&self, _caller: &Caller, message: &[u8], reply: &mut Vec<u8>) -> Outcome {
        reply.extend_from_slice(message);
        match message.first() {
            Some(b'd') => {
                let reply = message.to_vec();
                let job: Job = Box::new(move |into| {
                    into.extend_from_slice(&reply);
                    Outcome::Replied
                });
                // A job may find that it takes another.
                Outcome::Deferred(Box::new(move |_| Outcome::Deferred(job)))
            }
            Some(b'p') => Outcome::Deferred(Box::new(|_| panic!("a worker's job panics"))),
            Some(&chunk @ (b'w' | b'b')) => {
                let epoch = self.arena.current_epoch();
                self.arena
                    .pin(FRAME, epoch, epoch)
                    .expect("the frame is published");
                let offset = if chunk == b'w' { 64 } else { SINK_BYTES };
                let to = Remote {
                    tag: SteeringTag(1),
                    offset,
                };
                let frame = ChunkSource::Frame {
                    frame: FRAME,
                    offset: 0,
                    length: 4096,
                };
                let bytes = ChunkSource::Bytes(vec![1; 10]);
                Outcome::Write(vec![
                    ChunkWrite { from: bytes, to },
                    ChunkWrite { from: frame, to },
                ])
            }
            Some(b'x') => Outcome::Dropped,
            _ => Outcome::Replied,
        }
    }

    fn closed(&self, connection: u64) {
        self.gone.lock().push(connection);
    }
}

type Task = Box<dyn FnOnce() + Send>;

/// Runs each task at once on a thread of its own; or holds it back; or is full.
#[derive(Default)]
struct Hands {
    full: AtomicBool,
    held: Mutex<Option<Vec<Task>>>,
}

impl Workers for Hands {
    fn submit(&self, task: Box<dyn FnOnce() + Send>) -> Result<(), Box<dyn FnOnce() + Send>> {
        if self.full.load(Ordering::Relaxed) {
            return Err(task);
        }
        if let Some(held) = &mut *self.held.lock() {
            held.push(task);
            return Ok(());
        }
        // A panic of the task ends its thread and no other.
        let _ = thread::spawn(task).join();
        Ok(())
    }
}

struct World {
    engine: Engine,
    door: mpsc::Sender<Shared>,
    arena: Arc<Arena>,
    nic: Arc<Nic>,
    echo: Arc<Echo>,
    hands: Arc<Hands>,
    key: SessionKey,
    session: u32,
    sequence: u64,
}

impl World {
    fn new(config: EngineConfig) -> World {
        let arena_config = ArenaConfig {
            frames: 4,
            page: PageSize::DEFAULT,
            huge: false,
            populate: false,
        };
        let arena = Arc::new(Arena::create(&arena_config).unwrap());
        let mut entries = HashMap::new();
        for frame in 0..4 {
            arena.copy_in(FrameNumber(frame), 0, &[frame as u8 + 1; 4096]);
            let entry = TptEntry {
                frame: FrameNumber(frame),
                address: u64::from(frame) * 4096,
                length: 4096,
                key: AccessKey(7),
                epoch: arena.publish(FrameNumber(frame)),
                class: ReaderClass(0),
            };
            entries.insert(frame, entry);
        }
        let fault = move |handle: Handle| {
            entries
                .get(&handle.0)
                .copied()
                .ok_or(Exception::NotResident)
        };
        let host = Arc::new(SharedVm::new(Arc::clone(&arena), Arc::new(fault)));
        let nic = Arc::new(Nic::new(
            NicConfig {
                tpt_entries: 16,
                ..NicConfig::default()
            },
            Arc::clone(&arena),
            host,
        ));
        let key = SessionKey::from_bytes([1; 32]);
        let session = nic.open_session(NewSession {
            key: key.clone(),
            mac: MacAlgorithm::Blake3,
            one_sided: true,
            credential: 0,
            expires: Nanos(u64::MAX),
            rekey_requests: u64::MAX,
            rekey_after: Nanos(u64::MAX),
            rekey_grace: Nanos(0),
            now: Nanos(0),
        });
        let session = session.unwrap();
        session.admit(ReaderClass(0));
        let echo = Arc::new(Echo {
            arena: Arc::clone(&arena),
            gone: Mutex::default(),
        });
        let hands = Arc::new(Hands::default());
        let serves = Serves {
            arena: Arc::clone(&arena),
            nic: Some(Arc::clone(&nic)),
            calls: Arc::clone(&echo) as Arc<dyn Calls>,
            workers: Arc::clone(&hands) as Arc<dyn Workers>,
            life: None,
        };
        let mut engine = Engine::new(config, serves).unwrap();
        let (door, guests) = mpsc::channel();
        engine
            .listen(Box::new(Door(guests)), Transport::Sim)
            .unwrap();
        World {
            engine,
            door,
            arena,
            nic,
            echo,
            hands,
            key,
            session: session.id().0,
            sequence: 0,
        }
    }

    fn connect_with(&mut self, private: &[u8]) -> Shared {
        let wire = Wire {
            private: private.to_vec(),
            room: 1000,
            ..Wire::default()
        };
        let wire = Arc::new(Mutex::new(wire));
        self.door.send(Arc::clone(&wire)).unwrap();
        self.engine.accept_next = Nanos(0);
        self.engine.poll_once();
        wire
    }

    fn connect(&mut self, role: Role) -> Shared {
        self.connect_with(
            &PrivateData {
                role,
                one_sided: false,
                nonce: Nonce::default(),
            }
            .encode(),
        )
    }

    /// A direct connection that is attached, and its number.
    fn attached(&mut self) -> (Shared, u32) {
        let wire = self.connect(Role::Direct);
        let nonce = PrivateData::decode(&wire.lock().private).unwrap().nonce;
        let attach = Attach {
            session: self.session,
            nonce: [2; 16],
            one_sided: true,
        };
        wire.lock()
            .to_server
            .push_back(attach.seal(&self.key.attach_key(), &nonce).to_vec());
        self.engine.poll_once();
        let answer = wire.lock().to_client.pop().unwrap();
        let opened = Attached::open(&answer, &self.key.attach_key(), &[2; 16], &nonce).unwrap();
        let grant = opened.result.unwrap();
        assert_eq!(
            grant.one_sided, None,
            "without a life word nothing is exposed"
        );
        (wire, grant.connection)
    }

    fn request(&mut self, connection: u32, frame: u32, sink: Option<u64>) -> Request {
        self.sequence += 1;
        let reference = Reference {
            address: u64::from(frame) * 4096,
            length: 4096,
            handle: Handle(frame),
            key: AccessKey(7),
            epoch: self.arena.current_epoch(),
        };
        Request {
            mac: MacAlgorithm::Blake3,
            inline: sink.is_none(),
            odd_generation: false,
            session: self.session,
            connection,
            sink_tag: 3,
            sequence: self.sequence,
            address: reference.address,
            key: reference.key,
            epoch: reference.epoch,
            sink_offset: sink.unwrap_or(0),
            handle: reference.handle,
            length: 100,
        }
    }

    fn send(&self, wire: &Shared, request: Request) {
        let key = self.key.mac_key(MacAlgorithm::Blake3, 0);
        wire.lock().to_server.push_back(request.seal(&key).to_vec());
    }

    fn rounds(&mut self) {
        while self.engine.poll_once() {}
    }

    fn pinned(&self) -> usize {
        (0..4)
            .filter(|&frame| self.arena.is_pinned(FrameNumber(frame)))
            .count()
    }
}

fn results(wire: &Shared) -> Vec<(u64, Result<u32, Exception>)> {
    let messages = std::mem::take(&mut wire.lock().to_client);
    let parse = |message: &Vec<u8>| {
        Header::parse(message)
            .map(|(header, _)| (header.sequence, header.result))
            .unwrap()
    };
    messages.iter().map(parse).collect()
}

#[test]
fn direct_reads_inline_and_into_the_sink() {
    let mut world = World::new(EngineConfig::default());
    let (wire, number) = world.attached();
    let inline = world.request(number, 1, None);
    world.send(&wire, inline);
    let sunk = world.request(number, 3, Some(500));
    world.send(&wire, sunk);
    world.rounds();
    let wire = wire.lock();
    let (header, data) = Header::parse(&wire.to_client[0]).unwrap();
    assert_eq!((header.result, data), (Ok(100), &[2; 100][..]));
    let (header, data) = Header::parse(&wire.to_client[1]).unwrap();
    assert_eq!(
        (header.result, header.inline, data.len()),
        (Ok(100), false, 0)
    );
    assert_eq!(
        wire.written,
        [(
            Remote {
                tag: SteeringTag(3),
                offset: 500
            },
            100
        )]
    );
    assert_eq!(world.pinned(), 0);
    assert_eq!(
        wire.receives, world.engine.config.receives,
        "each receive was posted again"
    );
}

#[test]
fn a_slow_write_holds_its_pin_until_it_completes() {
    let mut world = World::new(EngineConfig::default());
    let (wire, number) = world.attached();
    wire.lock().slow_writes = true;
    for frame in [1, 2] {
        let request = world.request(number, frame, Some(0));
        world.send(&wire, request);
    }
    world.rounds();
    assert_eq!(
        results(&wire).len(),
        2,
        "completions follow the writes at once: the fabric keeps the order"
    );
    assert_eq!(world.pinned(), 2);
    let complete = |wire: &Shared| {
        let mut wire = wire.lock();
        let id = wire.pending.pop_front().unwrap();
        wire.completions
            .push_back(Completion::Write { id, result: Ok(()) });
    };
    complete(&wire);
    world.rounds();
    assert_eq!(world.pinned(), 1);
    complete(&wire);
    world.rounds();
    assert_eq!(world.pinned(), 0);
}

#[test]
fn what_finds_no_room_waits_in_order() {
    let config = EngineConfig {
        receives: 8,
        ..EngineConfig::default()
    };
    let mut world = World::new(config);
    let (wire, number) = world.attached();
    wire.lock().room = 3;
    for n in 0..20 {
        let sink = (n % 2 == 0).then_some(n);
        let request = world.request(number, 1, sink);
        world.send(&wire, request);
    }
    world.rounds();
    assert_eq!(
        wire.lock().to_server.len(),
        20 - 8 - 2,
        "the rest stays with the peer"
    );
    assert!(
        world.engine.look_again().is_some(),
        "a blocked engine does not sleep for long"
    );
    for _ in 0..40 {
        wire.lock().room += 1;
        world.rounds();
    }
    let expected: Vec<_> = (1..=20).map(|sequence| (sequence, Ok(100))).collect();
    assert_eq!(results(&wire), expected);
    assert_eq!(world.pinned(), 0);
    assert_eq!(world.nic.counters().snapshot().reads, 20);
}

#[test]
fn a_sink_that_is_not_there_is_out_of_bounds() {
    let mut world = World::new(EngineConfig::default());
    let (wire, number) = world.attached();
    let request = world.request(number, 1, Some(SINK_BYTES));
    world.send(&wire, request);
    let good = world.request(number, 1, Some(0));
    world.send(&wire, good);
    world.rounds();
    assert_eq!(
        results(&wire),
        [(1, Err(Exception::OutOfBounds)), (2, Ok(100))]
    );
    assert_eq!(world.pinned(), 0);
}

#[test]
fn exceptions_leave_the_connection_open() {
    let mut world = World::new(EngineConfig::default());
    let (wire, number) = world.attached();
    let good = world.request(number, 1, None);
    let cases = [
        (
            Request {
                connection: number + 1,
                ..good
            },
            Exception::Denied,
        ),
        (
            Request {
                key: AccessKey(8),
                ..good
            },
            Exception::Stale,
        ),
        (
            Request {
                sequence: 2,
                handle: Handle(9),
                ..good
            },
            Exception::NotResident,
        ),
        (
            Request {
                sequence: 3,
                length: 5000,
                ..good
            },
            Exception::OutOfBounds,
        ),
        (
            Request {
                sequence: 3,
                ..good
            },
            Exception::Replayed,
        ),
    ];
    for (request, exception) in cases {
        world.send(&wire, request);
        world.rounds();
        assert_eq!(results(&wire), [(request.sequence, Err(exception))]);
    }
    world
        .nic
        .close_session(crate::capability::SessionId(world.session));
    world.send(
        &wire,
        Request {
            sequence: 4,
            ..good
        },
    );
    world.rounds();
    assert_eq!(results(&wire), [(4, Err(Exception::Revoked))]);
    assert_eq!(world.engine.connections(), 1);
}

#[test]
fn a_dead_connection_leaves_no_pin() {
    let mut world = World::new(EngineConfig::default());
    let (wire, number) = world.attached();
    wire.lock().slow_writes = true;
    wire.lock().room = 3;
    for frame in 0..3 {
        let request = world.request(number, frame, Some(0));
        world.send(&wire, request);
    }
    world.rounds();
    assert!(world.pinned() > 1, "some are on their way, some wait");
    wire.lock().closed = true;
    world.rounds();
    assert_eq!((world.pinned(), world.engine.connections()), (0, 0));
    let (_, next) = world.attached();
    assert_ne!(next, number, "numbers are not used again");
}

#[test]
fn calls() {
    let mut world = World::new(EngineConfig::default());
    let wire = world.connect(Role::Rpc);
    for message in ["echo", "x no answer", "deferred", "panic", "more"] {
        wire.lock().to_server.push_back(message.into());
    }
    world.rounds();
    let mut replies = std::mem::take(&mut wire.lock().to_client);
    replies.sort();
    assert_eq!(
        replies,
        [b"deferred".to_vec(), b"echo".to_vec(), b"more".to_vec()]
    );
    assert_eq!(wire.lock().receives, world.engine.config.receives);
    wire.lock().closed = true;
    world.rounds();
    assert_eq!(world.echo.gone.lock().len(), 1);
}

#[test]
fn frames_go_out_ahead_of_the_reply() {
    let mut world = World::new(EngineConfig::default());
    let wire = world.connect(Role::Rpc);
    wire.lock().slow_writes = true;
    wire.lock().room = 1;
    wire.lock().to_server.push_back(b"write".into());
    world.rounds();
    assert_eq!(
        wire.lock().written.len(),
        1,
        "the copy went, the frame waits"
    );
    assert_eq!(world.pinned(), 1);
    wire.lock().room = 1000;
    world.rounds();
    assert_eq!(wire.lock().written.len(), 2);
    assert_eq!(
        std::mem::take(&mut wire.lock().to_client),
        [b"write".to_vec()]
    );
    assert_eq!(world.pinned(), 1, "until the write has completed");
    let completions = std::mem::take(&mut wire.lock().pending);
    for id in completions {
        wire.lock()
            .completions
            .push_back(Completion::Write { id, result: Ok(()) });
    }
    world.rounds();
    assert_eq!(world.pinned(), 0);
    assert_eq!(world.engine.connections(), 1);
}

#[test]
fn a_chunk_that_is_not_there_or_fails_closes_the_connection() {
    let mut world = World::new(EngineConfig::default());
    let wire = world.connect(Role::Rpc);
    wire.lock().to_server.push_back(b"bad chunk".into());
    world.rounds();
    assert_eq!((world.pinned(), world.engine.connections()), (0, 0));
    assert!(wire.lock().to_client.is_empty());

    let wire = world.connect(Role::Rpc);
    wire.lock().slow_writes = true;
    wire.lock().to_server.push_back(b"write".into());
    world.rounds();
    let failed = Completion::Write {
        id: 0,
        result: Err(Fault::RemoteAccess),
    };
    wire.lock().completions.push_back(failed);
    world.rounds();
    assert_eq!((world.pinned(), world.engine.connections()), (0, 0));
}

#[test]
fn full_workers_drop_the_call() {
    let mut world = World::new(EngineConfig::default());
    world.hands.full.store(true, Ordering::Relaxed);
    let wire = world.connect(Role::Rpc);
    wire.lock().to_server.push_back(b"deferred".into());
    world.rounds();
    world.hands.full.store(false, Ordering::Relaxed);
    wire.lock().to_server.push_back(b"deferred again".into());
    world.rounds();
    assert_eq!(wire.lock().to_client, [b"deferred again".to_vec()]);
}

#[test]
fn deferred_calls_are_bounded() {
    let mut world = World::new(EngineConfig {
        deferred_max: 2,
        ..EngineConfig::default()
    });
    *world.hands.held.lock() = Some(Vec::new());
    let wire = world.connect(Role::Rpc);
    for _ in 0..5 {
        wire.lock().to_server.push_back(b"deferred".into());
    }
    world.rounds();
    let held = world.hands.held.lock().take().unwrap();
    assert_eq!(
        (held.len(), wire.lock().to_server.len()),
        (2, 3),
        "the rest stays with the peer"
    );
    held.into_iter().for_each(|task| task());
    world.rounds();
    assert_eq!(wire.lock().to_client.len(), 5);
}

#[test]
fn an_answer_for_a_connection_that_is_gone_goes_nowhere() {
    let mut world = World::new(EngineConfig::default());
    *world.hands.held.lock() = Some(Vec::new());
    let wire = world.connect(Role::Rpc);
    wire.lock().to_server.push_back(b"deferred".into());
    world.rounds();
    wire.lock().closed = true;
    world.rounds();
    let next = world.connect(Role::Rpc);
    let held = world.hands.held.lock().take().unwrap();
    held.into_iter().for_each(|task| task());
    world.rounds();
    assert!(
        next.lock().to_client.is_empty(),
        "the next tenant of the place gets it"
    );
}

#[test]
fn who_does_not_attach_is_shown_out() {
    let config = EngineConfig {
        attach_time_max: Nanos(1),
        ..EngineConfig::default()
    };
    let mut world = World::new(config);
    world.connect(Role::Direct);
    world.connect(Role::Rpc);
    while world.engine.connections() > 1 {
        world.engine.poll_once();
    }
}

#[test]
fn who_takes_no_answers_is_closed() {
    let config = EngineConfig {
        pinned_time_max: Nanos::from_millis(1),
        ..EngineConfig::default()
    };
    let mut world = World::new(config);
    let (direct, number) = world.attached();
    let rpc = world.connect(Role::Rpc);
    direct.lock().room = 0;
    rpc.lock().room = 0;
    let request = world.request(number, 1, None);
    world.send(&direct, request);
    rpc.lock().to_server.push_back(b"write".into());
    world.rounds();
    assert_eq!(world.pinned(), 2);
    while world.engine.connections() > 0 {
        world.engine.poll_once();
    }
    assert_eq!(world.pinned(), 0);
}

#[test]
fn strangers_and_crowds_are_rejected() {
    let mut world = World::new(EngineConfig {
        connections_max: 1,
        ..EngineConfig::default()
    });
    let stranger = world.connect_with(b"some other protocol");
    assert!(stranger.lock().rejected.is_some());
    world.connect(Role::Rpc);
    let crowd = world.connect(Role::Rpc);
    assert!(crowd.lock().rejected.is_some());
    assert_eq!(world.engine.connections(), 1);

    let mut world = World::new(EngineConfig::default());
    world.engine.serves.nic = None;
    let direct = world.connect(Role::Direct);
    assert_eq!(
        direct.lock().rejected.as_deref(),
        Some("direct access is off")
    );
}

#[test]
fn stopping_ends_what_is_under_way() {
    let mut world = World::new(EngineConfig::default());
    *world.hands.held.lock() = Some(Vec::new());
    let wire = world.connect(Role::Rpc);
    wire.lock().to_server.push_back(b"deferred".into());
    world.rounds();
    let stopper = world.engine.stopper();
    let World {
        mut engine,
        hands,
        arena: _arena,
        ..
    } = world;
    let run = thread::spawn(move || {
        engine.run();
        engine.connections()
    });
    stopper.stop();
    let held = hands.held.lock().take().unwrap();
    held.into_iter().for_each(|task| task());
    assert_eq!(run.join().unwrap(), 0);
    assert_eq!(wire.lock().to_client, [b"deferred".to_vec()]);
}
