//! What travels: XDR (RFC 4506), ONC RPC (RFC 5531), the portmapper (RFC 1833), MOUNT and NFS versions 2 (RFC 1094) and 3
//! (RFC 1813), NFS version 4 (RFC 7530, RFC 8881, RFC 7862), the lock manager and the status monitor of version 3
//! (X/Open XNFS), its access control lists (NFSACL) and the ODAFS program.
//!
//! Decoders borrow from the bytes they are given, bound every length before they allocate, and turn
//! whatever a peer may send into a valid value or an [`xdr::XdrError`].

#[macro_use]
pub mod xdr;

mod entries;
pub mod mount1;
pub mod mount3;
pub mod nfs2;
pub mod nfs3;
pub mod nfs4;
pub mod nfsacl3;
pub mod nlm4;
pub mod nsm;
pub mod odafs;
pub mod portmap;
pub mod record;
pub mod rpc;
pub mod rpcrdma;

#[cfg(test)]
pub(crate) mod testing;
