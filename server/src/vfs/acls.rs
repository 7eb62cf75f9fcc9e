//! Access control lists. A file with one is read through the server alone: the classes that readers of references are in know
//! owner, group and mode, and nothing of lists.

use crate::store::{Acl, AclKind, Credential, FileType, ObjectId, Status, StoreError};
use crate::vfs::around::{Around, Change};
use crate::vfs::change;
use crate::vfs::export::Exports;
use crate::vfs::write::sync;

/// The lists of an object that are to be set; what is `None` stays.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NewAcls {
    /// The access list.
    pub access: Option<Acl>,
    /// The default list; `Some(None)` takes it away.
    pub default: Option<Option<Acl>>,
}

/// Whether objects of the export have lists.
pub fn supported(export: &Exports) -> bool {
    export.store().has_acls()
}

/// The access list of an object: what its mode says where it has none of its own. May block.
pub fn access(export: &Exports, object: ObjectId, mode: u32) -> Result<Acl, StoreError> {
    let list = export.store().acl(object, AclKind::Access)?;
    Ok(list.unwrap_or_else(|| Acl::of_mode(mode)))
}

/// The default list of a directory. May block.
pub fn default(export: &Exports, object: ObjectId) -> Result<Option<Acl>, StoreError> {
    export.store().acl(object, AclKind::Default)
}

/// Sets lists; the attributes of the object around that. When this returns, no reference to pages of the file is worth
/// anything whose holder the old mode let read it. May block.
pub fn set(
    export: &Exports,
    who: &Credential,
    object: ObjectId,
    new: &NewAcls,
) -> Result<Around, StoreError> {
    let store = export.store();
    // The serving user's own rights only the kernel knows.
    let judge = || match who.uid == 0 || who.own || store.getattr(object)?.uid == who.uid {
        true => Ok(()),
        false => Err(Status::Perm.into()),
    };
    let _changing = export.promises().ask_judged(object, judge)?;
    let around = Change::begin(export, object);
    let before = store.getattr(object)?;
    let apply = || {
        if let Some(list) = &new.access {
            store.set_acl(who, object, AclKind::Access, Some(list))?;
        }
        match &new.default {
            Some(list) if list.is_some() || before.kind == FileType::Directory => {
                store.set_acl(who, object, AclKind::Default, list.as_ref())
            }
            _ => Ok(()),
        }
    };
    if before.kind != FileType::Regular {
        apply()?;
        store.sync(object, false)?;
        return Ok(around.end());
    }
    let file = export.file(object)?;
    {
        let gate = file.close();
        if gate.gone {
            return Err(Status::Stale.into());
        }
        let before = store.getattr(object)?;
        change::absorb_if_foreign(export, &file, &before);
        let set = apply();
        // A refusal may come after a part of it was done.
        let after = store.getattr(object);
        change::absorb_own(export, &file, (&before, after.as_ref().ok()), None);
        set?;
    }
    sync(export, &file, false)?;
    Ok(around.end())
}

#[cfg(test)]
#[path = "acls_tests.rs"]
mod tests;
