//! An export of a table, and how the table shows the objects of its store.

use odafs_fabric::sync::Arc;

use crate::store::{Attributes, ObjectId, Store, Unlinked};

/// The greatest generation that a store in a table may use.
pub const GENERATION_MAX: u64 = (1 << TAG_SHIFT) - 1;
const TAG_SHIFT: u32 = 48;

/// The `fsid` of the table's own directories. That of an export is greater by its tag.
pub(super) const FSID: u64 = u64::from_be_bytes(*b"odafst\0\0");

/// A store and its place in a table.
pub struct Entry {
    /// The name as [`normalized`](super::normalized) returns it, such as `/data` or `/srv/data`.
    pub name: String,
    /// Distinguishes its objects from those of the other stores. It is not 0, and stays the same after each restart.
    pub tag: u16,
    /// The store.
    pub store: Arc<dyn Store>,
}

/// The object as its store knows it.
pub(super) fn inner(object: ObjectId) -> ObjectId {
    ObjectId {
        generation: object.generation & GENERATION_MAX,
        ..object
    }
}

pub(super) fn outer(tag: u16, object: ObjectId) -> ObjectId {
    ObjectId {
        generation: u64::from(tag) << TAG_SHIFT | object.generation & GENERATION_MAX,
        ..object
    }
}

pub(super) fn tag_of(object: ObjectId) -> u16 {
    (object.generation >> TAG_SHIFT) as u16
}

pub(super) type Found = (ObjectId, Attributes);

/// The number that the directory above shows for the root of an export. The table's own directories have others.
pub(super) fn mounted_on(tag: u16) -> u64 {
    1 << 32 | u64::from(tag)
}

impl Entry {
    pub(super) fn shown(&self, attributes: Attributes) -> Attributes {
        Attributes {
            fsid: FSID + u64::from(self.tag),
            ..attributes
        }
    }

    pub(super) fn found(&self, (object, attributes): Found) -> Found {
        (outer(self.tag, object), self.shown(attributes))
    }

    pub(super) fn gone(&self, unlinked: Unlinked) -> Unlinked {
        Unlinked {
            object: outer(self.tag, unlinked.object),
            ..unlinked
        }
    }
}
