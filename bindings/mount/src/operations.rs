//! The kernel's requests by /dev/fuse, and their answers. [`uring`](crate::uring) has those by io_uring.

use crate::{
    acls::Xattr,
    data::Wanted,
    files::{Caller, Files},
    uring::Rings,
};
use fuser::{
    BsdFileFlags, Errno, FileAttr, FileHandle, Filesystem, FopenFlags, Generation, INodeNo,
    InitFlags, KernelConfig, LockOwner, OpenFlags, RenameFlags, ReplyAttr, ReplyCreate, ReplyData,
    ReplyDirectory, ReplyDirectoryPlus, ReplyEmpty, ReplyEntry, ReplyLseek, ReplyOpen, ReplyStatfs,
    ReplyWrite, ReplyXattr, Request, TimeOrNow, WriteFlags,
};
use std::{
    cell::RefCell,
    ffi::OsStr,
    io,
    os::unix::ffi::OsStrExt as _,
    path::Path,
    sync::{Arc, atomic::Ordering::SeqCst},
    time::{Duration, SystemTime},
};

/// The longest write, in bytes.
pub const WRITE_MAX: u32 = 1 << 20;
/// The unit of `statfs`, in bytes.
pub const BLOCK: u32 = 4096;
/// The longest name, in bytes, as `statfs` tells it.
pub const NAME_MAX: u32 = 255;
/// A limit for a thread's buffer, in bytes. The kernel asks for WRITE_MAX or its read ahead at once, whichever is more,
/// which is far less than this, so no read is cut short.
const READ_MAX: u32 = 16 << 20;

