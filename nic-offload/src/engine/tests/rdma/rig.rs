//! An engine that serves RPC-over-RDMA over the simulator's fabric, and a client that writes its headers itself.

use odafs_common::page::{Layout, PageSize};
use odafs_common::rpcrdma::PrivateData;
use odafs_common::wire::rpcrdma::{Body, Chunks, Header, Segment};
use odafs_common::wire::xdr::{Encode as _, Reader};
use odafs_fabric::clock::Nanos;
use odafs_fabric::memory::{Arena, ArenaConfig, FrameNumber, Region};
use odafs_fabric::sim::{Network, NetworkConfig};
use odafs_fabric::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use odafs_fabric::sync::{Arc, Mutex, thread};
use odafs_fabric::{Access, Completion, QueuePair};

use crate::calls::{
    Back, Caller, Calls, ChunkSource, Errand, Job, Outcome, Placed, PlacedResult, Transport,
    Workers,
};
use crate::engine::tests::world::Task;
use crate::engine::{Engine, EngineConfig, RdmaConfig, RdmaCounters, Serves, Stopper};
use crate::registration::Frames;

pub(super) const PAGE: usize = 4096;
pub(super) const PAGES: u32 = 8;

/// Serves bytes: what a call asks for stands behind its xid and the word that says that it is a call.
pub(super) struct Shelf {
    pub(super) arena: Arc<Arena>,
    pub(super) taken: Mutex<Vec<Vec<u8>>>,
    /// The ways back to who asked to be called.
    pub(super) ways: Mutex<Vec<Arc<dyn Back>>>,
    /// Replies to calls that went those ways.
    pub(super) answers: Mutex<Vec<Vec<u8>>>,
}

impl Shelf {
    pub(super) fn page(at: u32) -> [u8; PAGE] {
        std::array::from_fn(|i| (at as usize * 31 + i) as u8)
    }

    /// All pages, pinned.
    fn pieces(&self) -> Vec<ChunkSource> {
        let epoch = self.arena.current_epoch();
        let pinned = (0..PAGES).map(|frame| {
            let pinned = self.arena.pin(FrameNumber(frame), epoch, epoch);
            ChunkSource::Frame {
                frame: pinned.expect("published"),
                offset: 0,
                length: PAGE as u32,
            }
        });
        pinned.collect()
    }
}

/// A message, with what came apart from it.
fn whole(caller: &Caller, message: &[u8]) -> Vec<u8> {
    let Some(apart) = &caller.apart else {
        return message.to_vec();
    };
    let mut whole = message.to_vec();
    for (number, place) in apart.places().iter().enumerate() {
        let mut data = apart.bytes(number).to_vec();
        data.resize(place.padded(), 0);
        let at = place.at as usize;
        whole.splice(at..at, data);
    }
    whole
}

impl Calls for Shelf {
    fn call(&self, caller: &Caller, message: &[u8], reply: &mut Vec<u8>) -> Outcome {
        if message[4..8] == [0, 0, 0, 1] {
            self.answers.lock().push(message.to_vec());
            return Outcome::Dropped;
        }
        reply.extend_from_slice(&message[..4]);
        reply.extend_from_slice(&[0, 0, 0, 1]);
        match message[8] {
            b'e' => reply.extend_from_slice(&message[8..]),
            b'c' => self.ways.lock().extend(caller.back.clone()),
            b'r' => {
                reply.extend_from_slice(b"head");
                let at = reply.len();
                reply.extend_from_slice(b"tail");
                let length = PAGES * PAGE as u32;
                assert!(caller.placements.first().is_some());
                return Outcome::Placed(Placed::one(at, length, self.pieces()));
            }
            // All pages, as many results as there are chunks for: the pages are divided among them.
            b'R' => {
                let chunks = caller.placements.bytes();
                let mut placed = Placed {
                    pieces: self.pieces(),
                    ..Placed::default()
                };
                for (result, bytes) in (0..).zip(chunks) {
                    let at = reply.len() as u32;
                    let bytes = *bytes;
                    assert!(placed.results.push(PlacedResult { result, at, bytes }));
                    reply.extend_from_slice(b"next");
                }
                assert_eq!(placed.bytes(), u64::from(PAGES * PAGE as u32));
                return Outcome::Placed(placed);
            }
            b'l' => {
                assert!(caller.reply_bytes_max >= 3000);
                reply.resize(20_000, b'l');
            }
            b's' => {
                self.taken.lock().push(whole(caller, message));
                reply.extend_from_slice(b"done");
            }
            b'w' => {
                self.taken.lock().push(whole(caller, message));
                let head = reply.clone();
                return Outcome::Deferred(Job::new(move |reply: &mut Vec<u8>| {
                    reply.extend_from_slice(&head);
                    reply.extend_from_slice(b"done");
                    Outcome::Replied
                }));
            }
            // All pages, placed before it has to wait.
            b'k' => {
                let at = reply.len();
                let (head, pieces) = (reply.clone(), self.pieces());
                let job = Job::new(move |reply: &mut Vec<u8>| {
                    reply.extend_from_slice(&head);
                    let length = PAGES * PAGE as u32;
                    Outcome::Placed(Placed::one(at, length, pieces))
                });
                return Outcome::Deferred(job.with_pins(PAGES as usize));
            }
            b'g' => {
                return Outcome::Deferred(Job::new(|_| std::panic::resume_unwind(Box::new(()))));
            }
            _ => return Outcome::Dropped,
        }
        Outcome::Replied
    }
}

