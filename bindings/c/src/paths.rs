//! Operations on paths.

use crate::{
    client::odafs_client,
    error::{Error, at_border, handle, text},
};
use odafs::{Changes, Client, FileKind, Metadata, PathError};
use std::{
    ffi::{CStr, OsStr, c_char, c_int},
    os::unix::ffi::OsStrExt as _,
    path::Path,
    time::{SystemTime, UNIX_EPOCH},
};

pub(crate) fn path_of(text: &CStr) -> &Path {
    Path::new(OsStr::from_bytes(text.to_bytes()))
}

/// The attributes in the form of stat(2).
pub(crate) fn stat_of(metadata: &Metadata) -> libc::stat {
    let kind = match metadata.kind {
        FileKind::Regular => libc::S_IFREG,
        FileKind::Directory => libc::S_IFDIR,
        FileKind::BlockDevice => libc::S_IFBLK,
        FileKind::CharacterDevice => libc::S_IFCHR,
        FileKind::Symlink => libc::S_IFLNK,
        FileKind::Socket => libc::S_IFSOCK,
        FileKind::Pipe => libc::S_IFIFO,
    };
    // SAFETY: numbers alone, for each of which 0 is a value.
    let mut stat: libc::stat = unsafe { std::mem::zeroed() };
    stat.st_dev = metadata.filesystem_id;
    stat.st_ino = metadata.file_id;
    stat.st_mode = kind | metadata.mode & 0o7777;
    stat.st_nlink = metadata.links.into();
    stat.st_uid = metadata.uid;
    stat.st_gid = metadata.gid;
    stat.st_rdev = libc::makedev(metadata.device.0, metadata.device.1);
    stat.st_size = metadata.size.try_into().unwrap_or(i64::MAX);
    stat.st_blksize = 4096;
    stat.st_blocks = (metadata.used / 512).try_into().unwrap_or(i64::MAX);
    let since = |time: SystemTime| time.duration_since(UNIX_EPOCH).unwrap_or_default();
    let split = |time| {
        (
            since(time).as_secs() as i64,
            since(time).subsec_nanos().into(),
        )
    };
    (stat.st_atime, stat.st_atime_nsec) = split(metadata.accessed);
    (stat.st_mtime, stat.st_mtime_nsec) = split(metadata.modified);
    (stat.st_ctime, stat.st_ctime_nsec) = split(metadata.changed);
    stat
}

/// Stores an answer for C.
///
/// # Safety
/// `to` is NULL or has room for it.
pub(crate) unsafe fn put<T>(to: *mut T, answer: T, what: &str) -> Result<c_int, Error> {
    if to.is_null() {
        return Err(Error::invalid(format!("{what} is NULL")));
    }
    // SAFETY: not NULL, with room.
    unsafe { to.write(answer) };
    Ok(0)
}

/// An operation on a path.
///
/// # Safety
/// NULL, or connected; NULL, or a text that ends with a NUL.
unsafe fn on<T>(
    client: *const odafs_client,
    path: *const c_char,
    what: impl FnOnce(&Client, &Path) -> Result<T, PathError>,
) -> Result<T, Error> {
    // SAFETY: the caller's word.
    let (client, path) = unsafe { (handle(client, "client")?, text(path, "the path")?) };
    Ok(what(&client.client, path_of(path))?)
}

/// The attributes of a file. Symbolic links are followed.
///
/// # Safety
/// `client` is NULL or connected; `path` is NULL or a text that ends with a NUL; `stat` is NULL or points to a struct stat.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn odafs_stat(
    client: *const odafs_client,
    path: *const c_char,
    stat: *mut libc::stat,
) -> c_int {
    at_border(|| {
        // SAFETY: the caller's word.
        unsafe {
            let found = on(client, path, |client, path| client.stat(path))?;
            put(stat, stat_of(&found), "the struct stat")
        }
    })
}

/// The attributes of a file, or of a symbolic link itself.
///
/// # Safety
/// As odafs_stat().
#[unsafe(no_mangle)]
pub unsafe extern "C" fn odafs_lstat(
    client: *const odafs_client,
    path: *const c_char,
    stat: *mut libc::stat,
) -> c_int {
    at_border(|| {
        // SAFETY: the caller's word.
        unsafe {
            let found = on(client, path, |client, path| client.stat_link(path))?;
            put(stat, stat_of(&found), "the struct stat")
        }
    })
}

/// Creates a directory (mode 0755).
///
/// # Safety
/// `client` is NULL or connected; `path` is NULL or a text that ends with a NUL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn odafs_mkdir(client: *const odafs_client, path: *const c_char) -> c_int {
    // SAFETY: the caller's word.
    at_border(|| unsafe { on(client, path, |client, path| client.mkdir(path)).map(|()| 0) })
}

