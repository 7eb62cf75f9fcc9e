//! RPC-over-RDMA over the simulator's fabric, by a client that writes its headers itself.

use odafs_common::page::PageSize;
use odafs_common::rpcrdma::PrivateData;
use odafs_common::wire::rpcrdma::{
    Body, Chunks, Header, ReadList, ReadSegment, Segment, Segments, TransportError,
};
use odafs_common::wire::xdr::{Encode as _, Reader};
use odafs_fabric::memory::{Arena, ArenaConfig, FrameNumber, Region};
use odafs_fabric::sim::{Network, NetworkConfig};
use odafs_fabric::sync::atomic::{AtomicU64, Ordering};
use odafs_fabric::sync::{Arc, Mutex, thread};
use odafs_fabric::{Access, Completion, Local, QueuePair, Remote, Sink, SteeringTag};

use crate::calls::{Caller, Calls, ChunkSource, Outcome, Placed, Transport, Workers};
use crate::engine::*;
use crate::registration::{Frames, RegistrationConfig, Strategy};

const PAGE: usize = 4096;
const PAGES: u32 = 8;

/// Serves bytes: what a call asks for stands behind its xid and the word that says that it is a call.
struct Shelf {
    arena: Arc<Arena>,
    taken: Mutex<Vec<Vec<u8>>>,
}

impl Shelf {
    fn page(at: u32) -> [u8; PAGE] {
        std::array::from_fn(|i| (at as usize * 31 + i) as u8)
    }

    /// All pages, pinned.
    fn pieces(&self) -> Vec<ChunkSource> {
        let epoch = self.arena.current_epoch();
        let pinned = (0..PAGES).map(|frame| {
            let frame = FrameNumber(frame);
            self.arena.pin(frame, epoch, epoch).expect("published");
            ChunkSource::Frame {
                frame,
                offset: 0,
                length: PAGE as u32,
            }
        });
        pinned.collect()
    }
}

impl Calls for Shelf {
    fn call(&self, caller: &Caller, message: &[u8], reply: &mut Vec<u8>) -> Outcome {
        reply.extend_from_slice(&message[..4]);
        reply.extend_from_slice(&[0, 0, 0, 1]);
        match message[8] {
            b'e' => reply.extend_from_slice(&message[8..]),
            b'r' => {
                reply.extend_from_slice(b"head");
                let at = reply.len();
                reply.extend_from_slice(b"tail");
                let length = PAGES * PAGE as u32;
                assert!(caller.placement.is_some_and(|room| room >= length));
                return Outcome::Placed(Placed {
                    at,
                    length,
                    pieces: self.pieces(),
                });
            }
            b'l' => {
                assert!(caller.reply_bytes_max >= 3000);
                reply.resize(20_000, b'l');
            }
            b'w' => {
                self.taken.lock().push(message.to_vec());
                let head = reply.clone();
                return Outcome::Deferred(Box::new(move |reply: &mut Vec<u8>| {
                    reply.extend_from_slice(&head);
                    reply.extend_from_slice(b"done");
                    Outcome::Replied
                }));
            }
            _ => return Outcome::Dropped,
        }
        Outcome::Replied
    }
}

/// Runs each task on a thread of its own.
struct Threads;

impl Workers for Threads {
    fn submit(&self, task: Box<dyn FnOnce() + Send>) -> Result<(), Box<dyn FnOnce() + Send>> {
        thread::spawn(task);
        Ok(())
    }
}

/// The frames behind the pages.
struct Spare(Mutex<Vec<FrameNumber>>);

impl Frames for Spare {
    fn take(&self) -> Option<FrameNumber> {
        self.0.lock().pop()
    }

    fn give(&self, frame: FrameNumber) {
        self.0.lock().push(frame);
    }
}

struct Rig {
    network: Network,
    shelf: Arc<Shelf>,
    spare: Arc<Spare>,
    counts: Arc<RdmaCounters>,
    stopper: Stopper,
    engine: Option<thread::JoinHandle<()>>,
}

const SPARE: u32 = 64;

