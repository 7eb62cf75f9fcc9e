//! WRITE (RFC 1813, section 3.3.7).

use odafs_common::wire::nfs3::{Failed, Status, WriteArgs, WriteOk, WriteResult};
use odafs_common::wire::xdr::{Encode as _, Writer};

use super::{Context, DATA_BYTES_MAX, Step, status};
use crate::read::Effort;
use crate::write::write as write_pages;

pub(super) fn write(context: &Context<'_>, arguments: WriteArgs<'_>, w: &mut Writer<'_>) -> Step {
    context.may_block()?;
    put(context, &arguments).encode(w);
    Ok(())
}

fn put(context: &Context<'_>, arguments: &WriteArgs<'_>) -> WriteResult {
    let data = arguments.data.0;
    let count = arguments.count.min(DATA_BYTES_MAX) as usize;
    // The data that is there may be padded beyond the count, but there must not be less.
    let data = data.get(..count).ok_or_else(|| Failed {
        status: Status::Inval,
        rest: context.nothing_written(arguments.file),
    })?;
    let file = context
        .export
        .file_of_handle(arguments.file.0, Effort::MayBlock)
        .map_err(|failed| Failed {
            status: status(failed),
            rest: context.nothing_written(arguments.file),
        })?;
    let written = write_pages(
        context.export,
        &context.who,
        &file,
        arguments.offset,
        data,
        arguments.stable,
    )
    .map_err(|refused| Failed {
        status: refused.error.status,
        rest: refused.wcc,
    })?;
    Ok(WriteOk {
        wcc: written.wcc,
        count: written.count,
        committed: written.committed,
        verifier: written.verifier,
    })
}
