//! How the XDR stream of a message is put together from what came inline and what its read list names (RFC 8166,
//! sections 3.4.4 and 3.5).

use std::ops::Range;

use crate::wire::rpcrdma::{CHUNK_SEGMENTS_MAX, Gaps, READ_CHUNKS_MAX, ReadList, Segment};
use crate::wire::xdr::Gap;

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
    /// Where in the stream the data of chunks of their own lie, in their order. None is empty.
    pub gaps: Gaps,
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
        let zero = || reads.iter().filter(|read| read.position == 0);
        let zero_bytes: u64 = zero().map(|read| u64::from(read.segment.length)).sum();
        let base = match reduced {
            Reduced::Inline(range) if zero().next().is_none() => range.len() as u64,
            Reduced::Chunk if zero_bytes > 0 => zero_bytes,
            _ => return Err(BadChunks),
        };
        if zero().count() > CHUNK_SEGMENTS_MAX || base > u64::from(max) {
            return Err(BadChunks);
        }
        let gaps = gaps(reads, max)?;
        // The padding of a chunk is never sent (RFC 8166, section 3.4.5).
        let mut missing = 0;
        for gap in gaps.iter() {
            if u64::from(gap.at) > base + missing {
                return Err(BadChunks);
            }
            missing += gap.padded() as u64;
        }
        if base + missing > u64::from(max) {
            return Err(BadChunks);
        }
        let mut assembly = Self {
            length: (base + missing) as u32,
            inline: Vec::new(),
            pulls: Vec::new(),
            gaps,
        };
        match reduced {
            Reduced::Inline(range) => assembly.place_inline(range),
            Reduced::Chunk => assembly.place_reduced(zero().map(|read| read.segment)),
        }
        for gap in gaps.iter() {
            let of_gap = reads.iter().filter(|read| read.position == gap.at);
            assembly.place_gap(gap.at, of_gap.map(|read| read.segment));
        }
        // Chunks without bytes have no place among others, but no place behind the end either.
        match reads.iter().all(|read| read.position <= assembly.length) {
            true => Ok(assembly),
            false => Err(BadChunks),
        }
    }

    fn place_inline(&mut self, range: &Range<usize>) {
        around(&self.gaps, 0, range.len() as u32, |skip, length, at| {
            let start = range.start + skip as usize;
            let from = start..start + length as usize;
            self.inline.push(InlinePart { from, at });
        });
    }

    fn place_reduced(&mut self, segments: impl Iterator<Item = Segment>) {
        let mut done = 0;
        for segment in segments {
            around(&self.gaps, done, segment.length, |skip, length, at| {
                let from = Segment {
                    length,
                    offset: segment.offset.wrapping_add(u64::from(skip)),
                    ..segment
                };
                self.pulls.push(Pull { from, at });
            });
            done += segment.length;
        }
    }

    fn place_gap(&mut self, mut at: u32, segments: impl Iterator<Item = Segment>) {
        for from in segments.filter(|segment| segment.length > 0) {
            self.pulls.push(Pull { from, at });
            at += from.length;
        }
    }
}

/// The chunks of a read list other than that at position zero, in the order of their positions. They do not overlap, and
/// each is of at most `max` bytes.
fn gaps(reads: &ReadList, max: u32) -> Result<Gaps, BadChunks> {
    let (mut gaps, mut segments) = (Gaps::default(), [0; READ_CHUNKS_MAX]);
    if reads.is_empty() {
        return Ok(gaps);
    }
    for read in reads.iter().filter(|read| read.position > 0) {
        let known = gaps.iter().position(|gap| gap.at == read.position);
        let at = match known {
            Some(at) => at,
            None => {
                let (at, bytes) = (read.position, 0);
                let room = at.is_multiple_of(4) && gaps.push(Gap { at, bytes });
                room.then(|| gaps.len() - 1).ok_or(BadChunks)?
            }
        };
        let bytes = gaps[at].bytes.checked_add(read.segment.length);
        gaps[at].bytes = bytes.filter(|bytes| *bytes <= max).ok_or(BadChunks)?;
        segments[at] += 1;
    }
    if segments.iter().any(|count| *count > CHUNK_SEGMENTS_MAX) {
        return Err(BadChunks);
    }
    gaps.sort_unstable_by_key(|gap| gap.at);
    let mut taken = Gaps::default();
    for gap in gaps.iter().filter(|gap| gap.bytes > 0) {
        let end = taken.last().map_or(0, Gap::end);
        if u64::from(gap.at) < end || !taken.push(*gap) {
            return Err(BadChunks);
        }
    }
    Ok(taken)
}

/// Where the bytes from `start` on of a stream without gaps, `length` of them, lie in the stream with them. `put` gets each
/// piece: how many bytes of these are before it, its length, and its place.
fn around(gaps: &[Gap], start: u32, length: u32, mut put: impl FnMut(u32, u32, u32)) {
    let (mut from, end, mut missing) = (start, start + length, 0);
    for gap in gaps {
        let cut = (gap.at - missing).min(end);
        if cut > from {
            put(from - start, cut - from, from + missing);
            from = cut;
        }
        if from == end {
            return;
        }
        missing += gap.padded() as u32;
    }
    if from < end {
        put(from - start, end - from, from + missing);
    }
}
