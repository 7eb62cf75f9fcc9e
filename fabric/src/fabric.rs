//! The traits that every fabric implements.
//!
//! A queue pair is reliable and ordered, as in verbs: messages arrive once and in the order of
//! their posts, and an RDMA Write is visible at the peer before a later send's message is. A
//! queue pair belongs to one thread at a time (`&mut self`); it never blocks except in
//! [`QueuePair::wait`].
//!
//! On a device (`verbs`), two things are weaker than on the other fabrics, because adapters work that way:
//! - An access that the peer refuses ends the connection. The refused post ends with [`Fault::RemoteAccess`] if the
//!   device reports that, and all others with [`Fault::Flushed`].
//! - A message for which the peer has posted no receive waits on InfiniBand and RoCE, and ends the connection on iWARP.
//!   So callers keep to the receives that they know of (credits).

use crate::clock::Nanos;
use crate::memory::{Arena, ArenaView, FrameNumber, LifeWord};
use crate::sync::Arc;
use crate::wake::WakeSet;
use std::io;
use std::net::SocketAddr;
use std::os::fd::BorrowedFd;

pub use crate::memory::Region;
pub use odafs_common::direct::ReadOrder;

/// How a post ended, or what the peer sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Completion {
    /// A [`QueuePair::post_send`] that was [`Posted::Pending`] has been sent.
    Send {
        /// The id of the post.
        id: u64,
    },
    /// A message arrived. It is in [`QueuePair::message`] until the next poll.
    Recv {
        /// Length of the message in bytes.
        bytes: u32,
        /// The local tag that the peer invalidated, if it sent with [`QueuePair::post_send_invalidate`]. Some devices
        /// do not report it.
        invalidated: Option<SteeringTag>,
    },
    /// A [`QueuePair::post_read`] that was [`Posted::Pending`] has ended.
    Read {
        /// The id of the post.
        id: u64,
        /// `Ok`: the bytes are in the sink.
        result: Result<(), Fault>,
    },
    /// A [`QueuePair::post_write`] that was [`Posted::Pending`] has ended. Its source may be reused.
    Write {
        /// The id of the post.
        id: u64,
        /// `Ok`: the bytes are on their way, ahead of every later send.
        result: Result<(), Fault>,
    },
}

/// Why an RDMA operation did not happen.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Fault {
    /// The peer knows no such steering tag, the range exceeds it, or the tag does not grant this access.
    #[error("the peer refused the remote access")]
    RemoteAccess,
    /// The connection ended first.
    #[error("the connection was closed")]
    Flushed,
}

/// The result of a successful post.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Posted {
    /// The post has ended already. The source may be reused at once, and no completion follows.
    Done,
    /// A completion with the post's id follows. The source must not change until then.
    Pending,
}

/// Why a queue pair rejected a post, which then had no effect.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PostError {
    /// The queue is full, or the peer has posted no receive (if the fabric sees that). Poll and try again; earlier
    /// posts then need no flush.
    #[error("the queue is full")]
    Full,
    /// The message is longer than [`QueuePair::max_message`].
    #[error("the message is longer than the fabric takes")]
    TooLong,
    /// The connection is closed.
    #[error("the connection is closed")]
    Closed,
    /// The local range is out of bounds, or a remote one that the fabric can check here.
    #[error("the range is out of bounds")]
    BadRange,
}

impl From<PostError> for io::Error {
    fn from(error: PostError) -> Self {
        let kind = match error {
            PostError::Full => io::ErrorKind::WouldBlock,
            PostError::TooLong | PostError::BadRange => io::ErrorKind::InvalidInput,
            PostError::Closed => io::ErrorKind::ConnectionAborted,
        };
        io::Error::new(kind, error)
    }
}

/// The peer's name for a region (an STag, an rkey).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct SteeringTag(pub u32);

