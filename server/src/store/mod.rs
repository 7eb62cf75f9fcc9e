//! The stores, which hold the files.
//!
//! A [`Store`] names objects by [`ObjectId`], keeps their bytes and attributes, and decides what a [`Credential`] may do.
//! It knows nothing of pages, references or wire formats. [`LocalStore`] serves a directory of this machine.
//! [`MemoryStore`] holds everything in memory, and can crash, fill up and fail on command. [`TarStore`] serves the files
//! in an archive. [`StoreTable`] shows several stores below one root.
//!
//! Every method may block, so no engine may call it. The exceptions are [`Store::lookup_at_hand`], [`Store::read_at_hand`],
//! and [`Store::is_at_hand`] and [`Store::is_write_at_hand`] with the methods that they permit.

mod acl;
mod advancing;
mod before_sync;
mod by_hand;
mod create;
mod credential;
mod error;
pub(crate) mod hex;
pub mod ids;
mod listing;
mod names;
pub(crate) mod pace;
mod permission;
pub mod state;
mod types;

pub mod local;
pub mod memory;
pub mod table;
pub mod tar;

#[cfg(any(test, feature = "suite"))]
pub mod suite;

use std::time::Duration;

use odafs_fabric::memory::Gather;

pub use acl::{ACL_ENTRIES_MAX, Acl, AclEntry, AclKind, AclTag};
pub(crate) use advancing::Advancing;
pub use before_sync::BeforeSync;
pub use create::{CreateHow, Created, Special};
pub use credential::Credential;
pub use error::StoreError;
pub use listing::{DirEntry, Listing, ReaddirRange};
pub use local::{Among, LocalOptions, LocalStore};
pub use memory::{Meddler, MemoryStore, Operation, OutsideChange};
pub(crate) use permission::check_sticky;
pub use permission::{attributes_permit, may_read, may_write};
pub use table::StoreTable;
pub use tar::TarStore;
pub use types::{
    Attributes, Device, Extent, FileSystemLimits, FileType, SetAttributes, SetTime, Space, Status,
    Time, access,
};

/// An object of one store: a file, a directory, a link, a device and so on.
///
/// The generation distinguishes objects that have had the same inode number one after the other. It is the file system's
/// own generation number where file handles show one, else the birth time in nanoseconds, else 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ObjectId {
    /// Inode number, which clients see as `fileid`.
    pub ino: u64,
    /// Which of the objects with this inode number it is. At most [`table::GENERATION_MAX`], so that the store can be one
    /// of several exports.
    pub generation: u64,
}

/// The result of a method of a store.
pub type Result<T> = std::result::Result<T, StoreError>;

/// Whether an extended attribute must exist before it is set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum XattrHow {
    /// It may exist or not.
    Either,
    /// Refuse with EXIST if it exists.
    Create,
    /// Refuse with NOENT if it does not exist.
    Replace,
}

/// The object of a name that was removed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Unlinked {
    /// The object that had the name.
    pub object: ObjectId,
    /// Whether it has no other name, so that it is gone.
    pub last: bool,
}

/// Something that happened to a watched object. Changes made through the store are reported as well. Whoever made them
/// recognizes them by the attributes recorded afterwards.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum OutsideEvent {
    /// A write to a file or a change of its size has ended.
    Written(ObjectId),
    /// Attributes, ACL, entries or place have changed, or a writer has closed the file.
    Changed(ObjectId),
    /// The watch has ended, because the last link or the file system has gone.
    Removed(ObjectId),
    /// Events were lost, so any watched object may have changed.
    Overflow,
}

/// What holds the files.
///
/// Names are single components of at most 255 bytes, without `/` and NUL. Others are refused with NAMETOOLONG, ACCES or
/// INVAL (RFC 1813). `.` and `..` may be looked up (`..` of the root is the root). Elsewhere they are refused with EXIST,
/// INVAL or NOTEMPTY. A store never follows a symbolic link, and reaches nothing outside of itself.
///
/// A change of a directory is on stable storage before the call returns (RFC 1813, section 4.8). Bytes and attributes are
/// after [`Store::sync`].
///
/// A read-only store leaves out the methods that change something, each of which then refuses with ROFS. The feature
/// `suite` has tests that show whether a store meets this contract.
pub trait Store: Send + Sync {
    /// The root directory.
    fn root(&self) -> ObjectId;

