//! The interface between a transport and the procedures behind it: every transport (a fabric's queue pairs, TCP) passes
//! calls to the same [`Calls`].

use std::net::IpAddr;
use std::ops::Range;

pub use odafs_common::rpcrdma::{PlacedResult, PlacedResults, Placements};
use odafs_common::wire::rpcrdma::{Few, Gaps, READ_CHUNKS_MAX};
use odafs_common::wire::xdr::Gap;
use odafs_fabric::memory::{Arena, Gather, Pinned};
use odafs_fabric::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use odafs_fabric::sync::{Arc, OnceLock};
use odafs_fabric::{Peer, Remote, Source};

use crate::registration::Contents;

/// The kind of transport over which a call came.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Transport {
    /// NFS over TCP: record marking, no RDMA.
    NfsTcp,
    /// The shared-memory fabric: the peer is a process of this host, known by its socket credentials.
    Shm,
    /// iWARP in userspace.
    Iwarp,
    /// RDMA hardware, or the kernel's soft RDMA.
    Verbs,
    /// The simulator.
    Sim,
}

impl Transport {
    /// Whether the transport can write into a caller's memory ahead of a reply.
    pub const fn has_rdma_write(self) -> bool {
        !matches!(self, Transport::NfsTcp)
    }

    /// All kinds, in the order of their numbers.
    pub const ALL: [Transport; 5] = [
        Transport::NfsTcp,
        Transport::Shm,
        Transport::Iwarp,
        Transport::Verbs,
        Transport::Sim,
    ];

    /// The label `fabric` of the metrics.
    pub const fn label(self) -> &'static str {
        match self {
            Transport::NfsTcp => "tcp",
            Transport::Shm => "shm",
            Transport::Iwarp => "iwarp",
            Transport::Verbs => "verbs",
            Transport::Sim => "sim",
        }
    }

    /// The name that logs and sessions use.
    pub const fn name(self) -> &'static str {
        match self {
            Transport::NfsTcp => "nfs",
            Transport::Shm => "shm",
            Transport::Iwarp => "tcp",
            Transport::Verbs => "verbs",
            Transport::Sim => "sim",
        }
    }
}

/// The way back to a peer over its connection, because some programs call their callers (RFC 8881, section 2.10.3.1).
pub trait Back: std::fmt::Debug + Send + Sync {
    /// Sends an RPC message without transport framing, soon and without waiting. Returns false if the connection is
    /// gone, or if too much waits on it already.
    fn send(&self, message: Vec<u8>) -> bool;

    /// Whether the connection still exists and carries calls this way.
    fn is_open(&self) -> bool;
}

/// The peer that calls, and its transport.
#[derive(Clone, Debug)]
pub struct Caller {
    /// The peer, as the transport knows it.
    pub peer: Peer,
    /// The address of this server that the peer uses, where the transport knows it.
    pub local: Option<IpAddr>,
    /// Number of the connection, unique in the life of a server.
    pub connection: u64,
    /// Kind of transport.
    pub transport: Transport,
    /// The longest reply that the transport can carry, in bytes. A longer one closes the connection.
    pub reply_bytes_max: u32,
    /// The memory for this call's results ahead of the reply (RFC 8166: its write chunks). If the call named none, everything
    /// goes into the reply.
    pub placements: Placements,
    /// The parts of this call's arguments that came apart from its message.
    pub apart: Option<ChunkedArguments>,
    /// How to call the peer back. `None` if the transport cannot, or no longer.
    pub back: Option<Arc<dyn Back>>,
    /// Notes of the procedures on the peer. All calls of a connection share them.
    pub notes: Notes,
}

/// Words that the procedures keep with a connection, so that a call need not find out again what an earlier call found
/// out. The transport only carries them, and notes the end of the connection. A connection begins without any.
#[derive(Clone, Debug, Default)]
pub struct Notes(Arc<OfConnection>);

#[derive(Debug, Default)]
struct OfConnection {
    words: OnceLock<Box<[AtomicU64]>>,
    closed: AtomicBool,
}

impl Notes {
    /// The word at `at` of `count`, which are all 0 at first. The first call for a connection allocates them; its `count`
    /// holds from then on. `None` if there is no such word.
    pub fn word(&self, at: usize, count: usize) -> Option<&AtomicU64> {
        let words = self
            .0
            .words
            .get_or_init(|| (0..count).map(|_| AtomicU64::new(0)).collect());
        words.get(at)
    }

    /// The connection is gone. The transport says so just before [`Calls::closed`].
    pub fn close(&self) {
        self.0.closed.store(true, Ordering::Release);
    }

