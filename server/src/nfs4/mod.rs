//! NFS version 4, minor versions 0 to 2 (RFC 7530, RFC 8881, RFC 7862): a file for each operation, or for a few that
//! belong together.
//!
//! A call is a COMPOUND (`compound.rs`): its operations run one after the other until one fails. Like every procedure it
//! is tried at once on the thread that polls, where only operations that change nothing run; at the first that would
//! block or change something it is given up, its slot given back, and it runs again from the start on the pool. What
//! clients hold (client ids, sessions, opens, locks) is kept by [`state`], a core without IO.
//!
//! Clients of 4.1 and later are called back over the connections that they bind (`callbacks.rs`), of TCP and RDMA. These get
//! delegations, which every change of a file asks back first (`recalls.rs`).

mod access;
mod attributes;
mod callbacks;
mod clients;
mod commit;
mod compound;
mod convert;
mod copy;
mod create;
mod effects;
mod getattr;
mod link;
mod lock;
mod lookup;
mod object;
mod offload;
mod open;
mod read;
mod readdir;
mod readlink;
mod recalls;
mod records;
mod remove;
mod rename;
mod secinfo;
mod sessions;
mod setattr;
mod space;
pub mod state;
#[cfg(test)]
mod tests;
mod turns;
mod verify;
mod write;
mod xattrs;

use odafs_common::wire::nfs4::{
    Attribute, Bitmap, MAX_MINOR_VERSION, OpCode, Operations, PROGRAM, Procedure, Status, VERSION,
};
use odafs_common::wire::xdr::{Reader, Writer};
use odafs_fabric::clock::{self, Nanos};
use odafs_fabric::sync::{Arc, Mutex};

use crate::rpc::drc::Repeats;
use crate::rpc::{Admission, Answer, Call, Program};
use crate::vfs::copies;
use crate::vfs::export::Export;
use crate::vfs::metrics::gauge;
use crate::vfs::promises::Holders;

use callbacks::Callbacks;
use object::Tree;
use offload::Copier;
use recalls::Messenger;
pub use records::Records;
use state::{Limits, State};

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

    /// These and `minor`; what is above 2 adds nothing.
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

    /// Whether there is one.
    pub fn any(self) -> bool {
        self.0.contains(&true)
    }
}

/// What a server of version 4 is put together from.
pub struct Config {
    /// What it speaks.
    pub minors: MinorVersions,
    /// How long state lives without a sign of its client.
    pub lease: Nanos,
    /// Greater with each start of the server.
    pub boot: u32,
    /// Who may reclaim what it had before this start, and where that is kept.
    pub records: Records,
}

/// The lease unless another is asked for. A server that starts anew makes clients wait as long.
pub const LEASE: Nanos = Nanos::from_secs(90);

/// What a server keeps at most.
const fn limits(lease: Nanos) -> Limits {
    Limits {
        lease,
        clients: 1 << 14,
        sessions: 16,
        states: 1 << 16,
        all_states: 1 << 20,
        delegations: 1 << 10,
        all_delegations: 1 << 14,
        all_cached_bytes: 1 << 30,
        slots: 64,
        message_bytes: DATA_BYTES_MAX + (64 << 10),
        cached_bytes: 8 << 10,
        operations: OPERATIONS_MAX,
    }
}

/// NFS version 4 of one export.
pub struct Nfs4 {
    export: Arc<Export>,
    minors: MinorVersions,
    tree: Tree,
    /// The attributes that clients may ask for or set, by minor version.
    supported: [Bitmap; MAX_MINOR_VERSION as usize + 1],
    state: Arc<Mutex<State>>,
    callbacks: Arc<Mutex<Callbacks>>,
    messenger: Arc<Messenger>,
    copier: Copier,
    /// Names the server, the same after a restart.
    owner: Vec<u8>,
    lease: Nanos,
}

