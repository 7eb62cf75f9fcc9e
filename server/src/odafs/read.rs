//! READ: as NFS READ, and the references of the pages that it touched come with it.

use odafs_common::reference::Reference;
use odafs_common::wire::nfs3::{Attributes, Failed, Payload};
use odafs_common::wire::odafs::{
    Chunk, MAX_READ_REFERENCES, PageReference, ReadArgs, ReadFacts, ReadOk, ReadReply, ReadResult,
};
use odafs_common::wire::xdr::{Encode as _, Writer};
use odafs_fabric::sync::Arc;
use odafs_fabric::{Remote, SteeringTag};
use odafs_nic::calls::{ChunkSource, ChunkWrite, Placed};

use super::REPLY_OVERHEAD_BYTES;
use crate::rpc::{Answer, Call};
use crate::vfs::attributes::attributes_of_handle;
use crate::vfs::export::Export;
use crate::vfs::file::File;
use crate::vfs::read::{ReadDone, ReadFailed, ReadRange, read as read_pages, read_pinned};
use crate::vfs::references;

/// The most data of one READ, in bytes.
const DATA_BYTES_MAX: u32 = 1 << 20;
/// The most references that ride on a reply: those of the range's first pages that are in memory, then of neighbours.
const REFERENCES_MAX: usize = 32;

pub(super) fn read(
    export: &Export,
    call: &Call<'_>,
    arguments: ReadArgs<'_>,
    w: &mut Writer<'_>,
) -> Answer {
    let file = match export.file_of_handle(arguments.file.0, call.effort) {
        Ok(file) => file,
        Err(failed) => {
            let rest = attributes_of_handle(export, arguments.file.0, call.effort).map(Into::into);
            return refuse(w, failed, rest);
        }
    };
    // Over TCP nobody can write there: the data are in the reply, and no more than the chunk would hold.
    let count =
        (arguments.chunk).map_or(arguments.count, |chunk| chunk.length.min(arguments.count));
    let arguments = ReadArgs { count, ..arguments };
    let writes = call.caller.transport.has_rdma_write();
    match (arguments.chunk.filter(|_| writes), call.caller.placement) {
        (Some(chunk), _) => read_to_chunk(export, call, &file, &arguments, chunk, w),
        (None, Some(room)) => read_placed(export, call, &file, &arguments, room, w),
        (None, None) => read_inline(export, call, &file, &arguments, w),
    }
}

/// The data goes into the reply, straight from the page cache.
fn read_inline(
    export: &Export,
    call: &Call<'_>,
    file: &Arc<File>,
    arguments: &ReadArgs<'_>,
    w: &mut Writer<'_>,
) -> Answer {
    let room = call.caller.reply_bytes_max;
    let room = room.saturating_sub(REPLY_OVERHEAD_BYTES);
    let range = within(file, arguments, room.min(DATA_BYTES_MAX));
    let mut reply = ReadReply::begin(w, range.count);
    match read_pages(export, &call.who, file, range, call.effort, reply.data()) {
        Ok(done) => {
            let range = ReadRange {
                count: done.count,
                ..range
            };
            let left = (room - done.count) as usize / PAGE_REFERENCE_BYTES;
            let (references, counter) = piggyback(export, call, file, arguments, range, left);
            reply.finish(ReadFacts {
                count: done.count,
                eof: done.eof,
                attributes: &done.attributes.into(),
                change: done.change,
                references: &references,
                counter,
                feedback: export.feedback(),
            });
            Answer::Replied
        }
        Err(failed) => {
            reply.cancel();
            refuse(w, failed, Some(file.attributes().into()))
        }
    }
}

/// The data goes ahead of the reply to where the transport says.
fn read_placed(
    export: &Export,
    call: &Call<'_>,
    file: &Arc<File>,
    arguments: &ReadArgs<'_>,
    room: u32,
    w: &mut Writer<'_>,
) -> Answer {
    let found = match read_apart(export, call, file, arguments, room) {
        Ok(found) => found,
        Err(failed) => return refuse(w, failed, Some(file.attributes().into())),
    };
    let at = ReadReply::placed(
        w,
        ReadFacts {
            count: found.done.count,
            eof: found.done.eof,
            attributes: &found.done.attributes.into(),
            change: found.done.change,
            references: &found.references,
            counter: found.counter,
            feedback: export.feedback(),
        },
    );
    Answer::Placed(Placed {
        at,
        length: found.done.count,
        pieces: found.pieces,
    })
}

