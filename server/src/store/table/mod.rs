//! A server's table of exports: several stores below one root.
//!
//! The root and the directories on the way to an export are in memory and read-only. Everything below the name of an export
//! belongs to its store. Nothing moves or is linked from one store to another (XDEV).
//!
//! **Objects.** The upper 16 bits of a generation are the tag of the object's export, or 0 for the table's own
//! directories. The lower 48 bits are the store's own generation, which must not be greater ([`GENERATION_MAX`]).
//!
//! **File systems.** Clients see each export as a file system of its own, by an `fsid` that the table assigns. Stores
//! cannot choose it, because the roots of two file systems mostly look alike.
//!
//! A file with hard links in two exports is two objects here. A write by one name is seen by the other like an outside
//! change, within about a second.

mod directories;
mod entry;
mod events;
mod names;
#[cfg(test)]
mod tests;

use std::time::Duration;

use odafs_fabric::memory::Gather;
use odafs_fabric::sync::Arc;

use super::permission::attributes_permit;
use super::{
    CreateHow, Created, Credential, FileSystemLimits, Listing, ObjectId, OutsideEvent,
    ReaddirRange, Result, Space, Special, Store, Unlinked, XattrHow,
};
use crate::store::{
    Acl, AclKind, Attributes, Extent, SetAttributes, Status, Time, access, by_hand,
};
use directories::OWN_LIMITS;
use entry::{FSID, Found, inner, mounted_on, outer, tag_of};
use events::Events;
use names::{Child, Tree};

pub use entry::{Entry, GENERATION_MAX};
pub use names::{TableError, check_names, normalized};

/// Several stores as one.
pub struct StoreTable {
    number: u64,
    entries: Vec<Entry>,
    tree: Tree,
    events: Events,
}

/// Where an object belongs.
enum Located<'a> {
    /// It is a directory of the table, with this number.
    Table(usize),
    /// It is an object of this store, as the store knows it.
    Stored(&'a Entry, ObjectId),
}

impl StoreTable {
    /// A table of these stores. `started` is the time of its own directories. File handles contain `number`, which stays
    /// the same after a restart as long as tags stand for the same exports.
    ///
    /// # Errors
    /// Two names are the same or one lies below another, a tag is 0 or used twice, or the system can give no more threads.
    pub fn new(
        entries: Vec<Entry>,
        number: u64,
        started: Time,
    ) -> std::result::Result<Self, TableError> {
        let tree = Tree::new(&entries, started)?;
        let stores = entries
            .iter()
            .map(|entry| (entry.tag, Arc::clone(&entry.store)));
        let events = Events::start(stores.collect()).map_err(TableError::Threads)?;
        Ok(Self {
            number,
            entries,
            tree,
            events,
        })
    }

    /// Where an object belongs. STALE if it belongs nowhere.
    fn place(&self, object: ObjectId) -> Result<Located<'_>> {
        let tag = tag_of(object);
        if tag == 0 {
            let found = self.tree.find(object).ok_or(Status::Stale)?;
            return Ok(Located::Table(found));
        }
        let entry = self.entries.iter().find(|entry| entry.tag == tag);
        let entry = entry.ok_or(Status::Stale)?;
        Ok(Located::Stored(entry, inner(object)))
    }

    /// The store of an object. Fails with `otherwise` for directories of the table.
    fn stored(&self, object: ObjectId, otherwise: Status) -> Result<(&Entry, ObjectId)> {
        match self.place(object)? {
            Located::Table(_) => Err(otherwise.into()),
            Located::Stored(entry, object) => Ok((entry, object)),
        }
    }

    /// The common store of two objects. XDEV if they have none.
    fn both(&self, one: ObjectId, other: ObjectId) -> Result<(&Entry, ObjectId, ObjectId)> {
        let (entry, one) = self.stored(one, Status::RoFs)?;
        let (other_entry, other) = self.stored(other, Status::RoFs)?;
        if entry.tag != other_entry.tag {
            return Err(Status::XDev.into());
        }
        Ok((entry, one, other))
    }
}

