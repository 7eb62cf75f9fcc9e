//! One connection.

use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use odafs_common::wire::record::RecordTooLong;
use odafs_fabric::Peer;
use odafs_nic::calls::{Back, Caller, Errand, Job, Notes, Outcome, Placements, Transport};
use rustix::io::Errno;
use rustix::net::{RecvFlags, recv};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::sync::{mpsc, watch};
use tokio::time::{Instant, Sleep};

use super::Shared;
use super::buffers::Buffers;
use super::records::{Record, Records};
use super::replies::Replies;
use super::round::ConnectionRound;
use super::spin::{LOOKS, Spin};
use super::turn::Turn;

/// The most bytes of a record that are read at a time: the kernel copies them without a pause.
const TAIL_MAX: usize = 128 << 10;

/// A connection: what came in and what goes out.
pub struct Connection<'a> {
    shared: &'a Shared,
    buffers: Buffers,
    stream: TcpStream,
    caller: Caller,
    records: Records,
    /// Bytes that were read. From `seen` on nobody has looked at them, because there was no room for more calls or others
    /// had their turn.
    unread: Vec<u8>,
    seen: usize,
    /// This connection's turn at its thread, and the round that it is in.
    turn: Turn,
    round: ConnectionRound,
    replies: Replies,
    outgoing: mpsc::UnboundedReceiver<Outgoing>,
    sender: mpsc::UnboundedSender<Outgoing>,
    /// Calls on the pool.
    in_flight: usize,
    /// A call for which the pool had no room.
    refused: Option<Errand>,
    /// Neither the client nor we want another call.
    closing: bool,
    /// The server is stopping.
    draining: bool,
    /// How long something unfinished may stand still.
    stall: Duration,
    /// Runs while something is unfinished: a record, a reply, a call that the pool refused.
    timer: Option<Pin<Box<Sleep>>>,
    /// When something moved last.
    moved: Instant,
    /// Since when the record that is coming in has had the server's attention. A call that leaves no room for another begins
    /// that anew.
    record_since: Option<Instant>,
    spin: Spin,
}

/// A message for the peer that was made after its call was read.
enum Outgoing {
    /// The pool has finished a call. `None`: it gets no reply.
    Finished(Option<Vec<u8>>),
    /// A call to the peer.
    Call(Vec<u8>),
}

/// The way back to the peer of a connection.
#[derive(Debug)]
struct WayBack(mpsc::UnboundedSender<Outgoing>);

impl Back for WayBack {
    fn send(&self, message: Vec<u8>) -> bool {
        self.0.send(Outgoing::Call(message)).is_ok()
    }

    fn is_open(&self) -> bool {
        !self.0.is_closed()
    }
}

/// Why a connection ended.
#[derive(Debug)]
pub enum End {
    /// The client closed it, or the server is stopping, and every call has its answer.
    Complete,
    /// The network.
    Lost(io::Error),
    /// The stream is not a sequence of acceptable records.
    Garbage(RecordTooLong),
    /// A record stopped half way, or the client did not take its replies.
    Stalled,
    /// A procedure wants to write into memory that a TCP client does not have.
    Fault,
}

impl fmt::Display for End {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Complete => f.write_str("closed"),
            Self::Lost(error) => error.fmt(f),
            Self::Garbage(error) => error.fmt(f),
            Self::Stalled => f.write_str("stalled"),
            Self::Fault => f.write_str("no reply for this transport"),
        }
    }
}

/// How soon a call that the pool refused is submitted again.
const OFFER_AGAIN: Duration = Duration::from_millis(2);
/// How long a reply may wait for the client when the server stops.
const DRAIN: Duration = Duration::from_secs(5);
/// After this much silence TCP asks whether the peer lives. If the peer does not answer for as long again, the connection
/// ends.
const KEEPALIVE: Duration = Duration::from_secs(60);

