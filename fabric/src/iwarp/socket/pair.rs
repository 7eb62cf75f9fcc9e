mod interface;

use super::readiness::{Member, Readiness};
use super::sys;
use crate::clock::Nanos;
use crate::fabric::{Peer, PostError, Posted};
use crate::iwarp::protocol::{Agreed, Endpoint};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::net::{RecvFlags, Shutdown, recv, shutdown};
use std::io;
use std::net::TcpStream;
use std::os::fd::AsFd;
use std::sync::Arc;

/// Number of bytes that one system call reads from the socket at first, and if that was not enough.
const INPUT_BYTES: usize = 8 << 10;
const INPUT_BYTES_MAX: usize = 128 << 10;

/// Number of bytes to read together with the rest of a payload that goes directly to its place: the beginning of the
/// next frame.
const BEHIND_BYTES: usize = 64;

/// Approximate number of bytes that one poll reads from the socket before it returns.
const INPUT_BURST: usize = 4 * INPUT_BYTES_MAX;

/// How often a connection is armed without having been used before it gives its memory back.
const IDLE_ARMS: u32 = 16;

/// The least that one call sends before the next connection has its turn, in bytes.
const OUTPUT_BURST: usize = if cfg!(test) { 16 << 10 } else { 2 << 20 };

/// Number of bytes of a transfer for which a sleeper is woken, and how long it waits for them. Each wake-up costs the
/// sender more than sending that many bytes.
const BATCH_BYTES: usize = 256 << 10;
const BATCH_TIME: Nanos = Nanos::from_micros(100);

/// Number of bytes sent after which the length of TCP's segments is read again.
const SEGMENT_AFTER: usize = 1 << 20;

/// Number of calls that discard what still comes after the end.
const DISCARDS: u32 = 16;

/// How a connection learns about the events of its socket.
enum Watching {
    /// Not at all, even if events wake a set. Each poll looks at the socket.
    Alone,
    /// Together with the other connections of its listener.
    Shared(Member),
}

/// What is known about the socket's input.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Input {
    /// The last read got everything that it asked for.
    More,
    /// The last read got less, so the next poll need not read. An end may follow, which need not cause an event: a
    /// thread reads before it sleeps.
    Short,
    /// An event has come since the last read.
    Told,
    /// There was nothing, not even an end. An event will report what comes.
    Empty,
}

/// What happens to the queue of the endpoint.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Output {
    /// Everything that was flushed has been sent.
    Clear,
    /// The rest is to be sent as soon as something may be; no event says when.
    Unsent,
    /// The socket took less than there was. An event will report room.
    Stuck,
}

/// One end of a connection.
pub struct Pair {
    socket: TcpStream,
    endpoint: Endpoint,
    /// Bytes of the socket. Those from `taken` to `filled` are not processed yet. Empty while idle.
    buffer: Vec<u8>,
    taken: usize,
    filled: usize,
    input: Input,
    output: Output,
    /// No more input comes.
    ended: bool,
    closed: bool,
    idle_arms: u32,
    /// Number of bytes for which a sleeper is woken.
    low_water: usize,
    /// Number of bytes to send before the length of segments is read again.
    segment_in: usize,
    watching: Watching,
    readiness: Option<Arc<Readiness>>,
    peer: Peer,
    private_data: Vec<u8>,
    /// Counts as a connection of its listener.
    _place: Option<Arc<()>>,
}

impl Pair {
    /// A connection whose handshake is complete, on a non-blocking socket.
    pub fn new(
        socket: TcpStream,
        agreed: &Agreed,
        peer: Peer,
        private_data: Vec<u8>,
        listener: Option<(Arc<Readiness>, Arc<()>)>,
    ) -> Self {
        let (readiness, place) = listener.unzip();
        Self {
            socket,
            endpoint: Endpoint::new(agreed),
            buffer: Vec::new(),
            taken: 0,
            filled: 0,
            input: Input::Told,
            output: Output::Clear,
            ended: false,
            closed: false,
            idle_arms: 0,
            low_water: 1,
            segment_in: SEGMENT_AFTER,
            watching: Watching::Alone,
            readiness,
            peer,
            private_data,
            _place: place,
        }
    }

    fn open(&self) -> Result<(), PostError> {
        match self.closed {
            true => Err(PostError::Closed),
            false => Ok(()),
        }
    }

    /// The result of a post. The caller need not flush posts that fill the queue.
    fn posted(&mut self, posted: Result<Posted, PostError>) -> Result<Posted, PostError> {
        if posted == Err(PostError::Full) && self.output == Output::Clear {
            self.output = Output::Unsent;
        }
        posted
    }

