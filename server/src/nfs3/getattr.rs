//! GETATTR (RFC 1813, section 3.3.1).

use odafs_common::wire::nfs3::{Failed, FileHandle, GetAttributesResult};
use odafs_common::wire::xdr::{Encode as _, Writer};

use super::{Context, Step};
use crate::write;

pub(super) fn getattr(context: &Context<'_>, file: FileHandle<'_>, w: &mut Writer<'_>) -> Step {
    context.may_block()?;
    let result: GetAttributesResult = context
        .object(file)
        .and_then(|object| write::attributes(context.export, object).map_err(|error| error.status))
        .map_err(|status| Failed { status, rest: () });
    result.encode(w);
    Ok(())
}
