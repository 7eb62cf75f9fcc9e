//! The NIC's judgement of a direct read: verify, translate, check, pin. Sans-IO: bytes and the time in, a verdict out.

use odafs_common::connect::Nonce;
use odafs_common::direct::{Attach, Attached, Completion, ExposedMemory, Grant, Request, opcode};
use odafs_common::exception::Exception;
use odafs_common::mac::{MacAlgorithm, MacKey};
use odafs_common::reference::Handle;
use odafs_fabric::clock::Nanos;
use odafs_fabric::memory::{Arena, Pinned};
use odafs_fabric::sync::Arc;
use odafs_fabric::sync::atomic::{AtomicU64, Ordering};
use odafs_fabric::{Remote, SteeringTag, entropy};

use crate::capability::{
    ClassMask, NewSession, NumberedSession, ReaderClass, RekeyRefused, Session, SessionId,
    Sessions, TooManySessions,
};
use crate::connection::Connection;
use crate::counters::NicCounters;
use crate::host_vm::HostVm;
use crate::tpt::{Tpt, TptEntry};

/// Sizes and caps of a NIC.
#[derive(Clone, Debug)]
pub struct NicConfig {
    /// Slots of the TPT, 64 bytes each; rounded up to a power of two. With room for every handle there are no misses.
    pub tpt_entries: usize,
    /// Slots in a set of the TPT; rounded up to a power of two.
    pub tpt_ways: usize,
    /// Sessions at a time.
    pub sessions_max: usize,
    /// Frames that the transfers of one connection may have pinned at a time; more are `Busy`.
    pub pins_max: u32,
}

impl Default for NicConfig {
    fn default() -> Self {
        NicConfig {
            tpt_entries: 1 << 18,
            tpt_ways: 4,
            sessions_max: 4096,
            pins_max: 128,
        }
    }
}

/// What shall be done about a message.
#[derive(Debug)]
#[must_use]
pub enum Verdict<R = Transfer> {
    /// Of [`Nic::receive`]: move this data, then answer with [`Nic::complete`] and end it with [`Nic::finish`]. Of
    /// [`Nic::authenticate`]: go on with [`Nic::translate`].
    Read(R),
    /// The connection is to be attached: answer with [`Nic::attached`].
    Attach(AttachRequest),
    /// Send this answer (a refusal).
    Refused([u8; Completion::BYTES]),
    /// Refused to be attached: this is the answer.
    NotAttached([u8; Attached::BYTES]),
}

/// A read whose MAC has passed, and whose sequence number is taken. What it names is on its way into the cache, so
/// another message can be judged meanwhile.
#[derive(Debug)]
#[must_use]
pub struct Authentic(Request);

/// A read that was let in.
#[derive(Debug)]
#[must_use]
pub struct Transfer {
    /// The frame to read from.
    pub frame: Pinned,
    /// First byte within the frame.
    pub offset: u32,
    /// How many bytes are moved.
    pub length: u32,
    /// Where the data goes.
    pub answer: DataTarget,
    /// The sink has room for marks.
    pub marked: bool,
    /// Of the request.
    pub sequence: u64,
}

/// Where the data of a read goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DataTarget {
    /// Behind the completion, in the same message.
    Inline,
    /// Into the client's memory, ahead of the completion.
    Sink(Remote),
}

/// An attach whose MAC has passed.
#[derive(Debug)]
#[must_use]
pub struct AttachRequest {
    session: Arc<Session>,
    client: Nonce,
    /// Asked for by the client and granted to the session: expose the arena before answering.
    pub one_sided: bool,
}

/// A network adapter in software: the TPT, the sessions, and the judgement over direct reads. Shared by the engines
/// that serve its export.
pub struct Nic {
    config: NicConfig,
    arena: Arc<Arena>,
    host: Arc<dyn HostVm>,
    tpt: Tpt,
    sessions: Sessions,
    /// Verified against when there is no session, so that it takes as long as when there is.
    dummies: [MacKey; 2],
    feedback: AtomicU64,
    counters: NicCounters,
}

