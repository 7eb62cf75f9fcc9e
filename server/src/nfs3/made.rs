//! The result that CREATE, MKDIR, SYMLINK and MKNOD have in common.

use odafs_common::wire::nfs3::{
    CreateOk, CreateResult, DirectoryName, Failed, FileHandle, WccData,
};
use odafs_common::wire::xdr::{Encode as _, Writer};

use super::Context;
use crate::vfs::around::Change;
use crate::vfs::{self, ObjectId};

/// Makes an object under a name in a directory with `make`, and writes the result.
pub(super) fn reply(
    context: &Context<'_>,
    place: &DirectoryName<'_>,
    w: &mut Writer<'_>,
    make: impl FnOnce(ObjectId, &[u8]) -> vfs::Result<(ObjectId, vfs::Attributes)>,
) {
    let directory = match context.object(place.directory) {
        Ok(directory) => directory,
        Err(status) => {
            let rest = WccData::default();
            return CreateResult::Err(Failed { status, rest }).encode(w);
        }
    };
    let change = Change::begin(context.export, directory);
    let made = make(directory, place.name);
    let directory = change.end().into();
    match made {
        Ok((object, attributes)) => {
            // If there is no handle, the client looks the name up.
            let handle = Some(context.handle(object));
            CreateResult::Ok(CreateOk {
                file: handle.as_ref().map(|handle| FileHandle(handle)),
                attributes: Some(attributes.into()),
                directory,
            })
            .encode(w);
        }
        Err(error) => CreateResult::Err(Failed {
            status: error.into(),
            rest: directory,
        })
        .encode(w),
    }
}
