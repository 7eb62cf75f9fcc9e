//! ALLOCATE, SEEK and IO_ADVISE (RFC 7862, sections 15.1, 15.11 and 15.5). A store tells no holes: all of a file is data, up to the hole
//! that every file has at its end.

use odafs_common::wire::nfs4::{
    Bitmap, ContentType, IoAdviseArgs, RangeArgs, SeekArgs, SeekOk, Status,
};

use super::compound::{Compound, Done};
use super::state::Io;
use crate::vfs::attributes;

/// ALLOCATE
pub(super) fn allocate(c: &Compound<'_>, arguments: &RangeArgs) -> Done<()> {
    c.may_block()?;
    let file = c.file()?;
    let state = c.state(arguments.state)?;
    let mut machine = c.server.state.lock();
    machine.io(c.now, c.sender, &state, file.object(), Io::Write)?;
    drop(machine);
    let (offset, length) = (arguments.offset, arguments.length);
    let end = offset.checked_add(length).filter(|_| length > 0);
    if end.ok_or(Status::Inval)? > i64::MAX as u64 {
        return Err(Status::FBig.into());
    }
    Ok(attributes::allocate(
        c.export,
        &c.who,
        file.object(),
        offset,
        length,
    )?)
}

/// SEEK
pub(super) fn seek(c: &Compound<'_>, arguments: &SeekArgs) -> Done<SeekOk> {
    let file = c.file()?;
    let state = c.state(arguments.state)?;
    let mut machine = c.server.state.lock();
    machine.io(c.now, c.sender, &state, file.object(), Io::Read)?;
    drop(machine);
    let size = c.attributes(file.object())?.size;
    if arguments.offset >= size {
        return Err(Status::Nxio.into());
    }
    Ok(match arguments.what {
        ContentType::Data => SeekOk {
            eof: false,
            offset: arguments.offset,
        },
        ContentType::Hole => SeekOk {
            eof: true,
            offset: size,
        },
    })
}

/// IO_ADVISE: no advice is taken.
pub(super) fn advise(c: &Compound<'_>, arguments: &IoAdviseArgs) -> Done<Bitmap> {
    let file = c.file()?;
    let state = c.state(arguments.state)?;
    let mut machine = c.server.state.lock();
    machine.io(c.now, c.sender, &state, file.object(), Io::Read)?;
    Ok(Bitmap::EMPTY)
}
