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

/// `callback_sec_parms4` (4.1): a credential that the client takes with callbacks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CallbackSecurity<'a> {
    /// AUTH_NONE
    None,
    /// AUTH_SYS with this credential.
    Sys(AuthSys<'a>),
    /// RPCSEC_GSS with these contexts.
    Gss(GssHandles<'a>),
}

impl Encode for CallbackSecurity<'_> {
    fn encode(&self, w: &mut Writer<'_>) {
        match self {
            Self::None => w.u32(0),
            Self::Sys(credential) => {
                w.u32(1);
                credential.encode(w);
            }
            Self::Gss(handles) => {
                w.u32(RPCSEC_GSS);
                handles.encode(w);
            }
        }
    }
}

impl<'a> Decode<'a> for CallbackSecurity<'a> {
    fn decode(r: &mut Reader<'a>) -> Result<Self, XdrError> {
        match r.u32()? {
            0 => Ok(Self::None),
            1 => AuthSys::decode(r).map(Self::Sys),
            RPCSEC_GSS => GssHandles::decode(r).map(Self::Gss),
            value => Err(XdrError::BadValue {
                what: "callback security flavour",
                value,
            }),
        }
    }
}

/// The credentials that the client takes.
pub type CallbackSecurities<'a> = List<CallbackSecurity<'a>, MAX_FLAVORS>;
