//! What clients of NFS version 4 hold: client ids, sessions with their slots, opens, locks, delegations, leases (RFC 8881,
//! sections 2.10, 8, 9 and 18.33 to 18.51; RFC 7530, sections 9 and 16). It is a core without IO: each call brings the time, and
//! nothing waits. The caller puts one lock around all of it.

mod back_channel;
mod clients;
mod copies;
mod delegations;
mod legacy;
mod locks;
mod opens;
mod owners;
mod records;
mod sessions;
mod shares;
mod slots;
mod stateids;
#[cfg(test)]
mod tests;
mod waiters;

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet, VecDeque};
use std::sync::Arc;

use odafs_common::wire::nfs4::{LockType, SequenceOk, SessionId, StateId, Status};
use odafs_fabric::clock::Nanos;

use crate::vfs::ObjectId;
use crate::vfs::grace::GracePeriod;
use crate::vfs::locks::Locks;

use back_channel::Calls;
pub use back_channel::{Callback, Called, Send, Sent};
pub(super) use clients::identity as client_identity;
use clients::{Client, ClientsOf};
use copies::Copies;
pub use copies::{Copied, Copying, NextPiece};
use delegations::Delegations;
pub use delegations::{CbGetattrAnswer, Delegated, DelegationCounts, Question};
pub use opens::SharesBefore;
use opens::{Entry, FileState, Key};
use owners::KnownOwner;
use records::RecordLog;
use sessions::{SHORT_BYTES, Session};
pub use stateids::client_named_by;

/// How long a client whose lease is over keeps its state while nobody wants what it holds (RFC 8881, section 8.4.3).
const COURTESY: Nanos = Nanos::from_secs(24 * 3600);

/// The bounds of the state, and the lease.
#[derive(Clone, Copy, Debug)]
pub struct StateLimits {
    /// How long a client keeps its state without a call.
    pub lease: Nanos,
    /// Clients, confirmed or not.
    pub clients: usize,
    /// Sessions of a client.
    pub sessions: usize,
    /// Stateids of a client, and also ranges that it has locked.
    pub states: usize,
    /// Ranges that a client has locked in one file. Fewer than `file_ranges`, so that no client keeps the others from locking
    /// there.
    pub ranges: usize,
    /// Stateids of all clients, and also ranges that they have locked.
    pub all_states: usize,
    /// Ranges that all clients have locked in one file. Each call walks along all locks of its file.
    pub file_ranges: usize,
    /// Owners that wait for locks of one file. More than these are not told when a lock is free.
    pub file_waiters: usize,
    /// Delegations of a client.
    pub delegations: usize,
    /// Delegations of all clients.
    pub all_delegations: usize,
    /// Bytes of replies that the slots of all sessions may keep.
    pub all_cached_bytes: usize,
    /// Slots with which a session begins.
    pub slots: u32,
    /// Slots that a session gets while it uses all that it has.
    pub slots_grown: u32,
    /// The longest call and the longest reply, in bytes.
    pub message_bytes: u32,
    /// The longest reply that a slot keeps, in bytes.
    pub cached_bytes: u32,
    /// Operations of a compound.
    pub operations: u32,
}

/// The user that a caller claims to be. Another user may not take over a client's name, and gets no reply that a slot has kept.
/// Nothing else compares users: without state protection (SP4_NONE) whoever knows a session or a client id may end it (RFC 8881,
/// section 2.10.8.3).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Principal(pub u32);

/// The client that sent an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sender {
    /// The client of the compound's session (4.1 and later).
    Client(u64),
    /// The client to which the stateid or the owner in the operation belongs (4.0).
    Named,
}

/// How an operation arrived.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Arrival {
    /// Its connection.
    pub connection: u64,
    /// Whether connections of this kind carry callbacks. This one may have ended meanwhile.
    pub can_call_back: bool,
    /// Whether this connection carries callbacks now.
    pub calls_back: bool,
    /// The minor version of its compound.
    pub minor: u32,
}

/// The client that EXCHANGE_ID found or made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Exchanged {
    /// The client id.
    pub client_id: u64,
    /// The sequence number of the first CREATE_SESSION.
    pub sequence: u32,
    /// Bits of `exchange_id_flag`.
    pub flags: u32,
}

/// A slot that a compound holds, until [`State::finish`] or [`State::abandon`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Slot {
    /// The client of the session.
    pub client: u64,
    /// The user that sent the compound.
    pub who: Principal,
    /// The session.
    pub session: SessionId,
    /// The number of the slot.
    pub number: u32,
    /// Whether the client asks the slot to keep the reply.
    pub cache: bool,
    /// The longest reply, in bytes.
    pub reply_bytes: u32,
    /// The longest reply that the slot keeps if the client asks for it, in bytes.
    pub cached_bytes: u32,
}

