//! The Noise framework (the crate `snow`) over primitives that wipe what they keep, and over randomness that the caller
//! supplies.
//!
//! The framework's own primitives leave their keys in freed memory, so it gets others. What it keeps itself, the chaining
//! key, is wiped with the memory of its state. What it has on the stack in between is not.

use blake2::{Blake2s256, Digest as _};
use chacha20poly1305::aead::AeadInOut as _;
use chacha20poly1305::{ChaCha20Poly1305, KeyInit as _};
use snow::params::{CipherChoice, DHChoice, HashChoice};
use snow::resolvers::CryptoResolver;
use snow::types::{Cipher, Dh, Hash, Random};
use snow::{Error, HandshakeState};
use x25519_dalek::{PublicKey, StaticSecret};
use zeroize::{Zeroize, ZeroizeOnDrop, Zeroizing};

use super::Seed;

const KEY_BYTES: usize = 32;
const TAG_BYTES: usize = 16;
const HASH_BYTES: usize = 32;
const BLOCK_BYTES: usize = 64;

/// The state of a handshake. Wiped when dropped.
pub(super) struct Handshake(Box<Option<Framework>>);

struct Framework(HandshakeState);

/// What it has on the heap wipes itself. The rest is wiped as the memory that it is, by `Option`.
impl Zeroize for Framework {
    fn zeroize(&mut self) {}
}

impl Handshake {
    pub fn new(state: HandshakeState) -> Self {
        Self(Box::new(Some(Framework(state))))
    }

    pub fn state(&mut self) -> &mut HandshakeState {
        let state = self.0.as_mut().as_mut();
        &mut state.expect("it is there until it is dropped").0
    }
}

impl Drop for Handshake {
    fn drop(&mut self) {
        // Dropped in place, because a move leaves a copy.
        *self.0 = None;
        self.0.as_mut().zeroize();
    }
}

impl ZeroizeOnDrop for Handshake {}

/// The primitives of `25519_ChaChaPoly_BLAKE2s`, with a seed for all randomness, so that a seeded run repeats itself.
pub(super) struct Primitives(pub Seed);

impl CryptoResolver for Primitives {
    fn resolve_rng(&self) -> Option<Box<dyn Random>> {
        let hasher = blake3::Hasher::new_derive_key("odafs 2024 noise ephemeral key");
        let mut hasher = Zeroizing::new(hasher);
        hasher.update(&*self.0);
        Some(Box::new(Seeded(Zeroizing::new(hasher.finalize_xof()))))
    }

    fn resolve_dh(&self, choice: &DHChoice) -> Option<Box<dyn Dh>> {
        match choice {
            DHChoice::Curve25519 => Some(Box::new(X25519::default())),
            _ => None,
        }
    }

    fn resolve_hash(&self, choice: &HashChoice) -> Option<Box<dyn Hash>> {
        match choice {
            HashChoice::Blake2s => Some(Box::new(Blake2s::default())),
            _ => None,
        }
    }

    fn resolve_cipher(&self, choice: &CipherChoice) -> Option<Box<dyn Cipher>> {
        match choice {
            CipherChoice::ChaChaPoly => Some(Box::new(ChaChaPoly::default())),
            _ => None,
        }
    }
}

struct Seeded(Zeroizing<blake3::OutputReader>);

impl Random for Seeded {
    fn try_fill_bytes(&mut self, out: &mut [u8]) -> Result<(), Error> {
        self.0.fill(out);
        Ok(())
    }
}

#[derive(Default)]
struct X25519 {
    secret: Zeroizing<[u8; KEY_BYTES]>,
    public: [u8; KEY_BYTES],
}

impl X25519 {
    fn derive(&mut self) {
        self.public = PublicKey::from(&StaticSecret::from(*self.secret)).to_bytes();
    }
}

