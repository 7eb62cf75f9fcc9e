//! A store whose times advance with every change.
//!
//! NFS version 3 has no change attribute. Clients tell versions of a file or directory apart by its times and size. File
//! systems stamp changes with a clock that ticks every few milliseconds (some every second or two), so two changes within a
//! tick look like one. The server knows better, because each change goes through it. If an object changes again within a
//! tick, the server *shows* times that are a nanosecond later than before: the change time after every change, and the
//! modification time after a change of content. As long as the table remembers an object, its shown change time only grows,
//! so the change attribute is made of it.
//!
//! The store keeps its own times. Times that a client sets are shown as set, and an object that changed once in its tick is
//! shown as it is. A restart forgets the shown times, and so does a full table.

use std::collections::HashMap;
use std::time::Duration;

use odafs_fabric::memory::Gather;
use odafs_fabric::sync::{Arc, Mutex};

use super::{
    CreateHow, Created, Credential, FileSystemLimits, Listing, ObjectId, OutsideEvent,
    ReaddirRange, Result, Space, Special, Store, StoreError, Unlinked,
};
use crate::store::{Acl, AclKind, Attributes, Extent, SetAttributes, SetTime, Time, XattrHow};

/// Shows the times of another store so that they differ after each change.
pub(crate) struct Advancing {
    store: Arc<dyn Store>,
    shards: [Mutex<Generations>; Self::SHARDS],
}

/// If there are too many young entries, the old ones are dropped and the young ones become old.
#[derive(Default)]
struct Generations {
    young: HashMap<ObjectId, Shown>,
    old: HashMap<ObjectId, Shown>,
}

/// The times of an object that changed lately.
#[derive(Clone, Copy)]
struct Shown {
    /// Its times in the store at the last look.
    stored: Times,
    /// The times as shown.
    shown: Times,
    /// The kind of change since then.
    changed: Option<Change>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
struct Times {
    mtime: Time,
    ctime: Time,
}

/// The kind of a change. The later kind includes the earlier one.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Change {
    Attributes,
    Content,
}

impl Times {
    fn of(attributes: &Attributes) -> Self {
        Self {
            mtime: attributes.mtime,
            ctime: attributes.ctime,
        }
    }
}

/// The next nanosecond.
fn after(time: Time) -> Time {
    match time.nanoseconds {
        ..999_999_999 => Time {
            nanoseconds: time.nanoseconds + 1,
            ..time
        },
        _ => Time {
            seconds: time.seconds.saturating_add(1),
            nanoseconds: 0,
        },
    }
}

impl Shown {
    /// Notes that the object now has these times in the store.
    fn see(&mut self, now: Times) {
        let changed = self.changed.take();
        if changed.is_some() || now.ctime != self.stored.ctime {
            self.shown.ctime = now.ctime.max(after(self.shown.ctime));
        }
        if now.mtime < self.stored.mtime {
            self.shown.mtime = now.mtime;
        } else if changed == Some(Change::Content) || now.mtime != self.stored.mtime {
            self.shown.mtime = now.mtime.max(after(self.shown.mtime));
        }
        self.stored = now;
    }
}

impl Generations {
    fn get(&mut self, object: ObjectId) -> Option<&mut Shown> {
        if !self.young.contains_key(&object) {
            let found = self.old.remove(&object)?;
            self.insert(object, found);
        }
        self.young.get_mut(&object)
    }

    fn insert(&mut self, object: ObjectId, shown: Shown) {
        if self.young.len() >= Advancing::YOUNG_MAX {
            self.old = std::mem::take(&mut self.young);
        }
        self.young.insert(object, shown);
    }
}

impl Advancing {
    const SHARDS: usize = 16;
    /// A shard has at most twice as many entries, of about 70 bytes each.
    const YOUNG_MAX: usize = 8192;
    /// After this many looks that seem older than the last one, the clock is taken to have gone back.
    const LOOKS: usize = 3;

    pub(crate) fn new(store: Arc<dyn Store>) -> Self {
        Self {
            store,
            shards: std::array::from_fn(|_| Mutex::default()),
        }
    }

    fn shard(&self, object: ObjectId) -> &Mutex<Generations> {
        let mixed = object.ino.wrapping_mul(0x9E37_79B9_7F4A_7C15);
        &self.shards[(mixed >> 60) as usize % Self::SHARDS]
    }

