//! SEEK and IO_ADVISE (RFC 7862, sections 15.5 and 15.11). A store tells no holes: all of a file is data, up to the hole
//! that every file has at its end.

use odafs_common::wire::nfs4::{Bitmap, ContentType, IoAdviseArgs, SeekArgs, SeekOk, Status};

use super::compound::{Compound, Done};
use super::state::Io;

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
