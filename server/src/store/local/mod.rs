//! A store that serves a directory of this machine.
//!
//! **Reach.** The store resolves every name as one component with openat2(2), beneath the directory. It follows no symbolic
//! link and crosses no mount point. It refuses a directory that was moved out of the export (its objects are STALE; see
//! `local/within.rs`). Mount points inside of the export, and other subvolumes, are listed by name and refused with ACCES,
//! because their inode numbers could be confused with the export's. A *file* that others move out of the export stays
//! within reach of those who hold its file handle, as long as it exists.
//!
//! **Types.** The store opens an object as a path first and checks its type. It opens only regular files and directories
//! for more, and never a pipe, socket or device.
//!
//! **Descriptors.** All stores together keep at most half of the process's limit on open files, which they raise as far as
//! possible. A file stays open for writing until it is synced, and one that nobody may execute a moment longer; until then this
//! machine cannot execute it. When many files have unsynced bytes, the store syncs those written longest ago without being
//! asked.
//!
//! **Rights.** See `local/identity.rs`. The server reads with its own rights, after it has judged the caller. It writes
//! with those of the caller.
//!
//! **Outside changes.** See `local/watch.rs`.

mod acls;
mod attributes;
mod copies;
mod data;
mod descriptors;
mod entries;
mod identity;
mod index;
mod lingering;
mod listing;
mod objects;
pub mod sandbox;
mod scheme;
mod space;
mod sys;
mod unsynced;
mod watch;
pub(crate) mod within;
mod xattrs;

#[cfg(test)]
pub(crate) mod counted;
#[cfg(test)]
mod model;
#[cfg(test)]
mod tests;

use std::io;
use std::os::fd::{AsFd as _, OwnedFd};
use std::path::Path;
use std::time::Duration;

use odafs_fabric::memory::Gather;
use odafs_fabric::sync::Arc;
use rustix::fs::{CWD, Mode, OFlags, openat};
use sha2::{Digest as _, Sha256};

use super::{
    CreateHow, Created, Credential, FileSystemLimits, Listing, ObjectId, OutsideEvent,
    ReaddirRange, Result, Space, Special, Store, Unlinked,
};
use crate::store::state::StateDir;
use crate::store::{
    Acl, AclKind, Attributes, Extent, FileType, SetAttributes, Status, Time, XattrHow,
};
use descriptors::{Descriptor, Descriptors, Use};
use identity::Identity;
use index::Index;
use scheme::Scheme;
use watch::{Raw, Watches};

/// Options of a directory store.
#[derive(Clone, Copy, Debug, Default)]
pub struct LocalOptions {
    /// Refuse every change with ROFS.
    pub read_only: bool,
    /// Set if the store is one of several in this process.
    pub among: Option<Among>,
}

/// What distinguishes one store of several.
#[derive(Clone, Copy, Debug)]
pub struct Among {
    /// Distinguishes its files in the state directory from those of the other stores.
    pub tag: u16,
    /// The number of stores that share the process's limit on open files.
    pub stores: usize,
}

/// How the store finds an object by its [`ObjectId`].
enum Finding {
    /// The file system opens it by file handle, which needs CAP_DAC_READ_SEARCH.
    ByHandle(Scheme),
    /// By the names under which it was last seen.
    ByName(Index),
}

/// Serves a directory of this machine.
pub struct LocalStore {
    root: ObjectId,
    root_fd: Arc<Descriptor>,
    /// The root, open for reading, for calls that concern its whole file system.
    whole: OwnedFd,
    /// [`descriptors::OPEN_FILES`], open as a path, so that the kernel need not find it for each look.
    open_files: OwnedFd,
    device: u64,
    /// Where the root is mounted. `None` if the file system has no handles.
    mount: Option<sys::Mount>,
    /// A number that distinguishes file handles and `fsid` of this directory from others, and is the same after a restart.
    number: u64,
    /// Inode numbers of directories that must not be shown: those of the server's state.
    private: Vec<u64>,
    identity: Identity,
    /// How to read generations. `None` if birth times serve instead.
    scheme: Option<Scheme>,
    finding: Finding,
    descriptors: Descriptors,
    watches: Watches,
    /// Those of the file system, which `whole` keeps mounted. Mounting it anew with other options changes none of them.
    limits: FileSystemLimits,
    /// The block size of clones in bytes. `None` if the file system cannot clone.
    clone_block: Option<u32>,
    /// Whether the attributes of an open object are in memory, because no network lies behind the file system.
    in_memory: bool,
    /// Whether bytes are in memory too, so that no write and no sync waits for a device.
    has_no_device: bool,
    /// Whether inotify reports each change.
    reports_all: bool,
    /// The file system has access control lists.
    has_acls: bool,
    /// The file system keeps when its inodes were made.
    has_birth_times: bool,
    /// Files may share blocks.
    may_share_storage: bool,
}

