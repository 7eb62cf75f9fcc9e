//! The portmapper, version 2 (RFC 1833, section 3), and rpcbind, versions 3 and 4 (section 2): the part that a server answers
//! for itself, and that it asks of others.

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

/// The versions of rpcbind, which are asked for over IPv6.
pub const RPCBIND_VERSIONS: [u32; 2] = [3, 4];
/// The procedure of rpcbind (`RPCBPROC_GETADDR`) that takes a [`Binding`] and answers with an [`Address`].
pub const GET_ADDRESS: u32 = 3;
/// The longest name of a transport, address or owner, in bytes.
pub const MAX_TEXT: u32 = 255;

/// Where a version of a program listens, as rpcbind has it (`struct rpcb`). Any bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Binding<'a> {
    /// RPC program number.
    pub program: u32,
    /// Its version.
    pub version: u32,
    /// The transport, such as `tcp6`.
    pub transport: &'a [u8],
    /// Not looked at in a question.
    pub address: &'a [u8],
    /// Neither.
    pub owner: &'a [u8],
}

impl Encode for Binding<'_> {
    fn encode(&self, w: &mut Writer<'_>) {
        w.words([self.program, self.version]);
        for text in [self.transport, self.address, self.owner] {
            w.opaque(text);
        }
    }
}

impl<'a> Decode<'a> for Binding<'a> {
    fn decode(r: &mut Reader<'a>) -> Result<Self, XdrError> {
        Ok(Self {
            program: r.u32()?,
            version: r.u32()?,
            transport: r.opaque("transport", MAX_TEXT)?,
            address: r.opaque("address", MAX_TEXT)?,
            owner: r.opaque("owner", MAX_TEXT)?,
        })
    }
}

opaque! {
    /// An address with its port, in a text of its own form (RFC 5665, section 5.2.3); empty where there is none.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct Address<'a>("address", MAX_TEXT);
}

impl<'a> Address<'a> {
    /// The port at its end.
    pub fn port(self) -> Option<u16> {
        let mut parts = std::str::from_utf8(self.0).ok()?.rsplitn(3, '.');
        let (low, high) = (parts.next()?.parse().ok()?, parts.next()?.parse().ok()?);
        parts.next()?;
        Some(u16::from_be_bytes([high, low]))
    }
}

#[cfg(test)]
mod tests;