impl Store for StoreTable {
    fn root(&self) -> ObjectId {
        Tree::id(names::ROOT)
    }

    fn getattr(&self, object: ObjectId) -> Result<Attributes> {
        match self.place(object)? {
            Located::Table(number) => Ok(self.tree.attributes(number)),
            Located::Stored(entry, object) => Ok(entry.shown(entry.store.getattr(object)?)),
        }
    }

    /// Where one store has none, its objects have none.
    fn has_birth_times(&self) -> bool {
        (self.entries.iter()).any(|entry| entry.store.has_birth_times())
    }

    fn birth_time(&self, object: ObjectId) -> Result<Option<Time>> {
        match self.place(object)? {
            Located::Table(number) => Ok(Some(self.tree.attributes(number).ctime)),
            Located::Stored(entry, object) => entry.store.birth_time(object),
        }
    }

    fn may_share_storage(&self) -> bool {
        (self.entries.iter()).any(|entry| entry.store.may_share_storage())
    }

    fn access(&self, who: &Credential, object: ObjectId, mask: u32) -> Result<u32> {
        match self.place(object)? {
            Located::Table(number) => {
                let changes = access::MODIFY | access::EXTEND | access::DELETE;
                let attributes = self.tree.attributes(number);
                Ok(attributes_permit(&attributes, who, mask & !changes))
            }
            Located::Stored(entry, object) => entry.store.access(who, object, mask),
        }
    }

    fn is_at_hand(&self, object: ObjectId) -> bool {
        match self.place(object) {
            Ok(Located::Table(_)) => true,
            Ok(Located::Stored(entry, object)) => entry.store.is_at_hand(object),
            Err(_) => false,
        }
    }

    fn mode_decides(&self, object: ObjectId) -> Result<bool> {
        match self.place(object)? {
            Located::Table(_) => Ok(true),
            Located::Stored(entry, object) => entry.store.mode_decides(object),
        }
    }

    fn lookup(&self, who: &Credential, directory: ObjectId, name: &[u8]) -> Result<Found> {
        match self.place(directory)? {
            Located::Table(number) => self.child(self.find_in_table(number, name)?),
            Located::Stored(entry, directory) => {
                if name == b".." && directory == entry.store.root() {
                    return Ok(self.above(entry));
                }
                Ok(entry.found(entry.store.lookup(who, directory, name)?))
            }
        }
    }

    fn lookup_at_hand(
        &self,
        who: &Credential,
        directory: ObjectId,
        name: &[u8],
    ) -> Option<Result<Found>> {
        match self.place(directory) {
            Err(error) => Some(Err(error)),
            Ok(Located::Table(number)) => match self.find_in_table(number, name) {
                Ok(Child::Entry(at)) => {
                    let store = &self.entries[at].store;
                    let at_hand = store.is_at_hand(store.root());
                    at_hand.then(|| self.child(Child::Entry(at)))
                }
                found => Some(found.and_then(|child| self.child(child))),
            },
            Ok(Located::Stored(entry, directory)) => {
                if name == b".." && directory == entry.store.root() {
                    return Some(Ok(self.above(entry)));
                }
                let found = entry.store.lookup_at_hand(who, directory, name)?;
                Some(found.map(|found| entry.found(found)))
            }
        }
    }

    fn readlink(&self, object: ObjectId) -> Result<Vec<u8>> {
        let (entry, object) = self.stored(object, Status::Inval)?;
        entry.store.readlink(object)
    }

    fn read_at(&self, object: ObjectId, offset: u64, data: &mut [u8]) -> Result<usize> {
        let (entry, object) = self.stored(object, Status::IsDir)?;
        entry.store.read_at(object, offset, data)
    }

    fn read_at_hand(&self, object: ObjectId, offset: u64, data: &mut [u8]) -> bool {
        let stored = self.stored(object, Status::IsDir);
        stored.is_ok_and(|(entry, object)| entry.store.read_at_hand(object, offset, data))
    }

