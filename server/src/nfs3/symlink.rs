//! SYMLINK (RFC 1813, section 3.3.10).

use odafs_common::wire::nfs3::SymlinkArgs;
use odafs_common::wire::xdr::Writer;

use super::{Context, Tried, made};
use crate::vfs::namespace;

pub(super) fn symlink(
    context: &Context<'_>,
    arguments: SymlinkArgs<'_>,
    w: &mut Writer<'_>,
) -> Tried {
    context.may_block()?;
    let target = context.payload(arguments.target).to_vec();
    let new = arguments.attributes.into();
    made::reply(context, &arguments.place, w, |directory, name| {
        namespace::symlink(context.export, &context.who, directory, name, &target, &new)
    });
    Ok(())
}
