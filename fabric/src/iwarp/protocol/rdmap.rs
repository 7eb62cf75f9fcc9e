//! RDMAP messages (RFC 5040).

use std::fmt;

/// What a message is (RFC 5040 section 4.3).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Opcode {
    /// RDMA Write.
    Write = 0,
    /// RDMA Read Request.
    ReadRequest = 1,
    /// RDMA Read Response.
    ReadResponse = 2,
    /// Send.
    Send = 3,
    /// Send with Invalidate.
    SendInvalidate = 4,
    /// Send with Solicited Event.
    SendSolicited = 5,
    /// Send with Solicited Event and Invalidate.
    SendSolicitedInvalidate = 6,
    /// Terminate.
    Terminate = 7,
}

impl Opcode {
    /// The opcode of four bits.
    pub fn decode(bits: u8) -> Option<Opcode> {
        Some(match bits {
            0 => Opcode::Write,
            1 => Opcode::ReadRequest,
            2 => Opcode::ReadResponse,
            3 => Opcode::Send,
            4 => Opcode::SendInvalidate,
            5 => Opcode::SendSolicited,
            6 => Opcode::SendSolicitedInvalidate,
            7 => Opcode::Terminate,
            _ => return None,
        })
    }

    /// Whether its segments are tagged.
    pub fn is_tagged(self) -> bool {
        matches!(self, Opcode::Write | Opcode::ReadResponse)
    }

    /// Whether it invalidates a tag of the receiver.
    pub fn invalidates(self) -> bool {
        matches!(
            self,
            Opcode::SendInvalidate | Opcode::SendSolicitedInvalidate
        )
    }
}

/// Bytes of a [`ReadRequest`].
pub const READ_REQUEST_BYTES: usize = 28;

/// An RDMA Read Request (RFC 5040 section 4.4).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReadRequest {
    /// The sink: the receiver's steering tag.
    pub sink_tag: u32,
    /// The sink: the offset.
    pub sink_offset: u64,
    /// The length in bytes.
    pub length: u32,
    /// The source: the steering tag.
    pub source_tag: u32,
    /// The source: the offset.
    pub source_offset: u64,
}

impl ReadRequest {
    /// Its bytes.
    pub fn encode(&self) -> [u8; READ_REQUEST_BYTES] {
        let mut bytes = [0; READ_REQUEST_BYTES];
        bytes[..4].copy_from_slice(&self.sink_tag.to_be_bytes());
        bytes[4..12].copy_from_slice(&self.sink_offset.to_be_bytes());
        bytes[12..16].copy_from_slice(&self.length.to_be_bytes());
        bytes[16..20].copy_from_slice(&self.source_tag.to_be_bytes());
        bytes[20..].copy_from_slice(&self.source_offset.to_be_bytes());
        bytes
    }

    /// Decodes a request. Every combination of bits is one.
    pub fn decode(bytes: &[u8; READ_REQUEST_BYTES]) -> ReadRequest {
        let number = |from: usize, to: usize| {
            bytes[from..to]
                .iter()
                .fold(0, |number, byte| number << 8 | u64::from(*byte))
        };
        ReadRequest {
            sink_tag: number(0, 4) as u32,
            sink_offset: number(4, 12),
            length: number(12, 16) as u32,
            source_tag: number(16, 20) as u32,
            source_offset: number(20, 28),
        }
    }
}

/// The reason for the end of a stream: layer, error type and error code of a Terminate message (RFC 5040 section 4.8,
/// RFC 5041 section 7.1, RFC 5044 section 8, RFC 6581 section 9.4).
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Fatal {
    /// 0 RDMAP, 1 DDP, 2 MPA.
    pub layer: u8,
    /// Type of error within the layer.
    pub kind: u8,
    /// Error code within the type.
    pub code: u8,
}

impl Fatal {
    const fn new(layer: u8, kind: u8, code: u8) -> Fatal {
        Fatal { layer, kind, code }
    }

