//! Changes that the store makes without data from the client: reserving space and freeing it.
//!
//! The order is that of a write. First the store changes the file. Then the old pages go, with all references to them.
//! Then the new attributes are shown, and the change counter moves. The file's gate is closed meanwhile, so that nobody
//! fills a page with old bytes, and no client that knows of the change can read them.
//!
//! These calls have no write verifier, by which a client could notice that a restart has undone them. So the change is on
//! stable storage when they return.

use odafs_fabric::sync::Arc;

use crate::store::{Attributes, Credential, Status, StoreError};
use crate::vfs::change;
use crate::vfs::export::Exports;
use crate::vfs::file::File;
use crate::vfs::write::sync;

/// A range of bytes of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Range {
    /// First byte.
    pub offset: u64,
    /// Number of bytes.
    pub length: u64,
}

/// The effect on a file.
pub(super) struct Made {
    /// This many bytes have changed, from the first of the range on.
    pub touched: u64,
    /// The file has at least this size.
    pub reaches: u64,
}

/// Reserves space for bytes of a file, which then reaches at least to their end. May block.
pub fn allocate(
    export: &Exports,
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

/// Sets bytes of a file to zero and frees their space. The file keeps its size. May block.
pub fn deallocate(
    export: &Exports,
    who: &Credential,
    file: &Arc<File>,
    range: Range,
) -> Result<(), StoreError> {
    let Range { offset, .. } = range;
    let store = export.store();
    for_good(export, file, || {
        alone(export, who, file, range, |now| {
            // There is nothing behind the end. A write without bytes checks the right to write.
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

/// Makes a change, and brings it to stable storage. IO if any sync of the file has failed meanwhile, because the kernel
/// may have reported the loss of this change there, and reports it only once.
pub(super) fn for_good(
    export: &Exports,
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

/// Makes a change of bytes in `range` for a caller who may write, with the file's gate closed. `make` gets the attributes
/// from before.
pub(super) fn alone(
    export: &Exports,
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

/// Whether bytes may have changed in spite of a failure, since space can run out in the middle.
fn may_have_begun(error: &StoreError) -> bool {
    let short = [Status::NoSpc, Status::DQuot, Status::Jukebox];
    error.may_be_partial() || short.contains(&error.status)
}

#[cfg(test)]
#[path = "space_tests.rs"]
mod tests;
