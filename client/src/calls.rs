//! RPCs. A call goes out on a connection of the pool, and again on another one if that is lost, until its deadline.

mod answer;

pub use self::answer::{answer, misbehaved};
use crate::{
    error::{CallError, ConnectError},
    link::Link,
    nfs::procedure::Procedure,
    options::{Credential, Wait},
    patience::{LastAttempt, NoLine, Pause, ResendPause},
    pool::{Lent, Pool, TakeError},
    silence::Silence,
    transport::{Broken, ReplyBuffer, RpcTransport},
};
use odafs_common::wire::{
    rpc::{self, Auth, AuthSys, EncodedAuth, Groups},
    xdr::{Encode, Reader, Writer, XdrError},
};
use odafs_fabric::{
    Access, Region,
    clock::{self, Nanos},
    entropy,
    sync::{
        Arc,
        atomic::{AtomicU32, AtomicU64, Ordering::Relaxed},
    },
};
use std::{io, ops::Range};

/// Length in bytes of a reply before its result, with a verifier of reasonable length.
const REPLY_HEAD_MAX: usize = 64;
/// The longest wait for what a read can do without. With short deadlines, it is a quarter of those.
const BRIEF_MAX: Nanos = Nanos::from_secs(1);

/// Makes calls to one server.
pub struct Calls {
    link: Link,
    lines: Pool<Line>,
    xid: AtomicU32,
    caller: EncodedAuth,
    deadline: Nanos,
    wait: Wait,
    /// Number of calls sent.
    pub sent: AtomicU64,
    /// Number of connections that were made again.
    pub reconnects: AtomicU64,
    broken: AtomicU64,
    /// Whether the server answers at all.
    pub silence: Silence,
}

/// A connection for calls.
pub struct Line {
    transport: Box<dyn RpcTransport>,
    out: Vec<u8>,
    sink: Option<Arc<Region>>,
    /// [`Calls::broken`] when the connection was made. If any broke since, this one is suspect too.
    made_at: u64,
    /// Whether the connection has carried an answer.
    answered: bool,
    /// The round of [`Silence`] in which the connection was made.
    round: u32,
}

/// A call under way.
struct Sending<'a> {
    xid: u32,
    procedure: &'a Procedure,
    arguments: &'a dyn Encode,
    deadline: Nanos,
}

/// The result of a call on one connection.
enum Attempt<T> {
    Done(T),
    TimedOut,
    /// The peer ended the connection before it had all of the call.
    NotSent(Broken),
    /// The connection was lost after the call was sent.
    Broken(Broken),
    Refused(CallError),
}

/// Decides what a lost connection means for a non-idempotent call.
pub trait Repeat {
    /// The connection was lost after the call was sent. Says by `deadline` whether to send it again with its xid.
    fn may_repeat(&self, deadline: Nanos) -> bool;
}

/// Sends every call again, as plain NFS clients do, which trust the server's duplicate request cache.
pub struct Trusting;

impl Repeat for Trusting {
    fn may_repeat(&self, _: Nanos) -> bool {
        true
    }
}

impl Calls {
    /// Makes calls over this link. Each must end within `deadline`.
    pub fn new(
        link: Link,
        lanes: u32,
        credential: &Credential,
        deadline: Nanos,
        wait: Wait,
    ) -> Self {
        let caller = Auth::Sys(AuthSys {
            stamp: 0,
            machine: b"odafs",
            uid: credential.uid,
            gid: credential.gid,
            gids: Groups::new(&credential.groups),
        });
        Self {
            link,
            lines: Pool::new(lanes),
            xid: AtomicU32::new(entropy::word() as u32),
            caller: EncodedAuth::new(&caller),
            deadline,
            wait,
            sent: AtomicU64::new(0),
            reconnects: AtomicU64::new(0),
            broken: AtomicU64::new(0),
            silence: Silence::default(),
        }
    }

    /// The deadline of a call that is made now.
    pub fn deadline(&self) -> Nanos {
        self.deadline_from(clock::now())
    }

    /// The deadline of a call that is made at `now`.
    pub fn deadline_from(&self, now: Nanos) -> Nanos {
        now + self.deadline
    }

    /// The deadline of what a read can do without, if that begins now: references ahead of it, a session, a new key.
    pub fn brief_deadline(&self) -> Nanos {
        clock::now() + BRIEF_MAX.min(Nanos(self.deadline.0 / 4))
    }

    /// How long a call may take.
    pub fn span(&self) -> std::time::Duration {
        self.deadline.duration()
    }

    /// How threads wait.
    pub fn wait(&self) -> Wait {
        self.wait
    }

    /// The link to the server.
    pub fn link(&self) -> &Link {
        &self.link
    }