    /// Whether the connection is gone. A job that keeps something until [`Calls::closed`] asks after it has done so, because
    /// that may have been called already.
    pub fn is_closed(&self) -> bool {
        self.0.closed.load(Ordering::Acquire)
    }
}

/// The parts of the arguments that came apart from their message (RFC 8166: read chunks), in the memory into which they were
/// read. Only DDP-eligible arguments may come so (section 6.1), and each only as a whole.
#[derive(Clone, Debug)]
pub struct ChunkedArguments {
    contents: Contents,
    chunks: Few<Chunk, READ_CHUNKS_MAX>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Chunk {
    place: Gap,
    /// First byte in the contents.
    start: usize,
}

impl ChunkedArguments {
    /// None yet, of these contents.
    pub fn new(contents: Contents) -> ChunkedArguments {
        let chunks = Few::default();
        ChunkedArguments { contents, chunks }
    }

    /// Adds the contents that belong at byte `at` of the whole message, behind those added before, as a range. Returns `false`
    /// if there is no such range, or there are as many as a call may bring.
    #[must_use]
    pub fn push(&mut self, at: u32, range: Range<usize>) -> bool {
        let bytes = u32::try_from(range.len());
        bytes.is_ok_and(|bytes| {
            let place = Gap { at, bytes };
            let start = range.start;
            self.contents.gather(&range).is_some() && self.chunks.push(Chunk { place, start })
        })
    }

    /// Where they belong in the whole message. Padding that came is part of them; other padding is nowhere.
    pub fn places(&self) -> Gaps {
        let mut places = Gaps::default();
        for chunk in self.chunks.iter() {
            let _ = places.push(chunk.place);
        }
        places
    }

    /// Length of all of them in bytes.
    pub fn len(&self) -> usize {
        self.chunks
            .iter()
            .map(|chunk| chunk.place.bytes as usize)
            .sum()
    }

    /// Whether they are of no bytes.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The bytes of one, counted from 0. The peer may be able to change them at any time.
    pub fn bytes(&self, number: usize) -> Gather<'_> {
        let gather = self.chunks.get(number).and_then(|chunk| {
            let range = chunk.start..chunk.start + chunk.place.bytes as usize;
            self.contents.gather(&range)
        });
        gather.unwrap_or_default()
    }
}

/// Work that may block. It fills the reply and says what to do with it. It runs on the server's pool.
pub struct Job {
    work: Work,
    pins: usize,
}

type Work = Box<dyn FnOnce(&mut Vec<u8>) -> Outcome + Send>;

impl Job {
    /// Work that has pinned nothing yet.
    pub fn new(work: impl FnOnce(&mut Vec<u8>) -> Outcome + Send + 'static) -> Job {
        Job {
            work: Box::new(work),
            pins: 0,
        }
    }

    /// With this many frames pinned already for the reply of a call that goes on.
    #[must_use]
    pub fn with_pins(self, pins: usize) -> Job {
        Job { pins, ..self }
    }

    /// Number of frames that it keeps pinned while it waits.
    pub fn pins(&self) -> usize {
        self.pins
    }

    /// Does the work. May block.
    pub fn run(self, reply: &mut Vec<u8>) -> Outcome {
        (self.work)(reply)
    }
}

/// The result of a procedure.
pub enum Outcome {
    /// The reply is complete: send it.
    Replied,
    /// No reply (a duplicate of a call in progress, a message that is not a call).
    Dropped,
    /// Write this into the caller's memory, then send the reply. If the caller named memory that it does not have, the
    /// connection is closed, as RDMA hardware would do.
    Write(Vec<ChunkWrite>),
    /// The reply lacks data that goes into the memory of the [`Caller::placements`]. Only for callers that have some.
    Placed(Placed),
    /// The reply comes from a job that may block. The contents of the reply buffer are discarded.
    Deferred(Job),
}

impl std::fmt::Debug for Outcome {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Outcome::Replied => f.write_str("Replied"),
            Outcome::Dropped => f.write_str("Dropped"),
            Outcome::Write(writes) => write!(f, "Write({})", writes.len()),
            Outcome::Placed(placed) => placed.fmt(f),
            Outcome::Deferred(_) => f.write_str("Deferred"),
        }
    }
}

/// Results whose data a reply lacks, because they go into the caller's memory.
#[derive(Debug, Default)]
pub struct Placed {
    /// The results, in their order: each belongs right after its length. Its XDR padding is nowhere. If one is longer than its
    /// placement, the answer is an error of the transport.
    pub results: PlacedResults,
    /// The data of all of them, in order.
    pub pieces: Vec<ChunkSource>,
}

