//! COMPOUND: operations one after the other until one fails (RFC 7530, section 15.2; RFC 8881, section 16.2).

use odafs_common::wire::nfs4::{
    OpCode, Operation, Operations, ResultWriter, SessionId, StateId, Status,
};
use odafs_common::wire::xdr::{Encode, Writer};
use odafs_fabric::clock::{self, Nanos};
use odafs_fabric::memory::Gather;
use odafs_fabric::sync::Arc;
use odafs_nic::calls::{Back, Placed};

use super::effects::changes_nothing;
use super::object::{Handle, Object, Tree};
use super::state::{Origin, Sender, Sequenced, Slot};
use super::{
    Nfs4, OPERATIONS_MAX, access, clients, commit, create, getattr, link, lock, lookup, read,
    readdir, readlink, recalls, remove, rename, secinfo, sessions, setattr, space, verify, write,
    xattrs,
};
use crate::rpc::{Answer, Call};
use crate::vfs::attributes::{attributes as attributes_of, attributes_at_hand};
use crate::vfs::export::Export;
use crate::vfs::file::File;
use crate::vfs::promises;
use crate::vfs::read::{Effort, ReadFailed};
use crate::vfs::{self, Attributes, Credential, ObjectId, ids};

/// What is in a reply besides the results, in bytes: the header of an RPC reply, and something to spare.
const REPLY_OVERHEAD_BYTES: usize = 64;

/// Why an operation has no result of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stop {
    /// It would have to wait, or change something, and [`Effort::ResidentOnly`] is all that it may do.
    Blocks,
    /// It failed with this status and says nothing more.
    Status(Status),
}

impl From<Status> for Stop {
    fn from(status: Status) -> Self {
        Self::Status(status)
    }
}

/// What an operation came to.
pub(super) type Done<T> = Result<T, Stop>;
/// The status of an operation whose result has been written.
pub(super) type Written = Done<Status>;

/// A file handle and the stateid that goes with it (RFC 8881, section 16.2.3.1.2).
#[derive(Clone, Copy, Debug, Default)]
struct Place {
    object: Option<Object>,
    state: Option<StateId>,
}

/// A compound under way.
pub(super) struct Compound<'a> {
    pub server: &'a Nfs4,
    pub export: &'a Export,
    pub who: Credential,
    pub effort: Effort,
    pub minor: u32,
    pub connection: u64,
    /// How the client can be called back over that.
    pub back: Option<Arc<dyn Back>>,
    /// The session of the compound.
    pub session: Option<SessionId>,
    /// What callbacks call it by.
    pub origin: Option<Origin>,
    pub now: Nanos,
    /// Whose stateids and owners are meant.
    pub sender: Sender,
    /// Bytes of data that may go ahead of the reply instead of into it.
    pub placement: Option<u32>,
    /// Those that do.
    pub placed: Option<Placed>,
    /// The delegation that the operation under way gives, or the copy that it begins.
    pub given: Option<StateId>,
    apart: Option<Gather<'a>>,
    current: Place,
    saved: Place,
    /// The longest reply, in bytes from the status of the compound on.
    room: usize,
}

