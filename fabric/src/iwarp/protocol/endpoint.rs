mod posts;

use super::ddp::{Header, SegmentTarget, TAGGED_BYTES, queue};
use super::mpa::{Deframer, FRAMING_BYTES};
use super::out::Out;
use super::rdmap::{self, Fatal, Opcode};
use super::receive::{Inbound, Reading, Serving};
use super::tags::{TaggedMemory, Tags};
use crate::fabric::{Access, Completion, Exposed, Fault, PostError, Remote, SteeringTag};
use crate::memory::Stretch;
use crate::memory::mapping::Mapping;
use crate::memory::{Arena, Region};
use crate::sync::Arc;
use std::collections::VecDeque;
use std::io;

/// The longest message, in bytes.
pub const MESSAGE_MAX: usize = 68 << 10;

/// While more bytes than this are in the transmit queue, the peer's RDMA Reads are not answered.
const ANSWERS_MAX: usize = 256 << 10;

/// Payload of this many bytes or more is received directly to its place, rather than copied. Such a call receives
/// nothing behind the payload.
const LANDING_MIN: usize = if cfg!(test) { 100 } else { 8 << 10 };

/// More due bytes than this under this end's tags are many.
const BULK_MIN: usize = if cfg!(test) { 200 } else { 32 << 10 };

/// The largest ULPDU, and the smallest that a path must carry (RFC 5044 section 4.1), in bytes.
const ULPDU_RANGE: (usize, usize) = (128, 0xfffc);

/// The result of the handshake.
#[derive(Clone, Copy, Debug)]
pub struct Agreed {
    /// Whether frames carry checksums.
    pub crc: bool,
    /// The most RDMA Reads that the peer may have under way.
    pub inbound_reads: u32,
    /// The most RDMA Reads that this end may have under way.
    pub outbound_reads: u32,
    /// Whether this end may send before it has received (the initiator; RFC 5044 section 7.1.2).
    pub sends_first: bool,
    /// Whether the initiator announces itself by an empty RDMA Write (RFC 6581 section 9.2).
    pub peer_to_peer: bool,
    /// The longest frame (the TCP segment: RFC 5044 section 4.1), in bytes.
    pub frame_max: usize,
}

/// One end of a stream after its handshake.
pub struct Endpoint {
    deframer: Deframer,
    inbound: Inbound,
    out: Out,
    outbound_reads: u32,
    /// Largest ULPDU.
    ulpdu_max: usize,
    /// Numbers of the next message in the peer's queues.
    send_number: u32,
    read_number: u32,
    reads_posted: u32,
}

impl Endpoint {
    /// A stream whose handshake is complete.
    pub fn new(agreed: &Agreed) -> Self {
        let mut endpoint = Self {
            deframer: Deframer::new(agreed.crc),
            inbound: Inbound::new(agreed.inbound_reads, !agreed.sends_first),
            out: Out::new(agreed.crc),
            outbound_reads: agreed.outbound_reads,
            ulpdu_max: ulpdu_max(agreed.frame_max),
            send_number: 1,
            read_number: 1,
            reads_posted: 0,
        };
        if agreed.sends_first && agreed.peer_to_peer {
            let header = tagged(Opcode::Write, true, 0, 0);
            endpoint.out.frame(&header, 0, |_| {});
        }
        endpoint
    }

    /// Makes room for `count` more messages.
    pub fn post_receives(&mut self, count: u32) {
        self.inbound.receives = self.inbound.receives.saturating_add(count);
    }

    /// The most RDMA Reads that the peer accepts at a time.
    pub fn reads_max(&self) -> u32 {
        self.outbound_reads
    }

    /// Registers memory that the peer may use as `access` says.
    pub fn register(&mut self, length: usize, access: Access) -> io::Result<Arc<Region>> {
        if length == 0 {
            return Err(invalid("an empty region"));
        }
        self.not_over()?;
        let memory = Mapping::new(length)?;
        let mut made = None;
        self.inbound.tags.enter(|tag| {
            let region = Arc::new(Region::new(memory, tag));
            made = Some(Arc::clone(&region));
            Ok(TaggedMemory::Region {
                region,
                offset: 0,
                length,
                access,
            })
        })?;
        made.ok_or_else(|| io::ErrorKind::OutOfMemory.into())
    }

    /// A fresh tag for a range of a region.
    pub fn bind(
        &mut self,
        region: &Arc<Region>,
        offset: usize,
        length: usize,
        access: Access,
    ) -> io::Result<Remote> {
        if !region.memory().holds(offset, length) {
            return Err(invalid("beyond the region"));
        }
        self.not_over()?;
        let region = Arc::clone(region);
        let tags = &mut self.inbound.tags;
        let tag = tags.enter(|_| {
            Ok(TaggedMemory::Region {
                region,
                offset,
                length,
                access,
            })
        })?;
        if access.remote_write {
            tags.expect(tag, length);
        }
        Ok(Remote { tag, offset: 0 })
    }