/// A place in the peer's memory, named by its owner.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Remote {
    /// The region.
    pub tag: SteeringTag,
    /// The first byte: an address under the tag. The owner of a region decides the address of its first byte
    /// ([`Region::remote`]): 0 on soft fabrics, a virtual address on a device.
    pub offset: u64,
}

impl Remote {
    /// The place `bytes` further on.
    #[must_use]
    pub fn ahead(self, bytes: u64) -> Remote {
        Remote {
            offset: self.offset.wrapping_add(bytes),
            ..self
        }
    }
}

/// A range of a local region.
#[derive(Clone, Copy)]
pub struct Local<'a> {
    /// The region.
    pub region: &'a Arc<Region>,
    /// First byte, as an offset in the region.
    pub offset: usize,
    /// Length in bytes.
    pub length: usize,
}

/// The peer's access to memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Access {
    /// Whether the peer may read by RDMA Read.
    pub remote_read: bool,
    /// Whether the peer may write by RDMA Write.
    pub remote_write: bool,
}

impl Access {
    /// The peer has no access. Only this end's own reads go there.
    pub const LOCAL: Access = Access::of(false, false);
    /// The peer may read by RDMA Read.
    pub const READ: Access = Access::of(true, false);
    /// The peer may write by RDMA Write.
    pub const WRITE: Access = Access::of(false, true);
    /// The peer may read and write.
    pub const BOTH: Access = Access::of(true, true);

    const fn of(remote_read: bool, remote_write: bool) -> Access {
        Access {
            remote_read,
            remote_write,
        }
    }
}

/// The target of an RDMA Read. The peer's RDMA Writes cannot reach it.
#[derive(Clone, Copy)]
pub enum Sink<'a> {
    /// A range of a region.
    Region(Local<'a>),
    /// A range of a frame, which is unpublished until the completion.
    Frame {
        /// The arena.
        arena: &'a Arc<Arena>,
        /// The frame.
        frame: FrameNumber,
        /// First byte within the frame.
        offset: u32,
        /// Length in bytes.
        length: u32,
    },
}

/// The source of an RDMA Write.
#[derive(Clone, Copy)]
pub enum Source<'a> {
    /// A range of a frame, which is pinned (or unpublished) until the completion.
    Frame {
        /// The arena.
        arena: &'a Arc<Arena>,
        /// The frame.
        frame: FrameNumber,
        /// First byte within the frame.
        offset: u32,
        /// Length in bytes.
        length: u32,
    },
    /// Bytes that are taken before the post returns.
    Bytes(&'a [u8]),
}

impl Source<'_> {
    /// Length in bytes.
    pub fn length(&self) -> usize {
        match self {
            Source::Frame { length, .. } => *length as usize,
            Source::Bytes(bytes) => bytes.len(),
        }
    }
}

/// The concatenation of `parts`.
pub fn gathered(parts: &[Source<'_>]) -> Vec<u8> {
    let mut message = Vec::with_capacity(parts.iter().map(Source::length).sum());
    for part in parts {
        match *part {
            Source::Bytes(bytes) => message.extend_from_slice(bytes),
            Source::Frame {
                arena,
                frame,
                offset,
                length,
            } => {
                let at = message.len();
                message.resize(at + length as usize, 0);
                arena.copy_out(frame, offset, &mut message[at..]);
            }
        }
    }
    message
}

/// The places in an arena's memory that a peer may read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Exposed {
    /// The memory of the frames. The first frame is at address 0.
    pub arena: Remote,
    /// The memory of the stamps, `u64`s in the server's byte order. The arena's [`Layout`](odafs_common::page::Layout)
    /// says where each is.
    pub stamps: Remote,
}

/// Which local tags the peer can invalidate with [`QueuePair::post_send_invalidate`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RemoteInvalidation {
    /// None. The peer must not try, which may cost the connection.
    Never,
    /// Those of [`QueuePair::bind`]. Invalidating a region's own tag may cost the connection.
    Bound,
    /// Those of [`QueuePair::bind`] and [`QueuePair::register`].
    Any,
}

