//! What is known of an object, what a caller may do with it, and the attributes that it is given.

use crate::store::{
    Attributes, Credential, FileType, Limits, ObjectId, SetAttributes, Space, StoreError, Time,
};
use crate::vfs::around::{Around, Change};
use crate::vfs::change;
use crate::vfs::export::Export;
use crate::vfs::read::{Effort, ReadFailed};
use crate::vfs::write::{Refused, set_attributes};

/// As [`attributes`], if that takes no waiting. `None`: it does, or there is something to take note of.
pub fn attributes_at_hand(
    export: &Export,
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

/// Attributes as of now; an outside change that they show is taken note of. May block.
pub fn attributes(export: &Export, object: ObjectId) -> Result<Attributes, StoreError> {
    export.promises().ask_to_look(object)?;
    let attributes = export.store().getattr(object)?;
    match change::seen(export, object, &attributes) {
        // It took a while, and others may have gone on meanwhile.
        true => export.store().getattr(object),
        false => Ok(attributes),
    }
}

/// Attributes of a live file that were so `before`, which somebody may change unseen who says that it has not; or that it has, and that
/// the size is this one, in bytes. `None`: others are at the file. May block.
pub fn attributes_told(
    export: &Export,
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
pub fn kind(export: &Export, object: ObjectId, effort: Effort) -> Result<FileType, ReadFailed> {
    let store = export.store();
    if effort == Effort::ResidentOnly && !store.is_at_hand(object) {
        return Err(ReadFailed::NotResident);
    }
    let known = store.getattr(object).map_err(|error| error.status)?;
    Ok(known.kind)
}

/// Attributes of what a handle stands for, for a reply that refuses a call and can do without. `None` too if nothing may
/// block.
pub fn attributes_of_handle(export: &Export, handle: &[u8], effort: Effort) -> Option<Attributes> {
    match effort {
        Effort::ResidentOnly => None,
        Effort::MayBlock => attributes(export, export.resolve(handle, effort).ok()?).ok(),
    }
}

/// Those bits of `mask` ([`crate::store::access`]) that the caller has. May block, unless attributes are at hand.
pub fn access(
    export: &Export,
    who: &Credential,
    object: ObjectId,
    mask: u32,
) -> Result<u32, StoreError> {
    export.store().access(who, object, mask)
}

/// Limits of the object's file system. May block.
pub fn limits(export: &Export, object: ObjectId) -> Result<Limits, StoreError> {
    export.store().pathconf(object)
}

/// Space on the object's file system. May block.
pub fn space(export: &Export, object: ObjectId) -> Result<Space, StoreError> {
    export.store().statfs(object)
}

/// As [`set_attributes`], for a caller that is told the attributes around it: those from before only where names can
/// neither have come nor gone meanwhile.
pub fn set(
    export: &Export,
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
