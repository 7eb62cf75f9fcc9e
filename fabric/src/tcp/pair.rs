use super::readiness::{Member, Readiness};
use super::sys;
use crate::clock::Nanos;
use crate::fabric::{
    Access, Completion, Exposed, Peer, PostError, Posted, QueuePair, ReadOrder, Region, Remote,
    RemoteInvalidation, Sink, Source, SteeringTag,
};
use crate::iwarp::{Agreed, Endpoint, MESSAGE_MAX};
use crate::memory::{Arena, ArenaView, LifeWord};
use crate::wake::{Bell, WakeSet};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::net::{RecvFlags, Shutdown, recv, shutdown};
use std::io;
use std::net::TcpStream;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;

/// Bytes that one system call takes from the socket at first, and where those did not do.
const INPUT_BYTES: usize = 8 << 10;
const INPUT_BYTES_MAX: usize = 128 << 10;

/// Bytes that come with the rest of a payload that is received to where it belongs: the beginning of the next frame.
const BEHIND_BYTES: usize = 64;

/// Bytes that one poll takes from the socket, about, before it returns to its caller.
const INPUT_BURST: usize = 4 * INPUT_BYTES_MAX;

/// Times that a connection is armed without having been used before it gives its memory back.
const IDLE_ARMS: u32 = 16;

/// Bytes that one call sends, at least, before the next connection has its turn.
const OUTPUT_BURST: usize = if cfg!(test) { 16 << 10 } else { 2 << 20 };

/// Bytes of a transfer under way that a sleeper is woken for, and how long it waits for so many. Each wake-up costs the
/// sender more than it takes to send as much.
const BATCH_BYTES: usize = 256 << 10;
const BATCH_TIME: Nanos = Nanos::from_micros(100);

/// Bytes sent after which the length of TCP's segments is asked for again.
const SEGMENT_AFTER: usize = 1 << 20;

/// Calls that throw away what still comes after the end.
const DISCARDS: u32 = 16;

/// How the socket's events are learned of.
enum Watching {
    /// Not at all: each poll looks.
    Alone,
    /// By a set of its own.
    Set(Bell),
    /// With the others of its listener.
    Shared(Member),
}

/// One end of a connection.
pub struct Pair {
    socket: TcpStream,
    endpoint: Endpoint,
    /// Of the socket, from `taken` to `filled` yet to be taken. Empty while idle.
    input: Vec<u8>,
    taken: usize,
    filled: usize,
    /// The socket has no more to read.
    drained: bool,
    /// It had less than was asked for: the next poll need not ask again.
    spared: bool,
    /// The socket took less than there was.
    stuck: bool,
    /// A burst ended before all was sent: no event tells when to go on.
    unsent: bool,
    /// No more comes.
    ended: bool,
    closed: bool,
    idle_arms: u32,
    /// Bytes that have to be there for a sleeper to be woken.
    low_water: usize,
    /// Bytes to be sent before the length of segments is asked for again.
    segment_in: usize,
    watching: Watching,
    readiness: Option<Arc<Readiness>>,
    peer: Peer,
    private_data: Vec<u8>,
    /// Counts as a connection of its listener.
    _place: Option<Arc<()>>,
}

impl Pair {
    /// A connection whose handshake is over, on a non-blocking socket.
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
            input: Vec::new(),
            taken: 0,
            filled: 0,
            drained: false,
            spared: false,
            stuck: false,
            unsent: false,
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

    /// The connection is over: nothing is posted any more.
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

    /// Whether a system call for input is worth it now.
    fn is_due(&mut self) -> bool {
        if !self.drained {
            return true;
        }
        if std::mem::take(&mut self.spared) {
            return false;
        }
        match &mut self.watching {
            Watching::Alone => true,
            Watching::Set(bell) => {
                bell.take();
                true
            }
            Watching::Shared(member) => member.is_due(),
        }
    }

    /// As [`Pair::is_due`], ahead of a wait.
    fn is_due_before_wait(&mut self) -> bool {
        self.spared = false;
        match &mut self.watching {
            Watching::Shared(member) if self.drained && !self.stuck => member.is_due_before_wait(),
            _ => self.is_due(),
        }
    }

