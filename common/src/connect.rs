//! The private data that both ends exchange when a queue pair is connected.

/// Nonce of the server, fresh for each connection: an attach message is good for one connection only.
pub type Nonce = [u8; 16];

/// What a connection is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Role {
    /// Guarded and one-sided reads.
    Direct = 1,
    /// Calls.
    Rpc = 2,
}

/// Private data of a connection, both ways: 24 bytes, below the 56 that RDMA-CM leaves.
///
/// `{ magic "ODAF", version u8 = 1, role u8, flags u8, 0 u8, nonce [16] }`. The nonce is zero in the request and the
/// server's in the reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PrivateData {
    /// What the connection is for.
    pub role: Role,
    /// The client will want RDMA Reads (and needs inbound read depth from the server).
    pub one_sided: bool,
    /// The server's nonce, in its reply.
    pub nonce: Nonce,
}

impl PrivateData {
    /// Size in bytes.
    pub const BYTES: usize = 24;
    const MAGIC: [u8; 4] = *b"ODAF";
    const VERSION: u8 = 1;

    /// The bytes on the wire.
    pub fn encode(&self) -> [u8; Self::BYTES] {
        let mut out = [0; Self::BYTES];
        out[0..4].copy_from_slice(&Self::MAGIC);
        out[4] = Self::VERSION;
        out[5] = self.role as u8;
        out[6] = u8::from(self.one_sided);
        out[8..24].copy_from_slice(&self.nonce);
        out
    }

    /// Whether these bytes are meant for a protocol of ours, of whatever version.
    pub fn is_ours(bytes: &[u8]) -> bool {
        bytes.starts_with(&Self::MAGIC)
    }

    /// Our private data, if these are; anything else belongs to another protocol (or to a later version of ours).
    /// Bytes behind it (RDMA-CM pads with zeros) are ignored.
    pub fn decode(bytes: &[u8]) -> Option<PrivateData> {
        let bytes: &[u8; Self::BYTES] = bytes.first_chunk()?;
        if bytes[0..4] != Self::MAGIC || bytes[4] != Self::VERSION {
            return None;
        }
        let role = match bytes[5] {
            1 => Role::Direct,
            2 => Role::Rpc,
            _ => return None,
        };
        let nonce = std::array::from_fn(|i| bytes[8 + i]);
        Some(PrivateData {
            role,
            one_sided: bytes[6] & 1 != 0,
            nonce,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn round_trip_and_refusals() {
        let data = PrivateData {
            role: Role::Direct,
            one_sided: true,
            nonce: [9; 16],
        };
        let wire = data.encode();
        assert_eq!(PrivateData::decode(&wire), Some(data));
        let mut padded = wire.to_vec();
        padded.resize(56, 0);
        assert_eq!(PrivateData::decode(&padded), Some(data));
        for at in [0, 4, 5] {
            let mut bad = wire;
            bad[at] ^= 0x40;
            assert_eq!(PrivateData::decode(&bad), None);
        }
        assert_eq!(PrivateData::decode(&wire[..23]), None);
        assert_eq!(PrivateData::decode(&[]), None);
    }
}
