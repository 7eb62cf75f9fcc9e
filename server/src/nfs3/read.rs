//! READ (RFC 1813, section 3.3.6). What is resident is copied straight from the page cache into the reply,
//! on the thread that received the call.

use odafs_common::wire::nfs3::{Attributes, Failed, ReadArgs, ReadReply, ReadResult, Status};
use odafs_common::wire::xdr::{Encode as _, Writer};

use super::{Blocks, Context, Step};
use crate::read::{ReadFailed, ReadRange, read as read_pages};

pub(super) fn read(context: &Context<'_>, arguments: ReadArgs<'_>, w: &mut Writer<'_>) -> Step {
    let file = match context
        .export
        .file_of_handle(arguments.file.0, context.effort)
    {
        Ok(file) => file,
        Err(ReadFailed::NotResident) => return Err(Blocks),
        Err(ReadFailed::Status(status)) => return refuse(w, status, None),
    };
    // No room is made for what lies behind the end of the file.
    let behind = file.attributes().size.saturating_sub(arguments.offset);
    let count = arguments.count.min(context.room);
    let count = count.min(u32::try_from(behind).unwrap_or(u32::MAX));
    let range = ReadRange {
        offset: arguments.offset,
        count,
    };
    let mut reply = ReadReply::begin(w, count);
    match read_pages(
        context.export,
        &context.who,
        &file,
        range,
        context.effort,
        reply.data(),
    ) {
        Ok(done) => {
            reply.finish(done.count, done.eof, &done.attributes);
            Ok(())
        }
        Err(ReadFailed::NotResident) => Err(Blocks),
        Err(ReadFailed::Status(status)) => {
            reply.cancel();
            refuse(w, status, Some(file.attributes()))
        }
    }
}

fn refuse(w: &mut Writer<'_>, status: Status, rest: Option<Attributes>) -> Step {
    ReadResult::Err(Failed { status, rest }).encode(w);
    Ok(())
}
