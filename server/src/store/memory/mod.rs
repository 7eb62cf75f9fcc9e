//! A store in memory, for tests and the simulator.

mod acls;
mod links;
mod node;
mod space;
mod tree;
mod xattrs;

#[cfg(test)]
mod tests;

use std::collections::VecDeque;
use std::time::Duration;

use odafs_fabric::memory::Gather;
use odafs_fabric::sync::{Condvar, Mutex, MutexGuard};

use super::names::{NAME_MAX, Name, check_target};
use super::permission::{attributes_permit, check_list, check_search};
use super::{
    CreateHow, Created, Credential, DirEntry, FileSystemLimits, Listing, ObjectId, OutsideEvent,
    ReaddirRange, Result, Space, Special, Store, Unlinked,
};
use crate::store::{
    Acl, AclKind, Attributes, Device, Extent, FileType, SetAttributes, Status, Time, XattrHow,
};
use node::{Body, Names};
use tree::Tree;

/// A kind of call that a test can make fail.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Operation {
    /// [`Store::getattr`]; never fails by itself.
    GetAttributes,
    /// [`Store::read_at`]
    Read,
    /// [`Store::write_from`], and other calls that change bytes of a file.
    Write,
    /// [`Store::sync`]. Each unsynced page is then lost or not, as the seed decides, and no later sync brings it back.
    Sync,
    /// [`Store::setattr`]
    SetAttributes,
    /// Calls that change a directory.
    Directory,
}

/// A change by someone else, behind the server's back.
#[derive(Clone, Copy, Debug)]
pub enum OutsideChange<'a> {
    /// Writes bytes into a file.
    Write {
        /// Where, bytes.
        offset: u64,
        /// What.
        data: &'a [u8],
    },
    /// A write begins. It only changes the times, and is not reported yet.
    BeginWrite,
    /// A write that has begun puts bytes into a file, within its size, and ends. The times are those of its beginning.
    EndWrite {
        /// Where, bytes.
        offset: u64,
        /// What.
        data: &'a [u8],
    },
    /// Cuts or extends a file to that many bytes.
    Resize(u64),
    /// Changes the permission bits.
    Mode(u32),
    /// Sets the access list.
    Acl(&'a Acl),
    /// Gives it to another user.
    Owner(u32),
    /// Removes all of its names.
    Remove,
}

/// Acts at a point that a test has chosen.
pub type Meddler = Box<dyn FnOnce(&MemoryStore) + Send>;

/// Holds files in memory, for tests and the simulator. It is deterministic: the same seed and the same calls in the same
/// order lead to the same state, including the times.
///
/// The ids are always those of the credential. `own` grants nothing, and user 0 may do everything.
pub struct MemoryStore {
    tree: Mutex<Tree>,
    /// Signals events or an interruption.
    news: Condvar,
    number: u64,
}

impl MemoryStore {
    /// A store with an empty root directory to which anyone may write. `seed` is also its number.
    pub fn new(seed: u64) -> Self {
        Self {
            tree: Mutex::new(Tree::new(seed)),
            news: Condvar::new(),
            number: seed,
        }
    }

    /// Sets whether the store refuses changes with ROFS.
    pub fn set_read_only(&self, read_only: bool) {
        self.tree.lock().read_only = read_only;
    }

    /// Sets whether [`Store::watch`] succeeds. At first it does.
    pub fn set_watchable(&self, watchable: bool) {
        self.tree.lock().watchable = watchable;
    }

    /// Sets whether objects have extended attributes. At first they do.
    pub fn set_xattrs(&self, there: bool) {
        self.tree.lock().has_xattrs = there;
    }

    /// Sets the most bytes that all files and extended attributes may hold together. Beyond it, writes fail with NOSPC, and so
    /// does setting an attribute.
    pub fn set_capacity(&self, bytes: u64) {
        self.tree.lock().capacity_bytes = bytes;
    }

    /// Makes the next call of that kind fail with `status`. Several calls of this add up.
    pub fn fail_next(&self, operation: Operation, status: Status) {
        self.tree.lock().fail_next(operation, status);
    }

    /// Lets `meddler` act before the next call of that kind. Each of several acts before one call.
    pub fn meddle_next(&self, operation: Operation, meddler: Meddler) {
        let mut tree = self.tree.lock();
        tree.meddlers
            .entry(operation)
            .or_default()
            .push_back(meddler);
    }

    /// Stops the clock for so many changes. Outside changes move it nevertheless.
    pub fn hold_clock(&self, changes: u32) {
        self.tree.lock().held = changes;
    }

    /// Makes the system write back a file's unsynced bytes and fail. Each page is lost or not, as the seed decides. The
    /// next sync reports it to whoever asks. Returns whether it has anything to report.
    pub fn write_back_badly(&self, object: ObjectId) -> bool {
        self.tree.lock().write_back_badly(object)
    }

