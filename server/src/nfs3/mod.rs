//! NFS version 3 (RFC 1813), with a file for each procedure.
//!
//! Each procedure is a step. It decodes its arguments and writes its result, which may be a refusal. With
//! [`Effort::ResidentOnly`] it returns [`Answer::Blocks`] if it would have to wait.

mod about;
mod access;
mod commit;
mod convert;
mod create;
mod fsinfo;
mod fsstat;
mod getattr;
mod link;
mod lookup;
mod made;
mod mkdir;
mod mknod;
mod pathconf;
mod read;
mod readdir;
mod readdirplus;
mod readlink;
mod remove;
mod rename;
mod rmdir;
mod setattr;
mod symlink;
#[cfg(test)]
mod tests;
mod write;

use std::ops::Range;

use odafs_common::rpcrdma::binding;
use odafs_common::wire::nfs3::{
    Attributes, DirectoryName, Failed, FileHandle, LinkArgs, PROGRAM, Payload, Procedure, Stable,
    Status, VERSION, WccData,
};
use odafs_common::wire::xdr::{Decode, Encode, Reader, Writer};
use odafs_fabric::memory::Gather;
use odafs_fabric::sync::Arc;

use crate::rpc::access::Rights;
use crate::rpc::drc::Repeats;
use crate::rpc::{Admission, Answer, Call, Program};
use crate::vfs::attributes::{attributes, attributes_now, attributes_of_handle};
use crate::vfs::export::Exports;
use crate::vfs::file::File;
use crate::vfs::read::{Effort, ReadFailed};
use crate::vfs::{self, Credential, HandleBytes, ObjectId, one_call};

/// The most data of one READ or WRITE, in bytes.
pub const DATA_BYTES_MAX: u32 = 1 << 20;
/// Bytes reserved in a READ or READDIR reply for what is neither data nor entries.
const REPLY_OVERHEAD_BYTES: u32 = 512;

/// NFS version 3 of one export.
pub struct Nfs3(Arc<Exports>);

impl Nfs3 {
    /// Serves `export`.
    pub fn new(export: Arc<Exports>) -> Self {
        Self(export)
    }

    /// Whether a write to the file that the arguments begin with may have to sync. So it is of a file that was not seen
    /// lately.
    fn wants_sync(&self, arguments: &mut Reader<'_>) -> bool {
        let handle = FileHandle::decode(arguments);
        let object = handle.map(|handle| self.0.resolve(handle.0, Effort::ResidentOnly));
        !matches!(object, Ok(Ok(object)) if !self.0.wants_sync(object))
    }

    /// The tag of the export of a call's first file handle, with which the arguments of all procedures begin.
    fn tag(&self, mut arguments: Reader<'_>) -> Option<u16> {
        let handle = FileHandle::decode(&mut arguments).ok()?;
        Some(self.0.tag_of_handle(handle.0))
    }
}

/// What the procedures need of a call and of the server.
struct Context<'a> {
    export: &'a Exports,
    /// The credential in the export of the first file handle.
    who: Credential,
    rights: Rights<'a>,
    effort: Effort,
    /// The most bytes of data or entries that fit in a reply.
    room: u32,
    /// The most bytes of data that may travel ahead of the reply. `None` if the call has no placement.
    placement: Option<u32>,
    /// The payload of the arguments, if it came apart from the message.
    apart: Option<Gather<'a>>,
}

/// The procedure would have to wait.
struct Blocks;

type Tried = Result<(), Blocks>;

/// What was found or refused, unless that takes waiting.
fn answer<T>(found: Result<T, ReadFailed>) -> Result<Result<T, Status>, Blocks> {
    match found {
        Err(ReadFailed::NotResident) => Err(Blocks),
        found => Ok(found.map_err(Status::from)),
    }
}

/// A step of a procedure whose data may travel apart from the reply.
type PlacingStep = Result<Answer, Blocks>;

impl Program for Nfs3 {
    fn number(&self) -> u32 {
        PROGRAM
    }

    fn version(&self) -> u32 {
        VERSION
    }

