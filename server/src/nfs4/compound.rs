//! COMPOUND: what its operations share, and which function serves each. `run.rs` runs them one after the other.

use odafs_common::wire::nfs4::{OpCode, Operation, ResultWriter, StateId, Status};
use odafs_common::wire::xdr::Encode;
use odafs_fabric::clock::Nanos;
use odafs_fabric::memory::Gather;
use odafs_fabric::sync::Arc;
use odafs_nic::calls::{Back, Placements};

use super::object::{FileHandleBytes, Object, Tree};
use super::placing::Placing;
use super::state::{Io, Origin, Sender, State};
use super::{
    Nfs4, access, acting::Acting, clients, commit, copy, create, getattr, link, lock, lookup,
    offload, read, readdir, readlink, recalls, remove, rename, secinfo, sessions, setattr, space,
    verify, write, xattrs,
};
use crate::rpc::ApartPayloads;
use crate::vfs::advice::Pattern;
use crate::vfs::attributes::attributes_now;
use crate::vfs::export::Exports;
use crate::vfs::file::File;
use crate::vfs::read::{Effort, ReadFailed};
use crate::vfs::{self, Attributes, Credential, ObjectId};

/// Why an operation, or a part of it, ended without a result.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stop {
    /// It would block, which [`Effort::ResidentOnly`] does not allow. It has changed nothing.
    Blocks,
    /// It failed with this status, which is all of its result.
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

/// The object of the current or the saved file handle, with its stateid (RFC 8881, section 16.2.3.1.2).
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct CurrentObject {
    pub object: Option<Object>,
    /// Instead of `object`: a file in an export that the caller may no longer reach, on which the client still holds state. It
    /// may give that state back, and do nothing else.
    withdrawn: Option<ObjectId>,
    stateid: Option<StateId>,
}

impl CurrentObject {
    fn withdrawn(object: ObjectId) -> Self {
        Self {
            withdrawn: Some(object),
            ..Self::default()
        }
    }

    /// The object, or why there is none. A client that gets ACCESS for a withdrawn file gives its state back without looking at
    /// the file first.
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
    /// Calls the client over that connection.
    pub back: Option<Arc<dyn Back>>,
    /// The compound as callbacks refer to it, if it is one of a session.
    pub origin: Option<Origin>,
    pub now: Nanos,
    /// The client to which the stateids and owners in the arguments belong.
    pub sender: Sender,
    /// The client whose lease an operation has renewed (4.0).
    pub renewed: Option<u64>,
    /// The caller's memory for data that go there instead of into the reply.
    pub placements: Placements,
    /// The data that go there.
    pub placing: Placing,
    /// Whether a hint of what will be needed was taken.
    pub has_filled: bool,
    /// The payloads that came apart from the arguments.
    pub apart: ApartPayloads<'a>,
    /// Which of them is of this operation.
    pub came: Option<usize>,
    pub current: CurrentObject,
    pub saved: CurrentObject,
    /// The longest reply that the transport carries, in bytes from the compound's status on, without data that are placed.
    pub reply_max: usize,
    /// The longest reply in the session, counted as it would be over TCP (RFC 8881, section 18.36.3): with those data.
    pub session_reply_max: usize,
    /// The longest reply that the slot can keep, with those data, too, if the client asks it to keep the reply.
    pub kept_max: Option<usize>,
}

