//! What the server keeps about clients of NFS version 4: client ids, sessions with their slots, opens, locks, leases.
//! A core without IO: time comes in with each call, nothing waits, and one lock around all of it is for the caller.
//! (RFC 8881, sections 2.10, 8, 9 and 18.33 to 18.51; RFC 7530, sections 9 and 16.)

mod back;
mod clients;
mod copies;
mod delegations;
mod locks;
mod opens;
mod owners;
mod sessions;
mod shares;
mod stateids;
#[cfg(test)]
mod tests;
mod waiters;

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet, VecDeque};
use std::sync::Arc;

use odafs_common::wire::nfs4::{LockType, SequenceOk, SessionId, StateId, Status};
use odafs_fabric::clock::Nanos;

use crate::vfs::ObjectId;
use crate::vfs::locks::{Locks, Side};

pub use back::{Callback, Called, Send};
use clients::{Client, Named};
use copies::Copies;
pub use copies::{Copied, CopyTurn, Copying};
use delegations::Delegations;
pub use delegations::{CbGetattrAnswer, Delegated, DelegationCounts, Question};
use opens::{Entry, FileState, Key};
use owners::KnownOwner;
use sessions::Session;
pub use stateids::client_named_by;

/// How long the state of a client whose lease is over is kept while nobody wants what it holds (RFC 8881, section 8.4.3).
const COURTESY: Nanos = Nanos::from_secs(24 * 3600);

/// Bounds and durations.
#[derive(Clone, Copy, Debug)]
pub struct StateLimits {
    /// How long state lives without a sign of its client.
    pub lease: Nanos,
    /// Clients, confirmed or not.
    pub clients: usize,
    /// Sessions of a client.
    pub sessions: usize,
    /// Stateids of a client, and as many ranges that it has locked.
    pub states: usize,
    /// Ranges that a client has locked in one file. They are fewer than there may be for all, so that no client keeps the others
    /// from locking there.
    pub ranges: usize,
    /// Stateids of all clients, and as many ranges that they have locked.
    pub all_states: usize,
    /// Ranges that they have locked in one file, because each call walks along all locks of its file.
    pub file_ranges: usize,
    /// Those who wait for locks of one file. The others are not told when these are free.
    pub file_waiters: usize,
    /// Delegations of a client.
    pub delegations: usize,
    /// Delegations of all clients.
    pub all_delegations: usize,
    /// Bytes that the slots of all sessions may keep.
    pub all_cached_bytes: usize,
    /// Slots of a session, at most.
    pub slots: u32,
    /// The longest call and the longest reply, bytes.
    pub message_bytes: u32,
    /// The longest reply that a slot keeps, bytes.
    pub cached_bytes: u32,
    /// Operations of a compound.
    pub operations: u32,
}

/// The user on whose behalf a client id is made, as the caller names it: another may not take it over. That is all that compares
/// users: without state protection (SP4_NONE), whoever knows a session or a client id may end it (RFC 8881, section 2.10.8.3).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Principal(pub u32);

/// The client that sent the operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sender {
    /// The client of the compound's session (4.1 and later).
    Client(u64),
    /// The state or the owner that it names tells (4.0).
    Named,
}

/// How an operation came.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Way {
    /// Over this connection.
    pub connection: u64,
    /// It is of a kind that carries callbacks, though it may have ended meanwhile.
    pub carries: bool,
    /// Callbacks can go over it now.
    pub back: bool,
    /// In a compound of this minor version.
    pub minor: u32,
}

/// What EXCHANGE_ID found or made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Exchanged {
    /// The client id.
    pub client_id: u64,
    /// The sequence number of the first CREATE_SESSION.
    pub sequence: u32,
    /// Bits of `exchange_id_flag`.
    pub flags: u32,
}

/// A slot that a compound holds until [`State::finish`] or [`State::abandon`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Slot {
    /// The client of the session.
    pub client: u64,
    /// The session.
    pub session: SessionId,
    /// Which slot.
    pub number: u32,
    /// The client asks that the reply be kept.
    pub cache: bool,
    /// The longest reply, bytes.
    pub reply_bytes: u32,
    /// The longest reply that is kept, bytes.
    pub cached_bytes: u32,
}

/// A compound, whose reply a callback may overtake.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Origin {
    /// Its session.
    pub session: SessionId,
    /// Its slot.
    pub slot: u32,
    /// Its number in the slot.
    pub sequence: u32,
}

/// What SEQUENCE came to.
#[derive(Clone, Debug)]
pub enum Sequenced {
    /// The compound is new: execute it.
    Execute(Slot, SequenceOk),
    /// It was executed before: this was the reply, from the status of the compound on.
    Replay(Arc<[u8]>),
}

/// An owner's operation of 4.0 that holds its owner until [`State::end_turn`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OwnerTurn {
    /// For the state machine alone.
    pub(crate) owner: u64,
}

