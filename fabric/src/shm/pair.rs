mod interface;
mod regions;

use super::accounts::{Accounts, Charge};
use super::hangup::Watched;
use super::ring::{Consumer, Producer, Ring};
use super::socket::{Packet, Socket};
use crate::clock::{self, Nanos};
use crate::fabric::{Exposed, Peer, PostError, Posted, QueuePair, Remote, SteeringTag};
use crate::memory::mapping::Mapping;
use crate::memory::{ArenaView, Region};
use crate::wake::Bell;
use std::sync::Arc;

/// A message for the user of the queue pair.
const DATA: u8 = 0;

/// A client asks for a region: `{ length u64, request u32 }`.
const REGISTER: u8 = 1;

/// Registrations that one poll serves before it returns to its caller.
const REGISTER_BURST: u32 = 4;

/// Messages up to here are copied as a whole, in bytes: registrations among them.
const SHORT: usize = 64;

/// Empty polls between two looks at the clock.
const POLLS_PER_CLOCK: u32 = 1 << 9;

/// Who polls in vain looks so often whether the socket is still open, which is a system call: the server has many connections.
const SERVER_LOOKS_EVERY: Nanos = Nanos::from_millis(100);

/// The same of a client, to which descriptors come over it.
const CLIENT_LOOKS_EVERY: Nanos = Nanos::from_millis(2);

/// Packets that one look takes.
const PACKET_BURST: u32 = 64;

/// Messages that are still taken after the end of the connection: more than a ring holds.
const LAST_MESSAGES: u32 = 1024;

/// Bytes that are fetched of where the next write goes: a small page, and what a guarded read puts behind it.
const WRITE_PREPARED: usize = 4096 + 64;

/// Most steering tags of a connection: two an arena, one a region.
const TAGS_MAX: u32 = 1 << 16;

/// What only one of the ends has. The server makes all memory and gives all steering tags.
pub enum Role {
    Server {
        accounts: Arc<Accounts>,
        uid: u32,
        regions: u32,
        _charges: [Charge; 2],
    },
    Client {
        timeout: Nanos,
        requests: u32,
        views: Vec<(Exposed, ArenaView, Watched)>,
    },
}

/// What a steering tag names.
enum Memory {
    /// Read and written by both ends.
    Shared(Arc<Region>),
    /// The server's, that the client may read.
    Exposed(Arc<Mapping>),
    /// At the server: a tag of its own arena.
    Own,
}

/// Where the peer had us write lately. One that reads one thing at a time has two places for it in turn: what was
/// written to before the last is where the next goes, and can be fetched while the peer is at the last.
#[derive(Default)]
struct Writes {
    last: Option<Remote>,
    before: Option<Remote>,
    /// Since the last flush.
    count: u32,
}

impl Writes {
    #[inline]
    fn wrote(&mut self, to: Remote) {
        self.before = self.last.replace(to);
        self.count += 1;
    }

    /// Where the next write goes, if there was one, and one alone.
    #[inline]
    fn flushed(&mut self) -> Option<Remote> {
        let alone = std::mem::take(&mut self.count) == 1;
        self.before
            .filter(|before| alone && self.last != Some(*before))
    }
}

/// One end of a connection.
pub struct Pair {
    out: Producer,
    into: Consumer,
    /// The last message: the peer cannot reach it here. As long as the longest so far.
    message: Vec<u8>,
    length: usize,
    armed: bool,
    closed: bool,
    empty_polls: u32,
    /// When to look at the socket next, if there is nothing but empty polls.
    look_next: Nanos,
    last_messages: u32,
    /// By steering tag less one.
    memories: Vec<Memory>,
    writes: Writes,
    socket: Socket,
    bell: Option<Bell>,
    peer: Peer,
    private_data: Vec<u8>,
    role: Role,
}

