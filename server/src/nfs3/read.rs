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
    let room = context
        .placement
        .map_or(context.room, |room| room.min(DATA_BYTES_MAX));
    let count = arguments.count.min(room);
    let range = ReadRange::within(&file, arguments.offset, count);
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
        Ok((done, pieces)) => {
            let at = ReadReply::placed(w, done.count, done.eof, &done.attributes.into());
            Ok(Answer::Placed(Placed::one(at, done.count, pieces)))
        }
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

#[cfg(test)]
mod tests {
    use odafs_common::wire::nfs3::{FileHandle, Procedure};
    use odafs_common::wire::xdr::{Decode as _, Reader};
    use odafs_fabric::Peer;
    use odafs_nic::calls::{Caller, Notes, Placements, Transport};

    use super::*;
    use crate::nfs3::Nfs3;
    use crate::rpc::access::Rights;
    use crate::rpc::{ApartPayloads, Call, Program as _};
    use crate::vfs::read::Effort;
    use crate::vfs::testing::{World, owner};

    /// libnfs fails a read that brings nothing and has not met the end of the file; Linux' client reports EIO.
    #[test]
    fn a_read_brings_something_where_the_file_has_grown_before_it() {
        let world = World::new(64);
        let file = world.file("a", b"old");
        let arguments = ReadArgs {
            file: FileHandle(file.handle()),
            offset: 3,
            count: 100,
        };
        let arguments = arguments.to_bytes();
        let caller = Caller {
            peer: Peer::Simulated(1),
            local: None,
            connection: 1,
            transport: Transport::NfsTcp,
            reply_bytes_max: 1 << 20,
            placements: Placements::default(),
            apart: None,
            back: None,
            notes: Notes::default(),
        };
        let call = Call {
            caller: &caller,
            who: owner(),
            rights: Rights::default(),
            procedure: Procedure::Read.code(),
            arguments: Reader::new(&arguments),
            apart: ApartPayloads::default(),
            effort: Effort::MayBlock,
        };
        world.write_unreported(&file, b"old and new");
        let mut results = Vec::new();
        let answer =
            Nfs3::new(Arc::clone(&world.export)).call(call, &mut Writer::new(&mut results));
        assert!(matches!(answer, Answer::Replied), "{answer:?}");
        let done = ReadResult::from_bytes(&results).expect("a result");
        let done = done.expect("read");
        assert_eq!((done.data.0, done.eof), (&b" and new"[..], true));
    }
}
