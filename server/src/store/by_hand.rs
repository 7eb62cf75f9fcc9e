//! Operations that every store can offer by means of those that it must have.

use super::{Credential, ObjectId, Result, Store};

/// The most bytes that one call copies.
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
    // Even without bytes, the write checks the right to write.
    let written = store.write_at(who, to.0, to.1, &piece[..read])?;
    Ok(written as u64)
}