impl Nic {
    /// A NIC over this arena, which asks this host.
    pub fn new(config: NicConfig, arena: Arc<Arena>, host: Arc<dyn HostVm>) -> Nic {
        let mut secret = [0; 32];
        entropy::fill(&mut secret);
        Nic {
            tpt: Tpt::new(config.tpt_entries, config.tpt_ways),
            sessions: Sessions::new(config.sessions_max),
            dummies: [MacAlgorithm::HmacSha256, MacAlgorithm::Blake3]
                .map(|mac| MacKey::new(mac, &secret)),
            feedback: AtomicU64::new(0),
            counters: NicCounters::default(),
            config,
            arena,
            host,
        }
    }

    /// The memory that it reads from.
    pub fn arena(&self) -> &Arc<Arena> {
        &self.arena
    }

    /// The host that it asks.
    pub fn host(&self) -> &Arc<dyn HostVm> {
        &self.host
    }

    /// What it did so far.
    pub fn counters(&self) -> &NicCounters {
        &self.counters
    }

    /// The word on the server's cache (packed by `Feedback::pack`) that rides on completions from now on.
    pub fn set_feedback(&self, word: u64) {
        self.feedback.store(word, Ordering::Relaxed);
    }

    /// `tpt_enter`: the host handed this out. Called under the page's lock.
    pub fn tpt_enter(&self, handle: Handle, entry: TptEntry) {
        self.tpt.enter(handle, entry);
    }

    /// `tpt_remove`: what the handle covered is gone. The revocation itself is the frame's stamp.
    pub fn tpt_remove(&self, handle: Handle) {
        self.tpt.remove(handle);
    }

    /// `tpt_protect`: others may read it now.
    pub fn tpt_protect(&self, handle: Handle, class: ReaderClass) {
        self.tpt.protect(handle, class);
    }

    /// Opens a session.
    ///
    /// # Errors
    /// There are too many.
    pub fn open_session(&self, new: NewSession) -> Result<Arc<Session>, TooManySessions> {
        self.open_numbered(self.number_session()?, new)
    }

    /// The number of the next session, for a handshake to name before [`Nic::open_numbered`].
    ///
    /// # Errors
    /// The numbers have run out.
    pub fn number_session(&self) -> Result<NumberedSession, TooManySessions> {
        self.sessions.number()
    }

    /// Opens the session that has this number.
    ///
    /// # Errors
    /// There are too many.
    pub fn open_numbered(
        &self,
        number: NumberedSession,
        new: NewSession,
    ) -> Result<Arc<Session>, TooManySessions> {
        self.sessions.open(number, new)
    }

    /// The session with this number.
    pub fn session(&self, id: SessionId) -> Option<Arc<Session>> {
        self.sessions.get(id)
    }

    /// Sessions that are open.
    pub fn session_count(&self) -> usize {
        self.sessions.count()
    }

    /// Ends a session: its requests are `Revoked` from now on. False: there was none.
    pub fn close_session(&self, id: SessionId) -> bool {
        self.sessions.close(id).is_some()
    }

    /// Moves a session to the next generation of its key.
    pub fn rekey(&self, id: SessionId, generation: u32, now: Nanos) -> Result<(), RekeyRefused> {
        self.session(id)
            .ok_or(RekeyRefused::NoSession)?
            .rekey(generation, now)
    }

    /// Lets a session read frames of a class; false when there is no such session or class.
    pub fn admit(&self, id: SessionId, class: ReaderClass) -> bool {
        self.session(id).is_some_and(|session| session.admit(class))
    }

    /// Lets no session read frames of these classes any more: nothing that is valid is of them.
    pub fn expel(&self, classes: &[ReaderClass]) {
        let gone = ClassMask::of(classes);
        for session in self.sessions.all() {
            session.expel(&gone);
        }
    }

    /// Judges a message of a direct connection.
    pub fn receive(&self, connection: &mut Connection, message: &[u8], now: Nanos) -> Verdict {
        match self.authenticate(connection, message, now) {
            Verdict::Read(admitted) => match self.translate(connection, admitted, now) {
                Ok(transfer) => Verdict::Read(transfer),
                Err(refusal) => Verdict::Refused(refusal),
            },
            Verdict::Attach(request) => Verdict::Attach(request),
            Verdict::Refused(refusal) => Verdict::Refused(refusal),
            Verdict::NotAttached(refusal) => Verdict::NotAttached(refusal),
        }
    }