    /// Attributes. STALE if the object is gone. (Reading may move the access time.)
    fn getattr(&self, object: ObjectId) -> Result<Attributes>;

    /// Whether the store knows when its objects were made.
    fn has_birth_times(&self) -> bool {
        false
    }

    /// When the object was made, which never changes. `None` if the store does not know.
    fn birth_time(&self, object: ObjectId) -> Result<Option<Time>> {
        let _ = object;
        Ok(None)
    }

    /// Whether files may have storage in common. [`Attributes::used`] then does not tell how much is freed if one of them
    /// is removed.
    fn may_share_storage(&self) -> bool {
        true
    }

    /// Those bits of `mask` (the ACCESS3 bits of RFC 1813 section 3.3.4) that the caller has.
    fn access(&self, credential: &Credential, object: ObjectId, mask: u32) -> Result<u32> {
        let attributes = self.getattr(object)?;
        Ok(attributes_permit(&attributes, credential, mask))
    }

    /// Whether [`Store::getattr`], [`Store::birth_time`], [`Store::access`], [`Store::statfs`] and [`Store::pathconf`] of
    /// this object answer from memory just now, so that threads that must not wait may call them.
    fn is_at_hand(&self, object: ObjectId) -> bool {
        let _ = object;
        false
    }

    /// Whether owner, group and mode tell all of who may read and write the object, so that
    /// [`attributes_permit`] may be used in place of [`Store::access`]. False for objects with an ACL: the
    /// mode's group bits are then the ACL's mask. (What hands out references by reader class must not do
    /// so for such objects.)
    fn mode_decides(&self, object: ObjectId) -> Result<bool> {
        let _ = object;
        Ok(true)
    }

    /// The object of that name.
    fn lookup(
        &self,
        credential: &Credential,
        directory: ObjectId,
        name: &[u8],
    ) -> Result<(ObjectId, Attributes)>;

    /// As [`Store::lookup`], from memory. `None` if it would or might have to wait.
    fn lookup_at_hand(
        &self,
        credential: &Credential,
        directory: ObjectId,
        name: &[u8],
    ) -> Option<Result<(ObjectId, Attributes)>> {
        let _ = (credential, directory, name);
        None
    }

    /// The target of a symbolic link, uninterpreted. INVAL for anything else.
    fn readlink(&self, object: ObjectId) -> Result<Vec<u8>>;

    /// Reads `data.len()` bytes of a regular file, and fewer only at its end. The caller has checked the right to read.
    fn read_at(&self, object: ObjectId, offset: u64, data: &mut [u8]) -> Result<usize>;

    /// As [`Store::read_at`], from memory. False if it would have to wait, or if the file ends earlier. `data` may then
    /// hold anything.
    fn read_at_hand(&self, object: ObjectId, offset: u64, data: &mut [u8]) -> bool {
        let _ = (object, offset, data);
        false
    }

    /// Writes all of `data`, or fewer bytes (at least one) if space runs out. It takes each byte once. The owner may write
    /// whatever the mode says (RFC 1813, section 4.4). Without data it still checks the right to write.
    fn write_from(
        &self,
        credential: &Credential,
        object: ObjectId,
        offset: u64,
        data: &Gather<'_>,
    ) -> Result<usize> {
        let _ = (credential, object, offset, data);
        Err(Status::RoFs.into())
    }

    /// Whether [`Store::getattr`] and [`Store::sync`] of the object and [`Store::write_from`] by this caller wait for nothing
    /// just now, so that threads that must not wait may call them for a few pages: everything is in memory, nothing has to
    /// be opened, and no sync fails.
    fn is_write_at_hand(&self, credential: &Credential, object: ObjectId) -> bool {
        let _ = (credential, object);
        false
    }