/// Runs a compound.
pub(super) fn run<'a>(server: &'a Nfs4, call: Call<'a>, results: &mut Writer<'_>) -> Answer {
    let bytes = call.arguments.rest().len() + call.apart.as_ref().map_or(0, Gather::len);
    let mut operations = match Operations::begin(call.arguments) {
        Ok(operations) => operations,
        Err(error) => return Answer::Garbage(error),
    };
    let header = *operations.header();
    if !server.minors.has(header.minor_version) {
        ResultWriter::begin(results, header.tag).finish(Status::MinorVersMismatch);
        return Answer::Replied;
    }
    let room = call.caller.reply_bytes_max as usize;
    let mut compound = Compound {
        server,
        export: &server.export,
        who: call.who,
        effort: call.effort,
        minor: header.minor_version,
        connection: call.caller.connection,
        back: call.caller.back.clone(),
        session: None,
        origin: None,
        now: clock::now(),
        sender: Sender::Named,
        placement: call.caller.placement,
        placed: None,
        given: None,
        apart: call.apart,
        current: Place::default(),
        saved: Place::default(),
        room: room.saturating_sub(REPLY_OVERHEAD_BYTES),
    };
    let start = results.position();
    let mut w = ResultWriter::begin(results, header.tag);
    let slot = match compound.enter(&mut operations, bytes, &mut w) {
        Ok(Entered::With(slot)) => slot,
        Ok(Entered::Replayed(reply)) => {
            results.truncate(start);
            results.opaque_fixed(&reply);
            return Answer::Replied;
        }
        Err(Stop::Status(status)) => {
            w.finish(status);
            return Answer::Replied;
        }
        Err(Stop::Blocks) => return Answer::Blocks,
    };
    let mut held = Held { server, slot };
    let _acting = promises::changing_for(recalls::party(compound.sender));
    let status = compound.all(operations, held.slot.as_ref(), &mut w);
    // What a thread that acts for nobody was refused is no answer, and no slot may keep it.
    let missed = call.effort == Effort::ResidentOnly && ids::were_missed();
    let Some(status) = status.filter(|_| !missed) else {
        return Answer::Blocks;
    };
    let Compound { placed, .. } = compound;
    w.finish(status);
    if call.effort == Effort::MayBlock {
        server.settle();
    }
    if let Some(slot) = held.slot.take() {
        let reply = &*results.written(start);
        let mut state = server.state.lock();
        state.finish(&slot, reply, placed.is_none());
    }
    placed.map_or(Answer::Replied, Answer::Placed)
}

/// The slot of a compound under way, which is given back unless the compound comes to its end.
struct Held<'a> {
    server: &'a Nfs4,
    slot: Option<Slot>,
}

impl Drop for Held<'_> {
    fn drop(&mut self) {
        if let Some(slot) = &self.slot {
            self.server.state.lock().abandon(slot);
        }
    }
}

/// How the first operation of a compound was taken.
enum Entered {
    /// With a slot, or without a session.
    With(Option<Slot>),
    /// The compound was executed before, with this reply.
    Replayed(Arc<[u8]>),
}

