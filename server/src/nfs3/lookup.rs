//! LOOKUP (RFC 1813, section 3.3.3).

use odafs_common::wire::nfs3::{
    Attributes, DirectoryName, Failed, FileHandle, LookupOk, LookupResult, Status,
};
use odafs_common::wire::xdr::{Encode as _, Writer};

use super::{Context, Step};
use crate::namespace;
use crate::store::{HandleBytes, ObjectId};

pub(super) fn lookup(
    context: &Context<'_>,
    arguments: DirectoryName<'_>,
    w: &mut Writer<'_>,
) -> Step {
    context.may_block()?;
    let directory = context.object(arguments.directory);
    let found = directory.and_then(|directory| find(context, directory, arguments.name));
    let directory = directory
        .ok()
        .and_then(|directory| context.attributes(directory));
    let result: LookupResult<'_> = match &found {
        Ok((handle, attributes)) => Ok(LookupOk {
            file: FileHandle(handle),
            attributes: Some(*attributes),
            directory,
        }),
        Err(status) => Err(Failed {
            status: *status,
            rest: directory,
        }),
    };
    result.encode(w);
    Ok(())
}

fn find(
    context: &Context<'_>,
    directory: ObjectId,
    name: &[u8],
) -> Result<(HandleBytes, Attributes), Status> {
    let found = namespace::lookup(context.export, &context.who, directory, name)
        .and_then(|(object, attributes)| Ok((context.handle(object)?, attributes)));
    found.map_err(|error| error.status)
}
