//! GETATTR (RFC 1813, section 3.3.1).

use odafs_common::wire::nfs3::{Failed, FileHandle, GetAttributesResult};
use odafs_common::wire::xdr::{Encode as _, Writer};

use super::{Context, Tried};

pub(super) fn getattr(context: &Context<'_>, file: FileHandle<'_>, w: &mut Writer<'_>) -> Tried {
    let result: GetAttributesResult = match context.object_now(file)? {
        Ok(object) => context.attributes_now(object)?,
        Err(status) => Err(status),
    }
    .map_err(|status| Failed { status, rest: () });
    result.encode(w);
    Ok(())
}
