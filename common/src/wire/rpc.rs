//! ONC RPC, version 2 (RFC 5531): the headers of calls and replies.

use std::fmt;

use super::xdr::{Decode, Encode, Reader, Writer, XdrError};

/// The version of RPC itself.
pub const RPC_VERSION: u32 = 2;
/// The longest credential or verifier (RFC 5531, section 8.2), in bytes.
pub const MAX_AUTH_BODY: u32 = 400;
/// The longest machine name of AUTH_SYS, in bytes.
pub const MAX_MACHINE: u32 = 255;
/// The most further groups of AUTH_SYS.
pub const MAX_GROUPS: u32 = 16;

const CALL: u32 = 0;
const REPLY: u32 = 1;
const ACCEPTED: u32 = 0;
const DENIED: u32 = 1;

/// `AUTH_NONE`
pub const FLAVOR_NONE: u32 = 0;
/// `AUTH_SYS`
pub const FLAVOR_SYS: u32 = 1;

/// Group numbers of an AUTH_SYS credential: at most 16.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
pub struct Groups {
    numbers: [u32; MAX_GROUPS as usize],
    len: u8,
}

impl Groups {
    /// The first 16 of `numbers`: more do not fit the credential.
    pub fn new(numbers: &[u32]) -> Self {
        let mut groups = Self::default();
        for number in numbers.iter().take(MAX_GROUPS as usize) {
            groups.push(*number);
        }
        groups
    }

    /// The numbers.
    pub fn as_slice(&self) -> &[u32] {
        &self.numbers[..usize::from(self.len)]
    }

    fn push(&mut self, number: u32) {
        self.numbers[usize::from(self.len)] = number;
        self.len += 1;
    }
}

impl fmt::Debug for Groups {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.as_slice().fmt(f)
    }
}

impl Encode for Groups {
    fn encode(&self, w: &mut Writer<'_>) {
        w.array(self.as_slice());
    }
}

impl Decode<'_> for Groups {
    fn decode(r: &mut Reader<'_>) -> Result<Self, XdrError> {
        let mut groups = Self::default();
        for _ in 0..r.length("groups", MAX_GROUPS)? {
            groups.push(r.u32()?);
        }
        Ok(groups)
    }
}

/// `authsys_parms` (RFC 5531, appendix A): the caller's ids, as it claims them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AuthSys<'a> {
    /// Anything.
    pub stamp: u32,
    /// Name of the caller's machine, any bytes.
    pub machine: &'a [u8],
    /// User.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Further groups.
    pub gids: Groups,
}

impl Encode for AuthSys<'_> {
    fn encode(&self, w: &mut Writer<'_>) {
        w.u32(self.stamp);
        w.opaque(self.machine);
        w.u32(self.uid);
        w.u32(self.gid);
        self.gids.encode(w);
    }
}

impl<'a> Decode<'a> for AuthSys<'a> {
    fn decode(r: &mut Reader<'a>) -> Result<Self, XdrError> {
        Ok(Self {
            stamp: r.u32()?,
            machine: r.opaque("machine name", MAX_MACHINE)?,
            uid: r.u32()?,
            gid: r.u32()?,
            gids: Groups::decode(r)?,
        })
    }
}

/// A credential or verifier (`opaque_auth`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Auth<'a> {
    /// AUTH_NONE; a body should be empty (RFC 5531, section 10.1) and is ignored.
    None,
    /// AUTH_SYS
    Sys(AuthSys<'a>),
    /// A flavour that is not looked into.
    Other {
        /// Its number.
        flavor: u32,
        /// At most 400 bytes.
        body: &'a [u8],
    },
}

impl Encode for Auth<'_> {
    fn encode(&self, w: &mut Writer<'_>) {
        match self {
            Self::None => {
                w.u32(FLAVOR_NONE);
                w.u32(0);
            }
            Self::Sys(sys) => {
                w.u32(FLAVOR_SYS);
                let length = w.position();
                w.u32(0);
                sys.encode(w);
                let bytes = w.position() - length - 4;
                w.patch_u32(length, bytes as u32);
            }
            Self::Other { flavor, body } => {
                w.u32(*flavor);
                w.opaque(body);
            }
        }
    }
}

/// `opaque_auth`, not looked into.
#[derive(Clone, Copy)]
struct OpaqueAuth<'a> {
    flavor: u32,
    body: &'a [u8],
}

