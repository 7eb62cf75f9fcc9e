//! A store that runs a function, such as a wait, before each sync. It is for tests and benches.

use std::time::Duration;

use odafs_fabric::memory::Gather;
use odafs_fabric::sync::Arc;

use super::{
    CreateHow, Created, Credential, FileSystemLimits, Listing, ObjectId, OutsideEvent,
    ReaddirRange, Result, Space, Special, Store, Unlinked,
};
use crate::store::{Acl, AclKind, Attributes, Extent, SetAttributes, Time, XattrHow};

/// Another store, and a function that runs before each of its syncs: [`Store::sync`], and each change of a directory.
pub struct BeforeSync {
    store: Arc<dyn Store>,
    act: Box<dyn Fn(ObjectId) + Send + Sync>,
}

impl BeforeSync {
    /// `act` gets the object that is about to be synced.
    pub fn new(store: Arc<dyn Store>, act: impl Fn(ObjectId) + Send + Sync + 'static) -> Self {
        let act = Box::new(act);
        Self { store, act }
    }
}

/// Forwards calls. Before a call that `syncs` an object, it runs the function for that object.
macro_rules! forward {
    ($($name:ident($($arg:ident: $kind:ty),*) -> $result:ty $(, syncs $directory:expr)?;)*) => {
        impl Store for BeforeSync {
            $(fn $name(&self, $($arg: $kind),*) -> $result {
                $((self.act)($directory);)?
                self.store.$name($($arg),*)
            })*
        }
    };
}

type Found = (ObjectId, Attributes);

forward! {
    root() -> ObjectId;
    getattr(object: ObjectId) -> Result<Attributes>;
    has_birth_times() -> bool;
    birth_time(object: ObjectId) -> Result<Option<Time>>;
    may_share_storage() -> bool;
    access(who: &Credential, object: ObjectId, mask: u32) -> Result<u32>;
    is_at_hand(object: ObjectId) -> bool;
    mode_decides(object: ObjectId) -> Result<bool>;
    has_acls() -> bool;
    acl(object: ObjectId, kind: AclKind) -> Result<Option<Acl>>;
    set_acl(who: &Credential, object: ObjectId, kind: AclKind, list: Option<&Acl>) -> Result<()>;
    lookup(who: &Credential, directory: ObjectId, name: &[u8]) -> Result<Found>;
    lookup_at_hand(who: &Credential, directory: ObjectId, name: &[u8]) -> Option<Result<Found>>;
    readlink(object: ObjectId) -> Result<Vec<u8>>;
    read_at(object: ObjectId, offset: u64, data: &mut [u8]) -> Result<usize>;
    read_at_hand(object: ObjectId, offset: u64, data: &mut [u8]) -> bool;
    write_from(who: &Credential, object: ObjectId, offset: u64, data: &Gather<'_>) -> Result<usize>;
    sync(object: ObjectId, data_only: bool) -> Result<()>, syncs object;
    wants_sync(object: ObjectId) -> bool;
    has_xattrs() -> bool;
    xattr(who: &Credential, object: ObjectId, name: &[u8]) -> Result<Vec<u8>>;
    xattrs(who: &Credential, object: ObjectId) -> Result<Vec<Vec<u8>>>;
    set_xattr(who: &Credential, object: ObjectId, name: &[u8], value: &[u8], how: XattrHow) -> Result<()>;
    remove_xattr(who: &Credential, object: ObjectId, name: &[u8]) -> Result<()>;
    tags() -> Vec<(String, u16)>;
    is_shown(object: ObjectId, shown: &dyn Fn(u16) -> bool) -> bool;
    readdir_shown(who: &Credential, directory: ObjectId, range: ReaddirRange, shown: &dyn Fn(u16) -> bool) -> Result<Listing>;
    copy(who: &Credential, from: (ObjectId, u64), to: (ObjectId, u64), count: u64) -> Result<u64>;
    clone_block_bytes(object: ObjectId) -> Option<u32>;
    clone_range(who: &Credential, from: (ObjectId, u64), to: (ObjectId, u64), count: u64) -> Result<()>;
    seek(object: ObjectId, offset: u64, what: Extent) -> Result<Option<u64>>;
    allocate(who: &Credential, object: ObjectId, offset: u64, length: u64) -> Result<()>;
    deallocate(who: &Credential, object: ObjectId, offset: u64, length: u64) -> Result<()>;
    setattr(who: &Credential, object: ObjectId, new: &SetAttributes) -> Result<Attributes>;
    create(who: &Credential, directory: ObjectId, name: &[u8], how: CreateHow<'_>) -> Result<Created>, syncs directory;
    mkdir(who: &Credential, directory: ObjectId, name: &[u8], new: &SetAttributes) -> Result<Found>, syncs directory;
    symlink(who: &Credential, directory: ObjectId, name: &[u8], target: &[u8], new: &SetAttributes) -> Result<Found>, syncs directory;
    mknod(who: &Credential, directory: ObjectId, name: &[u8], what: Special, new: &SetAttributes) -> Result<Found>, syncs directory;
    link(who: &Credential, object: ObjectId, directory: ObjectId, name: &[u8]) -> Result<Attributes>, syncs directory;
    rename(who: &Credential, from: (ObjectId, &[u8]), to: (ObjectId, &[u8])) -> Result<Option<Unlinked>>, syncs to.0;
    remove(who: &Credential, directory: ObjectId, name: &[u8]) -> Result<Unlinked>, syncs directory;
    rmdir(who: &Credential, directory: ObjectId, name: &[u8]) -> Result<ObjectId>, syncs directory;
    readdir(who: &Credential, directory: ObjectId, range: ReaddirRange) -> Result<Listing>;
    statfs(object: ObjectId) -> Result<Space>;
    pathconf(object: ObjectId) -> Result<FileSystemLimits>;
    number() -> u64;
    find(object: ObjectId) -> Result<()>;
    watch(object: ObjectId) -> bool;
    unwatch(object: ObjectId) -> ();
    wait_events(timeout: Duration) -> Vec<OutsideEvent>;
    interrupt() -> ();
}
