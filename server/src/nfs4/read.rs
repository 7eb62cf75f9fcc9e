//! READ and READ_PLUS (RFC 7530, section 16.23; RFC 8881, section 18.22; RFC 7862, section 15.10). The thread that received the
//! call copies resident pages into the reply. If the caller has a placement for it, READ sends it the pages from the page cache
//! without a copy. READ_PLUS is not DDP-eligible (RFC 8267, section 6.1): nobody could tell where its data will be.

use odafs_common::wire::nfs4::{OpCode, ReadArgs, ReadPlusReply, ReadReply, ResultWriter, Status};

use super::DATA_BYTES_MAX;
use super::compound::{Compound, Done};
use crate::vfs::Extent;
use crate::vfs::advice::Pattern;
use crate::vfs::extents::{Part, may_have_holes, part};
use crate::vfs::file::File;
use crate::vfs::read::{Effort, ReadFailed, ReadRange, read_as, read_pinned_as};
use odafs_fabric::sync::Arc;

/// Bytes of a result besides its data, and of the results that usually follow it in a compound.
const OVERHEAD: usize = 512;
/// The most segments (data or a hole) of one READ_PLUS. [`OVERHEAD`] has room for their headers.
const SEGMENTS_MAX: u32 = 16;

pub(super) fn read(
    c: &mut Compound<'_>,
    arguments: &ReadArgs,
    w: &mut ResultWriter<'_, '_>,
) -> Done<Status> {
    let (file, pattern) = c.file_to_read(arguments.state)?;
    match c.placement() {
        Some(room) => read_placed(c, (&file, pattern), arguments, room, w),
        None => read_inline(c, (&file, pattern), arguments, w),
    }
}

/// The range to read if there is room for `room` bytes of data.
fn range(file: &File, arguments: &ReadArgs, room: usize) -> ReadRange {
    let room = u32::try_from(room).unwrap_or(u32::MAX).min(DATA_BYTES_MAX);
    ReadRange::within(file, arguments.offset, arguments.count.min(room))
}

/// Fails if the reply had no room for data. To clients a result that has no data and is not the end of the file is a failure.
fn check_room(c: &Compound<'_>, arguments: &ReadArgs, range: ReadRange, eof: bool) -> Done<()> {
    match arguments.count > 0 && range.count == 0 && !eof {
        true => Err(c.too_big().into()),
        false => Ok(()),
    }
}

fn read_inline(
    c: &mut Compound<'_>,
    (file, pattern): (&Arc<File>, Pattern),
    arguments: &ReadArgs,
    w: &mut ResultWriter<'_, '_>,
) -> Done<Status> {
    let range = range(file, arguments, c.room(w).saturating_sub(OVERHEAD));
    let mut reply = ReadReply::begin(w.start(OpCode::Read), range.count);
    let done = read_as(
        c.export,
        &c.who,
        file,
        range,
        pattern,
        c.effort,
        reply.data(),
    )?;
    check_room(c, arguments, range, done.eof)?;
    reply.finish(done.count, done.eof);
    c.placing.inline();
    Ok(Status::Ok)
}

fn read_placed(
    c: &mut Compound<'_>,
    (file, pattern): (&Arc<File>, Pattern),
    arguments: &ReadArgs,
    room: u32,
    w: &mut ResultWriter<'_, '_>,
) -> Done<Status> {
    let left = c.session_room(w).saturating_sub(OVERHEAD);
    let range = range(file, arguments, left.min(room as usize));
    let (done, pieces) = read_pinned_as(c.export, &c.who, file, range, pattern, c.effort)?;
    check_room(c, arguments, range, done.eof)?;
    let at = ReadReply::placed(w.start(OpCode::Read), done.count, done.eof);
    c.placing.place(at, done.count, pieces);
    Ok(Status::Ok)
}

/// Holes are those that the store knows. A file that may have some is left to a thread that may ask the store. Without holes
/// all is data, and a thread that polls reads what is resident.
pub(super) fn read_plus(
    c: &mut Compound<'_>,
    arguments: &ReadArgs,
    w: &mut ResultWriter<'_, '_>,
) -> Done<Status> {
    let (file, pattern) = c.file_to_read(arguments.state)?;
    let range = range(&file, arguments, c.room(w).saturating_sub(OVERHEAD));
    if range.count > 0 && may_have_holes(&file) {
        c.may_block()?;
    }
    let mut reply = ReadPlusReply::begin(w.start(OpCode::ReadPlus));
    let eof = segments(c, (&file, pattern), range, &mut reply)?;
    check_room(c, arguments, range, eof)?;
    reply.finish(eof);
    Ok(Status::Ok)
}

/// Writes the data and holes of a range, or of its beginning. Returns whether the file ends with them.
fn segments(
    c: &Compound<'_>,
    (file, pattern): (&Arc<File>, Pattern),
    range: ReadRange,
    reply: &mut ReadPlusReply<'_, '_>,
) -> Result<bool, ReadFailed> {
    let (mut at, end) = (range.offset, range.offset + u64::from(range.count));
    for _ in 0..SEGMENTS_MAX {
        let part = part_at(c, file, at, end)?;
        let eof = match part.what {
            Extent::Hole => {
                reply.hole(at, part.length);
                at += part.length;
                part.eof
            }
            Extent::Data => {
                let mut length = part.length;
                // The store and the page cache may tell data in several parts. They are one segment. A hole behind them is asked
                // for again once they were read: else the reply could show a later write and not an earlier one.
                while at + length < end {
                    let more = part_at(c, file, at + length, end)?;
                    if more.what == Extent::Hole {
                        break;
                    }
                    length += more.length;
                }
                let count = length as u32;
                let wanted = ReadRange { offset: at, count };
                let mut eof = false;
                let read = reply.data(at, count, |data| {
                    let done = read_as(c.export, &c.who, file, wanted, pattern, c.effort, data)?;
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

/// What is at the beginning of these bytes.
fn part_at(c: &Compound<'_>, file: &Arc<File>, at: u64, end: u64) -> Result<Part, ReadFailed> {
    match c.effort {
        Effort::MayBlock if at < end => part(c.export, &c.who, file, at, end),
        _ => Ok(Part {
            what: Extent::Data,
            length: end - at,
            eof: false,
        }),
    }
}