impl<'a> Decode<'a> for OpaqueAuth<'a> {
    fn decode(r: &mut Reader<'a>) -> Result<Self, XdrError> {
        Ok(Self {
            flavor: r.u32()?,
            body: r.opaque("credential or verifier", MAX_AUTH_BODY)?,
        })
    }
}

impl<'a> OpaqueAuth<'a> {
    fn parse(self) -> Result<Auth<'a>, XdrError> {
        Ok(match self.flavor {
            FLAVOR_NONE => Auth::None,
            FLAVOR_SYS => Auth::Sys(AuthSys::from_bytes(self.body)?),
            flavor => Auth::Other {
                flavor,
                body: self.body,
            },
        })
    }
}

impl<'a> Decode<'a> for Auth<'a> {
    fn decode(r: &mut Reader<'a>) -> Result<Self, XdrError> {
        OpaqueAuth::decode(r)?.parse()
    }
}

/// The header of a call (`call_body`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CallHeader<'a> {
    /// Pairs the reply with the call.
    pub xid: u32,
    /// Program number.
    pub program: u32,
    /// Its version.
    pub version: u32,
    /// Procedure of that version.
    pub procedure: u32,
    /// The identity of the caller.
    pub credential: Auth<'a>,
    /// Proves that identity, in flavours that can.
    pub verifier: Auth<'a>,
}

/// A message that is no call that can be served.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CallError {
    /// Not a call, so there is nobody to answer.
    #[error("no call: {0}")]
    Malformed(XdrError),
    /// A call whose header ends too early or does not decode: GARBAGE_ARGS, since the caller would otherwise wait for ever (RFC 8166,
    /// section 4.5.2).
    #[error("malformed header: {why}")]
    Header {
        /// Of the call.
        xid: u32,
        /// What is wrong.
        why: XdrError,
    },
    /// A reply where a call belongs; not answered.
    #[error("a reply where a call belongs")]
    NotCall,
    /// Another version of RPC.
    #[error("RPC version {version} instead of 2")]
    RpcMismatch {
        /// Of the call.
        xid: u32,
        /// The version asked for.
        version: u32,
    },
    /// A credential or verifier that does not decode.
    #[error("malformed authentication: {why}")]
    BadAuth {
        /// Of the call.
        xid: u32,
        /// [`AuthStat::BadCred`] or [`AuthStat::BadVerf`].
        why: AuthStat,
    },
}

impl From<XdrError> for CallError {
    fn from(error: XdrError) -> Self {
        Self::Malformed(error)
    }
}

impl CallError {
    /// Writes the reply. Returns `false` if there is none to give.
    pub fn reply(&self, w: &mut Writer<'_>) -> bool {
        match *self {
            Self::Malformed(_) | Self::NotCall => return false,
            Self::Header { xid, .. } => garbage_args(w, xid),
            Self::RpcMismatch { xid, .. } => rpc_mismatch(w, xid),
            Self::BadAuth { xid, why } => auth_error(w, xid, why),
        }
        true
    }
}

/// Decodes the header of a call. The rest of the reader is the arguments.
///
/// # Errors
/// See [`CallError`].
pub fn parse_call(message: &[u8]) -> Result<(CallHeader<'_>, Reader<'_>), CallError> {
    let mut r = Reader::new(message);
    let xid = r.u32()?;
    match r.u32()? {
        CALL => {}
        REPLY => return Err(CallError::NotCall),
        value => {
            return Err(XdrError::BadValue {
                what: "msg_type",
                value,
            }
            .into());
        }
    }
    let header = |why| CallError::Header { xid, why };
    let version = r.u32().map_err(header)?;
    if version != RPC_VERSION {
        return Err(CallError::RpcMismatch { xid, version });
    }
    let mut word = || r.u32().map_err(header);
    let (program, version, procedure) = (word()?, word()?, word()?);
    let credential = OpaqueAuth::decode(&mut r).map_err(header)?;
    let verifier = OpaqueAuth::decode(&mut r).map_err(header)?;
    let credential = credential.parse().map_err(|_| CallError::BadAuth {
        xid,
        why: AuthStat::BadCred,
    })?;
    let verifier = verifier.parse().map_err(|_| CallError::BadAuth {
        xid,
        why: AuthStat::BadVerf,
    })?;
    Ok((
        CallHeader {
            xid,
            program,
            version,
            procedure,
            credential,
            verifier,
        },
        r,
    ))
}

