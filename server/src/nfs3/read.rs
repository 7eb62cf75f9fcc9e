//! READ (RFC 1813, section 3.3.6). The thread that received the call copies resident data from the page cache into the
//! reply, or sends it from the frames to the caller's placement without a copy.

use odafs_common::wire::nfs3::{Attributes, Failed, ReadArgs, ReadReply, ReadResult};
use odafs_common::wire::xdr::{Encode as _, Writer};
use odafs_fabric::sync::Arc;
use odafs_nic::calls::Placed;

use super::{Blocks, Context, DATA_BYTES_MAX, PlacingStep};
use crate::rpc::Answer;
use crate::vfs::file::File;
use crate::vfs::read::{ReadFailed, ReadRange, read as read_pages, read_pinned};

pub(super) fn read(
    context: &Context<'_>,
    arguments: ReadArgs<'_>,
    w: &mut Writer<'_>,
) -> PlacingStep {
    let file = match context.file(arguments.file) {
        Ok(file) => file,
        Err(failed) => {
            let rest = context.attributes_of(arguments.file);
            return refuse(w, failed, rest);
        }
    };
    // The range ends at the end of the file, so that no room is wasted.
    let behind = file.attributes().size.saturating_sub(arguments.offset);
    let room = context
        .placement
        .map_or(context.room, |room| room.min(DATA_BYTES_MAX));
    let count = arguments.count.min(room);
    let range = ReadRange {
        offset: arguments.offset,
        count: count.min(u32::try_from(behind).unwrap_or(u32::MAX)),
    };
    match context.placement {
        None => read_inline(context, &file, range, w),
        Some(_) => read_placed(context, &file, range, w),
    }
}

fn read_inline(
    context: &Context<'_>,
    file: &Arc<File>,
    range: ReadRange,
    w: &mut Writer<'_>,
) -> PlacingStep {
    let mut reply = ReadReply::begin(w, range.count);
    match read_pages(
        context.export,
        &context.who,
        file,
        range,
        context.effort,
        reply.data(),
    ) {
        Ok(done) => {
            reply.finish(done.count, done.eof, &done.attributes.into());
            Ok(Answer::Replied)
        }
        Err(failed) => {
            reply.cancel();
            refuse(w, failed, Some(file.attributes().into()))
        }
    }
}

fn read_placed(
    context: &Context<'_>,
    file: &Arc<File>,
    range: ReadRange,
    w: &mut Writer<'_>,
) -> PlacingStep {
    match read_pinned(context.export, &context.who, file, range, context.effort) {
        Ok((done, pieces)) => Ok(Answer::Placed(Placed {
            at: ReadReply::placed(w, done.count, done.eof, &done.attributes.into()),
            length: done.count,
            pieces,
        })),
        Err(failed) => refuse(w, failed, Some(file.attributes().into())),
    }
}

fn refuse(w: &mut Writer<'_>, failed: ReadFailed, rest: Option<Attributes>) -> PlacingStep {
    let status = match failed {
        ReadFailed::NotResident => return Err(Blocks),
        ReadFailed::Status(status) => status.into(),
    };
    ReadResult::Err(Failed { status, rest }).encode(w);
    Ok(Answer::Replied)
}
