//! Operations on names. They call the store, and then revoke references where pages of files are concerned. All except
//! [`lookup_at_hand`] may block.

use crate::store::{
    Attributes, CreateHow, Created, Credential, Listing, ObjectId, ReaddirRange, SetAttributes,
    Special, Status, StoreError, Unlinked,
};
use crate::vfs::change;
use crate::vfs::export::Exports;
use crate::vfs::pace;
use crate::vfs::promises::may_change;
use crate::vfs::write::set_attributes;

/// CREATE. Cuts an existing file to the size asked for.
pub fn create(
    export: &Exports,
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

/// REMOVE. If it was the last link, the file's references are worthless when this returns.
pub fn remove(
    export: &Exports,
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

/// RENAME. A file whose last link was replaced is gone as after [`remove`].
pub fn rename(
    export: &Exports,
    who: &Credential,
    from: (ObjectId, &[u8]),
    to: (ObjectId, &[u8]),
) -> Result<(), StoreError> {
    let _naming = (export.promises()).ask_named(export, who, [Some(from), Some(to)])?;
    let replaced = export.store().rename(who, from, to)?;
    if let Some(unlinked) = replaced {
        unlink(export, unlinked);
    }
    // Some file systems give the moved object a new change time.
    if let Ok((moved, _)) = export.store().lookup(who, to.0, to.1) {
        change::record_links(export, moved);
    }
    Ok(())
}

/// LINK. Returns the attributes of the object afterwards.
pub fn link(
    export: &Exports,
    who: &Credential,
    object: ObjectId,
    directory: ObjectId,
    name: &[u8],
) -> Result<Attributes, StoreError> {
    let judge = || {
        may_change(export, who, directory)?;
        match export.store().lookup(who, directory, name) {
            Ok(_) => Err(Status::Exist.into()),
            // What else there is, the change finds out.
            Err(_) => Ok(()),
        }
    };
    let _changing = export.promises().ask_judged(object, judge)?;
    let attributes = export.store().link(who, object, directory, name)?;
    change::record_links(export, object);
    Ok(attributes)
}

/// LOOKUP. Notes an outside change that the attributes show.
pub fn lookup(
    export: &Exports,
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

/// As [`lookup`], for who is not told the attributes.
pub fn find(
    export: &Exports,
    who: &Credential,
    directory: ObjectId,
    name: &[u8],
) -> Result<ObjectId, StoreError> {
    let (object, attributes) = export.store().lookup(who, directory, name)?;
    change::seen(export, object, &attributes);
    Ok(object)
}

/// As [`lookup`], if it need not wait. `None` if it must, or if the attributes show an outside change.
pub fn lookup_at_hand(
    export: &Exports,
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
    export: &Exports,
    who: &Credential,
    directory: ObjectId,
    name: &[u8],
    new: &SetAttributes,
) -> Result<(ObjectId, Attributes), StoreError> {
    export.store().mkdir(who, directory, name, new)
}

/// RMDIR.
pub fn rmdir(
    export: &Exports,
    who: &Credential,
    directory: ObjectId,
    name: &[u8],
) -> Result<(), StoreError> {
    export.store().rmdir(who, directory, name).map(drop)
}

/// SYMLINK.
pub fn symlink(
    export: &Exports,
    who: &Credential,
    directory: ObjectId,
    name: &[u8],
    target: &[u8],
    new: &SetAttributes,
) -> Result<(ObjectId, Attributes), StoreError> {
    export.store().symlink(who, directory, name, target, new)
}

/// READLINK.
pub fn readlink(export: &Exports, link: ObjectId) -> Result<Vec<u8>, StoreError> {
    export.store().readlink(link)
}

/// MKNOD.
pub fn mknod(
    export: &Exports,
    who: &Credential,
    directory: ObjectId,
    name: &[u8],
    what: Special,
    new: &SetAttributes,
) -> Result<(ObjectId, Attributes), StoreError> {
    export.store().mknod(who, directory, name, what, new)
}

/// Whether a name that was found may be shown: in a table's own directories, each name is for those who may reach an export
/// there. `reaches` judges an export by its tag.
///
/// # Errors
/// NOENT for an export that the caller may not know of, or what else `reaches` says.
pub fn check_found(
    export: &Exports,
    directory: ObjectId,
    found: ObjectId,
    reaches: &dyn Fn(u16) -> Result<(), Status>,
) -> Result<(), Status> {
    if !export.is_table() || export.tag_of(directory) != 0 {
        return Ok(());
    }
    let hidden = |status| match status {
        Status::Stale => Status::NoEnt,
        other => other,
    };
    match export.tag_of(found) {
        0 if export.store().is_shown(found, &|tag| reaches(tag).is_ok()) => Ok(()),
        0 => Err(Status::NoEnt),
        tag => reaches(tag).map_err(hidden),
    }
}

/// READDIR. The outside changes that it shows have reached the files' pages when it returns. It leaves out the exports of a
/// table whose tags `reaches` refuses.
pub fn readdir(
    export: &Exports,
    who: &Credential,
    directory: ObjectId,
    range: ReaddirRange,
    reaches: &dyn Fn(u16) -> Result<(), Status>,
) -> Result<Listing, StoreError> {
    let shown = |tag| reaches(tag).is_ok();
    let mut listing = (export.store()).readdir_shown(who, directory, range, &shown)?;
    for entry in &mut listing.entries {
        pace::rest();
        // A listing does not wait for one file for as long as a lease.
        entry
            .object
            .take_if(|(object, _)| export.promises().is_withheld(*object));
        let Some((object, attributes)) = &mut entry.object else {
            continue;
        };
        if export.promises().is_hidden(*object) {
            export.promises().ask_to_look(*object)?;
            *attributes = export.store().getattr(*object)?;
        }
        change::seen(export, *object, attributes);
    }
    Ok(listing)
}

fn unlink(export: &Exports, unlinked: Unlinked) {
    if unlinked.last {
        change::removed(export, unlinked.object);
    } else {
        change::record_links(export, unlinked.object);
    }
}
