//! LINK, of the saved object into the current directory (RFC 7530, section 16.9; RFC 8881, section 18.9).

use odafs_common::wire::nfs4::{ChangeInfo, Name, Status};

use super::compound::{Compound, Done};
use super::{convert, lookup};
use crate::vfs::{FileType, namespace};

pub(super) fn link(c: &Compound<'_>, name: Name<'_>) -> Done<ChangeInfo> {
    c.may_block()?;
    let directory = c.real()?;
    let object = c.saved_real()?;
    if c.attributes(object)?.kind == FileType::Directory {
        return Err(Status::IsDir.into());
    }
    c.check_directory(directory)?;
    lookup::check(name)?;
    let (linked, change) = convert::change(c.export, directory, || {
        namespace::link(c.export, &c.who, object, directory, name.0)
    });
    linked?;
    Ok(change)
}
