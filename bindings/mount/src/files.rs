//! The files of a mount: the state that the operations share.

use crate::{
    Cache, Options,
    attributes::{Version, errno, is_gone, shown},
    inodes::{Hidden, Inode, Inodes, Left, locked},
    watch::{Alarm, OpenFiles, Watcher},
};
use fuser::{Errno, FileAttr, INodeNo, Notifier};
use odafs::{
    Changes, File,
    fs::{Attributes, Entry, FileHandle, FileSystem},
};
use std::{
    collections::{HashMap, HashSet},
    ffi::OsStr,
    sync::{
        Arc, Mutex, OnceLock, PoisonError, RwLock,
        atomic::{AtomicBool, AtomicU64, Ordering::SeqCst},
    },
    time::Duration,
};

/// How long the kernel may use names and attributes without asking, with [`Cache::CloseToOpen`].
const KEPT: Duration = Duration::from_secs(1);

/// The files of a mount.
pub struct Files {
    pub fs: FileSystem,
    pub inodes: Inodes,
    /// How long names and attributes are valid.
    pub kept: Duration,
    pub cache: Cache,
    /// Whether the kernel judges by access control lists.
    pub acls: bool,
    /// Whether the kernel can map files into memory that are read past its cache.
    pub maps_direct: AtomicBool,
    /// Sends the kernel notifications.
    pub notifier: Arc<OnceLock<Notifier>>,
    /// Wakes the thread that looks for changes by others.
    pub alarm: Arc<Alarm>,
    /// Names that are hidden or are about to be.
    hiding: Mutex<Vec<Hidden>>,
    /// Whether the server has no READDIRPLUS.
    pub lists_names: AtomicBool,
    /// Whether to give new files of other users to them.
    gives: bool,
    /// The file systems, by number, where the server does not let this process do that.
    keeps: Mutex<HashSet<u64>>,
    open: OpenFiles,
    /// Number of files that are being opened. It is raised under the lock for writing. A holder of the lock for reading
    /// that sees none may remove names without checking what they stand for.
    opening: RwLock<u64>,
    directories: Mutex<HashMap<u64, Arc<Mutex<[u8; 8]>>>>,
    next: AtomicU64,
}

/// A file that a program has open.
pub struct Open {
    pub inode: Arc<Inode>,
    pub file: File,
}

/// The user and the group of a program that asks for something.
#[derive(Debug, Clone, Copy)]
pub struct Caller {
    pub uid: u32,
    pub gid: u32,
}

impl Files {
    pub fn new(fs: FileSystem, root: FileHandle, options: &Options) -> Self {
        Self {
            fs,
            inodes: Inodes::new(root),
            kept: match options.cache {
                Cache::CloseToOpen => KEPT,
                Cache::Off => Duration::ZERO,
            },
            cache: options.cache,
            acls: options.acls,
            maps_direct: AtomicBool::new(false),
            notifier: Arc::default(),
            alarm: Arc::default(),
            hiding: Mutex::default(),
            lists_names: AtomicBool::new(false),
            gives: rustix::process::geteuid().is_root(),
            keeps: Mutex::default(),
            open: Arc::default(),
            opening: RwLock::default(),
            directories: Mutex::default(),
            next: AtomicU64::new(1),
        }
    }

    /// The file with a number.
    pub fn inode(&self, number: u64) -> Result<Arc<Inode>, Errno> {
        self.inodes.get(number).ok_or(Errno::ESTALE)
    }

    /// Tells the kernel about a file.
    pub fn told(&self, entry: &Entry) -> (Arc<Inode>, FileAttr) {
        let inode = self.inodes.tell(&entry.handle, &entry.attributes);
        let attributes = self.shown(&inode, &entry.attributes);
        (inode, attributes)
    }

    /// Attributes in the form that the kernel wants.
    pub fn shown(&self, inode: &Inode, attributes: &Attributes) -> FileAttr {
        shown(inode.number, attributes, inode.hidden().is_some())
    }

