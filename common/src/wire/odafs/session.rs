//! Opening, rekeying and closing sessions.

use super::OdafsStatus;
use crate::mac::{MacAlgorithm, TAG_BYTES, Tag};
use crate::session::{HANDSHAKE_BYTES_MAX, Pattern};
use crate::wire::xdr::{Decode, Encode, Reader, Writer, XdrError};

/// The longest [`Parameters`], in bytes.
pub const MAX_PARAMETERS: u32 = 2048;
/// The longest handshake message, in bytes.
pub const MAX_HANDSHAKE: u32 = HANDSHAKE_BYTES_MAX as u32;
/// The longest name of an export, in bytes.
pub const MAX_EXPORT: u32 = 1024;
/// The longest name of a fabric, in bytes.
pub const MAX_FABRIC: u32 = 16;

enumeration! {
    /// Who moves the data of a direct read.
    pub enum Mode ("direct mode") {
        /// The server's NIC, after it has checked the request.
        Guarded = 0,
        /// The client, which checks the stamp afterwards.
        OneSided = 1,
    }
}

impl Encode for Pattern {
    fn encode(&self, w: &mut Writer<'_>) {
        w.u32(self.code());
    }
}

impl Decode<'_> for Pattern {
    fn decode(r: &mut Reader<'_>) -> Result<Self, XdrError> {
        let value = r.u32()?;
        Self::from_code(value).ok_or(XdrError::BadValue {
            what: "handshake pattern",
            value,
        })
    }
}

impl Encode for MacAlgorithm {
    fn encode(&self, w: &mut Writer<'_>) {
        w.u32(self.code());
    }
}

impl Decode<'_> for MacAlgorithm {
    fn decode(r: &mut Reader<'_>) -> Result<Self, XdrError> {
        let value = r.u32()?;
        Self::from_code(value).ok_or(XdrError::BadValue {
            what: "MAC algorithm",
            value,
        })
    }
}

/// What a client asks of a session, and offers. Its bytes are the prologue of the handshake.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Parameters<'a> {
    /// Version of the direct protocol: [`crate::direct::VERSION`].
    pub version: u32,
    /// Feature bits. None is defined yet, and a server ignores unknown ones.
    pub features: u64,
    /// MACs offered: a sum of [`MacAlgorithm::bit`].
    pub macs: u32,
    /// One-sided where that is wanted.
    pub mode: Mode,
    /// Whose static keys take part.
    pub pattern: Pattern,
    /// Name of the export, such as `/`.
    pub export: &'a [u8],
    /// Name of the fabric: `shm`, `tcp`, `verbs`, `sim`.
    pub fabric: &'a [u8],
}

impl Encode for Parameters<'_> {
    fn encode(&self, w: &mut Writer<'_>) {
        w.u32(self.version);
        w.u64(self.features);
        w.u32(self.macs);
        self.mode.encode(w);
        self.pattern.encode(w);
        w.opaque(self.export);
        w.opaque(self.fabric);
    }
}

impl<'a> Decode<'a> for Parameters<'a> {
    fn decode(r: &mut Reader<'a>) -> Result<Self, XdrError> {
        Ok(Self {
            version: r.u32()?,
            features: r.u64()?,
            macs: r.u32()?,
            mode: Mode::decode(r)?,
            pattern: Pattern::decode(r)?,
            export: r.opaque("export", MAX_EXPORT)?,
            fabric: r.opaque("fabric", MAX_FABRIC)?,
        })
    }
}

/// OPEN_SESSION
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OpenSessionArgs<'a> {
    /// [`Parameters`] as bytes, because the handshake covers them as they were sent.
    pub parameters: &'a [u8],
    /// First message of the handshake.
    pub handshake: &'a [u8],
}

impl Encode for OpenSessionArgs<'_> {
    fn encode(&self, w: &mut Writer<'_>) {
        w.opaque(self.parameters);
        w.opaque(self.handshake);
    }
}

impl<'a> Decode<'a> for OpenSessionArgs<'a> {
    fn decode(r: &mut Reader<'a>) -> Result<Self, XdrError> {
        Ok(Self {
            parameters: r.opaque("parameters", MAX_PARAMETERS)?,
            handshake: r.opaque("handshake", MAX_HANDSHAKE)?,
        })
    }
}

/// OPEN_SESSION
pub type OpenSessionResult<'a> = Result<Handshake<'a>, OdafsStatus>;

opaque! {
    /// Second message of the handshake. Its payload is [`Accepted`].
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct Handshake<'a>("handshake", MAX_HANDSHAKE);
}

record! {
    /// What the server granted; it travels inside the handshake, encrypted.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct Accepted {
        /// Number of the session; never 0.
        pub session: u32,
        /// Feature bits: those of the client that the server has too.
        pub features: u64,
        /// The MAC that requests carry.
        pub mac: MacAlgorithm,
        /// What was granted.
        pub mode: Mode,
        /// Page size of the export, in bytes.
        pub page_bytes: u32,
        /// Life of the server: references of another life are worth nothing.
        pub life: u64,
        /// Number of requests after which the client rekeys.
        pub rekey_requests: u64,
        /// Time in seconds after which the client rekeys.
        pub rekey_seconds: u32,
        /// The most bytes that one guarded read may ask for.
        pub max_read: u32,
    }
}

const _: () = assert!(TAG_BYTES == 16, "a tag is four words, without padding");

record! {
    /// REKEY
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct RekeyArgs {
        /// The session.
        pub session: u32,
        /// The new generation of its request key.
        pub generation: u32,
        /// [`crate::session::Control::Rekey`]
        pub tag: Tag,
    }
}

/// REKEY
pub type RekeyResult = Result<Rekeyed, OdafsStatus>;

record! {
    /// The server takes requests of the new generation.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct Rekeyed {
        /// The new generation.
        pub generation: u32,
        /// [`crate::session::Control::Rekeyed`]
        pub tag: Tag,
    }
}

record! {
    /// CLOSE_SESSION
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct CloseSessionArgs {
        /// The session.
        pub session: u32,
        /// [`crate::session::Control::Close`]
        pub tag: Tag,
    }
}

/// CLOSE_SESSION
pub type CloseSessionResult = Result<(), OdafsStatus>;