    /// Makes the machine lose power and come back. Each page of each unsynced write is there or not, as the seed decides.
    /// Watches end. Returns whether any bytes of files were lost.
    pub fn crash(&self) -> bool {
        self.tree.lock().crash()
    }

    /// Makes an outside change, which is reported if the object is watched.
    pub fn outside_change(&self, object: ObjectId, change: OutsideChange<'_>) -> Result<()> {
        self.changing(|tree| tree.outside_change(object, change))
    }

    /// Ends all watches, as if the file system were unmounted.
    pub fn end_watches(&self) {
        self.tree.lock().end_watches();
        self.news.notify_all();
    }

    /// Reports lost events, as an overrun inotify queue would.
    pub fn overflow_events(&self) {
        let mut tree = self.tree.lock();
        tree.events.clear();
        tree.events.push_back(OutsideEvent::Overflow);
        drop(tree);
        self.news.notify_all();
    }

    /// The tree, for a call of that kind.
    fn tree_for(&self, operation: Operation) -> MutexGuard<'_, Tree> {
        let mut tree = self.tree.lock();
        let waiting = tree.meddlers.get_mut(&operation);
        if let Some(meddler) = waiting.and_then(VecDeque::pop_front) {
            drop(tree);
            meddler(self);
            tree = self.tree.lock();
        }
        tree
    }

    fn changing<T>(&self, change: impl FnOnce(&mut Tree) -> Result<T>) -> Result<T> {
        let mut tree = self.tree.lock();
        let result = change(&mut tree);
        let news = !tree.events.is_empty();
        drop(tree);
        if news {
            self.news.notify_all();
        }
        result
    }
}

impl Store for MemoryStore {
    fn root(&self) -> ObjectId {
        self.tree.lock().root()
    }

    fn getattr(&self, object: ObjectId) -> Result<Attributes> {
        Ok(self
            .tree_for(Operation::GetAttributes)
            .node(object)?
            .attributes)
    }

    fn has_birth_times(&self) -> bool {
        true
    }

    fn birth_time(&self, object: ObjectId) -> Result<Option<Time>> {
        Ok(Some(self.tree.lock().node(object)?.birth))
    }

    /// Its clones are copies.
    fn may_share_storage(&self) -> bool {
        false
    }

    fn is_at_hand(&self, _object: ObjectId) -> bool {
        true
    }

    fn access(&self, who: &Credential, object: ObjectId, mask: u32) -> Result<u32> {
        let tree = self.tree_for(Operation::GetAttributes);
        let judged = tree.node(object)?.judged(who);
        Ok(attributes_permit(&judged, who, mask))
    }

    fn mode_decides(&self, object: ObjectId) -> Result<bool> {
        let tree = self.tree_for(Operation::GetAttributes);
        Ok(tree.node(object)?.access_list.is_none())
    }

    fn lookup(
        &self,
        who: &Credential,
        directory: ObjectId,
        name: &[u8],
    ) -> Result<(ObjectId, Attributes)> {
        let tree = self.tree.lock();
        let found = tree.lookup(who, directory, name)?;
        Ok((found.id(), found.attributes))
    }

    fn lookup_at_hand(
        &self,
        who: &Credential,
        directory: ObjectId,
        name: &[u8],
    ) -> Option<Result<(ObjectId, Attributes)>> {
        Some(self.lookup(who, directory, name))
    }

    fn readlink(&self, object: ObjectId) -> Result<Vec<u8>> {
        match &self.tree.lock().node(object)?.body {
            Body::Symlink(target) => Ok(target.clone()),
            _ => Err(Status::Inval.into()),
        }
    }

    fn read_at(&self, object: ObjectId, offset: u64, data: &mut [u8]) -> Result<usize> {
        let mut tree = self.tree_for(Operation::Read);
        tree.injected(Operation::Read)?;
        let content = match &tree.node(object)?.body {
            Body::File(content) => &content.data,
            Body::Directory(_) => return Err(Status::IsDir.into()),
            _ => return Err(Status::Inval.into()),
        };
        let start = usize::try_from(offset)
            .unwrap_or(usize::MAX)
            .min(content.len());
        let count = data.len().min(content.len() - start);
        data[..count].copy_from_slice(&content[start..start + count]);
        Ok(count)
    }

    fn read_at_hand(&self, object: ObjectId, offset: u64, data: &mut [u8]) -> bool {
        if !self.tree.lock().is_at_hand(Operation::Read) {
            return false;
        }
        let wanted = data.len();
        self.read_at(object, offset, data) == Ok(wanted)
    }

