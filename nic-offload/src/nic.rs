//! The NIC's check of a direct read: verify, translate, check, pin. No IO: bytes and the time go in, a verdict comes
//! out.

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

/// Sizes and limits of a NIC.
#[derive(Clone, Debug)]
pub struct NicConfig {
    /// Number of slots of the TPT, 64 bytes each, rounded up to a power of two. With room for every handle there are no
    /// misses.
    pub tpt_entries: usize,
    /// Number of slots in a set of the TPT, rounded up to a power of two.
    pub tpt_ways: usize,
    /// The most sessions at a time.
    pub sessions_max: usize,
    /// The most frames that the transfers of one connection may have pinned at a time. Further reads are `Busy`.
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

/// What to do about a message.
#[derive(Debug)]
#[must_use]
pub enum Verdict<R = Transfer> {
    /// From [`Nic::receive`]: move this data, then answer with [`Nic::complete`] and end the transfer with
    /// [`Nic::finish`]. From [`Nic::authenticate`]: continue with [`Nic::translate`].
    Read(R),
    /// Attach the connection, and answer with [`Nic::attached`].
    Attach(AttachRequest),
    /// Send this answer (a refusal).
    Refused([u8; Completion::BYTES]),
    /// The connection is not attached. Send this answer.
    NotAttached([u8; Attached::BYTES]),
}

/// A read whose MAC has verified and whose sequence number is recorded. What it names is being prefetched, so another
/// message can be checked meanwhile.
#[derive(Debug)]
#[must_use]
pub struct Authentic(Request);

/// An admitted read.
#[derive(Debug)]
#[must_use]
pub struct Transfer {
    /// The frame to read from.
    pub frame: Pinned,
    /// First byte within the frame.
    pub offset: u32,
    /// Number of bytes to move.
    pub length: u32,
    /// The place of the data.
    pub answer: DataTarget,
    /// Whether the sink has room for marks.
    pub marked: bool,
    /// The sequence number of the request.
    pub sequence: u64,
}

/// The place of a read's data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DataTarget {
    /// After the completion, in the same message.
    Inline,
    /// In the client's memory, before the completion.
    Sink(Remote),
}

/// An attach whose MAC has verified.
#[derive(Debug)]
#[must_use]
pub struct AttachRequest {
    session: Arc<Session>,
    client: Nonce,
    /// Whether one-sided access was asked for and granted: expose the arena before answering.
    pub one_sided: bool,
}

/// A network adapter in software: the TPT, the sessions, and the checks of direct reads. The engines that serve its
/// export share it.
pub struct Nic {
    config: NicConfig,
    arena: Arc<Arena>,
    host: Arc<dyn HostVm>,
    tpt: Tpt,
    sessions: Sessions,
    /// The key for verification without a session, which must take as long as with one.
    dummies: [MacKey; 2],
    feedback: AtomicU64,
    counters: NicCounters,
}

impl Nic {
    /// A NIC over this arena, with this host.
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

    /// The counters.
    pub fn counters(&self) -> &NicCounters {
        &self.counters
    }

    /// The report on the server's cache (packed by `Feedback::pack`) that completions carry from now on.
    pub fn set_feedback(&self, word: u64) {
        self.feedback.store(word, Ordering::Relaxed);
    }

    /// `tpt_enter`: the host has handed this out. Called with the page's lock held.
    pub fn tpt_enter(&self, handle: Handle, entry: TptEntry) {
        self.tpt.enter(handle, entry);
    }

    /// `tpt_remove`: what the handle covered is gone. The frame's stamp is the revocation itself.
    pub fn tpt_remove(&self, handle: Handle) {
        self.tpt.remove(handle);
    }

    /// `tpt_protect`: other readers may read it now.
    pub fn tpt_protect(&self, handle: Handle, class: ReaderClass) {
        self.tpt.protect(handle, class);
    }

    /// Opens a session.
    ///
    /// # Errors
    /// The most sessions are open.
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

    /// Opens the session with this number.
    ///
    /// # Errors
    /// The most sessions are open.
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

