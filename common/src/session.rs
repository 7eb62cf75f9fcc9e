//! Sessions: the Noise handshake, the keys that come out of it, and the window that stops replays.
//!
//! The handshake is two messages of the Noise protocol framework (revision 34), carried by OPEN_SESSION. Its prologue
//! is everything negotiated, byte for byte, so a man in the middle cannot change an offer. Which pattern is used
//! follows from whose static keys are known:
//!
//! | pattern | the client knows the server's key | the server knows the client's key |
//! |---|---|---|
//! | NN | no: safe from listeners, not from a man in the middle | no |
//! | NK | yes | no |
//! | KK | yes | yes |

use hkdf::Hkdf;
use sha2::Sha256;
use zeroize::{ZeroizeOnDrop, Zeroizing};

use crate::mac::{MacAlgorithm, MacKey, Tag};
use crate::secret::Secret;

mod noise;

use noise::{Handshake, Primitives};

/// Longest handshake message, in bytes, either way.
pub const HANDSHAKE_BYTES_MAX: usize = 1024;

/// 32 bytes of fresh randomness, from which a handshake's ephemeral key is made. Never used twice.
pub type Seed = Secret;

/// An X25519 public key.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct PublicKey(pub [u8; 32]);

impl std::fmt::Debug for PublicKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

/// A static X25519 key pair: the identity of a server or a client. Wiped when dropped.
#[derive(Clone, ZeroizeOnDrop)]
pub struct Identity {
    secret: Secret,
}

impl Identity {
    /// The identity with this secret, which must be 32 random bytes.
    pub fn from_secret(secret: [u8; 32]) -> Identity {
        let secret = secret.into();
        Identity { secret }
    }

    /// The secret, to be stored where only its owner can read it.
    pub fn secret(&self) -> &[u8; 32] {
        &self.secret
    }

    /// The public key.
    pub fn public(&self) -> PublicKey {
        let secret = x25519_dalek::StaticSecret::from(*self.secret);
        PublicKey(x25519_dalek::PublicKey::from(&secret).to_bytes())
    }
}

impl std::fmt::Debug for Identity {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Identity({:?})", self.public())
    }
}

/// Which static keys take part in a handshake.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum Pattern {
    /// Neither side is authenticated by the handshake.
    Nn = 0,
    /// The server is.
    Nk = 1,
    /// Both are.
    Kk = 2,
}

impl Pattern {
    /// The pattern with this code.
    pub fn from_code(code: u32) -> Option<Pattern> {
        [Pattern::Nn, Pattern::Nk, Pattern::Kk]
            .get(code as usize)
            .copied()
    }

    /// The code on the wire.
    pub const fn code(self) -> u32 {
        self as u32
    }

    /// The pattern that a client with these keys uses. `None` for an identity without the server's key, which any
    /// server would get to see.
    pub fn of(identity: Option<&Identity>, server: Option<&PublicKey>) -> Option<Pattern> {
        match (identity, server) {
            (None, None) => Some(Pattern::Nn),
            (None, Some(_)) => Some(Pattern::Nk),
            (Some(_), Some(_)) => Some(Pattern::Kk),
            (Some(_), None) => None,
        }
    }

    const fn protocol(self) -> &'static str {
        match self {
            Pattern::Nn => "Noise_NN_25519_ChaChaPoly_BLAKE2s",
            Pattern::Nk => "Noise_NK_25519_ChaChaPoly_BLAKE2s",
            Pattern::Kk => "Noise_KK_25519_ChaChaPoly_BLAKE2s",
        }
    }
}

/// Why a handshake failed. It does not say what was wrong with a message, which would only help attackers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum HandshakeError {
    /// A client identity needs the server's public key.
    #[error("a client identity is used only towards a server whose public key is known")]
    ServerKeyMissing,
    /// The pattern needs a static key that this server does not have.
    #[error("the server has no identity")]
    IdentityMissing,
    /// The client's key is not admitted.
    #[error("the client's key is not admitted")]
    NotAdmitted,
    /// Malformed, forged, or made for other parameters.
    #[error("the handshake message does not verify")]
    BadMessage,
}

impl From<snow::Error> for HandshakeError {
    fn from(_: snow::Error) -> Self {
        HandshakeError::BadMessage
    }
}

struct Statics<'a> {
    ours: Option<&'a Identity>,
    theirs: Option<&'a PublicKey>,
}

fn builder<'a>(
    pattern: Pattern,
    parameters: &'a [u8],
    seed: Seed,
    statics: Statics<'a>,
) -> Result<snow::Builder<'a>, HandshakeError> {
    let params = pattern.protocol().parse()?;
    let mut builder = snow::Builder::with_resolver(params, Box::new(Primitives(seed)));
    builder = builder.prologue(parameters)?;
    if let Some(identity) = statics.ours {
        builder = builder.local_private_key(&*identity.secret)?;
    }
    if let Some(key) = statics.theirs {
        builder = builder.remote_public_key(&key.0)?;
    }
    Ok(builder)
}

