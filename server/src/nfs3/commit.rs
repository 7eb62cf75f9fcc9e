//! COMMIT (RFC 1813, section 3.3.21). It commits the whole file, whatever range the client names.

use odafs_common::wire::nfs3::{CommitArgs, CommitOk, CommitResult, Failed};
use odafs_common::wire::xdr::{Encode as _, Writer};

use super::{Context, Tried};
use crate::vfs::write::commit as commit_file;

pub(super) fn commit(
    context: &Context<'_>,
    arguments: CommitArgs<'_>,
    w: &mut Writer<'_>,
) -> Tried {
    context.may_block()?;
    sync(context, &arguments).encode(w);
    Ok(())
}

fn sync(context: &Context<'_>, arguments: &CommitArgs<'_>) -> CommitResult {
    let file = context.file(arguments.file).map_err(|failed| Failed {
        status: failed.into(),
        rest: context.nothing_written(arguments.file),
    })?;
    match commit_file(context.export, &file) {
        Ok((verifier, around)) => Ok(CommitOk {
            wcc: around.into(),
            verifier,
        }),
        Err(refused) => Err(Failed {
            status: refused.error.into(),
            rest: refused.around.into(),
        }),
    }
}
