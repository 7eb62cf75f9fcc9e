//! The attributes before and after a change. For objects without pages, such as directories, the server reports those from
//! before only if no other change through the server can have come in between. A client that gets them takes the change for
//! its own and keeps what it has cached.

use std::collections::HashMap;

use odafs_fabric::sync::Mutex;

use crate::store::{Attributes, ObjectId, Time};
use crate::vfs::attributes::attributes;
use crate::vfs::export::Exports;

/// The attributes by which a client tells the object before a change from the object after it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Before {
    /// Bytes in the file.
    pub size: u64,
    /// Last change of the data.
    pub mtime: Time,
    /// Last change of the attributes.
    pub ctime: Time,
}

impl From<&Attributes> for Before {
    fn from(all: &Attributes) -> Self {
        Self {
            size: all.size,
            mtime: all.mtime,
            ctime: all.ctime,
        }
    }
}

/// Attributes before and after a change, as far as they are known.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Around {
    /// Right before the change, with nothing in between.
    pub before: Option<Before>,
    /// Right after the change.
    pub after: Option<Attributes>,
}

/// The objects without pages whose entries or attributes are being changed.
#[derive(Default)]
pub(crate) struct Changes {
    under_way: Mutex<HashMap<ObjectId, UnderWay>>,
}

/// The changes of an object since none was last under way.
#[derive(Default)]
struct UnderWay {
    now: u32,
    begun: u32,
}

/// A change of an object under way.
pub struct Change<'a> {
    export: &'a Exports,
    object: ObjectId,
    /// Whether no other change was under way at its beginning.
    first: bool,
    before: Option<Before>,
}

impl<'a> Change<'a> {
    /// Begins a change, and takes the attributes before it.
    pub fn begin(export: &'a Exports, object: ObjectId) -> Self {
        let mut under_way = export.changes().under_way.lock();
        let ours = under_way.entry(object).or_default();
        ours.now += 1;
        ours.begun += 1;
        let first = ours.begun == 1;
        drop(under_way);
        let before = attributes(export, object).ok();
        Self {
            export,
            object,
            first,
            before: before.as_ref().map(Before::from),
        }
    }

    /// Ends the change, and takes the attributes after it.
    pub fn end(self) -> Around {
        let after = attributes(self.export, self.object).ok();
        Around {
            before: self.before.filter(|_| self.is_alone()),
            after,
        }
    }

    /// Whether no other change of the object has come since its beginning.
    pub fn is_alone(&self) -> bool {
        let under_way = self.export.changes().under_way.lock();
        self.first
            && under_way
                .get(&self.object)
                .is_some_and(|all| all.begun == 1)
    }
}

impl Drop for Change<'_> {
    fn drop(&mut self) {
        let mut under_way = self.export.changes().under_way.lock();
        if let Some(ours) = under_way.get_mut(&self.object) {
            ours.now -= 1;
            if ours.now == 0 {
                under_way.remove(&self.object);
            }
        }
    }
}

#[cfg(test)]
#[path = "around_tests.rs"]
mod tests;
