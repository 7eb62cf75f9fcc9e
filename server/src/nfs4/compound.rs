//! COMPOUND: what its operations work with, and which file serves each. `run.rs` runs them one after the other.

use odafs_common::wire::nfs4::{OpCode, Operation, ResultWriter, SessionId, StateId, Status};
use odafs_common::wire::xdr::Encode;
use odafs_fabric::clock::Nanos;
use odafs_fabric::memory::Gather;
use odafs_fabric::sync::Arc;
use odafs_nic::calls::{Back, Placed};

use super::object::{Handle, Object, Tree};
use super::state::{Origin, Sender};
use super::{
    Nfs4, access, acting::Acting, clients, commit, create, getattr, link, lock, lookup, read,
    readdir, readlink, recalls, remove, rename, secinfo, sessions, setattr, space, verify, write,
    xattrs,
};
use crate::vfs::attributes::{attributes as attributes_of, attributes_at_hand};
use crate::vfs::export::Exports;
use crate::vfs::file::File;
use crate::vfs::read::{Effort, ReadFailed};
use crate::vfs::{self, Attributes, Credential, ObjectId};

/// Why an operation has no result of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stop {
    /// It would have to wait, and [`Effort::ResidentOnly`] is all that it may do. It has changed nothing.
    Blocks,
    /// It failed with this status and says nothing more.
    Status(Status),
}

impl From<Status> for Stop {
    fn from(status: Status) -> Self {
        Self::Status(status)
    }
}

/// The result of a part of an operation.
pub(super) type Done<T> = Result<T, Stop>;
/// The status of an operation whose result has been written.
pub(super) type Written = Done<Status>;

/// The object of the current or of the saved file handle, and the stateid that goes with it (RFC 8881, section
/// 16.2.3.1.2).
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct CurrentObject {
    pub object: Option<Object>,
    /// Instead of `object`: a file in an export that the rules took from the client, which holds something of it still. What it
    /// holds it may give back, and nothing else.
    withdrawn: Option<ObjectId>,
    state: Option<StateId>,
}

impl CurrentObject {
    fn withdrawn(object: ObjectId) -> Self {
        Self {
            withdrawn: Some(object),
            ..Self::default()
        }
    }

    /// The object, or why there is none to work with. Who is refused access tries again to give back without looking first.
    fn get(&self) -> Done<Object> {
        let missing = match self.withdrawn {
            Some(_) => Status::Access,
            None => Status::NoFileHandle,
        };
        self.object.ok_or(missing.into())
    }
}

/// A compound under way.
pub(super) struct Compound<'a> {
    pub server: &'a Arc<Nfs4>,
    pub export: &'a Exports,
    pub who: Credential,
    pub acting: Acting<'a>,
    pub effort: Effort,
    pub minor: u32,
    pub connection: u64,
    /// The way to call the client over that connection.
    pub back: Option<Arc<dyn Back>>,
    /// The session of the compound.
    pub session: Option<SessionId>,
    /// The name of the compound in callbacks.
    pub origin: Option<Origin>,
    pub now: Nanos,
    /// The client whose stateids and owners are meant.
    pub sender: Sender,
    /// The client whose lease an operation has renewed (4.0).
    pub renewed: Option<u64>,
    /// Bytes of data that may go ahead of the reply instead of into it.
    pub placement: Option<u32>,
    /// The data that do.
    pub placed: Option<Placed>,
    /// The payload that came apart from the arguments, until it is used.
    pub apart: Option<Gather<'a>>,
    pub current: CurrentObject,
    pub saved: CurrentObject,
    /// The longest reply, in bytes from the status of the compound on.
    pub room: usize,
    /// The longest reply that the slot can keep, if it is to keep it, counted in the same way.
    pub kept: Option<usize>,
}

