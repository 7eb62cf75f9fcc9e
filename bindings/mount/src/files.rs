//! The files of a mount: what the operations share.

use crate::{
    Cache, Options,
    attributes::{Version, errno, shown},
    inodes::{Hidden, Inode, Inodes, locked},
};
use fuser::{Errno, FileAttr, INodeNo, Notifier, Request};
use odafs::{
    Changes, File,
    fs::{Attributes, Entry, FileSystem, Handle},
};
use std::{
    collections::HashMap,
    ffi::OsStr,
    sync::{
        Arc, Mutex, OnceLock, PoisonError, RwLock,
        atomic::{AtomicBool, AtomicU64, Ordering::SeqCst},
    },
    time::Duration,
};

/// How long the kernel takes names and attributes as they are, with [`Cache::CloseToOpen`].
const KEPT: Duration = Duration::from_secs(1);

/// The files of a mount.
pub struct Files {
    pub fs: FileSystem,
    pub inodes: Inodes,
    /// Names and attributes hold for so long.
    pub kept: Duration,
    pub cache: Cache,
    /// The kernel maps files into memory that are read past its cache.
    pub maps_direct: bool,
    /// Tells the kernel what it did not ask for.
    pub notifier: Arc<OnceLock<Notifier>>,
    /// Names that are hidden, or will be in a moment.
    hiding: Mutex<Vec<Hidden>>,
    /// The server has no READDIRPLUS.
    pub lists_names: AtomicBool,
    /// New files of other users are given to them.
    gives: AtomicBool,
    open: Mutex<HashMap<u64, Arc<Open>>>,
    /// Files that are being opened. It is raised under the lock for writing; who holds that for reading and sees none open may
    /// take names away without a look at what they stand for.
    opening: RwLock<u64>,
    directories: Mutex<HashMap<u64, Arc<Mutex<[u8; 8]>>>>,
    next: AtomicU64,
}

/// A file that a program has open.
pub struct Open {
    pub inode: Arc<Inode>,
    pub file: File,
}

impl Files {
    pub fn new(fs: FileSystem, root: Handle, options: &Options) -> Self {
        Self {
            fs,
            inodes: Inodes::new(root),
            kept: match options.cache {
                Cache::CloseToOpen => KEPT,
                Cache::Off => Duration::ZERO,
            },
            cache: options.cache,
            maps_direct: false,
            notifier: Arc::default(),
            hiding: Mutex::default(),
            lists_names: AtomicBool::new(false),
            gives: AtomicBool::new(rustix::process::geteuid().is_root()),
            open: Mutex::default(),
            opening: RwLock::default(),
            directories: Mutex::default(),
            next: AtomicU64::new(1),
        }
    }

    /// The file of a number.
    pub fn inode(&self, number: u64) -> Result<Arc<Inode>, Errno> {
        self.inodes.get(number).ok_or(Errno::ESTALE)
    }

    /// The kernel is told of a file.
    pub fn told(&self, entry: &Entry) -> (Arc<Inode>, FileAttr) {
        let inode = self.inodes.tell(&entry.handle, &entry.attributes);
        let attributes = self.shown(&inode, &entry.attributes);
        (inode, attributes)
    }

    /// Attributes, as the kernel wants them.
    pub fn shown(&self, inode: &Inode, attributes: &Attributes) -> FileAttr {
        shown(inode.number, attributes, inode.hidden().is_some())
    }

    /// A program opens a file of these attributes. Its number, and whether the kernel's pages of it hold.
    pub fn opened(&self, inode: &Arc<Inode>, attributes: &Attributes) -> (u64, bool) {
        let number = self.next.fetch_add(1, SeqCst);
        let holds = inode.open(number, Version::of(attributes));
        let open = Arc::new(Open {
            inode: inode.clone(),
            file: self.fs.file(&inode.handle),
        });
        locked(&self.open).insert(number, open);
        (number, holds)
    }

    /// The kernel no longer takes a file's size and times for what they were.
    pub fn forget_attributes(&self, inode: &Inode) {
        if let Some(notifier) = self.notifier.get() {
            // Of the attributes alone. A file that the kernel does not know yet has none there.
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
    pub fn is_hiding_in(&self, dir: &Handle) -> bool {
        locked(&self.hiding).iter().any(|known| known.dir == *dir)
    }

    /// Whether a name is there for this mount alone, and not for programs.
    pub fn is_hidden(&self, dir: &Handle, name: &OsStr) -> bool {
        let hiding = locked(&self.hiding);
        let mut hiding = hiding.iter();
        hiding.any(|known| known.dir == *dir && known.name == name)
    }

    /// An open file by its number.
    pub fn open_file(&self, number: u64) -> Result<Arc<Open>, Errno> {
        locked(&self.open).get(&number).cloned().ok_or(Errno::EBADF)
    }

    /// A program closed a file.
    pub fn closed(&self, number: u64) -> Option<Arc<Open>> {
        locked(&self.open).remove(&number)
    }

    /// All that is open.
    pub fn all_open(&self) -> Vec<Arc<Open>> {
        locked(&self.open).values().cloned().collect()
    }

    /// Opens a file by what `open` does; nobody takes its last name away meanwhile.
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

    /// Takes a name away from what it stands for: by `hide` if that is an open file without another, and else by `drop`.
    pub fn taking(
        &self,
        dir: &Handle,
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
        let found = self.fs.lookup(dir, name).ok();
        let Some(inode) = found.and_then(|found| self.inodes.of(&found.handle)) else {
            return drop();
        };
        let _one = locked(&inode.naming);
        // The server keeps no file without a name.
        let last = || {
            let attributes = self.fs.getattr(&inode.handle);
            attributes.is_ok_and(|attributes| attributes.nlink <= 1)
        };
        match inode.is_open() && last() {
            true => hide(&inode),
            false => drop(),
        }
    }

    /// A directory is opened; what is kept is the verifier of its cookies.
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

    /// Makes a file that belongs to the caller. The server does what this process may do: what root's mount makes for
    /// another user is given to them, where the server lets root do that.
    pub fn owned<T>(
        &self,
        request: &Request,
        dir: &Handle,
        changes: Changes,
        make: impl Fn(&Changes) -> Result<T, odafs::PathError>,
    ) -> Result<T, Errno> {
        let (uid, gid) = (request.uid(), request.gid());
        if (uid, gid) == (0, 0) || !self.gives.load(SeqCst) {
            return make(&changes).map_err(errno);
        }
        const SET_GROUP: u32 = 0o2000;
        let inherits = self.fs.getattr(dir).map_err(errno)?.mode & SET_GROUP != 0;
        let given = Changes {
            uid: Some(uid),
            gid: (!inherits).then_some(gid),
            ..changes
        };
        match make(&given) {
            Err(error) if error.errno() == Errno::EPERM.code() => {
                let made = make(&changes).map_err(errno)?;
                self.gives.store(false, SeqCst);
                Ok(made)
            }
            made => made.map_err(errno),
        }
    }

    /// Removes the name that stood in for one that was removed from an open file.
    pub fn unhide(&self, hidden: &Hidden) {
        if let Err(error) = self.fs.unlink(&hidden.dir, &hidden.name) {
            tracing::warn!("a file that was removed while it was open stays: {error}");
        }
        self.hid(hidden);
    }

    /// What is left when the kernel has no more to ask: writes to sync, and hidden names to remove.
    pub fn finish(&self) {
        for open in self.all_open() {
            match open.inode.abandon() {
                Some(hidden) => self.unhide(&hidden),
                None => drop(self.sync(&open)),
            }
        }
    }
}