    /// As [`Store::write_from`].
    fn write_at(
        &self,
        credential: &Credential,
        object: ObjectId,
        offset: u64,
        data: &[u8],
    ) -> Result<usize> {
        self.write_from(credential, object, offset, &data.into())
    }

    /// Brings written bytes and set attributes to stable storage, with `data_only` not the times. After a failure, earlier
    /// unstable writes may be lost, so the write verifier must change.
    fn sync(&self, object: ObjectId, data_only: bool) -> Result<()> {
        let _ = data_only;
        self.find(object)
    }

    /// Whether so much is written and not synced that a writer to this object is to sync at once.
    fn wants_sync(&self, object: ObjectId) -> bool {
        let _ = object;
        false
    }

    /// Sets the given attributes, and returns the attributes afterwards. The caller syncs. NOTSUPP for the mode of a
    /// symbolic link.
    fn setattr(
        &self,
        credential: &Credential,
        object: ObjectId,
        new: &SetAttributes,
    ) -> Result<Attributes> {
        let _ = (credential, object, new);
        Err(Status::RoFs.into())
    }

    /// Makes a regular file. A new object of any kind belongs to the caller and its group. Only root can name other ids;
    /// those that others name are ignored, as by Linux' server.
    fn create(
        &self,
        credential: &Credential,
        directory: ObjectId,
        name: &[u8],
        how: CreateHow<'_>,
    ) -> Result<Created> {
        let _ = (credential, directory, name, how);
        Err(Status::RoFs.into())
    }

    /// Makes a directory.
    fn mkdir(
        &self,
        credential: &Credential,
        directory: ObjectId,
        name: &[u8],
        new: &SetAttributes,
    ) -> Result<(ObjectId, Attributes)> {
        let _ = (credential, directory, name, new);
        Err(Status::RoFs.into())
    }

    /// Makes a symbolic link with that target, of 1 to 4095 bytes.
    fn symlink(
        &self,
        credential: &Credential,
        directory: ObjectId,
        name: &[u8],
        target: &[u8],
        new: &SetAttributes,
    ) -> Result<(ObjectId, Attributes)> {
        let _ = (credential, directory, name, target, new);
        Err(Status::RoFs.into())
    }

    /// Makes a pipe, a socket or a device.
    fn mknod(
        &self,
        credential: &Credential,
        directory: ObjectId,
        name: &[u8],
        what: Special,
        new: &SetAttributes,
    ) -> Result<(ObjectId, Attributes)> {
        let _ = (credential, directory, name, what, new);
        Err(Status::RoFs.into())
    }

    /// Gives an object that is no directory another name. Returns its attributes afterwards.
    fn link(
        &self,
        credential: &Credential,
        object: ObjectId,
        directory: ObjectId,
        name: &[u8],
    ) -> Result<Attributes> {
        let _ = (credential, object, directory, name);
        Err(Status::RoFs.into())
    }

    /// Moves a name. `Some` if another object had the new name before. If both names are of one object, nothing happens.
    fn rename(
        &self,
        credential: &Credential,
        from: (ObjectId, &[u8]),
        to: (ObjectId, &[u8]),
    ) -> Result<Option<Unlinked>> {
        let _ = (credential, from, to);
        Err(Status::RoFs.into())
    }

    /// Removes a name of an object that is no directory.
    fn remove(
        &self,
        credential: &Credential,
        directory: ObjectId,
        name: &[u8],
    ) -> Result<Unlinked> {
        let _ = (credential, directory, name);
        Err(Status::RoFs.into())
    }

    /// Removes an empty directory, and returns which it was.
    fn rmdir(&self, credential: &Credential, directory: ObjectId, name: &[u8]) -> Result<ObjectId> {
        let _ = (credential, directory, name);
        Err(Status::RoFs.into())
    }

