//! Reader classes: who may read, numbered by content.

use std::collections::HashMap;

use odafs_common::wire::nfs3::Attributes;
use odafs_fabric::sync::RwLock;
use odafs_nic::capability::ReaderClass;

/// Owner, group and permission bits: what [`crate::store::may_read`] goes by.
type Content = (u32, u32, u32);

/// Gives every content a number, and never gives a number a second meaning: a session that was admitted to
/// a class stays rightly admitted whatever becomes of the file that it was admitted for.
#[derive(Debug, Default)]
pub(crate) struct Classes {
    known: RwLock<HashMap<Content, ReaderClass>>,
}

impl Classes {
    /// The class of files with these attributes (that have no ACL). `None` when the numbers have run out:
    /// such files are not handed out.
    pub(crate) fn of(&self, attributes: &Attributes) -> Option<ReaderClass> {
        let content = (attributes.uid, attributes.gid, attributes.mode & 0o777);
        if let Some(class) = self.known.read().get(&content) {
            return Some(*class);
        }
        let mut known = self.known.write();
        let next = known.len() as u32;
        if let Some(class) = known.get(&content) {
            return Some(*class);
        }
        if next >= ReaderClass::COUNT_MAX {
            return None;
        }
        known.insert(content, ReaderClass(next));
        Some(ReaderClass(next))
    }
}
