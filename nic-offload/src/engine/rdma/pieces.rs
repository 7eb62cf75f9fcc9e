//! The data of a reply, cut as the client's chunk is.

use std::collections::VecDeque;

use odafs_fabric::memory::Arena;

use crate::calls::ChunkSource;

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
