//! NFS version 4, minor versions 0 to 2 (RFC 7530, RFC 8881, RFC 7862). Each operation has a file, alone or with a few that
//! belong to it.
//!
//! A call is a COMPOUND (`compound.rs`). Its operations run one after the other until one fails (`run.rs`). Like every call it
//! is first tried on the thread that polls. At the first operation that would block it is suspended, and a thread of the pool
//! goes on with that operation. `state` is a core without IO. It keeps what clients hold: client ids, sessions, opens, locks,
//! delegations.
//!
//! The server sends callbacks to clients of 4.1 and later over the connections that they bind, of TCP and RDMA
//! (`callbacks.rs`). Such clients get delegations. Every change of a file recalls them first (`recalls.rs`).

mod access;
mod acls;
mod acting;
mod attributes;
mod callbacks;
mod cb_getattr;
mod classes;
mod clients;
mod commit;
mod compound;
mod convert;
mod copy;
mod create;
mod fits;
mod getattr;
mod kept;
mod link;
mod lock;
mod lookup;
mod object;
mod offload;
mod open;
mod owners;
mod placing;
mod read;
mod readdir;
mod readlink;
mod recalls;
mod records;
mod remove;
mod rename;
mod run;
mod secinfo;
mod sessions;
mod setattr;
mod space;
mod state;
#[cfg(test)]
mod tests;
mod turns;
mod verify;
mod write;
mod xattrs;

use odafs_common::wire::nfs4::{
    Bitmap, MAX_MINOR_VERSION, Operations, PROGRAM, Procedure, Status, VERSION, payloads_apart,
};
use odafs_common::wire::xdr::{Reader, Writer};
use odafs_fabric::clock::{self, Nanos};
use odafs_fabric::sync::{Arc, Condvar, Mutex};

use crate::rpc::drc::Repeats;
use crate::rpc::{Admission, Answer, Call, Lengths, Program};
use crate::vfs::export::Exports;
use crate::vfs::hex::hex;
use crate::vfs::locks::Side;
use crate::vfs::metrics::gauge;
use crate::vfs::promises::{Holders, Keeper};

use callbacks::Callbacks;
use object::Tree;
use offload::Copier;
use owners::Owners;
pub use owners::{DOMAIN, Kind, NameService, OwnersConfig};
use recalls::Messenger;
pub use records::Records;
use state::{State, StateLimits};
use turns::TurnQueue;

/// The most data of one READ or WRITE, in bytes.
pub const DATA_BYTES_MAX: u32 = 1 << 20;
/// The most operations of a compound.
pub const OPERATIONS_MAX: u32 = 128;

/// Which of the minor versions 0, 1 and 2 a server speaks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MinorVersions([bool; MAX_MINOR_VERSION as usize + 1]);

impl MinorVersions {
    /// None of them.
    pub const NONE: Self = Self([false; MAX_MINOR_VERSION as usize + 1]);
    /// All of them.
    pub const ALL: Self = Self([true; MAX_MINOR_VERSION as usize + 1]);

    /// These and `minor`. A number above 2 adds nothing.
    #[must_use]
    pub const fn with(mut self, minor: u32) -> Self {
        if minor <= MAX_MINOR_VERSION {
            self.0[minor as usize] = true;
        }
        self
    }

    /// Whether `minor` is one of them.
    pub fn has(self, minor: u32) -> bool {
        self.0.get(minor as usize).copied().unwrap_or(false)
    }

    /// Whether it speaks any.
    pub fn any(self) -> bool {
        self.0.contains(&true)
    }
}

/// The configuration of a server of version 4.
pub struct Config {
    /// The minor versions that it speaks.
    pub minors: MinorVersions,
    /// How long a client keeps its state without a call.
    pub lease: Nanos,
    /// A number that grows with each start of the server.
    pub boot: u32,
    /// Which clients may reclaim what they held before this start, and where that is kept.
    pub records: Records,
    /// How clients are told the owners and groups of files.
    pub owners: OwnersConfig,
    /// Bytes of replies that the slots of all sessions may keep, usually [`CACHED_BYTES`].
    pub cached_bytes: usize,
}

