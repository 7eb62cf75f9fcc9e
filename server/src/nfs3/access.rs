//! ACCESS (RFC 1813, section 3.3.4).

use odafs_common::wire::nfs3::{AccessArgs, AccessOk, AccessResult, Failed, Status};
use odafs_common::wire::xdr::{Encode as _, Writer};

use super::{Context, Tried};
use crate::vfs::attributes::access as granted;

pub(super) fn access(
    context: &Context<'_>,
    arguments: AccessArgs<'_>,
    w: &mut Writer<'_>,
) -> Tried {
    let object = context.object_now(arguments.file)?;
    let attributes = match object {
        // If the attributes are at hand, so is the answer about rights.
        Ok(object) => context.attributes_now(object)?.ok(),
        Err(_) => None,
    };
    let granted = object.and_then(|object| {
        granted(context.export, &context.who, object, arguments.access).map_err(Status::from)
    });
    let result: AccessResult = match granted {
        Ok(access) => Ok(AccessOk { attributes, access }),
        Err(status) => Err(Failed {
            status,
            rest: attributes,
        }),
    };
    result.encode(w);
    Ok(())
}