impl LocalStore {
    /// Serves `directory`. Needs /proc, and Linux 5.8 or later. Raises the process's limit on open files.
    pub fn open(directory: &Path, state: &StateDir, options: LocalOptions) -> io::Result<Self> {
        Self::open_with(directory, state, options, true)
    }

    fn open_with(
        directory: &Path,
        state: &StateDir,
        options: LocalOptions,
        by_handle: bool,
    ) -> io::Result<Self> {
        let explain = |what: &str, error: io::Error| {
            io::Error::new(
                error.kind(),
                format!("{what} {}: {error}", directory.display()),
            )
        };
        sandbox::check_openat2().map_err(|error| explain("cannot look up names in", error))?;
        let flags = OFlags::DIRECTORY | OFlags::CLOEXEC;
        let whole = openat(CWD, directory, flags | OFlags::RDONLY, Mode::empty())
            .map_err(|errno| explain("cannot open the directory", errno.into()))?;
        let by_proc = |path: &str| {
            openat(CWD, path, flags | OFlags::PATH, Mode::empty())
                .map_err(|errno| explain("is /proc mounted? Cannot open by it", errno.into()))
        };
        let path = by_proc(&descriptors::magic_path(whole.as_fd()))?;
        let open_files = by_proc(descriptors::OPEN_FILES)?;
        let stat = rustix::fs::fstat(&path)?;
        let (ino, device) = (stat.st_ino, stat.st_dev);
        let known = sys::handle_and_mount(path.as_fd()).ok();
        let (known, mount) = known.unzip();
        let scheme = known.as_ref().and_then(|handle| Scheme::find(handle, ino));
        let generation = objects::generation(path.as_fd(), scheme, ino)
            .map_err(|refused| io::Error::from_raw_os_error(refused.errno))?;
        let root = ObjectId { ino, generation };
        let number = number_of(root);
        let opens = |scheme: &Scheme| {
            let handle = scheme.handle(root);
            sys::open_by_handle(whole.as_fd(), handle.kind, &handle.bytes, OFlags::PATH).is_ok()
        };
        let index = match options.among {
            None => state.handle_index_file(),
            Some(among) => state.handle_index_file_of(among.tag),
        };
        let stores = options.among.map_or(1, |among| among.stores);
        let finding = match scheme.filter(opens) {
            Some(scheme) if by_handle => Finding::ByHandle(scheme),
            _ => Finding::ByName(
                Index::open(&index, number, ino)
                    .map_err(|error| explain("cannot use the handle index for", error))?,
            ),
        };
        let kind = sys::kind_of_file_system(whole.as_fd());
        let has_acls = acls::are_there(whole.as_fd());
        let has_birth_times = objects::birth_time(path.as_fd())?.is_some();
        let limits = attributes::limits(whole.as_fd(), options.read_only)?;
        let clone_block = (!options.read_only).then(|| copies::clone_block(whole.as_fd()));
        let private = state
            .private_directories()
            .iter()
            .filter(|(on, _)| *on == device);
        Ok(Self {
            root,
            root_fd: Descriptor::new(path, FileType::Directory, Use::Path),
            whole,
            open_files,
            device,
            mount,
            number,
            private: private.map(|(_, ino)| *ino).collect(),
            identity: Identity::of_this_process(),
            scheme,
            finding,
            descriptors: Descriptors::new(descriptors::raise_open_file_limit(stores))?,
            watches: Watches::new()?,
            limits,
            clone_block: clone_block.flatten(),
            in_memory: sys::keeps_inodes_in_memory(kind),
            has_no_device: sys::has_no_device(kind),
            reports_all: sys::is_of_this_host(kind),
            has_acls,
            has_birth_times,
            may_share_storage: !sys::shares_no_storage(kind),
        })
    }

    /// Whether the kernel judges callers with other ids, which needs root's rights.
    #[cfg(test)]
    fn acts_as_callers(&self) -> bool {
        self.identity.switches()
    }

    /// Whether the file system opens file handles. If not, the handle index finds their objects.
    #[cfg(test)]
    fn opens_by_handle(&self) -> bool {
        matches!(self.finding, Finding::ByHandle(_))
    }

    fn changing(&self) -> Result<()> {
        if self.limits.read_only {
            Err(Status::RoFs.into())
        } else {
            Ok(())
        }
    }
}

fn number_of(root: ObjectId) -> u64 {
    let mut digest = Sha256::new();
    digest.update(root.ino.to_be_bytes());
    digest.update(root.generation.to_be_bytes());
    digest
        .finalize()
        .first_chunk()
        .map_or(0, |bytes| u64::from_be_bytes(*bytes))
}

