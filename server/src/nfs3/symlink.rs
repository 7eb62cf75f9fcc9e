//! SYMLINK (RFC 1813, section 3.3.10).

use odafs_common::wire::nfs3::SymlinkArgs;
use odafs_common::wire::xdr::Writer;

use super::{Context, Step, made};

pub(super) fn symlink(
    context: &Context<'_>,
    arguments: SymlinkArgs<'_>,
    w: &mut Writer<'_>,
) -> Step {
    context.may_block()?;
    made::reply(context, &arguments.place, w, |directory, name| {
        let (target, attributes) = (arguments.target.0, &arguments.attributes);
        let store = context.export.store();
        store.symlink(&context.who, directory, name, target, attributes)
    });
    Ok(())
}
