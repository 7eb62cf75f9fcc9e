//! NFS version 2 (RFC 1094): a file for each procedure.
//!
//! Each procedure decodes its arguments and returns its result, or the reason why it has none. A refusal is the status alone,
//! in every procedure. A procedure that would have to wait, and may not ([`Effort::ResidentOnly`]), returns `Failed::Later`.

mod about;
mod convert;
mod cookies;
mod create;
mod getattr;
mod link;
mod lookup;
mod mkdir;
mod object;
mod read;
mod readdir;
mod readlink;
mod remove;
mod rename;
mod rmdir;
mod setattr;
mod statfs;
mod symlink;
#[cfg(test)]
mod tests;
mod write;

use std::ops::Range;

use odafs_common::rpcrdma::binding;
use odafs_common::wire::nfs2::{
    Attributes, DirectoryName, FileHandle, LinkArgs, MAX_DATA, PROGRAM, Payload, Procedure, Status,
    VERSION,
};
use odafs_common::wire::xdr::{Decode, Encode, Reader, Writer};
use odafs_fabric::memory::Gather;
use odafs_fabric::sync::Arc;

use crate::rpc::access::Rights;
use crate::rpc::drc::Repeats;
use crate::rpc::{Admission, Answer, Call, Program};
use crate::vfs::attributes::attributes_now;
use crate::vfs::export::Exports;
use crate::vfs::file::File;
use crate::vfs::read::{Effort, ReadFailed};
use crate::vfs::{self, Credential, HandleBytes, ObjectId, StoreError, one_call};

/// What is in a READ or READDIR reply besides data or entries, in bytes, and something to spare.
const REPLY_OVERHEAD_BYTES: u32 = 512;

/// NFS version 2 of one export.
pub struct Nfs2(Arc<Exports>);

impl Nfs2 {
    /// For `export`.
    pub fn new(export: Arc<Exports>) -> Self {
        Self(export)
    }

    /// The tag of the export of a call's first file handle, with which the arguments of all procedures begin.
    fn tag(&self, mut arguments: Reader<'_>) -> Option<u16> {
        let handle = FileHandle::decode(&mut arguments).ok()?;
        let handle = self.0.handle_of_short(handle.0).ok()?;
        Some(self.0.tag_of_handle(&handle))
    }
}

/// What a procedure works with.
struct Context<'a> {
    export: &'a Exports,
    /// The credential in the export of the first file handle.
    who: Credential,
    rights: Rights<'a>,
    effort: Effort,
    /// The most bytes of data or entries that fit a reply.
    room: u32,
    /// Bytes of data that may go ahead of it instead.
    placement: Option<u32>,
    /// The payload of the arguments, if it came apart from them.
    apart: Option<Gather<'a>>,
}

/// Why a procedure has no result.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Failed {
    /// The status for the client.
    Status(Status),
    /// The procedure would have to wait, or to wait longer. No status says so. A call that was allowed to wait gets no reply,
    /// and its client asks again.
    Later,
}

impl From<Status> for Failed {
    fn from(status: Status) -> Self {
        Self::Status(status)
    }
}

impl From<StoreError> for Failed {
    fn from(error: StoreError) -> Self {
        error.status.into()
    }
}

impl From<ReadFailed> for Failed {
    fn from(failed: ReadFailed) -> Self {
        match failed {
            ReadFailed::Status(status) => status.into(),
            ReadFailed::NotResident => Self::Later,
        }
    }
}

type Done<T> = Result<T, Failed>;

impl Program for Nfs2 {
    fn number(&self) -> u32 {
        PROGRAM
    }

    fn version(&self) -> u32 {
        VERSION
    }

