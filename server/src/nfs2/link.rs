//! LINK (RFC 1094, section 2.2.13).

use odafs_common::wire::nfs2::LinkArgs;

use super::{Context, Done};
use crate::vfs::around::Change;
use crate::vfs::namespace;

pub(super) fn link(context: &Context<'_>, arguments: LinkArgs<'_>) -> Done<()> {
    context.may_block()?;
    let file = context.object(arguments.file)?;
    let directory = context.object(arguments.place.directory)?;
    let _change = Change::begin(context.export, directory);
    let name = arguments.place.name;
    namespace::link(context.export, &context.who, file, directory, name)?;
    Ok(())
}
