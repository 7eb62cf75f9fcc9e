//! NFS version 4, minor versions 0 (RFC 7530, RFC 7531), 1 (RFC 8881, RFC 5662) and 2 (RFC 7862, RFC 7863, with the
//! extended attributes of RFC 8276), for both ends.
//!
//! A call is a COMPOUND. A server reads its operations one by one with [`Operations`] and writes their results with
//! [`ResultWriter`]. A client uses [`CallWriter`] and [`Results`]. The arguments of an operation are a struct named after it. Its
//! result is a `Result` of what the RFC calls `resok` and a [`Status`], or an error that says more.
//!
//! Operations for layouts (pNFS) and SET_SSV are known only by their numbers. A server refuses them, and a refusal ends the
//! compound, so it does not matter where their arguments end.

#[macro_use]
mod macros;

mod acl;
mod attributes;
mod bitmap;
mod callbacks;
mod clients;
mod compound;
mod directory;
mod files;
mod locks;
mod open;
mod operations;
mod security;
mod sessions;
mod set_attributes;
mod space;
mod status;
mod types;
mod xattrs;

pub use super::nfs3::{Device, EntryBudget, MAX_DATA, Payload, Stable, TooSmall};
pub use acl::*;
pub use attributes::*;
pub use bitmap::*;
pub use callbacks::*;
pub use clients::*;
pub use compound::*;
pub use directory::*;
pub use files::*;
pub use locks::*;
pub use open::*;
pub use operations::*;
pub use security::*;
pub use sessions::*;
pub use set_attributes::*;
pub use space::*;
pub use status::*;
pub use types::*;
pub use xattrs::*;

/// The program number. The client chooses that of callbacks.
pub const PROGRAM: u32 = 100_003;
/// The version.
pub const VERSION: u32 = 4;
/// The greatest minor version.
pub const MAX_MINOR_VERSION: u32 = 2;

enumeration! {
    /// The procedures, of callbacks as well (RFC 7530, section 15; RFC 8881, section 16).
    pub enum Procedure ("NFS version 4 procedure") {
        /// Does nothing.
        Null = 0,
        /// [`CompoundHeader`] and operations to [`ResultsHeader`] and results; of callbacks,
        /// [`CallbackHeader`] and operations to the same.
        Compound = 1,
    }
}

#[cfg(test)]
mod tests;
