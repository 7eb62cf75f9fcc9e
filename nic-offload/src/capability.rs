//! Capabilities: sessions and what they may read. A request is checked here, before anything about pages is looked up.

use std::collections::{BTreeMap, HashMap};

use odafs_common::mac::{MacAlgorithm, MacKey, Tag};
use odafs_common::session::{Control, SessionKey};
use odafs_fabric::clock::Nanos;
use odafs_fabric::entropy;
use odafs_fabric::sync::atomic::{AtomicU64, Ordering};
use odafs_fabric::sync::{Arc, Mutex, OnceLock};

/// Number of a session. It is never 0, never used twice by one NIC, and hardly by two: each NIC starts at a random
/// number, so that a number from an earlier boot instance names no session by accident.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct SessionId(pub u32);

/// The number of a session that is about to be opened. The last message of a handshake must name it before there is a
/// key.
#[derive(Debug)]
pub struct NumberedSession(SessionId);

impl NumberedSession {
    /// The number of the future session.
    pub fn id(&self) -> SessionId {
        self.0
    }
}

/// A set of readers. All frames with the same owner, mode and ACL share one. The server numbers classes by their
/// content. Before a number gets other content, all sessions lose it, so that a set bit stays right.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ReaderClass(pub u32);

impl ReaderClass {
    /// The number of classes that a NIC can distinguish. What has no class below this cannot be read directly.
    pub const COUNT_MAX: u32 = 1 << 16;
}

/// The agreement of an OPEN_SESSION.
#[derive(Clone, Debug)]
pub struct NewSession {
    /// The key from the handshake.
    pub key: SessionKey,
    /// The MAC of its requests.
    pub mac: MacAlgorithm,
    /// Whether it has one-sided access to the whole export.
    pub one_sided: bool,
    /// The server's name for the session's credential, which the NIC only keeps.
    pub credential: u64,
    /// The end of the session.
    pub expires: Nanos,
    /// Number of requests after which the client should rekey. After twice as many the key is refused.
    pub rekey_requests: u64,
    /// Time after which the client should rekey. After twice that the key is refused.
    pub rekey_after: Nanos,
    /// How long requests under the key before the last one are still accepted.
    pub rekey_grace: Nanos,
    /// The present time.
    pub now: Nanos,
}

/// Why a session was not opened: the most sessions are open.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0} sessions are open, the most that this server allows")]
pub struct TooManySessions(pub usize);

/// Why a key was not rotated.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RekeyRefused {
    /// There is no such session, or it is closed or has ended.
    #[error("no such session")]
    NoSession,
    /// Generations must go up by one.
    #[error("the key is at generation {current}")]
    Generation {
        /// The current one.
        current: u32,
    },
}

/// A session, shared by the server's session table and the connections attached to it.
pub struct Session {
    id: SessionId,
    mac: MacAlgorithm,
    one_sided: bool,
    credential: u64,
    key: SessionKey,
    attach: MacKey,
    control: MacKey,
    expires: Nanos,
    rekey_requests: u64,
    rekey_after: Nanos,
    rekey_grace: Nanos,
    /// `generation << 1 | closed`. It is stored last, so that whoever sees it sees the two below.
    state: AtomicU64,
    /// Until when the generation before the current one is accepted.
    grace_until: AtomicU64,
    /// When the current generation began.
    born: AtomicU64,
    /// Number of requests under the current generation, which connections report in lots.
    requests: AtomicU64,
    classes: ClassSet,
    opened: Nanos,
    /// Number of connections attached to it.
    attached: AtomicU64,
}

impl Session {
    /// How long a session without a connection is kept while others want its place.
    const UNATTACHED_MIN: Nanos = Nanos::from_secs(60);

    fn new(id: SessionId, new: NewSession) -> Session {
        Session {
            id,
            mac: new.mac,
            one_sided: new.one_sided,
            credential: new.credential,
            attach: new.key.attach_key(),
            control: new.key.control_key(),
            key: new.key,
            expires: new.expires,
            rekey_requests: new.rekey_requests,
            rekey_after: new.rekey_after,
            rekey_grace: new.rekey_grace,
            state: AtomicU64::new(0),
            grace_until: AtomicU64::new(0),
            born: AtomicU64::new(new.now.0),
            requests: AtomicU64::new(0),
            classes: ClassSet::default(),
            opened: new.now,
            attached: AtomicU64::new(0),
        }
    }