    /// The connection has ended, and nothing more is posted.
    fn close(&mut self, why: &dyn std::fmt::Display) {
        if std::mem::replace(&mut self.closed, true) {
            return;
        }
        tracing::debug!(peer = %self.peer, %why, "connection closed");
    }

    /// Nothing more is read from the socket.
    fn end(&mut self, why: &dyn std::fmt::Display) {
        self.close(why);
        if !std::mem::replace(&mut self.ended, true)
            && let Watching::Shared(member) = &self.watching
        {
            member.leave(self.socket.as_fd());
        }
    }

    /// Checks whether an event has come for the socket, if one is awaited.
    fn listen(&mut self) {
        if self.input != Input::Empty && self.output != Output::Stuck {
            return;
        }
        let told = match &mut self.watching {
            Watching::Alone => true,
            Watching::Shared(member) => member.is_due(),
        };
        if told {
            self.told();
        }
    }

    /// As [`Pair::listen`], before a wait.
    fn listen_before_wait(&mut self) {
        let told = match &mut self.watching {
            Watching::Alone => true,
            Watching::Shared(member) => member.is_due_before_wait(),
        };
        if told {
            self.told();
        }
    }

    /// Something has happened to the socket.
    fn told(&mut self) {
        if self.input != Input::More {
            self.input = Input::Told;
        }
        if self.output == Output::Stuck {
            self.output = Output::Unsent;
        }
    }

    /// Whether a system call for input is worthwhile now.
    fn is_due(&mut self) -> bool {
        match self.input {
            Input::More | Input::Told => true,
            Input::Short => {
                self.input = Input::Told;
                false
            }
            Input::Empty => false,
        }
    }

    /// Reads from the socket into the buffer, which is empty, or directly to the payload's place. Returns the number of
    /// bytes.
    fn fill(&mut self) -> usize {
        if self.ended {
            return 0;
        }
        if self.buffer.is_empty() {
            self.buffer = vec![0; INPUT_BYTES];
        } else if self.input == Input::More && self.buffer.len() < INPUT_BYTES_MAX {
            self.buffer = vec![0; INPUT_BYTES_MAX];
        }
        let mut asked = self.buffer.len();
        let (landing, received) = match self.endpoint.landing() {
            Some((memory, at, length)) => {
                let rest = &mut self.buffer[..BEHIND_BYTES];
                let socket = self.socket.as_fd();
                (length, sys::receive(socket, memory, at, length, rest))
            }
            None => {
                if let Some(left) = self.endpoint.frame_left() {
                    asked = asked.min(left + BEHIND_BYTES);
                }
                let received = recv(&self.socket, &mut self.buffer[..asked], RecvFlags::DONTWAIT);
                (0, received.map(|(bytes, _)| bytes).map_err(io::Error::from))
            }
        };
        match received {
            Ok(0) => {
                self.end(&"the peer closed it");
                0
            }
            Ok(bytes) => {
                let landed = bytes.min(landing);
                if landed > 0 {
                    self.endpoint.landed(landed);
                }
                (self.taken, self.filled) = (0, bytes - landed);
                let wanted = match landing {
                    0 => asked,
                    length => length + BEHIND_BYTES,
                };
                self.input = match bytes < wanted {
                    true => Input::Short,
                    false => Input::More,
                };
                self.idle_arms = 0;
                if let Watching::Shared(member) = &mut self.watching {
                    member.heat();
                }
                bytes
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => 0,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                self.input = Input::Empty;
                if let Watching::Shared(member) = &mut self.watching {
                    member.emptied();
                }
                0
            }
            Err(error) => {
                self.end(&error);
                0
            }
        }
    }

    /// Passes the input to the endpoint, up to the next completion.
    fn take(&mut self) {
        if self.taken < self.filled {
            self.taken += self.endpoint.receive(&self.buffer[self.taken..self.filled]);
            if self.taken == self.filled {
                (self.taken, self.filled) = (0, 0);
            }
        }
        if self.endpoint.is_over() && !self.ended {
            self.say_goodbye();
        }
    }

    /// The endpoint has ended the stream: a Terminate message may be on its way.
    fn say_goodbye(&mut self) {
        self.transmit();
        let why = self.endpoint.fatal();
        match why {
            Some(fatal) => self.end(&fatal),
            None => self.end(&"the stream is over"),
        }
        // The peer may still send. That must not make the kernel drop what the peer has not read yet.
        let _ = shutdown(&self.socket, Shutdown::Write);
        self.discard();
        (self.taken, self.filled) = (0, 0);
        self.endpoint.close();
    }

