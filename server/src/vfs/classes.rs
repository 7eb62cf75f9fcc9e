//! Reader classes: numbers for the kinds of files that the same callers may read.

use std::collections::HashMap;

use odafs_fabric::clock::{self, Nanos};
use odafs_fabric::sync::{Arc, RwLock};
use odafs_nic::capability::ReaderClass;

use crate::store::Attributes;

/// The tag of the export, whose rules may give a caller other ids than those of another export; owner, group and permission
/// bits, by which [`crate::store::may_read`] decides.
type Content = (u16, u32, u32, u32);

/// The number of a class. Each file of the class holds it, so that it keeps its meaning.
#[derive(Debug)]
pub(crate) struct Class(pub ReaderClass);

/// Gives every content a number. When none is left, the numbers that no file holds become free. References of such a
/// class are worthless by then, because a file's references are revoked before it changes its class or goes. Sessions
/// must be expelled from a number before it gets another content.
#[derive(Debug, Default)]
pub(crate) struct Classes {
    known: RwLock<Known>,
}

#[derive(Debug, Default)]
struct Known {
    by_content: HashMap<Content, Arc<Class>>,
    free: Vec<ReaderClass>,
    /// All numbers below this have been given.
    given: u32,
    /// The time of the last attempt to free numbers.
    swept: Option<Nanos>,
}

/// The least time between two attempts, which look at every number.
const SWEEP_EVERY: Nanos = Nanos::from_secs(1);

impl Classes {
    /// The class of files of this export with these attributes (and without an ACL). `None` if all numbers are held, so
    /// that no references to such files are issued. `expel` gets the numbers that are about to be freed.
    pub(crate) fn of(
        &self,
        tag: u16,
        attributes: &Attributes,
        expel: impl FnOnce(&[ReaderClass]),
    ) -> Option<Arc<Class>> {
        self.find(tag, attributes).or_else(|| {
            let unheld = self.known.write().unheld()?;
            expel(&unheld);
            self.known.write().free.extend(unheld);
            self.find(tag, attributes)
        })
    }

    /// As [`Classes::of`], of the free numbers only. Waits for nothing.
    pub(crate) fn find(&self, tag: u16, attributes: &Attributes) -> Option<Arc<Class>> {
        let content = (tag, attributes.uid, attributes.gid, attributes.mode & 0o777);
        let known = self.known.read();
        if let Some(class) = known.by_content.get(&content) {
            return Some(Arc::clone(class));
        }
        if known.is_full() {
            return None;
        }
        drop(known);
        let mut known = self.known.write();
        if let Some(class) = known.by_content.get(&content) {
            return Some(Arc::clone(class));
        }
        let class = Arc::new(Class(known.number()?));
        known.by_content.insert(content, Arc::clone(&class));
        Some(class)
    }

    /// How many numbers are in use.
    pub(crate) fn count(&self) -> usize {
        self.known.read().by_content.len()
    }
}

impl Known {
    fn is_full(&self) -> bool {
        self.free.is_empty() && self.given >= ReaderClass::COUNT_MAX
    }

    fn number(&mut self) -> Option<ReaderClass> {
        self.free.pop().or_else(|| {
            let next = self.given;
            self.given += u32::from(next < ReaderClass::COUNT_MAX);
            (next < ReaderClass::COUNT_MAX).then_some(ReaderClass(next))
        })
    }

    /// Takes the numbers that nobody holds. While this is locked, nobody can begin to hold one. `None` if it is too soon
    /// to look again.
    fn unheld(&mut self) -> Option<Vec<ReaderClass>> {
        let now = clock::now();
        if self
            .swept
            .is_some_and(|swept| now.since(swept) < SWEEP_EVERY)
        {
            return None;
        }
        self.swept = Some(now);
        let mut unheld = Vec::new();
        self.by_content.retain(|_, class| {
            let held = Arc::get_mut(class).is_none();
            unheld.extend((!held).then_some(class.0));
            held
        });
        if unheld.is_empty() {
            tracing::warn!(
                classes = self.by_content.len(),
                "files of too many owners, groups and modes are in use: files with further ones cannot be read directly"
            );
        } else {
            tracing::info!(given_back = unheld.len(), "reader classes had run out");
        }
        Some(unheld)
    }
}

