//! Golden bytes, streams through pipes that split and cut anywhere, and peers that misbehave.

mod golden;
mod hostile;
mod pipes;

use super::ddp::{Header, SegmentTarget, queue};
use super::mpa;
use super::rdmap::Opcode;
use super::{Agreed, Endpoint};
use crate::fabric::Completion;
use crate::memory::Stretch;

/// What both ends of the tests agree on.
pub fn agreed(crc: bool, sends_first: bool) -> Agreed {
    Agreed {
        crc,
        inbound_reads: 4,
        outbound_reads: 4,
        sends_first,
        peer_to_peer: false,
        frame_max: 1460,
    }
}

/// Everything that an endpoint has to send now.
pub fn outgoing(endpoint: &mut Endpoint) -> Vec<u8> {
    let mut bytes = Vec::new();
    while endpoint.prepare() {
        let before = bytes.len();
        for stretch in endpoint.stretches() {
            match stretch {
                Stretch::Bytes(more) => bytes.extend_from_slice(more),
                Stretch::Memory { memory, at, length } => {
                    let start = bytes.len();
                    bytes.resize(start + length, 0);
                    memory.load(at, &mut bytes[start..]);
                }
            }
        }
        endpoint.sent(bytes.len() - before);
    }
    bytes
}

/// Gives an endpoint all of `bytes`, and takes what completes.
pub fn feed(endpoint: &mut Endpoint, mut bytes: &[u8]) -> Vec<(Completion, Vec<u8>)> {
    let mut events = Vec::new();
    loop {
        while let Some(event) = endpoint.poll() {
            events.push((event, endpoint.message().to_vec()));
        }
        let used = endpoint.receive(bytes);
        bytes = &bytes[used..];
        if used == 0 && !endpoint.has_completion() {
            return events;
        }
    }
}

/// A frame around a ULPDU.
pub fn framed(ulpdu: &[u8], crc: bool) -> Vec<u8> {
    let mut bytes = (ulpdu.len() as u16).to_be_bytes().to_vec();
    bytes.extend_from_slice(ulpdu);
    bytes.resize(bytes.len() + mpa::padding(ulpdu.len()), 0);
    let sum = if crc { mpa::checksum(&bytes) } else { [0; 4] };
    bytes.extend_from_slice(&sum);
    bytes
}

/// An untagged segment.
pub fn untagged(
    opcode: Opcode,
    queue: u32,
    number: u32,
    offset: u32,
    last: bool,
    payload: &[u8],
) -> Vec<u8> {
    let header = Header {
        opcode,
        last,
        place: SegmentTarget::Untagged {
            invalidate: 0,
            queue,
            number,
            offset,
        },
    };
    segment(&header, payload)
}

/// A segment of a Send.
pub fn send(number: u32, offset: u32, last: bool, payload: &[u8]) -> Vec<u8> {
    untagged(Opcode::Send, queue::SEND, number, offset, last, payload)
}

/// A tagged segment.
pub fn tagged(opcode: Opcode, tag: u32, offset: u64, last: bool, payload: &[u8]) -> Vec<u8> {
    let header = Header {
        opcode,
        last,
        place: SegmentTarget::Tagged { tag, offset },
    };
    segment(&header, payload)
}

/// A segment.
pub fn segment(header: &Header, payload: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::new();
    header.encode(&mut bytes);
    bytes.extend_from_slice(payload);
    bytes
}
