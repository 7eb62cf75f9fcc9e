//! What a reply is made of, and how it is spread over the memory that its call brought.

use std::ops::Range;

use crate::wire::rpcrdma::{Segment, Segments};
use crate::wire::xdr::padding;

/// Where the DDP-eligible data of a reply are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Data {
    /// There is no such data, or it stays in the message.
    None,
    /// In the message, without length word and padding: they are taken out of it if the call brought a chunk for them.
    Within(Range<usize>),
    /// Not in the message, nor their padding: they belong at `at`. Only with a
    /// [`Ticket::placement`](super::Ticket::placement) of as many bytes, or in the Read-Read design.
    Apart {
        /// Offset in the message.
        at: usize,
        /// How many bytes, without padding.
        length: u32,
    },
}

/// The RPC message that answers a call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Results {
    /// Its length in bytes.
    pub length: usize,
    /// Its DDP-eligible data.
    pub data: Data,
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
    pub(super) const NONE: Self = Self::Message(0..0);

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

/// Data that travel apart from a reply.
pub(super) struct Apart {
    pub source: Source,
    /// Where they belong in the XDR stream of the reply.
    pub at: u32,
    pub bytes: u32,
}

impl Results {
    /// The data that travel apart, if there is a way for them.
    pub(super) fn apart(&self, way: bool) -> Option<Apart> {
        match &self.data {
            Data::Within(range) if way && !range.is_empty() => Some(Apart {
                source: Source::Message(range.clone()),
                at: range.start as u32,
                bytes: range.len() as u32,
            }),
            Data::Apart { at, length } if *length > 0 => Some(Apart {
                source: Source::Data(0..*length),
                at: *at as u32,
                bytes: *length,
            }),
            _ => None,
        }
    }

    /// The rest of the message: the bytes before the data, and those after the data and its padding.
    pub(super) fn rest(&self, apart: Option<&Apart>) -> [Range<usize>; 2] {
        let (start, end) = match apart.map(|apart| &apart.source) {
            Some(Source::Message(range)) => (range.start, range.end + padding(range.len())),
            Some(Source::Data(_)) | None => (self.length, self.length),
        };
        [0..start, end.min(self.length)..self.length]
    }

    /// Length of the message, if it holds everything.
    pub(super) fn whole(&self) -> Option<usize> {
        match self.data {
            Data::Apart { length, .. } if length > 0 => None,
            _ => Some(self.length),
        }
    }
}

/// Spreads `sources`, one behind the other, over the segments of a chunk, in order. What does not fit is left out: the
/// caller has compared the lengths.
pub(super) fn scatter(sources: &[Source], chunk: &Segments, writes: &mut Vec<Write>) {
    let mut rooms = chunk.iter().copied().filter(|room| room.length > 0);
    let mut room = rooms.next();
    for source in sources {
        let mut from = 0;
        while from < source.bytes()
            && let Some(here) = &mut room
        {
            let length = (source.bytes() - from).min(here.length);
            writes.push(Write {
                from: source.slice(from, length),
                to: Segment { length, ..*here },
            });
            from += length;
            here.length -= length;
            here.offset = here.offset.wrapping_add(u64::from(length));
            if here.length == 0 {
                room = rooms.next();
            }
        }
    }
}
