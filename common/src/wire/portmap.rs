//! The portmapper, version 2 (RFC 1833, section 3): the part that a server answers for itself.

use super::xdr::{Decode, Encode, Reader, Writer, XdrError};

/// Program number.
pub const PROGRAM: u32 = 100_000;
/// The version spoken here.
pub const VERSION: u32 = 2;
/// The most mappings that a DUMP may list.
pub const MAX_MAPPINGS: u32 = 1024;
/// `IPPROTO_TCP` in [`Mapping::protocol`].
pub const TCP: u32 = 6;
/// `IPPROTO_UDP` in [`Mapping::protocol`].
pub const UDP: u32 = 17;

enumeration! {
    /// The procedures answered. SET, UNSET and CALLIT are not.
    pub enum Procedure ("portmap procedure") {
        /// Does nothing.
        Null = 0,
        /// A [`Mapping`] whose port is ignored. The answer is the port as a `u32`, 0 if there is none.
        GetPort = 3,
        /// No arguments; the answer is [`Mappings`].
        Dump = 4,
    }
}

record! {
    /// Where a version of a program listens (`struct mapping`).
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct Mapping {
        /// RPC program number.
        pub program: u32,
        /// Its version.
        pub version: u32,
        /// [`TCP`] or [`UDP`].
        pub protocol: u32,
        /// Port number.
        pub port: u32,
    }
}

/// The answer to DUMP (`struct pmaplist`).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mappings(pub Vec<Mapping>);

impl Encode for Mappings {
    fn encode(&self, w: &mut Writer<'_>) {
        w.chain(&self.0);
    }
}

impl Decode<'_> for Mappings {
    fn decode(r: &mut Reader<'_>) -> Result<Self, XdrError> {
        r.chain("port mappings", MAX_MAPPINGS).map(Self)
    }
}

#[cfg(test)]
mod tests;