    /// As [`Nic::receive`], up to what needs the pages: of a read, its MAC and its sequence number.
    pub fn authenticate(
        &self,
        connection: &mut Connection,
        message: &[u8],
        now: Nanos,
    ) -> Verdict<Authentic> {
        let attaches = message.get(1) == Some(&opcode::ATTACH);
        if connection.throttled(now) {
            self.counters.throttled();
            return match attaches {
                true => Verdict::NotAttached(Attached::refuse(Exception::Denied)),
                false => Verdict::Refused(self.refuse(Exception::Denied, sequence_of(message))),
            };
        }
        if attaches {
            return self
                .attach(connection, message)
                .map(Verdict::Attach)
                .unwrap_or_else(|exception| {
                    connection.denied(now);
                    self.counters.refused(exception);
                    Verdict::NotAttached(Attached::refuse(exception))
                });
        }
        self.authenticate_read(connection, message, now)
            .map(Verdict::Read)
            .unwrap_or_else(|(exception, sequence)| {
                Verdict::Refused(self.refused(connection, exception, sequence, now))
            })
    }

    /// Translates, checks and pins what was let in: then move the data, answer with [`Nic::complete`] and end it with
    /// [`Nic::finish`].
    ///
    /// # Errors
    /// The answer to be sent instead, a refusal.
    pub fn translate(
        &self,
        connection: &mut Connection,
        Authentic(request): Authentic,
        now: Nanos,
    ) -> Result<Transfer, [u8; Completion::BYTES]> {
        self.let_in(connection, &request)
            .map_err(|exception| self.refused(connection, exception, request.sequence, now))
    }

    fn refused(
        &self,
        connection: &mut Connection,
        exception: Exception,
        sequence: u64,
        now: Nanos,
    ) -> [u8; Completion::BYTES] {
        if exception == Exception::Denied {
            connection.denied(now);
        }
        self.counters.refused(exception);
        self.refuse(exception, sequence)
    }

    /// A guarded read, up to its MAC and sequence number. The order is the security argument: docs/SECURITY.md.
    fn authenticate_read(
        &self,
        connection: &mut Connection,
        message: &[u8],
        now: Nanos,
    ) -> Result<Authentic, (Exception, u64)> {
        let (request, body, tag) =
            Request::parse(message).ok_or((Exception::Denied, sequence_of(message)))?;
        let refuse = |exception| (exception, request.sequence);
        let key = connection.key_for(&request);
        let known = key.is_some();
        let authentic = key
            .unwrap_or(&self.dummies[request.mac as usize])
            .verify(body, tag);
        if !authentic || !known || request.connection != connection.number() {
            return Err(refuse(Exception::Denied));
        }
        connection.accept(&request, now).map_err(refuse)?;
        // The frame's lines come while the entry's does, not after it, nor before: they are many.
        self.tpt.prefetch(request.handle);
        self.arena.prefetch(request.address, request.length);
        Ok(Authentic(request))
    }

    /// The same read, up to the pinned frame.
    fn let_in(
        &self,
        connection: &mut Connection,
        request: &Request,
    ) -> Result<Transfer, Exception> {
        let session = connection.session().ok_or(Exception::Denied)?;
        if connection.pins() >= self.config.pins_max as usize {
            return Err(Exception::Busy);
        }
        let frame = self.pin(request, session)?;
        connection.let_in();
        Ok(self.transfer(request, frame))
    }

    fn transfer(&self, request: &Request, frame: Pinned) -> Transfer {
        let page = self.arena.page();
        Transfer {
            frame,
            offset: page.within(request.address) as u32,
            length: request.length,
            answer: match request.inline {
                true => DataTarget::Inline,
                false => DataTarget::Sink(Remote {
                    tag: SteeringTag(request.sink_tag),
                    offset: request.sink_offset,
                }),
            },
            marked: request.marked,
            sequence: request.sequence,
        }
    }

    /// Translates, checks and pins. An entry older than the reference may have missed news: then the host is asked,
    /// once.
    fn pin(&self, request: &Request, session: &Session) -> Result<Pinned, Exception> {
        if request.epoch > self.arena.current_epoch() {
            return Err(Exception::Stale);
        }
        if let Some(entry) = self.tpt.lookup(request.handle) {
            let pinned = self.pin_entry(&entry, request, session);
            if !matches!(pinned, Err(Exception::Stale)) || request.epoch <= entry.epoch {
                return pinned;
            }
        }
        self.counters.fault();
        let entry = self.host.fault(request.handle)?;
        if self.host.may_keep(request.handle) {
            self.tpt.enter(request.handle, entry);
        }
        self.pin_entry(&entry, request, session)
    }

