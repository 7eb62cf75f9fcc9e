//! The rights that a change needs. Who has none is refused before anybody is asked for a promise.

use odafs_fabric::memory::Gather;

use crate::store::{Credential, ObjectId, Status, StoreError, access, check_sticky};
use crate::vfs::export::Exports;

/// Refuses who may not write to a file.
pub(crate) fn may_write(
    export: &Exports,
    who: &Credential,
    object: ObjectId,
) -> Result<(), StoreError> {
    // Without data this judges, and does nothing else.
    let store = export.store();
    store.write_from(who, object, 0, &Gather::new()).map(drop)
}

/// Refuses callers that may not change the entries of a directory, or those attributes of an object that its writers may
/// change.
pub(crate) fn may_change(
    export: &Exports,
    who: &Credential,
    object: ObjectId,
) -> Result<(), Status> {
    match export.store().access(who, object, access::MODIFY) {
        Ok(may) if may & access::MODIFY == 0 => Err(Status::Access),
        // What else there is, the change finds out.
        _ => Ok(()),
    }
}

/// Refuses who may not take a name of an object from a directory.
pub(super) fn may_take(
    export: &Exports,
    who: &Credential,
    directory: ObjectId,
    object: ObjectId,
) -> Result<(), Status> {
    may_change(export, who, directory)?;
    let attributes = |object| export.store().getattr(object);
    match (attributes(directory), attributes(object)) {
        (Ok(directory), Ok(object)) => {
            check_sticky(&directory, &object, who).map_err(|error| error.status)
        }
        // What else there is, the change finds out.
        _ => Ok(()),
    }
}
