//! A live file: its attributes as last seen, its gate, its change counter and its pages.

use odafs_common::wire::nfs3::Attributes;

use crate::store::ObjectId;

/// A regular file that someone has read or written lately.
pub struct File {
    object: ObjectId,
}

impl File {
    /// Which.
    pub fn object(&self) -> ObjectId {
        self.object
    }

    /// Attributes as last seen. Never blocks for long.
    pub fn attributes(&self) -> Attributes {
        todo!()
    }

    /// The change counter: another value after every change, in no order.
    pub fn change(&self) -> u64 {
        todo!()
    }
}
