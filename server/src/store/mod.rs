//! What holds the files.
//!
//! A [`Store`] names objects by [`ObjectId`], keeps their bytes and their attributes, and judges what a
//! [`Credential`] may do. It knows nothing of pages, references or wire formats. [`LocalStore`] serves a real
//! directory; [`MemoryStore`] holds everything in memory and can crash, fill up and fail on command; [`TarStore`] serves
//! what is in an archive; [`StoreTable`] shows several stores below one root.
//!
//! Every call may block, and none may be made from a NIC engine, but for [`Store::lookup_at_hand`], and
//! [`Store::is_at_hand`] and what it permits.

mod acl;
mod advancing;
mod before_sync;
mod by_hand;
mod create;
mod error;
pub mod ids;
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
use odafs_fabric::sync::Arc;

pub use acl::{ACL_ENTRIES_MAX, Acl, AclEntry, AclKind, AclTag};
pub(crate) use advancing::Advancing;
pub use before_sync::BeforeSync;
pub use create::{CreateHow, Created, Special};
pub use error::StoreError;
pub use local::{Among, LocalOptions, LocalStore};
pub use memory::{Meddler, MemoryStore, Operation, OutsideChange};
pub use permission::{attributes_permit, may_read, may_write};
pub use table::StoreTable;
pub use tar::TarStore;
pub use types::{
    Attributes, Device, Extent, FileType, Limits, SetAttributes, SetTime, Space, Status, Time,
    access,
};

/// An object (file, directory, link, device …) of one store.
///
/// The generation tells apart two objects that had one inode number after each other. What it is made of
/// depends on the file system: its own generation number where file handles show one, else the birth time
/// in nanoseconds, else 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ObjectId {
    /// Inode number; also the `fileid` that clients see.
    pub ino: u64,
    /// Which of the objects that bore this inode number. At most [`table::GENERATION_MAX`], so that the store can be one
    /// of several exports.
    pub generation: u64,
}

/// On whose behalf a call is made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Credential {
    /// User id.
    pub uid: u32,
    /// Primary group id.
    pub gid: u32,
    /// Supplementary groups.
    pub groups: Arc<[u32]>,
    /// The caller acts as the serving user, with all of its rights: ids are not switched and the kernel
    /// judges the serving process. `uid` and `gid` are then that user's.
    pub own: bool,
}

impl Credential {
    /// The serving user itself, with its groups.
    pub fn of_this_process() -> Self {
        let groups: Vec<u32> = rustix::process::getgroups()
            .unwrap_or_default()
            .into_iter()
            .map(|gid| gid.as_raw())
            .collect();
        Self {
            uid: rustix::process::geteuid().as_raw(),
            gid: rustix::process::getegid().as_raw(),
            groups: groups.into(),
            own: true,
        }
    }

    /// Someone else, by ids.
    pub fn of(uid: u32, gid: u32, groups: &[u32]) -> Self {
        Self {
            uid,
            gid,
            groups: groups.into(),
            own: false,
        }
    }

    /// Whether `gid` is the primary group or one of the others.
    pub fn is_member(&self, gid: u32) -> bool {
        self.gid == gid || self.groups.contains(&gid)
    }
}

/// What a store call gives back.
pub type Result<T> = std::result::Result<T, StoreError>;

/// Whether an extended attribute that is set has to be there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum XattrHow {
    /// Make or replace it.
    Either,
    /// Refuse with EXIST if it is.
    Create,
    /// Refuse with NOENT if it is not.
    Replace,
}

/// The part of a directory that [`Store::readdir`] shall list.
#[derive(Clone, Copy, Debug)]
pub struct ReaddirRange {
    /// Where to go on: 0, or the cookie of the last entry seen. 1 and 2 follow `.` and `..`.
    pub cookie: u64,
    /// The verifier that came with the cookie; ignored when the cookie is 0.
    pub verifier: [u8; 8],
    /// Most entries to return; at least 1.
    pub max_entries: usize,
    /// Fill in [`DirEntry::object`] (READDIRPLUS), which costs a lookup for each entry.
    pub plus: bool,
}

impl ReaddirRange {
    /// Cookies of a store never go stale, so that one verifier does for all time.
    const VERIFIER: [u8; 8] = [0; 8];

    /// BAD_COOKIE for what no store has given: positions in a directory are signed.
    fn check(&self) -> Result<()> {
        let ours = self.verifier == Self::VERIFIER && i64::try_from(self.cookie).is_ok();
        if self.cookie == 0 || ours {
            Ok(())
        } else {
            Err(Status::BadCookie.into())
        }
    }
}

/// One name in a directory.
#[derive(Clone, Debug)]
pub struct DirEntry {
    /// Inode number.
    pub fileid: u64,
    /// The name, 1 to 255 bytes.
    pub name: Vec<u8>,
    /// Where the entries after this one begin. Stable while the directory changes; never 0.
    pub cookie: u64,
    /// The object, when asked for and when the caller may look it up. Absent for what lies across a mount
    /// point, and for what vanished meanwhile.
    pub object: Option<(ObjectId, Attributes)>,
}

