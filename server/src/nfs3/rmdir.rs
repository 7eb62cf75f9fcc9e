//! RMDIR (RFC 1813, section 3.3.13).

use odafs_common::wire::nfs3::DirectoryName;
use odafs_common::wire::xdr::{Encode as _, Writer};

use super::remove::take;
use super::{Context, Step};

pub(super) fn rmdir(
    context: &Context<'_>,
    arguments: DirectoryName<'_>,
    w: &mut Writer<'_>,
) -> Step {
    context.may_block()?;
    take(context, &arguments, |directory, name| {
        let store = context.export.store();
        store.rmdir(&context.who, directory, name).map(drop)
    })
    .encode(w);
    Ok(())
}
