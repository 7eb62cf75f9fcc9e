//! The agreement of the two sides of a connection (RFC 5044 section 7.1, RFC 6581).

use super::endpoint::Agreed;
use super::mpa::{Enhanced, Frame, FrameKind};
use crate::fabric::REFUSED;

/// The most RDMA Reads that a side has under way or accepts (as in Linux's `siw`).
const READS_MAX: u32 = 128;

/// The number of RDMA Reads that a peer of revision 1, which does not say, is assumed to accept.
const READS_UNSAID: u32 = 1;

/// What one side wants.
#[derive(Clone, Copy, Debug)]
pub struct Wishes {
    /// Whether it wants checksums.
    pub crc: bool,
    /// The most RDMA Reads that it accepts at a time.
    pub inbound_reads: u32,
    /// The most RDMA Reads that it wants under way at a time.
    pub outbound_reads: u32,
    /// The longest frame that the path carries in one piece, in bytes.
    pub frame_max: usize,
}

/// Why a reply does not make a connection.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum HandshakeError {
    /// The peer refused, for this reason, which may be empty.
    #[error("{REFUSED}{0}")]
    Refused(String),
    /// A request of revision 2 has a reply of revision 2 with the same parts.
    #[error("the peer's reply does not fit the request")]
    Mismatch,
}

/// The request of an initiator.
pub fn request(wishes: &Wishes, private_data: &[u8]) -> Frame {
    Frame {
        kind: FrameKind::Request,
        revision: 2,
        crc: wishes.crc,
        reject: false,
        enhanced: Some(Enhanced {
            inbound_reads: reads(wishes.inbound_reads),
            outbound_reads: reads(wishes.outbound_reads),
            peer_to_peer: true,
        }),
        private_data: private_data.to_vec(),
    }
}

/// The agreement that an initiator learns from the reply.
pub fn agree(wishes: &Wishes, reply: &Frame) -> Result<Agreed, HandshakeError> {
    if reply.reject {
        let reason = String::from_utf8_lossy(&reply.private_data);
        let reason: String = reason.chars().filter(|c| !c.is_control()).collect();
        return Err(HandshakeError::Refused(match reason.as_str() {
            "" => String::new(),
            reason => format!(": {reason}"),
        }));
    }
    let Some(enhanced) = reply.enhanced else {
        return Err(HandshakeError::Mismatch);
    };
    Ok(Agreed {
        crc: wishes.crc || reply.crc,
        inbound_reads: wishes.inbound_reads.min(READS_MAX),
        outbound_reads: u32::from(reads(wishes.outbound_reads).min(enhanced.inbound_reads)),
        sends_first: true,
        peer_to_peer: enhanced.peer_to_peer,
        frame_max: wishes.frame_max,
    })
}

/// A responder's reply, and the agreement. Revision and parts are those of the request.
pub fn accept(wishes: &Wishes, request: &Frame, private_data: &[u8]) -> (Frame, Agreed) {
    let crc = wishes.crc || request.crc;
    let outbound_reads = match &request.enhanced {
        Some(enhanced) => u32::from(reads(wishes.outbound_reads).min(enhanced.inbound_reads)),
        None => wishes.outbound_reads.min(READS_UNSAID),
    };
    let peer_to_peer = request.enhanced.is_some_and(|asked| asked.peer_to_peer);
    let reply = Frame {
        kind: FrameKind::Reply,
        revision: request.revision,
        crc,
        reject: false,
        enhanced: request.enhanced.map(|_| Enhanced {
            inbound_reads: reads(wishes.inbound_reads),
            outbound_reads: outbound_reads as u16,
            peer_to_peer,
        }),
        private_data: private_data.to_vec(),
    };
    let agreed = Agreed {
        crc,
        inbound_reads: wishes.inbound_reads.min(READS_MAX),
        outbound_reads,
        sends_first: false,
        peer_to_peer,
        frame_max: wishes.frame_max,
    };
    (reply, agreed)
}

/// The reply that refuses a request.
pub fn refuse(request: &Frame, reason: &[u8]) -> Frame {
    Frame {
        kind: FrameKind::Reply,
        revision: request.revision,
        crc: request.crc,
        reject: true,
        enhanced: request.enhanced.map(|_| Enhanced::default()),
        private_data: reason.to_vec(),
    }
}

fn reads(count: u32) -> u16 {
    count.min(READS_MAX) as u16
}
