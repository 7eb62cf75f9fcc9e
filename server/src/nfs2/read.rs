//! READ (RFC 1094, section 2.2.7). The thread that received the call copies resident pages straight from the page cache into
//! the reply. If the caller has a placement, they go there uncopied.

use odafs_common::wire::nfs2::{MAX_DATA, ReadArgs, ReadReply, Status};
use odafs_common::wire::xdr::Writer;
use odafs_nic::calls::Placed;

use super::convert::SIZE_MAX;
use super::{Context, Done};
use crate::rpc::Answer;
use crate::vfs::read::{ReadRange, read as read_pages, read_pinned};

pub(super) fn read(
    context: &Context<'_>,
    arguments: ReadArgs<'_>,
    w: &mut Writer<'_>,
) -> Done<Answer> {
    let file = context.file(arguments.file)?;
    // A client would take the size that it is shown for the file's end, and a part of the file for all of it.
    if file.attributes().size > SIZE_MAX {
        return Err(Status::FBig.into());
    }
    let room = (context.placement).map_or(context.room, |room| room.min(MAX_DATA));
    let count = arguments.count.min(room);
    let range = ReadRange::within(&file, arguments.offset.into(), count);
    let (export, who, effort) = (context.export, &context.who, context.effort);
    if context.placement.is_some() {
        let (done, pieces) = read_pinned(export, who, &file, range, effort)?;
        let at = ReadReply::placed(w, done.count, &done.attributes.into());
        return Ok(Answer::Placed(Placed::one(at, done.count, pieces)));
    }
    let mut reply = ReadReply::begin(w, range.count);
    match read_pages(export, who, &file, range, effort, reply.data()) {
        Ok(done) => {
            reply.finish(done.count, &done.attributes.into());
            Ok(Answer::Replied)
        }
        Err(failed) => {
            reply.cancel();
            Err(failed.into())
        }
    }
}
