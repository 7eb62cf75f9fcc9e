//! Extended attributes of users, which the server does not cache.

use crate::store::{Credential, FileType, ObjectId, StoreError, XattrHow};
use crate::vfs::around::{Around, Change};
use crate::vfs::change;
use crate::vfs::export::Exports;
use crate::vfs::promises::may_change;
use crate::vfs::write::sync;

/// Whether objects of the export have extended attributes.
pub fn supported(export: &Exports) -> bool {
    export.store().has_xattrs()
}

/// The value of an attribute.
pub fn get(
    export: &Exports,
    who: &Credential,
    object: ObjectId,
    name: &[u8],
) -> Result<Vec<u8>, StoreError> {
    export.store().xattr(who, object, name)
}

/// The names of all attributes, always in the same order.
pub fn list(
    export: &Exports,
    who: &Credential,
    object: ObjectId,
) -> Result<Vec<Vec<u8>>, StoreError> {
    export.store().xattrs(who, object)
}

/// Sets an attribute. Returns the object's attributes before and after.
pub fn set(
    export: &Exports,
    who: &Credential,
    object: ObjectId,
    (name, value): (&[u8], &[u8]),
    how: XattrHow,
) -> Result<Around, StoreError> {
    changing(export, who, object, || {
        export.store().set_xattr(who, object, name, value, how)
    })
}

/// Removes an attribute. Returns the object's attributes before and after.
pub fn remove(
    export: &Exports,
    who: &Credential,
    object: ObjectId,
    name: &[u8],
) -> Result<Around, StoreError> {
    changing(export, who, object, || {
        export.store().remove_xattr(who, object, name)
    })
}

fn changing(
    export: &Exports,
    who: &Credential,
    object: ObjectId,
    change: impl FnOnce() -> Result<(), StoreError>,
) -> Result<Around, StoreError> {
    let judge = || may_change(export, who, object).map_err(Into::into);
    let _changing = export.promises().ask_judged(object, judge)?;
    let around = Change::begin(export, object);
    change()?;
    change::record_links(export, object);
    // No verifier tells a client that a change was lost, so it is on stable storage before the reply. The sync of a file may be the one
    // that learns of lost writes, which their clients have to hear of.
    match export.store().getattr(object)?.kind {
        FileType::Regular => sync(export, &export.file(object)?, false).map(drop)?,
        _ => export.store().sync(object, false)?,
    }
    Ok(around.end())
}
