//! The kernel's numbers of files, and the state of each file.

use crate::attributes::Version;
use odafs::{
    Snapshot,
    fs::{Attributes, FileHandle},
};
use std::{
    collections::HashMap,
    ffi::OsString,
    mem,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering::SeqCst},
    },
};

/// The kernel's number of the root.
pub const ROOT: u64 = 1;
/// Numbers from this one on are ours. Those below are the server's.
const OWN: u64 = 1 << 63;

/// A file that the kernel knows. All its names share it, because they share its handle.
pub struct Inode {
    /// The kernel's number, and what `stat` shows.
    pub number: u64,
    /// The server's handle.
    pub handle: FileHandle,
    /// Held while the file is opened, and while a name of it is removed or replaced. So an opening comes before, or
    /// finds the file gone.
    pub naming: Mutex<()>,
    opened: Mutex<Opened>,
    /// Whether the kernel may have pages of it.
    has_pages: AtomicBool,
}

#[derive(Default)]
struct Opened {
    times: u64,
    /// The oldest version that pages in the kernel's cache may be of.
    seen: Option<Version>,
    /// Becomes `seen` when the kernel has dropped its pages, which it does before the first operation on the open file
    /// with this number.
    awaited: Option<(u64, Version)>,
    hidden: Option<Hidden>,
    /// Names like the hidden one that it may have or get, because nobody knows whether a call was made.
    strays: Vec<Hidden>,
    /// The version since which changes by others matter. No page in the kernel's cache was read before it was asked for.
    watched: Option<Snapshot>,
}

/// The name that a removed file has while it is open.
#[derive(Clone, PartialEq, Eq)]
pub struct Hidden {
    /// Its directory.
    pub dir: FileHandle,
    /// The name.
    pub name: OsString,
}

/// The names that a file had only for those who had it open.
#[derive(Default)]
pub struct Left {
    /// Its last name, if the others were removed.
    pub hidden: Option<Hidden>,
    /// Names that it may have besides.
    pub strays: Vec<Hidden>,
}

impl Inode {
    fn new(number: u64, handle: FileHandle) -> Arc<Self> {
        Arc::new(Self {
            number,
            handle,
            naming: Mutex::default(),
            opened: Mutex::default(),
            has_pages: AtomicBool::new(false),
        })
    }

    /// The file was opened with this number when the server had this version. Returns true if the pages in the kernel's
    /// cache are of it.
    pub fn open(&self, number: u64, version: Version) -> bool {
        let mut opened = locked(&self.opened);
        opened.times += 1;
        if opened.seen == Some(version) {
            return true;
        }
        opened.seen = None;
        opened.awaited = Some((number, version));
        false
    }

    /// There is an operation on an open file, so the kernel has processed the answer to its opening.
    pub fn used(&self, number: u64) {
        let mut opened = locked(&self.opened);
        if let Some((_, version)) = opened.awaited.take_if(|(awaited, _)| *awaited == number) {
            opened.seen = Some(version);
        }
    }

    /// This mount is about to change the file.
    pub fn changes(&self) {
        let mut opened = locked(&self.opened);
        (opened.seen, opened.awaited) = (None, None);
    }

    /// A program has closed the file. Returns the names to remove if that was the last one.
    pub fn close(&self) -> Left {
        let mut opened = locked(&self.opened);
        opened.times = opened.times.saturating_sub(1);
        if opened.times > 0 {
            return Left::default();
        }
        opened.watched = None;
        opened.leaves()
    }

    /// The file was opened when the server had this version. If it was open before, an older version is watched.
    pub fn watch(&self, version: Snapshot) {
        locked(&self.opened).watched.get_or_insert(version);
    }

    /// The kernel will drop the pages that it has. Those that follow are at least of this version.
    pub fn watch_from(&self, version: Snapshot) {
        let mut opened = locked(&self.opened);
        if opened.times > 0 {
            opened.watched = Some(version);
        }
    }

    /// The version that is watched, if the file is open and its version is known.
    pub fn watched(&self) -> Option<Snapshot> {
        locked(&self.opened).watched
    }

