//! RENAME (RFC 1094, section 2.2.12).

use odafs_common::wire::nfs2::RenameArgs;

use super::{Context, Done};
use crate::vfs::around::Change;
use crate::vfs::namespace;

pub(super) fn rename(context: &Context<'_>, arguments: RenameArgs<'_>) -> Done<()> {
    context.may_block()?;
    let from = context.object(arguments.from.directory)?;
    let to = context.object(arguments.to.directory)?;
    let _change = Change::begin(context.export, from);
    let _other = (from != to).then(|| Change::begin(context.export, to));
    namespace::rename(
        context.export,
        &context.who,
        (from, arguments.from.name),
        (to, arguments.to.name),
    )?;
    Ok(())
}