    /// Refuses all later access under a tag of this end.
    pub fn invalidate(&mut self, tag: SteeringTag) {
        self.inbound.tags.remove(tag);
    }

    /// Lets the peer read an arena and its stamps.
    pub fn expose(&mut self, arena: &Arc<Arena>) -> io::Result<Exposed> {
        self.not_over()?;
        let tags = &mut self.inbound.tags;
        let mut enter = |mapping: &Arc<Mapping>| {
            let tag = tags.enter(|_| Ok(TaggedMemory::Exposed(Arc::clone(mapping))))?;
            io::Result::Ok(Remote { tag, offset: 0 })
        };
        Ok(Exposed {
            arena: enter(arena.data())?,
            stamps: enter(arena.stamps())?,
        })
    }

    fn not_over(&self) -> io::Result<()> {
        match self.inbound.is_over() {
            true => Err(PostError::Closed.into()),
            false => Ok(()),
        }
    }

    /// Processes bytes of the peer until they are used up, a completion is there or the stream has ended. Returns how
    /// many it processed.
    pub fn receive(&mut self, input: &[u8]) -> usize {
        let mut used = 0;
        while used < input.len() && self.inbound.is_hungry() {
            let ended = match self.deframer.next(&input[used..]) {
                Ok((taken, piece)) => {
                    used += taken;
                    self.inbound.take(piece)
                }
                Err(_) => Err(Fatal::CRC),
            };
            if let Err(fatal) = ended {
                self.refuse_segment(fatal);
            }
        }
        used
    }

    /// If many bytes are due under tags: the number of missing bytes of the present frame. A caller that receives more
    /// than that and the next header receives payload elsewhere than in its [place](Endpoint::landing).
    pub fn frame_left(&self) -> Option<usize> {
        let much = !self.out.has_crc() && self.inbound.tags.due() >= BULK_MIN;
        much.then(|| self.deframer.body_left())
    }

    /// The number of bytes that are probably under way: the rest of what has begun to arrive for a tag of
    /// [`Endpoint::bind`].
    pub fn under_way(&self) -> usize {
        self.inbound.tags.under_way()
    }

    /// The path carries longer frames than at first, because TCP's segments grow with its window.
    pub fn set_frame_max(&mut self, bytes: usize) {
        self.ulpdu_max = ulpdu_max(bytes);
    }

    /// The place and number of the peer's next bytes. The caller may put them there instead of passing them to
    /// [`receive`](Endpoint::receive), if all earlier bytes have been processed.
    pub fn landing(&self) -> Option<(&Mapping, usize, usize)> {
        let length = self.deframer.body_left();
        if length < LANDING_MIN || !self.inbound.is_hungry() {
            return None;
        }
        let (memory, at) = self.inbound.landing()?;
        Some((memory, at, length))
    }

    /// The caller has put this many of them there.
    pub fn landed(&mut self, bytes: usize) {
        self.deframer.skip(bytes);
        self.inbound.landed(bytes);
    }

    /// Ends the stream because of an error in the present segment.
    fn refuse_segment(&mut self, fatal: Fatal) {
        let about = rdmap::terminate(fatal, self.inbound.segment_bytes(), self.inbound.header());
        self.terminate(fatal, &about);
    }

    /// Ends the stream with a Terminate message.
    fn terminate(&mut self, fatal: Fatal, message: &[u8]) {
        self.inbound.end(Some(fatal));
        let header = Header {
            opcode: Opcode::Terminate,
            last: true,
            place: SegmentTarget::Untagged {
                invalidate: 0,
                queue: queue::TERMINATE,
                number: 1,
                offset: 0,
            },
        };
        self.out.frame(&header, message.len(), |payload| {
            payload.copy_from_slice(message)
        });
    }

    /// The next completion.
    pub fn poll(&mut self) -> Option<Completion> {
        self.inbound.poll()
    }

    /// The next completion that is not a message. Messages stay, except the one that was polled last.
    pub fn poll_send_queue(&mut self) -> Option<Completion> {
        self.inbound.poll_send_queue()
    }

    /// The message of the last [`Completion::Recv`].
    pub fn message(&self) -> &[u8] {
        self.inbound.message()
    }

    /// Whether a completion is there.
    pub fn has_completion(&self) -> bool {
        self.inbound.has_completion()
    }

    /// Whether there is something to send now. Answers the peer's reads, as far as there is room.
    pub fn prepare(&mut self) -> bool {
        while self.out.queued() < ANSWERS_MAX
            && !self.inbound.is_over()
            && let Some(serving) = self.inbound.serving.front_mut()
        {
            match answer(&mut self.out, serving, &self.inbound.tags, self.ulpdu_max) {
                Ok(true) => {
                    self.inbound.serving.pop_front();
                }
                Ok(false) => {}
                Err(fatal) => {
                    let asked = &serving.segment;
                    let about = rdmap::terminate(fatal, asked.len(), asked);
                    self.terminate(fatal, &about);
                }
            }
        }
        self.out.queued() > 0 && !self.inbound.is_mute()
    }