    /// The kernel gets a page. Returns true if it had none.
    pub fn gets_pages(&self) -> bool {
        !self.has_pages.load(SeqCst) && !self.has_pages.swap(true, SeqCst)
    }

    /// The kernel is about to drop all pages.
    pub fn drops_pages(&self) {
        self.has_pages.store(false, SeqCst);
    }

    /// Whether the kernel may have pages.
    pub fn has_pages(&self) -> bool {
        self.has_pages.load(SeqCst)
    }

    /// Whether a program has it open.
    pub fn is_open(&self) -> bool {
        locked(&self.opened).times > 0
    }

    /// The hidden name, if its last name was removed.
    pub fn hidden(&self) -> Option<Hidden> {
        locked(&self.opened).hidden.clone()
    }

    /// Keeps the hidden name until the last close. Returns it if that has happened.
    pub fn hide(&self, hidden: Hidden) -> Option<Hidden> {
        let mut opened = locked(&self.opened);
        if opened.times == 0 {
            return Some(hidden);
        }
        opened.hidden = Some(hidden);
        None
    }

    /// Keeps a name until the last close that the file may have or get, beside others. The caller knows that it is
    /// open, and that nobody closes it now.
    pub fn stray(&self, name: Hidden) {
        locked(&self.opened).strays.push(name);
    }

    /// Takes the names to remove, even if the file is open.
    pub fn abandon(&self) -> Left {
        locked(&self.opened).leaves()
    }
}

impl Opened {
    fn leaves(&mut self) -> Left {
        Left {
            hidden: self.hidden.take(),
            strays: mem::take(&mut self.strays),
        }
    }
}

/// The files that the kernel knows, with the number of times that it was told about each.
pub struct Inodes {
    table: Mutex<Table>,
}

struct Table {
    by_number: HashMap<u64, Known>,
    by_handle: HashMap<FileHandle, u64>,
    next: u64,
}

struct Known {
    inode: Arc<Inode>,
    lookups: u64,
}

impl Inodes {
    /// Only the root.
    pub fn new(root: FileHandle) -> Self {
        let inode = Inode::new(ROOT, root);
        Self {
            table: Mutex::new(Table {
                by_number: HashMap::from([(ROOT, Known { inode, lookups: 1 })]),
                by_handle: HashMap::from([(root, ROOT)]),
                next: OWN,
            }),
        }
    }

    /// The file of a number.
    pub fn get(&self, number: u64) -> Option<Arc<Inode>> {
        let table = locked(&self.table);
        table
            .by_number
            .get(&number)
            .map(|known| known.inode.clone())
    }

    /// The file of a handle, if the kernel knows it.
    pub fn of(&self, handle: &FileHandle) -> Option<Arc<Inode>> {
        let table = locked(&self.table);
        let number = table.by_handle.get(handle)?;
        table.by_number.get(number).map(|known| known.inode.clone())
    }

    /// Tells the kernel about a file once more. The number is the server's, so that it is the same at the next mount,
    /// unless another file has it.
    pub fn tell(&self, handle: &FileHandle, attributes: &Attributes) -> Arc<Inode> {
        let mut table = locked(&self.table);
        let table = &mut *table;
        if let Some(known) = table
            .by_handle
            .get(handle)
            .and_then(|number| table.by_number.get_mut(number))
        {
            known.lookups += 1;
            return known.inode.clone();
        }
        let wanted = attributes.fileid;
        let number = if (ROOT + 1..OWN).contains(&wanted) && !table.by_number.contains_key(&wanted)
        {
            wanted
        } else {
            table.next += 1;
            table.next
        };
        let inode = Inode::new(number, *handle);
        let known = Known {
            inode: inode.clone(),
            lookups: 1,
        };
        table.by_number.insert(number, known);
        table.by_handle.insert(*handle, number);
        inode
    }

    /// A number for an entry that cannot be looked up. No file has it.
    pub fn number_of_none(&self) -> u64 {
        let mut table = locked(&self.table);
        table.next += 1;
        table.next
    }