impl Compound<'_> {
    /// Takes SEQUENCE, with which compounds of 4.1 and later begin, and writes its result. Where that fails, the result is
    /// written too.
    fn enter(
        &mut self,
        operations: &mut Operations<'_>,
        bytes: usize,
        w: &mut ResultWriter<'_, '_>,
    ) -> Done<Entered> {
        if self.minor == 0 || operations.left() == 0 {
            return Ok(Entered::With(None));
        }
        let mut ahead = operations.clone();
        let first = match ahead.next() {
            Some(Ok(operation)) => operation,
            // It fails by itself.
            _ => return Ok(Entered::With(None)),
        };
        let code = first.code();
        let count = operations.header().operations;
        let Operation::Sequence(arguments) = first else {
            let refusal = match (sessions::need_none(code), count) {
                (true, 1) => return Ok(Entered::With(None)),
                (true, _) => Status::NotOnlyOp,
                (false, _) => Status::OpNotInSession,
            };
            w.fail(code, refusal);
            return Err(refusal.into());
        };
        *operations = ahead;
        let mut state = self.server.state.lock();
        let taken = state.sequence(self.now, self.connection, &arguments, bytes, count);
        drop(state);
        match taken {
            Ok(Sequenced::Execute(slot, ok)) => {
                self.sender = Sender::Client(slot.client);
                self.session = Some(slot.session);
                self.origin = Some(Origin {
                    session: slot.session,
                    slot: slot.number,
                    sequence: arguments.sequence,
                });
                let room = slot.reply_bytes as usize;
                self.room = self.room.min(room.saturating_sub(REPLY_OVERHEAD_BYTES));
                w.push(code, &Ok::<_, Status>(ok));
                Ok(Entered::With(Some(slot)))
            }
            Ok(Sequenced::Replay(reply)) => Ok(Entered::Replayed(reply)),
            Err(status) => {
                w.fail(code, status);
                Err(status.into())
            }
        }
    }

    /// Runs what is left: the status of the last operation, or `None`, which is to give up and come again.
    fn all(
        &mut self,
        operations: Operations<'_>,
        slot: Option<&Slot>,
        w: &mut ResultWriter<'_, '_>,
    ) -> Option<Status> {
        let kept = slot.filter(|slot| slot.cache);
        let kept =
            kept.map(|slot| (slot.cached_bytes as usize).saturating_sub(REPLY_OVERHEAD_BYTES));
        let mut last = Status::Ok;
        for (count, operation) in operations.enumerate() {
            let operation = match operation {
                Ok(operation) => operation,
                Err(bad) => {
                    w.fail(bad.code(), bad.status());
                    return Some(bad.status());
                }
            };
            let code = operation.code();
            if self.effort == Effort::ResidentOnly && !changes_nothing(code) {
                return None;
            }
            if count >= OPERATIONS_MAX as usize {
                w.fail(code, Status::Resource);
                return Some(Status::Resource);
            }
            let placed_before = self.placed.is_some();
            self.given = None;
            last = match self.one(operation, w) {
                Ok(status) => status,
                Err(Stop::Blocks) => return None,
                Err(Stop::Status(status)) => {
                    w.fail(code, status);
                    status
                }
            };
            let too_big = match kept {
                Some(kept) if w.bytes() > kept => Some(Status::RepTooBigToCache),
                _ if w.bytes() > self.room && self.minor == 0 => Some(Status::Resource),
                _ if w.bytes() > self.room => Some(Status::RepTooBig),
                _ => None,
            };
            if let Some(status) = too_big {
                w.take_back();
                w.fail(code, status);
                if !placed_before {
                    self.placed = None;
                }
                recalls::take_back(self);
                last = status;
            }
            if last != Status::Ok {
                break;
            }
        }
        Some(last)
    }

    /// Runs one operation and writes its result, but where that is a status alone.
    fn one(&mut self, operation: Operation<'_>, w: &mut ResultWriter<'_, '_>) -> Written {
        use Operation as O;
        let code = operation.code();
        match operation {
            O::PutFileHandle(handle) => {
                let object = self.object_of(handle.0)?;
                self.set_current(object);
                plain(w, code, ())
            }
            O::PutRootFileHandle | O::PutPublicFileHandle => {
                self.set_current(self.server.tree.root());
                plain(w, code, ())
            }
            O::GetFileHandle => {
                let handle = self.handle(self.object()?);
                plain(w, code, odafs_common::wire::nfs4::FileHandle(&handle))
            }
            O::SaveFileHandle => {
                self.object()?;
                self.saved = self.current;
                plain(w, code, ())
            }
            O::RestoreFileHandle => {
                if self.saved.object.is_none() {
                    // RFC 8881 has dropped the status of its own (section 18.27).
                    let missing = [Status::RestoreFh, Status::NoFileHandle];
                    return Err(missing[usize::from(self.minor > 0)].into());
                }
                self.current = self.saved;
                plain(w, code, ())
            }
            O::GetAttributes(arguments) => getattr::getattr(self, &arguments, w),
            O::Access(arguments) => {
                let granted = access::access(self, arguments)?;
                plain(w, code, granted)
            }
            O::Lookup(name) => {
                lookup::lookup(self, name)?;
                plain(w, code, ())
            }
            O::LookupParent => {
                lookup::parent(self)?;
                plain(w, code, ())
            }
            O::Read(arguments) => read::read(self, &arguments, w),
            O::ReadPlus(arguments) => read::read_plus(self, &arguments, w),
            O::ReadDir(arguments) => readdir::readdir(self, &arguments, w),
            O::ReadLink => readlink::readlink(self, w),
            O::Verify(theirs) => {
                verify::verify(self, &theirs, true)?;
                plain(w, code, ())
            }
            O::VerifyNot(theirs) => {
                verify::verify(self, &theirs, false)?;
                plain(w, code, ())
            }
            O::Write(arguments) => {
                let written = write::write(self, &arguments)?;
                plain(w, code, written)
            }
            O::Commit(_) => {
                let committed = commit::commit(self)?;
                plain(w, code, committed)
            }
            O::SetAttributes(arguments) => {
                let result = setattr::setattr(self, &arguments);
                w.push(code, &result);
                Ok(result.status)
            }
            O::Create(arguments) => {
                let made = create::create(self, &arguments)?;
                plain(w, code, made)
            }
            O::Link(name) => {
                let change = link::link(self, name)?;
                plain(w, code, change)
            }
            O::Remove(name) => {
                let change = remove::remove(self, name)?;
                plain(w, code, change)
            }
            O::Rename(arguments) => {
                let changes = rename::rename(self, &arguments)?;
                plain(w, code, changes)
            }
            O::SecInfo(name) => {
                let flavors = secinfo::of_name(self, name)?;
                plain(w, code, flavors)
            }
            O::SecInfoNoName(style) => {
                let flavors = secinfo::of_place(self, style)?;
                plain(w, code, flavors)
            }
            O::Open(..)
            | O::OpenConfirm(..)
            | O::OpenDowngrade(..)
            | O::Close(..)
            | O::Lock(..)
            | O::Unlock(..) => self.in_turn(&operation, w),
            O::LockTest(arguments) => lock::test(self, &arguments, w),
            O::GetXattr(name) => xattrs::get(self, name, w),
            O::SetXattr(arguments) => {
                let change = xattrs::set(self, &arguments)?;
                plain(w, code, change)
            }
            O::ListXattrs(arguments) => xattrs::list(self, &arguments, w),
            O::RemoveXattr(name) => {
                let change = xattrs::remove(self, name)?;
                plain(w, code, change)
            }
            O::Allocate(..)
            | O::Deallocate(..)
            | O::Copy(..)
            | O::Clone(..)
            | O::OffloadCancel(..)
            | O::OffloadStatus(..)
            | O::Seek(..)
            | O::IoAdvise(..) => space::run(self, &operation, w),
            O::ExchangeId(..)
            | O::CreateSession(..)
            | O::DestroySession(..)
            | O::DestroyClientId(..)
            | O::BindConnection(..)
            | O::BackchannelCtl(..)
            | O::ReclaimComplete(..)
            | O::FreeStateId(..)
            | O::TestStateId(..)
            | O::Sequence(..) => sessions::run(self, &operation, w),
            O::SetClientId(..)
            | O::SetClientIdConfirm(..)
            | O::Renew(..)
            | O::ReleaseLockOwner(..) => clients::run(self, &operation, w),
            O::DelegationReturn(state) => {
                recalls::give_back(self, state)?;
                plain(w, code, ())
            }
            // Delegations do not outlive their client's end (RFC 8881, section 18.5), and are of files alone. There are no named
            // attributes, or copies between servers.
            O::WantDelegation(..)
            | O::GetDirDelegation(..)
            | O::DelegationPurge(..)
            | O::OpenAttributeDirectory(..)
            | O::CopyNotify(..)
            | O::WriteSame(..) => Err(Status::NotSupp.into()),
        }
    }
}

