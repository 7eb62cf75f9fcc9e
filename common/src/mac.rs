//! Keyed message authentication codes for the direct protocol: 128-bit tags.

mod block;

use block::BlockKey;
use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;
use subtle::ConstantTimeEq;
use zeroize::{ZeroizeOnDrop, Zeroizing};

/// Length of a tag in bytes.
pub const TAG_BYTES: usize = 16;
/// A tag.
pub type Tag = [u8; TAG_BYTES];

/// Which MAC protects the requests of a session. Negotiated in OPEN_SESSION.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum MacAlgorithm {
    /// HMAC-SHA-256 (RFC 2104) truncated to 128 bits. Everyone has it.
    HmacSha256 = 0,
    /// Keyed BLAKE3 truncated to 128 bits: several times faster where there are no SHA instructions.
    Blake3 = 1,
}

impl MacAlgorithm {
    /// Everything that this program speaks, as a bit mask for the handshake's parameters.
    pub const OFFERED: u32 = MacAlgorithm::HmacSha256.bit() | MacAlgorithm::Blake3.bit();

    /// This algorithm's bit in a mask of offers.
    pub const fn bit(self) -> u32 {
        1 << (self as u8)
    }

    /// The algorithm with this code.
    pub fn from_code(code: u32) -> Option<MacAlgorithm> {
        match code {
            0 => Some(MacAlgorithm::HmacSha256),
            1 => Some(MacAlgorithm::Blake3),
            _ => None,
        }
    }

    /// The code on the wire.
    pub const fn code(self) -> u32 {
        self as u32
    }

    /// The fastest algorithm in both masks, or `None` if they share none.
    pub fn choose(offered: u32, allowed: u32) -> Option<MacAlgorithm> {
        let both = offered & allowed;
        [MacAlgorithm::Blake3, MacAlgorithm::HmacSha256]
            .into_iter()
            .find(|mac| both & mac.bit() != 0)
    }

    /// The name that benches and logs use.
    pub const fn name(self) -> &'static str {
        match self {
            MacAlgorithm::HmacSha256 => "hmac-sha256",
            MacAlgorithm::Blake3 => "blake3",
        }
    }
}

/// A MAC key, expanded once (for HMAC: both padded blocks already hashed). It lies on the heap, so that to move it leaves
/// no copy, and is wiped when dropped.
#[derive(Clone)]
pub struct MacKey(State);

#[derive(Clone)]
enum State {
    // hmac and sha2 wipe themselves: their `zeroize` features are on.
    Hmac(Box<Hmac<Sha256>>),
    Blake3(Box<Blake3Key>),
}

#[derive(Clone)]
struct Blake3Key {
    block: BlockKey,
    whole: Zeroizing<[u8; 32]>,
}

impl MacKey {
    /// Expands `key` for `algorithm`.
    pub fn new(algorithm: MacAlgorithm, key: &[u8; 32]) -> MacKey {
        MacKey(match algorithm {
            MacAlgorithm::HmacSha256 => {
                let mut block = Zeroizing::new([0u8; 64]);
                block[..32].copy_from_slice(key);
                State::Hmac(Box::new(<Hmac<Sha256> as KeyInit>::new((&*block).into())))
            }
            MacAlgorithm::Blake3 => State::Blake3(Box::new(Blake3Key {
                block: BlockKey::new(key),
                whole: Zeroizing::new(*key),
            })),
        })
    }

    /// The algorithm that this key is for.
    pub fn algorithm(&self) -> MacAlgorithm {
        match self.0 {
            State::Hmac(_) => MacAlgorithm::HmacSha256,
            State::Blake3(..) => MacAlgorithm::Blake3,
        }
    }

    /// The tag of `message`.
    #[inline]
    pub fn tag(&self, message: &[u8]) -> Tag {
        let full: [u8; 32] = match &self.0 {
            State::Hmac(state) => {
                let mut mac = Hmac::clone(state);
                mac.update(message);
                mac.finalize().into_bytes().into()
            }
            State::Blake3(key) => match message.try_into() {
                Ok(block) => return key.block.tag(block),
                Err(_) => *blake3::keyed_hash(&key.whole, message).as_bytes(),
            },
        };
        std::array::from_fn(|i| full[i])
    }

    /// Is `tag` the tag of `message`? Takes the same time whichever byte differs.
    pub fn verify(&self, message: &[u8], tag: &Tag) -> bool {
        self.tag(message).ct_eq(tag).into()
    }
}

impl ZeroizeOnDrop for MacKey {}

impl std::fmt::Debug for MacKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "MacKey({})", self.algorithm().name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hex(bytes: &[u8]) -> String {
        bytes.iter().map(|b| format!("{b:02x}")).collect()
    }

    #[test]
    fn hmac_is_rfc_2104_truncated() {
        // RFC 4231 test case 1 has a 20-byte key; HMAC pads keys with zeros, so a zero-extended one is the same key.
        let mut key = [0; 32];
        key[..20].fill(0x0b);
        let tag = MacKey::new(MacAlgorithm::HmacSha256, &key).tag(b"Hi There");
        assert_eq!(hex(&tag), "b0344c61d8db38535ca8afceaf0bf12b");
    }

    #[test]
    fn blake3_is_the_reference_keyed_mode() {
        // The first case (empty input) of BLAKE3's published test vectors, under their key.
        let tag = MacKey::new(MacAlgorithm::Blake3, b"whats the Elvish word for friend").tag(b"");
        assert_eq!(hex(&tag), "92b2b75604ed3c761f9d6f62392c8a92");
    }

    #[test]
    fn any_flipped_bit_fails() {
        for algorithm in [MacAlgorithm::HmacSha256, MacAlgorithm::Blake3] {
            let key = MacKey::new(algorithm, &[7; 32]);
            let message = [0x5a; 64];
            let tag = key.tag(&message);
            assert!(key.verify(&message, &tag));
            for bit in 0..128 {
                let mut forged = tag;
                forged[bit / 8] ^= 1 << (bit % 8);
                assert!(!key.verify(&message, &forged));
            }
            for bit in 0..512 {
                let mut forged = message;
                forged[bit / 8] ^= 1 << (bit % 8);
                assert!(!key.verify(&forged, &tag));
            }
            assert!(!MacKey::new(algorithm, &[8; 32]).verify(&message, &tag));
        }
    }

    #[test]
    fn the_faster_common_algorithm_wins() {
        assert_eq!(MacAlgorithm::choose(3, 3), Some(MacAlgorithm::Blake3));
        assert_eq!(MacAlgorithm::choose(3, 1), Some(MacAlgorithm::HmacSha256));
        assert_eq!(MacAlgorithm::choose(1, 2), None);
        assert_eq!(MacAlgorithm::choose(!3, !0), None);
    }
}