/// The default lease. After a restart clients may have to wait for as long.
pub const LEASE: Nanos = Nanos::from_secs(90);

/// Bytes of replies that the slots of all sessions may keep.
pub const CACHED_BYTES: usize = 1 << 30;

/// The bounds of a server's state.
const fn limits(lease: Nanos, cached_bytes: usize) -> StateLimits {
    StateLimits {
        lease,
        clients: 1 << 14,
        sessions: 16,
        states: 1 << 16,
        all_states: 1 << 20,
        ranges: 1 << 14,
        file_ranges: 1 << 15,
        file_waiters: 1 << 9,
        delegations: 1 << 10,
        all_delegations: 1 << 14,
        all_cached_bytes: cached_bytes,
        slots: 64,
        slots_grown: 1024,
        message_bytes: DATA_BYTES_MAX + (64 << 10),
        cached_bytes: 8 << 10,
        operations: OPERATIONS_MAX,
    }
}

/// NFS version 4 of one export.
pub struct Nfs4 {
    export: Arc<Exports>,
    minors: MinorVersions,
    tree: Tree,
    /// The attributes that clients can ask for or set, by minor version.
    supported: [Bitmap; MAX_MINOR_VERSION as usize + 1],
    state: Arc<Mutex<State>>,
    callbacks: Arc<Mutex<Callbacks>>,
    messenger: Arc<Messenger>,
    copier: Copier,
    /// The server's owner and scope (RFC 8881, sections 2.10.4 and 2.10.5). It is the same after a restart. No other server has
    /// it: clients take two servers with one owner for one, and use the client ids of both for each.
    server_owner: Vec<u8>,
    owners: Owners,
    lease: Nanos,
    /// Operations of 4.0 that wait for others of their owners.
    turn_queue: TurnQueue,
}

impl Nfs4 {
    /// Serves `export`.
    pub fn new(export: Arc<Exports>, mut config: Config) -> Arc<Self> {
        let limits = limits(config.lease, config.cached_bytes);
        let reclaiming = config.records.take_reclaiming();
        let mut file_records = config.records.take_file_records();
        let mut state = State::new(limits, config.boot, clock::awake(), reclaiming);
        if config.records.are_kept() {
            state = state.with_stable_storage();
        }
        let state = state
            .with_named_files(file_records.take_before())
            .with_locks(Arc::clone(export.locks()));
        if state.awaits_delegations() {
            export.promises().close(state.awaited_files());
        }
        let state = Arc::new(Mutex::new(state));
        let callbacks = Arc::<Mutex<Callbacks>>::default();
        let messenger = Arc::new(Messenger {
            export: Arc::clone(&export),
            state: Arc::clone(&state),
            callbacks: Arc::clone(&callbacks),
            records: Mutex::new(config.records),
            file_records: Mutex::new(file_records),
            answered: Condvar::new(),
        });
        let holders: Arc<dyn Holders> = Arc::clone(&messenger) as _;
        export
            .promises()
            .keep(Keeper::Nfs4, Arc::downgrade(&holders));
        let wanted = Arc::downgrade(&messenger);
        export.locks().on_wanted(Side::Nfs4, move |now, owners| {
            if let Some(messenger) = wanted.upgrade() {
                messenger.expel_owners(now, owners);
            }
        });
        Arc::new(Self {
            tree: Tree::new(&export.config().name, export.root()),
            minors: config.minors,
            lease: config.lease,
            turn_queue: TurnQueue::default(),
            supported: std::array::from_fn(|minor| attributes::supported(&export, minor as u32)),
            owners: Owners::new(config.owners),
            state,
            callbacks,
            copier: Copier::new(Arc::clone(&messenger)),
            messenger,
            server_owner: format!("odafs-{}", hex(&export.server())).into_bytes(),
            export,
        })
    }

    /// Has copies of more than `bytes` go on after their reply, if their clients receive CB_OFFLOAD. Without this it is 64 MiB.
    /// Does nothing once the server is shared.
    #[must_use]
    pub fn with_copies_that_go_on(mut self: Arc<Self>, bytes: u64) -> Arc<Self> {
        if let Some(server) = Arc::get_mut(&mut self) {
            server.copier.longer_than = bytes;
        }
        self
    }
}

