//! MKDIR (RFC 1813, section 3.3.9).

use odafs_common::wire::nfs3::MakeDirectoryArgs;
use odafs_common::wire::xdr::Writer;

use super::{Context, Step, made};

pub(super) fn mkdir(
    context: &Context<'_>,
    arguments: MakeDirectoryArgs<'_>,
    w: &mut Writer<'_>,
) -> Step {
    context.may_block()?;
    made::reply(context, &arguments.place, w, |directory, name| {
        let store = context.export.store();
        store.mkdir(&context.who, directory, name, &arguments.attributes)
    });
    Ok(())
}