/// The data goes ahead of the reply by RDMA Write, to where the call says.
fn read_to_chunk(
    export: &Export,
    call: &Call<'_>,
    file: &Arc<File>,
    arguments: &ReadArgs<'_>,
    chunk: Chunk,
    w: &mut Writer<'_>,
) -> Answer {
    let found = match read_apart(export, call, file, arguments, DATA_BYTES_MAX) {
        Ok(found) => found,
        Err(failed) => return refuse(w, failed, Some(file.attributes().into())),
    };
    let result: ReadResult<'_> = Ok(ReadOk {
        attributes: Some(found.done.attributes.into()),
        change: found.done.change,
        eof: found.done.eof,
        count: found.done.count,
        data: Payload(&[]),
        references: found.references,
        counter: found.counter,
        feedback: export.feedback(),
    });
    result.encode(w);
    Answer::Write(writes(found.pieces, chunk))
}

/// What a read found whose data goes apart from the reply.
struct Apart {
    done: ReadDone,
    /// The data, in the frames themselves where they can be pinned.
    pieces: Vec<ChunkSource>,
    references: Vec<PageReference>,
    counter: Option<Reference>,
}

/// Reads at most `room` bytes, of which none are in the reply.
fn read_apart(
    export: &Export,
    call: &Call<'_>,
    file: &Arc<File>,
    arguments: &ReadArgs<'_>,
    room: u32,
) -> Result<Apart, ReadFailed> {
    let range = ReadRange {
        offset: arguments.offset,
        count: arguments.count.min(room).min(DATA_BYTES_MAX),
    };
    let (done, pieces) = read_pinned(export, &call.who, file, range, call.effort)?;
    let range = ReadRange {
        count: done.count,
        ..range
    };
    let (references, counter) = piggyback(export, call, file, arguments, range, left_over(call));
    Ok(Apart {
        done,
        pieces,
        references,
        counter,
    })
}

/// References for which there is room in a reply without data.
fn left_over(call: &Call<'_>) -> usize {
    let room = call.caller.reply_bytes_max;
    room.saturating_sub(REPLY_OVERHEAD_BYTES) as usize / PAGE_REFERENCE_BYTES
}

const PAGE_REFERENCE_BYTES: usize = 8 + Reference::WIRE_BYTES;

/// No room is made for what lies behind the end of the file.
fn within(file: &File, arguments: &ReadArgs<'_>, room: u32) -> ReadRange {
    let behind = file.attributes().size.saturating_sub(arguments.offset);
    let count = u64::from(arguments.count.min(room)).min(behind) as u32;
    ReadRange {
        offset: arguments.offset,
        count,
    }
}

fn piggyback(
    export: &Export,
    call: &Call<'_>,
    file: &Arc<File>,
    arguments: &ReadArgs<'_>,
    range: ReadRange,
    room: usize,
) -> (Vec<PageReference>, Option<Reference>) {
    if !arguments.want_references || arguments.session == 0 {
        return (Vec::new(), None);
    }
    let limit = room.min(REFERENCES_MAX).min(MAX_READ_REFERENCES as usize);
    match super::session(export, call, arguments.session) {
        Some(session) => references::piggyback(export, file, &session, range, limit),
        None => (Vec::new(), None),
    }
}

/// One write for each piece, one after the other from the start of the chunk.
fn writes(pieces: Vec<ChunkSource>, chunk: Chunk) -> Vec<ChunkWrite> {
    let mut offset = chunk.offset;
    pieces
        .into_iter()
        .map(|from| {
            let to = Remote {
                tag: SteeringTag(chunk.tag),
                offset,
            };
            offset = offset.wrapping_add(from.length().into());
            ChunkWrite { from, to }
        })
        .collect()
}

fn refuse(w: &mut Writer<'_>, failed: ReadFailed, rest: Option<Attributes>) -> Answer {
    let status = match failed {
        ReadFailed::NotResident => return Answer::Blocks,
        ReadFailed::Status(status) => status.into(),
    };
    ReadResult::Err(Failed { status, rest }).encode(w);
    Answer::Replied
}