/// What the sequence number of an owner came to (4.0).
#[derive(Clone, Debug)]
pub enum Turn {
    /// The operation is new: execute it.
    Execute(OwnerTurn),
    /// It was executed before: this was its result, from the status on.
    Replay(Arc<[u8]>),
}

/// What is done to a file's data under a stateid.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Io {
    /// Reads.
    Read,
    /// Writes, or sets the size.
    Write,
}

/// An open file, as asked for.
#[derive(Clone, Copy, Debug)]
pub struct Wanted {
    /// The file.
    pub file: ObjectId,
    /// Bits of `share_access`, wishes for delegations taken away.
    pub access: u32,
    /// Bits of `share_deny`.
    pub deny: u32,
    /// It was open before the server started anew.
    pub reclaim: bool,
    /// It is opened by a delegation that the client has.
    pub delegated: bool,
}

/// What an open came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Opened {
    /// The open.
    pub state: StateId,
    /// The owner is new and has to confirm (4.0).
    pub confirm: bool,
    /// The server tells a client that is denied a lock of the file when it is free (4.1 and later).
    pub notifies: bool,
}

/// A range of bytes to lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LockRange {
    /// How.
    pub kind: LockType,
    /// First byte.
    pub offset: u64,
    /// Bytes; `u64::MAX` for everything from there on.
    pub length: u64,
}

/// A lock in the way.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Conflict {
    /// Its range.
    pub range: LockRange,
    /// Its client.
    pub client: u64,
    /// Its owner within the client.
    pub owner: Vec<u8>,
}

/// Why a lock was refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LockRefused {
    /// Another lock is in the way.
    Denied(Conflict),
    /// Any other reason.
    Other(Status),
}

impl From<Status> for LockRefused {
    fn from(status: Status) -> Self {
        Self::Other(status)
    }
}

/// A client that may reclaim what it had after the next start, or may no more: for stable storage.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Record {
    /// Keep what this client may reclaim.
    Keep(Reclaiming),
    /// Forget the client of this identity.
    Forget(Vec<u8>),
}

/// A client that may reclaim after a restart.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reclaiming {
    /// The client's identity.
    pub identity: Vec<u8>,
    /// It has delegations, and may reclaim those too. Not so as long as it has not taken note that one was taken from it: the
    /// file may be another since (RFC 8881, section 8.4.2.1).
    pub delegations: bool,
}

/// Files by the identity of a client, for stable storage.
pub type NamedFiles = BTreeMap<Vec<u8>, BTreeSet<ObjectId>>;

/// The clients that may reclaim what they had before the server started anew.
#[derive(Debug)]
struct Grace {
    /// When it is over, unless all have come before.
    until: Nanos,
    /// Those that have not said that they are done.
    waiting: HashSet<Vec<u8>>,
    /// Those of them that may reclaim delegations, with the files of the write delegations that they have not reclaimed yet.
    /// While there are any, no file is changed, and nobody looks at these files.
    delegated: HashMap<Vec<u8>, HashSet<ObjectId>>,
}

/// All of it.
#[derive(Debug)]
pub struct State {
    limits: StateLimits,
    /// The upper half of client ids and the start of stateids.
    boot: u32,
    grace: Grace,
    /// By the lower half of their ids.
    clients: HashMap<u32, Client>,
    /// By identity.
    names: HashMap<Vec<u8>, Named>,
    /// Clients that were not confirmed when they were made, in this order.
    fresh: VecDeque<u32>,
    sessions: HashMap<SessionId, Session>,
    /// The sessions of each connection.
    connections: HashMap<u64, BTreeSet<SessionId>>,
    owners: HashMap<u64, KnownOwner>,
    /// Bytes of their names.
    name_bytes: usize,
    entries: HashMap<Key, Entry>,
    /// The state that an owner has of a file.
    held: HashMap<(u64, ObjectId), Key>,
    files: HashMap<ObjectId, FileState>,
    delegations: Delegations,
    copies: Copies,
    /// What is locked, also by other protocols.
    locks: Arc<Locks>,
    /// What [`State::take_records`] has not told yet.
    records: Vec<Record>,
    /// The files of write delegations, by the identity of the client, and some that were returned since the last tick.
    named: NamedFiles,
    /// [`State::take_named`] has not told them yet.
    naming: bool,
    last_client: u32,
    last_serial: u64,
    /// Bytes that the slots of all sessions may keep.
    cached_bytes: usize,
    /// When clients were last asked to use fewer slots.
    asked_for_slots: Option<Nanos>,
    opens: usize,
    /// Ranges that all clients have locked.
    ranges: usize,
    /// Clients to which something may be said now.
    calling: BTreeSet<u32>,
    /// Those to which it may be said after a while.
    later: BTreeSet<u32>,
    /// When owners that hold nothing were last looked for.
    swept: Nanos,
}