    /// The attributes to show for those of the store.
    fn shown(&self, object: ObjectId, mut attributes: Attributes) -> Result<Attributes> {
        for _ in 1..Self::LOOKS {
            if let Some(shown) = self.show(object, attributes, false) {
                return Ok(shown);
            }
            attributes = self.store.getattr(object)?;
        }
        Ok(self.show(object, attributes, true).unwrap_or(attributes))
    }

    /// As [`Self::shown`]. `None` if another thread has looked since and seen a later change, unless the clock went `back`.
    fn show(&self, object: ObjectId, attributes: Attributes, back: bool) -> Option<Attributes> {
        let mut shard = self.shard(object).lock();
        let Some(known) = shard.get(object) else {
            return Some(attributes);
        };
        let now = Times::of(&attributes);
        if now.ctime < known.stored.ctime && !back {
            return None;
        }
        known.see(now);
        let Times { mtime, ctime } = known.shown;
        Some(Attributes {
            mtime,
            ctime,
            ..attributes
        })
    }

    /// As [`Self::shown`]. `None` if the object is gone.
    fn shown_if_there(&self, found: (ObjectId, Attributes)) -> Option<(ObjectId, Attributes)> {
        let (object, attributes) = found;
        Some((object, self.shown(object, attributes).ok()?))
    }

    /// Changes objects. It notes first what was shown of them until now.
    fn change<T>(
        &self,
        objects: &[(ObjectId, Change)],
        make: impl FnOnce(&dyn Store) -> Result<T>,
    ) -> Result<T> {
        for (object, _) in objects {
            self.note(*object);
        }
        let made = make(&*self.store);
        if made.as_ref().err().is_none_or(StoreError::may_be_partial) {
            for (object, change) in objects {
                self.changed(*object, *change);
            }
        }
        made
    }

    /// Notes that someone else has changed the content of an object, since the times may not show it.
    pub(crate) fn changed_by_others(&self, object: ObjectId) {
        self.note(object);
        self.changed(object, Change::Content);
    }

    /// Notes the shown times of an object that is about to change.
    fn note(&self, object: ObjectId) {
        if self.shard(object).lock().get(object).is_some() {
            return;
        }
        let Ok(attributes) = self.store.getattr(object) else {
            return;
        };
        let stored = Times::of(&attributes);
        let mut shard = self.shard(object).lock();
        if shard.get(object).is_none() {
            let changed = None;
            shard.insert(
                object,
                Shown {
                    stored,
                    shown: stored,
                    changed,
                },
            );
        }
    }

    fn changed(&self, object: ObjectId, change: Change) {
        if let Some(known) = self.shard(object).lock().get(object) {
            known.changed = known.changed.max(Some(change));
        }
    }

    fn unlinked(&self, unlinked: Unlinked) {
        if unlinked.last {
            self.forget(unlinked.object);
        } else {
            self.changed(unlinked.object, Change::Attributes);
        }
    }

    /// A listing with the times to show.
    fn with_times(&self, mut listing: Listing) -> Listing {
        for entry in &mut listing.entries {
            entry.object = entry.object.and_then(|found| self.shown_if_there(found));
        }
        listing
    }

    /// Forgets an object that is gone.
    fn forget(&self, object: ObjectId) {
        let mut shard = self.shard(object).lock();
        shard.young.remove(&object);
        shard.old.remove(&object);
    }
}

/// Forwards calls as they are.
macro_rules! forward {
    ($($name:ident($($arg:ident: $kind:ty),*) -> $result:ty;)*) => {
        $(fn $name(&self, $($arg: $kind),*) -> $result {
            self.store.$name($($arg),*)
        })*
    };
}

