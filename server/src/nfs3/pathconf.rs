//! PATHCONF (RFC 1813, section 3.3.20).

use odafs_common::wire::nfs3::{Failed, FileHandle, PathConfOk, PathConfResult, Status};
use odafs_common::wire::xdr::{Encode as _, Writer};

use super::{Context, Step};
use crate::vfs::attributes::limits;

pub(super) fn pathconf(context: &Context<'_>, object: FileHandle<'_>, w: &mut Writer<'_>) -> Step {
    context.may_block()?;
    let object = context.object(object);
    let found = object.and_then(|object| limits(context.export, object).map_err(Status::from));
    let attributes = object.ok().and_then(|object| context.attributes(object));
    let result: PathConfResult = match found {
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
