//! The system calls that rustix does not have: file handles, clones of bytes, and the ids that the kernel judges file access
//! by.
#![allow(unsafe_code)]

use std::ffi::CStr;
use std::io::{Error, Result};
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

use rustix::fs::{Access, AtFlags, OFlags};
use rustix::io::Errno;

/// The longest handle of name_to_handle_at(2) in bytes (`MAX_HANDLE_SZ`).
const HANDLE_BYTES_MAX: usize = 128;

/// `struct file_handle`, with room for the longest handle.
#[repr(C)]
struct FileHandle {
    handle_bytes: u32,
    handle_type: i32,
    f_handle: [u8; HANDLE_BYTES_MAX],
}

/// The handle by which a file system names an object.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct KernelHandle {
    /// `handle_type`: the encoding.
    pub kind: i32,
    /// `f_handle`.
    pub bytes: Vec<u8>,
}

/// The number of a mount, which no other has while it is in use.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Mount(libc::c_int);

/// name_to_handle_at(2) of an open file. Any descriptor will do, even one of `O_PATH`.
pub fn kernel_handle(of: BorrowedFd<'_>) -> Result<KernelHandle> {
    handle_and_mount(of).map(|(handle, _)| handle)
}

/// name_to_handle_at(2) of a name in a directory: the handle of its object, and the mount in which that lies. It
/// follows no link, but goes into what is mounted there.
pub fn named_handle(directory: BorrowedFd<'_>, name: &CStr) -> Result<(KernelHandle, Mount)> {
    handle_at(directory, name, AtFlags::empty())
}

/// As [`kernel_handle`], and the mount in which the file lies.
pub fn handle_and_mount(of: BorrowedFd<'_>) -> Result<(KernelHandle, Mount)> {
    handle_at(of, c"", AtFlags::EMPTY_PATH)
}

fn handle_at(of: BorrowedFd<'_>, name: &CStr, flags: AtFlags) -> Result<(KernelHandle, Mount)> {
    let mut handle = FileHandle {
        handle_bytes: HANDLE_BYTES_MAX as u32,
        handle_type: 0,
        f_handle: [0; HANDLE_BYTES_MAX],
    };
    let mut mount: libc::c_int = 0;
    // SAFETY: the path is a C string, and both pointers are to live objects of the types that the call fills in,
    // the handle with as much room as it says.
    let done = unsafe {
        libc::syscall(
            libc::SYS_name_to_handle_at,
            of.as_raw_fd(),
            name.as_ptr(),
            &raw mut handle,
            &raw mut mount,
            flags.bits(),
        )
    };
    if done != 0 {
        return Err(Error::last_os_error());
    }
    let length = (handle.handle_bytes as usize).min(HANDLE_BYTES_MAX);
    let handle = KernelHandle {
        kind: handle.handle_type,
        bytes: handle.f_handle[..length].to_vec(),
    };
    Ok((handle, Mount(mount)))
}

/// open_by_handle_at(2) on the file system of `mount`. Needs CAP_DAC_READ_SEARCH.
pub fn open_by_handle(
    mount: BorrowedFd<'_>,
    kind: i32,
    bytes: &[u8],
    flags: OFlags,
) -> Result<OwnedFd> {
    let mut handle = FileHandle {
        handle_bytes: bytes.len() as u32,
        handle_type: kind,
        f_handle: [0; HANDLE_BYTES_MAX],
    };
    let Some(room) = handle.f_handle.get_mut(..bytes.len()) else {
        return Err(Error::from_raw_os_error(libc::EINVAL));
    };
    room.copy_from_slice(bytes);
    // SAFETY: the handle is a live object with at least as many bytes as it says; the call only reads it.
    let fd = unsafe {
        libc::syscall(
            libc::SYS_open_by_handle_at,
            mount.as_raw_fd(),
            &raw mut handle,
            flags.bits() as libc::c_int,
        )
    };
    match libc::c_int::try_from(fd) {
        // SAFETY: the call returned a new descriptor that nothing else owns.
        Ok(fd) if fd >= 0 => Ok(unsafe { OwnedFd::from_raw_fd(fd) }),
        _ => Err(Error::last_os_error()),
    }
}

