//! A session for direct reads: the handshake, the connections that are attached to it, and its keys.
//!
//! A session is valid for one boot instance of the server. Everything that came with it (references, mappings, steering
//! tags) is dropped with it.

use crate::{
    calls::{Calls, Line, misbehaved},
    direct::{DirectPair, READS},
    error::CallError,
    nfs::procedure::{Asks, Number, Procedure},
    options::{MacPreference, Options, Route},
    pool::{Lent, Pool, TakeError},
    transport::{Broken, next_message, send_when_room},
};
use odafs_common::{
    connect::PrivateData,
    direct::{self, Attach, Attached, ExposedMemory},
    exception::Exception,
    mac::{MacAlgorithm, MacKey},
    page::PageSize,
    session::{Control, Identity, Initiator, Pattern, PublicKey, Seed, SessionKey},
    wire::{
        odafs::{self, Accepted, Mode, OdafsStatus, Parameters, Procedure as P},
        xdr::{Decode as _, Encode as _},
    },
};
use odafs_fabric::{
    Exposed, Peer, QueuePair, Remote, SteeringTag,
    clock::{self, Nanos},
    entropy,
    memory::ArenaView,
    sync::{
        Mutex,
        atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering::*},
    },
};

const fn procedure(name: &'static str, which: P) -> Procedure {
    // If the call is repeated, a second session is opened to which nobody attaches, and the server drops such sessions.
    Procedure {
        name,
        number: Number::Odafs(which),
        idempotent: true,
        asks: Asks::NOTHING,
    }
}

const OPEN_SESSION: Procedure = procedure("OPEN_SESSION", P::OpenSession);
const REKEY: Procedure = procedure("REKEY", P::Rekey);
const CLOSE_SESSION: Procedure = procedure("CLOSE_SESSION", P::CloseSession);

/// After this many denials in a row, the client gives a session up.
const DENIED_MAX: u32 = 4;
/// After a connection that could not be attached, none is attached during this time.
const ATTACH_REST: Nanos = Nanos::from_secs(1);
/// After a new request key that did not come, the next is asked for after this time, or after a quarter of the time that
/// a key lasts.
const REKEY_REST: Nanos = Nanos::from_secs(60);

/// A session.
pub struct Session {
    /// The session's number in this client, 1 for the first. References are kept under it.
    pub number: u64,
    /// The session's number at the server.
    pub id: u32,
    /// The life word of the server to which it belongs.
    pub life: u64,
    /// The page size of the export.
    pub page: PageSize,
    /// The MAC of guarded requests.
    pub algorithm: MacAlgorithm,
    /// The server's memory, if it granted one-sided reads and the fabric offers loads.
    pub view: Option<ArenaView>,
    /// Whether one-sided reads were granted.
    pub one_sided: bool,
    /// The connections for direct reads.
    pub pairs: Pool<DirectPair>,
    key: SessionKey,
    generation: AtomicU32,
    requests: AtomicU64,
    rekey_requests: u64,
    rekey_span: Nanos,
    /// When the next request key is due, whatever the number of requests.
    rekey_at: AtomicU64,
    /// No connection is attached before this time.
    attach_from: AtomicU64,
    rekeying: Mutex<()>,
    denied_in_row: AtomicU32,
    over: AtomicBool,
    served: AtomicBool,
    /// `None` once the session was let go.
    homes: Mutex<Option<Homes>>,
    /// The connection that was attached first, after that, if it is still needed.
    last_home: Mutex<Option<Box<dyn QueuePair>>>,
}

/// The connections on which the session depends. When one of them ends, so does the session.
struct Homes {
    /// The connection on which the session was opened, and is rekeyed and closed.
    rpc: Line,
    /// The connection that was attached first.
    direct: Box<dyn QueuePair>,
}

/// What an opened session begins with.
struct Numbered {
    number: u64,
    key: SessionKey,
    rpc: Line,
}