    /// Reserves space for bytes of a file, so that writing them cannot run out of space. The file then reaches at least
    /// to the end of these bytes. It reads as before, with zeros behind its old end.
    fn allocate(
        &self,
        credential: &Credential,
        object: ObjectId,
        offset: u64,
        length: u64,
    ) -> Result<()> {
        let _ = (credential, object, offset, length);
        Err(Status::NotSupp.into())
    }

    /// Sets bytes of a file to zero, and frees their space as far as the store can. The file keeps its size, so nothing
    /// happens behind its end.
    fn deallocate(
        &self,
        credential: &Credential,
        object: ObjectId,
        offset: u64,
        length: u64,
    ) -> Result<()> {
        let _ = (credential, object, offset, length);
        Err(Status::NotSupp.into())
    }

    /// The first byte at or behind `offset` that is data, or the first that is in a hole. Each file has a hole at its end.
    /// `None` if no data follows. NXIO if `offset` is not within the file. A store may report holes as data.
    fn seek(&self, object: ObjectId, offset: u64, what: Extent) -> Result<Option<u64>> {
        let size = self.getattr(object)?.size;
        match what {
            _ if offset >= size => Err(Status::Nxio.into()),
            Extent::Data => Ok(Some(offset)),
            Extent::Hole => Ok(Some(size)),
        }
    }

    /// Copies at most `count` bytes between two regular files, and returns how many. It copies fewer if the source ends, if
    /// space runs out, or if it takes long, and none only if the source ends. `from` and `to` are the files and the first
    /// bytes. The caller has checked the right to read. The result is undefined where the bytes overlap.
    fn copy(
        &self,
        credential: &Credential,
        from: (ObjectId, u64),
        to: (ObjectId, u64),
        count: u64,
    ) -> Result<u64> {
        by_hand::copy(self, credential, from, to, count)
    }

    /// The size of a block in bytes on the object's file system. Offsets and lengths of [`Store::clone_range`] are
    /// multiples of it. `None` if the file system cannot clone.
    fn clone_block_bytes(&self, object: ObjectId) -> Option<u32> {
        let _ = object;
        None
    }

    /// Makes `count` bytes of a regular file (at least one) share the blocks of another file, or of other bytes of the
    /// same. It clones all of them or none. INVAL unless they consist of whole blocks of [`Store::clone_block_bytes`].
    /// The last block may be shorter if the source ends there, and then the target must end there too. The caller has
    /// checked the right to read, and that the source is long enough.
    fn clone_range(
        &self,
        credential: &Credential,
        from: (ObjectId, u64),
        to: (ObjectId, u64),
        count: u64,
    ) -> Result<()> {
        let _ = (credential, from, to, count);
        Err(Status::NotSupp.into())
    }

    /// Whether objects have extended attributes. If so, the store implements the four methods below.
    fn has_xattrs(&self) -> bool {
        false
    }

    /// The value of an extended attribute, of at most 64 KiB. NOENT if there is no such attribute.
    fn xattr(&self, credential: &Credential, object: ObjectId, name: &[u8]) -> Result<Vec<u8>> {
        let _ = (credential, object, name);
        Err(Status::NotSupp.into())
    }

    /// The names of an object's extended attributes. Their order stays the same while they do.
    fn xattrs(&self, credential: &Credential, object: ObjectId) -> Result<Vec<Vec<u8>>> {
        let _ = (credential, object);
        Err(Status::NotSupp.into())
    }

    /// Sets an extended attribute. FBIG if the value is too long, NAMETOOLONG if the name is.
    fn set_xattr(
        &self,
        credential: &Credential,
        object: ObjectId,
        name: &[u8],
        value: &[u8],
        how: XattrHow,
    ) -> Result<()> {
        let _ = (credential, object, name, value, how);
        Err(Status::NotSupp.into())
    }

    /// Removes an extended attribute. NOENT if there is no such attribute.
    fn remove_xattr(&self, credential: &Credential, object: ObjectId, name: &[u8]) -> Result<()> {
        let _ = (credential, object, name);
        Err(Status::NotSupp.into())
    }