thread_local! {
    /// The buffer of a thread.
    static BUFFER: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

/// The files of a mount, for [`fuser`].
pub struct Device {
    pub files: Arc<Files>,
    /// If the kernel is to use io_uring. Then it keeps to /dev/fuse only for requests that need no answer.
    pub rings: Option<Arc<Rings>>,
}

fn caller(request: &Request) -> Caller {
    Caller {
        uid: request.uid(),
        gid: request.gid(),
    }
}

impl Device {
    fn entry(&self, reply: ReplyEntry, found: Result<FileAttr, Errno>) {
        match found {
            Ok(attributes) => reply.entry(&self.files.kept, &attributes, Generation(0)),
            Err(error) => reply.error(error),
        }
    }

    fn attributes(&self, reply: ReplyAttr, found: Result<FileAttr, Errno>) {
        match found {
            Ok(attributes) => reply.attr(&self.files.kept, &attributes),
            Err(error) => reply.error(error),
        }
    }
}

fn done(reply: ReplyEmpty, result: Result<(), Errno>) {
    match result {
        Ok(()) => reply.ok(),
        Err(error) => reply.error(error),
    }
}

// Locks are the kernel's own. After ENOSYS the kernel itself refuses extended attributes (to set them, where it judges by
// lists) and fallocate with EOPNOTSUPP, copies ranges by reading and writing, and seeks as if no file had holes.
impl Filesystem for Device {
    fn init(&mut self, _: &Request, config: &mut KernelConfig) -> io::Result<()> {
        // Not FUSE_ASYNC_DIO: with it the parts of one large O_DIRECT write come at once, and each appended part would
        // ask for the file's end before the others have moved it.
        let wanted = InitFlags::FUSE_AUTO_INVAL_DATA
            | InitFlags::FUSE_DO_READDIRPLUS
            | InitFlags::FUSE_READDIRPLUS_AUTO
            | InitFlags::FUSE_PARALLEL_DIROPS
            | InitFlags::FUSE_DIRECT_IO_ALLOW_MMAP;
        if self.files.acls {
            // The kernel asks for the attributes that hold the lists, and judges by them itself.
            let judges = config.add_capabilities(InitFlags::FUSE_POSIX_ACL);
            judges
                .map_err(|_| io::Error::other("the kernel's FUSE knows no access control lists"))?;
        }
        let there = config.capabilities() & wanted;
        // They are there.
        let _ = config.add_capabilities(there);
        let maps = there.contains(InitFlags::FUSE_DIRECT_IO_ALLOW_MMAP);
        self.files.maps_direct.store(maps, SeqCst);
        let _ = config.set_max_write(WRITE_MAX);
        let _ = config.set_max_background(64);
        if let Some(rings) = &self.rings
            && config
                .add_capabilities(InitFlags::FUSE_OVER_IO_URING)
                .is_ok()
        {
            // No request is to be longer than the memory of a ring's entry.
            let _ = config.set_max_readahead(WRITE_MAX);
            rings.agree();
        }
        Ok(())
    }

    fn lookup(&self, _: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        self.entry(reply, self.files.lookup(parent.0, name));
    }

    fn forget(&self, _: &Request, number: INodeNo, times: u64) {
        self.files.inodes.forget(number.0, times);
    }

    fn getattr(&self, _: &Request, number: INodeNo, _: Option<FileHandle>, reply: ReplyAttr) {
        self.attributes(reply, self.files.getattr(number.0));
    }

    fn setattr(
        &self,
        _: &Request,
        number: INodeNo,
        mode: Option<u32>,
        uid: Option<u32>,
        gid: Option<u32>,
        size: Option<u64>,
        atime: Option<TimeOrNow>,
        mtime: Option<TimeOrNow>,
        _ctime: Option<SystemTime>,
        _: Option<FileHandle>,
        _crtime: Option<SystemTime>,
        _chgtime: Option<SystemTime>,
        _bkuptime: Option<SystemTime>,
        _: Option<BsdFileFlags>,
        reply: ReplyAttr,
    ) {
        let wanted = Wanted {
            mode,
            uid,
            gid,
            size,
            atime,
            mtime,
        };
        self.attributes(reply, self.files.setattr(number.0, wanted));
    }

    fn readlink(&self, _: &Request, number: INodeNo, reply: ReplyData) {
        match self.files.readlink(number.0) {
            Ok(target) => reply.data(target.as_bytes()),
            Err(error) => reply.error(error),
        }
    }

    fn mknod(
        &self,
        request: &Request,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        _umask: u32,
        device: u32,
        reply: ReplyEntry,
    ) {
        let made = self
            .files
            .mknod(caller(request), parent.0, name, mode, device);
        self.entry(reply, made);
    }

    fn mkdir(
        &self,
        request: &Request,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        _umask: u32,
        reply: ReplyEntry,
    ) {
        self.entry(
            reply,
            self.files.mkdir(caller(request), parent.0, name, mode),
        );
    }

    fn unlink(&self, _: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        done(reply, self.files.unlink(parent.0, name));
    }

    fn rmdir(&self, _: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        done(reply, self.files.rmdir(parent.0, name));
    }

    fn symlink(
        &self,
        request: &Request,
        parent: INodeNo,
        name: &OsStr,
        target: &Path,
        reply: ReplyEntry,
    ) {
        self.entry(
            reply,
            self.files.symlink(caller(request), parent.0, name, target),
        );
    }

    fn rename(
        &self,
        _: &Request,
        parent: INodeNo,
        name: &OsStr,
        new_parent: INodeNo,
        new_name: &OsStr,
        flags: RenameFlags,
        reply: ReplyEmpty,
    ) {
        let (from, to) = ((parent.0, name), (new_parent.0, new_name));
        let renamed = self.files.rename(from, to, flags.bits());
        done(reply, renamed);
    }

    fn link(
        &self,
        _: &Request,
        number: INodeNo,
        new_parent: INodeNo,
        new_name: &OsStr,
        reply: ReplyEntry,
    ) {
        self.entry(reply, self.files.link(number.0, new_parent.0, new_name));
    }

    fn open(&self, _: &Request, number: INodeNo, flags: OpenFlags, reply: ReplyOpen) {
        match self.files.open(number.0, flags.0) {
            Ok((open, how)) => reply.opened(FileHandle(open), how),
            Err(error) => reply.error(error),
        }
    }

    fn create(
        &self,
        request: &Request,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        _umask: u32,
        flags: i32,
        reply: ReplyCreate,
    ) {
        match self
            .files
            .create(caller(request), parent.0, name, mode, flags)
        {
            Ok((attributes, open, how)) => {
                let open = FileHandle(open);
                reply.created(&self.files.kept, &attributes, Generation(0), open, how);
            }
            Err(error) => reply.error(error),
        }
    }

    fn read(
        &self,
        _: &Request,
        _: INodeNo,
        open: FileHandle,
        offset: u64,
        size: u32,
        _: OpenFlags,
        owner: Option<LockOwner>,
        reply: ReplyData,
    ) {
        // The kernel names the reader only where it passes the bytes on without keeping them.
        let cached = owner.is_none();
        BUFFER.with_borrow_mut(|buffer| {
            let size = size.min(READ_MAX) as usize;
            if buffer.len() < size {
                buffer.resize(size, 0);
            }
            match self.files.read(open.0, offset, &mut buffer[..size], cached) {
                Ok(bytes) => reply.data(&buffer[..bytes]),
                Err(error) => reply.error(error),
            }
        });
    }

    fn write(
        &self,
        _: &Request,
        _: INodeNo,
        open: FileHandle,
        offset: u64,
        data: &[u8],
        how: WriteFlags,
        flags: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyWrite,
    ) {
        match self.files.write(open.0, offset, data, how, flags.0) {
            Ok(()) => reply.written(data.len() as u32),
            Err(error) => reply.error(error),
        }
    }

    fn flush(&self, _: &Request, _: INodeNo, open: FileHandle, _: LockOwner, reply: ReplyEmpty) {
        done(reply, self.files.flush(open.0));
    }

    fn fsync(&self, _: &Request, _: INodeNo, open: FileHandle, _: bool, reply: ReplyEmpty) {
        done(reply, self.files.fsync(open.0));
    }

    fn release(
        &self,
        _: &Request,
        _: INodeNo,
        open: FileHandle,
        _: OpenFlags,
        _: Option<LockOwner>,
        _flush: bool,
        reply: ReplyEmpty,
    ) {
        self.files.release(open.0);
        reply.ok();
    }

    fn opendir(&self, _: &Request, _: INodeNo, _: OpenFlags, reply: ReplyOpen) {
        reply.opened(
            FileHandle(self.files.opened_directory()),
            FopenFlags::empty(),
        );
    }

    fn readdir(
        &self,
        _: &Request,
        number: INodeNo,
        open: FileHandle,
        offset: u64,
        mut reply: ReplyDirectory,
    ) {
        let add = |number, next, kind, name: &OsStr| reply.add(number, next, kind, name);
        match self.files.readdir(number.0, open.0, offset, add) {
            Ok(()) => reply.ok(),
            Err(error) => reply.error(error),
        }
    }

    fn readdirplus(
        &self,
        _: &Request,
        number: INodeNo,
        open: FileHandle,
        offset: u64,
        mut reply: ReplyDirectoryPlus,
    ) {
        let add = |shown: &FileAttr, kept: &Duration, next, name: &OsStr| {
            reply.add(shown.ino, next, name, kept, shown, Generation(0))
        };
        match self.files.readdirplus(number.0, open.0, offset, add) {
            Ok(()) => reply.ok(),
            Err(error) => reply.error(error),
        }
    }

    fn releasedir(
        &self,
        _: &Request,
        _: INodeNo,
        open: FileHandle,
        _: OpenFlags,
        reply: ReplyEmpty,
    ) {
        self.files.closed_directory(open.0);
        reply.ok();
    }

    /// The server has changed names on stable storage before it answers.
    fn fsyncdir(&self, _: &Request, _: INodeNo, _: FileHandle, _: bool, reply: ReplyEmpty) {
        reply.ok();
    }

    fn statfs(&self, _: &Request, number: INodeNo, reply: ReplyStatfs) {
        match self.files.statfs(number.0) {
            Ok(space) => reply.statfs(
                space.all,
                space.free,
                space.available,
                space.files,
                space.free_files,
                BLOCK,
                NAME_MAX,
                BLOCK,
            ),
            Err(error) => reply.error(error),
        }
    }

    fn setxattr(
        &self,
        _: &Request,
        _: INodeNo,
        _: &OsStr,
        _: &[u8],
        _: i32,
        _: u32,
        reply: ReplyEmpty,
    ) {
        reply.error(Errno::ENOSYS);
    }

    fn getxattr(&self, _: &Request, number: INodeNo, name: &OsStr, size: u32, reply: ReplyXattr) {
        match self.files.getxattr(number.0, name, size) {
            Ok(Xattr::Length(length)) => reply.size(length),
            Ok(Xattr::Value(value)) => reply.data(&value),
            Err(error) => reply.error(error),
        }
    }

    fn listxattr(&self, _: &Request, _: INodeNo, _: u32, reply: ReplyXattr) {
        reply.error(Errno::ENOSYS);
    }

    fn removexattr(&self, _: &Request, _: INodeNo, _: &OsStr, reply: ReplyEmpty) {
        reply.error(Errno::ENOSYS);
    }

    fn fallocate(
        &self,
        _: &Request,
        _: INodeNo,
        _: FileHandle,
        _: u64,
        _: u64,
        _: i32,
        reply: ReplyEmpty,
    ) {
        reply.error(Errno::ENOSYS);
    }

    fn lseek(&self, _: &Request, _: INodeNo, _: FileHandle, _: i64, _: i32, reply: ReplyLseek) {
        reply.error(Errno::ENOSYS);
    }
}
