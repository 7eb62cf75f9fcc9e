//! ALLOCATE, DEALLOCATE, SEEK and IO_ADVISE (RFC 7862, sections 15.1, 15.4, 15.11 and 15.5).

use odafs_common::wire::nfs4::{
    Bitmap, ContentType, IoAdviseArgs, RangeArgs, SeekArgs, SeekOk, Status, io_advice,
};
use odafs_fabric::sync::Arc;

use super::compound::{Compound, Done, Stop};
use super::state::Io;
use crate::vfs::advice::{self, Frames, Pattern};
use crate::vfs::file::File;
use crate::vfs::space::{self, Range};
use crate::vfs::{Extent, extents};

/// The hints of an order.
const ORDERS: [(u32, Pattern); 3] = [
    (io_advice::NORMAL, Pattern::Normal),
    (io_advice::SEQUENTIAL, Pattern::Sequential),
    (io_advice::RANDOM, Pattern::Random),
];

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

/// IO_ADVISE: returns the hints that the server takes.
///
/// - An order holds for an open and for all of the file. If it is of a part, or several at once, the open has none afterwards.
/// - What will be needed comes into memory before the reply, as far as [`advice::will_need`] goes, once in a compound. Where that
///   is to cost nobody anything, it takes only frames that are free.
pub(super) fn advise(c: &mut Compound<'_>, arguments: &IoAdviseArgs) -> Done<Bitmap> {
    c.may_block()?;
    let file = c.file_for(arguments.state, Io::Read)?;
    let (offset, count) = (arguments.offset, arguments.count);
    let length = if count == 0 { u64::MAX } else { count };
    let range = Range { offset, length };
    let asked = |hint| arguments.hints.has(hint);
    let mut taken = Bitmap::EMPTY;
    let backwards = asked(io_advice::SEQUENTIAL_BACKWARDS);
    let orders: Vec<_> = ORDERS.iter().filter(|(hint, _)| asked(*hint)).collect();
    if backwards || !orders.is_empty() {
        let whole = offset == 0 && length >= file.attributes().size;
        let order = match orders[..] {
            [order] if whole && !backwards => Some(*order),
            _ => None,
        };
        let pattern = order.map_or(Pattern::Normal, |(_, pattern)| pattern);
        let stateid = c.stateid(arguments.state)?;
        let mut state = c.server.state.lock();
        let is_kept = state.read_in_order(c.now, c.sender, &stateid, file.object(), pattern);
        if let Some((hint, _)) = order.filter(|_| is_kept) {
            taken = taken.with(hint);
        }
    }
    let needed = [
        (io_advice::WILL_NEED, Frames::Any),
        (io_advice::WILL_NEED_OPPORTUNISTIC, Frames::Free),
    ];
    for (hint, frames) in needed.into_iter().filter(|(hint, _)| asked(*hint)) {
        if std::mem::replace(&mut c.has_filled, true) {
            break;
        }
        if advice::will_need(c.export, &c.who, &file, range, frames)? {
            taken = taken.with(hint);
        }
    }
    Ok(taken)
}