/// Runs each task on a thread of its own; or holds it back; or is full.
#[derive(Default)]
pub(super) struct Threads {
    pub(super) full: AtomicBool,
    pub(super) held: Mutex<Option<Vec<Task>>>,
}

impl Workers for Threads {
    fn submit(&self, errand: Errand) -> Result<(), Errand> {
        if self.full.load(Ordering::Relaxed) {
            return Err(errand);
        }
        if let Some(held) = &mut *self.held.lock() {
            held.push(errand.task);
            return Ok(());
        }
        thread::spawn(errand.task);
        Ok(())
    }
}

/// The frames behind the pages.
pub(super) struct Spare(Mutex<Vec<FrameNumber>>);

impl Frames for Spare {
    fn take(&self) -> Option<FrameNumber> {
        self.0.lock().pop()
    }

    fn give(&self, frame: FrameNumber) {
        self.0.lock().push(frame);
    }
}

pub(super) struct Rig {
    pub(super) network: Network,
    pub(super) shelf: Arc<Shelf>,
    pub(super) spare: Arc<Spare>,
    pub(super) threads: Arc<Threads>,
    pub(super) counts: Arc<RdmaCounters>,
    pub(super) stopper: Stopper,
    pub(super) engine: Option<thread::JoinHandle<()>>,
}

pub(super) const SPARE: u32 = 64;

impl Rig {
    pub(super) fn new(network: NetworkConfig, rdma: RdmaConfig) -> Rig {
        let (mut rig, mut engine) = Self::at_rest(network, rdma);
        rig.engine = Some(thread::spawn(move || engine.run()));
        rig
    }

    /// With an engine that somebody else runs.
    pub(super) fn at_rest(network: NetworkConfig, rdma: RdmaConfig) -> (Rig, Engine) {
        let arena = Arena::create(&ArenaConfig {
            frames: PAGES + SPARE,
            layout: Layout::apart(PageSize::DEFAULT),
            huge: false,
            populate: false,
        });
        let arena = Arc::new(arena.unwrap());
        for frame in 0..PAGES {
            arena.copy_in(FrameNumber(frame), 0, &Shelf::page(frame));
            arena.publish(FrameNumber(frame));
        }
        let shelf = Arc::new(Shelf {
            arena: Arc::clone(&arena),
            taken: Mutex::default(),
            ways: Mutex::default(),
            answers: Mutex::default(),
        });
        let spare = (PAGES..PAGES + SPARE).map(FrameNumber).collect();
        let spare = Arc::new(Spare(Mutex::new(spare)));
        let counts = Arc::new(RdmaCounters::default());
        let threads = Arc::new(Threads::default());
        let serves = Serves {
            arena,
            nic: None,
            calls: Arc::clone(&shelf) as Arc<dyn Calls>,
            workers: Arc::clone(&threads) as Arc<dyn Workers>,
            life: None,
            frames: Some(Arc::clone(&spare) as Arc<dyn Frames>),
            rdma: Arc::clone(&counts),
        };
        let config = EngineConfig {
            rdma,
            ..EngineConfig::default()
        };
        let mut engine = Engine::new(config, serves).unwrap();
        let network = Network::new(1, network);
        engine
            .listen(network.listen("server").unwrap(), Transport::Sim)
            .unwrap();
        let stopper = engine.stopper();
        let rig = Rig {
            network,
            shelf,
            spare,
            threads,
            counts,
            stopper,
            engine: None,
        };
        (rig, engine)
    }