    /// The kernel forgets this many mentions of a file.
    pub fn forget(&self, number: u64, times: u64) {
        if number == ROOT {
            return;
        }
        let mut table = locked(&self.table);
        let Some(known) = table.by_number.get_mut(&number) else {
            return;
        };
        known.lookups = known.lookups.saturating_sub(times);
        if known.lookups == 0 {
            let handle = known.inode.handle;
            table.by_number.remove(&number);
            table.by_handle.remove(&handle);
        }
    }
}

/// A poisoned table is still consistent: nothing that panics runs with these locks held.
pub fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;
    use odafs::FileKind;
    use std::time::SystemTime;

    fn handle(byte: u8) -> FileHandle {
        FileHandle::from_bytes(&[byte; 8]).unwrap()
    }

    fn attributes(fileid: u64) -> Attributes {
        let now = SystemTime::UNIX_EPOCH;
        Attributes {
            kind: FileKind::Regular,
            mode: 0o644,
            nlink: 1,
            uid: 0,
            gid: 0,
            size: 0,
            used: 0,
            rdev: (0, 0),
            fsid: 0,
            fileid,
            atime: now,
            mtime: now,
            ctime: now,
            change: 0,
        }
    }

    #[test]
    fn names_of_one_file_share_its_number() {
        let inodes = Inodes::new(handle(0));
        let one = inodes.tell(&handle(1), &attributes(77));
        assert_eq!(one.number, 77);
        assert!(Arc::ptr_eq(&one, &inodes.tell(&handle(1), &attributes(77))));
        inodes.forget(77, 1);
        assert!(inodes.get(77).is_some());
        inodes.forget(77, 1);
        assert!(inodes.get(77).is_none() && inodes.of(&handle(1)).is_none());
    }

    #[test]
    fn two_files_never_share_a_number() {
        let inodes = Inodes::new(handle(0));
        let numbers: Vec<u64> = [77, 77, ROOT, 0, u64::MAX, OWN + 1]
            .iter()
            .zip(1..)
            .map(|(&fileid, n)| inodes.tell(&handle(n), &attributes(fileid)).number)
            .collect();
        let mut apart = numbers.clone();
        apart.sort_unstable();
        apart.dedup();
        assert_eq!(apart.len(), numbers.len(), "{numbers:?}");
        assert!(!numbers.contains(&ROOT) && !numbers.contains(&0));
    }

    #[test]
    fn the_root_is_never_forgotten() {
        let inodes = Inodes::new(handle(0));
        inodes.forget(ROOT, u64::MAX);
        inodes.forget(4711, 1);
        assert!(inodes.get(ROOT).is_some());
    }

    #[test]
    fn the_hidden_name_goes_with_the_last_close() {
        let inode = Inode::new(2, handle(1));
        let version = Version::of(&attributes(2));
        let hidden = Hidden {
            dir: handle(0),
            name: "x".into(),
        };
        let stray = Hidden {
            name: "y".into(),
            ..hidden.clone()
        };
        assert!(inode.hide(hidden.clone()) == Some(hidden.clone()));
        assert!(!inode.open(1, version));
        assert!(!inode.open(2, version));
        assert!(inode.hide(hidden.clone()).is_none());
        inode.stray(stray.clone());
        let first = inode.close();
        assert!(first.hidden.is_none() && first.strays.is_empty());
        let last = inode.close();
        assert!(last.hidden == Some(hidden) && last.strays == [stray]);
    }

    #[test]
    fn pages_are_kept_when_the_kernel_has_dropped_older_ones() {
        let inode = Inode::new(2, handle(1));
        let version = Version::of(&attributes(2));
        assert!(!inode.open(1, version));
        assert!(!inode.open(2, version), "no answer to the first is taken");
        inode.used(1);
        assert!(!inode.open(3, version), "the last of them is awaited");
        inode.used(3);
        assert!(inode.open(4, version));
        inode.changes();
        assert!(!inode.open(5, version));
        inode.changes();
        inode.used(5);
        assert!(!inode.open(6, version), "it changed after it was opened");
    }
}