/// What operations work with.
impl<'a> Compound<'a> {
    /// What the current file handle stands for.
    pub fn object(&self) -> Done<Object> {
        self.current.object.ok_or(Status::NoFileHandle.into())
    }

    /// The current object, which must be of the export. The pseudo file system takes no changes.
    pub fn real(&self) -> Done<ObjectId> {
        match self.object()? {
            Object::Real(object) => Ok(object),
            Object::Pseudo(_) => Err(Status::RoFs.into()),
        }
    }

    /// The saved object, which must be of the export.
    pub fn saved_real(&self) -> Done<ObjectId> {
        match self.saved.object {
            Some(Object::Real(object)) => Ok(object),
            Some(Object::Pseudo(_)) => Err(Status::XDev.into()),
            None => Err(Status::NoFileHandle.into()),
        }
    }

    /// Goes on with another object, without a stateid.
    pub fn set_current(&mut self, object: Object) {
        self.current = Place {
            object: Some(object),
            state: None,
        };
    }

    /// There is no current object any more (RFC 8881, section 2.6.3.1.1.8).
    pub fn drop_current(&mut self) {
        self.current = Place::default();
    }

    /// Gives the current object a stateid, and gives it back.
    pub fn set_state(&mut self, state: StateId) -> StateId {
        self.current.state = Some(state);
        state
    }

