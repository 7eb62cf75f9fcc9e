//! RENAME (RFC 1813, section 3.3.14).

use odafs_common::wire::nfs3::{Failed, RenameArgs, RenameData, RenameResult};
use odafs_common::wire::xdr::{Encode as _, Writer};

use super::{Context, Tried};
use crate::vfs::around::Change;
use crate::vfs::namespace;

pub(super) fn rename(
    context: &Context<'_>,
    arguments: RenameArgs<'_>,
    w: &mut Writer<'_>,
) -> Tried {
    context.may_block()?;
    move_name(context, &arguments).encode(w);
    Ok(())
}

fn move_name(context: &Context<'_>, arguments: &RenameArgs<'_>) -> RenameResult {
    let refuse = |status| Failed {
        status,
        rest: RenameData::default(),
    };
    let from = context.object(arguments.from.directory).map_err(refuse)?;
    let to = context.object(arguments.to.directory).map_err(refuse)?;
    let change = Change::begin(context.export, from);
    let other = (from != to).then(|| Change::begin(context.export, to));
    let moved = namespace::rename(
        context.export,
        &context.who,
        (from, arguments.from.name),
        (to, arguments.to.name),
    );
    let to = other.map(|change| change.end().into());
    let from = change.end().into();
    let directories = RenameData {
        from,
        to: to.unwrap_or(from),
    };
    moved.map(|()| directories).map_err(|error| Failed {
        status: error.into(),
        rest: directories,
    })
}