    /// Reads from the socket into the input, which is empty, or to where it belongs. How much.
    fn fill(&mut self) -> usize {
        if self.ended {
            return 0;
        }
        if self.input.is_empty() {
            self.input = vec![0; INPUT_BYTES];
        } else if !self.drained && self.input.len() < INPUT_BYTES_MAX {
            self.input = vec![0; INPUT_BYTES_MAX];
        }
        let mut asked = self.input.len();
        let (landing, received) = match self.endpoint.landing() {
            Some((memory, at, length)) => {
                let rest = &mut self.input[..BEHIND_BYTES];
                let socket = self.socket.as_fd();
                (length, sys::receive(socket, memory, at, length, rest))
            }
            None => {
                if let Some(left) = self.endpoint.frame_left() {
                    asked = asked.min(left + BEHIND_BYTES);
                }
                let received = recv(&self.socket, &mut self.input[..asked], RecvFlags::DONTWAIT);
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
                self.drained = match landing {
                    0 => bytes < asked,
                    length => bytes < length + BEHIND_BYTES,
                };
                self.spared = self.drained;
                self.idle_arms = 0;
                if let Watching::Shared(member) = &mut self.watching {
                    member.heat();
                }
                bytes
            }
            Err(error)
                if matches!(
                    error.kind(),
                    io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted
                ) =>
            {
                self.drained = true;
                if error.kind() == io::ErrorKind::WouldBlock
                    && let Watching::Shared(member) = &mut self.watching
                {
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

    /// Gives the endpoint what has come, up to the next completion.
    fn take(&mut self) {
        if self.taken < self.filled {
            self.taken += self.endpoint.receive(&self.input[self.taken..self.filled]);
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
        // What the peer still sends must not make the kernel drop what it has not read yet.
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

    /// Sends what there is, as far as the socket takes it.
    fn transmit(&mut self) {
        let mut left = OUTPUT_BURST;
        self.unsent = false;
        while left > 0 && self.endpoint.prepare() {
            match sys::send(self.socket.as_fd(), self.endpoint.stretches()) {
                Ok(sent) => {
                    self.idle_arms = 0;
                    self.stuck = false;
                    self.endpoint.sent(sent);
                    left = left.saturating_sub(sent);
                    self.measure_segments(sent);
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    self.stuck = true;
                    return;
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => {
                    // What the peer sent before is read to its end.
                    self.close(&error);
                    self.stuck = false;
                    return;
                }
            }
        }
        self.unsent = left == 0 && self.endpoint.queued() > 0;
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

    /// Sleeps until there is something for the socket, or `timeout` has passed. False in the latter case.
    fn sleep(&self, timeout: Option<Nanos>) -> bool {
        let mut flags = PollFlags::IN;
        if self.stuck {
            flags |= PollFlags::OUT;
        }
        let timeout = timeout.map(|span| Timespec {
            tv_sec: (span.0 / 1_000_000_000) as i64,
            tv_nsec: (span.0 % 1_000_000_000) as _,
        });
        // An interrupted wait is a spurious wake-up.
        poll(&mut [PollFd::new(&self.socket, flags)], timeout.as_ref()) != Ok(0)
    }

    /// As [`QueuePair::arm`], for whoever sleeps by whatever low water there is.
    fn is_quiet(&mut self) -> bool {
        if self.is_ready() {
            return false;
        }
        let was_stuck = self.stuck;
        if self.is_due_before_wait() {
            if self.owes() {
                self.transmit();
            }
            self.fill();
        }
        // Room in the queue is an event too.
        !self.is_ready() && (self.stuck || !was_stuck)
    }

    /// Whether something of the socket's, not of the caller's posts, is to be sent.
    fn owes(&self) -> bool {
        !self.closed && (self.stuck || self.unsent || self.endpoint.owes_answers())
    }

    /// Reads, takes and answers until there is a completion, or nothing more to do.
    fn advance(&mut self) {
        let mut due = self.taken < self.filled || self.is_due();
        if self.owes() && (due || self.unsent) {
            self.transmit();
        }
        let mut got = 0;
        while got < INPUT_BURST {
            self.take();
            if self.endpoint.has_completion() || self.taken < self.filled || !due {
                break;
            }
            match self.fill() {
                0 => break,
                bytes => got += bytes,
            }
            due = !self.drained;
            self.take();
            if self.endpoint.has_completion() {
                break;
            }
        }
        if self.endpoint.owes_answers() && !self.closed {
            self.transmit();
        }
        if self.ended && self.taken == self.filled && !self.endpoint.is_over() {
            self.endpoint.close();
        }
    }

    /// Whether a poll has something to do.
    fn is_ready(&self) -> bool {
        self.closed
            || self.taken < self.filled
            || self.endpoint.has_completion()
            || self.unsent
            || (self.endpoint.owes_answers() && !self.stuck)
    }

    fn rest(&mut self) {
        self.idle_arms = self.idle_arms.saturating_add(1);
        if self.idle_arms == IDLE_ARMS {
            self.input = Vec::new();
            self.endpoint.shrink();
        }
    }
}

impl QueuePair for Pair {
    fn post_receives(&mut self, count: u32) {
        self.endpoint.post_receives(count);
    }

    fn post_send(&mut self, _id: u64, parts: &[&[u8]]) -> Result<Posted, PostError> {
        self.open()?;
        self.endpoint.post_send(parts, None)
    }

    fn post_send_invalidate(
        &mut self,
        _id: u64,
        parts: &[&[u8]],
        invalidate: SteeringTag,
    ) -> Result<Posted, PostError> {
        self.open()?;
        self.endpoint.post_send(parts, Some(invalidate))
    }

    fn post_write(&mut self, id: u64, from: Source<'_>, to: Remote) -> Result<Posted, PostError> {
        self.open()?;
        self.endpoint.post_write(id, from, to)
    }

    fn post_read(&mut self, id: u64, into: Sink<'_>, from: Remote) -> Result<Posted, PostError> {
        self.open()?;
        self.endpoint.post_read(id, into, from)?;
        Ok(Posted::Pending)
    }

    fn reads_max(&self) -> u32 {
        self.endpoint.reads_max()
    }

    fn flush(&mut self) {
        if self.closed || self.endpoint.queued() == 0 {
            return;
        }
        if self.endpoint.is_mute() && self.taken == self.filled {
            // The peer's first frame lets us speak.
            self.fill();
            self.take();
        }
        self.transmit();
    }

    fn poll(&mut self) -> Option<Completion> {
        if let Some(completion) = self.endpoint.poll() {
            return Some(completion);
        }
        self.advance();
        self.endpoint.poll()
    }

    fn message(&self) -> &[u8] {
        self.endpoint.message()
    }

    fn arm(&mut self) -> bool {
        self.set_low_water(1);
        let armed = self.is_quiet();
        if armed {
            self.rest();
        }
        armed
    }

    fn wake_fd(&self) -> Option<BorrowedFd<'_>> {
        Some(self.socket.as_fd())
    }

    fn watch(&mut self, set: &Arc<WakeSet>) -> io::Result<()> {
        let socket = self.socket.as_fd();
        self.watching = match &self.readiness {
            Some(readiness) => match readiness.join(socket, set)? {
                Some(member) => Watching::Shared(member),
                None => Watching::Set(set.add_edges(socket)?),
            },
            None => Watching::Set(set.add_edges(socket)?),
        };
        Ok(())
    }

    fn wait(&mut self, timeout: Option<Nanos>) -> Result<(), PostError> {
        self.flush();
        if self.is_quiet() {
            self.rest();
            let due = self.endpoint.under_way();
            let batch = if due > BATCH_BYTES / 2 {
                due.min(BATCH_BYTES)
            } else {
                1
            };
            self.set_low_water(batch);
            let short = timeout.map_or(BATCH_TIME, |span| span.min(BATCH_TIME));
            if batch == 1 || !self.sleep(Some(short)) {
                self.set_low_water(1);
                self.sleep(timeout);
            }
            if self.owes() {
                self.transmit();
            }
            self.fill();
        }
        let over = self.ended && self.taken == self.filled && !self.endpoint.has_completion();
        match over && self.endpoint.is_over() {
            true => Err(PostError::Closed),
            false => Ok(()),
        }
    }

    fn register(&mut self, length: usize, access: Access) -> io::Result<Arc<Region>> {
        self.open()?;
        self.endpoint.register(length, access)
    }

    fn bind(
        &mut self,
        region: &Arc<Region>,
        offset: usize,
        length: usize,
        access: Access,
    ) -> io::Result<Remote> {
        self.open()?;
        self.endpoint.bind(region, offset, length, access)
    }

    fn invalidate(&mut self, tag: SteeringTag) {
        self.endpoint.invalidate(tag);
    }

    fn remote_invalidation(&self) -> RemoteInvalidation {
        RemoteInvalidation::Any
    }

    fn read_order(&self) -> ReadOrder {
        ReadOrder::Ordered
    }

    /// The life word is no part of it: who is connected is connected to this life.
    fn expose(&mut self, arena: &Arc<Arena>, _life: &LifeWord) -> io::Result<Exposed> {
        self.open()?;
        self.endpoint.expose(arena)
    }

    fn map_exposed(&mut self, _exposed: &Exposed) -> io::Result<Option<ArenaView>> {
        Ok(None)
    }

    fn max_message(&self) -> usize {
        MESSAGE_MAX
    }

    fn private_data(&self) -> &[u8] {
        &self.private_data
    }

    fn peer(&self) -> &Peer {
        &self.peer
    }

    fn is_closed(&self) -> bool {
        self.closed
    }
}

impl Drop for Pair {
    fn drop(&mut self) {
        if !self.closed {
            self.transmit();
        }
        let _ = shutdown(&self.socket, Shutdown::Write);
        // A socket that is closed with bytes unread takes back what it has sent.
        self.discard();
    }
}

#[cfg(all(test, not(any(shuttle, loom, miri))))]
mod tests {
    use crate::clock::Nanos;
    use crate::fabric::{Access, Listener as _, Remote, Source};
    use crate::tcp::{ConnectOptions, Limits, Listener, connect};
    use std::time::{Duration, Instant};

    /// More than a socket takes at once.
    const BYTES: usize = 16 << 20;

    /// What is longer than a burst is sent to its end, although nothing more is posted.
    #[test]
    fn more_than_a_burst() {
        let mut listener = Listener::bind(([127, 0, 0, 1], 0).into(), Limits::default()).unwrap();
        let address = listener.local_addr();
        let client = std::thread::spawn(move || {
            let mut client = connect(address, b"", &ConnectOptions::default()).unwrap();
            let region = client.register(BYTES, Access::WRITE).unwrap();
            client
                .post_send(0, &[&region.tag().0.to_be_bytes()])
                .unwrap();
            client.flush();
            let until = Instant::now() + Duration::from_secs(5);
            while Instant::now() < until {
                assert!(client.poll().is_none());
                let mut last = [0];
                if region.load(BYTES - 1, &mut last) && last == [7] {
                    return true;
                }
                client.wait(Some(Nanos::from_millis(100))).unwrap();
            }
            false
        });
        let mut server = loop {
            if let Some(incoming) = listener.poll_accept().unwrap() {
                break incoming.accept(b"", 0).unwrap();
            }
        };
        server.post_receives(1);
        while server.poll().is_none() {
            server.wait(None).unwrap();
        }
        let tag = u32::from_be_bytes(server.message().try_into().unwrap());
        let to = Remote {
            tag: crate::fabric::SteeringTag(tag),
            offset: 0,
        };
        let from = vec![7; BYTES];
        server.post_write(0, Source::Bytes(&from), to).unwrap();
        server.flush();
        while !client.is_finished() {
            // As an engine does: who has nothing to post rings no doorbell.
            assert!(server.poll().is_none());
            if server.arm() {
                std::thread::yield_now();
            }
        }
        assert!(client.join().unwrap(), "some of it was never sent");
    }
}