    fn write_from(
        &self,
        who: &Credential,
        object: ObjectId,
        offset: u64,
        data: &Gather<'_>,
    ) -> Result<usize> {
        let (entry, object) = self.stored(object, Status::IsDir)?;
        entry.store.write_from(who, object, offset, data)
    }

    fn is_write_at_hand(&self, who: &Credential, object: ObjectId) -> bool {
        let stored = self.stored(object, Status::IsDir);
        stored.is_ok_and(|(entry, object)| entry.store.is_write_at_hand(who, object))
    }

    fn sync(&self, object: ObjectId, data_only: bool) -> Result<()> {
        match self.place(object)? {
            Located::Table(_) => Ok(()),
            Located::Stored(entry, object) => entry.store.sync(object, data_only),
        }
    }

    fn wants_sync(&self, object: ObjectId) -> bool {
        match self.place(object) {
            Ok(Located::Stored(entry, object)) => entry.store.wants_sync(object),
            Ok(Located::Table(_)) | Err(_) => false,
        }
    }

    fn setattr(
        &self,
        who: &Credential,
        object: ObjectId,
        new: &SetAttributes,
    ) -> Result<Attributes> {
        let (entry, object) = self.stored(object, Status::RoFs)?;
        Ok(entry.shown(entry.store.setattr(who, object, new)?))
    }

    fn create(
        &self,
        who: &Credential,
        directory: ObjectId,
        name: &[u8],
        how: CreateHow<'_>,
    ) -> Result<Created> {
        let (entry, directory) = self.stored(directory, Status::RoFs)?;
        let created = entry.store.create(who, directory, name, how)?;
        let (object, attributes) = entry.found((created.object, created.attributes));
        Ok(Created {
            object,
            attributes,
            existed: created.existed,
        })
    }

    fn mkdir(
        &self,
        who: &Credential,
        directory: ObjectId,
        name: &[u8],
        new: &SetAttributes,
    ) -> Result<Found> {
        let (entry, directory) = self.stored(directory, Status::RoFs)?;
        Ok(entry.found(entry.store.mkdir(who, directory, name, new)?))
    }

    fn symlink(
        &self,
        who: &Credential,
        directory: ObjectId,
        name: &[u8],
        target: &[u8],
        new: &SetAttributes,
    ) -> Result<Found> {
        let (entry, directory) = self.stored(directory, Status::RoFs)?;
        Ok(entry.found(entry.store.symlink(who, directory, name, target, new)?))
    }

    fn mknod(
        &self,
        who: &Credential,
        directory: ObjectId,
        name: &[u8],
        what: Special,
        new: &SetAttributes,
    ) -> Result<Found> {
        let (entry, directory) = self.stored(directory, Status::RoFs)?;
        Ok(entry.found(entry.store.mknod(who, directory, name, what, new)?))
    }

    fn link(
        &self,
        who: &Credential,
        object: ObjectId,
        directory: ObjectId,
        name: &[u8],
    ) -> Result<Attributes> {
        let (entry, object, directory) = self.both(object, directory)?;
        let attributes = entry.store.link(who, object, directory, name)?;
        Ok(entry.shown(attributes))
    }

    fn rename(
        &self,
        who: &Credential,
        from: (ObjectId, &[u8]),
        to: (ObjectId, &[u8]),
    ) -> Result<Option<Unlinked>> {
        let (entry, old, new) = self.both(from.0, to.0)?;
        let replaced = entry.store.rename(who, (old, from.1), (new, to.1))?;
        Ok(replaced.map(|unlinked| entry.gone(unlinked)))
    }

    fn remove(&self, who: &Credential, directory: ObjectId, name: &[u8]) -> Result<Unlinked> {
        let (entry, directory) = self.stored(directory, Status::RoFs)?;
        let unlinked = entry.store.remove(who, directory, name)?;
        Ok(entry.gone(unlinked))
    }

