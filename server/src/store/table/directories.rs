//! The table's own directories: lookups and listings.

use super::names::{self, Child, Tree};
use super::{Entry, Found, StoreTable, mounted_on};
use crate::store::names::{NAME_MAX, Name};
use crate::store::{DirEntry, FileSystemLimits, Listing, ReaddirRange, Result, Space, Status};

/// The limits of a table's own directories.
pub(super) const OWN_LIMITS: FileSystemLimits = FileSystemLimits {
    link_max: 1,
    name_max: NAME_MAX as u32,
    size_max: i64::MAX as u64,
    time_delta_ns: 1,
    no_trunc: true,
    chown_restricted: true,
    case_insensitive: false,
    case_preserving: true,
    read_only: true,
};

impl StoreTable {
    pub(super) fn child(&self, child: Child) -> Result<Found> {
        match child {
            Child::Directory(number) => Ok((Tree::id(number), self.tree.attributes(number))),
            Child::Entry(at) => self.root_of(&self.entries[at]),
        }
    }

    pub(super) fn root_of(&self, entry: &Entry) -> Result<Found> {
        let root = entry.store.root();
        Ok(entry.found((root, entry.store.getattr(root)?)))
    }

    /// The directory above the root of an export.
    pub(super) fn above(&self, entry: &Entry) -> Found {
        let number = self.tree.above(entry.tag);
        (Tree::id(number), self.tree.attributes(number))
    }

    /// A name in a directory of the table.
    pub(super) fn find_in_table(&self, number: usize, name: &[u8]) -> Result<Child> {
        match Name::parse(name)? {
            Name::Here => Ok(Child::Directory(number)),
            Name::Up => Ok(Child::Directory(self.tree.parent(number))),
            Name::Proper(name) => self.tree.child(number, name).ok_or(Status::NoEnt.into()),
        }
    }

    /// Whether an export that is shown lies at or below this, or this is the root.
    pub(super) fn shows(&self, child: Child, shown: &dyn Fn(u16) -> bool) -> bool {
        match child {
            Child::Directory(names::ROOT) => true,
            Child::Directory(number) => {
                let mut below = self.tree.children(number);
                below.any(|(_, child)| self.shows(child, shown))
            }
            Child::Entry(at) => shown(self.entries[at].tag),
        }
    }

    /// Lists a directory of the table, without the exports that are not shown.
    pub(super) fn list_table(
        &self,
        number: usize,
        range: ReaddirRange,
        shown: &dyn Fn(u16) -> bool,
    ) -> Result<Listing> {
        range.check()?;
        let dots = [(&b"."[..], number), (b"..", self.tree.parent(number))];
        let dots = dots.map(|(name, number)| (name, Child::Directory(number)));
        let named = self.tree.children(number);
        let all = dots.into_iter().chain(named);
        let seen = usize::try_from(range.cookie).unwrap_or(usize::MAX);
        let listed = |(_, (name, child)): &(u64, (&[u8], Child))| {
            matches!(*name, b"." | b"..") || self.shows(*child, shown)
        };
        // Each name keeps its cookie, whoever asks.
        let mut rest = (1..).zip(all).skip(seen).filter(listed);
        let mut entries = Vec::new();
        for (cookie, (name, child)) in rest.by_ref().take(range.max_entries.max(1)) {
            let fileid = match child {
                Child::Directory(number) => Tree::id(number).ino,
                Child::Entry(at) => mounted_on(self.entries[at].tag),
            };
            // An export whose root is gone keeps its name.
            let object = range.plus.then(|| self.child(child).ok()).flatten();
            entries.push(DirEntry {
                fileid,
                name: name.to_vec(),
                cookie,
                object,
            });
        }
        Ok(Listing {
            entries,
            eof: rest.next().is_none(),
            verifier: ReaddirRange::VERIFIER,
        })
    }

    /// The space of the table's own directories, which have none to use.
    pub(super) fn own_space(&self) -> Space {
        Space {
            total_bytes: 0,
            free_bytes: 0,
            available_bytes: 0,
            total_files: self.tree.len() as u64,
            free_files: 0,
            available_files: 0,
        }
    }
}
