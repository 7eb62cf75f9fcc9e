//! Names: creating, finding, moving and removing them.

use crate::{
    attributes::{errno, is_gone, major_minor, may_be_made},
    files::{Caller, Files},
    inodes::{Hidden, Inode},
};
use fuser::{Errno, FileAttr, FopenFlags};
use odafs::{
    Changes, PathError,
    fs::{Create, Entry, FileHandle, Node},
};
use rustix::fs::{FileType, OFlags};
use std::{
    ffi::{OsStr, OsString},
    hash::{BuildHasher as _, RandomState},
    path::Path,
    time::{Duration, Instant},
};

/// How long a directory that is to be removed waits for removed files in it that are being closed.
const CLOSES_WITHIN: Duration = Duration::from_millis(200);

fn mode(mode: u32) -> Changes {
    Changes {
        mode: Some(mode & 0o7777),
        ..Changes::default()
    }
}

/// A unique name.
fn hidden_name() -> OsString {
    format!(".odafs{:016x}", RandomState::new().hash_one(0)).into()
}

impl Files {
    pub fn readlink(&self, number: u64) -> Result<OsString, Errno> {
        let inode = self.inode(number)?;
        self.fs.readlink(&inode.handle).map_err(errno)
    }

    pub fn lookup(&self, dir: u64, name: &OsStr) -> Result<FileAttr, Errno> {
        let dir = self.inode(dir)?;
        if self.is_hidden(&dir.handle, name) {
            return Err(Errno::ENOENT);
        }
        let entry = self.fs.lookup(&dir.handle, name).map_err(errno)?;
        Ok(self.told(&entry).1)
    }

    /// Creates a regular file and opens it.
    pub fn create(
        &self,
        caller: Caller,
        dir: u64,
        name: &OsStr,
        bits: u32,
        flags: i32,
    ) -> Result<(FileAttr, u64, FopenFlags), Errno> {
        let dir = self.inode(dir)?;
        let wanted = OFlags::from_bits_retain(flags as u32);
        let entry = self.owned(caller, &dir.handle, mode(bits), |changes| {
            self.fs
                .create(&dir.handle, name, &Create::Guarded(*changes))
        });
        // Another client has created it since the kernel found no such name. The kernel looks again, and opens it as
        // any other file.
        let entry = entry.map_err(|error| match error {
            Errno::EEXIST if !wanted.contains(OFlags::EXCL) => Errno::ESTALE,
            error => error,
        })?;
        let (inode, shown) = self.told(&entry);
        // The kernel locks the directory, so nobody removes the name before it is open.
        let (number, holds) = self.opened(&inode, &entry.attributes);
        let how = self.opened_as(&inode, holds, flags);
        Ok((shown, number, how))
    }

    pub fn mknod(
        &self,
        caller: Caller,
        dir: u64,
        name: &OsStr,
        bits: u32,
        device: u32,
    ) -> Result<FileAttr, Errno> {
        let dir = self.inode(dir)?;
        let (major, minor) = major_minor(device);
        let node = match FileType::from_raw_mode(bits) {
            FileType::RegularFile => None,
            FileType::Fifo => Some(Node::Pipe),
            FileType::Socket => Some(Node::Socket),
            FileType::CharacterDevice => Some(Node::CharacterDevice(major, minor)),
            FileType::BlockDevice => Some(Node::BlockDevice(major, minor)),
            _ => return Err(Errno::EINVAL),
        };
        let entry = self.owned(caller, &dir.handle, mode(bits), |changes| match node {
            None => self
                .fs
                .create(&dir.handle, name, &Create::Guarded(*changes)),
            Some(node) => self.fs.mknod(&dir.handle, name, node, changes),
        })?;
        Ok(self.told(&entry).1)
    }

    pub fn mkdir(
        &self,
        caller: Caller,
        dir: u64,
        name: &OsStr,
        bits: u32,
    ) -> Result<FileAttr, Errno> {
        let dir = self.inode(dir)?;
        let entry = self.owned(caller, &dir.handle, mode(bits), |changes| {
            self.fs.mkdir(&dir.handle, name, changes)
        })?;
        Ok(self.told(&entry).1)
    }

    pub fn symlink(
        &self,
        caller: Caller,
        dir: u64,
        name: &OsStr,
        target: &Path,
    ) -> Result<FileAttr, Errno> {
        let dir = self.inode(dir)?;
        let mut entry = self.fs.symlink(&dir.handle, name, target).map_err(errno)?;
        let given = self.owned(caller, &dir.handle, Changes::default(), |changes| {
            match *changes == Changes::default() {
                true => Ok(entry.attributes),
                false => self.fs.setattr(&entry.handle, changes, None),
            }
        });
        entry.attributes = given?;
        Ok(self.told(&entry).1)
    }

    pub fn link(&self, file: u64, dir: u64, name: &OsStr) -> Result<FileAttr, Errno> {
        let (file, dir) = (self.inode(file)?, self.inode(dir)?);
        // As for any file without a name.
        if file.hidden().is_some() {
            return Err(Errno::ENOENT);
        }
        self.fs
            .link(&file.handle, &dir.handle, name)
            .map_err(errno)?;
        let attributes = self.fs.getattr(&file.handle).map_err(errno)?;
        let entry = Entry {
            handle: file.handle,
            attributes,
        };
        Ok(self.told(&entry).1)
    }