    fn rmdir(&self, who: &Credential, directory: ObjectId, name: &[u8]) -> Result<ObjectId> {
        let (entry, directory) = self.stored(directory, Status::RoFs)?;
        let object = entry.store.rmdir(who, directory, name)?;
        Ok(outer(entry.tag, object))
    }

    fn allocate(&self, who: &Credential, object: ObjectId, offset: u64, length: u64) -> Result<()> {
        let (entry, object) = self.stored(object, Status::IsDir)?;
        entry.store.allocate(who, object, offset, length)
    }

    fn deallocate(
        &self,
        who: &Credential,
        object: ObjectId,
        offset: u64,
        length: u64,
    ) -> Result<()> {
        let (entry, object) = self.stored(object, Status::IsDir)?;
        entry.store.deallocate(who, object, offset, length)
    }

    fn seek(&self, object: ObjectId, offset: u64, what: Extent) -> Result<Option<u64>> {
        let (entry, object) = self.stored(object, Status::IsDir)?;
        entry.store.seek(object, offset, what)
    }

    /// Between two stores, this reads and writes the bytes.
    fn copy(
        &self,
        who: &Credential,
        from: (ObjectId, u64),
        to: (ObjectId, u64),
        count: u64,
    ) -> Result<u64> {
        let (source_entry, source) = self.stored(from.0, Status::IsDir)?;
        let (entry, target) = self.stored(to.0, Status::IsDir)?;
        match source_entry.tag == entry.tag {
            true => (entry.store).copy(who, (source, from.1), (target, to.1), count),
            false => by_hand::copy(self, who, from, to, count),
        }
    }

    /// For directories of the table this is the largest block size of all exports, if any export can clone.
    fn clone_block_bytes(&self, object: ObjectId) -> Option<u32> {
        let of_root = |entry: &Entry| entry.store.clone_block_bytes(entry.store.root());
        match self.place(object).ok()? {
            Located::Table(_) => self.entries.iter().filter_map(of_root).max(),
            Located::Stored(entry, object) => entry.store.clone_block_bytes(object),
        }
    }

    fn clone_range(
        &self,
        who: &Credential,
        from: (ObjectId, u64),
        to: (ObjectId, u64),
        count: u64,
    ) -> Result<()> {
        let (entry, source, target) = self.both(from.0, to.0)?;
        (entry.store).clone_range(who, (source, from.1), (target, to.1), count)
    }

    /// Where one store has none, its objects have none that are set.
    fn has_xattrs(&self) -> bool {
        self.entries.iter().any(|entry| entry.store.has_xattrs())
    }

    fn xattr(&self, who: &Credential, object: ObjectId, name: &[u8]) -> Result<Vec<u8>> {
        match self.place(object)? {
            Located::Stored(entry, object) if entry.store.has_xattrs() => {
                entry.store.xattr(who, object, name)
            }
            _ => Err(Status::NoEnt.into()),
        }
    }

    fn xattrs(&self, who: &Credential, object: ObjectId) -> Result<Vec<Vec<u8>>> {
        match self.place(object)? {
            Located::Stored(entry, object) if entry.store.has_xattrs() => {
                entry.store.xattrs(who, object)
            }
            _ => Ok(Vec::new()),
        }
    }

    fn set_xattr(
        &self,
        who: &Credential,
        object: ObjectId,
        name: &[u8],
        value: &[u8],
        how: XattrHow,
    ) -> Result<()> {
        let (entry, object) = self.stored(object, Status::RoFs)?;
        entry.store.set_xattr(who, object, name, value, how)
    }

    fn remove_xattr(&self, who: &Credential, object: ObjectId, name: &[u8]) -> Result<()> {
        let (entry, object) = self.stored(object, Status::RoFs)?;
        entry.store.remove_xattr(who, object, name)
    }

    /// Where one store has none, its objects have none that are set.
    fn has_acls(&self) -> bool {
        self.entries.iter().any(|entry| entry.store.has_acls())
    }

