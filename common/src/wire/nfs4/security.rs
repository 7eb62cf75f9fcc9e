//! Security: SECINFO and SECINFO_NO_NAME (RFC 7530, section 16.31; RFC 8881, sections 18.29 and 18.45), and the
//! credentials of callbacks (RFC 8881, section 18.33).

use super::Status;
use super::types::{List, Opaque};
use crate::wire::rpc::AuthSys;
use crate::wire::xdr::{Decode, Encode, Reader, Writer, XdrError};

/// The flavour of RPCSEC_GSS (RFC 2203).
pub const RPCSEC_GSS: u32 = 6;
/// The most flavours that decoders take in one list.
pub const MAX_FLAVORS: u32 = 64;

enumeration! {
    /// `rpc_gss_svc_t` (RFC 2203)
    pub enum GssService ("rpc_gss_svc_t") {
        /// Authentication alone.
        None = 1,
        /// Checksums.
        Integrity = 2,
        /// Encryption.
        Privacy = 3,
    }
}

record! {
    /// `rpcsec_gss_info`
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct GssInfo<'a> {
        /// The mechanism.
        pub oid: Opaque<'a>,
        /// Quality of protection.
        pub quality: u32,
        /// What is protected.
        pub service: GssService,
    }
}

/// `secinfo4`: a flavour that the server takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SecInfo<'a> {
    /// A flavour by its number, such as 1 for AUTH_SYS; never [`RPCSEC_GSS`].
    Flavor(u32),
    /// RPCSEC_GSS.
    Gss(GssInfo<'a>),
}

impl Encode for SecInfo<'_> {
    fn encode(&self, w: &mut Writer<'_>) {
        match self {
            Self::Flavor(flavor) => {
                debug_assert_ne!(*flavor, RPCSEC_GSS);
                w.u32(*flavor);
            }
            Self::Gss(info) => {
                w.u32(RPCSEC_GSS);
                info.encode(w);
            }
        }
    }
}

impl<'a> Decode<'a> for SecInfo<'a> {
    fn decode(r: &mut Reader<'a>) -> Result<Self, XdrError> {
        Ok(match r.u32()? {
            RPCSEC_GSS => Self::Gss(Decode::decode(r)?),
            flavor => Self::Flavor(flavor),
        })
    }
}

/// SECINFO, SECINFO_NO_NAME: the best flavour first.
pub type SecInfoResult<'a> = Result<List<SecInfo<'a>, MAX_FLAVORS>, Status>;

enumeration! {
    /// `secinfo_style4`: the argument of SECINFO_NO_NAME (4.1).
    pub enum SecInfoStyle ("secinfo_style4") {
        /// Of the current file handle.
        CurrentFile = 0,
        /// Of its parent.
        Parent = 1,
    }
}

record! {
    /// `gss_cb_handles4`
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct GssHandles<'a> {
        /// What is protected.
        pub service: GssService,
        /// The context that the server made.
        pub from_server: Opaque<'a>,
        /// The context that the client made.
        pub from_client: Opaque<'a>,
    }
}

union! {
    /// `callback_sec_parms4` (4.1): a credential that the client takes with callbacks.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub enum CallbackSecurity<'a> ("callback security flavour") {
        /// AUTH_NONE
        None = 0,
        /// AUTH_SYS with this credential.
        Sys(credential: AuthSys<'a>) = 1,
        /// RPCSEC_GSS with these contexts.
        Gss(handles: GssHandles<'a>) = RPCSEC_GSS,
    }
}

/// The credentials that the client takes.
pub type CallbackSecurities<'a> = List<CallbackSecurity<'a>, MAX_FLAVORS>;