impl Placed {
    /// The first result alone, of `bytes` that belong at `at` of the reply.
    pub fn one(at: usize, bytes: u32, pieces: Vec<ChunkSource>) -> Placed {
        let (result, at) = (0, at as u32);
        let results = PlacedResults::one(PlacedResult { result, at, bytes });
        Placed { results, pieces }
    }

    /// Length of the data in bytes.
    pub fn bytes(&self) -> u64 {
        let bytes = self.results.iter().map(|result| u64::from(result.bytes));
        bytes.sum()
    }
}

/// One RDMA Write that goes out ahead of a reply.
#[derive(Debug)]
pub struct ChunkWrite {
    /// What to write.
    pub from: ChunkSource,
    /// The place in the caller's memory.
    pub to: Remote,
}

/// The source of a [`ChunkWrite`] or of a [`Placed`].
#[derive(Debug)]
pub enum ChunkSource {
    /// Part of a frame of the export's arena. The sender keeps it until it has been sent.
    Frame {
        /// The frame.
        frame: Pinned,
        /// First byte within it.
        offset: u32,
        /// Length in bytes.
        length: u32,
    },
    /// A copy, of what could not be pinned.
    Bytes(Vec<u8>),
}

impl ChunkSource {
    /// The source for a fabric.
    pub(crate) fn source<'a>(&'a self, arena: &'a Arc<Arena>) -> Source<'a> {
        match self {
            ChunkSource::Frame {
                frame,
                offset,
                length,
            } => Source::Frame {
                arena,
                frame: frame.frame(),
                offset: *offset,
                length: *length,
            },
            ChunkSource::Bytes(bytes) => Source::Bytes(bytes),
        }
    }

    /// Appends its bytes. `arena` is that of its frame.
    pub fn append_to(&self, bytes: &mut Vec<u8>, arena: &Arena) {
        match self {
            ChunkSource::Bytes(copy) => bytes.extend_from_slice(copy),
            ChunkSource::Frame {
                frame,
                offset,
                length,
            } => {
                let start = bytes.len();
                bytes.resize(start + *length as usize, 0);
                arena.copy_out(frame.frame(), *offset, &mut bytes[start..]);
            }
        }
    }

    /// Length in bytes.
    pub fn length(&self) -> u32 {
        match self {
            ChunkSource::Frame { length, .. } => *length,
            ChunkSource::Bytes(bytes) => u32::try_from(bytes.len()).unwrap_or(u32::MAX),
        }
    }
}

/// The procedures.
pub trait Calls: Send + Sync {
    /// Serves one call: an RPC message without transport framing. `reply` is empty at first. Never blocks: work that
    /// may block goes into [`Outcome::Deferred`]. A caller that is called by [`Caller::back`] answers over the same
    /// connection: its replies come here too, and are [`Outcome::Dropped`].
    fn call(&self, caller: &Caller, message: &[u8], reply: &mut Vec<u8>) -> Outcome;

    /// As [`Calls::call`], but takes ownership of the message, so that a job need not copy it.
    fn call_owned(&self, caller: &Caller, message: Vec<u8>, reply: &mut Vec<u8>) -> Outcome {
        self.call(caller, &message, reply)
    }

    /// Whether a deferred call may wait for stable storage. The message may lack [`ChunkedArguments`].
    fn may_sync(&self, message: &[u8]) -> bool {
        let _ = message;
        true
    }

    /// Whether a peer may connect at all.
    fn admits(&self, peer: &Peer) -> bool {
        let _ = peer;
        true
    }

    /// The [`Caller::back`] of the connection with this number carries no more calls: the peer has left one unanswered for
    /// too long. The connection itself goes on, and its next calls come without a way back.
    fn back_closed(&self, connection: u64) {
        let _ = connection;
    }

    /// The connection with this number is gone.
    fn closed(&self, connection: u64) {
        let _ = connection;
    }
}

/// A task for the workers.
pub struct Errand {
    /// Number of the connection for which it is done.
    pub connection: u64,
    /// Whether it may wait for stable storage. Such errands must not delay others.
    pub syncs: bool,
    /// The work.
    pub task: Box<dyn FnOnce() + Send>,
}

/// Where transports submit jobs that may block.
pub trait Workers: Send + Sync {
    /// Runs the errand soon, on another thread. Returns it if the queue is full; its connection then accepts no more
    /// calls until there is room for it.
    fn submit(&self, errand: Errand) -> Result<(), Errand>;
}