impl Dh for X25519 {
    fn name(&self) -> &'static str {
        "25519"
    }

    fn pub_len(&self) -> usize {
        KEY_BYTES
    }

    fn priv_len(&self) -> usize {
        KEY_BYTES
    }

    fn set(&mut self, private: &[u8]) {
        self.secret.copy_from_slice(private);
        self.derive();
    }

    fn generate(&mut self, random: &mut dyn Random) -> Result<(), Error> {
        random.try_fill_bytes(&mut *self.secret)?;
        self.derive();
        Ok(())
    }

    fn pubkey(&self) -> &[u8] {
        &self.public
    }

    fn privkey(&self) -> &[u8] {
        &*self.secret
    }

    fn dh(&self, public: &[u8], out: &mut [u8]) -> Result<(), Error> {
        let theirs: &[u8; KEY_BYTES] = public.first_chunk().ok_or(Error::Dh)?;
        let ours = StaticSecret::from(*self.secret);
        let shared = ours.diffie_hellman(&PublicKey::from(*theirs));
        out[..KEY_BYTES].copy_from_slice(shared.as_bytes());
        Ok(())
    }
}

#[derive(Default)]
struct ChaChaPoly(Zeroizing<[u8; KEY_BYTES]>);

impl ChaChaPoly {
    fn cipher(&self) -> ChaCha20Poly1305 {
        ChaCha20Poly1305::new((&*self.0).into())
    }
}

/// 32 zero bits and the number, little-endian (the framework, section 12.3).
fn nonce(number: u64) -> chacha20poly1305::Nonce {
    let mut nonce = [0; 12];
    nonce[4..].copy_from_slice(&number.to_le_bytes());
    nonce.into()
}

impl Cipher for ChaChaPoly {
    fn name(&self) -> &'static str {
        "ChaChaPoly"
    }

    fn set(&mut self, key: &[u8; KEY_BYTES]) {
        self.0.copy_from_slice(key);
    }

    fn encrypt(&self, number: u64, beside: &[u8], plain: &[u8], out: &mut [u8]) -> usize {
        let (sealed, rest) = out.split_at_mut(plain.len());
        sealed.copy_from_slice(plain);
        let tag = self
            .cipher()
            .encrypt_inout_detached(&nonce(number), beside, sealed.into())
            .expect("no message is as long as the cipher allows");
        rest[..TAG_BYTES].copy_from_slice(&tag);
        plain.len() + TAG_BYTES
    }

    fn decrypt(
        &self,
        number: u64,
        beside: &[u8],
        sealed: &[u8],
        out: &mut [u8],
    ) -> Result<usize, Error> {
        let (sealed, tag) = sealed.split_last_chunk().ok_or(Error::Decrypt)?;
        let tag: &[u8; TAG_BYTES] = tag;
        let out = out.get_mut(..sealed.len()).ok_or(Error::Decrypt)?;
        out.copy_from_slice(sealed);
        self.cipher()
            .decrypt_inout_detached(&nonce(number), beside, out.into(), tag.into())
            .map_err(|_| Error::Decrypt)?;
        Ok(sealed.len())
    }
}

#[derive(Default)]
struct Blake2s(Blake2s256);