/// The beginning of errors about a server that exists but refuses the connection.
pub const REFUSED: &str = "the server refused the connection";

/// What is said of a socket on which no server listens.
pub const NOT_LISTENING: &str = "no server listens there";

/// The error of a peer that takes the connection for something else, and closes it.
pub const NO_REPLY: &str = "the peer closed the connection without a reply";

/// The peer at the other end of a connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Peer {
    /// A process of this host, as the kernel reported it when it connected.
    Uid {
        /// Effective user id.
        uid: u32,
        /// Effective group id.
        gid: u32,
        /// Supplementary group ids.
        groups: std::sync::Arc<[u32]>,
        /// Process id, for messages only.
        pid: i32,
    },
    /// A host, by its address.
    Address(SocketAddr),
    /// A node of the simulator.
    Simulated(u32),
}

impl Peer {
    /// Whether the peer has power over this process anyway, as root and this process's own user have. Memory of other
    /// users is mapped only if it is sealed, because its owner could take it away while it is mapped.
    pub fn has_power_over_us(&self) -> bool {
        match self {
            Peer::Uid { uid, .. } => *uid == 0 || *uid == rustix::process::geteuid().as_raw(),
            Peer::Address(_) | Peer::Simulated(_) => false,
        }
    }
}

impl std::fmt::Display for Peer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Peer::Uid { uid, pid, .. } => write!(f, "uid {uid} (process {pid})"),
            Peer::Address(address) => write!(f, "{address}"),
            Peer::Simulated(node) => write!(f, "node {node}"),
        }
    }
}

/// Distance in bytes between two marks of [`QueuePair::post_write_marked`]: a quarter of the data, or all of it if it
/// is short.
pub fn mark_step(length: usize) -> usize {
    if length >= MARKED_MIN && length.is_multiple_of(4 * 64) {
        length / 4
    } else {
        length
    }
}

/// Shorter data arrives before a mark would help.
const MARKED_MIN: usize = 2048;

/// Length of the marks behind the data, in bytes.
pub const MARKS_BYTES: usize = 3 * 64;

/// One end of a connection.
pub trait QueuePair: Send {
    /// Makes room for `count` more messages from the peer. Fabrics whose flow control is the room in a ring ignore
    /// this. The others have some room from the start.
    fn post_receives(&mut self, count: u32);

    /// Sends the concatenation of `parts` as one message. The fabric takes the bytes before it returns.
    fn post_send(&mut self, id: u64, parts: &[&[u8]]) -> Result<Posted, PostError>;

    /// Sends as [`QueuePair::post_send`] does, and invalidates the peer's steering tag by the time that the message
    /// arrives (RFC 5040 section 5.3). A fabric that cannot do this only sends.
    fn post_send_invalidate(
        &mut self,
        id: u64,
        parts: &[&[u8]],
        invalidate: SteeringTag,
    ) -> Result<Posted, PostError> {
        let _ = invalidate;
        self.post_send(id, parts)
    }

