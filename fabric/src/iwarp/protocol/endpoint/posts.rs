//! The caller's posts, which become segments in the transmit queue.

use super::{Endpoint, MESSAGE_MAX, tagged};
use crate::fabric::{PostError, Posted, Remote, Sink, Source, SteeringTag};
use crate::iwarp::protocol::ddp::{Header, SegmentTarget, TAGGED_BYTES, UNTAGGED_BYTES, queue};
use crate::iwarp::protocol::rdmap::{self, Opcode, ReadRequest};
use crate::iwarp::protocol::receive::Reading;
use crate::memory::Target;
use crate::memory::mapping::Mapping;
use crate::sync::Arc;

/// While more bytes than this are in the transmit queue, nothing more is posted: 1 MiB of data and its message.
const QUEUED_MAX: usize = (1 << 20) + (64 << 10);

/// Payload of a frame of the arena of this many bytes or more is sent from its place rather than copied.
const ZERO_COPY_MIN: usize = if cfg!(test) { 1024 } else { 4096 };

impl Endpoint {
    /// Whether something may be posted.
    fn open(&self) -> Result<(), PostError> {
        if self.inbound.is_over() {
            Err(PostError::Closed)
        } else if self.out.queued() >= QUEUED_MAX || self.inbound.is_answering() {
            // The segments of two messages never mix.
            Err(PostError::Full)
        } else {
            Ok(())
        }
    }

    /// Queues a message. Its bytes are copied.
    pub fn post_send(
        &mut self,
        parts: &[&[u8]],
        invalidate: Option<SteeringTag>,
    ) -> Result<Posted, PostError> {
        let length = parts.iter().map(|part| part.len()).sum();
        if length > MESSAGE_MAX {
            return Err(PostError::TooLong);
        }
        self.open()?;
        let opcode = match invalidate {
            Some(_) => Opcode::SendInvalidate,
            None => Opcode::Send,
        };
        let number = self.send_number;
        self.send_number = number.wrapping_add(1);
        let mut parts = parts.iter().flat_map(|part| part.chunks(usize::MAX));
        let mut part: &[u8] = &[];
        for (from, to) in segments(length, self.ulpdu_max - UNTAGGED_BYTES) {
            let header = Header {
                opcode,
                last: to == length,
                place: SegmentTarget::Untagged {
                    invalidate: invalidate.map_or(0, |tag| tag.0),
                    queue: queue::SEND,
                    number,
                    offset: from as u32,
                },
            };
            self.out.frame(&header, to - from, |mut payload| {
                while !payload.is_empty() {
                    if part.is_empty() {
                        part = parts.next().unwrap_or_default();
                    }
                    let taken = part.len().min(payload.len());
                    let (now, later) = payload.split_at_mut(taken);
                    now.copy_from_slice(&part[..taken]);
                    (payload, part) = (later, &part[taken..]);
                }
            });
        }
        Ok(Posted::Done)
    }

    /// Queues an RDMA Write.
    pub fn post_write(
        &mut self,
        id: u64,
        from: Source<'_>,
        to: Remote,
    ) -> Result<Posted, PostError> {
        self.open()?;
        let (tag, offset) = (to.tag.0, to.offset);
        let length = match from {
            Source::Bytes(bytes) => bytes.len(),
            Source::Frame { length, .. } => length as usize,
        };
        if offset.checked_add(length as u64).is_none() {
            return Err(PostError::BadRange);
        }
        let stays = !self.out.has_crc() && length >= ZERO_COPY_MIN;
        if let (
            true,
            Source::Frame {
                arena,
                frame,
                offset,
                ..
            },
        ) = (stays, from)
        {
            let at = arena.place(frame, offset, length);
            self.write_memory(id, arena.data(), at, length, to);
            return Ok(Posted::Pending);
        }
        for (start, end) in segments(length, self.ulpdu_max - TAGGED_BYTES) {
            let header = tagged(Opcode::Write, end == length, tag, offset + start as u64);
            self.out.frame(&header, end - start, |payload| match from {
                Source::Bytes(bytes) => payload.copy_from_slice(&bytes[start..end]),
                Source::Frame {
                    arena,
                    frame,
                    offset,
                    length,
                } => {
                    let at = arena.place(frame, offset, length as usize) + start;
                    arena.data().load(at, payload);
                }
            });
        }
        Ok(Posted::Done)
    }

    /// Queues an RDMA Write of memory that must not change until it has been sent. A write next to the one before joins
    /// it as one message, which no peer can notice.
    fn write_memory(
        &mut self,
        id: u64,
        memory: &Arc<Mapping>,
        at: usize,
        length: usize,
        to: Remote,
    ) {
        let (tag, offset) = (to.tag.0, to.offset);
        let ends = |end| (end == length).then_some(id);
        let room = self.out.room_behind(tag, offset, self.ulpdu_max);
        let begun = room.min(length);
        if begun > 0 {
            let over = begun == length;
            self.out.more_memory(memory, at, begun, ends(begun), over);
        }
        if begun == length {
            return;
        }
        for (start, end) in segments(length - begun, self.ulpdu_max - TAGGED_BYTES) {
            let (start, end) = (begun + start, begun + end);
            let header = tagged(Opcode::Write, end == length, tag, offset + start as u64);
            self.out
                .frame_of_memory(&header, memory, at + start, end - start, ends(end));
        }
    }

    /// Queues an RDMA Read.
    pub fn post_read(&mut self, id: u64, into: Sink<'_>, from: Remote) -> Result<(), PostError> {
        let (target, at, length) = Target::of_sink(into)?;
        let length = u32::try_from(length).map_err(|_| PostError::BadRange)?;
        self.open()?;
        if self.inbound.reads.len() >= self.outbound_reads as usize {
            return Err(PostError::Full);
        }
        // A tag that no RDMA Write can name: tags that can be written are below it.
        self.reads_posted = self.reads_posted.wrapping_add(1);
        let sink_tag = 1 << 31 | self.reads_posted;
        let request = ReadRequest {
            sink_tag,
            sink_offset: 0,
            length,
            source_tag: from.tag.0,
            source_offset: from.offset,
        };
        let number = self.read_number;
        self.read_number = number.wrapping_add(1);
        let header = Header {
            opcode: Opcode::ReadRequest,
            last: true,
            place: SegmentTarget::Untagged {
                invalidate: 0,
                queue: queue::READ_REQUEST,
                number,
                offset: 0,
            },
        };
        self.out
            .frame(&header, rdmap::READ_REQUEST_BYTES, |payload| {
                payload.copy_from_slice(&request.encode())
            });
        self.inbound.reads.push_back(Reading {
            id,
            target,
            at,
            sink_tag,
            length,
            placed: 0,
        });
        Ok(())
    }
}

/// The parts of a message of `length` bytes, at most `most` bytes each. An empty message has one.
fn segments(length: usize, most: usize) -> impl Iterator<Item = (usize, usize)> {
    let count = length.div_ceil(most).max(1);
    (0..count).map(move |at| (at * most, ((at + 1) * most).min(length)))
}
