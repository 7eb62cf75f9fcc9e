//! The receiving side: segments are checked and placed, and become completions.

use super::ddp::{Header, SegmentTarget, UNTAGGED_BYTES, queue};
use super::endpoint::{MESSAGE_MAX, flush};
use super::mpa::Deframed;
use super::rdmap::{self, Fatal, Opcode, READ_REQUEST_BYTES, ReadRequest};
use super::tags::Tags;
use crate::fabric::{Access, Completion, Fault, SteeringTag};
use crate::memory::Target;
use crate::memory::mapping::Mapping;
use std::collections::VecDeque;

/// The longest header, including an RDMA Read Request.
const HEADER_MAX: usize = UNTAGGED_BYTES + READ_REQUEST_BYTES;

/// Number of bytes of a Terminate message to look at.
const TERMINATE_MAX: usize = 64;

/// An RDMA Read of this end.
pub struct Reading {
    pub id: u64,
    pub target: Target,
    /// Where it begins in the target's memory.
    pub at: usize,
    /// The name of the sink in the request.
    pub sink_tag: u32,
    pub length: u32,
    pub placed: u32,
}

/// An RDMA Read of the peer's.
pub struct Serving {
    pub request: ReadRequest,
    /// The headers of the segment that asked for it.
    pub segment: [u8; HEADER_MAX],
    pub done: u32,
}

/// The place of the present segment's payload.
enum Placing {
    /// None: the header is incomplete, or there is no payload.
    Nothing,
    Write {
        tag: SteeringTag,
        target: Target,
        at: usize,
    },
    Response,
    Message,
    Terminate,
}

enum StreamLife {
    Open,
    Over(Option<Fatal>),
}

fn is_message(completion: &Completion) -> bool {
    matches!(completion, Completion::Recv { .. })
}

/// The receiving half of an endpoint.
pub struct Inbound {
    life: StreamLife,
    /// Whether nothing may be sent before the peer's first frame.
    mute: bool,
    inbound_reads: u32,
    pub receives: u32,
    pub tags: Tags,
    /// This end's RDMA Reads, in the order of their requests.
    pub reads: VecDeque<Reading>,
    /// The peer's RDMA Reads, in the order of their requests.
    pub serving: VecDeque<Serving>,
    pub completions: VecDeque<Completion>,
    /// The message that is being assembled or was polled.
    message: Vec<u8>,
    /// Whether the message has been polled.
    delivered: bool,
    /// Whether a message has begun and not ended.
    assembling: bool,
    /// The numbers that the next messages must have.
    send_number: u32,
    read_number: u32,
    /// Number of ULPDU bytes of the present segment: all, and the missing ones.
    segment: usize,
    left: usize,
    header: [u8; HEADER_MAX],
    have: usize,
    /// The present segment's header, decoded.
    present: Option<Header>,
    placing: Placing,
    terminate: Vec<u8>,
}

impl Inbound {
    pub fn new(inbound_reads: u32, mute: bool) -> Self {
        Self {
            life: StreamLife::Open,
            mute,
            inbound_reads,
            receives: 0,
            tags: Tags::default(),
            reads: VecDeque::new(),
            serving: VecDeque::new(),
            completions: VecDeque::new(),
            message: Vec::new(),
            delivered: false,
            assembling: false,
            send_number: 1,
            read_number: 1,
            segment: 0,
            left: 0,
            header: [0; HEADER_MAX],
            have: 0,
            present: None,
            placing: Placing::Nothing,
            terminate: Vec::new(),
        }
    }

    pub fn is_over(&self) -> bool {
        matches!(self.life, StreamLife::Over(_))
    }

    pub fn is_mute(&self) -> bool {
        self.mute
    }

    /// Whether an answer to the peer has begun and not ended.
    pub fn is_answering(&self) -> bool {
        self.serving.front().is_some_and(|serving| serving.done > 0)
    }