    fn discard(&mut self) {
        let mut nowhere = [0; 4096];
        for _ in 0..DISCARDS {
            match recv(&self.socket, &mut nowhere, RecvFlags::DONTWAIT) {
                Ok((1.., _)) => {}
                _ => return,
            }
        }
    }

    /// Sends as much as the socket takes.
    fn transmit(&mut self) {
        let mut left = OUTPUT_BURST;
        self.output = Output::Unsent;
        while left > 0 && self.endpoint.prepare() {
            match sys::send(self.socket.as_fd(), self.endpoint.stretches()) {
                Ok(sent) => {
                    self.idle_arms = 0;
                    self.endpoint.sent(sent);
                    left = left.saturating_sub(sent);
                    self.measure_segments(sent);
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    self.output = Output::Stuck;
                    return;
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => {
                    // Reads what the peer sent before, to its end.
                    self.close(&error);
                    break;
                }
            }
        }
        if self.closed || self.endpoint.queued() == 0 {
            self.output = Output::Clear;
        }
    }

    fn measure_segments(&mut self, sent: usize) {
        self.segment_in = self.segment_in.saturating_sub(sent);
        if self.segment_in == 0 {
            self.segment_in = SEGMENT_AFTER;
            if let Ok(longest) = sys::segment_max(self.socket.as_fd()) {
                self.endpoint.set_frame_max(longest);
            }
        }
    }

    fn set_low_water(&mut self, bytes: usize) {
        if self.low_water != bytes && sys::set_low_water(self.socket.as_fd(), bytes).is_ok() {
            self.low_water = bytes;
        }
    }

    /// Sleeps until there is something for the socket, or `timeout` has passed. Returns false in the latter case.
    fn sleep(&self, timeout: Option<Nanos>) -> bool {
        let mut flags = PollFlags::IN;
        if self.output == Output::Stuck {
            flags |= PollFlags::OUT;
        }
        let timeout = timeout.map(|span| Timespec {
            tv_sec: (span.0 / 1_000_000_000) as i64,
            tv_nsec: (span.0 % 1_000_000_000) as _,
        });
        // An interrupted wait is a spurious wake-up.
        poll(&mut [PollFd::new(&self.socket, flags)], timeout.as_ref()) != Ok(0)
    }

    /// As [`QueuePair::arm`](crate::QueuePair::arm), for a caller that sleeps with any low-water mark.
    fn is_quiet_before_wait(&mut self) -> bool {
        if self.is_ready() {
            return false;
        }
        let was_stuck = self.output == Output::Stuck;
        self.listen_before_wait();
        if self.owes() {
            self.transmit();
        }
        if self.input != Input::Empty {
            self.fill();
        }
        // Room in the queue is an event too.
        !self.is_ready() && (self.output == Output::Stuck || !was_stuck)
    }

    /// Whether something may be sent that was flushed, or that does not come from the caller.
    fn owes(&self) -> bool {
        let due = match self.output {
            Output::Clear => self.endpoint.owes_answers(),
            Output::Unsent => true,
            Output::Stuck => false,
        };
        due && !self.closed && !self.endpoint.is_mute()
    }

    /// Sends, reads, processes and answers until there is a completion, or nothing more to do.
    fn advance(&mut self) {
        self.listen();
        let mut due = self.taken < self.filled || self.is_due();
        if self.owes() {
            self.transmit();
        }
        let mut left = INPUT_BURST;
        loop {
            self.take();
            if self.endpoint.has_completion() || self.taken < self.filled || !due || left == 0 {
                break;
            }
            let bytes = self.fill();
            left = left.saturating_sub(bytes);
            due = bytes > 0 && self.input == Input::More;
        }
        if self.owes() {
            self.transmit();
        }
        if self.ended && self.taken == self.filled && !self.endpoint.is_over() {
            self.endpoint.close();
        }
    }

    /// Whether a poll has something to do.
    fn is_ready(&self) -> bool {
        self.closed || self.taken < self.filled || self.endpoint.has_completion() || self.owes()
    }

    fn rest(&mut self) {
        self.idle_arms = self.idle_arms.saturating_add(1);
        if self.idle_arms == IDLE_ARMS {
            self.buffer = Vec::new();
            self.endpoint.shrink();
        }
    }
}

impl Drop for Pair {
    fn drop(&mut self) {
        if !self.closed {
            self.transmit();
        }
        let _ = shutdown(&self.socket, Shutdown::Write);
        // A socket that is closed with unread bytes discards what it has sent.
        self.discard();
    }
}

#[cfg(all(test, not(any(shuttle, loom, miri))))]
mod tests;
