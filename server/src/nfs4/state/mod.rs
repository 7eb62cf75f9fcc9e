//! What the server keeps about clients of NFS version 4: client ids, sessions with their slots, opens, locks, leases.
//! A core without IO: time comes in with each call, nothing waits, and one lock around all of it is for the caller.
//! (RFC 8881, sections 2.10, 8, 9 and 18.33 to 18.51; RFC 7530, sections 9 and 16.)

use std::sync::Arc;

use odafs_common::wire::nfs4::{
    BindConnectionArgs, BindConnectionOk, ClientIdConfirm, CreateSessionArgs, CreateSessionOk,
    ExchangeIdArgs, LockType, Locker, SequenceArgs, SequenceOk, SessionId, SetClientIdArgs,
    StateId, StateOwner, Status,
};
use odafs_fabric::clock::Nanos;

use crate::vfs::ObjectId;

/// Bounds and durations.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// How long state lives without a sign of its client.
    pub lease: Nanos,
    /// Clients, confirmed or not.
    pub clients: usize,
    /// Sessions of a client.
    pub sessions: usize,
    /// Opens, locks and other stateids of a client.
    pub states: usize,
    /// Slots of a session, at most.
    pub slots: u32,
    /// The longest call and the longest reply, bytes.
    pub message_bytes: u32,
    /// The longest reply that a slot keeps, bytes.
    pub cached_bytes: u32,
    /// Operations of a compound.
    pub operations: u32,
}

/// The user on whose behalf a client id is made: another may not take it over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Principal(pub u32);

/// Who sent the operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sender {
    /// The client of the compound's session (4.1 and later).
    Client(u64),
    /// The state or the owner that it names tells (4.0).
    Named,
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
    /// The reply shall be kept.
    pub cache: bool,
    /// The longest reply, bytes.
    pub reply_bytes: u32,
    /// The longest reply that is kept, bytes.
    pub cached_bytes: u32,
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
}

/// What an open came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Opened {
    /// The open.
    pub state: StateId,
    /// The owner is new and has to confirm (4.0).
    pub confirm: bool,
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
    /// Keep: the identity of a client that holds state.
    Keep(Vec<u8>),
    /// Forget it.
    Forget(Vec<u8>),
}

/// All of it.
#[derive(Debug)]
pub struct State {}

#[allow(unused_variables, clippy::missing_errors_doc)]
impl State {
    /// Nothing yet. `boot` is greater with each start of the server. The clients of `reclaiming` may reclaim for as long as a
    /// lease from `now` on.
    pub fn new(limits: Limits, boot: u32, now: Nanos, reclaiming: Vec<Vec<u8>>) -> Self {
        todo!()
    }

    /// How long leases live.
    pub fn lease(&self) -> Nanos {
        todo!()
    }
    /// Nothing but reclaims may take state.
    pub fn in_grace(&self, now: Nanos) -> bool {
        todo!()
    }
    /// Changes of who may reclaim, since this was last asked. They go to stable storage before the reply.
    pub fn take_records(&mut self) -> Vec<Record> {
        todo!()
    }
    /// To be called every second or so: forgets clients whose lease is over (those with state that nobody wants are kept
    /// for a while), and sessions and clients that were never confirmed.
    pub fn tick(&mut self, now: Nanos) {
        todo!()
    }
    /// The connection is gone.
    pub fn connection_closed(&mut self, connection: u64) {
        todo!()
    }

    // Clients and sessions of 4.1 and later.

    /// EXCHANGE_ID
    pub fn exchange_id(
        &mut self,
        now: Nanos,
        who: Principal,
        args: &ExchangeIdArgs<'_>,
    ) -> Result<Exchanged, Status> {
        todo!()
    }
    /// CREATE_SESSION; a repetition gets the same result again.
    pub fn create_session(
        &mut self,
        now: Nanos,
        who: Principal,
        connection: u64,
        args: &CreateSessionArgs<'_>,
    ) -> Result<CreateSessionOk, Status> {
        todo!()
    }
    /// BIND_CONN_TO_SESSION
    pub fn bind_connection(
        &mut self,
        now: Nanos,
        connection: u64,
        args: &BindConnectionArgs,
    ) -> Result<BindConnectionOk, Status> {
        todo!()
    }
    /// DESTROY_SESSION, from this connection.
    pub fn destroy_session(
        &mut self,
        now: Nanos,
        connection: u64,
        session: &SessionId,
    ) -> Result<(), Status> {
        todo!()
    }
    /// DESTROY_CLIENTID
    pub fn destroy_client_id(&mut self, now: Nanos, client: u64) -> Result<(), Status> {
        todo!()
    }
    /// RECLAIM_COMPLETE
    pub fn reclaim_complete(
        &mut self,
        now: Nanos,
        client: u64,
        one_file_system: bool,
    ) -> Result<(), Status> {
        todo!()
    }
    /// SEQUENCE, of a call of so many bytes and operations. Renews the lease.
    pub fn sequence(
        &mut self,
        now: Nanos,
        connection: u64,
        args: &SequenceArgs,
        bytes: usize,
        operations: u32,
    ) -> Result<Sequenced, Status> {
        todo!()
    }
    /// The compound of a slot was executed; its reply is kept if it was asked for.
    pub fn finish(&mut self, slot: &Slot, reply: &[u8]) {
        todo!()
    }
    /// The compound of a slot was not executed, and comes again.
    pub fn abandon(&mut self, slot: &Slot) {
        todo!()
    }

