//! The layout of a call: what goes inline, what the server reads, and the room for its reply (RFC 8166, section 3.5).

use super::private_data::Terms;
use super::requester::{Call, CallError, CallShape, Need, NeedKind, Part, Parts};
use crate::wire::rpcrdma::{Chunks, Gaps, HEADER_BYTES_MIN, ReadList, ReadSegment, Segments};

impl CallShape {
    /// The longest reply, with everything in it.
    pub(super) fn whole_reply_max(&self) -> u32 {
        let results = self.results_max.bytes().iter();
        results.fold(self.reply_max, |sum, bytes| {
            let padded = bytes.checked_next_multiple_of(4);
            sum.saturating_add(padded.unwrap_or(u32::MAX))
        })
    }
}

/// How a call is laid out, as it is found.
pub(super) struct Plan<'a> {
    call: &'a Call<'a>,
    terms: Terms,
    chunks: Chunks,
    memory: &'a mut dyn FnMut(&Need) -> Option<Segments>,
}

/// How a call is laid out.
pub(super) struct Laid {
    pub chunks: Chunks,
    /// Parts of the message that go inline; `None`: it is read from memory altogether.
    pub inline: Option<Parts>,
}

impl<'a> Plan<'a> {
    pub fn new(
        call: &'a Call<'a>,
        terms: Terms,
        memory: &'a mut dyn FnMut(&Need) -> Option<Segments>,
    ) -> Self {
        let chunks = Chunks::default();
        Self {
            call,
            terms,
            chunks,
            memory,
        }
    }

    pub fn lay(mut self) -> Result<Laid, CallError> {
        self.room_for_reply()?;
        self.place_call()
    }

    /// Chunks for what of the reply may not fit inline. Write chunks and a reply chunk only where both are needed.
    fn room_for_reply(&mut self) -> Result<(), CallError> {
        let shape = self.call.shape;
        let inline = self.terms.inline.receive;
        let room = inline.saturating_sub(HEADER_BYTES_MIN as u32);
        if self.terms.read_read || shape.whole_reply_max() <= room {
            return Ok(());
        }
        let results = shape.results_max.bytes();
        // The n-th result belongs to the n-th chunk. Behind the last one with any bytes no chunk is needed.
        let chunks = results
            .iter()
            .rposition(|bytes| *bytes > 0)
            .map_or(0, |last| last + 1);
        for bytes in &results[..chunks] {
            let chunk = match bytes {
                0 => Segments::default(),
                bytes => self.written(NeedKind::Result, *bytes)?,
            };
            if !self.chunks.writes.push(&chunk) {
                return Err(CallError::TooLong);
            }
        }
        // Of the reply's header: it returns the write chunks.
        if self.chunks.answer_bytes() as u64 + u64::from(shape.reply_max) > u64::from(inline) {
            self.chunks.reply = Some(self.written(NeedKind::Reply, shape.reply_max)?);
        }
        Ok(())
    }

    fn written(&mut self, kind: NeedKind, bytes: u32) -> Result<Segments, CallError> {
        self.need(kind, bytes, Parts::default())
    }

    fn place_call(mut self) -> Result<Laid, CallError> {
        let length = u32::try_from(self.call.message.len()).map_err(|_| CallError::TooLong)?;
        let mut parts = without(&Gaps::default(), length);
        if !self.fits(&parts) && !self.call.shape.arguments.is_empty() {
            let arguments = self.call.shape.arguments;
            parts = without(&arguments, length);
            for argument in arguments.iter() {
                let (start, end) = (argument.at, argument.at + argument.bytes);
                self.read(NeedKind::Argument, start, Parts::one(Part { start, end }))?;
            }
        }
        if self.fits(&parts) {
            return Ok(Laid {
                chunks: self.chunks,
                inline: Some(parts),
            });
        }
        let data = self.chunks.reads;
        self.chunks.reads = ReadList::default();
        self.read(NeedKind::Call, 0, parts)?;
        // The chunk at position zero comes first: positions ascend.
        let all = data.iter().all(|read| self.chunks.reads.push(*read));
        if !all || !self.fits(&[]) {
            return Err(CallError::TooLong);
        }
        Ok(Laid {
            chunks: self.chunks,
            inline: None,
        })
    }

    fn fits(&self, parts: &[Part]) -> bool {
        self.chunks.header_bytes() + bytes(parts) as usize <= self.terms.inline.send as usize
    }

    fn read(&mut self, kind: NeedKind, position: u32, parts: Parts) -> Result<(), CallError> {
        let segments = self.need(kind, bytes(&parts), parts)?;
        let all = segments.iter().all(|segment| {
            let segment = *segment;
            self.chunks.reads.push(ReadSegment { position, segment })
        });
        if all { Ok(()) } else { Err(CallError::TooLong) }
    }

    fn need(&mut self, kind: NeedKind, bytes: u32, parts: Parts) -> Result<Segments, CallError> {
        let segments = (self.memory)(&Need { kind, bytes, parts }).ok_or(CallError::NoMemory)?;
        if segments.capacity() == u64::from(bytes) {
            Ok(segments)
        } else {
            Err(CallError::NoMemory)
        }
    }
}

fn bytes(parts: &[Part]) -> u32 {
    parts.iter().map(|part| part.end - part.start).sum()
}

/// What is left of a message of so many bytes without these payloads and their padding.
fn without(gaps: &Gaps, length: u32) -> Parts {
    let (mut parts, mut start) = (Parts::default(), 0);
    let ends = gaps.iter().map(|gap| (gap.at, gap.end()));
    for (end, next) in ends.chain([(length, length.into())]) {
        if end > start {
            // There is one more than gaps.
            let _ = parts.push(Part { start, end });
        }
        start = u32::try_from(next).map_or(length, |next| next.min(length));
    }
    parts
}