impl<'a> Connection<'a> {
    pub fn new(
        shared: &'a Shared,
        stream: std::net::TcpStream,
        peer: SocketAddr,
        number: u64,
        (buffers, round): (Buffers, ConnectionRound),
    ) -> io::Result<Self> {
        stream.set_nodelay(true)?;
        odafs_fabric::tcp::settle_pacing(&stream);
        rustix::net::sockopt::set_socket_keepalive(&stream, true)?;
        rustix::net::sockopt::set_tcp_keepidle(&stream, KEEPALIVE)?;
        rustix::net::sockopt::set_tcp_keepintvl(&stream, KEEPALIVE / 6)?;
        rustix::net::sockopt::set_tcp_keepcnt(&stream, 6)?;
        let (sender, outgoing) = mpsc::unbounded_channel();
        let record_bytes = shared.limits.record_bytes_of(&*shared.listed, peer.ip());
        let local = stream.local_addr().ok().map(|local| local.ip());
        Ok(Self {
            shared,
            buffers,
            stream: TcpStream::from_std(stream)?,
            caller: Caller {
                peer: Peer::Address(peer),
                local,
                connection: number,
                transport: Transport::NfsTcp,
                reply_bytes_max: shared.limits.record_bytes,
                placements: Placements::default(),
                apart: None,
                back: Some(Arc::new(WayBack(sender.clone()))),
                notes: Notes::default(),
            },
            records: Records::new(record_bytes),
            unread: Vec::new(),
            seen: 0,
            turn: Turn::new(Instant::now()),
            round,
            replies: Replies::default(),
            outgoing,
            sender,
            in_flight: 0,
            refused: None,
            closing: false,
            draining: false,
            stall: shared.limits.stall,
            timer: None,
            moved: Instant::now(),
            record_since: None,
            spin: Spin::new(shared.limits.spin),
        })
    }

    /// What goes with its calls.
    pub fn notes(&self) -> &Notes {
        &self.caller.notes
    }