    // Clients of 4.0.

    /// SETCLIENTID
    pub fn set_client_id(
        &mut self,
        now: Nanos,
        who: Principal,
        args: &SetClientIdArgs<'_>,
    ) -> Result<ClientIdConfirm, Status> {
        todo!()
    }
    /// SETCLIENTID_CONFIRM
    pub fn confirm_client_id(
        &mut self,
        now: Nanos,
        who: Principal,
        confirm: &ClientIdConfirm,
    ) -> Result<(), Status> {
        todo!()
    }
    /// RENEW
    pub fn renew(&mut self, now: Nanos, client: u64) -> Result<(), Status> {
        todo!()
    }
    /// Takes the turn of an open owner for OPEN.
    pub fn owner_turn(
        &mut self,
        now: Nanos,
        owner: &StateOwner<'_>,
        sequence: u32,
    ) -> Result<Turn, Status> {
        todo!()
    }
    /// Takes the turn of the owner of a state, for OPEN_CONFIRM, OPEN_DOWNGRADE, CLOSE, LOCK and LOCKU.
    pub fn state_turn(
        &mut self,
        now: Nanos,
        state: &StateId,
        sequence: u32,
    ) -> Result<Turn, Status> {
        todo!()
    }
    /// Ends a turn: the result, from the status on.
    pub fn end_turn(&mut self, turn: OwnerTurn, status: Status, result: &[u8]) {
        todo!()
    }
    /// OPEN_CONFIRM
    pub fn open_confirm(
        &mut self,
        now: Nanos,
        state: &StateId,
        file: ObjectId,
    ) -> Result<StateId, Status> {
        todo!()
    }
    /// RELEASE_LOCKOWNER
    pub fn release_lock_owner(&mut self, now: Nanos, owner: &StateOwner<'_>) -> Result<(), Status> {
        todo!()
    }

    // Opens and locks.

    /// OPEN, once the file is known. May break leases that are over.
    pub fn open(
        &mut self,
        now: Nanos,
        sender: Sender,
        owner: &StateOwner<'_>,
        wanted: &Wanted,
    ) -> Result<Opened, Status> {
        todo!()
    }
    /// OPEN_DOWNGRADE
    pub fn open_downgrade(
        &mut self,
        now: Nanos,
        sender: Sender,
        state: &StateId,
        file: ObjectId,
        access: u32,
        deny: u32,
    ) -> Result<StateId, Status> {
        todo!()
    }
    /// CLOSE; locks of the open go with it.
    pub fn close(
        &mut self,
        now: Nanos,
        sender: Sender,
        state: &StateId,
        file: ObjectId,
    ) -> Result<StateId, Status> {
        todo!()
    }
    /// LOCK
    pub fn lock(
        &mut self,
        now: Nanos,
        sender: Sender,
        file: ObjectId,
        range: LockRange,
        locker: &Locker<'_>,
        reclaim: bool,
    ) -> Result<StateId, LockRefused> {
        todo!()
    }
    /// LOCKT
    pub fn lock_test(
        &mut self,
        now: Nanos,
        sender: Sender,
        file: ObjectId,
        range: LockRange,
        owner: &StateOwner<'_>,
    ) -> Result<(), LockRefused> {
        todo!()
    }
    /// LOCKU
    pub fn unlock(
        &mut self,
        now: Nanos,
        sender: Sender,
        state: &StateId,
        file: ObjectId,
        range: LockRange,
    ) -> Result<StateId, Status> {
        todo!()
    }
    /// Whether data of the file may be read or written under this stateid, a special one perhaps: the open must have the
    /// access, and without an open nobody's share may deny it. Renews the lease in 4.0.
    pub fn io(
        &mut self,
        now: Nanos,
        sender: Sender,
        state: &StateId,
        file: ObjectId,
        io: Io,
    ) -> Result<(), Status> {
        todo!()
    }
    /// Whether somebody's share denies this for those without an open (NFS version 3 and our own).
    pub fn denies(&self, now: Nanos, file: ObjectId, io: Io) -> bool {
        todo!()
    }
    /// FREE_STATEID
    pub fn free_state(&mut self, now: Nanos, client: u64, state: &StateId) -> Result<(), Status> {
        todo!()
    }
    /// TEST_STATEID, for one.
    pub fn test_state(&self, now: Nanos, client: u64, state: &StateId) -> Status {
        todo!()
    }

    /// Clients, sessions, opens, locks: for metrics.
    pub fn counts(&self) -> [usize; 4] {
        todo!()
    }
}