    pub fn fatal(&self) -> Option<Fatal> {
        match self.life {
            StreamLife::Over(fatal) => fatal,
            StreamLife::Open => None,
        }
    }

    pub fn has_completion(&self) -> bool {
        !self.completions.is_empty()
    }

    /// Whether more bytes may be processed. One message is kept until the next poll.
    pub fn is_hungry(&self) -> bool {
        !self.is_over() && !self.delivered && self.completions.is_empty()
    }

    pub fn message(&self) -> &[u8] {
        if self.delivered { &self.message } else { &[] }
    }

    pub fn poll(&mut self) -> Option<Completion> {
        self.release();
        let completion = self.completions.pop_front()?;
        self.delivered = is_message(&completion);
        Some(completion)
    }

    pub fn poll_send_queue(&mut self) -> Option<Completion> {
        self.release();
        let mine = (self.completions.iter()).position(|completion| !is_message(completion))?;
        self.completions.remove(mine)
    }

    /// The polled message is no longer needed.
    fn release(&mut self) {
        if std::mem::take(&mut self.delivered) {
            self.message.clear();
        }
    }

    /// Ends the stream. Pending reads fail.
    pub fn end(&mut self, fatal: Option<Fatal>) {
        if self.is_over() {
            return;
        }
        self.life = StreamLife::Over(fatal);
        self.mute &= fatal.is_none();
        self.serving.clear();
        flush(&mut self.reads, &mut self.completions, Fault::Flushed);
    }

    /// Header of the present segment, as far as it has come.
    pub fn header(&self) -> &[u8] {
        &self.header[..self.have]
    }

    /// ULPDU bytes of the present segment.
    pub fn segment_bytes(&self) -> usize {
        self.segment
    }

    pub fn shrink(&mut self) {
        if !self.delivered && !self.assembling {
            self.message = Vec::new();
        }
    }

    /// Processes a piece of the stream.
    pub fn take(&mut self, piece: Deframed<'_>) -> Result<(), Fatal> {
        match piece {
            Deframed::Nothing => Ok(()),
            Deframed::Begin(length) => {
                self.begin(length);
                Ok(())
            }
            Deframed::Bytes(bytes) => self.bytes(bytes),
            Deframed::End => self.finish(),
            Deframed::Whole(ulpdu) => {
                self.begin(ulpdu.len());
                self.bytes(ulpdu)?;
                self.finish()
            }
        }
    }

    fn begin(&mut self, length: usize) {
        (self.segment, self.left, self.have) = (length, length, 0);
        self.present = None;
        self.placing = Placing::Nothing;
    }

    /// Number of bytes of a header that are known to be needed.
    fn wanted(&self) -> usize {
        match self.header[..self.have] {
            [control, rdmap, ..] => {
                let header = Header::length(control);
                let request = header == UNTAGGED_BYTES
                    && Opcode::decode(rdmap & 0x0f) == Some(Opcode::ReadRequest);
                header + if request { READ_REQUEST_BYTES } else { 0 }
            }
            _ => 2,
        }
    }

    fn bytes(&mut self, mut bytes: &[u8]) -> Result<(), Fatal> {
        while self.present.is_none() {
            let wanted = self.wanted();
            let taken = (wanted - self.have).min(bytes.len());
            self.header[self.have..self.have + taken].copy_from_slice(&bytes[..taken]);
            self.have += taken;
            self.left -= taken;
            bytes = &bytes[taken..];
            if self.have == self.wanted() {
                self.open_segment()?;
            } else if bytes.is_empty() {
                return Ok(());
            }
        }
        self.left -= bytes.len();
        self.place(bytes)
    }