    pub(crate) fn attach(&self) {
        self.attached.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn detach(&self) {
        self.attached.fetch_sub(1, Ordering::Relaxed);
    }

    /// Whether it keeps its place although others want one.
    pub fn is_used(&self, now: Nanos) -> bool {
        let attached = self.attached.load(Ordering::Relaxed) > 0;
        self.is_open(now) && (attached || now.since(self.opened) < Self::UNATTACHED_MIN)
    }

    /// Its number.
    pub fn id(&self) -> SessionId {
        self.id
    }

    /// The MAC of its requests.
    pub fn mac(&self) -> MacAlgorithm {
        self.mac
    }

    /// Whether it has one-sided access.
    pub fn one_sided(&self) -> bool {
        self.one_sided
    }

    /// The server's name for its credential.
    pub fn credential(&self) -> u64 {
        self.credential
    }

    /// The key of [`Attach`](odafs_common::direct::Attach).
    pub(crate) fn attach_key(&self) -> &MacKey {
        &self.attach
    }

    /// Whether the tag of a REKEY or CLOSE_SESSION verifies.
    pub fn verify_control(&self, message: Control, tag: &Tag) -> bool {
        message.verify(&self.control, tag)
    }

    /// The tag of the answer to a REKEY.
    pub fn control_tag(&self, message: Control) -> Tag {
        message.tag(&self.control)
    }

    /// Generation of the request key.
    pub fn generation(&self) -> u32 {
        (self.state.load(Ordering::Acquire) >> 1) as u32
    }

    /// Whether it is neither closed nor over.
    pub fn is_open(&self, now: Nanos) -> bool {
        self.state.load(Ordering::Acquire) & 1 == 0 && now < self.expires
    }

    /// Whether it may read frames of this class.
    pub fn admits(&self, class: ReaderClass) -> bool {
        self.classes.contains(class)
    }

    /// Lets it read frames of this class. Returns false if the class has no bit, so that its frames cannot be read
    /// directly.
    pub fn admit(&self, class: ReaderClass) -> bool {
        self.classes.insert(class)
    }

    /// Takes the right to read frames of these classes away.
    pub(crate) fn expel(&self, classes: &ClassMask) {
        self.classes.remove(classes);
    }

    /// Closes the session. Attached connections notice at their next request.
    pub fn close(&self) {
        self.state.fetch_or(1, Ordering::AcqRel);
    }

    /// Moves to the next generation of the request key. The one before stays valid for the grace period.
    pub fn rekey(&self, generation: u32, now: Nanos) -> Result<(), RekeyRefused> {
        let state = self.state.load(Ordering::Acquire);
        let current = (state >> 1) as u32;
        if state & 1 != 0 || now >= self.expires {
            return Err(RekeyRefused::NoSession);
        }
        if current.checked_add(1) != Some(generation) {
            return Err(RekeyRefused::Generation { current });
        }
        self.grace_until
            .store(now.0.saturating_add(self.rekey_grace.0), Ordering::Relaxed);
        self.born.store(now.0, Ordering::Relaxed);
        self.requests.store(0, Ordering::Relaxed);
        // Of two concurrent calls, or a call and a close, one finds a changed state.
        self.state
            .compare_exchange(
                state,
                u64::from(generation) << 1,
                Ordering::AcqRel,
                Ordering::Acquire,
            )
            .map(drop)
            .map_err(|_| RekeyRefused::Generation { current })
    }

    /// The present request keys, for a connection to keep.
    pub(crate) fn keys(&self) -> Keys {
        let state = self.state.load(Ordering::Acquire);
        let generation = (state >> 1) as u32;
        Keys {
            state,
            current: self.key.mac_key(self.mac, generation),
            previous: generation
                .checked_sub(1)
                .map(|before| self.key.mac_key(self.mac, before)),
            good_until: self.expires.0.min(
                self.born
                    .load(Ordering::Relaxed)
                    .saturating_add(self.rekey_after.0.saturating_mul(2)),
            ),
            previous_until: self.grace_until.load(Ordering::Relaxed),
        }
    }

    /// Reports `count` requests of a connection. Returns true if the key has served too many.
    pub(crate) fn worn_out(&self, count: u64) -> bool {
        let before = self.requests.fetch_add(count, Ordering::Relaxed);
        before.saturating_add(count) > self.rekey_requests.saturating_mul(2)
    }
}

impl std::fmt::Debug for Session {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Session")
            .field("id", &self.id)
            .field("mac", &self.mac)
            .finish_non_exhaustive()
    }
}

/// A connection's copy of its session's request keys, so that verifying takes no lock.
pub(crate) struct Keys {
    state: u64,
    current: MacKey,
    previous: Option<MacKey>,
    good_until: u64,
    previous_until: u64,
}

impl Keys {
    /// Whether these are still the session's keys. One load.
    pub(crate) fn is_current(&self, session: &Session) -> bool {
        self.state == session.state.load(Ordering::Acquire)
    }

    /// The key whose generation has this low bit.
    pub(crate) fn select(&self, odd: bool) -> Option<&MacKey> {
        if self.is_newest(odd) {
            Some(&self.current)
        } else {
            self.previous.as_ref()
        }
    }

    /// Whether a request whose MAC verified under the key of this parity may still be served.
    pub(crate) fn is_good(&self, odd: bool, now: Nanos) -> bool {
        let until = if self.is_newest(odd) {
            self.good_until
        } else {
            self.previous_until.min(self.good_until)
        };
        self.state & 1 == 0 && now.0 < until
    }

