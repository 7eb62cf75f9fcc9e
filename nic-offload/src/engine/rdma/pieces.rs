//! The data of a reply, cut as the client's chunks are.

use std::collections::VecDeque;

use odafs_common::rpcrdma::{Expose, Source};
use odafs_common::wire::rpcrdma::Segment;
use odafs_fabric::memory::Arena;
use odafs_fabric::{Remote, SteeringTag};

use crate::calls::{ChunkSource, ChunkWrite};
use crate::engine::Now;

/// Data that is taken from the front.
pub(super) struct Pieces(VecDeque<ChunkSource>);

impl Pieces {
    pub fn new(pieces: Vec<ChunkSource>) -> Pieces {
        Pieces(pieces.into())
    }

    /// The next piece, of `length` bytes at most. What of a frame goes two ways is copied: it has one pin.
    pub fn take(&mut self, length: u32, arena: &Arena) -> Option<ChunkSource> {
        let piece = self.0.pop_front()?;
        if piece.length() <= length {
            return Some(piece);
        }
        let (first, rest) = match piece {
            ChunkSource::Frame {
                frame,
                offset,
                length: whole,
            } => {
                let mut copy = vec![0; length as usize];
                arena.copy_out(frame.frame(), offset, &mut copy);
                let rest = ChunkSource::Frame {
                    frame,
                    offset: offset + length,
                    length: whole - length,
                };
                (copy, rest)
            }
            ChunkSource::Bytes(mut bytes) => {
                let rest = bytes.split_off(length as usize);
                (bytes, ChunkSource::Bytes(rest))
            }
        };
        self.0.push_front(rest);
        Some(ChunkSource::Bytes(first))
    }
}

/// The writes that bring `from` to its place.
pub(super) fn cut(
    from: &Source,
    to: Segment,
    pieces: &mut Pieces,
    reply: &[u8],
    now: &Now<'_>,
    writes: &mut VecDeque<ChunkWrite>,
) {
    let mut to = Remote {
        tag: SteeringTag(to.handle),
        offset: to.offset,
    };
    match from {
        Source::Message(range) => {
            let bytes = reply.get(range.clone()).unwrap_or_default().to_vec();
            let from = ChunkSource::Bytes(bytes);
            writes.push_back(ChunkWrite { from, to });
        }
        Source::Data(range) => {
            let mut left = range.end.saturating_sub(range.start);
            while left > 0
                && let Some(from) = pieces.take(left, &now.serves.arena)
            {
                let length = from.length();
                writes.push_back(ChunkWrite { from, to });
                to.offset = to.offset.wrapping_add(length.into());
                left -= length;
            }
        }
    }
}

/// The bytes that a client shall fetch.
pub(super) fn gather(expose: &Expose, pieces: &mut Pieces, reply: &[u8], now: &Now<'_>) -> Vec<u8> {
    let mut bytes = Vec::new();
    match &expose.from {
        Source::Message(range) => {
            bytes.extend_from_slice(reply.get(range.clone()).unwrap_or_default());
        }
        Source::Data(range) => {
            let mut left = range.end.saturating_sub(range.start);
            while left > 0
                && let Some(piece) = pieces.take(left, &now.serves.arena)
            {
                left -= piece.length();
                piece.append_to(&mut bytes, &now.serves.arena);
            }
        }
    }
    bytes
}