    /// A unique number for a call.
    pub fn next_xid(&self) -> u32 {
        self.xid.fetch_add(1, Relaxed)
    }

    /// How often a connection was lost.
    pub fn times_broken(&self) -> u64 {
        self.broken.load(Relaxed)
    }

    /// Calls `procedure`, and reads its result with `decode`.
    pub fn call<T>(
        &self,
        procedure: &Procedure,
        arguments: &dyn Encode,
        repeat: &dyn Repeat,
        decode: impl FnMut(&mut Reader<'_>) -> Result<T, XdrError>,
    ) -> Result<T, CallError> {
        self.call_until(self.deadline(), procedure, arguments, repeat, decode)
    }

    /// As [`call`](Self::call), with another deadline.
    pub fn call_until<T>(
        &self,
        deadline: Nanos,
        procedure: &Procedure,
        arguments: &dyn Encode,
        repeat: &dyn Repeat,
        mut decode: impl FnMut(&mut Reader<'_>) -> Result<T, XdrError>,
    ) -> Result<T, CallError> {
        let xid = self.next_xid();
        let mut last = None;
        let mut pause = Pause::default();
        let mut again = None;
        loop {
            let mut line = match self.line(deadline) {
                Ok(line) => line,
                Err(why) => {
                    last = Some(self.without_line(procedure, why, last, &mut pause, deadline)?);
                    continue;
                }
            };
            let sending = Sending {
                xid,
                procedure,
                arguments,
                deadline,
            };
            // A connection that ended while nobody used it seems to take a call, and nobody could tell what became of it.
            let attempt = match !procedure.idempotent && line.has_ended() {
                true => Attempt::NotSent(Broken::by_peer("the server closed the connection")),
                false => self.attempt(&mut line, &sending, again, &mut decode),
            };
            match attempt {
                Attempt::Done(value) => return Ok(value),
                Attempt::Refused(error) => return Err(error),
                Attempt::TimedOut => return Err(self.given_up(procedure, None)),
                // What was sent before may have been done, and a server that has restarted since does not know that.
                Attempt::NotSent(broken) if again.is_none() => {
                    last = Some(self.lost(line, &broken));
                }
                Attempt::NotSent(broken) | Attempt::Broken(broken) => {
                    last = Some(self.lost(line, &broken));
                    again = Some(ResendPause::default());
                    if !procedure.idempotent && !repeat.may_repeat(deadline) {
                        return Err(CallError::Unknown {
                            call: procedure.name,
                        });
                    }
                }
            }
            if clock::now() >= deadline {
                return Err(self.given_up(procedure, last));
            }
        }
    }

    /// `again`: the call was sent on a connection that was lost. A server that is still processing a call does not
    /// answer its repetition, so the repetition must be repeated.
    fn attempt<T>(
        &self,
        line: &mut Line,
        sending: &Sending<'_>,
        mut again: Option<ResendPause>,
        decode: &mut dyn FnMut(&mut Reader<'_>) -> Result<T, XdrError>,
    ) -> Attempt<T> {
        let Sending {
            xid,
            procedure,
            arguments,
            deadline,
        } = *sending;
        let send = |line: &mut Line| {
            self.send(line, xid, procedure, arguments, None, deadline)
                .and_then(|()| line.flush(deadline))
        };
        if let Err(broken) = send(line) {
            return match broken.by_peer {
                true => Attempt::NotSent(broken),
                false => Attempt::Broken(broken),
            };
        }
        loop {
            let until = again.map_or(deadline, |pause| pause.until(deadline));
            match line.transport.receive(until) {
                Err(broken) => return Attempt::Broken(broken),
                Ok(true) => {}
                Ok(false) if until >= deadline => return Attempt::TimedOut,
                Ok(false) => {
                    again = again.map(ResendPause::longer);
                    if let Err(broken) = send(line) {
                        return Attempt::Broken(broken);
                    }
                    continue;
                }
            }
            self.silence.broken_on(&mut line.answered);
            let data = line.transport.placed().map(|placed| placed.load());
            let data = data.as_deref().unwrap_or_default();
            match answer(&*line.transport, data, procedure) {
                // The answer belongs to a call that had timed out, or to one that was sent twice.
                Ok((other, _)) if other != xid => {
                    if clock::now() >= deadline {
                        return Attempt::TimedOut;
                    }
                }
                Ok((_, body)) => {
                    return match body.and_then(|mut r| {
                        let value =
                            decode(&mut r).map_err(|error| misbehaved(procedure, &error))?;
                        r.finish().map_err(|error| misbehaved(procedure, &error))?;
                        Ok(value)
                    }) {
                        Ok(value) => Attempt::Done(value),
                        Err(error) => Attempt::Refused(error),
                    };
                }
                Err(error) => return Attempt::Refused(error),
            }
        }
    }

    /// Calls `procedure` once on the caller's connection, until `deadline`.
    pub fn call_on<T>(
        &self,
        line: &mut Line,
        deadline: Nanos,
        procedure: &Procedure,
        arguments: &dyn Encode,
        mut decode: impl FnMut(&mut Reader<'_>) -> Result<T, XdrError>,
    ) -> Result<T, CallError> {
        let sending = Sending {
            xid: self.next_xid(),
            procedure,
            arguments,
            deadline,
        };
        match self.attempt(line, &sending, None, &mut decode) {
            Attempt::Done(value) => Ok(value),
            Attempt::Refused(error) => Err(error),
            Attempt::TimedOut => Err(self.given_up(procedure, None)),
            Attempt::NotSent(broken) | Attempt::Broken(broken) => {
                let failed = LastAttempt::Failed(broken.to_string());
                Err(self.given_up(procedure, Some(failed)))
            }
        }
    }

    /// Sends a call on the caller's connection, and does not wait for the answer.
    pub fn tell(&self, line: &mut Line, procedure: &Procedure, arguments: &dyn Encode) {
        let deadline = clock::now() + Nanos::from_millis(100);
        // If the call is lost, the server finds out by itself.
        let _ = self.send(line, self.next_xid(), procedure, arguments, None, deadline);
        let _ = line.flush(deadline);
    }

    /// A connection that does not belong to the pool.
    pub fn own_line(&self, deadline: Nanos) -> io::Result<Line> {
        let (made_at, round) = (self.times_broken(), self.silence.round());
        let transport = self.link.rpc(self.wait, deadline)?;
        Ok(Line {
            transport,
            out: Vec::new(),
            sink: None,
            made_at,
            answered: false,
            round,
        })
    }

    /// Queues a call on a line. The data of its reply may go to `place`.
    pub fn send(
        &self,
        line: &mut Line,
        xid: u32,
        procedure: &Procedure,
        arguments: &dyn Encode,
        place: Option<&ReplyBuffer>,
        deadline: Nanos,
    ) -> Result<(), Broken> {
        let argument = self.write(line, xid, procedure, arguments);
        let bound = procedure.reply_bound();
        let shape = bound.shape(argument);
        self.sent.fetch_add(1, Relaxed);
        line.transport.send(&line.out, &shape, place, deadline)
    }

    /// Encodes a call, whose answer is awaited next. Returns the range of its payload.
    fn write(
        &self,
        line: &mut Line,
        xid: u32,
        procedure: &Procedure,
        arguments: &dyn Encode,
    ) -> Option<Range<usize>> {
        line.transport.expect(procedure.awaited());
        line.out.clear();
        let mut w = Writer::new(&mut line.out);
        let (program, version, number) = procedure.number.on_wire();
        rpc::call_as(&mut w, xid, program, version, number, &self.caller);
        arguments.encode(&mut w);
        w.payload_range()
    }

    /// Makes an idempotent call once on an idle connection. It allocates nothing, and reads the clock while the server
    /// is at work. `take` reads the result; the reader need only contain its first `front` bytes, and the others are in
    /// the transport. If there is no such connection, or it has no room or is lost, nothing happens.
    pub fn alone<T>(
        &self,
        procedure: &Procedure,
        arguments: &dyn Encode,
        front: usize,
        take: impl FnOnce(&mut Reader<'_>, &dyn RpcTransport) -> Result<T, CallError>,
    ) -> Result<Option<T>, CallError> {
        let front = front.saturating_add(REPLY_HEAD_MAX);
        let Some(mut line) = self.lines.idle() else {
            return Ok(None);
        };
        let xid = self.next_xid();
        self.write(&mut line, xid, procedure, arguments);
        let Line {
            transport,
            out,
            answered,
            ..
        } = &mut *line;
        match transport.send_at_once(out) {
            Ok(true) => {}
            Ok(false) => return Ok(None),
            Err(broken) => {
                self.lost(line, &broken);
                return Ok(None);
            }
        }
        self.sent.fetch_add(1, Relaxed);
        let deadline = self.deadline();
        loop {
            match transport.receive_front(front, deadline) {
                Ok(true) => {}
                Ok(false) => return Err(self.given_up(procedure, None)),
                Err(broken) => {
                    self.lost(line, &broken);
                    return Ok(None);
                }
            }
            self.silence.broken_on(answered);
            let (of, body) = answer(&**transport, &[], procedure)?;
            if of == xid {
                return take(&mut body?, &**transport).map(Some);
            }
            // Other messages are answers to calls that had timed out. No number of them shall keep the caller.
            if clock::now() >= deadline {
                return Err(self.given_up(procedure, None));
            }
        }
    }

    /// A connection of the pool. If it is older than the last loss, it may be dead too, so check it first.
    pub fn line(&self, deadline: Nanos) -> Result<Lent<'_, Line>, NoLine> {
        let make = || {
            if !self.silence.rest(deadline) {
                return Err(NoLine::Silence);
            }
            let line = self.own_line(deadline);
            let line = line.inspect_err(|_| self.silence.is_over());
            let line = line.map_err(NoLine::NotMade)?;
            if line.made_at > 0 {
                self.reconnects.fetch_add(1, Relaxed);
            }
            Ok(line)
        };
        self.lines
            .take(deadline, make)
            .map_err(|error| match error {
                TakeError::TimedOut => NoLine::TimedOut,
                TakeError::NotMade(why) => why,
            })
    }

    /// Waits before the next attempt at a call that had no connection, or gives the call up. `last` is the result of
    /// the last attempt.
    pub fn without_line(
        &self,
        procedure: &Procedure,
        why: NoLine,
        last: Option<LastAttempt>,
        pause: &mut Pause,
        deadline: Nanos,
    ) -> Result<LastAttempt, CallError> {
        let last = match why {
            NoLine::TimedOut => return Err(self.given_up(procedure, last)),
            NoLine::Silence => {
                let last = last.unwrap_or(LastAttempt::Silent);
                return Err(self.given_up(procedure, Some(last)));
            }
            NoLine::NotMade(error) => LastAttempt::Failed(error.to_string()),
        };
        match pause.before_retry(deadline) {
            true => Ok(last),
            false => Err(self.given_up(procedure, Some(last))),
        }
    }

    /// Makes a first connection, which tells an absent server from one that refuses. Returns the length of its longest
    /// message.
    pub fn reach(&self) -> Result<u32, ConnectError> {
        match self.line(self.deadline()) {
            Ok(mut line) => Ok(u32::try_from(line.transport().message_max()).unwrap_or(u32::MAX)),
            Err(NoLine::NotMade(source)) => Err(ConnectError::Unreachable {
                server: self.link.address(),
                source,
            }),
            Err(NoLine::TimedOut | NoLine::Silence) => Err(CallError::TimedOut {
                call: "making a connection",
                after: self.span(),
            }
            .into()),
        }
    }

    /// A connection was lost. Idle ones are as old and are dropped with it.
    pub fn lost(&self, line: Lent<'_, Line>, broken: &Broken) -> LastAttempt {
        let last = match broken.by_peer && !line.answered {
            true => LastAttempt::Silent,
            false => LastAttempt::Failed(broken.to_string()),
        };
        if !line.answered {
            self.silence.goes_on(line.round);
        }
        if line.made_at == self.times_broken() {
            self.broken.fetch_add(1, Relaxed);
            self.lines.clear();
        }
        line.discard();
        last
    }

    /// The error of a call that was not made within its deadline.
    pub fn given_up(&self, procedure: &Procedure, last: Option<LastAttempt>) -> CallError {
        match last {
            None => CallError::TimedOut {
                call: procedure.name,
                after: self.deadline.duration(),
            },
            Some(LastAttempt::Silent) => CallError::Silent {
                call: procedure.name,
                server: self.link.address(),
                remedy: self.silence.remedy(&self.link),
            },
            Some(LastAttempt::Failed(reason)) => CallError::Lost {
                call: procedure.name,
                server: self.link.address(),
                reason,
            },
        }
    }
}

impl Line {
    /// Whether the connection has carried an answer.
    pub fn answered(&mut self) -> &mut bool {
        &mut self.answered
    }

    /// Whether the server has ended the connection. It may take a system call, because shared memory does not show that.
    fn has_ended(&mut self) -> bool {
        if let Some(pair) = self.transport.queue_pair() {
            pair.arm();
        }
        self.transport.is_over()
    }

    /// Sends everything that is queued.
    pub fn flush(&mut self, deadline: Nanos) -> Result<(), Broken> {
        self.transport.flush(deadline)
    }

    /// The transport below.
    pub fn transport(&mut self) -> &mut dyn RpcTransport {
        &mut *self.transport
    }

    /// Memory of this connection that the server may write. `None` if the transport has none.
    pub fn sink(&mut self, bytes: usize) -> Option<Arc<Region>> {
        if self.sink.as_ref().is_none_or(|sink| sink.len() < bytes) {
            self.sink = self
                .transport
                .queue_pair()?
                .register(bytes, Access::WRITE)
                .ok();
        }
        self.sink.clone()
    }
}

#[cfg(all(test, not(shuttle)))]
#[path = "calls_tests.rs"]
mod tests;