    /// Whether objects have access control lists. A store that says so has the methods below, lists count in all that it
    /// judges, and what is made in a directory inherits its default list.
    fn has_acls(&self) -> bool {
        false
    }

    /// A list of an object. `None` where it has none: owner, group and mode then tell all, or nothing is inherited.
    fn acl(&self, object: ObjectId, kind: AclKind) -> Result<Option<Acl>> {
        let _ = (object, kind);
        Err(Status::NotSupp.into())
    }

    /// Sets or removes a list, which is for the owner to do (PERM). An access list sets the permission bits of the mode; if
    /// it is removed, they stay. ACCESS for the default list of what is no directory, NOTSUPP for symbolic links.
    fn set_acl(
        &self,
        credential: &Credential,
        object: ObjectId,
        kind: AclKind,
        list: Option<&Acl>,
    ) -> Result<()> {
        let _ = (credential, object, kind, list);
        Err(Status::NotSupp.into())
    }

    /// Lists a directory. Each name of an unchanging directory appears exactly once. If the directory changes meanwhile,
    /// this still holds for the names that neither came nor went. BAD_COOKIE for a cookie or a verifier that the store
    /// never gave.
    fn readdir(
        &self,
        credential: &Credential,
        directory: ObjectId,
        range: ReaddirRange,
    ) -> Result<Listing>;

    /// As [`Store::readdir`]. Of a table's own directories it leaves out the exports for whose tags `shown` is false, and
    /// the directories that lead to no others.
    fn readdir_shown(
        &self,
        credential: &Credential,
        directory: ObjectId,
        range: ReaddirRange,
        shown: &dyn Fn(u16) -> bool,
    ) -> Result<Listing> {
        let _ = shown;
        self.readdir(credential, directory, range)
    }

    /// Whether [`Store::readdir_shown`] would list the object in a table's own directory.
    fn is_shown(&self, object: ObjectId, shown: &dyn Fn(u16) -> bool) -> bool {
        let _ = (object, shown);
        true
    }

    /// The names and tags of the exports of a table, and nothing in any other store. The tag of an object's export is in
    /// the upper 16 bits of its generation.
    fn tags(&self) -> Vec<(String, u16)> {
        Vec::new()
    }

    /// The space and inodes of the object's file system.
    fn statfs(&self, object: ObjectId) -> Result<Space>;

    /// The limits of the object's file system.
    fn pathconf(&self, object: ObjectId) -> Result<FileSystemLimits>;

    /// A number that identifies the stored files and stays the same after a restart. File handles contain it, so those of a
    /// store with another number are invalid here.
    fn number(&self) -> u64;

    /// The number under which the directory above lists the root of a file system within this store (RFC 8881, section
    /// 5.8.2.23). `None` for any other object.
    fn mounted_on(&self, object: ObjectId) -> Option<u64> {
        let _ = object;
        None
    }

    /// STALE unless the object exists. The server calls this for each object that a client names by an old file handle,
    /// which this store, or an earlier one with the same number, has once issued. Whether the object still exists may
    /// also show only in the next call.
    fn find(&self, object: ObjectId) -> Result<()> {
        self.getattr(object).map(drop)
    }

    /// Asks for events about an object. False if it cannot be watched, because of a limit or the kind of file system.
    /// Asking again is harmless.
    fn watch(&self, object: ObjectId) -> bool;

    /// Ends a watch. Events that are under way may still arrive.
    fn unwatch(&self, object: ObjectId);

    /// Waits for events for at most `timeout`. After [`Store::interrupt`] it returns early and empty. Only one thread may
    /// wait at a time.
    fn wait_events(&self, timeout: Duration) -> Vec<OutsideEvent>;

    /// Makes the current [`Store::wait_events`] return at once, or else the next one.
    fn interrupt(&self);
}

/// The mode of a new object if the caller names none.
pub(crate) fn default_mode(kind: FileType) -> u32 {
    match kind {
        FileType::Directory => 0o755,
        FileType::Symlink => 0o777,
        _ => 0o644,
    }
}