impl Store for LocalStore {
    fn root(&self) -> ObjectId {
        self.root
    }

    fn getattr(&self, object: ObjectId) -> Result<Attributes> {
        self.attributes(object, &*self.reach(object)?)
    }

    fn has_birth_times(&self) -> bool {
        self.has_birth_times
    }

    fn birth_time(&self, object: ObjectId) -> Result<Option<Time>> {
        let found = self.descriptor(object, Use::Path)?;
        Ok(objects::birth_time(found.as_fd())?)
    }

    fn may_share_storage(&self) -> bool {
        self.may_share_storage
    }

    fn access(&self, who: &Credential, object: ObjectId, mask: u32) -> Result<u32> {
        self.access_of(who, object, mask)
    }

    fn is_at_hand(&self, object: ObjectId) -> bool {
        let open = object == self.root || self.descriptors.find(object, Use::Path).is_some();
        self.in_memory && open
    }

    fn mode_decides(&self, object: ObjectId) -> Result<bool> {
        attributes::mode_decides(&*self.descriptor(object, Use::Path)?)
    }

    fn lookup(
        &self,
        who: &Credential,
        directory: ObjectId,
        name: &[u8],
    ) -> Result<(ObjectId, Attributes)> {
        self.look_up(who, directory, name)
    }

    fn lookup_at_hand(
        &self,
        who: &Credential,
        directory: ObjectId,
        name: &[u8],
    ) -> Option<Result<(ObjectId, Attributes)>> {
        self.is_at_hand(directory)
            .then(|| self.look_up_at_hand(who, directory, name))?
    }

    fn readlink(&self, object: ObjectId) -> Result<Vec<u8>> {
        self.link_target(object)
    }

    fn read_at(&self, object: ObjectId, offset: u64, data: &mut [u8]) -> Result<usize> {
        self.read(object, offset, data)
    }

    fn read_at_hand(&self, object: ObjectId, offset: u64, data: &mut [u8]) -> bool {
        self.read_cached(object, offset, data)
    }

    fn write_from(
        &self,
        who: &Credential,
        object: ObjectId,
        offset: u64,
        data: &Gather<'_>,
    ) -> Result<usize> {
        self.changing()?;
        self.write(who, object, offset, data)
    }

    fn is_write_at_hand(&self, who: &Credential, object: ObjectId) -> bool {
        let open = || self.descriptors.find(object, Use::Write).is_some();
        self.has_no_device && !self.limits.read_only && self.identity.stays_for(who) && open()
    }

    fn sync(&self, object: ObjectId, data_only: bool) -> Result<()> {
        self.sync_object(object, data_only)
    }

    /// All files share the descriptors that hold what is not synced.
    fn wants_sync(&self, _object: ObjectId) -> bool {
        self.descriptors.unsynced().is_full()
    }

    fn setattr(
        &self,
        who: &Credential,
        object: ObjectId,
        new: &SetAttributes,
    ) -> Result<Attributes> {
        self.changing()?;
        self.set_attributes(who, object, new)
    }

    fn create(
        &self,
        who: &Credential,
        directory: ObjectId,
        name: &[u8],
        how: CreateHow<'_>,
    ) -> Result<Created> {
        self.changing()?;
        self.create_file(who, directory, name, &how)
    }

    fn mkdir(
        &self,
        who: &Credential,
        directory: ObjectId,
        name: &[u8],
        new: &SetAttributes,
    ) -> Result<(ObjectId, Attributes)> {
        self.changing()?;
        self.make_directory(who, directory, name, new)
    }

    fn symlink(
        &self,
        who: &Credential,
        directory: ObjectId,
        name: &[u8],
        target: &[u8],
        new: &SetAttributes,
    ) -> Result<(ObjectId, Attributes)> {
        self.changing()?;
        self.make_symlink(who, directory, name, target, new)
    }

    fn mknod(
        &self,
        who: &Credential,
        directory: ObjectId,
        name: &[u8],
        what: Special,
        new: &SetAttributes,
    ) -> Result<(ObjectId, Attributes)> {
        self.changing()?;
        self.make_special(who, directory, name, what, new)
    }

    fn link(
        &self,
        who: &Credential,
        object: ObjectId,
        directory: ObjectId,
        name: &[u8],
    ) -> Result<Attributes> {
        self.changing()?;
        self.add_link(who, object, directory, name)
    }

    fn allocate(&self, who: &Credential, object: ObjectId, offset: u64, length: u64) -> Result<()> {
        self.changing()?;
        self.set_aside(who, object, offset, length)
    }

    fn deallocate(
        &self,
        who: &Credential,
        object: ObjectId,
        offset: u64,
        length: u64,
    ) -> Result<()> {
        self.changing()?;
        self.punch(who, object, offset, length)
    }

