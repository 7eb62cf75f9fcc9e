//! FSSTAT (RFC 1813, section 3.3.18).

use odafs_common::wire::nfs3::{Failed, FileHandle, FsStatOk, FsStatResult, Status};
use odafs_common::wire::xdr::{Encode as _, Writer};

use super::{Context, Step};
use crate::vfs::attributes::space;

pub(super) fn fsstat(context: &Context<'_>, root: FileHandle<'_>, w: &mut Writer<'_>) -> Step {
    context.may_block()?;
    let object = context.object(root);
    let found = object.and_then(|object| space(context.export, object).map_err(Status::from));
    let attributes = object.ok().and_then(|object| context.attributes(object));
    let result: FsStatResult = match found {
        Ok(space) => Ok(FsStatOk {
            attributes,
            total_bytes: space.total_bytes,
            free_bytes: space.free_bytes,
            available_bytes: space.available_bytes,
            total_files: space.total_files,
            free_files: space.free_files,
            available_files: space.available_files,
            invariant_seconds: 0,
        }),
        Err(status) => Err(Failed {
            status,
            rest: attributes,
        }),
    };
    result.encode(w);
    Ok(())
}
