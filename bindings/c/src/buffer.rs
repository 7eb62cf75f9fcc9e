//! Registered memory.

use crate::error::{Error, at_border, handle};
use crate::file::odafs_file;
use odafs::Buffer;
use std::{
    ffi::c_void,
    sync::{Mutex, MutexGuard, TryLockError},
};

/// Registered memory. Over RDMA (odafs://), the server writes data of reads directly into it, and nothing is copied
/// here. The memory belongs to no connection. Only one read at a time may use it.
pub struct odafs_buffer {
    memory: Mutex<Buffer>,
    bytes: usize,
}

impl odafs_buffer {
    /// The memory, for one call.
    pub(crate) fn take(&self) -> Result<MutexGuard<'_, Buffer>, Error> {
        match self.memory.try_lock() {
            Ok(memory) => Ok(memory),
            // The memory is whole between calls, however the last one ended.
            Err(TryLockError::Poisoned(memory)) => Ok(memory.into_inner()),
            Err(TryLockError::WouldBlock) => Err(Error::new(
                libc::EBUSY,
                "another thread reads into this buffer (give each thread a buffer of its own)",
            )),
        }
    }
}

/// Zeroed memory of `bytes` bytes. Returns NULL on failure. EINVAL: `bytes` is 0. ENOMEM: there is no memory left.
#[unsafe(no_mangle)]
pub extern "C" fn odafs_buffer_new(bytes: usize) -> *mut odafs_buffer {
    at_border(|| {
        if bytes == 0 {
            return Err(Error::invalid("a buffer of 0 bytes"));
        }
        let memory = Buffer::new(bytes).map_err(|error| {
            Error::new(libc::ENOMEM, format!("a buffer of {bytes} bytes: {error}"))
        })?;
        let memory = Mutex::new(memory);
        Ok(Box::into_raw(Box::new(odafs_buffer { memory, bytes })))
    })
}

/// The bytes. The pointer is valid until the next read into the buffer begins; ask again after that. Returns NULL with
/// EBUSY while another thread reads into the buffer.
///
/// # Safety
/// `buffer` is NULL or a buffer.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn odafs_buffer_data(buffer: *const odafs_buffer) -> *mut c_void {
    at_border(|| {
        // SAFETY: the caller's word.
        let mut memory = unsafe { handle(buffer, "buffer")? }.take()?;
        Ok(memory.as_mut_ptr().cast())
    })
}

/// The length in bytes, or 0 if `buffer` is NULL.
///
/// # Safety
/// `buffer` is NULL or a buffer.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn odafs_buffer_bytes(buffer: *const odafs_buffer) -> usize {
    // SAFETY: the caller's word.
    unsafe { buffer.as_ref() }.map_or(0, |buffer| buffer.bytes)
}

/// Frees the memory. If `buffer` is NULL, does nothing.
///
/// # Safety
/// `buffer` is NULL, or came from odafs_buffer_new() and neither it nor its bytes are used again.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn odafs_buffer_free(buffer: *mut odafs_buffer) {
    // SAFETY: the caller's word.
    unsafe { crate::file::free(buffer) };
}

/// As odafs_pread(), into the bytes from `from` to `from + bytes` of registered memory. EINVAL: these are out of
/// bounds.
///
/// # Safety
/// `file` is NULL or open; `buffer` is NULL or a buffer whose bytes no other thread uses during the call.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn odafs_pread_buffer(
    file: *const odafs_file,
    buffer: *const odafs_buffer,
    from: usize,
    bytes: usize,
    offset: u64,
) -> libc::ssize_t {
    at_border(|| {
        // SAFETY: the caller's word.
        let (file, buffer) = unsafe { (handle(file, "file")?, handle(buffer, "buffer")?) };
        let range = from
            .checked_add(bytes)
            .filter(|end| *end <= buffer.bytes)
            .map(|end| from..end)
            .ok_or_else(|| {
                Error::invalid(format!(
                    "{bytes} bytes at byte {from} of a buffer of {} bytes",
                    buffer.bytes
                ))
            })?;
        let got = file
            .to_read()?
            .read_into(&mut *buffer.take()?, range, offset)?;
        Ok(got as libc::ssize_t)
    })
}
