//! Changes of a file that the store makes by itself, without any data from outside: space is set aside or given back.
//!
//! The order is that of a write: the store's change, then the old pages go with all references to them, then the new
//! attributes are shown and the change counter moves. The file's gate is closed meanwhile, so nobody fills a page with
//! what was there before, and nobody who was told of the change can read the old bytes.
//!
//! Their calls have no write verifier, by which a client could learn that a restart has undone them. So they are on stable
//! storage when they return.

use odafs_fabric::sync::Arc;

use crate::store::{Attributes, Credential, Status, StoreError};
use crate::vfs::change;
use crate::vfs::export::Export;
use crate::vfs::file::File;
use crate::vfs::write::sync;

/// Bytes of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Range {
    /// The first.
    pub offset: u64,
    /// How many.
    pub length: u64,
}

/// What became of a file.
pub(super) struct Made {
    /// So many of its bytes, from the first of the range on, are others.
    pub touched: u64,
    /// It has at least this size.
    pub reaches: u64,
}

/// Sets space aside for bytes of a file, which reaches to their end at least afterwards. May block.
pub fn allocate(
    export: &Export,
    who: &Credential,
    file: &Arc<File>,
    range: Range,
) -> Result<(), StoreError> {
    let Range { offset, length } = range;
    let store = export.store();
    for_good(export, file, || {
        alone(export, who, file, range, |_| {
            store.allocate(who, file.object(), offset, length)?;
            Ok(Made {
                touched: 0,
                reaches: offset.saturating_add(length),
            })
        })
    })
}

/// Makes bytes of a file zeros and gives their space back. The file keeps its size. May block.
pub fn deallocate(
    export: &Export,
    who: &Credential,
    file: &Arc<File>,
    range: Range,
) -> Result<(), StoreError> {
    let Range { offset, .. } = range;
    let store = export.store();
    for_good(export, file, || {
        alone(export, who, file, range, |now| {
            // There is nothing behind the end. To write nothing judges who may write.
            let length = range.length.min(now.size.saturating_sub(offset));
            match length {
                0 => store.write_at(who, file.object(), offset, &[]).map(drop)?,
                _ => store.deallocate(who, file.object(), offset, length)?,
            }
            Ok(Made {
                touched: length,
                reaches: 0,
            })
        })
    })
}

/// Makes a change, and brings it to stable storage. IO if anybody's sync of the file has failed meanwhile: it may have been
/// told of the loss of this change, and no later sync is.
pub(super) fn for_good(
    export: &Export,
    file: &Arc<File>,
    change: impl FnOnce() -> Result<Made, StoreError>,
) -> Result<(), StoreError> {
    let failures = file.syncs().failures();
    change()?;
    sync(export, file, false)?;
    if file.syncs().failures() != failures {
        return Err(Status::Io.into());
    }
    Ok(())
}

/// Makes a change of bytes in `range` for who may write, with the file to itself. `make` is told the attributes from before.
pub(super) fn alone(
    export: &Export,
    who: &Credential,
    file: &Arc<File>,
    range: Range,
    make: impl FnOnce(&Attributes) -> Result<Made, StoreError>,
) -> Result<Made, StoreError> {
    let (store, object) = (export.store(), file.object());
    let _changing = export.promises().ask_to_write(export, who, object)?;
    let gate = file.close();
    if gate.gone {
        return Err(Status::Stale.into());
    }
    let before = store.getattr(object)?;
    change::absorb_if_foreign(export, file, &before);
    file.reports().expect_own();
    let made = make(&before);
    file.reports().expect_own();
    let after = store.getattr(object).ok();

    let (touched, foreign) = match &made {
        Ok(made) => {
            let size = before.size.max(made.reaches);
            (made.touched, after.is_some_and(|after| after.size != size))
        }
        Err(error) if may_have_begun(error) => (range.length, false),
        Err(_) => (0, false),
    };
    let same = after.is_some_and(|after| change::is_same(&before, &after));
    if touched > 0 || !same {
        let around = (&before, after.as_ref());
        change::absorb_bytes(export, file, around, (range.offset, touched), foreign);
    }
    made
}

/// Whether some bytes may be others after a failure. Space can run out in the middle.
fn may_have_begun(error: &StoreError) -> bool {
    let short = [Status::NoSpc, Status::DQuot, Status::Jukebox];
    error.may_be_partial() || short.contains(&error.status)
}

#[cfg(test)]
#[path = "space_tests.rs"]
mod tests;