impl Store for Advancing {
    forward! {
        root() -> ObjectId;
        has_birth_times() -> bool;
        birth_time(object: ObjectId) -> Result<Option<Time>>;
        may_share_storage() -> bool;
        access(who: &Credential, object: ObjectId, mask: u32) -> Result<u32>;
        is_at_hand(object: ObjectId) -> bool;
        mode_decides(object: ObjectId) -> Result<bool>;
        readlink(object: ObjectId) -> Result<Vec<u8>>;
        has_acls() -> bool;
        acl(object: ObjectId, kind: AclKind) -> Result<Option<Acl>>;
        has_xattrs() -> bool;
        xattr(who: &Credential, object: ObjectId, name: &[u8]) -> Result<Vec<u8>>;
        xattrs(who: &Credential, object: ObjectId) -> Result<Vec<Vec<u8>>>;
        read_at(object: ObjectId, offset: u64, data: &mut [u8]) -> Result<usize>;
        read_at_hand(object: ObjectId, offset: u64, data: &mut [u8]) -> bool;
        is_write_at_hand(who: &Credential, object: ObjectId) -> bool;
        clone_block_bytes(object: ObjectId) -> Option<u32>;
        seek(object: ObjectId, offset: u64, what: Extent) -> Result<Option<u64>>;
        sync(object: ObjectId, data_only: bool) -> Result<()>;
        wants_sync(object: ObjectId) -> bool;
        tags() -> Vec<(String, u16)>;
        is_shown(object: ObjectId, shown: &dyn Fn(u16) -> bool) -> bool;
        statfs(object: ObjectId) -> Result<Space>;
        pathconf(object: ObjectId) -> Result<FileSystemLimits>;
        number() -> u64;
        find(object: ObjectId) -> Result<()>;
        watch(object: ObjectId) -> bool;
        unwatch(object: ObjectId) -> ();
        wait_events(timeout: Duration) -> Vec<OutsideEvent>;
        interrupt() -> ();
    }

    fn getattr(&self, object: ObjectId) -> Result<Attributes> {
        self.shown(object, self.store.getattr(object)?)
    }

    fn lookup(
        &self,
        who: &Credential,
        directory: ObjectId,
        name: &[u8],
    ) -> Result<(ObjectId, Attributes)> {
        let (object, attributes) = self.store.lookup(who, directory, name)?;
        Ok((object, self.shown(object, attributes)?))
    }

    fn lookup_at_hand(
        &self,
        who: &Credential,
        directory: ObjectId,
        name: &[u8],
    ) -> Option<Result<(ObjectId, Attributes)>> {
        match self.store.lookup_at_hand(who, directory, name)? {
            Ok((object, attributes)) => Some(Ok((object, self.show(object, attributes, false)?))),
            refused => Some(refused),
        }
    }

    fn write_from(
        &self,
        who: &Credential,
        object: ObjectId,
        offset: u64,
        data: &Gather<'_>,
    ) -> Result<usize> {
        if data.is_empty() {
            return self.store.write_from(who, object, offset, data);
        }
        self.change(&[(object, Change::Content)], |store| {
            store.write_from(who, object, offset, data)
        })
    }

    fn setattr(
        &self,
        who: &Credential,
        object: ObjectId,
        new: &SetAttributes,
    ) -> Result<Attributes> {
        let change = match new.size {
            Some(_) => Change::Content,
            None => Change::Attributes,
        };
        let set = self.change(&[(object, change)], |store| store.setattr(who, object, new))?;
        if let SetTime::To(_) = new.mtime
            && let Some(known) = self.shard(object).lock().get(object)
        {
            // A time that was set is shown as set.
            known.changed = Some(Change::Attributes);
            (known.stored.mtime, known.shown.mtime) = (set.mtime, set.mtime);
        }
        self.shown(object, set)
    }

    fn create(
        &self,
        who: &Credential,
        directory: ObjectId,
        name: &[u8],
        how: CreateHow<'_>,
    ) -> Result<Created> {
        let created = self.change(&[(directory, Change::Content)], |store| {
            store.create(who, directory, name, how)
        })?;
        let attributes = self.shown(created.object, created.attributes)?;
        Ok(Created {
            attributes,
            ..created
        })
    }

    fn mkdir(
        &self,
        who: &Credential,
        directory: ObjectId,
        name: &[u8],
        new: &SetAttributes,
    ) -> Result<(ObjectId, Attributes)> {
        self.change(&[(directory, Change::Content)], |store| {
            store.mkdir(who, directory, name, new)
        })
    }

    fn symlink(
        &self,
        who: &Credential,
        directory: ObjectId,
        name: &[u8],
        target: &[u8],
        new: &SetAttributes,
    ) -> Result<(ObjectId, Attributes)> {
        self.change(&[(directory, Change::Content)], |store| {
            store.symlink(who, directory, name, target, new)
        })
    }

    fn mknod(
        &self,
        who: &Credential,
        directory: ObjectId,
        name: &[u8],
        what: Special,
        new: &SetAttributes,
    ) -> Result<(ObjectId, Attributes)> {
        self.change(&[(directory, Change::Content)], |store| {
            store.mknod(who, directory, name, what, new)
        })
    }

