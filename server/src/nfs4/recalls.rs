//! Delegations between [`super::state`], which knows who has them, and `vfs`, where every change asks for them back.

use odafs_common::wire::nfs4::{
    Ace, Delegation, DelegationType, ReadDelegation, SpaceLimit, StateId, Status, WhyNone,
    WriteDelegation, ace_type, share_access,
};
use odafs_fabric::clock::{self, Nanos};
use odafs_fabric::sync::{Arc, Condvar, Mutex, MutexGuard};

use super::callbacks::Callbacks;
use super::compound::{Compound, Done};
use super::records::{Named, Records};
use super::state::{Delegated, DelegationCounts, Sender, State, Wanted};
use crate::vfs::export::Exports;
use crate::vfs::file::File;
use crate::vfs::locks::Side;
use crate::vfs::metrics::{counter, gauge};
use crate::vfs::promises::{Holders, Keeper, Party};
use crate::vfs::{ObjectId, change};

/// What it takes to say something to clients, at any time.
pub(super) struct Messenger {
    pub export: Arc<Exports>,
    pub state: Arc<Mutex<State>>,
    pub callbacks: Arc<Mutex<Callbacks>>,
    pub records: Mutex<Records>,
    pub named: Mutex<Named>,
    /// Clients have answered callbacks.
    pub answered: Condvar,
}

impl Messenger {
    /// Brings to stable storage who may reclaim, as far as that has changed.
    pub fn keep_records(&self) {
        let mut records = self.records.lock();
        let changes = self.state.lock().take_records();
        records.apply(changes);
    }

    /// Brings to stable storage which files are written under delegations, as far as that has changed. Nobody waits for this
    /// who gets none.
    fn name_files(&self) {
        let mut named = self.named.lock();
        let files = self.state.lock().take_named();
        if files.is_some_and(|files| !named.keep(&files)) {
            self.state.lock().put_named_back();
        }
    }

    /// A second or so has passed.
    pub fn tick(&self) {
        self.name_files();
        self.settle();
    }

    /// Tells `vfs` which files are delegated no more, `also` perhaps, and whether files may be changed after a restart. Before
    /// that stable storage says that nobody may reclaim what was taken from him: else a change that begins now would be missed
    /// by who reclaims after a restart. May block.
    pub fn end_promises(&self, also: Option<ObjectId>) {
        let promises = self.export.promises();
        let state = self.state.lock();
        let also = also.filter(|object| !state.is_delegated(*object));
        let opens = promises.is_closed() && !state.awaits_delegations();
        if also.is_none() && !opens && !state.has_undelegated() {
            return;
        }
        drop(state);
        let mut records = self.records.lock();
        let mut state = loop {
            let mut state = self.state.lock();
            if !state.has_records() {
                break state;
            }
            let changes = state.take_records();
            drop(state);
            records.apply(changes);
        };
        // The lock is held meanwhile, so that none of them is delegated anew.
        for file in state.take_undelegated() {
            promises.end(Keeper::Nfs4, file);
        }
        if let Some(object) = also.filter(|object| !state.is_delegated(*object)) {
            promises.end(Keeper::Nfs4, object);
        }
        if !state.awaits_delegations() {
            promises.open();
        }
    }

    /// Brings to stable storage who may reclaim, as far as that has changed, and then tells `vfs`, clients and the lock manager
    /// of version 3 what has become of state. May block.
    pub fn settle(&self) {
        self.keep_records();
        self.end_promises(None);
        self.call_back();
        self.export.locks().tell(Side::Nlm);
    }

    /// Others want what these owners have locked: those whose leases are over lose it, for good when this returns. May block.
    pub fn expel_owners(&self, now: Nanos, owners: &[u64]) {
        self.state.lock().expel_owners(now, owners);
        self.settle();
    }

    fn recall(&self, object: ObjectId, by: Option<u64>) -> bool {
        let mut state = self.state.lock();
        let free = state.recall_for(clock::now(), object, by);
        drop(state);
        self.end_promises(Some(object));
        self.call_back();
        self.export.locks().tell(Side::Nlm);
        free
    }
}

impl Holders for Messenger {
    fn give_back(&self, object: ObjectId, by: Party) -> bool {
        match by {
            Party::Stranger => self.recall(object, None),
            Party::Returning(client) => self.recall(object, client),
        }
    }

    fn broken(&self, object: ObjectId) {
        self.recall(object, None);
    }

    fn is_awaited(&self, object: ObjectId, by: Party) -> bool {
        let by = match by {
            Party::Stranger => None,
            Party::Returning(client) => client,
        };
        self.state.lock().awaits(object, by)
    }
}

/// For whom a compound makes changes.
pub(super) fn party(sender: Sender) -> Party {
    match sender {
        Sender::Client(id) => Party::Returning(Some(id)),
        Sender::Named => Party::Returning(None),
    }
}

/// DELEGRETURN
pub(super) fn give_back(c: &Compound<'_>, state: StateId) -> Done<()> {
    let file = c.held()?;
    let state = c.state(state)?;
    let mut machine = c.server.state.lock();
    machine.delegation_return(c.sender, &state, file)?;
    drop(machine);
    c.server.messenger.end_promises(None);
    Ok(())
}

/// Whether an open had a delegation before the server started anew.
pub(super) enum Claimed {
    /// It is new.
    Nothing,
    /// It had this.
    Before(DelegationType),
    /// It is by one that the client has.
    Has,
}