    fn name(&self) -> &'static str {
        "nfs2"
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
        fn name<'a>(place: DirectoryName<'a>) -> (&'a [u8], &'a [u8]) {
            (place.directory.0, place.name)
        }
        let mut first = || DirectoryName::decode(&mut arguments).ok().map(name);
        let names = match P::from_code(procedure) {
            Some(P::Write) => return Repeats::Write,
            Some(P::SetAttributes) => [None; 2],
            // These begin with the name.
            Some(P::Create | P::MakeDirectory | P::Symlink | P::Remove | P::RemoveDirectory) => {
                [first(), None]
            }
            Some(P::Rename) => [first(), first()],
            Some(P::Link) => {
                let link = LinkArgs::decode(&mut arguments).ok();
                [link.map(|link| name(link.place)), None]
            }
            _ => return Repeats::Harmless,
        };
        Repeats::Change { names }
    }

    /// Every change is on stable storage before its reply, data too.
    fn may_sync(&self, procedure: u32, arguments: Reader<'_>) -> bool {
        self.repeats(procedure, arguments) != Repeats::Harmless
    }

    fn payload(&self, procedure: u32, arguments: Reader<'_>) -> Option<Range<usize>> {
        let procedure = Procedure::from_code(procedure)?;
        let (start, length) = binding::nfs2_argument(procedure, arguments)?;
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
                .min(MAX_DATA),
            placement: call.caller.placements.first(),
            apart: call.apart.get(0),
        };
        let mut arguments = call.arguments;
        macro_rules! step {
            ($procedure:path) => {
                match Decode::decode(&mut arguments) {
                    Ok(arguments) => reply($procedure(&context, arguments), results),
                    Err(error) => Answer::Garbage(error),
                }
            };
        }
        match procedure {
            Procedure::Null => Answer::NoProcedure,
            // Obsolete and reserved: they do nothing, and say nothing.
            Procedure::Root | Procedure::WriteCache => Answer::Replied,
            Procedure::GetAttributes => step!(getattr::getattr),
            Procedure::SetAttributes => step!(setattr::setattr),
            Procedure::Lookup => step!(lookup::lookup),
            Procedure::ReadLink => step!(readlink::readlink),
            // READ writes its result in place.
            Procedure::Read => match Decode::decode(&mut arguments) {
                Ok(arguments) => read::read(&context, arguments, results)
                    .unwrap_or_else(|failed| reply(Done::<()>::Err(failed), results)),
                Err(error) => Answer::Garbage(error),
            },
            Procedure::Write => step!(write::write),
            Procedure::Create => step!(create::create),
            Procedure::Remove => step!(remove::remove),
            Procedure::Rename => step!(rename::rename),
            Procedure::Link => step!(link::link),
            Procedure::Symlink => step!(symlink::symlink),
            Procedure::MakeDirectory => step!(mkdir::mkdir),
            Procedure::RemoveDirectory => step!(rmdir::rmdir),
            Procedure::ReadDir => step!(readdir::readdir),
            Procedure::StatFs => step!(statfs::statfs),
        }
    }
}

/// Writes the result of a procedure, if it has one.
fn reply(done: Done<impl Encode>, results: &mut Writer<'_>) -> Answer {
    let result = match done {
        Ok(done) => Ok(done),
        Err(Failed::Status(status)) => Err(status),
        Err(Failed::Later) => return Answer::Blocks,
    };
    result.encode(results);
    Answer::Replied
}

impl<'a> Context<'a> {
    /// Goes on only if the procedure may wait.
    fn may_block(&self) -> Done<()> {
        match self.effort {
            Effort::ResidentOnly => Err(Failed::Later),
            Effort::MayBlock => Ok(()),
        }
    }

    /// The handle that other versions have for the same object, if the caller may reach its export.
    fn handle(&self, handle: FileHandle<'_>) -> Done<HandleBytes> {
        let handle = self.export.handle_of_short(handle.0)?;
        self.rights.check(self.export.tag_of_handle(&handle))?;
        Ok(handle)
    }

    /// What a handle stands for, with whatever effort is allowed.
    fn object(&self, handle: FileHandle<'_>) -> Done<ObjectId> {
        let handle = self.handle(handle)?;
        Ok(self.export.resolve(&handle, self.effort)?)
    }

    /// The regular file that a handle stands for, with whatever effort is allowed.
    fn file(&self, handle: FileHandle<'_>) -> Done<Arc<File>> {
        let handle = self.handle(handle)?;
        Ok(self.export.file_of_handle(&handle, self.effort)?)
    }

    /// Attributes, with whatever effort is allowed.
    fn attributes(&self, object: ObjectId) -> Done<Attributes> {
        Ok(attributes_now(self.export, object, self.effort)?.into())
    }

    /// Attributes after a change that may have brought them.
    fn attributes_after(
        &self,
        after: Option<vfs::Attributes>,
        object: ObjectId,
    ) -> Done<Attributes> {
        after.map_or_else(|| self.attributes(object), |after| Ok(after.into()))
    }

    /// The payload of the arguments, wherever it came.
    fn payload<'p>(&self, decoded: Payload<'p>) -> Gather<'p>
    where
        'a: 'p,
    {
        match &self.apart {
            Some(apart) => apart.clone(),
            None => decoded.0.into(),
        }
    }
}
