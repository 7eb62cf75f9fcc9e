//! COPY and CLONE (RFC 7862, sections 15.2 and 15.13), from the saved to the current file of this server. There is no
//! COPY_NOTIFY: no other server copies from here.
//!
//! A long COPY goes on after its reply ([`super::offload`]). A COPY is over with its reply if it is short, if the client asks for
//! that, or if the client does not receive callbacks of minor version 2. Such a COPY may copy only the beginning, and the client
//! asks for the rest.

use odafs_common::wire::nfs4::{
    AtMostOne, CloneArgs, CopyArgs, CopyOk, CopyRequirements, Stable, StateId, Status,
    WriteResponse,
};
use odafs_fabric::sync::Arc;

use super::compound::{Compound, Done};
use super::offload::Job;
use super::space::wrong_type;
use super::state::{Copying, Io};
use crate::vfs::copies::{self, FileOffset, LongCopy};
use crate::vfs::file::File;

/// The source or the target of a copy: a file, where in it the copy begins, and the stateid that allows to read or write it.
struct End {
    stateid: StateId,
    file: Arc<File>,
    offset: u64,
}

impl End {
    fn position(&self) -> FileOffset<'_> {
        FileOffset {
            file: &self.file,
            offset: self.offset,
        }
    }
}

/// COPY
pub(super) fn copy(c: &Compound<'_>, arguments: &CopyArgs<'_>) -> Done<CopyOk> {
    if !arguments.source_servers.0.is_empty() {
        return Err(Status::NotSupp.into());
    }
    let (source, target) = ends(
        c,
        (arguments.source, arguments.source_offset),
        (arguments.destination, arguments.destination_offset),
    )?;
    if source.file.object() == target.file.object() {
        return Err(Status::Inval.into());
    }
    if let Some(begun) = begin(c, arguments, &source, &target)? {
        return Ok(begun);
    }
    let (from, to) = (source.position(), target.position());
    let copied = copies::copy(c.export, &c.who, from, to, arguments.count)?;
    Ok(result(None, copied.count, copied.verifier))
}

/// Begins a copy that goes on after its reply. `None`: the copy has to be over with its reply.
fn begin(
    c: &Compound<'_>,
    arguments: &CopyArgs<'_>,
    source: &End,
    target: &End,
) -> Done<Option<CopyOk>> {
    let (server, sender) = (c.server, c.sender);
    if arguments.synchronous || !server.state.lock().may_copy_later(sender) {
        return Ok(None);
    }
    let (from, to) = (source.position(), target.position());
    let copier = &server.copier;
    let steps = LongCopy::new(c.export, &c.who, from, to, arguments.count, copier.piece)?;
    if steps.left() <= copier.longer_than {
        return Ok(None);
    }
    // Taken before any data is copied. If a sync fails meanwhile, the client sees that the verifier has changed.
    let verifier = c.export.verifier();
    let copying = Copying {
        source: (source.stateid, source.file.object()),
        target: (target.stateid, target.file.object()),
        verifier,
        origin: c.origin,
    };
    let begun = server.state.lock().begin_copy(sender, copying);
    let Some(stateid) = begun else {
        return Ok(None);
    };
    let job = Job {
        stateid,
        sender,
        steps,
        delayed_since: None,
    };
    if !copier.take(job) {
        server.state.lock().forget_copy(&stateid);
        return Ok(None);
    }
    Ok(Some(result(Some(stateid), 0, verifier)))
}

/// The result of COPY, with the stateid of a copy that goes on.
fn result(goes_on: Option<StateId>, count: u64, verifier: [u8; 8]) -> CopyOk {
    CopyOk {
        response: WriteResponse {
            callback: AtMostOne(goes_on),
            count,
            committed: Stable::Unstable,
            verifier,
        },
        requirements: CopyRequirements {
            consecutive: true,
            synchronous: goes_on.is_none(),
        },
    }
}

/// CLONE
pub(super) fn clone(c: &Compound<'_>, arguments: &CloneArgs) -> Done<()> {
    let (source, target) = ends(
        c,
        (arguments.source, arguments.source_offset),
        (arguments.destination, arguments.destination_offset),
    )?;
    let (from, to) = (source.position(), target.position());
    copies::clone_range(c.export, &c.who, from, to, arguments.count)?;
    Ok(())
}

/// The saved file as the source and the current file as the target, if the stateids allow to read the one and write the other.
fn ends(
    c: &Compound<'_>,
    (from, source_offset): (StateId, u64),
    (to, target_offset): (StateId, u64),
) -> Done<(End, End)> {
    c.may_block()?;
    let target = c.file().map_err(wrong_type)?;
    let source = c.saved_file().map_err(wrong_type)?;
    let (from, to) = (c.saved_stateid(from)?, c.stateid(to)?);
    c.check_io(&from, source.object(), Io::Read)?;
    c.check_io(&to, target.object(), Io::Write)?;
    let end = |stateid, file, offset| End {
        stateid,
        file,
        offset,
    };
    Ok((
        end(from, source, source_offset),
        end(to, target, target_offset),
    ))
}