    fn is_newest(&self, odd: bool) -> bool {
        (self.state >> 1 & 1 == 1) == odd
    }
}

/// The classes that a session may read: a bit each, in lots that are created when needed.
struct ClassSet {
    lots: [OnceLock<Box<[AtomicU64; ClassSet::LOT_WORDS]>>; ClassSet::LOTS],
}

impl Default for ClassSet {
    fn default() -> Self {
        ClassSet {
            lots: std::array::from_fn(|_| OnceLock::new()),
        }
    }
}

impl ClassSet {
    const LOT_WORDS: usize = 16;
    const LOTS: usize = ReaderClass::COUNT_MAX as usize / (64 * Self::LOT_WORDS);

    const fn place(class: ReaderClass) -> (usize, usize, u64) {
        let word = class.0 as usize / 64;
        (
            word / Self::LOT_WORDS,
            word % Self::LOT_WORDS,
            1 << (class.0 % 64),
        )
    }

    fn contains(&self, class: ReaderClass) -> bool {
        let (lot, word, bit) = Self::place(class);
        match self.lots.get(lot).and_then(OnceLock::get) {
            Some(words) => words[word].load(Ordering::Relaxed) & bit != 0,
            None => false,
        }
    }

    fn insert(&self, class: ReaderClass) -> bool {
        let (lot, word, bit) = Self::place(class);
        let Some(lot) = self.lots.get(lot) else {
            return false;
        };
        let words = lot.get_or_init(|| Box::new(std::array::from_fn(|_| AtomicU64::new(0))));
        if words[word].load(Ordering::Relaxed) & bit == 0 {
            words[word].fetch_or(bit, Ordering::Relaxed);
        }
        true
    }

    fn remove(&self, classes: &ClassMask) {
        for (lot, words) in &classes.lots {
            let Some(ours) = self.lots.get(*lot).and_then(OnceLock::get) else {
                continue;
            };
            for (word, gone) in ours.iter().zip(words).filter(|(_, gone)| **gone != 0) {
                word.fetch_and(!gone, Ordering::Relaxed);
            }
        }
    }
}

/// Classes to take away from many sessions. Changing a word costs as much as changing a bit.
pub(crate) struct ClassMask {
    lots: BTreeMap<usize, [u64; ClassSet::LOT_WORDS]>,
}

impl ClassMask {
    pub(crate) fn of(classes: &[ReaderClass]) -> Self {
        let mut lots = BTreeMap::<_, [u64; ClassSet::LOT_WORDS]>::new();
        for class in classes {
            let (lot, word, bit) = ClassSet::place(*class);
            lots.entry(lot).or_default()[word] |= bit;
        }
        Self { lots }
    }
}

/// All sessions of a NIC.
pub(crate) struct Sessions {
    sessions_max: usize,
    table: Mutex<Table>,
}

struct Table {
    /// Where the numbers begin.
    first: u32,
    given: u32,
    open: HashMap<u32, Arc<Session>>,
}

impl Sessions {
    pub(crate) fn new(sessions_max: usize) -> Sessions {
        Sessions {
            sessions_max,
            table: Mutex::new(Table {
                first: entropy::word() as u32,
                given: 0,
                open: HashMap::new(),
            }),
        }
    }

    pub(crate) fn number(&self) -> Result<NumberedSession, TooManySessions> {
        let mut table = self.table.lock();
        // A number is never used twice, so the numbers themselves are a bound.
        let given = table.given;
        table.given = given
            .checked_add(1)
            .ok_or(TooManySessions(table.open.len()))?;
        let number = (u64::from(table.first) + u64::from(given)) % u64::from(u32::MAX) + 1;
        Ok(NumberedSession(SessionId(number as u32)))
    }

    pub(crate) fn open(
        &self,
        number: NumberedSession,
        new: NewSession,
    ) -> Result<Arc<Session>, TooManySessions> {
        let mut table = self.table.lock();
        if table.open.len() >= self.sessions_max {
            let now = new.now;
            table.open.retain(|_, session| {
                session.is_used(now) || {
                    session.close();
                    false
                }
            });
        }
        if table.open.len() >= self.sessions_max {
            return Err(TooManySessions(table.open.len()));
        }
        let session = Arc::new(Session::new(number.0, new));
        table.open.insert(number.0.0, Arc::clone(&session));
        Ok(session)
    }

    pub(crate) fn get(&self, id: SessionId) -> Option<Arc<Session>> {
        self.table.lock().open.get(&id.0).cloned()
    }

    /// The sessions that are open.
    pub(crate) fn all(&self) -> Vec<Arc<Session>> {
        self.table.lock().open.values().cloned().collect()
    }

    pub(crate) fn close(&self, id: SessionId) -> Option<Arc<Session>> {
        let session = self.table.lock().open.remove(&id.0)?;
        session.close();
        Some(session)
    }

    pub(crate) fn count(&self) -> usize {
        self.table.lock().open.len()
    }
}