    pub(super) fn client(&self) -> Client {
        self.client_that_says(&PrivateData {
            remote_invalidate: false,
            ..PrivateData::default()
        })
    }

    pub(super) fn client_that_says(&self, private: &PrivateData) -> Client {
        let mut qp = self.network.connect("server", &private.encode()).unwrap();
        qp.post_receives(64);
        Client { qp, xid: 100 }
    }

    /// Ends the engine: then nothing is pinned and no frame is lost.
    pub(super) fn end(mut self) {
        self.stop();
        for frame in 0..PAGES {
            assert!(!self.shelf.arena.is_pinned(FrameNumber(frame)));
        }
        assert_eq!(self.spare.0.lock().len(), SPARE as usize);
    }

    fn stop(&mut self) {
        self.stopper.stop();
        if let Some(engine) = self.engine.take() {
            engine.join().unwrap();
        }
    }

    pub(super) fn count(counter: &AtomicU64) -> u64 {
        counter.load(Ordering::Relaxed)
    }
}

impl Drop for Rig {
    fn drop(&mut self) {
        self.stop();
    }
}

pub(super) struct Client {
    pub(super) qp: Box<dyn QueuePair>,
    pub(super) xid: u32,
}

impl Client {
    /// The beginning of a call, 12 bytes, and `rest`.
    pub(super) fn message(&mut self, what: u8, rest: &[u8]) -> Vec<u8> {
        self.xid += 1;
        let mut message = self.xid.to_be_bytes().to_vec();
        message.extend_from_slice(&[0, 0, 0, 0, what, b'.', b'.', b'.']);
        message.extend_from_slice(rest);
        message
    }

    pub(super) fn send(&mut self, body: Body, inline: &[u8]) {
        let header = Header {
            xid: self.xid,
            credits: 8,
            body,
        };
        self.qp
            .post_send(0, &[&header.to_bytes(), inline])
            .expect("room");
        self.qp.flush();
    }

    /// The next message, its header apart.
    pub(super) fn receive(&mut self) -> (Header, Vec<u8>) {
        loop {
            match self.qp.poll() {
                Some(Completion::Recv { .. }) => {
                    self.qp.post_receives(1);
                    let mut r = Reader::new(self.qp.message());
                    let header = Header::decode(&mut r).expect("a header");
                    assert!(header.credits > 0, "no credits");
                    return (header, r.rest().to_vec());
                }
                Some(_) => {}
                None => self.qp.wait(None).expect("the connection lives"),
            }
        }
    }

    /// Whether a message has come: it is the next to be received.
    pub(super) fn has_message(&mut self) -> bool {
        self.qp.wait(Some(Nanos(1))).expect("the connection lives");
        !self.qp.arm()
    }

    pub(super) fn call(&mut self, chunks: Chunks, message: &[u8]) -> (Header, Vec<u8>) {
        self.send(Body::Msg(chunks), message);
        let (header, reply) = self.receive();
        assert_eq!(header.xid, self.xid);
        (header, reply)
    }

    /// Waits for the end of the connection.
    pub fn until_closed(&mut self) {
        while !self.qp.is_closed() {
            self.qp.poll();
            let _ = self.qp.wait(None);
        }
    }

    pub(super) fn echo(&mut self) {
        let message = self.message(b'e', b"hello");
        let (header, reply) = self.call(Chunks::default(), &message);
        assert_eq!(header.body, Body::Msg(Chunks::default()));
        assert_eq!(reply[8..], message[8..]);
    }

    pub(super) fn region(&mut self, bytes: &[u8], access: Access) -> Arc<Region> {
        let region = self.qp.register(bytes.len(), access).unwrap();
        assert!(region.store(0, bytes));
        region
    }
}

pub(super) fn segment(region: &Region, offset: u64, length: u32) -> Segment {
    let remote = region.remote(0).ahead(offset);
    Segment {
        handle: remote.tag.0,
        length,
        offset: remote.offset,
    }
}

pub(super) fn load(region: &Region, offset: usize, length: usize) -> Vec<u8> {
    let mut bytes = vec![0; length];
    assert!(region.load(offset, &mut bytes));
    bytes
}

pub(super) fn pages() -> Vec<u8> {
    (0..PAGES).flat_map(Shelf::page).collect()
}