impl Slot {
    /// The longest reply of this compound that the slot keeps, in bytes. It keeps short ones unasked.
    pub fn keeps(&self) -> usize {
        match self.cache {
            true => self.cached_bytes as usize,
            false => SHORT_BYTES,
        }
    }
}

/// A compound whose reply a callback may overtake.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Origin {
    /// Its session.
    pub session: SessionId,
    /// Its slot.
    pub slot: u32,
    /// Its sequence number in the slot.
    pub sequence: u32,
}

/// What to do with a compound after SEQUENCE.
#[derive(Clone, Debug)]
pub enum Sequenced {
    /// Execute it: it is new.
    Execute(Slot, SequenceOk),
    /// Send this reply: it was executed before. The reply begins with the compound's status.
    Replay(Arc<[u8]>),
    /// It was executed before, and the slot has not kept the reply. This is SEQUENCE's result.
    NotKept(SequenceOk),
}

/// The turn of an owner, which an operation of 4.0 holds until [`State::end_turn`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OwnerTurn {
    /// The client of the owner.
    pub client: u64,
    /// For the state alone.
    pub(crate) owner: u64,
}

/// What to do with an operation that minor version 0 counts for its owner.
#[derive(Clone, Debug)]
pub enum Turn {
    /// Execute it: it is new.
    Execute(OwnerTurn),
    /// Send this result: it was executed before. The result begins with the status.
    Replay(Arc<[u8]>),
}

/// What an operation does with the data of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Io {
    /// Reads.
    Read,
    /// Writes, or sets the size.
    Write,
}

/// The open that OPEN asks for.
#[derive(Clone, Copy, Debug)]
pub struct OpenRequest {
    /// The file.
    pub file: ObjectId,
    /// Bits of `share_access` that are access.
    pub access: u32,
    /// Bits of `share_deny`.
    pub deny: u32,
    /// Whether the client reclaims it after a restart.
    pub reclaim: bool,
    /// Whether the client opens the file by a delegation that it has.
    pub delegated: bool,
}

/// An open that OPEN made or changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Opened {
    /// Its stateid.
    pub stateid: StateId,
    /// Whether its owner is new and has to confirm it (4.0).
    pub confirm: bool,
    /// Whether the client will be told when a lock that it was denied is free (4.1 and later).
    pub notifies: bool,
    /// What it was before, if it is not new.
    pub before: Option<SharesBefore>,
}

/// A range of bytes to lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LockRange {
    /// The type of the lock.
    pub kind: LockType,
    /// The first byte.
    pub offset: u64,
    /// The number of bytes. `u64::MAX`: all from there on.
    pub length: u64,
}

/// A lock in the way.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Conflict {
    /// Its range.
    pub range: LockRange,
    /// The id of its client.
    pub client: u64,
    /// The name of its owner.
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

/// A change of which clients may reclaim after the next restart, for stable storage.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Record {
    /// This client may reclaim.
    Keep(Reclaiming),
    /// The client with this identity may not.
    Forget(Vec<u8>),
}

/// A client that may reclaim after a restart.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reclaiming {
    /// The client's identity.
    pub identity: Vec<u8>,
    /// Whether it has delegations and may reclaim those too. It may not while it has not acknowledged that one was revoked: the
    /// file may have changed since (RFC 8881, section 8.4.2.1).
    pub delegations: bool,
}

/// The files of write delegations by the identity of their client, for stable storage.
pub type NamedFiles = BTreeMap<Vec<u8>, BTreeSet<ObjectId>>;

/// The grace period after a restart.
#[derive(Debug)]
struct Grace {
    /// When it ends, unless all clients have reclaimed before.
    period: GracePeriod,
    /// The identities of the clients that may reclaim and have not said that they are done.
    waiting: HashSet<Vec<u8>>,
    /// Those of them that may reclaim delegations, with the files of write delegations that they have not reclaimed yet. While
    /// there are such clients, no file is changed, and nobody looks at these files.
    delegated: HashMap<Vec<u8>, HashSet<ObjectId>>,
    /// The identities in `waiting` that stable storage has forgotten or is to forget.
    forgotten: HashSet<Vec<u8>>,
    /// The number of the last record that says so.
    last_forgotten: u64,
}

