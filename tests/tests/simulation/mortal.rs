//! The store of one server life. The threads of a dead server can no longer reach the files.

use odafs_fabric::clock;
use odafs_fabric::memory::Gather;
use odafs_fabric::sync::{Arc, RwLock};
use odafs_server::store::{
    Attributes, CreateHow, Created, Credential, FileSystemLimits, Listing, MemoryStore, ObjectId,
    OutsideEvent, ReaddirRange, Result, SetAttributes, Space, Special, Status, Store, StoreError,
    Unlinked,
};
use std::time::Duration;

/// The store of one server life.
pub struct Mortal {
    store: Arc<MemoryStore>,
    dead: RwLock<bool>,
}

impl Mortal {
    pub fn new(store: &Arc<MemoryStore>) -> Self {
        Self {
            store: Arc::clone(store),
            dead: RwLock::new(false),
        }
    }

    /// Ends the life, as `kill -9` and a power failure at one instant. No call of this life is under way then, and none
    /// follows. Returns whether that lost any data.
    pub fn die(&self) -> bool {
        let mut dead = self.dead.write();
        *dead = true;
        let lost = self.store.crash();
        drop(dead);
        self.store.interrupt();
        lost
    }

    /// Does something in the state directory of this life, unless that is over.
    pub fn unless_dead(&self, act: impl FnOnce()) -> bool {
        let dead = self.dead.read();
        if !*dead {
            act();
        }
        !*dead
    }

    fn alive<T>(&self, call: impl FnOnce(&MemoryStore) -> Result<T>) -> Result<T> {
        let dead = self.dead.read();
        if *dead {
            return Err(StoreError::from(Status::ServerFault));
        }
        call(&self.store)
    }
}

type Object = (ObjectId, Attributes);

impl Store for Mortal {
    fn root(&self) -> ObjectId {
        self.store.root()
    }

    fn getattr(&self, object: ObjectId) -> Result<Attributes> {
        self.alive(|s| s.getattr(object))
    }

    fn access(&self, who: &Credential, object: ObjectId, mask: u32) -> Result<u32> {
        self.alive(|s| s.access(who, object, mask))
    }

    fn mode_decides(&self, object: ObjectId) -> Result<bool> {
        self.alive(|s| s.mode_decides(object))
    }

    fn lookup(&self, who: &Credential, directory: ObjectId, name: &[u8]) -> Result<Object> {
        self.alive(|s| s.lookup(who, directory, name))
    }

    fn is_at_hand(&self, object: ObjectId) -> bool {
        self.alive(|s| Ok(s.is_at_hand(object))) == Ok(true)
    }

    fn lookup_at_hand(
        &self,
        who: &Credential,
        directory: ObjectId,
        name: &[u8],
    ) -> Option<Result<Object>> {
        self.alive(|s| Ok(s.lookup_at_hand(who, directory, name)))
            .ok()
            .flatten()
    }

    fn readlink(&self, object: ObjectId) -> Result<Vec<u8>> {
        self.alive(|s| s.readlink(object))
    }

    fn read_at(&self, object: ObjectId, offset: u64, data: &mut [u8]) -> Result<usize> {
        self.alive(|s| s.read_at(object, offset, data))
    }

    fn read_at_hand(&self, object: ObjectId, offset: u64, data: &mut [u8]) -> bool {
        self.alive(|s| Ok(s.read_at_hand(object, offset, data))) == Ok(true)
    }

    fn is_write_at_hand(&self, who: &Credential, object: ObjectId) -> bool {
        self.alive(|s| Ok(s.is_write_at_hand(who, object))) == Ok(true)
    }

    fn write_from(
        &self,
        who: &Credential,
        object: ObjectId,
        at: u64,
        data: &Gather<'_>,
    ) -> Result<usize> {
        self.alive(|s| s.write_from(who, object, at, data))
    }

    fn sync(&self, object: ObjectId, data_only: bool) -> Result<()> {
        self.alive(|s| s.sync(object, data_only))
    }

    fn setattr(
        &self,
        who: &Credential,
        object: ObjectId,
        new: &SetAttributes,
    ) -> Result<Attributes> {
        self.alive(|s| s.setattr(who, object, new))
    }