/// Running operations.
impl Compound<'_> {
    /// Runs one operation and writes its result, unless that is only the status of a failure. An operation that would block
    /// says so before it changes anything.
    pub(super) fn execute(
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
                        let held = named.and_then(|object| self.still_held(object));
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
                let handle = self.file_handle(self.object()?);
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
                self.acting.move_to(object.tag(self.export), &mut self.who);
                plain(w, code, ())
            }
            O::GetAttributes(arguments) => getattr::getattr(self, &arguments, w),
            O::Access(arguments) => plain(w, code, access::access(self, arguments)?),
            O::Lookup(name) => plain(w, code, lookup::lookup(self, name)?),
            O::LookupParent => plain(w, code, lookup::parent(self)?),
            O::Read(arguments) => read::read(self, &arguments, w),
            O::ReadPlus(arguments) => read::read_plus(self, &arguments, w),
            O::ReadDir(arguments) => readdir::readdir(self, &arguments, w),
            O::ReadLink => readlink::readlink(self, w),
            O::Verify(theirs) => plain(w, code, verify::verify(self, &theirs, true)?),
            O::VerifyNot(theirs) => plain(w, code, verify::verify(self, &theirs, false)?),
            O::Write(arguments) => plain(w, code, write::write(self, &arguments)?),
            O::Commit(_) => plain(w, code, commit::commit(self)?),
            O::SetAttributes(arguments) => {
                self.may_block()?;
                let result = setattr::setattr(self, &arguments);
                w.push(code, &result);
                Ok(result.status)
            }
            O::Create(arguments) => plain(w, code, create::create(self, &arguments)?),
            O::Link(name) => plain(w, code, link::link(self, name)?),
            O::Remove(name) => plain(w, code, remove::remove(self, name)?),
            O::Rename(arguments) => plain(w, code, rename::rename(self, &arguments)?),
            O::SecInfo(name) => plain(w, code, secinfo::secinfo(self, name)?),
            O::SecInfoNoName(style) => plain(w, code, secinfo::no_name(self, style)?),
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
            O::SetXattr(arguments) => plain(w, code, xattrs::set(self, &arguments)?),
            O::ListXattrs(arguments) => xattrs::list(self, &arguments, w),
            O::RemoveXattr(name) => plain(w, code, xattrs::remove(self, name)?),
            O::Allocate(arguments) => plain(w, code, space::allocate(self, &arguments)?),
            O::Deallocate(arguments) => plain(w, code, space::deallocate(self, &arguments)?),
            O::Seek(arguments) => plain(w, code, space::seek(self, &arguments)?),
            O::IoAdvise(arguments) => plain(w, code, space::advise(self, &arguments)?),
            O::Copy(arguments) => plain(w, code, copy::copy(self, &arguments)?),
            O::Clone(arguments) => plain(w, code, copy::clone(self, &arguments)?),
            O::OffloadCancel(given) => plain(w, code, offload::cancel(self, given)?),
            O::OffloadStatus(given) => plain(w, code, offload::status(self, given)?),
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
            O::DelegationReturn(given) => {
                self.may_block()?;
                plain(w, code, recalls::delegation_return(self, given)?)
            }
            // Delegations end with their client (RFC 8881, section 18.5), and are of files only. The server has no named
            // attributes, and copies nothing to or from other servers.
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

    /// The current object, for an operation that only gives state back. It may be withdrawn.
    pub fn held(&self) -> Done<ObjectId> {
        self.current.withdrawn.map_or_else(|| self.real(), Ok)
    }

    /// What becomes the current object of an object that the caller may not reach: nothing, unless the client holds state on it.
    pub fn still_held(&self, object: ObjectId) -> Option<CurrentObject> {
        let state = self.server.state.lock();
        let held = state.is_held_by(self.sender, object);
        held.then(|| CurrentObject::withdrawn(object))
    }

    /// The current object, which must be in the export. ROFS for the pseudo file system.
    pub fn real(&self) -> Done<ObjectId> {
        match self.object()? {
            Object::Real(object) => Ok(object),
            Object::Pseudo(_) => Err(Status::RoFs.into()),
        }
    }

    /// The saved object, which must be in the export. XDEV for the pseudo file system.
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
        self.acting.move_to(object.tag(self.export), &mut self.who);
    }

    /// Leaves the compound without a current object (RFC 8881, section 2.6.3.1.1.8).
    pub fn drop_current(&mut self) {
        self.current = CurrentObject::default();
    }

    /// Sets the stateid of the current object, and returns it.
    pub fn set_stateid(&mut self, stateid: StateId) -> StateId {
        self.current.stateid = Some(stateid);
        stateid
    }

    /// The stateid that a client gives. The special one for the current stateid is replaced by that.
    pub fn stateid(&self, given: StateId) -> Done<StateId> {
        self.stateid_of(&self.current, given)
    }

    /// As [`Self::stateid`], with the stateid that was saved with the saved object.
    pub fn saved_stateid(&self, given: StateId) -> Done<StateId> {
        self.stateid_of(&self.saved, given)
    }

    fn stateid_of(&self, object: &CurrentObject, given: StateId) -> Done<StateId> {
        if self.minor > 0 && given == StateId::CURRENT {
            return object.stateid.ok_or(Status::BadStateId.into());
        }
        Ok(given)
    }

    /// From here on the operation may wait, or bring something to stable storage. It asks before it changes anything.
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
            // A file that is gone can still be closed, and its delegation returned.
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
    pub fn file_handle(&self, object: Object) -> FileHandleBytes {
        match object {
            Object::Pseudo(depth) => Tree::file_handle(depth),
            Object::Real(object) => FileHandleBytes::Real(self.export.handle(object)),
        }
    }

    /// The attributes of an object in the export.
    pub fn attributes(&self, object: ObjectId) -> Done<Attributes> {
        Ok(attributes_now(self.export, object, self.effort)?)
    }

    /// The current object as a live file. It must be a regular file.
    pub fn file(&self) -> Done<Arc<File>> {
        self.file_of(self.object()?)
    }

    /// As [`Self::file`], if the stateid that the client gives allows to read or write it.
    pub fn file_for(&self, given: StateId, io: Io) -> Done<Arc<File>> {
        let file = self.file()?;
        self.check_io(&self.stateid(given)?, file.object(), io)?;
        Ok(file)
    }

    /// As [`Self::file_for`] reading, and the order in which the client reads it.
    pub fn file_to_read(&self, given: StateId) -> Done<(Arc<File>, Pattern)> {
        let file = self.file()?;
        let pattern = self.check_io(&self.stateid(given)?, file.object(), Io::Read)?;
        Ok((file, pattern))
    }

    /// Refuses to read or write a file if the stateid does not allow it. Returns in which order the owner of the open reads.
    pub fn check_io(&self, stateid: &StateId, file: ObjectId, io: Io) -> Done<Pattern> {
        self.keeping(|state| state.io(self.now, self.sender, stateid, file, io))
    }

    /// Changes the state, once stable storage has what it must know first. Until it does, the operation would block.
    pub fn keeping<T>(&self, mut act: impl FnMut(&mut State) -> Result<T, Status>) -> Done<T> {
        match self.effort {
            Effort::MayBlock => Ok(self.server.messenger.keeping(act)?),
            Effort::ResidentOnly => {
                let mut state = self.server.state.lock();
                state.begin();
                let result = act(&mut state);
                match result.is_err() && state.is_held_up() {
                    true => Err(Stop::Blocks),
                    false => Ok(result?),
                }
            }
        }
    }

    /// As [`Self::file`], of the saved object. XDEV if the caller acts with another credential there.
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

    /// The payload of the operation: `decoded`, or what came apart from the message.
    pub fn payload<'p>(&self, decoded: &'p [u8]) -> Gather<'p>
    where
        'a: 'p,
    {
        let apart = self.came.and_then(|number| self.apart.get(number));
        apart.unwrap_or_else(|| decoded.into())
    }

    /// How many bytes of the operation's data can go to the caller's memory. `None`: they go into the reply.
    pub fn placement(&self) -> Option<u32> {
        self.placing.room(&self.placements)
    }

    /// Bytes of the reply so far, with data that are placed.
    pub fn reply_bytes(&self, w: &ResultWriter<'_, '_>) -> usize {
        w.bytes() + self.placing.bytes()
    }

    /// How many bytes of the reply are left for results with their data.
    pub fn room(&self, w: &ResultWriter<'_, '_>) -> usize {
        let left = self.reply_max.saturating_sub(w.bytes());
        left.min(self.session_room(w))
    }

    /// How many bytes of the session's longest reply are left for results and data, wherever these go.
    pub fn session_room(&self, w: &ResultWriter<'_, '_>) -> usize {
        self.session_reply_max.saturating_sub(self.reply_bytes(w))
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