impl State {
    /// Nothing yet. `boot` is greater with each start of the server. The clients of `reclaiming` may reclaim for as long as a
    /// lease from `now` on.
    pub fn new(limits: StateLimits, boot: u32, now: Nanos, reclaiming: Vec<Reclaiming>) -> Self {
        let delegated = reclaiming.iter().filter(|client| client.delegations);
        Self {
            grace: Grace {
                until: now + limits.lease,
                delegated: delegated
                    .map(|client| (client.identity.clone(), HashSet::new()))
                    .collect(),
                waiting: (reclaiming.into_iter().map(|client| client.identity)).collect(),
            },
            limits,
            boot,
            clients: HashMap::new(),
            names: HashMap::new(),
            fresh: VecDeque::new(),
            sessions: HashMap::new(),
            connections: HashMap::new(),
            owners: HashMap::new(),
            name_bytes: 0,
            entries: HashMap::new(),
            held: HashMap::new(),
            files: HashMap::new(),
            delegations: Delegations::default(),
            copies: Copies::default(),
            locks: Arc::default(),
            records: Vec::new(),
            named: NamedFiles::new(),
            naming: false,
            last_client: 0,
            last_serial: 0,
            cached_bytes: 0,
            asked_for_slots: None,
            opens: 0,
            ranges: 0,
            calling: BTreeSet::new(),
            later: BTreeSet::new(),
            swept: now,
        }
    }

    /// With the locks that other protocols share.
    #[must_use]
    pub fn with_locks(mut self, locks: Arc<Locks>) -> Self {
        self.locks = locks;
        if !self.grace.waiting.is_empty() {
            self.locks.reclaims_until(Side::Nfs4, self.grace.until);
        }
        self
    }

    /// How long leases live.
    pub fn lease(&self) -> Nanos {
        self.limits.lease
    }

    /// Nothing but reclaims may take state.
    pub fn in_grace(&self, now: Nanos) -> bool {
        now < self.grace.until && !self.grace.waiting.is_empty()
            || self.locks.is_reclaiming(Side::Nlm, now)
    }

    /// Whether [`State::take_records`] has something to tell.
    pub fn has_records(&self) -> bool {
        !self.records.is_empty()
    }

    /// Changes of who may reclaim, since this was last asked. They go to stable storage before the reply.
    pub fn take_records(&mut self) -> Vec<Record> {
        std::mem::take(&mut self.records)
    }

    /// To be called every second or so: forgets clients whose lease is over (those with state that nobody wants are kept
    /// for a while), and sessions and clients that were never confirmed.
    pub fn tick(&mut self, now: Nanos) {
        self.end_grace(now);
        self.tick_callbacks(now);
        self.tick_slots();
        self.tick_delegations(now);
        self.expel_for_waiters(now);
        let over: Vec<u32> = self
            .clients
            .iter()
            .filter(|(_, client)| {
                let idle = client.idle(now);
                let kept = client.confirmed && (client.states > 0 || client.expelled);
                idle > self.limits.lease && (!kept || idle > COURTESY)
            })
            .map(|(number, _)| *number)
            .chain(self.idle_with_delegations(now))
            .collect();
        for number in over {
            self.remove_client(number);
        }
        self.forget_returned(now);
        while let Some(number) = self.fresh.front() {
            let waits = self.clients.get(number);
            if waits.is_some_and(|client| !client.confirmed) {
                break;
            }
            self.fresh.pop_front();
        }
        if now.since(self.swept) > self.limits.lease {
            self.swept = now;
            self.sweep_owners(now);
        }
    }

    /// If the grace is over, takes from those who have not come what they might reclaim.
    fn end_grace(&mut self, now: Nanos) {
        if now < self.grace.until || self.grace.waiting.is_empty() {
            return;
        }
        self.grace.delegated.clear();
        self.locks.has_reclaimed(Side::Nfs4);
        for identity in std::mem::take(&mut self.grace.waiting) {
            let confirmed = self.names.get(&identity).and_then(|named| named.confirmed);
            let known = confirmed.and_then(|number| Some((number, self.clients.get(&number)?)));
            match known {
                Some((_, client)) if client.recorded => {}
                // It has reclaimed something, and has not said yet that it is done.
                Some((number, client)) if client.states > 0 => self.record(number),
                _ => self.records.push(Record::Forget(identity)),
            }
        }
    }

    /// A number that was not used before.
    fn serial(&mut self) -> u64 {
        self.last_serial += 1;
        self.last_serial
    }

    /// Clients, sessions, opens, ranges that are locked: for metrics.
    pub fn counts(&self) -> [usize; 4] {
        [
            self.clients.len(),
            self.sessions.len(),
            self.opens,
            self.ranges,
        ]
    }
}