/// Why there is no session.
#[derive(Debug)]
pub enum NoSession {
    /// The server does not have the ODAFS program.
    NoProgram,
    /// The server refuses a session, for this reason.
    Refused(String),
    /// The call failed.
    Call(CallError),
}

impl From<CallError> for NoSession {
    fn from(error: CallError) -> Self {
        match error {
            CallError::Unavailable { .. } => Self::NoProgram,
            error => Self::Call(error),
        }
    }
}

/// Why a connection was not attached to the session.
#[derive(Debug)]
pub enum NotAttached {
    /// The server refuses it, as it would all others: the session is over.
    Refused(String),
    /// This connection could not be made. The session goes on with those that it has.
    NotMade(String),
}

impl From<NotAttached> for NoSession {
    fn from(why: NotAttached) -> Self {
        let (NotAttached::Refused(why) | NotAttached::NotMade(why)) = why;
        Self::Refused(why)
    }
}

impl From<Broken> for NotAttached {
    fn from(broken: Broken) -> Self {
        Self::NotMade(broken.to_string())
    }
}

/// Why a read got no connection for direct reads.
#[derive(Debug)]
pub enum NoPair {
    /// All stayed in use until the deadline.
    TimedOut,
    /// There is none, and none could be made.
    NotMade,
}

/// A connection that is attached to the session.
pub struct Attachment {
    /// The connection.
    pub pair: Box<dyn QueuePair>,
    /// Its number at the server.
    pub connection: u32,
    /// What it may read one-sided.
    pub exposed: Option<ExposedMemory>,
}

/// On one host, one-sided reads map a file of the server. The server could truncate it, which would end this process.
/// So only accept this from servers that could end this process anyway.
fn may_be_mapped(line: &mut Line) -> bool {
    let Some(pair) = line.transport().queue_pair() else {
        return true;
    };
    let peer = pair.peer();
    !matches!(peer, Peer::Uid { .. }) || peer.has_power_over_us()
}

impl Session {
    /// Opens a session and attaches a first connection to it, until `deadline`.
    pub fn open(
        calls: &Calls,
        options: &Options,
        export: &[u8],
        number: u64,
        deadline: Nanos,
    ) -> Result<Self, NoSession> {
        let identity = options.identity.map(Identity::from_secret);
        let server_key = options.server_key.map(PublicKey);
        let Some(pattern) = Pattern::of(identity.as_ref(), server_key.as_ref()) else {
            return Err(NoSession::Refused(
                "Options::identity is set without Options::server_key".into(),
            ));
        };
        let offered = match options.mac {
            MacPreference::Fastest => MacAlgorithm::OFFERED,
            MacPreference::HmacSha256 => MacAlgorithm::HmacSha256.bit(),
            MacPreference::Blake3 => MacAlgorithm::Blake3.bit(),
        };
        let mut rpc = calls
            .own_line(deadline)
            .map_err(|error| NoSession::Refused(format!("cannot connect: {error}")))?;
        let mode = if options.route == Route::Guarded || !may_be_mapped(&mut rpc) {
            Mode::Guarded
        } else {
            Mode::OneSided
        };
        let parameters = Parameters {
            version: direct::VERSION.into(),
            features: 0,
            macs: offered,
            mode,
            pattern,
            export,
            fabric: calls.link().name().as_bytes(),
        }
        .to_bytes();
        let seed = Seed::filled(|seed| entropy::fill(seed));
        let (initiator, handshake) =
            Initiator::start(&parameters, seed, identity.as_ref(), server_key.as_ref())
                .map_err(|error| NoSession::Refused(error.to_string()))?;
        let arguments = odafs::OpenSessionArgs {
            parameters: &parameters,
            handshake: &handshake,
        };
        let answer = calls.call_on(&mut rpc, deadline, &OPEN_SESSION, &arguments, |r| {
            Ok(odafs::OpenSessionResult::decode(r)?.map(|handshake| handshake.0.to_vec()))
        })?;
        let answer = answer.map_err(|status| NoSession::Refused(status.to_string()))?;
        let (key, accepted) = initiator
            .finish(&answer)
            .map_err(|error| NoSession::Refused(error.to_string()))?;
        let accepted =
            Accepted::from_bytes(&accepted).map_err(|error| misbehaved(&OPEN_SESSION, &error))?;
        if accepted.mac.bit() & offered == 0 {
            return Err(misbehaved(&OPEN_SESSION, &"a MAC that was not offered").into());
        }
        let numbered = Numbered { number, key, rpc };
        Self::accepted(calls, options, numbered, &accepted, deadline)
    }

