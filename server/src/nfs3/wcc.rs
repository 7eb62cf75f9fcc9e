//! Weak cache consistency of directories and whatever else has no pages (RFC 1813, section 2.6): the attributes from
//! before a change are only told if nothing else of ours can have changed the object between them and the change. A
//! client that is told takes the change for its own and keeps what it has cached.

use std::collections::HashMap;

use odafs_common::wire::nfs3::{WccAttributes, WccData};
use odafs_fabric::sync::Mutex;

use super::Context;
use crate::store::ObjectId;

/// Which objects without pages are being changed, in their entries or their attributes.
#[derive(Default)]
pub struct Changes {
    under_way: Mutex<HashMap<ObjectId, UnderWay>>,
}

/// Changes of one object since there was last none under way.
#[derive(Default)]
struct UnderWay {
    now: u32,
    begun: u32,
}

/// A change of an object under way.
pub struct Change<'a> {
    changes: &'a Changes,
    object: ObjectId,
    /// No other was under way at its beginning.
    first: bool,
    before: Option<WccAttributes>,
}

impl<'a> Change<'a> {
    /// Begins: the attributes from before are taken.
    pub fn begin(context: &Context<'a>, object: ObjectId) -> Self {
        let mut under_way = context.changes.under_way.lock();
        let ours = under_way.entry(object).or_default();
        ours.now += 1;
        ours.begun += 1;
        let first = ours.begun == 1;
        drop(under_way);
        let before = context.attributes(object);
        Self {
            changes: context.changes,
            object,
            first,
            before: before.as_ref().map(WccAttributes::from),
        }
    }

    /// Ends: the attributes from after are taken.
    pub fn end(self, context: &Context<'_>) -> WccData {
        let after = context.attributes(self.object);
        WccData {
            before: self.before.filter(|_| self.is_alone()),
            after,
        }
    }

    /// No other change of the object came between its beginning and now.
    pub fn is_alone(&self) -> bool {
        let under_way = self.changes.under_way.lock();
        self.first
            && under_way
                .get(&self.object)
                .is_some_and(|all| all.begun == 1)
    }
}

impl Drop for Change<'_> {
    fn drop(&mut self) {
        let mut under_way = self.changes.under_way.lock();
        if let Some(ours) = under_way.get_mut(&self.object) {
            ours.now -= 1;
            if ours.now == 0 {
                under_way.remove(&self.object);
            }
        }
    }
}

#[cfg(test)]
#[path = "wcc_tests.rs"]
mod tests;