fn write(
    state: &mut snow::HandshakeState,
    prefix: &[u8],
    payload: &[u8],
) -> Result<Vec<u8>, HandshakeError> {
    let mut message = vec![0; prefix.len() + payload.len() + 128];
    message[..prefix.len()].copy_from_slice(prefix);
    let length = state.write_message(payload, &mut message[prefix.len()..])?;
    message.truncate(prefix.len() + length);
    Ok(message)
}

fn read(state: &mut snow::HandshakeState, message: &[u8]) -> Result<Vec<u8>, HandshakeError> {
    if message.len() > HANDSHAKE_BYTES_MAX {
        return Err(HandshakeError::BadMessage);
    }
    let mut payload = vec![0; message.len()];
    let length = state.read_message(message, &mut payload)?;
    payload.truncate(length);
    Ok(payload)
}

/// The client's half of a handshake.
pub struct Initiator(Handshake);

impl Initiator {
    /// Begins: what comes back goes into OPEN_SESSION beside `parameters`, which must be sent as they are here.
    pub fn start(
        parameters: &[u8],
        seed: Seed,
        identity: Option<&Identity>,
        server: Option<&PublicKey>,
    ) -> Result<(Initiator, Vec<u8>), HandshakeError> {
        let pattern = Pattern::of(identity, server).ok_or(HandshakeError::ServerKeyMissing)?;
        let statics = Statics {
            ours: identity,
            theirs: server,
        };
        let state = builder(pattern, parameters, seed, statics)?.build_initiator()?;
        let mut state = Handshake::new(state);
        // KK does not transmit static keys, so the client sends in clear which of the admitted keys to try. The
        // handshake hash covers it.
        let public = identity.map(|identity| identity.public().0);
        let message = write(
            state.state(),
            public.as_ref().map_or(&[], |key| &key[..]),
            &[],
        )?;
        Ok((Initiator(state), message))
    }

    /// Processes the server's message. Returns the session's key and the contents of the message.
    pub fn finish(mut self, message: &[u8]) -> Result<(SessionKey, Vec<u8>), HandshakeError> {
        let payload = read(self.0.state(), message)?;
        Ok((SessionKey::of(self.0.state()), payload))
    }
}

/// The server's half of a handshake.
pub struct Responder {
    state: Handshake,
    client: Option<PublicKey>,
}

impl Responder {
    /// Processes the client's message. `parameters` are the bytes that came with it, and `pattern` is the one in them.
    /// `admitted` says whether a client's key may open sessions (KK only).
    pub fn read(
        parameters: &[u8],
        pattern: Pattern,
        seed: Seed,
        identity: Option<&Identity>,
        admitted: &dyn Fn(&PublicKey) -> bool,
        message: &[u8],
    ) -> Result<Responder, HandshakeError> {
        let (client, message) = match pattern {
            Pattern::Kk => {
                let (key, rest) = message
                    .split_first_chunk::<32>()
                    .ok_or(HandshakeError::BadMessage)?;
                (Some(PublicKey(*key)), rest)
            }
            Pattern::Nn | Pattern::Nk => (None, message),
        };
        if client.is_some_and(|client| !admitted(&client)) {
            return Err(HandshakeError::NotAdmitted);
        }
        let ours = match pattern {
            Pattern::Nn => None,
            Pattern::Nk | Pattern::Kk => Some(identity.ok_or(HandshakeError::IdentityMissing)?),
        };
        let statics = Statics {
            ours,
            theirs: client.as_ref(),
        };
        let state = builder(pattern, parameters, seed, statics)?.build_responder()?;
        let mut state = Handshake::new(state);
        read(state.state(), message)?;
        Ok(Responder { state, client })
    }

    /// The client's key, proven by the handshake (KK only).
    pub fn client(&self) -> Option<&PublicKey> {
        self.client.as_ref()
    }

    /// Ends the handshake with a message that carries `payload`, encrypted.
    pub fn reply(mut self, payload: &[u8]) -> Result<(SessionKey, Vec<u8>), HandshakeError> {
        let message = write(self.state.state(), &[], payload)?;
        Ok((SessionKey::of(self.state.state()), message))
    }
}

/// The secret that both ends, and nobody else, have after a handshake. All keys of the session are derived from it by
/// HKDF-SHA-256 (RFC 5869). Wiped when dropped.
#[derive(Clone, ZeroizeOnDrop)]
pub struct SessionKey {
    pseudorandom: Secret,
}

impl SessionKey {
    /// The two secret keys of Noise's Split() are the input, the (public) handshake hash is the salt.
    fn of(state: &mut snow::HandshakeState) -> SessionKey {
        let split = Zeroizing::new(state.dangerously_get_raw_split());
        let mut secret = Zeroizing::new([0; 64]);
        secret[..32].copy_from_slice(&split.0);
        secret[32..].copy_from_slice(&split.1);
        let (extracted, _) = Hkdf::<Sha256>::extract(Some(state.get_handshake_hash()), &*secret);
        let extracted = Zeroizing::new(<[u8; 32]>::from(extracted));
        SessionKey {
            pseudorandom: Secret::filled(|key| *key = *extracted),
        }
    }

