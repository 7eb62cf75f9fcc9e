//! READLINK (RFC 1813, section 3.3.5).

use odafs_common::wire::nfs3::{Failed, FileHandle, Payload, ReadLinkOk, ReadLinkResult};
use odafs_common::wire::xdr::{Encode as _, Writer};

use super::{Context, Step};

pub(super) fn readlink(context: &Context<'_>, link: FileHandle<'_>, w: &mut Writer<'_>) -> Step {
    context.may_block()?;
    let object = context.object(link);
    let target = object.and_then(|object| {
        let target = context.export.store().readlink(object);
        target.map_err(|error| error.status)
    });
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
