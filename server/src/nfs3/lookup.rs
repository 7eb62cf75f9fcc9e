//! LOOKUP (RFC 1813, section 3.3.3).

use odafs_common::wire::nfs3::{
    Attributes, DirectoryName, Failed, FileHandle, LookupOk, LookupResult, Status,
};
use odafs_common::wire::xdr::{Encode as _, Writer};

use super::{Blocks, Context, Tried};
use crate::vfs::namespace;
use crate::vfs::read::Effort;
use crate::vfs::{HandleBytes, ObjectId};

pub(super) fn lookup(
    context: &Context<'_>,
    arguments: DirectoryName<'_>,
    w: &mut Writer<'_>,
) -> Tried {
    let directory = context.object_now(arguments.directory)?;
    let found = match directory {
        Ok(directory) => find(context, directory, arguments.name)?,
        Err(status) => Err(status),
    };
    let directory = match directory {
        Ok(directory) => context.attributes_now(directory)?.ok(),
        Err(_) => None,
    };
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

/// Looks a name up, with whatever effort is allowed.
fn find(
    context: &Context<'_>,
    directory: ObjectId,
    name: &[u8],
) -> Result<Result<(HandleBytes, Attributes), Status>, Blocks> {
    let (export, who) = (context.export, &context.who);
    let found = match context.effort {
        Effort::ResidentOnly => {
            namespace::lookup_at_hand(export, who, directory, name).ok_or(Blocks)?
        }
        Effort::MayBlock => namespace::lookup(export, who, directory, name),
    };
    Ok(found
        .map_err(Status::from)
        .and_then(|(object, attributes)| {
            namespace::check_found(export, directory, object, &|tag| context.rights.check(tag))?;
            Ok((context.handle(object), attributes.into()))
        }))
}
