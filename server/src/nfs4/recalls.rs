//! Gives, recalls and returns delegations. [`super::state`] knows which client has which. In `vfs` every change of a file recalls
//! those of others first.

use odafs_common::wire::nfs4::{
    Ace, Delegation, DelegationType, ReadDelegation, SpaceLimit, StateId, Status, WhyNone,
    WriteDelegation, ace_type, share_access,
};
use odafs_fabric::clock::{self, Nanos};
use odafs_fabric::sync::{Arc, Condvar, Mutex, MutexGuard};

use super::callbacks::Callbacks;
use super::compound::{Compound, Done};
use super::records::{FileRecords, Records};
use super::state::{Delegated, DelegationCounts, OpenRequest, Sender, State};
use crate::vfs::export::Exports;
use crate::vfs::file::File;
use crate::vfs::locks::Side;
use crate::vfs::metrics::{counter, gauge};
use crate::vfs::promises::{Holders, Keeper, Party};
use crate::vfs::{ObjectId, change};

/// Takes changes of the state to clients, to stable storage and to `vfs`, from any thread.
pub(super) struct Messenger {
    pub export: Arc<Exports>,
    pub state: Arc<Mutex<State>>,
    pub callbacks: Arc<Mutex<Callbacks>>,
    pub records: Mutex<Records>,
    pub file_records: Mutex<FileRecords>,
    /// A client has answered a callback.
    pub answered: Condvar,
}

impl Messenger {
    /// Brings changes of who may reclaim to stable storage. False: stable storage does not take them. The next call tries again.
    pub fn keep_records(&self) -> bool {
        let mut records = self.records.lock();
        let mut state = self.state.lock();
        let changes = state.take_records();
        let owes = state.owes_records();
        drop(state);
        let kept = records.apply(changes);
        let mut state = self.state.lock();
        state.note_kept(kept);
        if kept && owes {
            state.have_kept_records();
        }
        kept
    }

    /// Changes the state. What is refused because stable storage has to know something first is tried again when it does, and
    /// once more when it takes nothing. May block.
    pub fn keeping<T, E>(&self, mut act: impl FnMut(&mut State) -> Result<T, E>) -> Result<T, E> {
        loop {
            let mut state = self.state.lock();
            state.begin();
            let result = act(&mut state);
            let held_up = result.is_err() && state.is_held_up();
            drop(state);
            // Each time more clients are forgotten, so this ends.
            if !held_up {
                return result;
            }
            if !self.keep_records() {
                let mut state = self.state.lock();
                state.begin();
                return act(&mut state);
            }
        }
    }

    /// Brings changes of which files have write delegations to stable storage. Only a client that gets one waits for this. False:
    /// stable storage does not take them.
    fn name_files(&self) -> bool {
        let mut records = self.file_records.lock();
        let files = self.state.lock().take_named_files();
        let named = files.is_none_or(|files| records.keep(&files));
        if !named {
            self.state.lock().put_named_files_back();
        }
        named
    }

    /// Whether stable storage has what it must know of a delegation before the client hears of that: after a restart others wait
    /// only for clients that are recorded, and look at all files but those that are named.
    fn has_kept_delegation(&self, client: u32, kind: Delegated) -> bool {
        self.keep_records();
        let recorded = self.state.lock().has_recorded_delegations(client);
        recorded && (kind == Delegated::Read || self.name_files())
    }

    /// To be called every second or so, after the state's own tick, with whether that was held up.
    pub fn tick(&self, now: Nanos, held_up: bool) {
        if self.keep_records() && held_up {
            self.state.lock().end_leases(now);
        }
        self.name_files();
        self.settle();
    }

