//! COPY and CLONE (RFC 7862, sections 15.2 and 15.13): from the saved to the current file handle, both of this export. A copy is
//! over when it is answered, or the beginning of it is: the client goes on with the rest. So no copy is ever under way, and
//! OFFLOAD_STATUS, OFFLOAD_CANCEL and COPY_NOTIFY are not there.

use odafs_common::wire::nfs4::{
    AtMostOne, CloneArgs, CopyArgs, CopyOk, CopyRequirements, Stable, StateId, Status,
    WriteResponse,
};
use odafs_fabric::sync::Arc;

use super::compound::{Compound, Done};
use super::space::wrong_type;
use super::state::Io;
use crate::vfs::copies::{self, Place};
use crate::vfs::file::File;

/// COPY
pub(super) fn copy(c: &Compound<'_>, arguments: &CopyArgs<'_>) -> Done<CopyOk> {
    if !arguments.source_servers.0.is_empty() {
        return Err(Status::NotSupp.into());
    }
    let (source, target) = files(c, arguments.source, arguments.destination)?;
    if source.object() == target.object() {
        return Err(Status::Inval.into());
    }
    let (from, to) = places(
        (&source, arguments.source_offset),
        (&target, arguments.destination_offset),
    );
    let copied = copies::copy(c.export, &c.who, from, to, arguments.count)?;
    Ok(CopyOk {
        response: WriteResponse {
            callback: AtMostOne(None),
            count: copied.count,
            committed: Stable::Unstable,
            verifier: copied.verifier,
        },
        requirements: CopyRequirements {
            consecutive: true,
            synchronous: true,
        },
    })
}

/// CLONE
pub(super) fn clone(c: &Compound<'_>, arguments: &CloneArgs) -> Done<()> {
    let (source, target) = files(c, arguments.source, arguments.destination)?;
    let (from, to) = places(
        (&source, arguments.source_offset),
        (&target, arguments.destination_offset),
    );
    Ok(copies::clone_range(
        c.export,
        &c.who,
        from,
        to,
        arguments.count,
    )?)
}

fn places<'a>(from: (&'a Arc<File>, u64), to: (&'a Arc<File>, u64)) -> (Place<'a>, Place<'a>) {
    let place = |(file, offset)| Place { file, offset };
    (place(from), place(to))
}

/// The saved and the current file, if the one may be read and the other written under these stateids.
fn files(c: &Compound<'_>, from: StateId, to: StateId) -> Done<(Arc<File>, Arc<File>)> {
    c.may_block()?;
    let target = c.file().map_err(wrong_type)?;
    let source = c.saved_file().map_err(wrong_type)?;
    let (from, to) = (c.saved_state(from)?, c.state(to)?);
    let mut machine = c.server.state.lock();
    machine.io(c.now, c.sender, &from, source.object(), Io::Read)?;
    machine.io(c.now, c.sender, &to, target.object(), Io::Write)?;
    Ok((source, target))
}