    fn name(&self) -> &'static str {
        "nfs3"
    }

    fn procedures(&self) -> &'static [&'static str] {
        &about::PROCEDURES
    }

    fn statuses(&self, procedure: u32) -> Vec<(u32, String)> {
        about::statuses(procedure)
    }

    fn about(&self, procedure: u32, arguments: Reader<'_>) -> Option<String> {
        about::about(&self.0, procedure, arguments)
    }

    fn admission(&self, _procedure: u32) -> Admission {
        Admission::Listed
    }

    fn repeats<'a>(&self, procedure: u32, mut arguments: Reader<'a>) -> Repeats<'a> {
        use Procedure as P;
        let mut name = || {
            let place = DirectoryName::decode(&mut arguments).ok()?;
            Some((place.directory.0, place.name))
        };
        let names = match P::from_code(procedure) {
            Some(P::Write) => return Repeats::Write,
            Some(P::SetAttributes) => [None; 2],
            // The arguments of these begin with the name.
            Some(
                P::Create
                | P::MakeDirectory
                | P::Symlink
                | P::MakeNode
                | P::Remove
                | P::RemoveDirectory,
            ) => [name(), None],
            Some(P::Rename) => [name(), name()],
            Some(P::Link) => {
                let link = LinkArgs::decode(&mut arguments);
                let place = link.ok().map(|link| link.place);
                [place.map(|place| (place.directory.0, place.name)), None]
            }
            _ => return Repeats::Harmless,
        };
        Repeats::Change { names }
    }

    fn may_sync(&self, procedure: u32, mut arguments: Reader<'_>) -> bool {
        match Procedure::from_code(procedure) {
            Some(Procedure::Commit) => true,
            Some(Procedure::Write) => {
                let stable = write::stable(&mut arguments.clone());
                stable.is_ok_and(|stable| stable != Stable::Unstable)
                    || self.wants_sync(&mut arguments)
            }
            _ => self.repeats(procedure, arguments) != Repeats::Harmless,
        }
    }

    fn payload(&self, procedure: u32, arguments: Reader<'_>) -> Option<Range<usize>> {
        let procedure = Procedure::from_code(procedure)?;
        let (start, length) = binding::nfs3_argument(procedure, arguments)?;
        Some(start..start + length)
    }

    fn call(&self, call: Call<'_>, results: &mut Writer<'_>) -> Answer {
        let _one = one_call();
        let Some(procedure) = Procedure::from_code(call.procedure) else {
            return Answer::NoProcedure;
        };
        let acting = call
            .rights
            .acting(&call.who, || self.tag(call.arguments.clone()));
        let who = acting.unwrap_or(call.who);
        let context = Context {
            export: &self.0,
            who,
            rights: call.rights,
            effort: call.effort,
            room: call
                .caller
                .reply_bytes_max
                .saturating_sub(REPLY_OVERHEAD_BYTES)
                .min(DATA_BYTES_MAX),
            placement: call.caller.placements.first(),
            apart: call.apart.get(0),
        };
        let mut arguments = call.arguments;
        macro_rules! step {
            ($procedure:path) => {
                match Decode::decode(&mut arguments) {
                    Ok(arguments) => $procedure(&context, arguments, results),
                    Err(error) => return Answer::Garbage(error),
                }
            };
        }
        let step = match procedure {
            Procedure::Read => return step!(read::read).unwrap_or(Answer::Blocks),
            Procedure::Null => return Answer::NoProcedure,
            Procedure::GetAttributes => step!(getattr::getattr),
            Procedure::SetAttributes => step!(setattr::setattr),
            Procedure::Lookup => step!(lookup::lookup),
            Procedure::Access => step!(access::access),
            Procedure::ReadLink => step!(readlink::readlink),
            Procedure::Write => step!(write::write),
            Procedure::Create => step!(create::create),
            Procedure::MakeDirectory => step!(mkdir::mkdir),
            Procedure::Symlink => step!(symlink::symlink),
            Procedure::MakeNode => step!(mknod::mknod),
            Procedure::Remove => step!(remove::remove),
            Procedure::RemoveDirectory => step!(rmdir::rmdir),
            Procedure::Rename => step!(rename::rename),
            Procedure::Link => step!(link::link),
            Procedure::ReadDir => step!(readdir::readdir),
            Procedure::ReadDirPlus => step!(readdirplus::readdirplus),
            Procedure::FsStat => step!(fsstat::fsstat),
            Procedure::FsInfo => step!(fsinfo::fsinfo),
            Procedure::PathConf => step!(pathconf::pathconf),
            Procedure::Commit => step!(commit::commit),
        };
        match step {
            Ok(()) => Answer::Replied,
            Err(Blocks) => Answer::Blocks,
        }
    }
}

