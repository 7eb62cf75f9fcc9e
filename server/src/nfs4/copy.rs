//! COPY and CLONE (RFC 7862, sections 15.2 and 15.13): from the saved to the current file handle, both of this export. A short copy
//! is over when it is answered. So is any that has to be, or whose client does not hear callbacks of minor version 2: then perhaps
//! the beginning of it alone, and the client goes on with the rest. All others go on after the reply ([`super::offload`]). No other
//! server copies from here, so COPY_NOTIFY is not there.

use odafs_common::wire::nfs4::{
    AtMostOne, CloneArgs, CopyArgs, CopyOk, CopyRequirements, Stable, StateId, Status,
    WriteResponse,
};
use odafs_fabric::sync::Arc;

use super::compound::{Compound, Done};
use super::offload::Job;
use super::space::wrong_type;
use super::state::{Copying, Io};
use crate::vfs::copies::{self, FileOffset, Steps};
use crate::vfs::file::File;

/// A file, and the stateid under which it is read or written.
type End = (StateId, Arc<File>);

/// COPY
pub(super) fn copy(c: &Compound<'_>, arguments: &CopyArgs<'_>) -> Done<CopyOk> {
    if !arguments.source_servers.0.is_empty() {
        return Err(Status::NotSupp.into());
    }
    let (source, target) = files(c, arguments.source, arguments.destination)?;
    if source.1.object() == target.1.object() {
        return Err(Status::Inval.into());
    }
    if let Some(begun) = begin(c, arguments, &source, &target)? {
        return Ok(begun);
    }
    let (from, to) = places(
        (&source.1, arguments.source_offset),
        (&target.1, arguments.destination_offset),
    );
    let copied = copies::copy(c.export, &c.who, from, to, arguments.count)?;
    Ok(result(None, copied.count, copied.verifier))
}

/// Begins a copy that goes on after the reply. `None`: it does not.
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
    let (from, to) = places(
        (&source.1, arguments.source_offset),
        (&target.1, arguments.destination_offset),
    );
    let copier = &server.copier;
    let steps = Steps::new(c.export, &c.who, from, to, arguments.count, copier.piece)?;
    if steps.left() <= copier.longer_than {
        return Ok(None);
    }
    // From before the data: if a sync fails meanwhile, the client will see that the verifier is another.
    let verifier = c.export.verifier();
    let copying = Copying {
        source: (source.0, source.1.object()),
        target: (target.0, target.1.object()),
        verifier,
        origin: c.origin,
    };
    let begun = server.state.lock().begin_copy(sender, copying);
    let Some(state) = begun else {
        return Ok(None);
    };
    let job = Job {
        state,
        sender,
        steps,
        waits: None,
    };
    if !copier.take(job) {
        server.state.lock().forget_copy(&state);
        return Ok(None);
    }
    Ok(Some(result(Some(state), 0, verifier)))
}

/// What is answered: of a copy that goes on, its stateid.
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
    let (source, target) = files(c, arguments.source, arguments.destination)?;
    let (from, to) = places(
        (&source.1, arguments.source_offset),
        (&target.1, arguments.destination_offset),
    );
    Ok(copies::clone_range(
        c.export,
        &c.who,
        from,
        to,
        arguments.count,
    )?)
}

fn places<'a>(
    from: (&'a Arc<File>, u64),
    to: (&'a Arc<File>, u64),
) -> (FileOffset<'a>, FileOffset<'a>) {
    let place = |(file, offset)| FileOffset { file, offset };
    (place(from), place(to))
}

/// The saved and the current file, if the one may be read and the other written under these stateids.
fn files(c: &Compound<'_>, from: StateId, to: StateId) -> Done<(End, End)> {
    c.may_block()?;
    let target = c.file().map_err(wrong_type)?;
    let source = c.saved_file().map_err(wrong_type)?;
    let (from, to) = (c.saved_state(from)?, c.state(to)?);
    let mut machine = c.server.state.lock();
    machine.io(c.now, c.sender, &from, source.object(), Io::Read)?;
    machine.io(c.now, c.sender, &to, target.object(), Io::Write)?;
    Ok(((from, source), (to, target)))
}
