//! DDP segments (RFC 5041), with the RDMAP octet in their headers (RFC 5040 section 4.1).
//!
//! ```text
//! tagged:    control 1  RDMAP 1  STag 4  offset 8
//! untagged:  control 1  RDMAP 1  invalidate 4  queue 4  MSN 4  MO 4
//! ```

use super::rdmap::{Fatal, Opcode};

const TAGGED: u8 = 0x80;
/// In the control octet: this is the last segment of its message.
pub const LAST: u8 = 0x40;
const VERSION_MASK: u8 = 0x03;
const VERSION: u8 = 1;
const RDMAP_VERSION_MASK: u8 = 0xc0;
const RDMAP_VERSION: u8 = 0x40;

/// Length in bytes of a tagged segment's header.
pub const TAGGED_BYTES: usize = 14;

/// Length in bytes of an untagged segment's header.
pub const UNTAGGED_BYTES: usize = 18;

/// The queues of untagged messages (RFC 5040 section 5.1).
pub mod queue {
    /// Sends.
    pub const SEND: u32 = 0;
    /// RDMA Read Requests.
    pub const READ_REQUEST: u32 = 1;
    /// Terminate.
    pub const TERMINATE: u32 = 2;
}

/// The place of a segment's payload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SegmentTarget {
    /// Memory that the receiver has named.
    Tagged {
        /// Its steering tag.
        tag: u32,
        /// First byte.
        offset: u64,
    },
    /// A message in a queue.
    Untagged {
        /// Send with Invalidate: the receiver's tag. Otherwise 0.
        invalidate: u32,
        /// Number of the queue.
        queue: u32,
        /// Number of the message in its queue, from 1.
        number: u32,
        /// First byte within the message.
        offset: u32,
    },
}

/// A segment's header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// The kind of the message.
    pub opcode: Opcode,
    /// Whether it is the message's last segment.
    pub last: bool,
    /// The place of the payload.
    pub place: SegmentTarget,
}

impl Header {
    /// The length of a header with this control octet.
    pub fn length(control: u8) -> usize {
        if control & TAGGED != 0 {
            TAGGED_BYTES
        } else {
            UNTAGGED_BYTES
        }
    }

    /// Appends the header to `out`.
    pub fn encode(&self, out: &mut Vec<u8>) {
        let last = if self.last { LAST } else { 0 };
        let rdmap = RDMAP_VERSION | self.opcode as u8;
        match self.place {
            SegmentTarget::Tagged { tag, offset } => {
                out.extend_from_slice(&[TAGGED | last | VERSION, rdmap]);
                out.extend_from_slice(&tag.to_be_bytes());
                out.extend_from_slice(&offset.to_be_bytes());
            }
            SegmentTarget::Untagged {
                invalidate,
                queue,
                number,
                offset,
            } => {
                out.extend_from_slice(&[last | VERSION, rdmap]);
                for field in [invalidate, queue, number, offset] {
                    out.extend_from_slice(&field.to_be_bytes());
                }
            }
        }
    }

    /// Decodes a header of [`Header::length`] bytes. Opcode and kind of segment match then.
    pub fn decode(bytes: &[u8]) -> Result<Header, Fatal> {
        let (&control, &rdmap) = match bytes {
            [control, rdmap, ..] if bytes.len() == Header::length(*control) => (control, rdmap),
            _ => return Err(Fatal::TRUNCATED),
        };
        let tagged = control & TAGGED != 0;
        if control & VERSION_MASK != VERSION {
            return Err(match tagged {
                true => Fatal::DDP_TAGGED_VERSION,
                false => Fatal::DDP_UNTAGGED_VERSION,
            });
        }
        if rdmap & RDMAP_VERSION_MASK != RDMAP_VERSION {
            return Err(Fatal::RDMAP_VERSION);
        }
        let opcode = Opcode::decode(rdmap & 0x0f).ok_or(Fatal::UNEXPECTED_OPCODE)?;
        if opcode.is_tagged() != tagged {
            return Err(Fatal::UNEXPECTED_OPCODE);
        }
        let word = |at: usize| {
            bytes[at..at + 4]
                .iter()
                .fold(0, |word, byte| word << 8 | u32::from(*byte))
        };
        let place = if tagged {
            SegmentTarget::Tagged {
                tag: word(2),
                offset: u64::from(word(6)) << 32 | u64::from(word(10)),
            }
        } else {
            SegmentTarget::Untagged {
                invalidate: word(2),
                queue: word(6),
                number: word(10),
                offset: word(14),
            }
        };
        Ok(Header {
            opcode,
            last: control & LAST != 0,
            place,
        })
    }
}