    fn accepted(
        calls: &Calls,
        options: &Options,
        opened: Numbered,
        accepted: &Accepted,
        deadline: Nanos,
    ) -> Result<Self, NoSession> {
        let page = PageSize::new(accepted.page_bytes.into())
            .map_err(|error| misbehaved(&OPEN_SESSION, &error))?;
        if (accepted.max_read as usize) < page.bytes() {
            return Err(misbehaved(&OPEN_SESSION, &"direct reads of less than a page").into());
        }
        let rekey_span = Nanos::from_secs(u64::from(accepted.rekey_seconds.max(1)));
        let mut session = Self {
            number: opened.number,
            id: accepted.session,
            life: accepted.life,
            page,
            algorithm: accepted.mac,
            view: None,
            one_sided: accepted.mode == Mode::OneSided,
            pairs: Pool::new(options.lanes),
            key: opened.key,
            generation: AtomicU32::new(0),
            requests: AtomicU64::new(0),
            rekey_requests: accepted.rekey_requests.max(1),
            rekey_span,
            rekey_at: AtomicU64::new((clock::now() + rekey_span).0),
            attach_from: AtomicU64::new(0),
            rekeying: Mutex::new(()),
            denied_in_row: AtomicU32::new(0),
            over: AtomicBool::new(false),
            served: AtomicBool::new(false),
            homes: Mutex::new(None),
            last_home: Mutex::new(None),
        };
        let mut first = session.attach(calls, deadline)?;
        match first.exposed {
            Some(tags) => {
                let [arena, stamps] = [tags.arena, tags.stamps].map(|place| Remote {
                    tag: SteeringTag(place.tag),
                    offset: place.address,
                });
                let exposed = Exposed { arena, stamps };
                let mapped = first.pair.map_exposed(&exposed);
                session.view = mapped.map_err(|error| {
                    NoSession::Refused(format!("cannot map the arena: {error}"))
                })?;
                session.one_sided = session.view.is_some() || first.pair.reads_max() >= READS;
            }
            None => session.one_sided = false,
        }
        *session.homes.lock() = Some(Homes {
            rpc: opened.rpc,
            direct: first.pair,
        });
        Ok(session)
    }

    /// Attaches another connection.
    pub fn attach(&self, calls: &Calls, deadline: Nanos) -> Result<Attachment, NotAttached> {
        let not_made = |why: &str| NotAttached::NotMade(why.into());
        let mut pair = calls
            .link()
            .direct(self.one_sided, deadline)
            .map_err(|error| NotAttached::NotMade(format!("cannot connect: {error}")))?;
        let server = PrivateData::decode(pair.private_data())
            .ok_or_else(|| not_made("the server sent no nonce"))?;
        let mut nonce = [0; 16];
        entropy::fill(&mut nonce);
        let key = self.key.attach_key();
        let attach = Attach {
            session: self.id,
            nonce,
            one_sided: self.one_sided,
        };
        pair.post_receives(1);
        send_when_room(&mut *pair, &[&attach.seal(&key, &server.nonce)], deadline)?;
        pair.flush();
        if !next_message(&mut *pair, calls.wait(), deadline)? {
            return Err(not_made("no answer to the attach message"));
        }
        let attached = Attached::open(pair.message(), &key, &nonce, &server.nonce);
        let attached = attached.ok_or_else(|| {
            NotAttached::Refused("the answer to the attach message does not verify".into())
        })?;
        match attached.result {
            Ok(grant) => Ok(Attachment {
                pair,
                connection: grant.connection,
                exposed: grant.one_sided,
            }),
            Err(exception) => Err(NotAttached::Refused(format!("attach: {exception}"))),
        }
    }