    /// Checks a segment whose header is complete, before any of its payload has an effect.
    fn open_segment(&mut self) -> Result<(), Fatal> {
        let length = Header::length(self.header[0]);
        let header = Header::decode(&self.header[..length])?;
        self.placing = match header.place {
            SegmentTarget::Tagged { tag, offset } => self.open_tagged(&header, tag, offset)?,
            SegmentTarget::Untagged {
                queue,
                number,
                offset,
                ..
            } => self.open_untagged(&header, queue, number, offset)?,
        };
        self.present = Some(header);
        Ok(())
    }

    fn open_tagged(&mut self, header: &Header, tag: u32, offset: u64) -> Result<Placing, Fatal> {
        let length = self.left;
        if header.opcode == Opcode::Write {
            if length == 0 {
                // An empty RDMA Write is not checked (RFC 5040 section 5.2). It announces the initiator (RFC 6581).
                return Ok(Placing::Nothing);
            }
            let tag = SteeringTag(tag);
            let found = self.tags.find(tag, offset, length, Access::WRITE);
            let (target, at) = found.map_err(|refusal| refusal.of_write())?;
            return Ok(Placing::Write { tag, target, at });
        }
        let Some(read) = self.reads.front() else {
            return Err(Fatal::UNEXPECTED_OPCODE);
        };
        if tag != read.sink_tag {
            return Err(Fatal::WRITE_TAG);
        }
        let left = (read.length - read.placed) as usize;
        if offset != u64::from(read.placed) || length > left || header.last != (length == left) {
            return Err(Fatal::WRITE_BOUNDS);
        }
        Ok(Placing::Response)
    }

    fn open_untagged(
        &mut self,
        header: &Header,
        number_of_queue: u32,
        number: u32,
        offset: u32,
    ) -> Result<Placing, Fatal> {
        let belongs = match header.opcode {
            Opcode::ReadRequest => queue::READ_REQUEST,
            Opcode::Terminate => queue::TERMINATE,
            _ => queue::SEND,
        };
        if number_of_queue > queue::TERMINATE {
            return Err(Fatal::QUEUE);
        }
        if number_of_queue != belongs {
            return Err(Fatal::UNEXPECTED_OPCODE);
        }
        match header.opcode {
            Opcode::Terminate => Ok(Placing::Terminate),
            Opcode::ReadRequest => {
                if number != self.read_number {
                    return Err(Fatal::NUMBER);
                }
                if offset != 0 {
                    return Err(Fatal::OFFSET);
                }
                if self.left > 0 {
                    return Err(Fatal::TOO_LONG);
                }
                if !header.last {
                    return Err(Fatal::TRUNCATED);
                }
                self.read_number = number.wrapping_add(1);
                self.serve_read()?;
                Ok(Placing::Nothing)
            }
            _ => {
                if number != self.send_number {
                    return Err(Fatal::NUMBER);
                }
                if !self.assembling {
                    self.receives = self.receives.checked_sub(1).ok_or(Fatal::NO_BUFFER)?;
                    self.assembling = true;
                }
                if offset as usize != self.message.len() {
                    return Err(Fatal::OFFSET);
                }
                if self.left > MESSAGE_MAX - self.message.len() {
                    return Err(Fatal::TOO_LONG);
                }
                Ok(Placing::Message)
            }
        }
    }

    /// Handles an RDMA Read Request (RFC 5040 section 5.3).
    fn serve_read(&mut self) -> Result<(), Fatal> {
        let mut request = [0; READ_REQUEST_BYTES];
        request.copy_from_slice(&self.header[UNTAGGED_BYTES..]);
        let request = ReadRequest::decode(&request);
        if self.serving.len() >= self.inbound_reads as usize {
            return Err(Fatal::NO_BUFFER);
        }
        if request.length > 0 {
            let tag = SteeringTag(request.source_tag);
            self.tags
                .find(
                    tag,
                    request.source_offset,
                    request.length as usize,
                    Access::READ,
                )
                .map_err(|refusal| refusal.of_read())?;
        }
        self.serving.push_back(Serving {
            request,
            segment: self.header,
            done: 0,
        });
        Ok(())
    }