/// Writes the header of a call; the arguments follow it. The verifier is AUTH_NONE.
pub fn call(
    w: &mut Writer<'_>,
    xid: u32,
    program: u32,
    version: u32,
    procedure: u32,
    credential: &Auth<'_>,
) {
    let verifier = Auth::None;
    CallHeader {
        xid,
        program,
        version,
        procedure,
        credential: *credential,
        verifier,
    }
    .encode(w);
}

/// The credential and the verifier of all calls of one caller, encoded once.
#[derive(Clone, Debug)]
pub struct EncodedAuth(Box<[u8]>);

impl EncodedAuth {
    /// Of this caller. The verifier is AUTH_NONE.
    pub fn new(credential: &Auth<'_>) -> Self {
        let mut bytes = credential.to_bytes();
        Auth::None.encode(&mut Writer::new(&mut bytes));
        Self(bytes.into())
    }
}

/// As [`call`], for a caller that makes many.
#[inline]
pub fn call_as(
    w: &mut Writer<'_>,
    xid: u32,
    program: u32,
    version: u32,
    procedure: u32,
    caller: &EncodedAuth,
) {
    w.words([xid, CALL, RPC_VERSION, program, version, procedure]);
    w.opaque_fixed(&caller.0);
}

impl Encode for CallHeader<'_> {
    fn encode(&self, w: &mut Writer<'_>) {
        w.words([
            self.xid,
            CALL,
            RPC_VERSION,
            self.program,
            self.version,
            self.procedure,
        ]);
        self.credential.encode(w);
        self.verifier.encode(w);
    }
}

enumeration! {
    /// `accept_stat`
    pub enum AcceptStat ("accept_stat") {
        /// The results follow.
        Success = 0,
        /// The program is not here.
        ProgUnavail = 1,
        /// Its version is not here.
        ProgMismatch = 2,
        /// The version has no such procedure.
        ProcUnavail = 3,
        /// The arguments do not decode.
        GarbageArgs = 4,
        /// Memory or the like.
        SystemErr = 5,
    }
}

enumeration! {
    /// `auth_stat`: why a call was not let in.
    pub enum AuthStat ("auth_stat") {
        /// Success.
        Ok = 0,
        /// Bad credential.
        BadCred = 1,
        /// The client has to begin a new session.
        RejectedCred = 2,
        /// Bad verifier.
        BadVerf = 3,
        /// Verifier expired or replayed.
        RejectedVerf = 4,
        /// Rejected for security reasons.
        TooWeak = 5,
        /// Bogus response verifier.
        InvalidResp = 6,
        /// Reason unknown.
        Failed = 7,
        /// Kerberos, obsolete.
        KerbGeneric = 8,
        /// Kerberos, obsolete.
        TimeExpire = 9,
        /// Kerberos, obsolete.
        TktFile = 10,
        /// Kerberos, obsolete.
        Decode = 11,
        /// Kerberos, obsolete.
        NetAddr = 12,
        /// RPCSEC_GSS: no credentials for the user.
        GssCredProblem = 13,
        /// RPCSEC_GSS: the context is gone.
        GssCtxProblem = 14,
    }
}

impl fmt::Display for AuthStat {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Ok => "ok",
            Self::BadCred => "bad credential",
            Self::RejectedCred => "credential rejected",
            Self::BadVerf => "bad verifier",
            Self::RejectedVerf => "verifier rejected",
            Self::TooWeak => "authentication too weak",
            Self::InvalidResp => "invalid response verifier",
            Self::Failed => "authentication failed",
            Self::KerbGeneric | Self::TimeExpire | Self::TktFile | Self::Decode | Self::NetAddr => {
                "Kerberos error"
            }
            Self::GssCredProblem => "no credentials for the user",
            Self::GssCtxProblem => "security context gone",
        })
    }
}

fn accepted(w: &mut Writer<'_>, xid: u32, stat: AcceptStat) {
    w.words([xid, REPLY, ACCEPTED, FLAVOR_NONE, 0, stat.code()]);
}

/// Writes the header of a reply whose results follow.
pub fn reply_success(w: &mut Writer<'_>, xid: u32) {
    accepted(w, xid, AcceptStat::Success);
}

/// Writes the reply to a call of a program that is not here.
pub fn reply_prog_unavail(w: &mut Writer<'_>, xid: u32) {
    accepted(w, xid, AcceptStat::ProgUnavail);
}

