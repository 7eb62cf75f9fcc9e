//! READ and READ_PLUS (RFC 7530, section 16.23; RFC 8881, section 18.22; RFC 7862, section 15.10). What is resident is
//! copied straight from the page cache into the reply, on the thread that received the call; or goes to the caller's
//! placement from where it lies, uncopied.

use odafs_common::wire::nfs4::{OpCode, ReadArgs, ReadPlusReply, ReadReply, ResultWriter, Status};
use odafs_nic::calls::Placed;

use super::DATA_BYTES_MAX;
use super::compound::{Compound, Done};
use super::state::Io;
use crate::vfs::Extent;
use crate::vfs::extents::{Part, part};
use crate::vfs::file::File;
use crate::vfs::read::{Effort, ReadFailed, ReadRange, read as read_pages, read_pinned};
use odafs_fabric::sync::Arc;

/// What a result has besides data, and what follows it in a common compound, in bytes.
const OVERHEAD: usize = 512;
/// The most data and holes of one READ_PLUS: what they have besides data is a part of [`OVERHEAD`].
const CONTENTS_MAX: u32 = 16;

pub(super) fn read(
    c: &mut Compound<'_>,
    arguments: &ReadArgs,
    w: &mut ResultWriter<'_, '_>,
) -> Done<Status> {
    let file = file(c, arguments)?;
    match c.placement.filter(|_| c.placed.is_none()) {
        Some(room) => read_placed(c, &file, arguments, room, w),
        None => read_inline(c, &file, arguments, w),
    }
}

/// The file, if its data may be read under the stateid.
fn file(c: &Compound<'_>, arguments: &ReadArgs) -> Done<Arc<File>> {
    let file = c.file()?;
    let state = c.state(arguments.state)?;
    let mut machine = c.server.state.lock();
    machine.io(c.now, c.sender, &state, file.object(), Io::Read)?;
    Ok(file)
}

/// The range to read where there is so much room.
fn range(file: &File, arguments: &ReadArgs, room: usize) -> ReadRange {
    let room = u32::try_from(room).unwrap_or(u32::MAX).min(DATA_BYTES_MAX);
    ReadRange::within(file, arguments.offset, arguments.count.min(room))
}

/// Whether nothing was read for want of room in the reply. A result without data, short of the end of the file, is a failure
/// to clients.
fn has_no_room(arguments: &ReadArgs, range: ReadRange, eof: bool) -> bool {
    arguments.count > 0 && range.count == 0 && !eof
}

fn read_inline(
    c: &Compound<'_>,
    file: &Arc<File>,
    arguments: &ReadArgs,
    w: &mut ResultWriter<'_, '_>,
) -> Done<Status> {
    let range = range(file, arguments, c.room(w).saturating_sub(OVERHEAD));
    let mut reply = ReadReply::begin(w.start(OpCode::Read), range.count);
    match read_pages(c.export, &c.who, file, range, c.effort, reply.data()) {
        Ok(done) if has_no_room(arguments, range, done.eof) => {
            reply.cancel();
            w.take_back();
            Err(c.too_big().into())
        }
        Ok(done) => {
            reply.finish(done.count, done.eof);
            Ok(Status::Ok)
        }
        Err(failed) => {
            reply.cancel();
            w.take_back();
            Err(failed.into())
        }
    }
}

fn read_placed(
    c: &mut Compound<'_>,
    file: &Arc<File>,
    arguments: &ReadArgs,
    room: u32,
    w: &mut ResultWriter<'_, '_>,
) -> Done<Status> {
    let range = range(file, arguments, room as usize);
    let (done, pieces) = read_pinned(c.export, &c.who, file, range, c.effort)?;
    c.placed = Some(Placed {
        at: ReadReply::placed(w.start(OpCode::Read), done.count, done.eof),
        length: done.count,
        pieces,
    });
    Ok(Status::Ok)
}

/// Holes are told where the store knows them, on threads that may ask it. What is resident is data.
pub(super) fn read_plus(
    c: &mut Compound<'_>,
    arguments: &ReadArgs,
    w: &mut ResultWriter<'_, '_>,
) -> Done<Status> {
    let file = file(c, arguments)?;
    let range = range(&file, arguments, c.room(w).saturating_sub(OVERHEAD));
    let mut reply = ReadPlusReply::begin(w.start(OpCode::ReadPlus));
    match contents(c, &file, range, &mut reply) {
        Ok(eof) if has_no_room(arguments, range, eof) => {
            reply.cancel();
            w.take_back();
            Err(c.too_big().into())
        }
        Ok(eof) => {
            reply.finish(eof);
            Ok(Status::Ok)
        }
        Err(failed) => {
            reply.cancel();
            w.take_back();
            Err(failed.into())
        }
    }
}

/// Writes data and holes of a range, or of its beginning: whether the file ends with them.
fn contents(
    c: &Compound<'_>,
    file: &Arc<File>,
    range: ReadRange,
    reply: &mut ReadPlusReply<'_, '_>,
) -> Result<bool, ReadFailed> {
    let (mut at, end) = (range.offset, range.offset + u64::from(range.count));
    for _ in 0..CONTENTS_MAX {
        let part = match c.effort {
            Effort::MayBlock if at < end => part(c.export, &c.who, file, at, end)?,
            _ => Part {
                what: Extent::Data,
                length: end - at,
                eof: false,
            },
        };
        let eof = match part.what {
            Extent::Hole => {
                reply.hole(at, part.length);
                at += part.length;
                part.eof
            }
            Extent::Data => {
                let count = part.length as u32;
                let wanted = ReadRange { offset: at, count };
                let mut eof = false;
                let read = reply.data(at, count, |data| {
                    let done = read_pages(c.export, &c.who, file, wanted, c.effort, data)?;
                    eof = done.eof;
                    Ok::<_, ReadFailed>(done.count)
                })?;
                at += u64::from(read);
                eof
            }
        };
        if eof || at >= end {
            return Ok(eof);
        }
    }
    Ok(false)
}
