//! The kernel's requests and their answers.

use crate::{attributes::errno, data::Wanted, files::Files};
use fuser::{
    BsdFileFlags, Errno, FileAttr, FileHandle, Filesystem, FopenFlags, Generation, INodeNo,
    InitFlags, KernelConfig, LockOwner, OpenFlags, RenameFlags, ReplyAttr, ReplyCreate, ReplyData,
    ReplyDirectory, ReplyDirectoryPlus, ReplyEmpty, ReplyEntry, ReplyLseek, ReplyOpen, ReplyStatfs,
    ReplyWrite, ReplyXattr, Request, TimeOrNow, WriteFlags,
};
use std::{
    cell::RefCell, ffi::OsStr, io, os::unix::ffi::OsStrExt as _, path::Path, time::SystemTime,
};

/// The longest write, in bytes.
const WRITE_MAX: u32 = 1 << 20;
/// A limit for a thread's buffer, in bytes. The kernel asks for WRITE_MAX or its read ahead at once, whichever is more,
/// which is far less than this, so no read is cut short.
const READ_MAX: u32 = 16 << 20;
/// The unit of `statfs`, in bytes.
const BLOCK: u32 = 4096;

thread_local! {
    /// The buffer of a thread.
    static BUFFER: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

impl Files {
    fn entry(&self, reply: ReplyEntry, found: Result<FileAttr, Errno>) {
        match found {
            Ok(attributes) => reply.entry(&self.kept, &attributes, Generation(0)),
            Err(error) => reply.error(error),
        }
    }

    fn attributes(&self, reply: ReplyAttr, found: Result<FileAttr, Errno>) {
        match found {
            Ok(attributes) => reply.attr(&self.kept, &attributes),
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
// lists) and fallocate with EOPNOTSUPP,
// copies ranges by reading and writing, and seeks as if no file had holes.
impl Filesystem for Files {
    fn init(&mut self, _: &Request, config: &mut KernelConfig) -> io::Result<()> {
        // Not FUSE_ASYNC_DIO: with it the parts of one large O_DIRECT write come at once, and each appended part would
        // ask for the file's end before the others have moved it.
        let wanted = InitFlags::FUSE_AUTO_INVAL_DATA
            | InitFlags::FUSE_DO_READDIRPLUS
            | InitFlags::FUSE_READDIRPLUS_AUTO
            | InitFlags::FUSE_PARALLEL_DIROPS
            | InitFlags::FUSE_DIRECT_IO_ALLOW_MMAP;
        if self.acls {
            // The kernel asks for the attributes that hold the lists, and judges by them itself.
            let judges = config.add_capabilities(InitFlags::FUSE_POSIX_ACL);
            judges
                .map_err(|_| io::Error::other("the kernel's FUSE knows no access control lists"))?;
        }
        let there = config.capabilities() & wanted;
        // They are there.
        let _ = config.add_capabilities(there);
        self.maps_direct = there.contains(InitFlags::FUSE_DIRECT_IO_ALLOW_MMAP);
        let _ = config.set_max_write(WRITE_MAX);
        let _ = config.set_max_background(64);
        Ok(())
    }

    fn destroy(&mut self) {
        self.finish();
    }

    fn lookup(&self, _: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        self.entry(reply, Files::lookup(self, parent.0, name));
    }

    fn forget(&self, _: &Request, number: INodeNo, times: u64) {
        self.inodes.forget(number.0, times);
    }

    fn getattr(&self, _: &Request, number: INodeNo, _: Option<FileHandle>, reply: ReplyAttr) {
        self.attributes(reply, Files::getattr(self, number.0));
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
        self.attributes(reply, Files::setattr(self, number.0, wanted));
    }

    fn readlink(&self, _: &Request, number: INodeNo, reply: ReplyData) {
        let target = self
            .inode(number.0)
            .and_then(|inode| self.fs.readlink(&inode.handle).map_err(errno));
        match target {
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
        let made = Files::mknod(self, request, parent.0, name, mode, device);
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
        self.entry(reply, Files::mkdir(self, request, parent.0, name, mode));
    }

    fn unlink(&self, _: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        done(reply, Files::unlink(self, parent.0, name));
    }

    fn rmdir(&self, _: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        done(reply, Files::rmdir(self, parent.0, name));
    }

    fn symlink(
        &self,
        request: &Request,
        parent: INodeNo,
        name: &OsStr,
        target: &Path,
        reply: ReplyEntry,
    ) {
        self.entry(reply, Files::symlink(self, request, parent.0, name, target));
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
        // NFS version 3 can neither exchange names nor refuse to replace a name, in one step.
        if !flags.is_empty() {
            return reply.error(Errno::EINVAL);
        }
        let renamed = Files::rename(self, (parent.0, name), (new_parent.0, new_name));
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
        self.entry(reply, Files::link(self, number.0, new_parent.0, new_name));
    }

    fn open(&self, _: &Request, number: INodeNo, flags: OpenFlags, reply: ReplyOpen) {
        match Files::open(self, number.0, flags.0) {
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
        match Files::create(self, request, parent.0, name, mode, flags) {
            Ok((attributes, open, how)) => {
                let open = FileHandle(open);
                reply.created(&self.kept, &attributes, Generation(0), open, how);
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
            match Files::read(self, open.0, offset, &mut buffer[..size], cached) {
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
        match Files::write(self, open.0, offset, data, how, flags.0) {
            Ok(()) => reply.written(data.len() as u32),
            Err(error) => reply.error(error),
        }
    }

    fn flush(&self, _: &Request, _: INodeNo, open: FileHandle, _: LockOwner, reply: ReplyEmpty) {
        done(reply, Files::flush(self, open.0));
    }

    fn fsync(&self, _: &Request, _: INodeNo, open: FileHandle, _: bool, reply: ReplyEmpty) {
        let synced = self.open_file(open.0).and_then(|open| self.sync(&open));
        done(reply, synced);
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
        Files::release(self, open.0);
        reply.ok();
    }

    fn opendir(&self, _: &Request, _: INodeNo, _: OpenFlags, reply: ReplyOpen) {
        reply.opened(FileHandle(self.opened_directory()), FopenFlags::empty());
    }

    fn readdir(
        &self,
        _: &Request,
        number: INodeNo,
        open: FileHandle,
        offset: u64,
        mut reply: ReplyDirectory,
    ) {
        match Files::readdir(self, number.0, open.0, offset, &mut reply) {
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
        match Files::readdirplus(self, number.0, open.0, offset, &mut reply) {
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
        self.closed_directory(open.0);
        reply.ok();
    }

    /// The server has changed names on stable storage before it answers.
    fn fsyncdir(&self, _: &Request, _: INodeNo, _: FileHandle, _: bool, reply: ReplyEmpty) {
        reply.ok();
    }

    fn statfs(&self, _: &Request, number: INodeNo, reply: ReplyStatfs) {
        let space = self
            .inode(number.0)
            .and_then(|inode| self.fs.statfs(&inode.handle).map_err(errno));
        match space {
            Ok(space) => reply.statfs(
                space.total_bytes / u64::from(BLOCK),
                space.free_bytes / u64::from(BLOCK),
                space.available_bytes / u64::from(BLOCK),
                space.total_files,
                space.free_files,
                BLOCK,
                255,
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
        match Files::getxattr(self, number.0, name) {
            Err(error) => reply.error(error),
            // The kernel asks for the length alone.
            Ok(value) if size == 0 => reply.size(value.len() as u32),
            Ok(value) if value.len() > size as usize => reply.error(Errno::ERANGE),
            Ok(value) => reply.data(&value),
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