/// Removes a file or a symbolic link.
///
/// # Safety
/// As odafs_mkdir().
#[unsafe(no_mangle)]
pub unsafe extern "C" fn odafs_unlink(client: *const odafs_client, path: *const c_char) -> c_int {
    // SAFETY: the caller's word.
    at_border(|| unsafe { on(client, path, |client, path| client.remove(path)).map(|()| 0) })
}

/// Removes an empty directory.
///
/// # Safety
/// As odafs_mkdir().
#[unsafe(no_mangle)]
pub unsafe extern "C" fn odafs_rmdir(client: *const odafs_client, path: *const c_char) -> c_int {
    // SAFETY: the caller's word.
    at_border(|| unsafe { on(client, path, |client, path| client.rmdir(path)).map(|()| 0) })
}

/// Renames a file or directory. Whatever has the new name is replaced, in one step.
///
/// # Safety
/// `client` is NULL or connected; both paths are NULL or texts that end with a NUL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn odafs_rename(
    client: *const odafs_client,
    from: *const c_char,
    to: *const c_char,
) -> c_int {
    at_border(|| {
        // SAFETY: the caller's word.
        unsafe {
            let to = path_of(text(to, "the new path")?);
            on(client, from, |client, from| client.rename(from, to))?;
        }
        Ok(0)
    })
}

/// Gives the file `existing` another name, `path` (a hard link).
///
/// # Safety
/// As odafs_rename().
#[unsafe(no_mangle)]
pub unsafe extern "C" fn odafs_link(
    client: *const odafs_client,
    existing: *const c_char,
    path: *const c_char,
) -> c_int {
    at_border(|| {
        // SAFETY: the caller's word.
        unsafe {
            let path = path_of(text(path, "the new path")?);
            on(client, existing, |client, existing| {
                client.hard_link(existing, path)
            })?;
        }
        Ok(0)
    })
}

/// Creates a symbolic link at `path` that points to `target`.
///
/// # Safety
/// As odafs_rename().
#[unsafe(no_mangle)]
pub unsafe extern "C" fn odafs_symlink(
    client: *const odafs_client,
    target: *const c_char,
    path: *const c_char,
) -> c_int {
    at_border(|| {
        // SAFETY: the caller's word.
        unsafe {
            let target = path_of(text(target, "the target")?);
            on(client, path, |client, path| client.symlink(target, path))?;
        }
        Ok(0)
    })
}

/// The target of a symbolic link: at most `bytes` bytes, without a NUL at the end, as readlink(2) does. Returns how
/// many.
///
/// # Safety
/// As odafs_mkdir(); `buffer` has room for `bytes`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn odafs_readlink(
    client: *const odafs_client,
    path: *const c_char,
    buffer: *mut c_char,
    bytes: usize,
) -> libc::ssize_t {
    at_border(|| {
        // SAFETY: the caller's word.
        let (target, buffer) = unsafe {
            (
                on(client, path, |client, path| client.readlink(path))?,
                crate::file::memory(buffer.cast(), bytes)?,
            )
        };
        let target = target.as_os_str().as_bytes();
        let bytes = target.len().min(buffer.len());
        buffer[..bytes].copy_from_slice(&target[..bytes]);
        Ok(bytes as libc::ssize_t)
    })
}

/// Sets the size of a file: extends it with zeros, or truncates it.
///
/// # Safety
/// As odafs_mkdir().
#[unsafe(no_mangle)]
pub unsafe extern "C" fn odafs_truncate(
    client: *const odafs_client,
    path: *const c_char,
    bytes: u64,
) -> c_int {
    let changes = Changes {
        size: Some(bytes),
        ..Changes::default()
    };
    // SAFETY: the caller's word.
    at_border(|| unsafe { change(client, path, &changes) })
}

/// Sets the permission bits of a file.
///
/// # Safety
/// As odafs_mkdir().
#[unsafe(no_mangle)]
pub unsafe extern "C" fn odafs_chmod(
    client: *const odafs_client,
    path: *const c_char,
    mode: u32,
) -> c_int {
    let changes = Changes {
        mode: Some(mode & 0o7777),
        ..Changes::default()
    };
    // SAFETY: the caller's word.
    at_border(|| unsafe { change(client, path, &changes) })
}

/// # Safety
/// As [`on`].
unsafe fn change(
    client: *const odafs_client,
    path: *const c_char,
    changes: &Changes,
) -> Result<c_int, Error> {
    // SAFETY: the caller's word.
    unsafe {
        on(client, path, |client, path| {
            client.set_attributes(path, changes)
        })
    }
    .map(|_| 0)
}