/// What [`Store::readdir`] found.
#[derive(Clone, Debug)]
pub struct Listing {
    /// Entries in cookie order, `.` and `..` first.
    pub entries: Vec<DirEntry>,
    /// Nothing follows the last entry.
    pub eof: bool,
    /// To be shown with every cookie of this listing.
    pub verifier: [u8; 8],
}

/// A name is gone, and what it stood for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Unlinked {
    /// The object that bore the name.
    pub object: ObjectId,
    /// It has no other name: it is gone.
    pub last: bool,
}

/// Something happened to a watched object. Changes made through the store itself are reported as well:
/// who made them tells them apart by the attributes recorded afterwards.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum OutsideEvent {
    /// A write to a file, or a change of its size, is over.
    Written(ObjectId),
    /// Attributes, ACL, entries or place changed, or who wrote to a file has closed it.
    Changed(ObjectId),
    /// The watch has ended: the last link went, or the file system.
    Removed(ObjectId),
    /// Events were lost: anything watched may have changed.
    Overflow,
}

/// Where the files are.
///
/// Names are single components: bytes other than `/` and NUL, at most 255 (else NAMETOOLONG, ACCES or
/// INVAL as RFC 1813 has it). `.` and `..` may be looked up (`..` of the root is the root), and are refused
/// elsewhere with EXIST, INVAL or NOTEMPTY. No symbolic link is ever followed, and nothing outside is ever reached.
///
/// What changes a directory is on stable storage before the call returns (RFC 1813 section 4.8); bytes and
/// attributes are after [`Store::sync`].
///
/// A store that takes no changes leaves out the methods that make them: each is refused with ROFS. The feature `suite` has
/// tests that tell whether a store does what it must.
pub trait Store: Send + Sync {
    /// The root directory.
    fn root(&self) -> ObjectId;

    /// Attributes. STALE if the object is gone. (Reading may move the access time.)
    fn getattr(&self, object: ObjectId) -> Result<Attributes>;

    /// Those bits of `mask` (the ACCESS3 bits of RFC 1813 section 3.3.4) that the caller has.
    fn access(&self, credential: &Credential, object: ObjectId, mask: u32) -> Result<u32> {
        let attributes = self.getattr(object)?;
        Ok(attributes_permit(&attributes, credential, mask))
    }

    /// Whether [`Store::getattr`] and [`Store::access`] of this object answer from memory just now: then threads
    /// that must not wait may call them too.
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

    /// As [`Store::lookup`], from memory. `None`: that takes waiting, or it is not known whether it would.
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

    /// Reads up to `data.len()` bytes of a regular file; fewer only at its end. The caller has checked
    /// the right to read.
    fn read_at(&self, object: ObjectId, offset: u64, data: &mut [u8]) -> Result<usize>;

    /// As [`Store::read_at`], from memory. False: that takes waiting, or the file ends before; `data` then holds anything.
    fn read_at_hand(&self, object: ObjectId, offset: u64, data: &mut [u8]) -> bool {
        let _ = (object, offset, data);
        false
    }

    /// Writes all of `data`, or fewer bytes (at least one) if the space ran out in between. Each byte is taken once. The
    /// owner may write whatever the mode says (RFC 1813 section 4.4). Without data, who may not write is still refused.
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

    /// Brings what was written and set to stable storage; with `data_only` not the times. After a failure
    /// earlier unstable writes may be lost: the write verifier must change.
    fn sync(&self, object: ObjectId, data_only: bool) -> Result<()> {
        let _ = data_only;
        self.find(object)
    }

    /// So much is written and not synced that whoever writes shall sync right away.
    fn wants_sync(&self) -> bool {
        false
    }

    /// Sets what is given; a sync is the caller's business. The attributes afterwards. NOTSUPP for the mode of a
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

    /// A regular file. What makes something gives it to the caller and its group: others' ids are for root to name, and
    /// are ignored where someone else names them, as Linux' server does.
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

    /// A directory.
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

    /// A symbolic link with that target (at most 4095 bytes, not empty).
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

    /// A pipe, socket or device.
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

    /// One more name for an object that is no directory. Its attributes afterwards.
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

    /// Moves a name. `Some` if another object had the new name before. Two names of one object stay as they are.
    fn rename(
        &self,
        credential: &Credential,
        from: (ObjectId, &[u8]),
        to: (ObjectId, &[u8]),
    ) -> Result<Option<Unlinked>> {
        let _ = (credential, from, to);
        Err(Status::RoFs.into())
    }

    /// Removes a name that is no directory's.
    fn remove(
        &self,
        credential: &Credential,
        directory: ObjectId,
        name: &[u8],
    ) -> Result<Unlinked> {
        let _ = (credential, directory, name);
        Err(Status::RoFs.into())
    }