    /// Tells `vfs` which files are no longer delegated, among them `also` unless it still is, and whether files may be changed
    /// again after a restart. Stable storage knows by now that nobody may reclaim delegations that were taken from clients.
    pub fn end_promises(&self, also: Option<ObjectId>) {
        let promises = self.export.promises();
        let mut state = self.state.lock();
        // The lock is held here, so that none of them is delegated again.
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

    /// Brings changes of who may reclaim to stable storage. Then tells `vfs`, clients and the lock manager of version 3 what has
    /// changed. May block.
    pub fn settle(&self) {
        self.keep_records();
        self.end_promises(None);
        self.call_back();
        self.export.locks().tell(Side::Nlm);
    }

    /// Others want what these owners have locked. Those whose leases are over lose it, if stable storage forgets them first. May
    /// block.
    pub fn expel_owners(&self, now: Nanos, owners: &[u64]) {
        let _ = self.keeping(|state| state.expel_owners(now, owners).then_some(()).ok_or(()));
        self.settle();
    }

    fn recall(&self, object: ObjectId, by: Option<u64>) -> bool {
        let ask = |state: &mut State| {
            let free = state.recall_for(clock::awake(), object, by);
            free.then_some(()).ok_or(())
        };
        let free = self.keeping(ask).is_ok();
        self.end_promises(Some(object));
        self.call_back();
        self.export.locks().tell(Side::Nlm);
        free
    }
}

impl Holders for Messenger {
    fn give_back(&self, object: ObjectId, by: Party) -> bool {
        self.recall(object, client_of(by))
    }

    fn broken(&self, object: ObjectId) {
        self.recall(object, None);
    }

    fn is_awaited(&self, object: ObjectId, by: Party) -> bool {
        self.state.lock().awaits(object, client_of(by))
    }
}

/// The client of version 4 that makes a change, if one does.
fn client_of(by: Party) -> Option<u64> {
    match by {
        Party::Stranger => None,
        Party::Returning(client) => client,
    }
}

/// Who makes the changes of a compound, as `vfs` names it.
pub(super) fn party(sender: Sender) -> Party {
    match sender {
        Sender::Client(id) => Party::Returning(Some(id)),
        Sender::Named => Party::Returning(None),
    }
}

/// DELEGRETURN
pub(super) fn delegation_return(c: &Compound<'_>, given: StateId) -> Done<()> {
    let file = c.held()?;
    let given = c.stateid(given)?;
    let mut state = c.server.state.lock();
    state.delegation_return(c.sender, &given, file)?;
    drop(state);
    c.server.messenger.end_promises(None);
    Ok(())
}

/// The delegation that a client has of a file that it opens.
pub(super) enum Claimed {
    /// None.
    Nothing,
    /// One of this type before the server restarted.
    Before(DelegationType),
    /// One that allows it to open the file.
    Has,
}

/// The delegation that OPEN gives for a file that it has opened, or why it gives none. `want`: what the client wants, as bits of
/// `share_access`.
pub(super) fn delegation<'a>(
    c: &Compound<'_>,
    request: &OpenRequest,
    want: u32,
    claimed: &Claimed,
) -> Delegation<'a> {
    let why = match (claimed, want) {
        _ if c.minor == 0 => return Delegation::None,
        (Claimed::Before(DelegationType::Read), _) => delegate(c, request, Delegated::Read),
        (Claimed::Before(DelegationType::Write), _) => delegate(c, request, Delegated::Write),
        (Claimed::Before(_), _) => return Delegation::None,
        (_, share_access::WANT_NONE) => Err(WhyNone::NotWanted),
        (_, share_access::WANT_CANCEL) => Err(WhyNone::Cancelled),
        (Claimed::Has, _) => Err(WhyNone::Resource(false)),
        (Claimed::Nothing, _) => {
            kind(request.access, want).and_then(|kind| delegate(c, request, kind))
        }
    };
    match why {
        Ok(delegation) => delegation,
        Err(_) if want == share_access::WANT_NO_PREFERENCE => Delegation::None,
        Err(why) => Delegation::NoneBecause(why),
    }
}

/// The kind of delegation for a client that opens a file with this access. A client that only reads has no use for a write
/// delegation. A client that only writes gets none: it may have to read parts of pages.
fn kind(access: u32, want: u32) -> Result<Delegated, WhyNone> {
    match (access, want) {
        (share_access::READ, share_access::WANT_WRITE) => Err(WhyNone::WriteNotSupportedType),
        (share_access::READ, _) => Ok(Delegated::Read),
        (share_access::BOTH, want) if want != share_access::WANT_READ => Ok(Delegated::Write),
        _ => Err(WhyNone::Resource(false)),
    }
}