    /// Lends a connection for direct reads: an idle one, or a new one, or the first that comes back by `deadline`. Returns
    /// whether it is new, too.
    pub fn pair(
        &self,
        calls: &Calls,
        now: Nanos,
        deadline: Nanos,
    ) -> Result<(Lent<'_, DirectPair>, bool), NoPair> {
        if now.0 >= self.attach_from.load(Relaxed) {
            let mut made = false;
            let make = || {
                made = true;
                DirectPair::new(self, calls, calls.brief_deadline())
            };
            match self.pairs.take(deadline, make) {
                Ok(pair) => return Ok((pair, made)),
                Err(TakeError::TimedOut) => return Err(NoPair::TimedOut),
                Err(TakeError::NotMade(why)) => self.was_not_attached(&why),
            }
        }
        if self.is_over() {
            return Err(NoPair::NotMade);
        }
        match self.pairs.take_made(deadline) {
            Ok(pair) => Ok((pair, false)),
            Err(TakeError::TimedOut) => Err(NoPair::TimedOut),
            Err(TakeError::NotMade(())) => Err(NoPair::NotMade),
        }
    }

    #[cold]
    fn was_not_attached(&self, why: &NotAttached) {
        tracing::debug!(?why, "a connection for direct reads was not attached");
        match why {
            NotAttached::Refused(_) => self.end(),
            NotAttached::NotMade(_) => {
                let from = clock::now() + ATTACH_REST;
                self.attach_from.store(from.0, Relaxed);
                self.look();
            }
        }
    }

    /// The request key in use, and its generation.
    pub fn mac_key(&self) -> (MacKey, u32) {
        let generation = self.generation();
        (self.key.mac_key(self.algorithm, generation), generation)
    }

    /// The generation of the request key.
    pub fn generation(&self) -> u32 {
        self.generation.load(Acquire)
    }

    /// Records that this many more requests were sent.
    pub fn count_requests(&self, count: u64) {
        self.requests.fetch_add(count, Relaxed);
    }

    /// Moves to the next request key if it is time. Reads by which the key ages call this now and then, because the server
    /// refuses a key that is used for twice as long.
    pub fn tend(&self, calls: &Calls, now: Nanos) {
        let requests = self.requests.load(Relaxed);
        if requests >= self.rekey_requests || now.0 >= self.rekey_at.load(Relaxed) {
            self.rekey(calls);
        }
    }

    /// Moves to the next request key.
    #[cold]
    fn rekey(&self, calls: &Calls) {
        // The first thread does it. Meanwhile the old key is valid for the requests of the others.
        let Some(_mine) = self.rekeying.try_lock() else {
            return;
        };
        let requests = self.requests.swap(0, Relaxed);
        let due_in = |span: Nanos| self.rekey_at.store((clock::now() + span).0, Relaxed);
        due_in(self.rekey_span);
        let (session, generation) = (self.id, self.generation().wrapping_add(1));
        let key = self.key.control_key();
        let tag = Control::Rekey {
            session,
            generation,
        }
        .tag(&key);
        let arguments = odafs::RekeyArgs {
            session,
            generation,
            tag,
        };
        let answer = match &mut *self.homes.lock() {
            Some(Homes { rpc, .. }) => {
                let deadline = calls.brief_deadline();
                calls.call_on(rpc, deadline, &REKEY, &arguments, |r| {
                    Ok(odafs::RekeyResult::decode(r)?
                        .map(|rekeyed| (rekeyed.generation, rekeyed.tag)))
                })
            }
            None => return,
        };
        match answer {
            Ok(Ok((confirmed, tag))) if confirmed == generation => {
                if (Control::Rekeyed {
                    session,
                    generation,
                })
                .verify(&key, &tag)
                {
                    self.generation.store(generation, Release);
                } else {
                    self.end();
                }
            }
            Ok(Err(OdafsStatus::TryLater)) | Err(_) => {
                self.requests.fetch_add(requests / 2, Relaxed);
                due_in(REKEY_REST.min(Nanos(self.rekey_span.0 / 4)));
            }
            Ok(_) => self.end(),
        }
        self.leave_if_over();
    }

