//! Files: opening, reading and writing.

use crate::{
    client::odafs_client,
    error::{Error, at_border, handle, text},
    paths::{path_of, stat_of},
};
use odafs::{Changes, CreateOptions, File};
use std::{
    ffi::{c_char, c_int, c_void},
    panic::{AssertUnwindSafe, catch_unwind},
    sync::atomic::{AtomicU64, Ordering::Relaxed},
};

/// An open file. Any number of threads may use it at the same time.
pub struct odafs_file {
    pub(crate) file: File,
    /// A unique number for each open file.
    pub(crate) id: u64,
    reads: bool,
    writes: bool,
}

impl odafs_file {
    #[inline]
    pub(crate) fn to_read(&self) -> Result<&File, Error> {
        self.may(self.reads, "read", "O_WRONLY")
    }

    pub(crate) fn to_write(&self) -> Result<&File, Error> {
        self.may(self.writes, "written", "O_RDONLY")
    }

    #[inline]
    fn may(&self, may: bool, what: &str, flag: &str) -> Result<&File, Error> {
        match may {
            true => Ok(&self.file),
            false => Err(Error::new(
                libc::EBADF,
                format!(
                    "{} was opened {flag} and cannot be {what} (open it O_RDWR)",
                    self.file.path()
                ),
            )),
        }
    }
}

/// Opens or creates a file. `flags` are those of open(2): O_RDONLY, O_WRONLY or O_RDWR, with O_CREAT, O_EXCL and
/// O_TRUNC. O_CLOEXEC and O_LARGEFILE have no effect. O_APPEND and all others are EINVAL. `mode` is the permission bits
/// of a new file (no umask is applied). An absolute path begins with the export's name, as in a URL; a relative one
/// starts at the URL's path. Returns NULL on failure.
///
/// # Safety
/// `client` is NULL or connected; `path` is NULL or a text that ends with a NUL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn odafs_open(
    client: *const odafs_client,
    path: *const c_char,
    flags: c_int,
    mode: u32,
) -> *mut odafs_file {
    at_border(|| {
        // SAFETY: the caller's word.
        let (client, path) = unsafe {
            (
                &handle(client, "client")?.client,
                path_of(text(path, "the path")?),
            )
        };
        let access = flags & libc::O_ACCMODE;
        let known = libc::O_ACCMODE
            | libc::O_CREAT
            | libc::O_EXCL
            | libc::O_TRUNC
            | libc::O_CLOEXEC
            | libc::O_LARGEFILE;
        if flags & !known != 0 || access == libc::O_ACCMODE {
            return Err(Error::invalid(format!(
                "open {}: flags {flags:#o}: only O_RDONLY, O_WRONLY, O_RDWR, O_CREAT, O_EXCL and O_TRUNC are known \
                 (to append, write at the size that odafs_fstat tells)",
                path.display()
            )));
        }
        let has = |flag| flags & flag != 0;
        let file = match has(libc::O_CREAT) {
            true => client.create_with(
                path,
                &CreateOptions {
                    mode: mode & 0o7777,
                    exclusive: has(libc::O_EXCL),
                    truncate: has(libc::O_TRUNC),
                },
            )?,
            false => {
                if has(libc::O_TRUNC) {
                    let changes = Changes {
                        size: Some(0),
                        ..Changes::default()
                    };
                    client.set_attributes(path, &changes)?;
                }
                client.open(path)?
            }
        };
        static OPENED: AtomicU64 = AtomicU64::new(0);
        Ok(Box::into_raw(Box::new(odafs_file {
            file,
            id: OPENED.fetch_add(1, Relaxed),
            reads: access != libc::O_WRONLY,
            writes: access != libc::O_RDONLY,
        })))
    })
}

/// Closes a file. Written data that was not synced stays with the server. To be sure that it is on stable storage, call
/// odafs_fsync() first. If `file` is NULL, does nothing.
///
/// # Safety
/// `file` is NULL, or came from odafs_open() and is not used again.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn odafs_close(file: *mut odafs_file) {
    // SAFETY: the caller's word.
    unsafe { free(file) };
}

/// Frees what a handle points to.
///
/// # Safety
/// NULL, or a handle of ours that is not used again.
pub(crate) unsafe fn free<T>(handle: *mut T) {
    if !handle.is_null() {
        // SAFETY: it came from `Box::into_raw`.
        let handle = unsafe { Box::from_raw(handle) };
        let _ = catch_unwind(AssertUnwindSafe(|| drop(handle)));
    }
}