    fn link(
        &self,
        who: &Credential,
        object: ObjectId,
        directory: ObjectId,
        name: &[u8],
    ) -> Result<Attributes> {
        let both = [(object, Change::Attributes), (directory, Change::Content)];
        let linked = self.change(&both, |store| store.link(who, object, directory, name))?;
        self.shown(object, linked)
    }

    fn allocate(&self, who: &Credential, object: ObjectId, offset: u64, length: u64) -> Result<()> {
        self.change(&[(object, Change::Content)], |store| {
            store.allocate(who, object, offset, length)
        })
    }

    fn deallocate(
        &self,
        who: &Credential,
        object: ObjectId,
        offset: u64,
        length: u64,
    ) -> Result<()> {
        self.change(&[(object, Change::Content)], |store| {
            store.deallocate(who, object, offset, length)
        })
    }

    fn copy(
        &self,
        who: &Credential,
        from: (ObjectId, u64),
        to: (ObjectId, u64),
        count: u64,
    ) -> Result<u64> {
        self.change(&[(to.0, Change::Content)], |store| {
            store.copy(who, from, to, count)
        })
    }

    fn clone_range(
        &self,
        who: &Credential,
        from: (ObjectId, u64),
        to: (ObjectId, u64),
        count: u64,
    ) -> Result<()> {
        self.change(&[(to.0, Change::Content)], |store| {
            store.clone_range(who, from, to, count)
        })
    }

    fn set_xattr(
        &self,
        who: &Credential,
        object: ObjectId,
        name: &[u8],
        value: &[u8],
        how: XattrHow,
    ) -> Result<()> {
        self.change(&[(object, Change::Attributes)], |store| {
            store.set_xattr(who, object, name, value, how)
        })
    }

    fn remove_xattr(&self, who: &Credential, object: ObjectId, name: &[u8]) -> Result<()> {
        self.change(&[(object, Change::Attributes)], |store| {
            store.remove_xattr(who, object, name)
        })
    }

    fn set_acl(
        &self,
        who: &Credential,
        object: ObjectId,
        kind: AclKind,
        list: Option<&Acl>,
    ) -> Result<()> {
        self.change(&[(object, Change::Attributes)], |store| {
            store.set_acl(who, object, kind, list)
        })
    }

    fn rename(
        &self,
        who: &Credential,
        from: (ObjectId, &[u8]),
        to: (ObjectId, &[u8]),
    ) -> Result<Option<Unlinked>> {
        let both = [(from.0, Change::Content), (to.0, Change::Content)];
        let named = |(directory, name): (ObjectId, &[u8])| {
            let found = self.store.lookup(who, directory, name);
            found.ok().map(|(object, _)| object)
        };
        let target = named(to);
        let replaced = if target.is_some() && named(from) == target {
            // A rename between two names of one object changes nothing, not even the directories.
            let replaced = self.store.rename(who, from, to)?;
            if named(from) != target {
                for (directory, change) in both {
                    self.note(directory);
                    self.changed(directory, change);
                }
            }
            replaced
        } else {
            self.change(&both, |store| store.rename(who, from, to))?
        };
        if let Some(unlinked) = replaced {
            self.unlinked(unlinked);
        }
        Ok(replaced)
    }

    fn remove(&self, who: &Credential, directory: ObjectId, name: &[u8]) -> Result<Unlinked> {
        let removed = self.change(&[(directory, Change::Content)], |store| {
            store.remove(who, directory, name)
        })?;
        self.unlinked(removed);
        Ok(removed)
    }

    fn rmdir(&self, who: &Credential, directory: ObjectId, name: &[u8]) -> Result<ObjectId> {
        let removed = self.change(&[(directory, Change::Content)], |store| {
            store.rmdir(who, directory, name)
        })?;
        self.forget(removed);
        Ok(removed)
    }

    fn readdir(
        &self,
        who: &Credential,
        directory: ObjectId,
        range: ReaddirRange,
    ) -> Result<Listing> {
        Ok(self.with_times(self.store.readdir(who, directory, range)?))
    }

    fn readdir_shown(
        &self,
        who: &Credential,
        directory: ObjectId,
        range: ReaddirRange,
        shown: &dyn Fn(u16) -> bool,
    ) -> Result<Listing> {
        let listing = self.store.readdir_shown(who, directory, range, shown)?;
        Ok(self.with_times(listing))
    }
}

#[cfg(test)]
#[path = "advancing_tests.rs"]
mod tests;