impl Hash for Blake2s {
    fn name(&self) -> &'static str {
        "BLAKE2s"
    }

    fn block_len(&self) -> usize {
        BLOCK_BYTES
    }

    fn hash_len(&self) -> usize {
        HASH_BYTES
    }

    fn reset(&mut self) {
        self.0 = Blake2s256::default();
    }

    fn input(&mut self, data: &[u8]) {
        self.0.update(data);
    }

    fn result(&mut self, out: &mut [u8]) {
        let hash: [u8; HASH_BYTES] = std::mem::take(&mut self.0).finalize().into();
        out[..HASH_BYTES].copy_from_slice(&*Zeroizing::new(hash));
    }

    /// As in the framework, but wipes what it computes on the way.
    fn hmac(&mut self, key: &[u8], data: &[u8], out: &mut [u8]) {
        let mut inner = Zeroizing::new([0; HASH_BYTES]);
        let mut pad = Zeroizing::new([0x36; BLOCK_BYTES]);
        pad.iter_mut().zip(key).for_each(|(pad, key)| *pad ^= key);
        self.reset();
        self.input(&*pad);
        self.input(data);
        self.result(&mut *inner);
        pad.iter_mut().for_each(|pad| *pad ^= 0x36 ^ 0x5c);
        self.reset();
        self.input(&*pad);
        self.input(&*inner);
        self.result(out);
    }

    /// As in the framework, but wipes what it computes on the way.
    fn hkdf(
        &mut self,
        chaining_key: &[u8],
        material: &[u8],
        outputs: usize,
        out1: &mut [u8],
        out2: &mut [u8],
        out3: &mut [u8],
    ) {
        let mut key = Zeroizing::new([0; HASH_BYTES]);
        self.hmac(chaining_key, material, &mut *key);
        self.hmac(&*key, &[1], out1);
        let mut before = Zeroizing::new([0; HASH_BYTES + 1]);
        if outputs > 1 {
            before[..HASH_BYTES].copy_from_slice(&out1[..HASH_BYTES]);
            before[HASH_BYTES] = 2;
            self.hmac(&*key, &*before, out2);
        }
        if outputs > 2 {
            before[..HASH_BYTES].copy_from_slice(&out2[..HASH_BYTES]);
            before[HASH_BYTES] = 3;
            self.hmac(&*key, &*before, out3);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bytes(hex: &str) -> Vec<u8> {
        let digit = |at| u8::from_str_radix(&hex[at..at + 2], 16).expect("hexadecimal");
        (0..hex.len()).step_by(2).map(digit).collect()
    }

    /// From the test vectors of Cacophony, another implementation.
    #[test]
    fn a_published_handshake() {
        let statics = [
            "e61ef9919cde45dd5f82166404bd08e38bceb5dfdfded0a34c8df7ed542214d1",
            "4a3acbfdb163dec651dfa3194dece676d437029c62a408b4c5ea9114246e4893",
        ]
        .map(bytes);
        let ephemerals = [
            "893e28b9dc6ca8d611ab664754b8ceb7bac5117349a4439a6b0569da977c464a",
            "bbdb4cdbd309f1a1f2e1456967fe288cadd6f712d65dc7b7793d5e63da6b375b",
        ]
        .map(bytes);
        let publics = [
            "6bc3822a2aa7f4e6981d6538692b3cdf3e6df9eea6ed269eb41d93c22757b75a",
            "31e0303fd6418d2f8c0e78b91f22e8caed0fbe48656dcf4767e4834f701b8f62",
        ]
        .map(bytes);
        let builder = |us: usize| {
            let protocol = "Noise_KK_25519_ChaChaPoly_BLAKE2s".parse().unwrap();
            let primitives = Box::new(Primitives([1; 32].into()));
            snow::Builder::with_resolver(protocol, primitives)
                .prologue(b"John Galt")
                .and_then(|builder| builder.local_private_key(&statics[us]))
                .and_then(|builder| builder.remote_public_key(&publics[1 - us]))
                .unwrap()
                .fixed_ephemeral_key_for_testing_only(&ephemerals[us])
        };
        let mut first = Handshake::new(builder(0).build_initiator().unwrap());
        let mut second = Handshake::new(builder(1).build_responder().unwrap());
        let mut said = [0; 128];
        let mut heard = [0; 128];
        let length = first
            .state()
            .write_message(b"Ludwig von Mises", &mut said)
            .unwrap();
        assert_eq!(
            said[..length],
            bytes(
                "ca35def5ae56cec33dc2036731ab14896bc4c75dbb07a61f879f8e3afa4c7944\
                 266a5f53784aa3becb0f7485c2759c328937867a4cbaafef07422b0725e098be"
            )
        );
        let length = second
            .state()
            .read_message(&said[..length], &mut heard)
            .unwrap();
        assert_eq!(&heard[..length], b"Ludwig von Mises");
        let length = second
            .state()
            .write_message(b"Murray Rothbard", &mut said)
            .unwrap();
        assert_eq!(
            said[..length],
            bytes(
                "95ebc60d2b1fa672c1f46a8aa265ef51bfe38e7ccb39ec5be34069f144808843\
                 008aeea5d76d6abcbab87a18502c8a8352d9933ac11e2a7d228038d721e31e"
            )
        );
        let length = first
            .state()
            .read_message(&said[..length], &mut heard)
            .unwrap();
        assert_eq!(&heard[..length], b"Murray Rothbard");
        let hash = bytes("1362b8627a00907ce11e558aba8ce7cbca88e83f0e84ce7db5159b1c3e25ab59");
        assert_eq!(first.state().get_handshake_hash(), hash);
        assert_eq!(second.state().get_handshake_hash(), hash);
        assert_eq!(
            first.state().dangerously_get_raw_split(),
            second.state().dangerously_get_raw_split()
        );
    }
}
