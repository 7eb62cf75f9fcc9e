//! MKDIR (RFC 1813, section 3.3.9).

use odafs_common::wire::nfs3::MakeDirectoryArgs;
use odafs_common::wire::xdr::Writer;

use super::{Context, Tried, made};
use crate::vfs::namespace;

pub(super) fn mkdir(
    context: &Context<'_>,
    arguments: MakeDirectoryArgs<'_>,
    w: &mut Writer<'_>,
) -> Tried {
    context.may_block()?;
    let new = arguments.attributes.into();
    made::reply(context, &arguments.place, w, |directory, name| {
        namespace::mkdir(context.export, &context.who, directory, name, &new)
    });
    Ok(())
}