    fn pin_entry(
        &self,
        entry: &TptEntry,
        request: &Request,
        session: &Session,
    ) -> Result<Pinned, Exception> {
        if request.key != entry.key {
            return Err(Exception::Stale);
        }
        if !session.admits(entry.class) {
            return Err(Exception::Denied);
        }
        if !covers(entry, request) {
            return Err(Exception::OutOfBounds);
        }
        self.host.lock(entry, request.epoch)
    }

    /// The completion of a transfer; for [`DataTarget::Inline`], its data follows.
    pub fn complete(&self, transfer: &Transfer) -> [u8; Completion::BYTES] {
        self.completion(
            Ok(transfer.length),
            transfer.answer == DataTarget::Inline,
            transfer.sequence,
        )
    }

    /// The data has left the frame, and the completion is posted or will be.
    pub fn finish(&self, transfer: Transfer) {
        self.counters.completed(transfer.length);
        self.host.reference(transfer.frame.frame());
        self.host.unlock(transfer.frame);
    }

    /// The answer to a transfer whose sink does not exist.
    pub fn refuse_transfer(
        &self,
        transfer: Transfer,
        exception: Exception,
    ) -> [u8; Completion::BYTES] {
        self.counters.refused(exception);
        self.refuse(exception, transfer.sequence)
    }

    fn refuse(&self, exception: Exception, sequence: u64) -> [u8; Completion::BYTES] {
        self.completion(Err(exception), false, sequence)
    }

    fn completion(
        &self,
        result: Result<u32, Exception>,
        inline: bool,
        sequence: u64,
    ) -> [u8; Completion::BYTES] {
        let completion = Completion {
            result,
            inline,
            sequence,
            epoch: self.arena.current_epoch(),
            feedback: self.feedback.load(Ordering::Relaxed),
        };
        completion.encode()
    }

    /// An attach: the MAC first, as for reads. The answer to a bad one is no completion but a refused attach.
    fn attach(&self, connection: &Connection, message: &[u8]) -> Result<AttachRequest, Exception> {
        let (attach, tag) = Attach::parse(message).ok_or(Exception::Denied)?;
        let session = self.session(SessionId(attach.session));
        let dummy = &self.dummies[MacAlgorithm::HmacSha256 as usize];
        let key = session
            .as_ref()
            .map_or(dummy, |session| session.attach_key());
        let authentic = attach.verify(key, connection.nonce(), tag);
        let session = session
            .filter(|_| authentic && connection.session().is_none())
            .ok_or(Exception::Denied)?;
        let one_sided = attach.one_sided && session.one_sided();
        Ok(AttachRequest {
            session,
            client: attach.nonce,
            one_sided,
        })
    }

    /// Attaches the connection and gives the answer. `exposed`: where that is, if the request was for one-sided
    /// access and the fabric could expose the arena.
    pub fn attached(
        &self,
        connection: &mut Connection,
        request: AttachRequest,
        exposed: Option<ExposedMemory>,
    ) -> [u8; Attached::BYTES] {
        let AttachRequest {
            session,
            client,
            one_sided,
        } = request;
        let one_sided = exposed.filter(|_| one_sided);
        let grant = Grant {
            connection: connection.number(),
            one_sided,
        };
        let answer = Attached::seal(grant, session.attach_key(), &client, connection.nonce());
        connection.attach(session);
        self.counters.attached();
        answer
    }
}

/// Does the entry cover what the request wants, and does it want anything?
fn covers(entry: &TptEntry, request: &Request) -> bool {
    let end = entry.address.checked_add(entry.length.into());
    let wanted = request.address.checked_add(request.length.into());
    request.length > 0
        && request.address >= entry.address
        && matches!((wanted, end), (Some(wanted), Some(end)) if wanted <= end)
}

/// The sequence number of a read, where it would be; 0 in what is too short for one.
fn sequence_of(message: &[u8]) -> u64 {
    message.get(16..24).map_or(0, |bytes| {
        u64::from_le_bytes(std::array::from_fn(|i| bytes[i]))
    })
}

#[cfg(test)]
mod tests;