    pub fn rmdir(&self, dir: u64, name: &OsStr) -> Result<(), Errno> {
        let dir = self.inode(dir)?.handle;
        let began = Instant::now();
        loop {
            let hiding = self.any_hiding()
                && (self.fs.lookup(&dir, name)).is_ok_and(|found| self.is_hiding_in(&found.handle));
            let error = match self.fs.rmdir(&dir, name) {
                Ok(()) => return Ok(()),
                Err(error) => errno(error),
            };
            // The kernel reports a last close when it likes. A file that was closed and removed just before may still
            // be hidden.
            let full = [Errno::ENOTEMPTY, Errno::EEXIST].contains(&error);
            if !(full && hiding && began.elapsed() < CLOSES_WITHIN) {
                return Err(error);
            }
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    /// Removes a name. The last name of an open file is hidden until the file is closed.
    pub fn unlink(&self, dir: u64, name: &OsStr) -> Result<(), Errno> {
        let dir = self.inode(dir)?.handle;
        if self.is_hidden(&dir, name) {
            return Err(Errno::ENOENT);
        }
        let drop = || self.fs.unlink(&dir, name).map_err(errno);
        self.taking(&dir, name, drop, |inode| {
            let hidden = Hidden {
                dir,
                name: hidden_name(),
            };
            self.hides(&hidden);
            if let Err(error) = self.fs.rename(&dir, name, &dir, &hidden.name) {
                self.without(inode, &hidden, error)?;
            }
            self.hide(inode, hidden);
            Ok(())
        })
    }

    /// The call that was to give a file a hidden name has failed. It was made all the same if the name is there: the
    /// server may have died before it answered, or have answered its repetition.
    fn without(&self, inode: &Inode, hidden: &Hidden, error: PathError) -> Result<(), Errno> {
        let may_come = may_be_made(&error);
        match self.is_name_of(inode, &hidden.dir, &hidden.name) {
            Ok(true) => return Ok(()),
            Ok(false) if !may_come => self.hid(hidden),
            _ => inode.stray(hidden.clone()),
        }
        Err(errno(error))
    }

    /// Whether a name stands for a file.
    fn is_name_of(&self, inode: &Inode, dir: &FileHandle, name: &OsStr) -> Result<bool, Errno> {
        match self.fs.lookup(dir, name).map_err(errno) {
            Ok(found) => Ok(found.handle == inode.handle),
            Err(error) if is_gone(error) => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Keeps a hidden name until the last close, which may have happened.
    fn hide(&self, inode: &Inode, hidden: Hidden) {
        if let Some(hidden) = inode.hide(hidden) {
            self.unhide(&hidden);
        }
    }

    /// Renames. At each moment the new name stands for one of the files. If it stood for an open file, that first gets
    /// a hidden name too. If the server supports no hard links, those who have that file open lose it.
    pub fn rename(
        &self,
        (dir, name): (u64, &OsStr),
        (new_dir, new_name): (u64, &OsStr),
        flags: u32,
    ) -> Result<(), Errno> {
        // NFS version 3 can neither exchange names nor refuse to replace a name, in one step.
        if flags != 0 {
            return Err(Errno::EINVAL);
        }
        let (dir, new_dir) = (self.inode(dir)?.handle, self.inode(new_dir)?.handle);
        if self.is_hidden(&dir, name) {
            return Err(Errno::ENOENT);
        }
        if self.is_hidden(&new_dir, new_name) {
            return Err(Errno::EBUSY);
        }
        let rename = || self.fs.rename(&dir, name, &new_dir, new_name);
        // The kernel renames nothing to itself, and this is the file's last name, so both names are not of one file.
        let drop = || rename().map_err(errno);
        self.taking(&new_dir, new_name, drop, |inode| {
            let hidden = Hidden {
                dir: new_dir,
                name: hidden_name(),
            };
            self.hides(&hidden);
            let linked = self.fs.link(&inode.handle, &new_dir, &hidden.name);
            if let Err(error) = linked.or_else(|error| self.without(inode, &hidden, error)) {
                if ![Errno::EPERM, Errno::EOPNOTSUPP, Errno::EMLINK].contains(&error) {
                    return Err(error);
                }
                tracing::warn!("no links on the server ({error:?}): an open file is lost");
                return drop();
            }
            if let Err(error) = rename() {
                // If the file may be without the new name, or lose it later, the hidden one may be its only name.
                let stays =
                    !may_be_made(&error) && self.is_name_of(inode, &new_dir, new_name) == Ok(true);
                match stays {
                    true => _ = self.unhide(&hidden),
                    false => inode.stray(hidden),
                }
                return Err(errno(error));
            }
            self.hide(inode, hidden);
            Ok(())
        })
    }
}

#[cfg(test)]
#[path = "names_tests.rs"]
mod tests;