    /// Serves until the end.
    pub async fn run(&mut self, mut stopped: watch::Receiver<bool>) -> End {
        let stop = async move {
            let _ = stopped.wait_for(|stop| *stop).await;
        };
        let mut stop = std::pin::pin!(stop);
        std::future::poll_fn(|cx| {
            if !self.draining && stop.as_mut().poll(cx).is_ready() {
                self.draining = true;
                self.closing = true;
                self.stall = self.stall.min(DRAIN);
            }
            match ready!(self.poll(cx)) {
                Ok(()) => Poll::Ready(End::Complete),
                Err(end) => Poll::Ready(end),
            }
        })
        .await
    }

    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), End>> {
        if self.round.waits() {
            return Poll::Pending;
        }
        if !self.turn.begin(Instant::now(), self.round.since()) {
            self.round.wait(cx);
            return Poll::Pending;
        }
        loop {
            let mut moved = self.collect_outgoing(cx);
            moved |= self.offer_refused();
            // Replies that wait go out before more are made.
            moved |= self.send(cx)?;
            let serves = !self.is_turn_over();
            if serves {
                moved |= self.serve(cx)?;
                moved |= self.send(cx)?;
            }
            if self.is_complete() {
                return Poll::Ready(Ok(()));
            }
            if serves && !moved {
                match self.poll_more(cx) {
                    Poll::Pending => return self.wait(cx),
                    Poll::Ready(came) => came?,
                }
                moved = true;
            }
            let now = Instant::now();
            if moved {
                self.moved = now;
            }
            self.time_record(now);
            if self.turn.is_over(now) {
                self.turn.end(now);
                self.round.wait(cx);
                return Poll::Pending;
            }
        }
    }

    fn is_turn_over(&self) -> bool {
        self.turn.is_over(Instant::now())
    }

    fn is_complete(&self) -> bool {
        self.closing && self.in_flight == 0 && self.refused.is_none() && self.replies.is_empty()
    }

    /// Takes the replies that the pool has made, and the calls to the peer.
    fn collect_outgoing(&mut self, cx: &mut Context<'_>) -> bool {
        let mut moved = false;
        // This connection holds a sender, so the channel does not close.
        while let Poll::Ready(Some(outgoing)) = self.outgoing.poll_recv(cx) {
            moved = true;
            match outgoing {
                Outgoing::Finished(reply) => {
                    self.in_flight -= 1;
                    if let Some(reply) = reply {
                        self.replies.push(reply, &self.buffers);
                    }
                }
                Outgoing::Call(message) => self.replies.push(message, &self.buffers),
            }
        }
        moved
    }

    /// Whether there is room for another call.
    fn has_room(&self) -> bool {
        self.refused.is_none()
            && self.in_flight < self.shared.limits.calls
            && self.replies.bytes() < self.shared.limits.reply_bytes
    }

    /// Polls for the next call if it is expected soon, instead of sleeping until it comes. Pending: there is none.
    fn poll_more(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), End>> {
        let expects = !self.closing
            && self.in_flight == 0
            && self.refused.is_none()
            && self.replies.is_empty()
            && self.records.is_idle();
        let in_a_row = self.buffers.in_a_row(self.caller.connection);
        if !expects || !self.spin.goes_on(in_a_row, self.moved.elapsed()) {
            return Poll::Pending;
        }
        let buffers = self.buffers.clone();
        let mut scratch = buffers.scratch();
        for _ in 0..LOOKS {
            match recv(&self.stream, &mut scratch[..], RecvFlags::DONTWAIT) {
                Ok((0, _)) => {
                    self.closing = true;
                    return Poll::Ready(Ok(()));
                }
                Ok((bytes, _)) => return Poll::Ready(self.take_in_fresh(&scratch[..bytes])),
                Err(Errno::AGAIN | Errno::INTR) => std::hint::spin_loop(),
                Err(error) => return Poll::Ready(Err(End::Lost(error.into()))),
            }
        }
        // The others of the thread have their turn.
        cx.waker().wake_by_ref();
        Poll::Pending
    }

    /// Reads once, and serves the calls that came.
    fn serve(&mut self, cx: &mut Context<'_>) -> Result<bool, End> {
        if !self.has_room() {
            return Ok(false);
        }
        if !self.unread.is_empty() {
            let unread = std::mem::take(&mut self.unread);
            self.seen += self.take_in(&unread[self.seen..])?;
            if self.seen < unread.len() {
                self.unread = unread;
            } else {
                self.seen = 0;
            }
            return Ok(true);
        }
        if self.closing {
            return Ok(false);
        }
        if let Poll::Ready(result) = self.read_tail(cx) {
            return result;
        }
        let buffers = self.buffers.clone();
        let mut scratch = buffers.scratch();
        let mut input = ReadBuf::new(&mut scratch);
        match Pin::new(&mut self.stream).poll_read(cx, &mut input) {
            Poll::Pending => return Ok(false),
            Poll::Ready(Err(error)) => return Err(End::Lost(error)),
            Poll::Ready(Ok(())) if input.filled().is_empty() => self.closing = true,
            Poll::Ready(Ok(())) => self.take_in_fresh(input.filled())?,
        }
        Ok(true)
    }

    /// Reads the rest of a long record into its place. Pending: there is none.
    fn read_tail(&mut self, cx: &mut Context<'_>) -> Poll<Result<bool, End>> {
        let Some((record, missing)) = self.records.tail() else {
            return Poll::Pending;
        };
        let mut source = (&mut self.stream).take(missing.min(TAIL_MAX) as u64);
        let read = std::pin::pin!(source.read_buf(record));
        let bytes = match read.poll(cx) {
            Poll::Pending => return Poll::Ready(Ok(false)),
            Poll::Ready(Err(error)) => return Poll::Ready(Err(End::Lost(error))),
            Poll::Ready(Ok(bytes)) => bytes,
        };
        self.closing |= bytes == 0;
        let served = match self.records.appended(bytes) {
            Some(message) => self.serve_record(Record::Assembled(message)),
            None => Ok(()),
        };
        Poll::Ready(served.map(|()| true))
    }

    /// Serves the calls that were just read, and keeps those that must wait.
    fn take_in_fresh(&mut self, input: &[u8]) -> Result<(), End> {
        let taken = self.take_in(input)?;
        self.unread.extend_from_slice(&input[taken..]);
        Ok(())
    }

    /// Serves calls while there is room and the turn lasts, at least one. Returns their length in bytes.
    fn take_in(&mut self, input: &[u8]) -> Result<usize, End> {
        let mut rest = input;
        while !rest.is_empty() && self.has_room() {
            if let Some(record) = self.records.next(&mut rest).map_err(End::Garbage)? {
                self.serve_record(record)?;
                if self.is_turn_over() {
                    break;
                }
            }
        }
        Ok(input.len() - rest.len())
    }

    fn serve_record(&mut self, record: Record<'_>) -> Result<(), End> {
        self.buffers.serves(self.caller.connection);
        self.spin.came();
        self.record_since = None;
        let mut reply = self.buffers.take();
        let calls = &self.shared.calls;
        let (outcome, syncs) = match record {
            Record::InPlace(message) => {
                let outcome = calls.call(&self.caller, message, &mut reply);
                let deferred = matches!(outcome, Outcome::Deferred(_));
                (outcome, deferred && calls.may_sync(message))
            }
            Record::Assembled(message) => {
                let syncs = calls.may_sync(&message);
                (calls.call_owned(&self.caller, message, &mut reply), syncs)
            }
        };
        match outcome {
            Outcome::Replied => self.replies.push(reply, &self.buffers),
            Outcome::Dropped => self.buffers.give(reply),
            Outcome::Deferred(job) => self.defer(job, syncs, reply),
            Outcome::Write(_) | Outcome::Placed(_) => return Err(End::Fault),
        }
        Ok(())
    }

    fn defer(&mut self, job: Job, syncs: bool, mut reply: Vec<u8>) {
        reply.clear();
        self.in_flight += 1;
        let answer = ReplySender {
            reply: None,
            sender: self.sender.clone(),
        };
        self.offer(Errand {
            connection: self.caller.connection,
            syncs,
            task: Box::new(move || run(job, reply, answer)),
        });
    }

    fn offer(&mut self, errand: Errand) -> bool {
        self.refused = self.shared.workers.submit(errand).err();
        self.refused.is_none()
    }

    fn offer_refused(&mut self) -> bool {
        match self.refused.take() {
            Some(errand) => self.offer(errand),
            None => false,
        }
    }

    /// Sends as much as the socket takes.
    fn send(&mut self, cx: &mut Context<'_>) -> Result<bool, End> {
        let mut moved = false;
        while !self.replies.is_empty() {
            let mut slices = Replies::no_slices();
            let count = self.replies.slices(&mut slices);
            match Pin::new(&mut self.stream).poll_write_vectored(cx, &slices[..count]) {
                Poll::Pending => break,
                Poll::Ready(Err(error)) => return Err(End::Lost(error)),
                Poll::Ready(Ok(0)) => return Err(End::Lost(io::ErrorKind::WriteZero.into())),
                Poll::Ready(Ok(gone)) => self.replies.advance(gone, &self.buffers),
            }
            moved = true;
            if self.is_turn_over() {
                break;
            }
        }
        Ok(moved)
    }

    /// Notes when the record that is coming in began.
    fn time_record(&mut self, now: Instant) {
        if self.records.is_idle() || !self.has_room() {
            self.record_since = None;
        } else {
            self.record_since.get_or_insert(now);
        }
    }

    /// Nothing moves. Ends the connection if that lasts too long with something unfinished, or if a record comes in too slowly.
    fn wait(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), End>> {
        loop {
            let until = if self.refused.is_some() {
                Instant::now() + OFFER_AGAIN
            } else if !self.replies.is_empty() || !self.records.is_idle() {
                let stalls = self.moved + self.stall;
                let deadline = self
                    .record_since
                    .map(|since| since + self.shared.limits.record_time());
                deadline.map_or(stalls, |deadline| deadline.min(stalls))
            } else {
                self.timer = None;
                return Poll::Pending;
            };
            let timer = self
                .timer
                .get_or_insert_with(|| Box::pin(tokio::time::sleep_until(until)));
            timer.as_mut().reset(until);
            ready!(timer.as_mut().poll(cx));
            if self.refused.is_none() || self.moved.elapsed() > self.stall {
                return Poll::Ready(Err(End::Stalled));
            }
            if self.offer_refused() {
                cx.waker().wake_by_ref();
                return Poll::Pending;
            }
        }
    }
}

/// Brings the reply of a call back to its connection. Something comes back even if the job panics or never runs.
struct ReplySender {
    reply: Option<Vec<u8>>,
    sender: mpsc::UnboundedSender<Outgoing>,
}

impl Drop for ReplySender {
    fn drop(&mut self) {
        // The connection may be gone.
        let _ = self.sender.send(Outgoing::Finished(self.reply.take()));
    }
}

/// The job on the pool.
fn run(job: Job, mut reply: Vec<u8>, mut answer: ReplySender) {
    let mut outcome = job.run(&mut reply);
    while let Outcome::Deferred(job) = outcome {
        reply.clear();
        outcome = job.run(&mut reply);
    }
    if let Outcome::Replied = outcome {
        answer.reply = Some(reply);
    }
}

#[cfg(test)]
mod tests;