    /// Removes an empty directory, and says which it was.
    fn rmdir(&self, credential: &Credential, directory: ObjectId, name: &[u8]) -> Result<ObjectId> {
        let _ = (credential, directory, name);
        Err(Status::RoFs.into())
    }

    /// Sets space aside for bytes of a file, so that writing them does not run out of it. The file reaches to
    /// the end of these bytes at least afterwards, and reads as before, with zeros behind.
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

    /// Makes bytes of a file zeros, and frees their space as far as the store can. The file keeps its size, so that nothing
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

    /// Where the first data, or the first hole, of a regular file begin at `offset` or behind it. At its end each file has a
    /// hole. `None`: no data follow. NXIO where `offset` is not within the file. A store may take holes for data.
    fn seek(&self, object: ObjectId, offset: u64, what: Extent) -> Result<Option<u64>> {
        let size = self.getattr(object)?.size;
        match what {
            _ if offset >= size => Err(Status::Nxio.into()),
            Extent::Data => Ok(Some(offset)),
            Extent::Hole => Ok(Some(size)),
        }
    }

    /// Copies at most `count` bytes between two regular files, and says how many: fewer where the source ends, where space
    /// runs out, or where it takes long; none only where the source ends. The caller has checked the right to read.
    /// `from` and `to` tell the files and the first bytes. What happens where the bytes overlap is not said.
    fn copy(
        &self,
        credential: &Credential,
        from: (ObjectId, u64),
        to: (ObjectId, u64),
        count: u64,
    ) -> Result<u64> {
        by_hand::copy(self, credential, from, to, count)
    }

    /// What offsets and lengths of [`Store::clone_range`] are multiples of, in bytes, on the object's file system. `None`: there
    /// is no cloning.
    fn clone_block_bytes(&self, object: ObjectId) -> Option<u32> {
        let _ = object;
        None
    }

    /// Makes `count` bytes of a regular file, at least one, those of another or of other bytes of the same: all of them, or
    /// none. INVAL unless they lie in blocks of [`Store::clone_block_bytes`]. Only where the source ends a block may be cut,
    /// and then the target must end there too. The caller has checked the right to read, and that the source is so long.
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

    /// Whether objects have extended attributes. A store that says so has the methods below.
    fn has_xattrs(&self) -> bool {
        false
    }

    /// The value of an extended attribute, at most 64 KiB. NOENT if it is not there.
    fn xattr(&self, credential: &Credential, object: ObjectId, name: &[u8]) -> Result<Vec<u8>> {
        let _ = (credential, object, name);
        Err(Status::NotSupp.into())
    }

    /// The names of an object's extended attributes, in the same order as long as they are the same.
    fn xattrs(&self, credential: &Credential, object: ObjectId) -> Result<Vec<Vec<u8>>> {
        let _ = (credential, object);
        Err(Status::NotSupp.into())
    }

    /// Sets an extended attribute. FBIG for a value that is too long, NAMETOOLONG for such a name.
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

    /// Removes an extended attribute. NOENT if it is not there.
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

    /// Lists a directory. A directory that does not change is listed completely and each name once; one
    /// that does, apart from the names that came or went meanwhile. BAD_COOKIE for a cookie or a verifier that is not
    /// ours.
    fn readdir(
        &self,
        credential: &Credential,
        directory: ObjectId,
        range: ReaddirRange,
    ) -> Result<Listing>;

    /// Space and inodes.
    fn statfs(&self, object: ObjectId) -> Result<Space>;

    /// Limits.
    fn pathconf(&self, object: ObjectId) -> Result<Limits>;

    /// The number of what is stored, the same after a restart. Handles tell it: those of a store with another number are
    /// none of this one's.
    fn number(&self) -> u64;

    /// The number by which the directory above lists the root of a file system within this store; `None` for any other
    /// object (RFC 8881, section 5.8.2.23).
    fn mounted_on(&self, object: ObjectId) -> Option<u64> {
        let _ = object;
        None
    }

    /// STALE unless the object is there. The server asks about each object that a client names by a handle from before: this
    /// store, or an earlier one with the same number, has named it once. Whether it still exists may only show in the next
    /// call.
    fn find(&self, object: ObjectId) -> Result<()> {
        self.getattr(object).map(drop)
    }

    /// Asks for events about an object; false if that is not to be had (limits, kind of file system).
    /// Asking again is harmless.
    fn watch(&self, object: ObjectId) -> bool;

    /// Ends a watch. Events under way may still come.
    fn unwatch(&self, object: ObjectId);

    /// Waits for events, at most `timeout`; returns early and empty after [`Store::interrupt`].
    /// For one thread at a time.
    fn wait_events(&self, timeout: Duration) -> Vec<OutsideEvent>;

    /// Makes the current, or else the next, [`Store::wait_events`] return at once.
    fn interrupt(&self);
}

/// The mode of a new object when the caller names none.
pub(crate) fn default_mode(kind: FileType) -> u32 {
    match kind {
        FileType::Directory => 0o755,
        FileType::Symlink => 0o777,
        _ => 0o644,
    }
}
