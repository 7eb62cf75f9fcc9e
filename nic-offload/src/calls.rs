//! What a transport and the procedures behind it say to each other: every transport (a fabric's queue pairs, TCP)
//! hands calls to the same [`Calls`].

use std::ops::Range;

use odafs_fabric::memory::{Arena, Gather, Pinned};
use odafs_fabric::sync::Arc;
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

    /// All of them, in the order of their numbers.
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

/// The way back to a peer over the connection by which it calls: some programs call their callers (RFC 8881, section
/// 2.10.3.1).
pub trait Back: std::fmt::Debug + Send + Sync {
    /// Sends an RPC message without transport framing, soon and without waiting. False: the connection is gone, or too much
    /// waits on it already.
    fn send(&self, message: Vec<u8>) -> bool;

    /// Whether the connection is still there.
    fn is_open(&self) -> bool;
}

/// The peer that calls, and its transport.
#[derive(Clone, Debug)]
pub struct Caller {
    /// The peer, as the transport knows it.
    pub peer: Peer,
    /// Number of the connection, unique in the life of a server.
    pub connection: u64,
    /// Kind of transport.
    pub transport: Transport,
    /// Longest reply that the transport can carry, in bytes; a longer one closes the connection.
    pub reply_bytes_max: u32,
    /// Size in bytes of the memory for this call's results ahead of the reply (RFC 8166: its write chunk). `None`:
    /// the call named none, so everything goes into the reply.
    pub placement: Option<u32>,
    /// What of this call's arguments came apart from its message, which lacks it.
    pub apart: Option<ChunkedArgument>,
    /// How the peer is called back. `None`: the transport cannot.
    pub back: Option<Arc<dyn Back>>,
}

/// Arguments that came apart from their message (RFC 8166: its read chunk), in the memory that they were read into. That is
/// for what may (section 6.1), and for all of it.
#[derive(Clone, Debug)]
pub struct ChunkedArgument {
    at: u32,
    contents: Contents,
    range: Range<usize>,
}

impl ChunkedArgument {
    /// What belongs to the message's byte `at`, and lies in a range of the contents. `None`: they have no such range.
    pub fn new(at: u32, contents: Contents, range: Range<usize>) -> Option<ChunkedArgument> {
        contents.gather(&range)?;
        Some(ChunkedArgument {
            at,
            contents,
            range,
        })
    }

    /// Where in the whole message it would stand. Its padding, if any came, is a part of it; other padding is nowhere.
    pub fn place(&self) -> Range<u32> {
        self.at..self.at.saturating_add(self.range.len() as u32)
    }

    /// The bytes. The peer may be able to change them at any time.
    pub fn bytes(&self) -> Gather<'_> {
        self.contents.gather(&self.range).unwrap_or_default()
    }
}

/// Work that may block. Fills the reply and says what to do with it; runs on the server's pool.
pub type Job = Box<dyn FnOnce(&mut Vec<u8>) -> Outcome + Send>;

/// What a procedure made of a call.
pub enum Outcome {
    /// The reply is complete: send it.
    Replied,
    /// No reply (a duplicate of a call in progress, a message that is no call).
    Dropped,
    /// Write this into the caller's memory, then send the reply. If the caller named memory that it does not have,
    /// the connection is closed, as RDMA hardware would.
    Write(Vec<ChunkWrite>),
    /// The reply lacks data that goes into the memory of the [`Caller::placement`]. Only for callers that have one.
    Placed(Placed),
    /// The reply comes from a job that may block. What is in the reply buffer is thrown away.
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

/// Data that a reply lacks, because it goes into the caller's memory.
#[derive(Debug)]
pub struct Placed {
    /// Where in the reply the data (and its XDR padding, which is nowhere) would stand: right behind its length.
    pub at: usize,
    /// Length in bytes. If it is more than the caller's placement, the answer is an error of the transport.
    pub length: u32,
    /// The data, in order.
    pub pieces: Vec<ChunkSource>,
}

/// One RDMA Write that goes out ahead of a reply.
#[derive(Debug)]
pub struct ChunkWrite {
    /// What to write.
    pub from: ChunkSource,
    /// Where in the caller's memory.
    pub to: Remote,
}

/// Where the bytes of a [`ChunkWrite`] or of what is [`Placed`] are.
#[derive(Debug)]
pub enum ChunkSource {
    /// Part of a frame of the export's arena. Whoever sends it keeps it until it has gone.
    Frame {
        /// The frame.
        frame: Pinned,
        /// First byte within it.
        offset: u32,
        /// Length in bytes.
        length: u32,
    },
    /// A copy, for what could not be pinned.
    Bytes(Vec<u8>),
}

impl ChunkSource {
    /// As a fabric takes it.
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
    /// Serves one call: an RPC message without transport framing. `reply` comes empty. Never blocks: what may block
    /// goes into [`Outcome::Deferred`]. A caller that is called [`Caller::back`] answers by the same way: its replies come
    /// here too, and are [`Outcome::Dropped`].
    fn call(&self, caller: &Caller, message: &[u8], reply: &mut Vec<u8>) -> Outcome;

    /// As [`Calls::call`], with a message that is given away: a job need not copy it.
    fn call_owned(&self, caller: &Caller, message: Vec<u8>, reply: &mut Vec<u8>) -> Outcome {
        self.call(caller, &message, reply)
    }

    /// Whether a call, once it is deferred, may wait for stable storage. The message may lack what came [`ChunkedArgument`].
    fn may_sync(&self, message: &[u8]) -> bool {
        let _ = message;
        true
    }

    /// Whether a peer may connect to call at all.
    fn admits(&self, peer: &Peer) -> bool {
        let _ = peer;
        true
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
    /// The work to do.
    pub task: Box<dyn FnOnce() + Send>,
}

/// Where transports hand jobs that may block.
pub trait Workers: Send + Sync {
    /// Runs the errand soon, on another thread. Gives it back if the queue is full; its connection then takes no more
    /// calls until there is room for it.
    fn submit(&self, errand: Errand) -> Result<(), Errand>;
}