    /// Copies `from` into the peer's memory, before every later send.
    fn post_write(&mut self, id: u64, from: Source<'_>, to: Remote) -> Result<Posted, PostError>;

    /// As above, with marks that let a reader follow the progress. Once [`mark_step`] bytes have arrived, the aligned
    /// word at the data's end becomes `mark`; with each further step, so does the word 64 bytes further on. The last
    /// step has no mark. [`Region::marked`] looks for marks. There are none if the peer does not see writes as they are
    /// made, nor for a length that is not a multiple of 64.
    fn post_write_marked(
        &mut self,
        id: u64,
        from: Source<'_>,
        to: Remote,
        mark: u64,
    ) -> Result<Posted, PostError> {
        let _ = mark;
        self.post_write(id, from, to)
    }

    /// Copies the peer's memory into `into`. [`PostError::Full`] beyond [`QueuePair::reads_max`].
    fn post_read(&mut self, id: u64, into: Sink<'_>, from: Remote) -> Result<Posted, PostError>;

    /// The most RDMA Reads that the peer serves at a time, 0 for none.
    fn reads_max(&self) -> u32;

    /// Rings the doorbell for all posts since the last time (wakes a sleeping peer). Until then, the peer may not see
    /// them.
    fn flush(&mut self);

    /// The next completion, if there is one. After the connection has closed, pending posts end with
    /// [`Fault::Flushed`]. When all have ended, this returns `None`, and [`QueuePair::is_closed`] holds.
    fn poll(&mut self) -> Option<Completion>;

    /// As [`QueuePair::poll`], for callers without room for a message: messages stay where they are. Posts are still
    /// sent, and their completions are returned. The end of the connection is noticed at the latest when something
    /// cannot be sent.
    fn poll_send_queue(&mut self) -> Option<Completion>;

    /// Whether everything that was posted and flushed has been sent, so that the end of the connection loses none of
    /// it.
    fn is_settled(&mut self) -> bool;

    /// The message of the last [`Completion::Recv`]. Empty after any other poll.
    fn message(&self) -> &[u8];

    /// Sends the concatenation of `parts` as one message. The fabric takes all bytes before it returns, so frames
    /// need not stay pinned.
    ///
    /// # Errors
    /// As [`QueuePair::post_send`].
    fn post_gather(&mut self, id: u64, parts: &[Source<'_>]) -> Result<Posted, PostError> {
        self.post_send(id, &[&gathered(parts)])
    }

    /// Whether a cheap check finds nothing to poll for, for callers with many connections. A fabric that cannot tell
    /// without polling returns `false`.
    fn is_quiet(&mut self) -> bool {
        false
    }

    /// As [`QueuePair::poll`], for callers that copy most of a long message elsewhere. Only the first `front` bytes of
    /// the message of a [`Completion::Recv`] need be in [`QueuePair::message`]. [`QueuePair::load_message`] loads all
    /// of it until the next post or poll.
    fn poll_front(&mut self, front: usize) -> Option<Completion> {
        let _ = front;
        self.poll()
    }

    /// Copies from the message of the last completion, from `offset` on. Returns `false` if the message is shorter.
    fn load_message(&self, offset: usize, into: &mut [u8]) -> bool {
        let part = (self.message().get(offset..)).and_then(|rest| rest.get(..into.len()));
        part.is_some_and(|part| {
            into.copy_from_slice(part);
            true
        })
    }

    /// Asks for a wake-up at the next event. Returns `false` if there is an event already; poll again.
    fn arm(&mut self) -> bool;

    /// A descriptor that is readable after [`QueuePair::arm`] when there is something to poll. `None` if the fabric has
    /// none. It is level-triggered; a poll or an arm resets it.
    fn wake_fd(&self) -> Option<BorrowedFd<'_>>;

    /// Lets every later event wake `set`, if armed. A queue pair has one wake set at a time.
    fn watch(&mut self, set: &Arc<WakeSet>) -> io::Result<()>;

    /// Arms, and blocks until there is something to poll, the connection is closed, or `timeout` has passed.
    fn wait(&mut self, timeout: Option<Nanos>) -> Result<(), PostError>;

    /// Registers memory that the peer may use by RDMA as `access` says, until the connection closes or its tag is
    /// invalidated. May block for a round trip. On shm `access` is not enforced: the peer may read and write the
    /// memory.
    fn register(&mut self, length: usize, access: Access) -> io::Result<Arc<Region>>;

    /// A fresh tag for a range of a region of this queue pair (a fast registration, a memory window), and the address
    /// of the range's first byte under it. Tell the peer by a message of this queue pair; before that message the tag
    /// may be unknown there. `Unsupported` if the fabric has no such tags.
    fn bind(
        &mut self,
        region: &Arc<Region>,
        offset: usize,
        length: usize,
        access: Access,
    ) -> io::Result<Remote> {
        let _ = (region, offset, length, access);
        Err(io::ErrorKind::Unsupported.into())
    }

    /// Refuses all later remote access under a local tag: a bound one, or a region's own. Does nothing on a fabric
    /// without invalidation.
    fn invalidate(&mut self, tag: SteeringTag) {
        let _ = tag;
    }

    /// Whether [`QueuePair::invalidate`] of this tag returns at once. Otherwise it waits until everything that was
    /// posted before the tag was bound has ended, which may depend on the peer.
    fn ends_at_once(&mut self, tag: SteeringTag) -> bool {
        let _ = tag;
        true
    }

    /// The most receives for which [`QueuePair::post_receives`] makes room.
    fn receives_max(&self) -> u32 {
        u32::MAX
    }

    /// Which local tags the peer can invalidate by itself.
    fn remote_invalidation(&self) -> RemoteInvalidation;

    /// The order in which RDMA Reads see memory, as far as this end decides it, for its own reads and for those of the
    /// peer that it answers. The weaker of what both ends guarantee holds.
    fn read_order(&self) -> ReadOrder;

    /// Lets this peer RDMA-Read the arena, its stamps and the life word.
    fn expose(&mut self, arena: &Arc<Arena>, life: &LifeWord) -> io::Result<Exposed>;

    /// The memory that the peer exposed, to load from. `None` if the fabric offers no loads; then use
    /// [`QueuePair::post_read`].
    fn map_exposed(&mut self, exposed: &Exposed) -> io::Result<Option<ArenaView>> {
        let _ = exposed;
        Ok(None)
    }

    /// The longest message of [`QueuePair::post_send`], in bytes: 4 KiB or more.
    fn max_message(&self) -> usize;

    /// The peer's private data of the connection. A fabric may add zeros at its end.
    fn private_data(&self) -> &[u8];

    /// The peer.
    fn peer(&self) -> &Peer;

    /// Whether the connection has ended. Earlier messages may still be polled.
    fn is_closed(&self) -> bool;
}

/// Accepts connections.
pub trait Listener: Send {
    /// The next connection request, if there is one.
    fn poll_accept(&mut self) -> io::Result<Option<Box<dyn Incoming>>>;

    /// Readable when there may be a connection request.
    fn wake_fd(&self) -> Option<BorrowedFd<'_>>;

    /// Lets every connection request wake `set`.
    fn watch(&mut self, set: &Arc<WakeSet>) -> io::Result<()>;

    /// The address to which clients connect.
    fn name(&self) -> String;

    /// How long a caller may leave the listener and its connections alone without arming them again. `None`: for ever,
    /// because their events report everything.
    fn patience(&self) -> Option<Nanos> {
        None
    }
}

/// A connection request. Dropping it rejects it.
pub trait Incoming: Send {
    /// The client's private data. A fabric may add zeros at its end.
    fn private_data(&self) -> &[u8];

    /// The client.
    fn peer(&self) -> &Peer;

    /// Accepts the request. The client may have `inbound_reads` RDMA Reads under way at a time (the responder's IRD,
    /// RFC 6581 section 7); with 0 it may read nothing. shm ignores this number.
    fn accept(
        self: Box<Self>,
        private_data: &[u8],
        inbound_reads: u32,
    ) -> io::Result<Box<dyn QueuePair>>;

    /// Refuses the request, with a reason for the client to print.
    fn reject(self: Box<Self>, reason: &str);
}

/// The longest private data of a connection, in either direction, in bytes: what RDMA-CM leaves on InfiniBand and RoCE.
pub const PRIVATE_DATA_MAX: usize = 56;

/// Refuses private data that is too long.
pub(crate) fn check_private_data(private_data: &[u8]) -> io::Result<()> {
    if private_data.len() <= PRIVATE_DATA_MAX {
        return Ok(());
    }
    let what = "too much private data";
    Err(io::Error::new(io::ErrorKind::InvalidInput, what))
}
