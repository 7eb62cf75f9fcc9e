//! COMMIT (RFC 7530, section 16.3; RFC 8881, section 18.3). It syncs the whole file, whatever the range.

use odafs_common::wire::nfs4::CommitOk;

use super::compound::{Compound, Done};
use crate::vfs::write::commit as commit_file;

pub(super) fn commit(c: &Compound<'_>) -> Done<CommitOk> {
    c.may_block()?;
    let (verifier, _) = commit_file(c.export, &c.file()?)?;
    Ok(CommitOk { verifier })
}
