//! Directory listings. Each is fetched when the kernel asks. Entries kept from an earlier listing would bring back
//! attributes that a write has changed since.

use crate::{
    attributes::{errno, kind, shown},
    files::Files,
    inodes::locked,
};
use fuser::{Errno, FileAttr, FileType, INodeNo};
use odafs::{
    PathError,
    fs::{Cookie, DirEntry, Entry, FileHandle},
};
use std::{
    ffi::OsStr,
    sync::atomic::Ordering::SeqCst,
    time::{Duration, SystemTime},
};

/// `.` and `..`.
fn is_own(entry: &DirEntry) -> bool {
    entry.name == "." || entry.name == ".."
}

/// What a name of a listing stands for.
enum Named {
    /// A file.
    File(Entry),
    /// Nothing: the entry has gone.
    Gone,
    /// The server lists the name and refuses to say more. It is listed as that of a regular file, and whoever uses it gets
    /// the server's error.
    Refused,
}

/// The attributes of an entry of which the server says nothing.
fn of_unknown(number: u64) -> FileAttr {
    let never = SystemTime::UNIX_EPOCH;
    FileAttr {
        ino: INodeNo(number),
        size: 0,
        blocks: 0,
        atime: never,
        mtime: never,
        ctime: never,
        crtime: never,
        kind: FileType::RegularFile,
        perm: 0,
        nlink: 1,
        uid: 0,
        gid: 0,
        rdev: 0,
        blksize: 1 << 16,
        flags: 0,
    }
}

impl Files {
    /// The entries of a directory, or only names if the server offers no more.
    fn entries(
        &self,
        dir: &FileHandle,
        from: Cookie,
    ) -> impl Iterator<Item = Result<DirEntry, PathError>> + use<> {
        if !self.lists_names.load(SeqCst) {
            let mut entries = self.fs.readdirplus(dir, from);
            let first = entries.next();
            let lacks = Some(Errno::EOPNOTSUPP.code());
            let failed = first.as_ref().and_then(|first| first.as_ref().err());
            if failed.map(PathError::errno) != lacks {
                return first.into_iter().chain(entries);
            }
            self.lists_names.store(true, SeqCst);
        }
        None.into_iter().chain(self.fs.readdir(dir, from))
    }

    /// The file of an entry, if the listing does not say.
    fn named(&self, dir: &FileHandle, entry: &DirEntry) -> Result<Named, Errno> {
        if let (Some(handle), Some(attributes)) = (entry.handle, entry.attributes) {
            return Ok(Named::File(Entry { handle, attributes }));
        }
        match self.fs.lookup(dir, &entry.name).map_err(errno) {
            Ok(found) => Ok(Named::File(found)),
            Err(Errno::ENOENT | Errno::ESTALE) => Ok(Named::Gone),
            // The server may not answer the next one either.
            Err(Errno::EIO) => Err(Errno::EIO),
            Err(_) => Ok(Named::Refused),
        }
    }

    /// Passes the entries of a directory after a cookie to `add`, until that says that there is no more room. An entry
    /// that has gone is passed as `None`.
    fn list(
        &self,
        dir: &FileHandle,
        open: u64,
        offset: u64,
        mut add: impl FnMut(DirEntry) -> Result<Option<bool>, Errno>,
    ) -> Result<(), Errno> {
        let verifier = self.verifier(open)?;
        let from = match offset {
            0 => Cookie::START,
            value => Cookie {
                value,
                verifier: *locked(&verifier),
            },
        };
        let mut any = false;
        for entry in self.entries(dir, from) {
            let full = entry.map_err(errno).and_then(|entry| {
                *locked(&verifier) = entry.cookie.verifier;
                match self.is_hidden(dir, &entry.name) {
                    true => Ok(None),
                    false => add(entry),
                }
            });
            match full {
                Ok(None) => {}
                Ok(Some(false)) => any = true,
                Ok(Some(true)) => break,
                // The entries so far are returned. The next call meets the error again.
                Err(_) if any => break,
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Passes entries to `add` until that returns true, because there is no room for the one that it got: number, kind and
    /// name, and the offset of the next entry.
    pub fn readdir(
        &self,
        number: u64,
        open: u64,
        offset: u64,
        mut add: impl FnMut(INodeNo, u64, FileType, &OsStr) -> bool,
    ) -> Result<(), Errno> {
        let dir = self.inode(number)?.handle;
        self.list(&dir, open, offset, |entry| {
            let is = match entry.attributes {
                Some(attributes) => kind(attributes.kind),
                None if is_own(&entry) => FileType::Directory,
                None => match self.named(&dir, &entry)? {
                    Named::File(found) => kind(found.attributes.kind),
                    Named::Refused => FileType::RegularFile,
                    Named::Gone => return Ok(None),
                },
            };
            let number = INodeNo(entry.fileid);
            let full = add(number, entry.cookie.value, is, &entry.name);
            Ok(Some(full))
        })
    }

    /// As [`readdir`](Self::readdir), with attributes and how long they are valid.
    pub fn readdirplus(
        &self,
        number: u64,
        open: u64,
        offset: u64,
        mut add: impl FnMut(&FileAttr, &Duration, u64, &OsStr) -> bool,
    ) -> Result<(), Errno> {
        let dir = self.inode(number)?.handle;
        self.list(&dir, open, offset, |listed| {
            let (cookie, name) = (listed.cookie.value, &listed.name);
            // The kernel uses only number and kind of these two, and counts no reference for them.
            if is_own(&listed) {
                let attributes = match listed.attributes {
                    Some(attributes) => attributes,
                    None => self.fs.getattr(&dir).map_err(errno)?,
                };
                let shown = shown(listed.fileid, &attributes, false);
                let full = add(&shown, &self.kept, cookie, name);
                return Ok(Some(full));
            }
            let found = match self.named(&dir, &listed)? {
                Named::File(found) => found,
                Named::Gone => return Ok(None),
                Named::Refused => {
                    // The kernel looks it up before it uses it, because nothing of this is valid for any time.
                    let shown = of_unknown(self.inodes.number_of_none());
                    let full = add(&shown, &Duration::ZERO, cookie, name);
                    return Ok(Some(full));
                }
            };
            let (inode, shown) = self.told(&found);
            let full = add(&shown, &self.kept, cookie, name);
            if full {
                self.inodes.forget(inode.number, 1);
            }
            Ok(Some(full))
        })
    }
}
