//! SETATTR (RFC 7530, section 16.32; RFC 8881, section 18.30).

use odafs_common::wire::nfs4::{
    Bitmap, SetAttributes as WireSet, SetAttributesArgs, SetAttributesResult, Status,
};

use super::attributes::to_set;
use super::compound::{Compound, Done, Stop};
use super::state::Io;
use crate::vfs::attributes;
use crate::vfs::{FileType, ObjectId, SetAttributes};

pub(super) fn setattr(c: &Compound<'_>, arguments: &SetAttributesArgs<'_>) -> SetAttributesResult {
    let (status, set) = match set(c, arguments) {
        Ok(set) => (Status::Ok, set),
        Err(Stop::Status(status)) => (status, Bitmap::EMPTY),
        // It runs where it may block.
        Err(Stop::Blocks) => (Status::Delay, Bitmap::EMPTY),
    };
    SetAttributesResult { status, set }
}

fn set(c: &Compound<'_>, arguments: &SetAttributesArgs<'_>) -> Done<Bitmap> {
    let object = c.real()?;
    let theirs = WireSet::parse(&arguments.attributes, c.supported())?;
    if theirs.mode_umask.is_some() {
        return Err(Status::Inval.into());
    }
    let known = c.attributes(object)?;
    let new = to_set(&theirs, known.mode)?;
    if new.size.is_some() {
        if known.kind != FileType::Regular {
            return Err(c.not_a_file(known.kind).into());
        }
        let state = c.state(arguments.state)?;
        let mut machine = c.server.state.lock();
        machine.io(c.now, c.sender, &state, object, Io::Write)?;
    }
    apply(c, object, &new)?;
    Ok(theirs.mask())
}

/// Sets attributes, if there are any.
pub(super) fn apply(c: &Compound<'_>, object: ObjectId, new: &SetAttributes) -> Done<()> {
    if *new != SetAttributes::default() {
        attributes::set(c.export, &c.who, object, new, None)?;
    }
    Ok(())
}