    /// Ends a session. From now on its requests are `Revoked`. Returns false if there was none.
    pub fn close_session(&self, id: SessionId) -> bool {
        self.sessions.close(id).is_some()
    }

    /// Moves a session to the next generation of its key.
    pub fn rekey(&self, id: SessionId, generation: u32, now: Nanos) -> Result<(), RekeyRefused> {
        self.session(id)
            .ok_or(RekeyRefused::NoSession)?
            .rekey(generation, now)
    }

    /// Lets a session read frames of a class. Returns false if there is no such session or class.
    pub fn admit(&self, id: SessionId, class: ReaderClass) -> bool {
        self.session(id).is_some_and(|session| session.admit(class))
    }

    /// Takes the right to read frames of these classes from all sessions. Nothing valid may be of them.
    pub fn expel(&self, classes: &[ReaderClass]) {
        let gone = ClassMask::of(classes);
        for session in self.sessions.all() {
            session.expel(&gone);
        }
    }

    /// Checks a message of a direct connection.
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

    /// As [`Nic::receive`], but stops before the pages are needed: of a read, checks the MAC and the sequence number.
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
                .attach(connection, message, now)
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

    /// Translates, checks and pins an admitted read. Then move the data, answer with [`Nic::complete`] and end the
    /// transfer with [`Nic::finish`].
    ///
    /// # Errors
    /// The refusal to send instead.
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

    /// Checks a guarded read's MAC and sequence number. The order of the checks is the security argument:
    /// docs/SECURITY.md.
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
        // Prefetch the frame's lines together with the entry's: not later, and not earlier, because there are many.
        self.tpt.prefetch(request.handle);
        self.arena.prefetch(request.address, request.length);
        Ok(Authentic(request))
    }

    /// Finishes the checks of the read, and pins the frame.
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

    /// Translates, checks and pins. An entry older than the reference may be outdated; then the host is asked, once.
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

    /// The completion of a transfer. For [`DataTarget::Inline`], its data follows.
    pub fn complete(&self, transfer: &Transfer) -> [u8; Completion::BYTES] {
        self.completion(
            Ok(transfer.length),
            transfer.answer == DataTarget::Inline,
            transfer.sequence,
        )
    }

    /// The data has left the frame, and the completion has been or will be posted.
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

    /// Checks an attach: the MAC first, as for reads. The answer to a bad one is a refused attach, not a completion.
    fn attach(
        &self,
        connection: &Connection,
        message: &[u8],
        now: Nanos,
    ) -> Result<AttachRequest, Exception> {
        let (attach, tag) = Attach::parse(message).ok_or(Exception::Denied)?;
        let session = self.session(SessionId(attach.session));
        let dummy = &self.dummies[MacAlgorithm::HmacSha256 as usize];
        let key = session
            .as_ref()
            .map_or(dummy, |session| session.attach_key());
        let authentic = attach.verify(key, connection.nonce(), tag);
        let session = session
            .filter(|session| authentic && connection.session().is_none() && session.is_open(now))
            .ok_or(Exception::Denied)?;
        let one_sided = attach.one_sided && session.one_sided();
        Ok(AttachRequest {
            session,
            client: attach.nonce,
            one_sided,
        })
    }

    /// Attaches the connection, and returns the answer. `exposed` is the place of the arena, if the request was for
    /// one-sided access and the fabric could expose it.
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

/// Whether the entry covers what the request wants, which must be something.
fn covers(entry: &TptEntry, request: &Request) -> bool {
    let end = entry.address.checked_add(entry.length.into());
    let wanted = request.address.checked_add(request.length.into());
    request.length > 0
        && request.address >= entry.address
        && matches!((wanted, end), (Some(wanted), Some(end)) if wanted <= end)
}

/// The sequence number at its place in a read, or 0 if the message is too short.
fn sequence_of(message: &[u8]) -> u64 {
    message.get(16..24).map_or(0, |bytes| {
        u64::from_le_bytes(std::array::from_fn(|i| bytes[i]))
    })
}

#[cfg(test)]
mod tests;
