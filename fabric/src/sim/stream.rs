//! iWARP over a simulated connection, whose messages are pieces of the stream.

use super::Random;
use super::link::SimLink;
use super::pair::Pair;
use crate::clock::Nanos;
use crate::fabric::{
    Access, Completion, Exposed, Peer, PostError, Posted, QueuePair, ReadOrder, Remote,
    RemoteInvalidation, Sink, Source, SteeringTag,
};
use crate::iwarp::by_endpoint::by_endpoint;
use crate::iwarp::protocol::{Agreed, Endpoint, MESSAGE_MAX};
use crate::memory::Stretch;
use crate::memory::{Arena, LifeWord, Region};
use crate::sync::Arc;
use crate::wake::WakeSet;
use std::io;
use std::os::fd::BorrowedFd;

/// The longest piece of a stream, in bytes.
const PIECE_MAX: u64 = 9000;

/// The longest frame, in bytes.
const FRAME_MAX: usize = 1460;

/// One end of a stream.
pub struct Stream {
    below: Pair,
    endpoint: Endpoint,
    /// Bytes that have come and not been processed.
    input: Vec<u8>,
    taken: usize,
    /// Whether some flushed bytes have not been sent: the connection below had no room, or the peer must speak first.
    stuck: bool,
    random: Random,
}

impl Stream {
    pub fn new(link: Arc<SimLink>, end: usize, peer: Peer, private_data: Vec<u8>) -> Self {
        let (mine, theirs, client) = {
            let state = link.lock();
            let reads = [0, 1].map(|end| state.ends[end].reads_max);
            (reads[end], reads[1 - end], link.client())
        };
        let agreed = Agreed {
            // Some streams have checksums, and some do not.
            crc: client.is_multiple_of(2),
            inbound_reads: theirs,
            outbound_reads: mine,
            sends_first: end == super::CLIENT,
            peer_to_peer: true,
            frame_max: FRAME_MAX,
        };
        let mut stream = Self {
            below: Pair::new(link, end, peer, private_data),
            endpoint: Endpoint::new(&agreed),
            input: Vec::new(),
            taken: 0,
            stuck: false,
            random: Random(u64::from(client) << 1 | end as u64),
        };
        stream.below.post_receives(u32::MAX);
        stream.flush();
        stream
    }

    fn open(&self) -> Result<(), PostError> {
        match self.is_closed() {
            true => Err(PostError::Closed),
            false => Ok(()),
        }
    }

    /// The result of a post. The caller need not flush posts that fill the queue.
    fn posted(&mut self, posted: Result<Posted, PostError>) -> Result<Posted, PostError> {
        self.stuck |= posted == Err(PostError::Full);
        posted
    }

    /// Passes bytes to the connection below, as many as it takes.
    fn transmit(&mut self) {
        self.stuck = self.endpoint.is_mute();
        while self.endpoint.prepare() {
            let most = 1 + (self.random.next() % PIECE_MAX) as usize;
            let mut piece = Vec::new();
            for stretch in self.endpoint.stretches() {
                let room = most - piece.len();
                match stretch {
                    Stretch::Bytes(bytes) => {
                        piece.extend_from_slice(&bytes[..bytes.len().min(room)])
                    }
                    Stretch::Memory { memory, at, length } => {
                        let start = piece.len();
                        piece.resize(start + length.min(room), 0);
                        memory.load(at, &mut piece[start..]);
                    }
                }
            }
            match self.below.post_send(0, &[&piece]) {
                Ok(_) => self.endpoint.sent(piece.len()),
                Err(error) => {
                    self.stuck = error == PostError::Full;
                    break;
                }
            }
        }
        self.below.flush();
    }

    /// Takes the next piece. Returns `false` if there is none.
    fn fill(&mut self) -> bool {
        self.input.clear();
        self.taken = 0;
        let came = self.below.poll().is_some();
        if came {
            self.input.extend_from_slice(self.below.message());
        }
        came
    }

    /// Passes the input to the endpoint, up to the next completion.
    fn take(&mut self) {
        self.taken += self.endpoint.receive(&self.input[self.taken..]);
        if self.endpoint.is_over() && !self.below.is_closed() {
            self.transmit();
            self.below.cut();
        }
    }

    /// Processes and answers until there is a completion, or nothing more to do.
    fn advance(&mut self) {
        loop {
            self.take();
            if self.endpoint.has_completion() || self.taken < self.input.len() {
                break;
            }
            if !self.fill() {
                if self.below.is_closed() {
                    self.endpoint.close();
                }
                break;
            }
        }
        if self.owes() {
            self.transmit();
        }
    }

    /// Whether to send the answers to the peer's reads, or what had no room before.
    fn owes(&self) -> bool {
        self.stuck || self.endpoint.owes_answers()
    }

    fn is_ready(&self) -> bool {
        self.taken < self.input.len()
            || self.endpoint.has_completion()
            || (self.endpoint.owes_answers() && !self.stuck)
            || self.endpoint.is_over()
    }
}

impl QueuePair for Stream {
    by_endpoint!();

    fn flush(&mut self) {
        if self.endpoint.is_mute() && self.taken == self.input.len() {
            // This end may speak after the peer's first frame.
            self.fill();
            self.take();
        }
        if self.endpoint.queued() > 0 {
            self.transmit();
        }
    }

    fn is_settled(&mut self) -> bool {
        self.is_closed() || self.endpoint.queued() == 0 && self.below.is_settled()
    }

    fn arm(&mut self) -> bool {
        !self.is_ready() && self.below.arm()
    }

    fn wake_fd(&self) -> Option<BorrowedFd<'_>> {
        None
    }

    fn watch(&mut self, set: &Arc<WakeSet>) -> io::Result<()> {
        self.below.watch(set)
    }

    fn wait(&mut self, timeout: Option<Nanos>) -> Result<(), PostError> {
        self.flush();
        if !self.is_ready() && self.below.wait(timeout).is_err() {
            self.endpoint.close();
        }
        match self.endpoint.is_over() && !self.endpoint.has_completion() {
            true => Err(PostError::Closed),
            false => Ok(()),
        }
    }

    fn private_data(&self) -> &[u8] {
        self.below.private_data()
    }

    fn peer(&self) -> &Peer {
        self.below.peer()
    }

    fn is_closed(&self) -> bool {
        self.endpoint.is_over() || self.below.is_closed()
    }
}
