//! WRITE (RFC 1813, section 3.3.7).

use odafs_common::wire::nfs3::{
    Failed, FileHandle, Stable, Status, WriteArgs, WriteOk, WriteResult,
};
use odafs_common::wire::xdr::{Decode as _, Encode as _, Reader, Writer, XdrError};

use super::{Context, DATA_BYTES_MAX, Tried};
use crate::vfs::write::write as write_pages;

pub(super) fn write(context: &Context<'_>, arguments: WriteArgs<'_>, w: &mut Writer<'_>) -> Tried {
    context.may_block()?;
    put(context, &arguments).encode(w);
    Ok(())
}

/// The stability that the arguments ask for. The data may have come apart from them.
pub(super) fn stable(arguments: &mut Reader<'_>) -> Result<Stable, XdrError> {
    FileHandle::decode(arguments)?;
    // Offset and count.
    arguments.opaque_fixed::<12>()?;
    Stable::decode(arguments)
}

fn put(context: &Context<'_>, arguments: &WriteArgs<'_>) -> WriteResult {
    let mut data = context.payload(arguments.data);
    let count = arguments.count.min(DATA_BYTES_MAX) as usize;
    // There may be more data than the count says (padding), but not less.
    if data.len() < count {
        return Err(Failed {
            status: Status::Inval,
            rest: context.nothing_written(arguments.file),
        });
    }
    data.truncate(count);
    let file = context.file(arguments.file).map_err(|failed| Failed {
        status: failed.into(),
        rest: context.nothing_written(arguments.file),
    })?;
    let written = write_pages(
        context.export,
        &context.who,
        &file,
        arguments.offset,
        data,
        arguments.stable.into(),
    )
    .map_err(|refused| Failed {
        status: refused.error.into(),
        rest: refused.around.into(),
    })?;
    Ok(WriteOk {
        wcc: written.around.into(),
        count: written.count,
        committed: written.committed.into(),
        verifier: written.verifier,
    })
}
