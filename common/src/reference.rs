//! References: where in the server's memory a page lies, and the right to ask for it. A hint, never a promise.

use std::fmt;

/// A moment in the life of an export: a counter that only grows, moved by every revocation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Epoch(pub u64);

/// Number of an entry in the translation and protection table (TPT): a page, or a counter, that was handed out.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Handle(pub u32);

/// A random number that belongs to a handle for the life of what it covers.
#[derive(Clone, Copy, Default, PartialEq, Eq, Hash)]
pub struct AccessKey(pub u64);

impl fmt::Debug for AccessKey {
    /// Access keys are secrets: they stay out of logs.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("AccessKey(..)")
    }
}

/// What a server hands out for one page (or for one change counter) and a client presents with a direct read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Reference {
    /// Offset of the first byte in the export's arena.
    pub address: u64,
    /// Length of the valid data from there, in bytes: less than a page at the end of a file.
    pub length: u32,
    /// Number of the TPT entry.
    pub handle: Handle,
    /// Access key of that entry.
    pub key: AccessKey,
    /// The export's epoch at issue.
    pub epoch: Epoch,
}

impl Reference {
    /// Size of a reference on the wire, in bytes.
    pub const WIRE_BYTES: usize = 32;

    /// XDR: `{ address u64, length u32, handle u32, key u64, epoch u64 }`.
    pub fn to_wire(&self) -> [u8; Self::WIRE_BYTES] {
        let mut out = [0; Self::WIRE_BYTES];
        out[0..8].copy_from_slice(&self.address.to_be_bytes());
        out[8..12].copy_from_slice(&self.length.to_be_bytes());
        out[12..16].copy_from_slice(&self.handle.0.to_be_bytes());
        out[16..24].copy_from_slice(&self.key.0.to_be_bytes());
        out[24..32].copy_from_slice(&self.epoch.0.to_be_bytes());
        out
    }

    /// Inverse of [`to_wire`](Self::to_wire). Every pattern of bits is a reference: the server judges it.
    pub fn from_wire(bytes: &[u8; Self::WIRE_BYTES]) -> Reference {
        let word = |at: usize| u64::from_be_bytes(std::array::from_fn(|i| bytes[at + i]));
        let half = |at: usize| u32::from_be_bytes(std::array::from_fn(|i| bytes[at + i]));
        Reference {
            address: word(0),
            length: half(8),
            handle: Handle(half(12)),
            key: AccessKey(word(16)),
            epoch: Epoch(word(24)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn golden() {
        let reference = Reference {
            address: 0x0102_0304_0506_0708,
            length: 0x1000,
            handle: Handle(7),
            key: AccessKey(0x1122_3344_5566_7788),
            epoch: Epoch(9),
        };
        let wire = reference.to_wire();
        assert_eq!(
            wire,
            [
                1, 2, 3, 4, 5, 6, 7, 8, 0, 0, 0x10, 0, 0, 0, 0, 7, 0x11, 0x22, 0x33, 0x44, 0x55,
                0x66, 0x77, 0x88, 0, 0, 0, 0, 0, 0, 0, 9
            ]
        );
        assert_eq!(Reference::from_wire(&wire), reference);
        assert!(
            !format!("{reference:?}").contains("1122"),
            "keys stay out of logs"
        );
    }
}