#[cfg(test)]
mod tests {
    use crate::store::{Device, FileType, Time};

    use super::*;
    use crate::store::Store as _;
    use crate::vfs::namespace::remove;
    use crate::vfs::testing::{World, owner};

    fn owned_by(uid: u32) -> Attributes {
        Attributes {
            kind: FileType::Regular,
            mode: 0o640,
            links: 1,
            uid,
            gid: 0,
            size: 0,
            used: 0,
            device: Device::default(),
            fsid: 0,
            fileid: 0,
            atime: Time::default(),
            mtime: Time::default(),
            ctime: Time::default(),
        }
    }

    #[test]
    fn what_nobody_holds_is_given_back() {
        let classes = Classes::default();
        let of = |uid| {
            let mut expelled = Vec::<ReaderClass>::new();
            let class = classes.of(0, &owned_by(uid), |free| expelled.extend(free));
            (class, expelled.len())
        };
        let held: Vec<_> = (0..10).map(|uid| of(uid).0.expect("a number")).collect();
        let all = ReaderClass::COUNT_MAX;
        for uid in 10..all {
            assert_eq!(of(uid).0.map(|class| class.0), Some(ReaderClass(uid)));
        }
        assert_eq!(classes.count(), all as usize);
        let (class, expelled) = of(all);
        assert_eq!(expelled, all as usize - 10);
        assert!(class.expect("given back").0.0 >= 10);
        for (uid, class) in (0..).zip(&held) {
            assert_eq!(of(uid).0.expect("held").0, class.0);
        }
        assert_eq!(classes.count(), 11);
    }

    #[test]
    fn files_of_two_exports_are_never_of_one_class() {
        let classes = Classes::default();
        let of = |tag| classes.of(tag, &owned_by(5), |_| {}).expect("a number").0;
        assert_ne!(of(1), of(2));
        assert_eq!(of(1), of(1));
    }

    #[test]
    fn there_are_no_more_than_there_are() {
        let classes = Classes::default();
        let of = |uid| classes.of(0, &owned_by(uid), |free| assert!(free.is_empty()));
        let held: Vec<_> = (0..ReaderClass::COUNT_MAX).map(&of).collect();
        assert!(held.iter().all(Option::is_some));
        assert!(of(ReaderClass::COUNT_MAX).is_none());
        assert!(of(7).is_some());
    }

    #[test]
    fn sessions_are_not_admitted_to_what_a_number_stands_for_next() {
        let world = World::new(64);
        let first = world.file("a", &[1; 4096]);
        world.read(&first, 0, 4096);
        let client = world.client(&owner());
        assert!(client.reference(&first, 0).is_some());
        let class = first.facts().class.expect("a class");
        assert!(client.session.nic().admits(class));
        let root = world.store.root();
        remove(&world.export, &owner(), root, b"a").expect("removed");
        drop(first);
        // All numbers have stood for something, and nobody holds any.
        let nic = world.export.nic().expect("direct reads");
        let classes = world.export.classes();
        for uid in 1..=ReaderClass::COUNT_MAX {
            let expel = |free: &[ReaderClass]| nic.expel(free);
            assert!(classes.of(0, &owned_by(uid), expel).is_some());
        }
        assert!(!client.session.nic().admits(class));
        let second = world.file("b", &[2; 4096]);
        world.read(&second, 0, 4096);
        assert!(client.reference(&second, 0).is_some(), "it has a class too");
    }

    #[test]
    fn a_file_that_had_no_class_gets_one_when_there_is_one() {
        let world = World::new(64);
        let (classes, nic) = (world.export.classes(), world.export.nic().expect("direct"));
        let held: Vec<_> = (0..ReaderClass::COUNT_MAX)
            .map(|uid| classes.of(0, &owned_by(5000 + uid), |_| {}))
            .collect();
        let file = world.file("a", &[1; 4096]);
        world.read(&file, 0, 4096);
        let client = world.client(&owner());
        assert!(client.reference(&file, 0).is_none());
        assert!(world.export.metrics().classes_short.get() > 0);
        drop(held);
        clock::sleep(SWEEP_EVERY);
        let other = owned_by(1);
        assert!(classes.of(0, &other, |free| nic.expel(free)).is_some());
        assert!(client.reference(&file, 0).is_some());
    }
}
