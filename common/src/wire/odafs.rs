//! The ODAFS program: sessions, reads that bring references with them, queries for references, and delegations.
//! docs/WIRE.md describes it in full.

mod delegations;
mod read;
mod references;
mod session;

pub use delegations::*;
pub use read::*;
pub use references::*;
pub use session::*;

/// Program number, of those that RFC 5531 leaves to their users.
pub const PROGRAM: u32 = 0x200D_AF50;
/// The version described here.
pub const VERSION: u32 = 1;

enumeration! {
    /// The procedures.
    pub enum Procedure ("ODAFS procedure") {
        /// Does nothing.
        Null = 0,
        /// [`OpenSessionArgs`] to [`OpenSessionResult`].
        OpenSession = 1,
        /// [`ReadArgs`] to [`ReadResult`].
        Read = 2,
        /// [`GetRefsArgs`] to [`GetRefsResult`].
        GetRefs = 3,
        /// [`RekeyArgs`] to [`RekeyResult`].
        Rekey = 4,
        /// [`CloseSessionArgs`] to [`CloseSessionResult`].
        CloseSession = 5,
        /// [`DelegateArgs`] to [`DelegateResult`].
        Delegate = 6,
    }
}

enumeration! {
    /// How a call about sessions or references ended.
    pub enum OdafsStatus ("ODAFS status") {
        /// As asked.
        Ok = 0,
        /// The caller may not, or its tag does not hold.
        Denied = 1,
        /// There is no such session, or no longer.
        NoSession = 2,
        /// The handshake message does not verify.
        BadHandshake = 3,
        /// The server has no direct access, or none of what was offered.
        Unsupported = 4,
        /// A cap on sessions or on delegations was reached.
        TooMany = 5,
        /// The server cannot now.
        TryLater = 6,
        /// A failure on the server that fits no other status.
        ServerFault = 7,
    }
}

impl std::fmt::Display for OdafsStatus {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Ok => "ok",
            Self::Denied => "denied",
            Self::NoSession => "no such session",
            Self::BadHandshake => "the handshake does not verify",
            Self::Unsupported => "not supported",
            Self::TooMany => "too many",
            Self::TryLater => "server busy, try later",
            Self::ServerFault => "server fault",
        })
    }
}

// `switch (odafs_status status)` with nothing behind a status other than OK.
status_union!(OdafsStatus);

#[cfg(test)]
mod tests;
