//! Attributes of objects, and the rights of callers.

use crate::store::{
    Attributes, Credential, FileSystemLimits, FileType, ObjectId, SetAttributes, Space, Store,
    StoreError, Time,
};
use crate::vfs::around::{Around, Change};
use crate::vfs::change;
use crate::vfs::export::Exports;
use crate::vfs::read::{Effort, ReadFailed};
use crate::vfs::write::{Refused, set_attributes};

/// As [`attributes`], if it need not wait. `None` if it must, or if the attributes show an outside change.
pub fn attributes_at_hand(
    export: &Exports,
    object: ObjectId,
) -> Option<Result<Attributes, StoreError>> {
    if export.promises().is_hidden(object) || !export.store().is_at_hand(object) {
        return None;
    }
    let attributes = export.store().getattr(object);
    match &attributes {
        Ok(seen) if change::is_news(export, object, seen) => None,
        _ => Some(attributes),
    }
}

/// The present attributes. Notes an outside change that they show. May block.
pub fn attributes(export: &Exports, object: ObjectId) -> Result<Attributes, StoreError> {
    export.promises().ask_to_look(object)?;
    let attributes = export.store().getattr(object)?;
    match change::seen(export, object, &attributes) {
        // That took a while, in which others may have made further changes.
        true => export.store().getattr(object),
        false => Ok(attributes),
    }
}

/// The present attributes, with whatever effort is allowed.
pub fn attributes_now(
    export: &Exports,
    object: ObjectId,
    effort: Effort,
) -> Result<Attributes, ReadFailed> {
    let found = match effort {
        Effort::ResidentOnly => {
            attributes_at_hand(export, object).ok_or(ReadFailed::NotResident)?
        }
        Effort::MayBlock => attributes(export, object),
    };
    Ok(found.map_err(|error| error.status)?)
}

/// Attributes of a live file that were so `before`, which somebody may change unseen who says that it has not; or that it has, and that
/// the size is this one, in bytes. `None`: others are at the file. May block.
pub fn attributes_told(
    export: &Exports,
    object: ObjectId,
    before: &Attributes,
    size: Option<u64>,
) -> Option<Attributes> {
    let file = export.live(object)?;
    let seen = change::as_before(export, &file, before, size.is_some())?;
    let size = size.unwrap_or(seen.size);
    Some(Attributes { size, ..seen })
}

/// What an object is. That never changes, so nobody is asked.
pub fn kind(export: &Exports, object: ObjectId, effort: Effort) -> Result<FileType, ReadFailed> {
    let store = at_hand(export, object, effort)?;
    let known = store.getattr(object).map_err(|error| error.status)?;
    Ok(known.kind)
}

/// The store, if it answers about the object from memory or the thread may wait.
fn at_hand(export: &Exports, object: ObjectId, effort: Effort) -> Result<&dyn Store, ReadFailed> {
    let store = &**export.store();
    match effort {
        Effort::ResidentOnly if !store.is_at_hand(object) => Err(ReadFailed::NotResident),
        _ => Ok(store),
    }
}

/// Attributes of a file handle's object, for a refusal in which they are optional. Also `None` if nothing may block.
pub fn attributes_of_handle(export: &Exports, handle: &[u8], effort: Effort) -> Option<Attributes> {
    match effort {
        Effort::ResidentOnly => None,
        Effort::MayBlock => attributes(export, export.resolve(handle, effort).ok()?).ok(),
    }
}

/// The bits of `mask` ([`crate::store::access`]) that the caller has. May block, unless attributes are at hand.
pub fn access(
    export: &Exports,
    who: &Credential,
    object: ObjectId,
    mask: u32,
) -> Result<u32, StoreError> {
    export.store().access(who, object, mask)
}

/// Limits of the object's file system.
pub fn limits(
    export: &Exports,
    object: ObjectId,
    effort: Effort,
) -> Result<FileSystemLimits, ReadFailed> {
    let known = at_hand(export, object, effort)?.pathconf(object);
    Ok(known.map_err(|error| error.status)?)
}

/// Whether the export tells when its objects were made.
pub fn has_birth_times(export: &Exports) -> bool {
    export.store().has_birth_times()
}

/// When the object was made. `None` if its store does not know.
pub fn birth_time(
    export: &Exports,
    object: ObjectId,
    effort: Effort,
) -> Result<Option<Time>, ReadFailed> {
    let known = at_hand(export, object, effort)?.birth_time(object);
    Ok(known.map_err(|error| error.status)?)
}

/// Whether [`freed_bytes`] is known.
pub fn tells_freed_bytes(export: &Exports) -> bool {
    !export.store().may_share_storage()
}

/// The bytes of storage that are free if an object with these attributes loses a name, in an export that
/// [tells](tells_freed_bytes).
pub fn freed_bytes(known: &Attributes) -> u64 {
    match (known.kind, known.links) {
        // The links of a directory are its name, and those within it.
        (FileType::Directory, _) | (_, 0 | 1) => known.used,
        _ => 0,
    }
}

/// Space on the object's file system, as it is now.
pub fn space(export: &Exports, object: ObjectId, effort: Effort) -> Result<Space, ReadFailed> {
    let known = at_hand(export, object, effort)?.statfs(object);
    Ok(known.map_err(|error| error.status)?)
}

/// As [`set_attributes`], with the attributes around it for the caller. Those from before are left out if names may have
/// come or gone meanwhile.
pub fn set(
    export: &Exports,
    who: &Credential,
    object: ObjectId,
    new: &SetAttributes,
    guard: Option<Time>,
) -> Result<Around, Refused> {
    let change = Change::begin(export, object);
    let set = set_attributes(export, who, object, new, guard);
    let alone = change.is_alone();
    let told = |around: Around| Around {
        before: around.before.filter(|_| alone),
        ..around
    };
    set.map(told).map_err(|refused| Refused {
        around: told(refused.around),
        ..refused
    })
}