/// FICLONERANGE: makes bytes of the second file share their storage with those of the first.
pub fn clone_range(
    from: (BorrowedFd<'_>, u64),
    to: (BorrowedFd<'_>, u64),
    count: u64,
) -> rustix::io::Result<()> {
    let range = libc::file_clone_range {
        src_fd: from.0.as_raw_fd().into(),
        src_offset: from.1,
        src_length: count,
        dest_offset: to.1,
    };
    // SAFETY: the call only reads the range, which is a live object of the type that it takes, and both descriptors
    // are open.
    let done = unsafe { libc::ioctl(to.0.as_raw_fd(), libc::FICLONERANGE, &raw const range) };
    if done == 0 {
        return Ok(());
    }
    Err(Errno::from_io_error(&Error::last_os_error()).unwrap_or(Errno::IO))
}

/// setfsuid(2) for the calling thread alone. It returns the previous id and reports no failure. With `u32::MAX` it changes
/// nothing.
pub fn set_file_uid(uid: u32) -> u32 {
    // SAFETY: the call takes a number and touches no memory.
    unsafe { libc::setfsuid(uid) }.cast_unsigned()
}

/// setfsgid(2) for the calling thread alone, as [`set_file_uid`].
pub fn set_file_gid(gid: u32) -> u32 {
    // SAFETY: the call takes a number and touches no memory.
    unsafe { libc::setfsgid(gid) }.cast_unsigned()
}

/// faccessat2(2) of an open object (also of `O_PATH`), by the ids with which the kernel judges file access.
pub fn access(object: BorrowedFd<'_>, wanted: Access) -> rustix::io::Result<()> {
    let flags = AtFlags::EACCESS | AtFlags::EMPTY_PATH;
    // SAFETY: the path is a C string; the other arguments are numbers.
    let done = unsafe {
        libc::syscall(
            libc::SYS_faccessat2,
            object.as_raw_fd(),
            c"".as_ptr(),
            wanted.bits(),
            flags.bits(),
        )
    };
    if done == 0 {
        return Ok(());
    }
    Err(Errno::from_io_error(&Error::last_os_error()).unwrap_or(Errno::ACCESS))
}

/// Gives the calling thread a working directory, root and umask of its own.
pub fn unshare_umask() -> rustix::io::Result<()> {
    // SAFETY: of what may be unshared only the table of descriptors can break anything, and it is not asked for.
    unsafe { rustix::thread::unshare_unsafe(rustix::thread::UnshareFlags::FS) }
}

/// The kind of a file system, as statfs(2) numbers it, or 0 if that fails.
pub(super) fn kind_of_file_system(fd: BorrowedFd<'_>) -> u64 {
    rustix::fs::fstatfs(fd).map_or(0, |of| of.f_type as u64 & 0xFFFF_FFFF)
}

/// Whether a file system keeps open inodes in memory, so that a call for their attributes waits for no disk and no network.
pub(super) fn keeps_inodes_in_memory(kind: u64) -> bool {
    // ext2 to ext4, XFS, Btrfs, F2FS, bcachefs, tmpfs, ramfs, overlayfs.
    const KNOWN: [u64; 8] = [
        0xEF53,
        0x5846_5342,
        0x9123_683E,
        0xF2F5_2010,
        0xCA45_1A4E,
        0x0102_1994,
        0x8584_58F6,
        0x794C_7630,
    ];
    KNOWN.contains(&kind)
}

/// Whether a file system keeps all bytes in memory. (Memory may be swapped out, that of this process as well.)
pub(super) fn has_no_device(kind: u64) -> bool {
    // tmpfs, ramfs.
    [0x0102_1994, 0x8584_58F6].contains(&kind)
}

/// Whether each block of a file system is that of one file at most.
pub(super) fn shares_no_storage(kind: u64) -> bool {
    // ext2 to ext4.
    kind == 0xEF53 || has_no_device(kind)
}

/// Whether only this host's kernel changes the file system, so that inotify reports each change. Others change NFS, SMB,
/// FUSE, 9p, Ceph and other clusters behind its back.
pub(super) fn is_of_this_host(kind: u64) -> bool {
    // FAT, exFAT, NTFS, ZFS, JFS, ReiserFS, NILFS, HFS+, ISO 9660, SquashFS, EROFS.
    const MORE: [u64; 11] = [
        0x4D44,
        0x2011_BAB0,
        0x7366_746E,
        0x2FC1_2FC1,
        0x3153_464A,
        0x5265_4973,
        0x3434,
        0x482B,
        0x9660,
        0x7371_7368,
        0xE0F5_E1E2,
    ];
    keeps_inodes_in_memory(kind) || MORE.contains(&kind)
}