    /// A key with this content, for tests of what comes after the handshake.
    pub fn from_bytes(pseudorandom: [u8; 32]) -> SessionKey {
        let pseudorandom = pseudorandom.into();
        SessionKey { pseudorandom }
    }

    fn expand(&self, label: &str, generation: u32) -> Secret {
        let info = [label.as_bytes(), &generation.to_be_bytes()];
        Secret::filled(|out| {
            Hkdf::<Sha256>::from_prk(&*self.pseudorandom)
                .and_then(|hkdf| {
                    hkdf.expand_multi_info(&info, out)
                        .map_err(|_| hkdf::InvalidPrkLength)
                })
                .expect("32 bytes are a valid key and a valid output length");
        })
    }

    /// The key of guarded requests, generation by generation (0 is the first).
    pub fn mac_key(&self, algorithm: MacAlgorithm, generation: u32) -> MacKey {
        let label = match algorithm {
            MacAlgorithm::HmacSha256 => "odafs request hmac-sha256",
            MacAlgorithm::Blake3 => "odafs request blake3",
        };
        MacKey::new(algorithm, &self.expand(label, generation))
    }

    /// The key of [`Attach`](crate::direct::Attach) and its answer: HMAC-SHA-256 whatever was negotiated.
    pub fn attach_key(&self) -> MacKey {
        MacKey::new(MacAlgorithm::HmacSha256, &self.expand("odafs attach", 0))
    }

    /// The key of [`Control`] messages.
    pub fn control_key(&self) -> MacKey {
        MacKey::new(MacAlgorithm::HmacSha256, &self.expand("odafs control", 0))
    }
}

impl std::fmt::Debug for SessionKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("SessionKey(..)")
    }
}

/// What the tags of REKEY and CLOSE_SESSION say.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Control {
    /// The client moves to this generation of the request key.
    Rekey {
        /// Session.
        session: u32,
        /// The new generation.
        generation: u32,
    },
    /// The server has followed.
    Rekeyed {
        /// Session.
        session: u32,
        /// The new generation.
        generation: u32,
    },
    /// The client ends the session.
    Close {
        /// Session.
        session: u32,
    },
}

impl Control {
    fn transcript(self) -> [u8; 12] {
        let (what, session, generation) = match self {
            Control::Rekey {
                session,
                generation,
            } => (1u32, session, generation),
            Control::Rekeyed {
                session,
                generation,
            } => (2, session, generation),
            Control::Close { session } => (3, session, 0),
        };
        let mut out = [0; 12];
        out[0..4].copy_from_slice(&what.to_be_bytes());
        out[4..8].copy_from_slice(&session.to_be_bytes());
        out[8..12].copy_from_slice(&generation.to_be_bytes());
        out
    }

    /// The tag, under [`SessionKey::control_key`].
    pub fn tag(self, key: &MacKey) -> Tag {
        key.tag(&self.transcript())
    }

    /// Does the tag hold?
    pub fn verify(self, key: &MacKey, tag: &Tag) -> bool {
        key.verify(&self.transcript(), tag)
    }
}

/// A sliding window over sequence numbers (as in RFC 4303, 3.4.3): many in flight, none accepted twice.
///
/// [`check`](Self::check) before the MAC is verified or after it, [`accept`](Self::accept) only once it has passed.
#[derive(Clone, Debug)]
pub struct SequenceWindow {
    /// Highest number accepted; 0 is never valid.
    top: u64,
    /// Bit `n % SPAN`: number `n` was accepted, for the `SPAN` numbers up to `top`.
    seen: [u64; Self::WORDS],
}

impl Default for SequenceWindow {
    fn default() -> Self {
        Self {
            top: 0,
            seen: [0; Self::WORDS],
        }
    }
}

impl SequenceWindow {
    /// How far behind the highest number a request may come in.
    pub const SPAN: u64 = 1024;
    const WORDS: usize = (Self::SPAN / 64) as usize;

    const fn slot(sequence: u64) -> (usize, u64) {
        let bit = sequence % Self::SPAN;
        ((bit / 64) as usize, 1 << (bit % 64))
    }

    /// May this number still be accepted?
    pub fn check(&self, sequence: u64) -> bool {
        if sequence > self.top {
            return true;
        }
        let (word, bit) = Self::slot(sequence);
        sequence != 0 && self.top - sequence < Self::SPAN && self.seen[word] & bit == 0
    }

    /// Takes the number; false (and nothing changes) if [`check`](Self::check) is.
    pub fn accept(&mut self, sequence: u64) -> bool {
        if !self.check(sequence) {
            return false;
        }
        if sequence > self.top {
            self.slide(sequence);
        }
        let (word, bit) = Self::slot(sequence);
        self.seen[word] |= bit;
        true
    }

    fn slide(&mut self, top: u64) {
        if top - self.top >= Self::SPAN {
            self.seen = [0; Self::WORDS];
        } else {
            for skipped in self.top + 1..=top {
                let (word, bit) = Self::slot(skipped);
                self.seen[word] &= !bit;
            }
        }
        self.top = top;
    }
}

#[cfg(test)]
#[path = "session_tests.rs"]
mod tests;
