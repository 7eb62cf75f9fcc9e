//! REMOVE (RFC 1094, section 2.2.11).

use odafs_common::wire::nfs2::DirectoryName;

use super::{Context, Done};
use crate::vfs::around::Change;
use crate::vfs::namespace;

pub(super) fn remove(context: &Context<'_>, arguments: DirectoryName<'_>) -> Done<()> {
    context.may_block()?;
    let directory = context.object(arguments.directory)?;
    let _change = Change::begin(context.export, directory);
    namespace::remove(context.export, &context.who, directory, arguments.name)?;
    Ok(())
}
