//! REMOVE, of files and of empty directories (RFC 7530, section 16.28; RFC 8881, section 18.25).

use odafs_common::wire::nfs4::{ChangeInfo, Name};

use super::compound::{Compound, Done};
use super::{convert, lookup};
use crate::vfs::{FileType, namespace};

pub(super) fn remove(c: &Compound<'_>, name: Name<'_>) -> Done<ChangeInfo> {
    c.may_block()?;
    let directory = c.real()?;
    c.check_directory(directory)?;
    lookup::check(name)?;
    let (found, known) = namespace::lookup(c.export, &c.who, directory, name.0)?;
    namespace::check_found(c.export, directory, found, &|tag| c.acting.check(tag))?;
    // If the name has come to stand for an object of the other kind since, the store refuses this call.
    let remove = match known.kind {
        FileType::Directory => namespace::rmdir,
        _ => namespace::remove,
    };
    let (removed, change) = convert::change(c.export, directory, || {
        remove(c.export, &c.who, directory, name.0)
    });
    removed?;
    Ok(change)
}
