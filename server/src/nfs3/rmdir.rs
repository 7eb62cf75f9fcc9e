//! RMDIR (RFC 1813, section 3.3.13).

use odafs_common::wire::nfs3::DirectoryName;
use odafs_common::wire::xdr::{Encode as _, Writer};

use super::remove::take;
use super::{Context, Tried};
use crate::vfs::namespace;

pub(super) fn rmdir(
    context: &Context<'_>,
    arguments: DirectoryName<'_>,
    w: &mut Writer<'_>,
) -> Tried {
    context.may_block()?;
    take(context, &arguments, |directory, name| {
        namespace::rmdir(context.export, &context.who, directory, name)
    })
    .encode(w);
    Ok(())
}
