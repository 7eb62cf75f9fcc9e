//! SETATTR (RFC 7530, section 16.32; RFC 8881, section 18.30).

use odafs_common::wire::nfs4::{
    Bitmap, SetAttributes as WireSet, SetAttributesArgs, SetAttributesResult, Status,
};

use super::acls;
use super::attributes::{ACLS, NEVER_SET, to_set};
use super::compound::{Compound, Done, Stop};
use super::state::Io;
use crate::vfs::attributes;
use crate::vfs::{self, FileType, ObjectId, SetAttributes};

pub(super) fn setattr(c: &Compound<'_>, arguments: &SetAttributesArgs<'_>) -> SetAttributesResult {
    let mut set = Bitmap::EMPTY;
    let status = match apply_all(c, arguments, &mut set) {
        Ok(()) => Status::Ok,
        Err(Stop::Status(status)) => status,
        // Something is still to be waited for although this thread may block: the client asks again.
        Err(Stop::Blocks) => Status::Delay,
    };
    SetAttributesResult { status, set }
}

/// Sets the attributes that a client gives. `set` becomes those that were set, also if it fails.
fn apply_all(c: &Compound<'_>, arguments: &SetAttributesArgs<'_>, set: &mut Bitmap) -> Done<()> {
    let object = c.real()?;
    let theirs = WireSet::parse(&arguments.attributes, c.supported())?;
    if theirs.mode_umask.is_some() {
        return Err(Status::Inval.into());
    }
    let known = c.attributes(object)?;
    let new = to_set(c, &theirs, known.mode)?;
    let lists = acls::from_wire(c, theirs.acl.as_ref(), known.kind == FileType::Directory)?;
    if new.size.is_some() {
        if known.kind != FileType::Regular {
            return Err(c.not_a_file(known.kind).into());
        }
        c.check_io(&c.stateid(arguments.state)?, object, Io::Write)?;
    }
    apply(c, object, &new)?;
    let all = theirs.mask().without(&NEVER_SET);
    *set = all.without(&ACLS);
    // The list comes after the mode (RFC 8881, section 6.4.1.3).
    if let Some(lists) = &lists {
        vfs::acls::set(c.export, &c.who, object, lists).map_err(acls::refusal)?;
    }
    *set = all;
    Ok(())
}

/// Sets attributes, if there are any. What the store cannot set, as the mode of a symbolic link, is ATTRNOTSUPP: NOTSUPP is
/// no status of SETATTR (RFC 8881, section 15.2), and OK would claim what was not done.
pub(super) fn apply(c: &Compound<'_>, object: ObjectId, new: &SetAttributes) -> Done<()> {
    if *new != SetAttributes::default() {
        let set = attributes::set(c.export, &c.who, object, new, None);
        set.map_err(|refused| match Stop::from(refused) {
            Stop::Status(Status::NotSupp) => Stop::Status(Status::AttrNotSupp),
            stop => stop,
        })?;
    }
    Ok(())
}