    fn copy(
        &self,
        who: &Credential,
        from: (ObjectId, u64),
        to: (ObjectId, u64),
        count: u64,
    ) -> Result<u64> {
        self.changing()?;
        self.copy_bytes(who, from, to, count)
    }

    fn clone_block_bytes(&self, _object: ObjectId) -> Option<u32> {
        self.clone_block
    }

    fn clone_range(
        &self,
        who: &Credential,
        from: (ObjectId, u64),
        to: (ObjectId, u64),
        count: u64,
    ) -> Result<()> {
        self.changing()?;
        self.share_bytes(who, from, to, count)
    }

    fn seek(&self, object: ObjectId, offset: u64, what: Extent) -> Result<Option<u64>> {
        self.find_extent(object, offset, what)
    }

    fn has_xattrs(&self) -> bool {
        true
    }

    fn xattr(&self, who: &Credential, object: ObjectId, name: &[u8]) -> Result<Vec<u8>> {
        self.read_xattr(who, object, name)
    }

    fn xattrs(&self, who: &Credential, object: ObjectId) -> Result<Vec<Vec<u8>>> {
        self.xattr_names(who, object)
    }

    fn set_xattr(
        &self,
        who: &Credential,
        object: ObjectId,
        name: &[u8],
        value: &[u8],
        how: XattrHow,
    ) -> Result<()> {
        self.changing()?;
        self.write_xattr(who, object, name, value, how)
    }

    fn remove_xattr(&self, who: &Credential, object: ObjectId, name: &[u8]) -> Result<()> {
        self.changing()?;
        self.drop_xattr(who, object, name)
    }

    fn has_acls(&self) -> bool {
        self.has_acls
    }

    fn acl(&self, object: ObjectId, kind: AclKind) -> Result<Option<Acl>> {
        self.list_of(object, kind)
    }

    fn set_acl(
        &self,
        who: &Credential,
        object: ObjectId,
        kind: AclKind,
        list: Option<&Acl>,
    ) -> Result<()> {
        self.changing()?;
        self.set_list(who, object, kind, list)
    }

    fn rename(
        &self,
        who: &Credential,
        from: (ObjectId, &[u8]),
        to: (ObjectId, &[u8]),
    ) -> Result<Option<Unlinked>> {
        self.changing()?;
        self.rename_entry(who, from, to)
    }

    fn remove(&self, who: &Credential, directory: ObjectId, name: &[u8]) -> Result<Unlinked> {
        self.changing()?;
        self.remove_file(who, directory, name)
    }

    fn rmdir(&self, who: &Credential, directory: ObjectId, name: &[u8]) -> Result<ObjectId> {
        self.changing()?;
        self.remove_directory(who, directory, name)
    }

    fn readdir(
        &self,
        who: &Credential,
        directory: ObjectId,
        range: ReaddirRange,
    ) -> Result<Listing> {
        range.check()?;
        self.list(who, directory, range)
    }

    fn statfs(&self, object: ObjectId) -> Result<Space> {
        self.reach(object)?;
        self.space()
    }

    fn pathconf(&self, object: ObjectId) -> Result<FileSystemLimits> {
        self.reach(object)?;
        Ok(self.limits)
    }

    fn number(&self) -> u64 {
        self.number
    }

    fn find(&self, object: ObjectId) -> Result<()> {
        self.reach(object).map(drop)
    }

    fn watch(&self, object: ObjectId) -> bool {
        if !self.reports_all {
            return false;
        }
        match self.descriptor(object, Use::Path) {
            Ok(descriptor) => {
                // The look follows the watch, because no event reports an object that was already gone.
                self.watches
                    .add(object, descriptor.as_fd(), descriptor.kind)
                    && self.attributes(object, &*descriptor).is_ok()
            }
            Err(_) => false,
        }
    }

    fn unwatch(&self, object: ObjectId) {
        self.watches.remove(object);
    }

    fn wait_events(&self, timeout: Duration) -> Vec<OutsideEvent> {
        self.descriptors.close_due();
        let tell = |raw| match raw {
            Raw::Overflow => OutsideEvent::Overflow,
            Raw::Perhaps(object) => match self.getattr(object) {
                Ok(now) => {
                    self.close_if_executable(object, &now);
                    OutsideEvent::Changed(object)
                }
                Err(_) => {
                    self.watches.remove(object);
                    OutsideEvent::Removed(object)
                }
            },
            Raw::Ended(object) => OutsideEvent::Removed(object),
            Raw::Written(object) => OutsideEvent::Written(object),
            Raw::Touched(object) => OutsideEvent::Changed(object),
        };
        self.watches.wait(timeout).into_iter().map(tell).collect()
    }

    fn interrupt(&self) {
        self.watches.interrupt();
    }
}