    fn create(
        &self,
        who: &Credential,
        directory: ObjectId,
        name: &[u8],
        how: CreateHow<'_>,
    ) -> Result<Created> {
        self.alive(|s| s.create(who, directory, name, how))
    }

    fn mkdir(
        &self,
        who: &Credential,
        directory: ObjectId,
        name: &[u8],
        new: &SetAttributes,
    ) -> Result<Object> {
        self.alive(|s| s.mkdir(who, directory, name, new))
    }

    fn symlink(
        &self,
        who: &Credential,
        directory: ObjectId,
        name: &[u8],
        target: &[u8],
        new: &SetAttributes,
    ) -> Result<Object> {
        self.alive(|s| s.symlink(who, directory, name, target, new))
    }

    fn mknod(
        &self,
        who: &Credential,
        directory: ObjectId,
        name: &[u8],
        what: Special,
        new: &SetAttributes,
    ) -> Result<Object> {
        self.alive(|s| s.mknod(who, directory, name, what, new))
    }

    fn link(
        &self,
        who: &Credential,
        object: ObjectId,
        directory: ObjectId,
        name: &[u8],
    ) -> Result<Attributes> {
        self.alive(|s| s.link(who, object, directory, name))
    }

    fn rename(
        &self,
        who: &Credential,
        from: (ObjectId, &[u8]),
        to: (ObjectId, &[u8]),
    ) -> Result<Option<Unlinked>> {
        self.alive(|s| s.rename(who, from, to))
    }

    fn remove(&self, who: &Credential, directory: ObjectId, name: &[u8]) -> Result<Unlinked> {
        self.alive(|s| s.remove(who, directory, name))
    }

    fn rmdir(&self, who: &Credential, directory: ObjectId, name: &[u8]) -> Result<ObjectId> {
        self.alive(|s| s.rmdir(who, directory, name))
    }

    fn readdir(
        &self,
        who: &Credential,
        directory: ObjectId,
        range: ReaddirRange,
    ) -> Result<Listing> {
        self.alive(|s| s.readdir(who, directory, range))
    }

    fn statfs(&self, object: ObjectId) -> Result<Space> {
        self.alive(|s| s.statfs(object))
    }

    fn pathconf(&self, object: ObjectId) -> Result<FileSystemLimits> {
        self.alive(|s| s.pathconf(object))
    }

    fn number(&self) -> u64 {
        self.store.number()
    }

    fn find(&self, object: ObjectId) -> Result<()> {
        self.alive(|s| s.find(object))
    }

    fn watch(&self, object: ObjectId) -> bool {
        self.alive(|s| Ok(s.watch(object))).unwrap_or(false)
    }

    fn unwatch(&self, object: ObjectId) {
        let _ = self.alive(|s| {
            s.unwatch(object);
            Ok(())
        });
    }

    /// Takes no lock of the life, because it may wait for long and changes nothing.
    fn wait_events(&self, timeout: Duration) -> Vec<OutsideEvent> {
        let dead = *self.dead.read();
        if dead {
            clock::sleep(timeout.into());
            return Vec::new();
        }
        self.store.wait_events(timeout)
    }

    fn interrupt(&self) {
        self.store.interrupt();
    }
}

/// Without these answers all that the server does with them goes to its pool, and its polling threads are never tried.
#[test]
fn what_is_at_hand_is_so_while_it_lives() {
    odafs_fabric::sim::explore(1, 1, || {
        let store = Arc::new(MemoryStore::new(1));
        let (root, who) = (store.root(), Credential::of(0, 0, &[]));
        let life = Mortal::new(&store);
        let made = life.mkdir(&who, root, b"a", &SetAttributes::default());
        let made = made.expect("made").0;
        let seen = || {
            let found = life.lookup_at_hand(&who, root, b"a");
            let found = found.and_then(|found| found.ok());
            (life.is_at_hand(made), found.map(|(object, _)| object))
        };
        assert_eq!(seen(), (true, Some(made)));
        life.die();
        assert_eq!(seen(), (false, None));
    });
}
