//! Operations on names: thin functions that call the store, and then revoke where pages of files are concerned. All may
//! block, but for [`lookup_at_hand`].

use crate::store::{
    Attributes, CreateHow, Created, Credential, Listing, ObjectId, ReaddirRange, SetAttributes,
    Special, StoreError, Unlinked,
};
use crate::vfs::change;
use crate::vfs::export::Export;
use crate::vfs::write::set_attributes;

/// CREATE; an existing file is cut to the size asked for.
pub fn create(
    export: &Export,
    who: &Credential,
    directory: ObjectId,
    name: &[u8],
    how: CreateHow<'_>,
) -> Result<Created, StoreError> {
    let size = match &how {
        CreateHow::Unchecked(new) => new.size,
        CreateHow::Guarded(_) | CreateHow::Exclusive(..) => None,
    };
    let mut created = export.store().create(who, directory, name, how)?;
    if created.existed && size.is_some() {
        let cut = SetAttributes {
            size,
            ..SetAttributes::default()
        };
        let around =
            set_attributes(export, who, created.object, &cut, None).map_err(|no| no.error)?;
        created.attributes = around.after.unwrap_or(created.attributes);
    }
    Ok(created)
}

/// REMOVE; if it was the last link, the file's references are worth nothing when this returns.
pub fn remove(
    export: &Export,
    who: &Credential,
    directory: ObjectId,
    name: &[u8],
) -> Result<(), StoreError> {
    let names = [Some((directory, name)), None];
    let _naming = export.promises().ask_named(export, who, names)?;
    let unlinked = export.store().remove(who, directory, name)?;
    unlink(export, unlinked);
    Ok(())
}

/// RENAME; a file whose last link was replaced is gone as after [`remove`].
pub fn rename(
    export: &Export,
    who: &Credential,
    from: (ObjectId, &[u8]),
    to: (ObjectId, &[u8]),
) -> Result<(), StoreError> {
    let _naming = (export.promises()).ask_named(export, who, [Some(from), Some(to)])?;
    let replaced = export.store().rename(who, from, to)?;
    if let Some(unlinked) = replaced {
        unlink(export, unlinked);
    }
    // Some file systems give what was moved a new change time.
    if let Ok((moved, _)) = export.store().lookup(who, to.0, to.1) {
        change::record_links(export, moved);
    }
    Ok(())
}

/// LINK; the attributes of the object afterwards.
pub fn link(
    export: &Export,
    who: &Credential,
    object: ObjectId,
    directory: ObjectId,
    name: &[u8],
) -> Result<Attributes, StoreError> {
    let _changing = export.promises().ask(object)?;
    let attributes = export.store().link(who, object, directory, name)?;
    change::record_links(export, object);
    Ok(attributes)
}

/// LOOKUP; an outside change that the attributes show is taken note of.
pub fn lookup(
    export: &Export,
    who: &Credential,
    directory: ObjectId,
    name: &[u8],
) -> Result<(ObjectId, Attributes), StoreError> {
    let (object, mut attributes) = export.store().lookup(who, directory, name)?;
    if export.promises().is_hidden(object) {
        export.promises().ask_to_look(object)?;
        attributes = export.store().getattr(object)?;
    }
    change::seen(export, object, &attributes);
    Ok((object, attributes))
}

/// As [`lookup`], if that takes no waiting. `None`: it does, or there is something to take note of.
pub fn lookup_at_hand(
    export: &Export,
    who: &Credential,
    directory: ObjectId,
    name: &[u8],
) -> Option<Result<(ObjectId, Attributes), StoreError>> {
    let found = export.store().lookup_at_hand(who, directory, name)?;
    match &found {
        Ok((object, _)) if export.promises().is_hidden(*object) => None,
        Ok((object, attributes)) if change::is_news(export, *object, attributes) => None,
        _ => Some(found),
    }
}

/// MKDIR.
pub fn mkdir(
    export: &Export,
    who: &Credential,
    directory: ObjectId,
    name: &[u8],
    new: &SetAttributes,
) -> Result<(ObjectId, Attributes), StoreError> {
    export.store().mkdir(who, directory, name, new)
}

/// RMDIR.
pub fn rmdir(
    export: &Export,
    who: &Credential,
    directory: ObjectId,
    name: &[u8],
) -> Result<(), StoreError> {
    export.store().rmdir(who, directory, name).map(drop)
}

/// SYMLINK.
pub fn symlink(
    export: &Export,
    who: &Credential,
    directory: ObjectId,
    name: &[u8],
    target: &[u8],
    new: &SetAttributes,
) -> Result<(ObjectId, Attributes), StoreError> {
    export.store().symlink(who, directory, name, target, new)
}

/// READLINK.
pub fn readlink(export: &Export, link: ObjectId) -> Result<Vec<u8>, StoreError> {
    export.store().readlink(link)
}

/// MKNOD.
pub fn mknod(
    export: &Export,
    who: &Credential,
    directory: ObjectId,
    name: &[u8],
    what: Special,
    new: &SetAttributes,
) -> Result<(ObjectId, Attributes), StoreError> {
    export.store().mknod(who, directory, name, what, new)
}

/// READDIR. What it shows of outside changes is true of the files' pages when it returns.
pub fn readdir(
    export: &Export,
    who: &Credential,
    directory: ObjectId,
    range: ReaddirRange,
) -> Result<Listing, StoreError> {
    let mut listing = export.store().readdir(who, directory, range)?;
    let entries = listing.entries.iter_mut();
    for (object, attributes) in entries.filter_map(|entry| entry.object.as_mut()) {
        if export.promises().is_hidden(*object) {
            export.promises().ask_to_look(*object)?;
            *attributes = export.store().getattr(*object)?;
        }
        change::seen(export, *object, attributes);
    }
    Ok(listing)
}

fn unlink(export: &Export, unlinked: Unlinked) {
    if unlinked.last {
        change::removed(export, unlinked.object);
    } else {
        change::record_links(export, unlinked.object);
    }
}