/// For the shared pointer, because a suspended compound keeps one.
impl Program for Arc<Nfs4> {
    fn number(&self) -> u32 {
        PROGRAM
    }

    fn version(&self) -> u32 {
        VERSION
    }

    fn name(&self) -> &'static str {
        "nfs4"
    }

    fn procedures(&self) -> &'static [&'static str] {
        &["NULL", "COMPOUND"]
    }

    fn statuses(&self, procedure: u32) -> Vec<(u32, String)> {
        let named = |status: &Status| (status.code(), status.name().to_lowercase());
        match Procedure::from_code(procedure) {
            Some(Procedure::Compound) => Status::ALL.iter().map(named).collect(),
            _ => Vec::new(),
        }
    }

    fn append_text(&self, out: &mut String) {
        let state = self.state.lock();
        let [clients, sessions, opens, locks] = state.counts();
        let (copies, delegations) = (state.copies(), state.delegation_counts());
        drop(state);
        gauge(out, "nfs4_clients", "Clients of NFS version 4.", clients);
        gauge(out, "nfs4_sessions", "Sessions of NFS version 4.", sessions);
        gauge(out, "nfs4_opens", "Files open by NFS version 4.", opens);
        let help = "Ranges of files locked by NFS version 4.";
        gauge(out, "nfs4_locks", help, locks);
        let help = "Copies of files that go on after their call was answered.";
        gauge(out, "nfs4_copies", help, copies);
        recalls::append_text(&delegations, out);
        self.callbacks.lock().append_text(out);
    }

    fn admission(&self, _procedure: u32) -> Admission {
        Admission::Listed
    }

    fn repeats<'a>(&self, procedure: u32, arguments: Reader<'a>) -> Repeats<'a> {
        match operations(procedure, arguments) {
            Some(operations) => classes::repeats(operations),
            None => Repeats::Harmless,
        }
    }

    fn may_sync(&self, procedure: u32, arguments: Reader<'_>) -> bool {
        operations(procedure, arguments).is_some_and(classes::may_sync)
    }

    fn payloads(&self, procedure: u32, arguments: Reader<'_>) -> Lengths {
        match Procedure::from_code(procedure) {
            Some(Procedure::Compound) => payloads_apart(arguments),
            _ => Lengths::default(),
        }
    }

    fn call(&self, call: Call<'_>, results: &mut Writer<'_>) -> Answer {
        match Procedure::from_code(call.procedure) {
            Some(Procedure::Compound) => run::run(self, call, results),
            _ => Answer::NoProcedure,
        }
    }

    fn answered(&self, connection: u64, message: &[u8]) {
        self.called(connection, message);
    }

    /// The connection carries no callbacks any more. Its sessions lose it, so SEQUENCE tells their clients that callbacks do not
    /// arrive. The next SEQUENCE binds the connection again, for calls only.
    fn back_closed(&self, connection: u64) {
        self.closed(connection);
    }

    fn closed(&self, connection: u64) {
        self.callbacks.lock().forget(connection);
        self.state.lock().connection_closed(connection);
        self.messenger.call_back();
    }

    fn tick(&self, now: Nanos) {
        let mut state = self.state.lock();
        state.begin();
        state.tick(now);
        state.hear_of_locks();
        let (held_up, unanswered) = (state.is_held_up(), state.take_unanswered());
        drop(state);
        self.callbacks.lock().tick(unanswered);
        self.messenger.tick(now, held_up);
        self.copier.tick();
    }

    fn rules_changed(&self) {
        self.state.lock().withdraw_copies();
    }

    fn stop(&self) {
        self.copier.stop();
    }
}

/// The operations of a call, if it is a COMPOUND.
fn operations(procedure: u32, arguments: Reader<'_>) -> Option<Operations<'_>> {
    Procedure::from_code(procedure).filter(|it| *it == Procedure::Compound)?;
    Operations::begin(arguments).ok()
}