    /// A direct read was completed.
    pub fn was_served(&self) {
        if self.denied_in_row.load(Relaxed) != 0 {
            self.denied_in_row.store(0, Relaxed);
        }
        if !self.served.load(Relaxed) {
            self.served.store(true, Relaxed);
        }
    }

    /// Whether it was given up because it was denied again and again, without ever having been served.
    pub fn was_useless(&self) -> bool {
        self.denied_in_row.load(Relaxed) >= DENIED_MAX && !self.served.load(Relaxed)
    }

    /// A direct read was refused. Several denials in a row, or a revoked session, end the session.
    pub fn was_refused(&self, exception: Exception) {
        match exception {
            Exception::Denied if self.denied_in_row.fetch_add(1, Relaxed) + 1 >= DENIED_MAX => {
                self.end()
            }
            Exception::Revoked => self.end(),
            _ => {}
        }
    }

    /// Marks the session as useless.
    pub fn end(&self) {
        self.over.store(true, Release);
    }

    /// Whether the session is still good, as far as can be told without asking the server.
    pub fn is_over(&self) -> bool {
        self.over.load(Acquire)
    }

    /// Checks whether the server has ended the session.
    pub fn look(&self) {
        if let Some(mut homes) = self.homes.try_lock() {
            if let Some(Homes { rpc, direct }) = &mut *homes {
                let mut over = rpc.transport().is_over();
                while direct.poll().is_some() {}
                over |= direct.is_closed();
                if over {
                    self.end();
                }
            }
            drop(homes);
            self.leave_if_over();
        }
        if self.view.as_ref().is_some_and(|view| !view.is_alive()) {
            self.end();
        }
    }

    /// A connection for direct reads was lost.
    pub fn lost(&self, pair: Lent<'_, DirectPair>, broken: &Broken) {
        tracing::debug!(%broken, "a connection for direct reads was lost");
        pair.discard();
        self.look();
    }

    /// Gives up the connections of a session that is over. Somebody may keep it for long, such as an open file.
    pub fn let_go(&self) {
        self.end();
        self.pairs.close();
        self.leave_if_over();
    }

    /// Gives up the connections of a session that is over. If another thread uses them, that does it afterwards.
    fn leave_if_over(&self) {
        if self.is_over()
            && let Some(mut homes) = self.homes.try_lock()
        {
            self.leave(&mut homes);
        }
    }

    fn leave(&self, homes: &mut Option<Homes>) {
        let Some(Homes { rpc, direct }) = homes.take() else {
            return;
        };
        drop(rpc);
        // A read that began before may still look at the server's memory. Only this connection tells that the server died.
        if self.view.as_ref().is_some_and(ArenaView::is_alive) {
            *self.last_home.lock() = Some(direct);
        }
    }

    /// Tells the server that the session is over. If this fails, the server finds out by itself.
    pub fn close(&self, calls: &Calls) {
        let session = self.id;
        let tag = Control::Close { session }.tag(&self.key.control_key());
        let arguments = odafs::CloseSessionArgs { session, tag };
        if let Some(homes) = &mut *self.homes.lock() {
            calls.tell(&mut homes.rpc, &CLOSE_SESSION, &arguments);
        }
        self.leave_if_over();
    }
}

impl std::fmt::Debug for Session {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Session({}, life {:x})", self.id, self.life)
    }
}
