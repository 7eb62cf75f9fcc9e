//! Listing a directory.

use crate::{
    client::odafs_client,
    error::{Error, at_border, handle, text},
    paths::{path_of, stat_of},
};
use odafs::ReadDir;
use std::{
    ffi::{CString, c_char, c_int},
    os::unix::ffi::OsStringExt as _,
    ptr,
};

/// A directory listing. Only one thread at a time may use it.
pub struct odafs_dir {
    entries: ReadDir,
    /// The name in the last entry for C.
    name: CString,
}

/// One name in a directory.
#[repr(C)]
pub struct odafs_entry {
    /// The name, without the directory. It is valid until the next call with the same odafs_dir.
    pub name: *const c_char,
    /// 1 if `stat` is set, 0 if the file has gone meanwhile.
    pub has_stat: c_int,
    /// The attributes (of a symbolic link itself, not of its target).
    pub stat: libc::stat,
}

/// Begins a directory listing. Returns NULL on failure.
///
/// # Safety
/// `client` is NULL or connected; `path` is NULL or a text that ends with a NUL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn odafs_opendir(
    client: *const odafs_client,
    path: *const c_char,
) -> *mut odafs_dir {
    at_border(|| {
        // SAFETY: the caller's word.
        let (client, path) = unsafe { (handle(client, "client")?, text(path, "the path")?) };
        let entries = client.client.read_dir(path_of(path))?;
        let name = CString::default();
        Ok(Box::into_raw(Box::new(odafs_dir { entries, name })))
    })
}

/// Gets the next entry, without "." and "..". Returns 1 if there is one, 0 at the end, -1 on failure.
///
/// # Safety
/// `dir` is NULL or open, and no other thread uses it; `entry` is NULL or points to an odafs_entry.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn odafs_readdir(dir: *mut odafs_dir, entry: *mut odafs_entry) -> c_int {
    at_border(|| {
        // SAFETY: the caller's word.
        let dir = unsafe { dir.as_mut() }.ok_or_else(|| Error::invalid("the dir is NULL"))?;
        if entry.is_null() {
            return Err(Error::invalid("the entry is NULL"));
        }
        let Some(next) = dir.entries.next() else {
            return Ok(0);
        };
        let next = next?;
        dir.name = CString::new(next.name.into_vec())
            .map_err(|_| Error::new(libc::EPROTO, "the server lists a name with a NUL in it"))?;
        // SAFETY: plain data that C has room for, written field by field.
        unsafe {
            (&raw mut (*entry).name).write(dir.name.as_ptr());
            (&raw mut (*entry).has_stat).write(c_int::from(next.metadata.is_some()));
            match &next.metadata {
                Some(known) => (&raw mut (*entry).stat).write(stat_of(known)),
                None => ptr::write_bytes(&raw mut (*entry).stat, 0, 1),
            }
        }
        Ok(1)
    })
}

/// Ends a listing. If `dir` is NULL, does nothing.
///
/// # Safety
/// `dir` is NULL, or came from odafs_opendir() and is not used again.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn odafs_closedir(dir: *mut odafs_dir) {
    // SAFETY: the caller's word.
    unsafe { crate::file::free(dir) };
}
