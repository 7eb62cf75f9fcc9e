//! ALLOCATE, DEALLOCATE, SEEK and IO_ADVISE (RFC 7862, sections 15.1, 15.4, 15.11 and 15.5).

use odafs_common::wire::nfs4::{
    Bitmap, ContentType, IoAdviseArgs, RangeArgs, SeekArgs, SeekOk, Status,
};
use odafs_fabric::sync::Arc;

use super::compound::{Compound, Done, Stop};
use super::state::Io;
use crate::vfs::file::File;
use crate::vfs::space::{self, Range};
use crate::vfs::{Extent, extents};

/// ALLOCATE
pub(super) fn allocate(c: &Compound<'_>, arguments: &RangeArgs) -> Done<()> {
    let (file, range) = to_change(c, arguments)?;
    Ok(space::allocate(c.export, &c.who, &file, range)?)
}

/// DEALLOCATE
pub(super) fn deallocate(c: &Compound<'_>, arguments: &RangeArgs) -> Done<()> {
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
pub(super) fn seek(c: &Compound<'_>, arguments: &SeekArgs) -> Done<SeekOk> {
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
pub(super) fn advise(c: &Compound<'_>, arguments: &IoAdviseArgs) -> Done<Bitmap> {
    c.may_block()?;
    c.file_for(arguments.state, Io::Read)?;
    Ok(Bitmap::EMPTY)
}
