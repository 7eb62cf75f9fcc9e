//! What every protocol serves: files by handle and by name, their pages in memory, references to these pages, and the order
//! of the steps of a change. Objects, attributes and callers have types of their own here, most of which are the store's. A
//! protocol translates them, and calls no store.

pub mod acls;
pub mod advice;
pub mod around;
pub mod attributes;
mod cache;
pub mod change;
mod classes;
pub mod copies;
mod counters;
pub mod export;
pub mod extents;
mod feedback;
pub mod file;
mod fill;
pub(crate) mod grace;
pub(crate) mod handle;
mod handles;
mod keys;
pub mod locks;
pub mod metrics;
pub mod namespace;
mod pageout;
pub mod promises;
pub mod read;
pub(crate) mod references;
mod reports;
pub(crate) mod sessions;
pub mod space;
pub(crate) mod spare;
#[cfg(test)]
mod stress_tests;
mod syncs;
#[cfg(test)]
pub(crate) mod testing;
pub mod write;
pub mod xattrs;

pub(crate) use crate::store::local::within::one_call;
pub use crate::store::{
    Acl, AclEntry, AclKind, AclTag, Attributes, CreateHow, Created, Credential, Device, DirEntry,
    Extent, FileSystemLimits, FileType, Listing, ObjectId, ReaddirRange, Result, SetAttributes,
    SetTime, Space, Special, Status, StoreError, Time, XattrHow, access,
};
pub(crate) use crate::store::{hex, ids, pace};
pub use handle::{HandleBytes, ShortHandle};

/// The most frames of an export. Handles above belong to change counters.
pub const MAX_FRAMES: u32 = counters::COUNTER_HANDLES;
