//! Open files: reads and writes.

use crate::{
    Cache,
    attributes::errno,
    files::{Files, Open},
    inodes::{Inode, locked},
    operations::BLOCK,
};
use fuser::{Errno, FileAttr, FopenFlags, TimeOrNow, WriteFlags};
use odafs::{Changes, When};
use rustix::fs::OFlags;
use std::sync::atomic::Ordering::SeqCst;

/// Whether the flags of an open file say that writes go to its end.
fn appends(flags: i32) -> bool {
    OFlags::from_bits_retain(flags as u32).contains(OFlags::APPEND)
}

/// The changes that SETATTR asks for.
pub struct Wanted {
    pub mode: Option<u32>,
    pub uid: Option<u32>,
    pub gid: Option<u32>,
    pub size: Option<u64>,
    pub atime: Option<TimeOrNow>,
    pub mtime: Option<TimeOrNow>,
}

/// Space in blocks of [`BLOCK`] bytes, and numbers of files.
pub struct Blocks {
    pub all: u64,
    pub free: u64,
    pub available: u64,
    pub files: u64,
    pub free_files: u64,
}

impl Files {
    pub fn getattr(&self, number: u64) -> Result<FileAttr, Errno> {
        let inode = self.inode(number)?;
        let attributes = self.fs.getattr(&inode.handle).map_err(errno)?;
        Ok(self.shown(&inode, &attributes))
    }

    pub fn setattr(&self, number: u64, wanted: Wanted) -> Result<FileAttr, Errno> {
        let inode = self.inode(number)?;
        let when = |time| match time {
            TimeOrNow::Now => When::Now,
            TimeOrNow::SpecificTime(time) => When::At(time),
        };
        let changes = Changes {
            mode: wanted.mode.map(|mode| mode & 0o7777),
            uid: wanted.uid,
            gid: wanted.gid,
            size: wanted.size,
            accessed: wanted.atime.map(when),
            modified: wanted.mtime.map(when),
        };
        if changes.size.is_some() {
            inode.changes();
        }
        let set = self.fs.setattr(&inode.handle, &changes, None);
        Ok(self.shown(&inode, &set.map_err(errno)?))
    }

    /// Opens a file. Returns its number, and the flags for the kernel.
    pub fn open(&self, number: u64, flags: i32) -> Result<(u64, FopenFlags), Errno> {
        let inode = self.inode(number)?;
        let (number, holds) = self.opening(&inode, || {
            let attributes = self.fs.getattr(&inode.handle).map_err(errno)?;
            Ok(self.opened(&inode, &attributes))
        })?;
        Ok((number, self.opened_as(&inode, holds, flags)))
    }

    /// The kernel's flags for an open file. `holds` says whether the kernel's pages of it are still valid.
    pub fn opened_as(&self, inode: &Inode, holds: bool, flags: i32) -> FopenFlags {
        if !holds {
            // The kernel would read only up to the size that it knows.
            self.forget_attributes(inode);
        }
        // The kernel would put appended data into its cache at the end that it knows, which may be outdated.
        let past = self.cache == Cache::Off || (appends(flags) && self.maps_direct.load(SeqCst));
        match (past, holds) {
            (true, _) => FopenFlags::FOPEN_DIRECT_IO,
            (false, true) => FopenFlags::FOPEN_KEEP_CACHE,
            (false, false) => FopenFlags::empty(),
        }
    }

    /// Reads. `cached` says whether the kernel keeps the bytes, for reads or for a mapping.
    pub fn read(
        &self,
        open: u64,
        offset: u64,
        buffer: &mut [u8],
        cached: bool,
    ) -> Result<usize, Errno> {
        let number = open;
        let open = self.open_file(number)?;
        open.inode.used(number);
        if cached {
            self.pages_come(&open.inode);
        }
        open.file.read_at(buffer, offset).map_err(errno)
    }

    /// Writes. Data from the kernel's cache has an offset. Data that a program appends goes to the file's present end
    /// at the server. The kernel lets one program at a time append to a file.
    pub fn write(
        &self,
        open: u64,
        offset: u64,
        data: &[u8],
        how: WriteFlags,
        flags: i32,
    ) -> Result<(), Errno> {
        let open = self.open_file(open)?;
        let inode = &open.inode;
        inode.changes();
        // The kernel keeps what it writes through its cache.
        self.pages_come(inode);
        let from_cache = how.contains(WriteFlags::FUSE_WRITE_CACHE);
        let offset = if appends(flags) && !from_cache {
            self.fs.getattr(&inode.handle).map_err(errno)?.size
        } else {
            offset
        };
        // The kernel also leaves the set-user-id bits to us: a write by another user clears them.
        if how.contains(WriteFlags::FUSE_WRITE_KILL_SUIDGID) {
            self.drop_set_id(inode)?;
        }
        // For writes past its cache, the kernel leaves the promise of O_SYNC to us.
        let stable = OFlags::from_bits_retain(flags as u32).contains(OFlags::DSYNC);
        let written = match stable {
            true => open.file.write_stable_at(data, offset),
            false => open.file.write_at(data, offset),
        };
        inode.changes();
        written.map_err(errno)
    }

    /// A file that is executed as its owner or group loses that property.
    fn drop_set_id(&self, inode: &Inode) -> Result<(), Errno> {
        const SET_USER: u32 = 0o4000;
        const SET_GROUP: u32 = 0o2000;
        const GROUP_EXECUTES: u32 = 0o10;
        let mode = self.fs.getattr(&inode.handle).map_err(errno)?.mode;
        let gone = match mode & GROUP_EXECUTES {
            0 => SET_USER,
            _ => SET_USER | SET_GROUP,
        };
        if mode & gone != 0 {
            let changes = Changes {
                mode: Some(mode & !gone),
                ..Changes::default()
            };
            let set = self.fs.setattr(&inode.handle, &changes, None);
            set.map_err(errno)?;
        }
        Ok(())
    }

    /// Brings written data to stable storage. The client knows what that is, through whichever number it was written.
    pub fn sync(&self, open: &Open) -> Result<(), Errno> {
        open.file.sync().map_err(errno)
    }

    pub fn fsync(&self, open: u64) -> Result<(), Errno> {
        self.sync(&*self.open_file(open)?)
    }

    /// The space of the file system that a file is in.
    pub fn statfs(&self, number: u64) -> Result<Blocks, Errno> {
        let inode = self.inode(number)?;
        let space = self.fs.statfs(&inode.handle).map_err(errno)?;
        let blocks = |bytes| bytes / u64::from(BLOCK);
        Ok(Blocks {
            all: blocks(space.total_bytes),
            free: blocks(space.free_bytes),
            available: blocks(space.available_bytes),
            files: space.total_files,
            free_files: space.free_files,
        })
    }

    /// A program closes one of its descriptors of a file. A file without a name needs no sync, because nobody can open
    /// it again.
    pub fn flush(&self, open: u64) -> Result<(), Errno> {
        let number = open;
        let open = self.open_file(number)?;
        open.inode.used(number);
        match open.inode.hidden() {
            Some(_) => Ok(()),
            None => self.sync(&open),
        }
    }

    /// The last descriptor of an open file is closed. Data from a mapping comes after the last flush.
    pub fn release(&self, open: u64) {
        let Some(open) = self.closed(open) else {
            return;
        };
        if open.inode.hidden().is_none() && self.sync(&open).is_err() {
            tracing::warn!("what a mapped file was written could not be synced");
        }
        // Another opening either comes first, so that this is not the last close, or finds the file gone.
        let _one = locked(&open.inode.naming);
        self.bury(&open.file, open.inode.close());
    }
}
