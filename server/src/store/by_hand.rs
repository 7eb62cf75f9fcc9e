//! What every store can do by what it must be able to do.

use super::{Credential, ObjectId, Result, Store};

/// The most that is copied in one go, in bytes.
const PIECE_BYTES: u64 = 1 << 20;

/// [`Store::copy`], by reading and writing.
pub(super) fn copy<S: Store + ?Sized>(
    store: &S,
    who: &Credential,
    from: (ObjectId, u64),
    to: (ObjectId, u64),
    count: u64,
) -> Result<u64> {
    let mut piece = vec![0; count.min(PIECE_BYTES) as usize];
    let read = store.read_at(from.0, from.1, &mut piece)?;
    // If that is nothing, to write it judges who may write.
    let written = store.write_at(who, to.0, to.1, &piece[..read])?;
    Ok(written as u64)
}