    /// The place of the next bytes of the present segment's payload, if that is memory that a tag or a read names.
    pub fn landing(&self) -> Option<(&Mapping, usize)> {
        match &self.placing {
            Placing::Write { tag, target, at } if self.tags.holds(*tag) => {
                Some((target.memory(), *at))
            }
            Placing::Response => {
                let read = self.reads.front()?;
                Some((read.target.memory(), read.at + read.placed as usize))
            }
            _ => None,
        }
    }

    /// This many bytes have been put there.
    pub fn landed(&mut self, bytes: usize) {
        self.left -= bytes;
        match &mut self.placing {
            Placing::Write { tag, at, .. } => {
                *at += bytes;
                self.tags.came(*tag, bytes);
            }
            Placing::Response => {
                if let Some(read) = self.reads.front_mut() {
                    read.placed += bytes as u32;
                }
            }
            Placing::Nothing | Placing::Message | Placing::Terminate => {}
        }
    }

    fn place(&mut self, bytes: &[u8]) -> Result<(), Fatal> {
        match &mut self.placing {
            Placing::Nothing => {}
            Placing::Write { tag, target, at } => {
                // The tag may have been invalidated since the segment began.
                if !self.tags.holds(*tag) {
                    return Err(Fatal::WRITE_TAG);
                }
                target.memory().store(*at, bytes);
                *at += bytes.len();
                self.tags.came(*tag, bytes.len());
            }
            Placing::Response => {
                let read = self.reads.front_mut().ok_or(Fatal::UNEXPECTED_OPCODE)?;
                let at = read.at + read.placed as usize;
                read.target.memory().store(at, bytes);
                read.placed += bytes.len() as u32;
            }
            Placing::Message => self.message.extend_from_slice(bytes),
            Placing::Terminate => {
                let room = TERMINATE_MAX - self.terminate.len();
                self.terminate
                    .extend_from_slice(&bytes[..bytes.len().min(room)]);
            }
        }
        Ok(())
    }

    /// The present segment is complete.
    fn finish(&mut self) -> Result<(), Fatal> {
        let Some(header) = self.present else {
            return Err(Fatal::TRUNCATED);
        };
        // It keeps memory alive.
        self.placing = Placing::Nothing;
        self.mute = false;
        if !header.last {
            return Ok(());
        }
        match header.opcode {
            Opcode::Write | Opcode::ReadRequest => {}
            Opcode::ReadResponse => {
                if let Some(read) = self.reads.pop_front() {
                    let (id, result) = (read.id, Ok(()));
                    self.completions.push_back(Completion::Read { id, result });
                }
            }
            Opcode::Terminate => self.terminated(),
            _ => self.deliver(&header)?,
        }
        Ok(())
    }

    fn deliver(&mut self, header: &Header) -> Result<(), Fatal> {
        let mut invalidated = None;
        if let SegmentTarget::Untagged { invalidate, .. } = header.place
            && header.opcode.invalidates()
        {
            let tag = SteeringTag(invalidate);
            if !self.tags.remove_remotely(tag) {
                return Err(Fatal::NOT_INVALIDATED);
            }
            invalidated = Some(tag);
        }
        self.assembling = false;
        self.send_number = self.send_number.wrapping_add(1);
        self.completions.push_back(Completion::Recv {
            bytes: self.message.len() as u32,
            invalidated,
        });
        Ok(())
    }

    /// The peer ends the stream, perhaps because of a read of this end. Reads fail in order.
    fn terminated(&mut self) {
        let fatal = rdmap::terminated(&self.terminate);
        let fault = match fatal {
            Some(fatal) if fatal.is_protection() => Fault::RemoteAccess,
            _ => Fault::Flushed,
        };
        flush(&mut self.reads, &mut self.completions, fault);
        self.end(Some(fatal.unwrap_or(Fatal::TRUNCATED)));
    }
}