    fn write_from(
        &self,
        who: &Credential,
        object: ObjectId,
        offset: u64,
        data: &Gather<'_>,
    ) -> Result<usize> {
        let data = data.to_vec();
        drop(self.tree_for(Operation::Write));
        self.changing(|tree| tree.write(who, object, offset, &data))
    }

    fn is_write_at_hand(&self, _who: &Credential, _object: ObjectId) -> bool {
        let mut tree = self.tree.lock();
        !tree.is_planned(Operation::Sync) && tree.is_at_hand(Operation::Write)
    }

    fn sync(&self, object: ObjectId, _data_only: bool) -> Result<()> {
        self.tree_for(Operation::Sync).sync(object)
    }

    fn setattr(
        &self,
        who: &Credential,
        object: ObjectId,
        new: &SetAttributes,
    ) -> Result<Attributes> {
        self.changing(|tree| tree.set_attributes(who, object, new))
    }

    fn allocate(&self, who: &Credential, object: ObjectId, offset: u64, length: u64) -> Result<()> {
        drop(self.tree_for(Operation::Write));
        self.changing(|tree| tree.allocate(who, object, offset, length))
    }

    fn deallocate(
        &self,
        who: &Credential,
        object: ObjectId,
        offset: u64,
        length: u64,
    ) -> Result<()> {
        drop(self.tree_for(Operation::Write));
        self.changing(|tree| tree.deallocate(who, object, offset, length))
    }

    fn clone_block_bytes(&self, _object: ObjectId) -> Option<u32> {
        Some(node::PAGE_BYTES as u32)
    }

    fn clone_range(
        &self,
        who: &Credential,
        from: (ObjectId, u64),
        to: (ObjectId, u64),
        count: u64,
    ) -> Result<()> {
        drop(self.tree_for(Operation::Write));
        self.changing(|tree| tree.clone_range(who, from, to, count))
    }

    fn seek(&self, object: ObjectId, offset: u64, what: Extent) -> Result<Option<u64>> {
        self.tree.lock().seek(object, offset, what)
    }

    fn has_xattrs(&self) -> bool {
        self.tree.lock().has_xattrs
    }

    fn xattr(&self, who: &Credential, object: ObjectId, name: &[u8]) -> Result<Vec<u8>> {
        self.tree.lock().xattr(who, object, name)
    }

    fn xattrs(&self, who: &Credential, object: ObjectId) -> Result<Vec<Vec<u8>>> {
        self.tree.lock().xattrs(who, object)
    }

    fn set_xattr(
        &self,
        who: &Credential,
        object: ObjectId,
        name: &[u8],
        value: &[u8],
        how: XattrHow,
    ) -> Result<()> {
        self.changing(|tree| tree.set_xattr(who, object, (name, value), how))
    }

    fn remove_xattr(&self, who: &Credential, object: ObjectId, name: &[u8]) -> Result<()> {
        self.changing(|tree| tree.remove_xattr(who, object, name))
    }

    fn has_acls(&self) -> bool {
        true
    }

    fn acl(&self, object: ObjectId, kind: AclKind) -> Result<Option<Acl>> {
        let tree = self.tree.lock();
        let node = tree.node(object)?;
        Ok(match kind {
            AclKind::Access => node.access_list.clone(),
            AclKind::Default => node.default_list.clone(),
        })
    }

    fn set_acl(
        &self,
        who: &Credential,
        object: ObjectId,
        kind: AclKind,
        list: Option<&Acl>,
    ) -> Result<()> {
        self.changing(|tree| tree.set_acl(who, object, kind, list))
    }

    fn create(
        &self,
        who: &Credential,
        directory: ObjectId,
        name: &[u8],
        how: CreateHow<'_>,
    ) -> Result<Created> {
        self.changing(|tree| tree.create(who, directory, name, how))
    }

    fn mkdir(
        &self,
        who: &Credential,
        directory: ObjectId,
        name: &[u8],
        new: &SetAttributes,
    ) -> Result<(ObjectId, Attributes)> {
        let body = Body::Directory(Names::new(directory.ino));
        let (kind, device) = (FileType::Directory, Device::default());
        self.changing(|tree| tree.make_other(who, directory, name, kind, body, device, new))
    }

    fn symlink(
        &self,
        who: &Credential,
        directory: ObjectId,
        name: &[u8],
        target: &[u8],
        new: &SetAttributes,
    ) -> Result<(ObjectId, Attributes)> {
        check_target(target)?;
        let body = Body::Symlink(target.to_vec());
        let new = SetAttributes { mode: None, ..*new };
        let (kind, device) = (FileType::Symlink, Device::default());
        self.changing(|tree| tree.make_other(who, directory, name, kind, body, device, &new))
    }

