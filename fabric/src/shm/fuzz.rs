//! The function of the fuzz target `shm_packet` in `fuzz/`. The tests replay its corpus.

use super::socket::{PACKET_MAX, Packet, REASON_MAX};

/// A packet on the socket beside the rings, to which any local user may write. A packet that is accepted must read back
/// from its encoding.
pub fn packet(bytes: &[u8]) {
    // The kernel cuts longer packets off.
    let Ok(mut packet) = Packet::decode(&bytes[..bytes.len().min(PACKET_MAX)]) else {
        return;
    };
    if let Packet::Refused { reason } | Packet::NoRegion { reason, .. } = &mut packet {
        reason.truncate(reason.floor_char_boundary(REASON_MAX));
    }
    let again = packet.encode();
    assert!(again.len() <= PACKET_MAX, "{packet:?}");
    assert_eq!(Packet::decode(&again).ok(), Some(packet));
}
