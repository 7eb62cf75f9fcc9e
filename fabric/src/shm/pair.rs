mod interface;
mod regions;

use super::accounts::{Accounts, Charge};
use super::hangup::Watched;
use super::protocol::Sleeper;
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

/// The most registrations that one poll serves before it returns.
const REGISTER_BURST: u32 = 4;

/// Messages of up to this many bytes, which includes registrations, are copied as a whole.
const SHORT: usize = 64;

/// Number of empty polls between two looks at the clock.
const POLLS_PER_CLOCK: u32 = 1 << 9;

/// How often an end that polls without success checks whether the socket is still open. That is a system call, and the
/// server has many connections.
const SERVER_LOOKS_EVERY: Nanos = Nanos::from_millis(100);

/// The same for a client, which also gets descriptors over the socket.
const CLIENT_LOOKS_EVERY: Nanos = Nanos::from_millis(2);

/// How long an end may sleep on a word of its ring before it checks whether the socket is still open: a server that was
/// killed wakes nobody.
const SLEEP_MAX: Nanos = Nanos::from_millis(100);

/// The most packets that one look takes.
const PACKET_BURST: u32 = 64;

/// The most messages that are taken after the end of the connection: more than a ring holds.
const LAST_MESSAGES: u32 = 1024;

/// Number of bytes to prefetch at the place of the next write: a small page, and what a guarded read puts behind it.
const WRITE_PREPARED: usize = 4096 + 64;

/// The most steering tags of a connection: two for an arena, one for a region.
const TAGS_MAX: u32 = 1 << 16;

/// The parts that only one of the ends has. The server creates all memory and assigns all steering tags.
pub enum EndRole {
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
enum TaggedMemory {
    /// Memory that both ends read and write.
    Shared(Arc<Region>),
    /// The server's memory, which the client may read.
    Exposed(Arc<Mapping>),
    /// At the server: its own arena.
    Own,
}

/// Where the peer had this end write lately. A peer that reads one thing at a time has two places, which take turns:
/// the next write goes to the one before last, which can be prefetched while the peer is busy with the last one.
#[derive(Default)]
struct Writes {
    last: Option<Remote>,
    before: Option<Remote>,
    /// Writes since the last flush.
    count: u32,
}

impl Writes {
    #[inline]
    fn wrote(&mut self, to: Remote) {
        self.before = self.last.replace(to);
        self.count += 1;
    }

    /// The place of the next write, if there was exactly one.
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
    /// A private copy of the last message, which the peer cannot reach. It is as long as the longest message so far.
    message: Vec<u8>,
    length: usize,
    armed: bool,
    closed: bool,
    empty_polls: u32,
    /// When to look at the socket next, if all polls are empty.
    look_next: Nanos,
    last_messages: u32,
    /// By steering tag minus one.
    memories: Vec<TaggedMemory>,
    writes: Writes,
    socket: Socket,
    bell: Option<Bell>,
    peer: Peer,
    private_data: Vec<u8>,
    role: EndRole,
}

impl Pair {
    pub fn new(
        socket: Socket,
        out: Ring,
        into: Ring,
        peer: Peer,
        private_data: Vec<u8>,
        role: EndRole,
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

    /// Counts an empty poll. Returns whether it is time to look at the socket. It goes by the clock, because an engine
    /// with many connections rarely polls each.
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
                EndRole::Server { .. } => SERVER_LOOKS_EVERY,
                EndRole::Client { .. } => CLIENT_LOOKS_EVERY,
            };
            self.look_next = now + every;
        }
        is_due
    }

    /// Handles what came over the socket: wake-ups, and at the client also descriptors.
    fn look_at_socket(&mut self) {
        for _ in 0..PACKET_BURST {
            if self.take_packet().is_none() {
                return;
            }
        }
    }

    fn arm_ring(&mut self, sleeper: Sleeper) -> bool {
        self.armed = !self.closed && self.into.arm(sleeper);
        self.armed
    }

    /// Wakes the peer where it sleeps.
    fn wake(&self, sleeper: Sleeper) {
        match sleeper {
            Sleeper::Socket => self.socket.wake(),
            Sleeper::Word => self.out.wake(),
        }
    }

    /// As [`Pair::look_at_socket`], but stops after a wake-up. Most come alone, and a packet behind it wakes again.
    fn take_wake_up(&mut self) {
        for _ in 0..PACKET_BURST {
            if matches!(self.take_packet(), None | Some(Packet::Wake)) {
                return;
            }
        }
    }

    /// Handles the next packet of the socket. Returns `None` if there is none, or the connection has ended.
    fn take_packet(&mut self) -> Option<Packet> {
        let next = match self.role {
            EndRole::Server { .. } => self
                .socket
                .receive_plain()
                .map(|packet| packet.map(|packet| (packet, Vec::new()))),
            EndRole::Client { .. } => self.socket.receive(),
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
            // The answer to a registration that nobody waits for any more.
            Packet::NoRegion { .. } if matches!(self.role, EndRole::Client { .. }) => Ok(None),
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
    fn memory(&mut self, tag: SteeringTag) -> Result<&TaggedMemory, PostError> {
        let index = (tag.0 as usize).wrapping_sub(1);
        if index >= self.memories.len() {
            // The server may have reported the reason, and nobody has looked.
            self.look_at_socket();
        }
        self.memories.get(index).ok_or(PostError::BadRange)
    }

    /// The result of posting a message to the ring.
    #[inline]
    fn posted(&mut self, posted: Result<(), PostError>) -> Result<Posted, PostError> {
        match posted {
            Ok(()) => Ok(Posted::Done),
            Err(PostError::Full) => {
                // Without a flush, nobody would wake the peer for the messages that fill the ring.
                self.flush();
                // A peer that has gone makes no room.
                if self.is_due() {
                    self.look_at_socket();
                    self.open()?;
                }
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

impl Drop for Pair {
    /// A client that sleeps on its ring's word learns that the server goes away: it looks at the socket then. (A server waits for
    /// the socket itself. A client's end may be a copy that a fork has made, so it only closes its descriptor.)
    fn drop(&mut self) {
        if matches!(self.role, EndRole::Server { .. }) {
            self.socket.shut_down();
            self.out.end();
            if let Some(sleeper) = self.out.sleeper() {
                self.wake(sleeper);
            }
        }
    }
}
