//! Replies that slots keep for repetitions. A client that asks for it (`sa_cachethis`) gets a reply that is kept, or an error
//! that says that it cannot be (RFC 8881, section 2.10.6.4). So data that go to the caller's memory are kept with their reply,
//! and count for its length as if they were in it. A repetition brings chunks of its own.

use std::borrow::Cow;

use odafs_common::wire::xdr::Writer;
use odafs_fabric::memory::Arena;
use odafs_nic::calls::{ChunkSource, Placed, PlacedResult, Placements};

use super::placing::Placing;
use super::state::{KeptReply, Slot};
use crate::rpc::Answer;

/// What a slot may keep of a reply, as [`State::finish`](super::state::State::finish) takes it.
pub(super) struct ToKeep<'a> {
    /// The reply, and behind it the data that were placed.
    pub bytes: Cow<'a, [u8]>,
    /// Whose data they are. `None`: the reply lacks data that are not there, since the client does not want it kept.
    pub apart: Option<Vec<PlacedResult>>,
}

impl<'a> ToKeep<'a> {
    /// Of a reply that begins at `start` of its message.
    pub fn of(
        reply: &'a [u8],
        start: usize,
        placing: &Placing,
        slot: &Slot,
        arena: &Arena,
    ) -> Self {
        let placed = placing.placed().filter(|placed| placed.bytes() > 0);
        let Some(placed) = placed else {
            return Self {
                bytes: Cow::Borrowed(reply),
                apart: Some(Vec::new()),
            };
        };
        if !slot.cache {
            return Self {
                bytes: Cow::Borrowed(reply),
                apart: None,
            };
        }
        let mut bytes = reply.to_vec();
        for piece in &placed.pieces {
            append(&mut bytes, piece, arena);
        }
        let results = placed.results.iter().map(|result| PlacedResult {
            at: result.at - start as u32,
            ..*result
        });
        Self {
            bytes: Cow::Owned(bytes),
            apart: Some(results.collect()),
        }
    }
}

fn append(bytes: &mut Vec<u8>, piece: &ChunkSource, arena: &Arena) {
    match piece {
        ChunkSource::Bytes(data) => bytes.extend_from_slice(data),
        ChunkSource::Frame {
            frame,
            offset,
            length,
        } => {
            let at = bytes.len();
            bytes.resize(at + *length as usize, 0);
            arena.copy_out(frame.frame(), *offset, &mut bytes[at..]);
        }
    }
}

/// Answers a repetition. The data are placed as the first time if there is a chunk for each. Otherwise they are in the reply: the
/// call came over another transport, or with other chunks.
pub(super) fn replay(kept: &KeptReply, placements: &Placements, w: &mut Writer<'_>) -> Answer {
    let start = w.position() as u32;
    let data: usize = kept.apart.iter().map(|result| result.bytes as usize).sum();
    let (reply, mut data) = kept.bytes.split_at(kept.bytes.len() - data);
    let has_chunk = |result: &PlacedResult| {
        let room = placements.get(result.result as usize).unwrap_or(0);
        result.bytes <= room
    };
    if !data.is_empty() && kept.apart.iter().all(has_chunk) {
        w.opaque_fixed(reply);
        let mut placed = Placed {
            pieces: vec![ChunkSource::Bytes(data.to_vec())],
            ..Placed::default()
        };
        for result in &kept.apart {
            let at = start + result.at;
            // They were in such a list before.
            let _ = placed.results.push(PlacedResult { at, ..*result });
        }
        return Answer::Placed(placed);
    }
    let mut done = 0;
    for result in &kept.apart {
        let (one, rest) = data.split_at(result.bytes as usize);
        w.opaque_fixed(&reply[done..result.at as usize]);
        w.opaque_fixed(one);
        (done, data) = (result.at as usize, rest);
    }
    w.opaque_fixed(&reply[done..]);
    Answer::Replied
}
