//! RENAME, from the saved directory into the current one (RFC 7530, section 16.29; RFC 8881, section 18.26).

use odafs_common::wire::nfs4::{RenameArgs, RenameOk};

use super::compound::{Compound, Done};
use super::{convert, lookup};
use crate::vfs::around::Change;
use crate::vfs::namespace;

pub(super) fn rename(c: &Compound<'_>, arguments: &RenameArgs<'_>) -> Done<RenameOk> {
    c.may_block()?;
    let to = c.real()?;
    let from = c.saved_real()?;
    c.check_directory(from)?;
    c.check_directory(to)?;
    lookup::check(arguments.from)?;
    lookup::check(arguments.to)?;
    let change = Change::begin(c.export, from);
    let other = (from != to).then(|| Change::begin(c.export, to));
    let names = (arguments.from.0, arguments.to.0);
    let moved = namespace::rename(c.export, &c.who, (from, names.0), (to, names.1));
    let to = other.map(|change| convert::change_info(&change.end()));
    let from = convert::change_info(&change.end());
    moved?;
    Ok(RenameOk {
        from,
        to: to.unwrap_or(from),
    })
}