    /// Remote protection: no such tag to read from.
    pub const READ_TAG: Fatal = Fatal::new(0, 1, 0x00);
    /// Remote protection: a read beyond its memory.
    pub const READ_BOUNDS: Fatal = Fatal::new(0, 1, 0x01);
    /// Remote protection: the tag does not give that right.
    pub const RIGHTS: Fatal = Fatal::new(0, 1, 0x02);
    /// Remote protection: offset and length of a read are beyond 2^64.
    pub const READ_WRAP: Fatal = Fatal::new(0, 1, 0x04);
    /// Remote protection: the tag cannot be invalidated.
    pub const NOT_INVALIDATED: Fatal = Fatal::new(0, 1, 0x09);
    /// Remote operation: another RDMAP version.
    pub const RDMAP_VERSION: Fatal = Fatal::new(0, 2, 0x05);
    /// Remote operation: an opcode that does not belong there.
    pub const UNEXPECTED_OPCODE: Fatal = Fatal::new(0, 2, 0x06);
    /// Remote operation: a message whose length does not match its kind, or that is cut off.
    pub const TRUNCATED: Fatal = Fatal::new(0, 2, 0xff);
    /// Tagged: no such tag.
    pub const WRITE_TAG: Fatal = Fatal::new(1, 1, 0x00);
    /// Tagged: beyond the tag's memory.
    pub const WRITE_BOUNDS: Fatal = Fatal::new(1, 1, 0x01);
    /// Tagged: offset and length are beyond 2^64.
    pub const WRITE_WRAP: Fatal = Fatal::new(1, 1, 0x03);
    /// Tagged: another DDP version.
    pub const DDP_TAGGED_VERSION: Fatal = Fatal::new(1, 1, 0x04);
    /// Untagged: no such queue.
    pub const QUEUE: Fatal = Fatal::new(1, 2, 0x01);
    /// Untagged: no buffer was posted for the message.
    pub const NO_BUFFER: Fatal = Fatal::new(1, 2, 0x02);
    /// Untagged: not the next message of its queue.
    pub const NUMBER: Fatal = Fatal::new(1, 2, 0x03);
    /// Untagged: not the next byte of its message.
    pub const OFFSET: Fatal = Fatal::new(1, 2, 0x04);
    /// Untagged: the message is longer than its buffer.
    pub const TOO_LONG: Fatal = Fatal::new(1, 2, 0x05);
    /// Untagged: another DDP version.
    pub const DDP_UNTAGGED_VERSION: Fatal = Fatal::new(1, 2, 0x06);
    /// MPA: a wrong checksum.
    pub const CRC: Fatal = Fatal::new(2, 0, 0x02);

    /// Whether a peer that sends this refused an access to its memory. Some swap the nibbles of layer and type.
    pub fn is_protection(self) -> bool {
        matches!((self.layer, self.kind), (0, 1) | (1, 0) | (1, 1))
    }
}

impl fmt::Debug for Fatal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}")
    }
}

impl fmt::Display for Fatal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Fatal { layer, kind, code } = self;
        let layer = match layer {
            0 => "RDMAP",
            1 => "DDP",
            2 => "MPA",
            _ => "unknown layer",
        };
        write!(f, "{layer} error, type {kind}, code {code:#04x}")
    }
}

const HAS_LENGTH: u8 = 0x80;
const HAS_DDP: u8 = 0x40;
const HAS_RDMAP: u8 = 0x20;

/// A Terminate message (RFC 5040 section 4.8) about a segment of `segment_bytes` that began with `header`: that of DDP,
/// and for an RDMA Read Request also that of RDMAP.
pub fn terminate(fatal: Fatal, segment_bytes: usize, header: &[u8]) -> Vec<u8> {
    let mut bytes = vec![fatal.layer << 4 | fatal.kind, fatal.code, 0, 0];
    let ddp = header
        .first()
        .map(|control| super::ddp::Header::length(*control))
        .filter(|length| header.len() >= *length && fatal.layer < 2);
    if let Some(ddp) = ddp {
        bytes[2] = HAS_LENGTH | HAS_DDP;
        bytes.extend_from_slice(&(segment_bytes as u16).to_be_bytes());
        bytes.extend_from_slice(&header[..ddp]);
        if header.len() == ddp + READ_REQUEST_BYTES {
            bytes[2] |= HAS_RDMAP;
            bytes.extend_from_slice(&header[ddp..]);
        }
    }
    bytes
}

/// The reason in a peer's Terminate message. Its headers are ignored.
pub fn terminated(message: &[u8]) -> Option<Fatal> {
    match message {
        [kind, code, ..] => Some(Fatal::new(kind >> 4, kind & 0x0f, *code)),
        _ => None,
    }
}