/// The caller's memory for a read.
///
/// # Safety
/// NULL with no bytes, or so many bytes that nobody else uses for `'a`.
#[inline]
pub(crate) unsafe fn memory<'a>(buffer: *mut c_void, bytes: usize) -> Result<&'a mut [u8], Error> {
    if bytes == 0 {
        return Ok(&mut []);
    }
    if buffer.is_null() || isize::try_from(bytes).is_err() {
        return Err(Error::invalid(format!(
            "a buffer of {bytes} bytes at {buffer:p}"
        )));
    }
    // SAFETY: not NULL and of a length that can be; the rest is the caller's word. A byte may have any value.
    Ok(unsafe { std::slice::from_raw_parts_mut(buffer.cast(), bytes) })
}

/// The caller's data for a write.
///
/// # Safety
/// NULL with no bytes, or so many bytes that nobody changes for `'a`.
pub(crate) unsafe fn data<'a>(buffer: *const c_void, bytes: usize) -> Result<&'a [u8], Error> {
    if bytes == 0 {
        return Ok(&[]);
    }
    if buffer.is_null() || isize::try_from(bytes).is_err() {
        return Err(Error::invalid(format!(
            "a buffer of {bytes} bytes at {buffer:p}"
        )));
    }
    // SAFETY: not NULL and of a length that can be; the rest is the caller's word.
    Ok(unsafe { std::slice::from_raw_parts(buffer.cast(), bytes) })
}

/// Reads up to `bytes` bytes from `offset` on. Returns how many were read: fewer than asked for only at the end of the
/// file, and 0 behind it. Returns -1 on failure; the buffer may have been written to then, but never is after the call.
///
/// # Safety
/// `file` is NULL or open; `buffer` has room for `bytes`, and no other thread uses that room during the call.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn odafs_pread(
    file: *const odafs_file,
    buffer: *mut c_void,
    bytes: usize,
    offset: u64,
) -> libc::ssize_t {
    at_border(|| {
        // SAFETY: the caller's word.
        let (file, buffer) = unsafe { (handle(file, "file")?, memory(buffer, bytes)?) };
        Ok(file.to_read()?.read_at(buffer, offset)? as libc::ssize_t)
    })
}

/// Writes all of `bytes` bytes at `offset`, and returns `bytes`. Until odafs_fsync() has returned 0, a crash of the
/// server may lose them. Returns -1 on failure: some of the bytes may have been written, and after ETIMEDOUT or
/// ECONNABORTED may still be.
///
/// # Safety
/// `file` is NULL or open; `buffer` holds `bytes` bytes, and no other thread changes them during the call.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn odafs_pwrite(
    file: *const odafs_file,
    buffer: *const c_void,
    bytes: usize,
    offset: u64,
) -> libc::ssize_t {
    at_border(|| {
        // SAFETY: the caller's word.
        let (file, data) = unsafe { (handle(file, "file")?, data(buffer, bytes)?) };
        file.to_write()?.write_at(data, offset)?;
        Ok(bytes as libc::ssize_t)
    })
}

/// Brings everything that was written to the file through this client to the server's stable storage. Sends again what
/// a restart of the server lost. Returns -1 with EIO if unsynced bytes were lost.
///
/// # Safety
/// `file` is NULL or open.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn odafs_fsync(file: *const odafs_file) -> c_int {
    at_border(|| {
        // SAFETY: the caller's word.
        unsafe { handle(file, "file")? }.file.sync()?;
        Ok(0)
    })
}

/// The present attributes of the file. `st_dev` is the server's number of its file system.
///
/// # Safety
/// `file` is NULL or open; `stat` is NULL or points to a struct stat.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn odafs_fstat(file: *const odafs_file, stat: *mut libc::stat) -> c_int {
    at_border(|| {
        // SAFETY: the caller's word.
        let found = unsafe { handle(file, "file")? }.file.metadata()?;
        // SAFETY: the caller's word.
        unsafe { crate::paths::put(stat, stat_of(&found), "the struct stat") }
    })
}

/// Checks what is cached of the file against the server, as opening it does. Returns 1 if all of it is still valid,
/// otherwise 0.
///
/// # Safety
/// `file` is NULL or open.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn odafs_revalidate(file: *const odafs_file) -> c_int {
    at_border(|| {
        // SAFETY: the caller's word.
        let held = unsafe { handle(file, "file")? }.file.revalidate()?;
        Ok(c_int::from(held))
    })
}
