//! REMOVE (RFC 1813, section 3.3.12).

use odafs_common::wire::nfs3::{DirectoryName, Failed, RemoveResult, WccData};
use odafs_common::wire::xdr::{Encode as _, Writer};

use super::{Context, Tried};
use crate::vfs::around::Change;
use crate::vfs::namespace;
use crate::vfs::{ObjectId, Result};

pub(super) fn remove(
    context: &Context<'_>,
    arguments: DirectoryName<'_>,
    w: &mut Writer<'_>,
) -> Tried {
    context.may_block()?;
    take(context, &arguments, |directory, name| {
        namespace::remove(context.export, &context.who, directory, name)
    })
    .encode(w);
    Ok(())
}

/// Removes a name from a directory with `how`. RMDIR has the same result.
pub(super) fn take(
    context: &Context<'_>,
    place: &DirectoryName<'_>,
    how: impl FnOnce(ObjectId, &[u8]) -> Result<()>,
) -> RemoveResult {
    let directory = context.object(place.directory).map_err(|status| Failed {
        status,
        rest: WccData::default(),
    })?;
    let change = Change::begin(context.export, directory);
    let taken = how(directory, place.name);
    let directory = change.end().into();
    taken.map(|()| directory).map_err(|error| Failed {
        status: error.into(),
        rest: directory,
    })
}