impl Rig {
    fn new(network: NetworkConfig, rdma: RdmaConfig) -> Rig {
        let arena = Arena::create(&ArenaConfig {
            frames: PAGES + SPARE,
            page: PageSize::DEFAULT,
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
        });
        let spare = (PAGES..PAGES + SPARE).map(FrameNumber).collect();
        let spare = Arc::new(Spare(Mutex::new(spare)));
        let counts = Arc::new(RdmaCounters::default());
        let serves = Serves {
            arena,
            nic: None,
            calls: Arc::clone(&shelf) as Arc<dyn Calls>,
            workers: Arc::new(Threads),
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
        Rig {
            network,
            shelf,
            spare,
            counts,
            stopper,
            engine: Some(thread::spawn(move || engine.run())),
        }
    }

    fn client(&self) -> Client {
        self.client_that_says(&PrivateData {
            remote_invalidate: false,
            ..PrivateData::default()
        })
    }

    fn client_that_says(&self, private: &PrivateData) -> Client {
        let mut qp = self.network.connect("server", &private.encode()).unwrap();
        qp.post_receives(64);
        Client { qp, xid: 100 }
    }

    /// Ends the engine: then nothing is pinned and no frame is lost.
    fn end(mut self) {
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

    fn count(counter: &AtomicU64) -> u64 {
        counter.load(Ordering::Relaxed)
    }
}

impl Drop for Rig {
    fn drop(&mut self) {
        self.stop();
    }
}

struct Client {
    qp: Box<dyn QueuePair>,
    xid: u32,
}

impl Client {
    /// The beginning of a call, 12 bytes, and `rest`.
    fn message(&mut self, what: u8, rest: &[u8]) -> Vec<u8> {
        self.xid += 1;
        let mut message = self.xid.to_be_bytes().to_vec();
        message.extend_from_slice(&[0, 0, 0, 0, what, b'.', b'.', b'.']);
        message.extend_from_slice(rest);
        message
    }

    fn send(&mut self, body: Body, inline: &[u8]) {
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
    fn receive(&mut self) -> (Header, Vec<u8>) {
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

    fn call(&mut self, chunks: Chunks, message: &[u8]) -> (Header, Vec<u8>) {
        self.send(Body::Msg(chunks), message);
        let (header, reply) = self.receive();
        assert_eq!(header.xid, self.xid);
        (header, reply)
    }

    fn echo(&mut self) {
        let message = self.message(b'e', b"hello");
        let (header, reply) = self.call(Chunks::default(), &message);
        assert_eq!(header.body, Body::Msg(Chunks::default()));
        assert_eq!(reply[8..], message[8..]);
    }

    fn region(&mut self, bytes: &[u8], access: Access) -> Arc<Region> {
        let region = self.qp.register(bytes.len(), access).unwrap();
        assert!(region.store(0, bytes));
        region
    }
}

fn segment(region: &Region, offset: u64, length: u32) -> Segment {
    Segment {
        handle: region.tag().0,
        length,
        offset,
    }
}

fn load(region: &Region, offset: usize, length: usize) -> Vec<u8> {
    let mut bytes = vec![0; length];
    assert!(region.load(offset, &mut bytes));
    bytes
}

fn pages() -> Vec<u8> {
    (0..PAGES).flat_map(Shelf::page).collect()
}

fn networks() -> [NetworkConfig; 2] {
    let slow = NetworkConfig {
        slow: true,
        receives: true,
        ..NetworkConfig::default()
    };
    [NetworkConfig::default(), slow]
}

fn strategies() -> [RdmaConfig; 4] {
    [
        Strategy::PerOperation,
        Strategy::Pooled,
        Strategy::Cached,
        Strategy::AllPhysical,
    ]
    .map(|strategy| RdmaConfig {
        registration: RegistrationConfig {
            strategy,
            dirty_watermark: 2,
            connection_bytes_max: 64 << 10,
            ..RegistrationConfig::default()
        },
        ..RdmaConfig::default()
    })
}

#[test]
fn calls_inline_and_credits() {
    for network in networks() {
        let rig = Rig::new(network, RdmaConfig::default());
        let mut client = rig.client();
        for _ in 0..300 {
            client.echo();
        }
        let message = client.message(b'e', &[]);
        let (header, _) = client.call(Chunks::default(), &message);
        assert_eq!(header.credits, 128);
        assert_eq!(Rig::count(&rig.counts.calls), 301);
        assert_eq!(Rig::count(&rig.counts.connections), 1);
        rig.end();
    }
}

#[test]
fn results_go_from_the_frames_to_the_write_chunk() {
    for network in networks() {
        let rig = Rig::new(network, RdmaConfig::default());
        let mut client = rig.client();
        let length = PAGES * PAGE as u32;
        let region = client.region(&vec![0; length as usize + 200], Access::WRITE);
        // Segments that cut frames in two, and one that is not needed.
        let cuts = [(100, 5000), (5100, 1), (5101, length - 5001), (0, 50)];
        let cuts = cuts.map(|(offset, length)| segment(&region, offset, length));
        let (chunk, all) = Segments::new(&cuts);
        assert!(all);
        for _ in 0..20 {
            assert!(region.store(100, &vec![0; length as usize]));
            let chunks = Chunks {
                write: Some(chunk),
                ..Chunks::default()
            };
            let message = client.message(b'r', &[]);
            let (header, reply) = client.call(chunks, &message);
            let Body::Msg(returned) = header.body else {
                panic!("{header:?}")
            };
            assert_eq!(returned.write, Some(chunk.returned(length.into())));
            assert_eq!(reply[8..], *b"headtail");
            assert_eq!(load(&region, 100, length as usize), pages());
        }
        drop(client);
        rig.end();
    }
}

#[test]
fn arguments_come_from_the_read_chunk_by_every_strategy() {
    for network in networks() {
        for config in strategies() {
            let rig = Rig::new(network, config);
            let mut client = rig.client();
            let data: Vec<u8> = (0..10_001u32).map(|i| (i * 7) as u8).collect();
            let region = client.region(&data, Access::READ);
            let reads = [
                segment(&region, 0, 4097),
                segment(&region, 4097, 10_001 - 4097),
            ]
            .map(|segment| ReadSegment {
                position: 12,
                segment,
            });
            let chunks = Chunks {
                reads: ReadList::new(&reads).0,
                ..Chunks::default()
            };
            for _ in 0..5 {
                let message = client.message(b'w', b"behind");
                let (header, reply) = client.call(chunks, &message);
                assert_eq!(header.body, Body::Msg(Chunks::default()));
                assert_eq!(reply[8..], *b"done");
                let padded = [&data[..], &[0; 3]].concat();
                let whole = [&message[..12], &padded, b"behind"].concat();
                assert_eq!(rig.shelf.taken.lock().pop(), Some(whole));
            }
            assert_eq!(Rig::count(&rig.counts.read_bytes), 50_005);
            drop(client);
            rig.end();
        }
    }
}

#[test]
fn the_only_tag_of_a_call_is_invalidated_if_the_client_says_so() {
    let rig = Rig::new(NetworkConfig::default(), RdmaConfig::default());
    let mut client = rig.client_that_says(&PrivateData::default());
    let region = client.region(&[3; 100], Access::READ);
    let read = ReadSegment {
        position: 12,
        segment: segment(&region, 0, 100),
    };
    let chunks = Chunks {
        reads: ReadList::one(read),
        ..Chunks::default()
    };
    let message = client.message(b'w', &[]);
    let (header, _) = client.call(chunks, &message);
    assert_eq!(header.body, Body::Msg(Chunks::default()));
    let message = client.message(b'w', &[]);
    let (header, _) = client.call(chunks, &message);
    assert_eq!(header.body, Body::Error(TransportError::Chunk));
    rig.end();
}

#[test]
fn long_calls_and_long_replies() {
    for network in networks() {
        let rig = Rig::new(network, RdmaConfig::default());
        let mut client = rig.client();
        let message = client.message(b'l', &[9; 5000]);
        let call = client.region(&message, Access::READ);
        let reply = client.region(&[0; 30_000], Access::WRITE);
        let whole = ReadSegment {
            position: 0,
            segment: segment(&call, 0, message.len() as u32),
        };
        let room = Segments::one(segment(&reply, 16, 25_000));
        let chunks = Chunks {
            reads: ReadList::one(whole),
            reply: Some(room),
            ..Chunks::default()
        };
        client.send(Body::Nomsg(chunks), &[]);
        let (header, inline) = client.receive();
        let Body::Nomsg(returned) = header.body else {
            panic!("{header:?}")
        };
        assert_eq!(returned.reply, Some(room.returned(20_000)));
        assert!(inline.is_empty());
        assert_eq!(load(&reply, 16, 4), message[..4]);
        assert_eq!(load(&reply, 16 + 8, 19_992), [b'l'; 19_992]);

        // Without room for it, the call is answered by an error, and the next one as ever.
        let message = client.message(b'l', &[]);
        let (header, _) = client.call(Chunks::default(), &message);
        assert_eq!(header.body, Body::Error(TransportError::Chunk));
        assert_eq!(Rig::count(&rig.counts.overruns), 1);
        client.echo();
        rig.end();
    }
}

#[test]
fn what_cannot_be_read_is_an_error_and_disturbs_nobody() {
    for network in networks() {
        for config in strategies() {
            let rig = Rig::new(network, config);
            let mut bystander = rig.client();
            let mut client = rig.client();
            let region = client.region(&[1; 5000], Access::READ);
            // The second segment is not there.
            let reads = [segment(&region, 0, 4096), segment(&region, 4096, 4096)];
            let reads = reads.map(|segment| ReadSegment {
                position: 12,
                segment,
            });
            let chunks = Chunks {
                reads: ReadList::new(&reads).0,
                ..Chunks::default()
            };
            for _ in 0..20 {
                let message = client.message(b'w', &[]);
                let (header, _) = client.call(chunks, &message);
                assert_eq!(header.body, Body::Error(TransportError::Chunk));
                bystander.echo();
            }
            assert!(rig.shelf.taken.lock().is_empty());
            client.echo();
            rig.end();
        }
    }
}

#[test]
fn a_chunk_that_may_not_be_written_ends_its_connection_alone() {
    for network in networks() {
        let rig = Rig::new(network, RdmaConfig::default());
        let mut bystander = rig.client();
        let mut client = rig.client();
        let region = client.region(&[1; 40_000], Access::READ);
        let chunks = Chunks {
            write: Some(Segments::one(segment(&region, 0, 40_000))),
            ..Chunks::default()
        };
        let message = client.message(b'r', &[]);
        client.send(Body::Msg(chunks), &message);
        while !client.qp.is_closed() {
            client.qp.poll();
            let _ = client.qp.wait(None);
        }
        bystander.echo();
        rig.end();
    }
}

#[test]
fn nonsense_is_answered_or_ignored() {
    let rig = Rig::new(NetworkConfig::default(), RdmaConfig::default());
    let mut client = rig.client();
    let words = |words: &[u32]| -> Vec<u8> { words.iter().flat_map(|w| w.to_be_bytes()).collect() };
    client.qp.post_send(0, &[&words(&[7, 2, 1, 0])]).unwrap();
    client.qp.flush();
    let (header, _) = client.receive();
    let versions = TransportError::Version { low: 1, high: 1 };
    assert_eq!((header.xid, header.body), (7, Body::Error(versions)));
    // Neither a header nor anything that can be answered; a DONE for nothing.
    client.qp.post_send(0, &[&[1, 2, 3]]).unwrap();
    client.send(Body::Done, &[]);
    client.echo();
    assert_eq!(Rig::count(&rig.counts.malformed), 1);
    assert_eq!(Rig::count(&rig.counts.ignored), 1);
    assert_eq!(Rig::count(&rig.counts.dones), 1);
    rig.end();
}

fn read_read() -> RdmaConfig {
    RdmaConfig {
        read_read: true,
        done_time_max: Nanos::from_millis(20),
        ..RdmaConfig::default()
    }
}

/// What a reply exposes.
fn exposed(header: &Header) -> ReadSegment {
    let Body::Msg(chunks) = header.body else {
        panic!("{header:?}")
    };
    let [read] = chunks.reads[..] else {
        panic!("{chunks:?}")
    };
    read
}

impl Client {
    /// Reads a segment of the server's; `None`: it does not let us.
    fn fetch(&mut self, segment: Segment) -> Option<Vec<u8>> {
        let region = self.region(&vec![0; segment.length as usize], Access::LOCAL);
        let sink = Sink::Region(Local {
            region: &region,
            offset: 0,
            length: region.len(),
        });
        let from = Remote {
            tag: SteeringTag(segment.handle),
            offset: segment.offset,
        };
        let read = self.qp.post_read(0, sink, from).is_ok();
        read.then(|| load(&region, 0, region.len()))
    }
}

#[test]
fn in_the_read_read_design_the_client_fetches() {
    for config in strategies() {
        let config = RdmaConfig {
            registration: config.registration,
            ..read_read()
        };
        let rig = Rig::new(NetworkConfig::default(), config);
        let wish = PrivateData {
            read_read: true,
            ..PrivateData::default()
        };
        let mut client = rig.client_that_says(&wish);
        let message = client.message(b'r', &[]);
        let (header, reply) = client.call(Chunks::default(), &message);
        assert_eq!(reply[8..], *b"headtail");
        let read = exposed(&header);
        assert_eq!(read.position, 12);
        assert_eq!(client.fetch(read.segment), Some(pages()));
        client.send(Body::Done, &[]);
        client.echo();
        assert_eq!(Rig::count(&rig.counts.dones), 1);
        if config.registration.strategy != Strategy::Pooled {
            assert_eq!(client.fetch(read.segment), None, "it is concealed again");
        }
        // Who says nothing has had his time.
        let message = client.message(b'r', &[]);
        client.call(Chunks::default(), &message);
        while Rig::count(&rig.counts.done_timeouts) == 0 {
            client.echo();
        }
        rig.end();
    }
}

#[test]
fn read_read_takes_both_ends() {
    let rig = Rig::new(NetworkConfig::default(), RdmaConfig::default());
    let wish = PrivateData {
        read_read: true,
        ..PrivateData::default()
    };
    let client = rig.client_that_says(&wish);
    let answer = PrivateData::decode(client.qp.private_data()).unwrap();
    assert!(!answer.read_read);
    assert_eq!(client.qp.reads_max(), 0, "no RDMA Read is let in");
    rig.end();

    let rig = Rig::new(NetworkConfig::default(), read_read());
    let client = rig.client();
    assert_eq!(client.qp.reads_max(), 0, "no RDMA Read is let in");
    rig.end();
}

#[test]
fn calls_wait_for_memory() {
    let config = RdmaConfig {
        registration: RegistrationConfig {
            connection_bytes_max: 16 << 10,
            ..RegistrationConfig::default()
        },
        ..RdmaConfig::default()
    };
    let slow = networks()[1];
    let rig = Rig::new(slow, config);
    let mut client = rig.client();
    client.echo();
    let region = client.region(&[3; 10_000], Access::READ);
    let read = ReadSegment {
        position: 12,
        segment: segment(&region, 0, 10_000),
    };
    for _ in 0..8 {
        let chunks = Chunks {
            reads: ReadList::one(read),
            ..Chunks::default()
        };
        let message = client.message(b'w', &[]);
        client.send(Body::Msg(chunks), &message);
    }
    for _ in 0..8 {
        let (_, reply) = client.receive();
        assert_eq!(reply[8..], *b"done");
    }
    assert!(Rig::count(&rig.counts.registration.refused) > 0);
    assert_eq!(Rig::count(&rig.counts.registration.registered), 1);
    rig.end();
}