impl Pair {
    pub fn new(
        socket: Socket,
        out: Ring,
        into: Ring,
        peer: Peer,
        private_data: Vec<u8>,
        role: Role,
    ) -> Self {
        Self {
            out: Producer::new(out),
            into: Consumer::new(into),
            message: Vec::new(),
            length: 0,
            armed: false,
            closed: false,
            empty_polls: 0,
            look_next: Nanos(0),
            last_messages: LAST_MESSAGES,
            memories: Vec::new(),
            writes: Writes::default(),
            socket,
            bell: None,
            peer,
            private_data,
            role,
        }
    }

    /// Counts an empty poll. Is it time to look at the socket? By the clock: an engine with many connections polls each seldom.
    #[inline]
    fn is_due(&mut self) -> bool {
        self.empty_polls += 1;
        self.empty_polls >= POLLS_PER_CLOCK && self.is_due_by_clock()
    }

    #[cold]
    fn is_due_by_clock(&mut self) -> bool {
        self.empty_polls = 0;
        let now = clock::now();
        let is_due = now >= self.look_next;
        if is_due {
            let every = match self.role {
                Role::Server { .. } => SERVER_LOOKS_EVERY,
                Role::Client { .. } => CLIENT_LOOKS_EVERY,
            };
            self.look_next = now + every;
        }
        is_due
    }

    /// Takes what came over the socket: wake-ups, and at the client descriptors.
    fn look_at_socket(&mut self) {
        for _ in 0..PACKET_BURST {
            if self.take_packet().is_none() {
                return;
            }
        }
    }

    fn arm_ring(&mut self) -> bool {
        self.armed = !self.closed && self.into.arm();
        self.armed
    }

    /// As [`Pair::look_at_socket`], but not beyond a wake-up: most come alone, and what is behind one wakes again.
    fn take_wake_up(&mut self) {
        for _ in 0..PACKET_BURST {
            if matches!(self.take_packet(), None | Some(Packet::Wake)) {
                return;
            }
        }
    }

    /// Takes what the socket has next; `None`: nothing, or the connection is over.
    fn take_packet(&mut self) -> Option<Packet> {
        let next = match self.role {
            Role::Server { .. } => self
                .socket
                .receive_plain()
                .map(|packet| packet.map(|packet| (packet, Vec::new()))),
            Role::Client { .. } => self.socket.receive(),
        };
        let (packet, descriptors) = match next {
            Ok(next) => next?,
            Err(error) => {
                self.close(&error);
                return None;
            }
        };
        let learned = match &packet {
            Packet::Wake => Ok(None),
            // The answer to a registration that has stopped waiting for it.
            Packet::NoRegion { .. } if matches!(self.role, Role::Client { .. }) => Ok(None),
            packet => self.learn(packet, descriptors),
        };
        match learned {
            Ok(_) => Some(packet),
            Err(error) => {
                self.close(&error);
                None
            }
        }
    }

    fn close(&mut self, why: &dyn std::fmt::Display) {
        if !self.closed {
            tracing::debug!(peer = %self.peer, %why, "connection closed");
            self.closed = true;
        }
    }

    #[inline]
    fn memory(&mut self, tag: SteeringTag) -> Result<&Memory, PostError> {
        let index = (tag.0 as usize).wrapping_sub(1);
        if index >= self.memories.len() {
            // The server may have told of it, and nobody has looked.
            self.look_at_socket();
        }
        self.memories.get(index).ok_or(PostError::BadRange)
    }

    /// What became of a message for the ring.
    #[inline]
    fn posted(&mut self, posted: Result<(), PostError>) -> Result<Posted, PostError> {
        match posted {
            Ok(()) => Ok(Posted::Done),
            Err(PostError::Full) => {
                // Nobody would wake the peer for what fills the ring.
                self.flush();
                Err(PostError::Full)
            }
            Err(PostError::Closed) => {
                self.close(&"the peer told of messages that were never sent");
                Err(PostError::Closed)
            }
            Err(error) => Err(error),
        }
    }

    fn open(&self) -> Result<(), PostError> {
        if self.closed {
            Err(PostError::Closed)
        } else {
            Ok(())
        }
    }
}