impl Nfs4 {
    /// For `export`.
    pub fn new(export: Arc<Export>, mut config: Config) -> Self {
        let limits = limits(config.lease);
        let reclaiming = config.records.take_reclaiming();
        let state = State::new(limits, config.boot, clock::now(), reclaiming)
            .with_locks(Arc::clone(export.locks()));
        let state = Arc::new(Mutex::new(state));
        let callbacks = Arc::<Mutex<Callbacks>>::default();
        let messenger = Arc::new(Messenger {
            export: Arc::clone(&export),
            state: Arc::clone(&state),
            callbacks: Arc::clone(&callbacks),
            records: Mutex::new(config.records),
        });
        if state.lock().awaits_delegations() {
            export.promises().close();
        }
        let holders: Arc<dyn Holders> = Arc::clone(&messenger) as _;
        export.promises().keep(Arc::downgrade(&holders));
        Self {
            tree: Tree::new(&export.config().name, export.root()),
            minors: config.minors,
            lease: config.lease,
            supported: std::array::from_fn(|minor| {
                let all = attributes::supported(minor as u32);
                match copies::clone_block(&export, export.root()) {
                    Some(_) => all,
                    None => all.without(&Bitmap::of(&[Attribute::CloneBlockSize])),
                }
            }),
            state,
            callbacks,
            copier: Copier::new(Arc::clone(&messenger)),
            messenger,
            owner: format!("odafs-{:016x}", export.store().number()).into_bytes(),
            export,
        }
    }

    /// Copies of more than `bytes` go on after their reply, if their clients hear of that; 64 MiB unless this is said.
    #[must_use]
    pub fn with_copies_that_go_on(mut self, bytes: u64) -> Self {
        self.copier.longer_than = bytes;
        self
    }

    /// Brings to stable storage who may reclaim, as far as that has changed, and tells `vfs` and clients what has become of
    /// state. May block.
    fn settle(&self) {
        self.messenger.keep_records();
        self.messenger.end_promises(None);
        self.messenger.call_back();
    }
}

impl Program for Nfs4 {
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
        let [clients, sessions, opens, locks] = self.state.lock().counts();
        gauge(out, "nfs4_clients", "Clients of NFS version 4.", clients);
        gauge(out, "nfs4_sessions", "Sessions of NFS version 4.", sessions);
        gauge(out, "nfs4_opens", "Files open by NFS version 4.", opens);
        gauge(
            out,
            "nfs4_locks",
            "Ranges of files locked by NFS version 4.",
            locks,
        );
        let copies = self.state.lock().copies();
        let help = "Copies of files that go on after their call was answered.";
        gauge(out, "nfs4_copies", help, copies);
        recalls::append_text(&self.state.lock().delegation_counts(), out);
        self.callbacks.lock().append_text(out);
    }

    fn admission(&self, _procedure: u32) -> Admission {
        Admission::Listed
    }

    /// Minor version 0 has no slots. The later ones remember replies by theirs.
    fn repeats<'a>(&self, procedure: u32, arguments: Reader<'a>) -> Repeats<'a> {
        let is_compound = procedure == Procedure::Compound.code();
        match Operations::begin(arguments) {
            Ok(operations) if is_compound && operations.header().minor_version == 0 => {
                effects::repeats(operations)
            }
            _ => Repeats::Harmless,
        }
    }

    fn may_sync(&self, _procedure: u32, arguments: Reader<'_>) -> bool {
        let Ok(operations) = Operations::begin(arguments) else {
            return false;
        };
        let mut codes = operations
            .map_while(Result::ok)
            .map(|operation| operation.code());
        codes.any(|code| {
            !matches!(
                code,
                OpCode::Sequence
                    | OpCode::PutFileHandle
                    | OpCode::PutRootFileHandle
                    // Changes wait for it, on the threads of what may sync.
                    | OpCode::DelegationReturn
            ) && !effects::changes_nothing(code)
        })
    }

    fn call(&self, call: Call<'_>, results: &mut Writer<'_>) -> Answer {
        match Procedure::from_code(call.procedure) {
            Some(Procedure::Compound) => compound::run(self, call, results),
            _ => Answer::NoProcedure,
        }
    }

    fn answered(&self, connection: u64, message: &[u8]) {
        self.called(connection, message);
    }

    fn closed(&self, connection: u64) {
        self.callbacks.lock().forget(connection);
        self.state.lock().connection_closed(connection);
        self.messenger.call_back();
    }

    fn tick(&self, now: Nanos) {
        let mut state = self.state.lock();
        state.tick(now);
        state.hear_of_locks();
        drop(state);
        self.callbacks.lock().tick();
        self.settle();
        self.copier.tick();
    }

    fn stop(&self) {
        self.copier.stop();
    }
}
