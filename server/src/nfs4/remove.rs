//! REMOVE, of files and of empty directories (RFC 7530, section 16.28; RFC 8881, section 18.25).

use odafs_common::wire::nfs4::{ChangeInfo, Name, Status};

use super::compound::{Compound, Done};
use super::{convert, lookup};
use crate::vfs::around::Change;
use crate::vfs::{FileType, namespace};

pub(super) fn remove(c: &Compound<'_>, name: Name<'_>) -> Done<ChangeInfo> {
    c.may_block()?;
    let directory = c.real()?;
    if c.not_a_directory(directory).is_some() {
        return Err(Status::NotDir.into());
    }
    lookup::check(name)?;
    let (found, known) = namespace::lookup(c.export, &c.who, directory, name.0)?;
    namespace::check_found(c.export, directory, found, &|tag| c.acting.check(tag))?;
    let change = Change::begin(c.export, directory);
    // Where another took the name meanwhile, the store refuses the wrong one of the two.
    let removed = match known.kind {
        FileType::Directory => namespace::rmdir(c.export, &c.who, directory, name.0),
        _ => namespace::remove(c.export, &c.who, directory, name.0),
    };
    let around = change.end();
    removed?;
    Ok(convert::change_info(&around))
}
