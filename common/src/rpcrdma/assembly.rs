//! How the XDR stream of a message is put together from what came inline and what its read list names (RFC 8166,
//! sections 3.4.4 and 3.5).

use std::ops::Range;

use crate::wire::rpcrdma::{CHUNK_SEGMENTS_MAX, ReadList, Segment};
use crate::wire::xdr::padding;

/// A part of the received message, and where it belongs in the XDR stream.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct InlinePart {
    /// Bytes of the message received.
    pub from: Range<usize>,
    /// First byte in the stream.
    pub at: u32,
}

/// An RDMA Read, and where its bytes belong in the XDR stream.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Pull {
    /// The peer's memory.
    pub from: Segment,
    /// First byte in the stream.
    pub at: u32,
}

/// How an XDR stream is put together: `length` bytes of zeros, the pieces copied in, the pulls read in. No two of them
/// overlap.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Assembly {
    /// Bytes of the whole stream: no more than the limit.
    pub length: u32,
    /// What came inline.
    pub inline: Vec<InlinePart>,
    /// What to read.
    pub pulls: Vec<Pull>,
    /// Where in the stream the data of a chunk of their own lie, without padding.
    pub data: Option<Range<u32>>,
}

/// The read list does not fit its purpose.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct BadChunks;

/// What the chunks are put into.
pub(super) enum Reduced {
    /// These bytes of the message received (`RDMA_MSG`).
    Inline(Range<usize>),
    /// The chunk at position zero (`RDMA_NOMSG`).
    Chunk,
}

impl Assembly {
    /// The whole stream, where all of it came inline.
    pub fn as_inline(&self) -> Option<Range<usize>> {
        match (self.inline.as_slice(), self.pulls.as_slice()) {
            ([whole], []) => Some(whole.from.clone()),
            _ => None,
        }
    }

    /// Plans a stream of at most `max` bytes.
    pub(super) fn new(reduced: &Reduced, reads: &ReadList, max: u32) -> Result<Self, BadChunks> {
        let of = |zero: bool| {
            reads
                .iter()
                .filter(move |read| (read.position == 0) == zero)
        };
        if of(true).count() > CHUNK_SEGMENTS_MAX || of(false).count() > CHUNK_SEGMENTS_MAX {
            return Err(BadChunks);
        }
        let position = of(false).next().map_or(0, |read| read.position);
        if of(false).any(|read| read.position != position) || !position.is_multiple_of(4) {
            return Err(BadChunks);
        }
        let bytes = |zero| -> u64 { of(zero).map(|read| u64::from(read.segment.length)).sum() };
        let (base, data) = match reduced {
            Reduced::Inline(range) if bytes(true) == 0 => (range.len() as u64, bytes(false)),
            Reduced::Chunk if bytes(true) > 0 => (bytes(true), bytes(false)),
            _ => return Err(BadChunks),
        };
        // The padding of a chunk is never sent (RFC 8166, section 3.4.5).
        let length = base + data.next_multiple_of(4);
        if length > u64::from(max) || u64::from(position) > base {
            return Err(BadChunks);
        }
        let (length, data) = (length as u32, data as u32);
        let mut assembly = Self {
            length,
            inline: Vec::new(),
            pulls: Vec::new(),
            data: (data > 0).then(|| position..position + data),
        };
        let gap = Gap {
            at: position,
            bytes: data + padding(data as usize) as u32,
        };
        match reduced {
            Reduced::Inline(range) => assembly.place_inline(range, &gap),
            Reduced::Chunk => assembly.place_reads(of(true).map(|read| read.segment), 0, &gap),
        }
        assembly.place_reads(of(false).map(|read| read.segment), position, &Gap::NONE);
        Ok(assembly)
    }

    fn place_inline(&mut self, range: &Range<usize>, gap: &Gap) {
        let (before, behind) = gap.split(0, range.len() as u32);
        let middle = range.start + before as usize;
        for (from, at) in [
            (range.start..middle, 0),
            (middle..middle + behind as usize, before + gap.bytes),
        ] {
            if !from.is_empty() {
                self.inline.push(InlinePart { from, at });
            }
        }
    }

    fn place_reads(&mut self, segments: impl Iterator<Item = Segment>, start: u32, gap: &Gap) {
        let mut done = start;
        for segment in segments {
            let (before, behind) = gap.split(done, segment.length);
            for (skip, length, at) in [
                (0, before, done),
                (before, behind, done + before + gap.bytes),
            ] {
                if length > 0 {
                    let from = Segment {
                        length,
                        offset: segment.offset.wrapping_add(u64::from(skip)),
                        ..segment
                    };
                    self.pulls.push(Pull { from, at });
                }
            }
            done += segment.length;
        }
    }
}

/// Room that is left in a stream for something else.
struct Gap {
    at: u32,
    bytes: u32,
}

impl Gap {
    const NONE: Self = Self { at: 0, bytes: 0 };

    /// How much of `length` bytes at `start` of the stream without the gap lies before it and behind it.
    fn split(&self, start: u32, length: u32) -> (u32, u32) {
        let before = self.at.saturating_sub(start).min(length);
        (before, length - before)
    }
}