    /// The stateid that a client means.
    pub fn state(&self, given: StateId) -> Done<StateId> {
        if self.minor > 0 && given == StateId::CURRENT {
            return self.current.state.ok_or(Status::BadStateId.into());
        }
        Ok(given)
    }

    /// The same for the saved object, of which the client may mean the state that was saved with it.
    pub fn saved_state(&self, given: StateId) -> Done<StateId> {
        if self.minor > 0 && given == StateId::CURRENT {
            return self.saved.state.ok_or(Status::BadStateId.into());
        }
        Ok(given)
    }

    /// The operation may wait from here on.
    pub fn may_block(&self) -> Done<()> {
        match self.effort {
            Effort::ResidentOnly => Err(Stop::Blocks),
            Effort::MayBlock => Ok(()),
        }
    }

    fn object_of(&self, handle: &[u8]) -> Done<Object> {
        if let Some(directory) = self.server.tree.find(handle) {
            return Ok(directory);
        }
        match self.export.resolve(handle, self.effort) {
            Ok(object) => Ok(Object::Real(object)),
            // Who has it open can still close it, and return a delegation.
            Err(ReadFailed::Status(vfs::Status::Stale)) => {
                let object = self.export.named(handle)?;
                if self.server.state.lock().is_held(object) {
                    return Ok(Object::Real(object));
                }
                Err(Status::Stale.into())
            }
            Err(failed) => Err(failed.into()),
        }
    }

    /// What a client keeps to name an object.
    pub fn handle(&self, object: Object) -> Handle {
        match object {
            Object::Pseudo(depth) => Tree::handle(depth),
            Object::Real(object) => Handle::Real(self.export.handle(object)),
        }
    }

    /// Attributes of an object of the export, with whatever effort is allowed.
    pub fn attributes(&self, object: ObjectId) -> Done<Attributes> {
        let found = match self.effort {
            Effort::ResidentOnly => attributes_at_hand(self.export, object).ok_or(Stop::Blocks)?,
            Effort::MayBlock => attributes_of(self.export, object),
        };
        Ok(found?)
    }

    /// The live file that the current file handle stands for, which must be a regular one.
    pub fn file(&self) -> Done<Arc<File>> {
        self.file_of(self.object()?)
    }

    /// As [`Self::file`], of the saved file handle.
    pub fn saved_file(&self) -> Done<Arc<File>> {
        self.file_of(self.saved.object.ok_or(Status::NoFileHandle)?)
    }

    fn file_of(&self, object: Object) -> Done<Arc<File>> {
        let object = match object {
            Object::Real(object) => object,
            Object::Pseudo(_) => return Err(Status::IsDir.into()),
        };
        if let Some(file) = self.export.live(object) {
            return Ok(file);
        }
        self.may_block()?;
        match self.export.file(object) {
            Ok(file) => Ok(file),
            Err(vfs::Status::Inval) => Err(self.not_a_file(self.attributes(object)?.kind).into()),
            Err(error) => Err(error.into()),
        }
    }

    /// The payload of an operation, wherever it came. Only that of the first that has one may have come apart.
    pub fn payload<'p>(&mut self, decoded: &'p [u8]) -> Gather<'p>
    where
        'a: 'p,
    {
        self.apart.take().unwrap_or_else(|| decoded.into())
    }

    /// Bytes that a result may still take.
    pub fn room(&self, w: &ResultWriter<'_, '_>) -> usize {
        self.room.saturating_sub(w.bytes())
    }

    /// The attributes that the client may ask for or set.
    pub fn supported(&self) -> &odafs_common::wire::nfs4::Bitmap {
        &self.server.supported[self.minor as usize]
    }
}

/// Writes a successful result.
pub(super) fn plain(w: &mut ResultWriter<'_, '_>, code: OpCode, body: impl Encode) -> Written {
    w.push(code, &Ok::<_, Status>(body));
    Ok(Status::Ok)
}