    /// A program opens a file with these attributes. Returns its number, and whether the kernel's pages of it are
    /// valid.
    pub fn opened(&self, inode: &Arc<Inode>, attributes: &Attributes) -> (u64, bool) {
        let number = self.next.fetch_add(1, SeqCst);
        let file = self.fs.file(&inode.handle);
        let holds = inode.open(number, Version::of(attributes));
        inode.watch(file.snapshot_of(attributes));
        let inode = inode.clone();
        if holds && inode.has_pages() {
            self.alarm.pages_come();
        }
        locked(&self.open).insert(number, Arc::new(Open { inode, file }));
        (number, holds)
    }

    /// What looks for changes by others.
    pub fn watcher(&self) -> Watcher {
        Watcher {
            alarm: self.alarm.clone(),
            open: self.open.clone(),
            notifier: self.notifier.clone(),
        }
    }

    /// The kernel gets pages of a file.
    pub fn pages_come(&self, inode: &Inode) {
        if inode.gets_pages() {
            self.alarm.pages_come();
        }
    }

    /// Invalidates a file's size and times in the kernel.
    pub fn forget_attributes(&self, inode: &Inode) {
        if let Some(notifier) = self.notifier.get() {
            // Only the attributes. A file that the kernel does not know yet has none there.
            let _ = notifier.inval_inode(INodeNo(inode.number), -1, 0);
        }
    }

    /// A name will be hidden.
    pub fn hides(&self, hidden: &Hidden) {
        locked(&self.hiding).push(hidden.clone());
    }

    /// A name is no longer hidden.
    pub fn hid(&self, hidden: &Hidden) {
        locked(&self.hiding).retain(|known| known != hidden);
    }

    /// Whether any name is hidden.
    pub fn any_hiding(&self) -> bool {
        !locked(&self.hiding).is_empty()
    }

    /// Whether a name is hidden in a directory.
    pub fn is_hiding_in(&self, dir: &FileHandle) -> bool {
        locked(&self.hiding).iter().any(|known| known.dir == *dir)
    }

    /// Whether a name exists for this mount only, and not for programs.
    pub fn is_hidden(&self, dir: &FileHandle, name: &OsStr) -> bool {
        let hiding = locked(&self.hiding);
        let mut hiding = hiding.iter();
        hiding.any(|known| known.dir == *dir && known.name == name)
    }

    /// The open file with a number.
    pub fn open_file(&self, number: u64) -> Result<Arc<Open>, Errno> {
        locked(&self.open).get(&number).cloned().ok_or(Errno::EBADF)
    }

    /// A program closed a file.
    pub fn closed(&self, number: u64) -> Option<Arc<Open>> {
        locked(&self.open).remove(&number)
    }

    /// All open files.
    pub fn all_open(&self) -> Vec<Arc<Open>> {
        locked(&self.open).values().cloned().collect()
    }

    /// Opens a file by `open`. Nobody removes its last name meanwhile.
    pub fn opening<T>(
        &self,
        inode: &Inode,
        open: impl FnOnce() -> Result<T, Errno>,
    ) -> Result<T, Errno> {
        let count = || self.opening.write().unwrap_or_else(PoisonError::into_inner);
        *count() += 1;
        let opened = {
            let _one = locked(&inode.naming);
            open()
        };
        *count() -= 1;
        opened
    }