    /// Whether something is to be sent that the caller did not post: answers to RDMA Reads, or the end of the stream.
    pub fn owes_answers(&self) -> bool {
        !self.inbound.serving.is_empty() || (self.inbound.is_over() && self.out.queued() > 0)
    }

    /// Whether nothing may be sent yet, because the initiator speaks first.
    pub fn is_mute(&self) -> bool {
        self.inbound.is_mute()
    }

    /// The bytes to send, in order, if [`Endpoint::prepare`] returns true.
    pub fn stretches(&self) -> impl Iterator<Item = Stretch<'_>> {
        self.out.stretches()
    }

    /// Number of queued bytes.
    pub fn queued(&self) -> usize {
        self.out.queued()
    }

    /// This many bytes have been sent.
    pub fn sent(&mut self, bytes: usize) {
        let completions = &mut self.inbound.completions;
        let result = Ok(());
        self.out.sent(bytes, |id| {
            completions.push_back(Completion::Write { id, result });
        });
    }

    /// Whether the stream has ended. Queued bytes may still be sent, and nothing more is received.
    pub fn is_over(&self) -> bool {
        self.inbound.is_over()
    }

    /// The stream below has ended. Pending posts end with [`Fault::Flushed`].
    pub fn close(&mut self) {
        self.inbound.end(None);
        let completions = &mut self.inbound.completions;
        let result = Err(Fault::Flushed);
        self.out.clear(|id| {
            completions.push_back(Completion::Write { id, result });
        });
    }

    /// The reason for the end of the stream, if either side sent a Terminate message.
    pub fn fatal(&self) -> Option<Fatal> {
        self.inbound.fatal()
    }

    /// Gives back the memory that an idle stream does not need.
    pub fn shrink(&mut self) {
        self.out.shrink();
        self.inbound.shrink();
    }
}

/// Payload and header of the longest frame. With its length field, it ends on a word boundary.
fn ulpdu_max(frame_max: usize) -> usize {
    let (low, high) = ULPDU_RANGE;
    (frame_max.saturating_sub(FRAMING_BYTES) & !3).clamp(low, high) - 2
}

/// How much of the rest of an RDMA Read the next segment carries. The last word is never split, because it may be a
/// stamp.
fn segment_of(left: usize, room: usize) -> usize {
    let length = left.min(room);
    match left - length {
        1..8 => left - 8,
        _ => length,
    }
}

/// Answers with the next segment of an RDMA Read. Returns `true` if that was the last.
fn answer(
    out: &mut Out,
    serving: &mut Serving,
    tags: &Tags,
    ulpdu_max: usize,
) -> Result<bool, Fatal> {
    let left = serving.request.length - serving.done;
    let length = segment_of(left as usize, ulpdu_max - TAGGED_BYTES);
    let last = length == left as usize;
    let header = tagged(
        Opcode::ReadResponse,
        last,
        serving.request.sink_tag,
        serving
            .request
            .sink_offset
            .wrapping_add(u64::from(serving.done)),
    );
    if length == 0 {
        out.frame(&header, 0, |_| {});
        return Ok(true);
    }
    // The tag may have been invalidated since the request came.
    let from = serving.request.source_offset + u64::from(serving.done);
    let tag = SteeringTag(serving.request.source_tag);
    let (source, at) = tags
        .find(tag, from, length, Access::READ)
        .map_err(|refusal| refusal.of_read())?;
    out.frame(&header, length, |payload| {
        source.memory().load_rising(at, payload);
    });
    // Data is read before the stamp that follows it, or that a later request reads.
    std::sync::atomic::fence(std::sync::atomic::Ordering::Acquire);
    serving.done += length as u32;
    Ok(last)
}

fn tagged(opcode: Opcode, last: bool, tag: u32, offset: u64) -> Header {
    Header {
        opcode,
        last,
        place: SegmentTarget::Tagged { tag, offset },
    }
}

fn invalid(what: &'static str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, what)
}

/// The queues hold only what is under way.
pub(super) fn flush(
    reads: &mut VecDeque<Reading>,
    completions: &mut VecDeque<Completion>,
    first: Fault,
) {
    for (at, read) in reads.drain(..).enumerate() {
        let fault = if at == 0 { first } else { Fault::Flushed };
        completions.push_back(Completion::Read {
            id: read.id,
            result: Err(fault),
        });
    }
}

#[cfg(test)]
mod tests {
    use super::segment_of;

    #[test]
    fn the_last_word_of_a_read_is_in_one_segment() {
        let room_min = super::ulpdu_max(0) - super::TAGGED_BYTES;
        for room in room_min..room_min + 5000 {
            for read in [4104, 8200, 16, 5] {
                let mut left = read;
                while left > 0 {
                    let length = segment_of(left, room);
                    assert!(length > 0 && length <= room);
                    left -= length;
                    assert!(left == 0 || left >= 8, "{room}: {left} of {read}");
                }
            }
        }
    }
}