fn delegate<'a>(
    c: &Compound<'_>,
    request: &OpenRequest,
    kind: Delegated,
) -> Result<Delegation<'a>, WhyNone> {
    let full = WhyNone::Resource(false);
    // A delegated file stays live, so that the server notices changes of it from outside.
    let file = c.export.file(request.file).map_err(|_| full)?;
    let change = file.attributes().change();
    let mut state = c.server.state.lock();
    let client = state.may_delegate(c.now, c.sender, request, kind)?;
    match kind {
        Delegated::Read if !c.export.promises().make(Keeper::Nfs4, &file) => {
            return Err(WhyNone::Contention(false));
        }
        Delegated::Read => {}
        Delegated::Write => {
            drop(state);
            state = make_exclusive(c, &file, request)?;
        }
    }
    let given = state.delegate(c.now, client, (request.file, kind), c.origin);
    let (stateid, recall) = given.ok_or(full)?;
    state.delegated_at(&stateid, change);
    drop(state);
    // Of what a client reclaims stable storage has known since before the restart.
    if !request.reclaim && !c.server.messenger.has_kept_delegation(client, kind) {
        c.server.state.lock().take_back_delegation(&stateid);
        return Err(full);
    }
    let permissions = no_permissions();
    Ok(match kind {
        Delegated::Read => Delegation::Read(ReadDelegation {
            state: stateid,
            recall,
            permissions,
        }),
        Delegated::Write => Delegation::Write(WriteDelegation {
            state: stateid,
            recall,
            // The server reserves no space. With a limit of 0 the client writes before CLOSE, and learns there if space is short.
            space_limit: SpaceLimit::Size(0),
            permissions,
        }),
    })
}

/// Makes the caller the only one that looks at a file. The lock is not held while references to the file are taken back, so
/// others may have opened the file meanwhile: this looks again.
fn make_exclusive<'c>(
    c: &Compound<'c>,
    file: &Arc<File>,
    request: &OpenRequest,
) -> Result<MutexGuard<'c, State>, WhyNone> {
    let Sender::Client(id) = c.sender else {
        return Err(WhyNone::NotWanted);
    };
    let promises = c.export.promises();
    let left = match request.reclaim {
        true => promises.leave_again_to(file, id),
        false => promises.leave_to(file, id),
    };
    if !left {
        return Err(WhyNone::Contention(false));
    }
    change::hide(c.export, file);
    let state = c.server.state.lock();
    let may = state.may_delegate(c.now, c.sender, request, Delegated::Write);
    // The promise has ended if somebody has looked at the file.
    let still = promises.alone_for(request.file) == Some(id);
    match may {
        Ok(_) if still => Ok(state),
        Ok(_) => Err(WhyNone::Contention(false)),
        Err(why) => {
            if still && !state.is_delegated(request.file) {
                promises.end(Keeper::Nfs4, request.file);
            }
            Err(why)
        }
    }
}

/// The permissions of a delegation: none, so the client asks with ACCESS before it lets a user open the file.
fn no_permissions<'a>() -> Ace<'a> {
    Ace {
        kind: ace_type::ALLOW,
        ..Ace::default()
    }
}

/// Refuses to open a file by a delegation that does not allow it.
pub(super) fn check_claim(
    c: &Compound<'_>,
    given: StateId,
    file: ObjectId,
    access: u32,
) -> Done<()> {
    let given = c.stateid(given)?;
    let state = c.server.state.lock();
    match c.sender {
        // Minor version 0 has no delegations.
        Sender::Named => Err(Status::BadStateId.into()),
        Sender::Client(_) => Ok(state.may_claim(c.sender, &given, file, access)?),
    }
}

/// Appends the counters of delegations in the text format of Prometheus.
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