/// Writes the reply to a call of a version outside `low..=high`.
pub fn prog_mismatch(w: &mut Writer<'_>, xid: u32, low: u32, high: u32) {
    accepted(w, xid, AcceptStat::ProgMismatch);
    w.u32(low);
    w.u32(high);
}

/// Writes the reply to a call of a procedure that the version does not have.
pub fn proc_unavail(w: &mut Writer<'_>, xid: u32) {
    accepted(w, xid, AcceptStat::ProcUnavail);
}

/// Writes the reply to a call whose arguments do not decode.
pub fn garbage_args(w: &mut Writer<'_>, xid: u32) {
    accepted(w, xid, AcceptStat::GarbageArgs);
}

/// Writes the reply to a call that the server has no means to serve.
pub fn system_err(w: &mut Writer<'_>, xid: u32) {
    accepted(w, xid, AcceptStat::SystemErr);
}

/// Writes the reply to a call of another version of RPC.
pub fn rpc_mismatch(w: &mut Writer<'_>, xid: u32) {
    for word in [xid, REPLY, DENIED, 0, RPC_VERSION, RPC_VERSION] {
        w.u32(word);
    }
}

/// Writes the reply to a call whose caller is not let in.
pub fn auth_error(w: &mut Writer<'_>, xid: u32, why: AuthStat) {
    for word in [xid, REPLY, DENIED, 1, why.code()] {
        w.u32(word);
    }
}

/// A reply, as the caller sees it.
#[derive(Clone, Debug)]
pub struct Reply<'a> {
    /// Of the call.
    pub xid: u32,
    /// A reader at the first byte of the results, or the reason why there are none.
    pub body: Result<Reader<'a>, Rejection>,
}

/// Why a call was not served.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Rejection {
    /// The server does not have the program.
    #[error("the server does not have the program")]
    ProgramUnavailable,
    /// The server has other versions of the program.
    #[error("the server has versions {low} to {high} of the program")]
    ProgramMismatch {
        /// The lowest.
        low: u32,
        /// The highest.
        high: u32,
    },
    /// The program's version does not have the procedure.
    #[error("the server does not have the procedure")]
    ProcedureUnavailable,
    /// The server could not decode the arguments.
    #[error("the server cannot decode the arguments")]
    GarbageArguments,
    /// The server has not the means to serve the call.
    #[error("the server has a system error")]
    SystemError,
    /// The server speaks other versions of RPC.
    #[error("the server speaks RPC versions {low} to {high}")]
    RpcMismatch {
        /// The lowest.
        low: u32,
        /// The highest.
        high: u32,
    },
    /// The server does not let the caller in.
    #[error("the server refuses the credential: {0}")]
    Auth(AuthStat),
}

/// Reads the header of a reply. The server's verifier is not looked into.
///
/// # Errors
/// The message is no reply.
pub fn parse_reply(message: &[u8]) -> Result<Reply<'_>, XdrError> {
    let mut r = Reader::new(message);
    let xid = r.u32()?;
    match r.u32()? {
        REPLY => {}
        value => {
            return Err(XdrError::BadValue {
                what: "reply's msg_type",
                value,
            });
        }
    }
    let body = match r.u32()? {
        ACCEPTED => {
            OpaqueAuth::decode(&mut r)?;
            match AcceptStat::decode(&mut r)? {
                AcceptStat::Success => Ok(r),
                AcceptStat::ProgUnavail => Err(Rejection::ProgramUnavailable),
                AcceptStat::ProgMismatch => Err(Rejection::ProgramMismatch {
                    low: r.u32()?,
                    high: r.u32()?,
                }),
                AcceptStat::ProcUnavail => Err(Rejection::ProcedureUnavailable),
                AcceptStat::GarbageArgs => Err(Rejection::GarbageArguments),
                AcceptStat::SystemErr => Err(Rejection::SystemError),
            }
        }
        DENIED => Err(match r.u32()? {
            0 => Rejection::RpcMismatch {
                low: r.u32()?,
                high: r.u32()?,
            },
            1 => Rejection::Auth(AuthStat::decode(&mut r)?),
            value => {
                return Err(XdrError::BadValue {
                    what: "reject_stat",
                    value,
                });
            }
        }),
        value => {
            return Err(XdrError::BadValue {
                what: "reply_stat",
                value,
            });
        }
    };
    Ok(Reply { xid, body })
}

#[cfg(test)]
mod tests;
