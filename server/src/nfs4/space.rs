//! ALLOCATE, DEALLOCATE, SEEK and IO_ADVISE (RFC 7862, sections 15.1, 15.4, 15.11 and 15.5).

use odafs_common::wire::nfs4::{
    Bitmap, ContentType, IoAdviseArgs, Operation, RangeArgs, ResultWriter, SeekArgs, SeekOk, Status,
};
use odafs_fabric::sync::Arc;

use super::compound::{Compound, Done, Stop, Written, plain};
use super::state::Io;
use super::{copy, offload};
use crate::vfs::file::File;
use crate::vfs::space::{self, Range};
use crate::vfs::{Extent, extents};

/// Runs an operation on the space of files: these, and those of [`copy`] and [`offload`].
pub(super) fn run(
    c: &mut Compound<'_>,
    operation: &Operation<'_>,
    w: &mut ResultWriter<'_, '_>,
) -> Written {
    use Operation as O;
    let code = operation.code();
    match operation {
        O::Allocate(arguments) => plain(w, code, allocate(c, arguments)?),
        O::Deallocate(arguments) => plain(w, code, deallocate(c, arguments)?),
        O::Copy(arguments) => plain(w, code, copy::copy(c, arguments)?),
        O::Clone(arguments) => plain(w, code, copy::clone(c, arguments)?),
        O::Seek(arguments) => plain(w, code, seek(c, arguments)?),
        O::IoAdvise(arguments) => plain(w, code, advise(c, arguments)?),
        O::OffloadStatus(state) => plain(w, code, offload::status(c, *state)?),
        O::OffloadCancel(state) => plain(w, code, offload::cancel(c, *state)?),
        _ => Err(Status::NotSupp.into()),
    }
}

/// ALLOCATE
fn allocate(c: &Compound<'_>, arguments: &RangeArgs) -> Done<()> {
    let (file, range) = to_change(c, arguments)?;
    Ok(space::allocate(c.export, &c.who, &file, range)?)
}

/// DEALLOCATE
fn deallocate(c: &Compound<'_>, arguments: &RangeArgs) -> Done<()> {
    let (file, range) = to_change(c, arguments)?;
    Ok(space::deallocate(c.export, &c.who, &file, range)?)
}

/// The file and the range whose space is to change, if the stateid allows to write there.
fn to_change(c: &Compound<'_>, arguments: &RangeArgs) -> Done<(Arc<File>, Range)> {
    c.may_block()?;
    let file = c.file_for(arguments.state, Io::Write).map_err(wrong_type)?;
    let (offset, length) = (arguments.offset, arguments.length);
    let end = offset.checked_add(length).filter(|_| length > 0);
    if end.ok_or(Status::Inval)? > i64::MAX as u64 {
        return Err(Status::FBig.into());
    }
    Ok((file, Range { offset, length }))
}

/// The failure of an operation of minor version 2 that takes regular files only: WRONG_TYPE for directories and links too.
pub(super) fn wrong_type(stop: Stop) -> Stop {
    match stop {
        Stop::Status(Status::IsDir | Status::Symlink) => Status::WrongType.into(),
        stop => stop,
    }
}

/// SEEK. If nothing of what is sought follows, the result is the end of the file, and no failure.
fn seek(c: &Compound<'_>, arguments: &SeekArgs) -> Done<SeekOk> {
    c.may_block()?;
    let file = c.file_for(arguments.state, Io::Read)?;
    let what = match arguments.what {
        ContentType::Data => Extent::Data,
        ContentType::Hole => Extent::Hole,
    };
    let found = extents::seek(c.export, &c.who, &file, arguments.offset, what)?;
    Ok(SeekOk {
        eof: found.eof,
        offset: found.offset,
    })
}

/// IO_ADVISE. The server takes no hint.
fn advise(c: &Compound<'_>, arguments: &IoAdviseArgs) -> Done<Bitmap> {
    c.file_for(arguments.state, Io::Read)?;
    Ok(Bitmap::EMPTY)
}