/// What all clients hold.
#[derive(Debug)]
pub struct State {
    limits: StateLimits,
    /// The number of this start of the server: the upper half of client ids, and the first word of stateids.
    boot: u32,
    grace: Grace,
    /// By the lower half of their ids.
    clients: HashMap<u32, Client>,
    identities: HashMap<Vec<u8>, ClientsOf>,
    /// Clients in the order in which they were made, as far as they may be unconfirmed.
    fresh: VecDeque<u32>,
    sessions: HashMap<SessionId, Session>,
    /// The sessions of each connection.
    connections: HashMap<u64, BTreeSet<SessionId>>,
    owners: HashMap<u64, KnownOwner>,
    /// Bytes in the names of all owners.
    name_bytes: usize,
    /// Opens, and locks of an owner on a file.
    entries: HashMap<Key, Entry>,
    /// The entry of an owner and a file.
    held: HashMap<(u64, ObjectId), Key>,
    files: HashMap<ObjectId, FileState>,
    delegations: Delegations,
    copies: Copies,
    /// The locked ranges of files, including those of other protocols.
    locks: Arc<Locks>,
    /// The changes of who may reclaim.
    record_log: RecordLog,
    /// The files of write delegations, and some whose delegations were returned since the last tick.
    named_files: NamedFiles,
    /// They have changed since [`State::take_named_files`].
    named_files_changed: bool,
    last_client: u32,
    last_serial: u64,
    /// Bytes of replies that the slots of all sessions may keep.
    cached_bytes: usize,
    /// When clients were last asked to use fewer slots.
    asked_for_slots: Option<Nanos>,
    /// When sessions with idle slots were last looked for.
    looked_for_idle: Nanos,
    /// Sessions with more slots than they began with.
    grown: HashSet<SessionId>,
    /// The number of opens.
    opens: usize,
    /// The number of ranges that all clients have locked.
    ranges: usize,
    calls: Calls,
    /// Clients to which a callback may be sent now.
    calling: BTreeSet<u32>,
    /// Clients to which a callback may be sent after the next tick.
    later: BTreeSet<u32>,
    /// When owners that hold nothing were last removed.
    swept: Nanos,
}

impl State {
    /// Begins without clients. `boot` grows with each start of the server. The clients of `reclaiming` may reclaim for one
    /// lease from `now` on, and for another one while they do.
    pub fn new(limits: StateLimits, boot: u32, now: Nanos, reclaiming: Vec<Reclaiming>) -> Self {
        let delegated = reclaiming.iter().filter(|client| client.delegations);
        Self {
            grace: Grace {
                period: GracePeriod::new(now, limits.lease),
                delegated: delegated
                    .map(|client| (client.identity.clone(), HashSet::new()))
                    .collect(),
                waiting: (reclaiming.into_iter().map(|client| client.identity)).collect(),
                forgotten: HashSet::new(),
                last_forgotten: 0,
            },
            limits,
            boot,
            clients: HashMap::new(),
            identities: HashMap::new(),
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
            record_log: RecordLog::default(),
            named_files: NamedFiles::new(),
            named_files_changed: false,
            last_client: 0,
            last_serial: 0,
            cached_bytes: 0,
            asked_for_slots: None,
            looked_for_idle: now,
            grown: HashSet::new(),
            opens: 0,
            ranges: 0,
            calls: Calls::default(),
            calling: BTreeSet::new(),
            later: BTreeSet::new(),
            swept: now,
        }
    }

    /// With the locks of all protocols.
    #[must_use]
    pub fn with_locks(mut self, locks: Arc<Locks>) -> Self {
        self.locks = locks;
        if !self.grace.waiting.is_empty() {
            self.tell_of_grace();
        }
        self
    }

    /// The length of a lease.
    pub fn lease(&self) -> Nanos {
        self.limits.lease
    }

    /// To be called every second or so. Removes clients that were never confirmed or that hold nothing once their leases are
    /// over, and those with state after [`COURTESY`].
    pub fn tick(&mut self, now: Nanos) {
        self.tick_callbacks(now);
        self.tick_slots(now);
        self.record_returned(now);
        self.end_leases(now);
        self.forget_returned(now);
        while let Some(number) = self.fresh.front() {
            let client = self.clients.get(number);
            if client.is_some_and(|client| !client.confirmed) {
                break;
            }
            self.fresh.pop_front();
        }
        if now.since(self.swept) > self.limits.lease {
            self.swept = now;
            self.sweep_owners(now);
        }
    }

    /// The part of [`State::tick`] that stable storage may hold up.
    pub fn end_leases(&mut self, now: Nanos) {
        self.end_grace(now);
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
            self.remove_silent(number);
        }
    }

    /// A number that this returns only once.
    fn serial(&mut self) -> u64 {
        self.last_serial += 1;
        self.last_serial
    }

    /// The numbers of clients, sessions, opens and locked ranges, for metrics.
    pub fn counts(&self) -> [usize; 4] {
        [
            self.clients.len(),
            self.sessions.len(),
            self.opens,
            self.ranges,
        ]
    }
}
