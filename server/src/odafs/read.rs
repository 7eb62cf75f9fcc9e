//! READ: as READ of NFS, with references to the pages that it touched.

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
use crate::vfs::Credential;
use crate::vfs::attributes::attributes_of_handle;
use crate::vfs::export::Exports;
use crate::vfs::file::File;
use crate::vfs::read::{ReadDone, ReadFailed, ReadRange, read as read_pages, read_pinned};
use crate::vfs::references;

/// The most data of one READ, in bytes.
const DATA_BYTES_MAX: u32 = 1 << 20;
/// The most references in a reply: those of the first resident pages of the range, and then of neighbours.
const REFERENCES_MAX: usize = 32;

/// A call, and the credential with which it acts in the file's export.
#[derive(Clone, Copy)]
struct Acting<'a, 'c> {
    call: &'a Call<'c>,
    who: &'a Credential,
}

pub(super) fn read(
    export: &Exports,
    call: &Call<'_>,
    arguments: ReadArgs<'_>,
    w: &mut Writer<'_>,
) -> Answer {
    let tag = export.tag_of_handle(arguments.file.0);
    let who = &match call.rights.credential(tag, &call.who) {
        Ok(who) => who,
        Err(status) => return refuse(w, status.into(), None),
    };
    let file = match export.file_of_handle(arguments.file.0, call.effort) {
        Ok(file) => file,
        Err(failed) => {
            let rest = attributes_of_handle(export, arguments.file.0, call.effort).map(Into::into);
            return refuse(w, failed, rest);
        }
    };
    // Over TCP the server cannot write to a chunk. The data goes into the reply, at most as much as the chunk would hold.
    let count =
        (arguments.chunk).map_or(arguments.count, |chunk| chunk.length.min(arguments.count));
    let arguments = ReadArgs { count, ..arguments };
    let writes = call.caller.transport.has_rdma_write();
    let acting = Acting { call, who };
    match (
        arguments.chunk.filter(|_| writes),
        call.caller.placements.first(),
    ) {
        (Some(chunk), _) => read_to_chunk(export, acting, &file, &arguments, chunk, w),
        (None, Some(room)) => read_placed(export, acting, &file, &arguments, room, w),
        (None, None) => read_inline(export, acting, &file, &arguments, w),
    }
}

/// Copies the data from the page cache into the reply.
fn read_inline(
    export: &Exports,
    acting: Acting<'_, '_>,
    file: &Arc<File>,
    arguments: &ReadArgs<'_>,
    w: &mut Writer<'_>,
) -> Answer {
    let room = acting.call.caller.reply_bytes_max;
    let room = room.saturating_sub(REPLY_OVERHEAD_BYTES);
    let count = arguments.count.min(room).min(DATA_BYTES_MAX);
    let range = ReadRange::within(file, arguments.offset, count);
    let mut reply = ReadReply::begin(w, range.count);
    match read_pages(
        export,
        acting.who,
        file,
        range,
        acting.call.effort,
        reply.data(),
    ) {
        Ok(done) => {
            let range = ReadRange {
                count: done.count,
                ..range
            };
            let left = (room - done.count) as usize / PAGE_REFERENCE_BYTES;
            let (references, counter) = piggyback(export, acting, file, arguments, range, left);
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

/// Sends the data ahead of the reply, to the placement that the transport names.
fn read_placed(
    export: &Exports,
    acting: Acting<'_, '_>,
    file: &Arc<File>,
    arguments: &ReadArgs<'_>,
    room: u32,
    w: &mut Writer<'_>,
) -> Answer {
    let found = match read_apart(export, acting, file, arguments, room) {
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
    Answer::Placed(Placed::one(at, found.done.count, found.pieces))
}

/// Sends the data ahead of the reply by RDMA Write, to the chunk that the call names.
fn read_to_chunk(
    export: &Exports,
    acting: Acting<'_, '_>,
    file: &Arc<File>,
    arguments: &ReadArgs<'_>,
    chunk: Chunk,
    w: &mut Writer<'_>,
) -> Answer {
    let found = match read_apart(export, acting, file, arguments, DATA_BYTES_MAX) {
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

/// The result of a read whose data travels apart from the reply.
struct Apart {
    done: ReadDone,
    /// The data: pinned frames where possible, else copies.
    pieces: Vec<ChunkSource>,
    references: Vec<PageReference>,
    counter: Option<Reference>,
}

/// Reads at most `room` bytes, none of which go into the reply.
fn read_apart(
    export: &Exports,
    acting: Acting<'_, '_>,
    file: &Arc<File>,
    arguments: &ReadArgs<'_>,
    room: u32,
) -> Result<Apart, ReadFailed> {
    let range = ReadRange {
        offset: arguments.offset,
        count: arguments.count.min(room).min(DATA_BYTES_MAX),
    };
    let (done, pieces) = read_pinned(export, acting.who, file, range, acting.call.effort)?;
    let range = ReadRange {
        count: done.count,
        ..range
    };
    let (references, counter) = piggyback(
        export,
        acting,
        file,
        arguments,
        range,
        left_over(acting.call),
    );
    Ok(Apart {
        done,
        pieces,
        references,
        counter,
    })
}

/// The number of references that fit in a reply without data.
fn left_over(call: &Call<'_>) -> usize {
    let room = call.caller.reply_bytes_max;
    room.saturating_sub(REPLY_OVERHEAD_BYTES) as usize / PAGE_REFERENCE_BYTES
}

const PAGE_REFERENCE_BYTES: usize = 8 + Reference::WIRE_BYTES;

fn piggyback(
    export: &Exports,
    acting: Acting<'_, '_>,
    file: &Arc<File>,
    arguments: &ReadArgs<'_>,
    range: ReadRange,
    room: usize,
) -> (Vec<PageReference>, Option<Reference>) {
    if !arguments.want_references || arguments.session == 0 {
        return (Vec::new(), None);
    }
    let limit = room.min(REFERENCES_MAX).min(MAX_READ_REFERENCES as usize);
    match super::session(export, acting.call, arguments.session) {
        Some(session) => references::piggyback(export, file, (&*session, acting.who), range, limit),
        None => (Vec::new(), None),
    }
}

/// One RDMA Write for each piece, in order from the start of the chunk.
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