    fn acl(&self, object: ObjectId, kind: AclKind) -> Result<Option<Acl>> {
        match self.place(object)? {
            Located::Stored(entry, object) if entry.store.has_acls() => {
                entry.store.acl(object, kind)
            }
            _ => Ok(None),
        }
    }

    fn set_acl(
        &self,
        who: &Credential,
        object: ObjectId,
        kind: AclKind,
        list: Option<&Acl>,
    ) -> Result<()> {
        let (entry, object) = self.stored(object, Status::RoFs)?;
        entry.store.set_acl(who, object, kind, list)
    }

    fn readdir(
        &self,
        who: &Credential,
        directory: ObjectId,
        range: ReaddirRange,
    ) -> Result<Listing> {
        let (entry, directory) = match self.place(directory)? {
            Located::Table(number) => return self.list_table(number, range, &|_| true),
            Located::Stored(entry, directory) => (entry, directory),
        };
        let mut listing = entry.store.readdir(who, directory, range)?;
        let is_root = directory == entry.store.root();
        for listed in &mut listing.entries {
            if is_root && listed.name == b".." {
                let (object, attributes) = self.above(entry);
                listed.fileid = attributes.fileid;
                listed.object = listed.object.map(|_| (object, attributes));
            } else {
                listed.object = listed.object.map(|found| entry.found(found));
            }
        }
        Ok(listing)
    }

    fn readdir_shown(
        &self,
        who: &Credential,
        directory: ObjectId,
        range: ReaddirRange,
        shown: &dyn Fn(u16) -> bool,
    ) -> Result<Listing> {
        match self.place(directory)? {
            Located::Table(number) => self.list_table(number, range, shown),
            Located::Stored(..) => self.readdir(who, directory, range),
        }
    }

    fn is_shown(&self, object: ObjectId, shown: &dyn Fn(u16) -> bool) -> bool {
        match self.place(object) {
            Ok(Located::Table(number)) => self.shows(Child::Directory(number), shown),
            Ok(Located::Stored(entry, _)) => shown(entry.tag),
            Err(_) => false,
        }
    }

    fn tags(&self) -> Vec<(String, u16)> {
        let entries = self.entries.iter();
        entries
            .map(|entry| (entry.name.clone(), entry.tag))
            .collect()
    }

    fn statfs(&self, object: ObjectId) -> Result<Space> {
        match self.place(object)? {
            Located::Table(_) => Ok(self.own_space()),
            Located::Stored(entry, object) => entry.store.statfs(object),
        }
    }

    fn pathconf(&self, object: ObjectId) -> Result<FileSystemLimits> {
        match self.place(object)? {
            Located::Table(_) => Ok(OWN_LIMITS),
            Located::Stored(entry, object) => entry.store.pathconf(object),
        }
    }

    fn number(&self) -> u64 {
        self.number
    }

    fn mounted_on(&self, object: ObjectId) -> Option<u64> {
        match self.place(object) {
            Ok(Located::Stored(entry, object)) if object == entry.store.root() => {
                Some(mounted_on(entry.tag))
            }
            _ => None,
        }
    }

    fn find(&self, object: ObjectId) -> Result<()> {
        match self.place(object)? {
            Located::Table(_) => Ok(()),
            Located::Stored(entry, object) => entry.store.find(object),
        }
    }

    /// The table itself never changes.
    fn watch(&self, object: ObjectId) -> bool {
        match self.place(object) {
            Ok(Located::Table(_)) => true,
            Ok(Located::Stored(entry, object)) => entry.store.watch(object),
            Err(_) => false,
        }
    }

    fn unwatch(&self, object: ObjectId) {
        if let Ok(Located::Stored(entry, object)) = self.place(object) {
            entry.store.unwatch(object);
        }
    }

    fn wait_events(&self, timeout: Duration) -> Vec<OutsideEvent> {
        self.events.wait(timeout)
    }

    fn interrupt(&self) {
        self.events.interrupt();
    }
}
