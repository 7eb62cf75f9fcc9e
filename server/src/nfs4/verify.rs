//! VERIFY and NVERIFY (RFC 7530, sections 16.15 and 16.35; RFC 8881, sections 18.15 and 18.31).

use odafs_common::wire::nfs4::{RawAttributes, Status};

use super::attributes;
use super::compound::{Compound, Done};

/// Fails unless the current object has these attributes; if `same` is false, unless it has others.
pub(super) fn verify(c: &Compound<'_>, theirs: &RawAttributes<'_>, same: bool) -> Done<()> {
    c.may_block()?;
    let matches = attributes::with(c, c.object()?, &theirs.mask, |all| all.matches(theirs))??;
    match (matches, same) {
        (true, false) => Err(Status::Same.into()),
        (false, true) => Err(Status::NotSame.into()),
        _ => Ok(()),
    }
}