    /// Removes a name: by `hide` if it is the only name of an open file, otherwise by `drop`.
    pub fn taking(
        &self,
        dir: &FileHandle,
        name: &OsStr,
        drop: impl FnOnce() -> Result<(), Errno>,
        hide: impl FnOnce(&Inode) -> Result<(), Errno>,
    ) -> Result<(), Errno> {
        {
            let opening = self.opening.read().unwrap_or_else(PoisonError::into_inner);
            if *opening == 0 && locked(&self.open).is_empty() {
                return drop();
            }
        }
        let found = match self.fs.lookup(dir, name).map_err(errno) {
            Ok(found) => found,
            Err(error) if is_gone(error) => return drop(),
            // It may be an open file, which a removal would destroy.
            Err(error) => return Err(error),
        };
        let Some(inode) = self.inodes.of(&found.handle) else {
            return drop();
        };
        let _one = locked(&inode.naming);
        if !inode.is_open() {
            return drop();
        }
        // The server keeps no file without a name.
        match self.fs.getattr(&inode.handle).map_err(errno) {
            Ok(attributes) if attributes.nlink <= 1 => hide(&inode),
            Ok(_) => drop(),
            Err(error) if is_gone(error) => drop(),
            Err(error) => Err(error),
        }
    }

    /// A directory is opened. All that is kept is the verifier of its cookies.
    pub fn opened_directory(&self) -> u64 {
        let number = self.next.fetch_add(1, SeqCst);
        locked(&self.directories).insert(number, Arc::default());
        number
    }

    /// The verifier of an open directory's cookies.
    pub fn verifier(&self, number: u64) -> Result<Arc<Mutex<[u8; 8]>>, Errno> {
        let directories = locked(&self.directories);
        directories.get(&number).cloned().ok_or(Errno::EBADF)
    }

    /// A directory is closed.
    pub fn closed_directory(&self, number: u64) {
        locked(&self.directories).remove(&number);
    }

    /// Creates a file that belongs to the caller. The server creates it as this process's user. If root has mounted,
    /// files for other users are then given to them, if the server lets root do that. Exports of one server differ in
    /// that.
    pub fn owned<T>(
        &self,
        caller: Caller,
        dir: &FileHandle,
        changes: Changes,
        make: impl Fn(&Changes) -> Result<T, odafs::PathError>,
    ) -> Result<T, Errno> {
        let Caller { uid, gid } = caller;
        if (uid, gid) == (0, 0) || !self.gives {
            return make(&changes).map_err(errno);
        }
        let dir = self.fs.getattr(dir).map_err(errno)?;
        if locked(&self.keeps).contains(&dir.fsid) {
            return make(&changes).map_err(errno);
        }
        const SET_GROUP: u32 = 0o2000;
        let inherits = dir.mode & SET_GROUP != 0;
        let given = Changes {
            uid: Some(uid),
            gid: (!inherits).then_some(gid),
            ..changes
        };
        match make(&given) {
            Err(error) if error.errno() == Errno::EPERM.code() => {
                let made = make(&changes).map_err(errno)?;
                locked(&self.keeps).insert(dir.fsid);
                Ok(made)
            }
            made => made.map_err(errno),
        }
    }

    /// Removes a hidden name. Returns false if it stays.
    pub fn unhide(&self, hidden: &Hidden) -> bool {
        let removed = match self.fs.unlink(&hidden.dir, &hidden.name) {
            Err(error) if error.errno() != Errno::ENOENT.code() => {
                tracing::warn!("a file that was removed while it was open stays: {error}");
                false
            }
            _ => true,
        };
        self.hid(hidden);
        removed
    }

    /// Removes the names that a file had only for those who had it open.
    pub fn bury(&self, file: &File, left: Left) {
        if left.hidden.is_some_and(|hidden| self.unhide(&hidden)) {
            file.forget_unsynced();
        }
        for stray in &left.strays {
            self.unhide(stray);
        }
    }
}

/// Cleans up when the kernel asks nothing any more, and so no thread has it any more: syncs writes, and removes hidden names.
impl Drop for Files {
    fn drop(&mut self) {
        self.alarm.end();
        for open in self.all_open() {
            if open.inode.hidden().is_none() {
                let _ = self.sync(&open);
            }
            self.bury(&open.file, open.inode.abandon());
        }
    }
}