    fn mknod(
        &self,
        who: &Credential,
        directory: ObjectId,
        name: &[u8],
        what: Special,
        new: &SetAttributes,
    ) -> Result<(ObjectId, Attributes)> {
        let (kind, device) = (what.kind(), what.device()?);
        if device != Device::default() && who.uid != 0 {
            return Err(Status::Perm.into());
        }
        let body = Body::Special;
        self.changing(|tree| tree.make_other(who, directory, name, kind, body, device, new))
    }

    fn link(
        &self,
        who: &Credential,
        object: ObjectId,
        directory: ObjectId,
        name: &[u8],
    ) -> Result<Attributes> {
        self.changing(|tree| tree.link(who, object, directory, name))
    }

    fn rename(
        &self,
        who: &Credential,
        from: (ObjectId, &[u8]),
        to: (ObjectId, &[u8]),
    ) -> Result<Option<Unlinked>> {
        Name::proper(from.1, Status::Inval, Status::Inval)?;
        Name::proper(to.1, Status::Inval, Status::Inval)?;
        self.changing(|tree| tree.rename(who, from, to))
    }

    fn remove(&self, who: &Credential, directory: ObjectId, name: &[u8]) -> Result<Unlinked> {
        Name::proper(name, Status::IsDir, Status::IsDir)?;
        self.changing(|tree| tree.unlink(who, directory, name, false))
    }

    fn rmdir(&self, who: &Credential, directory: ObjectId, name: &[u8]) -> Result<ObjectId> {
        Name::proper(name, Status::Inval, Status::Exist)?;
        Ok(self
            .changing(|tree| tree.unlink(who, directory, name, true))?
            .object)
    }

    fn readdir(
        &self,
        who: &Credential,
        directory: ObjectId,
        range: ReaddirRange,
    ) -> Result<Listing> {
        range.check()?;
        let tree = self.tree.lock();
        let node = tree.node(directory)?;
        let names = node.names()?;
        check_list(&node.judged(who), who)?;
        let searchable = check_search(&node.judged(who), who).is_ok();
        let entry = |cookie, name: &[u8], ino| {
            let shown = range.plus && (searchable || ino == directory.ino);
            let found = tree.named(ino).ok().filter(|_| shown);
            let object = found.map(|node| (node.id(), node.attributes));
            DirEntry {
                fileid: ino,
                name: name.to_vec(),
                cookie,
                object,
            }
        };
        let dots = [
            (1, b".".as_slice(), directory.ino),
            (2, b"..", names.parent),
        ];
        let dots = dots
            .into_iter()
            .filter(|(cookie, ..)| *cookie > range.cookie);
        let mut all = dots.chain(names.after(range.cookie.max(2)));
        let entries = all
            .by_ref()
            .take(range.max_entries.max(1))
            .map(|(cookie, name, ino)| entry(cookie, name, ino))
            .collect();
        let eof = all.next().is_none();
        Ok(Listing {
            entries,
            eof,
            verifier: ReaddirRange::VERIFIER,
        })
    }

    fn statfs(&self, object: ObjectId) -> Result<Space> {
        let tree = self.tree.lock();
        tree.node(object)?;
        let free = tree.capacity_bytes.saturating_sub(tree.used_bytes);
        Ok(Space {
            total_bytes: tree.capacity_bytes,
            free_bytes: free,
            available_bytes: free,
            total_files: u64::from(u32::MAX),
            free_files: u64::from(u32::MAX) - tree.objects(),
            available_files: u64::from(u32::MAX) - tree.objects(),
        })
    }

    fn pathconf(&self, object: ObjectId) -> Result<FileSystemLimits> {
        let tree = self.tree.lock();
        tree.node(object)?;
        Ok(FileSystemLimits {
            link_max: u32::MAX,
            name_max: NAME_MAX as u32,
            size_max: node::SIZE_MAX,
            time_delta_ns: 1000,
            no_trunc: true,
            chown_restricted: true,
            case_insensitive: false,
            case_preserving: true,
            read_only: tree.read_only,
        })
    }

    fn number(&self) -> u64 {
        self.number
    }

    fn find(&self, object: ObjectId) -> Result<()> {
        self.tree.lock().node(object).map(drop)
    }

    fn watch(&self, object: ObjectId) -> bool {
        let mut tree = self.tree.lock();
        let there = tree.watchable && tree.node(object).is_ok();
        if there {
            tree.watched.insert(object);
        }
        there
    }

    fn unwatch(&self, object: ObjectId) {
        self.tree.lock().watched.remove(&object);
    }

    fn wait_events(&self, timeout: Duration) -> Vec<OutsideEvent> {
        let mut tree = self.tree.lock();
        if tree.events.is_empty() && !tree.interrupted {
            tree = self.news.wait_timeout(tree, timeout.into()).0;
        }
        tree.interrupted = false;
        tree.events.drain(..).collect()
    }

    fn interrupt(&self) {
        self.tree.lock().interrupted = true;
        self.news.notify_all();
    }
}