impl<'a> Context<'a> {
    /// Stops the procedure here if it may not wait.
    fn may_block(&self) -> Tried {
        match self.effort {
            Effort::ResidentOnly => Err(Blocks),
            Effort::MayBlock => Ok(()),
        }
    }

    /// Refuses a handle of an export that the caller may not reach.
    fn check(&self, handle: FileHandle<'_>) -> Result<(), vfs::Status> {
        self.rights.check(self.export.tag_of_handle(handle.0))
    }

    /// The object of a file handle. For procedures that may block.
    fn object(&self, handle: FileHandle<'_>) -> Result<ObjectId, Status> {
        self.check(handle)?;
        self.export
            .resolve(handle.0, Effort::MayBlock)
            .map_err(Status::from)
    }

    /// The live file of a handle, with whatever effort is allowed.
    fn file(&self, handle: FileHandle<'_>) -> Result<Arc<File>, ReadFailed> {
        self.check(handle)?;
        self.export.file_of_handle(handle.0, self.effort)
    }

    /// The object of a file handle, with whatever effort is allowed.
    fn object_now(&self, handle: FileHandle<'_>) -> Result<Result<ObjectId, Status>, Blocks> {
        if let Err(status) = self.check(handle) {
            return Ok(Err(status.into()));
        }
        answer(self.export.resolve(handle.0, self.effort))
    }

    /// Attributes, with whatever effort is allowed.
    fn attributes_now(&self, object: ObjectId) -> Result<Result<Attributes, Status>, Blocks> {
        let found = answer(attributes_now(self.export, object, self.effort))?;
        Ok(found.map(Attributes::from))
    }

    /// Writes the result of a procedure about the file system in which an object lies: what `result` makes of the answer of
    /// `ask` and of the object's attributes.
    fn about_file_system<T, R: Encode>(
        &self,
        handle: FileHandle<'_>,
        w: &mut Writer<'_>,
        ask: impl FnOnce(&Exports, ObjectId, Effort) -> Result<T, ReadFailed>,
        result: impl FnOnce(T, Option<Attributes>) -> R,
    ) -> Tried {
        let (told, attributes) = match self.object_now(handle)? {
            Ok(object) => (
                answer(ask(self.export, object, self.effort))?,
                self.attributes_now(object)?.ok(),
            ),
            Err(status) => (Err(status), None),
        };
        let result = match told {
            Ok(told) => Ok(result(told, attributes)),
            Err(status) => Err(Failed {
                status,
                rest: attributes,
            }),
        };
        result.encode(w);
        Ok(())
    }

    /// The payload of the arguments, in the message or apart from it.
    fn payload<'p>(&self, decoded: Payload<'p>) -> Gather<'p>
    where
        'a: 'p,
    {
        match &self.apart {
            Some(apart) => apart.clone(),
            None => decoded.0.into(),
        }
    }

    /// Attributes for a reply in which they are optional.
    fn attributes(&self, object: ObjectId) -> Option<Attributes> {
        attributes(self.export, object).ok().map(Into::into)
    }

    /// The weak cache consistency data of a write that is refused.
    fn nothing_written(&self, handle: FileHandle<'_>) -> WccData {
        WccData {
            before: None,
            after: self.attributes_of(handle),
        }
    }

    /// Attributes of a file handle's object, for a reply in which they are optional.
    fn attributes_of(&self, handle: FileHandle<'_>) -> Option<Attributes> {
        self.check(handle).ok()?;
        attributes_of_handle(self.export, handle.0, self.effort).map(Into::into)
    }

    fn handle(&self, object: ObjectId) -> HandleBytes {
        self.export.handle(object)
    }
}