/// What OPEN gives of a file that it has opened. `wish` are the bits of the client's wish.
pub(super) fn delegation<'a>(
    c: &Compound<'_>,
    wanted: &Wanted,
    wish: u32,
    claimed: &Claimed,
) -> Delegation<'a> {
    let why = match (claimed, wish) {
        _ if c.minor == 0 => return Delegation::None,
        (Claimed::Before(DelegationType::Read), _) => delegate(c, wanted, Delegated::Read),
        (Claimed::Before(DelegationType::Write), _) => delegate(c, wanted, Delegated::Write),
        (Claimed::Before(_), _) => return Delegation::None,
        (_, share_access::WANT_NONE) => Err(WhyNone::NotWanted),
        (_, share_access::WANT_CANCEL) => Err(WhyNone::Cancelled),
        (Claimed::Has, _) => Err(WhyNone::Resource(false)),
        (Claimed::Nothing, _) => {
            kind(wanted.access, wish).and_then(|kind| delegate(c, wanted, kind))
        }
    };
    match why {
        Ok(delegation) => delegation,
        Err(_) if wish == share_access::WANT_NO_PREFERENCE => Delegation::None,
        Err(why) => Delegation::NoneBecause(why),
    }
}

/// The kind of delegation that saves work for a client that opens a file so. A client that only writes would have to read parts
/// of pages under a delegation. A client that only reads has no use for a write delegation.
fn kind(access: u32, wish: u32) -> Result<Delegated, WhyNone> {
    match (access, wish) {
        (share_access::READ, share_access::WANT_WRITE) => Err(WhyNone::WriteNotSupportedType),
        (share_access::READ, _) => Ok(Delegated::Read),
        (share_access::BOTH, wish) if wish != share_access::WANT_READ => Ok(Delegated::Write),
        _ => Err(WhyNone::Resource(false)),
    }
}

fn delegate<'a>(
    c: &Compound<'_>,
    wanted: &Wanted,
    kind: Delegated,
) -> Result<Delegation<'a>, WhyNone> {
    let full = WhyNone::Resource(false);
    // What others do to it is to be noticed.
    let file = c.export.file(wanted.file).map_err(|_| full)?;
    let change = file.attributes().change();
    let mut machine = c.server.state.lock();
    let client = machine.may_delegate(c.now, c.sender, wanted, kind)?;
    match kind {
        Delegated::Read if !c.export.promises().make(Keeper::Nfs4, &file) => {
            return Err(WhyNone::Contention(false));
        }
        Delegated::Read => {}
        Delegated::Write => {
            drop(machine);
            machine = leave(c, &file, wanted)?;
        }
    }
    let given = machine.delegate(c.now, client, (wanted.file, kind), c.origin);
    let (state, recall) = given.ok_or(full)?;
    machine.delegated_at(&state, change);
    drop(machine);
    if kind == Delegated::Write {
        c.server.messenger.name_files();
    }
    let permissions = asks_for_access();
    Ok(match kind {
        Delegated::Read => Delegation::Read(ReadDelegation {
            state,
            recall,
            permissions,
        }),
        Delegated::Write => Delegation::Write(WriteDelegation {
            state,
            recall,
            // The server reserves no space, so the client must write before CLOSE to learn that there is none.
            space_limit: SpaceLimit::Size(0),
            permissions,
        }),
    })
}

/// Leaves a file to the caller alone. References to it are taken back without the lock, so the file may have been opened by
/// others meanwhile.
fn leave<'c>(
    c: &Compound<'c>,
    file: &Arc<File>,
    wanted: &Wanted,
) -> Result<MutexGuard<'c, State>, WhyNone> {
    let Sender::Client(id) = c.sender else {
        return Err(WhyNone::NotWanted);
    };
    let promises = c.export.promises();
    let left = match wanted.reclaim {
        true => promises.leave_again_to(file, id),
        false => promises.leave_to(file, id),
    };
    if !left {
        return Err(WhyNone::Contention(false));
    }
    change::hide(c.export, file);
    let machine = c.server.state.lock();
    let may = machine.may_delegate(c.now, c.sender, wanted, Delegated::Write);
    // Somebody who looked at the file may have ended it.
    let still = promises.alone_for(wanted.file) == Some(id);
    match may {
        Ok(_) if still => Ok(machine),
        Ok(_) => Err(WhyNone::Contention(false)),
        Err(why) => {
            if still && !machine.is_delegated(wanted.file) {
                promises.end(Keeper::Nfs4, wanted.file);
            }
            Err(why)
        }
    }
}

/// Nobody may open the file without asking for access first.
fn asks_for_access<'a>() -> Ace<'a> {
    Ace {
        kind: ace_type::ALLOW,
        ..Ace::default()
    }
}

/// Checks the delegation by which a file is opened.
pub(super) fn check_claim(
    c: &Compound<'_>,
    state: StateId,
    file: ObjectId,
    access: u32,
) -> Done<()> {
    let state = c.state(state)?;
    let machine = c.server.state.lock();
    match c.sender {
        // Minor version 0 has none.
        Sender::Named => Err(Status::BadStateId.into()),
        Sender::Client(_) => Ok(machine.may_claim(c.sender, &state, file, access)?),
    }
}

/// Figures of delegations in the text format of Prometheus.
pub(super) fn append_text(counts: &DelegationCounts, out: &mut String) {
    let help = "Delegations that clients of NFS version 4 have.";
    gauge(out, "nfs4_delegations", help, counts.held);
    let figures = [
        ("granted", "Delegations given.", counts.granted),
        (
            "recalled",
            "Delegations recalled, since someone else wanted to change the file.",
            counts.recalled,
        ),
        (
            "revoked",
            "Delegations taken from clients that did not return them in time.",
            counts.revoked,
        ),
    ];
    for (name, help, count) in figures {
        counter(out, &format!("nfs4_delegations_{name}"), help, count);
    }
}
