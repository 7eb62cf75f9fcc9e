//! READLINK (RFC 1813, section 3.3.5).

use odafs_common::wire::nfs3::{Failed, FileHandle, Payload, ReadLinkOk, ReadLinkResult, Status};
use odafs_common::wire::xdr::{Encode as _, Writer};

use super::{Context, Tried};
use crate::vfs::namespace;

pub(super) fn readlink(context: &Context<'_>, link: FileHandle<'_>, w: &mut Writer<'_>) -> Tried {
    context.may_block()?;
    let object = context.object(link);
    let target =
        object.and_then(|object| namespace::readlink(context.export, object).map_err(Status::from));
    let attributes = object.ok().and_then(|object| context.attributes(object));
    let result: ReadLinkResult<'_> = match &target {
        Ok(target) => Ok(ReadLinkOk {
            attributes,
            target: Payload(target),
        }),
        Err(status) => Err(Failed {
            status: *status,
            rest: attributes,
        }),
    };
    result.encode(w);
    Ok(())
}
