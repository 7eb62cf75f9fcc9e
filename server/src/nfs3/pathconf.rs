//! PATHCONF (RFC 1813, section 3.3.20).

use odafs_common::wire::nfs3::{Failed, FileHandle, PathConfOk, PathConfResult};
use odafs_common::wire::xdr::{Encode as _, Writer};

use super::{Context, Step};

pub(super) fn pathconf(context: &Context<'_>, object: FileHandle<'_>, w: &mut Writer<'_>) -> Step {
    context.may_block()?;
    let object = context.object(object);
    let limits = object.and_then(|object| {
        let limits = context.export.store().pathconf(object);
        limits.map_err(|error| error.status)
    });
    let attributes = object.ok().and_then(|object| context.attributes(object));
    let result: PathConfResult = match limits {
        Ok(limits) => Ok(PathConfOk {
            attributes,
            link_max: limits.link_max,
            name_max: limits.name_max,
            no_truncate: limits.no_trunc,
            chown_restricted: limits.chown_restricted,
            case_insensitive: limits.case_insensitive,
            case_preserving: limits.case_preserving,
        }),
        Err(status) => Err(Failed {
            status,
            rest: attributes,
        }),
    };
    result.encode(w);
    Ok(())
}
