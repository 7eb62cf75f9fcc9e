//! An engine, what it serves, and who it serves.

use std::collections::HashMap;

use odafs_common::connect::{Nonce, PrivateData, Role};
use odafs_common::direct::{Attach, Attached, Request};
use odafs_common::exception::Exception;
use odafs_common::mac::MacAlgorithm;
use odafs_common::page::{Layout, PageSize};
use odafs_common::reference::{AccessKey, Handle, Reference};
use odafs_common::session::SessionKey;
use odafs_fabric::clock::Nanos;
use odafs_fabric::memory::{Arena, ArenaConfig, FrameNumber};
use odafs_fabric::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use odafs_fabric::sync::{Arc, Mutex, mpsc, thread};
use odafs_fabric::{Remote, SteeringTag};

use super::wire::{Door, SINK_BYTES, Shared, Wire};
use crate::calls::{
    Back, Caller, Calls, ChunkSource, ChunkWrite, Errand, Job, Notes, Outcome, Transport, Workers,
};
use crate::capability::{NewSession, ReaderClass};
use crate::engine::{Engine, EngineConfig, Serves};
use crate::host_vm::SharedVm;
use crate::nic::{Nic, NicConfig};
use crate::tpt::TptEntry;

/// Echoes; and a call's first byte may ask for more.
pub(super) struct Echo {
    pub(super) arena: Arc<Arena>,
    pub(super) gone: Mutex<Vec<u64>>,
    /// What goes with the calls of the last connection that called.
    pub(super) notes: Mutex<Notes>,
    /// The connections whose way back is closed.
    pub(super) unheard: Mutex<Vec<u64>>,
    pub(super) calls: AtomicUsize,
    /// The ways back to who asked to be called.
    pub(super) ways: Mutex<Vec<Arc<dyn Back>>>,
}

pub(super) const FRAME: FrameNumber = FrameNumber(2);

impl Calls for Echo {
    fn call(&self, caller: &Caller, message: &[u8], reply: &mut Vec<u8>) -> Outcome {
        self.calls.fetch_add(1, Ordering::Relaxed);
        *self.notes.lock() = caller.notes.clone();
        reply.extend_from_slice(message);
        match message.first() {
            Some(b'd') => {
                let reply = message.to_vec();
                let job = Job::new(move |into| {
                    into.extend_from_slice(&reply);
                    Outcome::Replied
                });
                // A job may find that it takes another.
                Outcome::Deferred(Job::new(move |_| Outcome::Deferred(job)))
            }
            Some(b'k') => {
                let epoch = self.arena.current_epoch();
                let pinned = self.arena.pin(FRAME, epoch, epoch);
                let kept = pinned.expect("the frame is published");
                let reply = message.to_vec();
                let job = Job::new(move |into| {
                    drop(kept);
                    into.extend_from_slice(&reply);
                    Outcome::Replied
                });
                Outcome::Deferred(job.with_pins(1))
            }
            Some(b'p') => Outcome::Deferred(Job::new(|_| panic!("a worker's job panics"))),
            Some(&chunk @ (b'w' | b'b')) => {
                let epoch = self.arena.current_epoch();
                let pinned = self.arena.pin(FRAME, epoch, epoch);
                let offset = if chunk == b'w' { 64 } else { SINK_BYTES };
                let to = Remote {
                    tag: SteeringTag(1),
                    offset,
                };
                let frame = ChunkSource::Frame {
                    frame: pinned.expect("the frame is published"),
                    offset: 0,
                    length: 4096,
                };
                let bytes = ChunkSource::Bytes(vec![1; 10]);
                Outcome::Write(vec![
                    ChunkWrite { from: bytes, to },
                    ChunkWrite { from: frame, to },
                ])
            }
            Some(b'c') => {
                self.ways.lock().extend(caller.back.clone());
                Outcome::Replied
            }
            Some(b'x') => Outcome::Dropped,
            _ => Outcome::Replied,
        }
    }

    fn back_closed(&self, connection: u64) {
        self.unheard.lock().push(connection);
    }

    fn closed(&self, connection: u64) {
        self.gone.lock().push(connection);
    }
}

pub(super) type Task = Box<dyn FnOnce() + Send>;

/// Runs each task at once on a thread of its own; or holds it back; or is full.
#[derive(Default)]
pub(super) struct Hands {
    pub(super) full: AtomicBool,
    pub(super) held: Mutex<Option<Vec<Task>>>,
}

impl Workers for Hands {
    fn submit(&self, errand: Errand) -> Result<(), Errand> {
        if self.full.load(Ordering::Relaxed) {
            return Err(errand);
        }
        if let Some(held) = &mut *self.held.lock() {
            held.push(errand.task);
            return Ok(());
        }
        // A panic of the task ends its thread and no other.
        let _ = thread::spawn(errand.task).join();
        Ok(())
    }
}

pub(super) struct World {
    pub(super) engine: Engine,
    pub(super) door: mpsc::Sender<Shared>,
    pub(super) arena: Arc<Arena>,
    pub(super) nic: Arc<Nic>,
    pub(super) echo: Arc<Echo>,
    pub(super) hands: Arc<Hands>,
    pub(super) key: SessionKey,
    pub(super) session: u32,
    pub(super) sequence: u64,
}

impl World {
    pub(super) fn new(config: EngineConfig) -> World {
        let arena_config = ArenaConfig {
            frames: 4,
            layout: Layout::apart(PageSize::DEFAULT),
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
            notes: Mutex::default(),
            gone: Mutex::default(),
            unheard: Mutex::default(),
            calls: AtomicUsize::new(0),
            ways: Mutex::default(),
        });
        let hands = Arc::new(Hands::default());
        let serves = Serves {
            arena: Arc::clone(&arena),
            nic: Some(Arc::clone(&nic)),
            calls: Arc::clone(&echo) as Arc<dyn Calls>,
            workers: Arc::clone(&hands) as Arc<dyn Workers>,
            life: None,
            frames: None,
            rdma: Arc::default(),
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

    pub(super) fn connect_with(&mut self, private: &[u8]) -> Shared {
        self.connect_over(Wire {
            private: private.to_vec(),
            room: 1000,
            ..Wire::default()
        })
    }

    pub(super) fn connect_over(&mut self, wire: Wire) -> Shared {
        let wire = Arc::new(Mutex::new(wire));
        self.door.send(Arc::clone(&wire)).unwrap();
        self.engine.accept_next = Nanos(0);
        self.engine.poll_once();
        wire
    }

    pub(super) fn connect(&mut self, role: Role) -> Shared {
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
    pub(super) fn attached(&mut self) -> (Shared, u32) {
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

    pub(super) fn request(&mut self, connection: u32, frame: u32, sink: Option<u64>) -> Request {
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
            marked: false,
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

    pub(super) fn send(&self, wire: &Shared, request: Request) {
        let key = self.key.mac_key(MacAlgorithm::Blake3, 0);
        wire.lock().to_server.push_back(request.seal(&key).to_vec());
    }

    pub(super) fn rounds(&mut self) {
        while self.engine.poll_once() {}
    }

    pub(super) fn pinned(&self) -> usize {
        (0..4)
            .filter(|&frame| self.arena.is_pinned(FrameNumber(frame)))
            .count()
    }
}