/// Running operations.
impl Compound<'_> {
    /// Runs one operation and writes its result, unless that is only the status of a failure. An operation that would block
    /// says so before it changes anything.
    pub(super) fn one(
        &mut self,
        operation: Operation<'_>,
        w: &mut ResultWriter<'_, '_>,
    ) -> Written {
        use Operation as O;
        let code = operation.code();
        self.has_room_for_change(&operation, w)?;
        match operation {
            O::PutFileHandle(handle) => {
                match self.acting.check(self.export.tag_of_handle(handle.0)) {
                    Ok(()) => {
                        let object = self.object_of(handle.0)?;
                        self.set_current(object);
                    }
                    Err(refused) => {
                        let named = self.export.named(handle.0).ok();
                        let held = named.and_then(|object| self.held_still(object));
                        self.current = held.ok_or(refused)?;
                    }
                }
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
                let Some(object) = self.saved.object else {
                    // RFC 8881 no longer has a status of its own for this (section 18.27).
                    let missing = [Status::RestoreFh, Status::NoFileHandle];
                    return Err(missing[usize::from(self.minor > 0)].into());
                };
                self.current = self.saved;
                self.acting.go(object.tag(self.export), &mut self.who);
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
                self.may_block()?;
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
            | O::Unlock(..) => {
                self.may_block()?;
                self.in_turn(&operation, w)
            }
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
            | O::IoAdvise(..) => {
                self.may_block()?;
                space::run(self, &operation, w)
            }
            O::TestStateId(..) | O::Sequence(..) => sessions::run(self, &operation, w),
            O::Renew(..) => clients::run(self, &operation, w),
            // The server may have to bring the change to stable storage.
            O::ExchangeId(..)
            | O::CreateSession(..)
            | O::DestroySession(..)
            | O::DestroyClientId(..)
            | O::BindConnection(..)
            | O::BackchannelCtl(..)
            | O::ReclaimComplete(..)
            | O::FreeStateId(..) => {
                self.may_block()?;
                sessions::run(self, &operation, w)
            }
            O::SetClientId(..) | O::SetClientIdConfirm(..) | O::ReleaseLockOwner(..) => {
                self.may_block()?;
                clients::run(self, &operation, w)
            }
            O::DelegationReturn(state) => {
                self.may_block()?;
                recalls::give_back(self, state)?;
                plain(w, code, ())
            }
            // A delegation ends with its client (RFC 8881, section 18.5), and only files have them. There are no named attributes,
            // and no copies between servers.
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
    /// The object of the current file handle.
    pub fn object(&self) -> Done<Object> {
        self.current.get()
    }

    /// The current object, for an operation that only gives back what the client holds of it.
    pub fn held(&self) -> Done<ObjectId> {
        self.withdrawn().map_or_else(|| self.real(), Ok)
    }

    /// The current object, if all that the client may do there is to give back what it holds.
    pub fn withdrawn(&self) -> Option<ObjectId> {
        self.current.withdrawn
    }

    /// What becomes current of an object in an export that the caller may not reach: something only if the client may hold it.
    pub fn held_still(&self, object: ObjectId) -> Option<CurrentObject> {
        let state = self.server.state.lock();
        let held = state.is_held_by(self.sender, object);
        held.then(|| CurrentObject::withdrawn(object))
    }

    /// The current object, which must be in the export. The pseudo file system takes no changes.
    pub fn real(&self) -> Done<ObjectId> {
        match self.object()? {
            Object::Real(object) => Ok(object),
            Object::Pseudo(_) => Err(Status::RoFs.into()),
        }
    }

    /// The saved object, which must be in the export.
    pub fn saved_real(&self) -> Done<ObjectId> {
        match self.saved.get()? {
            Object::Real(object) => Ok(object),
            Object::Pseudo(_) => Err(Status::XDev.into()),
        }
    }

    /// Makes another object the current one, without a stateid.
    pub fn set_current(&mut self, object: Object) {
        self.current = CurrentObject {
            object: Some(object),
            ..CurrentObject::default()
        };
        self.acting.go(object.tag(self.export), &mut self.who);
    }

    /// Leaves the compound without a current object (RFC 8881, section 2.6.3.1.1.8).
    pub fn drop_current(&mut self) {
        self.current = CurrentObject::default();
    }

    /// Sets the stateid of the current object, and returns it.
    pub fn set_state(&mut self, state: StateId) -> StateId {
        self.current.state = Some(state);
        state
    }

    /// The stateid that a client means: the current one has a name of its own.
    pub fn state(&self, given: StateId) -> Done<StateId> {
        if self.minor > 0 && given == StateId::CURRENT {
            return self.current.state.ok_or(Status::BadStateId.into());
        }
        Ok(given)
    }

    /// The same for the saved object: the client may mean the stateid that was saved with it.
    pub fn saved_state(&self, given: StateId) -> Done<StateId> {
        if self.minor > 0 && given == StateId::CURRENT {
            return self.saved.state.ok_or(Status::BadStateId.into());
        }
        Ok(given)
    }

    /// The operation may wait, or bring something to stable storage, from here on. It asks before it changes anything.
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
            // A client that has it open can still close it and return its delegation.
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

    /// The file handle of an object.
    pub fn handle(&self, object: Object) -> Handle {
        match object {
            Object::Pseudo(depth) => Tree::handle(depth),
            Object::Real(object) => Handle::Real(self.export.handle(object)),
        }
    }

    /// Attributes of an object in the export, with the effort that is allowed.
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

    /// As [`Self::file`], of the saved file handle. XDEV if the caller acts as someone else there.
    pub fn saved_file(&self) -> Done<Arc<File>> {
        let object = self.saved.get()?;
        self.acting.check_same(object.tag(self.export), &self.who)?;
        self.file_of(object)
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

    /// The payload of an operation, wherever it is. Only the first payload of a compound may have come apart.
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
