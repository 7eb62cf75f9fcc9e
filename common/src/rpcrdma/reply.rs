//! What a reply is made of, and how it is spread over the memory that its call brought.

use std::ops::Range;

use crate::wire::rpcrdma::{Few, Segment, WRITE_CHUNKS_MAX, WriteList, capacity};

/// Number of bytes that each chunk of a call's write list takes. The n-th DDP-eligible result belongs to the n-th chunk.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Placements(Few<u32, WRITE_CHUNKS_MAX>);

impl Placements {
    /// One chunk of so many bytes.
    pub fn one(bytes: u32) -> Self {
        Self(Few::one(bytes))
    }

    /// Chunks of so many bytes, as many as a list may hold.
    pub fn new(bytes: &[u32]) -> Self {
        Self(Few::new(bytes).0)
    }

    pub(super) fn of(list: &WriteList) -> Self {
        let mut all = Self::default();
        for chunk in list.chunks() {
            // A list has no more chunks than there is room for.
            let _ = all.push(u32::try_from(capacity(chunk)).unwrap_or(u32::MAX));
        }
        all
    }

    /// Appends a chunk; `false` if there is no room for it.
    #[must_use]
    pub(super) fn push(&mut self, bytes: u32) -> bool {
        self.0.push(bytes)
    }

    /// The bytes of each chunk, 0 of an empty one.
    pub fn bytes(&self) -> &[u32] {
        &self.0
    }

    /// Number of bytes of this result, counted from 0, that can be placed apart from the reply. `None` if the call brought no
    /// chunk for it, or an empty one, and wants it inline.
    pub fn get(&self, result: usize) -> Option<u32> {
        self.0.get(result).copied().filter(|bytes| *bytes > 0)
    }

    /// That of the first result.
    pub fn first(&self) -> Option<u32> {
        self.get(0)
    }
}

/// A DDP-eligible result that is not in the reply, nor is its padding. The chunk for it takes as many bytes
/// ([`Placements::get`]), or the Read-Read design is in use.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PlacedResult {
    /// Number of the result, counted from 0, and so of its chunk.
    pub result: u32,
    /// Where it belongs: offset in the message without any of them.
    pub at: u32,
    /// Length in bytes, without padding.
    pub bytes: u32,
}

/// The results that are not in a reply, in their order. Their data lie one behind the other.
pub type PlacedResults = Few<PlacedResult, WRITE_CHUNKS_MAX>;

/// The RPC message that answers a call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Results {
    /// Its length in bytes, without what is apart.
    pub length: usize,
    /// The DDP-eligible results that are apart from it.
    pub apart: PlacedResults,
}

impl Results {
    /// All of it in the message.
    pub fn whole(length: usize) -> Self {
        let apart = PlacedResults::default();
        Self { length, apart }
    }

    /// The results with any bytes, and the range of each in the data that are apart.
    pub(super) fn ranges(&self) -> impl Iterator<Item = (PlacedResult, Range<u32>)> {
        let mut end = 0_u32;
        let with_range = self.apart.iter().map(move |placed| {
            let start = end;
            end = end.saturating_add(placed.bytes);
            (*placed, start..end)
        });
        with_range.filter(|(placed, _)| placed.bytes > 0)
    }
}

/// The source of an RDMA Write, or what is exposed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Source {
    /// These bytes of the data that are apart from the message.
    Data(Range<u32>),
    /// These bytes of the message.
    Message(Range<usize>),
}

impl Source {
    /// How many bytes they are.
    pub fn bytes(&self) -> u32 {
        match self {
            Self::Data(range) => range.end - range.start,
            Self::Message(range) => range.len() as u32,
        }
    }

    fn slice(&self, from: u32, bytes: u32) -> Self {
        match self {
            Self::Data(range) => Self::Data(range.start + from..range.start + from + bytes),
            Self::Message(range) => {
                let start = range.start + from as usize;
                Self::Message(start..start + bytes as usize)
            }
        }
    }
}

/// One RDMA Write, to be posted before the reply is sent. The target is as long as the source.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Write {
    /// What.
    pub from: Source,
    /// Where to.
    pub to: Segment,
}

/// Spreads `source` over the segments of a chunk, in order. What does not fit is left out: the caller has compared the
/// lengths.
pub(super) fn scatter(source: &Source, chunk: &[Segment], writes: &mut Vec<Write>) {
    let mut from = 0;
    for room in chunk {
        let length = (source.bytes() - from).min(room.length);
        if length > 0 {
            writes.push(Write {
                from: source.slice(from, length),
                to: Segment { length, ..*room },
            });
            from += length;
        }
    }
}
