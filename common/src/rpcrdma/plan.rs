//! The layout of a call: what goes inline, what the server reads, and the room for its reply (RFC 8166, section 3.5).

use std::ops::Range;

use super::private_data::Terms;
use super::requester::{Call, CallError, CallShape, Need, NeedKind};
use crate::wire::rpcrdma::{Chunks, HEADER_BYTES_MIN, ReadList, ReadSegment, Segments};
use crate::wire::xdr::padding;

impl CallShape {
    /// The longest reply, with everything in it.
    pub(super) fn whole_reply_max(&self) -> u32 {
        let result = self.result_max.unwrap_or(0);
        self.reply_max
            .saturating_add(result)
            .saturating_add(padding(result as usize) as u32)
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
    pub inline: Option<[Range<usize>; 2]>,
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

    /// Chunks for what of the reply may not fit inline. A write chunk and a reply chunk only where both are needed.
    fn room_for_reply(&mut self) -> Result<(), CallError> {
        let shape = self.call.shape;
        let inline = self.terms.inline.receive;
        let room = inline.saturating_sub(HEADER_BYTES_MIN as u32);
        if self.terms.read_read || shape.whole_reply_max() <= room {
            return Ok(());
        }
        if let Some(bytes) = shape.result_max.filter(|bytes| *bytes > 0) {
            self.chunks.write = Some(self.written(NeedKind::Result, bytes)?);
        }
        // Of the reply's header: it returns the write chunk.
        if self.chunks.header_bytes() as u64 + u64::from(shape.reply_max) > u64::from(inline) {
            self.chunks.reply = Some(self.written(NeedKind::Reply, shape.reply_max)?);
        }
        Ok(())
    }

    fn written(&mut self, kind: NeedKind, bytes: u32) -> Result<Segments, CallError> {
        self.need(kind, bytes, [0..0, 0..0])
    }

    fn place_call(mut self) -> Result<Laid, CallError> {
        let length = self.call.message.len();
        let mut parts = [0..length, length..length];
        if !self.fits(&parts)
            && let Some(argument) = self.call.shape.argument.clone()
            && !argument.is_empty()
        {
            let behind = argument.end + padding(argument.len());
            parts = [0..argument.start, behind.min(length)..length];
            let data = [argument.clone(), 0..0];
            self.read(NeedKind::Argument, argument.start, argument.len(), data)?;
        }
        if self.fits(&parts) {
            return Ok(Laid {
                chunks: self.chunks,
                inline: Some(parts),
            });
        }
        let data = self.chunks;
        self.chunks.reads = ReadList::default();
        let bytes = parts[0].len() + parts[1].len();
        self.read(NeedKind::Call, 0, bytes, parts)?;
        // The chunk at position zero comes first: positions ascend.
        let all = data.reads.iter().all(|read| self.chunks.reads.push(*read));
        if !all || !self.fits(&[]) {
            return Err(CallError::TooLong);
        }
        Ok(Laid {
            chunks: self.chunks,
            inline: None,
        })
    }

    fn fits(&self, parts: &[Range<usize>]) -> bool {
        let inline: usize = parts.iter().map(ExactSizeIterator::len).sum();
        self.chunks.header_bytes() + inline <= self.terms.inline.send as usize
    }

    fn read(
        &mut self,
        kind: NeedKind,
        position: usize,
        bytes: usize,
        parts: [Range<usize>; 2],
    ) -> Result<(), CallError> {
        let bytes = u32::try_from(bytes).map_err(|_| CallError::TooLong)?;
        let position = u32::try_from(position).map_err(|_| CallError::TooLong)?;
        let segments = self.need(kind, bytes, parts)?;
        let all = segments.iter().all(|segment| {
            let segment = *segment;
            self.chunks.reads.push(ReadSegment { position, segment })
        });
        if all { Ok(()) } else { Err(CallError::TooLong) }
    }

    fn need(
        &mut self,
        kind: NeedKind,
        bytes: u32,
        parts: [Range<usize>; 2],
    ) -> Result<Segments, CallError> {
        let segments = (self.memory)(&Need { kind, bytes, parts }).ok_or(CallError::NoMemory)?;
        if segments.capacity() == u64::from(bytes) {
            Ok(segments)
        } else {
            Err(CallError::NoMemory)
        }
    }
}
